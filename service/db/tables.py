"""Every table. Nothing outside `service.db` sees these rows.

Money is whole micro-units of its currency, because SQLite would keep a NUMERIC as a float. Rows that people contribute
(measurements, outcomes, watches) name machines by text, so that replacing the catalog never touches them.
"""

from datetime import date, datetime
from typing import Any, ClassVar

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, Integer, MetaData, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.db.columns import UtcDateTime
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.reference import RUN_KINDS, RUN_UNITS
from service.domain.catalog.tariffs import DESTINATIONS, MACHINES, STORAGE_KINDS
from service.domain.models.model import FAMILIES

# SQLite numbers rows by itself only in a column called INTEGER.
BigId = BigInteger().with_variant(Integer, "sqlite")

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


def one_of(column: str, *values: str) -> CheckConstraint:
    """A closed vocabulary of the code itself, never one made of data."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known", info={"column": column, "one_of": values})


def positive(column: str) -> CheckConstraint:
    """Unknown is null; a number is more than nothing."""
    return CheckConstraint(f"{column} > 0", name=f"{column}_positive", info={"column": column, "above": 0})


class Row(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {datetime: UtcDateTime, dict[str, Any]: JSON}


# What the catalog rests on


class SourceRow(Row):
    __tablename__ = "source"
    id: Mapped[str] = mapped_column(primary_key=True)
    title: Mapped[str]
    version: Mapped[str | None]
    published_on: Mapped[str | None]
    retrieved_on: Mapped[date]
    licence: Mapped[str | None]
    note: Mapped[str | None]


class ImportRunRow(Row):
    """One attempt to replace a feed's batch: what was seen, kept and quarantined."""

    __tablename__ = "import_run"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    feed: Mapped[str]
    started_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    state: Mapped[str]
    content_hash: Mapped[str | None]
    rows_seen: Mapped[int] = mapped_column(default=0)
    rows_kept: Mapped[int] = mapped_column(default=0)
    quarantined: Mapped[dict[str, Any]]
    problem: Mapped[str | None]
    __table_args__ = (one_of("state", "done", "unchanged", "refused", "failed"),)


class CatalogVersionRow(Row):
    """The one row that triggers raise on every change; `importing` holds them back while an import writes.

    `measured` counts the changes that were nothing but measurements sent, after which no price need be read again.
    """

    __tablename__ = "catalog_version"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    version: Mapped[int]
    importing: Mapped[bool]
    measured: Mapped[int] = mapped_column(server_default="0")
    __table_args__ = (CheckConstraint("id = 1", name="single"),)


# Hardware


class PrecisionRow(Row):
    __tablename__ = "precision"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    kind: Mapped[str]
    bits: Mapped[int]
    exponent_bits: Mapped[int | None]
    mantissa_bits: Mapped[int | None]
    description: Mapped[str]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    __table_args__ = (one_of("kind", "float", "int"), positive("bits"))


class GpuRow(Row):
    __tablename__ = "gpu"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    kind: Mapped[str]
    vendor: Mapped[str]
    architecture: Mapped[str]
    released_on: Mapped[str | None]
    memory_gb: Mapped[float | None]
    usable_memory_gib: Mapped[float | None]
    memory_type: Mapped[str | None]
    memory_bandwidth_gb_per_second: Mapped[float | None]
    tdp_watts: Mapped[float | None]
    cores: Mapped[int | None]
    base_clock_mhz: Mapped[float | None]
    boost_clock_mhz: Mapped[float | None]
    gpus_per_board: Mapped[int | None]
    compute_capability: Mapped[str | None]
    tensor_core_generation: Mapped[int | None]
    interconnect: Mapped[str | None]
    interconnect_gb_per_second: Mapped[float | None]
    form_factor: Mapped[str | None]
    positioned_for: Mapped[str | None]
    fraction: Mapped[float]
    # Asked at commit, since a part may come before its card.
    partition_of: Mapped[str | None] = mapped_column(ForeignKey("gpu.id", deferrable=True, initially="DEFERRED"))
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("kind", "gpu", "tpu", "npu"),
        positive("memory_gb"),
        positive("usable_memory_gib"),
        positive("memory_bandwidth_gb_per_second"),
        positive("tdp_watts"),
        CheckConstraint("fraction > 0 AND fraction <= 1", name="fraction_of_a_card"),
    )


class GpuAliasRow(Row):
    __tablename__ = "gpu_alias"
    alias: Mapped[str] = mapped_column(primary_key=True)
    gpu: Mapped[str] = mapped_column(ForeignKey("gpu.id"), primary_key=True)


class GpuPrecisionRow(Row):
    __tablename__ = "gpu_precision"
    gpu: Mapped[str] = mapped_column(ForeignKey("gpu.id"), primary_key=True)
    precision: Mapped[str] = mapped_column(ForeignKey("precision.id"), primary_key=True)
    support: Mapped[str | None]
    dense_tflops: Mapped[float | None]
    sparse_tflops: Mapped[float | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("support", "accelerated", "native", "reduced", "none"),
        positive("dense_tflops"),
        CheckConstraint("sparse_tflops >= dense_tflops", name="sparse_not_below_dense"),
    )


# Sellers and what they rent out


class ProviderRow(Row):
    __tablename__ = "provider"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    instance_type_term: Mapped[str | None]
    on_demand_term: Mapped[str | None]
    spot_term: Mapped[str | None]
    spot_notice_seconds: Mapped[int | None]
    priced_by_region: Mapped[bool]
    gpus_exclusive: Mapped[bool | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]


class RegionRow(Row):
    __tablename__ = "region"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    country: Mapped[str | None]
    continent: Mapped[str | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    __table_args__ = (one_of("continent", "africa", "asia", "europe", "north america", "oceania", "south america"),)


class RegionCpuRow(Row):
    __tablename__ = "region_cpu"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    region: Mapped[str] = mapped_column(primary_key=True)
    gpu: Mapped[str] = mapped_column(ForeignKey("gpu.id"), primary_key=True)
    cpu_model: Mapped[str] = mapped_column(primary_key=True)
    cpu_vendor: Mapped[str | None]
    cpu_architecture: Mapped[str | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))


class InstanceTypeRow(Row):
    __tablename__ = "instance_type"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"))
    name: Mapped[str]
    service: Mapped[str]
    family: Mapped[str]
    gpu: Mapped[str | None] = mapped_column(ForeignKey("gpu.id"), index=True)
    gpu_count: Mapped[int]
    interconnect: Mapped[str | None]
    interconnect_gb_per_second: Mapped[float | None]
    vcpus: Mapped[float | None]
    cpu_architecture: Mapped[str | None]
    cpu_vendor: Mapped[str | None]
    cpu_model: Mapped[str | None]
    memory_gib: Mapped[float | None]
    network_gbps: Mapped[float | None]
    network_baseline_gbps: Mapped[float | None]
    rdma: Mapped[bool | None]
    gpudirect_rdma: Mapped[bool | None]
    local_storage_gb: Mapped[float | None]
    bare_metal: Mapped[bool | None]
    twin_of: Mapped[str | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        UniqueConstraint("provider", "name"),
        one_of("interconnect", "none", "pcie", "nvlink", "nvswitch", "infinity_fabric", "ici", "neuronlink", "roce"),
        CheckConstraint("gpu_count >= 0 AND (gpu IS NULL) = (gpu_count = 0)", name="gpu_counted"),
        positive("vcpus"),
        positive("memory_gib"),
        positive("network_gbps"),
    )


class LifecycleRow(Row):
    """A dated state of an instance type, or of a whole family where `name` is empty."""

    __tablename__ = "lifecycle"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    family: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(primary_key=True)
    starts_on: Mapped[date]
    basis: Mapped[str]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("state", "announced", "preview", "available", "closed_to_new", "retired"),
        one_of("basis", "published", "recalled", "first_seen"),
    )


# Money


class OfferRow(Row):
    """An instance type in a region (or anywhere), in a market. `key` is natural: SQL holds nulls apart."""

    __tablename__ = "offer"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    feed: Mapped[str]
    instance_type_id: Mapped[int] = mapped_column(ForeignKey("instance_type.id", ondelete="CASCADE"), index=True)
    region: Mapped[str | None]
    zone: Mapped[str | None]
    market: Mapped[str]
    term: Mapped[str | None]
    operating_system: Mapped[str]
    currency: Mapped[str]
    __table_args__ = (one_of("market", "on_demand", "spot", "reserved"),)


class PriceRow(Row):
    """What an offer cost over `[valid_from, valid_to)`, in micro-units of its currency; null when it is not known."""

    __tablename__ = "price"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    offer_id: Mapped[int] = mapped_column(ForeignKey("offer.id", ondelete="CASCADE"))
    valid_from: Mapped[datetime]
    valid_to: Mapped[datetime | None]
    per_hour_micros: Mapped[int | None] = mapped_column(BigInteger)
    observed_on: Mapped[date | None]
    dated: Mapped[str]
    kind: Mapped[str]
    recorded_at: Mapped[datetime]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        positive("per_hour_micros"),
        CheckConstraint("valid_to > valid_from", name="interval"),
        one_of("dated", "day", "month", "not_before", "unknown"),
        one_of("kind", "api", "published", "entered", "assumed"),
        Index("ix_price_offer_valid", "offer_id", "valid_from", unique=True),
    )


class ExchangeRateRow(Row):
    __tablename__ = "exchange_rate"
    currency: Mapped[str] = mapped_column(primary_key=True)
    starts_on: Mapped[date] = mapped_column("on", primary_key=True)
    usd_per_unit_nanos: Mapped[int] = mapped_column(BigInteger)
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    __table_args__ = (positive("usd_per_unit_nanos"),)


class BillingRuleRow(Row):
    """How a seller rounds the time of its machines, from a day on; an empty part of the key is every other one."""

    __tablename__ = "billing_rule"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    service: Mapped[str] = mapped_column(primary_key=True)
    machine: Mapped[str] = mapped_column(primary_key=True)
    market: Mapped[str] = mapped_column(primary_key=True)
    operating_system: Mapped[str] = mapped_column(primary_key=True)
    valid_from: Mapped[date] = mapped_column(primary_key=True)
    increment_seconds: Mapped[int]
    minimum_seconds: Mapped[int]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("machine", "", *MACHINES),
        one_of("market", "", *MARKETS),
        positive("increment_seconds"),
        positive("minimum_seconds"),
    )


class StoragePriceRow(Row):
    """Microdollars for a GiB and month, from a day on; null and `included` where it comes with the machine."""

    __tablename__ = "storage_price"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    region: Mapped[str] = mapped_column(primary_key=True)
    storage_class: Mapped[str] = mapped_column(primary_key=True)
    valid_from: Mapped[date] = mapped_column(primary_key=True)
    kind: Mapped[str]
    micros_per_gib_month: Mapped[int | None] = mapped_column(BigInteger)
    included: Mapped[bool]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("kind", *STORAGE_KINDS),
        positive("micros_per_gib_month"),
        CheckConstraint("included = (micros_per_gib_month IS NULL)", name="priced_or_included"),
    )


class TransferPriceRow(Row):
    """Microdollars for a GB of one tier of a month's GB to a destination, from a day on; 0 is free."""

    __tablename__ = "transfer_price"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    from_region: Mapped[str] = mapped_column(primary_key=True)
    destination: Mapped[str] = mapped_column(primary_key=True)
    tier_from_gb: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    valid_from: Mapped[date] = mapped_column(primary_key=True)
    tier_to_gb: Mapped[int | None] = mapped_column(BigInteger)
    micros_per_gb: Mapped[int] = mapped_column(BigInteger)
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("destination", *DESTINATIONS),
        CheckConstraint("tier_from_gb >= 0 AND tier_to_gb > tier_from_gb", name="tier_is_a_range"),
        CheckConstraint("micros_per_gb >= 0", name="never_paid_to_send"),
    )


class InterruptionPriorRow(Row):
    """What is believed of interruptions until they are measured; an empty provider or GPU is every other one."""

    __tablename__ = "interruption_prior"
    market: Mapped[str] = mapped_column(primary_key=True)
    provider: Mapped[str] = mapped_column(primary_key=True)
    gpu: Mapped[str] = mapped_column(primary_key=True)
    valid_from: Mapped[date] = mapped_column(primary_key=True)
    per_hour_low: Mapped[float]
    per_hour_likely: Mapped[float]
    per_hour_high: Mapped[float]
    lost_together: Mapped[float]
    available_share: Mapped[float | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("market", *MARKETS),
        positive("per_hour_low"),
        CheckConstraint("per_hour_low <= per_hour_likely AND per_hour_likely <= per_hour_high", name="in_order"),
        CheckConstraint("lost_together >= 0 AND lost_together <= 1", name="lost_together_is_a_share"),
        CheckConstraint("available_share > 0 AND available_share <= 1", name="available_share_is_a_share"),
    )


class ServiceRow(Row):
    __tablename__ = "service"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    kind: Mapped[str]
    description: Mapped[str | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))


class ServiceLifecycleRow(Row):
    __tablename__ = "service_lifecycle"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    service: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(primary_key=True)
    starts_on: Mapped[date]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (one_of("state", "announced", "preview", "available", "closed_to_new", "retired"),)


class FeeRow(Row):
    """A premium of a managed service on top of the plain machine's price; an empty family is every other family."""

    __tablename__ = "fee"
    provider: Mapped[str] = mapped_column(ForeignKey("provider.id"), primary_key=True)
    service: Mapped[str] = mapped_column(primary_key=True)
    family: Mapped[str] = mapped_column(primary_key=True)
    valid_from: Mapped[date] = mapped_column(primary_key=True)
    percent_of_compute: Mapped[float]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]


# Software and models


class SoftwareSupportRow(Row):
    """A dated rule: what runs, in full, in part or not at all, on a kind, vendor, architecture, GPU, family or type."""

    __tablename__ = "framework_support"
    id: Mapped[int] = mapped_column(BigId, primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    software: Mapped[str]
    kind: Mapped[str]
    versions: Mapped[str | None]
    scope: Mapped[str]
    scope_value: Mapped[str]
    task: Mapped[str | None]
    supported: Mapped[str]
    valid_from: Mapped[date | None]
    valid_to: Mapped[date | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("kind", "toolkit", "framework", "engine", "library", "feature"),
        one_of("scope", "kind", "vendor", "architecture", "gpu", "family", "instance"),
        one_of("supported", "yes", "no", "partly"),
    )


class ModelRow(Row):
    """An ML model; `aliases` are separated by semicolons."""

    __tablename__ = "model"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    family: Mapped[str]
    aliases: Mapped[str | None]
    parameters: Mapped[int] = mapped_column(BigInteger)
    active_parameters: Mapped[int] = mapped_column(BigInteger)
    sample: Mapped[str]
    forward_flops_per_sample: Mapped[float | None]
    # Of a transformer; all null of any other network.
    layers: Mapped[int | None]
    hidden: Mapped[int | None]
    heads: Mapped[int | None]
    kv_heads: Mapped[int | None]
    head_size: Mapped[int | None]
    ffn: Mapped[int | None]
    gated: Mapped[bool | None]
    vocabulary: Mapped[int | None]
    tied: Mapped[bool | None]
    experts: Mapped[int | None]
    experts_per_token: Mapped[int | None]
    shared_experts: Mapped[int | None]
    expert_ffn: Mapped[int | None]
    expert_latent: Mapped[int | None]
    dense_layers: Mapped[int | None]
    mla_kv_rank: Mapped[int | None]
    mla_rope_size: Mapped[int | None]
    mla_query_rank: Mapped[int | None]
    mla_value_size: Mapped[int | None]
    sliding_window: Mapped[int | None]
    global_layers: Mapped[int | None]
    context_tokens: Mapped[int | None]
    decoder: Mapped[bool | None]
    encoder_layers: Mapped[int | None]
    learned_positions: Mapped[int | None]
    attention_layers: Mapped[int | None]
    ssm_layers: Mapped[int | None]
    ssm_heads: Mapped[int | None]
    ssm_head_size: Mapped[int | None]
    ssm_state: Mapped[int | None]
    ssm_groups: Mapped[int | None]
    ssm_convolution: Mapped[int | None]
    released_on: Mapped[str | None]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    note: Mapped[str | None]
    __table_args__ = (
        one_of("family", *FAMILIES),
        positive("parameters"),
        positive("active_parameters"),
        positive("forward_flops_per_sample"),
        CheckConstraint("active_parameters <= parameters", name="active_not_above_all"),
    )


class CoefficientRow(Row):
    """A number of the calibration; `name` is kind of work and part, `scope` the facts that it holds for."""

    __tablename__ = "coefficient"
    name: Mapped[str] = mapped_column(primary_key=True)
    scope: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    fitted_on: Mapped[str]
    n: Mapped[int]


class PublishedRunRow(Row):
    """What somebody published of a training or of answering; `value` is in `unit`, and 0 only of what does not fit."""

    __tablename__ = "published_run"
    id: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str]
    task: Mapped[str]
    model: Mapped[str] = mapped_column(ForeignKey("model.id"))
    gpu: Mapped[str] = mapped_column(ForeignKey("gpu.id"))
    gpu_count: Mapped[int | None]
    nodes: Mapped[int | None]
    machine: Mapped[str | None]
    precision: Mapped[str] = mapped_column(ForeignKey("precision.id"))
    format: Mapped[str]
    weight_bits: Mapped[float | None]
    framework: Mapped[str | None]
    software: Mapped[str | None]
    sequence_length: Mapped[int | None]
    input_length: Mapped[int | None]
    output_length: Mapped[int | None]
    micro_batch: Mapped[int | None]
    global_batch: Mapped[int | None]
    concurrency: Mapped[int | None]
    tokens: Mapped[float | None]
    samples: Mapped[float | None]
    value: Mapped[float]
    unit: Mapped[str]
    year: Mapped[int]
    quality: Mapped[str]
    source: Mapped[str] = mapped_column(ForeignKey("source.id"))
    detail: Mapped[str]
    note: Mapped[str | None]
    __table_args__ = (
        one_of("kind", *RUN_KINDS),
        one_of("unit", *RUN_UNITS),
        one_of("quality", "A", "B"),
        positive("gpu_count"),
        positive("nodes"),
        positive("weight_bits"),
        CheckConstraint("value > 0 OR (unit = 'fits' AND value = 0)", name="value_positive"),
    )


# What people tell


class MeasurementRow(Row):
    """Of the seed where `sent_at` is null; what was sent is nobody's to replace."""

    __tablename__ = "measurement"
    id: Mapped[str] = mapped_column(primary_key=True)
    workload: Mapped[str]
    framework: Mapped[str | None]
    machine: Mapped[str]
    gpu_count: Mapped[int | None]
    precision: Mapped[str | None]
    batch_size: Mapped[int | None]
    seconds_per_batch: Mapped[float | None]
    samples_per_second: Mapped[float]
    usd_per_hour_micros: Mapped[int | None] = mapped_column(BigInteger)
    measured_on: Mapped[date]
    source: Mapped[str]
    note: Mapped[str | None]
    nodes: Mapped[int] = mapped_column(server_default="1")
    software: Mapped[str | None]
    sent_at: Mapped[datetime | None]
    __table_args__ = (positive("samples_per_second"), positive("usd_per_hour_micros"))


# A change to one of these is a change of the catalog, whoever makes it.
CATALOG_TABLES = (
    "source", "precision", "gpu", "gpu_alias", "gpu_precision", "provider", "region", "region_cpu", "instance_type",
    "lifecycle", "offer", "price", "exchange_rate", "service", "service_lifecycle", "fee",
    "framework_support", "model", "published_run", "measurement", "coefficient", "billing_rule", "storage_price",
    "transfer_price", "interruption_prior",
)  # fmt: skip
