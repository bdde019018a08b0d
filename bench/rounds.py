"""One run: every arm asked in every round, each beside its no-op, so that what the machine does meanwhile hits both."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from bench.load import Asked, ask
from bench.questions import LISTED, MOST_A_SPELL, NOOPS, QUESTIONS, Peer, Question
from bench.servers import SERVICE_COMMAND, Server, environment, noop_command, running

ALONE, SOME, MANY = 1, 8, 32
"""Connections at a time."""


class Spell(Protocol):
    """Port, requests and connections → what asking for a while showed; longer where answers are slow."""

    def __call__(self, port: int, requests: Sequence[bytes], connections: int, *, slow: bool = False) -> Asked: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often to measure."""

    rounds: int
    seconds_alone: float
    seconds_together: float
    starts: int

    def of_rounds(self, rounds: int) -> "Plan":
        return replace(self, rounds=rounds)


@dataclass(slots=True)
class Found:
    """What the rounds showed: one `Asked` a round, and figures of the servers themselves."""

    noops: dict[tuple[int, Peer, int], list[Asked]] = field(default_factory=lambda: defaultdict(list))
    """By size, peer and connections."""
    answers: dict[tuple[int, Question, int], list[Asked]] = field(default_factory=lambda: defaultdict(list))
    """By size, question and connections."""
    starts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    resident: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    spells: int = 0


@contextmanager
def spells(plan: Plan) -> Iterator[Spell]:
    """Asking in one other process, which stays for the whole run."""
    with ProcessPoolExecutor(1, get_context("spawn")) as client:

        def spell(port: int, requests: Sequence[bytes], connections: int, *, slow: bool = False) -> Asked:
            seconds = plan.seconds_alone if connections == ALONE and not slow else plan.seconds_together
            return client.submit(ask, port, requests, connections, seconds).result()

        yield spell


def service_name(size: int) -> str:
    return f"service, {size:,} offers"


BARE, LOADED, SERVICE = "FastAPI", "FastAPI with our dependencies", "service"


def measure(plan: Plan, databases: Mapping[int, Path], instances: Sequence[str], bytecode: Path) -> Found:
    found = Found()
    measure_starts(found, plan, databases[max(databases)], bytecode)
    with ExitStack() as stack, spells(plan) as spell:
        first = LISTED.ask(0, instances)
        services = {
            size: stack.enter_context(running(SERVICE_COMMAND, environment(bytecode, database), first))
            for size, database in databases.items()
        }
        noop = environment(bytecode, None)
        starlette = stack.enter_context(running(noop_command("starlette"), noop, NOOPS["starlette GET"]))
        fastapi = stack.enter_context(running(noop_command("fastapi"), noop, NOOPS["FastAPI GET"]))
        peers: dict[Peer, Server] = {"starlette GET": starlette, "FastAPI GET": fastapi, "FastAPI POST": fastapi}
        with running(noop_command("fastapi_with_dependencies"), noop, NOOPS["FastAPI GET"]) as loaded:
            found.resident[LOADED] = loaded.resident_bytes()
        for turn in range(plan.rounds):
            for size, server in services.items():
                for connections in (ALONE, SOME, MANY) if size == max(services) else (ALONE, SOME):
                    measure_size(found, spell, size, server, peers, instances, connections)
            print(f"Round {turn + 1} of {plan.rounds} is done.", file=sys.stderr, flush=True)
        found.resident |= {service_name(size): server.resident_bytes() for size, server in services.items()}
    return found


def measure_starts(found: Found, plan: Plan, database: Path, bytecode: Path) -> None:
    """The first start of each is not counted: it compiles the bytecode that the later ones read."""
    for turn in range(plan.starts + 1):
        for name, command, given, first in (
            (BARE, noop_command("fastapi"), None, NOOPS["FastAPI GET"]),
            (SERVICE, SERVICE_COMMAND, database, LISTED.ask(0, ())),
        ):
            with running(command, environment(bytecode, given), first) as server:
                if turn:
                    found.starts[name].append(server.seconds_to_first_answer)


def measure_size(
    found: Found,
    spell: Spell,
    size: int,
    server: Server,
    peers: Mapping[Peer, Server],
    instances: Sequence[str],
    connections: int,
) -> None:
    """Every no-op and every question, one spell each; no question that says it is new comes twice in a run."""
    for peer, noop in peers.items():
        found.noops[size, peer, connections].append(spell(noop.port, [NOOPS[peer]], connections))
    for question in QUESTIONS:
        if question.slow and connections != ALONE:
            continue
        found.spells += 1
        requests = question.requests(found.spells * MOST_A_SPELL, instances)
        asked = spell(server.port, requests, connections, slow=question.slow)
        found.answers[size, question, connections].append(asked)
        found.statuses.update(asked.statuses)
