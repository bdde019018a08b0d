"""Every table, with the constraints that the database and the check of the seed enforce.

Only `service.db` reads and writes rows. Importers name tables and ask `service.db.schema` what a table promises.

Money is whole micro-units of its currency, because SQLite would keep a NUMERIC as a float. Measurements name machines
by text, so that replacing the catalog never touches them.
"""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)  # fmt: skip
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from service.db.columns import UtcDateTime
from service.domain.catalog.hardware import INTERCONNECTS, LIFECYCLE_STATES
from service.domain.catalog.offer import DATED, MARKETS, PRICE_KINDS
from service.domain.catalog.reference import RUN_KINDS, RUN_UNITS
from service.domain.catalog.tariffs import DESTINATIONS, MACHINES, STORAGE_KINDS
from service.domain.models.model import FAMILIES

TEXT, WHOLE, LARGE, REAL, FLAG, DAY, MOMENT = (
    String(), Integer(), BigInteger(), Double[float](), Boolean(), Date(), UtcDateTime(),
)  # fmt: skip
ROW_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite numbers rows by itself only in a column whose type is INTEGER."""

CONTINENTS = ("africa", "asia", "europe", "north america", "oceania", "south america")

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *columns_and_constraints: SchemaItem) -> Table:
    return Table(name, METADATA, *columns_and_constraints)


def _keys(kind: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, primary_key=True) for name in names]


def _required(kind: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


def _optional(kind: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    return [Column(name, kind) for name in names]


def _reference(name: str, target: str, **options: Any) -> Column[Any]:
    return Column(name, TEXT, ForeignKey(f"{target}.id"), **{"nullable": False, **options})


def _source() -> Column[Any]:
    return _reference("source", "source")


def _source_and_note() -> list[Column[Any]]:
    return [_source(), Column("note", TEXT)]


def _one_of(column: str, *values: str) -> CheckConstraint:
    """A vocabulary that the code itself fixes. Names that are data are references instead."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known", info={"column": column, "one_of": values})


def _positive(*columns: str) -> list[CheckConstraint]:
    """Numbers above 0. An unknown number is null, never 0."""
    return [
        CheckConstraint(f"{column} > 0", name=f"{column}_positive", info={"column": column, "above": 0})
        for column in columns
    ]


# Bookkeeping

SOURCE = _table(
    "source",
    *_keys(TEXT, "id"),
    *_required(TEXT, "title"),
    *_optional(TEXT, "version", "published_on"),
    *_required(DAY, "retrieved_on"),
    *_optional(TEXT, "licence", "note"),
)

IMPORT_RUN = _table(
    "import_run",
    *_keys(ROW_NUMBER, "id"),
    *_required(TEXT, "feed"),
    *_required(MOMENT, "started_at"),
    *_optional(MOMENT, "finished_at"),
    *_required(TEXT, "state"),
    *_optional(TEXT, "content_hash"),
    Column("rows_seen", WHOLE, nullable=False, default=0),
    Column("rows_kept", WHOLE, nullable=False, default=0),
    *_required(JSON(), "quarantined"),
    *_optional(TEXT, "problem"),
    _one_of("state", "done", "unchanged", "refused", "failed"),
)
"""Each attempt to replace a feed's batch: how many rows were read, kept and quarantined."""

CATALOG_VERSION = _table(
    "catalog_version",
    Column("id", WHOLE, primary_key=True, autoincrement=False),
    *_required(WHOLE, "version"),
    *_required(FLAG, "importing"),
    Column("measured", WHOLE, nullable=False, server_default="0"),
    CheckConstraint("id = 1", name="single"),
)
"""One row, whose version triggers raise on every change; while `importing` is true they do nothing.

`measured` counts the changes that only added measurements of callers, after which prices need not be read again.
"""

# Hardware

PRECISION = _table(
    "precision",
    *_keys(TEXT, "id"),
    *_required(TEXT, "name", "kind"),
    *_required(WHOLE, "bits"),
    *_optional(WHOLE, "exponent_bits", "mantissa_bits"),
    *_required(TEXT, "description"),
    _source(),
    _one_of("kind", "float", "int"),
    *_positive("bits"),
)

GPU = _table(
    "gpu",
    *_keys(TEXT, "id"),
    *_required(TEXT, "name", "kind", "vendor", "architecture"),
    *_optional(TEXT, "released_on", "memory_type", "compute_capability", "interconnect", "form_factor"),
    *_optional(TEXT, "positioned_for"),
    *_optional(REAL, "memory_gb", "usable_memory_gib", "memory_bandwidth_gb_per_second", "tdp_watts"),
    *_optional(REAL, "base_clock_mhz", "boost_clock_mhz", "interconnect_gb_per_second"),
    *_optional(WHOLE, "cores", "gpus_per_board", "gpus_per_rack", "tensor_core_generation"),
    *_optional(FLAG, "consumer"),
    *_required(REAL, "fraction"),
    # Checked at commit, since a part may be inserted before its card.
    Column("partition_of", TEXT, ForeignKey("gpu.id", deferrable=True, initially="DEFERRED")),
    *_source_and_note(),
    _one_of("kind", "gpu", "tpu", "npu"),
    *_positive("memory_gb", "usable_memory_gib", "memory_bandwidth_gb_per_second", "tdp_watts"),
    CheckConstraint("fraction > 0 AND fraction <= 1", name="fraction_of_a_card"),
)

GPU_ALIAS = _table("gpu_alias", *_keys(TEXT, "alias"), _reference("gpu", "gpu", primary_key=True))

GPU_PRECISION = _table(
    "gpu_precision",
    _reference("gpu", "gpu", primary_key=True),
    _reference("precision", "precision", primary_key=True),
    *_optional(TEXT, "support"),
    *_optional(REAL, "dense_tflops", "sparse_tflops"),
    *_source_and_note(),
    _one_of("support", "accelerated", "native", "reduced", "none"),
    *_positive("dense_tflops"),
    CheckConstraint("sparse_tflops >= dense_tflops", name="sparse_not_below_dense"),
)

# Providers and what they rent out

PROVIDER = _table(
    "provider",
    *_keys(TEXT, "id"),
    *_required(TEXT, "name"),
    *_optional(TEXT, "instance_type_term", "on_demand_term", "spot_term"),
    *_optional(WHOLE, "spot_notice_seconds"),
    *_required(FLAG, "priced_by_region"),
    *_optional(FLAG, "gpus_exclusive"),
    *_source_and_note(),
)

REGION = _table(
    "region",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "id"),
    *_optional(TEXT, "name", "country", "continent"),
    _source(),
    _one_of("continent", *CONTINENTS),
)

REGION_CPU = _table(
    "region_cpu",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "region"),
    _reference("gpu", "gpu", primary_key=True),
    *_keys(TEXT, "cpu_model"),
    *_optional(TEXT, "cpu_vendor", "cpu_architecture"),
    _source(),
)

INSTANCE_TYPE = _table(
    "instance_type",
    *_keys(ROW_NUMBER, "id"),
    _reference("provider", "provider"),
    *_required(TEXT, "name", "service", "family"),
    _reference("gpu", "gpu", nullable=True, index=True),
    *_required(WHOLE, "gpu_count"),
    *_optional(TEXT, "interconnect", "cpu_architecture", "cpu_vendor", "cpu_model", "twin_of"),
    *_optional(REAL, "interconnect_gb_per_second", "vcpus", "memory_gib", "network_gbps", "network_baseline_gbps"),
    *_optional(REAL, "local_storage_gb"),
    *_optional(FLAG, "rdma", "gpudirect_rdma", "bare_metal"),
    *_source_and_note(),
    UniqueConstraint("provider", "name"),
    _one_of("interconnect", *INTERCONNECTS),
    CheckConstraint("gpu_count >= 0 AND (gpu IS NULL) = (gpu_count = 0)", name="gpu_counted"),
    *_positive("vcpus", "memory_gib", "network_gbps"),
)

LIFECYCLE = _table(
    "lifecycle",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "family", "name", "state"),
    *_required(DAY, "starts_on"),
    *_required(TEXT, "basis"),
    *_source_and_note(),
    _one_of("state", *LIFECYCLE_STATES),
    _one_of("basis", "published", "recalled", "first_seen"),
)
"""A dated state of an instance type, or of a whole family where `name` is empty."""

SERVICE = _table(
    "service",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "id"),
    *_required(TEXT, "name", "kind"),
    *_optional(TEXT, "description"),
    _source(),
)

SERVICE_LIFECYCLE = _table(
    "service_lifecycle",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "service", "state"),
    *_required(DAY, "starts_on"),
    *_source_and_note(),
    _one_of("state", *LIFECYCLE_STATES),
)

# Prices

OFFER = _table(
    "offer",
    *_keys(ROW_NUMBER, "id"),
    Column("key", TEXT, nullable=False, unique=True),
    *_required(TEXT, "feed"),
    Column(
        "instance_type_id", ROW_NUMBER, ForeignKey("instance_type.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    *_optional(TEXT, "region", "zone"),
    *_required(TEXT, "market"),
    *_optional(TEXT, "term"),
    *_required(TEXT, "operating_system", "currency"),
    _one_of("market", *MARKETS),
)
"""An instance type in a region (or in any, where that is null), in a market.

`key` joins the columns that identify the offer, because a unique constraint in SQL treats nulls as different.
"""

PRICE = _table(
    "price",
    *_keys(ROW_NUMBER, "id"),
    Column("offer_id", ROW_NUMBER, ForeignKey("offer.id", ondelete="CASCADE"), nullable=False),
    *_required(MOMENT, "valid_from"),
    *_optional(MOMENT, "valid_to"),
    *_optional(LARGE, "per_hour_micros"),
    *_optional(DAY, "observed_on"),
    *_required(TEXT, "dated", "kind"),
    *_required(MOMENT, "recorded_at"),
    *_source_and_note(),
    *_positive("per_hour_micros"),
    CheckConstraint("valid_to > valid_from", name="interval"),
    _one_of("dated", *DATED),
    _one_of("kind", *PRICE_KINDS),
    Index("ix_price_offer_valid", "offer_id", "valid_from", unique=True),
)
"""The price of an offer over `[valid_from, valid_to)`, in micro-units of its currency; null when it is unknown."""

EXCHANGE_RATE = _table(
    "exchange_rate",
    *_keys(TEXT, "currency"),
    *_keys(DAY, "on"),
    *_required(LARGE, "usd_per_unit_nanos"),
    _source(),
    *_positive("usd_per_unit_nanos"),
)

BILLING_RULE = _table(
    "billing_rule",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "service", "machine", "market", "operating_system"),
    *_keys(DAY, "valid_from"),
    *_required(WHOLE, "increment_seconds", "minimum_seconds"),
    *_source_and_note(),
    _one_of("machine", "", *MACHINES),
    _one_of("market", "", *MARKETS),
    *_positive("increment_seconds", "minimum_seconds"),
)
"""How a provider rounds machine time, from a day on. An empty key column stands for every value without its own row."""

STORAGE_PRICE = _table(
    "storage_price",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "region", "storage_class"),
    *_keys(DAY, "valid_from"),
    *_required(TEXT, "kind"),
    *_optional(LARGE, "micros_per_gib_month"),
    *_required(FLAG, "included"),
    *_source_and_note(),
    _one_of("kind", *STORAGE_KINDS),
    *_positive("micros_per_gib_month"),
    CheckConstraint("included = (micros_per_gib_month IS NULL)", name="priced_or_included"),
)
"""Microdollars per GiB and month, from a day on; null where storage is `included` in the price of the machine."""

TRANSFER_PRICE = _table(
    "transfer_price",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "from_region", "destination"),
    *_keys(LARGE, "tier_from_gb"),
    *_keys(DAY, "valid_from"),
    *_optional(LARGE, "tier_to_gb"),
    *_required(LARGE, "micros_per_gb"),
    *_source_and_note(),
    _one_of("destination", *DESTINATIONS),
    CheckConstraint("tier_from_gb >= 0 AND tier_to_gb > tier_from_gb", name="tier_is_a_range"),
    CheckConstraint("micros_per_gb >= 0", name="never_paid_to_send"),
)
"""Microdollars per GB sent to a destination, in one tier of a month's traffic, from a day on; 0 is free."""

INTERRUPTION_PRIOR = _table(
    "interruption_prior",
    *_keys(TEXT, "market", "provider", "gpu"),
    *_keys(DAY, "valid_from"),
    *_required(REAL, "per_hour_low", "per_hour_likely", "per_hour_high", "lost_together"),
    *_optional(REAL, "available_share"),
    *_source_and_note(),
    _one_of("market", *MARKETS),
    *_positive("per_hour_low"),
    CheckConstraint("per_hour_low <= per_hour_likely AND per_hour_likely <= per_hour_high", name="in_order"),
    CheckConstraint("lost_together >= 0 AND lost_together <= 1", name="lost_together_is_a_share"),
    CheckConstraint("available_share > 0 AND available_share <= 1", name="available_share_is_a_share"),
)
"""Assumed interruptions per hour, until there are measurements. An empty provider or GPU stands for all others."""

FEE = _table(
    "fee",
    _reference("provider", "provider", primary_key=True),
    *_keys(TEXT, "service", "family"),
    *_keys(DAY, "valid_from"),
    *_required(REAL, "percent_of_compute"),
    *_source_and_note(),
)
"""Premium of a managed service on top of the price of the machine. An empty family stands for all others."""

# Software, models and measured runs

SOFTWARE_SUPPORT = _table(
    "framework_support",
    *_keys(ROW_NUMBER, "id"),
    Column("key", TEXT, nullable=False, unique=True),
    *_required(TEXT, "software", "kind"),
    *_optional(TEXT, "versions"),
    *_required(TEXT, "scope", "scope_value"),
    *_optional(TEXT, "task"),
    *_required(TEXT, "supported"),
    *_optional(DAY, "valid_from", "valid_to"),
    *_source_and_note(),
    _one_of("kind", "toolkit", "framework", "engine", "library", "feature"),
    _one_of("scope", "kind", "vendor", "architecture", "gpu", "family", "instance"),
    _one_of("supported", "yes", "no", "partly"),
)
"""A dated rule: whether software runs on a kind, vendor or architecture of GPU, on a GPU, a family or a type."""

MODEL = _table(
    "model",
    *_keys(TEXT, "id"),
    *_required(TEXT, "name", "family"),
    *_optional(TEXT, "aliases"),
    *_required(LARGE, "parameters", "active_parameters"),
    *_required(TEXT, "sample"),
    *_optional(REAL, "forward_flops_per_sample"),
    *_optional(WHOLE, "layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocabulary"),
    *_optional(WHOLE, "experts", "experts_per_token", "shared_experts", "expert_ffn", "expert_latent", "dense_layers"),
    *_optional(WHOLE, "mla_kv_rank", "mla_rope_size", "mla_query_rank", "mla_value_size"),
    *_optional(WHOLE, "sliding_window", "global_layers", "context_tokens", "encoder_layers", "learned_positions"),
    *_optional(WHOLE, "attention_layers", "ssm_layers", "ssm_heads", "ssm_head_size", "ssm_state", "ssm_groups"),
    *_optional(WHOLE, "ssm_convolution"),
    *_optional(FLAG, "gated", "tied", "decoder"),
    *_optional(TEXT, "released_on"),
    *_source_and_note(),
    _one_of("family", *FAMILIES),
    *_positive("parameters", "active_parameters", "forward_flops_per_sample"),
    CheckConstraint("active_parameters <= parameters", name="active_not_above_all"),
)
"""An ML model. `aliases` are separated by semicolons; the dimensions of a transformer are null for other networks."""

COEFFICIENT = _table(
    "coefficient",
    *_keys(TEXT, "name", "scope"),
    *_required(REAL, "value"),
    _source(),
    *_required(TEXT, "fitted_on"),
    *_required(WHOLE, "n"),
)
"""A fitted number: `name` holds the kind of step and its part, `scope` the features to which it applies."""

PUBLISHED_RUN = _table(
    "published_run",
    *_keys(TEXT, "id"),
    *_required(TEXT, "kind", "task"),
    _reference("model", "model"),
    _reference("gpu", "gpu"),
    *_optional(WHOLE, "gpu_count", "nodes"),
    *_optional(TEXT, "machine"),
    _reference("precision", "precision"),
    *_required(TEXT, "format"),
    *_optional(REAL, "weight_bits"),
    *_optional(TEXT, "framework", "software"),
    *_optional(WHOLE, "sequence_length", "input_length", "output_length", "micro_batch", "global_batch", "concurrency"),
    *_optional(REAL, "tokens", "samples"),
    *_required(REAL, "value"),
    *_required(TEXT, "unit"),
    *_required(WHOLE, "year"),
    *_required(TEXT, "quality"),
    _source(),
    *_required(TEXT, "detail"),
    *_optional(TEXT, "note"),
    _one_of("kind", *RUN_KINDS),
    _one_of("unit", *RUN_UNITS),
    _one_of("quality", "A", "B"),
    *_positive("gpu_count", "nodes", "weight_bits"),
    CheckConstraint("value > 0 OR (unit = 'fits' AND value = 0)", name="value_positive"),
)
"""A published training or inference run; `value` is in `unit`, and 0 only for a run that does not fit."""

MEASUREMENT = _table(
    "measurement",
    *_keys(TEXT, "id"),
    *_required(TEXT, "workload"),
    *_optional(TEXT, "framework"),
    *_required(TEXT, "machine"),
    *_optional(WHOLE, "gpu_count"),
    *_optional(TEXT, "precision"),
    *_optional(WHOLE, "batch_size"),
    *_optional(REAL, "seconds_per_batch"),
    *_required(REAL, "samples_per_second"),
    *_optional(LARGE, "usd_per_hour_micros"),
    *_required(DAY, "measured_on"),
    *_required(TEXT, "source"),
    *_optional(TEXT, "note"),
    Column("nodes", WHOLE, nullable=False, server_default="1"),
    *_optional(TEXT, "software"),
    *_optional(MOMENT, "sent_at"),
    *_positive("samples_per_second", "usd_per_hour_micros"),
)
"""A caller's measurement, or one of the seed where `sent_at` is null. No import replaces a caller's measurement."""

CATALOG_TABLES = tuple(name for name in METADATA.tables if name not in ("import_run", "catalog_version"))
"""The tables whose changes raise the catalog's version, by whatever tool they are made."""
