"""The best inference layout on each cluster: how many GPUs hold one replica, and how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, either, taken
from service.domain.calibration.error_bands import Physics
from service.domain.calibration.step_kinds import FORWARD, MEMORY
from service.domain.jobs.config import InferenceConfig
from service.domain.layouts.candidates import cuts_of
from service.domain.layouts.cluster_table import ClusterShape, ClusterTable, ConfigFactors, shapes_among
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.features import cut_columns, inference_config_features
from service.domain.physics.inference_roofline import (
    forward_batch,
    forward_demands,
    generation_demands,
    generation_kind,
    quantity_feature,
)
from service.domain.physics.memory import in_flight, inference_parts, replicas_in_use
from service.domain.physics.parallelism import LayoutTable


@dataclass(frozen=True, slots=True)
class FastestInference:
    """The chosen layout of each cluster of a table, and its figures."""

    layouts: LayoutTable
    exists: Mask
    fits: Mask
    """In the GPUs' memory and, where that is known, in the host's."""
    needed_bytes: Floats
    """Per GPU; infinite where there is no layout."""
    concurrency: Floats
    """Conversations (or samples) at once on the whole cluster."""
    units_per_second: Floats
    """Output tokens (samples, for a model that does not generate) of the whole cluster, calibrated, before the caution
    of bands; 0 where it does not fit."""

    @staticmethod
    def nothing(rows: int) -> "FastestInference":
        """No layout on any cluster."""
        none, zero = np.zeros(rows, dtype=bool), np.zeros(rows)
        return FastestInference(LayoutTable.plain(rows), none, none, np.full(rows, np.inf), zero, zero)


def inference_bands(physics: Physics, config: InferenceConfig, clusters: ClusterTable) -> Floats:
    """Low, likely and high rates of each cluster, over units_per_second."""
    kind = generation_kind(config) if config.model.generates else FORWARD
    return clusters.bands(physics, kind, _factors(physics, config))


def fastest_inference_layouts(
    physics: Physics,
    config: InferenceConfig,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
    *,
    wanted: Mask | None = None,
) -> FastestInference:
    """Returns the layout that yields the most tokens (or samples) per second on every cluster, or on the wanted ones.

    With a concurrency given, all layouts that hold it at once share it among their replicas, so that the most tokens
    per second is also the least time per token. A layout that cannot hold it would seem quick for a few requests and
    keep the others waiting, which tokens per second counts and time per token does not. Of equal ones, the least cut.
    """
    shapes = clusters.shapes_of(wanted)
    fastest = _fastest(physics, config, clusters, _pairs(config, shapes, fixed, across=False))
    shapes = shapes_among(shapes, ~fastest.fits)
    if shapes and fixed.tensor is None and config.model.generates:
        crossing = _fastest(physics, config, clusters, _pairs(config, shapes, fixed, across=True))
        better = crossing.exists & ~fastest.fits & (crossing.fits | ~fastest.exists)
        fastest = either(fastest, crossing, better)
    fastest = taken(fastest, clusters.same_but_host)
    fits = fastest.fits & clusters.hosts_fit(config, 1)
    return replace(fastest, fits=fits, units_per_second=np.where(fits, fastest.units_per_second, 0.0))


def where_inference_fits(
    physics: Physics, config: InferenceConfig, clusters: ClusterTable, wanted: Mask | None = None
) -> Mask:
    """Whether any layout fits, without looking for the fastest."""
    factors, shapes = _factors(physics, config), clusters.shapes_of(wanted)
    fits = np.zeros(len(clusters), dtype=bool)
    for across in (False, True) if config.model.generates else (False,):
        pairs = _pairs(config, shapes_among(shapes, ~fits), FREE, across=across)
        usable = clusters.usable_bytes[pairs.cluster]
        _, needed = _concurrency_and_bytes(factors, config, pairs.layouts, usable)
        fits[pairs.cluster[needed <= usable]] = True
    return fits[clusters.same_but_host] & clusters.hosts_fit(config, 1)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Layouts on clusters, one pair per row; for each cluster the least cut first."""

    cluster: Indices
    layouts: LayoutTable


def _factors(physics: Physics, config: InferenceConfig) -> ConfigFactors:
    return ConfigFactors(physics.calibration, inference_config_features(config))


def _pairs(config: InferenceConfig, shapes: Sequence[ClusterShape], fixed: FixedLayout, *, across: bool) -> _Pairs:
    fixed = replace(fixed, context=None, expert=None)
    cuts = cuts_of(config, [shape.size for shape in shapes], fixed, across=across)
    order = np.lexsort((cuts["pipeline"], cuts["tensor"] * cuts["pipeline"], cuts["shape"]))
    starts = np.searchsorted(cuts["shape"], np.arange(len(shapes) + 1))
    clusters, rows = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for shape, cut in zip(shapes, np.split(order, starts[1:-1]) if shapes else (), strict=True):
        clusters.append(np.repeat(shape.indices, len(cut)))
        rows.append(np.tile(cut, len(shape.indices)))
    row = np.concatenate(rows)
    degrees = {name: cuts[name][row] for name in ("tensor", "pipeline", "data")}
    return _Pairs(np.concatenate(clusters), replace(LayoutTable.plain(len(row)), **degrees))


def _concurrency_and_bytes(
    factors: ConfigFactors, config: InferenceConfig, layouts: LayoutTable, usable: Floats
) -> tuple[Floats, Floats]:
    """Conversations (or samples) at once on one replica, and the calibrated bytes per GPU that they need."""
    if not config.model.generates:
        concurrency = np.full(len(usable), forward_batch(config))
        return concurrency, _bytes_needed(factors, config, layouts, np.zeros(len(usable)))
    concurrency = np.broadcast_to(in_flight(config, usable, layouts), len(usable))
    crowded = _bytes_needed(factors, config, layouts, concurrency) > usable
    concurrency = np.where(crowded & (concurrency > 1), 1.0, concurrency)
    return concurrency, _bytes_needed(factors, config, layouts, concurrency)


def _bytes_needed(factors: ConfigFactors, config: InferenceConfig, layouts: LayoutTable, sequences: Floats) -> Floats:
    parts = inference_parts(config, layouts, sequences)
    needed: Floats = np.broadcast_to(factors.total(MEMORY, parts, {}), len(sequences))
    return needed


def _fastest(physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs) -> FastestInference:
    """The best pair of each cluster."""
    rows = len(pairs.cluster)
    if not rows:
        return FastestInference.nothing(len(clusters))
    layouts, usable = pairs.layouts, clusters.usable_bytes[pairs.cluster]
    concurrency, needed = _concurrency_and_bytes(_factors(physics, config), config, layouts, usable)
    seconds = _step_seconds(physics, config, clusters, pairs, concurrency)
    replicas = replicas_in_use(config, layouts) if config.model.generates else clusters.gpus[pairs.cluster]
    concurrency, fits = concurrency * replicas, needed <= usable
    rate = np.where(fits, concurrency / seconds, 0.0)
    order = np.lexsort((np.where(fits, -rate, needed), ~fits, pairs.cluster))
    cluster, first = np.unique(pairs.cluster[order], return_index=True)
    index, exists = np.zeros(len(clusters), dtype=np.int64), np.zeros(len(clusters), dtype=bool)
    index[cluster], exists[cluster] = order[first], True
    return FastestInference(
        taken(layouts, index),
        exists,
        fits[index] & exists,
        np.where(exists, needed[index], np.inf),
        concurrency[index],
        np.where(exists, rate[index], 0.0),
    )


def _step_seconds(
    physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs, concurrency: Floats
) -> Floats:
    """Likely seconds of a decoding step, or of a forward pass, of each pair."""
    if config.model.generates:
        linked_gpus = clusters.linked_gpus[pairs.cluster]
        kind, demands = generation_kind(config), generation_demands(config, pairs.layouts, linked_gpus, concurrency)
        features = quantity_feature(config, "serving")
    else:
        kind, demands = FORWARD, forward_demands(config)
        features = {"offline": "no" if config.concurrency else "yes"}
    factors = ConfigFactors(physics.calibration, {**inference_config_features(config), **features})
    keys = [key for key, amount in demands.items() if key[0] in kind.start and np.any(amount)]
    costs = clusters.costs(factors, kind, config, keys)[pairs.cluster]
    seconds = sum(demands[key] * factors.of(kind, key[0], {}) * costs[:, index] for index, key in enumerate(keys))
    return np.asarray(seconds * factors.of(kind, "*", cut_columns(pairs.layouts)))
