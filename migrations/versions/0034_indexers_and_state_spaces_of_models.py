"""Give each model the dimensions of its indexers, gates and global layers, and the parameters of its state spaces."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

expands = True

DIMENSIONS = (
    "ssm_parameters", "global_kv_heads", "global_head_size", "indexed_tokens", "indexer_layers", "indexer_heads",
    "indexer_head_size",
)  # fmt: skip


def upgrade() -> None:
    for name in DIMENSIONS:
        op.add_column("model", sa.Column(name, sa.Integer(), nullable=True))
    op.add_column("model", sa.Column("gated_attention", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("model", "gated_attention")
    for name in reversed(DIMENSIONS):
        op.drop_column("model", name)
