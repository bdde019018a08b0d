"""Name the GPU that follows each GPU, and give CPUs the bandwidth of their memory."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("gpu", sa.Column("successor", sa.String(), nullable=True))
    op.add_column("instance_type", sa.Column("cpu_memory_bandwidth_gb_per_second", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("instance_type", "cpu_memory_bandwidth_gb_per_second")
    op.drop_column("gpu", "successor")
