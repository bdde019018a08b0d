"""An engine whose requests take cache as their answers grow, simulated step by step: slow, and obviously right."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random


@dataclass(slots=True)
class GrowingRequest:
    """A request with the tokens of its prompt, of its answer, and of what it has written of it."""

    prompt: int
    answer: int
    written: int = 0

    @property
    def held(self) -> int:
        return self.prompt + self.written


def mean_running(cache_tokens: int, prompt: int, draw_answer: Callable[[Random], int], requests: int) -> float:
    """Mean requests that run at once while requests always wait, until so many have ended.

    A request is admitted while the cache has room for what it holds, and the request that came last is stopped when the
    cache is full; it goes on later from the tokens that it has written.
    """
    random = Random(0)
    running: list[GrowingRequest] = []
    stopped: list[GrowingRequest] = []
    counts: list[int] = []
    ended = 0
    while ended < requests:
        while True:
            arriving = stopped.pop() if stopped else GrowingRequest(prompt, draw_answer(random))
            if running and sum(request.held for request in running) + arriving.held >= 0.99 * cache_tokens:
                stopped.append(arriving)
                break
            running.append(arriving)
        for request in running:
            request.written += 1
        ended += sum(request.written >= request.answer for request in running)
        counts.append(len(running))
        running = [request for request in running if request.written < request.answer]
        while sum(request.held for request in running) > cache_tokens:
            stopped.append(running.pop())
    settled = counts[len(counts) // 4 :]
    return sum(settled) / len(settled)
