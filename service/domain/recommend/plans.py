"""A job on each offer: the best number of nodes and instances, and the hours and dollars that it then takes.

Physics knows neither price nor market, and prices know no job. Plans combine them for all candidates at once.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, either, taken
from service.domain.bill.interruption import NO_PRIOR, Checkpoints, Expected, Rates, expected, gang_rate, spot_rates
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import MARKETS
from service.domain.jobs.job import Job
from service.domain.recommend.answer import Limits, NamedWork
from service.domain.recommend.fleet import Blockers, FleetEstimate, with_more_nodes
from service.domain.recommend.objective import Figures, Objective, compared, scores
from service.domain.selection.offers import AdmittedOffers, CheapestOffers
from service.domain.selection.relax import Check, Relaxation
from service.domain.typeset import TypeSet, mask_of, types_where

SPOT = MARKETS.index("spot")
SPEED_CRITERIA = frozenset({"hours", "samples_per_second"})
"""Criteria that more instances improve."""

MISSED = 1e6
"""Above any score: a plan that misses a limit comes after all plans that keep theirs."""


@dataclass(frozen=True, slots=True)
class Planner:
    """A job with the caller's objective and limits; together with prices it determines the plans."""

    fleet: FleetEstimate[Job] | FleetEstimate[NamedWork]
    objective: Objective
    limits: Limits
    checkpoints: Checkpoints


@dataclass(frozen=True, slots=True)
class Plans:
    """The best number of nodes and instances, one entry per candidate."""

    nodes: Floats
    instances: Floats
    option: NDArray[np.intp]
    """Index of the number of nodes among those of the fleet's estimate."""
    works: Mask
    hours: Floats
    """Likely hours until the job is done, with interruptions and waiting; NaN without an amount of work."""
    rate: Floats
    """Samples per second of all instances, while they run."""
    figures: Figures
    """The figures that the objective weighs; without an amount of work, dollars are those of an hour."""
    ends: Mask
    """Whether the run ends in spite of interruptions."""
    in_time: Mask
    """Whether some number of nodes meets the deadline, whatever it costs."""
    affordable: Mask
    """Whether some number of nodes keeps the budget, however long it takes."""
    keeps: Mask
    """Whether it works and keeps every limit."""
    least_hours: Floats
    """Least hours of the plans that keep the budget; infinite if there is none."""
    least_usd: Floats
    """Least dollars of the plans that meet the deadline; infinite if there is none."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Every number of nodes (rows) for every candidate (columns)."""

    nodes: Floats
    works: Mask
    rate: Floats
    figures: Figures
    instances: Floats
    hours: Floats
    ends: Mask
    limited_hours: Floats
    """Hours that the deadline applies to, at the likely or the pessimistic end."""
    limited_usd: Floats
    """Dollars that the budget applies to."""
    in_time: Mask
    affordable: Mask

    @property
    def keeps(self) -> Mask:
        """Options that keep every limit."""
        return np.asarray(self.in_time & self.affordable, np.bool_)


def _watts(planner: Planner, catalog: Catalog) -> Floats:
    """The power of one machine of each type: as it was measured with the work, else as its GPUs are rated."""
    watts = catalog.columns.numbers["tdp_watts"].copy()
    for index, rate in planner.fleet.measured.items():
        if rate.basis == "measured" and rate.evidence.watts is not None:
            watts[index] = rate.evidence.watts
    return watts


def gpu_counts(catalog: Catalog) -> Floats:
    """Returns the GPUs of each instance type; NaN without any, so that a machine without GPUs is not the smallest."""
    counts = catalog.columns.numbers["gpu_count"]
    return np.where(counts > 0, counts, np.nan)


def plans_of(planner: Planner, cells: CheapestOffers, catalog: Catalog) -> Plans:
    """Returns the plans of some offers; cached."""
    return catalog.derive(_find_plans, planner, cells, cache=catalog.outlooks)


# Amounts and limits may be extremely small or large: overflow then means infinite, and 0 / 0 unknown.
@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def _find_plans(catalog: Catalog, planner: Planner, cells: CheapestOffers) -> Plans:
    """Chooses the option that the objective prefers among those that keep the limits, else the nearest miss."""
    options = _node_options(planner, cells, catalog)
    missed = np.where(options.works, MISSED + _missed_by(planner.limits, options), np.inf)
    chosen = np.argmin(np.where(options.keeps, _scores(planner.objective, options), missed), axis=0)
    columns = np.arange(chosen.size)

    def at(table: Floats) -> Floats:
        return np.asarray(table[chosen, columns])

    return Plans(
        nodes=at(options.nodes),
        instances=at(options.instances),
        option=chosen,
        works=_any(options.works),
        hours=at(options.hours),
        rate=at(options.rate),
        figures=options.figures.each(at),
        ends=_any(options.ends),
        in_time=_any(options.in_time),
        affordable=_any(options.affordable),
        keeps=_any(options.keeps),
        least_hours=np.fmin.reduce(np.where(options.affordable, options.limited_hours, np.inf), axis=0),
        least_usd=np.fmin.reduce(np.where(options.in_time, options.limited_usd, np.inf), axis=0),
    )


def _any(mask: Mask) -> Mask:
    return np.asarray(mask.any(axis=0), np.bool_)


def _node_options(planner: Planner, cells: CheapestOffers, catalog: Catalog) -> NodeOptions:
    types, options = cells.instance_type, planner.fleet.options
    works = np.array([option.works[types] for option in options])
    likely = np.where(works, np.array([option.likely[types] for option in options]), np.nan)
    nodes = np.broadcast_to(np.array(planner.fleet.counts, np.float64)[:, None], works.shape)
    one = _Run(
        nodes=nodes,
        works=works,
        likely=likely,
        spread=likely / np.where(works, np.array([option.low[types] for option in options]), np.nan),
        hours=np.where(works, np.array([option.hours[types] for option in options]), np.nan),
        usd_per_hour=catalog.offers.usd_per_hour_at(cells.offer) * nodes,
        watts=_watts(planner, catalog)[types] * nodes,
        spot=catalog.offers.market[cells.offer] == SPOT,
        gpu_count=gpu_counts(catalog)[types] * nodes,
        gpu_memory_gb=np.broadcast_to(catalog.columns.numbers["gpu_memory_gb"][types], works.shape),
    )
    if planner.fleet.job.amount is None:
        return _options_without_amount(one)
    return _options_of_amount(planner, one, _rates_at(catalog.derive(spot_rates), types, one.spot))


@dataclass(frozen=True, slots=True)
class _Run:
    """The job on one undisturbed instance: options in rows, candidates in columns; NaN where it does not work."""

    nodes: Floats
    works: Mask
    likely: Floats
    spread: Floats
    """Likely rate / low rate."""
    hours: Floats
    usd_per_hour: Floats
    watts: Floats
    spot: Mask
    """Per candidate."""
    gpu_count: Floats
    gpu_memory_gb: Floats


def _options_without_amount(one: _Run) -> NodeOptions:
    shape, price = one.works.shape, one.usd_per_hour
    risk = np.broadcast_to(one.spot.astype(np.float64), shape)
    unknown = np.full(shape, np.nan)
    return NodeOptions(
        nodes=one.nodes,
        works=one.works,
        rate=one.likely,
        figures=Figures(
            usd=price,
            usd_per_hour=price,
            hours=1 / one.likely,
            speed=one.likely,
            paid_speed=one.likely,
            watts=one.watts,
            risk=risk,
            gpu_count=one.gpu_count,
            gpu_memory_gb=one.gpu_memory_gb,
        ),
        instances=np.ones(shape),
        hours=unknown,
        ends=one.works,
        limited_hours=unknown,
        limited_usd=unknown,
        in_time=one.works,
        affordable=one.works,
    )


def _options_of_amount(planner: Planner, one: _Run, rates: Rates) -> NodeOptions:
    limits = planner.limits

    def on(instances: Floats | float) -> Expected:
        hours = one.hours / instances
        return expected(hours, hours * one.spread, one.nodes, rates, planner.checkpoints)

    # How many instances are needed depends on the hours on one, which include its interruptions.
    instances, run = np.ones(one.works.shape), on(1.0)
    if limits.max_instances > 1:
        instances = _instances(planner, run)
        run = on(instances)
    price = one.usd_per_hour * instances
    hours, usd = (run.elapsed_high, price * run.paid_high) if limits.safe else (run.elapsed, price * run.paid)
    ends = one.works & np.isfinite(run.paid) & np.isfinite(run.paid_high)
    per_hour = rates.likely * gang_rate(1.0, one.nodes, rates.lost_together) * instances
    figures = Figures(
        usd=price * run.paid,
        usd_per_hour=price,
        hours=run.elapsed,
        speed=one.likely * one.hours / run.elapsed,
        paid_speed=one.likely * one.hours / run.paid,
        watts=one.watts * instances,
        # 1 - e^-x by expm1, which keeps its digits where an interruption is unlikely.
        risk=np.where(one.spot, -np.expm1(-np.nan_to_num(per_hour, nan=np.inf) * run.paid), 0.0),
        gpu_count=one.gpu_count * instances,
        gpu_memory_gb=one.gpu_memory_gb,
    )
    return NodeOptions(
        nodes=one.nodes,
        works=one.works,
        rate=one.likely * instances,
        figures=figures.of_runs_that_end(ends),
        instances=instances,
        hours=run.elapsed,
        ends=ends,
        limited_hours=hours,
        limited_usd=usd,
        in_time=ends & _within(hours, limits.deadline_hours),
        affordable=ends & _within(usd, limits.budget_usd),
    )


def _instances(planner: Planner, run: Expected) -> Floats:
    """Returns how many independent instances share the work: the maximum for speed, else as few as are in time."""
    limits, most = planner.limits, float(planner.limits.max_instances)
    if any(planner.objective.weights.get(criterion) for criterion in SPEED_CRITERIA):
        return np.full(run.paid.shape, most)
    # Independent instances share the work at the same dollars, so without a deadline one is enough.
    if limits.deadline_hours is None:
        return np.ones(run.paid.shape)
    hours = run.elapsed_high if limits.safe else run.elapsed
    # An instance's share of the work is interrupted less often than the whole, so this is enough.
    return np.clip(np.ceil(np.nan_to_num(hours / limits.deadline_hours, nan=1.0, posinf=most)), 1.0, most)


def _scores(objective: Objective, options: NodeOptions) -> Floats:
    score = compared(scores(objective, options.figures.each(np.ravel)))
    return np.asarray(np.nan_to_num(score.reshape(options.works.shape), nan=0.0))


def _missed_by(limits: Limits, options: NodeOptions) -> Floats:
    """Returns by how much the limits are missed: the larger of the two ratios."""
    pairs = ((options.limited_hours, limits.deadline_hours), (options.limited_usd, limits.budget_usd))
    worst = np.zeros(options.works.shape)
    for figure, limit in pairs:
        if limit is not None:
            worst = np.maximum(worst, np.nan_to_num(figure / limit, nan=MISSED, posinf=MISSED))
    return np.minimum(worst, MISSED)


def _within(figure: Floats, limit: float | None) -> Mask:
    """Returns where a figure is known and not above the limit; everywhere if there is no limit."""
    return np.ones(figure.shape, np.bool_) if limit is None else np.asarray(figure <= limit, np.bool_)


def _rates_at(rates: Rates, types: NDArray[np.int64], spot: Mask) -> Rates:
    """Returns the rates of candidates on spot; other markets have no interruptions."""
    elsewhere = Rates(*(np.full(spot.shape, rate) for rate in NO_PRIOR))
    return either(elsewhere, taken(rates, types), spot)


# Rejections


def types_among(cells: CheapestOffers, where: Mask, count: int) -> TypeSet:
    """Returns the types of the offers at which the mask is true; `count` is that of all types."""
    return types_where(np.bincount(cells.instance_type[where], minlength=count) > 0)


def limit_checks(planner: Planner, cells: CheapestOffers, usd_per_hour: float | None, catalog: Catalog) -> list[Check]:
    """Returns checks for types that run the job but miss a limit on it with every offer up to `usd_per_hour`."""
    limits, count = planner.limits, len(catalog.instance_types)
    if planner.fleet.job.amount is None:
        return []
    plans = plans_of(planner, cells, catalog)
    # Without limits only endless runs are rejected, and most questions have none.
    if not limits.bind and not (plans.works & ~plans.ends).any():
        return []
    shown = plans.works
    if usd_per_hour is not None:
        above = cells.types & ~cells.within(usd_per_hour)  # none of their offers is below, so all of them count
        shown = shown & ((cells.usd <= usd_per_hour) | mask_of(above, count)[cells.instance_type])

    def among(mask: Mask) -> TypeSet:
        return types_among(cells, shown & mask, count)

    def nearest(name: str, parts: int, fails: TypeSet, figure: Floats) -> Check:
        least = np.full(count, np.inf)  # infinite for types that no change of this limit admits
        np.minimum.at(least, cells.instance_type[shown], figure[shown])
        return Check(name, "constraint", fails, _LimitRelaxation(name, parts, fails, least))

    ends, in_time, affordable, keeps = (
        among(mask) for mask in (plans.ends, plans.in_time, plans.affordable, plans.keeps)
    )
    checks = [Check("interruptions", "constraint", among(plans.works) & ~ends)]
    if limits.deadline_hours is not None:
        checks.append(nearest("deadline_hours", 1000, ends & ~in_time, plans.least_hours))
    if limits.budget_usd is not None:
        checks.append(nearest("budget_usd", 100, ends & ~keeps & (in_time | ~affordable), plans.least_usd))
    return checks


@dataclass(frozen=True, slots=True)
class _LimitRelaxation:
    """Raises a limit to the least value that admits something, rounded up to one of so many parts of its unit."""

    name: str
    parts: int
    fails: TypeSet
    least: Floats

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        least = np.where(mask_of(rejected.types & self.fails, len(self.least)), self.least, np.inf)
        if not np.isfinite(least).any():
            return None
        # Rounded up, so that the limit that is proposed admits the plan although it is printed with few digits.
        limit = float(np.ceil(least.min() * self.parts) / self.parts)
        return Relaxation({self.name: limit}, rejected.only(types_where(least <= limit)))


def keeping_on_more_nodes(
    planner: Planner, cells: CheapestOffers, rejected: AdmittedOffers, blockers: Blockers, catalog: Catalog
) -> TypeSet:
    """Returns the types of rejected offers that keep the limits only on more nodes, up to twice as many."""
    if isinstance(planner.fleet.job, NamedWork):
        return 0  # measurements are of one machine
    # More nodes help types that do not hold the job, and types that miss its limits; other types fail something else.
    count, now = len(catalog.instance_types), plans_of(planner, cells, catalog)
    misses = types_among(cells, now.works, count) & ~types_among(cells, now.keeps, count)
    types = rejected.types & (blockers.for_now | misses)
    more = with_more_nodes(planner.fleet, types, catalog)
    if more is None:
        return 0
    plans = _find_plans(catalog, replace(planner, fleet=more), cells)
    affordable = plans.keeps if rejected.limit is None else plans.keeps & (cells.usd <= rejected.limit)
    return types & types_among(cells, affordable, count)
