"""Connects to SQLite and Postgres, set up so that both behave the same."""

from pathlib import Path
from typing import Any

from sqlalchemy import Engine as Engine  # for callers that hold one without importing SQLAlchemy
from sqlalchemy import NullPool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from service.db.errors import DatabaseUnusable, require_same_file
from service.db.sqlite_file import OPTION, SqliteFile

SQLITE_BUSY_SECONDS = 2
"""How long a statement waits for a lock. A request may wait twice, and is answered within five seconds."""

POSTGRES_CONNECTION = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "prepare_threshold": None,
}
"""A broken connection is noticed within 11 seconds; with the defaults of Linux it takes a quarter of an hour.

Statements are not prepared: in transaction mode, PgBouncer gives the same server connection to several clients, whose
prepared statements would have the same names.
"""

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}


def parse_url(text: str) -> URL:
    """Returns the URL with the driver that this project installs. Platforms often give `postgres://`.

    Raises `DatabaseUnusable`.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is not a number
        raise DatabaseUnusable(
            "The database URL cannot be read. Examples: sqlite:///instance-selector.db, postgresql://user:password@host/name."
        ) from None
    backend = url.get_backend_name()
    if backend not in DRIVERS:
        raise DatabaseUnusable(f"{backend} is not supported. Use sqlite or postgresql.")
    return url.set(drivername=DRIVERS[backend])


def connect(database_url: str) -> Engine:
    """Returns an engine, which connects on first use. Raises `DatabaseUnusable` if the URL cannot be read."""
    url = parse_url(database_url)
    if url.get_backend_name() == "sqlite":
        return _sqlite_engine(url)
    # The ping replaces a connection that died in the pool, before a request fails on it.
    engine = create_engine(url, pool_pre_ping=True, connect_args=POSTGRES_CONNECTION)

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        connection.execute("SET datestyle TO ISO")  # `bulk_columns` reads days and instants as text
        connection.commit()

    return engine


def _sqlite_engine(url: URL) -> Engine:
    path = sqlite_path(url)
    file = SqliteFile(path) if path else None
    # A pooled connection would not notice that another program has replaced the file.
    pool = {"poolclass": NullPool, "execution_options": {OPTION: file}} if file else {}
    engine = create_engine(url, connect_args={"timeout": SQLITE_BUSY_SECONDS}, **pool)

    @event.listens_for(engine, "do_connect")
    def open_file(dialect: Any, _record: Any, _arguments: Any, parameters: Any) -> Any:
        require_same_file(engine)  # first, because SQLite would create a missing file
        if file and file.on_read_only_media:
            return dialect.connect(file.immutable_uri, uri=True, **parameters)
        return None

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _record: Any) -> None:
        # SQLAlchemy begins transactions (below), because pysqlite begins them at moments that break savepoints.
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys = ON")
        if not (file and file.on_read_only_media):
            connection.execute("PRAGMA journal_mode = WAL")  # lets readers continue while an import writes
        require_same_file(engine)  # remembers a file that SQLite has just created

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    return engine


def sqlite_path(url: URL) -> Path | None:
    """Returns the file of a SQLite URL, or None for Postgres and for a database in memory."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return Path(url.database)
