"""Loads the seed into a database."""

from datetime import UTC, datetime
from pathlib import Path

from service.db.engine import Engine
from service.db.migrate import upgrade
from service.db.write_catalog import Written, record_failure, write
from service.importers.checks import check_seed
from service.importers.seed import FEED, SeedBroken, read_seed


def load_seed(engine: Engine, folder: Path) -> Written:
    """Creates the tables and loads the seed. Raises `SeedBroken` or `DatabaseUnusable`; then nothing has changed."""
    now = datetime.now(UTC)
    batch = read_seed(folder)
    problems = check_seed(batch, folder)
    if problems:
        record_failure(engine, FEED, now, "refused", problems[0])
        raise SeedBroken("\n".join(problems))
    upgrade(engine)  # after the check, so that a broken seed leaves an old database unchanged
    return write(engine, batch, now)
