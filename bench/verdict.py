"""Compares the figures with the gates that they must pass and the goals that they should reach."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import truediv
from statistics import median
from typing import Literal

from tabulate import tabulate

from bench.figures import exponent
from bench.load import Asked
from bench.questions import (
    BROADEST,
    ESTIMATED,
    GPU_NAMED,
    IN_A_BATCH,
    LISTED,
    LOADED,
    LOADED_AGAIN,
    QUESTIONS,
    SERVED,
    TRAINED,
    TRAINED_AGAIN,
    WORKLOADS_IN_IT,
    Peer,
    Question,
)
from bench.rounds import ALONE, BARE, MANY, SERVICE, SOME, WITH_DEPENDENCIES, Found, service_name

MIB = 1024**2

FEWEST, FIFTY_THOUSAND, MOST = 5_000, 50_000, 200_000


@dataclass(frozen=True, slots=True)
class Gate:
    """The limit that a figure must keep, and the value that it should reach."""

    gate: float
    goal: float
    better: Literal["more", "less"]

    def passed(self, value: float) -> bool:
        return value >= self.gate if self.better == "more" else value <= self.gate

    def reached(self, value: float) -> bool:
        return value >= self.goal if self.better == "more" else value <= self.goal


@dataclass(frozen=True, slots=True)
class Line:
    """A figure with its gate."""

    name: str
    value: float
    gate: Gate | None = None

    @property
    def verdict(self) -> str:
        if self.gate is None:
            return ""
        if not self.gate.passed(self.value):
            return "FAILS"
        return "goal" if self.gate.reached(self.value) else "passes"


RATES: dict[Question, Gate] = {
    LISTED: Gate(0.25, 0.4, "more"),
    GPU_NAMED: Gate(0.25, 0.4, "more"),
    BROADEST: Gate(0.08, 0.30, "more"),
}
"""Requests per second relative to the question's no-op, with 8 connections and the most offers."""

DELAYS: dict[Question, Gate] = {
    TRAINED_AGAIN: Gate(10, 4, "less"),
    TRAINED: Gate(100, 30, "less"),
    SERVED: Gate(150, 40, "less"),
    LOADED_AGAIN: Gate(10, 4, "less"),
    LOADED: Gate(100, 30, "less"),
    ESTIMATED: Gate(40, 15, "less"),
}
"""p50 relative to that of the question's no-op, with one connection and the most offers."""

GROWTHS: dict[Question, Gate] = {GPU_NAMED: Gate(0.3, 0.15, "less"), BROADEST: Gate(0.75, 0.3, "less")}
MORE_OFFERS = Gate(1.25, 1.1, "less")
"""p50 of an estimate for one machine at the most offers relative to the fewest: it should not depend on them."""
BATCH = Gate(0.2, 0.1, "less")
DURING_A_BATCH = Gate(5, 3, "less")
HEALTH_CHECK_MS = Gate(50, 20, "less")
"""The one absolute limit: load balancers wait for health checks in milliseconds, not in multiples of a no-op."""
SPREAD = Gate(5, 3, "less")
MANY_AGAINST_SOME = Gate(0.7, 0.95, "more")
FAILED_ANSWERS = Gate(0, 0, "less")
MEMORY_MIB = Gate(150, 100, "less")
BYTES_AN_OFFER = Gate(800, 450, "less")
START = Gate(6, 4, "less")


def ratio(one: Sequence[Asked], other: Sequence[Asked], figure: Callable[[Asked], float]) -> float:
    """Returns the median over the rounds of a figure of one measurement divided by that of the other."""
    return median(figure(mine) / figure(its) for mine, its in zip(one, other, strict=True))


def per_second(asked: Asked) -> float:
    return asked.per_second


def p50(asked: Asked) -> float:
    return asked.p50_seconds


def p99(asked: Asked) -> float:
    return asked.p99_seconds


def gated(found: Found, sizes: Sequence[int]) -> Iterator[Line]:
    """Yields the figures that have gates."""
    most = max(sizes)
    for question, gate in RATES.items():
        some = found.answers[most, question, SOME]
        noop = found.noops[most, question, SOME]
        yield Line(f"{question.name}: requests/s relative to {question.peer}", ratio(some, noop, per_second), gate)
    for question, gate in DELAYS.items():
        yield Line(f"{question.name}: p50 relative to {question.peer}", delay(found, question, most), gate)
    grown = delay(found, ESTIMATED, MOST) / delay(found, ESTIMATED, FEWEST)
    yield Line(f"{ESTIMATED.name}: p50 at {MOST:,} relative to {FEWEST:,}", grown, MORE_OFFERS)
    for question in RATES:
        some, many = found.answers[most, question, SOME], found.answers[most, question, MANY]
        yield Line(f"{question.name}: p99 relative to p50, 8 connections", spread(some), SPREAD)
        yield Line(
            f"{question.name}: requests/s, 32 connections relative to 8",
            ratio(many, some, per_second),
            MANY_AGAINST_SOME,
        )
    batch = f"a batch of {IN_A_BATCH:,} questions over {WORKLOADS_IN_IT} workloads"
    singly = median(each.batch_seconds / each.singles_seconds for each in found.batches)
    new = median(each.batch_seconds / each.new_seconds for each in found.batches)
    yield Line(f"{batch}: seconds relative to single questions", singly, BATCH)
    yield Line(f"{batch}: seconds relative to single questions with new workloads", new, BATCH)
    for load in found.batches[0].during:
        during = median(each.during[load].p99_seconds / each.alone.p99_seconds for each in found.batches)
        yield Line(f"GET /healthz during {load}: p99 relative to p99 alone", during, DURING_A_BATCH)
    slowest = median(max(asked.p99_seconds for asked in each.during.values()) for each in found.batches)
    yield Line("GET /healthz during any of these: p99 in ms", slowest * 1000, HEALTH_CHECK_MS)
    yield Line("answers other than 200", sum(found.statuses.values()) - found.statuses[200], FAILED_ANSWERS)
    for question, gate in GROWTHS.items():
        growth = growths(found, question)
        yield Line(f"{question.name}: growth exponent of p50, {FIFTY_THOUSAND:,} to {MOST:,}", growth, gate)
    offers = found.resident[service_name(most)] - found.resident[service_name(min(sizes))]
    over = found.resident[service_name(most)] - found.resident[WITH_DEPENDENCIES]
    yield Line("memory over bare FastAPI with our dependencies, MiB", over / MIB, MEMORY_MIB)
    yield Line("bytes per offer", offers / (most - min(sizes)), BYTES_AN_OFFER)
    started = median(map(truediv, found.starts[SERVICE], found.starts[BARE]))
    yield Line("process start to first answer, relative to bare FastAPI", started, START)


def spread(rounds: Sequence[Asked]) -> float:
    return median(p99(asked) / p50(asked) for asked in rounds)


def delay(found: Found, question: Question, size: int) -> float:
    """Returns the p50 of a question in those of its no-op, asked just before: machines change their speed."""
    return ratio(found.answers[size, question, ALONE], found.noops[size, question, ALONE], p50)


def growths(found: Found, question: Question) -> float:
    small, large = (delay(found, question, size) for size in (FIFTY_THOUSAND, MOST))
    return exponent(small, large, MOST / FIFTY_THOUSAND)


# Tables


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns columns as wide as they need, the first one to the left and the others to the right."""
    align = ["left", *["right"] * (len(head) - 1)]
    return tabulate(rows, head, "simple", disable_numparse=True, colalign=align)


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdict_table(lines: Sequence[Line]) -> str:
    return table(
        ("measure", "value", "gate", "goal", ""),
        [
            (line.name, shown(line.value), shown(line.gate.gate), shown(line.gate.goal), line.verdict)
            for line in lines
            if line.gate
        ],
    )


def arm_table(found: Found, sizes: Sequence[int]) -> str:
    """Returns every question at every size relative to its no-op; the last columns are absolute figures."""
    rows = []
    for size in sizes:
        for question in QUESTIONS:
            alone, some = (found.answers[size, question, connections] for connections in (ALONE, SOME))
            noop_alone, noop_some = (found.noops[size, question, connections] for connections in (ALONE, SOME))
            rows.append(
                (
                    question.name,
                    f"{size:,}",
                    question.peer,
                    shown(ratio(some, noop_some, per_second)) if some else "",
                    shown(ratio(alone, noop_alone, p50)),
                    shown(ratio(alone, noop_alone, p99)),
                    shown(spread(some)) if some else "",
                    shown(median(map(per_second, some or alone))),
                    shown(median(map(p50, alone)) * 1000),
                    shown(median(asked.answer_bytes for asked in some or alone) / 1000),
                )
            )
    head = ("question", "offers", "no-op", "req/s ×", "p50 ×", "p99 ×", "p99/p50", "req/s", "p50 ms", "KB")
    return table(head, rows)


def noop_table(found: Found) -> str:
    """Returns the no-ops, which show the cost of the framework alone."""
    base = found.peers["FastAPI GET", SOME]
    peers: tuple[Peer, ...] = ("starlette GET", "FastAPI GET", "FastAPI POST")
    rows = []
    for peer in peers:
        some, alone = found.peers[peer, SOME], found.peers[peer, ALONE]
        rate, delay = median(map(per_second, some)), median(map(p50, alone)) * 1000
        rows.append((peer, shown(ratio(some, base, per_second)), shown(spread(some)), shown(rate), shown(delay)))
    return table(("no-op", "req/s relative to FastAPI GET", "p99/p50", "req/s", "p50 ms"), rows)


def server_table(found: Found) -> str:
    rows = [(name, shown(resident / MIB), "") for name, resident in found.resident.items()]
    rows += [(f"{name}, started", "", shown(median(seconds))) for name, seconds in found.starts.items()]
    return table(("server", "MiB", "seconds to first answer"), rows)
