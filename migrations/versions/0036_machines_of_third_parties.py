"""Give each provider the ending of the names of machines that belong to third parties."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("provider", sa.Column("third_party_suffix", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("provider", "third_party_suffix")
