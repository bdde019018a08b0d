"""Commands that prepare and check the configured database."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from service.db.engine import Engine, connect
from service.db.migrate import require_usable, upgrade
from service.db.operation.check import counts_of, faults_of
from service.files import SEED
from service.importers.checks import check_seed
from service.importers.load_seed import load_seed
from service.importers.seed import read_seed
from service.settings import read_settings


@contextlib.contextmanager
def connected() -> Iterator[Engine]:
    """Gives the configured database, whatever tables it has."""
    engine = connect(read_settings().database_url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def current_database() -> Iterator[Engine]:
    """Gives the configured database, which must have the tables of this version."""
    with connected() as engine:
        require_usable(engine)
        yield engine


@click.command()
@click.option("--check", is_flag=True, help="Check the seed without writing to the database.")
@click.option("--folder", type=click.Path(path_type=Path), default=SEED, hidden=True)
def seed(check: bool, folder: Path) -> int:
    """Create the tables and load the seed catalog."""
    if check:
        return _check_seed(folder)
    with connected() as engine:
        load(engine, folder)
    return 0


def load(engine: Engine, folder: Path) -> None:
    """Loads a seed into the database, and prints whether it was there already."""
    written = load_seed(engine, folder)
    state = "is seeded" if written.state == "done" else "holds the seed already"
    print(f"{engine.url.render_as_string()} {state}; the catalog is version {written.version}.", file=sys.stderr)


def _check_seed(folder: Path) -> int:
    batch = read_seed(folder)
    problems = check_seed(batch, folder)
    for problem in problems:
        print(problem, file=sys.stderr)
    rows, kept = batch.rows_seen, batch.rows_kept
    if problems:
        print(f"{rows:,} rows, {len(problems)} problems.")
        return 1
    quarantined = f"{rows - kept:,} are set aside with a reason"
    print(f"The seed is sound: of {rows:,} rows {kept:,} enter the catalog; {quarantined}.")
    return 0


@click.command()
def migrate() -> None:
    """Bring the tables of the database to this version."""
    with connected() as engine:
        upgrade(engine)
        print(f"{engine.url.render_as_string()} has the tables of this version.", file=sys.stderr)


@click.command()
def check() -> int:
    """Check that the database is complete and consistent."""
    with connected() as engine:
        faults = faults_of(engine)
        for fault in faults:
            print(fault, file=sys.stderr)
        for name, count in counts_of(engine).items():
            print(f"{count:>12,} {name}")
        print(f"{engine.url.render_as_string()} {'is not whole.' if faults else 'is whole.'}")
    return 1 if faults else 0
