"""The fewest instances that serve a load within its limits.

Each of more instances has less to do, so no time of its requests grows, and a binary search finds the fewest that keep
all limits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, Protocol

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, taken
from service.domain.jobs.serving import MOST_INSTANCES, Serving
from service.domain.physics.arrivals import ArrivalTimes, arrival_times, running_at
from service.domain.physics.serving import EngineTimes

ALMOST = 1.0 - 1e-9
"""A load that is divided over replicas and added up again may be more by a rounding error."""


class LoadTimes(Protocol):
    """Times of requests on engines, one per row."""

    @property
    def running(self) -> Floats:
        """Mean requests in each engine."""

    @property
    def mean_first_token(self) -> Floats:
        """Mean seconds to the first token."""

    @property
    def mean_per_token(self) -> Floats:
        """Mean seconds per token of the answer."""

    @property
    def mean_request(self) -> Floats:
        """Mean seconds of a whole request."""

    def first_token(self, percentile: float) -> Floats:
        """Seconds to the first token that this share of the requests does not exceed."""

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer that this share of the requests does not exceed."""

    def per_request(self, percentile: float) -> Floats:
        """Seconds of a whole request that this share of the requests does not exceed."""


TIMES: dict[str, tuple[Callable[[ArrivalTimes, float, float], Mask], Callable[[LoadTimes, float], Floats]]] = {
    "max_seconds_to_first_token": (
        lambda times, limit, share: times.first_token_within(limit, share),
        lambda times, share: times.first_token(share),
    ),
    "max_seconds_per_output_token": (
        lambda times, limit, share: times.per_output_token(share) <= limit,
        lambda times, share: times.per_output_token(share),
    ),
    "max_seconds_per_request": (
        lambda times, limit, share: times.per_request(share) <= limit,
        lambda times, share: times.per_request(share),
    ),
}
"""By the field of each limit on a time: whether it is kept at a percentile, and the time."""


class Engines(Protocol):
    """Replicas of a model, one per row."""

    def at(self, running: Floats) -> EngineTimes:
        """Returns the calibrated seconds of the engines while so many requests run on each and share each pass."""

    def under_load(self, running: Floats) -> EngineTimes:
        """Returns the same seconds such that no part of the time of a request falls as more run."""

    def rows(self, rows: Indices) -> "Engines":
        """Returns some of the engines."""


class Served(NamedTuple):
    """A load on the instances of each row. Arrays with two dimensions have a column for each of `Serving.limits`."""

    instances: Floats
    """Fewest instances that keep the limits on times; infinite where no number of them does."""
    load: Floats
    """Load of a replica, in the unit of the question, on these instances, or on those that carry the load."""
    rate: Floats
    """Requests per second of a replica at that load, in the mean of busy and idle ones."""
    utilisation: Floats
    """Load over the most that a replica can do."""
    alone: Floats
    """Least figure that each limit allows by itself; 0 for the times of a row that keeps all limits."""
    least: Floats
    """Least figure under each limit with all others kept; infinite where they cannot be kept."""
    prefill: Floats
    """Instances among them that only read prompts; 0 where all instances read prompts and write answers."""

    @property
    def fewest(self) -> Floats:
        """Instances that keep the limits; where no number of them keeps the limits, the fewest that carry the load."""
        return np.where(np.isfinite(self.instances), self.instances, self.alone[:, -1])

    def missed(self, serving: Serving) -> dict[str, float]:
        """Returns the limits that the first row does not keep, each with the least figure that it could have."""
        limits = {name: np.inf if limit is None else limit for name, limit in serving.limits.items()}
        figures = dict(zip(limits, self.alone[0].tolist(), strict=True))
        if keeps_limits(self.least, np.array(list(limits.values())))[0]:
            return {}
        together = dict(zip(limits, self.least[0].tolist(), strict=True))
        alone = {name: figure for name, figure in figures.items() if figure > limits[name]}
        return alone or {name: figure for name, figure in together.items() if limits[name] < np.inf}


def keeps_limits(least: Floats, limits: Floats) -> Mask:
    """Whether `Served.least` keeps all limits, which are infinite where none is given.

    The least figure under a limit is that of layouts that keep the other limits as they were asked, so keeping one
    limit is keeping all, and stays so where a relaxation raises that one.
    """
    return np.asarray(((least <= limits) & np.isfinite(least)).any(axis=-1))


@dataclass(frozen=True, slots=True)
class Replicas:
    """Engines, the requests that have room on each replica, and the replicas of an instance."""

    engines: Engines
    places: Floats
    count: Floats
    slowness: Floats
    """Factor from the calibrated seconds of an engine to the likely ones."""
    full: EngineTimes
    """Likely seconds with all places taken."""

    @staticmethod
    def of(engines: Engines, places: Floats, count: Floats, slowness: Floats) -> "Replicas":
        """Returns the replicas of these engines."""
        return Replicas(engines, places, count, slowness, engines.under_load(places).times(slowness))

    def rows(self, rows: Indices) -> "Replicas":
        """Returns some of the rows."""
        full = taken(self.full, rows)
        return Replicas(self.engines.rows(rows), self.places[rows], self.count[rows], self.slowness[rows], full)

    def seconds(self, running: Floats) -> EngineTimes:
        """Returns the likely seconds of the engines while so many requests run on each."""
        return self.engines.under_load(running).times(self.slowness)

    def times(self, load: Floats, serving: Serving) -> ArrivalTimes:
        """Returns the times at a load of each replica; its seconds depend on how many requests run."""
        seconds = self.full
        for _ in range(2):
            seconds = self.seconds(np.clip(running_at(seconds, load, self.places, serving), 1.0, self.places))
        return arrival_times(seconds, load, self.places, serving)

    def most(self, serving: Serving) -> Floats:
        """Returns the most requests per second of a replica."""
        full, answer = self.full, serving.answer
        tokens = answer.longest_of(self.places) if serving.static_batches else answer.mean
        return np.asarray(self.places / (full.of_steps(tokens) + self.places * full.of_request(tokens)))


def serve(replicas: Replicas, serving: Serving) -> Served:
    """Returns the fewest instances of each row that serve the load."""
    search = LoadSearch.of(replicas, serving)
    chosen = search.in_time()
    figures = np.zeros((len(chosen), len(TIMES)))
    kept = np.ones_like(figures, np.bool_)
    cap = np.maximum(search.first, serving.up_to(serving.max_instances))
    tight = np.flatnonzero((chosen > search.first) & (chosen > serving.max_instances))
    if len(tight):
        times = search.times(tight, cap[tight])
        share = serving.percentile
        for column, (name, (within, figure)) in enumerate(TIMES.items()):
            figures[tight, column] = figure(times, share)
            limit = serving.limits[name]
            kept[tight, column] = True if limit is None else within(times, limit, share)
    return search.served(chosen, figures, kept)


@dataclass(frozen=True, slots=True)
class LoadSearch:
    """Numbers of instances for each row that serve a load."""

    replicas: Replicas
    serving: Serving
    first: Floats
    """Fewest instances that carry the load, at any speed, spread evenly over the zones."""

    @staticmethod
    def of(replicas: Replicas, serving: Serving) -> "LoadSearch":
        """Returns the search for instances of these replicas."""
        most = (replicas.most(serving) if serving.concurrency is None else replicas.places) * (1.0 - serving.headroom)
        if serving.concurrency is not None:
            most = np.maximum(1.0, np.floor(most / ALMOST))
        carry = np.ceil(ALMOST * serving.load / (most * replicas.count))
        least = np.ceil(serving.min_replicas / replicas.count)
        first = np.maximum(np.maximum(carry, least), serving.min_instances)
        return LoadSearch(replicas, serving, serving.spread(first))

    def in_time(self) -> Floats:
        """Returns the fewest instances of each row that keep the limits on times, spread evenly over the zones;
        infinite where no number does.
        """
        chosen, rows = self.first.copy(), np.arange(len(self.first))
        if any(self.serving.limits[name] is not None for name in TIMES):
            late = rows[~self.keeps(rows, self.first)]
            chosen[late] = self.serving.spread(self.fewest(late))
        return chosen

    def load(self, rows: Indices, instances: Floats) -> Floats:
        """Load of a replica. Fewer requests in flight than replicas leave some of these idle."""
        load = self.serving.load / (self.serving.spread(instances) * self.replicas.count[rows])
        return load if self.serving.concurrency is None else np.maximum(1.0, load)

    def times(self, rows: Indices, instances: Floats) -> ArrivalTimes:
        """Times of each of the rows on so many instances."""
        return self.replicas.rows(rows).times(self.load(rows, instances), self.serving)

    def keeps(self, rows: Indices, instances: Floats) -> Mask:
        """Whether the times of each of the rows keep their limits."""
        times, limits = self.times(rows, instances), self.serving.limits
        kept = [
            within(times, limit, self.serving.percentile)
            for name, (within, _) in TIMES.items()
            if (limit := limits[name]) is not None
        ]
        return reduce(np.logical_and, kept)

    def fewest(self, rows: Indices) -> Floats:
        """Fewest instances that keep the limits, for rows where the `first` ones do not; infinite if no number does."""
        low, fewest = self.first[rows], np.full(len(rows), np.inf)
        most = np.maximum(low, self.serving.up_to(MOST_INSTANCES))
        some = np.flatnonzero((low < most) & self.keeps(rows, most)) if len(rows) else rows
        low, high = low[some], most[some]
        while len(open_ := np.flatnonzero(high - low > 1.0)):
            middle = np.clip(np.floor(np.sqrt(low * high)), low + 1.0, high - 1.0)[open_]
            kept = self.keeps(rows[some[open_]], middle)
            low[open_], high[open_] = np.where(kept, low[open_], middle), np.where(kept, middle, high[open_])
        fewest[some] = high
        return fewest

    def served(self, chosen: Floats, figures: Floats, kept: Mask) -> Served:
        """Returns the load on the chosen instances, with the figures of rows that would take too many."""
        rows, none = np.arange(len(chosen)), ~np.isfinite(chosen)
        load = self.load(rows, np.where(none, self.first, chosen))
        rate = load if self.serving.concurrency is None else self._rate(load, np.where(none, self.first, chosen))
        allowed = self.first <= self.serving.max_instances
        others = [np.delete(kept, column, axis=1).all(axis=1) & allowed for column in range(kept.shape[1])]
        least = np.where(np.column_stack(others), figures, np.inf)
        # A full static batch waits for the longest of more answers, and may yield less than one that is not full.
        utilisation = np.minimum(1.0, rate / self.replicas.most(self.serving))
        return Served(
            chosen,
            load,
            rate,
            utilisation,
            np.column_stack([figures, self.first]),
            np.column_stack([least, np.where(chosen <= MOST_INSTANCES, chosen, np.inf)]),
            np.zeros(len(chosen)),
        )

    def _rate(self, load: Floats, instances: Floats) -> Floats:
        """Requests per second of a replica, in the mean of busy and idle ones, where clients send them."""
        busy = self.serving.load / (instances * self.replicas.count)
        return self.replicas.times(load, self.serving).rate * np.minimum(1.0, busy)
