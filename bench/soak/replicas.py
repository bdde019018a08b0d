"""Replicas of the service, and HAProxy in front of them."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.load import HOST
from bench.questions import ALIVE
from bench.servers import ROOT, SERVICE_COMMAND, free_port, wait_for_answer
from bench.soak.programs import find_program
from bench.soak.versions import variables_of

CONFIGURATION = ROOT / "deploy" / "haproxy.cfg"
LONGEST_STOP_SECONDS = 60


class Replica:
    """A process of the service on a port that it keeps when it is started again."""

    def __init__(self, version: Path, variables: Mapping[str, str], log: Path) -> None:
        self.port = free_port()
        self._version = version
        self._variables = variables
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, version: Path | None = None) -> None:
        """Starts the process, from now on of another version if one is given."""
        self._version = version or self._version
        command = [sys.executable, *SERVICE_COMMAND, "--port", str(self.port)]
        environment = variables_of(self._version, self._variables)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603
                command, cwd=self._version, env=environment, stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        """Raises `ServerFailed` if the replica does not answer."""
        assert self._process
        wait_for_answer(self._process, self.port, ALIVE)

    def kill(self) -> None:
        """Ends the process at once, as a crash does."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def drain(self) -> int:
        """Asks the process to stop, and returns its exit code."""
        assert self._process
        self._process.terminate()
        return self._process.wait(LONGEST_STOP_SECONDS)


class Balancer:
    """HAProxy with the configuration of `deploy/` in front of replicas."""

    def __init__(self, folder: Path, replicas: Sequence[Replica]) -> None:
        self.port = free_port()
        path = folder / "haproxy.cfg"
        configuration = CONFIGURATION.read_text(encoding="utf-8")
        path.write_text(rendered(configuration, self.port, [replica.port for replica in replicas]), encoding="utf-8")
        with (folder / "haproxy.log").open("wb") as log:
            command = [str(find_program("haproxy")), "-db", "-f", str(path)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def rendered(configuration: str, port: int, replicas: Sequence[int]) -> str:
    """Returns the configuration of HAProxy with other ports, and open to this machine alone."""
    ports = iter(replicas)
    bound = re.sub(r"bind :\d+", f"bind {HOST}:{port}", configuration)
    return re.sub(r"(server \S+) \S+:\d+", lambda server: f"{server[1]} {HOST}:{next(ports)}", bound)
