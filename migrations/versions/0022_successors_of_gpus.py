"""Name the GPU that follows each GPU."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("gpu", sa.Column("successor", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("gpu", "successor")
