"""Give each model the FLOPs of its attention and of its texts: with them the cost of samples of any size follows."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

expands = True

FIGURES = ("attention_flops_per_sample", "text_token_share", "text_flops_per_sample")


def upgrade() -> None:
    for name in FIGURES:
        op.add_column("model", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    for name in reversed(FIGURES):
        op.drop_column("model", name)
