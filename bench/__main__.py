"""Measures how fast the service answers, relative to no-ops on the same machine: `python -m bench`.

Exits 1 when a figure fails its gate.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.catalogs import instance_names, make_catalogs
from bench.rounds import Plan, measure
from bench.verdict import FEWEST, FIFTY_THOUSAND, MOST, arm_table, gated, noop_table, server_table, verdict_table

WHOLE = Plan(rounds=3, seconds_alone=0.4, seconds_together=0.7, starts=5)
QUICK = Plan(rounds=1, seconds_alone=0.2, seconds_together=0.3, starts=1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure how fast the service answers.")
    parser.add_argument("--quick", action="store_true", help="one short round, in less than three minutes")
    parser.add_argument("--rounds", type=int, help="the number of rounds; the median of all rounds counts")
    asked = parser.parse_args()
    plan = QUICK if asked.quick else WHOLE
    if asked.rounds:
        plan = plan.of_rounds(asked.rounds)
    with TemporaryDirectory(prefix="bench-") as folder:
        print("Making the catalogs.", file=sys.stderr, flush=True)
        sizes = (FEWEST, FIFTY_THOUSAND, MOST) if asked.quick else (None, FEWEST, FIFTY_THOUSAND, MOST)
        databases = make_catalogs(Path(folder), sizes)
        found = measure(plan, databases, instance_names(min(databases.items())[1]), Path(folder) / "bytecode")
    lines = list(gated(found, list(databases)))
    print(
        noop_table(found),
        arm_table(found, list(databases)),
        server_table(found),
        f"At {MOST:,} offers, one worker, median of {plan.rounds} rounds:",
        verdict_table(lines),
        sep="\n\n",
    )
    failed = [line.name for line in lines if line.verdict == "FAILS"]
    print("\n" + (f"Below the gate: {'; '.join(failed)}." if failed else "Every gate is passed."))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
