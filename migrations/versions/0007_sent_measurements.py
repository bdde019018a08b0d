"""Give measurements of callers their nodes, software and time, and count the changes that only added some."""

import sqlalchemy as sa
from alembic import op

from service.db.columns import UtcDateTime

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("nodes", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("measurement", sa.Column("software", sa.String(), nullable=True))
    op.add_column("measurement", sa.Column("sent_at", UtcDateTime(), nullable=True))
    op.add_column("catalog_version", sa.Column("measured", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("catalog_version", "measured")
    for column in ("sent_at", "software", "nodes"):
        op.drop_column("measurement", column)
