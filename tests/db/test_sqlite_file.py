"""A SQLite file that is deleted, replaced, overwritten or read-only: reads go on, and no write is lost in silence."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, event, make_url

from service.app import create_app
from service.db.engine import connect
from service.db.errors import DatabaseFileLost
from service.db.live_catalog import LiveCatalog
from service.db.write_catalog import write
from service.settings import Settings
from tests.api.keys import bearer
from tests.builders.rows import batch, offer_records, price_record
from tests.databases import copied_database
from tests.server import running

DAY = date(2026, 11, 21)
NOW = datetime(2026, 11, 21, tzinfo=UTC)
DELETED = "The database file was deleted. Put it back, and restart the service."
REPLACED = "The database file was replaced. Restart the service to use the new one."
NEWER = batch("more expensive", offers=[offer_records("g5.xlarge", price_record(9_000_000))])
PATIENCE_SECONDS = 30


@pytest.fixture
def file(sqlite_tables: str) -> Path:
    return Path(str(make_url(sqlite_tables).database))


@pytest.fixture
def engine(sqlite_tables: str) -> Iterator[Engine]:
    engine = connect(sqlite_tables)
    write(engine, batch(), NOW)
    yield engine
    engine.dispose()


@pytest.fixture
def live(engine: Engine) -> LiveCatalog:
    return LiveCatalog(engine, today=lambda: DAY)


def versions_in(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        version: int = connection.execute("SELECT version FROM catalog_version").fetchone()[0]
        return version


def test_a_deleted_file_is_reported_and_not_created_again(live: LiveCatalog, engine: Engine, file: Path) -> None:
    aside = file.rename(file.with_name("aside.db"))
    live.refresh()
    assert (live.health.file_lost, live.health.problem) == (True, DELETED)
    assert "aws/p4d.24xlarge" in live.on(None).index_of
    with pytest.raises(DatabaseFileLost, match=DELETED):
        write(engine, NEWER, NOW)
    assert not file.exists()
    aside.rename(file)
    live.refresh()
    assert (live.health.file_lost, live.health.problem) == (False, None)


@pytest.mark.parametrize("content", [None, b"This is not a database. " * 99])
def test_a_replaced_file_is_reported_and_left_alone(
    live: LiveCatalog, engine: Engine, file: Path, content: bytes | None
) -> None:
    new = file.with_name("new.db")
    if content is None:
        shutil.copy(file, new)
    else:
        new.write_bytes(content)
    before = new.read_bytes()
    new.replace(file)
    live.refresh()
    assert (live.health.file_lost, live.health.problem) == (True, REPLACED)
    assert "aws/p4d.24xlarge" in live.on(None).index_of
    with pytest.raises(DatabaseFileLost, match=REPLACED):
        write(engine, NEWER, NOW)
    assert file.read_bytes() == before


@pytest.mark.parametrize("replaced", [False, True])
def test_a_write_into_a_file_that_is_lost_meanwhile_is_not_acknowledged(
    engine: Engine, file: Path, replaced: bool
) -> None:
    def lose(_connection: Any) -> None:
        if replaced:
            Path(shutil.copy(file, file.with_name("new.db"))).replace(file)
        else:
            file.unlink()

    event.listen(engine, "commit", lose)
    with pytest.raises(DatabaseFileLost, match=REPLACED if replaced else DELETED):
        write(engine, NEWER, NOW)


def test_a_file_that_is_overwritten_in_place_is_followed(live: LiveCatalog, engine: Engine, file: Path) -> None:
    """A connection that was kept would answer from its pages of the old content, and write them over the new one."""
    backup = Path(shutil.copy(file, file.with_name("backup.db")))
    write(engine, NEWER, NOW)
    live.refresh()
    assert live.history.version == 2
    file.write_bytes(backup.read_bytes())
    live.refresh()
    assert live.history.version == 1
    written = write(engine, NEWER, NOW)
    assert written.version == versions_in(file) == 2


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write to every file; within the block this process may not."""
    nobody = 65534
    root = os.getuid() == 0
    if root:
        os.setresuid(nobody, nobody, 0)
    try:
        yield
    finally:
        if root:
            os.setresuid(0, 0, 0)


def test_read_only_media_serve_reads(seeded_file: Path, client: TestClient) -> None:
    client.post("/measurements", json={}, headers=bearer())  # imports what root alone may be able to read
    # Outside of pytest's folder, which only its owner may enter.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "50% of it.db"
        copied_database(seeded_file, file)
        file.chmod(0o444)
        folder.chmod(0o555)
        with unprivileged():
            app = create_app(Settings(database_url=f"sqlite:///{file}"))
            reader = TestClient(app, headers=bearer())
            app.state.live_catalog.refresh()
            assert reader.get("/readyz").json()["problem"] is None
            assert reader.get("/instances", params={"limit": 1}).json()["items"]
            answer = reader.post(
                "/measurements", json={"items": [{"name": "a", "machine": "aws/p4d.24xlarge", "samples_per_second": 1}]}
            )
            reader.close()
        assert answer.status_code == 503
        assert list(folder.iterdir()) == [file]
        folder.chmod(0o755)


def test_a_server_whose_file_was_deleted_is_not_ready_and_keeps_answering(seeded_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    url = copied_database(seeded_file, file)
    with (
        running(url, tmp_path / "log", SELECTOR_POLL_SECONDS="0.1") as server,
        httpx2.Client(base_url=server.url, headers=bearer()) as client,
    ):
        assert client.get("/readyz").status_code == 200
        file.unlink()
        sent = {"items": [{"name": "a", "machine": "aws/p4d.24xlarge", "samples_per_second": 1}]}
        assert client.post("/measurements", json=sent).status_code == 503
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (ready := client.get("/readyz")).status_code == 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ready.status_code == 503
        assert (ready.json()["status"], ready.json()["problem"]) == ("database_file_lost", DELETED)
        assert client.get("/instances", params={"limit": 1}).status_code == 200
