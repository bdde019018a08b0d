"""Starting the server, and stopping it without losing an answer."""

import asyncio
import os
import signal
import socket
import sys
import threading
from functools import partial
from types import FrameType

import uvicorn
from uvicorn.supervisors import Multiprocess

from service.server.protocol import BoundedProtocol, ConnectionLimits
from service.settings import Settings

LAST_RESORT_SECONDS = 5.0
"""After the grace: how long the process may still take before it ends at once, whatever its threads do."""


class DrainingServer(uvicorn.Server):
    """A server that first reports itself as not ready, then answers what is under way, and then stops."""

    def __init__(self, config: uvicorn.Config, *, drain_seconds: float) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to stop. A second signal stops at once."""
        grace = self.config.timeout_graceful_shutdown or 0
        timer = threading.Timer(self._drain_seconds + grace + LAST_RESORT_SECONDS, os._exit, args=[0])
        timer.daemon = True
        timer.start()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.lifespan.state["draining"] = True  # `/readyz` finds it in the state of its request
        if not self.force_exit:
            await asyncio.sleep(self._drain_seconds)
        await super().shutdown(sockets)


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, which end the process with exit code 0."""
    limits = ConnectionLimits(per_address=settings.connections_per_address)
    config = uvicorn.Config(
        "service.app:create_app",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        log_level=settings.log_level,
        access_log=False,
        server_header=False,
        http=partial(BoundedProtocol, limits=limits),  # type: ignore[arg-type]  # uvicorn only calls it
        ws="none",
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=settings.grace_seconds,
    )
    # uvicorn raises the signal again after it has stopped. Without a handler that would end the process with an error.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit_without_error)
    server = DrainingServer(config, drain_seconds=settings.drain_seconds)
    if settings.workers > 1:
        Multiprocess(config, target=server.run, sockets=[config.bind_socket()]).run()
    else:
        server.run()


def _exit_without_error(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)
