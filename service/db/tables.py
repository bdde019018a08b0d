"""Every table, with the constraints that the database and the check of the seed enforce.

Only `service.db` reads and writes rows. Importers use `service.db.schema`, which describes the tables. A table whose
rows become values of a class in the domain has a column for each field of that class; a new field needs a migration.

Money is whole micro-units of its currency, because SQLite would keep a NUMERIC as a float. Measurements name machines
by text, so that replacing the catalog never touches them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import date
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, MetaData, Table, UniqueConstraint
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from service.db.columns import UtcDateTime
from service.domain.calibration.coefficients import Coefficient
from service.domain.catalog.hardware import INTERCONNECTS, LIFECYCLE_STATES, Gpu, InstanceType, LifecycleEvent
from service.domain.catalog.offer import DATED, MARKETS, PRICE_KINDS
from service.domain.catalog.precision import Precision, Rate
from service.domain.catalog.reference import (
    RUN_KINDS,
    RUN_UNITS,
    SELLER_CLASSES,
    Fee,
    Measurement,
    Prior,
    Provider,
    PublishedRun,
    Region,
    RegionCpu,
    Service,
    ServiceEvent,
    SoftwareRule,
    Source,
)  # fmt: skip
from service.domain.catalog.resolution import OBSERVATION_STATES, Feed
from service.domain.catalog.tariffs import (
    DESTINATIONS,
    MACHINES,
    STORAGE_KINDS,
    BillingRule,
    InterruptionPrior,
    StoragePrice,
    TransferPrice,
)  # fmt: skip
from service.domain.models.model import FAMILIES, Model, Transformer
from service.domain.money import ExchangeRate

TEXT, WHOLE, LARGE, REAL, FLAG, DAY, MOMENT = (
    sa.String(), sa.Integer(), sa.BigInteger(), sa.Double[float](), sa.Boolean(), sa.Date(), UtcDateTime(),
)  # fmt: skip
TYPE_OF: dict[Any, TypeEngine[Any]] = {str: TEXT, int: WHOLE, float: REAL, bool: FLAG, date: DAY}
ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
"""SQLite numbers rows automatically only in a column of the type INTEGER."""

CONTINENTS = ("africa", "asia", "europe", "north america", "oceania", "south america")

REFERRED = ("provider", "gpu", "precision", "model", "source")
"""A field with one of these names is a reference to the table of the same name, unless its type is given."""

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


def _columns(
    value_class: Any, keys: Sequence[str] = (), without: Sequence[str] = (), **types: TypeEngine[Any]
) -> Iterator[Column[Any]]:
    """Yields a column for each field of a class, except for fields that no column can hold, such as tuples."""
    for field in fields(value_class):
        is_union = get_origin(field.type) in (Union, UnionType)
        alternatives = get_args(field.type) if is_union else (field.type,)
        held = next(alternative for alternative in alternatives if alternative is not NoneType)
        type_ = types.get(field.name) or TYPE_OF.get(str if get_origin(held) is Literal else held)
        if type_ is None or field.name in without:
            continue
        options: dict[str, Any] = {"nullable": NoneType in alternatives, "primary_key": field.name in keys}
        is_reference = field.name in REFERRED and field.name not in types
        yield _reference(field.name, **options) if is_reference else Column(field.name, type_, **options)


def _keys(type_: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    return [Column(name, type_, primary_key=True) for name in names]


def _required(type_: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    return [Column(name, type_, nullable=False) for name in names]


def _optional(type_: TypeEngine[Any], *names: str) -> list[Column[Any]]:
    return [Column(name, type_) for name in names]


def _reference(name: str, **options: Any) -> Column[Any]:
    return Column(name, TEXT, ForeignKey(f"{name}.id"), **{"nullable": False, **options})


def _one_of(column: str, *values: str) -> CheckConstraint:
    """Returns a constraint for a vocabulary that the code fixes. Names that are data are references instead."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"{column}_known", info={"column": column, "one_of": values})


def _positive(*columns: str) -> list[CheckConstraint]:
    """Returns constraints for numbers above 0. An unknown number is null, never 0."""
    return [
        CheckConstraint(f"{column} > 0", name=f"{column}_positive", info={"column": column, "above": 0})
        for column in columns
    ]


# Bookkeeping

SOURCE = _table("source", *_columns(Source, keys=["id"]))

IMPORT_RUN = _table(
    "import_run",
    *_keys(ROW_NUMBER, "id"),
    *_required(TEXT, "feed", "state"),
    *_required(MOMENT, "started_at"),
    *_optional(MOMENT, "finished_at"),
    *_optional(TEXT, "content_hash", "problem"),
    Column("rows_seen", WHOLE, nullable=False, default=0),
    Column("rows_kept", WHOLE, nullable=False, default=0),
    *_required(sa.JSON(), "quarantined"),
    *_optional(TEXT, "part"),
    *_optional(WHOLE, "rows_unmapped"),
    *_optional(sa.JSON(), "filtered"),
    _one_of("state", "done", "unchanged", "refused", "failed"),
)
"""Each attempt to read a feed, or a part of it: how many rows were read, kept and set aside.

`filtered` counts rows about other products, which are not errors; `rows_unmapped` counts kept rows whose instance type
is not in the catalog yet.
"""

FEED = _table("feed", *_columns(Feed, keys=["id"], rank=WHOLE), *_positive("every_hours", "stale_after_days"))

DOCUMENT = _table(
    "document",
    *_keys(ROW_NUMBER, "id"),
    *_required(TEXT, "feed", "part", "url", "sha256", "parser"),
    *_required(MOMENT, "fetched_at", "recorded_at"),
    *_required(LARGE, "bytes"),
    *_required(FLAG, "complete", "questioned"),
    *_optional(TEXT, "etag", "last_modified", "upstream_version"),
    *_optional(MOMENT, "published_at"),
    Index("ix_document_feed_part_fetched", "feed", "part", "fetched_at", unique=True),
)
"""Each capture of a part of a feed. Only a complete capture confirms prices, or shows that an offer is gone."""

OBSERVATION = _table(
    "observation",
    *_keys(ROW_NUMBER, "id"),
    Column("document_id", ROW_NUMBER, ForeignKey("document.id"), nullable=False, index=True),
    *_required(TEXT, "key", "provider", "name", "market", "operating_system", "currency"),
    *_optional(TEXT, "region", "zone", "term"),
    *_optional(LARGE, "per_hour_micros"),
    *_optional(MOMENT, "effective_from", "ends_at"),
    *_required(MOMENT, "observed_at", "recorded_at"),
    *_optional(MOMENT, "superseded_at"),
    *_required(TEXT, "dated", "kind", "source", "state"),
    *_optional(TEXT, "reason", "note", "decision"),
    *_optional(MOMENT, "decided_at"),
    _one_of("state", *OBSERVATION_STATES),
    _one_of("dated", *DATED),
    _one_of("kind", *PRICE_KINDS),
    _one_of("market", *MARKETS),
    Index("ix_observation_provider_name", "provider", "name"),
    # Has all columns that `renew_prices` needs, so that the database does not read the rows.
    Index("ix_observation_key_document_state", "key", "document_id", "state", "superseded_at"),
)
"""Every change that a feed showed. Rows are never overwritten, and offers and their prices are computed from them.

A capture stores a row only where it differs from the capture before. `superseded_at` says when a seed first lacked a
row of an earlier seed. `decision` is the decision of an operator about a held row.
"""

SPECIFICATION = _table(
    "specification",
    *_keys(TEXT, "feed", "provider", "name"),
    *_optional(REAL, "vcpus", "memory_gib", "gpu_count", "gpu_memory_gb"),
    *_optional(TEXT, "gpu_name", "cpu_architecture"),
    *_required(MOMENT, "observed_at"),
)
"""Specifications that a feed states for an instance type that the catalog lacks."""

CROSSWALK = _table("instance_type_alias", *_keys(TEXT, "provider", "alias"), *_required(TEXT, "name", "source"))
"""Names that feeds use for instance types → the names in the catalog."""

CATALOG_VERSION = _table(
    "catalog_version",
    Column("id", WHOLE, primary_key=True, autoincrement=False),
    *_required(WHOLE, "version"),
    *_required(FLAG, "importing"),
    Column("measured", WHOLE, nullable=False, server_default="0"),
    *_optional(TEXT, "oldest_revision"),
    CheckConstraint("id = 1", name="single"),
)
"""One row. Triggers raise its `version` on every change of the catalog, except while `importing` is true.

`measured` counts the changes that only added measurements of callers, after which prices need not be read again.
`oldest_revision` is the oldest migration whose code can work with these tables.
"""

API_KEY = _table(
    "api_key",
    *_keys(TEXT, "id"),
    *_required(TEXT, "owner"),
    *_required(sa.JSON(), "scopes"),
    *_required(TEXT, "token_hash"),
    *_required(MOMENT, "created_at"),
    *_optional(MOMENT, "expires_at", "revoked_at", "last_used_at"),
    Column("measurements", WHOLE, nullable=False, server_default="0"),
)
"""API keys. Only the hash of a token is stored; `measurements` counts the measurements sent with the key."""

# Hardware

PRECISION = _table("precision", *_columns(Precision, keys=["id"]), _one_of("kind", "float", "int"), *_positive("bits"))

GPU = _table(
    "gpu",
    *_columns(Gpu, keys=["id"], without=["partition_of", "has_flash_attention"]),
    # Checked at commit, since a part may be inserted before its card.
    Column("partition_of", TEXT, ForeignKey("gpu.id", deferrable=True, initially="DEFERRED")),
    _one_of("kind", "gpu", "tpu", "npu", "fpga"),
    *_positive("memory_gb", "usable_memory_gib", "memory_bandwidth_gb_per_second", "tdp_watts"),
    CheckConstraint("fraction > 0 AND fraction <= 1", name="fraction_of_a_card"),
)

GPU_ALIAS = _table("gpu_alias", *_keys(TEXT, "alias"), _reference("gpu", primary_key=True))

GPU_PRECISION = _table(
    "gpu_precision",
    _reference("gpu", primary_key=True),
    *_columns(Rate, keys=["precision"]),
    _one_of("support", "accelerated", "native", "reduced", "none"),
    *_positive("dense_tflops"),
    CheckConstraint("sparse_tflops >= dense_tflops", name="sparse_not_below_dense"),
)

# Providers and what they rent out

PROVIDER = _table("provider", *_columns(Provider, keys=["id"]), _one_of("seller_class", *SELLER_CLASSES))

REGION = _table("region", *_columns(Region, keys=["provider", "id"]), _one_of("continent", *CONTINENTS))

REGION_CPU = _table(
    "region_cpu",
    _reference("provider", primary_key=True),
    *_keys(TEXT, "region"),
    *_columns(RegionCpu, keys=["gpu", "cpu_model"]),
)

INSTANCE_TYPE = _table(
    "instance_type",
    *_keys(ROW_NUMBER, "id"),
    *_columns(InstanceType),
    _reference("gpu", nullable=True, index=True),
    UniqueConstraint("provider", "name"),
    _one_of("interconnect", *INTERCONNECTS),
    CheckConstraint("gpu_count >= 0 AND (gpu IS NULL) = (gpu_count = 0)", name="gpu_counted"),
    *_positive("vcpus", "memory_gib", "network_gbps"),
)

LIFECYCLE = _table(
    "lifecycle",
    _reference("provider", primary_key=True),
    *_keys(TEXT, "family", "name"),
    *_columns(LifecycleEvent, keys=["state"]),
    _one_of("state", *LIFECYCLE_STATES),
    _one_of("basis", "published", "recalled", "first_seen"),
)
"""A dated state of an instance type, or of a whole family where `name` is empty."""

SERVICE = _table("service", *_columns(Service, keys=["provider", "id"]))

SERVICE_LIFECYCLE = _table(
    "service_lifecycle",
    _reference("provider", primary_key=True),
    *_keys(TEXT, "service"),
    *_columns(ServiceEvent, keys=["state"]),
    _one_of("state", *LIFECYCLE_STATES),
)

# Prices

OFFER = _table(
    "offer",
    *_keys(ROW_NUMBER, "id"),
    Column("key", TEXT, nullable=False, unique=True),
    Column(
        "instance_type_id", ROW_NUMBER, ForeignKey("instance_type.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    *_required(TEXT, "market", "operating_system", "currency"),
    *_optional(TEXT, "region", "zone", "term"),
    _one_of("market", *MARKETS),
)
"""An instance type in a region (null: not stated) and a market. An offer belongs to no feed.

`key` joins the columns that identify the offer, because a unique constraint in SQL treats nulls as different.
"""

PRICE = _table(
    "price",
    *_keys(ROW_NUMBER, "id"),
    Column("offer_id", ROW_NUMBER, ForeignKey("offer.id", ondelete="CASCADE"), nullable=False),
    *_required(MOMENT, "valid_from", "recorded_at"),
    *_optional(MOMENT, "valid_to"),
    *_optional(LARGE, "per_hour_micros"),
    *_optional(DAY, "observed_on"),
    *_required(TEXT, "dated", "kind"),
    _reference("source"),
    *_optional(TEXT, "note"),
    *_positive("per_hour_micros"),
    CheckConstraint("valid_to > valid_from", name="interval"),
    _one_of("dated", *DATED),
    _one_of("kind", *PRICE_KINDS),
    Index("ix_price_offer_valid", "offer_id", "valid_from", unique=True),
)
"""The price of an offer over `[valid_from, valid_to)`, in micro-units of its currency; null when it is unknown."""

EXCHANGE_RATE = _table(
    "exchange_rate",
    *_columns(ExchangeRate, keys=["currency", "on"], usd_per_unit_nanos=LARGE),
    *_positive("usd_per_unit_nanos"),
)

BILLING_RULE = _table(
    "billing_rule",
    *_columns(BillingRule, keys=["provider", "service", "machine", "market", "operating_system", "valid_from"]),
    _one_of("machine", "", *MACHINES),
    _one_of("market", "", *MARKETS),
    *_positive("increment_seconds", "minimum_seconds"),
)
"""How a provider rounds machine time, from a day on. An empty key column means every value without a row of its own."""

STORAGE_PRICE = _table(
    "storage_price",
    *_columns(StoragePrice, keys=["provider", "region", "storage_class", "valid_from"], micros_per_gib_month=LARGE),
    _one_of("kind", *STORAGE_KINDS),
    *_positive("micros_per_gib_month"),
    CheckConstraint("included = (micros_per_gib_month IS NULL)", name="priced_or_included"),
)
"""Microdollars per GiB and month, from a day on; null where storage is `included` in the price of the machine."""

TRANSFER_PRICE = _table(
    "transfer_price",
    *_columns(
        TransferPrice,
        keys=["provider", "from_region", "destination", "tier_from_gb", "valid_from"],
        tier_from_gb=LARGE,
        tier_to_gb=LARGE,
        micros_per_gb=LARGE,
    ),
    _one_of("destination", *DESTINATIONS),
    CheckConstraint("tier_from_gb >= 0 AND tier_to_gb > tier_from_gb", name="tier_is_a_range"),
    CheckConstraint("micros_per_gb >= 0", name="never_paid_to_send"),
)
"""Microdollars per GB sent to a destination, in one tier of a month's traffic, from a day on; 0 is free."""

INTERRUPTION_PRIOR = _table(
    "interruption_prior",
    # Not references: an empty provider or GPU stands for all others.
    *_columns(InterruptionPrior, keys=["market", "provider", "gpu", "valid_from"], provider=TEXT, gpu=TEXT),
    _one_of("market", *MARKETS),
    *_positive("per_hour_low"),
    CheckConstraint("per_hour_low <= per_hour_likely AND per_hour_likely <= per_hour_high", name="in_order"),
    CheckConstraint("lost_together >= 0 AND lost_together <= 1", name="lost_together_is_a_share"),
    CheckConstraint("available_share > 0 AND available_share <= 1", name="available_share_is_a_share"),
)
"""Assumed interruptions per hour, until there are measurements."""

FEE = _table("fee", *_columns(Fee, keys=["provider", "service", "family", "valid_from"]))
"""Surcharge of a managed service on the price of the machine. An empty family means all families without a row."""

PRIOR = _table(
    "prior",
    *_columns(Prior, keys=["id"]),
    _one_of("gpus", "one", "several"),
    *_positive("min_gpus", "max_gpus", "deadline_hours"),
)
"""A published rule of thumb: an order of families, a number of GPUs, or hours."""

# Software, models and measured runs

SOFTWARE_SUPPORT = _table(
    "framework_support",
    *_keys(ROW_NUMBER, "id"),
    Column("key", TEXT, nullable=False, unique=True),
    *_columns(SoftwareRule),
    _one_of("kind", "toolkit", "framework", "engine", "library", "feature"),
    _one_of("scope", "kind", "vendor", "platform", "architecture", "gpu", "family", "instance"),
    _one_of("supported", "yes", "no", "partly"),
)
"""A dated rule on whether software runs on a kind, vendor or architecture of GPUs, on a GPU, a family or a type."""

MODEL = _table(
    "model",
    *_columns(Model, keys=["id"], parameters=LARGE, active_parameters=LARGE),
    *_optional(TEXT, "aliases"),
    # All dimensions may be null: networks other than transformers have none.
    *(Column(column.name, column.type) for column in _columns(Transformer)),
    _one_of("family", *FAMILIES),
    *_positive("parameters", "active_parameters", "forward_flops_per_sample"),
    CheckConstraint("active_parameters <= parameters", name="active_not_above_all"),
)
"""An ML model. `aliases` are separated by semicolons; the dimensions of a transformer are null for other networks."""

COEFFICIENT = _table("coefficient", *_columns(Coefficient, keys=["name", "scope"]))
"""A fitted coefficient: `name` has the kind of step and its part, `scope` the features to which it applies."""

PUBLISHED_RUN = _table(
    "published_run",
    # `known_on` follows from the source of the run, so it is derived when the run is read.
    *_columns(PublishedRun, keys=["id"], without=["known_on"]),
    _one_of("kind", *RUN_KINDS),
    _one_of("unit", *RUN_UNITS),
    _one_of("quality", "A", "B"),
    *_positive("gpu_count", "nodes", "weight_bits"),
    CheckConstraint("value > 0 OR (unit = 'fits' AND value = 0)", name="value_positive"),
)
"""A published training or inference run. `value` is in `unit`; 0 means that the run did not fit."""

MEASUREMENT = _table(
    "measurement",
    # Not references: measurements of callers outlive the precisions of the catalog, and name their own source.
    *_columns(Measurement, keys=["id"], without=["usd_per_hour", "nodes", "since"], precision=TEXT, source=TEXT),
    Column("nodes", WHOLE, nullable=False, server_default="1"),
    Column("since", WHOLE, nullable=False, server_default="0", index=True),
    *_optional(TEXT, "key"),
    *_optional(LARGE, "usd_per_hour_micros"),
    *_optional(MOMENT, "sent_at"),
    *_positive("samples_per_second", "usd_per_hour_micros"),
)
"""A measurement of a caller or, if `sent_at` is null, of the seed. No import replaces a caller's measurement.

`key` is the id of the API key with which the measurement was sent. `since` is the version of the catalog that added the
row, so that a process reads only rows that are newer than its own version.
"""

BOOKKEEPING = (
    "api_key",
    "import_run",
    "catalog_version",
    "feed",
    "document",
    "observation",
    "specification",
    "instance_type_alias",
)
CATALOG_TABLES = tuple(name for name in METADATA.tables if name not in BOOKKEEPING)
"""The tables whose changes raise the version of the catalog, even if another program makes them."""
