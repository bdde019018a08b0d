"""Rows → CatalogHistory: one SELECT per table, prices straight into columns."""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, RowMapping, select

from service.db.tables import (
    CatalogVersionRow,
    ExchangeRateRow,
    FeeRow,
    GpuAliasRow,
    GpuPrecisionRow,
    GpuRow,
    ImportRunRow,
    InstanceTypeRow,
    LifecycleRow,
    MeasurementRow,
    OfferRow,
    PrecisionRow,
    PriceRow,
    ProviderRow,
    RegionCpuRow,
    RegionRow,
    Row,
    ServiceLifecycleRow,
    ServiceRow,
    SoftwareSupportRow,
    SourceRow,
)
from service.domain.hardware import Gpu, InstanceType, LifecycleEvent
from service.domain.history import FOREVER, UNKNOWN, CatalogHistory, OfferColumns, PriceColumns
from service.domain.offer import DATED, MARKETS, PRICE_KINDS
from service.domain.precision import Precision, Rate
from service.domain.reference import (
    Fee,
    ImportSummary,
    Measurement,
    Provider,
    Reference,
    Region,
    RegionCpu,
    Service,
    ServiceEvent,
    SoftwareRule,
    Source,
)

Mapped = RowMapping

READ_AT_ONCE = 10_000
"""Prices come in portions, so that reading many never holds them all as Python objects."""

NOT_FOUND = 0


def read_version(connection: Connection) -> int:
    return connection.execute(select(CatalogVersionRow.version)).scalar_one()


def read_history(engine: Engine) -> CatalogHistory:
    """Everything in the database, as one consistent state: one transaction, its snapshot fixed by the first SELECT."""
    level = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**level) as connection, connection.begin():
        version = read_version(connection)
        gpus = read_gpus(connection)
        instance_types, place_of = read_instance_types(connection, gpus)
        offers, offer_place, currency_of = read_offers(connection, place_of)
        prices = read_prices(connection, offer_place, currency_of, read_rates(connection))
        return CatalogHistory(version, instance_types, offers, prices, read_reference(connection, gpus))


def rows(connection: Connection, row: type[Row], *order: Any) -> Iterator[Mapped]:
    yield from connection.execute(select(row.__table__).order_by(*(order or row.__table__.primary_key))).mappings()


def without(row: Mapped, *names: str) -> dict[str, Any]:
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
    events = grouped(rows(connection, LifecycleRow, LifecycleRow.starts_on), "provider", "family", "name")
    kinds, place_of = [], {}
    for place, row in enumerate(rows(connection, InstanceTypeRow, InstanceTypeRow.provider, InstanceTypeRow.name)):
        place_of[row["id"]] = place
        kinds.append(instance_type_from_row(row, gpus, events))
    return tuple(kinds), place_of


def instance_type_from_row(
    row: Mapped, gpus: Mapping[str, Gpu], events: Mapping[tuple[Any, ...], list[Mapped]]
) -> InstanceType:
    """An event of the type itself stands before one of its family."""
    family = (row["provider"], row["family"])
    states = {event["state"]: event for event in events.get((*family, ""), [])}
    states |= {event["state"]: event for event in events.get((*family, row["name"]), [])}
    lifecycle = sorted(states.values(), key=lambda event: event["starts_on"])
    return InstanceType(
        **without(row, "id", "gpu"),
        gpu=gpus[row["gpu"]] if row["gpu"] else None,
        lifecycle=tuple(LifecycleEvent(**without(event, "provider", "family", "name")) for event in lifecycle),
    )


# Prices


class Vocabulary:
    """Words by the order in which they turned up."""

    def __init__(self) -> None:
        self.code_of: dict[str, int] = {}

    def code(self, word: str | None) -> int:
        return UNKNOWN if word is None else self.code_of.setdefault(word, len(self.code_of))

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.code_of)


def read_offers(connection: Connection, place_of: Mapping[int, int]) -> tuple[OfferColumns, dict[int, int], list[str]]:
    """Offers as columns in the order of their keys; the place of each database id; the currency of each place."""
    table = OfferRow.__table__.c
    query = select(table.id, table.instance_type_id, table.region, table.zone, table.market, table.currency)
    places: set[str] = set()
    found = []
    for row in connection.execute(query.order_by(table.key)):
        found.append(row)
        places.update(word for word in (row.region, row.zone) if word)
    words = tuple(sorted(places))
    code = {word: number for number, word in enumerate(words)}
    columns = OfferColumns(
        instance_type=np.array([place_of[row.instance_type_id] for row in found], np.int32),
        region=np.array([code.get(row.region, UNKNOWN) for row in found], np.int32),
        zone=np.array([code.get(row.zone, UNKNOWN) for row in found], np.int32),
        market=np.array([MARKETS.index(row.market) for row in found], np.int8),
        places=words,
    )
    return columns, {row.id: place for place, row in enumerate(found)}, [row.currency for row in found]


def read_rates(connection: Connection) -> dict[str, tuple[list[int], list[int]]]:
    """Per currency: days and, beside them, nanodollars per unit, in the order of days."""
    rates: dict[str, tuple[list[int], list[int]]] = {}
    for row in rows(connection, ExchangeRateRow):
        days, nanos = rates.setdefault(row["currency"], ([], []))
        days.append(row["on"].toordinal())
        nanos.append(row["usd_per_unit_nanos"])
    return rates


def read_prices(
    connection: Connection,
    offer_place: Mapping[int, int],
    currency_of: list[str],
    rates: Mapping[str, tuple[list[int], list[int]]],
) -> PriceColumns:
    table = PriceRow.__table__.c
    query = select(
        table.offer_id, table.valid_from, table.valid_to, table.per_hour_micros, table.observed_on,
        table.dated, table.kind, table.source, table.note,
    ).order_by(table.offer_id, table.valid_from)  # fmt: skip
    vocabulary = Vocabulary()
    whole = {
        name: array("q")
        for name in ("offer", "from", "to", "usd", "native", "day", "currency", "dated", "kind", "source", "note")
    }
    for row in connection.execute(query.execution_options(yield_per=READ_AT_ONCE)):
        place = offer_place[row.offer_id]
        currency = currency_of[place]
        day = row.valid_from.toordinal()
        whole["offer"].append(place)
        whole["from"].append(int(row.valid_from.timestamp()))
        whole["to"].append(int(row.valid_to.timestamp()) if row.valid_to else FOREVER)
        whole["native"].append(UNKNOWN if row.per_hour_micros is None else row.per_hour_micros)
        whole["usd"].append(in_usd(row.per_hour_micros, currency, day, rates))
        whole["day"].append(row.observed_on.toordinal() if row.observed_on else UNKNOWN)
        whole["currency"].append(vocabulary.code(currency))
        whole["dated"].append(DATED.index(row.dated))
        whole["kind"].append(PRICE_KINDS.index(row.kind))
        whole["source"].append(vocabulary.code(row.source))
        whole["note"].append(vocabulary.code(row.note))

    def column(name: str, kind: Any) -> NDArray[Any]:
        values = np.array(whole.pop(name), kind)
        values.setflags(write=False)
        return values

    return PriceColumns(
        offer=column("offer", np.int32),
        valid_from=column("from", np.int64),
        valid_to=column("to", np.int64),
        usd_micros=column("usd", np.int64),
        native_micros=column("native", np.int64),
        observed_day=column("day", np.int32),
        currency=column("currency", np.int16),
        dated=column("dated", np.int8),
        kind=column("kind", np.int8),
        source=column("source", np.int32),
        note=column("note", np.int32),
        words=vocabulary.words,
    )


def in_usd(micros: int | None, currency: str, day: int, rates: Mapping[str, tuple[list[int], list[int]]]) -> int:
    """Microdollars by the rate of that day, or the last one before it; unknown where no rate is that old."""
    if micros is None or currency == "USD":
        return UNKNOWN if micros is None else micros
    days, nanos = rates.get(currency, ([], []))
    known = int(np.searchsorted(days, day, side="right"))
    if known == NOT_FOUND:
        return UNKNOWN
    return (micros * nanos[known - 1] + 500_000_000) // 1_000_000_000


# The rest


def read_reference(connection: Connection, gpus: Mapping[str, Gpu]) -> Reference:
    alias_of: dict[str, list[str]] = defaultdict(list)
    for row in rows(connection, GpuAliasRow):
        alias_of[row["alias"]].append(row["gpu"])
    return Reference(
        sources={row["id"]: Source(**row) for row in rows(connection, SourceRow)},
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
        measurements=tuple(measurement_from_row(row) for row in rows(connection, MeasurementRow)),
        imports=read_imports(connection),
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
    events = grouped(rows(connection, ServiceLifecycleRow, ServiceLifecycleRow.starts_on), "provider", "service")
    return tuple(
        Service(
            **row,
            lifecycle=tuple(
                ServiceEvent(**without(event, "provider", "service")) for event in events[(row["provider"], row["id"])]
            ),
        )
        for row in rows(connection, ServiceRow)
    )


def measurement_from_row(row: Mapped) -> Measurement:
    micros = row["usd_per_hour_micros"]
    return Measurement(
        **without(row, "usd_per_hour_micros"), usd_per_hour=None if micros is None else micros / 1_000_000
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
