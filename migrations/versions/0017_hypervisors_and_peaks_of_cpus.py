"""Give each instance type its hypervisor and the peak of its CPUs."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance_type", sa.Column("hypervisor", sa.String(), nullable=True))
    op.add_column("instance_type", sa.Column("cpu_fp32_tflops", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("instance_type", "cpu_fp32_tflops")
    op.drop_column("instance_type", "hypervisor")
