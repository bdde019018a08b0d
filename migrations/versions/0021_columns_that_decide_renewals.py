"""Index observations by all columns that decide whose prices an unchanged document renews."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

expands = True

COLUMNS = ["key", "document_id", "state", "superseded_at"]


def upgrade() -> None:
    op.drop_index("ix_observation_key", "observation")
    op.create_index("ix_observation_key_document_state", "observation", COLUMNS)


def downgrade() -> None:
    op.drop_index("ix_observation_key_document_state", "observation")
    op.create_index("ix_observation_key", "observation", ["key"])
