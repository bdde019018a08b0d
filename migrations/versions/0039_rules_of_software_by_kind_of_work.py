"""Say for which families of models, formats of weights and versions of CUDA a rule of software holds."""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

# The version before would take rules about some work as rules about all of it, so this migration has no `expands`.

COLUMNS = ("families", "formats", "cuda")


def upgrade() -> None:
    for column in COLUMNS:
        op.add_column("framework_support", sa.Column(column, sa.String(), nullable=True))


def downgrade() -> None:
    op.execute("DELETE FROM framework_support WHERE families IS NOT NULL OR formats IS NOT NULL OR cuda IS NOT NULL")
    for column in COLUMNS:
        op.drop_column("framework_support", column)
