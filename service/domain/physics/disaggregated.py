"""Disaggregated prefill: instances that only read prompts, others that write the answers, and how many of each.

A replica for prompts reads one prompt after another, and then sends the cache of the prompt. In a tandem queue with
constant service times, requests wait as long as at the slower server alone (Friedman, Reduction Methods for Tandem
Queueing Systems, 1965). Therefore the replica is one server with the longer of both times (Pollaczek and Khinchin), and
the shorter time is added. A replica for answers reads no prompts, so that its steps are those of decoding. The time to
the first token depends on the first kind alone and the time per token on the second kind alone, so that the fewest
instances of each kind are found separately, as in DistServe (Zhong et al., 2024).
"""

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from service.domain.arrays import Floats, Indices, Mask
from service.domain.jobs.serving import MOST_INSTANCES, Length, Serving
from service.domain.physics.arrivals import ArrivalTimes
from service.domain.physics.load import TIMES, Engines, LoadSearch, LoadTimes, Replicas, Served, serve
from service.domain.physics.serving import EngineTimes


@dataclass(frozen=True, slots=True)
class _Prefill:
    """Engines that read prompts and send their cache."""

    engines: Engines
    transfer: Floats
    """Seconds in which a replica sends the cache of a prompt."""

    def at(self, running: Floats) -> EngineTimes:
        times = self.engines.under_load(running)
        step = times.step + times.request
        read = step + times.prompt + times.own
        longer, shorter = np.maximum(read, self.transfer), np.minimum(read, self.transfer)
        return EngineTimes(times.step, times.request, longer - step, times.arrival + shorter)

    def under_load(self, running: Floats) -> EngineTimes:
        return self.at(running)

    def rows(self, rows: Indices) -> "_Prefill":
        return _Prefill(self.engines.rows(rows), self.transfer[rows])


@dataclass(frozen=True, slots=True)
class _Decode:
    """Engines that write answers to prompts which others have read."""

    engines: Engines

    def at(self, running: Floats) -> EngineTimes:
        times = self.engines.at(running)
        return EngineTimes(times.step, times.request, 0.0 * running, 0.0 * running)

    def under_load(self, running: Floats) -> EngineTimes:
        return self.at(running)

    def rows(self, rows: Indices) -> "_Decode":
        return _Decode(self.engines.rows(rows))


@dataclass(frozen=True, slots=True)
class DisaggregatedTimes:
    """Times of requests whose prompts are read by some replicas and whose answers are written by others."""

    prefill: ArrivalTimes
    decode: ArrivalTimes
    later_tokens: float
    """Mean tokens of an answer after the first one."""

    def first_token(self, percentile: float) -> Floats:
        """Seconds to the first token at a percentile, the share of the requests that take no longer."""
        return self.prefill.first_token(percentile)

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer at a percentile, the share of the requests that take no longer."""
        return self.decode.per_output_token(percentile)

    def per_request(self, percentile: float) -> Floats:
        """Seconds of a whole request at a percentile.

        The times before and after the first token are taken as independent.
        """
        beyond_first = self.first_token(percentile) - self.mean_first_token
        mean_later = self.later_tokens * self.mean_per_token
        beyond_later = self.decode.per_request(percentile) - mean_later
        beyond = np.sign(beyond_later) * np.hypot(beyond_first, beyond_later)
        return np.asarray(self.mean_first_token + mean_later + beyond)

    @property
    def mean_first_token(self) -> Floats:
        """Mean seconds to the first token."""
        return self.prefill.mean_first_token

    @property
    def mean_per_token(self) -> Floats:
        """Mean seconds per token of the answer."""
        return self.decode.mean_per_token

    @property
    def running(self) -> Floats:
        """Mean requests in each engine that writes answers."""
        return self.decode.running

    @property
    def mean_request(self) -> Floats:
        """Mean seconds of a whole request."""
        return self.mean_first_token + self.later_tokens * self.mean_per_token


def serve_load(replicas: Replicas, transfer: Floats, serving: Serving) -> Served:
    """Returns the fewest instances of each row that serve the load.

    `transfer` is the seconds in which a replica that reads prompts sends the cache of one.
    """
    if not serving.disaggregated:
        return serve(replicas, serving)
    pools = _pools(replicas, transfer, serving)
    prefill, decode = (pool.in_time() for pool in pools)
    first_prefill, first_decode = (pool.first for pool in pools)
    instances = np.maximum(prefill + decode, serving.min_instances)
    carried = np.maximum(first_prefill + first_decode, serving.min_instances)
    too_many = np.flatnonzero(instances > serving.max_instances)
    least_alone, least_together = (np.zeros((len(carried), len(serving.limits))) for _ in range(2))
    least_together[too_many] = np.inf
    # The other kind gets the fewest instances that carry the load, or those that also keep its limit; the remaining
    # instances are for this kind.
    for column, (carrying, keeping) in enumerate(((first_decode, decode), (first_prefill, prefill))):
        least_alone[too_many, column], _ = _figure(pools[column], column, too_many, serving.max_instances - carrying)
        figure, allowed = _figure(pools[column], column, too_many, serving.max_instances - keeping)
        least_together[too_many, column] = np.where(allowed, figure, np.inf)
    least_alone[:, -1], least_together[:, -1] = carried, np.where(instances <= MOST_INSTANCES, instances, np.inf)
    in_time = np.isfinite(instances)
    readers = np.where(in_time, prefill, first_prefill)
    total = np.where(in_time, instances, carried)
    rate, per_kind = serving.load / (total * replicas.count), zip(pools, (readers, total - readers), strict=True)
    utilisation = [_load(pool, count) / pool.replicas.most(pool.serving) for pool, count in per_kind]
    return Served(instances, rate, rate, np.maximum(*utilisation), least_alone, least_together, readers)


def serves_in_time(replicas: Replicas, transfer: Floats, serving: Serving) -> Mask:
    """Whether some number of instances of each row keeps the limits on times; `transfer` is that of `serve_load`."""
    kinds = _pools(replicas, transfer, serving) if serving.disaggregated else (LoadSearch.of(replicas, serving),)
    return reduce(np.logical_and, (search.keeps_with_most() for search in kinds))


def times_of_load(replicas: Replicas, transfer: Floats, served: Served, serving: Serving) -> LoadTimes:
    """Returns the times of requests on the fewest instances of each row."""
    if not serving.disaggregated:
        return replicas.times(served.load, serving)
    counts = served.prefill, served.fewest - served.prefill
    kinds = zip(_pools(replicas, transfer, serving), counts, strict=True)
    prefill, decode = (pool.replicas.times(_load(pool, instances), pool.serving) for pool, instances in kinds)
    return DisaggregatedTimes(prefill, decode, max(0.0, serving.answer.mean - 1.0))


def _pools(replicas: Replicas, transfer: Floats, serving: Serving) -> tuple[LoadSearch, LoadSearch]:
    """Returns the searches for instances that read prompts, and for those that write answers."""
    slowness, later_tokens = replicas.slowness, max(1.0, serving.answer.mean - 1.0)
    of_one_kind = replace(serving, min_instances=1, max_instances=MOST_INSTANCES, max_seconds_per_request=None)
    of_prompts = replace(
        of_one_kind, answer=_with_mean(serving.prompt, 1.0), max_seconds_per_output_token=None, disaggregated=False
    )
    of_answers = replace(of_one_kind, answer=_with_mean(serving.answer, later_tokens), max_seconds_to_first_token=None)
    readers = _Prefill(replicas.engines, transfer / slowness), np.ones(len(slowness))
    writers = _Decode(replicas.engines), replicas.places
    return (
        LoadSearch.of(Replicas.of(*readers, replicas.count, slowness, replicas.fed * replicas.count), of_prompts),
        LoadSearch.of(Replicas.of(*writers, replicas.count, slowness), of_answers),
    )


def _with_mean(length: Length, mean: float) -> Length:
    """Returns lengths with another mean and the same variation."""
    return Length(mean, length.p95 and length.p95 * mean / length.mean)


def _load(pool: LoadSearch, instances: Floats) -> Floats:
    """Returns the requests per second of each replica on these numbers of instances."""
    return np.asarray(pool.serving.load / (instances * pool.replicas.count))


def _figure(pool: LoadSearch, column: int, rows: Indices, most: Floats) -> tuple[Floats, Mask]:
    """The limited time of some rows on the most instances that are allowed, or on the fewest that carry the load if
    these are more; and whether as many as that are allowed.
    """
    first, allowed = pool.first[rows], pool.serving.up_to(most[rows])
    name, (_, figure) = list(TIMES.items())[column]
    return figure(pool.times(rows, np.maximum(first, allowed)), pool.serving.percentiles[name]), allowed >= first
