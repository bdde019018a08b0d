"""An engine that serves, simulated step by step and request by request: slow, and obviously right."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from random import Random

from service.domain.physics.serving import EngineTimes


@dataclass(slots=True)
class SimulatedRequest:
    """A request with the seconds at which it was sent and got its first and its last token."""

    sent: float
    tokens: int
    first: float = 0.0
    last: float = 0.0
    got: int = 0


@dataclass(frozen=True, slots=True)
class Observed:
    """Requests that clients got answered once the engine had settled."""

    seconds: float
    requests: list[SimulatedRequest]

    @property
    def requests_per_second(self) -> float:
        return len(self.requests) / self.seconds

    @property
    def seconds_per_output_token(self) -> float:
        decoded = sum(request.last - request.first for request in self.requests)
        return decoded / sum(request.tokens - 1 for request in self.requests)


@dataclass(slots=True)
class SimulatedEngine:
    """An engine and the clients that each send a request when their last one has ended.

    Every step reads the prompts that have arrived while there is a place, and yields a token of each request.
    """

    times: EngineTimes
    places: int
    output_tokens: int
    random: Random
    now: float = 0.0
    sent: deque[SimulatedRequest] = field(default_factory=deque)
    running: list[SimulatedRequest] = field(default_factory=list)
    ended: list[SimulatedRequest] = field(default_factory=list)

    def send(self, at: float) -> None:
        """A client sends a request; answers differ in length."""
        tokens = max(2, round(self.output_tokens * self.random.uniform(0.5, 1.5)))
        self.sent.append(SimulatedRequest(at, tokens))

    def step(self) -> None:
        """Takes requests in, yields a token of each, and lets the clients of those that ended send the next."""
        before = len(self.running)
        while self.sent and len(self.running) < self.places and self._arrives(self.sent[0]) <= self.now:
            self.running.append(self.sent.popleft())
        if not self.running:
            self.now = self._arrives(self.sent[0])
            return
        prompts = len(self.running) - before
        self.now += float(self.times.total(EngineTimes(1.0, len(self.running), prompts, 0.0)))
        for request in self.running:
            request.got += 1
            request.first = request.first or self.now
            request.last = self.now
        for request in [each for each in self.running if each.got == each.tokens]:
            self.running.remove(request)
            self.ended.append(request)
            self.send(self.now)

    def _arrives(self, request: SimulatedRequest) -> float:
        return request.sent + float(self.times.arrival)


def simulate(
    times: EngineTimes, in_flight: int, places: int, output_tokens: int, *, requests: int, seed: int
) -> Observed:
    """Runs the engine; the first third of the requests is left out, as the engine fills up in that time."""
    engine = SimulatedEngine(times, places, output_tokens, Random(seed))
    # Clients that start together would go on in step.
    spread = output_tokens * float(times.step + in_flight * times.request)
    for start in sorted(engine.random.uniform(0.0, spread) for _ in range(in_flight)):
        engine.send(start)
    settled, skipped = 0.0, requests // 3
    while len(engine.ended) < requests:
        engine.step()
        if len(engine.ended) <= skipped:
            settled = engine.now
    return Observed(engine.now - settled, engine.ended[skipped:])


def simulate_arrivals(
    times: EngineTimes, rate: float, places: int, lengths: Sequence[int], random: Random
) -> list[SimulatedRequest]:
    """Runs an engine that requests reach at random; the first fifth of them is left out, as the engine fills up.

    Every step reads the prompts that have arrived while there is a place, and yields a token of each request. Steps
    without a change of what runs follow each other, so they are taken at once.
    """
    requests = _sent_at_random(rate, lengths, random)
    _answer(times, requests, places)
    return requests[len(requests) // 5 :]


def simulate_disaggregated(
    times: EngineTimes,
    transfer: float,
    rate: float,
    places: int,
    lengths: Sequence[int],
    replicas: tuple[int, int],
    random: Random,
) -> list[SimulatedRequest]:
    """Runs engines of which some read prompts, one after another, and send their caches, also one after another, to
    the others, which write the answers; each request goes to one of each kind at random.
    """
    requests = _sent_at_random(rate, lengths, random)
    reading, sending = [0.0] * replicas[0], [0.0] * replicas[0]
    answers = [list[tuple[SimulatedRequest, SimulatedRequest]]() for _ in range(replicas[1])]
    read = float(times.step + times.request + times.prompt)
    for request in requests:
        replica = random.randrange(replicas[0])
        reading[replica] = max(reading[replica], request.sent + float(times.arrival)) + read
        sending[replica] = max(sending[replica], reading[replica]) + transfer
        request.first = sending[replica]
        random.choice(answers).append((request, SimulatedRequest(request.first, request.tokens - 1)))
    for pairs in answers:
        later = sorted((rest for _, rest in pairs), key=lambda rest: rest.sent)
        _answer(EngineTimes(times.step, times.request, 0.0, 0.0), later, places)
        for request, rest in pairs:
            request.last = rest.last
    return requests[len(requests) // 5 :]


def _sent_at_random(rate: float, lengths: Sequence[int], random: Random) -> list[SimulatedRequest]:
    sent, requests = 0.0, []
    for tokens in lengths:
        sent += random.expovariate(rate)
        requests.append(SimulatedRequest(sent, tokens))
    return requests


def _answer(times: EngineTimes, requests: Sequence[SimulatedRequest], places: int) -> None:
    """Answers requests in the order in which they were sent."""
    waiting, running, now = deque(requests), list[SimulatedRequest](), 0.0
    while waiting or running:
        before = len(running)
        while waiting and len(running) < places and waiting[0].sent + float(times.arrival) <= now:
            running.append(waiting.popleft())
        if not running:
            now = waiting[0].sent + float(times.arrival)
            continue
        step = float(times.step) + len(running) * float(times.request)
        now += step + (len(running) - before) * float(times.prompt)
        for request in running[before:]:
            request.first = now
        steps = 1 + _plain_steps(times, running, waiting, places, now, step)
        now += (steps - 1) * step
        for request in running:
            request.got, request.last = request.got + steps, now
        running = [request for request in running if request.got < request.tokens]


def simulate_batches(
    times: EngineTimes, rate: float, places: int, lengths: Sequence[int], random: Random
) -> list[SimulatedRequest]:
    """Runs an engine with static batches that requests reach at random; the first fifth of them is left out.

    It takes what has arrived, as far as there are places, reads all prompts, and takes no more until the longest answer
    has ended, with which all answers are sent.
    """
    requests = _sent_at_random(rate, lengths, random)
    waiting, now = deque(requests), 0.0
    while waiting:
        now = max(now, waiting[0].sent + float(times.arrival))
        batch = list[SimulatedRequest]()
        while waiting and len(batch) < places and waiting[0].sent + float(times.arrival) <= now:
            batch.append(waiting.popleft())
        step = float(times.step) + len(batch) * float(times.request)
        first = now + len(batch) * float(times.prompt) + step
        now = first + (max(request.tokens for request in batch) - 1) * step
        for request in batch:
            request.first, request.last = first, now
    return requests[len(requests) // 5 :]


def _plain_steps(
    times: EngineTimes,
    running: Sequence[SimulatedRequest],
    waiting: deque[SimulatedRequest],
    places: int,
    now: float,
    step: float,
) -> int:
    """Steps that follow before a request ends or joins."""
    until_end = min(request.tokens - request.got for request in running) - 1
    if not waiting or len(running) == places:
        return until_end
    joins = waiting[0].sent + float(times.arrival)
    return max(0, min(until_end, ceil((joins - now) / step)))
