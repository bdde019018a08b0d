"""Say on which machines a managed service runs."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("service", sa.Column("machines", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("service", "machines")
