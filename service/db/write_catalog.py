"""Replace a feed's batch whole, in one transaction that raises the catalog version, or change nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, insert, select, true, update
from sqlalchemy.exc import SQLAlchemyError

from service.db.errors import in_sentences
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
    OfferRow,
    PrecisionRow,
    PriceRow,
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

Record = dict[str, Any]

PARENTS_FIRST: tuple[type[Row], ...] = (
    SourceRow, PrecisionRow, GpuRow, GpuAliasRow, GpuPrecisionRow, ProviderRow, RegionRow, RegionCpuRow,
    InstanceTypeRow, LifecycleRow, ExchangeRateRow, ServiceRow, ServiceLifecycleRow, FeeRow, SoftwareSupportRow,
    MeasurementRow, ModelRow, CoefficientRow, PublishedRunRow, BillingRuleRow, StoragePriceRow, TransferPriceRow,
    InterruptionPriorRow,
)  # fmt: skip
NATURAL_KEY: dict[type[Row], tuple[str, ...]] = {InstanceTypeRow: ("provider", "name"), SoftwareSupportRow: ("key",)}
"""Where the primary key is a number that the database gives."""

OF_A_FEED: dict[type[Row], ColumnElement[bool]] = {MeasurementRow: MeasurementRow.sent_at.is_(None)}
"""Which rows of a table a batch replaces, where it is not all of them: what callers sent is not a feed's to delete."""


@cache
def key_columns(row: type[Row]) -> tuple[str, ...]:
    """The columns that tell one row of a table from another."""
    return NATURAL_KEY.get(row) or tuple(column.key for column in row.__table__.primary_key)


@dataclass(frozen=True, slots=True)
class Batch:
    """All that one feed says now. Offers carry `instance_type` as `(provider, name)`, and their prices."""

    feed: str
    content_hash: str
    tables: Mapping[type[Row], Sequence[Record]]
    offers: Sequence[Record]
    rows_seen: int
    quarantined: Mapping[str, int]

    @property
    def rows_kept(self) -> int:
        return self.rows_seen - sum(self.quarantined.values())


@dataclass(frozen=True, slots=True)
class Written:
    """What an import did: the state it ended in and the catalog's version after it."""

    state: str
    version: int


def write(engine: Engine, batch: Batch, now: datetime) -> Written:
    """Make the database hold exactly this batch of the feed. The same batch again changes nothing.

    Raises `DatabaseUnusable`, and then nothing has changed.
    """
    with in_sentences(engine), engine.begin() as connection:
        # Taking this row first makes imports wait for each other, and holds back the triggers that raise the version.
        connection.execute(update(CatalogVersionRow).values(importing=True))
        version = connection.execute(select(CatalogVersionRow.version)).scalar_one()
        unchanged = last_hash(connection, batch.feed) == batch.content_hash
        if not unchanged:
            replace_tables(connection, batch.tables)
            replace_offers(connection, batch.feed, batch.offers, now)
            version += 1
        connection.execute(insert(ImportRunRow).values(run_record(batch, now, "unchanged" if unchanged else "done")))
        connection.execute(update(CatalogVersionRow).values(importing=False, version=version))
    return Written("unchanged" if unchanged else "done", version)


def record_failure(engine: Engine, feed: str, now: datetime, state: str, problem: str) -> None:
    """Keep the memory of an import that changed nothing; best effort, since the database may be what failed."""
    record = {
        "feed": feed,
        "started_at": now,
        "finished_at": now,
        "state": state,
        "problem": problem,
        "quarantined": {},
    }
    try:
        with engine.begin() as connection:
            connection.execute(insert(ImportRunRow).values(record))
    except SQLAlchemyError:
        pass


def last_hash(connection: Connection, feed: str) -> str | None:
    rows = select(ImportRunRow.content_hash).where(ImportRunRow.feed == feed, ImportRunRow.state == "done")
    return connection.execute(rows.order_by(ImportRunRow.id.desc()).limit(1)).scalar()


def run_record(batch: Batch, now: datetime, state: str) -> Record:
    return {
        "feed": batch.feed,
        "started_at": now,
        "finished_at": now,
        "state": state,
        "content_hash": batch.content_hash,
        "rows_seen": batch.rows_seen,
        "rows_kept": batch.rows_kept,
        "quarantined": dict(batch.quarantined),
    }


@dataclass(frozen=True, slots=True)
class Difference:
    """What must happen to a table so that it holds the wanted records."""

    table: Table
    key: tuple[str, ...]
    new: list[Record]
    changed: list[Record]
    gone: list[tuple[Any, ...]]


def replace_tables(connection: Connection, tables: Mapping[type[Row], Sequence[Record]]) -> None:
    differences = [difference(connection, row, tables[row]) for row in PARENTS_FIRST if row in tables]
    for each in differences:
        apply_new(connection, each)
    for each in reversed(differences):
        delete_keys(connection, each.table, each.key, each.gone)


def difference(connection: Connection, row: type[Row], wanted: Sequence[Record]) -> Difference:
    table = row.__table__
    assert isinstance(table, Table)
    key = key_columns(row)
    held = select(table).where(OF_A_FEED.get(row, true()))
    found = {tuple(kept[column] for column in key): kept for kept in map(dict, connection.execute(held).mappings())}
    asked = {tuple(record[column] for column in key): record for record in wanted}
    changed = [
        record
        for identity, record in asked.items()
        if identity in found and any(found[identity][column] != value for column, value in record.items())
    ]
    new = [record for identity, record in asked.items() if identity not in found]
    return Difference(table, key, new, changed, [identity for identity in found if identity not in asked])


def apply_new(connection: Connection, wanted: Difference) -> None:
    if wanted.new:
        connection.execute(insert(wanted.table), wanted.new)
    for record in wanted.changed:
        here = and_(*(wanted.table.c[column] == record[column] for column in wanted.key))
        connection.execute(update(wanted.table).where(here).values(record))


def delete_keys(connection: Connection, table: Table, key: tuple[str, ...], gone: Iterable[tuple[Any, ...]]) -> None:
    for identity in gone:
        connection.execute(delete(table).where(and_(*(table.c[c] == v for c, v in zip(key, identity, strict=True)))))


def replace_offers(connection: Connection, feed: str, offers: Sequence[Record], now: datetime) -> None:
    """Offers have no life of their own in a feed that is replaced whole: out with the old, in with the new."""
    connection.execute(delete(OfferRow).where(OfferRow.feed == feed))
    if not offers:
        return
    numbers = instance_type_numbers(connection)
    rows = [offer_record(offer, feed, numbers) for offer in offers]
    connection.execute(insert(OfferRow), rows)
    mine = select(OfferRow.key, OfferRow.id).where(OfferRow.feed == feed)
    ids = {row.key: row.id for row in connection.execute(mine)}
    prices = [
        {**price, "offer_id": ids[offer["key"]], "recorded_at": now} for offer in offers for price in offer["prices"]
    ]
    connection.execute(insert(PriceRow), prices)


def instance_type_numbers(connection: Connection) -> dict[tuple[str, str], int]:
    rows = connection.execute(select(InstanceTypeRow.provider, InstanceTypeRow.name, InstanceTypeRow.id))
    return {(provider, name): number for provider, name, number in rows}


def offer_record(offer: Record, feed: str, numbers: Mapping[tuple[str, str], int]) -> Record:
    columns = {name: value for name, value in offer.items() if name not in ("prices", "instance_type")}
    return {**columns, "feed": feed, "instance_type_id": numbers[offer["instance_type"]]}
