"""Starts real servers under equal conditions: each has its own process, one worker and a free port on loopback."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter, sleep
from typing import IO

from bench.load import HOST

ROOT = Path(__file__).resolve().parent.parent
LONGEST_START_SECONDS = 180
KIB = 1024


class ServerFailed(Exception):
    """A server did not start; the message holds its error output."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers requests."""

    process: subprocess.Popen[bytes]
    port: int
    seconds_to_first_answer: float

    def cpu_seconds(self) -> float:
        """Returns the CPU time that the process has used; Linux only."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        command = ["ps", "-o", "rss=", "-p", str(self.process.pid)]
        status = Path(f"/proc/{self.process.pid}/status")
        if status.exists():
            return next(int(line.split()[1]) for line in status.read_text().splitlines() if line[:6] == "VmRSS:") * KIB
        return int(subprocess.run(command, capture_output=True, check=True).stdout) * KIB  # noqa: S603


def noop_command(factory: str) -> list[str]:
    return ["-m", "uvicorn", "--factory", f"bench.noop:{factory}", "--log-level", "warning", "--no-access-log"]


SERVICE_COMMAND = ["-m", "service", "serve"]


def environment(bytecode: Path, database: Path | None) -> dict[str, str]:
    """Returns the variables of a server, without this machine's settings, and with a shared folder for bytecode."""
    ours = ("SELECTOR_", "DATABASE_URL", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept |= {"PYTHONPYCACHEPREFIX": str(bytecode), "SELECTOR_LOG_LEVEL": "warning", "SELECTOR_FEEDS": "off"}
    return kept | ({"SELECTOR_DATABASE_URL": f"sqlite:///{database}"} if database else {})


@contextmanager
def running(command: list[str], variables: Mapping[str, str], first: bytes) -> Iterator[Server]:
    """Runs a server until the block ends; the block starts after its answer to the request `first`."""
    port = free_port()
    began = perf_counter()
    with TemporaryFile() as log:  # a pipe that is not read would be full at some time, and stop the server
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, *command, "--port", str(port)],
            cwd=ROOT,
            env=dict(variables),
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        try:
            wait_for_answer(process, port, first, log)
            yield Server(process, port, perf_counter() - began)
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for_answer(process: subprocess.Popen[bytes], port: int, first: bytes, log: IO[bytes] | None = None) -> None:
    deadline = perf_counter() + LONGEST_START_SECONDS
    while perf_counter() < deadline:
        if process.poll() is not None:
            if log:
                log.seek(0)
            errors = log.read().decode(errors="replace") if log else ""
            raise ServerFailed(f"A server ended before it answered:\n{errors}")
        try:
            with socket.create_connection((HOST, port), timeout=LONGEST_START_SECONDS) as connection:
                connection.sendall(first)
                status = connection.recv(64 * KIB)[9:12]
        except ConnectionError:
            sleep(0.003)
            continue
        if status != b"200":
            raise ServerFailed(f"A server's first answer was {status!r}, not 200.")
        return
    raise ServerFailed(f"A server did not answer within {LONGEST_START_SECONDS} seconds.")
