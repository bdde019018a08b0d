"""Give each model the tokens that it reads and writes for a sample, where these are known."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

COLUMNS = ("input_tokens_per_sample", "output_tokens_per_sample")


def upgrade() -> None:
    for name in COLUMNS:
        op.add_column("model", sa.Column(name, sa.Double(), nullable=True))


def downgrade() -> None:
    for name in COLUMNS:
        op.drop_column("model", name)
