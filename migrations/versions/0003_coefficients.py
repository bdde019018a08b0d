"""Create the table of calibration coefficients: one number for each part of a kind of step, in each scope."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CHANGES = ("INSERT", "UPDATE", "DELETE")
RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"


def upgrade() -> None:
    op.create_table(
        "coefficient",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("fitted_on", sa.String(), nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_coefficient_source")),
        sa.PrimaryKeyConstraint("name", "scope", name=op.f("pk_coefficient")),
    )
    if op.get_bind().dialect.name == "sqlite":
        for change in CHANGES:
            op.execute(
                f"CREATE TRIGGER raise_version_coefficient_{change.lower()} "
                f"AFTER {change} ON coefficient BEGIN {RAISE}; END"
            )
        return
    op.execute(
        "CREATE TRIGGER raise_version_coefficient AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON coefficient "
        "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
    )


def downgrade() -> None:
    op.drop_table("coefficient")
