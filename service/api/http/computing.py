"""Threads for answers that take long to compute, so that the event loop can serve other requests."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from time import thread_time
from typing import ParamSpec, TypeVar

from prometheus_client import Counter, Gauge

from service.api.http.observe import REGISTRY

P = ParamSpec("P")
T = TypeVar("T")

THREADS = ThreadPoolExecutor(max_workers=2, thread_name_prefix="computing")
"""Computing holds the interpreter's lock, so more threads would not be faster and would take more memory."""

IN_FLIGHT = Gauge(
    "selector_computations_in_flight",
    "Answers that a thread computes, or that wait for one.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
CPU_SECONDS = Counter("selector_computation_cpu_seconds", "CPU seconds of answers in threads.", registry=REGISTRY)


async def in_thread(compute: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns the result of a function that may compute for more than 20 ms and does not wait for a database."""
    # The trace of the request is in its context.
    run = partial(copy_context().run, _measured, partial(compute, *args, **kwargs))
    with IN_FLIGHT.track_inprogress():
        return await asyncio.get_running_loop().run_in_executor(THREADS, run)


def _measured(compute: Callable[[], T]) -> T:
    started = thread_time()
    try:
        return compute()
    finally:
        CPU_SECONDS.inc(thread_time() - started)
