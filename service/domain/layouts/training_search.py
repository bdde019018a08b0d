"""The best training layout on each cluster: the fastest that fits, or else the one that needs the least memory."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, taken
from service.domain.calibration.calibration import Calibration
from service.domain.calibration.coefficients import Levels
from service.domain.calibration.step_kinds import MEMORY, TRAINING
from service.domain.jobs.config import TrainingConfig
from service.domain.jobs.fixed_layout import FREE, FixedLayout
from service.domain.layouts.best_layouts import BestLayouts
from service.domain.layouts.candidates import (
    LayoutCandidates,
    MemorySaving,
    memory_savings,
    training_candidates,
    with_all_steps,
    without_accumulation,
)
from service.domain.layouts.cluster_table import ClusterTable, ConfigFactors
from service.domain.layouts.usual import most_samples_per_micro_batch
from service.domain.physics.estimate import memory_margin
from service.domain.physics.features import layout_columns, training_config_features
from service.domain.physics.host_memory import BytesByLayout, bytes_by_layout
from service.domain.physics.memory import training_parts
from service.domain.physics.parallelism import Layout, LayoutTable
from service.domain.physics.resources import Demands
from service.domain.physics.training_roofline import bytes_carried, training_demands

IDEAL = "ideal"
"""Name of the ideal time of bounded terms, which no coefficient changes."""


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
    table, margin = clusters if hosts_matter else clusters.without_hosts, memory_margin(calibration, config)
    fastest = _Search(calibration, config, table, fixed).fastest()
    if not hosts_matter:
        fastest = taken(fastest, clusters.row_by_gpus)
    fits = fastest.fits & clusters.hosts_fit(config, bytes_by_layout(config, fastest.layouts))
    spare = fastest.spare * margin
    least, most = _least_and_most_in_hosts(config, fixed)
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
    """Whether some layout fits. The layout that needs the least memory decides, unless the layout decides whether the
    host has enough memory.
    """
    hosts_matter = _host_depends_on_layout(config)
    least, most = _least_and_most_in_hosts(config, FREE)
    hosts = clusters.hosts_fit(config, least if hosts_matter else most)
    if hosts_matter or not np.array_equal(hosts, clusters.hosts_fit(config, least)):
        return fastest_training_layouts(calibration, config, clusters, fixed).fits
    table, margin = clusters.without_hosts, memory_margin(calibration, config)
    may_fit = np.flatnonzero(_least_bytes(calibration, config, table) * margin <= table.usable_bytes)
    fits = np.zeros(len(table), np.bool_)
    fits[may_fit] = _Search(calibration, config, table.rows(may_fit), fixed).fits
    return fits[clusters.row_by_gpus] & hosts


def _least_bytes(calibration: Calibration, config: TrainingConfig, clusters: ClusterTable) -> Floats:
    """Returns a lower bound of the bytes per GPU of any layout: states divided evenly over all GPUs."""
    factors = ConfigFactors(calibration.coefficients, training_config_features(config))
    parts, sharded = training_parts(config, Layout()), {"sharded": Levels(("", "yes"), np.arange(2))}
    states = ("weights", "gradients", "optimizer")
    total = sum(float(parts[name]) * np.min(factors.of(MEMORY, name, sharded)) for name in states)
    least: Floats = total * factors.of(MEMORY, "*", {}) / clusters.gpus
    return least


def _host_depends_on_layout(config: TrainingConfig) -> bool:
    """Whether the layout decides if the host has enough memory: loaded images are large, tokens are small, unless their
    activations are there too.
    """
    return config.model.transformer is None or config.offload_activations


def _least_and_most_in_hosts(config: TrainingConfig, fixed: FixedLayout) -> tuple[BytesByLayout, BytesByLayout]:
    """Returns the fewest bytes that depend on a layout, and the most."""
    samples = (fixed.micro_batch,) * 2 if fixed.micro_batch else (1, most_samples_per_micro_batch(config))
    least, most = (Layout(micro_batch=each, activation_checkpointing="full") for each in samples)
    return bytes_by_layout(config, least)._replace(activations=0.0), bytes_by_layout(config, most)


class _Search:
    """The search for layouts on clusters: a matrix product of the demands of layouts and the seconds per unit of
    clusters.

    Candidates form two groups for each size of clusters: those that keep tensor parallelism on fast links, and those
    that do not. A cluster takes the second group where none of the first likely fits. A layout fits if its memory
    suffices with the confidence of the config.
    """

    def __init__(
        self, calibration: Calibration, config: TrainingConfig, clusters: ClusterTable, fixed: FixedLayout
    ) -> None:
        self.config, self.fixed = config, fixed
        self.clusters = surely = clusters.surely(memory_margin(calibration, config))
        self.factors = ConfigFactors(calibration.coefficients, training_config_features(config))
        self.log_of_saving = self._logs_of_savings()
        sizes, size = clusters.own_sizes()
        self.lightest = training_candidates(config, sizes, fixed, self._savings_worth_trying)
        self.needed = self._bytes_needed(self.lightest.layouts)
        if config.fused_optimizer:
            self._take_whole_batches()
        self.row_of_least, self.least = self.lightest.least_of_groups(self.needed)
        inside = 2 * size
        self.group = inside + (clusters.usable_bytes < self.least[inside])
        """The group of candidates that each cluster takes."""
        self.fits = self.least[self.group] <= surely.usable_bytes
        self.exists = np.isfinite(np.minimum(self.least[inside], self.least[inside + 1]))
        self.lightest_group = inside + np.isinf(self.least[inside])

    def _take_whole_batches(self) -> None:
        """Replaces lightest layouts by those without accumulation where these need less memory, because a fused
        optimizer then keeps the gradients of one layer.
        """
        whole = without_accumulation(self.config, self.lightest, self.fixed)
        needed = self._bytes_needed(whole.layouts)
        lighter = needed < self.needed
        columns = {
            name: np.where(lighter, getattr(whole.layouts, name), getattr(self.lightest.layouts, name))
            for name in ("micro_batch", "accumulation")
        }
        self.lightest = replace(self.lightest, layouts=replace(self.lightest.layouts, **columns))
        self.needed = np.minimum(needed, self.needed)

    def fastest(self) -> BestLayouts:
        """Returns the fastest layout on every cluster, or the one that needs the least memory where none fits."""
        count, clusters = len(self.clusters), self.clusters
        if not self.exists.any():
            return BestLayouts.nothing(count)
        lightest = replace(
            BestLayouts.nothing(count),
            layouts=taken(self.lightest.layouts, self.row_of_least[self.lightest_group]),
            exists=self.exists,
            needed_bytes=self.least[self.lightest_group],
            spare=clusters.usable_bytes / self.least[self.group],
        )
        # The clusters on which something fits, group by group.
        where = np.flatnonzero(self.fits)
        where = where[np.argsort(self.group[where], kind="stable")]
        return self._with_fastest(lightest, where) if len(where) else lightest

    def _bytes_needed(self, layouts: LayoutTable) -> Floats:
        parts = training_parts(self.config, layouts)
        needed = self.factors.total(MEMORY, parts, layout_columns(layouts))
        return np.asarray(needed)

    def _with_fastest(self, lightest: BestLayouts, where: Indices) -> BestLayouts:
        """Replaces the lightest layouts of some clusters, group by group, by the fastest ones that fit there."""
        on = _Fitting.of(self.config, self.clusters.rows(where), self.group[where], len(self.least), self.factors)
        # What does not fit in its lightest form is not tried in others.
        fitting = self.lightest.among(np.flatnonzero(self.needed <= on.largest[self.lightest.group]))
        candidates = with_all_steps(self.config, fitting, self.fixed)
        needed = self._bytes_needed(candidates.layouts)
        rows = np.flatnonzero(needed <= on.largest[candidates.group])
        candidates, needed = candidates.among(rows), needed[rows]
        chosen, seconds = self._fastest_rows(on, candidates, needed)
        fits = chosen >= 0
        where, chosen = where[fits], chosen[fits]
        for name in LayoutTable.__dataclass_fields__:
            getattr(lightest.layouts, name)[where] = getattr(candidates.layouts, name)[chosen]
        lightest.fits[where], lightest.needed_bytes[where] = True, needed[chosen]
        lightest.units_per_second[where] = 1.0 / seconds[fits]
        self._simplify(lightest)
        return lightest

    def _fastest_rows(self, on: "_Fitting", candidates: LayoutCandidates, needed: Floats) -> tuple[Indices, Floats]:
        """Returns the row of the fastest candidate that fits on each cluster, or -1, and its seconds per sample.

        A candidate has to fit in the memory of the GPUs and, where the layout decides whether the host has enough
        memory, in that of the host. Of equally fast candidates, the one that needs the least memory is chosen.
        """
        usable, rates = on.clusters.usable_bytes, on.rates
        chosen, seconds = np.full(len(usable), -1), np.full(len(usable), np.inf)
        keys, demands, carried = self._demands(candidates.layouts, candidates.linked_gpus)
        costs = np.column_stack([rates[resource] * on.factors.get(term, 1.0) for term, resource in keys])
        hosts_matter = _host_depends_on_layout(self.config)
        held = np.column_stack(np.broadcast_arrays(*bytes_by_layout(self.config, candidates.layouts)))
        for group, rows in candidates.by_group():
            here, bytes_needed = slice(on.starts[group], on.starts[group + 1]), needed[rows]
            times = costs[here] @ demands[:, rows]
            for carrier in carried:
                seconds_carried = (rates[resource][here, None] * amount[rows] for resource, amount in carrier.items())
                np.maximum(times, sum(seconds_carried), out=times)
            times[bytes_needed > usable[here, None]] = np.inf
            if hosts_matter:
                times[~on.clusters.hosts_fit_by_layout(self.config, here, held[rows])] = np.inf
            least = times.min(axis=1)
            best = np.where(times == least[:, None], bytes_needed, np.inf).argmin(axis=1)
            chosen[here] = np.where(least < np.inf, rows.start + best, -1)
        fits = np.flatnonzero(chosen >= 0)
        row = chosen[fits]
        # A product of matrices rounds by its size; the seconds of a cluster must not depend on the other clusters.
        seconds[fits] = sum(costs[fits, key] * amount[row] for key, amount in enumerate(demands))
        for carrier in carried:
            seconds_carried = sum(rates[resource][fits] * amount[row] for resource, amount in carrier.items())
            seconds[fits] = np.maximum(seconds[fits], seconds_carried)
        return chosen, seconds

    def _demands(
        self, layouts: LayoutTable, linked_gpus: Floats
    ) -> tuple[list[tuple[str, str]], Floats, list[dict[str, Floats]]]:
        """Returns terms with their resources, and the amount of each per sample: a row per term, a column per layout.

        A bounded term counts twice: with the time that the coefficients add to it, and with its ideal time as `IDEAL`.
        The third value has the bytes per sample on each carrier, by resource: no step is shorter than they take.
        """
        per_sample = self.factors.of(TRAINING, "*", layout_columns(layouts)) / layouts.global_batch
        demands = training_demands(self.config, layouts, linked_gpus)
        keys = [key for key in demands if key[0] in TRAINING.start]
        bounded = [key for key in keys if key[0] in TRAINING.bounded]
        amounts = np.empty((len(keys) + len(bounded), len(layouts.tensor)))
        for row, key in enumerate(keys):
            np.multiply(demands[key], per_sample, out=amounts[row])
        for row, key in enumerate(bounded, len(keys)):
            np.divide(demands[key], layouts.global_batch, out=amounts[row])
        carried = [
            _by_resource({key: amount / layouts.global_batch for key, amount in carrier.items()})
            for carrier in bytes_carried(demands, layouts)
        ]
        return [*keys, *((IDEAL, resource) for _, resource in bounded)], amounts, carried

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

    def _simplify(self, fastest: BestLayouts) -> None:
        """Replaces ZeRO stage 2 by 1 wherever that is as fast and fits too."""
        logs, layouts = self.log_of_saving, fastest.layouts
        as_fast = [kind for stage, kind in logs if stage == 2 and logs.get((1, kind)) == logs[stage, kind]]
        rows = np.flatnonzero(fastest.fits & (layouts.zero_stage == 2) & np.isin(layouts.checkpointing, as_fast))
        if not len(rows):
            return
        needed = self._bytes_needed(replace(taken(layouts, rows), zero_stage=np.ones(len(rows))))
        fits = needed <= self.clusters.usable_bytes[rows]
        layouts.zero_stage[rows[fits]] = 1.0
        fastest.needed_bytes[rows[fits]] = needed[fits]


def _by_resource(demands: Demands) -> dict[str, Floats]:
    """Returns the amounts on each resource, added up over the terms."""
    amounts: dict[str, Floats] = {}
    for (_, resource), amount in demands.items():
        amounts[resource] = amounts.get(resource, 0.0) + np.asarray(amount)
    return amounts


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Clusters on which some candidate fits, group by group, with the seconds that a unit of demand takes there."""

    clusters: ClusterTable
    starts: list[int]
    """Clusters starts[i] to starts[i+1] take the candidates of group i."""
    largest: Floats
    """Most usable bytes of a cluster of each group; 0 without clusters."""
    rates: dict[str, Floats]
    """Seconds per unit of each resource at its rated speed."""
    factors: dict[str, Floats]
    """Factor between the ideal and the expected time of each term, without that of the layout."""

    @staticmethod
    def of(
        config: TrainingConfig, clusters: ClusterTable, group: Indices, groups: int, factors: ConfigFactors
    ) -> "_Fitting":
        """Returns clusters that are in the order of their groups."""
        largest = np.zeros(groups)
        np.maximum.at(largest, group, clusters.usable_bytes)
        of_clusters = clusters.factors(factors, TRAINING, TRAINING.start)
        return _Fitting(
            clusters,
            np.searchsorted(group, np.arange(groups + 1)).tolist(),
            largest,
            clusters.rates(repeat(config)),
            {term: factor * factors.of(TRAINING, term, {}) for term, factor in of_clusters.items()},
        )
