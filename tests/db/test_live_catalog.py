"""A change reaches the running service; no reader sees half of it; a lost database leaves the last good catalog."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest
from sqlalchemy import Engine, text

from service.db.engine import connect
from service.db.live_catalog import LiveCatalog
from service.db.migrate import upgrade
from service.db.write_catalog import write
from tests.builders.rows import batch, event_row, instance_type_row, offer_records, price_record, small_tables
from tests.postgres import running_server

DAY = date(2026, 11, 21)
PATIENCE_SECONDS = 5


@pytest.fixture
def engine(engine: Engine) -> Engine:
    write(engine, batch(), datetime(2026, 11, 21, tzinfo=UTC))
    return engine


@pytest.fixture
def live(engine: Engine) -> Iterator[LiveCatalog]:
    watching = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.2)
    watching.start_watching()
    yield watching
    watching.stop_watching()


def await_version(live: LiveCatalog, version: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while live.history.version < version and time.monotonic() < deadline:
        time.sleep(0.02)
    assert live.history.version >= version


def test_a_row_changed_by_plain_sql_shows_up(live: LiveCatalog, engine: Engine) -> None:
    before = live.on(None)
    with engine.begin() as connection:
        connection.execute(text("UPDATE instance_type SET vcpus = 97 WHERE name = 'p4d.24xlarge'"))
    await_version(live, before.version + 1)
    after = live.on(None)
    assert after.instance_types[after.index_of["aws/p4d.24xlarge"]].vcpus == 97
    assert before.instance_types[before.index_of["aws/p4d.24xlarge"]].vcpus == 96


def test_readers_get_a_whole_change_or_none_of_it(live: LiveCatalog, engine: Engine) -> None:
    """Two rows change together; readers meanwhile see both as they were or both as they are."""
    torn: list[tuple[object, object]] = []
    stopping = threading.Event()

    def look() -> None:
        while not stopping.is_set():
            catalog = live.on(None)
            pair = [
                catalog.instance_types[catalog.index_of[name]].vcpus for name in ("aws/g5.xlarge", "aws/g5.2xlarge")
            ]
            if (pair[0] == 4) != (pair[1] == 8):
                torn.append((pair[0], pair[1]))

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for extra in (1, 0, 1):
        version = live.history.version
        with engine.begin() as connection:
            for name, vcpus in (("g5.xlarge", 4), ("g5.2xlarge", 8)):
                connection.execute(
                    text("UPDATE instance_type SET vcpus = :vcpus WHERE name = :name"),
                    {"vcpus": vcpus + extra, "name": name},
                )
        await_version(live, version + 1)
    stopping.set()
    for reader in readers:
        reader.join()
    assert torn == []


def await_problem(live: LiveCatalog) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while live.health.problem is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert live.health.problem is not None


def test_while_the_database_is_away_the_last_good_catalog_answers(engine: Engine) -> None:
    live = LiveCatalog(engine, today=lambda: DAY)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE catalog_version RENAME TO gone"))
    live.refresh()
    assert live.health.problem is not None
    assert "aws/p4d.24xlarge" in live.on(None).index_of
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE gone RENAME TO catalog_version"))
    live.refresh()
    assert live.health.problem is None


def test_a_new_day_is_a_new_catalog(engine: Engine) -> None:
    new = batch(
        "a newer machine",
        tables={
            "instance_type": [*small_tables()["instance_type"], instance_type_row("g6.xlarge")],
            "lifecycle": [*small_tables()["lifecycle"], event_row("g6", date(2024, 4, 4))],
        },
    )
    write(engine, new, datetime(2026, 11, 21, tzinfo=UTC))
    day = date(2022, 2, 17)
    live = LiveCatalog(engine, today=lambda: day)
    for catalog in (live.on(None), live.visible_to(None).on(None)):
        assert (catalog.day, "aws/g6.xlarge" in catalog.index_of) == (date(2022, 2, 17), False)
    day = DAY
    for catalog in (live.on(None), live.visible_to(None).on(None)):
        assert (catalog.day, "aws/g6.xlarge" in catalog.index_of) == (DAY, True)


def test_what_is_rolled_back_never_shows(live: LiveCatalog, engine: Engine) -> None:
    before = live.history
    with engine.connect() as connection:
        connection.execute(text("UPDATE instance_type SET vcpus = 97"))
        time.sleep(0.5)
        connection.rollback()
    time.sleep(0.5)
    assert live.history is before


def test_a_catalog_in_use_stays_as_it_is(live: LiveCatalog, engine: Engine) -> None:
    before, pinned = live.on(None), live.visible_to(None)
    pricier = batch("more expensive", offers=[offer_records("g5.xlarge", price_record(9_000_000))])
    written = write(engine, pricier, datetime(2026, 11, 22, tzinfo=UTC))
    await_version(live, written.version)
    assert sorted(before.offers.usd_per_hour) == [1, 1, 1]
    assert list(live.on(None).offers.usd_per_hour) == [9]
    assert sorted(pinned.on(None).offers.usd_per_hour) == sorted(pinned.on(DAY).offers.usd_per_hour) == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        before.offers.usd_per_hour[0] = 0


def test_a_lost_server_leaves_the_last_good_catalog() -> None:
    with running_server() as url:
        engine = connect(url)
        upgrade(engine)
        write(engine, batch(), datetime(2026, 11, 21, tzinfo=UTC))
        live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.1)
        live.start_watching()
        seen = live.health.checked_at
    try:
        await_problem(live)
        assert live.health.checked_at >= seen
        assert "aws/p4d.24xlarge" in live.on(None).index_of
        assert "aws/p4d.24xlarge" in live.on(date(2023, 6, 7)).index_of
    finally:
        live.stop_watching()
        engine.dispose()


def test_a_database_that_never_answers_has_a_problem(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = threading.Event()
    monkeypatch.setattr("service.db.live_catalog.SILENT_SECONDS", 0.5)
    live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.1)
    live.start_watching()
    time.sleep(1)
    assert live.health.problem is None
    monkeypatch.setattr("service.db.live_catalog.read_version", lambda _connection: answering.wait() and 1)
    try:
        await_problem(live)
        assert "has not answered for" in (live.health.problem or "")
        assert "aws/p4d.24xlarge" in live.on(None).index_of
    finally:
        answering.set()
        live.stop_watching()


def test_lost_connections_are_made_again(postgres_tables: str) -> None:
    engine = connect(postgres_tables)
    write(engine, batch(), datetime(2026, 11, 21, tzinfo=UTC))
    live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.1)
    live.start_watching()
    try:
        with engine.begin() as connection:
            cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            connection.execute(text(f"{cut} AND pid <> pg_backend_pid()"))
        with engine.begin() as connection:
            connection.execute(text("UPDATE instance_type SET vcpus = 97"))
        await_version(live, 2)
        assert live.health.problem is None
    finally:
        live.stop_watching()
        engine.dispose()


def test_postgres_announces_a_change_long_before_the_next_poll(postgres_tables: str) -> None:
    engine = connect(postgres_tables)
    live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=60)
    live.start_watching()
    deadline = time.monotonic() + PATIENCE_SECONDS
    changes = 0
    while live.history.version == 0 and time.monotonic() < deadline:  # the first change may come before it listens
        changes += 1
        write(engine, batch(f"change {changes}"), datetime(2026, 11, 21, tzinfo=UTC))
        time.sleep(0.2)
    assert live.history.version > 0
    start = time.monotonic()
    live.stop_watching()
    assert time.monotonic() - start < PATIENCE_SECONDS
    engine.dispose()


@pytest.mark.parametrize("payload", ["", "restart"])
def test_a_notice_of_somebody_else_does_not_stop_the_watcher(postgres_tables: str, payload: str) -> None:
    engine = connect(postgres_tables)
    live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.1)
    live.start_watching()
    try:
        for _ in range(10):  # the watcher does not listen while it reads
            with engine.begin() as connection:
                connection.execute(text("SELECT pg_notify('catalog', :payload)"), {"payload": payload})
            time.sleep(0.05)
        written = write(engine, batch(), datetime(2026, 11, 21, tzinfo=UTC))
        await_version(live, written.version)
        assert live.health.problem is None
    finally:
        live.stop_watching()
        engine.dispose()


def test_the_watcher_survives_a_fault(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = iter([ValueError("a fault of ours")])

    def fail_once() -> None:
        for fault in faults:
            raise fault

    live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.1)
    monkeypatch.setattr(live.keys, "write_uses", fail_once)
    live.start_watching()
    try:
        time.sleep(0.3)
        written = write(engine, batch("a change"), datetime(2026, 11, 22, tzinfo=UTC))
        await_version(live, written.version)
        assert "a fault of ours" in caplog.text
    finally:
        live.stop_watching()


def test_a_watcher_that_has_ended_is_a_problem(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.db.live_catalog.SILENT_SECONDS", 0.1)
    monkeypatch.setattr(LiveCatalog, "_watch", lambda _self: None)
    live = LiveCatalog(engine, today=lambda: DAY, poll_seconds=0.1)
    time.sleep(0.3)
    assert live.health.problem is None, "it has not been started"
    live.start_watching()
    await_problem(live)
    live.stop_watching()
    assert live.health.problem is None
