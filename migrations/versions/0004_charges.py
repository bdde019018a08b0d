"""Create the tables of billing rules, storage prices, transfer prices and assumed interruption rates."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = ("billing_rule", "storage_price", "transfer_price", "interruption_prior")
CHANGES = ("INSERT", "UPDATE", "DELETE")
RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"
MARKETS = "'on_demand', 'spot', 'reserved'"


def upgrade() -> None:
    create_billing_rule()
    create_storage_price()
    create_transfer_price()
    create_interruption_prior()
    for table in TABLES:
        watch(table)


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)


def create_billing_rule() -> None:
    op.create_table(
        "billing_rule",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("service", sa.String(), nullable=False),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("market", sa.String(), nullable=False),
        sa.Column("operating_system", sa.String(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("increment_seconds", sa.Integer(), nullable=False),
        sa.Column("minimum_seconds", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("increment_seconds > 0", name=op.f("ck_billing_rule_increment_seconds_positive")),
        sa.CheckConstraint("machine IN ('', 'virtual', 'bare_metal')", name=op.f("ck_billing_rule_machine_known")),
        sa.CheckConstraint(f"market IN ('', {MARKETS})", name=op.f("ck_billing_rule_market_known")),
        sa.CheckConstraint("minimum_seconds > 0", name=op.f("ck_billing_rule_minimum_seconds_positive")),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_billing_rule_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_billing_rule_source")),
        sa.PrimaryKeyConstraint(
            "provider", "service", "machine", "market", "operating_system", "valid_from", name=op.f("pk_billing_rule")
        ),
    )


def create_storage_price() -> None:
    op.create_table(
        "storage_price",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("storage_class", sa.String(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("micros_per_gib_month", sa.BigInteger(), nullable=True),
        sa.Column("included", sa.Boolean(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("kind IN ('block', 'file', 'object')", name=op.f("ck_storage_price_kind_known")),
        sa.CheckConstraint("micros_per_gib_month > 0", name=op.f("ck_storage_price_micros_per_gib_month_positive")),
        sa.CheckConstraint(
            "included = (micros_per_gib_month IS NULL)", name=op.f("ck_storage_price_priced_or_included")
        ),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_storage_price_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_storage_price_source")),
        sa.PrimaryKeyConstraint("provider", "region", "storage_class", "valid_from", name=op.f("pk_storage_price")),
    )


def create_transfer_price() -> None:
    op.create_table(
        "transfer_price",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("from_region", sa.String(), nullable=False),
        sa.Column("destination", sa.String(), nullable=False),
        sa.Column("tier_from_gb", sa.BigInteger(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("tier_to_gb", sa.BigInteger(), nullable=True),
        sa.Column("micros_per_gb", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(
            "destination IN ('internet', 'region', 'zone')", name=op.f("ck_transfer_price_destination_known")
        ),
        sa.CheckConstraint("micros_per_gb >= 0", name=op.f("ck_transfer_price_never_paid_to_send")),
        sa.CheckConstraint(
            "tier_from_gb >= 0 AND tier_to_gb > tier_from_gb", name=op.f("ck_transfer_price_tier_is_a_range")
        ),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_transfer_price_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_transfer_price_source")),
        sa.PrimaryKeyConstraint(
            "provider", "from_region", "destination", "tier_from_gb", "valid_from", name=op.f("pk_transfer_price")
        ),
    )


def create_interruption_prior() -> None:
    op.create_table(
        "interruption_prior",
        sa.Column("market", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("gpu", sa.String(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("per_hour_low", sa.Double(), nullable=False),
        sa.Column("per_hour_likely", sa.Double(), nullable=False),
        sa.Column("per_hour_high", sa.Double(), nullable=False),
        sa.Column("lost_together", sa.Double(), nullable=False),
        sa.Column("available_share", sa.Double(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(
            "available_share > 0 AND available_share <= 1",
            name=op.f("ck_interruption_prior_available_share_is_a_share"),
        ),
        sa.CheckConstraint(
            "lost_together >= 0 AND lost_together <= 1", name=op.f("ck_interruption_prior_lost_together_is_a_share")
        ),
        sa.CheckConstraint(f"market IN ({MARKETS})", name=op.f("ck_interruption_prior_market_known")),
        sa.CheckConstraint("per_hour_low > 0", name=op.f("ck_interruption_prior_per_hour_low_positive")),
        sa.CheckConstraint(
            "per_hour_low <= per_hour_likely AND per_hour_likely <= per_hour_high",
            name=op.f("ck_interruption_prior_in_order"),
        ),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_interruption_prior_source")),
        sa.PrimaryKeyConstraint("market", "provider", "gpu", "valid_from", name=op.f("pk_interruption_prior")),
    )


def watch(table: str) -> None:
    """Creates the triggers by which any change of the table raises the catalog's version."""
    if op.get_bind().dialect.name == "sqlite":
        for change in CHANGES:
            op.execute(
                f"CREATE TRIGGER raise_version_{table}_{change.lower()} AFTER {change} ON {table} BEGIN {RAISE}; END"
            )
        return
    op.execute(
        f"CREATE TRIGGER raise_version_{table} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
    )
