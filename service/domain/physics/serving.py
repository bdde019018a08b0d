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

from service.domain.arrays import Number

TURNS_OF_A_BURST = 4.0
"""Turns after which a burst counts as a steady state."""


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Seconds that an engine takes for each part of its work, or how often a figure counts each of these parts."""

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
        """Seconds that a request with an answer of these tokens adds to the work of the engine."""
        return tokens * self.request + self.prompt

    def of_steps(self, tokens: Number) -> Number:
        """Seconds of the steps of an answer of these tokens, without the work that requests add to them."""
        return tokens * self.step + self.own

    def times(self, factor: Number) -> "EngineTimes":
        """Returns the seconds of an engine that takes this factor longer for everything."""
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
    """Whether requests wait for a place."""

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
        """Parts of the time from sending a request to its first token: by Little's law N / X, less the later tokens."""
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
    next requests. The time per token is the time from the first token to the end of the batch, divided by the tokens
    of the answer after the first one.
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
        """Parts of the time between the ends of two requests: those of a batch, divided by its requests."""
        idle = np.where(self.queues, 0.0, 1.0 / self.running)
        return EngineTimes(self.longest / self.running, self.longest, 1.0, idle, 1.0 / self.running)

    @property
    def to_first_token(self) -> EngineTimes:
        """Parts of the time from sending a request to its first token: by Little's law N / X, less the later tokens."""
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
        running, queues = np.minimum(in_flight, most_running), np.asarray(in_flight > most_running)
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
