"""Give providers a class of seller."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # The constraint belongs to the column, which SQLite can add without rewriting the table.
    op.execute(
        "ALTER TABLE provider ADD COLUMN seller_class VARCHAR CONSTRAINT ck_provider_seller_class_known "
        "CHECK (seller_class IN ('hyperscaler', 'neocloud', 'marketplace', 'reseller'))"
    )


def downgrade() -> None:
    op.drop_column("provider", "seller_class")
