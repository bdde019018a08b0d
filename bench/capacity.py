"""Says how many processes a load needs and what they cost: `python -m bench.capacity`.

Measures the CPU time of each kind of question, and then simulates processes behind a balancer. Prices are of the seed.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.catalogs import instance_names, make_catalogs
from bench.figures import percentile
from bench.load import ask
from bench.questions import ALIVE, ESTIMATED, GPU_NAMED, LISTED, ONE_INSTANCE, TRAINED, Question
from bench.servers import SERVICE_COMMAND, Server, environment, running
from bench.verdict import shown, table
from service.files import SEED

SHARES: Mapping[Question, float] = {LISTED: 0.55, ONE_INSTANCE: 0.15, GPU_NAMED: 0.24, ESTIMATED: 0.055, TRAINED: 0.005}
MACHINE, REGION, CORES = ("aws", "c6i.xlarge"), "us-east-1", 4
SECONDS = 3.0
SIMULATED = 200_000
QUEUE_P99_SECONDS = 0.1
"""How long one question in a hundred may take in all."""

BUSIEST = 0.7
"""The largest share of its time for which a process may be busy, so that a peak or a lost machine is no outage."""

HOURS_PER_MONTH = 730
GB = 1000**3


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one question of a kind."""

    cpu_seconds: float
    answer_bytes: int


@dataclass(frozen=True, slots=True)
class Price:
    """A price of the seed, with its day."""

    usd: float
    observed_on: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.capacity", description="Say what a load needs and costs.")
    parser.add_argument("--per-second", type=float, default=10_000, help="questions per second")
    asked = parser.parse_args()
    with TemporaryDirectory(prefix="bench-") as folder:
        ((_, database),) = make_catalogs(Path(folder), [None]).items()
        variables = environment(Path(folder) / "bytecode", database) | {"SELECTOR_FEEDS": "off"}
        with running(SERVICE_COMMAND, variables, ALIVE) as server:
            costs = {question: cost_of(server, question, instance_names(database)) for question in SHARES}
    print(kinds_table(costs), *sentences(costs, asked.per_second), sep="\n\n")
    return 0


def cost_of(server: Server, question: Question, instances: Sequence[str]) -> Cost:
    used = server.cpu_seconds()
    asked = ask(server.port, question.requests(0, instances), 1, SECONDS)
    assert set(asked.statuses) == {200}, asked.statuses
    return Cost((server.cpu_seconds() - used) / asked.statuses[200], asked.answer_bytes)


def kinds_table(costs: Mapping[Question, Cost]) -> str:
    rows = [
        (question.name, f"{SHARES[question]:.1%}", shown(cost.cpu_seconds * 1000), shown(cost.answer_bytes / 1000))
        for question, cost in costs.items()
    ]
    return table(("question", "share", "CPU ms", "kB"), rows)


def mean(costs: Mapping[Question, Cost]) -> Cost:
    """Returns the cost of a question of the whole mixture."""
    seconds = sum(SHARES[question] * cost.cpu_seconds for question, cost in costs.items())
    return Cost(seconds, round(sum(SHARES[question] * cost.answer_bytes for question, cost in costs.items())))


def sentences(costs: Mapping[Question, Cost], per_second: float) -> Iterator[str]:
    """Yields the numbers of processes and machines, and the costs, each as a sentence."""
    middle, machine, traffic = mean(costs), price_of_machine(), price_of_traffic()
    seconds = [costs[question].cpu_seconds for question in SHARES]
    services = Random(1).choices(seconds, list(SHARES.values()), k=SIMULATED)  # noqa: S311
    needed = fewest_processes(services, per_second)
    machines = -(-needed // CORES) + 1  # one more, which may fail or be replaced
    p50, p99 = (percentile(sorted(waits(services, per_second, needed)), percent) for percent in (50, 99))
    busy = per_second * middle.cpu_seconds / needed
    yield (
        f"{per_second:,.0f} questions/s need {needed} processes, each on a core like this machine's: "
        f"p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, busy {busy:.0%} of the time."
    )
    per_hour = machines * machine.usd
    yield (
        f"With one machine to spare, {machines} × {'/'.join(MACHINE)} run them, for ${per_hour:.2f} an hour "
        f"or ${per_hour * HOURS_PER_MONTH:,.0f} a month (${machine.usd} an hour, {machine.observed_on})."
    )
    hours_per_million = 1e6 / per_second / 3600
    yield (
        f"A million questions cost ${hours_per_million * per_hour:.3f} for machines, and their answers "
        f"${1e6 * middle.answer_bytes / GB * traffic.usd:.2f} where they leave the cloud "
        f"({middle.answer_bytes / 1000:.0f} kB each, ${traffic.usd} a GB, {traffic.observed_on}): "
        f"{per_second * middle.answer_bytes * 8 / GB:.1f} Gbit/s."
    )


def fewest_processes(services: Sequence[float], per_second: float) -> int:
    """Returns the smallest number of processes that are not too busy and keep the limit on the p99."""
    processes = ceil(per_second * sum(services) / len(services) / BUSIEST)
    while percentile(sorted(waits(services, per_second, processes)), 99) > QUEUE_P99_SECONDS:
        processes += 1
    return processes


def waits(services: Sequence[float], per_second: float, processes: int) -> Iterator[float]:
    """Yields the seconds from each question to its answer.

    Questions arrive at random and go to the process with the fewest of them, as with `balance leastconn`. A process
    answers one after another in their order.
    """
    chance, now = Random(2), 0.0  # noqa: S311
    free_at, waiting, ends = [0.0] * processes, [0] * processes, list[tuple[float, int]]()
    order = [(0, chance.random(), process) for process in range(processes)]
    for service in services:
        now += chance.expovariate(per_second)
        while ends and ends[0][0] <= now:
            _, process = heappop(ends)
            waiting[process] -= 1
            heappush(order, (waiting[process], chance.random(), process))
        while True:
            length, _, process = heappop(order)
            if length == waiting[process]:  # otherwise it is an older entry
                break
        free_at[process] = max(now, free_at[process]) + service
        waiting[process] += 1
        heappush(ends, (free_at[process], process))
        heappush(order, (waiting[process], chance.random(), process))
        yield free_at[process] - now


def rows_of(file_name: str, **wanted: str) -> list[dict[str, str]]:
    with (SEED / file_name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if wanted.items() <= row.items()]


def price_of_machine() -> Price:
    """Returns the newest on-demand price of the machine."""
    provider, name = MACHINE
    rows = rows_of("prices.csv", provider=provider, name=name, region=REGION, market="on_demand")
    newest = max(rows, key=lambda row: row["observed_on"])
    return Price(float(newest["per_hour"]), newest["observed_on"])


def price_of_traffic() -> Price:
    """Returns the price of the first gigabytes that are not free."""
    rows = rows_of("transfer_prices.csv", provider=MACHINE[0], from_region=REGION, destination="internet")
    newest = max(row["valid_from"] for row in rows)
    usd = next(float(row["usd_per_gb"]) for row in rows if row["valid_from"] == newest and float(row["usd_per_gb"]))
    return Price(usd, newest)


if __name__ == "__main__":
    sys.exit(main())
