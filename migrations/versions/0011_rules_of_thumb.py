"""Create the table of priors: rules of thumb that others wrote down, each with its source."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"


def upgrade() -> None:
    op.create_table(
        "prior",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("gpus", sa.String(), nullable=True),
        sa.Column("objective", sa.String(), nullable=True),
        sa.Column("subject", sa.String(), nullable=True),
        sa.Column("ranking", sa.String(), nullable=True),
        sa.Column("min_gpus", sa.Integer(), nullable=True),
        sa.Column("max_gpus", sa.Integer(), nullable=True),
        sa.Column("deadline_hours", sa.Double(), nullable=True),
        sa.Column("says", sa.String(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("valid_to", sa.Date(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.CheckConstraint("gpus IN ('one', 'several')", name=op.f("ck_prior_gpus_known")),
        sa.CheckConstraint("min_gpus > 0", name=op.f("ck_prior_min_gpus_positive")),
        sa.CheckConstraint("max_gpus > 0", name=op.f("ck_prior_max_gpus_positive")),
        sa.CheckConstraint("deadline_hours > 0", name=op.f("ck_prior_deadline_hours_positive")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_prior_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_prior")),
    )
    if op.get_bind().dialect.name == "sqlite":
        for change in ("INSERT", "UPDATE", "DELETE"):
            name = f"raise_version_prior_{change.lower()}"
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON prior BEGIN {RAISE}; END")
        return
    op.execute(
        "CREATE TRIGGER raise_version_prior AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON prior "
        "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
    )


def downgrade() -> None:
    op.drop_table("prior")
