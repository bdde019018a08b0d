"""The real server: a process of its own, on a real socket."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Server:
    """A running server, and the database it answers from."""

    url: str
    database_url: str


@contextmanager
def running(database_url: str, log: Path, **settings: str) -> Iterator[Server]:
    """`instance-selector serve` on a free port of the loopback, until the block ends."""
    port = free_port()
    environment = {
        **os.environ,
        "SELECTOR_DATABASE_URL": database_url,
        "SELECTOR_PORT": str(port),
        "SELECTOR_FEEDS": "off",
    } | settings
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve"], env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            url = f"http://127.0.0.1:{port}"
            await_answer(url, process, log)
            yield Server(url, database_url)
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def await_answer(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with httpx2.Client() as client:  # each client reads the certificates of the machine, which takes 50 ms
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                if client.get(f"{url}/healthz").is_success:
                    return
            except httpx2.TransportError:
                time.sleep(0.05)
    raise AssertionError(f"The server did not start:\n{log.read_text(errors='replace')}")
