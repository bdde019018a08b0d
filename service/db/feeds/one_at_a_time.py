"""A lock that one process at a time holds, whatever machine it runs on."""

import fcntl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, text

from service.db.engine import sqlite_path
from service.db.errors import in_sentences


@contextmanager
def only_here(engine: Engine, purpose: str) -> Iterator[bool]:
    """Gives True while no other process holds the lock of this purpose, and False otherwise, without waiting.

    Postgres frees the lock when its connection ends, and the operating system that of a file, also after a crash.
    """
    if engine.dialect.name == "postgresql":
        with in_sentences(engine), engine.connect() as connection:
            key = zlib.crc32(purpose.encode())
            yield bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar())
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})
        return
    path = sqlite_path(engine.url)
    if path is None:
        yield True
        return
    with path.with_name(f"{path.name}.{purpose}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
