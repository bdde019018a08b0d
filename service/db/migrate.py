"""Brings the tables of a database to this version of the code, and reports a database with unsuitable tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, Integer, String, column, inspect, select, table
from sqlalchemy.exc import SQLAlchemyError

from service.db.engine import sqlite_path
from service.db.errors import DatabaseUnusable, in_sentences
from service.files import MIGRATIONS

if TYPE_CHECKING:  # Alembic is imported where it is needed: a start with a current database does not load it
    from alembic.config import Config
    from alembic.script import ScriptDirectory

FOREIGN_DATABASE = (
    "The database was not made by this version of the service: it is newer, or belongs to another program. "
    "Use the version that made it, or another database."
)


def _alembic_config(engine: Engine) -> Config:
    from alembic.config import Config

    config = Config()
    # Alembic reads options through configparser, where a percent sign begins an interpolation.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["engine"] = engine
    return config


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Creates or upgrades the tables; newer ones that this version can use stay. Raises `DatabaseUnusable`."""
    from alembic import command

    with in_sentences(engine):
        if _is_newer_and_supported(engine):
            return
        if _is_foreign(engine):
            raise DatabaseUnusable(FOREIGN_DATABASE)
        command.upgrade(_alembic_config(engine), revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Undoes the migrations after a revision; `base` undoes all."""
    from alembic import command

    command.downgrade(_alembic_config(engine), revision)


def require_usable(engine: Engine) -> None:
    """Raises `DatabaseUnusable` with a sentence unless the database has the tables of this version.

    Newer tables are usable if all migrations since this version only expand them. During a rolling upgrade, replicas of
    the version before can therefore still start after the migration.
    """
    path = sqlite_path(engine.url)
    if path and not path.exists():
        raise DatabaseUnusable(f"There is no database at {path}. Run: instance-selector seed")
    if is_current(engine):
        return
    with in_sentences(engine):
        if _is_newer_and_supported(engine):
            return
        if _is_foreign(engine):
            raise DatabaseUnusable(FOREIGN_DATABASE)
        revision = _current_revision(engine)
    if revision is None:
        raise DatabaseUnusable("The database is empty. Run: instance-selector seed")
    if revision != scripts(engine).get_current_head():
        raise DatabaseUnusable("The database is older than this version of the service. Run: instance-selector migrate")


def is_empty(engine: Engine) -> bool:
    """Returns whether the database has no tables, or tables of this service to which nothing was ever written.

    Raises `DatabaseUnusable` if it cannot be read.
    """
    path = sqlite_path(engine.url)
    if path and not path.exists():
        return True
    with in_sentences(engine), engine.connect() as connection:
        tables = _tables(connection)
        if "catalog_version" not in tables:
            return not tables
        version = select(column("version", Integer)).select_from(table("catalog_version"))
        return connection.execute(version).scalar() == 0


def is_current(engine: Engine) -> bool:
    """Returns whether the newest migration has been applied, or False if the database cannot be read."""
    versions = select(column("version_num", String)).select_from(table("alembic_version"))
    try:
        with engine.connect() as connection:
            return connection.execute(versions).scalars().all() == [newest_revision()]
    except SQLAlchemyError:
        return False


def newest_revision() -> str:
    """Returns the highest revision: revisions are numbered in order, and their files are named after them."""
    return max(path.name.partition("_")[0] for path in (MIGRATIONS / "versions").glob("*_*.py"))


def oldest_supported(scripts: ScriptDirectory, revision: str) -> str:
    """Returns the oldest revision whose code can read and write the tables of a revision.

    That is the revision before the newest migrations with `expands = True`. Such a migration only adds tables, indexes
    or nullable columns, which older code can ignore.
    """
    script = scripts.get_revision(revision)
    while getattr(script.module, "expands", False):
        script = scripts.get_revision(str(script.down_revision))
    return script.revision


def _is_newer_and_supported(engine: Engine) -> bool:
    """Returns whether the database has newer tables that, as it records itself, this version can use."""
    oldest = select(column("oldest_revision", String)).select_from(table("catalog_version"))
    revision, newest = _current_revision(engine), newest_revision()
    if revision is None or revision <= newest:
        return False
    try:
        with engine.connect() as connection:
            return (connection.execute(oldest).scalar() or revision) <= newest
    except SQLAlchemyError:
        return False


def _is_foreign(engine: Engine) -> bool:
    """Returns whether the tables were made by something other than the migrations of this version."""
    revision = _current_revision(engine)
    if revision is None:
        return bool(_tables(engine))
    return revision not in {script.revision for script in scripts(engine).walk_revisions()}


def _tables(bind: Engine | Connection) -> set[str]:
    """Returns the names of all tables, without that of Alembic, which a downgrade leaves behind."""
    return set(inspect(bind).get_table_names()) - {"alembic_version"}


def _current_revision(engine: Engine) -> str | None:
    from alembic.runtime.migration import MigrationContext

    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def scripts(engine: Engine) -> ScriptDirectory:
    """Returns the migrations as Alembic reads them."""
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_alembic_config(engine))
