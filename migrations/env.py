"""Run migrations on the engine that the caller hands over."""

from alembic import context
from sqlalchemy import Connection, inspect, update

from service.db.import_lock import SQLITE_WAIT_SECONDS
from service.db.migrate import oldest_supported
from service.db.tables import CATALOG_VERSION, METADATA

# Another process that migrates at the same time waits here, and then finds the work done. SQLite takes its lock with
# the first write after BEGIN; setting the unused number `user_version` is the smallest one. All migrations together
# can take longer than a request waits for a lock, so this one waits as long as an import.
TAKE_TURNS = {
    "postgresql": ["SELECT pg_advisory_xact_lock(hashtext('instance-selector migrations'))"],
    "sqlite": [f"PRAGMA busy_timeout = {SQLITE_WAIT_SECONDS * 1000}", "PRAGMA user_version = 0"],
}


def record_oldest_supported(connection: Connection) -> None:
    """Writes which code can work with the tables, for a version that does not know the newest migrations."""
    inspector = inspect(connection)
    columns = inspector.get_columns(CATALOG_VERSION.name) if inspector.has_table(CATALOG_VERSION.name) else []
    revision = context.get_context().get_current_revision()
    if revision and any(column["name"] == "oldest_revision" for column in columns):
        connection.execute(update(CATALOG_VERSION).values(oldest_revision=oldest_supported(context.script, revision)))


engine = context.config.attributes["engine"]

with engine.begin() as connection:
    for statement in TAKE_TURNS[engine.dialect.name]:
        connection.exec_driver_sql(statement)
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
    record_oldest_supported(connection)
