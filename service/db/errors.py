"""Turns database errors into sentences for the person who starts the service."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted

from service.db.sqlite_file import file_of
from service.domain.errors import Unusable


class DatabaseUnusable(Unusable):
    """The database cannot be used; the message says why, and how to repair it."""


class DatabaseFileLost(DatabaseUnusable):
    """The SQLite file was deleted or replaced while it was in use."""


@contextmanager
def in_sentences(engine: Engine) -> Iterator[None]:
    """Raises errors of the driver as `DatabaseUnusable`, except for a row that violates a constraint.

    Raises `DatabaseFileLost` if the SQLite file was replaced meanwhile, so that no write to a lost file counts as done.
    """
    try:
        yield
        require_same_file(engine)
    # The caller knows the row, and can say more about the violation.
    except IntegrityError:
        raise
    except OperationalError as error:
        raise DatabaseUnusable(_unreachable_sentence(engine, error)) from error
    except DatabaseError as error:
        url = engine.url.render_as_string()
        raise DatabaseUnusable(f"{url} is not a database that this service can use: {_reason(error)}.") from error
    except (DBAPIError, PoolExhausted) as error:
        raise DatabaseUnusable(f"The database {engine.url.render_as_string()} does not answer.") from error


def require_same_file(engine: Engine) -> None:
    """Raises `DatabaseFileLost` if the SQLite file is not the one that this engine opened first."""
    file = file_of(engine)
    fault = file.fault() if file else None
    if fault:
        raise DatabaseFileLost(fault)


def _unreachable_sentence(engine: Engine, error: OperationalError) -> str:
    if "locked" in _reason(error):
        return f"The database {engine.url.database} is locked by another process. Stop that process and start again."
    return f"The database {engine.url.render_as_string()} cannot be reached: {_reason(error)}."


def _reason(error: DatabaseError) -> str:
    # The further lines are hints and statements, which do not help an operator.
    return str(error.orig).strip().splitlines()[0].rstrip(".")
