"""The documents of feeds: where each one came from, and the last one of a part."""

from dataclasses import dataclass, fields
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Engine, Table, func, select

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


@dataclass(frozen=True, slots=True)
class LastDocument:
    """Where the last document of a part came from, and its SHA-256."""

    origin: Origin
    sha256: str


def last_document(engine: Engine, feed: str, part: str) -> LastDocument | None:
    """Returns the last document of a part; None without one. Raises `DatabaseUnusable`."""
    table = DOCUMENT.c
    query = select(*(table[field.name] for field in fields(Origin)), table.sha256)
    query = query.where(*of_part(DOCUMENT, feed, part)).order_by(table.fetched_at.desc()).limit(1)
    with in_sentences(engine), engine.connect() as connection:
        row = connection.execute(query).mappings().first()
    if row is None:
        return None
    return LastDocument(Origin(**{name: value for name, value in row.items() if name != "sha256"}), row["sha256"])


def instant_of(engine: Engine, feed: str, part: str, sha256: str, published: datetime) -> datetime | None:
    """Returns when content of a part with this publication was captured; None if it never was.

    Raises `DatabaseUnusable`.
    """
    table = DOCUMENT.c
    query = select(func.min(table.fetched_at)).where(
        *of_part(DOCUMENT, feed, part), table.sha256 == sha256, table.published_at == published
    )
    with in_sentences(engine), engine.connect() as connection:
        return connection.execute(query).scalar()


def last_published_by(
    engine: Engine, feed: str, part: str, published: datetime, fetched: datetime, other_than: str
) -> datetime | None:
    """Returns the instant of the last document of a part that was published and captured by these instants.

    `other_than` is a SHA-256: documents with this content do not count. Raises `DatabaseUnusable`.
    """
    table = DOCUMENT.c
    query = select(func.max(table.fetched_at)).where(
        *of_part(DOCUMENT, feed, part),
        table.published_at <= published,
        table.fetched_at <= fetched,
        table.sha256 != other_than,
    )
    with in_sentences(engine), engine.connect() as connection:
        return connection.execute(query).scalar()


def free_instant(last: datetime | None, now: datetime) -> datetime:
    """Returns `now`, or a second after the last document if that is not earlier: no two may share an instant."""
    return now if last is None or last < now else last + timedelta(seconds=1)
