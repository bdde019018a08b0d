"""The best inference layout on each cluster: how many GPUs hold one replica, and how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, taken
from service.domain.calibration.error_bands import Physics
from service.domain.calibration.step_kinds import FORWARD, GENERATION, MEMORY
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.serving import Serving
from service.domain.layouts.candidates import cuts_of
from service.domain.layouts.cluster_table import ClusterShape, ClusterTable, ConfigFactors
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.estimate import memory_margin
from service.domain.physics.features import cut_columns, inference_config_features
from service.domain.physics.generation import CalibratedEngines, room_by_memory, shares_of
from service.domain.physics.inference_roofline import (
    ARRIVAL_DEMANDS,
    decode_demands,
    forward_batch,
    forward_demands,
    prompt_demands,
)
from service.domain.physics.load import Replicas, serve
from service.domain.physics.memory import inference_parts, replicas_in_use, requests_with_room
from service.domain.physics.parallelism import LayoutTable
from service.domain.physics.serving import steady_state


@dataclass(frozen=True, slots=True)
class FastestInference:
    """The chosen layout of each cluster of a table, and its figures."""

    layouts: LayoutTable
    exists: Mask
    fits: Mask
    """In the GPUs' memory, with the confidence of the config, and in the host's, where that is known."""
    needed_bytes: Floats
    """Per GPU; infinite where there is no layout."""
    sure_bytes: Floats
    """Bytes per GPU that suffice with the confidence of the config; infinite where there is no layout."""
    concurrency: Floats
    """Conversations (or samples) at once on the whole cluster."""
    units_per_second: Floats
    """Output tokens (samples, for a model that does not generate) of the whole cluster, calibrated, before the caution
    of bands; 0 where it does not fit."""
    most_requests: Floats
    """Most conversations at once in any layout; 0 where none fits."""
    holds_weights: Mask
    """Whether some layout surely fits without a single request."""
    instances: Floats
    """Clusters that serve the load of the config within its limits; infinite where no number does."""
    alone: Floats
    """`load.Served.alone` of the layouts of each cluster; no columns without a load."""
    least: Floats
    """Likewise."""

    @staticmethod
    def nothing(rows: int, limits: int) -> "FastestInference":
        """No layout on any cluster."""
        none, zero, needed = np.zeros(rows, dtype=bool), np.zeros(rows), np.full(rows, np.inf)
        missed = np.full((rows, limits), np.inf)
        return FastestInference(
            LayoutTable.plain(rows), none, none, needed, needed, zero, zero, zero, none, np.ones(rows), missed, missed
        )


def inference_bands(physics: Physics, config: InferenceConfig, clusters: ClusterTable) -> Floats:
    """Low, likely and high rates of each cluster, over units_per_second."""
    kind = GENERATION if config.model.generates else FORWARD
    return clusters.bands(physics, kind, _factors(physics, config))


def fastest_inference_layouts(
    physics: Physics,
    config: InferenceConfig,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
    *,
    wanted: Mask | None = None,
) -> FastestInference:
    """Returns the layout that yields the most tokens (or samples) per second on every cluster, or on the wanted ones;
    for a load, the one that serves it on the fewest instances.

    With a concurrency given, all layouts that hold it at once share it among their replicas, so that the most tokens
    per second is also the least time per token. A layout that cannot hold it would seem quick for a few requests and
    keep the others waiting, which tokens per second counts and time per token does not. Ties go to the layout with the
    fewest parts.
    """
    fastest = _fastest(physics, config, clusters, _pairs(config, clusters.shapes_of(wanted), fixed))
    fastest = taken(fastest, clusters.same_but_host)
    fits = fastest.fits & clusters.hosts_fit(config, 1)
    return replace(fastest, fits=fits, units_per_second=np.where(fits, fastest.units_per_second, 0.0))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Layouts on clusters, one pair per row; for each cluster the least cut first."""

    cluster: Indices
    layouts: LayoutTable
    crossing: Mask
    """Whether tensor parallelism crosses slow links unasked, see `LayoutCandidates`."""

    def eligible(self, fits: Mask) -> Mask:
        """Whether a pair fits, and does not cross slow links where another pair of its cluster fits inside them."""
        inside = np.bincount(self.cluster, fits & ~self.crossing) > 0
        return fits & ~(self.crossing & inside[self.cluster])


def _factors(physics: Physics, config: InferenceConfig) -> ConfigFactors:
    return ConfigFactors(physics.calibration, inference_config_features(config))


def _pairs(config: InferenceConfig, shapes: Sequence[ClusterShape], fixed: FixedLayout) -> _Pairs:
    cuts = cuts_of(config, [shape.size for shape in shapes], replace(fixed, context=None))
    if not config.model.generates:
        cuts = {name: column[~cuts["crossing"]] for name, column in cuts.items()}
    order = np.lexsort((cuts["expert"], cuts["pipeline"], cuts["tensor"] * cuts["pipeline"], cuts["shape"]))
    starts = np.searchsorted(cuts["shape"][order], np.arange(len(shapes) + 1))
    clusters, rows = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for shape, cut in zip(shapes, np.split(order, starts[1:-1]) if shapes else (), strict=True):
        clusters.append(np.repeat(shape.indices, len(cut)))
        rows.append(np.tile(cut, len(shape.indices)))
    row = np.concatenate(rows)
    degrees = {name: cuts[name][row] for name in ("tensor", "pipeline", "data", "expert")}
    return _Pairs(np.concatenate(clusters), replace(LayoutTable.plain(len(row)), **degrees), cuts["crossing"][row])


def _room_and_bytes(
    factors: ConfigFactors, config: InferenceConfig, layouts: LayoutTable, usable: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns four columns: the requests or samples that one replica can run at once, the bytes per GPU that these
    need (those of one request where none fits), the bytes without which no request runs, and those of a replica
    without requests.
    """
    empty = _bytes_needed(factors, config, layouts, np.zeros(len(usable)))
    if not config.model.generates:
        return np.full(len(usable), forward_batch(config)), empty, empty, empty
    each = _bytes_needed(factors, config, layouts, np.ones(len(usable))) - empty
    # The few bytes of a request may vanish next to those of a large model: any number then fits, or no request at all.
    any_number = np.where(usable >= empty, np.inf, -np.inf)
    fit = np.divide(usable - empty, each, out=any_number, where=each > 0)
    room = np.asarray(room_by_memory(fit, requests_with_room(config, usable, layouts), config.longest_over_mean))
    asked = config.concurrency / replicas_in_use(config, layouts) if config.concurrency else room
    held = np.where(room > 0, np.maximum(1.0, np.minimum(asked, room)), config.longest_over_mean)
    return room, empty + each * held, empty + each, empty


def _bytes_needed(factors: ConfigFactors, config: InferenceConfig, layouts: LayoutTable, sequences: Floats) -> Floats:
    parts = inference_parts(config, layouts, sequences)
    needed: Floats = np.broadcast_to(factors.total(MEMORY, parts, {}), len(sequences))
    return needed


def _fastest(physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs) -> FastestInference:
    """The best pair of each cluster: inside its fast links, holding the concurrency asked for, then the fastest; for a
    load, inside its fast links, then on the fewest instances.
    """
    if not len(pairs.cluster):
        return FastestInference.nothing(len(clusters), 0 if config.serving is None else len(config.serving.limits))
    layouts, usable = pairs.layouts, clusters.usable_bytes[pairs.cluster]
    room, needed, least, empty = _room_and_bytes(_factors(physics, config), config, layouts, usable)
    margin = memory_margin(physics, config)
    sure = np.maximum(needed, least * margin)
    fits = (sure <= usable) & (room > 0)
    if not config.model.generates:
        speed = _forward(physics, config, clusters, pairs, room)
    elif config.serving is None:
        speed = _generation(physics, config, clusters, pairs, room)
    else:
        speed = _serving(physics, config, clusters, pairs, np.where(fits, room, 0.0), config.serving)
    rate = np.where(fits, speed.rate, 0.0)
    best_last = np.where(fits, speed.slowness, least), speed.instances, ~(fits & speed.holds)
    order = np.lexsort((*best_last, pairs.crossing, ~fits, pairs.cluster))
    cluster, first = np.unique(pairs.cluster[order], return_index=True)
    index, exists = np.zeros(len(clusters), dtype=np.int64), np.zeros(len(clusters), dtype=bool)
    index[cluster], exists[cluster] = order[first], True
    most_requests = np.zeros(len(clusters))
    np.maximum.at(most_requests, pairs.cluster, np.where(pairs.eligible(fits), room * layouts.data, 0.0))
    return FastestInference(
        taken(layouts, index),
        exists,
        fits[index] & exists,
        np.where(exists, needed[index], np.inf),
        np.where(exists, sure[index], np.inf),
        speed.concurrency[index],
        np.where(exists, rate[index], 0.0),
        most_requests,
        np.bincount(pairs.cluster, empty * margin <= usable, len(clusters)) > 0,
        np.where(exists, speed.instances[index], np.inf),
        _least_of_each(clusters, pairs, fits, speed.alone),
        _least_of_each(clusters, pairs, fits, speed.least),
    )


def _least_of_each(clusters: ClusterTable, pairs: _Pairs, fits: Mask, figures: Floats) -> Floats:
    """The least figures among the layouts of each cluster that fit; infinite where none does."""
    least = np.full((len(clusters), figures.shape[1]), np.inf)
    np.minimum.at(least, pairs.cluster[fits], figures[fits])
    return least


class _Speed(NamedTuple):
    """Figures of each pair of a layout and a cluster."""

    rate: Floats
    """Output tokens (or samples) per second."""
    concurrency: Floats
    """Requests (or samples) at once."""
    holds: Mask
    """Whether as many requests run at once as are asked for."""
    slowness: Floats
    """Orders layouts that serve on equally many instances, the best first."""
    instances: Floats
    alone: Floats
    least: Floats

    @staticmethod
    def of_one(rate: Floats, concurrency: Floats, holds: Mask) -> "_Speed":
        """Figures without a load."""
        none = np.zeros((len(rate), 0))
        return _Speed(rate, concurrency, holds, -rate, np.ones(len(rate)), none, none)


def _forward(physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs, room: Floats) -> _Speed:
    samples = room * clusters.gpus[pairs.cluster]
    rate = samples / _forward_seconds(physics, config, clusters, pairs)
    return _Speed.of_one(rate, samples, np.ones(len(room), np.bool_))


def _forward_seconds(physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs) -> Floats:
    """Likely seconds of a forward pass of each pair."""
    features = {**inference_config_features(config), "offline": "no" if config.concurrency else "yes"}
    factors = ConfigFactors(physics.calibration, features)
    demands = forward_demands(config)
    keys = [key for key, amount in demands.items() if key[0] in FORWARD.start and np.any(amount)]
    costs = clusters.costs(factors, FORWARD, config, keys)[pairs.cluster]
    seconds = sum(demands[key] * factors.of(FORWARD, key[0], {}) * costs[:, index] for index, key in enumerate(keys))
    return np.asarray(seconds * factors.of(FORWARD, "*", cut_columns(pairs.layouts)))


def _generation(
    physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs, room: Floats
) -> _Speed:
    replicas = np.broadcast_to(replicas_in_use(config, pairs.layouts), len(room))
    most = np.maximum(1.0, room)
    in_flight = config.concurrency / replicas if config.concurrency else most
    running = np.minimum(in_flight, most)
    seconds = _engines(physics, config, clusters, pairs, running).at(running)
    state = steady_state(seconds, in_flight, most, config.output_length, config.longest_answer(running))
    shares = shares_of(config, pairs.layouts, state, most)
    return _Speed.of_one(
        np.asarray(max(1.0, config.output_length) / shares.per_request.total(seconds) * replicas),
        running * replicas,
        np.asarray(in_flight <= most),
    )


def _serving(
    physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs, room: Floats, serving: Serving
) -> _Speed:
    """Instances that serve a load; the rate is that of the load on one of them, before the caution of bands.

    Layouts without room, and those across slow links where one inside them has room, are left out.
    """
    rows = np.flatnonzero(pairs.eligible(room > 0))
    tried, places = taken(pairs, rows), room[rows]
    count = np.asarray(tried.layouts.data, np.float64)
    caution = inference_bands(physics, config, clusters)[tried.cluster, 1]
    served = serve(
        Replicas.of(_engines(physics, config, clusters, tried, places), places, count, 1.0 / caution), serving
    )
    missed = np.full((len(room), len(serving.limits)), np.inf)
    speed = _Speed(
        rate=np.zeros(len(room)),
        concurrency=np.zeros(len(room)),
        holds=np.ones(len(room), np.bool_),
        slowness=np.full(len(room), np.inf),
        instances=np.full(len(room), np.inf),
        alone=missed,
        least=missed.copy(),
    )
    speed.rate[rows] = served.rate * count * serving.answer.mean / caution
    # Clients that are answered sooner send more, so that room for more of them than there are is no gain.
    by_rate = serving.concurrency is not None
    speed.concurrency[rows], speed.slowness[rows] = places * count, -speed.rate[rows] if by_rate else served.utilisation
    speed.instances[rows], speed.alone[rows], speed.least[rows] = served.instances, served.alone, served.least
    return speed


def _engines(
    physics: Physics, config: InferenceConfig, clusters: ClusterTable, pairs: _Pairs, running: Floats
) -> CalibratedEngines:
    linked = clusters.linked_gpus[pairs.cluster]
    demands = (
        decode_demands(config, pairs.layouts, linked, running)
        | prompt_demands(config, pairs.layouts, linked, running)
        | ARRIVAL_DEMANDS
    )
    factors = _factors(physics, config)
    keys = [key for key, amount in demands.items() if np.any(amount)]
    costs = clusters.costs(factors, GENERATION, config, keys)[pairs.cluster]
    whole = factors.of(GENERATION, "*", cut_columns(pairs.layouts))
    each = {key: factors.of(GENERATION, key[0], {}) * whole * costs[:, index] for index, key in enumerate(keys)}
    return CalibratedEngines(config, pairs.layouts, linked, clusters.unit_seconds["memory"][pairs.cluster], each)
