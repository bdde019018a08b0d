"""Give each measurement the power that its machine drew."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("measurement", sa.Column("watts", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("measurement", "watts")
