"""Give each GPU its cores, clocks and GPUs per board, and each provider whether a renter has the GPUs alone."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("gpu", sa.Column("cores", sa.Integer(), nullable=True))
    op.add_column("gpu", sa.Column("base_clock_mhz", sa.Double(), nullable=True))
    op.add_column("gpu", sa.Column("boost_clock_mhz", sa.Double(), nullable=True))
    op.add_column("gpu", sa.Column("gpus_per_board", sa.Integer(), nullable=True))
    op.add_column("provider", sa.Column("gpus_exclusive", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("provider", "gpus_exclusive")
    for column in ("gpus_per_board", "boost_clock_mhz", "base_clock_mhz", "cores"):
        op.drop_column("gpu", column)
