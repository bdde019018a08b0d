"""Commitments: an hour costs less, and every hour of the term is paid for, used or not.

The `term` of a reserved offer names the length, the plan and how it is paid, such as `1y_reserved_no_upfront`,
`3y_savings_plan_all_upfront` or `3y_committed_use`; a `capacity_block` is paid by the day. The price of the offer is
the whole cost of the term over all its hours, whatever part is paid at the start.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from service.domain.bill.bill import HourlyPrice
from service.domain.money import USD, Exact, ExchangeRate, Micros, converted
from service.domain.units import HOURS_A_DAY

HOURS_A_YEAR = 8760
CAPACITY_BLOCK = "capacity_block"
BLOCK_DAYS = 14
"""Capacity Blocks are sold in days up to this length and in weeks beyond, to 182 days (AWS, EC2 user guide)."""

TERM = re.compile(r"(\d+)([ymd])_(\w+)")
HOURS_OF = {"y": HOURS_A_YEAR, "m": HOURS_A_YEAR // 12, "d": HOURS_A_DAY}

PAID_UPFRONT = {"all_upfront": 1, "no_upfront": 0, "committed_use": 0, CAPACITY_BLOCK: 1}
"""Share of a term that is paid at its start, by the end of a plan's name: AWS charges Capacity Blocks in advance, and
Google bills committed use every month. The share of other plans differs from offer to offer."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """A plan and the hours of one term; None for a capacity block, which has as many days as it needs."""

    plan: str
    hours: int | None

    @property
    def paid_upfront(self) -> int | None:
        """Returns the share of the term that is paid at its start; None where the plan does not say."""
        return next((share for ending, share in PAID_UPFRONT.items() if self.plan.endswith(ending)), None)

    def committed(self, used: Fraction) -> int:
        """Returns the hours paid for in order to use so many: whole terms, one at least."""
        term = self.hours or HOURS_A_DAY
        # One term is paid for even if nothing of it is used.
        terms = max(1, ceil(used / term))
        if self.hours is None and terms > BLOCK_DAYS:
            terms = ceil(terms / 7) * 7
        return terms * term


def commitment_in(term: str | None) -> Commitment | None:
    """Returns the commitment that a term names; None where the name does not say."""
    if term == CAPACITY_BLOCK:
        return Commitment(CAPACITY_BLOCK, None)
    match = TERM.fullmatch(term or "")
    return Commitment(match[3], int(match[1]) * HOURS_OF[match[2]]) if match else None


@dataclass(frozen=True, slots=True)
class CommittedCost:
    """How much of a commitment a run uses, and the cost of all of it; in USD, None where no exchange rate is known.

    `usd_upfront` is the part that is paid at the start of the terms, None where the plan does not say.

    `break_even_utilisation` is the share of a term, and `break_even_hours` the hours of one, that must be used for the
    commitment to cost no more than on-demand. A share above 1 never pays. Both are None where no on-demand price in the
    same currency is known; a block has no one term, and so no break-even hours.
    """

    plan: str
    usd_used: Micros | None
    usd_committed: Micros | None
    usd_upfront: Micros | None
    committed_hours: Exact
    used_share: float
    break_even_utilisation: float | None
    break_even_hours: float | None


def committed_cost(
    commitment: Commitment,
    used: Exact,
    machines: int,
    price: HourlyPrice,
    on_demand: HourlyPrice | None,
    rate: ExchangeRate | None,
) -> CommittedCost:
    """Returns the cost of so many billed hours on each of some machines, under a commitment for each of them."""
    committed = Exact.of_fractions(*(Fraction(commitment.committed(hours)) for hours in used.fractions))
    share = None
    # Prices in two currencies have a ratio that moves with the exchange rate from day to day.
    if on_demand is not None and on_demand.currency == price.currency:
        share = Fraction(price.micros_per_hour, on_demand.micros_per_hour)
    share_upfront, per_hour = commitment.paid_upfront, price.per_hour
    usd_used, usd_committed, usd_upfront = (
        converted(hours.times(machines).by(per_hour), price.currency, USD, rate)
        for hours in (used, committed, committed.times(share_upfront or 0))
    )
    return CommittedCost(
        plan=commitment.plan,
        usd_used=None if usd_used is None else usd_used.micros,
        usd_committed=None if usd_committed is None else usd_committed.micros,
        usd_upfront=None if share_upfront is None or usd_upfront is None else usd_upfront.micros,
        committed_hours=committed,
        used_share=used.band.likely / committed.band.likely,
        break_even_utilisation=None if share is None else float(share),
        break_even_hours=None if share is None or commitment.hours is None else float(commitment.hours * share),
    )
