"""Create the tables of the catalog, and the triggers that raise its version."""

import sqlalchemy as sa
from alembic import op

from service.db.columns import UtcDateTime

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Any change of these tables raises the catalog's version, by whatever tool it is made. While an import runs, the
# triggers do nothing, and the import raises the version once.
WATCHED = (
    "source",
    "precision",
    "gpu",
    "gpu_alias",
    "gpu_precision",
    "provider",
    "region",
    "region_cpu",
    "instance_type",
    "lifecycle",
    "offer",
    "price",
    "exchange_rate",
    "spot_statistic",
    "service",
    "service_lifecycle",
    "fee",
    "framework_support",
    "model",
    "measurement",
)
CHANGES = ("INSERT", "UPDATE", "DELETE")
RAISE = "UPDATE catalog_version SET version = version + 1 WHERE NOT importing"


def create_triggers() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for table in WATCHED:
            for change in CHANGES:
                name = f"raise_version_{table}_{change.lower()}"
                op.execute(f"CREATE TRIGGER {name} AFTER {change} ON {table} BEGIN {RAISE}; END")
        return
    op.execute(
        "CREATE FUNCTION raise_catalog_version() RETURNS trigger LANGUAGE plpgsql AS $$ "
        f"BEGIN {RAISE}; RETURN NULL; END $$"
    )
    op.execute(
        "CREATE FUNCTION tell_catalog_version() RETURNS trigger LANGUAGE plpgsql AS $$ "
        "BEGIN PERFORM pg_notify('catalog', NEW.version::text); RETURN NULL; END $$"
    )
    op.execute(
        "CREATE TRIGGER tell_version AFTER UPDATE ON catalog_version "
        "FOR EACH ROW EXECUTE FUNCTION tell_catalog_version()"
    )
    for table in WATCHED:
        op.execute(
            f"CREATE TRIGGER raise_version_{table} AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION raise_catalog_version()"
        )


def drop_triggers() -> None:
    if op.get_bind().dialect.name == "sqlite":
        for table in WATCHED:
            for change in CHANGES:
                op.execute(f"DROP TRIGGER raise_version_{table}_{change.lower()}")
        return
    op.execute("DROP FUNCTION raise_catalog_version CASCADE")
    op.execute("DROP FUNCTION tell_catalog_version CASCADE")


def upgrade() -> None:
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
        "catalog_version",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("importing", sa.Boolean(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_catalog_version_single")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_catalog_version")),
    )
    op.create_table(
        "import_run",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("feed", sa.String(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("finished_at", UtcDateTime(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("content_hash", sa.String(), nullable=True),
        sa.Column("rows_seen", sa.Integer(), nullable=False),
        sa.Column("rows_kept", sa.Integer(), nullable=False),
        sa.Column("quarantined", sa.JSON(), nullable=False),
        sa.Column("problem", sa.String(), nullable=True),
        sa.CheckConstraint(
            "state IN ('done', 'unchanged', 'refused', 'failed')", name=op.f("ck_import_run_state_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_import_run")),
    )
    op.create_table(
        "measurement",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("workload", sa.String(), nullable=False),
        sa.Column("framework", sa.String(), nullable=True),
        sa.Column("machine", sa.String(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=True),
        sa.Column("precision", sa.String(), nullable=True),
        sa.Column("batch_size", sa.Integer(), nullable=True),
        sa.Column("seconds_per_batch", sa.Double(), nullable=True),
        sa.Column("samples_per_second", sa.Double(), nullable=False),
        sa.Column("usd_per_hour_micros", sa.BigInteger(), nullable=True),
        sa.Column("measured_on", sa.Date(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("samples_per_second > 0", name=op.f("ck_measurement_samples_per_second_positive")),
        sa.CheckConstraint("usd_per_hour_micros > 0", name=op.f("ck_measurement_usd_per_hour_micros_positive")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_measurement")),
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
        "source",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=True),
        sa.Column("published_on", sa.String(), nullable=True),
        sa.Column("retrieved_on", sa.Date(), nullable=False),
        sa.Column("licence", sa.String(), nullable=True),
        sa.Column("note", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source")),
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
        "exchange_rate",
        sa.Column("currency", sa.String(), nullable=False),
        sa.Column("on", sa.Date(), nullable=False),
        sa.Column("usd_per_unit_nanos", sa.BigInteger(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.CheckConstraint("usd_per_unit_nanos > 0", name=op.f("ck_exchange_rate_usd_per_unit_nanos_positive")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_exchange_rate_source")),
        sa.PrimaryKeyConstraint("currency", "on", name=op.f("pk_exchange_rate")),
    )
    op.create_table(
        "framework_support",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("software", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("versions", sa.String(), nullable=True),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("scope_value", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=True),
        sa.Column("supported", sa.String(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=True),
        sa.Column("valid_to", sa.Date(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(
            "kind IN ('toolkit', 'framework', 'engine', 'library', 'feature')",
            name=op.f("ck_framework_support_kind_known"),
        ),
        sa.CheckConstraint(
            "scope IN ('kind', 'vendor', 'architecture', 'gpu', 'family', 'instance')",
            name=op.f("ck_framework_support_scope_known"),
        ),
        sa.CheckConstraint("supported IN ('yes', 'no', 'partly')", name=op.f("ck_framework_support_supported_known")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_framework_support_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_framework_support")),
        sa.UniqueConstraint("key", name=op.f("uq_framework_support_key")),
    )
    op.create_table(
        "gpu",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("vendor", sa.String(), nullable=False),
        sa.Column("architecture", sa.String(), nullable=False),
        sa.Column("released_on", sa.String(), nullable=True),
        sa.Column("memory_gb", sa.Double(), nullable=True),
        sa.Column("usable_memory_gib", sa.Double(), nullable=True),
        sa.Column("memory_type", sa.String(), nullable=True),
        sa.Column("memory_bandwidth_gb_per_second", sa.Double(), nullable=True),
        sa.Column("tdp_watts", sa.Double(), nullable=True),
        sa.Column("compute_capability", sa.String(), nullable=True),
        sa.Column("tensor_core_generation", sa.Integer(), nullable=True),
        sa.Column("interconnect", sa.String(), nullable=True),
        sa.Column("interconnect_gb_per_second", sa.Double(), nullable=True),
        sa.Column("form_factor", sa.String(), nullable=True),
        sa.Column("positioned_for", sa.String(), nullable=True),
        sa.Column("fraction", sa.Double(), nullable=False),
        sa.Column("partition_of", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("kind IN ('gpu', 'tpu', 'npu')", name=op.f("ck_gpu_kind_known")),
        sa.CheckConstraint("fraction > 0 AND fraction <= 1", name=op.f("ck_gpu_fraction_of_a_card")),
        sa.CheckConstraint(
            "memory_bandwidth_gb_per_second > 0", name=op.f("ck_gpu_memory_bandwidth_gb_per_second_positive")
        ),
        sa.CheckConstraint("memory_gb > 0", name=op.f("ck_gpu_memory_gb_positive")),
        sa.CheckConstraint("tdp_watts > 0", name=op.f("ck_gpu_tdp_watts_positive")),
        sa.CheckConstraint("usable_memory_gib > 0", name=op.f("ck_gpu_usable_memory_gib_positive")),
        sa.ForeignKeyConstraint(
            ["partition_of"], ["gpu.id"], name=op.f("fk_gpu_partition_of"), initially="DEFERRED", deferrable=True
        ),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_gpu_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gpu")),
    )
    op.create_table(
        "model",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("dimensions", sa.JSON(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_model_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
    )
    op.create_table(
        "precision",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("bits", sa.Integer(), nullable=False),
        sa.Column("exponent_bits", sa.Integer(), nullable=True),
        sa.Column("mantissa_bits", sa.Integer(), nullable=True),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.CheckConstraint("kind IN ('float', 'int')", name=op.f("ck_precision_kind_known")),
        sa.CheckConstraint("bits > 0", name=op.f("ck_precision_bits_positive")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_precision_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_precision")),
    )
    op.create_table(
        "provider",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("instance_type_term", sa.String(), nullable=True),
        sa.Column("on_demand_term", sa.String(), nullable=True),
        sa.Column("spot_term", sa.String(), nullable=True),
        sa.Column("spot_notice_seconds", sa.Integer(), nullable=True),
        sa.Column("priced_by_region", sa.Boolean(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_provider_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_provider")),
    )
    op.create_table(
        "fee",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("service", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("valid_from", sa.Date(), nullable=False),
        sa.Column("percent_of_compute", sa.Double(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_fee_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_fee_source")),
        sa.PrimaryKeyConstraint("provider", "service", "family", "valid_from", name=op.f("pk_fee")),
    )
    op.create_table(
        "gpu_alias",
        sa.Column("alias", sa.String(), nullable=False),
        sa.Column("gpu", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["gpu"], ["gpu.id"], name=op.f("fk_gpu_alias_gpu")),
        sa.PrimaryKeyConstraint("alias", "gpu", name=op.f("pk_gpu_alias")),
    )
    op.create_table(
        "gpu_precision",
        sa.Column("gpu", sa.String(), nullable=False),
        sa.Column("precision", sa.String(), nullable=False),
        sa.Column("support", sa.String(), nullable=True),
        sa.Column("dense_tflops", sa.Double(), nullable=True),
        sa.Column("sparse_tflops", sa.Double(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(
            "support IN ('accelerated', 'native', 'reduced', 'none')", name=op.f("ck_gpu_precision_support_known")
        ),
        sa.CheckConstraint("dense_tflops > 0", name=op.f("ck_gpu_precision_dense_tflops_positive")),
        sa.CheckConstraint("sparse_tflops >= dense_tflops", name=op.f("ck_gpu_precision_sparse_not_below_dense")),
        sa.ForeignKeyConstraint(["gpu"], ["gpu.id"], name=op.f("fk_gpu_precision_gpu")),
        sa.ForeignKeyConstraint(["precision"], ["precision.id"], name=op.f("fk_gpu_precision_precision")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_gpu_precision_source")),
        sa.PrimaryKeyConstraint("gpu", "precision", name=op.f("pk_gpu_precision")),
    )
    op.create_table(
        "instance_type",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("service", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("gpu", sa.String(), nullable=True),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("interconnect", sa.String(), nullable=True),
        sa.Column("interconnect_gb_per_second", sa.Double(), nullable=True),
        sa.Column("vcpus", sa.Double(), nullable=True),
        sa.Column("cpu_architecture", sa.String(), nullable=True),
        sa.Column("cpu_vendor", sa.String(), nullable=True),
        sa.Column("cpu_model", sa.String(), nullable=True),
        sa.Column("memory_gib", sa.Double(), nullable=True),
        sa.Column("network_gbps", sa.Double(), nullable=True),
        sa.Column("network_baseline_gbps", sa.Double(), nullable=True),
        sa.Column("rdma", sa.Boolean(), nullable=True),
        sa.Column("gpudirect_rdma", sa.Boolean(), nullable=True),
        sa.Column("local_storage_gb", sa.Double(), nullable=True),
        sa.Column("bare_metal", sa.Boolean(), nullable=True),
        sa.Column("twin_of", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(
            "interconnect IN ('none', 'pcie', 'nvlink', 'nvswitch', 'infinity_fabric', 'ici', 'neuronlink', 'roce')",
            name=op.f("ck_instance_type_interconnect_known"),
        ),
        sa.CheckConstraint(
            "gpu_count >= 0 AND (gpu IS NULL) = (gpu_count = 0)", name=op.f("ck_instance_type_gpu_counted")
        ),
        sa.CheckConstraint("memory_gib > 0", name=op.f("ck_instance_type_memory_gib_positive")),
        sa.CheckConstraint("network_gbps > 0", name=op.f("ck_instance_type_network_gbps_positive")),
        sa.CheckConstraint("vcpus > 0", name=op.f("ck_instance_type_vcpus_positive")),
        sa.ForeignKeyConstraint(["gpu"], ["gpu.id"], name=op.f("fk_instance_type_gpu")),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_instance_type_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_instance_type_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_type")),
        sa.UniqueConstraint("provider", "name", name=op.f("uq_instance_type_provider_name")),
    )
    with op.batch_alter_table("instance_type", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_instance_type_gpu"), ["gpu"], unique=False)

    op.create_table(
        "lifecycle",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("family", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("starts_on", sa.Date(), nullable=False),
        sa.Column("basis", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("basis IN ('published', 'recalled', 'first_seen')", name=op.f("ck_lifecycle_basis_known")),
        sa.CheckConstraint(
            "state IN ('announced', 'preview', 'available', 'closed_to_new', 'retired')",
            name=op.f("ck_lifecycle_state_known"),
        ),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_lifecycle_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_lifecycle_source")),
        sa.PrimaryKeyConstraint("provider", "family", "name", "state", name=op.f("pk_lifecycle")),
    )
    op.create_table(
        "region",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("country", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_region_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_region_source")),
        sa.PrimaryKeyConstraint("provider", "id", name=op.f("pk_region")),
    )
    op.create_table(
        "region_cpu",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("gpu", sa.String(), nullable=False),
        sa.Column("cpu_model", sa.String(), nullable=False),
        sa.Column("cpu_vendor", sa.String(), nullable=True),
        sa.Column("cpu_architecture", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["gpu"], ["gpu.id"], name=op.f("fk_region_cpu_gpu")),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_region_cpu_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_region_cpu_source")),
        sa.PrimaryKeyConstraint("provider", "region", "gpu", "cpu_model", name=op.f("pk_region_cpu")),
    )
    op.create_table(
        "service",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_service_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_service_source")),
        sa.PrimaryKeyConstraint("provider", "id", name=op.f("pk_service")),
    )
    op.create_table(
        "service_lifecycle",
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("service", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("starts_on", sa.Date(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint(
            "state IN ('announced', 'preview', 'available', 'closed_to_new', 'retired')",
            name=op.f("ck_service_lifecycle_state_known"),
        ),
        sa.ForeignKeyConstraint(["provider"], ["provider.id"], name=op.f("fk_service_lifecycle_provider")),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_service_lifecycle_source")),
        sa.PrimaryKeyConstraint("provider", "service", "state", name=op.f("pk_service_lifecycle")),
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
    op.create_table(
        "offer",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("feed", sa.String(), nullable=False),
        sa.Column("instance_type_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("region", sa.String(), nullable=True),
        sa.Column("zone", sa.String(), nullable=True),
        sa.Column("market", sa.String(), nullable=False),
        sa.Column("term", sa.String(), nullable=True),
        sa.Column("operating_system", sa.String(), nullable=False),
        sa.Column("currency", sa.String(), nullable=False),
        sa.CheckConstraint("market IN ('on_demand', 'spot', 'reserved')", name=op.f("ck_offer_market_known")),
        sa.ForeignKeyConstraint(
            ["instance_type_id"], ["instance_type.id"], name=op.f("fk_offer_instance_type_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_offer")),
        sa.UniqueConstraint("key", name=op.f("uq_offer_key")),
    )
    with op.batch_alter_table("offer", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_offer_instance_type_id"), ["instance_type_id"], unique=False)

    op.create_table(
        "price",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("offer_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("valid_from", UtcDateTime(), nullable=False),
        sa.Column("valid_to", UtcDateTime(), nullable=True),
        sa.Column("per_hour_micros", sa.BigInteger(), nullable=True),
        sa.Column("observed_on", sa.Date(), nullable=True),
        sa.Column("dated", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("recorded_at", UtcDateTime(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("note", sa.String(), nullable=True),
        sa.CheckConstraint("dated IN ('day', 'month', 'not_before', 'unknown')", name=op.f("ck_price_dated_known")),
        sa.CheckConstraint("kind IN ('api', 'published', 'entered', 'assumed')", name=op.f("ck_price_kind_known")),
        sa.CheckConstraint("per_hour_micros > 0", name=op.f("ck_price_per_hour_micros_positive")),
        sa.CheckConstraint("valid_to > valid_from", name=op.f("ck_price_interval")),
        sa.ForeignKeyConstraint(["offer_id"], ["offer.id"], name=op.f("fk_price_offer_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["source"], ["source.id"], name=op.f("fk_price_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_price")),
    )
    with op.batch_alter_table("price", schema=None) as batch_op:
        batch_op.create_index("ix_price_offer_valid", ["offer_id", "valid_from"], unique=True)
    op.execute("INSERT INTO catalog_version (id, version, importing) VALUES (1, 0, false)")
    create_triggers()


def downgrade() -> None:
    drop_triggers()
    with op.batch_alter_table("price", schema=None) as batch_op:
        batch_op.drop_index("ix_price_offer_valid")

    op.drop_table("price")
    with op.batch_alter_table("offer", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_offer_instance_type_id"))

    op.drop_table("offer")
    op.drop_table("spot_statistic")
    op.drop_table("service_lifecycle")
    op.drop_table("service")
    op.drop_table("region_cpu")
    op.drop_table("region")
    op.drop_table("lifecycle")
    with op.batch_alter_table("instance_type", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_instance_type_gpu"))

    op.drop_table("instance_type")
    op.drop_table("gpu_precision")
    op.drop_table("gpu_alias")
    op.drop_table("fee")
    op.drop_table("provider")
    op.drop_table("precision")
    op.drop_table("model")
    op.drop_table("gpu")
    op.drop_table("framework_support")
    op.drop_table("exchange_rate")
    op.drop_table("watch")
    op.drop_table("source")
    op.drop_table("outcome")
    op.drop_table("measurement")
    op.drop_table("import_run")
    op.drop_table("catalog_version")
    op.drop_table("api_key")
