"""Copies of databases for tests that write."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from sqlalchemy import URL, Engine, NullPool, create_engine, make_url, text

from service.db.engine import connect


def copied_database(database: Path, copy: Path) -> str:
    """The URL of a copy of a SQLite database."""
    source, target = sqlite3.connect(database), sqlite3.connect(copy)
    source.backup(target)
    source.close()
    target.close()
    return f"sqlite:///{copy}"


@contextmanager
def postgres_database(server: URL, template: str = "") -> Iterator[str]:
    """The URL of a new database on a Postgres server, empty or a copy of the one at `template`; dropped after use."""
    copied = make_url(template).database if template else "template1"
    name = f"selector_test_{uuid4().hex}"
    administration = create_engine(server, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with administration.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {copied}"))
    yield server.set(database=name).render_as_string(hide_password=False)
    with administration.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def filled(url: str, fill: Callable[[Engine], object]) -> str:
    """The URL of a database after `fill` has written to it; no connection stays open, so that it can be copied."""
    engine = connect(url)
    fill(engine)
    engine.dispose()
    return url
