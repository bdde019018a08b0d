"""Measures a run in rounds: each question follows its no-op at once, so that other load on the machine slows both."""

import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from bench.load import Asked, ask, ask_each
from bench.questions import (
    ALIVE,
    IN_A_BATCH,
    LISTED,
    MOST_A_SPELL,
    NOOPS,
    QUESTIONS,
    WORKLOADS_IN_IT,
    Peer,
    Question,
    batch_of,
    large_body,
    singles_of,
    trained,
)
from bench.servers import SERVICE_COMMAND, Server, environment, noop_command, running

ALONE, SOME, MANY = 1, 8, 32
"""Numbers of simultaneous connections."""

CLIENTS = 2
"""Number of client processes, which last for the whole run; the second one sends the no-ops during a batch."""

BATCHES_FROM = 100_000
"""The number of the first batch, so high that no other question has its workloads."""

OTHERS_FROM = 10_000_000
"""The number of the first single question that is asked while health checks are measured."""

OF_THEIR_OWN = 100
"""The number of questions with new workloads that stand for a thousand, which would take half a minute."""


class Spell(Protocol):
    """Sends requests to a port over some connections for a while, and for longer if answers are slow."""

    def __call__(self, port: int, requests: Sequence[bytes], connections: int, *, slow: bool = False) -> Asked: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The lengths and numbers of measurements."""

    rounds: int
    seconds_alone: float
    seconds_together: float
    starts: int

    def of_rounds(self, rounds: int) -> "Plan":
        return replace(self, rounds=rounds)


@dataclass(frozen=True, slots=True)
class Batched:
    """The time for a batch, for its questions one by one, and for the service's no-op during a batch."""

    batch_seconds: float
    singles_seconds: float
    new_seconds: float
    """The time for as many single questions, each with a new workload."""
    alone: Asked
    during: dict[str, Asked]
    """The no-op while the server answers other requests."""


@dataclass(slots=True)
class Found:
    """The results of all rounds: one `Asked` per round, and figures of the servers themselves."""

    peers: dict[tuple[Peer, int], list[Asked]] = field(default_factory=lambda: defaultdict(list))
    """The no-ops, by peer and connections."""
    answers: dict[tuple[int, Question, int], list[Asked]] = field(default_factory=lambda: defaultdict(list))
    """The answers of the service, by size, question and connections."""
    noops: dict[tuple[int, Question, int], list[Asked]] = field(default_factory=lambda: defaultdict(list))
    """The no-op of each question, measured right before its answers, by the same keys."""
    batches: list[Batched] = field(default_factory=list)
    """One batch per round, in the catalog with the most offers."""
    starts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    resident: dict[str, int] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    spells: int = 0


def spells(plan: Plan, asking: ProcessPoolExecutor) -> Spell:
    def spell(port: int, requests: Sequence[bytes], connections: int, *, slow: bool = False) -> Asked:
        seconds = plan.seconds_alone if connections == ALONE and not slow else plan.seconds_together
        return asking.submit(ask, port, requests, connections, seconds).result()

    return spell


def service_name(size: int) -> str:
    return f"service, {size:,} offers"


BARE, WITH_DEPENDENCIES, SERVICE = "FastAPI", "FastAPI with our dependencies", "service"


def measure(plan: Plan, databases: Mapping[int, Path], instances: Sequence[str], bytecode: Path) -> Found:
    found = Found()
    measure_starts(found, plan, databases[max(databases)], bytecode)
    with ExitStack() as stack, ProcessPoolExecutor(CLIENTS, get_context("spawn")) as asking:
        spell = spells(plan, asking)
        first = LISTED.ask(0, instances)
        services = {
            size: stack.enter_context(running(SERVICE_COMMAND, environment(bytecode, database), first))
            for size, database in databases.items()
        }
        bare = environment(bytecode, None)
        starlette = stack.enter_context(running(noop_command("starlette"), bare, NOOPS["starlette GET"]))
        fastapi = stack.enter_context(running(noop_command("fastapi"), bare, NOOPS["FastAPI GET"]))
        peers: dict[Peer, Server] = {"starlette GET": starlette, "FastAPI GET": fastapi, "FastAPI POST": fastapi}
        with running(noop_command("fastapi_with_dependencies"), bare, NOOPS["FastAPI GET"]) as loaded:
            found.resident[WITH_DEPENDENCIES] = loaded.resident_bytes()
        for turn in range(plan.rounds):
            for connections in (ALONE, SOME):
                for peer, noop in peers.items():
                    found.peers[peer, connections].append(spell(noop.port, [NOOPS[peer]], connections))
            for question in QUESTIONS:
                measure_question(found, spell, question, services, peers[question.peer], instances)
            measure_batch(found, plan, services[max(services)].port, turn, asking)
            print(f"Round {turn + 1} of {plan.rounds} is done.", file=sys.stderr, flush=True)
        found.resident |= {service_name(size): server.resident_bytes() for size, server in services.items()}
    return found


def measure_starts(found: Found, plan: Plan, database: Path, bytecode: Path) -> None:
    """Measures starts, except the first one of each server, which compiles the bytecode for the later ones."""
    for turn in range(plan.starts + 1):
        for name, command, given, first in (
            (BARE, noop_command("fastapi"), None, NOOPS["FastAPI GET"]),
            (SERVICE, SERVICE_COMMAND, database, LISTED.ask(0, ())),
        ):
            with running(command, environment(bytecode, given), first) as server:
                if turn:
                    found.starts[name].append(server.seconds_to_first_answer)


def measure_question(
    found: Found,
    spell: Spell,
    question: Question,
    services: Mapping[int, Server],
    peer: Server,
    instances: Sequence[str],
) -> None:
    """Measures a question after its no-op, for each size and number of connections. No new request repeats in a run."""
    for connections in (ALONE,) if question.slow else (ALONE, SOME, MANY):
        for size, server in services.items():
            if connections == MANY and size != max(services):
                continue
            found.spells += 1
            requests = question.requests(found.spells * MOST_A_SPELL, instances)
            noop = spell(peer.port, [NOOPS[question.peer]], connections)
            asked = spell(server.port, requests, connections, slow=question.slow)
            found.noops[size, question, connections].append(noop)
            found.answers[size, question, connections].append(asked)
            found.statuses.update(asked.statuses)


def measure_batch(found: Found, plan: Plan, port: int, turn: int, asking: ProcessPoolExecutor) -> None:
    """Measures a batch and single questions, all with new workloads; then a no-op, alone and during a batch."""

    def seconds_for(requests: Sequence[bytes]) -> float:
        seconds, statuses = asking.submit(ask_each, port, requests).result()
        found.statuses.update(statuses)
        return seconds

    def noop() -> Asked:
        return asking.submit(ask, port, [ALIVE], ALONE, plan.seconds_together).result()

    batch, ones, other = (BATCHES_FROM + 3 * turn + each for each in range(3))
    batch_seconds, singles_seconds = seconds_for([batch_of(batch)]), seconds_for(singles_of(ones))
    new = [trained(BATCHES_FROM * WORKLOADS_IN_IT - each - turn * OF_THEIR_OWN, ()) for each in range(OF_THEIR_OWN)]
    alone = noop()
    loads = {
        "a batch": [batch_of(other)],
        "questions with new workloads": [trained(OTHERS_FROM + 100 * turn + each, ()) for each in range(40)],
        "bodies of 3 MB": [large_body()] * 20,
    }
    during = {}
    for name, requests in loads.items():
        meanwhile = asking.submit(ask_each, port, requests)
        during[name] = noop()
        _, statuses = meanwhile.result()
        found.statuses.update(statuses)
    new_seconds = seconds_for(new) * IN_A_BATCH / OF_THEIR_OWN
    found.batches.append(Batched(batch_seconds, singles_seconds, new_seconds, alone, during))
