"""Give each burstable instance type the share of its CPUs that it can use without end."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("instance_type", sa.Column("cpu_baseline_share", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("instance_type", "cpu_baseline_share")
