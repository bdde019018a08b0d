"""A what-if: one job over machines, markets, regions and nodes, compared by dollars and hours."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from service.domain.band import Band
from service.domain.bill.market_bills import MarketBill, representative
from service.domain.catalog.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.estimate.estimate import EstimateAnswer, EstimateQuestion, estimate, physics_of
from service.domain.estimate.work import Physics
from service.domain.pareto import pareto


@dataclass(frozen=True, slots=True)
class Combination:
    """One combination and the bill that represents its run.

    `hours` are `Bill.run_hours`. `on_front` says that no other combination is faster and no more expensive, or cheaper
    and no slower, by the likely figures; for loads, by the dollars of a month and the seconds of a request.
    """

    index: int
    answer: EstimateAnswer
    bill: MarketBill | None
    hours: Band | None
    on_front: bool = False

    @property
    def likely_micros(self) -> int | None:
        """Returns the likely total, or that of a load's month, in millionths of a dollar; None where it is unknown."""
        return None if self.bill is None or self.bill.total is None else self.bill.total.likely


def what_if(
    questions: Iterable[tuple[int, EstimateQuestion]], catalog: Catalog
) -> tuple[list[Combination], dict[int, QuestionError]]:
    """Returns the combinations by likely dollars, then those of unknown cost; and the errors of refused questions.

    Each question comes with its index. The physics of a job is computed once for each machine and number of nodes.
    """
    # Markets and regions change the price of a machine and not its physics.
    known: dict[Hashable, Physics] = {}
    combinations, refused = [], {}
    for index, question in questions:
        machine = None if question.instance_type is None else question.instance_type.id
        place = (question.work, machine, question.run.nodes)
        try:
            if place not in known:
                known[place] = physics_of(question, catalog)
            answer = estimate(question, catalog, known[place])
        except QuestionError as error:
            refused[index] = error
            continue
        bill = representative(answer.bills)
        combinations.append(Combination(index, answer, bill, _hours(bill)))
    combinations.sort(key=lambda each: (each.likely_micros is None, each.likely_micros or 0))
    front = on_front([_point(combination) for combination in combinations])
    return [replace(combination, on_front=good) for combination, good in zip(combinations, front, strict=True)], refused


def on_front(points: list[tuple[float, float] | None]) -> list[bool]:
    """Returns for each point of dollars and hours whether it is on the Pareto front; equal points all are."""
    known = sorted({point for point in points if point is not None})
    usd, hours = np.array(known, np.float64).reshape(-1, 2).T
    front = {point for point, good in zip(known, pareto(usd, -hours, len(known)), strict=True) if good}
    return [point in front for point in points]


def _hours(bill: MarketBill | None) -> Band | None:
    return None if bill is None or bill.bill is None else bill.bill.run_hours.band


def _point(combination: Combination) -> tuple[float, float] | None:
    """Returns likely dollars, and hours or the seconds of a request of a load; None where one of them is unknown."""
    micros, hours, served = combination.likely_micros, combination.hours, combination.answer.served
    if hours is not None:
        return None if micros is None else (micros, hours.likely)
    return None if micros is None or served is None else (micros, served.seconds_per_request)
