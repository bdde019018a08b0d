"""The gate for continuous integration: does a run cost more than its baseline, or more than its budget?"""

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from service.domain.money import MICRO, Micros, exact


class Outcome(StrEnum):
    """Whether the cost passes the gate."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Gate:
    """Limits on the likely cost: a baseline with the percentage by which the cost may exceed it, and a budget."""

    baseline_usd: float | None = None
    fail_above_percent: float = 0.0
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the likely total passes the gate, and by which percentage it differs from the baseline.

    `over_budget` is None without a budget, and `change_percent` without a baseline above 0.
    """

    outcome: Outcome
    gate: Gate
    usd: Micros | None
    missing: tuple[str, ...]
    change_percent: float | None
    over_budget: bool | None


def verdict(usd: Micros | None, gate: Gate, missing: tuple[str, ...] = ()) -> Verdict:
    """Fails a total that is unknown, over budget, or too far over the baseline; a lower bound may pass."""
    if usd is None:
        return Verdict(Outcome.FAIL, gate, None, missing, None, None)
    total, change, over_baseline = Fraction(usd.likely, MICRO), None, False
    if gate.baseline_usd is not None:
        baseline = exact(gate.baseline_usd)
        # In exact fractions, a cost at precisely the limit passes; floats could miss it by a rounding.
        over_baseline = total > baseline * (1 + exact(gate.fail_above_percent) / 100)
        change = float((total / baseline - 1) * 100) if baseline else None
    over_budget = None if gate.budget_usd is None else total > exact(gate.budget_usd)
    outcome = Outcome.FAIL if over_baseline or over_budget else Outcome.PASS
    return Verdict(outcome, gate, usd, missing, change, over_budget)
