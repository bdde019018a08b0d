"""A job on every instance type at once: whether it runs and fits, how fast, and on how many nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask
from service.domain.band import Band
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import Measurement
from service.domain.estimate.estimate import modelled_rate, modelled_rate_in
from service.domain.evidence.named import ModelledRate, NamedMeasurements, NamedRate, NamedWork, Place
from service.domain.jobs.job import Job
from service.domain.layouts.fleet_columns import (
    EstimateColumns,
    FleetLayouts,
    estimate_columns,
    has_processor,
    is_rated,
    known_too_small,
    no_estimates,
)
from service.domain.layouts.job_estimate import JobEstimate, at_rate, estimate_job_in
from service.domain.physics.cluster import Cluster, cluster_of_instance
from service.domain.physics.parallelism import Layout
from service.domain.typeset import TypeSet, mask_of, types_where
from service.domain.units import SECONDS_AN_HOUR

W = TypeVar("W")
Measured = tuple[Measurement, ...]
"""The measurements under a workload's name. They are an argument of cached functions, because they differ by caller."""


class Blockers(NamedTuple):
    """Instance types that cannot run the job on any number of nodes, grouped by the first reason."""

    gpu: TypeSet = 0
    figures: TypeSet = 0
    """Types whose GPU lacks a figure that estimates need."""
    precision: TypeSet = 0
    layout: TypeSet = 0
    """Types over whose GPUs no layout divides the batch, or none with its fixed parts divides the job."""
    gpu_memory: TypeSet = 0
    kv_cache: TypeSet = 0
    """Types that hold the weights, but not the cache of a single request."""
    host_memory: TypeSet = 0
    concurrency: TypeSet = 0
    """Types that hold the job, but run fewer requests at once than it asks for."""

    @classmethod
    def of(cls, options: Sequence[EstimateColumns], too_small: TypeSet, catalog: Catalog) -> "Blockers":
        """Returns the first reason of each type, on the smallest number of nodes that works.

        Where none works, the number that runs the most requests at once counts; where the job fits on none, the number
        on which it needs the least memory. Types that are `too_small` lack memory, whatever else is unknown.
        """
        no_gpu, unrated = catalog.derive(_without_figures)
        works, fit = (np.array([getattr(option, name) for option in options]) for name in ("works", "fits"))
        requests, needed = ([getattr(option, name) for option in options] for name in ("most_requests", "needed_bytes"))
        most = np.argmax(np.where(fit, requests, -1.0), axis=0)
        closest = np.where(fit.any(axis=0), most, np.argmin(needed, axis=0))
        best = np.where(works.any(axis=0), works.argmax(axis=0), closest)
        of_best = partial(_chosen, options, best)
        rated = ~mask_of(no_gpu | unrated, len(catalog.instance_types))
        runs, exists, fits, holds_weights = (of_best(name) for name in ("runs", "exists", "fits", "holds_weights"))
        full = rated & runs & exists & ~fits
        over_gpu_memory = full & (of_best("sure_bytes") > of_best("usable_bytes"))
        return cls(
            gpu=no_gpu,
            figures=unrated & ~too_small,
            precision=types_where(rated & ~runs),
            layout=types_where(rated & runs & ~exists),
            gpu_memory=types_where(over_gpu_memory & ~holds_weights) | (unrated & too_small),
            kv_cache=types_where(over_gpu_memory & holds_weights),
            host_memory=types_where(full & ~over_gpu_memory),
            concurrency=types_where(rated & runs & exists & fits & ~of_best("holds")),
        )

    @property
    def removable(self) -> TypeSet:
        """Types that may run the job with a change of it, or on more nodes."""
        return self.layout | self.gpu_memory | self.kv_cache | self.host_memory | self.concurrency


@dataclass(frozen=True, slots=True, eq=False)
class FleetEstimate(Generic[W]):
    """A job, or a workload that is known by its name alone, on every instance type and each number of nodes.

    Compared by identity: it is a key of cached values, and comparing jobs takes long.
    """

    job: W
    counts: tuple[int, ...]
    options: tuple[EstimateColumns, ...]
    """One for each number of nodes."""
    layouts: tuple[FleetLayouts, ...]
    """One for each number of nodes; empty for a workload without layouts."""
    blockers: Blockers
    measured: Mapping[tuple[int, int], NamedRate] = field(default_factory=dict)
    """Rate under the workload's name, by index of the instance type and number of nodes."""

    def on(self, nodes: int) -> EstimateColumns:
        """Returns the estimates on a number of nodes."""
        return self.options[self.counts.index(nodes)]

    def layout(self, index: int, nodes: int) -> Layout:
        """Returns the best layout on a number of nodes of an instance type."""
        return self.layouts[self.counts.index(nodes)].of(index)

    def watts(self, nodes: int, catalog: Catalog) -> Floats:
        """Returns the power of one machine of each type: measured with the work on this number of nodes, else the rated
        power of its GPUs.
        """
        watts = catalog.columns.numbers["tdp_watts"].copy()
        for (index, count), rate in self.measured.items():
            if count == nodes and rate.basis == "measured" and rate.evidence.watts is not None:
                watts[index] = rate.evidence.watts
        return watts


def gpu_counts(catalog: Catalog) -> Floats:
    """Returns the GPUs of each type; NaN without GPUs, so that such a machine does not count as the smallest."""
    counts = catalog.columns.numbers["gpu_count"]
    return np.where(counts > 0, counts, np.nan)


def _chosen(options: Sequence[EstimateColumns], option: Indices, name: str) -> NDArray[Any]:
    """Returns a column of the options, where `option` has the index of the option of each row."""
    return np.array([getattr(each, name) for each in options])[option, np.arange(len(option))]


def node_counts(least: int, most: int) -> tuple[int, ...]:
    """Returns the numbers of nodes to try: `least`, and each 2^n, 3 x 2^n and 5 x 2^n from `least` to `most`."""
    # They divide batches and layers evenly, and are few. A number that depended on the most would be missing under a
    # higher limit, which could then have the worse answer.
    usual = (times << power for power in range(most.bit_length()) for times in (1, 3, 5))
    return tuple(sorted({least, *(count for count in usual if least <= count <= most)}))


def estimate_fleet(job: Job, counts: Sequence[int], catalog: Catalog) -> FleetEstimate[Job]:
    """Returns the job on every instance type and each number of nodes; cached."""
    return catalog.derive(estimate_types, job, tuple(counts), cache=catalog.outlooks)


def estimate_on(fleet: FleetEstimate[Job], index: int, nodes: int, catalog: Catalog) -> tuple[JobEstimate, Cluster]:
    """Returns the job on one instance, in the layout that the fleet's estimate found best, and its cluster; cached."""
    # Estimating the shown choices takes three times as long as the rest of the answer for a job that was asked before.
    return catalog.derive(_estimate_on, fleet, index, nodes, cache=catalog.outlooks)


def _estimate_on(catalog: Catalog, fleet: FleetEstimate[Job], index: int, nodes: int) -> tuple[JobEstimate, Cluster]:
    cluster = cluster_of_instance(catalog.instance_types[index], nodes, fleet.job.assumed_network_gbps)
    estimate = estimate_job_in(catalog.reference.calibration, fleet.job, cluster, fleet.layout(index, nodes))
    if (rate := fleet.measured.get((index, nodes))) is not None:
        estimate = at_rate(estimate, rate.samples_per_second, measured=rate.basis == "measured")
    return estimate, cluster


def estimate_types(
    catalog: Catalog, job: Job, counts: tuple[int, ...], among: TypeSet | None = None
) -> FleetEstimate[Job]:
    """Returns the job on some instance types, or on all of them, and each number of nodes."""
    options, layouts = estimate_columns(job, counts, catalog, among)
    return FleetEstimate(job, counts, options, layouts, _blockers(job, counts, options, catalog))


def _blockers(job: Job, counts: tuple[int, ...], options: Sequence[EstimateColumns], catalog: Catalog) -> Blockers:
    return Blockers.of(options, known_too_small(job, counts[-1], catalog), catalog)


def with_measurements(catalog: Catalog, fleet: FleetEstimate[Job], measured: Measured) -> FleetEstimate[Job]:
    """Returns the estimate with the rates that were measured under a name in place of the modelled ones."""
    if fleet.job.serving is not None:
        return fleet
    on_one, on_several = (NamedMeasurements.of(measured, catalog, several=several) for several in (False, True))
    options, rates = list(fleet.options), dict[tuple[int, int], NamedRate]()
    for option, nodes in enumerate(fleet.counts):
        runs = on_one if nodes == 1 else on_several
        if runs.machines:
            options[option], of_types = _at_measured_rates(fleet, nodes, runs, catalog)
            rates |= {(index, nodes): rate for index, rate in of_types.items()}
    blockers = _blockers(fleet.job, fleet.counts, options, catalog)
    return replace(fleet, options=tuple(options), blockers=blockers, measured=rates)


def _at_measured_rates(
    fleet: FleetEstimate[Job], nodes: int, runs: NamedMeasurements, catalog: Catalog
) -> tuple[EstimateColumns, dict[int, NamedRate]]:
    """Returns the estimates on a number of nodes with the rates by runs, and these rates by type."""
    modelled, proved = fleet.on(nodes), _proved_to_fit(fleet, nodes, runs, catalog)
    modelled = replace(modelled, fits=modelled.fits | proved)
    rates = _measured_rates(fleet, nodes, runs, modelled, catalog)
    columns = {each: getattr(modelled, each).copy() for each in ("low", "likely", "high", "hours")}
    for index, rate in rates.items():
        band = rate.samples_per_second
        # The hours follow the measured rate: the amount of work stays the same.
        columns["hours"][index] = modelled.work[index] / band.likely / SECONDS_AN_HOUR
        for each in ("low", "likely", "high"):
            columns[each][index] = getattr(band, each)
    # A type without a measured rate is not proved to fit, and the estimate has no rate where the job does not fit.
    proved[list(rates)] = False
    return replace(modelled, fits=modelled.fits & ~proved, **columns), rates


def _measured_rates(
    fleet: FleetEstimate[Job], nodes: int, runs: NamedMeasurements, modelled: EstimateColumns, catalog: Catalog
) -> dict[int, NamedRate]:
    """Returns the rate by runs of each type on which the job works, and to which a run applies."""
    types, works, rates = catalog.instance_types, modelled.works, dict[int, NamedRate]()
    gpus = {each.gpu.id for each in runs.machines.values() if each.gpu}

    @cache
    def in_best_layout(place: Place) -> ModelledRate | None:
        return modelled_rate_in(fleet.job, types[catalog.index_of[place.machine]], place.nodes, catalog)

    @cache
    def as_asked(place: Place) -> ModelledRate | None:
        index = catalog.index_of[place.machine]
        if not works[index]:
            return None
        if place in runs.machines:
            return modelled_rate(estimate_on(fleet, index, nodes, catalog)[0])
        return ModelledRate(Band(*(float(column[index]) for column in (modelled.low, modelled.likely, modelled.high))))

    def modelled_in(here: Place, place: Place) -> ModelledRate | None:
        # A layout that the caller fixes is not that of runs on other machines.
        elsewhere = place.nodes != nodes or (fleet.job.layout_is_fixed and place != here)
        return in_best_layout(place) if elsewhere else as_asked(place)

    for index in np.flatnonzero(works).tolist():
        here, gpu = Place(types[index].id, nodes), getattr(types[index].gpu, "id", None)
        if here in runs.machines or gpu in gpus:
            rate = runs.measured_or_corrected(here, gpu, partial(modelled_in, here))
            if rate is not None:
                rates[index] = rate
    return rates


def _proved_to_fit(fleet: FleetEstimate[Job], nodes: int, runs: NamedMeasurements, catalog: Catalog) -> Mask:
    """Returns the types on which the job was measured and may fit, although it does not fit with its confidence.

    Where the job cannot fit, the runs under its name were of other work.
    """
    columns, proved = fleet.on(nodes), np.zeros(len(catalog.instance_types), np.bool_)
    for index in (catalog.index_of[place.machine] for place in runs.machines if place.nodes == nodes):
        if columns.runs[index] and columns.exists[index] and not columns.fits[index]:
            estimate, _ = estimate_on(fleet, index, nodes, catalog)
            proved[index] = estimate.estimate.samples_per_second is not None
    return proved


def _without_figures(catalog: Catalog) -> tuple[TypeSet, TypeSet]:
    """Returns the types without a GPU, and those whose GPU lacks a figure that estimates need."""
    has_gpu, rated = catalog.types_that(has_processor), catalog.types_that(is_rated)
    return catalog.all_types & ~has_gpu, has_gpu & ~rated


# A workload that is known by its name alone


def estimate_by_name(
    catalog: Catalog, work: NamedWork, counts: tuple[int, ...], measured: Measured
) -> FleetEstimate[NamedWork]:
    """Returns the rate of one machine of each type, measured there or scaled from the most similar one."""
    types = len(catalog.instance_types)
    runs = NamedMeasurements.of(measured, catalog)
    rates: dict[int, NamedRate] = {}
    for index, instance_type in enumerate(catalog.instance_types):
        rate = runs.measured_or_scaled(instance_type, work.precision)
        if rate is not None:
            rates[index] = rate
    options = tuple(no_estimates(types) for _ in counts)
    if counts[0] == 1:
        _fill(options[0], rates, work)
    of_one = {(index, 1): rate for index, rate in rates.items()}
    return FleetEstimate(work, counts, options, (), Blockers(), of_one)


def _fill(columns: EstimateColumns, rates: Mapping[int, NamedRate], work: NamedWork) -> None:
    amount, columns.instances[:] = work.amount, work.runs
    samples = 1.0 if amount is None or amount.samples is None else amount.samples * work.runs
    for index, rate in rates.items():
        band = rate.samples_per_second
        columns.runs[index] = columns.exists[index] = columns.fits[index] = True
        columns.low[index], columns.likely[index], columns.high[index] = band.low, band.likely, band.high
        columns.hours[index], columns.samples[index] = samples / band.likely / SECONDS_AN_HOUR, samples
