"""The best inference layout on each cluster: how many GPUs hold one replica, and how."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, Number, taken
from service.domain.calibration.error_bands import Physics
from service.domain.calibration.step_kinds import GENERATION, MEMORY
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.serving import Serving
from service.domain.layouts.candidates import cuts_of
from service.domain.layouts.cluster_table import ClusterShape, ClusterTable, ConfigFactors
from service.domain.layouts.inference_configs import InferenceConfigs
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.disaggregated import serve_load, times_of_load
from service.domain.physics.features import cut_columns, forward_features, inference_kind
from service.domain.physics.generation import CalibratedEngines, engine_factors, room_by_memory, shares_of
from service.domain.physics.inference_roofline import ForwardEngines, forward_batch, forward_demands
from service.domain.physics.load import Replicas, Served
from service.domain.physics.memory import (
    conversations_held,
    inference_memory,
    plannable_bytes,
    replicas_in_use,
    requests_with_room,
    sent_cache_bytes,
)
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
    spare: Floats
    """Usable bytes over the least without which no request runs in any layout that has room for one; 0 where none has,
    NaN where it would have to hold several at once.
    """
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
    least_alone: Floats
    """Least of `load.Served.least_alone` over the layouts of each cluster; without a load it has no columns."""
    least_together: Floats
    """Least of `load.Served.least_together` over the layouts of each cluster; without a load it has no columns."""

    @staticmethod
    def nothing(rows: int, limits: int) -> "FastestInference":
        """No layout on any cluster."""
        none, zero, needed = np.zeros(rows, dtype=bool), np.zeros(rows), np.full(rows, np.inf)
        missed = np.full((rows, limits), np.inf)
        return FastestInference(
            LayoutTable.plain(rows),
            none,
            none,
            needed,
            needed,
            needed,
            zero,
            zero,
            zero,
            none,
            np.ones(rows),
            missed,
            missed,
        )


def inference_bands(physics: Physics, configs: InferenceConfigs, clusters: ClusterTable) -> Floats:
    """Low, likely and high rates of each cluster, over units_per_second."""
    return configs.bands(physics, inference_kind(configs.any), clusters)


def fastest_inference_layouts(
    physics: Physics,
    configs: InferenceConfigs,
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
    (table, these), config = clusters.without_hosts(wanted), configs.any
    fastest = _fastest(_InferenceSearch.of(physics, configs, table), _pairs(config, table.shapes_of(these), fixed))
    fastest = taken(fastest, clusters.row_by_gpus)
    hosts_fit = clusters.hosts_fit(config, 1)
    fits, spare = fastest.fits & hosts_fit, np.where(hosts_fit, fastest.spare, 0.0)
    if config.model.generates and config.concurrency:
        spare[spare >= 1.0] = np.nan
    return replace(fastest, fits=fits, spare=spare, units_per_second=np.where(fits, fastest.units_per_second, 0.0))


def where_inference_fits(
    physics: Physics, configs: InferenceConfigs, clusters: ClusterTable, *, wanted: Mask | None = None
) -> Mask:
    """Whether the fastest layout fits and holds the concurrency that is asked for."""
    (table, these), config = clusters.without_hosts(wanted), configs.any
    pairs = _pairs(config, table.shapes_of(these), FREE)
    held, kind = pairs.by_gpu(table)
    memory = _memory(_InferenceSearch.of(physics, configs, table), held)
    in_flight, _ = _in_flight(config, held.layouts, memory.room)
    rows = np.flatnonzero(pairs.eligible(memory.fits[kind]) & (in_flight <= memory.room)[kind])
    fits = np.bincount(pairs.cluster[rows], minlength=len(table)) > 0
    return np.asarray(fits[clusters.row_by_gpus] & clusters.hosts_fit(config, 1))


@dataclass(frozen=True, slots=True)
class _InferenceSearch:
    """A job in its configurations on the clusters of a table."""

    physics: Physics
    configs: InferenceConfigs
    clusters: ClusterTable
    """With the number formats among their features."""
    factors: ConfigFactors
    """Factors of what the configurations have in common."""

    @staticmethod
    def of(physics: Physics, configs: InferenceConfigs, clusters: ClusterTable) -> "_InferenceSearch":
        """Returns the search on a table."""
        common, of_clusters = configs.features(clusters)
        factors = ConfigFactors(physics.calibration, common)
        usable = np.asarray(plannable_bytes(configs.any, clusters.usable_bytes))
        return _InferenceSearch(physics, configs, replace(clusters, features=of_clusters, usable_bytes=usable), factors)

    @property
    def config(self) -> InferenceConfig:
        """A configuration, for everything but number formats."""
        return self.configs.any


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Layouts on clusters, one pair per row."""

    cluster: Indices
    cut: Indices
    """Row of the layout in `cuts`."""
    cuts: LayoutTable
    """The layouts of each shape: many clusters share them."""
    degrees: Indices
    """A number for each layout: those with equal numbers have the same degrees."""
    crossing: Mask
    """Whether tensor parallelism crosses slow links unasked, see `LayoutCandidates`."""

    @property
    def layouts(self) -> LayoutTable:
        """The layout of each pair."""
        return taken(self.cuts, self.cut)

    def rows(self, rows: Indices) -> "_Pairs":
        """Returns some of the pairs."""
        return _Pairs(self.cluster[rows], self.cut[rows], self.cuts, self.degrees, self.crossing[rows])

    def eligible(self, fits: Mask) -> Mask:
        """Whether a pair fits, and does not cross slow links where another pair of its cluster fits inside them."""
        inside = np.bincount(self.cluster, fits & ~self.crossing) > 0
        return fits & ~(self.crossing & inside[self.cluster])

    def by_gpu(self, clusters: ClusterTable) -> tuple["_Pairs", Indices]:
        """Returns pairs that all differ in GPU or layout, which decide memory, and which of them each pair equals."""
        kinds = int(self.degrees.max(initial=0)) + 1
        return self._distinct(clusters.gpu_type[self.cluster] * kinds + self.degrees[self.cut])

    def by_link(self, clusters: ClusterTable, *, network: bool) -> tuple["_Pairs", Indices]:
        """Returns pairs that all differ in GPU, layout or links in use, and which of them each pair equals.

        Replicas that stay on fast links do not use the network, and many clusters differ in that alone. `network` says
        that all pairs use it.
        """
        cuts, kinds = self.cuts, int(self.degrees.max(initial=0)) + 1
        across = np.maximum(cuts.tensor, cuts.expert)[self.cut] > clusters.linked_gpus[self.cluster]
        inside = clusters.linked_type[self.cluster] * kinds + self.degrees[self.cut]
        own = int(inside.max(initial=0)) + 1 + np.arange(len(inside))
        return self._distinct(np.where(across | network, own, inside))

    def _distinct(self, key: Indices) -> tuple["_Pairs", Indices]:
        """Returns the first pair with each key, and which of them each pair equals."""
        every, first = np.arange(len(key)), np.zeros(int(key.max(initial=0)) + 1, np.int64)
        first[key[::-1]] = every[::-1]
        same_as = first[key]
        differs = same_as == every
        return self.rows(np.flatnonzero(differs)), (np.cumsum(differs) - 1)[same_as]

    def best(self, rows: Indices, *keys: Floats) -> Indices:
        """Returns the best of these rows for each of their clusters: the one with the smallest first key; among equal
        ones that with the smallest next key, and so on; at last, the one that divides the model into the fewest parts.
        Each key has a number for each of the rows.
        """
        cuts, chosen = self.cuts, np.arange(len(rows))
        for key in keys:
            chosen = chosen[self._is_least(rows[chosen], key[chosen])]
        rows = rows[chosen]
        for parts in (cuts.tensor * cuts.pipeline, cuts.pipeline, cuts.expert):
            rows = rows[self._is_least(rows, parts[self.cut[rows]])]
        return rows

    def _is_least(self, rows: Indices, key: Floats) -> Mask:
        """Whether each of these rows has the least key of its cluster."""
        cluster = self.cluster[rows]
        least = np.full(int(cluster.max(initial=0)) + 1, np.inf)
        np.minimum.at(least, cluster, key)
        return np.asarray(key <= least[cluster])


def _packed(cuts: LayoutTable) -> Indices:
    """Returns a number for each layout that has the same degrees as others with that number."""
    tensor, pipeline, gpus = (
        degree.astype(np.int64) for degree in (cuts.tensor, cuts.pipeline, cuts.tensor * cuts.pipeline * cuts.data)
    )
    # Experts are on each GPU, or spread over all GPUs of a stage.
    return ((gpus << 20 | tensor) << 20 | pipeline) << 1 | (cuts.expert > 1)


def _pairs(config: InferenceConfig, shapes: Sequence[ClusterShape], fixed: FixedLayout) -> _Pairs:
    cuts = cuts_of(config, [shape.size for shape in shapes], replace(fixed, context=None))
    if not config.model.generates:
        cuts = {name: column[~cuts["crossing"]] for name, column in cuts.items()}
    starts = np.searchsorted(cuts["shape"], np.arange(len(shapes) + 1))
    clusters = [len(shape.indices) for shape in shapes]
    first, count = np.repeat(starts[:-1], clusters), np.repeat(np.diff(starts), clusters)
    cluster = np.concatenate([np.zeros(0, dtype=np.int64), *(shape.indices for shape in shapes)])
    # The pairs of a cluster follow those of the clusters before it, each with the next layout of its shape.
    cut = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    degrees = {name: cuts[name] for name in ("tensor", "pipeline", "data", "expert")}
    layouts = replace(LayoutTable.plain(len(cuts["shape"])), **degrees)
    _, numbers = np.unique(_packed(layouts), return_inverse=True)
    return _Pairs(np.repeat(cluster, count), cut, layouts, numbers, cuts["crossing"][cut])


class _Memory(NamedTuple):
    """Memory of each pair; bytes are those of a GPU."""

    room: Floats
    """Requests or samples that one replica can run at once."""
    needed: Floats
    """Bytes for as many requests as run; for one where none has room."""
    least: Floats
    """Bytes without which no request runs."""
    sure: Floats
    """Bytes that suffice with the confidence of the config."""
    fits: Mask
    holds_weights: Mask
    """Whether it surely fits without a request."""


def _memory(search: _InferenceSearch, pairs: _Pairs) -> _Memory:
    usable, margin = search.clusters.usable_bytes[pairs.cluster], search.configs.margin(search.physics)
    config = search.configs.on(search.clusters.gpu_type[pairs.cluster])
    room, needed, least, empty = _room_and_bytes(search.factors, config, pairs.layouts, usable)
    sure = np.maximum(needed, least * margin)
    return _Memory(room, needed, least, sure, (sure <= usable) & (room > 0), empty * margin <= usable)


def _room_and_bytes(
    factors: ConfigFactors, config: InferenceConfig, layouts: LayoutTable, usable: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns four columns: the requests or samples that one replica can run at once, the bytes per GPU that these
    need (those of one request where none fits), the bytes without which no request runs, and those of a replica
    without requests.
    """
    memory = inference_memory(config, layouts)
    empty = np.asarray(factors.total(MEMORY, memory.empty, {}))
    if not config.model.generates:
        return np.full(len(usable), forward_batch(config)), empty, empty, empty
    each = factors.total(MEMORY, memory.request, {})
    in_cache, fit = requests_with_room(config, usable, memory), (usable - empty) / each
    room = np.asarray(room_by_memory(config, fit, in_cache))
    asked = config.concurrency / np.asarray(replicas_in_use(config, layouts)) if config.concurrency else room
    running = np.maximum(1.0, np.minimum(asked, room))
    held = np.where(room > 0, conversations_held(config, running), config.longest_over_mean)
    return room, empty + each * held, empty + each, empty


def _fastest(search: _InferenceSearch, pairs: _Pairs) -> FastestInference:
    """The best pair of each cluster: inside its fast links, holding the concurrency asked for, then the fastest; for a
    load, inside its fast links, then on the fewest instances. Where none fits, the one that needs the least memory.
    """
    clusters, serving = search.clusters, search.config.serving
    count = len(clusters)
    limits = 0 if serving is None else len(serving.limits)
    if not len(pairs.cluster):
        return FastestInference.nothing(count, limits)
    held, kind = pairs.by_gpu(clusters)
    memory = _memory(search, held)
    rows = np.flatnonzero(pairs.eligible(memory.fits[kind]))
    tried, places = pairs.rows(rows), memory.room[kind[rows]]
    timed, number = tried.by_link(clusters, network=serving is not None and serving.disaggregated)
    places_of_timed = np.zeros(len(timed.cut))
    places_of_timed[number] = places
    speed = _speed(search, timed, places_of_timed)
    best = tried.best(np.arange(len(rows)), *(key[number] for key in speed.keys))
    fitting = tried.cluster[best]
    fits, index, exists = np.zeros(count, bool), np.zeros(count, np.int64), np.zeros(count, bool)
    fits[fitting] = True
    # The answer says how much memory a machine lacks, by the layout that needs the least.
    full = np.flatnonzero(~fits[pairs.cluster])
    lightest = pairs.best(full, pairs.crossing[full].astype(np.float64), memory.least[kind[full]])
    for chosen in (lightest, rows[best]):
        index[pairs.cluster[chosen]], exists[pairs.cluster[chosen]] = chosen, True
    spare, most_requests = np.zeros(count), np.zeros(count)
    usable = clusters.usable_bytes[held.cluster]
    np.maximum.at(spare, pairs.cluster, np.where(memory.room > 0, usable / memory.least, 0.0)[kind])
    np.maximum.at(most_requests, tried.cluster, places * pairs.cuts.data[tried.cut])

    def of_best(figures: Floats, otherwise: float) -> Floats:
        column = np.full(count, otherwise)
        column[fitting] = figures[number[best]]
        return column

    return FastestInference(
        taken(pairs.cuts, pairs.cut[index]),
        exists,
        fits,
        np.where(exists, memory.needed[kind[index]], np.inf),
        np.where(exists, memory.sure[kind[index]], np.inf),
        spare,
        of_best(speed.concurrency, 0.0),
        of_best(speed.rate, 0.0),
        most_requests,
        np.bincount(pairs.cluster, memory.holds_weights[kind], count) > 0,
        of_best(speed.instances, np.inf),
        _least_of_clusters(count, tried, speed.least_alone[number]),
        _least_of_clusters(count, tried, speed.least_together[number]),
    )


def _least_of_clusters(clusters: int, tried: _Pairs, figures: Floats) -> Floats:
    """The least figures among the layouts of each cluster; infinite where none is tried."""
    least = np.full((clusters, figures.shape[1]), np.inf)
    np.minimum.at(least, tried.cluster, figures)
    return least


class _Speed(NamedTuple):
    """Figures of pairs of a layout and a cluster on which it fits."""

    rate: Floats
    """Output tokens (or samples) per second."""
    concurrency: Floats
    """Requests (or samples) at once."""
    instances: Floats
    least_alone: Floats
    least_together: Floats
    keys: tuple[Floats, ...]
    """Order the layouts of a cluster, see `_Pairs.best`."""

    @staticmethod
    def nothing(limits: int) -> "_Speed":
        """Figures of no pairs."""
        empty, none = np.zeros(0), np.zeros((0, limits))
        return _Speed(empty, empty, empty, none, none, ())

    @staticmethod
    def of_one(rate: Floats, concurrency: Floats, *keys: Floats) -> "_Speed":
        """Figures without a load, with what comes before the rate in the order of layouts."""
        none = np.zeros((len(rate), 0))
        return _Speed(rate, concurrency, np.ones(len(rate)), none, none, (*keys, -rate))


def _speed(search: _InferenceSearch, tried: _Pairs, places: Floats) -> _Speed:
    config, clusters = search.config, search.clusters
    if not len(places):
        return _Speed.nothing(0 if config.serving is None else len(config.serving.limits))
    if not config.model.generates:
        return _forward(search, tried, places)
    layouts = tried.layouts
    engines = _engines(search, tried.cluster, layouts)
    if config.serving is None:
        return _generation(config, engines, layouts, places)
    caution = _caution(search, tried)
    transfer = sent_cache_bytes(engines.config, layouts) * clusters.unit_seconds["network"][tried.cluster]
    return _serving(config.serving, Replicas.of(engines, places, layouts.data, 1.0 / caution), transfer)


def _caution(search: _InferenceSearch, pairs: _Pairs) -> Floats:
    """Likely rate of each pair, over the calibrated one."""
    bands = inference_bands(search.physics, search.configs, search.clusters)
    return np.asarray(bands[pairs.cluster, 1])


def _forward(search: _InferenceSearch, pairs: _Pairs, places: Floats) -> _Speed:
    """Networks that pass over batches of samples: each GPU by itself, in every layout."""
    engines, gpus = _forward_engines(search, pairs), search.clusters.gpus[pairs.cluster]
    if (serving := search.config.serving) is not None:
        replicas = Replicas.of(engines, places, gpus, 1.0 / _caution(search, pairs))
        return _serving(serving, replicas, np.zeros(len(places)))
    seconds = engines.at(places)
    return _Speed.of_one(places * gpus / np.asarray(seconds.step + places * seconds.prompt), places * gpus)


def _forward_engines(search: _InferenceSearch, pairs: _Pairs) -> ForwardEngines:
    """Returns the calibrated seconds of forward passes of each pair."""
    kind, clusters = inference_kind(search.config), search.clusters
    factors = replace(search.factors, features={**search.factors.features, **forward_features(search.config)})
    rates, of_clusters = clusters.rates(search.configs.by_gpu()), clusters.factors(factors, kind, kind.start)
    of_cuts = factors.of(kind, "*", cut_columns(pairs.layouts))

    def real(term: str, resource: str) -> Number:
        of_cluster = factors.of(kind, term, {}) * of_clusters[term] * rates[resource]
        return np.asarray(of_cluster)[pairs.cluster] * of_cuts

    demands = forward_demands(search.configs.on(clusters.gpu_type[pairs.cluster]))
    return ForwardEngines.of(kind, demands, real)


def _in_flight(config: InferenceConfig, layouts: LayoutTable, places: Floats) -> tuple[Floats, Floats]:
    """Requests in flight on each replica, and the replicas that have some."""
    replicas = np.asarray(replicas_in_use(config, layouts))
    return config.concurrency / replicas if config.concurrency else places, replicas


def _generation(config: InferenceConfig, engines: CalibratedEngines, layouts: LayoutTable, places: Floats) -> _Speed:
    in_flight, replicas = _in_flight(config, layouts, places)
    running = np.minimum(in_flight, places)
    seconds = engines.at(running)
    state = steady_state(seconds, in_flight, places, config.output_length, config.longest_answer(running))
    shares = shares_of(config, layouts, state, places)
    rate = np.asarray(max(1.0, config.output_length) / shares.per_request.total(seconds) * replicas)
    return _Speed.of_one(rate, running * replicas, (in_flight > places).astype(np.float64))


def _serving(serving: Serving, replicas: Replicas, transfer: Floats) -> _Speed:
    """Instances that serve a load; the rate is that of the load on one of them, before the caution of bands.

    Of the layouts on equally many instances, the one that answers soonest is best: clients that wait for their answers
    then send the most.
    """
    served, at_once = serve_load(replicas, transfer, serving), replicas.places * replicas.count
    rate = served.rate * replicas.count * serving.answer.mean * replicas.slowness
    return _Speed(
        rate=rate,
        concurrency=at_once,
        instances=served.instances,
        least_alone=served.least_alone,
        least_together=served.least_together,
        keys=(served.instances, -rate if serving.concurrency else _seconds(replicas, transfer, served, serving)),
    )


def _seconds(replicas: Replicas, transfer: Floats, served: Served, serving: Serving) -> Floats:
    """Seconds of a request at the percentile of a load, on the fewest instances."""
    return times_of_load(replicas, transfer, served, serving).per_request(serving.percentile)


def _engines(search: _InferenceSearch, cluster: Indices, layouts: LayoutTable) -> CalibratedEngines:
    clusters, factors, gpu_types = search.clusters, search.factors, search.clusters.gpu_type[cluster]
    rates, of_clusters = (
        clusters.rates(search.configs.by_gpu()),
        clusters.factors(factors, GENERATION, GENERATION.start),
    )
    of_config = engine_factors(factors.calibration, factors.features).of_terms
    of_cuts = np.exp(factors.of_columns(GENERATION, "*", cut_columns(layouts)))

    def real(term: str, resource: str) -> Number:
        return (of_config[term] * of_clusters[term] * rates[resource])[cluster] * of_cuts

    memory, linked_gpus = rates["memory"][cluster], clusters.linked_gpus[cluster]
    return CalibratedEngines.of(search.configs.on(gpu_types), layouts, linked_gpus, memory, real)
