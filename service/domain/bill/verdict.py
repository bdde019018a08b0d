"""The gate for continuous integration: does a run cost more than it did, or more than it may?"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from service.domain.money import MICRO, Micros, exact

Outcome = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Pass or fail, the sentence that says why, and by how many percent the cost moved against the baseline."""

    outcome: Outcome
    sentence: str
    change_percent: float | None


def verdict(
    usd: Micros | None,
    *,
    what: str = "The run",
    missing: tuple[str, ...] = (),
    baseline_usd: float | None = None,
    fail_above_percent: float | None = None,
    budget_usd: float | None = None,
) -> Verdict:
    """Asked of the likely total. What is not known cannot pass; a lower bound passes with what it leaves out told.

    It fails when the total is more than `fail_above_percent` (0 where not given) above the baseline, or above the
    budget; to cost exactly as much as allowed is to pass.
    """
    if usd is None:
        return Verdict("fail", f"The cost is not known. {' '.join(missing)}".strip(), None)
    total = Fraction(usd.likely, MICRO)
    change = percent_above(total, baseline_usd)
    sentence = f"{what} costs {'at least ' if missing else ''}${total_text(total)}"
    failed = False
    if baseline_usd is not None:
        allowed = exact(fail_above_percent or 0.0)
        limit = exact(baseline_usd) * (1 + allowed / 100)
        failed = total > limit
        sentence += (
            f", {compared(total, change)} the baseline of ${total_text(exact(baseline_usd))}, "
            f"and {float(allowed):g} % more is allowed"
        )
    if budget_usd is not None:
        over = total > exact(budget_usd)
        failed = failed or over
        sentence += ", which is" if baseline_usd is None else "; it is"
        sentence += f" {'over' if over else 'within'} the budget of ${total_text(exact(budget_usd))}"
    sentence += "."
    if missing:
        sentence += f" Not counted: {' '.join(missing)}"
    return Verdict("fail" if failed else "pass", sentence, None if change is None else round(float(change), 2))


def percent_above(total: Fraction, baseline_usd: float | None) -> Fraction | None:
    if not baseline_usd:
        return None
    return (total / exact(baseline_usd) - 1) * 100


def compared(total: Fraction, change: Fraction | None) -> str:
    if change is None:
        return "as much as" if total == 0 else "more than"
    if change == 0:
        return "exactly"
    return f"{abs(float(change)):.3g} % {'above' if change > 0 else 'below'}"


def total_text(amount: Fraction) -> str:
    """Dollars and cents, and as many digits of a cent as it takes to show that it is not nothing."""
    return f"{float(amount):,.2f}" if amount >= Fraction(1, 100) or amount == 0 else f"{float(amount):.6f}"
