"""Bring a database to the tables this version of the code expects, and say when it is not there."""

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect
from sqlalchemy.exc import DatabaseError, OperationalError

from service.db.engine import sqlite_path
from service.db.errors import DatabaseUnusable
from service.files import MIGRATIONS


def alembic_config(engine: Engine) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["engine"] = engine
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    command.upgrade(alembic_config(engine), revision)


def downgrade(engine: Engine, revision: str) -> None:
    command.downgrade(alembic_config(engine), revision)


def current_revision(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def require_current(engine: Engine) -> None:
    """Raise `DatabaseUnusable` with a sentence unless the database has exactly the tables of this version."""
    path = sqlite_path(engine.url)
    if path and not path.exists():
        raise DatabaseUnusable(f"There is no database at {path}. Run: instance-selector seed")
    try:
        found = current_revision(engine)
        empty = not inspect(engine).get_table_names()
    except OperationalError as error:
        raise DatabaseUnusable(unreachable_sentence(engine, error)) from error
    except DatabaseError as error:
        raise DatabaseUnusable(f"{engine.url.render_as_string()} is not a database of this service.") from error
    scripts = ScriptDirectory.from_config(alembic_config(engine))
    if found == scripts.get_current_head():
        return
    if empty:
        raise DatabaseUnusable("The database is empty. Run: instance-selector seed")
    if found in {script.revision for script in scripts.walk_revisions()}:
        raise DatabaseUnusable("The database is older than this version of the service. Run: instance-selector migrate")
    raise DatabaseUnusable(
        "The database was not made by this version of the service: it is newer, or another program's. "
        "Use the version that made it, or another database."
    )


def unreachable_sentence(engine: Engine, error: OperationalError) -> str:
    reason = str(error.orig).strip().splitlines()[0]
    if "locked" in reason:
        return f"The database {engine.url.database} is locked by another process. Stop that process and start again."
    return f"The database {engine.url.render_as_string()} cannot be reached: {reason}"
