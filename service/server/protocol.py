"""HTTP connections with limits on size, time and number.

uvicorn's parser accepts any number of header fields of any length and waits for them without a timeout. One such
connection can use all memory, and many can use all file descriptors. This protocol refuses or closes them.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal
from weakref import WeakKeyDictionary

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.api.http.observe import REFUSALS
from service.api.http.problems import MEDIA_TYPE, problem

Phase = Literal["header", "body", "answer", "idle", "refused"]
"""State of a connection: it waits for the header or body of a request, the answer, the next request, or its end."""

SWEEP_SECONDS = 0.5
LINGER_SECONDS = 2.0
"""How long a refused or drained connection stays open, so that its client can read or send a last message."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much a connection may send and how long it may take.

    The sizes are those of Apache (LimitRequestFields 100, LimitRequestFieldSize and LimitRequestLine 8190), the times
    and the lowest rate those of its mod_reqtimeout; the idle time is nginx's keepalive_timeout.
    """

    header_fields: int = 100
    header_field_bytes: int = 8190
    url_bytes: int = 8190
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    least_bytes_per_second: float = 500.0
    """A body may take longer than `body_seconds`, and an answer may be read slowly, at this rate or faster."""
    stalled_seconds: float = 30.0
    """How long a client may read an answer more slowly than `least_bytes_per_second`."""
    idle_seconds: int = 75
    per_address: int = 1000

    @property
    def header_bytes(self) -> int:
        """The largest header: all fields and the URL at their limits would be 0.8 MB, which no honest client sends."""
        return 8 * self.header_field_bytes


class _Refused(Exception):
    """Stops the parser after a refusal."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection of uvicorn that keeps `ConnectionLimits`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.limits = limits
        self.phase: Phase = "header"
        self.draining = False
        self._since = self.loop.time()
        self._header_bytes = 0
        self._body_bytes = 0
        self._unsent_bytes = 0
        self._stalled_seconds = 0.0

    # A connection's life

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Registers the connection, and refuses it if its address has too many."""
        super().connection_made(transport)
        register = _register_of(self.server_state, self.loop)
        register.add(self)
        if register.by_address[self.address] > self.limits.per_address:
            self._refuse(503, "Too many connections from this address.", "retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes the connection from the register."""
        _register_of(self.server_state, self.loop).remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses data within the limit of the header; drops data after a refusal."""
        if self.phase == "refused":
            return  # read and dropped, so that the client can read the refusal
        if self.phase == "idle":
            self._enter("header")
        if self.phase == "header":
            self._header_bytes += len(data)
        super().data_received(data)
        if self.phase == "header" and self._header_bytes > self.limits.header_bytes:
            self._refuse(431, "The header of the request is too large.")

    def send_400_response(self, msg: str) -> None:
        """Answers a request that the parser cannot read, unless a refusal has been sent already."""
        if self.phase != "refused":
            self._refuse(400, "This is not a valid HTTP request.")

    def shutdown(self) -> None:
        """Finishes the answer under way, and lets an idle client send one more request before the connection ends."""
        self.draining = True
        self._since = self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False

    # What the parser reports

    def on_message_begin(self) -> None:
        """Notes that a header has begun."""
        super().on_message_begin()
        if self.phase in ("header", "idle"):
            self._enter("header")

    def on_url(self, url: bytes) -> None:
        """Refuses a URL that is too long."""
        super().on_url(url)
        if len(self.url) > self.limits.url_bytes:
            self._stop(414, f"The URL is longer than {self.limits.url_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Refuses a field that is too long or exceeds the number of fields."""
        if len(name) + len(value) > self.limits.header_field_bytes:
            self._stop(431, f"A header field is longer than {self.limits.header_field_bytes} bytes.")
        if len(self.headers) >= self.limits.header_fields:
            self._stop(431, f"The request has more than {self.limits.header_fields} header fields.")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Notes that the body has begun."""
        self._enter("body")
        self._body_bytes = 0
        super().on_headers_complete()
        if self.draining and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Counts the bytes of the body, which extend its time limit."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Notes that the whole request has arrived."""
        if self.phase == "body":
            self._enter("idle" if self.cycle is None or self.cycle.response_complete else "answer")
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Notes that the connection waits for the next request."""
        if self.phase == "answer" and not self.pipeline:
            self._enter("idle")
        super().on_response_complete()

    # Time

    def sweep(self, now: float) -> None:
        """Closes the connection if it has exceeded a time limit; called every `SWEEP_SECONDS`."""
        waited = now - self._since
        if self._reads_too_slowly() or (self.phase == "refused" and waited > LINGER_SECONDS):
            self.transport.abort()
        elif self.draining and self.phase in ("header", "body", "idle") and waited > LINGER_SECONDS:
            self.transport.close()
        elif self.phase == "header" and waited > self.limits.header_seconds:
            self._time_out("The header of the request did not arrive in time.")
        elif self.phase == "body" and waited > self._body_seconds:
            self._time_out("The body of the request did not arrive in time.")

    @property
    def _body_seconds(self) -> float:
        return self.limits.body_seconds + self._body_bytes / self.limits.least_bytes_per_second

    def _reads_too_slowly(self) -> bool:
        unsent = self.transport.get_write_buffer_size()
        read = self._unsent_bytes - unsent
        self._unsent_bytes = unsent
        if unsent and read < self.limits.least_bytes_per_second * SWEEP_SECONDS:
            self._stalled_seconds += SWEEP_SECONDS
        else:
            self._stalled_seconds = 0.0
        return self._stalled_seconds > self.limits.stalled_seconds

    def _time_out(self, sentence: str) -> None:
        answered = self.phase == "body" and self.cycle.response_complete
        if answered or self._header_bytes == 0:
            self.transport.close()  # answered before its body arrived, or opened in advance and not used
        else:
            self._refuse(408, sentence)

    # Refusals

    @property
    def address(self) -> str:
        """The address of the client, or an empty string for a local socket."""
        return self.client[0] if self.client else ""

    def _enter(self, phase: Phase) -> None:
        if phase == "idle":
            self._header_bytes = 0
        self.phase, self._since = phase, self.loop.time()

    def _stop(self, status: int, sentence: str) -> None:
        self._refuse(status, sentence)
        raise _Refused

    def _refuse(self, status: int, sentence: str, header: str = "") -> None:
        """Answers with a problem and stops reading. If another answer is under way, only closes the connection."""
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        REFUSALS.labels(str(status)).inc()
        self._enter("refused")
        self.transport.write(_problem(status, sentence, header))
        # The client then reads the refusal to its end; closing at once would reset the connection.
        if self.transport.can_write_eof():
            self.transport.write_eof()


def _problem(status: int, sentence: str, header: str) -> bytes:
    """Returns the bytes of an answer with an RFC 9457 problem that closes the connection."""
    body = bytes(problem(status, sentence).body)
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n{header}\r\n"
    )
    return head.encode() + body


class _Register:
    """The open connections of a server, counted by address and swept for those that exceed a time limit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.by_address: Counter[str] = Counter()
        self._loop = loop
        self._connections: set[BoundedProtocol] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, connection: BoundedProtocol) -> None:
        self._connections.add(connection)
        self.by_address[connection.address] += 1
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def remove(self, connection: BoundedProtocol) -> None:
        self._connections.discard(connection)
        self.by_address[connection.address] -= 1
        if self.by_address[connection.address] <= 0:
            del self.by_address[connection.address]

    def _sweep(self) -> None:
        now = self._loop.time()
        # A copy, because a sweep closes connections and so changes the set.
        for connection in list(self._connections):
            connection.sweep(now)
        self._timer = self._loop.call_later(SWEEP_SECONDS, self._sweep) if self._connections else None


_REGISTERS: WeakKeyDictionary[ServerState, _Register] = WeakKeyDictionary()


def _register_of(state: ServerState, loop: asyncio.AbstractEventLoop) -> _Register:
    if state not in _REGISTERS:
        _REGISTERS[state] = _Register(loop)
    return _REGISTERS[state]
