"""The best training layout on each cluster: the fastest that fits, or else the one that needs the least memory."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, either, taken
from service.domain.calibration.calibration import Calibration
from service.domain.calibration.coefficients import Levels
from service.domain.calibration.step_kinds import MEMORY, TRAINING
from service.domain.jobs.config import TrainingConfig
from service.domain.layouts.best_layouts import BestLayouts
from service.domain.layouts.candidates import (
    LayoutCandidates,
    MemorySaving,
    memory_savings,
    training_candidates,
    with_all_steps,
)
from service.domain.layouts.cluster_table import ClusterShape, ClusterTable, ConfigFactors
from service.domain.layouts.usual import FREE, FixedLayout, most_samples_per_micro_batch
from service.domain.physics.estimate import memory_margin
from service.domain.physics.features import layout_columns, training_config_features
from service.domain.physics.memory import training_parts
from service.domain.physics.parallelism import Layout, LayoutTable
from service.domain.physics.resources import GRADIENTS
from service.domain.physics.training_roofline import training_demands


def training_bands(calibration: Calibration, config: TrainingConfig, clusters: ClusterTable) -> Floats:
    """Low, likely and high rates of each cluster, as factors of `units_per_second`."""
    factors = ConfigFactors(calibration.coefficients, training_config_features(config))
    return clusters.bands(calibration, TRAINING, factors)


def fastest_training_layouts(
    calibration: Calibration,
    config: TrainingConfig,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
) -> BestLayouts:
    """Returns the best layout on every cluster."""
    hosts_matter = _host_depends_on_layout(config)
    table = clusters if hosts_matter else clusters.without_hosts
    fastest = _Search(calibration, config, table.surely(calibration, config), fixed).fastest()
    if not hosts_matter:
        fastest = taken(fastest, clusters.row_by_gpus)
    fits = fastest.fits & clusters.hosts_fit(config, fastest.layouts.micro_batch)
    margin = memory_margin(calibration, config)
    spare = fastest.spare * margin
    least, most = (fixed.micro_batch,) * 2 if fixed.micro_batch else (1, most_samples_per_micro_batch(config))
    spare = np.where(clusters.hosts_fit(config, least), spare, 0.0)
    spare[(spare >= 1.0) & ~clusters.hosts_fit(config, most)] = np.nan
    rate = np.where(fits, fastest.units_per_second, 0.0)
    return replace(fastest, fits=fits, sure_bytes=fastest.needed_bytes * margin, spare=spare, units_per_second=rate)


def where_training_fits(
    calibration: Calibration,
    config: TrainingConfig,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
) -> Mask:
    """Whether some layout fits. The layout that needs the least memory decides, unless the micro-batch decides whether
    the host has enough memory.
    """
    hosts_matter = _host_depends_on_layout(config)
    hosts = clusters.hosts_fit(config, 1 if hosts_matter else most_samples_per_micro_batch(config))
    if hosts_matter or not np.array_equal(hosts, clusters.hosts_fit(config, 1)):
        return fastest_training_layouts(calibration, config, clusters, fixed).fits
    table = clusters.without_hosts.surely(calibration, config)
    search = _Search(calibration, config, table, fixed)
    fits = search.lightest_fits(search.least_bytes() <= table.usable_bytes)
    return fits[clusters.row_by_gpus] & hosts


def _host_depends_on_layout(config: TrainingConfig) -> bool:
    """Whether the micro-batch decides if the host has enough memory: loaded images are large, tokens are small."""
    return config.model.transformer is None


class _Search:
    """The search for layouts on clusters: a matrix product of the demands of layouts and the seconds per unit of
    clusters.
    """

    def __init__(
        self, calibration: Calibration, config: TrainingConfig, clusters: ClusterTable, fixed: FixedLayout
    ) -> None:
        self.config, self.clusters, self.fixed, self.shapes = config, clusters, fixed, clusters.shapes()
        self.factors = ConfigFactors(calibration.coefficients, training_config_features(config))
        self.log_of_saving = self._logs_of_savings()

    def lightest_fits(self, wanted: Mask) -> Mask:
        """Returns which of the wanted clusters have a candidate that fits."""
        shapes = self.clusters.shapes(wanted)
        candidates = self._candidates(shapes)
        fits, needed = np.zeros(len(self.clusters), dtype=bool), self._bytes_needed(candidates.layouts)
        for shape, rows in candidates.by_shape():
            here = shapes[shape].indices
            fits[here] = needed[rows].min() <= self.clusters.usable_bytes[here]
        return fits

    def fastest(self) -> BestLayouts:
        """Returns the fastest layout on every cluster, or the one that needs the least memory where none fits."""
        shapes, count = self.shapes, len(self.clusters)
        candidates = self._candidates(shapes)
        if not len(candidates.crossing):
            return BestLayouts.nothing(count)
        needed = self._bytes_needed(candidates.layouts)
        inside = np.where(candidates.crossing, np.inf, needed)
        exists, chosen = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
        least_inside, least = np.zeros(count), np.full(count, np.inf)
        for shape, rows in candidates.by_shape():
            here, least_inside_here = shapes[shape].indices, inside[rows].min()
            first = (inside if least_inside_here < np.inf else needed)[rows].argmin()
            exists[here], chosen[here], least_inside[here] = True, rows.start + first, least_inside_here
            least[here] = needed[rows].min()
        lightest = replace(
            BestLayouts.nothing(count),
            layouts=taken(candidates.layouts, chosen),
            exists=exists,
            needed_bytes=np.where(exists, needed[chosen], np.inf),
            spare=self.clusters.usable_bytes / least,
        )
        return self._with_fastest(lightest, least_inside, candidates, needed)

    def least_bytes(self) -> Floats:
        """Returns a lower bound of the bytes per GPU of any layout: states divided evenly over all GPUs."""
        parts, sharded = training_parts(self.config, Layout()), {"sharded": Levels(("", "yes"), np.arange(2))}
        states = ("weights", "gradients", "optimizer")
        total = sum(float(parts[name]) * np.min(self.factors.of(MEMORY, name, sharded)) for name in states)
        least: Floats = total * self.factors.of(MEMORY, "*", {}) / self.clusters.gpus
        return least

    def _candidates(self, shapes: Sequence[ClusterShape]) -> LayoutCandidates:
        sizes = [shape.size for shape in shapes]
        return training_candidates(self.config, sizes, self.fixed, self._savings_worth_trying)

    def _bytes_needed(self, layouts: LayoutTable) -> Floats:
        parts = training_parts(self.config, layouts)
        needed = self.factors.total(MEMORY, parts, layout_columns(layouts))
        return np.asarray(needed)

    def _with_fastest(
        self, lightest: BestLayouts, least_inside: Floats, candidates: LayoutCandidates, needed: Floats
    ) -> BestLayouts:
        """Replaces the lightest layout of each cluster by the fastest one that fits.

        A candidate has to fit in the memory of the GPUs and, where the micro-batch decides whether the host has enough
        memory, in that of the host. Of equally fast candidates, the one that needs the least memory is chosen.
        Candidates that cross slow links are for clusters with less memory than `least_inside`, the least bytes of the
        other candidates.
        """
        usable = self.clusters.usable_bytes
        rooms = usable, np.where(usable < least_inside, usable, 0.0)
        # What does not fit in its lightest form is not tried in others.
        candidates = candidates.among(self._that_fit(candidates, needed, rooms))
        candidates = with_all_steps(self.config, candidates, self.fixed)
        needed = self._bytes_needed(candidates.layouts)
        order = self._that_fit(candidates, needed, rooms)
        if not len(order):
            return lightest
        order = order[np.lexsort((needed[order], candidates.shape[order]))]
        candidates, needed = candidates.among(order), needed[order]
        chosen, seconds = self._fastest_rows(candidates, needed, rooms)
        fits = chosen >= 0
        fastest = replace(
            lightest,
            layouts=either(lightest.layouts, taken(candidates.layouts, chosen), fits),
            fits=fits,
            needed_bytes=np.where(fits, needed[chosen], lightest.needed_bytes),
            units_per_second=1.0 / seconds,
        )
        return self._simplified(fastest, candidates.layouts, chosen)

    def _that_fit(self, candidates: LayoutCandidates, needed: Floats, rooms: tuple[Floats, Floats]) -> Indices:
        """Returns the rows that fit on some cluster of their shape. `rooms` has the bytes that a candidate may need on
        each cluster, and then those of one that crosses slow links.
        """
        largest, to_cross = (
            np.array([room[shape.indices].max() for shape in self.shapes])[candidates.shape] for room in rooms
        )
        return np.flatnonzero(needed <= np.where(candidates.crossing, to_cross, largest))

    def _fastest_rows(
        self, candidates: LayoutCandidates, needed: Floats, rooms: tuple[Floats, Floats]
    ) -> tuple[Indices, Floats]:
        """Returns the row of the fastest candidate that fits on each cluster, or -1, and its seconds per sample.

        Candidates of a shape are in the order of the bytes that they need.
        """
        usable, to_cross = rooms
        demands, costs, carried = self._demands_and_costs(candidates.layouts, candidates.linked_gpus)
        chosen, seconds = np.full(len(usable), -1), np.full(len(usable), np.inf)
        for shape, rows in candidates.by_shape():
            here = self.shapes[shape].indices
            here = here[usable[here] >= needed[rows.start]]
            times = costs[here] @ demands[:, rows]
            for amount, rate in carried:
                np.maximum(times, rate[here, None] * amount[rows], out=times)
            times[needed[rows] > usable[here, None]] = np.inf
            if candidates.crossing[rows].any():
                times[candidates.crossing[rows] & (needed[rows] > to_cross[here, None])] = np.inf
            if _host_depends_on_layout(self.config):
                hosts = self.clusters.hosts_fit_by_layout(self.config, here, candidates.layouts.micro_batch[rows])
                times[~hosts] = np.inf
            best = times.argmin(axis=1)
            chosen[here] = np.where(times[np.arange(len(here)), best] < np.inf, rows.start + best, -1)
        fits = np.flatnonzero(chosen >= 0)
        row = chosen[fits]
        # A product of matrices rounds by its size; the seconds of a cluster must not depend on the other clusters.
        seconds[fits] = sum(costs[fits, key] * amount[row] for key, amount in enumerate(demands))
        for amount, rate in carried:
            seconds[fits] = np.maximum(seconds[fits], rate[fits] * amount[row])
        return chosen, seconds

    def _demands_and_costs(
        self, layouts: LayoutTable, linked_gpus: Floats
    ) -> tuple[Floats, Floats, list[tuple[Floats, Floats]]]:
        """Returns amounts per sample (demands by layouts) and seconds per unit of each demand (clusters by demands).

        A bounded term counts twice: with its ideal time, and with the time that the coefficients add to it. The third
        value has the gradients per sample on each link or network and the seconds per unit: no step is shorter.
        """
        per_sample = self.factors.of(TRAINING, "*", layout_columns(layouts)) / layouts.global_batch
        demands = training_demands(self.config, layouts, linked_gpus)
        keys = [key for key, amount in demands.items() if key[0] in TRAINING.start and np.any(amount)]
        bounded = [key for key in keys if key[0] in TRAINING.bounded]
        # A term may need several resources; all have the factor of the term.
        factors = {term: self.factors.of(TRAINING, term, {}) for term in {term for term, _ in keys}}
        amounts = np.empty((len(keys) + len(bounded), len(layouts.tensor)))
        for index, key in enumerate(keys):
            np.multiply(demands[key], per_sample, out=amounts[index])
            amounts[index] *= factors[key[0]]
        for index, key in enumerate(bounded, len(keys)):
            np.divide(demands[key], layouts.global_batch, out=amounts[index])
        rates, of_clusters = (
            self.clusters.rates(repeat(self.config)),
            self.clusters.factors(self.factors, TRAINING, factors),
        )
        costs = [rates[resource] * of_clusters[term] for term, resource in keys]
        carried = [
            (demands[key] / layouts.global_batch, np.asarray(rates[key[1]])) for key in keys if key[0] == GRADIENTS
        ]
        return amounts, np.column_stack([*costs, *(rates[resource] for _, resource in bounded)]), carried

    def _savings_worth_trying(self, highest: int) -> Sequence[MemorySaving]:
        """Returns ZeRO stages and checkpointings, without those that another one beats in any layout on any cluster.

        Up to stage 2, a higher stage moves no more bytes and holds fewer, so that it is at least as good unless the
        coefficients of the stack make it slower.
        """
        savings = memory_savings(self.config, self.fixed, highest)
        return [saving for saving in savings if not self._is_beaten(saving, savings)]

    def _is_beaten(self, saving: MemorySaving, savings: Sequence[MemorySaving]) -> bool:
        stage, kind = saving
        others = [(higher, kind) for higher in range(stage + 1, 3)]
        return any(other in savings and self.log_of_saving[other] <= self.log_of_saving[saving] for other in others)

    def _logs_of_savings(self) -> dict[MemorySaving, float]:
        """Returns the logarithm of the factor by which each saving changes the time of a step of this stack."""
        savings = memory_savings(self.config, self.fixed, 3)
        stages, kinds = (np.array([saving[side] for saving in savings]) for side in (0, 1))
        layouts = replace(LayoutTable.plain(len(savings)), zero_stage=stages.astype(np.float64), checkpointing=kinds)
        logs = np.broadcast_to(self.factors.log_of(TRAINING, "*", layout_columns(layouts)), len(savings))
        return dict(zip(savings, logs.tolist(), strict=True))

    def _simplified(self, fastest: BestLayouts, layouts: LayoutTable, chosen: Indices) -> BestLayouts:
        """Replaces ZeRO stage 2 by 1 where that is as fast and fits too.

        `chosen` has the row of the layout of each cluster; a layout that many clusters share is computed once.
        """
        clusters = np.flatnonzero(fastest.fits & (layouts.zero_stage == 2)[chosen])
        if not len(clusters) or self.fixed.zero_stage is not None:
            return fastest
        rows, row_of = np.unique(chosen[clusters], return_inverse=True)
        old = taken(layouts, rows)
        new = replace(old, zero_stage=np.ones(len(rows)))
        old_log, new_log = (self.factors.log_of(TRAINING, "*", layout_columns(each)) for each in (old, new))
        needed = np.where(new_log == old_log, self._bytes_needed(new), np.inf)[row_of]
        fits = needed <= self.clusters.usable_bytes[clusters]
        fastest.layouts.zero_stage[clusters[fits]] = 1.0
        fastest.needed_bytes[clusters[fits]] = needed[fits]
        return fastest
