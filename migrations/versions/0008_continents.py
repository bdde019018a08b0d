"""Drop four tables that were never used, and give each region its continent."""

import sqlalchemy as sa
from alembic import op

from service.db.columns import UtcDateTime

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UNUSED = ("api_key", "outcome", "spot_statistic", "watch")

RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"

COUNTRIES_OF = {
    "africa": "MA ZA",
    "asia": "AE BH CN HK ID IL IN JP KR MY QA SG TH TW VN",
    "europe": "BE BG CH CZ DE ES FI FR GB HR HU IE IS IT NL NO PL RO SE SI",
    "north america": "CA MX US",
    "oceania": "AU NZ",
    "south america": "BR CL",
}
"""Fills the new column of a database that holds regions already. A new database gets it from seed/regions.csv."""


def upgrade() -> None:
    for table in UNUSED:
        op.drop_table(table)
    known = ", ".join(f"'{continent}'" for continent in COUNTRIES_OF)
    # The constraint belongs to the column: SQLite can neither add nor drop one of a table without rewriting the table,
    # which would lose the triggers.
    op.execute(
        "ALTER TABLE region ADD COLUMN continent VARCHAR "
        f"CONSTRAINT ck_region_continent_known CHECK (continent IN ({known}))"
    )
    op.execute("UPDATE catalog_version SET importing = true")  # holds the triggers back: offers and prices stay
    region = sa.table("region", sa.column("country"), sa.column("continent"))
    for continent, countries in COUNTRIES_OF.items():
        op.execute(region.update().where(region.c.country.in_(countries.split())).values(continent=continent))
    op.execute("UPDATE catalog_version SET importing = false")


def downgrade() -> None:
    op.drop_column("region", "continent")
    op.create_table(
        "api_key",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("key_hash", sa.String(), nullable=False),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("revoked_at", UtcDateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_key_key_hash")),
    )
    op.create_table(
        "outcome",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("zone", sa.String(), nullable=True),
        sa.Column("market", sa.String(), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("happened_at", UtcDateTime(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "event IN ('started', 'no_capacity', 'no_quota', 'interrupted', 'finished')",
            name=op.f("ck_outcome_event_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outcome")),
    )
    op.create_table(
        "watch",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("question", sa.JSON(), nullable=False),
        sa.Column("webhook_url", sa.String(), nullable=True),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("answered_version", sa.Integer(), nullable=True),
        sa.Column("answer_digest", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_watch")),
    )
    op.create_table(
        "spot_statistic",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("observed_on", sa.Date(), nullable=False),
        sa.Column("interruptions_per_month_low", sa.Double(), nullable=True),
        sa.Column("interruptions_per_month_high", sa.Double(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_spot_statistic_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_spot_statistic_source")),
        sa.PrimaryKeyConstraint("provider", "name", "region", "observed_on", name=op.f("pk_spot_statistic")),
    )
    create_triggers("spot_statistic")


def create_triggers(table: str) -> None:
    """Make a change of the table raise the version of the catalog, as migration 0001 does."""
    if op.get_bind().dialect.name == "sqlite":
        for change in ("INSERT", "UPDATE", "DELETE"):
            name = f"raise_version_{table}_{change.lower()}"
            op.execute(f"CREATE TRIGGER {name} AFTER {change} ON {table} BEGIN {RAISE}; END")
        return
    op.execute(
        f"CREATE TRIGGER raise_version_{table} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
    )
