"""The fewest instances that serve a load within its limits.

More instances leave each one less to do, so that no request takes longer. Therefore a binary search finds the fewest
that keep all limits. For few rows it tries several numbers at once, which takes as long as one.
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

AT_ONCE = 1024
"""Numbers of instances that the search tries at once, over all rows; at least one for each."""

ALMOST = 1.0 - 1e-9
"""Factor that forgives rounding errors: a load that is divided over replicas and added up again may be larger."""


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
        """Seconds to the first token at a percentile, the share of the requests that take no longer."""

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer at a percentile, the share of the requests that take no longer."""

    def per_request(self, percentile: float) -> Floats:
        """Seconds of a whole request at a percentile, the share of the requests that take no longer."""


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
"""By the field of each limit on a time: a function that says whether times keep the limit at a percentile, and a
function that returns the time in seconds."""


class Engines(Protocol):
    """Seconds of the engines of replicas, one row per layout and cluster."""

    def at(self, running: Floats) -> EngineTimes:
        """Returns the calibrated seconds of the engines while these requests run on each and share each pass."""

    def under_load(self, running: Floats) -> EngineTimes:
        """Returns the seconds of `at`, in parts of which none becomes shorter for a request as more requests run."""

    def rows(self, rows: Indices) -> "Engines":
        """Returns some of the engines."""


class Served(NamedTuple):
    """A load on instances of a layout and a cluster, one per row.

    Arrays with two dimensions have a column for each of `Serving.limits`, which holds the figure that is limited.
    """

    instances: Floats
    """Fewest instances that keep the limits on times; infinite where no number of them does."""
    load: Floats
    """Load of a replica, as a rate or as clients, whichever the question gives. Where no number of instances keeps the
    limits, it is that on the fewest which carry the load."""
    rate: Floats
    """Requests per second of a replica at that load, averaged over busy and idle ones."""
    utilisation: Floats
    """Rate of a replica divided by its highest rate."""
    least_alone: Floats
    """Least figure of each limit, whether the other limits are kept or not; 0 for times that are within their limit, or
    have none."""
    least_together: Floats
    """Least figure of each limit while the other limits are kept; infinite where these cannot be kept."""
    prefill: Floats
    """Part of the instances that only reads prompts; 0 where all instances read prompts and write answers."""

    @property
    def fewest(self) -> Floats:
        """Fewest instances that keep the limits; where no number of them does, the fewest that carry the load."""
        return np.where(np.isfinite(self.instances), self.instances, self.least_alone[:, -1])

    def missed(self, serving: Serving) -> dict[str, float]:
        """Returns the limits that the first row does not keep, each with the least figure that the row could have."""
        return missed_limits(serving, self.least_alone[0], self.least_together[0])


def missed_limits(serving: Serving, least_alone: Floats, least_together: Floats) -> dict[str, float]:
    """Returns the limits that are not kept, each with the least figure that is possible, given those of `Served`.

    The figures are those of one row, or the least of several rows, such as the layouts of a cluster.
    """
    limits = {name: np.inf if limit is None else limit for name, limit in serving.limits.items()}
    if keeps_limits(least_together, np.array(list(limits.values()))):
        return {}
    alone, together = (dict(zip(limits, figures.tolist(), strict=True)) for figures in (least_alone, least_together))
    unreachable = {name: figure for name, figure in alone.items() if figure > limits[name]}
    return unreachable or {name: figure for name, figure in together.items() if limits[name] < np.inf}


def keeps_limits(least_together: Floats, limits: Floats) -> Mask:
    """Whether `Served.least_together` keeps all limits; a limit that is not given is infinite.

    Each of these figures is reached while the other limits are kept as the question states them. Therefore a row that
    keeps one limit keeps all of them, also where a relaxation raises that one limit.
    """
    return np.asarray(((least_together <= limits) & np.isfinite(least_together)).any(axis=-1))


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas of a model, one engine with its load per row."""

    engines: Engines
    places: Floats
    """Requests that have room on each replica."""
    count: Floats
    """Replicas of an instance."""
    slowness: Floats
    """Factor from the calibrated seconds of an engine to the likely ones."""
    fed: Floats
    """Requests per second that the host of a replica prepares; infinite where this is unknown."""
    full: EngineTimes
    """Likely seconds with all places taken."""

    @staticmethod
    def of(
        engines: Engines, places: Floats, count: Floats, slowness: Floats, fed: Floats | float = np.inf
    ) -> "Replicas":
        """Returns the replicas, with the likely seconds of engines whose places are all taken.

        `fed` is the requests per second that the hosts of an instance prepare.
        """
        full = engines.under_load(places).times(slowness)
        return Replicas(engines, places, count, slowness, np.asarray(fed / count), full)

    def hosts_limit(self, instances: Floats, serving: Serving) -> Mask:
        """Whether fewer instances would carry the load, or these would answer more clients, if hosts prepared more."""
        of_host, of_engines = self.fed * self.count, self.most_of_engines(serving) * self.count
        if serving.concurrency is not None:
            return np.asarray(self.times(serving.load / (instances * self.count), serving).rate >= ALMOST * self.fed)
        fewer = np.asarray(serving.load / (1.0 - serving.headroom) / np.maximum(instances - 1.0, 1e-9))
        return (of_host < ALMOST * fewer) & (fewer <= of_engines)

    def rows(self, rows: Indices) -> "Replicas":
        """Returns some of the rows."""
        places, count, slowness, fed = (column[rows] for column in (self.places, self.count, self.slowness, self.fed))
        return Replicas(self.engines.rows(rows), places, count, slowness, fed, taken(self.full, rows))

    def seconds(self, running: Floats) -> EngineTimes:
        """Returns the likely seconds of the engines while these requests run on each."""
        return self.engines.under_load(running).times(self.slowness)

    def times(self, load: Floats, serving: Serving) -> ArrivalTimes:
        """Returns the times of requests at a load of each replica.

        The seconds of an engine depend on the requests that run, and the requests on the seconds, so both are iterated.
        """
        seconds = self.full
        for _ in range(2):
            seconds = self.seconds(np.clip(running_at(seconds, load, self.places, serving), 1.0, self.places))
        times = arrival_times(seconds, load, self.places, serving)
        return times if serving.concurrency is None else times.at_most(self.fed, clients=load)

    def most(self, serving: Serving) -> Floats:
        """Returns the highest rate of a replica in requests per second, which its host may limit."""
        return np.minimum(self.most_of_engines(serving), self.fed)

    def most_of_engines(self, serving: Serving) -> Floats:
        """Returns the highest rate of a replica whose host prepares enough requests."""
        full, answer = self.full, serving.answer
        tokens = answer.longest_of(self.places) if serving.static_batches else answer.mean
        return np.asarray(self.places / (full.of_steps(tokens) + self.places * full.of_request(tokens)))


def serve(replicas: Replicas, serving: Serving) -> Served:
    """Returns the fewest instances of each row that serve the load."""
    search = LoadSearch.of(replicas, serving)
    chosen = search.in_time()
    figures = np.zeros((len(chosen), len(TIMES)))
    kept = np.ones_like(figures, np.bool_)
    allowed = np.maximum(search.first, serving.up_to(serving.max_instances))
    too_many = np.flatnonzero((chosen > search.first) & (chosen > serving.max_instances))
    if len(too_many):
        times = search.times(too_many, allowed[too_many])
        for column, (name, (within, figure)) in enumerate(TIMES.items()):
            if (limit := serving.limits[name]) is not None:
                share = serving.percentiles[name]
                kept[too_many, column] = within(times, limit, share)
                late = np.flatnonzero(~kept[too_many, column])
                figures[too_many[late], column] = figure(taken(times, late), share)
    return search.served(chosen, figures, kept)


@dataclass(frozen=True, slots=True)
class LoadSearch:
    """The search for the fewest instances of each row that serve a load."""

    replicas: Replicas
    serving: Serving
    first: Floats
    """Fewest instances that carry the load, at any speed, spread evenly over the zones."""

    @staticmethod
    def of(replicas: Replicas, serving: Serving) -> "LoadSearch":
        """Returns the search for instances of these replicas."""
        most = (replicas.most(serving) if serving.concurrency is None else replicas.places) * (1.0 - serving.headroom)
        if serving.concurrency is not None:
            queues = serving.clients_queue and not serving.headroom  # a queue leaves no capacity free
            most = np.maximum(np.inf if queues else 1.0, np.floor(most / ALMOST))
        carrying = np.ceil(ALMOST * serving.load / (most * replicas.count))
        required = np.ceil(serving.min_replicas / replicas.count)
        first = np.maximum(np.maximum(carrying, required), serving.min_instances)
        return LoadSearch(replicas, serving, serving.spread(first))

    def in_time(self) -> Floats:
        """Returns the fewest instances of each row that keep the limits on times, spread evenly over the zones;
        infinite where no number does.
        """
        chosen, rows = self.first.copy(), np.arange(len(self.first))
        if self._limits_times:
            late = rows[~self.keeps(rows, self.first)]
            chosen[late] = self.serving.spread(self.fewest(late))
        return chosen

    def keeps_with_most(self) -> Mask:
        """Whether each row keeps the limits on times with as many instances as a load may take, or as carry it."""
        rows, most = np.arange(len(self.first)), np.maximum(self.first, self.serving.up_to(MOST_INSTANCES))
        return self.keeps(rows, most) if self._limits_times else np.ones(len(rows), np.bool_)

    @property
    def _limits_times(self) -> bool:
        return any(self.serving.limits[name] is not None for name in TIMES)

    def load(self, rows: Indices, instances: Floats) -> Floats:
        """Load of each busy replica; fewer requests in flight than replicas leave some replicas idle."""
        load = self.serving.load / (self.serving.spread(instances) * self.replicas.count[rows])
        return load if self.serving.concurrency is None else np.maximum(1.0, load)

    def times(self, rows: Indices, instances: Floats) -> ArrivalTimes:
        """Times of requests of these rows on these numbers of instances."""
        return self.replicas.rows(rows).times(self.load(rows, instances), self.serving)

    def keeps(self, rows: Indices, instances: Floats) -> Mask:
        """Whether the times of these rows on these numbers of instances keep their limits."""
        times, limits, shares = self.times(rows, instances), self.serving.limits, self.serving.percentiles
        kept = [
            within(times, limit, shares[name])
            for name, (within, _) in TIMES.items()
            if (limit := limits[name]) is not None
        ]
        return reduce(np.logical_and, kept)

    def fewest(self, rows: Indices) -> Floats:
        """Fewest instances that keep the limits, for rows where `first` does not; infinite if no number does."""
        low, fewest = self.first[rows], np.full(len(rows), np.inf)
        most = np.maximum(low, self.serving.up_to(MOST_INSTANCES))
        possible = np.flatnonzero((low < most) & self.keeps(rows, most)) if len(rows) else rows
        low, high = low[possible], most[possible]
        while len(open_ := np.flatnonzero(high - low > 1.0)):
            between = max(1, AT_ONCE // len(open_))
            share, few, many = np.arange(1, between + 1) / (between + 1), low[open_, None], high[open_, None]
            tried = np.clip(np.floor(few ** (1.0 - share) * many**share), few + 1.0, many - 1.0)
            kept = self.keeps(np.repeat(rows[possible[open_]], between), tried.ravel()).reshape(tried.shape)
            high[open_] = np.where(kept, tried, many).min(axis=1)
            low[open_] = np.where(kept | (tried > high[open_, None]), few, tried).max(axis=1)
        fewest[possible] = high
        return fewest

    def served(self, chosen: Floats, figures: Floats, kept: Mask) -> Served:
        """Returns the load on the chosen instances.

        `figures` are the times on as many instances as are allowed, for rows that would take more and times that are
        above their limits, and `kept` says which times are not.
        """
        instances = np.where(np.isfinite(chosen), chosen, self.first)
        load = self.load(np.arange(len(chosen)), instances)
        rate = load if self.serving.concurrency is None else self._rate(load, instances)
        allowed = self.first <= self.serving.max_instances
        others_kept = [np.delete(kept, column, axis=1).all(axis=1) & allowed for column in range(kept.shape[1])]
        least_times = np.where(np.column_stack(others_kept), figures, np.inf)
        # Capped, because a smaller static batch can yield more than a full one, which waits for the longest of more
        # answers.
        utilisation = np.minimum(1.0, rate / self.replicas.most(self.serving))
        return Served(
            instances=chosen,
            load=load,
            rate=rate,
            utilisation=utilisation,
            least_alone=np.column_stack([figures, self.first]),
            least_together=np.column_stack([least_times, np.where(chosen <= MOST_INSTANCES, chosen, np.inf)]),
            prefill=np.zeros(len(chosen)),
        )

    def _rate(self, load: Floats, instances: Floats) -> Floats:
        """Requests per second of a replica where clients send them, averaged over busy and idle replicas."""
        busy = self.serving.load / (instances * self.replicas.count)
        return self.replicas.times(load, self.serving).rate * np.minimum(1.0, busy)
