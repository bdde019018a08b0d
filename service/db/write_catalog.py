"""Replaces a feed's batch as a whole, in one transaction that raises the catalog's version, or changes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, insert, select, true, update
from sqlalchemy.exc import SQLAlchemyError

from service.db.errors import in_sentences
from service.db.schema import key_columns
from service.db.tables import CATALOG_VERSION, IMPORT_RUN, INSTANCE_TYPE, MEASUREMENT, METADATA, OFFER, PRICE

Record = dict[str, Any]

ROWS_OF_FEEDS: dict[str, ColumnElement[bool]] = {"measurement": MEASUREMENT.c.sent_at.is_(None)}
"""Restricts which rows of a table a batch replaces: measurements that callers sent belong to no feed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The whole current content of one feed, with rows by the names of their tables.

    An offer names its `instance_type` as `(provider, name)` and holds its `prices`.
    """

    feed: str
    content_hash: str
    tables: Mapping[str, Sequence[Record]]
    offers: Sequence[Record]
    rows_seen: int
    quarantined: Mapping[str, int]

    @property
    def rows_kept(self) -> int:
        """Returns how many rows enter the catalog."""
        return self.rows_seen - sum(self.quarantined.values())


@dataclass(frozen=True, slots=True)
class Written:
    """The state in which an import ended, and the catalog's version after it."""

    state: str
    version: int


def write(engine: Engine, batch: Batch, now: datetime) -> Written:
    """Makes the database hold exactly this batch of the feed. Writing the same batch again changes nothing.

    Raises `DatabaseUnusable`; the database is then unchanged.
    """
    with in_sentences(engine), engine.begin() as connection:
        # Locking this row first makes imports wait for each other, and turns off the triggers that raise the version.
        connection.execute(update(CATALOG_VERSION).values(importing=True))
        version = connection.execute(select(CATALOG_VERSION.c.version)).scalar_one()
        unchanged = _last_hash(connection, batch.feed) == batch.content_hash
        if not unchanged:
            _replace_tables(connection, batch.tables)
            _replace_offers(connection, batch.feed, batch.offers, now)
            version += 1
        state = "unchanged" if unchanged else "done"
        connection.execute(insert(IMPORT_RUN).values(_run_record(batch, now, state)))
        connection.execute(update(CATALOG_VERSION).values(importing=False, version=version))
    return Written(state, version)


def record_failure(engine: Engine, feed: str, now: datetime, state: str, problem: str) -> None:
    """Records an import that changed nothing, if the database can be written at all."""
    record = {"feed": feed, "started_at": now, "finished_at": now, "state": state, "problem": problem}
    try:
        with engine.begin() as connection:
            connection.execute(insert(IMPORT_RUN).values({**record, "quarantined": {}}))
    except SQLAlchemyError:
        pass  # the database may be the reason for the failure


def _last_hash(connection: Connection, feed: str) -> str | None:
    done = select(IMPORT_RUN.c.content_hash).where(IMPORT_RUN.c.feed == feed, IMPORT_RUN.c.state == "done")
    return connection.execute(done.order_by(IMPORT_RUN.c.id.desc()).limit(1)).scalar()


def _run_record(batch: Batch, now: datetime, state: str) -> Record:
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
class _Difference:
    """The changes after which a table holds the records of a batch."""

    table: Table
    key: tuple[str, ...]
    new: list[Record]
    changed: list[Record]
    gone: list[tuple[Any, ...]]


def _replace_tables(connection: Connection, tables: Mapping[str, Sequence[Record]]) -> None:
    parents_first = [table for table in METADATA.sorted_tables if table.name in tables]
    differences = [_difference(connection, table, tables[table.name]) for table in parents_first]
    for difference in differences:
        _write_new(connection, difference)
    for difference in reversed(differences):
        _delete(connection, difference)


def _difference(connection: Connection, table: Table, records: Sequence[Record]) -> _Difference:
    key = key_columns(table.name)
    rows = connection.execute(select(table).where(ROWS_OF_FEEDS.get(table.name, true()))).mappings()
    before = {tuple(row[column] for column in key): row for row in rows}
    after = {tuple(record[column] for column in key): record for record in records}
    changed = [
        record
        for identity, record in after.items()
        if identity in before and any(before[identity][column] != value for column, value in record.items())
    ]
    new = [record for identity, record in after.items() if identity not in before]
    return _Difference(table, key, new, changed, [identity for identity in before if identity not in after])


def _write_new(connection: Connection, difference: _Difference) -> None:
    table = difference.table
    if difference.new:
        connection.execute(insert(table), difference.new)
    for record in difference.changed:
        is_row = _matches(table, difference.key, [record[column] for column in difference.key])
        connection.execute(update(table).where(is_row).values(record))


def _delete(connection: Connection, difference: _Difference) -> None:
    for identity in difference.gone:
        connection.execute(delete(difference.table).where(_matches(difference.table, difference.key, identity)))


def _matches(table: Table, key: Iterable[str], identity: Iterable[Any]) -> ColumnElement[bool]:
    return and_(*(table.c[column] == value for column, value in zip(key, identity, strict=True)))


def _replace_offers(connection: Connection, feed: str, offers: Sequence[Record], now: datetime) -> None:
    """Deletes the feed's offers and inserts the new ones: nothing else refers to an offer."""
    connection.execute(delete(OFFER).where(OFFER.c.feed == feed))
    if not offers:
        return
    type_ids = _instance_type_ids(connection)
    connection.execute(insert(OFFER), [_offer_record(offer, feed, type_ids) for offer in offers])
    id_of = {row.key: row.id for row in connection.execute(select(OFFER.c.key, OFFER.c.id).where(OFFER.c.feed == feed))}
    prices = [
        {**price, "offer_id": id_of[offer["key"]], "recorded_at": now} for offer in offers for price in offer["prices"]
    ]
    connection.execute(insert(PRICE), prices)


def _instance_type_ids(connection: Connection) -> dict[tuple[str, str], int]:
    columns = INSTANCE_TYPE.c
    rows = connection.execute(select(columns.provider, columns.name, columns.id))
    return {(provider, name): id_ for provider, name, id_ in rows}


def _offer_record(offer: Record, feed: str, type_ids: Mapping[tuple[str, str], int]) -> Record:
    columns = {name: value for name, value in offer.items() if name not in ("prices", "instance_type")}
    return {**columns, "feed": feed, "instance_type_id": type_ids[offer["instance_type"]]}
