"""Clients that read and write all the time, and a watch over the version that each replica answers with."""

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from itertools import count, cycle
from time import perf_counter

import psycopg

from bench.load import HOST
from bench.questions import ESTIMATED, GPU_NAMED, LISTED, TRAINED, get
from bench.soak.report import Leading, Observation, Sent
from bench.writes import write

READERS, WRITERS = 4, 2
PAUSE_SECONDS = 0.03
LATE_PAUSE_SECONDS = 0.2
WATCH_SECONDS = 0.2
LOOK_SECONDS = 1.0
LOOK_PATIENCE_SECONDS = 3.0
"""Metrics take a second longer while the database does not answer."""

LEADS = re.compile(rb"^selector_feeds_leader 1", re.MULTILINE)
PATIENCE_SECONDS = 30.0
LIKE_USERS = (LISTED, GPU_NAMED, LISTED, ESTIMATED, GPU_NAMED, LISTED, ESTIMATED, TRAINED)
"""Long questions of large jobs are rarer than short ones."""

NOT_ANSWERED = 0


class Client:
    """A client that keeps its connection, and opens another one after a failure."""

    def __init__(self, port: int, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._port = port
        self._patience_seconds = patience_seconds
        self._connection: socket.socket | None = None

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Returns the status and the body of an answer, or `NOT_ANSWERED` if no whole answer arrives."""
        try:
            if self._connection is None:
                self._connection = socket.create_connection((HOST, self._port), timeout=self._patience_seconds)
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

    def __init__(self, port: int, token: str, late_port: int) -> None:
        self.sent: list[Sent] = []
        self.sent_late: list[Sent] = []
        """Requests to the replica at `late_port`, which has a reader of its own."""
        self._threads = Threads()
        self._acknowledged = threading.Event()
        for reader in range(READERS):
            self._add(port, reads(reader), self.sent)
        for writer in range(WRITERS):
            self._add(port, writes(token, writer), self.sent)
        self._add(late_port, reads(READERS), self.sent_late, LATE_PAUSE_SECONDS)

    def wait_for_a_write(self, seconds: float) -> bool:
        """Waits until a further write has been acknowledged, and returns whether one was."""
        self._acknowledged.clear()
        return self._acknowledged.wait(seconds)

    def stop(self) -> None:
        self._threads.stop()

    def _add(
        self,
        port: int,
        requests: Iterator[tuple[int | None, bytes]],
        kept: list[Sent],
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        client = Client(port)

        def step() -> None:
            number, request = next(requests)
            began = perf_counter()
            status, _ = client.ask(request)
            sent = Sent(began, perf_counter() - began, status, path_of(request), number)
            kept.append(sent)
            if sent.is_acknowledged:
                self._acknowledged.set()

        self._threads.repeat(step, pause_seconds)


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
    """Notes the catalog version in the database and in the answers of each replica, and which of them leads.

    The replica at `late_port` takes no part in the background work.
    """

    def __init__(self, address: Callable[[], str], ports: Sequence[int], late_port: int) -> None:
        self.written: list[tuple[float, int]] = []
        self.observed: dict[int, list[Observation]] = {port: [] for port in (*ports, late_port)}
        self.leading: list[Leading] = []
        self._address = address
        self._connection: psycopg.Connection | None = None
        self._threads = Threads()
        self._threads.repeat(self._look_into_database, WATCH_SECONDS)
        for port in self.observed:
            self._watch(port)
        scrapers = {port: Client(port, LOOK_PATIENCE_SECONDS) for port in ports}
        self._threads.repeat(lambda: self.leading.append(leading_of(scrapers)), LOOK_SECONDS)

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


def leading_of(scrapers: Mapping[int, Client]) -> Leading:
    """Asks every replica whether it leads the background work."""
    metrics = get("/metrics")
    ports = {port for port, client in scrapers.items() if LEADS.search(client.ask(metrics)[1])}
    return Leading(perf_counter(), ports)
