"""A change reaches the running service; nobody sees half of it; a lost database leaves the last good catalog."""

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
from service.files import SEED
from service.importers.seed import read_seed

DAY = date(2026, 11, 21)
PATIENCE_SECONDS = 5


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = connect(database_url)
    upgrade(made)
    write(made, read_seed(SEED), datetime(2026, 11, 21, tzinfo=UTC))
    yield made
    made.dispose()


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
    assert after.instance_types[after.place_of["aws/p4d.24xlarge"]].vcpus == 97
    assert before.instance_types[before.place_of["aws/p4d.24xlarge"]].vcpus == 96


def test_a_change_is_seen_whole_or_not_at_all(live: LiveCatalog, engine: Engine) -> None:
    """Two rows change together; readers meanwhile see both as they were or both as they are."""
    torn: list[tuple[object, object]] = []
    stopping = threading.Event()

    def look() -> None:
        while not stopping.is_set():
            catalog = live.on(None)
            pair = [
                catalog.instance_types[catalog.place_of[name]].vcpus for name in ("aws/g5.xlarge", "aws/g5.2xlarge")
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


def test_while_the_database_is_away_the_last_good_catalog_answers(engine: Engine) -> None:
    live = LiveCatalog(engine, today=lambda: DAY)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE catalog_version RENAME TO gone"))
    live.refresh()
    assert live.health.problem is not None
    assert "aws/p4d.24xlarge" in live.on(None).place_of
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE gone RENAME TO catalog_version"))
    live.refresh()
    assert live.health.problem is None


def test_a_new_day_is_a_new_catalog(engine: Engine) -> None:
    days = iter([date(2022, 2, 17), date(2022, 2, 17), date(2026, 11, 21)])
    live = LiveCatalog(engine, today=lambda: next(days))
    assert "aws/p5.48xlarge" not in live.on(None).place_of
    assert "aws/p5.48xlarge" in live.on(None).place_of
