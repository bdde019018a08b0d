"""The file of a SQLite database: whether it was replaced since it was opened, and whether it can change at all."""

import os
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine

OPTION = "sqlite_file"
"""The execution option under which an engine keeps its `SqliteFile`."""


class SqliteFile:
    """The file of a SQLite database, which must not be deleted or replaced while the service runs.

    The process would go on writing to the old file, and every row would be lost.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, int] | None = None
        files = (path, path.parent, path.with_name(f"{path.name}-wal"))
        self.on_read_only_media = path.exists() and not any(os.access(each, os.W_OK) for each in files)

    def fault(self) -> str | None:
        """Returns a sentence if the file was deleted or replaced since the first call that saw it, else None."""
        try:
            status = self._path.stat()
        except OSError:
            return self._opened and "The database file was deleted. Put it back, and restart the service."
        identity = status.st_dev, status.st_ino
        self._opened = self._opened or identity
        if identity == self._opened:
            return None
        return "The database file was replaced. Restart the service to use the new one."

    @property
    def immutable_uri(self) -> str:
        """URI with which SQLite opens the file without locks and without other files, as read-only media require."""
        return f"file:{quote(str(self._path))}?immutable=1"


def file_of(engine: Engine) -> SqliteFile | None:
    """Returns the file of an engine, or None for Postgres and for a database in memory."""
    file: SqliteFile | None = engine.get_execution_options().get(OPTION)
    return file
