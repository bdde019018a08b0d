"""Hostile requests are refused by a real server, and the gates of mixed load fail when they should."""

import asyncio
from collections import Counter
from itertools import islice

import pytest

from bench.hostile import HEAVY, REFUSED
from bench.mixed import ORDINARY, Mixture, gated, others, status_of
from tests.server import Server

MANY = 2000


@pytest.mark.parametrize("name", REFUSED)
def test_a_hostile_request_is_refused(name: str, server: Server) -> None:
    status = asyncio.run(status_of(int(server.url.rpartition(":")[2]), REFUSED[name]))
    assert 400 <= status < 500


def test_requests_that_are_not_ordinary_come_in_turn() -> None:
    names = Counter(name for name, _ in islice(others("sel_key"), MANY))
    assert REFUSED.keys() | HEAVY.keys() <= names.keys()
    assert names["POST /measurements"] == MANY / 10
    assert sum(names[name] for name in HEAVY) == MANY / 100
    assert sum(names[name] for name in REFUSED) > MANY / 2
    writes = [request for name, request in islice(others("sel_key"), MANY) if name == "POST /measurements"]
    assert len(set(writes)) == len(writes)


def calm() -> Mixture:
    mixture = Mixture()
    for question in ORDINARY:
        mixture.seconds[question.name] = [0.01] * 98 + [0.02] * 2
        mixture.statuses[question.name][200] = 100
    mixture.statuses["a long URL"][414] = 5
    mixture.statuses["a batch"][503] = 5
    mixture.looks = [(at, 100_000_000, 40) for at in range(300)]
    return mixture


def failing(mixture: Mixture) -> list[str]:
    return [line.name.rpartition(": ")[2] for line in gated(mixture) if line.verdict == "FAILS"]


def test_calm_load_passes_every_gate() -> None:
    assert failing(calm()) == []


def test_each_gate_fails_by_itself() -> None:
    question = next(iter(ORDINARY))
    faulty = calm()
    faulty.statuses["a long URL"][500] = 1
    assert failing(faulty) == ["server errors but 503"]
    refusing = calm()
    refusing.statuses[question.name][503] = 1
    assert failing(refusing) == ["answers other than 200"]
    slow = calm()
    slow.seconds[question.name] = [0.01] * 98 + [0.06] * 2
    assert failing(slow) == ["p99 relative to p50"]
    open_door = calm()
    open_door.statuses["a long URL"][200] = 1
    assert failing(open_door) == ["hostile requests that were accepted"]
    leaking = calm()
    leaking.looks = [(at, 100_000_000 + 100_000 * at, 40) for at in range(300)]
    assert failing(leaking) == ["memory after the first minute, ± percent"]
    open_files = calm()
    open_files.looks = [(at, 100_000_000, 40 + at // 30) for at in range(300)]
    assert failing(open_files) == ["more descriptors at the end than after the first minute"]


def test_growth_in_the_first_minute_is_no_leak() -> None:
    warming = calm()
    warming.looks = [(at, min(at, 59) * 1_000_000 + 1, 10 + min(at, 59)) for at in range(300)]
    assert failing(warming) == []
