"""The migrations make the tables that the code expects, on both databases."""

import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from service.db.engine import SQLITE_BUSY_SECONDS, connect
from service.db.migrate import downgrade, require_usable, upgrade
from service.db.read_history import read_history
from service.db.tables import CATALOG_TABLES, METADATA

MIGRATE = "import sys; from service.db import engine, migrate; migrate.upgrade(engine.connect(sys.argv[1]))"


def test_up_down_and_up_again(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine)
    require_usable(engine)
    downgrade(engine, "base")
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    upgrade(engine)
    require_usable(engine)
    engine.dispose()


def test_models_and_migrations_are_in_sync(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_regions_of_an_older_database_get_their_continent(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine, "0007")
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO source (id, title, retrieved_on) VALUES ('s', 'A source', '2026-01-01')"))
        connection.execute(
            text("INSERT INTO provider (id, name, priced_by_region, source) VALUES ('p', 'P', false, 's')")
        )
        for region, country in (("paris", "'FR'"), ("anywhere", "NULL")):
            connection.execute(
                text(f"INSERT INTO region (provider, id, country, source) VALUES ('p', '{region}', {country}, 's')")
            )
    upgrade(engine)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT id, continent FROM region")).all()
    assert {row.id: row.continent for row in rows} == {"paris": "europe", "anywhere": None}
    engine.dispose()


def test_measurements_from_before_keys_are_public_and_are_read(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine, "0012")
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO measurement (id, workload, machine, samples_per_second, measured_on, source, sent_at) "
                "VALUES ('old', 'nightly', 'aws/g5.xlarge', 360, '2026-01-01', 'sent', '2026-01-01 00:00:00')"
            )
        )
    upgrade(engine)
    (measurement,) = read_history(engine).measurements.of(None)
    assert (measurement.id, measurement.owner, measurement.since) == ("old", None, 0)
    engine.dispose()


def test_every_table_of_the_catalog_is_watched(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine)
    listed = {
        "sqlite": "SELECT DISTINCT tbl_name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": "SELECT DISTINCT event_object_table FROM information_schema.triggers",
    }[engine.dialect.name]
    with engine.connect() as connection:
        watched = set(connection.execute(text(listed)).scalars())
    assert set(CATALOG_TABLES) <= watched
    engine.dispose()


def test_a_change_by_hand_raises_the_version_and_a_rolled_back_one_does_not(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine)
    version = text("SELECT version FROM catalog_version")
    add = text("INSERT INTO source (id, title, retrieved_on) VALUES ('s', 'A source', '2026-01-01')")
    with engine.connect() as connection:
        before = connection.execute(version).scalar_one()
        connection.execute(add)
        connection.rollback()
        assert connection.execute(version).scalar_one() == before
        connection.execute(add)
        connection.commit()
        assert connection.execute(version).scalar_one() == before + 1
        connection.execute(text("UPDATE source SET title = 'Another'"))
        connection.execute(text("DELETE FROM source"))
        connection.commit()
        assert connection.execute(version).scalar_one() == before + 3
    engine.dispose()


def test_replicas_that_migrate_at_once_take_turns(database_url: str) -> None:
    """Each in a process of its own, as Alembic's context is one for a whole process."""
    command = [sys.executable, "-c", MIGRATE, database_url]
    replicas = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [replica.communicate()[1] for replica in replicas] == [""] * 2
    engine = connect(database_url)
    require_usable(engine)
    engine.dispose()


def test_a_migration_waits_for_another_one_that_takes_longer_than_a_request_may_wait(tmp_path: Path) -> None:
    path = tmp_path / "slow.db"
    engine = connect(f"sqlite:///{path}")
    upgrade(engine, "0001")
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        command = [sys.executable, "-c", MIGRATE, f"sqlite:///{path}"]
        waiting = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        time.sleep(2 * SQLITE_BUSY_SECONDS)
        other.execute("ROLLBACK")
    assert waiting.communicate()[1] == ""
    require_usable(engine)
    engine.dispose()
