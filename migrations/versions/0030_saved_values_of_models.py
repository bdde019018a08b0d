"""Give each model the values that its training keeps for the backward pass, where they are counted."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("model", sa.Column("saved_values_per_sample", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("model", "saved_values_per_sample")
