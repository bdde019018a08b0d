"""The best inference layout on each cluster: how many GPUs share one replica, and how they divide it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, Number, taken
from service.domain.calibration.calibration import Calibration
from service.domain.calibration.step_kinds import GENERATION, MEMORY
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.fixed_layout import FREE, FixedLayout
from service.domain.jobs.serving import Serving
from service.domain.layouts.best_layouts import BestLayouts
from service.domain.layouts.candidates import degrees_of
from service.domain.layouts.cluster_table import ClusterShape, ClusterTable, ConfigFactors
from service.domain.layouts.inference_configs import InferenceConfigs
from service.domain.physics.disaggregated import serve_load, serves_in_time, times_of_load
from service.domain.physics.estimate import memory_margin
from service.domain.physics.features import (
    degree_columns,
    forward_features,
    inference_config_features,
    inference_kind,
)
from service.domain.physics.generation import (
    CalibratedEngines,
    engine_factors,
    places_to_try,
    room_by_memory,
    shares_of,
)
from service.domain.physics.host_memory import BytesByLayout
from service.domain.physics.inference_roofline import ForwardEngines, forward_batch, forward_demands
from service.domain.physics.input_pipeline import samples_fed
from service.domain.physics.load import Replicas
from service.domain.physics.memory import (
    conversations_held,
    inference_memory,
    plannable_bytes,
    replicas_in_use,
    requests_at_once,
    requests_with_room,
    sent_cache_bytes,
)
from service.domain.physics.parallelism import LayoutTable, crosses_slow_links
from service.domain.physics.serving import steady_state


def inference_bands(calibration: Calibration, configs: InferenceConfigs, clusters: ClusterTable) -> Floats:
    """Low, likely and high rates of each cluster, as factors of `units_per_second`."""
    factors = ConfigFactors(calibration.coefficients, inference_config_features(configs.any))
    return clusters.bands(calibration, inference_kind(configs.any), factors)


def fastest_inference_layouts(
    calibration: Calibration,
    configs: InferenceConfigs,
    clusters: ClusterTable,
    fixed: FixedLayout = FREE,
) -> BestLayouts:
    """Returns the layout that yields the most tokens (or samples) per second on every cluster; for a load, the one that
    serves it on the fewest instances.

    With a concurrency, layouts that run all its requests at once come first: among these, the most tokens per second is
    also the least time per token. In other layouts requests wait, which tokens per second count and time per token does
    not. Ties go to the layout that divides the model into the fewest parts.
    """
    table, config = clusters.without_hosts, configs.any
    fastest = _fastest(_InferenceSearch.of(calibration, configs, table), _pairs(config, table.shapes(), fixed))
    fastest = taken(fastest, clusters.row_by_gpus)
    hosts_fit = clusters.hosts_fit(config, BytesByLayout())
    fits, spare = fastest.fits & hosts_fit, np.where(hosts_fit, fastest.spare, 0.0)
    if config.model.generates and config.concurrency:
        spare[spare >= 1.0] = np.nan
    return replace(fastest, fits=fits, spare=spare, units_per_second=np.where(fits, fastest.units_per_second, 0.0))


def where_inference_fits(
    calibration: Calibration, configs: InferenceConfigs, clusters: ClusterTable, fixed: FixedLayout = FREE
) -> Mask:
    """Whether some layout fits and runs as many requests at once as the concurrency asks for; for a load, also whether
    some number of instances keeps its limits on times.
    """
    table, config = clusters.without_hosts, configs.any
    search, pairs = _InferenceSearch.of(calibration, configs, table), _pairs(config, table.shapes(), fixed)
    held, kind = pairs.by_gpu(table)
    memory = _memory(search, held)
    in_flight, _ = _in_flight(config, held.layouts, memory.room)
    rows = np.flatnonzero(pairs.eligible(memory.likely[kind]) & (memory.fits & (in_flight <= memory.room))[kind])
    if config.serving is not None and len(rows):
        timed, places, number = _timed(search, pairs.rows(rows), memory.room[kind[rows]])
        rows = rows[serves_in_time(*_replicas(search, timed, places), config.serving)[number]]
    fits = np.bincount(pairs.cluster[rows], minlength=len(table)) > 0
    return np.asarray(fits[clusters.row_by_gpus] & clusters.hosts_fit(config, BytesByLayout()))


@dataclass(frozen=True, slots=True)
class _InferenceSearch:
    """A job in its configurations on the clusters of a table."""

    calibration: Calibration
    configs: InferenceConfigs
    clusters: ClusterTable
    """The clusters, with the number formats among their features."""
    factors: ConfigFactors
    """Calibration factors by the features that all configurations share."""

    @staticmethod
    def of(calibration: Calibration, configs: InferenceConfigs, clusters: ClusterTable) -> "_InferenceSearch":
        """Returns the search on a table."""
        common, formats = configs.features(clusters)
        usable = np.asarray(plannable_bytes(configs.any, clusters.usable_bytes))
        table = replace(clusters, more_features={**clusters.more_features, **formats}, usable_bytes=usable)
        return _InferenceSearch(calibration, configs, table, ConfigFactors(calibration.coefficients, common))

    @property
    def config(self) -> InferenceConfig:
        """A configuration, for everything but number formats."""
        return self.configs.any


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Layouts on clusters, one pair per row."""

    cluster: Indices
    row: Indices
    """Row of the layout in `table`."""
    table: LayoutTable
    """The layouts of each shape, which many clusters share."""
    same_degrees: Indices
    """A number for each row of `table`: rows with equal numbers have the same degrees."""
    crossing: Mask
    """Whether tensor parallelism crosses slow links although the caller did not ask for it; see `LayoutCandidates`."""

    @property
    def layouts(self) -> LayoutTable:
        """The layout of each pair."""
        return taken(self.table, self.row)

    def rows(self, rows: Indices) -> "_Pairs":
        """Returns some of the pairs."""
        return _Pairs(self.cluster[rows], self.row[rows], self.table, self.same_degrees, self.crossing[rows])

    def eligible(self, likely: Mask) -> Mask:
        """Whether a pair counts: one that crosses slow links only does if no other pair of its cluster likely fits."""
        inside = np.bincount(self.cluster, likely & ~self.crossing) > 0
        return ~(self.crossing & inside[self.cluster])

    def by_gpu(self, clusters: ClusterTable) -> tuple["_Pairs", Indices]:
        """Returns pairs that differ in GPU or layout, which decide the memory, and the index of each pair
        among them.
        """
        kinds = int(self.same_degrees.max(initial=0)) + 1
        return self._distinct(clusters.gpu_type[self.cluster] * kinds + self.same_degrees[self.row])

    def by_link(self, clusters: ClusterTable, *, network: bool) -> tuple["_Pairs", Indices]:
        """Returns pairs that differ in GPU, layout or the links in use, and the index of each pair among them.

        Replicas that stay on fast links do not use the network, and many clusters differ in their network alone.
        `network` says that all pairs use it.
        """
        table, kinds = self.table, int(self.same_degrees.max(initial=0)) + 1
        linked = clusters.linked_gpus[self.cluster]
        across = np.logical_or(crosses_slow_links(table.tensor[self.row], linked), table.expert[self.row] > linked)
        inside = clusters.linked_type[self.cluster] * kinds + self.same_degrees[self.row]
        unlike_any = int(inside.max(initial=0)) + 1 + np.arange(len(inside))
        return self._distinct(np.where(across | network, unlike_any, inside))

    def _distinct(self, key: Indices) -> tuple["_Pairs", Indices]:
        """Returns the first pair with each key, and the index of each pair among these."""
        every, first = np.arange(len(key)), np.zeros(int(key.max(initial=0)) + 1, np.int64)
        first[key[::-1]] = every[::-1]
        same_as = first[key]
        differs = same_as == every
        return self.rows(np.flatnonzero(differs)), (np.cumsum(differs) - 1)[same_as]

    def best(self, rows: Indices, *keys: Floats) -> Indices:
        """Returns the best of these rows for each of their clusters.

        Each key has a number for each of the rows. The row with the smallest first key is best; among equal ones, the
        row with the smallest next key, and so on; then the one that divides the model into the fewest parts.
        """
        table, chosen = self.table, np.arange(len(rows))
        for key in keys:
            chosen = chosen[self._is_least(rows[chosen], key[chosen])]
        rows = rows[chosen]
        for parts in (table.tensor * table.pipeline, table.pipeline, table.expert):
            rows = rows[self._is_least(rows, parts[self.row[rows]])]
        return rows

    def _is_least(self, rows: Indices, key: Floats) -> Mask:
        """Whether each of these rows has the least key of its cluster."""
        cluster = self.cluster[rows]
        least = np.full(int(cluster.max(initial=0)) + 1, np.inf)
        np.minimum.at(least, cluster, key)
        return np.asarray(key <= least[cluster])


def _packed_degrees(layouts: LayoutTable) -> Indices:
    """Returns a number for each layout; layouts have equal numbers if they have equal degrees."""
    tensor, pipeline, gpus = (
        degree.astype(np.int64)
        for degree in (layouts.tensor, layouts.pipeline, layouts.tensor * layouts.pipeline * layouts.data)
    )
    # Experts are on each GPU, or spread over all GPUs of a stage.
    return ((gpus << 20 | tensor) << 20 | pipeline) << 1 | (layouts.expert > 1)


def _pairs(config: InferenceConfig, shapes: Sequence[ClusterShape], fixed: FixedLayout) -> _Pairs:
    degrees = degrees_of(config, [shape.size for shape in shapes], replace(fixed, context=None))
    if not config.model.generates:
        degrees = {name: column[~degrees["crossing"]] for name, column in degrees.items()}
    starts = np.searchsorted(degrees["shape"], np.arange(len(shapes) + 1))
    clusters = [len(shape.indices) for shape in shapes]
    first, count = np.repeat(starts[:-1], clusters), np.repeat(np.diff(starts), clusters)
    cluster = np.concatenate([np.zeros(0, dtype=np.int64), *(shape.indices for shape in shapes)])
    # The pairs of a cluster follow those of the clusters before it, each with the next layout of its shape.
    row = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    columns = {name: degrees[name] for name in ("tensor", "pipeline", "data", "expert")}
    layouts = replace(LayoutTable.plain(len(degrees["shape"])), **columns)
    _, numbers = np.unique(_packed_degrees(layouts), return_inverse=True)
    return _Pairs(np.repeat(cluster, count), row, layouts, numbers, degrees["crossing"][row])


class _Memory(NamedTuple):
    """Memory of each pair; bytes are those of a GPU."""

    room: Floats
    """Requests or samples that one replica can run at once."""
    needed: Floats
    """Bytes for as many requests as run, or for one request where none has room."""
    least: Floats
    """Fewest bytes with which one request runs."""
    sure: Floats
    """Bytes that suffice with the confidence of the config."""
    likely: Mask
    fits: Mask
    """Whether a request fits, likely and with the confidence of the config."""
    holds_weights: Mask
    """Whether the replica fits with the confidence of the config while no request runs."""


def _memory(search: _InferenceSearch, pairs: _Pairs) -> _Memory:
    usable, margin = search.clusters.usable_bytes[pairs.cluster], memory_margin(search.calibration, search.config)
    config = search.configs.on(search.clusters.gpu_type[pairs.cluster])
    room, needed, least, empty = _room_and_bytes(search.factors, config, pairs.layouts, usable)
    sure = np.maximum(needed, least * margin)
    likely, fits = ((room > 0) & (bytes_ <= usable) for bytes_ in (needed, sure))
    return _Memory(room, needed, least, sure, likely, fits, empty * margin <= usable)


def _room_and_bytes(
    factors: ConfigFactors, config: InferenceConfig, layouts: LayoutTable, usable: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns four columns: the requests or samples that one replica can run at once, the bytes per GPU that these
    need (or one request, where none fits), the bytes with one request, and the bytes without requests.
    """
    memory = inference_memory(config, layouts)
    empty = np.asarray(factors.total(MEMORY, memory.empty, {}))
    if not config.model.generates:
        return np.full(len(usable), forward_batch(config)), empty, empty, empty
    each = factors.total(MEMORY, memory.request, {})
    in_cache, fit = requests_with_room(config, usable, memory), (usable - empty) / each
    room = np.asarray(room_by_memory(config, fit, in_cache))
    running = np.maximum(1.0, np.minimum(requests_at_once(config, layouts, room), room))
    held = np.where(room > 0, conversations_held(config, running), config.longest_over_mean)
    return room, empty + each * held, empty + each, empty


def _fastest(search: _InferenceSearch, pairs: _Pairs) -> BestLayouts:
    """Returns the best pair of each cluster.

    Pairs inside fast links come first, then those that run all requests of the concurrency at once, then the fastest;
    for a load, the pair on the fewest instances. Where no pair fits with the confidence that is asked for, the best of
    those that likely fit is returned, and else the one that needs the least memory.
    """
    clusters, serving = search.clusters, search.config.serving
    count = len(clusters)
    limits = 0 if serving is None else len(serving.limits)
    if not len(pairs.cluster):
        return BestLayouts.nothing(count, limits)
    held, kind = pairs.by_gpu(clusters)
    memory = _memory(search, held)
    eligible = pairs.eligible(memory.likely[kind])
    surely = eligible & memory.fits[kind]
    fits = np.bincount(pairs.cluster[surely], minlength=count) > 0
    rows = np.flatnonzero(surely | eligible & memory.likely[kind] & ~fits[pairs.cluster])
    tried, places = pairs.rows(rows), memory.room[kind[rows]]
    timed, places_of_timed, number = _timed(search, tried, places)
    speed = _speed(search, timed, places_of_timed)
    best = tried.best(np.arange(len(rows)), *(key[number] for key in speed.keys))
    index, exists = np.zeros(count, np.int64), np.zeros(count, bool)
    # Where nothing fits, the answer states the memory of the layout that needs the least.
    full = np.flatnonzero(~fits[pairs.cluster])
    lightest = pairs.best(full, pairs.crossing[full].astype(np.float64), memory.least[kind[full]])
    for chosen in (lightest, rows[best]):
        index[pairs.cluster[chosen]], exists[pairs.cluster[chosen]] = chosen, True
    spare, most_requests = np.zeros(count), np.zeros(count)
    usable = clusters.usable_bytes[held.cluster]
    of_pairs = np.where(memory.room > 0, usable / memory.least, 0.0)[kind]
    np.maximum.at(spare, pairs.cluster, np.where(eligible, of_pairs, 0.0))
    requests = np.where(fits[tried.cluster], places * pairs.table.data[tried.row], 0.0)
    np.maximum.at(most_requests, tried.cluster, requests)

    def of_best(figures: Floats, otherwise: float) -> Floats:
        column = np.full(count, otherwise)
        column[tried.cluster[best]] = figures[number[best]]
        return np.where(fits, column, otherwise)

    return BestLayouts(
        layouts=taken(pairs.table, pairs.row[index]),
        exists=exists,
        fits=fits,
        needed_bytes=np.where(exists, memory.needed[kind[index]], np.inf),
        sure_bytes=np.where(exists, memory.sure[kind[index]], np.inf),
        spare=spare,
        concurrency=of_best(speed.concurrency, 0.0),
        units_per_second=of_best(speed.rate, 0.0),
        most_requests=most_requests,
        holds_weights=np.bincount(pairs.cluster, memory.holds_weights[kind], count) > 0,
        instances=of_best(speed.instances, np.inf),
        least_alone=_least_of_clusters(fits, tried, speed.least_alone[number]),
        least_together=_least_of_clusters(fits, tried, speed.least_together[number]),
        seconds_per_request=of_best(speed.seconds_per_request, np.nan),
    )


def _least_of_clusters(fits: Mask, tried: _Pairs, figures: Floats) -> Floats:
    """Returns the least figures among the layouts of each cluster; infinite where no layout fits."""
    least = np.full((figures.shape[1], len(fits)), np.inf)
    for of_limit, column in zip(least, figures.T, strict=True):  # numpy takes twenty times as long for both at once
        np.minimum.at(of_limit, tried.cluster, column)
    return np.where(fits[:, None], least.T, np.inf)


def _timed(search: _InferenceSearch, pairs: _Pairs, places: Floats) -> tuple[_Pairs, Floats, Indices]:
    """Returns pairs that differ in speed, their places, and the index of each pair among them."""
    serving = search.config.serving
    timed, number = pairs.by_link(search.clusters, network=serving is not None and serving.disaggregated)
    places_of_timed = np.zeros(len(timed.row))
    places_of_timed[number] = places
    return timed, places_of_timed, number


class _Speed(NamedTuple):
    """Figures of pairs of a layout and a cluster on which it fits."""

    rate: Floats
    """Output tokens (or samples) per second."""
    concurrency: Floats
    """Requests (or samples) at once."""
    instances: Floats
    least_alone: Floats
    least_together: Floats
    seconds_per_request: Floats
    """Seconds that `BestLayouts` has for the best of these pairs."""
    keys: tuple[Floats, ...]
    """Columns that order the layouts of a cluster; see `_Pairs.best`."""

    @staticmethod
    def nothing(limits: int) -> "_Speed":
        """Figures of no pairs."""
        empty, none = np.zeros(0), np.zeros((0, limits))
        return _Speed(empty, empty, empty, none, none, empty, ())

    @staticmethod
    def of_one(rate: Floats, concurrency: Floats, *keys: Floats) -> "_Speed":
        """Figures without a load. In the order of layouts, `keys` come before the rate."""
        none = np.zeros((len(rate), 0))
        unknown = np.full(len(rate), np.nan)
        return _Speed(rate, concurrency, np.ones(len(rate)), none, none, unknown, (*keys, -rate))


def _speed(search: _InferenceSearch, tried: _Pairs, places: Floats) -> _Speed:
    config = search.config
    if not len(places):
        return _Speed.nothing(0 if config.serving is None else len(config.serving.limits))
    if config.serving is not None:
        return _serving(search, tried, places, config.serving)
    if not config.model.generates:
        return _forward(search, tried, places)
    return _generation(config, _engines(search, tried), tried.layouts, places)


def _replicas(search: _InferenceSearch, pairs: _Pairs, places: Floats) -> tuple[Replicas, Floats]:
    """Returns the replicas of each pair for a load, and the seconds in which one sends the cache of a prompt."""
    clusters, slowness, fed = search.clusters, _slowness(search, pairs), _fed(search, pairs)
    if not search.config.model.generates:
        gpus = clusters.gpus[pairs.cluster]
        return Replicas.of(_forward_engines(search, pairs), places, gpus, slowness, fed), np.zeros(len(places))
    engines, layouts = _engines(search, pairs), pairs.layouts
    transfer = sent_cache_bytes(engines.config, layouts) * clusters.unit_seconds["network"][pairs.cluster]
    return Replicas.of(engines, places, layouts.data, slowness, fed), transfer


def _slowness(search: _InferenceSearch, pairs: _Pairs) -> Floats:
    """Returns the calibrated rate of each pair over the rate with which its load is planned: the likely one, or the low
    end of its band.
    """
    serving = search.config.serving
    return 1.0 / _bands(search, pairs)[:, 0 if serving is not None and serving.safe else 1]


def _fed(search: _InferenceSearch, pairs: _Pairs) -> Floats:
    """Returns the samples per second that the hosts of each pair prepare; infinite where this is unknown."""
    loading = search.config.loading
    if not loading.may_limit:
        return np.full(len(pairs.cluster), np.inf)
    return np.array([samples_fed(cluster, loading) for cluster in search.clusters.clusters])[pairs.cluster]


def _bands(search: _InferenceSearch, pairs: _Pairs) -> Floats:
    """Returns the low, likely and high rate of each pair over the calibrated one."""
    return inference_bands(search.calibration, search.configs, search.clusters)[pairs.cluster]


def _forward(search: _InferenceSearch, pairs: _Pairs, places: Floats) -> _Speed:
    """Figures of networks that pass over batches of samples. In every layout each GPU works alone."""
    engines, gpus = _forward_engines(search, pairs), search.clusters.gpus[pairs.cluster]
    seconds = engines.at(places)
    return _Speed.of_one(places * gpus / np.asarray(seconds.step + places * seconds.prompt), places * gpus)


def _forward_engines(search: _InferenceSearch, pairs: _Pairs) -> ForwardEngines:
    """Returns the calibrated seconds of forward passes of each pair."""
    kind, clusters = inference_kind(search.config), search.clusters
    factors = replace(search.factors, features={**search.factors.features, **forward_features(search.config)})
    rates, of_clusters = clusters.rates(search.configs.by_gpu()), clusters.factors(factors, kind, kind.start)
    of_degrees = factors.of(kind, "*", degree_columns(pairs.layouts))

    def rate(term: str, resource: str) -> Number:
        of_cluster = factors.of(kind, term, {}) * of_clusters[term] * rates[resource]
        return np.asarray(of_cluster)[pairs.cluster] * of_degrees

    demands = forward_demands(search.configs.on(clusters.gpu_type[pairs.cluster]))
    return ForwardEngines.of(kind, demands, rate)


def _in_flight(config: InferenceConfig, layouts: LayoutTable, places: Floats) -> tuple[Floats, Floats]:
    """Requests in flight on each replica, and the replicas that have some."""
    return np.asarray(requests_at_once(config, layouts, places)), np.asarray(replicas_in_use(config, layouts))


def _generation(config: InferenceConfig, engines: CalibratedEngines, layouts: LayoutTable, places: Floats) -> _Speed:
    in_flight, replicas = _in_flight(config, layouts, places)

    def seconds_per_request(most: Number) -> Number:
        running = np.minimum(in_flight, most)
        seconds = engines.at(running)
        state = steady_state(seconds, in_flight, most, config.output_length, config.longest_answer(running))
        return shares_of(config, layouts, state, most).per_request.total(seconds)

    least = reduce(np.minimum, map(seconds_per_request, places_to_try(config, in_flight, places)))
    rate = np.asarray(max(1.0, config.output_length) / least * replicas)
    return _Speed.of_one(rate, np.minimum(in_flight, places) * replicas, (in_flight > places).astype(np.float64))


def _serving(search: _InferenceSearch, pairs: _Pairs, places: Floats, serving: Serving) -> _Speed:
    """Figures of a load; the rate is that of one instance, before the caution of bands.

    Of layouts on equally many instances, the one that answers soonest is best. For a fixed number of clients this is
    the one with the highest rate, because clients wait for their answers.
    """
    replicas, transfer = _replicas(search, pairs, places)
    served, at_once = serve_load(replicas, transfer, serving), replicas.places * replicas.count
    rate = served.rate * replicas.count * serving.answer.mean / _bands(search, pairs)[:, 1]
    if serving.concurrency:
        seconds, second_key = np.full(len(rate), np.nan), -rate
    else:
        share = serving.percentiles["max_seconds_per_request"]
        seconds = second_key = times_of_load(replicas, transfer, served, serving).per_request(share)
    return _Speed(
        rate=rate,
        concurrency=at_once,
        instances=served.instances,
        least_alone=served.least_alone,
        least_together=served.least_together,
        seconds_per_request=seconds,
        keys=(served.instances, second_key),
    )


def _engines(search: _InferenceSearch, pairs: _Pairs) -> CalibratedEngines:
    clusters, factors, cluster, layouts = search.clusters, search.factors, pairs.cluster, pairs.layouts
    rates, of_clusters = (
        clusters.rates(search.configs.by_gpu()),
        clusters.factors(factors, GENERATION, GENERATION.start),
    )
    of_config = engine_factors(factors.coefficients, factors.features).of_terms
    of_degrees = np.exp(factors.of_columns(GENERATION, "*", degree_columns(layouts)))

    def rate(term: str, resource: str) -> Number:
        fitted = (of_config[term] * of_clusters[term])[cluster] * of_degrees
        return (fitted + (term in GENERATION.bounded)) * rates[resource][cluster]

    memory, linked_gpus = rates["memory"][cluster], clusters.linked_gpus[cluster]
    config = search.configs.on(clusters.gpu_type[cluster])
    return CalibratedEngines.of(config, layouts, linked_gpus, memory, rate)
