"""Sends requests to a server over loopback as fast as it answers; the client itself takes almost no time."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter
from typing import cast

import uvloop

from bench.figures import percentile

HOST = "127.0.0.1"
WARM_UP_SECONDS = 0.15
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LAST_CHUNK = b"\r\n0\r\n\r\n"
"""The end of an answer that is sent in parts. JSON never contains these bytes."""
LONGEST_WAIT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Asked:
    """The figures of one spell of requests."""

    per_second: float
    p50_seconds: float
    p99_seconds: float
    statuses: dict[int, int]
    answer_bytes: int


class Asker(asyncio.Protocol):
    """A connection that sends one request after another, each after a whole answer, until it is stopped or has none."""

    def __init__(self, requests: Iterator[bytes], statuses: Counter[int]) -> None:
        self.seconds: list[float] = []
        self.answer_bytes = 0
        self.closed = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._statuses = statuses
        self._transport: asyncio.WriteTransport
        self._stopping = False
        self._began = 0.0
        self._head = b""
        self._missing = 0
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's class does not inherit from it
        self._ask()

    def stop(self) -> None:
        self._stopping = True

    def forget(self) -> None:
        """Starts the measurement; everything before it was warming up."""
        self.seconds.clear()

    def _ask(self) -> None:
        request = None if self._stopping else next(self._requests, None)
        if request is None:
            self.stop()
            self._transport.close()
            return
        self._head = self._tail = b""
        self._began = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._is_whole(data):
            self.seconds.append(perf_counter() - self._began)
            self._statuses[int(self._head[9:12])] += 1
            self._ask()

    def _is_whole(self, data: bytes) -> bool:
        if self._missing:
            self._missing -= len(data)
            return not self._missing
        if self._tail:
            self.answer_bytes += len(data)
            self._tail = (self._tail + data)[-len(LAST_CHUNK) :]
            return self._tail == LAST_CHUNK
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return False
        return self._begins(end, len(self._head) - end - 4)

    def _begins(self, end: int, received: int) -> bool:
        """Reads the header, which ends at `end`, before so many bytes of the body. Returns whether that is all."""
        length = LENGTH.search(self._head, 0, end + 2)
        if length or b"chunked" not in self._head[:end].lower():
            self.answer_bytes = int(length[1]) if length else 0
            self._missing = self.answer_bytes - received
            return not self._missing
        self.answer_bytes = received
        self._tail = self._head[-len(LAST_CHUNK) :]
        return self._tail == LAST_CHUNK

    def connection_lost(self, _exc: Exception | None) -> None:
        if not self._stopping:
            self._statuses[0] += 1  # the server hung up
        if not self.closed.done():
            self.closed.set_result(None)


def ask(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Asked:
    """Sends the requests in turn over some connections for some seconds, or until one is answered.

    Runs in its own process.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(ask_all(port, requests, connections, seconds))


def ask_each(port: int, requests: Sequence[bytes]) -> tuple[float, Counter[int]]:
    """Sends each request once, one after the other. Returns the seconds for all of them, and the statuses."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(ask_in_turn(port, requests))


async def ask_in_turn(port: int, requests: Sequence[bytes]) -> tuple[float, Counter[int]]:
    statuses = Counter[int]()
    loop = asyncio.get_running_loop()
    _, asker = await loop.create_connection(lambda: Asker(iter(requests), statuses), HOST, port)
    await asyncio.wait_for(asker.closed, timeout=300)
    return sum(asker.seconds), statuses


async def _first_answer(askers: Sequence[Asker]) -> None:
    """Waits until one of the connections has an answer to count, at most `LONGEST_WAIT_SECONDS`."""
    latest = perf_counter() + LONGEST_WAIT_SECONDS
    while not any(asker.seconds for asker in askers) and perf_counter() < latest:
        await asyncio.sleep(0.001)


async def ask_all(port: int, requests: Sequence[bytes], connections: int, seconds: float) -> Asked:
    loop = asyncio.get_running_loop()
    turns, statuses = cycle(requests), Counter[int]()
    askers: list[Asker] = []
    for _ in range(connections):
        _, asker = await loop.create_connection(lambda: Asker(turns, statuses), HOST, port)
        askers.append(asker)
    # The first answer may compute what the following ones find in a cache, so warming up ends after it.
    await _first_answer(askers)
    await asyncio.sleep(WARM_UP_SECONDS)
    for asker in askers:
        asker.forget()
    began = perf_counter()
    await asyncio.sleep(seconds)
    await _first_answer(askers)
    took = perf_counter() - began
    measured = sorted(second for asker in askers for second in asker.seconds)
    for asker in askers:
        asker.stop()
    await asyncio.wait_for(asyncio.gather(*(asker.closed for asker in askers)), timeout=LONGEST_WAIT_SECONDS)
    return Asked(
        per_second=len(measured) / took,
        p50_seconds=percentile(measured, 50),
        p99_seconds=percentile(measured, 99),
        statuses=dict(statuses),
        answer_bytes=askers[0].answer_bytes,
    )
