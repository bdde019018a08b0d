"""Lets parts of an installation fail under load, and counts what that costs its callers: `python -m bench.soak`.

Runs Postgres with a standby that shows everything ten seconds late, PgBouncer, three replicas and HAProxy on loopback,
and a fourth replica that reads from the standby. Exits 1 if a figure fails its gate.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from time import monotonic, perf_counter, sleep

import psycopg

from bench.servers import environment, free_port
from bench.soak.database import Database
from bench.soak.events import UPGRADE, Soak, happen
from bench.soak.load import Load, Watch
from bench.soak.programs import missing_programs
from bench.soak.replicas import Balancer, Replica
from bench.soak.report import Followed, Late, Outage, Record, failures, followed_by, gates, moves_of, report
from bench.soak.versions import command_of, commit, version_before
from bench.verdict import verdict_table
from bench.writes import OWNER

REPLICAS = 3
WARM_UP_SECONDS = 5.0
LONGEST_START_SECONDS = 120.0
FOLLOW_SECONDS = 5.0
"""How long replicas have to follow the last write before the watch ends."""

SETTINGS = {
    "SELECTOR_DRAIN_SECONDS": "3",
    "SELECTOR_REQUESTS_PER_MINUTE_AND_KEY": "0",
    "SELECTOR_REQUESTS_PER_MINUTE_AND_ADDRESS": "0",
}
ONE_FEED = "azure"
"""The background work: reading this feed from a server that does not exist."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Let parts of an installation fail under load.")
    parser.add_argument("--minutes", type=float, default=10.0, help="about how long; a replica's start may add to it")
    parser.add_argument("--random-seed", type=int, help="repeats the order of the events of another run")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs, and print its name")
    asked = parser.parse_args()
    missing = missing_programs()
    if missing:
        print(missing, file=sys.stderr)
        return 1
    seed = random.SystemRandom().randrange(10_000) if asked.random_seed is None else asked.random_seed
    # Not where TMPDIR says: the user of Postgres has to get there.
    folder = Path(tempfile.mkdtemp(prefix="selector-soak-", dir="/tmp"))
    try:
        with ExitStack() as stack:
            record, remarks = observed(folder, asked.minutes * 60, random.Random(seed), stack)  # noqa: S311
    finally:
        if asked.keep:
            print(f"The logs are in {folder}.", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    lines, today = gates(record), datetime.now(UTC).date()
    load = f"{os.cpu_count()} cores with load {os.getloadavg()[1]:.1f}"
    print(
        f"Commit {commit()}, {today}, random seed {seed}, {load}.",
        report(record),
        verdict_table(lines),
        f"The lead in the background work moved {moves_of(record.leading)} times.",
        *failures(record),
        *remarks,
        sep="\n\n",
    )
    return 1 if remarks or any(line.verdict == "FAILS" for line in lines) else 0


def observed(folder: Path, seconds: float, chance: random.Random, stack: ExitStack) -> tuple[Record, list[str]]:
    """Starts all parts, lets the events happen, and returns the figures and remarks. The stack stops the parts."""
    print("Starting Postgres, its standby, the replicas and HAProxy.", file=sys.stderr, flush=True)
    database = Database(folder)
    stack.callback(database.stop)
    database.start()
    before = version_before(folder / "before")
    shared = environment(folder / "bytecode", None) | SETTINGS
    variables = shared | {
        "SELECTOR_DATABASE_URL": database.url,
        "SELECTOR_FEEDS": ONE_FEED,
        "SELECTOR_FEED_URLS": f'{{"{ONE_FEED}": "http://127.0.0.1:{free_port()}"}}',
    }
    token = seeded(before, variables)
    reading = shared | {"SELECTOR_DATABASE_URL": database.standby_url, "SELECTOR_FEEDS": "off"}
    wait_for_row(database.standby_url, "SELECT id FROM api_key")
    replicas = [Replica(before, variables, folder / f"replica-{number}.log") for number in range(1, REPLICAS + 1)]
    late = Replica(before, reading, folder / "late.log")
    for replica in (*replicas, late):
        stack.callback(replica.kill)
        replica.start()
    for replica in (*replicas, late):
        replica.wait_until_ready()
    balancer = Balancer(folder, replicas)
    stack.callback(balancer.stop)
    watch = Watch(lambda: database.direct_address, [replica.port for replica in replicas], late.port)
    load = Load(balancer.port, token, late.port)
    stack.callback(watch.stop)
    stack.callback(load.stop)
    sleep(WARM_UP_SECONDS)
    soak = Soak(database, replicas, load, balancer.port, variables, folder, seconds, chance)
    began = perf_counter()
    events = happen(soak)
    ended = perf_counter()
    load.stop()
    sleep(FOLLOW_SECONDS)
    watch.stop()

    def followed(port: int, outages: Sequence[Outage]) -> list[Followed]:
        since = [each for each in watch.written if each[0] >= began]
        return list(followed_by(since, watch.observed[port], outages))

    upgraded = next(event.ended for event in events if event.name == UPGRADE)
    record = Record(
        began,
        ended,
        events,
        [sent for sent in load.sent if sent.began >= began],
        list(chain.from_iterable(followed(replica.port, soak.outages) for replica in replicas)),
        stored_writes(database.direct_address),
        soak.outages,
        # The version before does not report it.
        [look for look in watch.leading if look.at >= upgraded],
        Late([sent for sent in load.sent_late if sent.began >= began], followed(late.port, ())),
    )
    return record, soak.remarks


def seeded(version: Path, variables: dict[str, str]) -> str:
    """Loads the seed of a version through the bouncer, once that answers, and returns a key that may write."""
    wait_for_row(variables["SELECTOR_DATABASE_URL"], "SELECT 1")
    command_of(version, variables, "seed").check_returncode()
    created = command_of(version, variables, "keys", "create", OWNER, "--scopes", "measurements")
    created.check_returncode()
    return next(word for word in created.stdout.split() if word.startswith("sel_"))


def wait_for_row(url: str, query: str) -> None:
    """Waits until a query has an answer. Raises `TimeoutError`."""
    deadline = monotonic() + LONGEST_START_SECONDS
    while not has_row(url, query):
        if monotonic() > deadline:
            raise TimeoutError(query)
        sleep(0.1)


def has_row(url: str, query: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            return bool(connection.execute(query).fetchone())
    except psycopg.Error:
        return False


def stored_writes(address: str) -> set[int]:
    """Returns the numbers of all measurements that the load has stored."""
    with psycopg.connect(address) as connection:
        rows = connection.execute("SELECT samples_per_second FROM measurement WHERE owner = %s", [OWNER]).fetchall()
    return {round(rate) for (rate,) in rows}


if __name__ == "__main__":
    sys.exit(main())
