"""A job on each offer: on how many nodes and instances, and what it then takes in hours and dollars.

Physics knows neither price nor market, and prices know no job; here they meet, for all candidates at once.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask
from service.domain.bill.interruption import Checkpoints, Expected, Rates, expected, gang_rate, spot_rates
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import MARKETS
from service.domain.jobs.job import Job
from service.domain.recommend.fleet import FleetEstimate, with_more_nodes
from service.domain.recommend.named_work import NamedWork
from service.domain.recommend.objective import Figures, Objective, compared, scores
from service.domain.selection.offers import AdmittedOffers, CheapestOffers
from service.domain.selection.relax import Check, Relaxation
from service.domain.typeset import TypeSet, mask_of, types_where

SPOT = MARKETS.index("spot")
SPEEDS = frozenset({"hours", "samples_per_second"})
"""Terms that more instances improve."""

WORSE = 1e6
"""Above any score: a plan that misses a limit comes after all that keep theirs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the whole job must keep: at the likely end of the estimates, or at the pessimistic one if `safe`."""

    deadline_hours: float | None = None
    budget_usd: float | None = None
    max_instances: int = 1
    """So many independent ones may share the work."""
    safe: bool = False

    @property
    def bind(self) -> bool:
        """Whether any is on the whole."""
        return self.deadline_hours is not None or self.budget_usd is not None


@dataclass(frozen=True, slots=True)
class Plans:
    """One entry per candidate: the best number of nodes and instances, and what comes of it.

    Without an amount of work there are no hours: dollars are those of an hour, and no limit is on the whole.
    """

    nodes: Floats
    instances: Floats
    option: NDArray[np.intp]
    """Which of the outlook's numbers of nodes it is."""
    works: Mask
    hours: Floats
    """Until it is done, with what interruptions cost and waiting for capacity; NaN without an amount."""
    rate: Floats
    """Samples per second of all instances, while they run."""
    figures: Figures
    """What the objective weighs."""
    ends: Mask
    """Interruptions leave it a chance to be done."""
    all_end: bool
    in_time: Mask
    """On some number of nodes, whatever it costs there."""
    affordable: Mask
    """On some number of nodes, however long it takes there."""
    keeps: Mask
    """It works and keeps every limit."""
    least_hours: Floats
    """Of the plans that keep the budget; infinite where there is none."""
    least_usd: Floats
    """Of the plans that are in time."""


def types_among(cells: CheapestOffers, where: Mask, types: int) -> TypeSet:
    """The types of the cells at which the mask is true."""
    return types_where(np.bincount(cells.instance_type[where], minlength=types) > 0)


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Each number of nodes (rows) for each candidate (columns)."""

    nodes: Floats
    instances: Floats
    rate: Floats
    hours: Floats
    figures: Figures
    works: Mask
    ends: Mask
    in_time: Mask
    affordable: Mask
    limited_hours: Floats
    """What the deadline is on, at the likely or the pessimistic end; and what the budget is on."""
    limited_usd: Floats

    @property
    def keeps(self) -> Mask:
        return np.asarray(self.in_time & self.affordable, np.bool_)


@dataclass(frozen=True, slots=True)
class Planner:
    """A job and what is wanted of it: what is planned of any candidates rests on this and on prices."""

    outlook: FleetEstimate[Job] | FleetEstimate[NamedWork]
    objective: Objective
    limits: Limits
    checkpoints: Checkpoints

    @property
    def key(self) -> tuple[object, ...]:
        return ("plans", self.outlook.key, self.objective.key, self.limits, self.checkpoints)

    def plans(self, cells: CheapestOffers, catalog: Catalog) -> Plans:
        return cells.orders.get_or_compute(self.key, lambda: self.find_plans(cells, catalog))

    # Amounts and limits may be next to nothing, or next to endless: what is too large to tell is infinite then, and
    # nothing divided by nothing is unknown.
    @np.errstate(divide="ignore", over="ignore", invalid="ignore")
    def find_plans(self, cells: CheapestOffers, catalog: Catalog) -> Plans:
        """On the number of nodes that the objective likes best of those that keep the limits, or comes nearest to."""
        ways = self.ways(cells, catalog)
        score = self.scores_of(ways)
        option = np.argmin(np.where(ways.keeps, score, np.where(ways.works, WORSE + self.missed(ways), np.inf)), axis=0)

        chosen = option * option.size + np.arange(option.size)

        def at(column: Floats) -> Floats:
            return np.asarray(column.ravel().take(chosen))

        def any_of(mask: Mask) -> Mask:
            return np.asarray(mask.any(axis=0), np.bool_)

        works, ends = any_of(ways.works), any_of(ways.ends)
        return Plans(
            nodes=at(ways.nodes),
            instances=at(ways.instances),
            option=option,
            works=works,
            hours=at(ways.hours),
            rate=at(ways.rate),
            figures=Figures(**{name: at(getattr(ways.figures, name)) for name in Figures.__dataclass_fields__}),
            ends=ends,
            all_end=not (works & ~ends).any(),
            in_time=any_of(ways.in_time),
            affordable=any_of(ways.affordable),
            keeps=any_of(ways.keeps),
            least_hours=np.fmin.reduce(np.where(ways.affordable, ways.limited_hours, np.inf), axis=0),
            least_usd=np.fmin.reduce(np.where(ways.in_time, ways.limited_usd, np.inf), axis=0),
        )

    def ways(self, cells: CheapestOffers, catalog: Catalog) -> NodeOptions:
        kinds, options = cells.instance_type, self.outlook.options
        works = np.array([option.works[kinds] for option in options])
        likely = np.where(works, np.array([option.likely[kinds] for option in options]), np.nan)
        nodes = np.broadcast_to(np.array(self.outlook.counts, np.float64)[:, None], works.shape)
        watts = catalog.columns.numbers["tdp_watts"][kinds] * nodes
        price = catalog.offers.usd_per_hour_at(cells.offer) * nodes
        spot = catalog.offers.market[cells.offer] == SPOT
        if self.outlook.job.amount is None:
            unknown = np.full(works.shape, np.nan)
            risk = np.broadcast_to(spot.astype(np.float64), works.shape)
            figures = Figures(price, price, 1 / likely, likely, likely, watts, risk)
            return NodeOptions(
                nodes, np.ones(works.shape), likely, unknown, figures, works, works, works, works, unknown, unknown
            )
        alone = np.where(works, np.array([option.hours[kinds] for option in options]), np.nan)
        spread = likely / np.where(works, np.array([option.low[kinds] for option in options]), np.nan)
        rates = rates_at(spot_rates(catalog), kinds, spot)
        whole, instances = self.taking(alone, spread, nodes, rates), np.ones(works.shape)
        if self.limits.max_instances > 1:
            instances = self.shares(whole)
            whole = self.taking(alone / instances, spread, nodes, rates)
        usd, usd_high = price * instances * whole.paid, price * instances * whole.paid_high
        hours, limited = (whole.elapsed, (whole.elapsed, usd))
        if self.limits.safe:
            limited = (whole.elapsed_high, usd_high)
        ends = works & np.isfinite(whole.paid) & np.isfinite(whole.paid_high)
        rate = likely * instances
        gang = rates.likely * gang_rate(1.0, nodes, rates.lost_together) * instances
        risk = np.where(spot, -np.expm1(-np.nan_to_num(gang, nan=np.inf) * whole.paid), 0.0)
        speed, paid_speed = (likely * alone / each for each in (whole.elapsed, whole.paid))

        def of_ends(column: Floats) -> Floats:
            return np.where(ends, column, np.nan)

        figures = Figures(
            usd=of_ends(usd),
            usd_per_hour=price * instances,
            hours=of_ends(hours),
            speed=of_ends(speed),
            paid_speed=of_ends(paid_speed),
            watts=watts * instances,
            risk=risk,
        )
        in_time = ends & kept(limited[0], self.limits.deadline_hours)
        affordable = ends & kept(limited[1], self.limits.budget_usd)
        return NodeOptions(nodes, instances, rate, hours, figures, works, ends, in_time, affordable, *limited)

    def taking(self, hours: Floats, spread: Floats, nodes: Floats, rates: Rates) -> Expected:
        return expected(hours, hours * spread, nodes, rates, self.checkpoints)

    def shares(self, whole: Expected) -> Floats:
        """How many independent instances share the work: all of them for speed, else as few as are in time."""
        most, deadline = float(self.limits.max_instances), self.limits.deadline_hours
        if any(self.objective.weights.get(term) for term in SPEEDS):
            return np.full(whole.paid.shape, most)
        if deadline is None:
            return np.ones(whole.paid.shape)
        hours = whole.elapsed_high if self.limits.safe else whole.elapsed
        # An instance's share of the work is interrupted less often than the whole, so this is enough.
        return np.clip(np.ceil(np.nan_to_num(hours / deadline, nan=1.0, posinf=most)), 1.0, most)

    def scores_of(self, ways: NodeOptions) -> Floats:
        flat = Figures(**{name: np.ravel(getattr(ways.figures, name)) for name in Figures.__dataclass_fields__})
        score = compared(scores(self.objective, flat))
        return np.asarray(np.nan_to_num(score.reshape(ways.works.shape), nan=0.0))

    def missed(self, ways: NodeOptions) -> Floats:
        """By how much the limits are missed, the nearest first: the worse of the two ratios."""
        limits = ((ways.limited_hours, self.limits.deadline_hours), (ways.limited_usd, self.limits.budget_usd))
        worst = np.zeros(ways.works.shape)
        for figure, limit in limits:
            if limit is not None:
                worst = np.maximum(worst, np.nan_to_num(figure / limit, nan=WORSE, posinf=WORSE))
        return np.minimum(worst, WORSE)


def kept(figure: Floats, limit: float | None) -> Mask:
    """Where a figure is known and not above the limit; anything where there is no limit."""
    with np.errstate(invalid="ignore"):
        return np.ones(figure.shape, np.bool_) if limit is None else np.asarray(figure <= limit, np.bool_)


def rates_at(rates: Rates, kinds: NDArray[np.int64], spot: Mask) -> Rates:
    """Of these types on spot; other machines are not taken away."""

    def on_spot(column: Floats, other: float = np.nan) -> Floats:
        return np.where(spot, column[kinds], other)

    return Rates(
        low=on_spot(rates.low),
        likely=on_spot(rates.likely),
        high=on_spot(rates.high),
        lost_together=on_spot(rates.lost_together),
        available_share=on_spot(rates.available_share, 1.0),
    )


# What keeps a type out


def limit_checks(planner: Planner, cells: CheapestOffers, usd_per_hour: float | None, catalog: Catalog) -> list[Check]:
    """The types that run the job and miss a limit on the whole of it with every offer up to `usd_per_hour`."""
    if planner.outlook.job.amount is None:
        return []
    plans, count = planner.plans(cells, catalog), len(catalog.instance_types)
    shown = plans.works
    if usd_per_hour is not None:
        dear = cells.types & ~cells.within(usd_per_hour)  # all their offers count, as none is below the bound
        shown = shown & ((cells.usd <= usd_per_hour) | mask_of(dear, count)[cells.instance_type])

    def among(each: Mask) -> TypeSet:
        return types_among(cells, shown & each, count)

    if plans.all_end and not planner.limits.bind:
        return []
    ends = among(plans.ends)
    checks = [Check("interruptions", "constraint", among(plans.works) & ~ends)]
    if not planner.limits.bind:
        return checks
    in_time, affordable, keeps = among(plans.in_time), among(plans.affordable), among(plans.keeps)
    if planner.limits.deadline_hours is not None:
        late = ends & ~in_time
        nearest = LimitRelaxation("deadline_hours", 1000, late, least_of_each(cells, shown, plans.least_hours, count))
        checks.append(Check("deadline_hours", "constraint", late, nearest))
    if planner.limits.budget_usd is not None:
        dear = ends & ~keeps & (in_time | ~affordable)
        nearest = LimitRelaxation("budget_usd", 100, dear, least_of_each(cells, shown, plans.least_usd, count))
        checks.append(Check("budget_usd", "constraint", dear, nearest))
    return checks


def least_of_each(cells: CheapestOffers, shown: Mask, figure: Floats, types: int) -> Floats:
    """Per type the least of the figure; infinite where it has none."""
    least = np.full(types, np.inf)
    np.minimum.at(least, cells.instance_type[shown], figure[shown])
    return least


@dataclass(frozen=True, slots=True)
class LimitRelaxation:
    """The limit that lets the first type in, told in steps of one part of so many."""

    name: str
    parts: int
    fails: TypeSet
    least: Floats

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        only = np.where(mask_of(rejected.types & self.fails, len(self.least)), self.least, np.inf)
        if not np.isfinite(only).any():
            return None
        limit = float(np.ceil(only.min() * self.parts) / self.parts)
        return Relaxation({self.name: limit}, rejected.only(types_where(only <= limit)))


def keeping_on_more(planner: Planner, cells: CheapestOffers, among: TypeSet, catalog: Catalog) -> TypeSet:
    """Those of the types that keep the limits on up to twice as many nodes."""
    if isinstance(planner.outlook.job, NamedWork):
        return 0  # what was seen was seen on one machine
    more = with_more_nodes(planner.outlook, among, catalog)
    if more is None:
        return 0
    plans = replace(planner, outlook=more).find_plans(cells, catalog)
    return among & types_among(cells, plans.keeps, len(catalog.instance_types))
