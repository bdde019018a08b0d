"""Measures how long a capture with many observations takes to store and to resolve: `python -m bench.feeds`.

Three captures of one feed follow each other: all prices are new, all differ by 2 %, and none differs. Then the feed
says that nothing has changed, and at last a server answers questions while a capture is imported. Exits 1 if these wait
too long. `--database` names an empty Postgres database; by default it is a SQLite file.
"""

import argparse
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from sqlalchemy import Engine, select

from bench.load import ask
from bench.questions import ALIVE, GPU_NAMED
from bench.servers import SERVICE_COMMAND, environment, running
from bench.verdict import Gate, Line, table, verdict_table
from service.db.engine import connect
from service.db.feeds.write_capture import Capture, confirm_capture, write_capture
from service.db.tables import INSTANCE_TYPE
from service.db.write_catalog import Record
from service.files import SEED
from service.importers.load_seed import load_seed

FEED, SOURCE = "gpuhunt", "feed-gpuhunt"
OBSERVATIONS = 200_000
LAST_DAY = 9
P99_DURING_AN_IMPORT = Gate(3, 1.5, "less")
SPELL_SECONDS = 3.0
START = datetime(2026, 11, 1, tzinfo=UTC)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.feeds", description="Measure the import of a large document.")
    parser.add_argument("--database", help="the URL of an empty Postgres database; by default a SQLite file")
    parser.add_argument("--observations", type=int, default=OBSERVATIONS)
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="bench-") as folder:
        url = asked.database or f"sqlite:///{Path(folder) / 'feeds.db'}"
        engine = connect(url)
        load_seed(engine, SEED)
        print(table(("capture", "s", "CPU s", "MiB more"), list(measured(engine, asked.observations))))
        alone, during = reading(engine, url, asked.observations, Path(folder))
        engine.dispose()
    line = Line(
        "p99 of /recommend during an import, as a multiple of the p99 before", during / alone, P99_DURING_AN_IMPORT
    )
    print(verdict_table([line]))
    return 1 if line.verdict == "FAILS" else 0


def reading(engine: Engine, url: str, observations: int, folder: Path) -> tuple[float, float]:
    """Returns the p99 of a question before an import, and the worst p99 of a spell during it, in seconds."""
    types, requests = _types(engine), GPU_NAMED.requests(0, ())
    variables = environment(folder / "bytecode", None) | {"SELECTOR_DATABASE_URL": url, "SELECTOR_FEEDS": "off"}
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as asking,
        ThreadPoolExecutor(1) as importing,
        running(SERVICE_COMMAND, variables, ALIVE) as server,
    ):

        def p99_of_a_spell() -> float:
            return asking.submit(ask, server.port, requests, 1, SPELL_SECONDS).result().p99_seconds

        p99_of_a_spell()  # warms up
        alone, during = p99_of_a_spell(), []
        import_ = importing.submit(_store, engine, types, observations, LAST_DAY, 1.03)
        while not import_.done():
            during.append(p99_of_a_spell())
        import_.result()
    return alone, max(during)


def measured(engine: Engine, observations: int) -> Iterator[Sequence[str]]:
    """Yields the seconds and the growth of memory of each capture."""
    types = _types(engine)
    days = enumerate({"new": 1.0, "changed": 1.02, "the same rows": 1.02}.items())
    captures: dict[str, Callable[[], object]] = {
        name: partial(_store, engine, types, observations, day, factor) for day, (name, factor) in days
    }
    captures["nothing changed"] = partial(confirm_capture, engine, FEED, "", at(len(captures)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, store in captures.items():
        start, cpu = perf_counter(), process_time()
        store()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        yield name, f"{perf_counter() - start:.1f}", f"{process_time() - cpu:.1f}", f"{grown:.0f}"


def _types(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        names = select(INSTANCE_TYPE.c.provider, INSTANCE_TYPE.c.name)
        return [(provider, name) for provider, name in connection.execute(names)]


def _store(engine: Engine, types: Sequence[tuple[str, str]], observations: int, day: int, factor: float) -> None:
    write_capture(engine, capture(types, observations, day, factor), at(day))


def at(day: int) -> datetime:
    return START + timedelta(days=day)


def capture(types: Sequence[tuple[str, str]], observations: int, day: int, factor: float) -> Capture:
    """Returns a document with this many prices of known instance types, each in a zone of its own."""
    rows = [_row(*types[index % len(types)], index // len(types), factor) for index in range(observations)]
    return Capture(
        feed=FEED, part="", url="https://feed.example", fetched_at=at(day), sha256=str(day), bytes=0, parser="1",
        rows=rows, rows_seen=observations,
    )  # fmt: skip


def _row(provider: str, name: str, zone: int, factor: float) -> Record:
    return {
        "key": "\n".join((provider, name, "bench", str(zone))), "provider": provider, "name": name,
        "region": "bench", "zone": str(zone), "market": "on_demand", "term": None, "operating_system": "linux",
        "currency": "USD", "per_hour_micros": round(factor * 1_000_000) + zone, "effective_from": None,
        "ends_at": None, "dated": "day", "kind": "api", "source": SOURCE, "state": "kept", "reason": None, "note": None,
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
