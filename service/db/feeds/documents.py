"""The documents of feeds: where each one came from, and the last one of a part."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, Table, select

from service.db.errors import in_sentences
from service.db.tables import DOCUMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where and when a document was fetched, and the marks by which its server recognises it later."""

    url: str
    fetched_at: datetime
    etag: str | None = None
    last_modified: str | None = None


def name_of_part(feed: str, part: str) -> str:
    """Returns what sentences call a part of a feed: a feed without parts has one of an empty name."""
    return f"{feed} {part}".strip()


def of_part(table: Table, feed: str, part: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Returns the conditions for the rows of a table that belong to a part of a feed."""
    return table.c.feed == feed, table.c.part == part


def last_origin(engine: Engine, feed: str, part: str) -> Origin | None:
    """Returns where the last document of a part came from; None without one."""
    table = DOCUMENT.c
    query = select(table.url, table.fetched_at, table.etag, table.last_modified)
    query = query.where(*of_part(DOCUMENT, feed, part)).order_by(table.fetched_at.desc()).limit(1)
    with in_sentences(engine), engine.connect() as connection:
        row = connection.execute(query).mappings().first()
    return Origin(**row) if row else None


def free_instant(last: datetime | None, now: datetime) -> datetime:
    """Returns `now`, or a second after the last document if that is not earlier: no two may share an instant."""
    return now if last is None or last < now else last + timedelta(seconds=1)
