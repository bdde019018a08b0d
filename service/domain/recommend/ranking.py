"""Candidates in the order of an objective: the best of each type, the Pareto front, ties and fallbacks."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import inf, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import SPOT, Offers
from service.domain.layouts.fleet_columns import EstimateColumns
from service.domain.pareto import pareto
from service.domain.recommend.objective import CRITERIA, EVEN, Figures, Objective, compared, scores
from service.domain.recommend.plans import Plans
from service.domain.selection.offers import AdmittedOffers, CheapestOffers
from service.domain.typeset import ThresholdIndex, TypeSet, types_where

PEAKS_APART = log(1.1)
"""Smallest difference of peaks, as a logarithm, that shows which machine is faster. Of rates that are scaled by peaks,
eight in ten are 0.47 to 2.11 times the estimate (`SCALED_BANDS`)."""

INCOMPLETE = 1e3
"""A number above any score of known dollars: an unknown charge is not 0, so incomplete bills rank after known ones."""

NO_WORSE_THAN = log(2.0) + EVEN
"""Largest distance of a fallback's score from the best one: twice as bad, as scores are logarithms."""


@dataclass(frozen=True)
class Ranked:
    """Candidates, best first. Unknown costs and hours are NaN.

    Scores are sums of logarithms relative to the best, so leaving candidates out shifts all others by the same amount
    and keeps their order.
    """

    instance_type: Indices
    offer: Indices
    usd: Floats
    """Price per hour, to which limits refer."""
    cost: Floats
    """Cost of the job; without one, of an hour."""
    hours: Floats
    """Hours by which the objective ranks: of the job, of a request of a load, or of a unit of work."""
    score: Floats
    """Score by the objective, less is better; infinite for candidates that miss a limit on the whole job."""
    candidate: Indices
    """Index of each candidate in the columns before ordering."""
    plans: Plans | None
    """Plans of the columns before ordering, if there is a job."""
    unknown: TypeSet
    """Types whose score is unknown. It may be known among fewer candidates, if none of these has the figure either."""

    def rows(self, indices: NDArray[Any]) -> "Ranked":
        """Returns some of the rows, by index or mask."""
        columns = ("instance_type", "offer", "usd", "cost", "hours", "score", "candidate")
        return replace(self, **{name: getattr(self, name)[indices] for name in columns})

    @property
    def _first(self) -> Indices:
        """The first row of each type; the number of rows for a type that has none."""
        rows = np.arange(len(self.instance_type))
        first = np.full(int(self.instance_type.max(initial=-1)) + 1, len(rows))
        first[self.instance_type[::-1]] = rows[::-1]  # of several rows of a type, the first is written last
        return first

    @cached_property
    def _places(self) -> ThresholdIndex:
        """An index for the first row of any set of types."""
        return ThresholdIndex.of(self._first.astype(np.float64))

    def first_row(self, admitted: AdmittedOffers) -> int:
        """Returns the first row of the admitted offers, of which there is at least one."""
        row = int(self._places.least(admitted.types))
        if admitted.limit is None or self.usd[row] <= admitted.limit:
            return row
        # That offer is above the limit, so the rows are searched for the first one within it.
        return int(admitted.among(self.instance_type, self.usd).argmax())

    def keeping_limits(self) -> "Ranked":
        """Returns the rows that keep the limits on the whole job."""
        return self if self.plans is None else self.rows(self.score != inf)

    def best_of_each(self) -> "Ranked":
        """Returns the best row of each instance type."""
        return self.rows(self._first[self.instance_type] == np.arange(len(self.instance_type)))

    def front(self, limit: int) -> list[bool]:
        """Returns for each of the first rows whether it is on the Pareto front of all rows."""
        return pareto(self.cost, -self.hours, min(limit, len(self.score)))


def rank(
    candidates: CheapestOffers, objective: Objective, figures: Figures, incomplete: Mask, plans: Plans | None,
    catalog: Catalog,
) -> Ranked:  # fmt: skip
    """Returns the candidates, best score first; equal scores by cost, price, machines, market (spot last) and name.

    A price that no recent observation confirms ranks at the high end of what it is believed to be. `incomplete` says
    which dollars are a lower bound.
    """
    score = scores(objective, figures.at_prices(catalog.offers.ranking_factor(candidates.offer)))
    cost = np.where(incomplete, np.nan, figures.usd)
    if objective.needs("price"):
        score = score + INCOMPLETE * incomplete
    if plans is not None:
        score = np.where(plans.keeps, score, np.inf)
    spot = catalog.offers.market[candidates.offer] == SPOT
    dollars, per_hour = (np.nan_to_num(usd, nan=np.inf) for usd in (compared(cost), figures.usd_per_hour))
    # `lexsort` sorts by its last key first.
    order = np.lexsort(
        (candidates.offer, candidates.instance_type, spot, figures.machines, per_hour, dollars, compared(score))
    )
    lacking = np.bincount(candidates.instance_type[np.isnan(score)], minlength=len(catalog.instance_types))
    return Ranked(
        instance_type=candidates.instance_type[order],
        offer=candidates.offer[order],
        usd=candidates.usd[order],
        cost=cost[order],
        hours=figures.hours[order],
        score=score[order],
        candidate=order,
        plans=plans,
        unknown=types_where(lacking > 0),
    )


# Fallbacks


def fallbacks(
    score: Floats, domains: Sequence[NDArray[Any]], limit: int, once: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Returns indices of candidates to try, the best first; scores are in ascending order.

    Each next one shares the fewest failure domains (family, region, market) with the earlier ones; of those that share
    as few, it has the best score. No value of `once`, such as the instance type, is taken twice.
    """
    shared, taken = np.zeros(len(score)), np.zeros(len(score), np.bool_)
    far = np.zeros(len(score)) if not len(score) else np.where(score <= score[0] + NO_WORSE_THAN, 0.0, 1e9)
    picked: list[int] = []
    while len(picked) < limit and not taken.all():
        index = int(np.argmin(np.where(taken, np.inf, shared + far)))
        picked.append(index)
        taken |= np.arange(len(score)) == index if once is None else once == once[index]
        for domain in domains:
            shared += domain == domain[index]
    return np.array(picked, np.int64)


# Ties


class Uncertain(NamedTuple):
    """The score of a choice, and how far it may be off.

    `better` and `worse` are the changes of the score at the ends of the estimate's band, `price_better` and
    `price_worse` those at the ends of the price's band. Estimates of the same hardware err together, so that only
    prices can change their order.
    """

    score: float
    better: float
    worse: float
    hardware: Hashable
    price_better: float = 0.0
    price_worse: float = 0.0


def tie_distance_of_peaks(objective: Objective) -> float:
    """Returns the difference of scores up to which peaks do not order choices whose prices are certain."""
    speeds = [name for name in objective.criteria if CRITERIA[name].is_speed]
    others = {*objective.criteria} - {*speeds}
    return PEAKS_APART * sum(objective.weights[name] for name in speeds) if others <= {"fewer_gpus"} else EVEN


def uncertain(
    score: float,
    weight: float,
    columns: EstimateColumns,
    index: int,
    instance_type: InstanceType,
    nodes: float,
    *,
    measured: bool,
) -> Uncertain:
    """Returns the uncertainty of one choice; `weight` is how much a speed counts in the score."""
    low, likely, high = columns.low.item(index), columns.likely.item(index), columns.high.item(index)
    gpu = instance_type.gpu.id if instance_type.gpu else None
    hardware: Hashable = (gpu, instance_type.gpu_count, instance_type.interconnect, nodes)
    if measured:  # the error of a measurement is its own
        hardware = instance_type.id
    if not 0 < low <= likely <= high < inf:
        return Uncertain(score, 0.0, 0.0, hardware)
    return Uncertain(score, weight * log(high / likely), weight * log(likely / low), hardware)


def ties(ranked: Sequence[Uncertain], shown: int) -> list[tuple[int, ...]]:
    """Returns, for each of the first `shown` choices, the ranks of the choices that are tied with it by `tie`."""
    # Scores rise with the rank, except among fallbacks.
    order = np.argsort([one.score for one in ranked], kind="stable").tolist()
    tied: list[list[int]] = [[] for _ in ranked]
    widest = max((max(one.price_better, one.price_worse) for one in ranked), default=0.0)
    last = max((position for position, place in enumerate(order) if place < shown), default=-1)
    for position, place in enumerate(order[: last + 1]):
        one = ranked[place]
        reach = max(EVEN, one.worse) + one.price_worse + widest
        for other in islice(order, position + 1, None):
            # All later ones have higher scores, so the first one that no band reaches ends the search.
            if ranked[other].score - one.score > reach:
                break
            if tie(one, ranked[other]):
                tied[place].append(other + 1)
                tied[other].append(place + 1)
    return [tuple(sorted(ranks)) for ranks in tied[:shown]]


def tie(first: Uncertain, second: Uncertain) -> bool:
    """Returns whether two choices are tied: the lead of the first over the second is within their uncertainty.

    For estimates, each likely score must lie within the other's band. For prices, it is enough that bands overlap.
    """
    lead = second.score - first.score - first.price_worse - second.price_better
    if first.hardware == second.hardware:
        return lead <= EVEN
    return lead <= max(EVEN, min(first.worse, second.better))


def with_prices(estimates: Sequence[Uncertain], weight: float, offers: Offers, rows: Indices) -> list[Uncertain]:
    """Returns the choices with the uncertainty of believed prices; `weight` is that of a price in the score."""
    columns = (offers.low, offers.likely, offers.high, offers.old)
    believed = zip(estimates, *[column[rows].tolist() for column in columns], strict=True)
    uncertain = []
    for one, low, likely, high, old in believed:
        ranked_at = high if old else likely
        better, worse = weight * log(ranked_at / low), weight * log(high / ranked_at)
        uncertain.append(Uncertain(one.score, one.better, one.worse, one.hardware, better, worse))
    return uncertain


def weight_of_speed(objective: Objective, *, has_amount: bool) -> float:
    """Returns how much the score changes with the logarithm of a speed; dollars of a whole job change with it too."""
    return objective.weight_of("speed", "price") if has_amount else objective.weight_of("speed")
