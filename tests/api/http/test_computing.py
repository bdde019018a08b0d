"""Threads for answers that take long: how many there are, what they pass on, and what they count."""

import asyncio
from contextvars import ContextVar
from threading import Barrier, BrokenBarrierError, current_thread, main_thread
from time import thread_time

import pytest

from service.api.http.computing import THREADS, in_thread
from service.api.http.observe import REGISTRY

TRACE: ContextVar[str] = ContextVar("trace")


def figure(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


def test_a_function_runs_in_another_thread_with_the_context_of_its_request() -> None:
    async def ask() -> tuple[str, bool]:
        TRACE.set("of this request")
        return await in_thread(lambda: (TRACE.get(), current_thread() is main_thread()))

    assert asyncio.run(ask()) == ("of this request", False)


def test_cpu_time_is_counted_although_the_function_fails() -> None:
    def fail() -> None:
        started = thread_time()
        while thread_time() < started + 0.02:
            pass
        raise ValueError("no answer")

    before = figure("selector_computation_cpu_seconds_total")
    with pytest.raises(ValueError, match="no answer"):
        asyncio.run(in_thread(fail))
    assert figure("selector_computation_cpu_seconds_total") >= before + 0.02
    assert figure("selector_computations_in_flight") == 0


def test_no_more_functions_run_at_once_than_there_are_threads() -> None:
    together = THREADS._max_workers
    barrier = Barrier(together + 1)

    def meet() -> bool:
        try:
            barrier.wait(timeout=0.3)
        except BrokenBarrierError:
            return False
        return True

    async def ask() -> list[bool]:
        return await asyncio.gather(*(in_thread(meet) for _ in range(together + 1)))

    assert not any(asyncio.run(ask()))
