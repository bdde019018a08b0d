"""Give each GPU the size of its rack, and whether it is a consumer card."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

GPUS_PER_RACK = {"gb200-186gb": 72, "gb300-288gb": 72, "tpu-v4-32gb": 4096, "tpu-v5p-95gb": 8960, "tpu-v5e-16gb": 256}
CONSUMER_LINES = ("rtx-", "gtx-", "titan-")
"""Both fill the new columns of a database that holds GPUs already. A new database gets them from seed/gpus.csv."""


def upgrade() -> None:
    op.add_column("gpu", sa.Column("gpus_per_rack", sa.Integer(), nullable=True))
    op.add_column("gpu", sa.Column("consumer", sa.Boolean(), nullable=True))
    op.execute("UPDATE catalog_version SET importing = true")  # holds the triggers back: no price changes
    gpu = sa.table("gpu", sa.column("id"), sa.column("gpus_per_rack"), sa.column("consumer", sa.Boolean()))
    for name, count in GPUS_PER_RACK.items():
        op.execute(gpu.update().where(gpu.c.id == name).values(gpus_per_rack=count))
    is_consumer = sa.or_(*(gpu.c.id.like(f"{line}%") for line in CONSUMER_LINES))
    op.execute(gpu.update().values(consumer=is_consumer))
    op.execute("UPDATE catalog_version SET importing = false")


def downgrade() -> None:
    op.drop_column("gpu", "consumer")
    op.drop_column("gpu", "gpus_per_rack")
