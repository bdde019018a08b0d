"""Clients that read and write all the time, and a watch over the version that each replica answers with."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from itertools import count, cycle
from time import perf_counter

import psycopg

from bench.load import HOST
from bench.questions import ESTIMATED, GPU_NAMED, LISTED, TRAINED, get
from bench.soak.report import Observation, Sent
from bench.writes import write

READERS, WRITERS = 4, 2
PAUSE_SECONDS = 0.03
WATCH_SECONDS = 0.2
PATIENCE_SECONDS = 30.0
LIKE_USERS = (LISTED, GPU_NAMED, LISTED, ESTIMATED, GPU_NAMED, LISTED, ESTIMATED, TRAINED)
"""Long questions of large jobs are rarer than short ones."""

NOT_ANSWERED = 0


class Client:
    """A client that keeps its connection, and opens another one after a failure."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: socket.socket | None = None

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Returns the status and the body of an answer, or `NOT_ANSWERED` if no whole answer arrives."""
        try:
            if self._connection is None:
                self._connection = socket.create_connection((HOST, self._port), timeout=PATIENCE_SECONDS)
            self._connection.sendall(request)
            response = HTTPResponse(self._connection)
            response.begin()
            body = response.read()
        except (OSError, HTTPException):
            self.close()
            return NOT_ANSWERED, b""
        if response.will_close:
            self.close()
        return response.status, body

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


class Threads:
    """Threads that repeat a step until they are stopped."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def repeat(self, step: Callable[[], None], pause_seconds: float) -> None:
        def run() -> None:
            while not self._stopping.wait(pause_seconds):
                step()

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()


class Load:
    """Readers and writers, each of which waits for its answer before it sends the next request."""

    def __init__(self, port: int, token: str) -> None:
        self.sent: list[Sent] = []
        self._threads = Threads()
        self._acknowledged = threading.Event()
        for reader in range(READERS):
            self._add(port, reads(reader))
        for writer in range(WRITERS):
            self._add(port, writes(token, writer))

    def wait_for_a_write(self, seconds: float) -> bool:
        """Waits until a further write has been acknowledged, and returns whether one was."""
        self._acknowledged.clear()
        return self._acknowledged.wait(seconds)

    def stop(self) -> None:
        self._threads.stop()

    def _add(self, port: int, requests: Iterator[tuple[int | None, bytes]]) -> None:
        client = Client(port)

        def step() -> None:
            number, request = next(requests)
            began = perf_counter()
            status, _ = client.ask(request)
            sent = Sent(began, perf_counter() - began, status, path_of(request), number)
            self.sent.append(sent)
            if sent.is_acknowledged:
                self._acknowledged.set()

        self._threads.repeat(step, PAUSE_SECONDS)


def reads(reader: int) -> Iterator[tuple[None, bytes]]:
    """Yields the questions of a reader, each another one than all before it."""
    questions = cycle(LIKE_USERS)
    for turn in count(reader * 100_000):
        yield None, next(questions).ask(turn, ())


def writes(token: str, writer: int) -> Iterator[tuple[int, bytes]]:
    """Yields the measurements of a writer with their numbers, each another one than those of all writers."""
    for number in count(1 + writer, WRITERS):
        yield number, write(token, number)


def path_of(request: bytes) -> str:
    """Returns the method and the path of a request, without its query."""
    return b" ".join(request.split(b" ", 2)[:2]).partition(b"?")[0].decode()


class Watch:
    """Notes the version of the catalog in the database and in the answers of each replica."""

    def __init__(self, address: Callable[[], str], ports: Sequence[int]) -> None:
        self.written: list[tuple[float, int]] = []
        self.observed: dict[int, list[Observation]] = {port: [] for port in ports}
        self._address = address
        self._connection: psycopg.Connection | None = None
        self._threads = Threads()
        self._threads.repeat(self._look_into_database, WATCH_SECONDS)
        for port in ports:
            self._watch(port)

    def stop(self) -> None:
        self._threads.stop()

    def _look_into_database(self) -> None:
        with suppress(psycopg.Error):
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._address(), autocommit=True)
            row = self._connection.execute("SELECT version FROM catalog_version").fetchone()
            assert row
            if not self.written or row[0] > self.written[-1][1]:
                self.written.append((perf_counter(), row[0]))

    def _watch(self, port: int) -> None:
        client, request = Client(port), get("/readyz")

        def look() -> None:
            _, body = client.ask(request)
            version = json.loads(body)["catalog"]["version"] if body else None
            self.observed[port].append(Observation(perf_counter(), version))

        self._threads.repeat(look, WATCH_SECONDS)
