"""The best layout of answering on each machine: how many GPUs hold one replica, and how."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask, either, still, taken
from service.domain.calibration.coefficients import Features, StepKind
from service.domain.calibration.error_bands import Physics, bands_by_gpu
from service.domain.calibration.step_kinds import FORWARD, MEMORY
from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig
from service.domain.layouts.candidate_table import factorisations
from service.domain.layouts.candidates import crosses_slow_links
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.cluster_table import ClusterTable, cluster_table
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_inference, forward_batch, language_demands, language_kind
from service.domain.physics.features import cut_columns, inference_config_features
from service.domain.physics.inference_roofline import forward_demands
from service.domain.physics.kv_cache import in_flight, replicas_in_use
from service.domain.physics.memory import inference_parts
from service.domain.physics.parallelism import Floats, LayoutTable
from service.domain.physics.resources import Demands


@dataclass(frozen=True, slots=True)
class FastestInference:
    """The chosen layout of each machine of a table, and what it comes to."""

    layouts: LayoutTable
    exists: Mask
    fits: Mask
    """In the GPUs' memory and, where that is known, in the host's."""
    needed_bytes: Floats
    """Per GPU; infinite where there is no layout."""
    concurrency: Floats
    """Conversations (or samples) at once on the whole machine."""
    units_per_second: Floats
    """Output tokens (or samples of what does not generate) of the whole machine, as the calibration says, before the
    caution of bands; 0 where it does not fit."""
    seconds_per_step: Floats
    """Seconds from one token of a conversation to the next (or of a forward pass)."""


def best_inference_layout(
    physics: Physics, config: InferenceConfig, cluster: Cluster, fixed: FixedLayout = FREE
) -> Estimate:
    """The layout that fits and answers the most tokens (or samples) per second; of equals, the least cut.

    With a concurrency given, all layouts that hold it at once share it among their replicas, so the most tokens per
    second is also the least time per token; a layout that could not hold it would look quick for few and keep others
    waiting, which tokens per second counts and time per token does not.
    """
    check_fixed(fixed, config, cluster)
    found = fastest_inference_layouts(physics, config, cluster_table([cluster]), fixed)
    if not found.exists[0]:
        raise QuestionError(
            f"No layout divides {config.model.name} over {cluster.gpus} GPUs as asked: the GPUs of a replica must "
            "divide its attention heads and layers.",
            field="layout",
        )
    layout = found.layouts.row(0)
    across = crosses_slow_links(layout.tensor, cluster.linked_gpus)
    return replace(estimate_inference(physics, config, cluster, layout), tensor_across_slow_links=across)


def inference_bands(physics: Physics, config: InferenceConfig, clusters: ClusterTable) -> Floats:
    """Low, likely and high rates of each machine, over units_per_second."""
    gpus = [gpu.id for gpu in clusters.kinds]
    kind = language_kind(config) if config.model.generates else FORWARD
    return bands_by_gpu(physics.calibration, physics.bands, kind, inference_config_features(config), gpus)[
        clusters.kind
    ]


def fastest_inference_layouts(
    physics: Physics,
    config: InferenceConfig,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
    *,
    wanted: Mask | None = None,
) -> FastestInference:
    """The same of many machines at once, or of those that are wanted, without their estimates."""
    every = np.zeros(len(clusters), dtype=bool)
    every[clusters.same_but_host if wanted is None else clusters.same_but_host[wanted]] = True
    pairs = _pairs(config, clusters, fixed, every, across=False)
    found = _estimated(physics, config, clusters, pairs)
    missing = every & ~found.fits
    if missing.any() and fixed.tensor is None and config.model.generates:
        more = _estimated(physics, config, clusters, _pairs(config, clusters, fixed, missing, across=True))
        found = either(found, more, more.exists & ~found.fits & (more.fits | ~found.exists))
    found = taken(found, clusters.same_but_host)
    fits = found.fits & clusters.hosts_fit(config, 1)
    return replace(found, fits=fits, units_per_second=np.where(fits, found.units_per_second, 0.0))


def where_inference_fits(
    physics: Physics, config: InferenceConfig, clusters: ClusterTable, wanted: Mask | None = None
) -> Mask:
    """Where the fastest layout fits, without looking for it: where any does."""
    features = inference_config_features(config)
    fits, left = np.zeros(len(clusters), dtype=bool), np.zeros(len(clusters), dtype=bool)
    left[clusters.same_but_host if wanted is None else clusters.same_but_host[wanted]] = True
    for across in (False, True) if config.model.generates else (False,):
        pairs = _pairs(config, clusters, FREE, left & ~fits, across=across)
        usable = clusters.usable_bytes[pairs.cluster]
        _, needed = _at_once(physics, config, pairs.layouts, usable, features)
        fits[pairs.cluster[needed <= usable]] = True
    return fits[clusters.same_but_host] & clusters.hosts_fit(config, 1)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Layouts on machines, one pair per row; of each machine the least cut first."""

    cluster: NDArray[np.int64]
    layouts: LayoutTable


def _pairs(
    config: InferenceConfig, clusters: ClusterTable, fixed: FixedLayout, wanted: Mask, *, across: bool
) -> _Pairs:
    t = config.model.transformer
    heads, layers = (t.heads, t.layers) if t else (1, 1)
    places, cuts = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 3))]
    for shape in clusters.shapes:
        here = shape.places[wanted[shape.places]]
        if len(here):
            cut = _cuts(heads, layers, shape.gpus, shape.linked_gpus, fixed, across=across)
            places.append(np.repeat(here, len(cut)))
            cuts.append(np.tile(cut, (len(here), 1)))
    tensor, pipeline, data = np.concatenate(cuts).T
    plain = LayoutTable.plain(len(tensor))
    return _Pairs(np.concatenate(places), replace(plain, tensor=tensor, pipeline=pipeline, data=data))


@lru_cache(maxsize=4096)
def _cuts(
    heads: int, layers: int, gpus: int, linked_gpus: int, fixed: FixedLayout, *, across: bool
) -> NDArray[np.float64]:
    """Tensor, pipeline and data degrees that multiply out, the fewest GPUs per replica first."""
    found = factorisations(gpus, 3)
    tensor, pipeline, data = found.T
    kept = np.ones(len(found), dtype=bool)
    for name, column in (("tensor", tensor), ("pipeline", pipeline), ("data", data)):
        if getattr(fixed, name) is not None:
            kept &= column == getattr(fixed, name)
    if fixed.tensor is None:
        crossing = (tensor > linked_gpus) | (linked_gpus % tensor != 0)
        kept &= (crossing == across) & (heads % tensor == 0)
    if fixed.pipeline is None:
        kept &= pipeline <= layers
    found = found[kept]
    ordered = found[np.lexsort((found[:, 1], found[:, 0] * found[:, 1]))]
    return still(ordered.astype(np.float64))


def _at_once(
    physics: Physics, config: InferenceConfig, layouts: LayoutTable, usable: Floats, features: Features
) -> tuple[Floats, Floats]:
    """Conversations (or samples) at once on one replica, and the bytes per GPU that they need, calibrated."""
    if config.model.generates:
        at = np.broadcast_to(in_flight(config, usable, layouts), len(usable))
        crowded = _bytes_needed(physics, config, layouts, at, features) > usable
        at = np.where(crowded & (at > 1), 1.0, at)
    else:
        at = np.full(len(usable), forward_batch(config))
    return at, _bytes_needed(physics, config, layouts, at, features)


def _estimated(physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs) -> FastestInference:
    """Every pair estimated, and the best of each machine."""
    layouts, usable = pairs.layouts, clusters.usable_bytes[pairs.cluster]
    features: Features = inference_config_features(config)
    rows = len(usable)
    at, needed = _at_once(physics, config, layouts, usable, features)
    if config.model.generates:
        replicas = np.broadcast_to(replicas_in_use(config, layouts), rows)
        kind, demands, what = language_demands(config, layouts, clusters.linked_gpus[pairs.cluster], at)
        features = {**features, **what}
    else:
        replicas = clusters.gpus[pairs.cluster]
        kind, demands = FORWARD, forward_demands(config, forward_batch(config))
        features = {**features, "offline": "no" if config.concurrency else "yes"}
    seconds = _seconds(physics, kind, features, clusters, pairs, demands, config)
    fits = needed <= usable
    rate = np.where(fits, at * replicas / seconds, 0.0)
    best = np.lexsort((np.where(fits, -rate, needed), ~fits, pairs.cluster))
    cluster, first = np.unique(pairs.cluster[best], return_index=True)
    best = best[first]
    place, exists = np.zeros(len(clusters), dtype=np.int64), np.zeros(len(clusters), dtype=bool)
    place[cluster], exists[cluster] = best, True
    if not rows:
        nothing = np.zeros(len(clusters))
        return FastestInference(
            LayoutTable.plain(len(clusters)), exists, exists, nothing + np.inf, nothing, nothing, nothing
        )
    return FastestInference(
        taken(layouts, place),
        exists,
        fits[place] & exists,
        np.where(exists, needed[place], np.inf),
        (at * replicas)[place],
        np.where(exists, rate[place], 0.0),
        seconds[place],
    )


def _bytes_needed(
    physics: Physics, config: InferenceConfig, layouts: LayoutTable, at: Floats, features: Features
) -> Floats:
    """Per GPU, calibrated."""
    calibration, needed = physics.calibration, np.zeros(len(at))
    length = config.input_length + config.output_length
    parts = inference_parts(config, layouts, at if config.model.generates else 0.0, length)
    for part, amount in parts.items():
        needed += amount * MEMORY.start[part] * np.exp(calibration.log_factor(MEMORY, part, features))
    return needed * float(np.exp(calibration.log_factor(MEMORY, "*", features)))


def _seconds(
    physics: Physics,
    kind: StepKind,
    features: Features,
    clusters: ClusterTable,
    pairs: _Pairs,
    demands: Demands,
    config: InferenceConfig,
) -> Floats:
    """Likely seconds of a step of each pair."""
    calibration = physics.calibration
    keys = [key for key, amount in demands.items() if key[0] in kind.start and np.any(amount)]
    costs = clusters.costs(calibration, kind, config, features, keys)[pairs.cluster]
    total = np.zeros(len(pairs.cluster))
    for place, key in enumerate(keys):
        factor = kind.start[key[0]] * np.exp(calibration.log_factor(kind, key[0], features))
        total += demands[key] * factor * costs[:, place]
    whole = calibration.log_factor(kind, "*", features) + calibration.log_factors(
        kind, "*", features, cut_columns(pairs.layouts)
    )
    result: Floats = total * np.exp(whole)
    return result
