"""Times of requests that reach an engine at random, with percentiles, from the seconds of its work.

Requests arrive with rate x (Poisson). Each of those in the engine slows down all others equally, so the number in the
engine follows from a queue with processor sharing: with e = n request + prompt and a = (n step + own) / e it is
negative binomial with parameters a + 1 and x e, of mean x (n step + own + e) / (1 - x e) (Kelly, Reversibility and
Stochastic Networks, 1979). Beyond the places of the engine its tail is geometric, and those requests wait.

A step reads all prompts that arrived during the step before. Its length is S = b + prompt K with K ~ Poisson(x S'),
which gives its first three moments. A request that arrives waits for the end of a step (steps count by their
length) and then for the prompts that came with it. `tests/oracles/serving.py` simulates all of this.
"""

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from service.domain.arrays import Floats, Mask, Number, taken
from service.domain.band import NORMAL
from service.domain.jobs.serving import Serving
from service.domain.physics.serving import EngineTimes, steady_state, steps_per_token

TERMS_OF_THE_TAIL = 64
"""Terms of the probability of a wait: the numbers of running requests, counted down from a full engine. The terms that
follow are too small to matter."""

ALMOST_ONE = 1.0 - 1e-6

MOST_SHARE = 0.95
"""Largest share of the time that reads prompts for which the moments of a step are computed; they diverge at 1."""

ROUNDS_OF_BATCHES = 6
"""Steps towards the mean size of a batch, from that of answers of the mean length."""

WITHIN_A_DEVIATION = (0.8413, 0.1587)
"""Shares of a normal distribution below one standard deviation above and below its mean."""

FULL_BATCHES = 0.8
"""Factor in the exponent that makes full batches rarer with more places: fitted to the simulation of
`tests/oracles/serving.py`."""

HALVINGS = 24
"""Steps of the search for a percentile: one part in ten million."""


@dataclass(frozen=True, slots=True)
class _Spread:
    """A time that varies: mean and variance, as those of a gamma distribution."""

    mean: Floats
    variance: Floats

    def share_above(self, seconds: Floats) -> Floats:
        """Probability of more than these seconds (Wilson and Hilferty, 1931)."""
        shape = np.maximum(self.mean, 1e-30) ** 2 / np.maximum(self.variance, 1e-12 * self.mean**2 + 1e-60)
        ratio = np.cbrt(np.maximum(seconds, 0.0) / np.maximum(self.mean, 1e-30))
        z = (ratio - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape)
        # A logistic curve is the normal one to 2 parts in 10,000, and numpy has no error function.
        normal = 1.0 / (1.0 + np.exp(np.clip(1.5976 * z + 0.07056 * z**3, -700.0, 700.0)))
        return np.where(seconds <= 0.0, 1.0, normal)

    def at(self, percentile: float, steady: Number = 0.0) -> Floats:
        """The seconds that this share does not exceed.

        Variance beyond the steady one grows with the load. It skews the times too, which would lower this percentile at
        last, and no load makes a request faster: it counts as far as it raises the percentile.
        """
        mean, normal = np.maximum(self.mean, 1e-30), NORMAL.inv_cdf(percentile)
        deviation, least = (np.sqrt(variance) / (3.0 * mean) for variance in (self.variance, steady))
        deviation = np.minimum(deviation, np.maximum(least, normal / 2.0))
        # The 99th percentile falls from a lower mean with this deviation to a greater one, unless it stays as it was.
        turn = np.maximum(deviation, (normal + sqrt(max(0.0, normal**2 - 5.0))) / 5.0 + 1e-9)
        over_mean, at_turn = (np.maximum(1.0 - each**2 + normal * each, 0.0) ** 3 for each in (deviation, turn))
        return np.asarray(self.mean * np.maximum(over_mean, deviation / turn * at_turn))


@dataclass(frozen=True, slots=True)
class ArrivalTimes:
    """Engines with requests that arrive at random; one entry per engine."""

    rate: Floats
    """Requests per second."""
    running: Floats
    """Mean requests in the engine."""
    least: Floats
    """Seconds to the first token of a request that does not wait for others."""
    own_prompt: Floats
    """Seconds that a longer prompt, at the percentile, adds to `least`."""
    prompt: _Spread
    """Seconds of a prompt, which are part of `least`."""
    alone: Floats
    """Probability that the engine is empty."""
    waits: Floats
    """Probability that no place is free."""
    plain_step: Floats
    """Seconds of a step without prompts."""
    prompts: Floats
    """Share of the arrivals at a busy engine that find a step with prompts."""
    of_others: _Spread
    """Seconds that the prompts of others add, among those arrivals."""
    others: Floats
    """Mean of what others add, among arrivals at a busy engine."""
    most_later: Floats
    """Most seconds that others can add: each client has one prompt at a time; infinite without a number of clients."""
    least_later: Floats
    """Seconds that others add at a percentile above one half at least: clients that come back meet as often as the mean
    says, however rarely random arrivals would; 0 for these.
    """
    by_littles_law: Floats
    """Mean seconds that others add by Little's law, over those that follow from the queue; 1 for random arrivals."""
    wait: _Spread
    """Seconds until a place is free, where none is."""
    per_token: _Spread
    """Seconds per token beyond those of a request that is alone."""
    least_per_token: Floats
    tokens: Floats
    answer_variation: Floats

    def _share_later(self, excess: Floats) -> Floats:
        """Probability that the first token comes more than `excess` seconds after the least time."""
        plain = np.maximum(0.0, 1.0 - excess / self.plain_step)
        free = (1.0 - self.prompts) * plain + self.prompts * np.maximum(plain, self.of_others.share_above(excess))
        busy = np.maximum(0.0, 1.0 - self.alone - self.waits)
        return np.asarray(busy * free + self.waits * self.wait.share_above(excess - self.others))

    @property
    def _shorter(self) -> Floats:
        """Factor of the seconds that others add at a percentile: below 1 where clients are fewer than two."""
        return np.clip(self.by_littles_law, 1e-9, 1.0)

    def first_token_within(self, limit: float, percentile: float) -> Mask:
        """Whether this share of the requests gets its first token within the limit."""
        slack = limit - self.least
        reached = slack >= np.hypot(self.least_later, self.own_prompt)
        surely = self.least + np.hypot(self.most_later, self.own_prompt) <= limit
        excess = np.sqrt(np.maximum(slack**2 - self.own_prompt**2, 0.0)) / self._shorter
        return np.asarray(surely | reached & (self._share_later(excess) <= 1.0 - percentile))

    def first_token(self, percentile: float) -> Floats:
        """Seconds to the first token that this share of the requests does not exceed."""
        excess = np.zeros(len(self.least))
        late = np.flatnonzero(self._share_later(excess) > 1.0 - percentile)
        if len(late):
            excess[late] = taken(self, late).excess_at(percentile)
        later = np.clip(excess * self._shorter, self.least_later, self.most_later)
        return np.asarray(self.least + np.hypot(later, self.own_prompt))

    def excess_at(self, percentile: float) -> Floats:
        """Seconds to the first token beyond the least, by halving; never fewer than the exact ones."""
        low, high = np.zeros(len(self.least)), np.maximum(self.least, 1e-9)
        while (late := self._share_later(high) > 1.0 - percentile).any():
            low, high = np.where(late, high, low), np.where(late, 4.0 * high, high)
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            late = self._share_later(middle) > 1.0 - percentile
            low, high = np.where(late, middle, low), np.where(late, high, middle)
        return high

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer that this share of the requests does not exceed."""
        return self.least_per_token + self.per_token.at(percentile)

    def per_request(self, percentile: float) -> Floats:
        """Seconds of a whole request that this share does not exceed: from the means and variances of its parts."""
        token = self.least_per_token + self.per_token.mean
        first = self._mean_excess
        later = np.maximum(0.0, self.tokens - 1.0)
        waited = self.waits * (self.wait.variance + self.wait.mean**2) - (self.waits * self.wait.mean) ** 2
        varies = self._of_lengths(token) + self._excess_variance + waited + self.per_token.variance * later**2
        spread = _Spread(self.prompt.mean + first + token * later, varies)
        steady = self._of_lengths(self.least_per_token)
        return np.asarray(self.least - self.prompt.mean + spread.at(percentile, steady))

    def _of_lengths(self, per_token: Floats) -> Floats:
        """Variance of a request by the lengths of prompts and answers, at so many seconds per token."""
        later = np.maximum(0.0, self.tokens - 1.0)
        return np.asarray(self.prompt.variance + self.answer_variation * (per_token * later) ** 2)

    @property
    def mean_first_token(self) -> Floats:
        """Mean seconds to the first token."""
        return self.least + self._mean_excess

    @property
    def mean_per_token(self) -> Floats:
        """Mean seconds per token of the answer."""
        return self.least_per_token + self.per_token.mean

    @property
    def mean_request(self) -> Floats:
        """Mean seconds of a whole request; by Little's law, requests in flight over their rate."""
        return self.mean_first_token + np.maximum(0.0, self.tokens - 1.0) * self.mean_per_token

    @property
    def _excess_variance(self) -> Floats:
        """Variance of what others add to the first token: nothing where the engine is empty."""
        with_prompts = self.prompts * (self.of_others.variance + self.of_others.mean**2)
        squared = with_prompts + (1.0 - self.prompts) * self.plain_step**2 / 3.0
        # An engine that is hardly ever empty varies less than one that often is, and no load makes a request faster.
        busy = np.minimum(1.0 - self.alone, squared / np.maximum(2.0 * self.others**2, 1e-30))
        return np.maximum(0.0, busy * squared - (busy * self.others) ** 2) * self._shorter**2

    @property
    def _mean_excess(self) -> Floats:
        excess = (1.0 - self.alone) * self.others + self.waits * self.wait.mean
        return np.asarray(np.minimum(excess, self.most_later) * self.by_littles_law)


@dataclass(frozen=True, slots=True)
class AnswerTimes(ArrivalTimes):
    """Engines that write answers to prompts which others read: a wait is part of the time per token."""

    def per_output_token(self, percentile: float) -> Floats:
        """Seconds per token of the answer that this share of the requests does not exceed."""
        of_one_length = replace(self, answer_variation=np.zeros(len(self.tokens)))
        return np.asarray(of_one_length.per_request(percentile) / self.tokens)

    @property
    def mean_per_token(self) -> Floats:
        """Mean seconds per token of the answer."""
        steps = (self.tokens - 1.0) * (self.least_per_token + self.per_token.mean)
        return np.asarray((self.mean_first_token + steps) / self.tokens)


@dataclass(frozen=True, slots=True)
class BatchTimes(ArrivalTimes):
    """Engines that start a batch when the last one has ended. `plain_step` is the time of the batch that an arrival
    finds; `wait` is what it waits for later batches, because the next one is full.
    """

    def _share_later(self, excess: Floats) -> Floats:
        """Probability that the first token comes more than `excess` seconds after the least time.

        An arrival finds any part of a batch left, each equally likely.
        """
        batch, later = np.maximum(self.plain_step, 1e-30), self.wait.mean
        rest = np.minimum(excess, batch)
        of_rest = 1.0 - rest / batch
        decay = np.exp((rest - excess) / later) - np.exp(-excess / later)
        return np.asarray((1.0 - self.alone) * of_rest + self.waits * later / batch * decay)


def _batches(seconds: EngineTimes, rate: Floats, places: Floats, serving: Serving) -> tuple[Floats, Floats, Floats]:
    """Returns the mean requests of a batch, its mean seconds, and the probability that none arrives in its time.

    The next batch is what arrived in the time of the last one, or the first request after an empty time.
    """
    tokens: Number = serving.answer.mean
    each = np.minimum(rate * (tokens * seconds.request + seconds.prompt), ALMOST_ONE)
    running = np.clip(rate * tokens * seconds.step / (1.0 - each), 1.0, places)
    for _ in range(ROUNDS_OF_BATCHES):
        tokens = serving.answer.longest_of(running)
        request = tokens * seconds.request + seconds.prompt
        batch = np.asarray(tokens * seconds.step + seconds.own + running * request)
        none = np.exp(-rate * batch)
        running = np.minimum(places, np.maximum(1.0, rate * batch + none))
    return running, batch, none


def _batch_times(seconds: EngineTimes, load: Floats, places: Floats, serving: Serving) -> BatchTimes:
    """Returns the times of engines with static batches.

    A random arrival waits for the rest of a batch and for the prompts of its own; where the next batch is full, it
    waits for later ones too. The wait for one place is that of Pollaczek and Khinchin; full batches are rarer with more
    places. Clients that send their next request at the end of a batch never meet the rest of another one.
    """
    zero, one = np.zeros(len(load)), np.ones(len(load))
    if serving.concurrency is None:
        rate, (running, batch, none) = load, _batches(seconds, load, places, serving)
        tokens = serving.answer.longest_of(places)
        each = np.asarray(tokens * seconds.request + seconds.prompt)
        full = np.asarray(tokens * seconds.step + seconds.own + places * each)
        busy = np.minimum(rate * full / places, ALMOST_ONE)
        varies = np.maximum(0.0, rate * batch * (1.0 - 2.0 * none) + none * (1.0 - none))
        varies = varies / (1.0 - np.minimum(rate * each, ALMOST_ONE) ** 2)
        high, low = (serving.answer.longest_of(running, share) for share in WITHIN_A_DEVIATION)
        varies = each**2 * varies + ((high - low) / 2.0 * (seconds.step + running * seconds.request)) ** 2
        # An arrival meets longer batches more often: moments of a gamma distribution.
        varies = varies / batch**2
        at_arrival, rest_of_batch = (
            np.asarray(batch * (1.0 + varies)),
            np.asarray(batch * np.sqrt((1.0 + varies) * (1.0 + 2.0 * varies))),
        )
        alone = np.minimum(none / (none + rate * batch), 1.0 - busy)
        waits = (1.0 - alone) * np.exp(-FULL_BATCHES * (1.0 - busy) * np.sqrt((places - 1.0) / busy))
        later = (1.0 + varies) * full * busy / (2.0 * (1.0 - busy) * places)
        own = (1.0 - alone) * np.minimum(rate * at_arrival, places - 1.0)
        first_step = seconds.step + seconds.own
        least = seconds.arrival + first_step + (1.0 + own) * (seconds.prompt + seconds.request)
    else:
        clients = np.maximum(1.0, load)
        longest = serving.answer.longest_of(np.minimum(clients, places))
        state = steady_state(seconds, clients, places, serving.answer.mean, longest)
        rate, running = 1.0 / np.asarray(state.per_request.total(seconds)), np.asarray(state.running)
        at_arrival, rest_of_batch, alone, waits, later, least = (
            zero,
            zero,
            one,
            zero,
            one,
            state.to_first_token.total(seconds),
        )
    more = serving.prompt.at(serving.percentile) / max(serving.prompt.mean, 1e-9) - 1.0
    answer, steps = serving.answer, steps_per_token(serving.answer.mean, serving.answer.longest_of(running))
    return BatchTimes(
        rate=rate,
        running=running,
        least=np.asarray(least),
        own_prompt=np.asarray(seconds.prompt * max(0.0, more)) + zero,
        prompt=_of_prompt(seconds, serving, len(load)),
        alone=alone,
        waits=waits,
        plain_step=rest_of_batch,
        prompts=zero,
        of_others=_Spread(at_arrival / 2.0, np.maximum(rest_of_batch**2 / 3.0 - at_arrival**2 / 4.0, 0.0)),
        others=at_arrival / 2.0,
        most_later=np.full(len(load), np.inf),
        least_later=zero,
        by_littles_law=one,
        wait=_Spread(later, later**2),
        least_per_token=np.asarray(steps * (seconds.step + running * seconds.request)),
        per_token=_Spread(zero, zero),
        tokens=np.full(len(load), answer.mean),
        answer_variation=zero,
    )


def _of_prompt(seconds: EngineTimes, serving: Serving, engines: int) -> _Spread:
    """Returns the seconds of a prompt on each engine, as prompts differ in length."""
    mean = np.broadcast_to(np.asarray(seconds.prompt, np.float64), engines)
    return _Spread(mean, mean**2 * serving.prompt.variation)


def running_at(seconds: EngineTimes, load: Floats, places: Floats, serving: Serving) -> Floats:
    """Mean requests in each engine, in proportion to those that a place is free for."""
    tokens = serving.answer.mean
    if serving.static_batches:
        return np.minimum(load, places) if serving.concurrency else _batches(seconds, load, places, serving)[0]
    if serving.concurrency is not None:
        return np.asarray(steady_state(seconds, np.maximum(1.0, load), places, tokens).running)
    each = tokens * seconds.request + seconds.prompt
    alone = tokens * seconds.step + seconds.own + each
    return np.asarray(load * alone / (1.0 - np.minimum(load * each, ALMOST_ONE)))


def arrival_times(seconds: EngineTimes, load: Floats, places: Floats, serving: Serving) -> ArrivalTimes:
    """Returns the times of engines of so many places.

    The load of each is in requests per second, or in requests in flight where `serving` has a concurrency.
    """
    if serving.static_batches:
        return _batch_times(seconds, load, places, serving)
    tokens, none = serving.answer.mean, np.zeros(len(load))
    each = np.asarray(tokens * seconds.request + seconds.prompt, np.float64)
    clients = None if serving.concurrency is None else np.maximum(1.0, load)
    state = None if clients is None else steady_state(seconds, clients, places, tokens)
    if state is not None:
        # As many clients send the next request when the last one has ended, so none waits for a place.
        running, others = np.asarray(state.running), np.asarray(state.others)
        rate = 1.0 / np.asarray(state.per_request.total(seconds))
        alone, waits, wait, varies = np.asarray(load <= 1.0, np.float64), none, _Spread(none, none), others
    else:
        rate, steps = load, np.asarray((tokens * seconds.step + seconds.own) / each)
        busy, free = np.minimum(rate * each, ALMOST_ONE), running_at(seconds, load, places, serving)
        running, others = np.minimum(free, places), np.minimum(free, places - 1.0)
        alone = np.asarray(np.exp((steps + 1.0) * np.log1p(-busy)), np.float64)
        waits, wait = _waiting(rate, steps, each, places, serving.answer.variation)
        # Arrivals in one step are read together, which adds to the variance of a queue with processor sharing.
        varies = np.minimum(free / (1.0 - busy) ** 2, others * np.maximum(1.0, (places - 1.0) / 6.0))
    step = np.asarray(seconds.step + (1.0 + others) * seconds.request, np.float64)
    most_later = np.full(len(load), np.inf) if clients is None else (clients - 1.0) * seconds.prompt + step
    more = serving.prompt.at(serving.percentile) / max(serving.prompt.mean, 1e-9) - 1.0
    per_token = np.asarray(seconds.request + seconds.prompt / tokens)
    least, by_law = np.asarray(seconds.arrival + step + seconds.prompt + seconds.own), np.ones(len(load))
    least_later, meeting = none, rate
    if state is not None:
        # Clients that wait for each other's prompts come together less often than random arrivals do.
        added = np.maximum(np.asarray(state.to_first_token.total(seconds)) - least, 0.0)
        meeting = _rate_that_adds(added, rate, step, seconds.prompt, serving.prompt.variation)
        least_later = added if serving.percentile > 0.5 else none
    prompts, of_others, excess = _prompts_of_others(meeting, step, seconds.prompt, alone, serving.prompt.variation)
    if state is not None:
        by_law = added / np.maximum(np.minimum((1.0 - alone) * excess, most_later), 1e-12)
    return (AnswerTimes if serving.disaggregated else ArrivalTimes)(
        rate=rate,
        running=running,
        least=least,
        own_prompt=np.asarray(seconds.prompt * max(0.0, more)),
        prompt=_of_prompt(seconds, serving, len(load)),
        alone=np.where(places <= 1.0, 1.0, alone),
        waits=waits,
        plain_step=step,
        prompts=prompts,
        of_others=of_others,
        others=np.where(places <= 1.0, 0.0, excess),
        most_later=most_later,
        least_later=np.minimum(least_later, most_later),
        by_littles_law=by_law,
        wait=wait,
        least_per_token=np.asarray(seconds.step + seconds.request, np.float64),
        per_token=_Spread(np.maximum(others, 0.0) * per_token, varies * per_token**2),
        tokens=np.full(len(load), tokens),
        answer_variation=np.full(len(load), serving.answer.variation),
    )


def _rate_that_adds(seconds: Floats, most: Floats, step: Floats, prompt: Number, variation: float) -> Floats:
    """The rate, up to the most, of random arrivals whose prompts add these seconds in the mean.

    With the share s of the time that reads prompts, the mean of `_prompts_of_others` is
    (1/2 + s) (step / (1 - s) + v s / (1 - s^2)), where v is the prompt with its variation: a quadratic equation for s.
    """
    varied = prompt * (1.0 + variation)
    a, b, c = varied + step + seconds, (varied + 3.0 * step) / 2.0, np.maximum(seconds - step / 2.0, 0.0)
    share = 2.0 * c / (b + np.sqrt(b**2 + 4.0 * a * c))
    return np.where(share < MOST_SHARE, np.minimum(most, share / np.maximum(prompt, 1e-30)), most)


def _prompts_of_others(
    rate: Floats, step: Floats, prompt: Number, alone: Floats, variation: float
) -> tuple[Floats, _Spread, Floats]:
    """The share of arrivals at a busy engine that meet prompts being read, the seconds that these add, and the mean
    seconds that others add to any arrival at a busy engine.
    """
    share, second = np.minimum(rate * prompt, MOST_SHARE), 1.0 + variation
    mean = step / (1.0 - share)
    variance = prompt * second * share * mean / (1.0 - share**2)
    third = prompt * share * (prompt * mean + 3.0 * share * variance) / (1.0 - share**3)
    # An arrival finds a step with a probability in proportion to its length.
    weighted = (variance + mean**2) / mean
    squared = (third + 3.0 * variance * mean + mean**3) / mean
    excess = weighted * (0.5 + share)
    excess_squared = squared * (1.0 / 3.0 + share + share**2) + prompt * second * share * weighted
    prompts = 1.0 - (1.0 - share) * np.exp(-rate * mean)
    likely = np.maximum(prompts, 1e-12)
    # The rest of the moments once arrivals at plain steps are taken out; those wait for half a step. They vary at least
    # as the sum of two parts of a step does, each of which is any part of it equally.
    with_prompts = (excess - (1.0 - prompts) * step / 2.0) / likely
    with_prompts_squared = (excess_squared - (1.0 - prompts) * step**2 / 3.0) / likely
    variance_with_prompts = np.maximum(with_prompts_squared - with_prompts**2, with_prompts**2 / 6.0)
    spread = _Spread(with_prompts, variance_with_prompts)
    return np.minimum(1.0, prompts / np.maximum(1.0 - alone, 1e-12)), spread, excess


def _waiting(rate: Floats, steps: Floats, each: Floats, places: Floats, variation: float) -> tuple[Floats, _Spread]:
    """The probability that all places are taken, and the seconds until one is free."""
    utilisation = np.clip(rate * (steps + places) * each / places, 1e-12, ALMOST_ONE)
    full = np.zeros(len(rate))
    near = np.flatnonzero(_may_be_full(rate * each, steps, places))
    full[near] = _share_full(rate[near] * each[near], steps[near], places[near])
    # Waits of answers of one length are about half of those of exponential ones (Cosmetatos, 1976).
    more = (1.0 - utilisation) * (places - 1.0) * (np.sqrt(4.0 + 5.0 * places) - 2.0) / (16.0 * places * utilisation)
    factor = variation + (1.0 - min(1.0, variation)) * np.minimum(1.0, (1.0 + more) / 2.0)
    mean = factor * (steps + places) * each / places / (1.0 - utilisation)
    # Pollaczek and Khinchin for one place; between that and an exponential wait for more.
    one = 4.0 / 3.0 * (1.0 + 3.0 * variation) / (1.0 + variation) ** 2 * (1.0 - utilisation) + 2.0 * utilisation - 1.0
    of_mean = np.where(places <= 1.0, one, (one + 1.0) / 2.0)
    waits = full / (1.0 - utilisation + utilisation * full)
    return waits, _Spread(mean, np.maximum(of_mean, 0.1) * mean**2)


def _may_be_full(busy: Floats, steps: Floats, places: Floats) -> Mask:
    """Whether all places are taken less than seven standard deviations above the mean of running requests."""
    free = (steps + 1.0) * busy / np.maximum(1.0 - busy, 1e-12)
    return np.asarray(places <= free + 7.0 * np.sqrt(free / np.maximum(1.0 - busy, 1e-12)) + 7.0)


def _share_full(busy: Floats, steps: Floats, places: Floats) -> Floats:
    """Probability of as many running requests as there are places, among those up to that number."""
    running = np.maximum(places[:, None] - np.arange(TERMS_OF_THE_TAIL), 0.0)
    ratios = running / np.maximum(busy[:, None] * (steps[:, None] + running), 1e-300)
    return np.asarray(1.0 / (1.0 + np.cumprod(ratios, axis=1).sum(axis=1)))
