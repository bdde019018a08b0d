"""The gate for continuous integration: does a run cost more than its baseline, or more than its budget?"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from service.domain.money import MICRO, Micros, exact


class Outcome(StrEnum):
    """Whether the cost passes the gate; unknown where the known part of it passes, and the rest has no known cost."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Gate:
    """Limits on the likely cost: a baseline with the percentage by which the cost may exceed it, and a budget."""

    baseline_usd: float | None = None
    fail_above_percent: float = 0.0
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the likely total passes the gate, and by which percentage it differs from the baseline.

    `over_budget` is None without a budget, and `change_percent` without a baseline above 0. Both are about the known
    part of the cost, which is a lower bound where something is `missing`.
    """

    outcome: Outcome
    gate: Gate
    usd: Micros | None
    missing: tuple[str, ...]
    change_percent: float | None
    over_budget: bool | None


def verdict(usd: Micros | None, gate: Gate, missing: tuple[str, ...] = (), *, lower_bound: bool = False) -> Verdict:
    """Fails a total that is over budget or too far over the baseline; a lower bound that is neither does not pass."""
    if usd is None:
        return Verdict(Outcome.UNKNOWN, gate, None, missing, None, None)
    total, change, over_baseline = Fraction(usd.likely, MICRO), None, False
    if gate.baseline_usd is not None:
        baseline = exact(gate.baseline_usd)
        # In exact fractions, a cost at precisely the limit passes; floats could miss it by a rounding.
        over_baseline = total > baseline * (1 + exact(gate.fail_above_percent) / 100)
        change = float((total / baseline - 1) * 100) if baseline else None
    over_budget = None if gate.budget_usd is None else total > exact(gate.budget_usd)
    kept = Outcome.UNKNOWN if lower_bound else Outcome.PASS
    return Verdict(Outcome.FAIL if over_baseline or over_budget else kept, gate, usd, missing, change, over_budget)
