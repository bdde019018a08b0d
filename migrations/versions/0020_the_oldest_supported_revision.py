"""Record the oldest revision whose code can work with the tables."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("catalog_version", sa.Column("oldest_revision", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("catalog_version", "oldest_revision")
