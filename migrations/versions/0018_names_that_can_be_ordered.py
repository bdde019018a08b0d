"""Say of each instance type whether its provider takes its name in an order."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance_type", sa.Column("orderable", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("instance_type", "orderable")
