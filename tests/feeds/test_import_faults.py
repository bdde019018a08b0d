"""An import survives a database that is locked, away or full, a second refresher, and bytes that changed on the way."""

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event, func, select
from sqlalchemy.exc import OperationalError

from service.cli.main import main
from service.db.engine import connect, sqlite_path
from service.db.errors import DatabaseUnusable
from service.db.feeds.documents import Origin
from service.db.feeds.read_feeds import feed_statuses
from service.db.tables import DOCUMENT, IMPORT_RUN, OBSERVATION, OFFER, PRICE
from service.feeds import refresh as refreshing
from service.feeds.fetch import FetchedDocument
from service.feeds.folder import manifest_entry, write_manifest
from service.feeds.importing import Documents, Imported, import_documents
from service.feeds.refresh import Refresher, Upstream, refresh
from service.feeds.registry import SOURCES
from tests.builders.captures import day, feed_row, with_feeds
from tests.feeds.feed_server import FeedServer, reply

SPOT = SOURCES["aws-spot"]
NAMES = ("g5.xlarge", "g5.2xlarge", "p4d.24xlarge")


def spot_file(*dollars: str) -> bytes:
    sizes = [
        {"size": name, "valueColumns": [{"name": "linux", "prices": {"USD": price}}]}
        for name, price in zip(NAMES, dollars, strict=False)
    ]
    region = {"region": "us-east", "instanceTypes": [{"sizes": sizes}]}
    return json.dumps({"config": {"rate": "perhr", "regions": [region]}}).encode()


GOOD, LATER = spot_file("0.5", "0.7", "11.25"), spot_file("0.6", "0.8", "11.5")


def prepared(url: str) -> Engine:
    """Three instance types without prices, and the feed of AWS spot prices; the database at `url` has the tables."""
    return with_feeds(url, feed_row("aws-spot", every_hours=1.0))


@pytest.fixture
def engine(tables_url: str) -> Iterator[Engine]:
    engine = prepared(tables_url)
    yield engine
    engine.dispose()


def origin(number: int) -> Origin:
    return Origin(url="https://feed.example", fetched_at=day(number))


def imported(engine: Engine, body: bytes, number: int) -> Imported:
    documents = Documents(part="", origin=origin(number), bodies=[body])
    return import_documents(engine, SPOT, documents, day(number))


def prices(engine: Engine) -> dict[str, int]:
    """Microdollars in force by offer."""
    query = select(OFFER.c.key, PRICE.c.per_hour_micros).join(OFFER).where(PRICE.c.valid_to.is_(None))
    with engine.connect() as connection:
        return {row.key: row.per_hour_micros for row in connection.execute(query)}


def rows(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        tables = (DOCUMENT, OBSERVATION, OFFER, PRICE)
        return [connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables]


# The database


def fail_before(engine: Engine, statement: str, fail: Callable[[Any], None]) -> None:
    """Calls `fail` with the driver's connection before each statement that begins so."""

    @event.listens_for(engine, "before_cursor_execute")
    def _fail(connection: Any, _cursor: Any, sql: str, *_rest: Any) -> None:
        if sql.startswith(statement):
            fail(connection.connection.driver_connection)


def the_disk_is_full(driver: Any) -> None:
    """SQLite may take no further page; Postgres raises the error that it raises then."""
    if not isinstance(driver, sqlite3.Connection):
        raise OperationalError("INSERT", {}, psycopg.errors.DiskFull("could not extend file: No space left on device"))
    pages = driver.execute("PRAGMA page_count").fetchone()[0]
    driver.execute(f"PRAGMA max_page_count = {pages}")


def the_connection_is_cut(driver: Any) -> None:
    """The server ends the session of an import; a file cannot be cut off, so its connection is interrupted."""
    if isinstance(driver, sqlite3.Connection):
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("disk I/O error"))
    with closing(psycopg.connect(driver.info.dsn, password=driver.info.password)) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (driver.info.backend_pid,))


@pytest.mark.parametrize(
    ("fault", "statement"),
    [
        (the_disk_is_full, "INSERT INTO observation"),
        (the_connection_is_cut, "INSERT INTO observation"),
        (the_connection_is_cut, "INSERT INTO price"),
    ],
)
def test_an_import_into_a_database_that_fails_changes_nothing_and_the_next_one_completes(
    fault: Callable[[Any], None], statement: str, engine: Engine, tables_url: str
) -> None:
    imported(engine, GOOD, 1)
    before, stored = prices(engine), rows(engine)
    failing = connect(tables_url)
    fail_before(failing, statement, fault)
    larger = json.loads(LATER)
    # Many new prices, so that SQLite needs further pages.
    linux = larger["config"]["regions"][0]["instanceTypes"][0]["sizes"]
    linux += [{**linux[0], "size": f"g5.made-up-{number}"} for number in range(2000)]
    with pytest.raises(DatabaseUnusable):
        imported(failing, json.dumps(larger).encode(), 2)
    failing.dispose()
    assert (prices(engine), rows(engine)) == (before, stored)
    assert imported(engine, LATER, 2).state == "done"
    assert sorted(prices(engine).values()) == [600_000, 800_000, 11_500_000]


def test_an_import_into_a_locked_database_says_so_and_the_refresher_reads_the_feed_later(
    sqlite_tables: str, feeds: FeedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = prepared(sqlite_tables)
    monkeypatch.setattr("service.db.import_lock.SQLITE_WAIT_SECONDS", 0)
    monkeypatch.setattr(refreshing, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(refreshing, "LEAD_SECONDS", 0.05)
    feeds.replies["/spot.json"] = [reply(200, GOOD)]
    refresher = Refresher(engine, Upstream(urls={"aws-spot": feeds.url}))
    with closing(sqlite3.connect(str(sqlite_path(engine.url)), isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnusable, match="is locked by another process"):
            imported(engine, GOOD, 1)
        refresher.start()
        wait_until(lambda: len(feeds.requests) > 1)  # it asked again, so it has survived the first failure
        assert prices(engine) == {}
    wait_until(lambda: len(prices(engine)) == len(NAMES))
    refresher.stop()
    engine.dispose()


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1200):
        if holds():
            return
        pause.wait(0.05)
    raise AssertionError("It did not happen within a minute.")


# Two refreshers


def test_two_refreshers_at_once_end_like_one(engine: Engine, tables_url: str, feeds: FeedServer) -> None:
    feeds.replies["/spot.json"] = [reply(200, GOOD)]
    start, states = threading.Barrier(4), list[str]()
    (feed,) = [each.feed for each in feed_statuses(engine) if each.feed.id == "aws-spot"]

    def run() -> None:
        own = connect(tables_url)
        start.wait()
        states.extend(each.state for each in refresh(own, feed, Upstream(urls={"aws-spot": feeds.url})))
        own.dispose()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 4
    assert states.count("done") >= 1
    assert set(states) <= {"done", "unchanged"}
    assert sorted(prices(engine).values()) == [500_000, 700_000, 11_250_000]
    assert rows(engine)[1:] == [3, 3, 3]  # each price is stored once


# Changed bytes


@pytest.fixture(scope="module")
def imported_file(migrated_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = Path(copy(migrated_file, tmp_path_factory.mktemp("imported") / "imported.db"))
    engine = prepared(f"sqlite:///{path}")
    imported(engine, GOOD, 1)
    engine.dispose()
    return path


PLAUSIBLE = (0.1, 10)
"""Ratios between which a spot price counts at once, since spot prices do change that much."""


@settings(max_examples=60)
@example(position=GOOD.index(b"11.25") + 1, byte=ord("9"))  # 19.25 dollars
@example(position=GOOD.index(b"11.25") + 2, byte=ord("0"))  # 11025 dollars
@example(position=GOOD.index(b"0.5"), byte=ord("9"))  # 9.5 dollars
@given(position=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_refused_recorded_or_leaves_a_plausible_price(
    imported_file: Path, position: int, byte: int
) -> None:
    damaged = GOOD[:position] + bytes([byte]) + GOOD[position + 1 :]
    with TemporaryDirectory() as folder:
        engine = connect(f"sqlite:///{copy(imported_file, Path(folder) / 'copy.db')}")
        before = prices(engine)
        outcome = imported(engine, damaged, 2)
        after = prices(engine)
        with engine.connect() as connection:
            recorded = select(func.count()).select_from(OBSERVATION).where(OBSERVATION.c.state != "kept")
            refused = select(func.count()).select_from(IMPORT_RUN).where(IMPORT_RUN.c.state == "refused")
            is_recorded = connection.execute(recorded).scalar_one() + connection.execute(refused).scalar_one() > 0
        engine.dispose()
    low, high = PLAUSIBLE
    assert before.keys() <= after.keys()
    assert all(low <= after[key] / before[key] <= high for key in before)
    if outcome.state == "refused":
        assert after == before
    # A listing that the document lost, or that failed a check, is on record; so is a price that is held.
    kept = outcome.counts["kept"] if outcome.state != "refused" else 0
    assert kept == len(before) or is_recorded


@settings(max_examples=25)
@given(position=st.integers(0, len(LATER) - 1), bit=st.integers(0, 7))
def test_a_changed_byte_of_a_document_with_a_manifest_is_refused_on_record(
    imported_file: Path, position: int, bit: int
) -> None:
    damaged = LATER[:position] + bytes([LATER[position] ^ 1 << bit]) + LATER[position + 1 :]
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{copy(imported_file, Path(folder) / 'copy.db')}"
        file, entry = Path(folder) / "fetched" / "spot.json", FetchedDocument(origin(2), LATER)
        file.parent.mkdir()
        file.write_bytes(damaged)
        write_manifest(file.parent, [manifest_entry("aws-spot", "", entry, file.name)])
        engine = connect(url)
        before = prices(engine)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SELECTOR_DATABASE_URL", url)
            assert main(["feeds", "import", str(file.parent)]) == 1
        (status,) = [each for each in feed_statuses(engine) if each.feed.id == "aws-spot"]
        assert (prices(engine), status.last_state) == (before, "refused")
        assert "SHA-256 differs" in (status.problem or "")
        engine.dispose()
