"""A job on each offer: the best number of nodes and instances, and the hours and dollars that it then takes.

Combines estimates, which do not depend on prices, with offers, for all candidates at once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from typing import Self

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, either, taken
from service.domain.bill.charges import Charges, charges_of
from service.domain.bill.interruption import NO_PRIOR, Checkpoints, Expected, Rates, expected, gang_factor, spot_rates
from service.domain.bill.run import ONE_MACHINE, Run
from service.domain.bill.unit_costs import MILLION
from service.domain.catalog.catalog import Catalog, premiums_of
from service.domain.catalog.offer import SPOT
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import Job, instances_in_use, time_of_share, tokens_per_sample
from service.domain.jobs.serving import Serving
from service.domain.money import MICRO
from service.domain.physics.load import TIMES, keeps_limits
from service.domain.recommend.answer import LIMITS_BY_FIELD, Limits
from service.domain.recommend.fleet import FleetEstimate, estimate_types, gpu_counts
from service.domain.recommend.objective import CRITERIA, Figures, Objective, compared, scores
from service.domain.selection.offers import CheapestOffers
from service.domain.selection.relax import ChangeOfWork
from service.domain.typeset import TypeSet
from service.domain.units import SECONDS_AN_HOUR

LIMITS_A_TIME = np.array([field in TIMES for field in Serving().limits])
"""Whether each limit of a load is one on a time, in the order of the columns of `load.Served`."""

MISSED = 1e6
"""A number above any score: a plan that misses a limit comes after all plans that keep their limits."""


@dataclass(frozen=True, slots=True)
class Planner:
    """A job with the caller's objective and limits. With prices, it determines the plans."""

    fleet: FleetEstimate[Job] | FleetEstimate[NamedWork]
    objective: Objective
    limits: Limits
    checkpoints: Checkpoints
    run: Run = ONE_MACHINE
    """The set-up, idle time and data that are paid for with the job; nodes and instances follow from the plan."""
    managed_service: str | None = None
    """The managed service that rents the machines, whose premium is part of their price."""

    @property
    def resumable(self) -> Self:
        """The planner with checkpoints, so that the job continues after an interruption."""
        has_checkpoints = self.checkpoints.interval_seconds != inf
        return self if has_checkpoints else replace(self, checkpoints=self.checkpoints._replace(interval_seconds=None))

    @property
    def most_instances(self) -> int:
        """The largest number of independent instances that may share the work, and that make it faster."""
        return instances_in_use(self.fleet.job.task, self.fleet.job.runs, self.limits.max_instances)

    def after(self, change: ChangeOfWork, types: TypeSet, catalog: Catalog) -> Self:
        """Returns the planner after a change of the question, with the job on these types alone if it changes."""
        planner = self.resumable if change.resumes else self
        planner = replace(planner, limits=self.limits.changed(change.limits))
        job = change.job or self.fleet.job
        if isinstance(job, Job) and not change.limits.keys().isdisjoint(TIMES):
            # The instances and the layout of a load keep its limits on times.
            job = replace(job, serving=planner.limits.load)
        counts = change.counts or self.fleet.counts
        if isinstance(job, NamedWork) or (job, counts) == (self.fleet.job, self.fleet.counts):
            return planner
        return replace(planner, fleet=catalog.derive(estimate_types, job, counts, types, cache=catalog.outlooks))


@dataclass(frozen=True, slots=True)
class Plans:
    """The best number of nodes and instances, one entry per candidate."""

    nodes: Floats
    instances: Floats
    option: NDArray[np.intp]
    """Index of the number of nodes among those of the fleet's estimate."""
    works: Mask
    """Whether some number of nodes runs the job."""
    hours: Floats
    """Likely hours until the job is done, with interruptions and waiting; NaN without an amount of work."""
    rate: Floats
    """Samples per second of all instances, while they run."""
    seconds_per_request: Floats
    """Seconds of a request of a load whose rate is given, at its percentile; NaN for other work."""
    figures: Figures
    """The figures that the objective weighs; without an amount of work, dollars are those of an hour."""
    ends: Mask
    """Whether the run ends in spite of interruptions, on some number of nodes."""
    keeps: Mask
    """Whether some number of nodes runs the job and keeps every limit."""
    kept: Mapping[str, "KeptLimit"]
    """The limits that are given and apply, by field."""
    incomplete: Mask
    """Whether the dollars are a lower bound, because a charge that the caller asks for is unknown."""
    undecided: Mask
    """Whether limits in dollars cannot be shown to be kept, because the dollars are a lower bound."""


@dataclass(frozen=True, slots=True)
class KeptLimit:
    """Whether some number of nodes keeps a limit, one entry per candidate."""

    limit: float
    """Infinite if none is given."""
    keeps: Mask
    """Whether some number of nodes keeps this limit; that number may miss other limits."""
    least: Floats
    """Least figure of the plans that keep all other limits; infinite if there are none."""


@dataclass(frozen=True, slots=True)
class SingleInstance:
    """The job on one instance without interruptions, by nodes (rows) and candidate; NaN where it does not run."""

    nodes: Floats
    works: Mask
    likely: Floats
    likely_over_low: Floats
    """Likely rate divided by the low end of its band."""
    hours: Floats
    samples: Floats
    usd_per_hour: Floats
    """Price of all nodes, with the premium of a managed service."""
    lower_bound: Mask
    """Whether that premium is unknown, per candidate."""
    price_high: Floats
    """High end of the believed price as a factor of the likely one, per candidate."""
    watts: Floats
    spot: Mask
    """Whether each candidate is on spot."""
    gpu_count: Floats
    gpu_memory_gb: Floats
    instances: Floats
    """Instances that serve a load; without a load, one for each run up to the limit."""
    least_alone: Floats
    """Least figure of each limit of a load, the other limits kept or not: a third dimension, empty without a load."""
    least_together: Floats
    """Least figure of each limit of a load while the others are kept; the third dimension is that of `least_alone`."""
    seconds_per_request: Floats


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """Every number of nodes (rows) for every candidate (columns), on as many instances as share the work."""

    single: SingleInstance
    instances: Floats
    rate: Floats
    figures: Figures
    hours: Floats
    ends: Mask
    limited: Mapping[str, Floats]
    """The figure that each limit on the whole amount applies to, by field of the limit."""
    incomplete: Mask
    """Whether the dollars are a lower bound, as in `Plans.incomplete`."""
    undecided: Mask
    """Whether the dollars are unknown to limits: as in `incomplete`, or because of an unknown rate of interruptions."""


def plans_of(planner: Planner, candidates: CheapestOffers, catalog: Catalog) -> Plans:
    """Returns the plans of some offers; cached."""
    return catalog.derive(find_plans, planner, candidates, cache=catalog.outlooks)


# Amounts and limits may be extremely small or large: an overflow then stands for infinity, and 0 / 0 for unknown.
@np.errstate(divide="ignore", over="ignore", invalid="ignore")
def find_plans(catalog: Catalog, planner: Planner, candidates: CheapestOffers) -> Plans:
    """Chooses the number of nodes that the objective prefers of those within the limits, else the nearest miss."""
    options = _node_options(planner, candidates, catalog)
    single = options.single
    limits = _applying(planner.limits, options)
    keeping = {field: options.ends & (options.limited[field] <= limit) for field, limit in limits.items()}
    serves = _serves(planner.limits, single)
    within = _all(options.ends, keeping.values())
    keeps = serves & within
    missed = np.where(single.works, MISSED + _missed_by(limits, options), np.inf)
    chosen = np.argmin(np.where(keeps, _scores(planner.objective, options), missed), axis=0)
    columns = np.arange(chosen.size)

    def at(table: Floats) -> Floats:
        return np.asarray(table[chosen, columns])

    return Plans(
        nodes=at(single.nodes),
        instances=at(options.instances),
        option=chosen,
        works=_any(single.works),
        hours=at(options.hours),
        rate=at(options.rate),
        seconds_per_request=at(single.seconds_per_request),
        figures=options.figures.each(at),
        ends=_any(options.ends),
        keeps=_any(keeps),
        kept=_kept_of_load(planner.limits, single, within)
        | _kept_limits(limits, options, options.ends & serves, keeping),
        incomplete=options.incomplete,
        undecided=options.undecided,
    )


def _limits_of_load(limits: Limits) -> dict[str, float]:
    """Returns the limits of a load by field, infinite where none is given; empty without a load."""
    given = {} if limits.load is None else limits.load.limits
    return {field: np.inf if limit is None else limit for field, limit in given.items()}


def _serves(limits: Limits, single: SingleInstance) -> Mask:
    """Returns whether the load is served within its limits."""
    of_load = np.array(list(_limits_of_load(limits).values()))
    return keeps_limits(single.least_together, of_load) if len(of_load) else np.ones(single.works.shape, np.bool_)


def _kept_of_load(limits: Limits, single: SingleInstance, within: Mask) -> dict[str, KeptLimit]:
    """Returns the limits of a load; `within` says which plans keep the other ones."""
    of_load = _limits_of_load(limits)
    # A longer time takes fewer instances, whose cost is not known here.
    possible = single.works[:, :, None] & (within[:, :, None] | LIMITS_A_TIME[: len(of_load)])
    least = np.fmin.reduce(np.where(possible, single.least_together, np.inf), axis=0)
    return {
        field: KeptLimit(limit, _any(single.works & (single.least_alone[:, :, column] <= limit)), least[:, column])
        for column, (field, limit) in enumerate(of_load.items())
    }


def _applying(limits: Limits, options: NodeOptions) -> dict[str, float]:
    """Returns the limits that are given and apply by field, in the order of `LIMITS_BY_FIELD`."""
    given = {field: getattr(limits, field) for field in LIMITS_BY_FIELD if field in options.limited}
    return {field: limit for field, limit in given.items() if limit is not None}


def _kept_limits(
    limits: Mapping[str, float], options: NodeOptions, serves: Mask, keeping: Mapping[str, Mask]
) -> dict[str, KeptLimit]:
    """Returns the limits on an amount of work; `serves` says which plans keep those of a load."""
    kept = {}
    for field, mask in keeping.items():
        others = _all(serves, (other_mask for other, other_mask in keeping.items() if other != field))
        least = np.fmin.reduce(np.where(others, options.limited[field], np.inf), axis=0)
        kept[field] = KeptLimit(limits[field], _any(mask), least)
    return kept


def _all(first: Mask, others: Iterable[Mask]) -> Mask:
    return reduce(np.logical_and, others, first)


def _any(mask: Mask) -> Mask:
    return np.asarray(mask.any(axis=0), np.bool_)


def _node_options(planner: Planner, candidates: CheapestOffers, catalog: Catalog) -> NodeOptions:
    types, options = candidates.instance_type, planner.fleet.options
    works = np.array([option.works[types] for option in options])
    likely = np.where(works, np.array([option.likely[types] for option in options]), np.nan)
    nodes = np.broadcast_to(np.array(planner.fleet.counts, np.float64)[:, None], works.shape)
    instances = np.array([option.fewest_instances[types] for option in options])
    if planner.limits.load is None:
        instances = np.minimum(instances, planner.most_instances)
    single = SingleInstance(
        nodes=nodes,
        works=works,
        likely=likely,
        likely_over_low=likely / np.where(works, np.array([option.low[types] for option in options]), np.nan),
        hours=np.where(works, np.array([option.hours[types] for option in options]), np.nan),
        samples=np.array([option.samples[types] for option in options]),
        usd_per_hour=catalog.hourly_usd(candidates.offer, planner.managed_service) * nodes,
        lower_bound=catalog.derive(premiums_of, planner.managed_service).unknown[types],
        price_high=catalog.offers.high[candidates.offer] / catalog.offers.likely[candidates.offer],
        watts=np.array([planner.fleet.watts(count, catalog)[types] for count in planner.fleet.counts]) * nodes,
        spot=catalog.offers.market[candidates.offer] == SPOT,
        gpu_count=gpu_counts(catalog)[types] * nodes,
        gpu_memory_gb=np.broadcast_to(catalog.columns.numbers["gpu_memory_gb"][types], works.shape),
        instances=instances,
        least_alone=np.array([option.least_alone.take(types, axis=0) for option in options]),
        least_together=np.array([option.least_together.take(types, axis=0) for option in options]),
        seconds_per_request=np.array([option.seconds_per_request[types] for option in options]),
    )
    if planner.fleet.job.amount is None:
        return _options_without_amount(planner, single, single.instances)
    charges = charges_of(planner.run, planner.managed_service, types, candidates.offer, catalog)
    return _options_of_amount(planner, single, charges, _rates_at(catalog.derive(spot_rates), types, single.spot))


def _options_without_amount(planner: Planner, single: SingleInstance, instances: Floats) -> NodeOptions:
    """Returns the options with these instances, where nothing ends and dollars are those of an hour."""
    shape, price, rate = single.works.shape, single.usd_per_hour * instances, single.likely * instances
    load = planner.limits.load
    limited_price = price * single.price_high if planner.limits.safe else price
    return NodeOptions(
        single=single,
        instances=instances,
        rate=rate,
        figures=Figures(
            usd=price,
            usd_per_hour=price,
            # All machines serve the rate of a load, so that the time of a request decides which is fast.
            hours=np.where(np.isnan(single.seconds_per_request), 1 / rate, single.seconds_per_request)
            / SECONDS_AN_HOUR,
            speed=rate,
            paid_speed=rate,
            watts=single.watts * instances,
            risk=np.broadcast_to(single.spot.astype(np.float64), shape),
            machines=single.nodes * instances,
            gpu_count=single.gpu_count * instances,
            gpu_memory_gb=single.gpu_memory_gb,
            samples=rate * SECONDS_AN_HOUR,
            data_usd=np.zeros(shape),
        ),
        hours=np.full(shape, np.nan),
        ends=single.works,
        # A month is billed as by `POST /estimate`: its hours at whole millionths of a dollar.
        limited={}
        if load is None
        else _limited_dollars(
            planner,
            np.round(limited_price * MICRO) * load.hours_a_month / MICRO,
            rate * SECONDS_AN_HOUR * load.hours_a_month,
            single.lower_bound,
        ),
        incomplete=single.lower_bound,
        undecided=single.lower_bound,
    )


def _limited_dollars(planner: Planner, usd: Floats, samples: Floats, undecided: Mask) -> dict[str, Floats]:
    """Returns the figures of the limits in dollars, for samples that cost `usd` together; infinite where undecided."""
    job, usd = planner.fleet.job, np.where(undecided, np.inf, usd)
    tokens = tokens_per_sample(job) if isinstance(job, Job) else 0.0
    per_million = {"max_usd_per_million_tokens": usd / samples / tokens * MILLION} if tokens else {}
    return {"budget_usd": usd, **per_million}


def _options_of_amount(planner: Planner, single: SingleInstance, charges: Charges, rates: Rates) -> NodeOptions:
    limits, job = planner.limits, planner.fleet.job

    def on(instances: Floats | float) -> Expected:
        hours = single.hours * time_of_share(job.task, job.runs, instances)
        return charges.in_use(expected(hours, hours * single.likely_over_low, single.nodes, rates, planner.checkpoints))

    instances = np.maximum(_instances(planner, on, single.works.shape), single.instances)
    run = on(instances)
    options = _options_without_amount(planner, single, instances)
    price, machines = options.figures.usd_per_hour, options.figures.machines
    hours, data_usd = run.elapsed, charges.of_data(run.elapsed, machines)
    usd = limited_usd = price * charges.of_machines(run.paid) + data_usd
    if limits.safe:
        hours = run.elapsed_high
        limited_usd = price * single.price_high * charges.of_machines(run.paid_high) + charges.of_data(hours, machines)
    ends = single.works & np.isfinite(run.paid) & np.isfinite(run.paid_high)
    per_hour = rates.likely * gang_factor(single.nodes, rates.lost_together) * instances
    work = single.likely * single.hours
    undecided = charges.unknown | (single.spot & np.isnan(rates.likely))
    figures = replace(
        options.figures,
        usd=usd,
        hours=run.elapsed,
        speed=work / run.elapsed,
        paid_speed=work / run.paid,
        # 1 - e^-x by expm1, which is exact also where an interruption is unlikely.
        risk=np.where(single.spot, -np.expm1(-np.nan_to_num(per_hour, nan=np.inf) * run.paid), 0.0),
        samples=single.samples,
        data_usd=data_usd,
    )
    return replace(
        options,
        figures=figures.of_runs_that_end(ends),
        hours=run.elapsed,
        ends=ends,
        limited={"deadline_hours": hours, **_limited_dollars(planner, limited_usd, single.samples, undecided)},
        incomplete=charges.unknown,
        undecided=undecided,
    )


def _instances(planner: Planner, on: Callable[[Floats], Expected], shape: tuple[int, ...]) -> Floats:
    """Returns how many instances share the work: the fewest in time; the most for speed, or where none are in time."""
    limits, fewest, most = planner.limits, np.ones(shape), np.full(shape, float(planner.most_instances))
    if any(CRITERIA[name].is_speed for name in planner.objective.criteria):
        return most
    # Each instance pays its own set-up, so without a deadline one instance is cheapest.
    if limits.deadline_hours is None:
        return fewest
    # A search, because the hours of a share are no quotient: each instance sets up, saves and has luck of its own.
    while (fewest < most).any():
        run = on(middle := np.floor((fewest + most) / 2))
        in_time = (run.elapsed_high if limits.safe else run.elapsed) <= limits.deadline_hours
        fewest, most = np.where(in_time, fewest, np.minimum(middle + 1.0, most)), np.where(in_time, middle, most)
    return most


def _scores(objective: Objective, options: NodeOptions) -> Floats:
    score = compared(scores(objective, options.figures.each(np.ravel)))
    return np.asarray(np.nan_to_num(score.reshape(options.single.works.shape), nan=0.0))


def _missed_by(limits: Mapping[str, float], options: NodeOptions) -> Floats:
    """Returns the largest ratio of a figure to its limit."""
    worst = np.zeros(options.single.works.shape)
    for field, limit in limits.items():
        worst = np.maximum(worst, np.nan_to_num(options.limited[field] / limit, nan=MISSED, posinf=MISSED))
    return np.minimum(worst, MISSED)


def _rates_at(rates: Rates, types: NDArray[np.int64], spot: Mask) -> Rates:
    """Returns the rates of candidates on spot; other markets have no interruptions."""
    return either(Rates(*(np.full(spot.shape, rate) for rate in NO_PRIOR)), taken(rates, types), spot)
