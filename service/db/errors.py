"""What can be wrong with a database, in sentences for the person who starts the service."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted


class DatabaseUnusable(Exception):
    """The database cannot be used as it is; the message says why and what to do."""


@contextmanager
def in_sentences(engine: Engine) -> Iterator[None]:
    """Whatever the driver says of the database is raised as `DatabaseUnusable`; a row that breaks a rule is not."""
    try:
        yield
    except IntegrityError:
        raise
    except OperationalError as error:
        raise DatabaseUnusable(unreachable_sentence(engine, error)) from error
    except DatabaseError as error:
        url = engine.url.render_as_string()
        raise DatabaseUnusable(f"{url} is not a database that this service can use: {reason(error)}.") from error
    except (DBAPIError, PoolExhausted) as error:
        raise DatabaseUnusable(f"The database {engine.url.render_as_string()} does not answer.") from error


def unreachable_sentence(engine: Engine, error: OperationalError) -> str:
    if "locked" in reason(error):
        return f"The database {engine.url.database} is locked by another process. Stop that process and start again."
    return f"The database {engine.url.render_as_string()} cannot be reached: {reason(error)}."


def reason(error: DatabaseError) -> str:
    return str(error.orig).strip().splitlines()[0].rstrip(".")
