"""Reads the whole database into a `CatalogHistory`, with one SELECT per table."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import date
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, Select, bindparam, func, select

from service.db.errors import in_sentences
from service.db.read_prices import PriceVocabulary, read_offers, read_prices
from service.db.tables import CATALOG_VERSION, IMPORT_RUN, MEASUREMENT, METADATA
from service.domain.calibration.calibration import calibration_of
from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.price_belief import PriceMovement
from service.domain.catalog.hardware import LIFECYCLE_STATES, Gpu, InstanceType, LifecycleEvent
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.measurement_log import MeasurementLog
from service.domain.catalog.precision import Precision, Rate
from service.domain.catalog.reference import (
    Fee,
    ImportSummary,
    Measurement,
    Prior,
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
from service.domain.models.described import DIMENSIONS
from service.domain.models.model import Model, Transformer
from service.domain.money import MICRO, ExchangeRate

V = TypeVar("V")
ReadRow = dict[str, Any]
Events = Mapping[tuple[Any, ...], list[LifecycleEvent]]

BEFORE_ALL = -1


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a database. Every change raises it."""

    number: int
    """Counts all changes: the version of the catalog."""
    facts: int
    """Counts the changes other than new measurements of callers."""


VERSION = select(CATALOG_VERSION.c.version, CATALOG_VERSION.c.version - CATALOG_VERSION.c.measured)
MEASURED = tuple(field.name for field in fields(Measurement))
MEASUREMENTS = select(*(MEASUREMENT.c["usd_per_hour_micros" if name == "usd_per_hour" else name] for name in MEASURED))
"""The columns of a `Measurement`, in the order of its fields."""
NEWER_MEASUREMENTS = MEASUREMENTS.where(MEASUREMENT.c.since > bindparam("known")).order_by(MEASUREMENT.c.since)
"""The measurements that versions after `known` added, in the order of versions."""


def read_version(connection: Connection) -> Version:
    """Returns the version of the database that a transaction sees."""
    return Version(*connection.execute(VERSION).one())


def newer_history(connection: Connection, version: Version, known: CatalogHistory) -> CatalogHistory:
    """Returns the same as `history_in`, but reads only new measurements if nothing else changed since `known`.

    `version` is what `read_version` returns in this transaction.
    """
    if version.facts == known.facts_version:
        newer = read_measurements(connection, NEWER_MEASUREMENTS, known=known.measurements.version)
        if newer:  # otherwise a process of an older release, which does not set `since`, has added measurements
            known.measurements.add(newer, version.number)
            return replace(known, version=version.number)
    return history_in(connection)


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Begins a transaction in which every SELECT reads the same state of the database, that of the first one.

    Raises `DatabaseUnusable`.
    """
    # SQLite does so by itself; on Postgres, each SELECT of the default level would see its own state.
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with in_sentences(engine), engine.connect().execution_options(**level) as connection, connection.begin():
        yield connection


def read_history(engine: Engine) -> CatalogHistory:
    """Returns everything in the database, as one consistent state. Raises `DatabaseUnusable`."""
    with snapshot(engine) as connection:
        return history_in(connection)


def history_in(connection: Connection) -> CatalogHistory:
    """Returns everything that a transaction sees."""
    version = read_version(connection)
    gpus = read_gpus(connection)
    instance_types, index_of = read_instance_types(connection, gpus)
    vocabulary = PriceVocabulary()
    offers, offer_ids, currency_of = read_offers(connection, index_of, vocabulary)
    prices = read_prices(connection, offer_ids, currency_of, vocabulary)
    reference = _read_reference(connection, gpus)
    measurements = MeasurementLog(read_measurements(connection, NEWER_MEASUREMENTS, known=BEFORE_ALL), version.number)
    return CatalogHistory(version.number, instance_types, offers, prices, reference, version.facts, measurements)


def _rows(connection: Connection, table: str, *order: str) -> Iterator[ReadRow]:
    """The rows of a table, ordered by its primary key unless other columns are named."""
    described = METADATA.tables[table]
    columns = [described.c[name] for name in order] or described.primary_key
    result = connection.execute(select(described).order_by(*columns))
    names = tuple(result.keys())
    for values in result:
        yield dict(zip(names, values, strict=True))


def _without(row: Mapping[str, Any], *names: str) -> ReadRow:
    return {name: value for name, value in row.items() if name not in names}


def _values(connection: Connection, table: str, value: Callable[..., V]) -> tuple[V, ...]:
    """The rows of a table as values of a class whose fields are its columns."""
    return tuple(value(**row) for row in _rows(connection, table))


def _by_id(connection: Connection, table: str, value: Callable[..., V]) -> dict[str, V]:
    return {row["id"]: value(**row) for row in _rows(connection, table)}


def _parts(connection: Connection, table: str, value: Callable[..., V], *key: str) -> dict[tuple[Any, ...], list[V]]:
    """The rows of a table as parts of other values, grouped by the columns `key` that name the whole."""
    parts: dict[tuple[Any, ...], list[V]] = defaultdict(list)
    for row in _rows(connection, table):
        owner = tuple(row.pop(name) for name in key)
        parts[owner].append(value(**row))
    return parts


# Hardware


def read_gpus(connection: Connection) -> dict[str, Gpu]:
    """Returns the GPUs by id."""
    rates = _parts(connection, "gpu_precision", Rate, "gpu")
    aliases = _parts(connection, "gpu_alias", ReadRow, "gpu")
    without_flash_attention = {
        rule["scope_value"]
        for rule in _rows(connection, "framework_support")
        if (rule["software"], rule["scope"]) == ("flash-attention", "architecture") and rule["supported"] != "yes"
    }
    return {
        row["id"]: Gpu(
            **row,
            aliases=tuple(alias["alias"] for alias in aliases[(row["id"],)]),
            has_flash_attention=row["architecture"] not in without_flash_attention,
            rates={rate.precision: rate for rate in rates[(row["id"],)]},
        )
        for row in _rows(connection, "gpu")
    }


def read_instance_types(
    connection: Connection, gpus: Mapping[str, Gpu]
) -> tuple[tuple[InstanceType, ...], dict[int, int]]:
    """Returns the types in the order of provider and name, and the index of each by its id in the database."""
    events = _parts(connection, "lifecycle", LifecycleEvent, "provider", "family", "name")
    instance_types, index_of = [], {}
    for index, row in enumerate(_rows(connection, "instance_type", "provider", "name")):
        index_of[row.pop("id")] = index
        row["gpu"] = gpus[row["gpu"]] if row["gpu"] else None
        instance_types.append(InstanceType(**row, lifecycle=_lifecycle(row, events)))
    return tuple(instance_types), index_of


def _lifecycle(row: ReadRow, events: Events) -> tuple[LifecycleEvent, ...]:
    """The events of an instance type; each overrides the event of its family with the same state."""
    family = (row["provider"], row["family"])
    states = {event.state: event for event in events.get((*family, ""), [])}
    states |= {event.state: event for event in events.get((*family, row["name"]), [])}
    return tuple(sorted(states.values(), key=_by_day_and_state))


def _by_day_and_state(event: LifecycleEvent | ServiceEvent) -> tuple[date, int]:
    """Sort key of events: by day, then in the order of a lifecycle."""
    return event.starts_on, LIFECYCLE_STATES.index(event.state)


# Everything else


def read_gpu_aliases(connection: Connection) -> dict[str, tuple[str, ...]]:
    """Returns the ids of the GPUs that each alias may mean."""
    gpus_of_alias = _parts(connection, "gpu_alias", ReadRow, "alias")
    return {alias: tuple(row["gpu"] for row in rows) for (alias,), rows in gpus_of_alias.items()}


def read_providers(connection: Connection) -> dict[str, Provider]:
    """Returns the providers by id."""
    return _by_id(connection, "provider", Provider)


def _read_reference(connection: Connection, gpus: Mapping[str, Gpu]) -> Reference:
    sources = _by_id(connection, "source", Source)
    coefficients = _values(connection, "coefficient", Coefficient)
    return Reference(
        sources=sources,
        precisions=_by_id(connection, "precision", Precision),
        gpus=gpus,
        gpu_aliases=read_gpu_aliases(connection),
        providers=read_providers(connection),
        regions=_read_regions(connection),
        services=_read_services(connection),
        fees=_values(connection, "fee", Fee),
        software=tuple(
            SoftwareRule(**_without(row, "id", "key")) for row in _rows(connection, "framework_support", "key")
        ),
        published_runs=tuple(
            PublishedRun(**row, known_on=first_known(row["year"], sources[row["source"]]))
            for row in _rows(connection, "published_run")
        ),
        models={row["id"]: model_from_row(row) for row in _rows(connection, "model")},
        calibration=calibration_of(coefficients),
        price_movement=PriceMovement.of(coefficients),
        imports=_read_imports(connection),
        exchange_rates=_values(connection, "exchange_rate", ExchangeRate),
        billing_rules=_values(connection, "billing_rule", BillingRule),
        storage_prices=_values(connection, "storage_price", StoragePrice),
        transfer_prices=_values(connection, "transfer_price", TransferPrice),
        interruption_priors=_values(connection, "interruption_prior", InterruptionPrior),
        priors=_values(connection, "prior", Prior),
    )


def _read_regions(connection: Connection) -> tuple[Region, ...]:
    cpus = _parts(connection, "region_cpu", RegionCpu, "provider", "region")
    return tuple(Region(**row, cpus=tuple(cpus[row["provider"], row["id"]])) for row in _rows(connection, "region"))


def _read_services(connection: Connection) -> tuple[Service, ...]:
    events = _parts(connection, "service_lifecycle", ServiceEvent, "provider", "service")
    return tuple(
        Service(**row, lifecycle=tuple(sorted(events[row["provider"], row["id"]], key=_by_day_and_state)))
        for row in _rows(connection, "service")
    )


def read_measurements(connection: Connection, rows: Select[Any], **parameters: object) -> list[Measurement]:
    """Returns the measurements that a SELECT on `MEASUREMENTS` finds."""
    price = MEASURED.index("usd_per_hour")
    shared: dict[Any, Any] = {}  # saves memory, because a million rows repeat a few names and days
    measurements = []
    for row in connection.execute(rows, parameters):
        values = [shared.setdefault(value, value) if isinstance(value, str | date) else value for value in row]
        values[price] = None if values[price] is None else values[price] / MICRO
        measurements.append(Measurement(*values))
    return measurements


def model_from_row(row: Mapping[str, Any]) -> Model:
    """Returns the model of a row of the table `model`. Raises `ImpossibleModel`.

    A null dimension has its default, and a model without layers has no dimensions.
    """
    dimensions = {name: row[name] for name in DIMENSIONS if row[name] is not None}
    return Model(
        **_without(row, "aliases", *DIMENSIONS),
        transformer=Transformer(**dimensions) if row["layers"] is not None else None,
        aliases=tuple(row["aliases"].split(";")) if row["aliases"] else (),
    )


def _read_imports(connection: Connection) -> tuple[ImportSummary, ...]:
    """The last import of each feed that changed the catalog."""
    run = IMPORT_RUN.c
    newest = select(func.max(run.id)).where(run.state == "done").group_by(run.feed)
    columns = (run[field.name] for field in fields(ImportSummary))
    rows = connection.execute(select(*columns).where(run.id.in_(newest)).order_by(run.feed)).mappings()
    return tuple(ImportSummary(**{**row, "finished_at": row["finished_at"].replace(microsecond=0)}) for row in rows)
