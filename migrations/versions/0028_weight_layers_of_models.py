"""Give each model the number of its layers with weights, where it is known."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

expands = True


def upgrade() -> None:
    op.add_column("model", sa.Column("weight_layers", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("model", "weight_layers")
