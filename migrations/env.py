"""Run migrations on the engine that the caller hands over."""

from alembic import context

from service.db.tables import Row

engine = context.config.attributes["engine"]

with engine.begin() as connection:
    context.configure(connection=connection, target_metadata=Row.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
