"""At most one process leads, and the lead moves when that process ends, loses its connection, or gives it back."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, make_url, text

from service.db.engine import connect
from service.db.operation.leader import Leader
from tests.server import free_port

PATIENCE_SECONDS = 15
PROGRAM = """
import sys, time
from service.db.engine import connect
from service.db.operation.leader import Leader
leader = Leader(connect(sys.argv[1]), "work")
print(leader.leads(), flush=True)
time.sleep(600)
"""


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@pytest.fixture
def candidate(engine: Engine) -> Iterator[Callable[[], Leader]]:
    """Makes candidates, each with its own engine as in a process of its own."""
    made = []

    def make() -> Leader:
        own = connect(url_of(engine))
        made.append((own, Leader(own, "work")))
        return made[-1][1]

    yield make
    for own, leader in made:
        leader.release()
        own.dispose()


@contextmanager
def process(url: str) -> Iterator[tuple[subprocess.Popen[str], bool]]:
    """A process that has asked for the lead, and its answer."""
    command = [sys.executable, "-c", PROGRAM, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield running, running.stdout.readline().strip() == "True"
        running.kill()


def leads_soon(leader: Leader) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not leader.leads() and time.monotonic() < deadline:
        time.sleep(0.05)
    return leader.leads()


def test_one_of_two_leads_and_keeps_the_lead(candidate: Callable[[], Leader]) -> None:
    first, second = candidate(), candidate()
    assert [first.leads(), second.leads(), first.leads(), second.leads()] == [True, False, True, False]
    first.release()
    assert [second.leads(), first.leads()] == [True, False]


def test_each_kind_of_work_has_its_own_lead(engine: Engine) -> None:
    feeds, watches = Leader(engine, "feeds"), Leader(engine, "watches")
    assert feeds.leads()
    assert watches.leads()
    feeds.release()
    watches.release()


def test_the_lead_of_a_killed_process_moves(engine: Engine, candidate: Callable[[], Leader]) -> None:
    with process(url_of(engine)) as (leading, leads):
        assert leads
        other = candidate()
        assert not other.leads()
        leading.kill()
        assert leads_soon(other)
    with process(url_of(engine)) as (_, leads):
        assert not leads


def test_a_lost_connection_loses_the_lead(postgres_tables: str) -> None:
    first, second = connect(postgres_tables), connect(postgres_tables)
    leader, other = Leader(first, "work"), Leader(second, "work")
    assert leader.leads()
    with second.connect() as connection:
        holders = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        assert connection.execute(text(holders)).scalars().all() == [True]
    assert leads_soon(other)
    assert not leader.leads()
    for each, engine in ((leader, first), (other, second)):
        each.release()
        engine.dispose()


def test_the_lead_takes_no_connection_from_the_pool(postgres_tables: str) -> None:
    engine = connect(postgres_tables)
    leader = Leader(engine, "work")
    assert leader.leads()
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    leader.release()
    engine.dispose()


def test_no_process_leads_without_a_database() -> None:
    engine = connect(f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    assert not Leader(engine, "work").leads()


def test_a_process_with_a_database_in_memory_leads() -> None:
    leader = Leader(connect("sqlite://"), "work")
    assert leader.leads()
    leader.release()


def test_the_lock_of_sqlite_is_not_the_lock_of_the_database(sqlite_tables: str) -> None:
    engine = connect(sqlite_tables)
    leader = Leader(engine, "work")
    assert leader.leads()
    with engine.begin() as connection:
        connection.execute(text("UPDATE catalog_version SET version = version"))
    leader.release()
    assert make_url(sqlite_tables).database
    engine.dispose()
