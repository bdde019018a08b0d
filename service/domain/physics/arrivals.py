"""Times of requests that arrive at an engine at random, with percentiles, computed from the seconds of its work.

**Requests in the engine.** Requests arrive as a Poisson process. Each of them slows down all others equally, so the
engine is a queue with processor sharing. Let n be the tokens of an answer, e = n request + prompt the seconds that one
request adds to the work of the engine, and a = (n step + own) / e the seconds of its steps over these. With unlimited
places, the number of requests is negative binomial with parameters a + 1 and rate e, and its mean is
rate (n step + own + e) / (1 - rate e) (Kelly, Reversibility and Stochastic Networks, 1979). Places are limited: above
their number the distribution has a geometric tail, which holds the requests that wait for a place.

**The first token.** A step without prompts takes b seconds. It also reads the K prompts that arrived during the step
before, so that its length is S = b + prompt K, where K is Poisson distributed with mean rate S' and S' is the length of
the step before. This gives the first three moments of S. A request arrives during a step with a probability in
proportion to its length. It waits for the end of that step, and then for the prompts of the others that arrived in it.

The seconds `step`, `request`, `prompt` and `own` are fields of `EngineTimes`. `tests/oracles/serving.py` simulates
these engines.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Mask, Number, cube, taken
from service.domain.jobs.serving import Serving
from service.domain.physics.serving import (
    ALMOST_ONE,
    EngineTimes,
    batches_of_arrivals,
    more_batches_than_mean,
    steady_state,
    steps_per_token,
    variance_of_longest,
    wait_for_place,
)
from service.domain.random_time import POINTS, RandomTime, lognormal_over_mean

MOST_SHARE = 0.95
"""Largest share of the time spent on reading prompts for which moments of a step are computed: they diverge at 1."""

HALVINGS = 24
"""Halvings of the interval that holds a percentile, to one part in ten million."""
FEW_ENGINES = 64
"""Most engines for which dividing that interval by 16 takes as long as halving it."""

LATE_FIRST_TOKEN = 0.25
"""Share of a request's mean time from which its first token may seem to come after its end (decision 6)."""


@dataclass(frozen=True, slots=True)
class ArrivalTimes:
    """Times of requests that arrive at random, with one entry per engine.

    What others *add* to a request is the part of its time to the first token in which it waits for steps and prompts.
    """

    rate: Floats
    """Requests per second."""
    running: Floats
    """Mean requests in the engine."""
    least_first_token: Floats
    """Seconds to the first token of a request that waits for no others."""
    prompt: RandomTime
    """Seconds of reading a prompt, whose mean is a part of `least_first_token`."""
    p_empty: Floats
    """Probability that a request finds the engine empty."""
    p_waits: Floats
    """Probability that a request finds no place: all are taken, or with static batches those of the next batch."""
    step_or_batch: Floats
    """Seconds of the step without prompts, or of the static batch (root mean square), that a request waits for."""
    p_prompts: Floats
    """Probability that a request at a busy engine finds prompts being read, or to be read before its own."""
    added_by_prompts: RandomTime
    """Seconds that others add to a request that finds prompts."""
    mean_added: Floats
    """Mean seconds that others add to a request that finds the engine busy."""
    most_added: Floats
    """Most seconds that others can add. A fixed number of clients has one prompt each; otherwise infinite."""
    least_added: Floats
    """Least seconds that others add at percentiles above one half. Clients of a fixed number meet again and again, and
    wait for the mean at least, even where random arrivals would hardly ever meet; 0 for random arrivals."""
    littles_law_ratio: Floats
    """Mean seconds that others add by Little's law, over those by processor sharing; 1 for random arrivals."""
    wait: RandomTime
    """Seconds that a request without a place waits for one; with static batches, after the batch that it finds."""
    added_per_token: RandomTime
    """Seconds per token beyond `least_per_token`."""
    least_per_token: Floats
    """Seconds per token of a request that is alone."""
    tokens: Floats
    """Mean tokens of an answer."""
    answer_variation: Floats
    """Variance of the tokens of an answer over the square of their mean."""

    def p_added_above(self, seconds: Floats) -> Floats:
        """Probability that others add more than these seconds to the time to the first token."""
        rest_of_step = np.maximum(0.0, 1.0 - seconds / self.step_or_batch)
        with_prompts = np.maximum(rest_of_step, self.added_by_prompts.probability_above(seconds))
        place_is_free = (1.0 - self.p_prompts) * rest_of_step + self.p_prompts * with_prompts
        p_busy = np.maximum(0.0, 1.0 - self.p_empty - self.p_waits)
        waits = self.wait.probability_above(seconds - self.mean_added)
        return np.asarray(p_busy * place_is_free + self.p_waits * waits)

    @property
    def _shortening(self) -> Floats:
        """Factor of the seconds that others add at a percentile; below 1 where Little's law leaves less time."""
        return np.clip(self.littles_law_ratio, 1e-9, 1.0)

    def longer_prompt(self, percentile: float) -> Floats:
        """Seconds that a prompt whose length is at a percentile takes longer than a mean one."""
        excess = lognormal_over_mean(self.prompt.variation, percentile) - 1.0
        return np.asarray(self.prompt.mean * np.maximum(0.0, excess))

    def _least_added_at(self, percentile: float) -> Number:
        return self.least_added if percentile > 0.5 else 0.0

    def first_token_within(self, limit: float, percentile: float) -> Mask:
        """Whether this share of the requests gets its first token within the limit."""
        slack, longer_prompt = limit - self.least_first_token, self.longer_prompt(percentile)
        least_is_within = slack >= _both(self._least_added_at(percentile), longer_prompt)
        most_is_within = self.least_first_token + _both(self.most_added, longer_prompt) <= limit
        added = np.sqrt(np.maximum(slack**2 - longer_prompt**2, 0.0)) / self._shortening
        return np.asarray(most_is_within | least_is_within & (self.p_added_above(added) <= 1.0 - percentile))

    def first_token(self, percentile: float) -> Floats:
        """Seconds to the first token at a percentile, the share of the requests that take no longer."""
        added = np.zeros(len(self.least_first_token))
        late = np.flatnonzero(self.p_added_above(added) > 1.0 - percentile)
        if len(late):
            added[late] = taken(self, late).added_at(percentile)
        added = np.clip(added * self._shortening, self._least_added_at(percentile), self.most_added)
        return np.asarray(self.least_first_token + _both(added, self.longer_prompt(percentile)))

    def added_at(self, percentile: float) -> Floats:
        """Seconds that others add at a percentile, by bisection; never less than the exact ones."""
        low, high = np.zeros(len(self.least_first_token)), np.maximum(self.least_first_token, 1e-9)
        while (late := self.p_added_above(high) > 1.0 - percentile).any():
            low, high = np.where(late, high, low), np.where(late, 4.0 * high, high)
        parts, rounds = (16, HALVINGS // 4) if len(low) <= FEW_ENGINES else (2, HALVINGS)
        repeated = taken(self, np.repeat(np.arange(len(low)), parts - 1))
        for _ in range(rounds):
            part = (high - low) / parts
            tried = low[:, None] + part[:, None] * np.arange(1.0, parts)
            late = (repeated.p_added_above(tried.ravel()) > 1.0 - percentile).reshape(tried.shape)
            low, high = low + part * late.sum(axis=1), low + part * (late.sum(axis=1) + 1.0)
        return high

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer at a percentile, the share of the requests that take no longer."""
        return self.least_per_token + self.added_per_token.quantile(percentile)

    def per_request(self, percentile: float) -> Floats:
        """Seconds of a whole request that this share does not exceed; an answer of one token ends with its first."""
        if (self.tokens <= 1.0).all():
            return self.first_token(percentile)
        per_token = self.least_per_token + self.added_per_token.mean
        later_tokens = np.maximum(0.0, self.tokens - 1.0)
        wait_variance = self.p_waits * (self.wait.variance + self.wait.mean**2) - (self.p_waits * self.wait.mean) ** 2
        variance = self._variance_of_lengths(per_token) + self._added_variance + wait_variance
        variance = variance + self.added_per_token.variance * later_tokens**2
        varying = RandomTime(self.prompt.mean + self._added_and_wait + per_token * later_tokens, variance)
        steady_variance = self._variance_of_lengths(self.least_per_token)
        seconds = np.asarray(self.least_first_token - self.prompt.mean + varying.quantile(percentile, steady_variance))
        # Both times are approximated apart: where the first token is most of a request, it could seem to come after it.
        late = np.flatnonzero(self.mean_first_token > LATE_FIRST_TOKEN * self.mean_request)
        seconds[late] = np.maximum(seconds[late], taken(self, late).first_token(percentile))
        return seconds

    def _variance_of_lengths(self, seconds_per_token: Floats) -> Floats:
        """Variance of the time of a request that is due to the lengths of prompts and answers."""
        later_tokens = np.maximum(0.0, self.tokens - 1.0)
        return np.asarray(self.prompt.variance + self.answer_variation * (seconds_per_token * later_tokens) ** 2)

    def at_most(self, fed: Floats, clients: Floats) -> "ArrivalTimes":
        """Returns the times of a fixed number of clients whose requests are prepared at this rate at most.

        They wait for it before the engine, as long as Little's law says.
        """
        rate, wait = np.minimum(self.rate, fed), np.maximum(0.0, clients / fed - self.mean_request)
        running, first = self.running * rate / self.rate, self.least_first_token + wait
        return replace(self, rate=rate, running=running, least_first_token=np.asarray(first))

    @property
    def mean_first_token(self) -> Floats:
        """Mean seconds to the first token."""
        return self.least_first_token + self._added_and_wait

    @property
    def mean_per_token(self) -> Floats:
        """Mean seconds per token of the answer."""
        return self.least_per_token + self.added_per_token.mean

    @property
    def mean_request(self) -> Floats:
        """Mean seconds of a whole request; by Little's law, requests in flight over their rate."""
        return self.mean_first_token + np.maximum(0.0, self.tokens - 1.0) * self.mean_per_token

    @property
    def _added_variance(self) -> Floats:
        """Variance of the seconds that others add to the first token, which are 0 where the engine is empty."""
        with_prompts = self.p_prompts * (self.added_by_prompts.variance + self.added_by_prompts.mean**2)
        mean_square = with_prompts + (1.0 - self.p_prompts) * self.step_or_batch**2 / 3.0
        # The variance p E[x^2] - (p E[x])^2 falls again once p, the probability of a busy engine, exceeds
        # E[x^2] / 2 E[x]^2. It is kept at its greatest value from there, because no load makes a request faster.
        p_busy = np.minimum(1.0 - self.p_empty, mean_square / np.maximum(2.0 * self.mean_added**2, 1e-30))
        return np.maximum(0.0, p_busy * mean_square - (p_busy * self.mean_added) ** 2) * self._shortening**2

    @property
    def _added_and_wait(self) -> Floats:
        """Mean seconds that others add to the first token, with the wait for a place."""
        seconds = (1.0 - self.p_empty) * self.mean_added + self.p_waits * self.wait.mean
        return np.asarray(np.minimum(seconds, self.most_added) * self.littles_law_ratio)


@dataclass(frozen=True, slots=True)
class AnswerTimes(ArrivalTimes):
    """Times on engines that write answers to prompts which others read: a wait for a place counts per token."""

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer at a percentile, the share of the requests that take no longer."""
        of_one_length = replace(self, answer_variation=np.zeros(len(self.tokens)))
        return np.asarray(of_one_length.per_request(percentile) / self.tokens)

    @property
    def mean_per_token(self) -> Floats:
        """Mean seconds per token of the answer."""
        steps = (self.tokens - 1.0) * (self.least_per_token + self.added_per_token.mean)
        return np.asarray((self.mean_first_token + steps) / self.tokens)


@dataclass(frozen=True, slots=True)
class BatchTimes(ArrivalTimes):
    """Times on engines that start a static batch when the last one has ended."""

    batch_times: Floats
    """Seconds of the batch that a request finds, at each of `POINTS`."""
    own_batch: Floats
    """Seconds that the prompts of its own batch take beyond their mean, at each of `POINTS`: a longer batch that it
    finds brings more of them."""
    least_per_token_of_full: Floats
    """`least_per_token` in a batch that takes all places."""
    added_per_token_of_full: RandomTime
    """`added_per_token` in a batch that takes all places."""
    batches: Floats
    """Mean batches that a request takes, above 1 for clients that take turns; random arrivals wait in `wait`."""
    seconds_of_batch: Floats
    """Mean seconds of a batch."""

    def longer_prompt(self, percentile: float) -> Floats:
        """Seconds that a prompt whose length is at a percentile takes longer than a mean one, with the batches that the
        client waits for beyond their mean.
        """
        late = more_batches_than_mean(self.batches, percentile) * self.seconds_of_batch
        return ArrivalTimes.longer_prompt(self, percentile) + late

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer at a percentile, the share of the requests that take no longer.

        It is at most the time in full batches, because no batch is larger; the gamma distribution has no upper end.
        """
        full = self.least_per_token_of_full + self.added_per_token_of_full.quantile(percentile)
        return np.minimum(ArrivalTimes.per_output_token(self, percentile), full)

    def p_added_above(self, seconds: Floats) -> Floats:
        """Probability that others add more than these seconds to the time to the first token.

        The rest of the batch that a request finds is uniformly distributed; the wait for more batches is exponential.
        """
        p_empty, p_waits, wait = self.p_empty[:, None], self.p_waits[:, None], self.wait.mean[:, None]
        after = np.maximum(seconds[:, None] - self.own_batch, 0.0)
        rest = np.minimum(after, self.batch_times)
        decay = np.exp((rest - after) / wait) - np.exp(-after / wait)
        at_points = (1.0 - p_empty) * (1.0 - rest / self.batch_times) + p_waits * wait / self.batch_times * decay
        return np.asarray(at_points.mean(axis=1))


def _batch_times_of_arrivals(seconds: EngineTimes, rate: Floats, places: Floats, serving: Serving) -> BatchTimes:
    """Returns the times of requests that arrive at random at engines with static batches.

    A request waits for the rest of the batch that it finds, for more batches if the next is full, and for the prompts
    of its own. By Little's law, the requests that are left over at the end of a batch say how long it waits for more.
    """
    batches = batches_of_arrivals(seconds, rate, places, serving.answer)
    size, variation = batches.size, batches.variance_of_seconds / batches.seconds**2
    # A batch is found with a probability in proportion to its time, which is gamma distributed.
    mean_found = np.asarray(batches.seconds * (1.0 + variation))
    time_found = RandomTime(mean_found, mean_found**2 * variation / (1.0 + variation))
    # So is the batch in which a request is answered itself.
    own_size = np.minimum(size + batches.variance / size, places)
    own_variance = np.minimum(batches.variance * own_size / size, (own_size - 1.0) * (places - own_size))
    least_first_token = seconds.arrival + seconds.of_steps(1.0) + own_size * seconds.of_request(1.0)
    p_empty = batches.p_no_arrival / size
    # Not more requests can wait than find the engine busy.
    wait = np.maximum(batches.wait_of_those, batches.wait / np.maximum(1.0 - p_empty, 1e-12))
    # Requests that arrive in the time of a batch join the next one; their number is Poisson distributed.
    joining, prompt = np.minimum(rate * mean_found, places - 1.0), seconds.of_request(1.0)
    own_batch = np.sqrt((prompt * joining / mean_found) ** 2 * time_found.variance + prompt**2 * joining)
    of_answers, of_full = (
        variance / np.maximum(serving.answer.mean - 1.0, 1.0) ** 2
        for variance in (batches.variance_of_longest, variance_of_longest(seconds, places, serving.answer))
    )
    times = _batch_times(seconds, rate, size, np.asarray(least_first_token), serving)
    full = _batch_times(seconds, rate, places, np.asarray(least_first_token), serving)
    per_other = steps_per_token(serving.answer.mean, serving.answer.longest_of(size)) * seconds.request
    return replace(
        times,
        added_per_token=RandomTime((own_size - 1.0) * per_other, own_variance * per_other**2 + of_answers),
        least_per_token_of_full=full.least_per_token,
        added_per_token_of_full=RandomTime(full.added_per_token.mean, of_full),
        p_empty=p_empty,
        p_waits=batches.wait / wait,
        step_or_batch=np.asarray(batches.seconds * np.sqrt((1.0 + variation) * (1.0 + 2.0 * variation))),
        mean_added=mean_found / 2.0,
        wait=RandomTime(wait, wait**2),
        batch_times=time_found.at_points(),
        own_batch=own_batch[:, None] * POINTS,
    )


def _batch_times_of_clients(seconds: EngineTimes, clients: Floats, places: Floats, serving: Serving) -> BatchTimes:
    """Returns the times of clients that send their next request at the end of a batch, so that they find no other."""
    longest = serving.answer.longest_of(np.minimum(clients, places))
    state = steady_state(seconds, clients, places, serving.answer.mean, longest)
    rate, first_token = 1.0 / np.asarray(state.per_request.total(seconds)), state.to_first_token.total(seconds)
    times = _batch_times(seconds, rate, np.asarray(state.running), np.asarray(first_token), serving)
    return replace(times, batches=np.maximum(1.0, clients / places), seconds_of_batch=times.running / rate)


def _batch_times(seconds: EngineTimes, rate: Floats, size: Floats, first_token: Floats, serving: Serving) -> BatchTimes:
    """Returns the times of requests that all take these seconds to the first token, in batches of a mean size."""
    zero, one = np.zeros(len(rate)), np.ones(len(rate))
    steps = steps_per_token(serving.answer.mean, serving.answer.longest_of(size))
    least_per_token = np.asarray(steps * (seconds.step + seconds.request))
    added_per_token = RandomTime(np.asarray(steps * (size - 1.0) * seconds.request), zero)
    return BatchTimes(
        rate=rate,
        running=size,
        least_first_token=first_token,
        prompt=_prompt_time(seconds, serving, len(rate)),
        p_empty=one,
        p_waits=zero,
        step_or_batch=zero,
        p_prompts=zero,
        added_by_prompts=RandomTime(zero, zero),
        mean_added=zero,
        most_added=np.full(len(rate), np.inf),
        least_added=zero,
        littles_law_ratio=one,
        wait=RandomTime(one, one),
        added_per_token=added_per_token,
        least_per_token=least_per_token,
        tokens=np.full(len(rate), serving.answer.mean),
        answer_variation=zero,
        batch_times=np.ones((len(rate), len(POINTS))),
        own_batch=np.zeros((len(rate), len(POINTS))),
        least_per_token_of_full=least_per_token,
        added_per_token_of_full=added_per_token,
        batches=one,
        seconds_of_batch=zero,
    )


def _prompt_time(seconds: EngineTimes, serving: Serving, engines: int) -> RandomTime:
    """Returns the seconds of a prompt on each engine, which vary with its length."""
    mean = np.broadcast_to(np.asarray(seconds.prompt, np.float64), engines)
    return RandomTime(mean, mean**2 * serving.prompt.variation)


def running_at(seconds: EngineTimes, load: Floats, places: Floats, serving: Serving) -> Floats:
    """Returns the mean requests in each engine; random arrivals without static batches find unlimited places."""
    tokens = serving.answer.mean
    if serving.static_batches:
        if serving.concurrency is None:
            return batches_of_arrivals(seconds, load, places, serving.answer).size
        return np.minimum(load, places)
    if serving.concurrency is not None:
        return np.asarray(steady_state(seconds, np.maximum(1.0, load), places, tokens).running)
    work = seconds.of_request(tokens)
    return np.asarray(load * (seconds.of_steps(tokens) + work) / (1.0 - np.minimum(load * work, ALMOST_ONE)))


def arrival_times(seconds: EngineTimes, load: Floats, places: Floats, serving: Serving) -> ArrivalTimes:
    """Returns the times of requests on engines that run at most `places` requests at once.

    The load of each engine is in requests per second, or in requests in flight where `serving` has a concurrency.
    """
    if serving.concurrency is None:
        of_arrivals = _batch_times_of_arrivals if serving.static_batches else _times_of_arrivals
        return of_arrivals(seconds, load, places, serving)
    of_clients = _batch_times_of_clients if serving.static_batches else _times_of_clients
    return of_clients(seconds, np.maximum(1.0, load), places, serving)


def _both(added: Number, longer_prompt: Floats) -> Floats:
    """Returns the seconds that the two add together at a percentile. Waits and lengths of prompts are independent, so
    that not both are at the percentile.
    """
    # The hypotenuse by numpy's function takes ten times as long.
    return np.sqrt(np.square(added) + longer_prompt**2)


class _Queue(NamedTuple):
    """Requests in engines with continuous batching, by fields of `ArrivalTimes`."""

    rate: Floats
    running: Floats
    others: Floats
    """Mean other requests that run while one does."""
    others_variance: Floats
    p_empty: Floats
    p_waits: Floats
    wait: RandomTime


def _times_of_arrivals(seconds: EngineTimes, rate: Floats, places: Floats, serving: Serving) -> ArrivalTimes:
    """Returns the times of requests that arrive at random."""
    work = np.asarray(seconds.of_request(serving.answer.mean), np.float64)
    steps_over_work = np.asarray(seconds.of_steps(serving.answer.mean) / work)
    busy, unlimited = np.minimum(rate * work, ALMOST_ONE), running_at(seconds, rate, places, serving)
    others = np.minimum(unlimited, places - 1.0)
    # Prompts that arrive in one step are read together, which adds to the variance of processor sharing.
    variance = np.minimum(unlimited / (1.0 - busy) ** 2, others * np.maximum(1.0, (places - 1.0) / 6.0))
    p_empty = np.asarray(np.exp((steps_over_work + 1.0) * np.log1p(-busy)), np.float64)
    p_waits, wait = wait_for_place(rate, steps_over_work, work, places, serving.answer.variation)
    queue = _Queue(rate, np.minimum(unlimited, places), others, variance, p_empty, p_waits, wait)
    return _times_in(queue, rate, seconds, places, serving)


def _times_of_clients(seconds: EngineTimes, clients: Floats, places: Floats, serving: Serving) -> ArrivalTimes:
    """Returns the times of clients that each send the next request when the last one has ended.

    Clients must not outnumber the places, which `LoadSearch` ensures, so that no request waits for one.
    """
    state, zero = steady_state(seconds, clients, places, serving.answer.mean), np.zeros(len(clients))
    rate, others = 1.0 / np.asarray(state.per_request.total(seconds)), np.asarray(state.others)
    is_alone = np.asarray(clients <= 1.0, np.float64)
    queue = _Queue(rate, np.asarray(state.running), others, others, is_alone, zero, RandomTime(zero, zero))
    step = _step(seconds, others)
    mean_added = np.maximum(np.asarray(state.to_first_token.total(seconds)) - _least_first_token(seconds, step), 0.0)
    # Clients that wait for each other's prompts meet less often than random arrivals of the same rate do.
    meeting_rate = _rate_that_adds(mean_added, rate, step, seconds.prompt, serving.prompt.variation)
    times = _times_in(queue, meeting_rate, seconds, places, serving)
    most_added = (clients - 1.0) * seconds.prompt + step
    by_queue = np.minimum((1.0 - times.p_empty) * times.mean_added, most_added)
    return replace(
        times,
        most_added=most_added,
        least_added=np.minimum(mean_added, most_added),
        littles_law_ratio=mean_added / np.maximum(by_queue, 1e-12),
    )


def _times_in(
    queue: _Queue, meeting_rate: Floats, seconds: EngineTimes, places: Floats, serving: Serving
) -> ArrivalTimes:
    """Returns the times in a queue. `meeting_rate` is the rate of random arrivals whose prompts a request meets."""
    tokens, step = serving.answer.mean, _step(seconds, queue.others)
    added = _added_by_others(meeting_rate, step, seconds.prompt, queue.p_empty, serving.prompt.variation)
    added_per_token = np.asarray(seconds.request + seconds.prompt / tokens)
    return (AnswerTimes if serving.disaggregated else ArrivalTimes)(
        rate=queue.rate,
        running=queue.running,
        least_first_token=_least_first_token(seconds, step),
        prompt=_prompt_time(seconds, serving, len(places)),
        p_empty=np.where(places <= 1.0, 1.0, queue.p_empty),  # the only request that runs is not slowed down
        p_waits=queue.p_waits,
        step_or_batch=step,
        p_prompts=added.p_prompts,
        added_by_prompts=added.by_prompts,
        mean_added=np.where(places <= 1.0, 0.0, added.mean),
        most_added=np.full(len(places), np.inf),
        least_added=np.zeros(len(places)),
        littles_law_ratio=np.ones(len(places)),
        wait=queue.wait,
        added_per_token=RandomTime(
            np.maximum(queue.others, 0.0) * added_per_token, queue.others_variance * added_per_token**2
        ),
        least_per_token=np.asarray(seconds.step + seconds.request, np.float64),
        tokens=np.full(len(places), tokens),
        answer_variation=np.full(len(places), serving.answer.variation),
    )


def _step(seconds: EngineTimes, others: Number) -> Floats:
    """Returns the seconds of a step without prompts, in which a request and these others run."""
    return np.asarray(seconds.step + (1.0 + others) * seconds.request, np.float64)


def _least_first_token(seconds: EngineTimes, step: Floats) -> Floats:
    """Returns the seconds to the first token of a request that waits for no others."""
    return np.asarray(seconds.arrival + step + seconds.prompt + seconds.own)


def _rate_that_adds(mean_added: Floats, most: Floats, step: Floats, prompt: Number, variation: float) -> Floats:
    """Returns the rate of random arrivals, at most `most`, at which others add these mean seconds.

    By `_added_by_others` the mean is (1/2 + s) (step / (1 - s) + v s / (1 - s^2)), where s is the share of the time
    that reads prompts, and v = prompt (1 + variation). This is a quadratic equation in s.
    """
    v = prompt * (1.0 + variation)
    a, b, c = v + step + mean_added, (v + 3.0 * step) / 2.0, np.maximum(mean_added - step / 2.0, 0.0)
    share = 2.0 * c / (b + np.sqrt(b**2 + 4.0 * a * c))
    return np.where(share < MOST_SHARE, np.minimum(most, share / np.maximum(prompt, 1e-30)), most)


class _Added(NamedTuple):
    """Seconds that others add to a request that finds the engine busy."""

    p_prompts: Floats
    """Probability that the request finds prompts of others."""
    by_prompts: RandomTime
    """Seconds that others add to a request that finds prompts."""
    mean: Floats
    """Mean seconds that others add, whether there are prompts or not."""


def _added_by_others(rate: Floats, step: Floats, prompt: Number, p_empty: Floats, variation: float) -> _Added:
    """Returns the seconds that others add, from the moments of the length of a step."""
    share, second = np.minimum(rate * prompt, MOST_SHARE), 1.0 + variation
    mean = step / (1.0 - share)
    variance = prompt * second * share * mean / (1.0 - share**2)
    third_moment = prompt * share * (prompt * mean + 3.0 * share * variance) / (1.0 - cube(share))
    # A request finds a step with a probability in proportion to the length of the step.
    mean_found = (variance + mean**2) / mean
    mean_square_found = third_moment / mean + 3.0 * variance + mean**2
    # The request waits for the rest of this step, uniformly distributed, and for the prompts that arrive during it.
    added = mean_found * (0.5 + share)
    added_square = mean_square_found * (1.0 / 3.0 + share + share**2) + prompt * second * share * mean_found
    p_prompts = 1.0 - (1.0 - share) * np.exp(-rate * mean)
    likely = np.maximum(p_prompts, 1e-12)
    # Requests that find no prompts wait for the rest of a step; the remainder of both moments is of those that do find
    # some. They wait for two parts of steps, so their variance is at least that of a sum of two uniform times.
    with_prompts = (added - (1.0 - p_prompts) * step / 2.0) / likely
    square = (added_square - (1.0 - p_prompts) * step**2 / 3.0) / likely
    by_prompts = RandomTime(with_prompts, np.maximum(square - with_prompts**2, with_prompts**2 / 6.0))
    return _Added(np.minimum(1.0, p_prompts / np.maximum(1.0 - p_empty, 1e-12)), by_prompts, added)
