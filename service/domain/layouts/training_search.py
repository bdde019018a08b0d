"""The best layout of a job on each machine: the fastest that fits, or else the one that needs the least memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask, Number, either, taken
from service.domain.calibration.coefficients import Column, Levels, StepKind, words_of
from service.domain.calibration.error_bands import Physics, bands_by_gpu
from service.domain.calibration.step_kinds import MEMORY, TRAINING
from service.domain.errors import QuestionError
from service.domain.jobs.config import TrainingConfig
from service.domain.layouts.candidate_table import LayoutCandidates, training_candidates
from service.domain.layouts.candidates import Way, crosses_slow_links, every_way, most_samples_per_micro_batch
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.cluster_table import ClusterShape, ClusterTable, cluster_table, shapes_among
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_training
from service.domain.physics.features import layout_columns, training_config_features
from service.domain.physics.memory import training_parts
from service.domain.physics.parallelism import CHECKPOINTINGS, Floats, Layout, LayoutTable
from service.domain.physics.training_roofline import training_demands

SELECTIVE = CHECKPOINTINGS.index("selective")
SIMPLER = ((1, 0), (2, 0), (1, SELECTIVE))
"""ZeRO stage and checkpointing, the simplest first."""


@dataclass(frozen=True, slots=True)
class FastestTraining:
    """The chosen layout of each machine of a table, and what it comes to."""

    layouts: LayoutTable
    exists: Mask
    """False where the batch cannot be spread over the machine in any way that is allowed."""
    fits: Mask
    """In the GPUs' memory and, where that is known, in the host's."""
    needed_bytes: Floats
    """Per GPU; infinite where there is no layout."""
    seconds_per_sample: Floats
    """As the calibration says, before the caution of bands; infinite where it does not fit."""

    @staticmethod
    def nothing(rows: int) -> "FastestTraining":
        exists, fits = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        return FastestTraining(LayoutTable.plain(rows), exists, fits, np.full(rows, np.inf), np.full(rows, np.inf))


def best_training_layout(
    physics: Physics, config: TrainingConfig, cluster: Cluster, fixed: FixedLayout = FREE
) -> Estimate:
    """The fastest layout that fits; where none does, the one that needs the least memory.

    A tensor cut leaves the GPUs on one fast link only when told so or when nothing else fits; the estimate says so.
    """
    check_fixed(fixed, config, cluster)
    found = fastest_training_layouts(physics, config, cluster_table([cluster]), fixed)
    if not found.exists[0]:
        batch = f" and a global batch of {config.global_batch}" if config.global_batch else ""
        raise QuestionError(
            f"No layout divides {config.model.name}{batch} over {cluster.gpus} GPUs as asked: each data-parallel rank "
            "needs a sample at least, and the GPUs of a replica must divide its attention heads and layers.",
            field="global_batch_size" if fixed == FREE else "layout",
        )
    layout = found.layouts.row(0)
    across = crosses_slow_links(layout.tensor, cluster.linked_gpus)
    return replace(estimate_training(physics, config, cluster, layout), tensor_across_slow_links=across)


def training_bands(physics: Physics, config: TrainingConfig, clusters: ClusterTable) -> Floats:
    """Low, likely and high samples per second of each machine, over 1 / seconds_per_sample."""
    features = training_config_features(config)

    def find() -> Floats:
        gpus = [gpu.id for gpu in clusters.kinds]
        return bands_by_gpu(physics.calibration, physics.bands, TRAINING, features, gpus)[clusters.kind]

    return clusters.memory.get_or_compute(("bands", physics.calibration, *words_of(features)), find)


def fastest_training_layouts(
    physics: Physics,
    config: TrainingConfig,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
    *,
    wanted: Mask | None = None,
) -> FastestTraining:
    """The same of many machines at once, or of those that are wanted, without their estimates."""
    search = _Search(physics, config, clusters, fixed)
    shapes = search.shapes(wanted)
    found = search.among(shapes, across=False)
    left = search.left(shapes, found.exists, found.fits)
    if left:
        exists, fits = search.hold(left, across=True)
        left = shapes_among(left, fits | (exists & ~found.exists))
    if left:
        more = search.among(left, across=True)
        found = either(found, more, more.exists & ~found.fits & (more.fits | ~found.exists))
    found = found if search.hosts_matter else taken(found, clusters.same_but_host)
    fits = found.fits & clusters.hosts_fit(config, found.layouts.micro_batch)
    return replace(found, fits=fits, seconds_per_sample=np.where(fits, found.seconds_per_sample, np.inf))


def where_training_fits(
    physics: Physics, config: TrainingConfig, clusters: ClusterTable, wanted: Mask | None = None
) -> Mask:
    """Where the fastest layout fits, without looking for it: the lightest tells, unless the host's memory is short."""
    most = 1 if config.model.transformer is None else most_samples_per_micro_batch(config)
    hosts = clusters.hosts_fit(config, most)
    if config.model.transformer is None or not np.array_equal(hosts, clusters.hosts_fit(config, 1)):
        return fastest_training_layouts(physics, config, clusters, wanted=wanted).fits
    search = _Search(physics, config, clusters, FREE)
    shapes = shapes_among(search.shapes(wanted), search.least_bytes() <= clusters.usable_bytes)
    fits = np.zeros(len(clusters), dtype=bool)
    for across in (False, True):
        shapes = shapes_among(shapes, ~fits)
        if shapes:
            fits |= search.hold(shapes, across=across)[1]
    return fits[clusters.same_but_host] & hosts


class _Search:
    """Layouts by machines: a product of what layouts ask for and what machines take for it."""

    def __init__(self, physics: Physics, config: TrainingConfig, clusters: ClusterTable, fixed: FixedLayout) -> None:
        self.physics, self.config, self.clusters, self.fixed = physics, config, clusters, fixed
        self.features = training_config_features(config)
        self.log_of_work: dict[tuple[str, str], float] = {}
        self.factor_of_work: dict[tuple[str, str], float] = {}
        self.alike = (physics.calibration, fixed, *words_of(self.features))
        """What the worth of ways rests on: remembered beside the machines."""
        self.hosts_matter = config.model.transformer is None

    def shapes(self, wanted: Mask | None) -> Sequence[ClusterShape]:
        """Where to look for all or for the wanted machines: one of those that are alike."""
        clusters = self.clusters
        shapes = clusters.shapes if self.hosts_matter else clusters.shapes_but_host
        if wanted is None:
            return shapes
        if not self.hosts_matter:
            places = clusters.same_but_host[wanted]
            wanted = np.zeros(len(clusters), dtype=bool)
            wanted[places] = True
        return shapes_among(shapes, wanted)

    def left(self, shapes: Sequence[ClusterShape], exists: Mask, fits: Mask) -> Sequence[ClusterShape]:
        """Where tensors might be cut across slow links, since nothing else fits."""
        shapes = shapes_among(shapes, ~fits)
        if not shapes or self.fixed.tensor is not None or self.config.model.transformer is None:
            return ()
        hopeless = exists & (self.least_bytes() > self.clusters.usable_bytes)
        return shapes_among(shapes, ~hopeless)

    def hold(self, shapes: Sequence[ClusterShape], *, across: bool) -> tuple[Mask, Mask]:
        """Which machines have a candidate, and which have one that fits: those of the smallest micro-batches tell."""
        sizes = [(shape.gpus, shape.linked_gpus) for shape in shapes]
        free = self.fixed.micro_batch is None and self.fixed.accumulation is None
        fixed = replace(self.fixed, micro_batch=1) if free else self.fixed
        candidates = training_candidates(self.config, sizes, fixed, across=across, ways=self.ways)
        exists, fits = np.zeros(len(self.clusters), dtype=bool), np.zeros(len(self.clusters), dtype=bool)
        need, starts = self.bytes_needed(candidates.layouts), candidates.starts.tolist()
        for shape, start, end in zip(shapes, starts, starts[1:], strict=False):
            if start < end:
                exists[shape.places] = True
                fits[shape.places] = need[start:end].min() <= self.clusters.usable_bytes[shape.places]
        return exists, fits

    def among(self, shapes: Sequence[ClusterShape], *, across: bool) -> FastestTraining:
        """The fastest of the candidates, in a table of all machines; those of other shapes have none."""
        sizes = [(shape.gpus, shape.linked_gpus) for shape in shapes]
        candidates = training_candidates(self.config, sizes, self.fixed, across=across, ways=self.ways)
        layouts, starts = candidates.layouts, candidates.starts.tolist()
        clusters, place = len(self.clusters), np.zeros(len(self.clusters), dtype=np.int64)
        if not starts[-1]:
            return FastestTraining.nothing(clusters)
        need, exists = self.bytes_needed(layouts), np.zeros(clusters, dtype=bool)
        for shape, start, end in zip(shapes, starts, starts[1:], strict=False):
            if start < end:
                exists[shape.places], place[shape.places] = True, start + need[start:end].argmin()
        seconds = self._choose_fastest(shapes, candidates, need, place)
        fits = seconds < np.inf
        found = FastestTraining(taken(layouts, place), exists, fits, np.where(exists, need[place], np.inf), seconds)
        return self._simplified(found, layouts, place)

    def _choose_fastest(
        self, shapes: Sequence[ClusterShape], candidates: LayoutCandidates, need: Floats, place: NDArray[np.int64]
    ) -> Floats:
        """Writes the place of the fastest candidate that fits, and gives its seconds per sample; else infinite ones.

        Of equals the one that needs the least memory is the fastest.
        """
        usable, seconds = self.clusters.usable_bytes, np.full(len(place), np.inf)
        shape_of = np.repeat(np.arange(len(shapes)), np.diff(candidates.starts))
        largest = np.array([usable[shape.places].max() for shape in shapes])
        order = np.flatnonzero(need <= largest[shape_of])
        if not len(order):
            return seconds
        order = order[np.lexsort((need[order], shape_of[order]))]
        need = need[order]
        asked, costs = self.asked_and_costs(taken(candidates.layouts, order), candidates.linked_gpus[order])
        starts = np.searchsorted(shape_of[order], np.arange(len(shapes) + 1)).tolist()
        column = np.full(len(place), -1)
        for shape, start, end in zip(shapes, starts, starts[1:], strict=False):
            if start < end:
                here = shape.places
                times = costs[here] @ asked[:, start:end]
                times[need[start:end] > usable[here, None]] = np.inf
                chosen = times.argmin(axis=1)
                column[here] = np.where(times[np.arange(len(here)), chosen] < np.inf, start + chosen, -1)
        fits = column >= 0
        place[fits] = order[column[fits]]
        # A product of matrices rounds by its size; what a machine takes must not depend on which others are asked.
        seconds[fits] = sum(costs[fits, key] * amount[column[fits]] for key, amount in enumerate(asked))
        return seconds

    def ways(self, highest: int) -> Sequence[Way]:
        """ZeRO stages and checkpointings without those that another one beats in any cut of any machine.

        Up to stage 2, a higher one moves no more bytes and holds fewer; selective checkpointing costs no time. Only the
        calibration of a stack may say otherwise.
        """
        return self.clusters.memory.get_or_compute(("ways", highest, *self.alike), lambda: self._ways(highest))

    def _ways(self, highest: int) -> Sequence[Way]:
        every = every_way(self.config, self.fixed, highest)
        log_ways = self.clusters.memory.get_or_compute(("log_ways", *self.alike), self._log_ways)
        slower = {way: log_ways[way] for way in every}
        lighter = self._of(MEMORY, "selected", {}) <= self._of(MEMORY, "kept", {})
        beaten = set()
        for stage, how in every:
            others = [(higher, how) for higher in range(stage + 1, min(2, highest) + 1)]
            if how == CHECKPOINTINGS.index("none") and lighter:
                others.append((stage, CHECKPOINTINGS.index("selective")))
            if any(slower.get(other, np.inf) <= slower[(stage, how)] for other in others):
                beaten.add((stage, how))
        return tuple(way for way in every if way not in beaten)

    def _log_ways(self) -> dict[Way, float]:
        """The logarithm of what each way makes a step of this stack take."""
        every = every_way(self.config, self.fixed, 3)
        stages, hows = (np.array([way[side] for way in every]) for side in (0, 1))
        layouts = replace(LayoutTable.plain(len(every)), zero_stage=stages.astype(np.float64), checkpointing=hows)
        slowed = np.broadcast_to(self._of(TRAINING, "*", layout_columns(layouts)), len(every))
        return {way: float(each) for way, each in zip(every, slowed, strict=True)}

    def _simplified(self, found: FastestTraining, layouts: LayoutTable, place: NDArray[np.int64]) -> FastestTraining:
        """Without selective checkpointing, and at ZeRO stage 1 instead of 2, where that is as fast and fits too.

        `place` tells which of the layouts each machine has: what many machines have is looked at once.
        """
        lower = (layouts.zero_stage == 2) & (self.fixed.zero_stage is None)
        ease = (layouts.checkpointing == SELECTIVE) & (self.fixed.activation_checkpointing is None)
        clusters = np.flatnonzero(found.fits & (lower | ease)[place])
        if not len(clusters):
            return found
        rows, row_of = np.unique(place[clusters], return_inverse=True)
        old = taken(layouts, np.tile(rows, len(SIMPLER)))
        stage, how = np.repeat(np.array(SIMPLER), len(rows), axis=0).T
        lower, ease = np.tile(lower[rows], len(SIMPLER)) & (stage < 2), np.tile(ease[rows], len(SIMPLER)) & (how < 1)
        new = replace(
            old,
            zero_stage=np.where(lower, stage, old.zero_stage),
            checkpointing=np.where(ease, how, old.checkpointing),
        )
        slowed = self._of(TRAINING, "*", layout_columns(new)) - self._of(TRAINING, "*", layout_columns(old))
        needed = np.where((slowed == 0) & (lower | ease), self.bytes_needed(new), np.inf)
        usable = self.clusters.usable_bytes[clusters]
        for first in range((len(SIMPLER) - 1) * len(rows), -1, -len(rows)):  # the simplest is written last
            good = needed[first + row_of] <= usable
            there, taken_from = clusters[good], first + row_of[good]
            found.layouts.zero_stage[there] = new.zero_stage[taken_from]
            found.layouts.checkpointing[there] = new.checkpointing[taken_from]
            found.needed_bytes[there] = needed[taken_from]
        return found

    def least_bytes(self) -> Floats:
        """What no layout goes below: states cut evenly over all GPUs."""
        every = Levels(("", "yes"), np.arange(2))
        parts = training_parts(self.config, Layout())
        total = 0.0
        for name in ("weights", "gradients", "optimizer"):
            total += float(parts[name]) * float(np.exp(np.min(self._of(MEMORY, name, {"sharded": every}))))
        return total * np.exp(self._of(MEMORY, "*", {})) / self.clusters.gpus

    def bytes_needed(self, layouts: LayoutTable) -> Floats:
        """Per GPU, calibrated."""
        columns = layout_columns(layouts)
        total = np.zeros(len(layouts.tensor))
        for part, amount in training_parts(self.config, layouts).items():
            total += amount * self._factor(MEMORY, part, columns)
        return total * self._factor(MEMORY, "*", columns)

    def asked_and_costs(self, layouts: LayoutTable, linked_gpus: Floats) -> tuple[Floats, Floats]:
        """Amounts per sample, demands by layouts; and seconds that a unit really takes, machines by demands."""
        columns = layout_columns(layouts)
        per_sample = self._factor(TRAINING, "*", columns) / layouts.global_batch
        demands = training_demands(self.config, layouts, linked_gpus)
        keys = [key for key, amount in demands.items() if key[0] in TRAINING.start and np.any(amount)]
        asked = np.empty((len(keys), len(layouts.tensor)))
        for place, (term, resource) in enumerate(keys):
            np.multiply(demands[(term, resource)], per_sample, out=asked[place])
            asked[place] *= self._factor(TRAINING, term, {})
        costs = self.clusters.costs(self.physics.calibration, TRAINING, self.config, self.features, keys)
        return asked, costs

    def _factor(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        """The factor of a term, in each row of a table where its columns matter."""
        key = (kind.name, term)
        if self.physics.calibration.reads_of(kind, term, columns):
            return kind.start.get(term, 1.0) * np.exp(self._of(kind, term, columns))
        if key not in self.factor_of_work:
            self.factor_of_work[key] = kind.start.get(term, 1.0) * exp(self._of(kind, term, {}))
        return self.factor_of_work[key]

    def _of(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        calibration, key = self.physics.calibration, (kind.name, term)
        if key not in self.log_of_work:
            self.log_of_work[key] = calibration.log_factor(kind, term, self.features)
        return self.log_of_work[key] + calibration.log_factors(kind, term, self.features, columns)
