"""The transaction of an import: one at a time, and one new version of the catalog for all of its changes."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, update

from service.db.errors import in_sentences
from service.db.tables import CATALOG_VERSION

SQLITE_WAIT_SECONDS = 60
"""How long an import or a migration waits for another one; a request waits much less."""


@contextmanager
def import_transaction(engine: Engine) -> Iterator[Connection]:
    """Begins a transaction for which other imports wait. Call `finish_import` in it. Raises `DatabaseUnusable`."""
    with in_sentences(engine), engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {SQLITE_WAIT_SECONDS * 1000}")
        # The update locks the row for other imports, and turns off the triggers that raise the version.
        connection.execute(update(CATALOG_VERSION).values(importing=True))
        yield connection


def finish_import(connection: Connection, *, changed: bool) -> int:
    """Turns the triggers on again and returns the version of the catalog, which is raised if the import changed it."""
    version = CATALOG_VERSION.c.version + int(changed)
    finished = update(CATALOG_VERSION).values(importing=False, version=version).returning(CATALOG_VERSION.c.version)
    raised: int = connection.execute(finished).scalar_one()
    return raised
