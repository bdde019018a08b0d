"""Steady state of an engine that serves: throughput, times and requests at once follow from the same few times.

An engine repeats steps, and each step yields a token of every request in the engine. The first step of a request also
reads its prompt, and n steps give it n tokens. Of N requests in flight, M are in the engine on average, and the others
are on their way. By the arrival theorem a request finds A = M (1 - 1/N) others in the engine. They have begun a step,
so the request waits R seconds for the next one and then spends P seconds in the engine:

    R = (1 - 1/N) step + A request
    P = n (step + (1 + A) request) + (1 + A) prompt + own

The rate is X = M / P requests per second, and by Little's law N = X (arrival + R + P). Together they make M the root of
a quadratic equation. X is at most the rate with all places of the engine taken; the remaining requests then wait in a
queue. The names step, request, prompt, arrival and own are fields of `EngineTimes`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Mask, Number
from service.domain.jobs.serving import Length
from service.domain.random_time import RandomTime

TURNS_OF_A_BURST = 4.0
"""Turns after which a burst counts as a steady state."""

STATES_OF_A_BATCH = 64
"""Numbers of requests whose probabilities are added up: all, or as many evenly spaced ones."""

TERMS_OF_THE_TAIL = 64
"""Numbers of running requests whose probabilities are added up, down from a full engine; others are negligible."""

ROUNDS_OF_BATCHES = 4
"""Rounds of the fixed-point iteration for the mean size of a batch."""

WITHIN_A_DEVIATION = (0.8413, 0.1587)
"""Probabilities that a normal variable is below one standard deviation above its mean, and below one under its mean."""

ALMOST_ONE = 1.0 - 1e-6


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Seconds of each part of the work of an engine; or, as weights, how often a figure counts each part."""

    step: Number
    """A step that yields tokens, without the work that requests add to it."""
    request: Number
    """Each running request adds these seconds to a step."""
    prompt: Number
    """Reading the prompt of one request."""
    arrival: Number
    """The way of a request from the client to the engine and back, during which other requests go on."""
    own: Number = 0.0
    """Added once by each request to the step that reads its prompt, or once by each static batch."""

    def total(self, seconds: "EngineTimes") -> Number:
        """Seconds of a figure, where this value says how often the figure counts each part."""
        return (
            self.step * seconds.step
            + self.request * seconds.request
            + self.prompt * seconds.prompt
            + self.arrival * seconds.arrival
            + self.own * seconds.own
        )

    def of_request(self, tokens: Number) -> Number:
        """Seconds that a request whose answer has this number of tokens adds to the work of the engine."""
        return tokens * self.request + self.prompt

    def of_steps(self, tokens: Number) -> Number:
        """Seconds of the steps of an answer of these tokens, without the work that requests add to them."""
        return tokens * self.step + self.own

    def times(self, factor: Number) -> "EngineTimes":
        """Returns all times multiplied by a factor."""
        return EngineTimes(*(getattr(self, part) * factor for part in PARTS))


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Requests in an engine at once, and how often each part of its work counts in the times of a request."""

    running: Number
    """Mean requests in the engine."""
    others: Number
    """Other requests that a request finds when it arrives."""
    others_decoding: Number
    """Other requests in the engine while a request gets its tokens; at most the places less one."""
    in_flight: Number
    """Requests in the engine, in its queue, and on their way."""
    tokens: Number
    """Tokens of an answer, at least 1."""
    queues: Number
    """Whether requests wait for a place; with static batches, whether those of a whole batch do."""

    @property
    def per_token(self) -> EngineTimes:
        """Parts of the time between two tokens of a request."""
        return EngineTimes(1.0, 1.0 + self.others_decoding, self.others_decoding / self.tokens, 0.0)

    @property
    def per_request(self) -> EngineTimes:
        """Parts of the time between the ends of two requests: P / M."""
        prompts = (1.0 + self.others) / self.running
        return EngineTimes(self.tokens / self.running, self.tokens * prompts, prompts, 0.0, 1.0 / self.running)

    @property
    def to_first_token(self) -> EngineTimes:
        """Parts of the time to the first token.

        It is the whole time of a request (N / X, by Little's law) minus that of its later tokens.
        """
        token, request, later = self.per_token, self.per_request, self.tokens - 1.0
        share = 1.0 - 1.0 / np.maximum(1.0, self.in_flight)
        waits = np.where(self.queues, self.in_flight, self.running)
        arrives = np.where(self.queues, 0.0, 1.0)
        return EngineTimes(
            waits * request.step - later * token.step + arrives * share,
            waits * request.request - later * token.request + arrives * self.others,
            waits * request.prompt - later * token.prompt,
            arrives,
            waits * request.own,
        )

    def of_burst(self, requests: Number, most_running: Number, output: float, longest: float) -> "BurstShares":
        """Returns the figures of requests that are sent all at once, with none after them.

        `output` and `longest` are the tokens of the mean and the longest answer. Each prompt is read once, and each
        token adds its request to a step. Steps go on until the longest answer ends; where not all requests run at once,
        answers take turns, and there are more steps. While a request runs, half of the prompts of the others are still
        to be read, and shorter answers have ended. A burst of many turns counts as a steady state.
        """
        held = np.minimum(self.in_flight, most_running)
        mean_steps = output * np.maximum(1.0, requests / held)
        steps = np.maximum(longest, mean_steps + (longest - output) / 2.0)
        per_request = EngineTimes(steps / requests, output, 1.0, 1.0 / requests)
        per_token = EngineTimes(1.0, held * (1.0 + output / longest) / 2.0, held / 2.0 / self.tokens, 0.0)
        ends = np.asarray(requests < TURNS_OF_A_BURST * held)
        return BurstShares(_either(self.per_request, per_request, ends), _either(self.per_token, per_token, ends))


@dataclass(frozen=True, slots=True)
class StaticBatches(SteadyState):
    """Requests of an engine with static batches: it starts a batch when all answers of the last one have ended.

    Prompts are read before the first step. All answers of a batch are sent at its end, and their clients then send the
    next requests. Unless another whole batch waits already, the engine is idle while these are on their way. The time
    per token is the time from the first token to the end of the batch, divided by the tokens of the answer after the
    first one.
    """

    longest: Number
    """Tokens of the longest answer of a batch."""

    @property
    def per_token(self) -> EngineTimes:
        """Parts of the time between two tokens of a request."""
        steps = steps_per_token(self.tokens, self.longest)
        return EngineTimes(steps, self.running * steps, 0.0, 0.0)

    @property
    def per_request(self) -> EngineTimes:
        """Parts of the time that the engine takes per request: those of a batch, divided by its requests."""
        idle = np.where(self.queues, 0.0, 1.0 / self.running)
        return EngineTimes(self.longest / self.running, self.longest, 1.0, idle, 1.0 / self.running)

    @property
    def to_first_token(self) -> EngineTimes:
        """Parts of the time to the first token.

        It is the whole time of a request (N / X, by Little's law) minus that of its later tokens.
        """
        token, request, later = self.per_token, self.per_request, self.tokens - 1.0
        return EngineTimes(*(self.in_flight * getattr(request, part) - later * getattr(token, part) for part in PARTS))

    def of_burst(self, requests: Number, most_running: Number, output: float, longest: float) -> "BurstShares":
        """Returns the figures of requests that are sent all at once, in as many batches as they take."""
        held = np.minimum(requests, np.minimum(self.in_flight, most_running))
        batches = np.ceil(requests / held)
        per_request = EngineTimes(batches * longest / requests, longest, 1.0, 1.0 / requests)
        steps = steps_per_token(self.tokens, longest)
        return BurstShares(per_request, EngineTimes(steps, held * steps, 0.0, 0.0))


def steps_per_token(tokens: Number, longest: Number) -> Number:
    """Returns the steps of a static batch after the first one, over the tokens of a mean answer after its first."""
    return np.where(tokens > 1.0, (longest - 1.0) / np.maximum(tokens - 1.0, 1e-9), 1.0)


def more_batches_than_mean(mean: Number, percentile: float) -> Number:
    """Returns the batches that a request takes at a percentile beyond those that it takes on average.

    Clients that outnumber the places take turns: a request ends with the n-th batch or with the one after it, where n
    is the mean rounded down.
    """
    return np.where(mean - np.floor(mean) > 1.0 - percentile, np.ceil(mean) - mean, 0.0)


class BurstShares(NamedTuple):
    """Parts of two figures of a burst."""

    per_request: EngineTimes
    """Parts of the time of the whole burst, divided by its requests."""
    per_token: EngineTimes
    """Parts of the time between two tokens of a request."""


def _either(first: EngineTimes, second: EngineTimes, second_holds: Number) -> EngineTimes:
    return EngineTimes(*(np.where(second_holds, getattr(second, part), getattr(first, part)) for part in PARTS))


PARTS = tuple(EngineTimes.__dataclass_fields__)


def steady_state(
    seconds: EngineTimes, in_flight: Number, most_running: Number, output_tokens: Number, longest: Number | None = None
) -> SteadyState:
    """Returns the state of an engine that has `most_running` places, with `in_flight` requests in flight.

    `longest` is the tokens of the longest answer of a batch, for an engine with static batches.
    """
    tokens = np.maximum(1.0, output_tokens)
    if longest is not None:
        running, queues = np.minimum(in_flight, most_running), np.asarray(in_flight >= 2.0 * most_running)
        return StaticBatches(running, running - 1.0, running - 1.0, in_flight, tokens, queues, longest)
    share = 1.0 - 1.0 / np.maximum(1.0, in_flight)
    alone = tokens * (seconds.step + seconds.request) + seconds.prompt + seconds.own
    added = seconds.of_request(tokens)
    # P = alone + A added in N = X (arrival + R + P), with s = 1 - 1/N and A = s M, gives
    # N (alone + s M added) = M (alone + arrival + s step + s M (added + request)), which is a M^2 + b M - c = 0.
    a = share * (added + seconds.request)
    b = alone + seconds.arrival + share * seconds.step - in_flight * share * added
    c = in_flight * alone
    root = np.sqrt(b * b + 4.0 * a * c)
    # Of the two forms of the root, one subtracts nearly equal numbers, so the other is taken.
    free = np.where(b > 0, 2.0 * c / (b + root), (root - b) / np.maximum(2.0 * a, 1e-300))
    others_free, places = free * share, most_running - 1.0
    queues = most_running / (alone + places * added) < free / (alone + others_free * added)
    running, others = np.where(queues, most_running, free), np.where(queues, places, others_free)
    return SteadyState(running, others, np.minimum(others_free, places), in_flight, tokens, queues)


class BatchesOfArrivals(NamedTuple):
    """Static batches of requests that arrive at random, with one entry per engine."""

    size: Floats
    """Mean requests of a batch."""
    variance: Floats
    """Variance of the requests of a batch."""
    seconds: Floats
    """Mean seconds of a batch."""
    seconds_of_each: Floats
    """Seconds that each request adds to a batch."""
    variance_of_longest: Floats
    """Variance of the seconds of a batch that is due to its longest answer."""
    p_no_arrival: Floats
    """Probability that no request waits at the end of a batch; the next batch then has the first one that comes."""
    wait: Floats
    """Mean seconds that a request waits for more batches because the next one is full."""
    wait_of_those: Floats
    """Mean seconds of this wait for the requests that have to wait."""

    @property
    def variance_of_seconds(self) -> Floats:
        """Variance of the seconds of a batch."""
        return self.seconds_of_each**2 * self.variance + self.variance_of_longest


def batches_of_arrivals(seconds: EngineTimes, rate: Floats, places: Floats, answer: Length) -> BatchesOfArrivals:
    """Returns the batches of requests that arrive at random; each holds those that wait when the last one ends.

    A batch of k requests takes s + w k seconds. Let x be rate w, and p the probability that no request waits at the end
    of a batch. With unlimited places, a Poisson variable of mean rate s + x k arrives in the time of a batch, so that
    their number has the variance m / (1 - x^2), where m is its mean; it is taken as negative binomial. Places cut this
    distribution off, with such a probability of a full batch that the mean of k stays (rate s + p) / (1 - x).

    The requests at the ends of two successive batches have equal second moments. Exactly from this follow the requests
    L that are left over for later batches, where F are the seconds of a full batch of b requests:

        2 (b - rate F) L = m - 2 m p + p^2 - (1 - x^2) variance of k

    With one place this is the formula of Pollaczek and Khinchin. The variance of the seconds of a batch, due to the
    lengths of answers, adds rate^2 times itself to the right side.
    """
    one, full = (_batch_seconds(seconds, size, answer) for size in (np.ones_like(rate), places))
    on_average = (full - one) / np.maximum(places - 1.0, 1.0)
    utilisation = np.clip(rate * full / places, 1e-12, ALMOST_ONE)
    size, p_no_arrival = np.ones_like(rate), np.zeros_like(rate)
    for _ in range(ROUNDS_OF_BATCHES):
        batch, varying = _batch_seconds(seconds, size, answer), variance_of_longest(seconds, size, answer) * rate**2
        # The longest answer of a full batch lengthens the work for all of its requests, but not that of a small batch.
        of_each = np.minimum(on_average, batch / size)
        work = np.minimum(rate * of_each, ALMOST_ONE)
        # The logarithm of the probability of no request falls by this where that of no arrival rises by one.
        fall = -(1.0 + work) * np.log1p(-(work**2)) / np.maximum(work, 1e-9)
        steps = rate * batch - work * size
        mean = (steps + work * p_no_arrival) / (1.0 - work)
        below = _below(places, mean, (mean + varying) / (1.0 - work**2))
        missing = (steps + below.p_none) / (1.0 - work) - below.mean
        p_full = np.clip(missing / (places - below.mean + below.p_none / (1.0 - work)), 0.0, 1.0)
        # A step of Newton: more empty times make batches larger, and larger batches make empty times less likely.
        p_none = (1.0 - p_full) * below.p_none
        p_no_arrival = p_no_arrival + (p_none - p_no_arrival) / (1.0 + p_none * fall)
        # Rounding can make this a little less than one where a batch rarely holds a second request.
        size = np.maximum(1.0, (1.0 - p_full) * below.mean + p_full * places)
    # And this a little less than nothing.
    arriving = np.maximum(0.0, size - (2.0 * size - p_no_arrival) * p_no_arrival + varying) / (1.0 - work**2)
    variance = np.clip((1.0 - p_full) * below.mean_square + p_full * places**2 - size**2, 0.0, arriving)
    left_over = (1.0 - work**2) * (arriving - variance) / (2.0 * places * (1.0 - utilisation))
    return BatchesOfArrivals(
        size,
        variance,
        _batch_seconds(seconds, size, answer),
        of_each,
        varying / rate**2,
        p_no_arrival,
        left_over * full / size,
        full / places / _decay(utilisation, rate * variance_of_longest(seconds, places, answer) / full),
    )


def _batch_seconds(seconds: EngineTimes, size: Floats, answer: Length) -> Floats:
    """Mean seconds of a batch of this size."""
    longest = answer.longest_of(size)
    return np.asarray(seconds.of_steps(longest) + size * seconds.of_request(longest))


def variance_of_longest(seconds: EngineTimes, size: Floats, answer: Length) -> Floats:
    """Returns the variance of the seconds of a batch of this size that is due to its longest answer."""
    high, low = (answer.longest_of(size, share) for share in WITHIN_A_DEVIATION)
    return np.asarray(((high - low) / 2.0 * (seconds.step + size * seconds.request)) ** 2)


def _decay(utilisation: Floats, varying: Floats) -> Floats:
    """Returns t, where the probability that more requests are left over falls by exp(-t) for each.

    For batches of equal seconds it is the root of exp(t) - 1 = t / utilisation, by a series within 2 % of it. It falls
    as the arrivals in a batch vary more than Poisson variables do, by this share.
    """
    return np.asarray((np.sqrt(36.0 - 24.0 * np.log(utilisation)) - 6.0) / (1.0 + varying))


class _BelowPlaces(NamedTuple):
    """Numbers of requests below the places of an engine, one entry per engine; no batch has fewer than one."""

    p_none: Floats
    """Probability of no request."""
    mean: Floats
    mean_square: Floats


def _below(places: Floats, mean: Floats, variance: Floats) -> _BelowPlaces:
    """Returns the moments of a negative binomial number of requests, given that it is below the places.

    With q = 1 - mean / variance, the number n - 1 is n / (q (n - 1) + mean (1 - q)) times as likely as n.
    """
    q = (1.0 - mean / variance)[:, None]
    most = np.floor(np.minimum(places - 1.0, mean + 8.0 * np.sqrt(variance) + 8.0))[:, None]
    apart = np.maximum(1.0, most / (STATES_OF_A_BATCH - 1.0))
    numbers = np.maximum(most - apart * np.arange(STATES_OF_A_BATCH), 0.0)
    between = np.maximum(numbers - (apart - 1.0) / 2.0, 0.0)
    ratios = (between / np.maximum(q * (between - 1.0) + mean[:, None] * (1.0 - q), 1e-9)) ** apart
    shares = np.ones_like(ratios)
    np.cumprod(ratios[:, :-1], axis=1, out=shares[:, 1:])
    shares /= shares.sum(axis=1, keepdims=True)
    sizes = np.maximum(numbers, 1.0)
    return _BelowPlaces(
        (shares / apart * (numbers < 0.5)).sum(axis=1), (shares * sizes).sum(axis=1), (shares * sizes**2).sum(axis=1)
    )


def wait_for_place(
    rate: Floats, steps_over_work: Floats, work: Floats, places: Floats, variation: float
) -> tuple[Floats, RandomTime]:
    """Returns the probability that a request finds all places taken, and the seconds until one is free.

    A request adds `work` seconds to those of the engine, whose own steps take `steps_over_work` times as long, and the
    squared coefficient of variation of its answer is `variation`. With unlimited places, the number of requests is
    negative binomial (see `arrivals.py`).
    """
    utilisation = np.clip(rate * (steps_over_work + places) * work / places, 1e-12, ALMOST_ONE)
    p_full = np.zeros(len(rate))
    near = np.flatnonzero(_may_be_full(rate * work, steps_over_work, places))
    p_full[near] = _p_full(rate[near] * work[near], steps_over_work[near], places[near])
    # Waits for answers of one length are about half of those for exponential ones (Cosmetatos, 1976).
    more = (1.0 - utilisation) * (places - 1.0) * (np.sqrt(4.0 + 5.0 * places) - 2.0) / (16.0 * places * utilisation)
    factor = variation + (1.0 - min(1.0, variation)) * np.minimum(1.0, (1.0 + more) / 2.0)
    mean = factor * (steps_over_work + places) * work / places / (1.0 - utilisation)
    # The variance over the square of the mean: by Pollaczek and Khinchin for one place; for several, the middle between
    # this and the 1 of an exponential wait.
    one_place = 4.0 / 3.0 * (1.0 + 3.0 * variation) / (1.0 + variation) ** 2 * (1.0 - utilisation)
    one_place = one_place + 2.0 * utilisation - 1.0
    of_wait = np.where(places <= 1.0, one_place, (one_place + 1.0) / 2.0)
    p_waits = p_full / (1.0 - utilisation + utilisation * p_full)
    return p_waits, RandomTime(mean, np.maximum(of_wait, 0.1) * mean**2)


def _may_be_full(busy: Floats, steps_over_work: Floats, places: Floats) -> Mask:
    """Whether the places are at most seven standard deviations more than the mean of the requests that run."""
    mean = (steps_over_work + 1.0) * busy / np.maximum(1.0 - busy, 1e-12)
    return np.asarray(places <= mean + 7.0 * np.sqrt(mean / np.maximum(1.0 - busy, 1e-12)) + 7.0)


def _p_full(busy: Floats, steps_over_work: Floats, places: Floats) -> Floats:
    """Probability that all places are taken, given that no request waits.

    By the negative binomial distribution, k - 1 running requests are k / (busy (a + k)) times as likely as k.
    """
    running = np.maximum(places[:, None] - np.arange(TERMS_OF_THE_TAIL), 0.0)
    ratios = running / np.maximum(busy[:, None] * (steps_over_work[:, None] + running), 1e-300)
    return np.asarray(1.0 / (1.0 + np.cumprod(ratios, axis=1).sum(axis=1)))
