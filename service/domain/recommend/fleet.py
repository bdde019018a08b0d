"""What a job comes to on every instance type at once: whether it runs and fits, how fast, and on how many nodes."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, either, taken
from service.domain.calibration.error_bands import Physics
from service.domain.calibration.step_kinds import TRAINING
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.evidence.named import NamedRate, measured_rate
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.job import Job, config_on, gpu_traits, samples_of
from service.domain.layouts.cluster_table import ClusterTable, cluster_table, distinct
from service.domain.layouts.inference_search import fastest_inference_layouts, inference_bands, where_inference_fits
from service.domain.layouts.training_search import fastest_training_layouts, training_bands, where_training_fits
from service.domain.physics.cluster import Cluster, cluster_of_instance
from service.domain.physics.estimate import forward_batch
from service.domain.physics.features import training_config_features
from service.domain.physics.parallelism import Layout, LayoutTable, layout_of
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.relax import Check, Relaxation
from service.domain.typeset import TypeSet, mask_of, types_where

SECONDS_PER_HOUR = 3600.0
Work = TrainingConfig | InferenceConfig


@dataclass(frozen=True, slots=True)
class EstimateColumns:
    """A job on so many nodes of each instance type. Rates are samples per second, 0 where it cannot run."""

    nodes: Floats
    runs: Mask
    """The GPU has a precision that was asked for, and rates to compute with."""
    exists: Mask
    """Some layout spreads the batch over the machine."""
    fits: Mask
    needed_bytes: Floats
    usable_bytes: Floats
    low: Floats
    likely: Floats
    high: Floats
    hours: Floats
    """Likely hours of the whole amount; of one sample where no amount is told. Infinite where it does not run."""

    @property
    def works(self) -> Mask:
        return np.asarray(self.runs & self.exists & self.fits, np.bool_)


class FleetLayouts(NamedTuple):
    """How a job is cut on so many nodes of each instance type."""

    rows: NDArray[np.unsignedinteger]
    """One for each machine that differs, as `LayoutTable.rows` has them, in as few bytes as will do."""
    machine: NDArray[np.int64]
    """Of each type its row; -1, which is there too, without a GPU."""

    def of(self, place: int) -> Layout:
        return layout_of(self.rows[self.machine[place]])


class Blockers(NamedTuple):
    """The types that cannot run a job on any number of nodes, each in the set of what it lacks first."""

    gpu: TypeSet
    figures: TypeSet
    """Of which nobody knows what an estimate needs."""
    precision: TypeSet
    layout: TypeSet
    """None spreads the batch over the machine."""
    gpu_memory: TypeSet
    host_memory: TypeSet

    @classmethod
    def of(cls, options: Sequence[EstimateColumns], catalog: Catalog) -> "Blockers":
        """By the first number of nodes on which it works; of what works on none, by the one that comes nearest."""
        no_gpu, unrated = catalog.memory.get_or_compute("without_figures", lambda: without_figures(catalog))
        best, *others = options
        for found in others:
            best = either(best, found, ~best.works & (found.works | (found.needed_bytes < best.needed_bytes)))
        rated = ~mask_of(no_gpu | unrated, len(catalog.instance_types))
        full = rated & best.runs & best.exists & ~best.fits
        crowded = full & (best.needed_bytes > best.usable_bytes)
        return cls(
            gpu=no_gpu,
            figures=unrated,
            precision=types_where(rated & ~best.runs),
            layout=types_where(rated & best.runs & ~best.exists),
            gpu_memory=types_where(crowded),
            host_memory=types_where(full & ~crowded),
        )

    @property
    def for_good(self) -> TypeSet:
        """The types that no number of nodes helps."""
        return self.gpu | self.figures | self.precision

    @property
    def for_now(self) -> TypeSet:
        """Those that more nodes may help."""
        return self.layout | self.gpu_memory | self.host_memory


class FleetClusters(NamedTuple):
    """Nodes of every instance type that has GPUs: those that differ, and by number of nodes which one each type is."""

    known: tuple[Cluster, ...]
    gpu: NDArray[np.int64]
    """Where the GPU of each stands among those that are rated."""
    places: tuple[NDArray[np.int64], ...]
    """-1: none."""


def node_counts(least: int, most: int) -> tuple[int, ...]:
    """Numbers of nodes worth trying: the least, powers of two, and the most."""
    doubled = (1 << power for power in range(most.bit_length()))
    return tuple(sorted({least, *(count for count in doubled if least <= count <= most), most}))


W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class FleetEstimate(Generic[W]):
    """Work – a job, or what is known by its name alone – on every instance type, on each number of nodes."""

    job: W
    counts: tuple[int, ...]
    options: tuple[EstimateColumns, ...]
    """One for each of the numbers of nodes."""
    layouts: tuple[FleetLayouts, ...]
    """Likewise; none where there is nothing to cut."""
    lacks: Blockers
    seen: Mapping[int, NamedRate] = field(default_factory=dict)
    """By type, what was measured of the work under its own name on one machine."""
    key: Hashable = field(default_factory=object)
    """What rests on this outlook is remembered under it: to hash the job again and again takes long."""

    def on(self, nodes: int) -> EstimateColumns:
        return self.options[self.counts.index(nodes)]

    def layout(self, place: int, nodes: int) -> Layout:
        return self.layouts[self.counts.index(nodes)].of(place)


def outlook_of(job: Job, counts: Sequence[int], catalog: Catalog) -> FleetEstimate[Job]:
    """Remembered: the same job is often asked again."""
    return catalog.outlooks.get_or_compute((job, tuple(counts)), lambda: find_outlook(job, tuple(counts), catalog))


def find_outlook(job: Job, counts: tuple[int, ...], catalog: Catalog) -> FleetEstimate[Job]:
    options, layouts = prospects(job, counts, catalog)
    return FleetEstimate(job, counts, options, layouts, Blockers.of(options, catalog))


def as_seen(found: FleetEstimate[Job], name: str, catalog: Catalog) -> FleetEstimate[Job]:
    """What was measured under the name on one machine stands where the physics has its estimate. Remembered."""
    return catalog.outlooks.get_or_compute(("as_seen", found.key, name), lambda: find_as_seen(found, name, catalog))


def find_as_seen(found: FleetEstimate[Job], name: str, catalog: Catalog) -> FleetEstimate[Job]:
    if found.counts[0] != 1:
        return found
    alone, seen = found.options[0], dict[int, NamedRate]()
    for place in np.flatnonzero(alone.works).tolist():
        kind = catalog.instance_types[place]
        rate = measured_rate(catalog.reference.measurements, name, kind.id, catalog.day)
        if rate is not None:
            seen[place] = rate
    columns = {each: getattr(alone, each).copy() for each in ("low", "likely", "high", "hours")}
    for place, rate in seen.items():
        band = rate.samples_per_second
        columns["hours"][place] *= alone.likely[place] / band.likely
        for each in ("low", "likely", "high"):
            columns[each][place] = getattr(band, each)
    options = (replace(alone, **columns), *found.options[1:])
    return replace(found, options=options, seen=seen, key=object())


def with_more_nodes(found: FleetEstimate[Job], among: TypeSet, catalog: Catalog) -> FleetEstimate[Job] | None:
    """The same on up to twice as many nodes, of some types; nothing where nobody may ask for so many."""
    most = 2 * max(found.counts)
    if most > MOST_NODES:
        return None
    new = tuple(count for count in node_counts(min(found.counts), most) if count not in found.counts)
    options, layouts = prospects(found.job, new, catalog, among)
    return replace(
        found,
        counts=(*found.counts, *new),
        options=(*found.options, *options),
        layouts=(*found.layouts, *layouts),
        key=object(),
    )


def without_figures(catalog: Catalog) -> tuple[TypeSet, TypeSet]:
    """The types without a GPU, and those with one that nobody tells enough of."""
    kinds = catalog.instance_types
    no_gpu = np.array([not has_gpu(kind.gpu, kind.gpu_count) for kind in kinds], np.bool_)
    unrated = np.array([kind.gpu is not None and not is_rated(kind.gpu) for kind in kinds], np.bool_)
    return types_where(no_gpu), types_where(unrated & ~no_gpu)


def has_gpu(gpu: Gpu | None, count: int) -> bool:
    return gpu is not None and count > 0


def is_rated(gpu: Gpu) -> bool:
    """Whether memory, bandwidth and some rate of it are known."""
    rated = any(rate.dense_tflops for rate in gpu.rates.values())
    return rated and gpu.memory_bandwidth_gb_per_second is not None and gpu.memory_gb is not None


def prospects(
    job: Job, counts: tuple[int, ...], catalog: Catalog, among: TypeSet | None = None
) -> tuple[tuple[EstimateColumns, ...], tuple[FleetLayouts, ...]]:
    """On each number of nodes, and how it is cut there; of some types only, where it is told of which.

    The physics meets each machine that differs once, and all of them together.
    """
    machines = machines_on(counts, catalog)
    count = len(machines.known) + 1  # the last row is of types without a GPU
    rows, layouts = nothing(count), LayoutTable.plain(count).rows()
    for work, table, places, wanted in tables_of(job, counts, catalog, among):
        found, layouts[places] = on_machines(catalog.reference.physics, job, work, table, wanted)
        put(rows, places, found)
    options = (taken(rows, place) for place in machines.places)
    narrow = layouts.astype(np.min_scalar_type(int(layouts.max())))  # a quarter of the bytes, and there are many jobs
    return (
        tuple(
            replace(each, nodes=np.broadcast_to(np.float64(nodes), len(each.nodes)))
            for each, nodes in zip(options, counts, strict=True)
        ),
        tuple(FleetLayouts(narrow, place) for place in machines.places),
    )


def types_it_fits(job: Job, counts: tuple[int, ...], among: TypeSet, catalog: Catalog) -> TypeSet:
    """Those of the types that hold the job on any of these numbers of nodes, however fast they are."""
    machines = machines_on(counts, catalog)
    fits = np.zeros(len(machines.known) + 1, np.bool_)
    for work, table, places, wanted in tables_of(job, counts, catalog, among):
        physics = catalog.reference.physics
        if isinstance(work, TrainingConfig):
            fits[places] = where_training_fits(physics, work, table, wanted)
        else:
            fits[places] = where_inference_fits(physics, work, table, wanted)
    admits = 0
    for place in machines.places:
        admits |= types_where(fits[place])
    return among & admits


def tables_of(
    job: Job, counts: tuple[int, ...], catalog: Catalog, among: TypeSet | None
) -> Iterator[tuple[Work, ClusterTable, NDArray[np.int64], Mask | None]]:
    """The job as GPUs would run it, the machines that run it so, where they stand, and which of them are wanted."""
    machines = machines_on(counts, catalog)
    wanted = None
    if among is not None:
        wanted = np.zeros(len(machines.known) + 1, np.bool_)
        for of_types in machines.places:
            wanted[of_types[catalog.mask(among)]] = True
    for work, places in works_on(job, machines, catalog):
        here = None if wanted is None else wanted[places]
        if here is None or here.any():
            yield work, table_of(machines, counts, places, catalog), places, here


def machines_on(counts: tuple[int, ...], catalog: Catalog) -> FleetClusters:
    return catalog.memory.get_or_compute(("machines", counts), lambda: machines_of(catalog, counts))


def table_of(
    machines: FleetClusters, counts: tuple[int, ...], places: NDArray[np.int64], catalog: Catalog
) -> ClusterTable:
    key = ("machine_table", counts, places.tobytes())
    return catalog.memory.get_or_compute(key, lambda: cluster_table([machines.known[place] for place in places]))


def machines_of(catalog: Catalog, counts: tuple[int, ...]) -> FleetClusters:
    kinds = catalog.instance_types
    usable = np.array(
        [has_gpu(kind.gpu, kind.gpu_count) and kind.gpu is not None and is_rated(kind.gpu) for kind in kinds]
    )
    rated = [kind for kind, yes in zip(kinds, usable.tolist(), strict=True) if yes]
    known, place = distinct(cluster_of_instance(kind, count) for count in counts for kind in rated)
    places = []
    for part in np.split(place, len(counts)):
        of_types = np.full(len(kinds), -1)
        of_types[usable] = part
        places.append(of_types)
    gpus = {gpu.id: place for place, gpu in enumerate(gpus_of(catalog))}
    return FleetClusters(known, np.array([gpus[machine.gpu.id] for machine in known], np.int64), tuple(places))


def works_on(job: Job, machines: FleetClusters, catalog: Catalog) -> Iterator[tuple[Work, NDArray[np.int64]]]:
    """The job as each GPU would run it, and the machines whose GPUs run it so."""
    works, way_of = catalog.works.get_or_compute(("works", job), lambda: ways_to_run(job, catalog))
    ways = way_of[machines.gpu]
    for way, work in enumerate(works):
        places = np.flatnonzero(ways == way)
        if len(places):
            yield work, places


def ways_to_run(job: Job, catalog: Catalog) -> tuple[list[Work], NDArray[np.int64]]:
    """The different ways, and which of them each rated GPU takes (-1: it lacks every precision asked for)."""
    found: dict[Work, int] = {}
    seen: dict[Hashable, int] = {}
    way_of = []
    gpus = gpus_of(catalog)
    sorts = catalog.memory.get_or_compute("sorts_of_gpus", lambda: list(map(gpu_traits, gpus)))
    for gpu, sort in zip(gpus, sorts, strict=True):
        if sort not in seen:
            work = config_on(job, gpu)
            seen[sort] = -1 if work is None else found.setdefault(work, len(found))
        way_of.append(seen[sort])
    return list(found), np.array(way_of, np.int64)


def gpus_of(catalog: Catalog) -> tuple[Gpu, ...]:
    """Those that are rated and that some instance type has, each once."""
    return catalog.memory.get_or_compute("rated_gpus", lambda: rated_gpus(catalog))


def rated_gpus(catalog: Catalog) -> tuple[Gpu, ...]:
    """Those that some instance type has, each once."""
    found = {kind.gpu.id: kind.gpu for kind in catalog.instance_types if kind.gpu is not None and is_rated(kind.gpu)}
    return tuple(found.values())


def nothing(rows: int) -> EstimateColumns:
    none, zero = np.zeros(rows, np.bool_), np.zeros(rows)
    return EstimateColumns(
        nodes=np.ones(rows),
        runs=none.copy(),
        exists=none.copy(),
        fits=none.copy(),
        needed_bytes=np.full(rows, np.inf),
        usable_bytes=zero.copy(),
        low=zero.copy(),
        likely=zero.copy(),
        high=zero.copy(),
        hours=np.full(rows, np.inf),
    )


def put(rows: EstimateColumns, places: NDArray[np.int64], found: EstimateColumns) -> None:
    """Write what was found at these places."""
    for name in EstimateColumns.__dataclass_fields__:
        getattr(rows, name)[places] = getattr(found, name)


def on_machines(
    physics: Physics, job: Job, work: Work, table: ClusterTable, wanted: Mask | None
) -> tuple[EstimateColumns, Floats]:
    """What comes of the job on each machine, and the rows of its layouts."""
    if isinstance(work, TrainingConfig):
        return training_on_machines(physics, job, work, table, wanted)
    return answering_on_machines(physics, job, work, table, wanted)


def training_on_machines(
    physics: Physics, job: Job, work: TrainingConfig, table: ClusterTable, wanted: Mask | None
) -> tuple[EstimateColumns, Floats]:
    found = fastest_training_layouts(physics, work, table, wanted=wanted)
    with np.errstate(divide="ignore"):
        rate = np.where(found.fits, 1 / found.seconds_per_sample, 0.0)
    bands = training_bands(physics, work, table)
    length = work.mean_length or work.sequence_length or 0
    samples = one_if_none(job, length, found.layouts.global_batch)
    beyond = np.exp(wall_beyond_steps(physics, work, table)) if job.amount is not None else 1.0
    on_each = told(table, found.exists, found.fits, found.needed_bytes, rate, bands, samples * beyond)
    return on_each, found.layouts.rows()


def wall_beyond_steps(physics: Physics, work: TrainingConfig, table: ClusterTable) -> Floats:
    """The logarithm of what evaluation, saving and starting add to the steps, as runs of the stack had it."""
    calibration, facts = physics.calibration, training_config_features(work)
    timed = {**facts, "measured": "wall"}
    of_work = calibration.log_factor(TRAINING, "*", timed, of=("measured",))
    slow, plain = (calibration.log_factors(TRAINING, "*", each, table.features) for each in (timed, facts))
    return np.broadcast_to(of_work + slow - plain, len(table))


def answering_on_machines(
    physics: Physics, job: Job, work: InferenceConfig, table: ClusterTable, wanted: Mask | None
) -> tuple[EstimateColumns, Floats]:
    found = fastest_inference_layouts(physics, work, table, wanted=wanted)
    generates = work.model.generates
    each = max(1.0, work.output_length) if generates else 1.0
    bands = inference_bands(physics, work, table)
    length = work.output_length or work.mean_length or work.input_length
    # A step of what does not generate is a batch on one GPU, as the estimate of one machine has it.
    per_step = found.concurrency if generates else np.full(len(table), forward_batch(work))
    samples = one_if_none(job, length, per_step)
    rate = found.units_per_second / each
    on_each = told(table, found.exists, found.fits, found.needed_bytes, rate, bands, samples)
    return on_each, found.layouts.rows()


def one_if_none(job: Job, length: float, per_step: Floats) -> Floats:
    """Samples of the whole amount, or one."""
    if job.amount is None:
        return np.ones(len(per_step))
    if job.amount.steps is not None:
        return job.amount.steps * per_step
    return np.full(len(per_step), samples_of(job.amount, length, 1.0) or 1.0)


def told(
    table: ClusterTable,
    exists: Mask,
    fits: Mask,
    needed: Floats,
    rate: Floats,
    bands: Floats,
    samples: Floats,
) -> EstimateColumns:
    likely = rate * bands[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        hours = np.where(likely > 0, samples / likely / SECONDS_PER_HOUR, np.inf)
    return EstimateColumns(
        nodes=table.nodes,
        runs=np.ones(len(table), np.bool_),
        exists=exists,
        fits=fits,
        needed_bytes=needed,
        usable_bytes=table.usable_bytes,
        low=rate * bands[:, 0],
        likely=likely,
        high=rate * bands[:, 2],
        hours=hours,
    )


# What keeps a type out


def job_checks(found: FleetEstimate[Job], keeping: Callable[[TypeSet], TypeSet] | None = None) -> list[Check]:
    """Each type that cannot run the job misses one of these, so that the count of each is of its own reason.

    Where there are limits on the whole job, `keeping` tells which of some types keep them on more nodes.
    """
    lacks = found.lacks
    return [
        Check("no_gpu", "hardware", lacks.gpu),
        Check("gpu_figures_unknown", "data", lacks.figures),
        Check("precision", "hardware", lacks.precision),
        Check("global_batch_size", "constraint", lacks.layout),
        Check("gpu_memory", "hardware", lacks.gpu_memory, MoreNodes(found, keeping)),
        Check("host_memory", "hardware", lacks.host_memory),
    ]


MOST_NODES = 10_000
"""As many as can be asked for."""


@dataclass(frozen=True, slots=True)
class MoreNodes:
    """Allows up to twice as many nodes, on some of which the job then fits, or keeps its limits."""

    found: FleetEstimate[Job]
    keeping: Callable[[TypeSet], TypeSet] | None

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        lacks, most = self.found.lacks, 2 * max(self.found.counts)
        if not rejected.types & lacks.gpu_memory or most > MOST_NODES:
            return None
        if self.keeping is not None:
            admits = self.keeping(rejected.types & ~lacks.for_good)
        else:
            out = rejected.types & lacks.for_now
            admits = catalog.works.get_or_compute(
                ("more_nodes", self.found.key, out), lambda: twice_the_nodes(self.found, out, catalog)
            )
        return Relaxation({"max_nodes": most}, rejected.only(admits)) if admits else None


def twice_the_nodes(found: FleetEstimate[Job], out: TypeSet, catalog: Catalog) -> TypeSet:
    """The types that hold the job on up to twice as many nodes."""
    new = tuple(count for count in node_counts(min(found.counts), 2 * max(found.counts)) if count not in found.counts)
    return types_it_fits(found.job, new, out, catalog)
