"""Replaces a feed's batch as a whole, in one transaction that raises the catalog's version, or changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, delete, insert, select, true, update
from sqlalchemy.exc import SQLAlchemyError

from service.db.errors import in_sentences
from service.db.schema import key_columns
from service.db.tables import CATALOG_VERSION, IMPORT_RUN, INSTANCE_TYPE, MEASUREMENT, METADATA, OFFER, PRICE

Record = dict[str, Any]
Identity = tuple[Any, ...]

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
        described = ("feed", "content_hash", "rows_seen", "rows_kept", "quarantined")
        run = {name: getattr(batch, name) for name in described}
        connection.execute(insert(IMPORT_RUN).values(**run, started_at=now, finished_at=now, state=state))
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


def _replace_tables(connection: Connection, tables: Mapping[str, Sequence[Record]]) -> None:
    """Inserts and updates rows in parent tables first, and then deletes rows in child tables first."""
    parents_first = [table for table in METADATA.sorted_tables if table.name in tables]
    gone = {table: _write_rows(connection, table, tables[table.name]) for table in parents_first}
    for table in reversed(parents_first):
        for identity in gone[table]:
            connection.execute(delete(table).where(_is_row(table, identity)))


def _write_rows(connection: Connection, table: Table, records: Sequence[Record]) -> list[Identity]:
    """Inserts and updates only rows that differ from the records; returns the keys of rows without a record."""
    key = key_columns(table.name)
    rows = connection.execute(select(table).where(ROWS_OF_FEEDS.get(table.name, true()))).mappings()
    before = {tuple(row[column] for column in key): row for row in rows}
    after = {tuple(record[column] for column in key): record for record in records}
    new = [record for identity, record in after.items() if identity not in before]
    if new:
        connection.execute(insert(table), new)
    for identity, record in after.items():
        if identity in before and any(before[identity][column] != value for column, value in record.items()):
            connection.execute(update(table).where(_is_row(table, identity)).values(record))
    return [identity for identity in before if identity not in after]


def _is_row(table: Table, identity: Identity) -> ColumnElement[bool]:
    return and_(*(table.c[column] == value for column, value in zip(key_columns(table.name), identity, strict=True)))


def _replace_offers(connection: Connection, feed: str, offers: Sequence[Record], now: datetime) -> None:
    """Deletes the feed's offers and inserts the new ones: nothing else refers to an offer."""
    connection.execute(delete(OFFER).where(OFFER.c.feed == feed))
    if not offers:
        return
    types = connection.execute(select(INSTANCE_TYPE.c.provider, INSTANCE_TYPE.c.name, INSTANCE_TYPE.c.id))
    type_ids = {(provider, name): id_ for provider, name, id_ in types}
    records = [
        {name: value for name, value in offer.items() if name in OFFER.c}
        | {"feed": feed, "instance_type_id": type_ids[offer["instance_type"]]}
        for offer in offers
    ]
    connection.execute(insert(OFFER), records)
    id_of = {row.key: row.id for row in connection.execute(select(OFFER.c.key, OFFER.c.id).where(OFFER.c.feed == feed))}
    prices = [
        {**price, "offer_id": id_of[offer["key"]], "recorded_at": now} for offer in offers for price in offer["prices"]
    ]
    connection.execute(insert(PRICE), prices)
