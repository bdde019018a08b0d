"""Elects one of the processes that share a database, for work that one process should do at a time."""

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from typing import Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from service.db.engine import sqlite_path

log = logging.getLogger(__name__)

KEEPALIVES = ("tcp_keepalives_idle = 5", "tcp_keepalives_interval = 2", "tcp_keepalives_count = 3")
"""With these settings, the server notices after 11 seconds that a client's machine is gone, and frees the lock."""


class _Lock(Protocol):
    """A lock that is released when its process ends, even by a crash."""

    def is_held(self) -> bool: ...

    def release(self) -> None: ...


class Leader:
    """The leadership for one kind of work, which at most one process has.

    A process loses it when it ends or loses its connection to the database; another process takes it at its next call.
    A process that was cut off notices the loss at its own next call. Until then, for some seconds, two processes may
    act as leaders, so each unit of work must be safe to repeat.
    """

    def __init__(self, engine: Engine, work: str) -> None:
        self._take: Callable[[], _Lock | None] = lambda: _take_lock(engine, work)
        self._work = work
        self._lock: _Lock | None = None
        self._calling = threading.Lock()

    def leads(self) -> bool:
        """Returns whether this process leads, and makes it lead if none does. Call it before each unit of work."""
        with self._calling:
            if self._lock is not None and not self._lock.is_held():
                log.warning("The lead in %s is lost.", self._work)
                self._release()
            if self._lock is None:
                self._lock = self._take()
                if self._lock is not None:
                    log.info("This process leads in %s.", self._work)
            return self._lock is not None

    def release(self) -> None:
        """Gives the leadership up, so that another process can take it at once."""
        with self._calling:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _take_lock(engine: Engine, work: str) -> _Lock | None:
    if engine.dialect.name == "postgresql":
        return _PostgresLock.take(engine, work)
    path = sqlite_path(engine.url)
    return _SqliteLock.take(":memory:" if path is None else f"{path}-{work}-leader")


class _PostgresLock:
    """An advisory lock in a transaction that stays open on its own connection.

    A lock of the session would not work with a pooler such as PgBouncer, where each transaction may have another
    session. The open transaction does not delay vacuuming, because it has read no table.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @classmethod
    def take(cls, engine: Engine, work: str) -> "_PostgresLock | None":
        digest = hashlib.blake2b(work.encode(), digest_size=8).digest()
        try:
            connection = engine.connect()
            connection.detach()  # from the pool, which would otherwise have one connection less
            lock = cls(connection)
            for setting in ("idle_in_transaction_session_timeout = 0", *KEEPALIVES):
                connection.execute(text(f"SET LOCAL {setting}"))
            key = int.from_bytes(digest, signed=True)
            if connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": key}).scalar_one():
                return lock
            lock.release()
        except SQLAlchemyError:
            pass  # the catalog reports a database that does not answer
        return None

    def is_held(self) -> bool:
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            return False
        return True

    def release(self) -> None:
        self._connection.close()  # a connection that was detached from the pool is closed for good


class _SqliteLock:
    """A lock on an empty SQLite file next to the database: SQLite locks files on every operating system."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def take(cls, path: str) -> "_SqliteLock | None":
        try:
            connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            lock = cls(connection)
            try:
                connection.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                lock.release()
                return None
        except sqlite3.OperationalError:
            return None  # read-only media
        return lock

    def is_held(self) -> bool:
        return self._connection.in_transaction

    def release(self) -> None:
        self._connection.close()
