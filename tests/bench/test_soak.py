"""The figures of a soak, its requests, and the sentence about programs that are missing."""

from math import inf

import pytest

from bench.soak.load import path_of, reads, writes
from bench.soak.programs import missing_programs
from bench.soak.replicas import CONFIGURATION, rendered
from bench.soak.report import Event, Followed, Observation, Record, Sent, failures, followed_by, report

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


def test_a_replica_that_never_follows_fails_the_soak() -> None:
    assert record(followed=(Followed(1, inf),)).never_followed
    assert not record(followed=(Followed(1, 9),)).never_followed


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
