"""Sends many requests of all kinds at once, with hostile ones among them: `python -m bench.mixed`.

Exits 1 if an answer is a server error other than the 503 of a limit, if memory or descriptors grow after the first
minute, or if ordinary questions wait much longer than usual.
"""

import argparse
import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import uvloop

from bench.catalogs import instance_names
from bench.figures import percentile
from bench.hostile import HEAVY, REFUSED
from bench.load import HOST, Asker
from bench.questions import ALIVE, ESTIMATED, GPU_NAMED, LISTED, ONE_INSTANCE, TRAINED, Question
from bench.servers import SERVICE_COMMAND, Server, environment, running
from bench.verdict import MIB, Gate, Line, shown, table, verdict_table
from bench.writes import seed_with_key, write

REQUESTS = 100_000
ORDINARY: Mapping[Question, int] = {LISTED: 15, ONE_INSTANCE: 5, GPU_NAMED: 6, ESTIMATED: 2}
"""The number of connections on which each ordinary question is asked, one after another."""

OTHERS = 4
"""The number of connections for all other requests, each with a connection of its own."""

ORDINARY_FOR_EACH_OTHER = 19
HEAVY_EVERY = 100
PATIENCE_SECONDS = 5.0
WARM_UP_SECONDS = 60.0
WARM_UP_SHARE = 0.2
"""A run of less than five minutes is level after this share of its time."""

LOOK_SECONDS = 0.5
WINDOW = 20
"""The number of samples whose median counts, so that a single large request does not look like growth."""

FAILED = Gate(0, 0, "less")
P99_TO_P50 = Gate(5, 3, "less")
MEMORY_PERCENT = Gate(5, 2, "less")
DESCRIPTORS = Gate(2, 0, "less")
HUNG_UP = 0


@dataclass(slots=True)
class Mixture:
    """The requests of a run as they were answered."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    looks: list[tuple[float, int, int]] = field(default_factory=list)
    """Times, resident bytes and descriptors of the server."""

    @property
    def total(self) -> int:
        return sum(chain.from_iterable(each.values() for each in self.statuses.values()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.mixed", description="Send many requests with hostile ones among them.")
    parser.add_argument("--requests", type=int, default=REQUESTS)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="bench-") as folder:
        database, token = seed_with_key(Path(folder))
        variables = environment(Path(folder) / "bytecode", database) | {"SELECTOR_FEEDS": "off"}
        with running(SERVICE_COMMAND, variables, ALIVE) as server:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                mixture = runner.run(sent(server, asked.requests, instance_names(database), token))
            cpu_seconds = server.cpu_seconds()
    lines = list(gated(mixture))
    took = mixture.looks[-1][0] - mixture.looks[0][0]
    print(
        f"{mixture.total:,} requests in {took:.0f} s, of which the server used {cpu_seconds:.0f} s of CPU time:",
        kinds_table(mixture),
        f"Memory in MiB over the run: {', '.join(tenths([resident / MIB for _, resident, _ in mixture.looks]))}.",
        verdict_table(lines),
        sep="\n\n",
    )
    return 1 if any(line.verdict == "FAILS" for line in lines) else 0


async def sent(server: Server, requests: int, instances: Sequence[str], token: str) -> Mixture:
    """Sends this many requests over 32 connections, and returns their answers."""
    mixture, loop = Mixture(), asyncio.get_running_loop()
    due: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    extra, left = others(token), iter(range(requests * ORDINARY_FOR_EACH_OTHER // (ORDINARY_FOR_EACH_OTHER + 1)))

    def asked(question: Question, turns: Iterator[int]) -> Iterator[bytes]:
        for number in left:
            if number % ORDINARY_FOR_EACH_OTHER == 0:
                due.put_nowait(next(extra))
            yield question.ask(next(turns), instances)

    askers: list[tuple[str, Asker]] = []
    for question, connections in ORDINARY.items():
        turns = count()
        for _ in range(connections):
            source = asked(question, turns)
            _, asker = await loop.create_connection(
                partial(Asker, source, mixture.statuses[question.name]), HOST, server.port
            )
            askers.append((question.name, asker))
    watching = loop.create_task(watch(server, mixture))
    workers = [loop.create_task(work(server.port, due, mixture)) for _ in range(OTHERS)]
    await asyncio.gather(*(asker.closed for _, asker in askers))
    watching.cancel()
    await due.join()
    for worker in workers:
        worker.cancel()
    for name, asker in askers:
        mixture.seconds[name] += asker.seconds
    return mixture


def others(token: str) -> Iterator[tuple[str, bytes]]:
    """Yields the requests that are not ordinary: refused ones in turn with writes, new workloads and heavy requests."""
    refused, heavy = cycle(REFUSED.items()), cycle(HEAVY.items())
    for number in count():
        if number % HEAVY_EVERY == HEAVY_EVERY // 2 + 1:
            yield next(heavy)
        elif number % 10 == 0:
            yield "POST /measurements", write(token, number + 1)
        elif number % 20 == 1:
            yield TRAINED.name, TRAINED.ask(number, ())
        else:
            yield next(refused)


async def work(port: int, due: asyncio.Queue[tuple[str, bytes]], mixture: Mixture) -> None:
    """Sends requests that are due, each over a connection of its own."""
    while True:
        name, request = await due.get()
        began = perf_counter()
        mixture.statuses[name][await status_of(port, request)] += 1
        mixture.seconds[name].append(perf_counter() - began)
        due.task_done()


async def status_of(port: int, request: bytes) -> int:
    """Returns the status of an answer, or 0 if the server or this impatient client hangs up."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await reader.readuntil(b"\r\n")
            await reader.read(65536)
        return int(head[9:12])
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return HUNG_UP
    finally:
        writer.transport.abort()


async def watch(server: Server, mixture: Mixture) -> None:
    while True:
        descriptors = sum(1 for _ in Path(f"/proc/{server.process.pid}/fd").iterdir())
        mixture.looks.append((perf_counter(), server.resident_bytes(), descriptors))
        await asyncio.sleep(LOOK_SECONDS)


def gated(mixture: Mixture) -> Iterator[Line]:
    """Yields the figures that have gates."""
    statuses = sum(mixture.statuses.values(), Counter[int]())
    faults = sum(number for status, number in statuses.items() if status >= 500 and status != 503)
    yield Line("server errors but 503", faults, FAILED)
    for question in ORDINARY:
        wrong = sum(mixture.statuses[question.name].values()) - mixture.statuses[question.name][200]
        yield Line(f"{question.name}: answers other than 200", wrong, FAILED)
    for question in ORDINARY:
        seconds = sorted(mixture.seconds[question.name])
        yield Line(
            f"{question.name}: p99 relative to p50", percentile(seconds, 99) / percentile(seconds, 50), P99_TO_P50
        )
    accepted = sum(each for name in REFUSED for status, each in mixture.statuses[name].items() if 200 <= status < 300)
    yield Line("hostile requests that were accepted", accepted, FAILED)
    level = after_warm_up(mixture.looks)
    memory = smooth([resident for _, resident, _ in level])
    middle = (max(memory) + min(memory)) / 2
    yield Line("memory after the first minute, ± percent", 100 * (max(memory) - middle) / middle, MEMORY_PERCENT)
    descriptors = smooth([number for _, _, number in level])
    yield Line("more descriptors at the end than after the first minute", descriptors[-1] - descriptors[0], DESCRIPTORS)


def after_warm_up(looks: Sequence[tuple[float, int, int]]) -> Sequence[tuple[float, int, int]]:
    began, ended = looks[0][0], looks[-1][0]
    level_at = began + min(WARM_UP_SECONDS, WARM_UP_SHARE * (ended - began))
    return [look for look in looks if look[0] >= level_at]


def smooth(values: Sequence[int]) -> list[float]:
    """Returns the medians of successive windows."""
    return [median(values[start : start + WINDOW]) for start in range(0, len(values), WINDOW)]


def tenths(values: Sequence[float]) -> Iterator[str]:
    """Yields the median of each tenth of the values."""
    for start in range(10):
        yield f"{median(values[len(values) * start // 10 : len(values) * (start + 1) // 10 + 1]):.0f}"


def kinds_table(mixture: Mixture) -> str:
    """Returns a row for each kind of request with the statuses of its answers and its times."""
    rows = []
    for name, statuses in mixture.statuses.items():
        seconds = sorted(mixture.seconds[name])
        figures = (shown(1000 * percentile(seconds, percent)) for percent in (50, 99))
        answers = ", ".join(f"{status or 'hung up'}: {number:,}" for status, number in sorted(statuses.items()))
        rows.append((name, answers, *figures))
    return table(("request", "answers", "p50 ms", "p99 ms"), rows)


if __name__ == "__main__":
    sys.exit(main())
