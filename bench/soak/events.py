"""Events that disturb the service during a soak, one after another."""

import csv
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep

from bench.questions import get
from bench.servers import ROOT
from bench.soak.database import Database
from bench.soak.load import Client, Load
from bench.soak.replicas import Replica
from bench.soak.report import READ, Event, Outage
from bench.soak.versions import command_of, version_that_fails

DOWN_SECONDS = 3.0
LONGEST_RECOVERY_SECONDS = 60.0
LONGEST_CUT_SECONDS = 60.0
CUT_SHARE = 0.1
"""The share of the time for which the database is cut off."""

QUIET_SHARE = 0.4
"""The least share of an event's time that is quiet, a random part of it before the event and the rest after it."""


@dataclass(frozen=True, slots=True)
class Soak:
    """The parts to which an event happens."""

    database: Database
    replicas: Sequence[Replica]
    load: Load
    port: int
    variables: Mapping[str, str]
    folder: Path
    seconds: float
    chance: random.Random
    remarks: list[str] = field(default_factory=list)
    """Sentences about what went wrong and is in no request."""
    outages: list[Outage] = field(default_factory=list)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Notes that the database cannot be reached until the block ends."""
        began = perf_counter()
        yield
        self.outages.append((began, perf_counter()))


def kill_replica(soak: Soak) -> None:
    restart_after_kill(soak.chance.choice(soak.replicas))


def restart_after_kill(replica: Replica) -> None:
    """Kills a replica, and starts it again a little later."""
    replica.kill()
    sleep(DOWN_SECONDS)
    replica.start()
    replica.wait_until_ready()


def drain_replica(soak: Soak) -> None:
    replace_replica(soak, soak.chance.choice(soak.replicas), None)


def replace_replica(soak: Soak, replica: Replica, version: Path | None) -> None:
    """Lets a replica drain, and starts it again, of another version if one is given."""
    code = replica.drain()
    if code != 0:
        soak.remarks.append(f"A drained replica ended with exit code {code}.")
    replica.start(version)
    replica.wait_until_ready()


def upgrade(soak: Soak) -> None:
    """Migrates the database and loads the new seed, as the job in `deploy/` does, and then replaces each replica.

    Before that, a replica of the old version is killed and starts again on the migrated tables.
    """
    done = command_of(ROOT, soak.variables, "seed")
    if done.returncode:
        soak.remarks.append(f"The migration ended with exit code {done.returncode}: {last_line(done.stderr)}")
    restart_after_kill(soak.replicas[0])
    for replica in soak.replicas:
        replace_replica(soak, replica, ROOT)


def migrate_badly(soak: Soak) -> None:
    """Runs a migration that adds a column and then fails, after which the database must be as it was before."""
    version = version_that_fails(soak.folder / "failing")
    if command_of(version, soak.variables, "migrate").returncode == 0:
        soak.remarks.append("The failing migration did not fail.")
    # It refuses a database with other tables than those of this version.
    checked = command_of(ROOT, soak.variables, "keys", "list")
    if checked.returncode:
        soak.remarks.append(f"The failed migration has left traces: {last_line(checked.stderr)}")
    recover(soak)


def last_line(text: str) -> str:
    return "".join(text.strip().splitlines()[-1:])


def restart_database(soak: Soak) -> None:
    with soak.outage():
        soak.database.crash_and_restart()
    recover(soak)


def cut_off_database(soak: Soak) -> None:
    with soak.outage():
        soak.database.cut_off()
        sleep(min(LONGEST_CUT_SECONDS, CUT_SHARE * soak.seconds))
        soak.database.reconnect()
    recover(soak)


def import_offers(soak: Soak) -> None:
    """Imports slightly higher prices of many instance types."""
    path = soak.folder / "offers.csv"
    write_offers(soak.port, path)
    done = command_of(ROOT, soak.variables, "offers", "import", str(path))
    if done.returncode:
        soak.remarks.append(
            f"The import ended with exit code {done.returncode}: {last_line(done.stdout + done.stderr)}"
        )
    recover(soak)


def write_offers(port: int, path: Path) -> None:
    """Writes a CSV of offers, each one percent above its present price."""
    status, body = Client(port).ask(get("/instances", market="on_demand", max_usd_per_hour=1000, limit=100))
    assert status == READ, status
    today = datetime.now(UTC).date()
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("provider", "name", "market", "per_hour", "region", "observed_on"))
        for item in json.loads(body)["items"]:
            price = item["price"]
            per_hour = price["usd_per_hour"] * 1.01
            lines.writerow((item["provider"], item["name"], "on_demand", per_hour, price["region"], today))


def fail_over(soak: Soak) -> None:
    with soak.outage():
        soak.database.fail_over()
    recover(soak)


def recover(soak: Soak) -> None:
    """Waits until a write is acknowledged again."""
    if not soak.load.wait_for_a_write(LONGEST_RECOVERY_SECONDS):
        soak.remarks.append(f"No write was acknowledged for {LONGEST_RECOVERY_SECONDS:.0f} s after an event.")


UPGRADE = "a rolling upgrade"
REPLICA_EVENTS: dict[str, Callable[[Soak], None]] = {
    "a replica is killed": kill_replica,
    "a replica drains": drain_replica,
}
DATABASE_EVENTS: dict[str, Callable[[Soak], None]] = {
    UPGRADE: upgrade,
    "Postgres crashes": restart_database,
    "the database is cut off": cut_off_database,
    "an import": import_offers,
    "a migration fails": migrate_badly,
    "the standby is promoted": fail_over,
}
EVENTS = REPLICA_EVENTS | DATABASE_EVENTS


def schedule(chance: random.Random) -> list[str]:
    """Returns the events in a random order with a random event of a replica before each.

    The upgrade comes first, because the replicas begin as the version before, and the promotion last, because no
    standby is left after it.
    """
    first, *others, last = DATABASE_EVENTS
    chance.shuffle(others)
    return [name for event in (first, *others, last) for name in (chance.choice(list(REPLICA_EVENTS)), event)]


def happen(soak: Soak) -> list[Event]:
    """Lets each event happen in its turn, with quiet time before and after each. Returns when they happened."""
    names = schedule(soak.chance)
    slot = soak.seconds / len(names)
    quiet = slot * QUIET_SHARE
    events = []
    for name in names:
        before = quiet * soak.chance.random()
        sleep(before)
        print(f"{name[0].upper()}{name[1:]}.", file=sys.stderr, flush=True)
        began = perf_counter()
        EVENTS[name](soak)
        events.append(Event(name, began, perf_counter()))
        sleep(max(quiet - before, slot - before - (perf_counter() - began)))
    return events
