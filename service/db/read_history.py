"""Reads the whole database into a `CatalogHistory`, with one SELECT per table."""

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import date
from typing import Any

from sqlalchemy import Connection, Engine, select

from service.db.read_prices import PriceVocabulary, read_offers, read_prices
from service.db.tables import CATALOG_VERSION, METADATA
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

ReadRow = dict[str, Any]

DIMENSIONS = tuple(field.name for field in fields(Transformer))


def read_version(connection: Connection) -> int:
    """Returns the version of the catalog, which every change raises."""
    return int(connection.execute(select(CATALOG_VERSION.c.version)).scalar_one())


def _read_facts_version(connection: Connection) -> int:
    """Counts the changes that did more than add measurements of callers."""
    return int(connection.execute(select(CATALOG_VERSION.c.version - CATALOG_VERSION.c.measured)).scalar_one())


def read_newer(engine: Engine, known: CatalogHistory) -> CatalogHistory:
    """Returns the same as `read_history`, but reads only measurements if nothing else changed since `known`."""
    with _snapshot(engine) as connection:
        version = read_version(connection)
        if _read_facts_version(connection) == known.facts_version:
            reference = replace(known.reference, measurements=_read_measurements(connection))
            return replace(known, version=version, reference=reference)
    return read_history(engine)


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that reads one state of the database throughout, fixed by its first SELECT."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        yield connection


def read_history(engine: Engine) -> CatalogHistory:
    """Returns everything in the database, as one consistent state."""
    with _collector_paused(), _snapshot(engine) as connection:
        version = read_version(connection)
        gpus = _read_gpus(connection)
        instance_types, index_of = _read_instance_types(connection, gpus)
        vocabulary = PriceVocabulary()
        offers, offer_ids, currency_of = read_offers(connection, index_of, vocabulary)
        prices = read_prices(connection, offer_ids, currency_of, vocabulary)
        reference = _read_reference(connection, gpus)
        return CatalogHistory(version, instance_types, offers, prices, reference, _read_facts_version(connection))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Turns off the garbage collector, which hundreds of thousands of new rows would start again and again.

    That takes a third of the reading time and frees nothing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _rows(connection: Connection, table: str, *order: str) -> Iterator[ReadRow]:
    """The rows of a table, ordered by its primary key unless other columns are named."""
    described = METADATA.tables[table]
    columns = [described.c[name] for name in order] or described.primary_key
    result = connection.execute(select(described).order_by(*columns))
    names = tuple(result.keys())
    for values in result:
        yield dict(zip(names, values, strict=True))


def _without(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _grouped(rows: Iterable[ReadRow], *key: str) -> dict[tuple[Any, ...], list[ReadRow]]:
    groups: dict[tuple[Any, ...], list[ReadRow]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in key)].append(row)
    return groups


# Hardware


def _read_gpus(connection: Connection) -> dict[str, Gpu]:
    rates = _grouped(_rows(connection, "gpu_precision"), "gpu")
    aliases = _grouped(_rows(connection, "gpu_alias"), "gpu")
    return {
        row["id"]: Gpu(
            **row,
            aliases=tuple(alias["alias"] for alias in aliases[(row["id"],)]),
            rates={rate["precision"]: Rate(**_without(rate, "gpu")) for rate in rates[(row["id"],)]},
        )
        for row in _rows(connection, "gpu")
    }


def _read_instance_types(
    connection: Connection, gpus: Mapping[str, Gpu]
) -> tuple[tuple[InstanceType, ...], dict[int, int]]:
    """The types in the order of provider and name, and the index among them of each database id."""
    events = _grouped(_rows(connection, "lifecycle"), "provider", "family", "name")
    instance_types, index_of = [], {}
    for index, row in enumerate(_rows(connection, "instance_type", "provider", "name")):
        index_of[row["id"]] = index
        instance_types.append(_instance_type_from_row(row, gpus, events))
    return tuple(instance_types), index_of


def _in_order(event: ReadRow) -> tuple[date, int]:
    """States that start on the same day keep the order of a lifecycle."""
    return event["starts_on"], LIFECYCLE_STATES.index(event["state"])


def _instance_type_from_row(
    row: ReadRow, gpus: Mapping[str, Gpu], events: Mapping[tuple[Any, ...], list[ReadRow]]
) -> InstanceType:
    """An event of the type itself overrides one of its family."""
    family = (row["provider"], row["family"])
    states = {event["state"]: event for event in events.get((*family, ""), [])}
    states |= {event["state"]: event for event in events.get((*family, row["name"]), [])}
    lifecycle = sorted(states.values(), key=_in_order)
    return InstanceType(
        **_without(row, "id", "gpu"),
        gpu=gpus[row["gpu"]] if row["gpu"] else None,
        lifecycle=tuple(LifecycleEvent(**_without(event, "provider", "family", "name")) for event in lifecycle),
    )


# Everything else


def _read_reference(connection: Connection, gpus: Mapping[str, Gpu]) -> Reference:
    alias_of: dict[str, list[str]] = defaultdict(list)
    for row in _rows(connection, "gpu_alias"):
        alias_of[row["alias"]].append(row["gpu"])
    sources = {row["id"]: Source(**row) for row in _rows(connection, "source")}
    return Reference(
        sources=sources,
        precisions={row["id"]: Precision(**row) for row in _rows(connection, "precision")},
        gpus=gpus,
        gpu_aliases={alias: tuple(ids) for alias, ids in alias_of.items()},
        providers={row["id"]: Provider(**row) for row in _rows(connection, "provider")},
        regions=_read_regions(connection),
        services=_read_services(connection),
        fees=tuple(Fee(**row) for row in _rows(connection, "fee")),
        software=tuple(
            SoftwareRule(**_without(row, "id", "key")) for row in _rows(connection, "framework_support", "key")
        ),
        measurements=_read_measurements(connection),
        published_runs=tuple(
            PublishedRun(**row, known_on=first_known(row["year"], sources[row["source"]]))
            for row in _rows(connection, "published_run")
        ),
        models={row["id"]: model_from_row(row) for row in _rows(connection, "model")},
        physics=physics_of([Coefficient(**row) for row in _rows(connection, "coefficient")]),
        imports=_read_imports(connection),
        exchange_rates=tuple(ExchangeRate(**row) for row in _rows(connection, "exchange_rate")),
        billing_rules=tuple(BillingRule(**row) for row in _rows(connection, "billing_rule")),
        storage_prices=tuple(StoragePrice(**row) for row in _rows(connection, "storage_price")),
        transfer_prices=tuple(TransferPrice(**row) for row in _rows(connection, "transfer_price")),
        interruption_priors=tuple(InterruptionPrior(**row) for row in _rows(connection, "interruption_prior")),
    )


def _read_regions(connection: Connection) -> tuple[Region, ...]:
    cpus = _grouped(_rows(connection, "region_cpu"), "provider", "region")
    return tuple(
        Region(
            **row,
            cpus=tuple(RegionCpu(**_without(cpu, "provider", "region")) for cpu in cpus[(row["provider"], row["id"])]),
        )
        for row in _rows(connection, "region")
    )


def _read_services(connection: Connection) -> tuple[Service, ...]:
    events = _grouped(_rows(connection, "service_lifecycle"), "provider", "service")
    return tuple(_service_from_row(row, events[(row["provider"], row["id"])]) for row in _rows(connection, "service"))


def _service_from_row(row: ReadRow, events: list[ReadRow]) -> Service:
    lifecycle = (_without(event, "provider", "service") for event in sorted(events, key=_in_order))
    return Service(**row, lifecycle=tuple(ServiceEvent(**event) for event in lifecycle))


def _read_measurements(connection: Connection) -> tuple[Measurement, ...]:
    return tuple(measurement_from_row(row) for row in _rows(connection, "measurement"))


def measurement_from_row(row: ReadRow) -> Measurement:
    """Returns the measurement of a row of `measurement`."""
    micros = row["usd_per_hour_micros"]
    return Measurement(
        **_without(row, "usd_per_hour_micros", "sent_at"), usd_per_hour=None if micros is None else micros / 1_000_000
    )


def model_from_row(row: Mapping[str, Any]) -> Model:
    """Returns the model of a row of `model`; a null dimension takes its default, and a model without layers has none.

    Raises `ImpossibleModel`.
    """
    dimensions = {name: row[name] for name in DIMENSIONS if row[name] is not None}
    aliases = tuple(row["aliases"].split(";")) if row["aliases"] else ()
    return Model(
        **_without(row, "aliases", *DIMENSIONS),
        transformer=Transformer(**dimensions) if row["layers"] is not None else None,
        aliases=aliases,
    )


def _read_imports(connection: Connection) -> tuple[ImportSummary, ...]:
    """The last import of each feed that changed the catalog."""
    newest: dict[str, ReadRow] = {}
    for row in _rows(connection, "import_run"):
        if row["state"] == "done":
            newest[row["feed"]] = row
    return tuple(
        ImportSummary(
            feed=feed,
            finished_at=_date_text(row["finished_at"]),
            rows_seen=row["rows_seen"],
            rows_kept=row["rows_kept"],
            quarantined=row["quarantined"],
        )
        for feed, row in sorted(newest.items())
    )


def _date_text(moment: Any) -> str:
    return str(moment.isoformat(timespec="seconds")).replace("+00:00", "Z")
