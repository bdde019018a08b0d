"""The figures of a soak, its requests, and the sentence about programs that are missing."""

from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import inspect

from bench.soak.events import DATABASE_EVENTS, REPLICA_EVENTS, schedule
from bench.soak.load import path_of, reads, writes
from bench.soak.programs import missing_programs
from bench.soak.replicas import CONFIGURATION, rendered
from bench.soak.report import (
    Event,
    Followed,
    Late,
    Leading,
    Observation,
    Record,
    Sent,
    failures,
    followed_by,
    gates,
    longest_seconds,
    moves_of,
    reachable_seconds,
    report,
)
from bench.soak.versions import command_of, version_that_fails
from service.db.engine import connect
from service.db.migrate import require_usable, upgrade

CRASH = Event("a crash", 10, 20)
IMPORT = Event("an import", 30, 40)


def read(began: float, seconds: float = 0.01, status: int = 200) -> Sent:
    return Sent(began, seconds, status, "GET /instances")


def written(began: float, number: int, status: int = 201) -> Sent:
    return Sent(began, 0.01, status, "POST /measurements", number)


def record(*sent: Sent, stored: set[int] | None = None, followed: tuple[Followed, ...] = ()) -> Record:
    return Record(0, 60, [CRASH, IMPORT], sent, followed, stored or set())


def cells(of: Record, phase: str) -> list[str]:
    """Returns the cells of a row of the table, after the first one."""
    (line,) = [line for line in report(of).splitlines() if line.startswith(phase)]
    return line.removeprefix(phase).split()


def test_each_phase_counts_its_own_requests() -> None:
    everything = record(
        read(1),
        read(2, 0.03),
        read(11, status=0),
        read(12, status=503),
        read(35),
        written(3, 1),
        written(13, 2),
        written(14, 3),
        written(15, 4, status=503),
        stored={1, 2},
        followed=(Followed(4, 0.5), Followed(9, 2.5), Followed(17, 1.5)),  # the crash delays the second one
    )
    assert cells(everything, "quiet") == ["40", "2", "0", "30", "1", "0", "0", "0.5"]
    assert cells(everything, "a crash") == ["10", "2", "2", "10", "2", "1", "1", "2.5"]
    assert cells(everything, "an import") == ["10", "1", "0", "10", "0", "0", "0", "–"]
    assert cells(everything, "all events") == ["20", "3", "2", "10", "2", "1", "1", "2.5"]
    assert cells(everything, "in all") == ["60", "5", "2", "30", "3", "1", "1", "2.5"]
    assert everything.lost_writes == {3}
    assert [sent.began for sent in everything.failed_reads] == [11, 12]


def test_a_request_on_the_way_belongs_to_the_event_that_meets_it() -> None:
    assert cells(record(read(9, 2, status=0)), "a crash")[1:3] == ["1", "1"]
    assert cells(record(read(9, 0.5)), "quiet")[1] == "1"


def test_a_write_that_was_not_acknowledged_may_be_stored() -> None:
    cut_off = record(written(1, 1, status=0), written(2, 2), stored={1, 2})
    assert not cut_off.lost_writes
    assert cells(cut_off, "in all")[4:7] == ["1", "0", "1"]


def test_failures_are_listed_by_phase_and_kind() -> None:
    lines = failures(record(read(1), read(11, status=0), read(12, status=0), written(13, 1, 503), written(1, 2)))
    assert lines == [
        "a crash: GET /instances was answered 2 times with nothing.",
        "a crash: POST /measurements was answered 1 times with 503.",
    ]


@pytest.mark.parametrize(
    ("observations", "seconds"),
    [
        ([(0.9, 1), (1.1, 1), (1.5, 2)], [0.5]),
        ([(1.1, 3)], [pytest.approx(0.1)]),  # a later version contains it
        ([(0.9, 2), (1.2, 2)], [pytest.approx(0.2)]),  # an answer before the commit was noticed does not count
        ([(1.1, 1), (1.3, None), (9, 2)], []),  # the replica was restarted meanwhile
        ([(1.1, 1), (9, 1)], [inf]),
    ],
)
def test_the_time_until_a_replica_follows(observations: list[tuple[float, int | None]], seconds: list[float]) -> None:
    observed = [Observation(*each) for each in observations]
    assert [each.seconds for each in followed_by([(1, 2)], observed)] == seconds


def verdicts(of: Record) -> dict[str, str]:
    return {line.name: line.verdict for line in gates(of)}


def test_a_soak_passes_when_every_gate_is_kept() -> None:
    late = Late([read(3)], [Followed(4, 11)])
    leading = [Leading(at, {8001}) for at in range(60)]
    calm = Record(0, 60, [CRASH], [read(1, 0.1), read(12, 0.2)], [Followed(1, 2)], set(), (), leading, late)
    assert set(verdicts(calm).values()) <= {"passes", "goal"}


@pytest.mark.parametrize(
    ("changed", "fails"),
    [
        ({"sent": [read(1), read(12, status=503)]}, "failed reads"),
        ({"late": Late([read(3, status=0)], [Followed(4, 11)])}, "failed reads"),
        ({"sent": [read(1), read(12), written(3, 7)]}, "acknowledged writes that are lost"),
        ({"followed": [Followed(1, 2), Followed(1, inf)]}, "seconds until the slowest replica had a new catalog"),
        ({"followed": []}, "seconds until the slowest replica had a new catalog"),
        ({"sent": [read(1, 0.1), read(12, 0.4)]}, "p99 of reads during events relative to quiet time"),
        (
            {"leading": [Leading(0, {8001}), *(Leading(at, set()) for at in range(1, 17)), Leading(17, {8002})]},
            "seconds without a leader of the background work",
        ),
        ({"leading": [Leading(at, {8001, 8002}) for at in range(8)]}, "seconds with two leaders"),
    ],
)
def test_each_gate_fails_by_itself(changed: dict[str, Any], fails: str) -> None:
    late = Late([read(3)], [Followed(4, 11)])
    leading = [Leading(at, {8001}) for at in range(60)]
    calm = Record(0, 60, [CRASH], [read(1), read(12)], [Followed(1, 2)], set(), (), leading, late)
    assert [name for name, verdict in verdicts(replace(calm, **changed)).items() if verdict == "FAILS"] == [fails]


def test_time_without_a_database_does_not_count() -> None:
    outages = [(10.0, 30.0), (40.0, 41.0)]
    assert reachable_seconds(5, 12, outages) == 5
    assert reachable_seconds(9, 42, outages) == 12
    assert reachable_seconds(31, 32, outages) == 1
    observed = [Observation(9.5, 1), Observation(31, 2)]
    assert [each.seconds for each in followed_by([(9, 2)], observed, outages)] == [2]
    nobody = [Leading(9, {1}), Leading(15, set()), Leading(29, set()), Leading(33, {1})]
    assert longest_seconds(nobody, outages, lambda leaders: leaders == 0) == 1


def test_moves_of_the_lead_are_counted() -> None:
    looks = [{1}, {1}, set(), {2}, {2, 1}, {1}]
    assert moves_of([Leading(at, ports) for at, ports in enumerate(looks)]) == 2


@pytest.mark.parametrize("seed", range(20))
def test_events_come_in_a_random_order_between_the_upgrade_and_the_promotion(seed: int) -> None:
    names = schedule(Random(seed))
    assert set(names[::2]) <= REPLICA_EVENTS.keys()
    assert sorted(names[1::2]) == sorted(DATABASE_EVENTS)
    assert (names[1], names[-1]) == ("a rolling upgrade", "the standby is promoted")
    assert names == schedule(Random(seed))
    assert len({tuple(schedule(Random(other))) for other in range(20)}) > 10


def test_the_version_that_fails_has_one_more_migration(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path}/whole.db")
    upgrade(engine)
    done = command_of(version_that_fails(tmp_path / "failing"), {"DATABASE_URL": str(engine.url)}, "migrate")
    assert done.returncode == 1
    require_usable(engine)
    assert "unfinished" not in {column["name"] for column in inspect(engine).get_columns("measurement")}
    engine.dispose()


def test_missing_programs_are_named_with_the_command_that_installs_them() -> None:
    assert missing_programs(lambda name: name) == ""
    assert missing_programs(lambda name: "there" if name == "haproxy" else None) == (
        "The soak needs pgbouncer and pg_basebackup, which are missing. "
        "On Debian and Ubuntu: apt install pgbouncer postgresql"
    )


def test_haproxy_listens_on_loopback_with_the_rest_of_its_configuration() -> None:
    original = CONFIGURATION.read_text(encoding="utf-8")
    text = rendered(original, 9000, [9001, 9002, 9003])
    assert [line.split() for line in text.splitlines() if " bind " in line] == [["bind", "127.0.0.1:9000"]]
    servers = [line.split()[-1] for line in text.splitlines() if line.lstrip().startswith("server ")]
    assert servers == ["127.0.0.1:9001", "127.0.0.1:9002", "127.0.0.1:9003"]
    assert len(text.splitlines()) == len(original.splitlines())


def test_every_request_differs_from_all_others() -> None:
    streams = [reads(0), reads(1), writes("sel_key", 0), writes("sel_key", 1)]
    requests = [next(stream) for stream in streams for _ in range(50)]
    assert len({request for _, request in requests}) == len(requests)
    assert {path_of(request) for _, request in requests} == {
        "GET /instances",
        "POST /recommend",
        "POST /estimate",
        "POST /measurements",
    }
