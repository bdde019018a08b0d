"""Say of which generation the PCIe bus of a GPU is."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

expands = True

WITH_PCIE_5 = ("hopper", "blackwell", "blackwell-ultra", "cdna-3", "cdna-4")
"""Architectures of the catalog with the fifth generation. A new database gets the figure from seed/gpus.csv."""


def upgrade() -> None:
    op.add_column("gpu", sa.Column("pcie_generation", sa.Integer(), nullable=True))
    op.execute("UPDATE catalog_version SET importing = true")  # holds the triggers back: no price changes
    gpu = sa.table("gpu", sa.column("architecture"), sa.column("pcie_generation"))
    op.execute(gpu.update().where(gpu.c.architecture.in_(WITH_PCIE_5)).values(pcie_generation=5))
    op.execute("UPDATE catalog_version SET importing = false")


def downgrade() -> None:
    op.drop_column("gpu", "pcie_generation")
