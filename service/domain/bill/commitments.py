"""Commitments: an hour costs less, and every hour of the term is paid for, used or not.

An offer of the market `reserved` tells its `term`: the length, the plan and how it is paid, as in
`1y_reserved_no_upfront`, `3y_savings_plan_all_upfront` or `3y_committed_use`; a `capacity_block` is paid by the day.
Its price is the whole cost of the term over all its hours, whatever part is paid at the start.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from service.domain.bill.bill import HourlyPrice
from service.domain.money import Exact, Micros

HOURS_A_YEAR = 8760
HOURS_A_DAY = 24
CAPACITY_BLOCK = "capacity_block"
BLOCK_DAYS = 14
"""Capacity Blocks are sold in days up to this length and in weeks beyond, to 182 days (AWS, EC2 user guide)."""

TERM = re.compile(r"(\d+)([ymd])_(\w+)")
HOURS_OF = {"y": HOURS_A_YEAR, "m": HOURS_A_YEAR // 12, "d": HOURS_A_DAY}


@dataclass(frozen=True, slots=True)
class Commitment:
    """A plan and the hours that one term of it has; a capacity block has as many days as it needs."""

    plan: str
    hours: int | None

    def committed(self, used: Fraction) -> Fraction:
        """Hours paid for in order to use so many: whole terms, one at least."""
        if self.hours is None:
            return Fraction(block_days(used) * HOURS_A_DAY)
        return Fraction(max(1, ceil(used / self.hours)) * self.hours)


def block_days(hours: Fraction) -> int:
    days = max(1, ceil(hours / HOURS_A_DAY))
    return days if days <= BLOCK_DAYS else ceil(Fraction(days, 7)) * 7


def commitment_in(term: str | None) -> Commitment | None:
    """What a term commits to; None where its name does not say."""
    if term == CAPACITY_BLOCK:
        return Commitment(CAPACITY_BLOCK, None)
    found = TERM.fullmatch(term or "")
    return Commitment(found[3], int(found[1]) * HOURS_OF[found[2]]) if found else None


@dataclass(frozen=True, slots=True)
class CommittedCost:
    """What a run uses of a commitment and what the commitment costs, in millionths of the seller's currency.

    `break_even_utilisation` is the share of the term that must be used for the commitment to cost no more than
    on-demand; above 1 it never pays, and it is None where no on-demand price in the same currency is known.
    """

    plan: str
    uses: Micros
    commits: Micros
    committed_hours: Exact
    used_share: float
    break_even_utilisation: float | None


def committed_cost(
    commitment: Commitment, hours: Exact, machines: int, price: HourlyPrice, on_demand: HourlyPrice | None
) -> CommittedCost:
    """A run of so many billed hours on each of some machines, under a commitment for each of them."""
    committed = hours.each(commitment.committed)
    comparable = on_demand is not None and on_demand.currency == price.currency
    return CommittedCost(
        plan=commitment.plan,
        uses=hours.times(price.per_hour * machines).micros,
        commits=committed.times(price.per_hour * machines).micros,
        committed_hours=committed,
        used_share=float(hours.likely / committed.likely),
        break_even_utilisation=float(price.per_hour / on_demand.per_hour) if on_demand and comparable else None,
    )


def break_even_hours(commitment: Commitment, price: HourlyPrice, on_demand: HourlyPrice) -> float | None:
    """Hours of use in one term from which the commitment is cheaper; None for a block, which has no one term."""
    if commitment.hours is None or price.currency != on_demand.currency:
        return None
    return float(commitment.hours * price.per_hour / on_demand.per_hour)
