"""Give each network without known dimensions its blocks and what they read, where checkpointing depends on them."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("model", sa.Column("blocks", sa.Integer(), nullable=True))
    op.add_column("model", sa.Column("block_inputs_per_sample", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("model", "block_inputs_per_sample")
    op.drop_column("model", "blocks")
