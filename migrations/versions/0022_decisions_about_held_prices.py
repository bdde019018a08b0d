"""Keep what an operator decided about a price that was held, and when."""

import sqlalchemy as sa
from alembic import op

from service.db.columns import UtcDateTime

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("observation", sa.Column("decision", sa.String(), nullable=True))
    op.add_column("observation", sa.Column("decided_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    op.drop_column("observation", "decided_at")
    op.drop_column("observation", "decision")
