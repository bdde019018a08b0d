"""The checks of whether a job runs on each instance type and keeps its limits, and the smallest changes that help."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np

from service.domain.arrays import Floats, Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.codes import RejectionCode
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import JOB_PRECISIONS, Job, input_length, prompt_change, with_prompt
from service.domain.jobs.serving import MOST_INSTANCES
from service.domain.layouts.fleet_columns import types_that_fit_with, types_that_run
from service.domain.layouts.job_estimate import memory_of_job_in
from service.domain.physics.cluster import cluster_of_instance
from service.domain.recommend.answer import LIMITS_BY_FIELD, LIMITS_IN_DOLLARS, LimitKind
from service.domain.recommend.fleet import FleetEstimate, estimate_types, node_counts
from service.domain.recommend.plans import Planner, find_plans, plans_of
from service.domain.selection.offers import AdmittedOffers, CheapestOffers, offers_of
from service.domain.selection.relax import RESUMING, ChangeOfWork, Check, DropLimits, Relaxation
from service.domain.typeset import TypeSet, mask_of, types_where, union

MAX_NODES = 10_000
"""The highest number of nodes that a question may ask for."""

MOST_TIMES_THE_NODES = 64
"""Most nodes that a relaxation proposes, in multiples of the maximum that was asked for (assumed)."""

HALVINGS_OF_A_PROMPT = 10
"""Halvings in the search for the longest prompt that has room, down to a thousandth of the requested length."""

Keeping = Callable[[AdmittedOffers, TypeSet, Job, tuple[int, ...]], TypeSet]
"""A function that returns which types of rejected offers keep the limits with another job or other numbers of nodes.
Its second argument is the types that do not run the job now."""


def job_checks(fleet: FleetEstimate[Job], keeping: Keeping | None = None, *, limited: bool = False) -> list[Check]:
    """Returns checks that count each type that cannot run the job under exactly one reason.

    `keeping` finds the types that keep the limits on the whole job; None if a type that runs the job cannot miss any.
    `limited` says that there are limits.
    """
    blockers, more_memory = fleet.blockers, partial(_MoreMemory, fleet, keeping)
    memory, room = more_memory(blockers.gpu_memory), _RoomForCache(more_memory(blockers.kv_cache))
    fewer = _FewerRequests(fleet, limited, blockers.concurrency)
    more_precisions = _MorePrecisions(fleet, keeping)
    by_layout = Check(RejectionCode.GLOBAL_BATCH_SIZE, "constraint", blockers.layout)
    if fleet.job.layout_is_fixed:
        freed = more_memory(blockers.layout)
        by_layout = Check(RejectionCode.LAYOUT, "constraint", blockers.layout, freed, changes_plans=True)
    checks = (
        Check(RejectionCode.NO_GPU, "hardware", blockers.gpu),
        Check(RejectionCode.GPU_FIGURES_UNKNOWN, "data", blockers.figures),
        Check(RejectionCode.PRECISION, "hardware", blockers.precision, more_precisions, last_resort=True),
        by_layout,
        Check(RejectionCode.GPU_MEMORY, "hardware", blockers.gpu_memory, memory, changes_plans=True),
        Check(RejectionCode.KV_CACHE, "hardware", blockers.kv_cache, room, changes_plans=True),
        Check(RejectionCode.HOST_MEMORY, "hardware", blockers.host_memory),
        Check(RejectionCode.CONCURRENCY, "constraint", blockers.concurrency, fewer),
    )
    return [check._replace(hides_limits=limited) for check in checks]


@dataclass(frozen=True, slots=True)
class _MoreMemory:
    """Lowers the confidence to the highest with which the job fits on some of the types that fail.

    Where it likely fits on none of them, frees the fixed parts of the layout, or else raises the maximum number of
    nodes to the smallest one that is tried and lets some run the job within its limits. Where no number of them helps,
    lets machines of marketplaces work together.
    """

    fleet: FleetEstimate[Job]
    keeping: Keeping | None
    fails: TypeSet

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        return (
            self._with_less_confidence(rejected, catalog)
            or self._in_any_layout(rejected, catalog)
            or self._with_more_nodes(rejected, catalog)
            or self._in_clusters(rejected, catalog)
        )

    def _with_less_confidence(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        fleet = self.fleet
        confidence = catalog.derive(_highest_confidence, fleet, rejected.types & self.fails, cache=catalog.outlooks)
        if confidence is None:
            return None
        to: dict[str, object] = {"workload.memory_confidence": confidence}
        job = replace(fleet.job, memory_confidence=confidence)
        if self.keeping is not None:
            return self.relaxation(to, job, fleet.counts, rejected, catalog)
        blocked = rejected.types & fleet.blockers.removable
        admits = catalog.derive(_types_that_fit_with, fleet, confidence, blocked, cache=catalog.outlooks)
        return Relaxation(to, rejected.only(admits), ChangeOfWork(job)) if admits else None

    def _in_any_layout(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        fleet = self.fleet
        if not fleet.job.layout_is_fixed:
            return None
        return self.relaxation({"layout": None}, fleet.job.in_any_layout, fleet.counts, rejected, catalog)

    def _with_more_nodes(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        job, least, most = self.fleet.job, min(self.fleet.counts), max(self.fleet.counts)
        # Numbers of nodes that were tried before admit nothing.
        last = min(MAX_NODES, MOST_TIMES_THE_NODES * most)
        more = tuple(count for count in node_counts(least, last) if count > most)
        while (most := 2 * most) <= last:
            up_to_most, untried = _up_to(most, more)
            # Types that run the job now may keep its limits on fewer nodes than others need to run it.
            # Up to half as many have not helped.
            new = [count for count in up_to_most if 2 * count > most]
            for fewest in new if self.helped(job, up_to_most, rejected, catalog) else ():
                counts, _ = _up_to(fewest, up_to_most)
                if relaxation := self.relaxation({"max_nodes": fewest}, job, counts, rejected, catalog):
                    return relaxation._replace(work=ChangeOfWork(job, counts=node_counts(least, fewest)))
            # Where twice the nodes do not help, more of them rarely do, and to try all at once takes less time.
            if not self.helped(job, untried, rejected, catalog):
                return None
        return None

    def _in_clusters(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        job, counts = self.fleet.job, self.fleet.counts
        if job.marketplace_clusters or counts == (1,):
            return None
        job = replace(job, marketplace_clusters=True)
        return self.relaxation({"allow_marketplace_clusters": True}, job, counts, rejected, catalog)

    def relaxation(
        self, to: dict[str, object], job: Job, counts: tuple[int, ...], rejected: AdmittedOffers, catalog: Catalog
    ) -> Relaxation | None:
        """Returns a change to another job with all offers that it admits; None if it lets no further type run the job.

        It may also admit types that run the job now and miss its limits.
        """
        # To find whether a further type runs the job takes less time than the rates of all rejected types.
        helped = self.helped(job, counts, rejected, catalog)
        if not helped:
            return None
        others = 0 if self.keeping is None else self.keeping(rejected, 0, job, counts)
        return Relaxation(to, rejected.only(helped | others), ChangeOfWork(job, counts=counts))

    def helped(self, job: Job, counts: tuple[int, ...], rejected: AdmittedOffers, catalog: Catalog) -> TypeSet:
        """Returns the types that do not run the job now, and run another on some of the numbers of nodes, within the
        limits.
        """
        blocked = rejected.types & self.fleet.blockers.removable
        runs = catalog.derive(types_that_run, job, counts, blocked, cache=catalog.outlooks) if blocked else 0
        return self.keeping(rejected.only(runs), runs, job, counts) if runs and self.keeping is not None else runs


def _highest_confidence(catalog: Catalog, fleet: FleetEstimate[Job], among: TypeSet) -> float | None:
    """Returns the highest probability with which the job fits on one of the types; None if it likely does not."""
    options, wanted = fleet.options, catalog.mask(among)
    spare = np.array([np.where(wanted, each.usable_bytes / each.sure_bytes, 0.0) for each in options])
    option, index = np.unravel_index(int(spare.argmax()), spare.shape)
    columns, nodes = options[int(option)], fleet.counts[int(option)]
    if not wanted.any() or columns.needed_bytes[index] > columns.usable_bytes[index]:
        return None
    cluster = cluster_of_instance(catalog.instance_types[index], nodes, fleet.job.assumed_network_gbps)
    layout = fleet.layout(int(index), nodes)
    return memory_of_job_in(catalog.reference.calibration, fleet.job, cluster, layout).highest_confidence


@dataclass(frozen=True, slots=True)
class _MorePrecisions:
    """Adds the precision in which the most types run the job, of those that its task usually takes."""

    fleet: FleetEstimate[Job]
    keeping: Keeping | None

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        job, lacking = self.fleet.job, self.fleet.blockers.precision
        others = (name for name in JOB_PRECISIONS[job.task] if name not in job.precisions)
        jobs = [replace(job, precisions=(*job.precisions, name)) for name in others]
        admits = [
            _types_within_limits(self.keeping, each, self.fleet.counts, rejected, lacking, catalog) for each in jobs
        ]
        most = max(range(len(jobs)), key=lambda index: admits[index].bit_count(), default=None)
        if most is None or not admits[most]:
            return None
        to: dict[str, object] = {"workload.precision": [*jobs[most].precisions]}
        return Relaxation(to, rejected.only(admits[most]), ChangeOfWork(jobs[most]))


@dataclass(frozen=True, slots=True)
class _RoomForCache:
    """Makes room for the cache of a request: by a cache in fp8, else by more memory, else by a shorter prompt."""

    memory: _MoreMemory

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        return (
            self._cache_in_fp8(rejected, catalog)
            or self.memory.relax(rejected, catalog)
            or self._shorter_prompt(rejected, catalog)
        )

    def _cache_in_fp8(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        fleet = self.memory.fleet
        if fleet.job.kv_precision is not None or fleet.job.software.stack.keeps_wide_cache:
            return None
        job = replace(fleet.job, kv_precision="fp8")
        if not self._have_room(job, rejected, catalog):
            return None
        return self.memory.relaxation({"workload.kv_cache_precision": "fp8"}, job, fleet.counts, rejected, catalog)

    def _shorter_prompt(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        """Finds the longest prompt that has room, by bisection."""
        job, counts = self.memory.fleet.job, self.memory.fleet.counts
        low = shortest = ceil(job.image_tokens)
        high = int(input_length(job))
        for _ in range(HALVINGS_OF_A_PROMPT):
            tokens = (low + high) // 2
            if tokens in (low, high):
                break
            have_room = self._have_room(with_prompt(job, tokens), rejected, catalog)
            low, high = (tokens, high) if have_room else (low, tokens)
        if low == shortest:
            return None
        return self.memory.relaxation(prompt_change(job, low), with_prompt(job, low), counts, rejected, catalog)

    def _have_room(self, job: Job, rejected: AdmittedOffers, catalog: Catalog) -> TypeSet:
        """Returns the types that lack room for the cache now, and run another job within the limits."""
        memory = self.memory
        return memory.helped(job, memory.fleet.counts, rejected.only(rejected.types & memory.fails), catalog)


@dataclass(frozen=True, slots=True)
class _FewerRequests:
    """Lowers the requests in flight to the most that some of the types run at once, if no limit depends on them."""

    fleet: FleetEstimate[Job]
    limited: bool
    fails: TypeSet

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        most = np.floor(np.max([option.most_requests for option in self.fleet.options], axis=0))
        most = np.where(catalog.mask(rejected.types & self.fails), most, 0.0)
        if self.limited or not most.any():
            return None
        fewer = int(most.max())
        admitted = rejected.only(types_where(most == most.max()))
        change = ChangeOfWork(replace(self.fleet.job, concurrency=float(fewer)))
        return Relaxation({"workload.concurrency": fewer}, admitted, change)


def _types_within_limits(
    keeping: Keeping | None, job: Job, counts: tuple[int, ...], rejected: AdmittedOffers, blocked: TypeSet,
    catalog: Catalog,
) -> TypeSet:  # fmt: skip
    if keeping is not None:
        return keeping(rejected, blocked, job, counts)
    return catalog.derive(types_that_run, job, counts, rejected.types & blocked, cache=catalog.outlooks)


def _up_to(most: int, counts: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the counts that are at most this number, and the others."""
    return tuple(count for count in counts if count <= most), tuple(count for count in counts if count > most)


def _types_that_fit_with(catalog: Catalog, fleet: FleetEstimate[Job], confidence: float, types: TypeSet) -> TypeSet:
    return types_that_fit_with(confidence, fleet.job, fleet.counts, fleet.options, types, catalog)


# Limits on the whole job


def limit_checks(
    planner: Planner, candidates: CheapestOffers, usd_per_hour: float | None, catalog: Catalog
) -> list[Check]:
    """Returns checks for types that run the job, but miss a limit on it with all offers up to `usd_per_hour`."""
    limits, count = planner.limits, len(catalog.instance_types)
    if planner.fleet.job.amount is None and not limits.bind:
        return []
    plans = plans_of(planner, candidates, catalog)
    # Without limits only endless runs are rejected, which are rare.
    if not limits.bind and not (plans.works & ~plans.ends).any():
        return []
    shown = plans.works
    if usd_per_hour is not None:
        above = candidates.types & ~candidates.within(usd_per_hour)  # all their offers are above, so all of these count
        shown = shown & ((candidates.usd <= usd_per_hour) | mask_of(above, count)[candidates.instance_type])

    def among(mask: Mask) -> TypeSet:
        return candidates.types_at(shown & mask)

    ends = among(plans.ends)

    least = {field: _least_of_types(kept.least[shown], candidates.instance_type[shown], count)
             for field, kept in plans.kept.items()}  # fmt: skip
    keep_none = ~among(plans.keeps)
    rejected = ends & keep_none
    # A type fails the limits that no plan keeps, and those that admit it if they alone are raised.
    fails = {
        field: rejected & (~among(kept.keeps) | types_where((least[field] > kept.limit) & np.isfinite(least[field])))
        for field, kept in plans.kept.items()
    }
    # A cost of which a part is unknown keeps no limit in dollars, and no higher one either.
    dollars = tuple(field for field in LIMITS_IN_DOLLARS if field in fails)
    unknown = rejected & ~among(plans.ends & ~plans.undecided) if dollars else 0
    fails |= {field: fails[field] & ~unknown for field in dollars}
    if plans.kept:
        # A type that keeps each limit, and that no change of one of them admits, fails the last one.
        last = [field for field, kept in plans.kept.items() if kept.limit < np.inf][-1]
        fails[last] |= rejected & ~unknown & ~union(fails.values())

    def check(field: str) -> Check:
        kind = LIMITS_BY_FIELD[field]
        load = limits.load
        few = load is not None and (load.concurrency is not None or load.max_instances < MOST_INSTANCES)
        over_least = 1.0 if few else kind.over_least
        rule = _LimitRelaxation(field, kind, over_least, fails[field], least[field], keep_none)
        return Check(kind.code, "constraint", fails[field], rule, of_plans=True, changes_plans=True)

    endless = among(plans.works) & ~ends
    resuming, without_limits = _Resuming(planner, candidates, endless), DropLimits(dollars, unknown, rejected)
    return [
        Check(RejectionCode.INTERRUPTIONS, "constraint", endless, resuming, of_plans=True),
        *map(check, plans.kept),
        Check(RejectionCode.COST_UNKNOWN, "data", unknown, without_limits, of_plans=True, changes_plans=True),
    ]


def _least_of_types(figures: Floats, types: Indices, count: int) -> Floats:
    """Returns the least figure of each of so many types, given those of candidates; infinite for other types."""
    least = np.full(count, np.inf)
    np.fmin.at(least, types, figures)
    return least


@dataclass(frozen=True, slots=True)
class _Resuming:
    """Lets a run go on after an interruption, where it starts again from the beginning."""

    planner: Planner
    candidates: CheapestOffers
    fails: TypeSet

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        if self.planner.resumable is self.planner:
            return None
        keeps = plans_of(self.planner.resumable, self.candidates, catalog).keeps
        types = rejected.types & self.fails & self.candidates.types_at(keeps, rejected.limit)
        return Relaxation({"workload.fault_tolerant": True}, rejected.only(types), RESUMING) if types else None


@dataclass(frozen=True, slots=True)
class _LimitRelaxation:
    """Raises a limit to the least value that admits something, or to a multiple of it, rounded up to its parts."""

    field: str
    kind: LimitKind
    over_least: float
    fails: TypeSet
    least: Floats
    miss_any: TypeSet
    """Types of which no plan keeps all limits."""

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        least = np.where(mask_of(rejected.types & self.fails, len(self.least)), self.least, np.inf)
        if not np.isfinite(least).any():
            return None
        # Rounded up, so that the proposed limit admits the plan although it has few digits.
        parts, needed = self.kind.parts, float(self.over_least * least.min())
        whole = ceil(needed * parts)
        # The product may round down: 3.26 and a bit becomes 3,260,000 millionths, which are less.
        limit = (whole if whole / parts >= needed else whole + 1) / parts
        limit = int(limit) if parts == 1 else limit
        admitted = rejected.only(self.miss_any & types_where(self.least <= limit))
        return Relaxation({self.kind.prefix + self.field: limit}, admitted, ChangeOfWork(limits={self.field: limit}))


def keeping_otherwise(
    planner: Planner, candidates: CheapestOffers, rejected: AdmittedOffers, blocked: TypeSet, job: Job,
    counts: tuple[int, ...], catalog: Catalog,
) -> TypeSet:  # fmt: skip
    """Returns which types of the rejected offers keep the limits only with another job or other numbers of nodes."""
    if isinstance(planner.fleet.job, NamedWork):
        return 0  # other estimates need a job, and named work has only measurements
    # Another estimate may help types that do not hold the job, and types that miss its limits.
    now = plans_of(planner, candidates, catalog)
    misses = candidates.types_at(now.works) & ~candidates.types_at(now.keeps)
    types = rejected.types & (blocked | misses)
    if not types:
        return 0
    # Only the types are cached, since estimates of many numbers of nodes take megabytes.
    return catalog.derive(
        _types_that_keep, planner, candidates, types, rejected.limit, job, counts, cache=catalog.outlooks
    )


def _types_that_keep(
    catalog: Catalog, planner: Planner, candidates: CheapestOffers, types: TypeSet, limit: float | None, job: Job,
    counts: tuple[int, ...],
) -> TypeSet:  # fmt: skip
    fleet, candidates = estimate_types(catalog, job, counts, types), offers_of(catalog, candidates, types)
    plans = find_plans(catalog, replace(planner, fleet=fleet), candidates)
    return types & candidates.types_at(plans.keeps, limit)
