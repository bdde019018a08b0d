"""Copies of databases for tests that write."""

import sqlite3
from pathlib import Path


def copied_database(database: Path, copy: Path) -> str:
    """The URL of a copy of a SQLite database."""
    source, target = sqlite3.connect(database), sqlite3.connect(copy)
    source.backup(target)
    source.close()
    target.close()
    return f"sqlite:///{copy}"
