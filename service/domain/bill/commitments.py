"""The cost of a commitment: an hour costs less than on demand, but every hour of the term is paid for, used or not.

The price of a reserved offer is the whole cost of its term over all its hours, however much of it is paid at the start.
"""

from dataclasses import dataclass
from fractions import Fraction

from service.domain.bill.bill import HourlyPrice
from service.domain.catalog.tariffs import Commitment
from service.domain.money import NOTHING, USD, Exact, ExchangeRate, Micros, converted


@dataclass(frozen=True, slots=True)
class CommittedCost:
    """The cost of a commitment and the part of it that a run uses. Dollars are None where no exchange rate is known.

    `held` says whether the caller pays for the term anyway; the bill then has only the hours that the run uses.
    `usd_upfront` is the part that is paid at the start of the term, None where the payment plan does not say.
    `usd_used` and `used_share` are None for a run without hours, for which one term is shown.

    `break_even_utilisation` is the share of a term that must be used for the commitment to cost no more than on-demand,
    and `break_even_hours` the same in hours. With a share above 1 a commitment never pays. Both are None where no
    on-demand price in the same currency is known. A machine sold by the day has no fixed term and no break-even hours.
    """

    plan: str
    held: bool
    usd_used: Micros | None
    usd_committed: Micros | None
    usd_upfront: Micros | None
    committed_hours: Exact
    used_share: float | None
    break_even_utilisation: float | None
    break_even_hours: float | None


def committed_cost(
    commitment: Commitment,
    used: Exact | None,
    machines: int,
    price: HourlyPrice,
    on_demand: HourlyPrice | None,
    rate: ExchangeRate | None,
    *,
    held: bool = False,
) -> CommittedCost:
    """Returns the cost of the used hours on each of a number of machines, with a commitment for each machine."""
    committed = commitment.billed_hours(used or NOTHING)
    share = None
    # The ratio of prices in two currencies would change daily with the exchange rate.
    if on_demand is not None and on_demand.currency == price.currency:
        share = Fraction(price.micros_per_hour, on_demand.micros_per_hour)
    share_upfront, per_hour = commitment.paid_upfront, price.per_hour
    usd_used, usd_committed, usd_upfront = (
        None if hours is None else converted(hours.times(machines).by(per_hour), price.currency, USD, rate)
        for hours in (used, committed, None if share_upfront is None else committed.times(share_upfront))
    )
    return CommittedCost(
        plan=commitment.plan,
        held=held,
        usd_used=None if usd_used is None else usd_used.micros,
        usd_committed=None if usd_committed is None else usd_committed.micros,
        usd_upfront=None if usd_upfront is None else usd_upfront.micros,
        committed_hours=committed,
        used_share=None if used is None else used.likely / committed.likely,
        break_even_utilisation=None if share is None else float(share),
        break_even_hours=None if share is None or commitment.hours is None else float(commitment.hours * share),
    )
