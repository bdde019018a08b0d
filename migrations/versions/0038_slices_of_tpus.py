"""Say how many chips the slices of a TPU pod have."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("gpu", sa.Column("slices", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("gpu", "slices")
