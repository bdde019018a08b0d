"""Run migrations on the engine that the caller hands over."""

from alembic import context

from service.db.import_lock import SQLITE_WAIT_SECONDS
from service.db.tables import METADATA

# Another process that migrates at the same time waits here, and then finds the work done. SQLite takes its lock with
# the first write after BEGIN; setting the unused number `user_version` is the smallest one. All migrations together
# can take longer than a request waits for a lock, so this one waits as long as an import.
TAKE_TURNS = {
    "postgresql": ["SELECT pg_advisory_xact_lock(hashtext('instance-selector migrations'))"],
    "sqlite": [f"PRAGMA busy_timeout = {SQLITE_WAIT_SECONDS * 1000}", "PRAGMA user_version = 0"],
}

engine = context.config.attributes["engine"]

with engine.begin() as connection:
    for statement in TAKE_TURNS[engine.dialect.name]:
        connection.exec_driver_sql(statement)
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
