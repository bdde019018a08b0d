"""Databases with tables and no rows: migrated once per worker, then copied."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, text

from service.db.engine import connect
from service.db.migrate import upgrade


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A database with tables; a test that takes it runs once on SQLite and once on Postgres."""
    made = connect(request.getfixturevalue(f"{request.param}_tables"))
    yield made
    made.dispose()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "tables.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_tables(migrated_file: Path, tmp_path: Path) -> str:
    return f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'test.db')}"


@pytest.fixture(scope="session")
def migrated_template(postgres_server: URL) -> Iterator[str]:
    with database(postgres_server, "template1") as name:
        migrate(address(postgres_server, name))
        yield name


@pytest.fixture
def postgres_tables(postgres_server: URL, migrated_template: str) -> Iterator[str]:
    with database(postgres_server, migrated_template) as name:
        yield address(postgres_server, name)


def migrate(url: str) -> None:
    engine = connect(url)
    upgrade(engine)
    engine.dispose()


def address(server: URL, name: str) -> str:
    return server.set(database=name).render_as_string(hide_password=False)


@contextmanager
def database(postgres: URL, template: str) -> Iterator[str]:
    """The name of a copy of another database, dropped after use."""
    name = f"selector_test_{uuid4().hex}"
    server = create_engine(postgres, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
    yield name
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
