"""Run migrations on the engine that the caller hands over."""

from alembic import context

from service.db.tables import METADATA

# Another process that migrates at the same time waits here, and then finds the work done. SQLite takes its lock with
# the first write after BEGIN; setting the unused number `user_version` is the smallest one.
TAKE_TURNS = {
    "postgresql": "SELECT pg_advisory_xact_lock(hashtext('instance-selector migrations'))",
    "sqlite": "PRAGMA user_version = 0",
}

engine = context.config.attributes["engine"]

with engine.begin() as connection:
    connection.exec_driver_sql(TAKE_TURNS[engine.dialect.name])
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
