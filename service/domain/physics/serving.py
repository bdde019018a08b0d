"""Steady state of an engine that serves: throughput, times and requests at once, all from the same seconds.

An engine repeats steps, and each yields a token of every request in the engine: the first step of a request reads its
prompt, and n steps give it n tokens. With N requests in flight, M of them are in the engine in the mean and the others
on their way. A request sees A = M (1 - 1/N) others (arrival theorem). It arrives when a step of theirs has begun, and

    R = (1 - 1/N) step + A request
    P = n (step + (1 + A) request) + (1 + A) prompt + own

are its seconds until the next step and in the engine. By Little's law N = X (arrival + R + P) with X = M / P requests
per second, and M is the root of a quadratic. X is never more than with all places of the engine taken; the
remaining requests then wait in a queue.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Number

TURNS_OF_A_BURST = 4.0
"""Turns after which a burst counts as a steady state."""


@dataclass(frozen=True, slots=True)
class EngineTimes:
    """Seconds that an engine needs for its parts of the work, or how often each of them counts in a figure."""

    step: Number
    """A step that yields tokens, whatever runs in it."""
    request: Number
    """Time that each running request adds to a step."""
    prompt: Number
    """Reading the prompt of one request."""
    arrival: Number
    """From the client to the engine and back, while other requests go on."""
    own: Number = 0.0
    """Adds to the step that reads the prompt of a request, once; or to the first step of a static batch."""

    def total(self, seconds: "EngineTimes") -> Number:
        """Seconds of a figure that counts each part so often."""
        return (
            self.step * seconds.step
            + self.request * seconds.request
            + self.prompt * seconds.prompt
            + self.arrival * seconds.arrival
            + self.own * seconds.own
        )

    def of_request(self, tokens: Number) -> Number:
        """Seconds that a request with an answer of so many tokens adds to the work of the engine."""
        return tokens * self.request + self.prompt

    def of_steps(self, tokens: Number) -> Number:
        """Seconds of the steps of an answer of so many tokens, without the work that requests add to them."""
        return tokens * self.step + self.own

    def times(self, factor: Number) -> "EngineTimes":
        """Returns the seconds of an engine that takes this factor longer for everything."""
        return EngineTimes(*(getattr(self, part) * factor for part in PARTS))


@dataclass(frozen=True, slots=True)
class SteadyState:
    """Requests in an engine at once, and how often each part of its work counts in the times of a request."""

    running: Number
    """Requests in the engine."""
    others: Number
    """Other requests that a request finds when it arrives."""
    others_decoding: Number
    """Other requests in the engine while a request gets its tokens; never more than the other places."""
    in_flight: Number
    tokens: Number
    """Tokens of an answer; 1 at least."""
    queues: Number
    """Whether requests wait for others to end."""

    @property
    def per_token(self) -> EngineTimes:
        """Parts of the time between two tokens of a request."""
        return EngineTimes(1.0, 1.0 + self.others_decoding, self.others_decoding / self.tokens, 0.0)

    @property
    def per_request(self) -> EngineTimes:
        """Parts of the time between the ends of two requests: P / M."""
        each = (1.0 + self.others) / self.running
        return EngineTimes(self.tokens / self.running, self.tokens * each, each, 0.0, 1.0 / self.running)

    @property
    def to_first_token(self) -> EngineTimes:
        """Parts of the time from sending a request to its first token: N / X less the later tokens."""
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
        """Figures of requests that are sent all at once, with none after them, by their mean and longest answer.

        Each prompt is read once, and each token adds its request to a step. Steps follow each other until the longest
        answer ends, and as often as answers take turns where not all run at once. While a request runs, half of the
        prompts of the others are still to be read, and shorter answers have ended. A burst of many turns is a
        steady state.
        """
        held = np.minimum(self.in_flight, most_running)
        turns = output * np.maximum(1.0, requests / held)
        steps = np.maximum(longest, turns + (longest - output) / 2.0)
        per_request = EngineTimes(steps / requests, output, 1.0, 1.0 / requests)
        per_token = EngineTimes(1.0, held * (1.0 + output / longest) / 2.0, held / 2.0 / self.tokens, 0.0)
        ends = np.asarray(requests < TURNS_OF_A_BURST * held)
        return BurstShares(_either(self.per_request, per_request, ends), _either(self.per_token, per_token, ends))


@dataclass(frozen=True, slots=True)
class StaticBatches(SteadyState):
    """Requests of an engine that starts a batch when all of the last one have ended: each waits for the longest.

    Prompts are read before the first step. All answers of a batch are sent at its end, and their clients then send the
    next requests. The time per token is that between the first token and the end, over the later tokens of an answer.
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
        """Parts of the time between the ends of two requests: those of a batch over its requests."""
        idle = np.where(self.queues, 0.0, 1.0 / self.running)
        return EngineTimes(self.longest / self.running, self.longest, 1.0, idle, 1.0 / self.running)

    @property
    def to_first_token(self) -> EngineTimes:
        """Parts of the time from sending a request to its first token: N / X less the later tokens."""
        token, request, later = self.per_token, self.per_request, self.tokens - 1.0
        return EngineTimes(*(self.in_flight * getattr(request, part) - later * getattr(token, part) for part in PARTS))

    def of_burst(self, requests: Number, most_running: Number, output: float, longest: float) -> "BurstShares":
        """Figures of requests that are sent all at once: as many batches as they take."""
        held = np.minimum(requests, np.minimum(self.in_flight, most_running))
        batches = np.ceil(requests / held)
        per_request = EngineTimes(batches * longest / requests, longest, 1.0, 1.0 / requests)
        steps = steps_per_token(self.tokens, longest)
        return BurstShares(per_request, EngineTimes(steps, held * steps, 0.0, 0.0))


def steps_per_token(tokens: Number, longest: Number) -> Number:
    """Returns the steps of a static batch after the first one over the later tokens of a mean answer."""
    return np.where(tokens > 1.0, (longest - 1.0) / np.maximum(tokens - 1.0, 1e-9), 1.0)


class BurstShares(NamedTuple):
    """Parts of two figures of a burst."""

    per_request: EngineTimes
    """Parts of its time over its requests."""
    per_token: EngineTimes


def _either(first: EngineTimes, second: EngineTimes, second_holds: Number) -> EngineTimes:
    return EngineTimes(*(np.where(second_holds, getattr(second, part), getattr(first, part)) for part in PARTS))


PARTS = tuple(EngineTimes.__dataclass_fields__)


def steady_state(
    seconds: EngineTimes, in_flight: Number, most_running: Number, output_tokens: Number, longest: Number | None = None
) -> SteadyState:
    """Returns the state of an engine that has `most_running` places, with `in_flight` requests in flight; for static
    batches, with the tokens of the longest answer of a batch.
    """
    tokens = np.maximum(1.0, output_tokens)
    if longest is not None:
        running, queues = np.minimum(in_flight, most_running), np.asarray(in_flight > most_running)
        return StaticBatches(running, running - 1.0, running - 1.0, in_flight, tokens, queues, longest)
    share = 1.0 - 1.0 / np.maximum(1.0, in_flight)
    one = tokens * (seconds.step + seconds.request) + seconds.prompt + seconds.own
    each = tokens * seconds.request + seconds.prompt
    # N (one + s each M) = M (one + arrival + s step + s M (each + request)) with s = 1 - 1/N
    a = share * (each + seconds.request)
    b = one + seconds.arrival + share * seconds.step - in_flight * share * each
    c = in_flight * one
    root = np.sqrt(b * b + 4.0 * a * c)
    # Each form is exact where the other subtracts nearly equal numbers.
    free = np.where(b > 0, 2.0 * c / (b + root), (root - b) / np.maximum(2.0 * a, 1e-300))
    others_free, places = free * share, most_running - 1.0
    queues = most_running / (one + places * each) < free / (one + others_free * each)
    running, others = np.where(queues, most_running, free), np.where(queues, places, others_free)
    return SteadyState(running, others, np.minimum(others_free, places), in_flight, tokens, queues)
