"""Say how many GPUs the nodes have that make up a rack or a pod."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

expands = True

GPUS_PER_TRAY = 4
"""Every rack and pod in the catalog has trays of this size. A new database gets the figure from seed/gpus.csv."""


def upgrade() -> None:
    op.add_column("gpu", sa.Column("gpus_per_tray", sa.Integer(), nullable=True))
    op.execute("UPDATE catalog_version SET importing = true")  # holds the triggers back: no price changes
    gpu = sa.table("gpu", sa.column("gpus_per_rack"), sa.column("gpus_per_tray"))
    op.execute(gpu.update().where(gpu.c.gpus_per_rack.is_not(None)).values(gpus_per_tray=GPUS_PER_TRAY))
    op.execute("UPDATE catalog_version SET importing = false")


def downgrade() -> None:
    op.drop_column("gpu", "gpus_per_tray")
