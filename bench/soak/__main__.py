"""Lets parts of an installation fail under load, and counts what that costs its callers: `python -m bench.soak`.

Runs Postgres with a standby, PgBouncer, three replicas and HAProxy on loopback. Exits 1 if a read failed, an
acknowledged write was lost, or a replica did not follow the catalog.
"""

import argparse
import shutil
import sys
import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from time import monotonic, perf_counter, sleep

import psycopg

from bench.servers import environment
from bench.soak.database import Database
from bench.soak.events import Soak, happen
from bench.soak.load import Load, Watch
from bench.soak.programs import missing_programs
from bench.soak.replicas import Balancer, Replica
from bench.soak.report import Record, failures, followed_by, report
from bench.writes import OWNER
from service.db.engine import connect
from service.db.keys import create_key, new_token
from service.files import SEED
from service.importers.load_seed import load_seed

REPLICAS = 3
WARM_UP_SECONDS = 5.0
LONGEST_START_SECONDS = 60.0
FOLLOW_SECONDS = 5.0
"""How long replicas have to follow the last write before the watch ends."""

SETTINGS = {
    "SELECTOR_DRAIN_SECONDS": "3",
    "SELECTOR_FEEDS": "off",
    "SELECTOR_REQUESTS_PER_MINUTE_AND_KEY": "0",
    "SELECTOR_REQUESTS_PER_MINUTE_AND_ADDRESS": "0",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Let parts of an installation fail under load.")
    parser.add_argument("--minutes", type=float, default=10.0, help="about how long; a replica's start may add to it")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs, and print its name")
    asked = parser.parse_args()
    missing = missing_programs()
    if missing:
        print(missing, file=sys.stderr)
        return 1
    # Not where TMPDIR says: the user of Postgres has to get there.
    folder = Path(tempfile.mkdtemp(prefix="selector-soak-", dir="/tmp"))
    try:
        with ExitStack() as stack:
            record, remarks = observed(folder, asked.minutes * 60, stack)
    finally:
        if asked.keep:
            print(f"The logs are in {folder}.", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    print(report(record), *failures(record), *remarks, sep="\n")
    return 1 if record.failed_reads or record.lost_writes or record.never_followed or remarks else 0


def observed(folder: Path, seconds: float, stack: ExitStack) -> tuple[Record, list[str]]:
    """Starts all parts, lets the events happen, and returns the figures and remarks. The stack stops the parts."""
    print("Starting Postgres, its standby, the replicas and HAProxy.", file=sys.stderr, flush=True)
    database = Database(folder)
    stack.callback(database.stop)
    database.start()
    token = seeded(database.url)
    variables = environment(folder / "bytecode", None) | SETTINGS | {"SELECTOR_DATABASE_URL": database.url}
    replicas = [Replica(variables, folder / f"replica-{number}.log") for number in range(1, REPLICAS + 1)]
    for replica in replicas:
        stack.callback(replica.kill)
        replica.start()
    for replica in replicas:
        replica.wait_until_ready()
    balancer = Balancer(folder, replicas)
    stack.callback(balancer.stop)
    watch = Watch(lambda: database.direct_address, [replica.port for replica in replicas])
    load = Load(balancer.port, token)
    stack.callback(watch.stop)
    stack.callback(load.stop)
    sleep(WARM_UP_SECONDS)
    soak = Soak(database, replicas, load, balancer.port, variables, folder, seconds)
    began = perf_counter()
    events = happen(soak)
    ended = perf_counter()
    load.stop()
    sleep(FOLLOW_SECONDS)
    watch.stop()
    stored = stored_writes(database.direct_address)
    followed = chain.from_iterable(followed_by(watch.written, each) for each in watch.observed.values())
    record = Record(
        began,
        ended,
        events,
        [sent for sent in load.sent if sent.began >= began],
        [each for each in followed if each.written_at >= began],
        stored,
    )
    return record, soak.remarks


def seeded(url: str) -> str:
    """Loads the seed through the bouncer, once that answers, and returns the token of a key that may write."""
    engine, token = connect(url), new_token()
    wait_for_database(url)
    load_seed(engine, SEED)
    create_key(engine, token, OWNER, ["measurements"], datetime.now(UTC))
    engine.dispose()
    return token


def wait_for_database(url: str) -> None:
    deadline = monotonic() + LONGEST_START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            if monotonic() > deadline:
                raise
            sleep(0.1)
        else:
            return


def stored_writes(address: str) -> set[int]:
    """Returns the numbers of all measurements that the load has stored."""
    with psycopg.connect(address) as connection:
        rows = connection.execute("SELECT samples_per_second FROM measurement WHERE owner = %s", [OWNER]).fetchall()
    return {round(rate) for (rate,) in rows}


if __name__ == "__main__":
    sys.exit(main())
