"""Keep what feeds showed: documents and observations, of which offers and prices are made from now on."""

import sqlalchemy as sa
from alembic import op

from service.db.columns import UtcDateTime

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(), nullable=nullable)


def moment(name: str, *, nullable: bool = False) -> sa.Column[object]:
    return sa.Column(name, UtcDateTime(), nullable=nullable)


def upgrade() -> None:
    create_feed()
    create_document()
    create_observation()
    create_names()
    op.add_column("import_run", text("part", nullable=True))
    op.add_column("import_run", sa.Column("rows_unmapped", sa.Integer(), nullable=True))
    op.add_column("import_run", sa.Column("filtered", sa.JSON(), nullable=True))
    keep_prices_as_observations()
    op.drop_column("offer", "feed")


def downgrade() -> None:
    op.add_column("offer", sa.Column("feed", sa.String(), nullable=False, server_default="seed"))
    for column in ("filtered", "rows_unmapped", "part"):
        op.drop_column("import_run", column)
    for table in ("instance_type_alias", "specification", "observation", "document", "feed"):
        op.drop_table(table)


def create_feed() -> None:
    op.create_table(
        "feed",
        text("id"),
        text("title"),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("every_hours", sa.Double(), nullable=True),
        sa.Column("stale_after_days", sa.Integer(), nullable=True),
        sa.Column("stock_only", sa.Boolean(), nullable=False),
        text("url", nullable=True),
        text("setting", nullable=True),
        text("source"),
        text("note", nullable=True),
        sa.CheckConstraint("every_hours > 0", name=op.f("ck_feed_every_hours_positive")),
        sa.CheckConstraint("stale_after_days > 0", name=op.f("ck_feed_stale_after_days_positive")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_feed_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed")),
    )


def create_document() -> None:
    op.create_table(
        "document",
        sa.Column("id", ROW_NUMBER, nullable=False),
        *(text(name) for name in ("feed", "part", "url", "sha256", "parser")),
        *(moment(name) for name in ("fetched_at", "recorded_at")),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("questioned", sa.Boolean(), nullable=False),
        *(text(name, nullable=True) for name in ("etag", "last_modified", "upstream_version")),
        moment("published_at", nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_document")),
    )
    op.create_index("ix_document_feed_part_fetched", "document", ["feed", "part", "fetched_at"], unique=True)


def create_observation() -> None:
    op.create_table(
        "observation",
        sa.Column("id", ROW_NUMBER, nullable=False),
        sa.Column("document_id", ROW_NUMBER, nullable=False),
        *(text(name) for name in ("key", "provider", "name", "market", "operating_system", "currency")),
        *(text(name, nullable=True) for name in ("region", "zone", "term")),
        sa.Column("per_hour_micros", sa.BigInteger(), nullable=True),
        *(moment(name, nullable=True) for name in ("effective_from", "ends_at")),
        *(moment(name) for name in ("observed_at", "recorded_at")),
        moment("superseded_at", nullable=True),
        *(text(name) for name in ("dated", "kind", "source", "state")),
        *(text(name, nullable=True) for name in ("reason", "note")),
        sa.CheckConstraint("state IN ('kept', 'held', 'set_aside', 'absent')", name=op.f("ck_observation_state_known")),
        sa.CheckConstraint(
            "dated IN ('day', 'month', 'not_before', 'unknown')", name=op.f("ck_observation_dated_known")
        ),
        sa.CheckConstraint(
            "kind IN ('api', 'published', 'entered', 'assumed')", name=op.f("ck_observation_kind_known")
        ),
        sa.CheckConstraint("market IN ('on_demand', 'spot', 'reserved')", name=op.f("ck_observation_market_known")),
        sa.ForeignKeyConstraint(["document_id"], ["document.id"], name=op.f("fk_observation_document_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observation")),
    )
    op.create_index(op.f("ix_observation_document_id"), "observation", ["document_id"])
    op.create_index(op.f("ix_observation_key"), "observation", ["key"])
    op.create_index("ix_observation_provider_name", "observation", ["provider", "name"])


def create_names() -> None:
    op.create_table(
        "specification",
        *(text(name) for name in ("feed", "provider", "name")),
        *(
            sa.Column(name, sa.Double(), nullable=True)
            for name in ("vcpus", "memory_gib", "gpu_count", "gpu_memory_gb")
        ),
        *(text(name, nullable=True) for name in ("gpu_name", "cpu_architecture")),
        moment("observed_at"),
        sa.PrimaryKeyConstraint("feed", "provider", "name", name=op.f("pk_specification")),
    )
    op.create_table(
        "instance_type_alias",
        *(text(name) for name in ("provider", "alias", "name", "source")),
        sa.PrimaryKeyConstraint("provider", "alias", name=op.f("pk_instance_type_alias")),
    )


def keep_prices_as_observations() -> None:
    """Makes an observation of each price that a database holds already, all in one document of the seed."""
    op.execute(
        "INSERT INTO document (feed, part, url, sha256, parser, fetched_at, recorded_at, bytes, complete, questioned) "
        "SELECT 'seed', '', 'seed', coalesce(max(content_hash), ''), 'seed', max(finished_at), max(finished_at), 0, "
        "false, false FROM import_run WHERE feed = 'seed' AND state = 'done' HAVING count(*) > 0"
    )
    op.execute(
        "INSERT INTO observation (document_id, key, provider, name, region, zone, market, term, operating_system, "
        "currency, per_hour_micros, effective_from, observed_at, recorded_at, dated, kind, source, state, note) "
        "SELECT document.id, offer.key, instance_type.provider, instance_type.name, offer.region, offer.zone, "
        "offer.market, offer.term, offer.operating_system, offer.currency, price.per_hour_micros, price.valid_from, "
        "price.valid_from, price.recorded_at, price.dated, price.kind, price.source, 'kept', price.note "
        "FROM price JOIN offer ON price.offer_id = offer.id "
        "JOIN instance_type ON offer.instance_type_id = instance_type.id JOIN document ON document.feed = 'seed'"
    )
