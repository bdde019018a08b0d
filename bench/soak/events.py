"""Events that disturb the service during a soak, one after another."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep

from bench.questions import get
from bench.servers import ROOT
from bench.soak.database import Database
from bench.soak.load import Client, Load
from bench.soak.replicas import Replica
from bench.soak.report import READ, Event

DOWN_SECONDS = 3.0
LONGEST_RECOVERY_SECONDS = 60.0
LONGEST_CUT_SECONDS = 60.0
CUT_SHARE = 0.1
"""The share of the time for which the database is cut off."""

QUIET_SHARE = 0.4
"""The least share of an event's time that is quiet, one half before the event and one half after it."""


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
    remarks: list[str] = field(default_factory=list)
    """Sentences about what went wrong and is in no request."""


def kill_replica(soak: Soak) -> None:
    replica = soak.replicas[0]
    replica.kill()
    sleep(DOWN_SECONDS)
    replica.start()
    replica.wait_until_ready()


def drain_replica(soak: Soak) -> None:
    replica = soak.replicas[1]
    code = replica.drain()
    if code != 0:
        soak.remarks.append(f"The drained replica ended with exit code {code}.")
    replica.start()
    replica.wait_until_ready()


def restart_database(soak: Soak) -> None:
    soak.database.crash_and_restart()
    recover(soak)


def cut_off_database(soak: Soak) -> None:
    soak.database.cut_off()
    sleep(min(LONGEST_CUT_SECONDS, CUT_SHARE * soak.seconds))
    soak.database.reconnect()
    recover(soak)


def import_offers(soak: Soak) -> None:
    """Imports slightly higher prices of many instance types."""
    path = soak.folder / "offers.csv"
    write_offers(soak.port, path)
    command = [sys.executable, "-m", "service", "offers", "import", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=dict(soak.variables), capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        soak.remarks.append(f"The import ended with exit code {done.returncode}: {''.join(last)}")
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
    soak.database.fail_over()
    recover(soak)


def recover(soak: Soak) -> None:
    """Waits until a write is acknowledged again."""
    if not soak.load.wait_for_a_write(LONGEST_RECOVERY_SECONDS):
        soak.remarks.append(f"No write was acknowledged for {LONGEST_RECOVERY_SECONDS:.0f} s after an event.")


EVENTS: dict[str, Callable[[Soak], None]] = {
    "a replica is killed": kill_replica,
    "a replica drains": drain_replica,
    "Postgres crashes": restart_database,
    "the database is cut off": cut_off_database,
    "an import": import_offers,
    "the standby is promoted": fail_over,
}


def happen(soak: Soak) -> list[Event]:
    """Lets each event happen in its turn, with quiet time before and after each. Returns when they happened."""
    slot = soak.seconds / len(EVENTS)
    quiet = slot * QUIET_SHARE / 2
    events = []
    for name, action in EVENTS.items():
        sleep(quiet)
        print(f"{name[0].upper()}{name[1:]}.", file=sys.stderr, flush=True)
        began = perf_counter()
        action(soak)
        events.append(Event(name, began, perf_counter()))
        sleep(max(quiet, slot - quiet - (perf_counter() - began)))
    return events
