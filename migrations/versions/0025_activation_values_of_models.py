"""Give each model the values that its convolutions write per sample, where these are known."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("model", sa.Column("activation_values_per_sample", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("model", "activation_values_per_sample")
