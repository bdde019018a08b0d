"""The gate for CI: one entry of the costs against a baseline and a budget."""

from service.api.estimate.cost_request import CostRequest
from service.api.estimate.cost_response import CostResponse, VerdictResponse
from service.domain.bill.verdict import Outcome, verdict
from service.domain.money import MICRO, Micros, exact, half_up


def judged(asked: CostRequest, costs: list[CostResponse]) -> tuple[Outcome | None, VerdictResponse | None]:
    """The verdict on one entry: plain on-demand where it was asked, else the cheapest that is known."""
    if asked.baseline is None and asked.budget_usd is None:
        return None, None
    entry = spoken_of(costs)
    usd, missing = (None, ["Nothing is offered."]) if entry is None else (entry.usd, entry.missing)
    what = "The run"
    if entry is not None and usd is None and entry.month is not None and entry.month.usd is not None:
        what, usd, missing = f"A month of the load ({entry.month.text.rstrip('.')})", entry.month.usd, []
    found = verdict(
        None if usd is None else Micros(*(half_up(exact(each) * MICRO) for each in (usd.low, usd.likely, usd.high))),
        what=what,
        missing=tuple(missing),
        baseline_usd=None if asked.baseline is None else asked.baseline.usd,
        fail_above_percent=None if asked.baseline is None else asked.baseline.fail_above_percent,
        budget_usd=asked.budget_usd,
    )
    told = VerdictResponse(
        sentence=found.sentence,
        usd=usd,
        change_percent=found.change_percent,
        market=None if entry is None else entry.market,
        term=None if entry is None else entry.term,
        region=None if entry is None else entry.region,
    )
    return found.outcome, told


def spoken_of(costs: list[CostResponse]) -> CostResponse | None:
    """The entry that stands for the run: the cheapest on-demand one, else the cheapest; known totals first."""
    return min(
        costs,
        key=lambda each: (
            each.market != "on_demand" or each.managed_service is not None,
            each.usd is None,
            each.usd.likely if each.usd else 0.0,
        ),
        default=None,
    )
