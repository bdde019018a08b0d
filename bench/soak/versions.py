"""Other versions of the service: the one before the newest migration, and one whose migration fails."""

import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from bench.servers import ROOT
from service.db.migrate import newest_revision

PARTS = ("service", "seed", "migrations")
"""The folders that a replica needs."""

FAILING = """\
\"\"\"Add a column, and fail.\"\"\"

from alembic import op

revision = "9999"
down_revision = "{newest}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE measurement ADD COLUMN unfinished INTEGER")
    op.execute("UPDATE measurement SET no_such_column = 0")
"""


def _git(*arguments: str) -> bytes:
    """Returns the output of git. Raises `CalledProcessError` outside of a repository with its history."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S603, S607


def commit() -> str:
    """Returns the abbreviated name of the present commit."""
    return _git("rev-parse", "--short", "HEAD").decode().strip()


def version_before(folder: Path) -> Path:
    """Writes the version before the newest migration into a folder, and returns that folder."""
    newest = _git("log", "-1", "--diff-filter=A", "--format=%H", "--", "migrations/versions").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", f"{newest}^", *PARTS))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def version_that_fails(folder: Path) -> Path:
    """Writes this version with one more migration, which fails, into a folder, and returns that folder."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    migration = folder / "migrations" / "versions" / "9999_a_failing_migration.py"
    migration.write_text(FAILING.format(newest=newest_revision()), encoding="utf-8")
    return folder


def command_of(version: Path, variables: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of a version to its end."""
    command = [sys.executable, "-m", "service", *arguments]
    environment = variables_of(version, variables)
    return subprocess.run(command, cwd=version, env=environment, capture_output=True, text=True)  # noqa: S603


def variables_of(version: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables under which Python finds the modules of a version, wherever else it would find others."""
    return {**variables, "PYTHONPATH": str(version)}
