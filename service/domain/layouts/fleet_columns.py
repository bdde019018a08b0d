"""Estimates of a job as columns of instance types. Equal clusters are estimated once, and all clusters together."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask, taken
from service.domain.calibration.calibration import Calibration
from service.domain.calibration.step_kinds import TRAINING
from service.domain.catalog.catalog import Catalog, without_cluster
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.groups import grouped, one_of_each
from service.domain.jobs.config import Config, InferenceConfig, TrainingConfig
from service.domain.jobs.job import Job
from service.domain.jobs.job_on_gpu import config_on, gpu_traits
from service.domain.jobs.loading import SampleLoading
from service.domain.layouts.best_layouts import BestLayouts, LayoutFigures, no_figures
from service.domain.layouts.cluster_table import ClusterTable, Machines, distinct
from service.domain.layouts.inference_configs import InferenceConfigs
from service.domain.layouts.inference_search import (
    fastest_inference_layouts,
    inference_bands,
    where_inference_fits,
)
from service.domain.layouts.job_estimate import samples_of_runs
from service.domain.layouts.training_search import (
    fastest_training_layouts,
    training_bands,
    where_training_fits,
)
from service.domain.physics.cluster import cluster_of_instance
from service.domain.physics.estimate import memory_margin
from service.domain.physics.features import training_config_features
from service.domain.physics.inference_roofline import forward_batch
from service.domain.physics.input_pipeline import feed_of
from service.domain.physics.load import ALMOST
from service.domain.physics.memory import plannable_bytes, weight_bytes
from service.domain.physics.parallelism import Layout, LayoutTable, layout_of
from service.domain.typeset import TypeSet, types_where
from service.domain.units import GIB, SECONDS_AN_HOUR


@dataclass(frozen=True, slots=True)
class EstimateColumns(LayoutFigures):
    """A job on a number of nodes of each instance type. Rates are samples per second; 0 where the job cannot run.

    `instances` are those that serve a load; without a load, one for each run.
    """

    runs: Mask
    """Whether the GPU has a requested precision, and the figures that estimates need."""
    holds: Mask
    """Whether as many requests run at once as the job asks for."""
    usable_bytes: Floats
    low: Floats
    likely: Floats
    high: Floats
    hours: Floats
    """Likely hours of the whole amount, or of one sample without an amount; infinite where the job does not run."""
    samples: Floats
    """Samples of the whole amount, or 1."""
    work: Floats
    """Samples whose steps take as long as the whole run, with what it does besides its steps."""

    @property
    def fewest_instances(self) -> Floats:
        """Fewest instances that serve the load in time, else that carry it, else 1; without a load, one for
        each run.
        """
        carried = self.least_alone[:, -1] if self.least_alone.shape[1] else self.instances
        return np.nan_to_num(np.where(np.isfinite(self.instances), self.instances, carried), posinf=1.0)

    @property
    def works(self) -> Mask:
        """Whether a type runs the job, holds it in memory, and runs as many requests at once as it asks for."""
        return np.asarray(self.runs & self.exists & self.fits & self.holds, np.bool_)


class FleetLayouts(NamedTuple):
    """The best layout on a number of nodes of each instance type."""

    rows: NDArray[np.unsignedinteger]
    """The layout of each distinct cluster, as a row of `LayoutTable.rows` in the narrowest type that holds it."""
    cluster: Indices
    """Row in `rows` of each instance type; -1, the last row, for one without a GPU."""

    def of(self, index: int) -> Layout:
        """Returns the layout of one instance type."""
        return layout_of(self.rows[self.cluster[index]])


class FleetClusters(NamedTuple):
    """The distinct clusters of all instance types that have GPUs."""

    table: ClusterTable
    gpu: Indices
    """Index of each cluster's GPU among the rated ones."""
    of_types: tuple[Indices, ...]
    """For each number of nodes, the cluster of each instance type; -1 if it has none."""


class _Part(NamedTuple):
    """The clusters on which a job runs in the same config, or in configs that differ in number formats alone."""

    config: TrainingConfig | InferenceConfigs
    table: ClusterTable
    indices: Indices
    """Index of each cluster of the table among the distinct ones."""


def estimate_columns(
    job: Job, counts: tuple[int, ...], catalog: Catalog, among: TypeSet | None = None
) -> tuple[tuple[EstimateColumns, ...], tuple[FleetLayouts, ...]]:
    """Returns estimates and layouts for each number of nodes, optionally only for some of the types."""
    clusters = _clusters_for(job, counts, catalog)
    rows_of_all = len(clusters.table) + 1  # the last row is of types without a GPU
    columns, layouts = no_estimates(rows_of_all, job.limits), LayoutTable.plain(rows_of_all).rows()
    for part in _parts(job, counts, catalog, among):
        estimates, layouts[part.indices] = _estimate(catalog.reference.calibration, job, part)
        for name in EstimateColumns.__dataclass_fields__:
            getattr(columns, name)[part.indices] = getattr(estimates, name)
    narrow = layouts.astype(np.min_scalar_type(int(layouts.max())))  # a quarter of the bytes for every cached job
    return (
        tuple(taken(columns, of_types) for of_types in clusters.of_types),
        tuple(FleetLayouts(narrow, of_types) for of_types in clusters.of_types),
    )


def types_that_run(catalog: Catalog, job: Job, counts: tuple[int, ...], among: TypeSet) -> TypeSet:
    """Returns those of the types that run the job on some of these numbers of nodes, at any speed.

    The types also have to keep the limits of a load on times with some number of instances.
    """
    clusters, calibration = _clusters_for(job, counts, catalog), catalog.reference.calibration
    runs = np.zeros(len(clusters.table) + 1, np.bool_)
    for part in _parts(job, counts, catalog, among):
        if isinstance(part.config, TrainingConfig):
            runs[part.indices] = where_training_fits(calibration, part.config, part.table, job.fixed)
        else:
            runs[part.indices] = where_inference_fits(calibration, part.config, part.table, job.fixed)
    admits = 0
    for of_types in clusters.of_types:
        admits |= types_where(runs[of_types])
    return among & admits


def types_that_fit_with(
    confidence: float,
    job: Job,
    counts: tuple[int, ...],
    options: tuple[EstimateColumns, ...],
    among: TypeSet,
    catalog: Catalog,
) -> TypeSet:
    """Returns those of the types that run the job with another confidence on some of these numbers of nodes.

    `options` are the estimates of the job for these numbers; types that they do not decide are estimated again.
    """
    clusters, calibration = _clusters_for(job, counts, catalog), catalog.reference.calibration
    configs, config_of_gpu = catalog.derive(_configs, job, cache=catalog.outlooks)
    margins = [memory_margin(calibration, replace(config, memory_confidence=confidence)) for config in configs]
    # The last entries are for GPUs without a config, and for types without a GPU.
    of_clusters = np.array([*np.array([*margins, np.inf])[config_of_gpu[clusters.gpu]], np.inf])
    admits = undecided = 0
    for option, of_types in zip(options, clusters.of_types, strict=True):
        admits |= types_where(option.spare >= of_clusters[of_types])
        undecided |= types_where(np.isnan(option.spare))
    if undecided := undecided & among & ~admits:
        admits |= types_that_run(catalog, replace(job, memory_confidence=confidence), counts, undecided)
    return among & admits


def no_estimates(rows: int, limits: int = 0) -> EstimateColumns:
    """Returns columns of types on which nothing runs."""
    return EstimateColumns(
        **no_figures(rows, limits),
        runs=np.zeros(rows, np.bool_),
        holds=np.ones(rows, np.bool_),
        usable_bytes=np.zeros(rows),
        low=np.zeros(rows),
        likely=np.zeros(rows),
        high=np.zeros(rows),
        hours=np.full(rows, np.inf),
        samples=np.ones(rows),
        work=np.ones(rows),
    )


def has_processor(instance_type: InstanceType) -> bool:
    """Returns whether an instance type has at least one GPU, or no GPU and CPUs with known figures."""
    return instance_type.processor is not None and (instance_type.gpu is None or instance_type.gpu_count > 0)


def is_rated(instance_type: InstanceType) -> bool:
    """Returns whether all figures of an instance type that estimates need are known."""
    processor = instance_type.processor
    return processor is not None and has_processor(instance_type) and not unknown_figures(processor)


def known_too_small(job: Job, nodes: int, catalog: Catalog) -> TypeSet:
    """Returns the types whose GPUs on so many nodes have a known memory that does not hold the weights alone."""
    least = min(map(_least_weight_bytes, _configs(catalog, job)[0]), default=0.0)
    # Some makers' GB are GiB, so that only what is too small in both is known to be.
    with np.errstate(invalid="ignore"):
        return types_where(catalog.columns.numbers["total_gpu_memory_gb"] * nodes * GIB < least)


def _least_weight_bytes(config: Config) -> float:
    if isinstance(config, TrainingConfig):
        return 0.0 if config.offload_parameters else weight_bytes(config)
    return float(np.min(config.model.parameters * config.formats.weight_bits / 8))


def unknown_figures(gpu: Gpu) -> tuple[str, ...]:
    """Returns the names of the figures of a GPU that estimates need and that are not known."""
    known = {
        "peak": any(rate.dense_tflops for rate in gpu.rates.values()),
        "memory bandwidth": gpu.memory_bandwidth_gb_per_second is not None,
        "memory": gpu.memory_gb is not None,
    }
    return tuple(name for name, is_known in known.items() if not is_known)


# Clusters


def _parts(job: Job, counts: tuple[int, ...], catalog: Catalog, among: TypeSet | None) -> Iterator[_Part]:
    """Yields the clusters of some types, or of all of them, in groups that are estimated together."""
    clusters = _clusters_for(job, counts, catalog)
    wanted = None if among is None else _clusters_of(among, clusters, catalog)
    configs, config_of_gpu = catalog.derive(_configs, job, cache=catalog.outlooks)
    config_of_cluster, start = config_of_gpu[clusters.gpu], 0
    for _, configs_together in groupby(configs, _together):
        group = tuple(configs_together)
        config_in_group = config_of_cluster - start
        start += len(group)
        in_group = (config_in_group >= 0) & (config_in_group < len(group))
        indices = np.flatnonzero(in_group if wanted is None else in_group & wanted)
        if len(indices):
            part = clusters.table.rows(indices)
            of_gpu = np.zeros(len(part.gpu_types), np.int64)
            of_gpu[part.gpu_type] = config_in_group[indices]
            yield _Part(_as_one(group, of_gpu), part, indices)


def _clusters_of(types: TypeSet, clusters: FleetClusters, catalog: Catalog) -> Mask:
    """Returns which of the distinct clusters are those of some types, on any number of nodes."""
    # The last row is of types without a GPU.
    chosen = np.zeros(len(clusters.table) + 1, np.bool_)
    for of_types in clusters.of_types:
        chosen[of_types[catalog.mask(types)]] = True
    return chosen[:-1]


def _together(config: Config) -> Hashable:
    """Returns a key that is equal for configs that are estimated together: those of inference with the same stack."""
    return config if isinstance(config, TrainingConfig) else config.software


def _as_one(configs: tuple[Config, ...], of_gpu: Indices) -> TrainingConfig | InferenceConfigs:
    first = configs[0]
    if isinstance(first, TrainingConfig):
        return first
    return InferenceConfigs(tuple(each for each in configs if isinstance(each, InferenceConfig)), of_gpu)


def _clusters_for(job: Job, counts: tuple[int, ...], catalog: Catalog) -> FleetClusters:
    network, marketplaces = job.assumed_network_gbps, job.marketplace_clusters
    return catalog.derive(_clusters, counts, network, marketplaces, cache=catalog.outlooks)


def _clusters(
    catalog: Catalog, counts: tuple[int, ...], assumed_network_gbps: float | None, marketplace_clusters: bool
) -> FleetClusters:
    # A caller may assume any network, so machines with an assumed network are not kept for long.
    cache = catalog.memory if assumed_network_gbps is None else catalog.outlooks
    machines, of_types, gpu = catalog.derive(_machines, assumed_network_gbps, cache=cache)
    count, alone = len(machines.clusters), catalog.derive(without_cluster)
    joined = of_types if marketplace_clusters else np.where(alone, -1, of_types)
    rows = ((joined if nodes > 1 else of_types) for nodes in counts)
    return FleetClusters(
        machines.in_clusters(np.tile(np.arange(count), len(counts)), np.repeat(counts, count)),
        np.tile(gpu, len(counts)),
        tuple(np.where(row < 0, -1, row + place * count) for place, row in enumerate(rows)),
    )


def _machines(catalog: Catalog, assumed_network_gbps: float | None) -> tuple[Machines, Indices, Indices]:
    """Returns the distinct machines, the one of each instance type (-1 if it has none), and the rated GPU of each."""
    usable = catalog.mask(catalog.types_that(is_rated))
    rated = [catalog.instance_types[index] for index in np.flatnonzero(usable).tolist()]
    known, machine = distinct([cluster_of_instance(each, 1, assumed_network_gbps) for each in rated])
    of_types = np.full(len(usable), -1)
    of_types[usable] = machine
    index_of = {gpu.id: index for index, gpu in enumerate(catalog.derive(_rated_gpus))}
    return Machines.of(known), of_types, np.array([index_of[each.gpu.id] for each in known], np.int64)


def _configs(catalog: Catalog, job: Job) -> tuple[list[Config], Indices]:
    """Returns the distinct configs, and the index of the config of each rated GPU; -1 if it has no requested precision.

    Configs that are estimated together follow each other.
    """
    examples, group_of_gpu = catalog.derive(_groups_of_gpus, frozenset(job.precisions), job.model.selects_tokens)
    of_groups = [config_on(job, gpu) for gpu in examples]
    different = dict.fromkeys(config for config in of_groups if config is not None)
    groups = grouped((_together(config), config) for config in different)
    distinct_configs = list(chain.from_iterable(groups.values()))
    number: dict[Config | None, int] = {config: index for index, config in enumerate(distinct_configs)}
    return distinct_configs, np.array([number.get(config, -1) for config in of_groups], np.int64)[group_of_gpu]


def _rated_gpus(catalog: Catalog) -> tuple[Gpu, ...]:
    """Returns the rated GPUs and CPUs of all instance types, each once."""
    gpus = [each.processor for each in catalog.instance_types if each.processor is not None]
    return tuple({gpu.id: gpu for gpu in gpus if not unknown_figures(gpu)}.values())


def _groups_of_gpus(catalog: Catalog, precisions: frozenset[str], selects: bool) -> tuple[tuple[Gpu, ...], Indices]:
    """Returns one GPU of each group that runs any job in these precisions in the same config, and the group of each
    rated GPU. `selects` is whether the model attends to selected tokens.
    """
    gpus = catalog.derive(_rated_gpus)
    return one_of_each(gpus, [gpu_traits(gpu, precisions, selects=selects) for gpu in gpus])


# Estimates


def _estimate(calibration: Calibration, job: Job, part: _Part) -> tuple[EstimateColumns, Floats]:
    """Returns the estimates of the job on each cluster of a part, and the best layouts as rows."""
    if isinstance(part.config, TrainingConfig):
        return _training_columns(calibration, job, part.config, part.table)
    return _inference_columns(calibration, job, part.config, part.table)


def _most_samples_fed(calibration: Calibration, loading: SampleLoading, table: ClusterTable) -> Floats:
    """Returns low, likely and high samples per second that the hosts of each cluster bring; infinite if unknown."""
    most = np.full((len(table), 3), np.inf)
    feeds = [feed_of(cluster, loading) for cluster in table.clusters] if loading.may_limit else []
    for part in sorted({part for feed in feeds for part in feed}):
        rates = np.array([feed.get(part, np.inf) for feed in feeds])
        one = calibration.bands.of_feed(part, 1.0)
        most = np.minimum(most, rates[:, None] * (one.low, one.likely, one.high))
    return most


def _training_columns(
    calibration: Calibration, job: Job, config: TrainingConfig, table: ClusterTable
) -> tuple[EstimateColumns, Floats]:
    best = fastest_training_layouts(calibration, config, table, job.fixed)
    bands = training_bands(calibration, config, table)
    rates = np.minimum(best.units_per_second[:, None] * bands, _most_samples_fed(calibration, job.loading, table))
    samples = _samples(job, config.tokens_per_sample, best.layouts.global_batch)
    beyond_steps = np.exp(_log_beyond_steps(calibration, config, table)) if job.amount is not None else 1.0
    return _columns(job, table, best, rates, samples, samples * beyond_steps), best.layouts.rows()


def _log_beyond_steps(calibration: Calibration, config: TrainingConfig, table: ClusterTable) -> Floats:
    """Returns the logarithm of the factor by which evaluation, saving and starting lengthen a run of the stack."""
    timed = {**training_config_features(config), "measured": "wall"}
    beyond = calibration.coefficients.log_factors(TRAINING, "*", timed, table.features, of=("measured",))
    return np.broadcast_to(beyond, len(table))


def _inference_columns(
    calibration: Calibration, job: Job, configs: InferenceConfigs, table: ClusterTable
) -> tuple[EstimateColumns, Floats]:
    best, config = fastest_inference_layouts(calibration, configs, table, job.fixed), configs.any
    generates = config.model.generates
    units_per_sample = max(1.0, config.output_length) if generates else 1.0
    # A step of a model that does not generate is a batch on one GPU, as in the estimate of one cluster.
    per_step = best.concurrency if generates else np.full(len(table), forward_batch(config))
    samples = _samples(job, config.output_length or config.mean_length or config.input_length, per_step)
    rate, bands = best.units_per_second / units_per_sample, inference_bands(calibration, configs, table)
    rates = np.minimum(rate[:, None] * bands, _most_samples_fed(calibration, job.loading, table))
    columns = replace(
        _columns(job, table, best, rates, samples, samples),
        holds=best.concurrency >= ALMOST * config.required_requests,
        usable_bytes=np.asarray(plannable_bytes(config, table.usable_bytes)),
    )
    return columns, best.layouts.rows()


def _samples(job: Job, length: float, per_step: Floats) -> Floats:
    """Returns the samples of the whole amount of all runs; 1 without an amount."""
    samples = samples_of_runs(job, length, per_step)
    return np.full(len(per_step), 1.0 if samples is None else samples)


def _columns(
    job: Job, table: ClusterTable, best: BestLayouts, rates: Floats, samples: Floats, work: Floats
) -> EstimateColumns:
    figures = {name: getattr(best, name) for name in LayoutFigures.__dataclass_fields__}
    if job.serving is None:
        figures["instances"] = np.full(len(table), float(job.runs))
    low, likely, high = rates.T
    with np.errstate(divide="ignore", invalid="ignore"):
        hours = np.where(likely > 0, work / likely / SECONDS_AN_HOUR, np.inf)
    return EstimateColumns(
        **figures,
        runs=np.ones(len(table), np.bool_),
        holds=np.ones(len(table), np.bool_),
        usable_bytes=table.usable_bytes,
        low=low,
        likely=likely,
        high=high,
        hours=hours,
        samples=samples,
        work=work,
    )
