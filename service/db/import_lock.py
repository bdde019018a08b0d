"""Lets imports wait for each other."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, update

from service.db.errors import in_sentences
from service.db.tables import CATALOG_VERSION

SQLITE_WAIT_SECONDS = 60
"""How long an import or a migration waits for another one; a request waits much less."""


@contextmanager
def import_transaction(engine: Engine) -> Iterator[Connection]:
    """Begins a transaction that keeps other imports waiting. Raises `DatabaseUnusable`."""
    with in_sentences(engine), engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {SQLITE_WAIT_SECONDS * 1000}")
        # Locking this row makes imports wait for each other, and turns off the triggers that raise the version.
        connection.execute(update(CATALOG_VERSION).values(importing=True))
        yield connection
