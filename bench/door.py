"""Measures how the service withstands requests that once stopped it: `python -m bench.door`."""

import json
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from bench.hostile import posted
from bench.load import HOST, ask
from bench.questions import ALIVE, batch_of
from bench.servers import SERVICE_COMMAND, Server, environment, running
from bench.soak.load import Client
from bench.verdict import MIB, shown, table
from bench.writes import seed_with_key, write

FOUR_MB = 4_000_000
CLIENTS = 20
IDLE_SECONDS = 2.0


def main() -> int:
    with TemporaryDirectory(prefix="bench-") as folder:
        database, token = seed_with_key(Path(folder))
        variables = environment(Path(folder) / "bytecode", database) | {"SELECTOR_FEEDS": "off"}
        variables |= {"SELECTOR_DRAIN_SECONDS": "1", "SELECTOR_REQUESTS_PER_MINUTE_AND_KEY": "0"}
        with running(SERVICE_COMMAND, variables, ALIVE) as server:
            rows = [
                ("10,000 names in a body: ms", answered(server, names(10_000))),
                ("20,000 names in a body: ms", answered(server, names(20_000))),
                ("a body of 4 MB full of names: ms", answered(server, names(FOUR_MB // 16))),
                ("an endless header for 3 s: MiB", endless_header(server)),
                ("GET /healthz during a large batch: p99 ms", health_during(server, [batch_of(0)])),
                ("GET /healthz during bodies of 4 MB: p99 ms", health_during(server, [names(FOUR_MB // 16)] * 20)),
                ("a large batch that is left after 2 s: CPU s", left_batch(server)),
                ("a write while another process holds the database: s", locked(server, database, write(token, 1))),
                *stopped(server),
            ]
    print(table(("measure", "value"), [(name, shown(value)) for name, value in rows]))
    return 0


def names(number: int) -> bytes:
    return posted(json.dumps({"workload": {f"name{each}": 0 for each in range(number)}}).encode())


def answered(server: Server, request: bytes) -> float:
    """Returns the milliseconds until a request is refused."""
    client, began = Client(server.port), perf_counter()
    status, _ = client.ask(request)
    assert 400 <= status < 500, status
    return (perf_counter() - began) * 1000


def endless_header(server: Server) -> float:
    """Returns by how many MiB the server grows."""
    before, ended = server.resident_bytes(), perf_counter() + 3
    with socket.create_connection((HOST, server.port)) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\n")
            while perf_counter() < ended:
                connection.sendall(b"X-Name: value\r\n" * 10_000)
        except ConnectionError:
            pass  # refused
    return max(0.0, server.resident_bytes() - before) / MIB


def health_during(server: Server, requests: list[bytes]) -> float:
    """Returns the p99 of health checks while another client sends requests."""
    client, stopping = Client(server.port), threading.Event()

    def send() -> None:
        for request in requests:
            if not stopping.is_set():
                client.ask(request)

    with ThreadPoolExecutor() as others:
        others.submit(send)
        p99 = ask(server.port, [ALIVE], 1, 3.0).p99_seconds
        stopping.set()
    return p99 * 1000


def left_batch(server: Server) -> float:
    """Returns the CPU time of a batch whose client leaves, until the server is idle again."""
    used = server.cpu_seconds()
    with socket.create_connection((HOST, server.port)) as connection:
        connection.sendall(batch_of(1))
        sleep(2)
    while True:
        before = server.cpu_seconds()
        sleep(IDLE_SECONDS)
        if server.cpu_seconds() - before < IDLE_SECONDS / 10:
            return before - used


def locked(server: Server, database: Path, request: bytes) -> float:
    """Returns the seconds until a write is refused."""
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = perf_counter()
        status, _ = Client(server.port).ask(request)
        took = perf_counter() - began
    assert status == 503, status
    return took


def stopped(server: Server) -> list[tuple[str, float]]:
    """Sends SIGTERM during requests on kept connections, and counts those that are reset."""
    counts = {"requests while stopping": 0, "requests that were reset": 0}
    lock = threading.Lock()

    def count(name: str) -> None:
        with lock:
            counts[name] += 1

    with ThreadPoolExecutor(CLIENTS) as clients:
        for _ in range(CLIENTS):
            clients.submit(until_closed, server.port, count)
        sleep(2)
        server.process.send_signal(signal.SIGTERM)
    return [*counts.items(), ("exit code", server.process.wait(60))]


def until_closed(port: int, count: Callable[[str], None]) -> None:
    """Sends requests over one connection until the server announces its end."""
    connection = HTTPConnection(HOST, port, timeout=30)
    connection.connect()
    closing_announced = False
    while not closing_announced:
        count("requests while stopping")
        try:
            connection.request("GET", "/instances?limit=1")
            response = connection.getresponse()
            response.read()
            closing_announced = response.will_close
        except (OSError, HTTPException):
            count("requests that were reset")
            return


if __name__ == "__main__":
    sys.exit(main())
