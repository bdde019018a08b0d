"""Give each provider the network of its machines with RDMA."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("provider", sa.Column("rdma_fabric", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("provider", "rdma_fabric")
