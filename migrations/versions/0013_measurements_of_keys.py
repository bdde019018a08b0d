"""Give measurements their owner, their key and the version that added them, and count them per key."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

ONE_LESS = "UPDATE api_key SET measurements = measurements - 1 WHERE id = OLD.key"
"""A deletion by hand frees room under the limit of the key. Writing raises the count itself, once per request."""


def upgrade() -> None:
    op.add_column("measurement", sa.Column("owner", sa.String(), nullable=True))
    op.add_column("measurement", sa.Column("key", sa.String(), nullable=True))
    op.add_column("measurement", sa.Column("since", sa.Integer(), nullable=False, server_default="0"))
    op.create_index("ix_measurement_since", "measurement", ["since"])
    op.add_column("api_key", sa.Column("measurements", sa.Integer(), nullable=False, server_default="0"))
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE TRIGGER count_measurement_delete AFTER DELETE ON measurement WHEN OLD.key IS NOT NULL "
            f"BEGIN {ONE_LESS}; END"
        )
        return
    op.execute(
        "CREATE FUNCTION count_measurement_delete() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN {ONE_LESS}; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER count_measurement_delete AFTER DELETE ON measurement "
        "FOR EACH ROW WHEN (OLD.key IS NOT NULL) EXECUTE FUNCTION count_measurement_delete()"
    )


def downgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute("DROP TRIGGER count_measurement_delete")
    else:
        op.execute("DROP FUNCTION count_measurement_delete CASCADE")
    op.drop_column("api_key", "measurements")
    op.drop_index("ix_measurement_since", "measurement")
    for column in ("since", "key", "owner"):
        op.drop_column("measurement", column)
