"""Rows → CatalogHistory: one SELECT per table."""

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import date
from typing import Any

from sqlalchemy import Connection, Engine, select

from service.db.read_prices import PriceVocabulary, read_offers, read_prices
from service.db.tables import (
    BillingRuleRow,
    CatalogVersionRow,
    CoefficientRow,
    ExchangeRateRow,
    FeeRow,
    GpuAliasRow,
    GpuPrecisionRow,
    GpuRow,
    ImportRunRow,
    InstanceTypeRow,
    InterruptionPriorRow,
    LifecycleRow,
    MeasurementRow,
    ModelRow,
    PrecisionRow,
    ProviderRow,
    PublishedRunRow,
    RegionCpuRow,
    RegionRow,
    Row,
    ServiceLifecycleRow,
    ServiceRow,
    SoftwareSupportRow,
    SourceRow,
    StoragePriceRow,
    TransferPriceRow,
)
from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.error_bands import physics_of
from service.domain.catalog.hardware import LIFECYCLE_STATES, Gpu, InstanceType, LifecycleEvent
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.precision import Precision, Rate
from service.domain.catalog.reference import (
    Fee,
    ImportSummary,
    Measurement,
    Provider,
    PublishedRun,
    Reference,
    Region,
    RegionCpu,
    Service,
    ServiceEvent,
    SoftwareRule,
    Source,
    first_known,
)
from service.domain.catalog.tariffs import BillingRule, InterruptionPrior, StoragePrice, TransferPrice
from service.domain.models.model import Model, Transformer
from service.domain.money import ExchangeRate

Mapped = dict[str, Any]


def read_version(connection: Connection) -> int:
    return connection.execute(select(CatalogVersionRow.version)).scalar_one()


def read_facts_version(connection: Connection) -> int:
    """How often anything but measurements that were sent has changed."""
    return connection.execute(select(CatalogVersionRow.version - CatalogVersionRow.measured)).scalar_one()


def read_newer(engine: Engine, known: CatalogHistory) -> CatalogHistory:
    """What `read_history` would read; where only measurements were sent since, nothing else is read again."""
    with snapshot(engine) as connection:
        version = read_version(connection)
        if read_facts_version(connection) == known.facts_version:
            reference = replace(known.reference, measurements=read_measurements(connection))
            return replace(known, version=version, reference=reference)
    return read_history(engine)


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """One transaction that sees one state throughout, fixed by its first SELECT."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        yield connection


def read_history(engine: Engine) -> CatalogHistory:
    """Everything in the database, as one consistent state."""
    with collector_paused(), snapshot(engine) as connection:
        version = read_version(connection)
        gpus = read_gpus(connection)
        instance_types, place_of = read_instance_types(connection, gpus)
        vocabulary = PriceVocabulary()
        offers, offer_ids, currency_of = read_offers(connection, place_of, vocabulary)
        prices = read_prices(connection, offer_ids, currency_of, vocabulary)
        reference = read_reference(connection, gpus)
        return CatalogHistory(version, instance_types, offers, prices, reference, read_facts_version(connection))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Rows by the hundred thousand set off the garbage collector time and again: a third of the time, for nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def rows(connection: Connection, row: type[Row], *order: Any) -> Iterator[Mapped]:
    found = connection.execute(select(row.__table__).order_by(*(order or row.__table__.primary_key)))
    names = tuple(found.keys())
    for values in found:
        yield dict(zip(names, values, strict=True))


def without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def grouped(found: Iterable[Mapped], *key: str) -> dict[tuple[Any, ...], list[Mapped]]:
    groups: dict[tuple[Any, ...], list[Mapped]] = defaultdict(list)
    for row in found:
        groups[tuple(row[name] for name in key)].append(row)
    return groups


# Hardware


def read_gpus(connection: Connection) -> dict[str, Gpu]:
    rates = grouped(rows(connection, GpuPrecisionRow), "gpu")
    aliases = grouped(rows(connection, GpuAliasRow), "gpu")
    return {
        row["id"]: Gpu(
            **row,
            aliases=tuple(alias["alias"] for alias in aliases[(row["id"],)]),
            rates={rate["precision"]: Rate(**without(rate, "gpu")) for rate in rates[(row["id"],)]},
        )
        for row in rows(connection, GpuRow)
    }


def read_instance_types(
    connection: Connection, gpus: Mapping[str, Gpu]
) -> tuple[tuple[InstanceType, ...], dict[int, int]]:
    """The types in the order of provider and name, and the place of each database id among them."""
    events = grouped(rows(connection, LifecycleRow), "provider", "family", "name")
    kinds, place_of = [], {}
    for place, row in enumerate(rows(connection, InstanceTypeRow, InstanceTypeRow.provider, InstanceTypeRow.name)):
        place_of[row["id"]] = place
        kinds.append(instance_type_from_row(row, gpus, events))
    return tuple(kinds), place_of


def in_order(event: Mapped) -> tuple[date, int]:
    """States that begin on one day follow each other as in every life."""
    return event["starts_on"], LIFECYCLE_STATES.index(event["state"])


def instance_type_from_row(
    row: Mapped, gpus: Mapping[str, Gpu], events: Mapping[tuple[Any, ...], list[Mapped]]
) -> InstanceType:
    """An event of the type itself stands before one of its family."""
    family = (row["provider"], row["family"])
    states = {event["state"]: event for event in events.get((*family, ""), [])}
    states |= {event["state"]: event for event in events.get((*family, row["name"]), [])}
    lifecycle = sorted(states.values(), key=in_order)
    return InstanceType(
        **without(row, "id", "gpu"),
        gpu=gpus[row["gpu"]] if row["gpu"] else None,
        lifecycle=tuple(LifecycleEvent(**without(event, "provider", "family", "name")) for event in lifecycle),
    )


# The rest


def read_reference(connection: Connection, gpus: Mapping[str, Gpu]) -> Reference:
    alias_of: dict[str, list[str]] = defaultdict(list)
    for row in rows(connection, GpuAliasRow):
        alias_of[row["alias"]].append(row["gpu"])
    sources = {row["id"]: Source(**row) for row in rows(connection, SourceRow)}
    return Reference(
        sources=sources,
        precisions={row["id"]: Precision(**row) for row in rows(connection, PrecisionRow)},
        gpus=gpus,
        gpu_aliases={alias: tuple(ids) for alias, ids in alias_of.items()},
        providers={row["id"]: Provider(**row) for row in rows(connection, ProviderRow)},
        regions=read_regions(connection),
        services=read_services(connection),
        fees=tuple(Fee(**row) for row in rows(connection, FeeRow)),
        software=tuple(
            SoftwareRule(**without(row, "id", "key"))
            for row in rows(connection, SoftwareSupportRow, SoftwareSupportRow.key)
        ),
        measurements=read_measurements(connection),
        published_runs=tuple(
            PublishedRun(**row, known_on=first_known(row["year"], sources[row["source"]]))
            for row in rows(connection, PublishedRunRow)
        ),
        models={row["id"]: model_from_row(row) for row in rows(connection, ModelRow)},
        physics=physics_of([Coefficient(**row) for row in rows(connection, CoefficientRow)]),
        imports=read_imports(connection),
        exchange_rates=tuple(ExchangeRate(**row) for row in rows(connection, ExchangeRateRow)),
        billing_rules=tuple(BillingRule(**row) for row in rows(connection, BillingRuleRow)),
        storage_prices=tuple(StoragePrice(**row) for row in rows(connection, StoragePriceRow)),
        transfer_prices=tuple(TransferPrice(**row) for row in rows(connection, TransferPriceRow)),
        interruption_priors=tuple(InterruptionPrior(**row) for row in rows(connection, InterruptionPriorRow)),
    )


def read_regions(connection: Connection) -> tuple[Region, ...]:
    cpus = grouped(rows(connection, RegionCpuRow), "provider", "region")
    return tuple(
        Region(
            **row,
            cpus=tuple(RegionCpu(**without(cpu, "provider", "region")) for cpu in cpus[(row["provider"], row["id"])]),
        )
        for row in rows(connection, RegionRow)
    )


def read_services(connection: Connection) -> tuple[Service, ...]:
    events = grouped(rows(connection, ServiceLifecycleRow), "provider", "service")
    return tuple(service_from_row(row, events[(row["provider"], row["id"])]) for row in rows(connection, ServiceRow))


def service_from_row(row: Mapped, events: list[Mapped]) -> Service:
    lifecycle = (without(event, "provider", "service") for event in sorted(events, key=in_order))
    return Service(**row, lifecycle=tuple(ServiceEvent(**event) for event in lifecycle))


def read_measurements(connection: Connection) -> tuple[Measurement, ...]:
    return tuple(measurement_from_row(row) for row in rows(connection, MeasurementRow))


def measurement_from_row(row: Mapped) -> Measurement:
    micros = row["usd_per_hour_micros"]
    return Measurement(
        **without(row, "usd_per_hour_micros", "sent_at"), usd_per_hour=None if micros is None else micros / 1_000_000
    )


DIMENSIONS = tuple(field.name for field in fields(Transformer))


def model_from_row(row: Mapping[str, Any]) -> Model:
    """A dimension that is null is the usual one; a network without layers is no transformer."""
    told = {name: row[name] for name in DIMENSIONS if row[name] is not None}
    aliases = tuple(row["aliases"].split(";")) if row["aliases"] else ()
    return Model(
        **without(row, "aliases", *DIMENSIONS),
        transformer=Transformer(**told) if row["layers"] is not None else None,
        aliases=aliases,
    )


def read_imports(connection: Connection) -> tuple[ImportSummary, ...]:
    """The last import of each feed that took effect."""
    newest: dict[str, Mapped] = {}
    for row in rows(connection, ImportRunRow):
        if row["state"] == "done":
            newest[row["feed"]] = row
    return tuple(
        ImportSummary(
            feed=feed,
            finished_at=date_text(row["finished_at"]),
            rows_seen=row["rows_seen"],
            rows_kept=row["rows_kept"],
            quarantined=row["quarantined"],
        )
        for feed, row in sorted(newest.items())
    )


def date_text(moment: Any) -> str:
    return str(moment.isoformat(timespec="seconds")).replace("+00:00", "Z")
