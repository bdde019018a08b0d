"""`instance-selector check` finds what a restore can break, and a restored backup is whole."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

from service.cli.main import main
from service.db.engine import connect
from service.db.errors import DatabaseUnusable
from service.db.migrate import upgrade
from service.db.operation.check import counts_of, faults_of
from service.db.read_history import read_history
from service.db.write_catalog import write
from tests.builders.rows import batch
from tests.postgres import find_binaries

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def filled(engine: Engine) -> Engine:
    write(engine, batch(), NOW)
    return engine


def broken(engine: Engine, *statements: str) -> None:
    """Changes rows in ways that the database would refuse."""
    if engine.dialect.name == "sqlite":
        with closing(sqlite3.connect(str(engine.url.database), isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)
        return
    with engine.begin() as connection:
        for statement in ("SET LOCAL session_replication_role = replica", *statements):
            connection.execute(text(statement))


def test_a_whole_database_has_no_faults(filled: Engine) -> None:
    assert faults_of(filled) == []
    counts = counts_of(filled)
    assert counts["instance_type"] == len(read_history(filled).instance_types) > 0


@pytest.mark.parametrize(
    ("statement", "fault"),
    [
        ("UPDATE offer SET instance_type_id = 999999", "offer: instance_type_id of {} rows is not in instance_type."),
        ("DELETE FROM offer", "price: offer_id of {} rows is not in offer."),
    ],
)
def test_a_broken_reference_is_a_fault(filled: Engine, statement: str, fault: str) -> None:
    expected = fault.format(counts_of(filled)[fault.partition(":")[0]])
    broken(filled, statement)
    assert expected in faults_of(filled)


def test_overlapping_prices_are_a_fault(filled: Engine) -> None:
    columns = "offer_id, valid_to, recorded_at, per_hour_micros, observed_on, dated, kind, source, note"
    earlier = "'2001-01-01 00:00:00.000000'" if filled.dialect.name == "sqlite" else "'2001-01-01 00:00:00+00'"
    broken(
        filled,
        f"INSERT INTO price ({columns}, valid_from) SELECT {columns}, {earlier} FROM price "
        "WHERE id = (SELECT min(id) FROM price WHERE valid_to IS NULL)",
    )
    assert faults_of(filled) == ["price: the intervals of 1 offers overlap or end before they begin."]


def test_a_catalog_without_instance_types_is_a_fault(engine: Engine) -> None:
    assert faults_of(engine) == ["The catalog has no instance types today. Run: instance-selector seed"]


def test_a_database_of_another_version_is_refused(database_url: str) -> None:
    engine = connect(database_url)
    upgrade(engine, "0001")
    with pytest.raises(DatabaseUnusable, match="instance-selector migrate"):
        faults_of(engine)
    engine.dispose()


def test_a_damaged_file_is_a_fault(seeded_copy: str) -> None:
    file = Path(str(make_url(seeded_copy).database))
    with closing(sqlite3.connect(file)) as connection:
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_price_offer_valid'").fetchone()[
            0
        ]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with file.open("r+b") as opened:
        opened.seek((page - 1) * size + size // 2)
        opened.write(b"\xff" * (size // 2))
    assert faults_of(connect(seeded_copy))[0].startswith("The file is damaged: ")


def test_the_command_prints_the_faults_and_ends_with_1(
    seeded_copy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SELECTOR_DATABASE_URL", seeded_copy)
    assert main(["check"]) == 0
    assert capsys.readouterr().out.endswith("is whole.\n")
    broken(connect(seeded_copy), "DELETE FROM gpu")
    assert main(["check"]) == 1
    printed = capsys.readouterr()
    assert "instance_type: gpu of" in printed.err
    assert printed.out.endswith("is not whole.\n")


# Backups


def test_a_backup_of_sqlite_is_whole_after_its_restore(seeded_file: Path, tmp_path: Path) -> None:
    """The module has the same function as `.backup` of the command `sqlite3`."""
    with closing(sqlite3.connect(seeded_file)) as source, closing(sqlite3.connect(tmp_path / "backup.db")) as target:
        source.backup(target)
    restored = connect(f"sqlite:///{shutil.copy(tmp_path / 'backup.db', tmp_path / 'restored.db')}")
    assert faults_of(restored) == []
    assert counts_of(restored) == counts_of(connect(f"sqlite:///{seeded_file}"))


def test_a_backup_of_postgres_is_whole_after_its_restore(postgres_tables: str, tmp_path: Path) -> None:
    binaries = find_binaries()
    if not binaries or not (binaries / "pg_dump").exists():
        pytest.skip("There is no pg_dump next to this Postgres.")
    original = connect(postgres_tables)
    write(original, batch(), NOW)
    address = make_url(postgres_tables)
    server = create_engine(address.set(database="postgres"), isolation_level="AUTOCOMMIT")
    name = f"{address.database}_restored"
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    variables = {**os.environ, "PGHOST": str(address.query.get("host", address.host)), "PGUSER": str(address.username)}
    dump = tmp_path / "backup.dump"
    try:
        subprocess.run([binaries / "pg_dump", "-Fc", "-f", dump, str(address.database)], check=True, env=variables)
        subprocess.run([binaries / "pg_restore", "--exit-on-error", "-d", name, dump], check=True, env=variables)
        restored = connect(address.set(database=name).render_as_string(hide_password=False))
        assert faults_of(restored) == []
        assert counts_of(restored) == counts_of(original)
        restored.dispose()
    finally:
        original.dispose()
        with server.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        server.dispose()
