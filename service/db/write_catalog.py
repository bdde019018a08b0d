"""Replaces all rows of the seed in one transaction, which raises the version of the catalog, or changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Table,
    and_,
    bindparam,
    delete,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.exc import SQLAlchemyError

from service.db.feeds.documents import free_instant
from service.db.feeds.resolve_prices import resolve_prices
from service.db.import_lock import finish_import, import_transaction
from service.db.schema import key_columns
from service.db.tables import (
    DOCUMENT,
    EXCHANGE_RATE,
    IMPORT_RUN,
    INSTANCE_TYPE,
    LIFECYCLE,
    MEASUREMENT,
    METADATA,
    OBSERVATION,
    REGION,
)

Record = dict[str, Any]
Identity = tuple[Any, ...]

FROM_FEEDS = "feed-"
"""Prefix of the sources of rows that feeds add."""

REPLACED: dict[str, ColumnElement[bool]] = {
    "measurement": MEASUREMENT.c.sent_at.is_(None),
    **{
        table.name: table.c.source.not_like(f"{FROM_FEEDS}%")
        for table in (INSTANCE_TYPE, REGION, LIFECYCLE, EXCHANGE_RATE)
    },
}
"""By table: the rows that an import of the seed may delete. Rows of callers and of feeds stay."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The whole current content of one feed, with rows by the names of their tables.

    Observations lack the columns of their document, and `state`.
    """

    feed: str
    content_hash: str
    tables: Mapping[str, Sequence[Record]]
    observations: Sequence[Record]
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
    """Makes the database hold exactly this batch of the feed. Raises `DatabaseUnusable`, and then changes nothing."""
    with import_transaction(engine) as connection:
        unchanged = _last_hash(connection, batch.feed) == batch.content_hash
        if not unchanged:
            _replace_tables(connection, batch.tables)
            _replace_observations(connection, batch, now)
            resolve_prices(connection, None, now)
        state = "unchanged" if unchanged else "done"
        described = ("feed", "content_hash", "rows_seen", "rows_kept", "quarantined")
        run = {name: getattr(batch, name) for name in described}
        connection.execute(insert(IMPORT_RUN).values(**run, started_at=now, finished_at=now, state=state))
        version = finish_import(connection, changed=not unchanged)
    return Written(state, version)


def record_failure(engine: Engine, feed: str, now: datetime, state: str, problem: str, part: str | None = None) -> None:
    """Records an import that changed nothing, if the database can be written at all."""
    record = {"feed": feed, "part": part, "started_at": now, "finished_at": now, "state": state, "problem": problem}
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
        # One statement per row, because an import deletes few rows.
        for identity in gone[table]:
            connection.execute(delete(table).where(_is_row(table, identity)))


def _write_rows(connection: Connection, table: Table, records: Sequence[Record]) -> list[Identity]:
    """Inserts and updates only rows that differ from the records; returns the keys of rows without a record."""
    key = key_columns(table.name)
    rows = connection.execute(select(table)).mappings()
    before = {tuple(row[column] for column in key): row for row in rows}
    columns = [table.c[column] for column in key]
    replaced = connection.execute(select(*columns).where(REPLACED.get(table.name, true()))).all()
    after = {tuple(record[column] for column in key): record for record in records}
    new = [record for identity, record in after.items() if identity not in before]
    if new:
        connection.execute(insert(table), new)
    for identity, record in after.items():
        if identity in before and any(before[identity][column] != value for column, value in record.items()):
            connection.execute(update(table).where(_is_row(table, identity)).values(record))
    return [tuple(row) for row in replaced if tuple(row) not in after]


def _is_row(table: Table, identity: Identity) -> ColumnElement[bool]:
    return and_(*(table.c[column] == value for column, value in zip(key_columns(table.name), identity, strict=True)))


def _replace_observations(connection: Connection, batch: Batch, now: datetime) -> None:
    """Adds observations that are new in the batch, and ends those that the batch lacks; none is deleted."""
    names = [name for name in batch.observations[0] if name != "observed_at"] if batch.observations else []
    of_feed = select(DOCUMENT.c.id).where(DOCUMENT.c.feed == batch.feed)
    query = select(OBSERVATION).where(OBSERVATION.c.document_id.in_(of_feed), OBSERVATION.c.superseded_at.is_(None))
    before = {tuple(row[name] for name in names): row["id"] for row in connection.execute(query).mappings()}
    after = {tuple(record[name] for name in names): record for record in batch.observations}
    gone = [{"row": id_} for identity, id_ in before.items() if identity not in after]
    if gone:
        ended = update(OBSERVATION).where(OBSERVATION.c.id == bindparam("row")).values(superseded_at=now)
        connection.execute(ended, gone)
    last = connection.execute(select(func.max(DOCUMENT.c.fetched_at)).where(DOCUMENT.c.feed == batch.feed)).scalar()
    document: Record = {
        "feed": batch.feed,
        "part": "",
        "url": batch.feed,
        "sha256": batch.content_hash,
        "parser": batch.feed,
        "fetched_at": free_instant(last, now),
        "recorded_at": now,
        "bytes": 0,
        "complete": False,
        "questioned": False,
    }
    (document_id,) = connection.execute(insert(DOCUMENT).values(document).returning(DOCUMENT.c.id)).one()
    new = [record for identity, record in after.items() if identity not in before]
    if new:
        rows = [{**record, "document_id": document_id, "state": "kept", "recorded_at": now} for record in new]
        connection.execute(insert(OBSERVATION), rows)
