"""Starts the server, and stops it without losing an answer."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from functools import partial
from tempfile import mkdtemp
from types import FrameType

import uvicorn
from uvicorn.supervisors import multiprocess

from service.server.logs import log_config
from service.server.protocol import BoundedProtocol, ConnectionLimits
from service.settings import Settings

DRAIN_VARIABLE = "SELECTOR_DRAIN_SECONDS"
SEARCHES_OF_NEW_OBJECTS = 1000
"""How many times the garbage collector searches new objects before it searches older ones too."""

LAST_RESORT_SECONDS = 5.0
"""How long the process may run after the grace period before it is ended, even if threads still work."""


class DrainingServer(uvicorn.Server):
    """A server that stops in steps: it reports itself as not ready, finishes answers under way, and ends."""

    drain_seconds = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the sockets, and resumes garbage collection."""
        await super().startup(sockets)
        # Modules and the catalog stay in memory, so the collector, which `service.__main__` suspended, can skip them.
        gc.freeze()
        # References alone free almost everything. By default, a search among the objects that survived ten others stops
        # all answers for 2 to 3 ms about forty times in a batch of 1,000 questions, and finds no garbage.
        gc.set_threshold(gc.get_threshold()[0], SEARCHES_OF_NEW_OBJECTS)
        gc.enable()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop. A second signal stops at once."""
        grace = self.config.timeout_graceful_shutdown or 0
        timer = threading.Timer(self.drain_seconds + grace + LAST_RESORT_SECONDS, os._exit, args=[0])
        # A timer that is not a daemon would keep the process alive by itself.
        timer.daemon = True
        timer.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits until load balancers have noticed that this process is not ready, then stops."""
        self.lifespan.state["draining"] = True  # `/readyz` finds it in the state of its request
        if not self.force_exit:
            await asyncio.sleep(self.drain_seconds)
        await super().shutdown(sockets)


class DrainingProcess(multiprocess.Process):
    """One of several server processes."""

    @property
    def server(self) -> DrainingServer:
        """Returns the server of this process, created on first use."""
        if self._server is None:
            self._server = DrainingServer(self.config)
            self._server.drain_seconds = float(os.environ[DRAIN_VARIABLE])
        assert isinstance(self._server, DrainingServer)
        return self._server


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, which end the process with exit code 0."""
    limits = ConnectionLimits(per_address=settings.connections_per_address)
    config = uvicorn.Config(
        "service.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_config=log_config(settings.log_level, settings.log_format),
        access_log=False,
        server_header=False,
        http=partial(BoundedProtocol, limits=limits),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=settings.grace_seconds,
    )
    # After its end, uvicorn raises the signal again; without a handler, the process would end with an error.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_without_error)
    if settings.workers > 1:
        _serve_with_processes(config, settings)
    else:
        server = DrainingServer(config)
        server.drain_seconds = settings.drain_seconds
        server.run()


def _serve_with_processes(config: uvicorn.Config, settings: Settings) -> None:
    # The processes are spawned, so only environment variables reach them.
    os.environ[DRAIN_VARIABLE] = str(settings.drain_seconds)
    os.environ.setdefault("PROMETHEUS_MULTIPROC_DIR", mkdtemp(prefix="selector-metrics-"))
    multiprocess.Process = DrainingProcess  # type: ignore[misc]  # the supervisor has no setting for it
    multiprocess.Multiprocess(config, sockets=[config.bind_socket()]).run()


def _exit_without_error(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
