"""Bring a database to the tables this version of the code expects, and say when it is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Engine, String, column, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError

from service.db.engine import sqlite_path
from service.db.errors import DatabaseUnusable, in_sentences
from service.files import MIGRATIONS

if TYPE_CHECKING:  # Alembic is imported where it is needed: a start that finds everything current does without
    from alembic.config import Config
    from alembic.script import ScriptDirectory

OF_ALEMBIC = {"alembic_version"}
"""What is left of a database whose migrations were all taken back."""

STRANGER = (
    "The database was not made by this version of the service: it is newer, or another program's. "
    "Use the version that made it, or another database."
)


def alembic_config(engine: Engine) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["engine"] = engine
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Make the tables, or bring them to this version. Raises `DatabaseUnusable`."""
    from alembic import command

    with in_sentences(engine):
        if is_strange(engine):
            raise DatabaseUnusable(STRANGER)
        command.upgrade(alembic_config(engine), revision)


def downgrade(engine: Engine, revision: str) -> None:
    from alembic import command

    command.downgrade(alembic_config(engine), revision)


def require_current(engine: Engine) -> None:
    """Raise `DatabaseUnusable` with a sentence unless the database has exactly the tables of this version."""
    path = sqlite_path(engine.url)
    if path and not path.exists():
        raise DatabaseUnusable(f"There is no database at {path}. Run: instance-selector seed")
    if is_current(engine):
        return
    with in_sentences(engine):
        if is_strange(engine):
            raise DatabaseUnusable(STRANGER)
        found = current_revision(engine)
    if found is None:
        raise DatabaseUnusable("The database is empty. Run: instance-selector seed")
    if found != scripts(engine).get_current_head():
        raise DatabaseUnusable("The database is older than this version of the service. Run: instance-selector migrate")


def is_current(engine: Engine) -> bool:
    """Whether the newest migration has been made; where that cannot be told, Alembic will tell why."""
    versions = select(column("version_num", String)).select_from(table("alembic_version"))
    try:
        with engine.connect() as connection:
            return connection.execute(versions).scalars().all() == [newest_revision()]
    except SQLAlchemyError:
        return False


def newest_revision() -> str:
    """Revisions are numbered in their order, and their files are named for them."""
    return max(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("*_*.py"))


def is_strange(engine: Engine) -> bool:
    """Whether the tables are none that any migration known here has made."""
    found = current_revision(engine)
    if found is None:
        return bool(set(inspect(engine).get_table_names()) - OF_ALEMBIC)
    return found not in {script.revision for script in scripts(engine).walk_revisions()}


def current_revision(engine: Engine) -> str | None:
    from alembic.runtime.migration import MigrationContext

    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def scripts(engine: Engine) -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(alembic_config(engine))
