"""Give each model the number format in which its weights are published."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("model", sa.Column("published_precision", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("model", "published_precision")
