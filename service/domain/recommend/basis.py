"""The basis of a ranking: the plans of a job, or peaks if there is no job, under one objective."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isnan
from typing import Any, NamedTuple

import numpy as np

from service.domain.arrays import Floats, Mask
from service.domain.bill.charges import premium_unknown
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.precision import ENOUGH, SUPPORT_LEVELS, USUAL_PRECISIONS, SupportAsked
from service.domain.catalog.reference import fee_of
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import Job
from service.domain.recommend.answer import UNTIED, Limits, Question, RankedOffer, Ties
from service.domain.recommend.fleet import (
    FleetEstimate,
    estimate_by_name,
    estimate_fleet,
    gpu_counts,
    job_checks,
    node_counts,
    not_measured,
    with_measurements,
)
from service.domain.recommend.objective import NEEDS_POWER, NEEDS_SPEED, Figures, Objective
from service.domain.recommend.plans import SPOT, Planner, Plans, keeping_otherwise, limit_checks, plans_of
from service.domain.recommend.ranking import Ranked, rank
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers, CheapestOffers, offer_choice
from service.domain.selection.relax import ChangeOfWork, Check
from service.domain.selection.requirements import NOTHING, Requirements, requirement_checks
from service.domain.selection.selection import Selection, select
from service.domain.typeset import TypeSet, types_where

PRECISION_BY_TASK: dict[str, tuple[str, ...]] = {
    "training": USUAL_PRECISIONS,
    "inference": USUAL_PRECISIONS,
    "hpc": ("fp64",),
    "graphics": ("fp32",),
}
"""Precisions that a task can use if the caller names none; the fastest of each GPU counts. Other tasks need no GPU."""

SERIAL_TASKS = frozenset({"sequential", "development"})
"""Tasks that more cores do not speed up: every host is as fast as one core, so the price decides."""


class PeaksAsked(NamedTuple):
    """The parts of a question that determine the precision which a ranking by peaks assumes on each instance type."""

    task: str
    precisions: tuple[str, ...]
    """Precisions that the caller names."""
    usual: tuple[str, ...]
    """Precisions of which the fastest counts if the caller names none; empty: the usual ones of the task."""
    support: SupportAsked


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """The precision that the ranking assumes on each instance type, and the peak in it."""

    asked: PeaksAsked
    peak: Floats
    assumed: tuple[tuple[str | None, float | None], ...]
    """Precision and peak of each type; None where a type has none or it is unknown."""
    unknown: TypeSet
    """Types that run such a precision at an unknown peak."""


class Basis(NamedTuple):
    """The objective with either the planner of a job or peaks; the other one is None."""

    objective: Objective
    planner: Planner | None
    peaks: Peaks | None
    nodes: int = 1
    """Nodes of every choice, where peaks rank."""
    runs: int = 1
    """Independent runs, where peaks rank: each takes a GPU of its own, on as many machines as that needs."""
    most_machines: int | None = None
    """Most machines for the runs, which share GPUs if these machines have too few; None without a limit."""
    managed_service: str | None = None
    """The managed service that rents the machines, whose premium is part of their price."""

    def under(self, objective: Objective, limits: Limits | None = None) -> "Basis":
        """Returns the same basis under another objective and, if given, other limits."""
        planner = self.planner
        if planner is not None:
            planner = replace(planner, objective=objective, limits=planner.limits if limits is None else limits)
        return self._replace(objective=objective, planner=planner)

    def after(self, change: ChangeOfWork, types: TypeSet, catalog: Catalog) -> "Basis":
        """Returns the basis after a change of the question, to rank these types."""
        if self.peaks is not None and change.precisions:
            return self._replace(peaks=assumed_peaks(self.peaks.asked._replace(precisions=change.precisions), catalog))
        return self if self.planner is None else self._replace(planner=self.planner.after(change, types, catalog))


def basis_of(question: Question, catalog: Catalog) -> Basis:
    """Returns the basis of a question's ranking; estimates the fleet if there is a job."""
    if question.work.job is None:
        support = question.constraints.precision_support
        asked = PeaksAsked(question.work.task, question.precisions, question.usual, support)
        peaks = assumed_peaks(asked, catalog)
        most = question.limits.max_instances if "constraints.max_instances" in question.given else None
        return Basis(
            question.objective, None, peaks, question.nodes[0], question.work.concurrent_runs, most,
            question.managed_service,
        )  # fmt: skip
    fleet = _fleet(question.work.job, question.name, node_counts(*question.nodes), catalog)
    planner = Planner(
        fleet, question.objective, question.limits, question.checkpoints, question.run, question.managed_service
    )
    return Basis(question.objective, planner, None, managed_service=question.managed_service)


def _fleet(
    job: Job | NamedWork, name: str | None, counts: tuple[int, ...], catalog: Catalog
) -> FleetEstimate[Job] | FleetEstimate[NamedWork]:
    if isinstance(job, NamedWork):
        return estimate_by_name(job, counts, catalog.measurements.under(job.name), catalog)
    fleet = estimate_fleet(job, counts, catalog)
    measured = () if name is None else catalog.measurements.under(name)
    return with_measurements(fleet, measured, catalog) if measured else fleet


# Select


def select_by(basis: Basis, constraints: Constraints, needs: Requirements, catalog: Catalog) -> Selection:
    """Returns the types that the constraints and requirements admit and the basis can rank."""
    of_workload = () if needs is NOTHING else requirement_checks(needs, catalog)
    checks = (*_job_checks(basis, constraints, catalog), *_figure_checks(basis, catalog), *of_workload)
    if basis.planner is None or not basis.planner.limits.bind:
        return select(constraints, catalog, checks)
    # A change that admits refused spot offers also makes the job resumable.
    planner = basis.planner.resumable if constraints.spot_refused else basis.planner
    return select(constraints, catalog, checks, lambda offers: plans_of(planner, offers, catalog).keeps)


def _job_checks(basis: Basis, constraints: Constraints, catalog: Catalog) -> Iterator[Check]:
    planner = basis.planner
    if planner is None:
        return
    candidates = offer_choice(constraints.of_offers, catalog).cheapest
    if isinstance(planner.fleet.job, NamedWork):
        yield from not_measured(planner.fleet, catalog)
    else:
        limited = planner.limits.bind
        # On spot, a run with an amount of work may never end.
        may_miss = limited or (planner.fleet.job.amount is not None and "spot" in constraints.market)
        keeping = partial(keeping_otherwise, planner, candidates, catalog=catalog) if may_miss else None
        yield from job_checks(planner.fleet, keeping, limited=limited)
    yield from limit_checks(planner, candidates, constraints.max_usd_per_hour, catalog)


def _figure_checks(basis: Basis, catalog: Catalog) -> Iterator[Check]:
    """Yields checks for types without a figure that the objective needs."""
    if basis.peaks is not None and basis.objective.needs(NEEDS_SPEED):
        yield Check("peak_unknown", "data", basis.peaks.unknown)
    if basis.objective.needs(NEEDS_POWER):
        yield Check("power_unknown", "data", types_where(np.isnan(catalog.columns.numbers["tdp_watts"])))


# Rank


def rank_by(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> Ranked:
    """Returns the admitted offers, best first; those that miss a limit on the whole job come last."""
    ranked = _order_of(basis, admitted, catalog)
    # Indices are faster than a mask where few of many rows are taken.
    return ranked.rows(np.flatnonzero(admitted.among(ranked.instance_type, ranked.usd)))


def best_of_types(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> Ranked:
    """Returns the best admitted offer of each type that keeps the limits on the whole job, best first."""
    return rank_by(basis, admitted, catalog).keeping_limits().best_of_each()


def best_by(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> tuple[int, int]:
    """Returns the instance type and the offer of the best admitted offer, by index."""
    ranked = _order_of(basis, admitted, catalog)
    row = ranked.first_row(admitted)
    return int(ranked.instance_type[row]), int(ranked.offer[row])


def _order_of(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> Ranked:
    """Returns an order of offers, the admitted ones among them."""
    # The cheapest offers of each type and market are the same for many questions, so they are ordered once.
    ranked = catalog.derive(order, basis, admitted.cheapest, cache=catalog.outlooks)
    # A figure that makes a score unknown may be irrelevant among the admitted offers alone.
    if ranked.unknown & admitted.types:
        ranked = order(catalog, basis, admitted.cheapest.among(admitted.rows, catalog))
    return ranked


def order(catalog: Catalog, basis: Basis, candidates: CheapestOffers) -> Ranked:
    """Returns all of these offers, best first; those that miss a limit on the whole job have an infinite score."""
    if basis.planner is not None:
        plans = plans_of(basis.planner, candidates, catalog)
        return rank(candidates, basis.objective, plans.figures, plans.incomplete, plans, catalog)
    assert basis.peaks is not None
    figures, incomplete = figures_of(candidates, basis, basis.peaks, catalog)
    return rank(candidates, basis.objective, figures, incomplete, None, catalog)


def ranked_offer(
    basis: Basis,
    ranked: Ranked,
    row: int,
    catalog: Catalog,
    tied: Ties = UNTIED,
    *,
    pareto: bool = False,
) -> RankedOffer:
    """Returns one row of a ranking as a value."""
    index, offer_index = int(ranked.instance_type[row]), int(ranked.offer[row])
    instance_type = catalog.instance_types[index]
    if ranked.plans is None:
        figures = _figures_by_peak(basis, index, instance_type)
    else:
        figures = _figures_of_plan(ranked.plans, int(ranked.candidate[row]))
    return RankedOffer(
        rank=row + 1,
        instance_type=instance_type,
        index=index,
        offer_index=offer_index,
        offer=catalog.offers.offer(offer_index),
        score=float(ranked.score[row]),
        service_fee=fee_of(catalog.reference.fees, instance_type, basis.managed_service, catalog.day),
        tied=tied,
        pareto=pareto,
        **figures,
    )


def _figures_by_peak(basis: Basis, index: int, instance_type: InstanceType) -> dict[str, Any]:
    """Returns the fields of `RankedOffer` that a ranking by peaks knows of a type."""
    assert basis.peaks is not None
    precision, peak = basis.peaks.assumed[index]
    share, machines = share_of_runs(basis, instance_type)
    speed = None if peak is None else peak * basis.nodes * share
    return {"precision": precision, "speed": speed, "nodes": basis.nodes, "instances": int(machines)}


def _figures_of_plan(plans: Plans, candidate: int) -> dict[str, Any]:
    """Returns the fields of `RankedOffer` that the plan of a candidate has."""
    columns = {
        "speed": plans.rate,
        "hours": plans.hours,
        "usd": plans.figures.usd,
        "seconds_per_request": plans.seconds_per_request,
    }
    figures = {name: known(float(column[candidate])) for name, column in columns.items()}
    usd, speed = figures["usd"], figures["speed"]
    return figures | {
        "nodes": int(plans.nodes[candidate]),
        "instances": int(plans.instances[candidate]),
        "samples_per_usd": float(plans.figures.samples[candidate]) / usd if usd else None,
        "joules_per_sample": known(float(plans.figures.watts[candidate]) / speed) if speed else None,
    }


# Peaks


def assumed_peaks(asked: PeaksAsked, catalog: Catalog) -> Peaks:
    """Returns the precision in which the workload would run on each type, and its peak; cached.

    It is the first of the caller's `precisions` that the type runs at a known peak, else the first that it runs.
    Without `precisions`, it is the fastest of `usual`, or of the usual ones of the task if `usual` is empty too.
    """
    return catalog.derive(_find_peaks, asked)


def usual_precisions(task: str, catalog: Catalog) -> tuple[str, ...]:
    """Returns the precisions that a task can use if the caller names none; empty for work that needs no GPU."""
    return tuple(name for name in PRECISION_BY_TASK.get(task, ()) if name in catalog.reference.precisions)


def share_of_runs(basis: Basis, instance_type: InstanceType) -> tuple[float, float]:
    """Returns the share of a machine's peak that the runs use, and the number of machines that they take.

    Each of several runs uses one GPU, or a whole machine without GPUs. A single run is assumed to use all GPUs.
    """
    if basis.runs == 1:
        return 1.0, 1.0
    gpus = float(max(instance_type.gpu_count, 1))
    machines = float(ceil(basis.runs / gpus))
    if basis.most_machines is not None:
        machines = min(machines, float(basis.most_machines))
    return min(float(basis.runs), machines * gpus) / gpus, machines


def figures_of(candidates: CheapestOffers, basis: Basis, peaks: Peaks, catalog: Catalog) -> tuple[Figures, Mask]:
    """Returns the figures that the objective weighs for these offers, by peaks, and which prices are lower bounds."""
    shares = [share_of_runs(basis, catalog.instance_types[index]) for index in candidates.instance_type.tolist()]
    share, machines = basis.nodes * np.array(shares, np.float64).reshape(-1, 2).T
    of_machine = catalog.hourly_usd(candidates.offer, basis.managed_service)
    price, speed = of_machine * machines, peaks.peak[candidates.instance_type] * share
    figures = Figures(
        usd=price,
        usd_per_hour=price,
        hours=1 / speed,
        speed=speed,
        paid_speed=speed,
        watts=catalog.columns.numbers["tdp_watts"][candidates.instance_type] * machines,
        risk=(catalog.offers.market[candidates.offer] == SPOT).astype(np.float64),
        machines=machines,
        gpu_count=gpu_counts(catalog)[candidates.instance_type] * machines,
        gpu_memory_gb=catalog.columns.numbers["gpu_memory_gb"][candidates.instance_type],
        samples=speed,
        data_usd=np.zeros(len(price)),
    )
    return figures, premium_unknown(basis.managed_service, candidates.instance_type, catalog)


def known(value: float) -> float | None:
    """Returns the value; None for NaN."""
    return None if isnan(value) else value


def _find_peaks(catalog: Catalog, asked: PeaksAsked) -> Peaks:
    task, precisions, usual, support = asked
    names = precisions or usual or usual_precisions(task, catalog)
    if not names:
        vcpus = catalog.columns.numbers["vcpus"]
        if task in SERIAL_TASKS:
            # One core, or less on a machine with less.
            vcpus = np.minimum(vcpus, 1.0)
        pairs = tuple((None, known(peak)) for peak in vcpus.tolist())
        return Peaks(asked, vcpus, pairs, types_where(np.isnan(vcpus)))
    enough = np.array([level in ENOUGH[support] for level in SUPPORT_LEVELS] + [False])
    types = len(catalog.instance_types)
    peak, chosen = np.full(types, np.nan), np.full(types, -1)
    for code, name in enumerate(names):
        tflops = catalog.columns.tflops[name]
        # Of the caller's precisions the first with a known peak counts, so that a longer list never rejects more types.
        better = (chosen < 0) | (np.isnan(peak) & ~np.isnan(tflops) if precisions else tflops > np.nan_to_num(peak))
        taken = enough[catalog.columns.support[name]] & better
        peak[taken], chosen[taken] = tflops[taken], code
    assumed = [None if code < 0 else names[code] for code in chosen.tolist()]
    of_types = tuple(zip(assumed, map(known, peak.tolist()), strict=True))
    return Peaks(asked, peak, of_types, types_where(np.isnan(peak) & (chosen >= 0)))
