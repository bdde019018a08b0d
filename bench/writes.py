"""Measures what a write costs as measurements accumulate, and how it disturbs readers: `python -m bench.writes`.

Without arguments it uses a SQLite file of its own. `--database` names an empty Postgres database, which it fills.
"""

import argparse
import json
import socket
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from sqlalchemy import Engine, text

from bench.catalogs import make_catalogs
from bench.figures import percentile
from bench.load import HOST, Asked, ask
from bench.questions import ALIVE, LISTED
from bench.servers import SERVICE_COMMAND, environment, running
from bench.verdict import shown, table
from service.db.engine import connect
from service.db.keys import create_key, new_token
from service.domain.keys import id_of
from service.files import SEED
from service.importers.load_seed import load_seed

SIZES = (0, 100_000, 1_000_000)
OWNER = "bench"
WORKLOADS = 1000
WRITES = 100
SECONDS = 3.0

HEAD = (
    "stored", "write CPU ms", "p50 ms", "p99 ms", "reader p99 alone ms", "with writes ms", "ratio", "start s", "MiB",
)  # fmt: skip

SERIES = {
    "sqlite": "WITH RECURSIVE series(n) AS (SELECT :first UNION ALL SELECT n + 1 FROM series WHERE n < :last)",
    "postgresql": "WITH series(n) AS (SELECT * FROM generate_series(CAST(:first AS INTEGER), CAST(:last AS INTEGER)))",
}


def seed_with_key(folder: Path) -> tuple[Path, str]:
    """Makes a database of the seed with a key that may send measurements. Returns its path and the key."""
    ((_, database),) = make_catalogs(folder, [None]).items()
    token, engine = new_token(), connect(f"sqlite:///{database}")
    create_key(engine, token, OWNER, ["measurements"], datetime.now(UTC))
    engine.dispose()
    return database, token


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.writes", description="Measure what a write costs.")
    parser.add_argument("--database", help="the URL of an empty Postgres database; by default a SQLite file")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of stored measurements, ascending")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="bench-") as folder:
        url = asked.database or f"sqlite:///{folder}/writes.db"
        rows = list(measured(url, asked.sizes, Path(folder) / "bytecode"))
    print(table(HEAD, rows))
    return 0


def measured(url: str, sizes: Sequence[int], bytecode: Path) -> Iterator[tuple[str, ...]]:
    """Yields a row of the table for each number of measurements."""
    engine, token, stored = connect(url), new_token(), 0
    load_seed(engine, SEED)
    create_key(engine, token, OWNER, ["measurements"], datetime.now(UTC))
    variables = environment(bytecode, None) | {
        "SELECTOR_DATABASE_URL": url,
        "SELECTOR_REQUESTS_PER_MINUTE_AND_KEY": "0",
        "SELECTOR_MEASUREMENTS_PER_KEY": "100000000",
    }
    writes = (write(token, number) for number in count(1))
    for size in sizes:
        fill(engine, stored, size, id_of(token))
        stored = size
        print(f"{size:,} measurements are stored.", file=sys.stderr, flush=True)
        with (
            ProcessPoolExecutor(2, get_context("spawn")) as asking,
            running(SERVICE_COMMAND, variables, ALIVE) as server,
        ):
            read = LISTED.requests(0, ())[:500]
            asking.submit(ask, server.port, read, 1, SECONDS).result()
            used = server.cpu_seconds()
            durations = sorted(seconds_of(asking, server.port, next(writes)) for _ in range(WRITES))
            used = (server.cpu_seconds() - used) / WRITES
            alone = asking.submit(ask, server.port, read, 1, SECONDS).result()
            several = [next(writes) for _ in range(5000)]
            writing = asking.submit(ask, server.port, several, 1, SECONDS)
            during = asking.submit(ask, server.port, read, 1, SECONDS).result()
            require_created(writing.result())
            figures = (server.seconds_to_first_answer, server.resident_bytes() / 1024**2)
            yield (f"{size:,}", *map(shown, (used * 1000, *figures_of(durations, alone, during), *figures)))
    engine.dispose()


def figures_of(durations: Sequence[float], alone: Asked, during: Asked) -> tuple[float, ...]:
    """Returns milliseconds of writes, and of readers without and with writes at the same time, with their ratio."""
    written = (median(durations) * 1000, percentile(durations, 99) * 1000)
    p99 = (alone.p99_seconds * 1000, during.p99_seconds * 1000)
    return (*written, *p99, p99[1] / p99[0])


def seconds_of(asking: ProcessPoolExecutor, port: int, request: bytes) -> float:
    """Returns the seconds from a write to its answer."""
    return asking.submit(one, port, request).result()


def one(port: int, request: bytes) -> float:
    with socket.create_connection((HOST, port)) as connection:
        began = perf_counter()
        connection.sendall(request)
        answer = connection.recv(65536)
        took = perf_counter() - began
    assert answer[9:12] == b"201", answer
    return took


def require_created(asked: Asked) -> None:
    assert set(asked.statuses) == {201}, asked.statuses


def write(token: str, number: int) -> bytes:
    """Returns a request that stores one measurement, another one for each number."""
    item = {"name": f"written-{number % WORKLOADS}", "machine": "aws/g5.xlarge", "samples_per_second": number}
    body = json.dumps({"items": [item]}).encode()
    head = (
        f"POST /measurements HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def fill(engine: Engine, stored: int, size: int, key: str) -> None:
    """Adds measurements of the owner up to a number of them, without a request for each."""
    if size <= stored:
        return
    # SQLite keeps days and times as texts, and would cast them to numbers.
    day, time = ("'2026-01-01'", "'2026-01-01 00:00:00'")
    if engine.dialect.name == "postgresql":
        day, time = f"DATE {day}", f"TIMESTAMP {time}"
    select = (
        f"SELECT 'filled-' || n, 'filled-' || (n % {WORKLOADS}), 'aws/g5.xlarge', 1, n, {day}, 'bench', 1, "  # noqa: S608
        f"version, :owner, :key, {time} FROM series, catalog_version"
    )
    columns = (
        "id, workload, machine, gpu_count, samples_per_second, measured_on, source, nodes, since, owner, key, sent_at"
    )
    statement = f"INSERT INTO measurement ({columns}) {SERIES[engine.dialect.name]} {select}"
    values = {"first": stored + 1, "last": size, "owner": OWNER, "key": key}
    with engine.begin() as connection:
        connection.execute(text("UPDATE catalog_version SET importing = true, version = version + 1"))
        connection.execute(text(statement), values)
        connection.execute(text("UPDATE catalog_version SET importing = false"))
        # A table that grows by itself has statistics: autovacuum gathers them, and without them plans read all rows.
        connection.execute(text("ANALYZE"))


if __name__ == "__main__":
    sys.exit(main())
