"""The edge of the service: what a request passes before the application, and its answer after it."""

from contextlib import suppress
from time import perf_counter

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.access.callers import Callers
from service.api.http.etag import unchanged
from service.api.http.observe import IN_FLIGHT, SLOW_SECONDS, Answered, Identity, count, log_answer
from service.api.http.problems import FieldError, problem, problem_of
from service.api.http.protect import PROBES, Hosts, protected

READ_ON = 16
"""A refused body is read up to this multiple of the limit and discarded before the answer, because many clients read
only after they have sent."""


class TooLarge(Exception):
    """The body has passed the limit."""


class Edge:
    """ASGI middleware around the application.

    It refuses a request for a host that is not allowed, what `callers` refuse, and a body above `max_body_bytes`,
    whether or not the request says its length; probes are always answered. It counts, times and logs requests, answers
    an unexpected exception, and HEAD as GET, whose body the server drops. A client that has the answer already gets
    status 304. This is one layer, because each layer passes on every message of a request and of its answer.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Hosts, callers: Callers, max_body_bytes: int, access_log: bool = False
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._callers = callers
        self._max_body_bytes = max_body_bytes
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on unless it is refused, and records the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, started = scope["method"], perf_counter()
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        exchange = _Exchange(scope, receive, send, self._max_body_bytes)
        IN_FLIGHT.inc()
        try:
            await self._pass_on(scope, exchange)
        except ClientDisconnect:
            pass  # no answer can arrive
        except Exception as error:
            if exchange.status:
                raise  # the answer has begun, and the server cuts it off
            # A handler of Starlette would answer outside of this middleware, where no fault is counted.
            await exchange.refuse(problem_of(error, scope))
        finally:
            IN_FLIGHT.dec()
            seconds, route = perf_counter() - started, getattr(scope.get("route"), "path", "none")
            answered = Answered(method, route, exchange.status, exchange.size, seconds, exchange.identity)
            count(answered)
            if self._access_log or seconds > SLOW_SECONDS:
                log_answer(scope, answered)

    async def _pass_on(self, scope: Scope, exchange: "_Exchange") -> None:
        if scope["path"] not in PROBES:
            if not self._hosts.allow(exchange.sent.get(b"host", b"")):
                sentence = "The service does not answer for this host."
                await exchange.refuse(problem(421, sentence, [FieldError(field="Host", message=sentence, near=[])]))
                return
            exchange.limit_fields, refusal = await self._callers.admit(scope, exchange.sent.get(b"authorization", b""))
            if refusal is not None:
                await exchange.refuse(refusal)
                return
        with suppress(TooLarge):
            await self._app(scope, exchange.receive, exchange.send)
        if exchange.is_too_large and not exchange.status:
            await exchange.refuse_body()


class _Exchange:
    """A request and its answer as they pass the edge: bytes are counted, and the answer gets its last headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body_bytes: int) -> None:
        # Raw fields, because objects around them would take as long as some answers. The first of a name counts.
        self.sent: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.identity = Identity.of(self.sent)
        self.limit_fields: list[tuple[bytes, bytes]] = []
        self.status, self.size = 0, 0
        """Status and bytes of the answer; 0 before it begins."""
        self.is_too_large = False
        self._scope, self._receive, self._send = scope, receive, send
        self._max_body_bytes = max_body_bytes
        self._received, self._has_ended = 0, False
        self._is_refused, self._is_unchanged = False, False

    async def receive(self) -> Message:
        """Returns the next part of the request. Raises `TooLarge`."""
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self._has_ended = not message.get("more_body", False)
        if self._received > self._max_body_bytes:
            self.is_too_large = True
            raise TooLarge
        return message

    async def send(self, message: Message) -> None:
        """Sends a part of the answer, unless it is the application's answer to `TooLarge`."""
        if self.is_too_large and not self._is_refused:
            return
        if message["type"] == "http.response.start":
            message = self._completed(message)
            self.status = message["status"]
        elif self._is_unchanged:
            message = {**message, "body": b""}
        else:
            self.size += len(message.get("body", b""))
        await self._send(message)

    def _completed(self, start: Message) -> Message:
        """Returns the start of an answer with all headers, or of one with status 304 if the client has the answer."""
        status, headers = start["status"], start.get("headers", [])
        if b"if-none-match" in self.sent and status == 200 and self._scope["method"] == "GET":
            self._is_unchanged = unchanged(self.sent[b"if-none-match"], headers)
            if self._is_unchanged:
                # A 304 has no content, so it must not describe one (RFC 9110, section 15.4.5).
                headers = [header for header in headers if header[0] not in (b"content-length", b"content-type")]
                status = 304
        fields = protected([*headers, *self.limit_fields])
        return {**start, "status": status, "headers": [*fields, *self.identity.fields]}

    async def refuse(self, answer: ASGIApp) -> None:
        """Sends an answer of the edge in place of the application's."""
        self._is_refused = True
        await answer(self._scope, self._receive, self.send)

    async def refuse_body(self) -> None:
        """Reads the rest of the body, but not without end, and answers 413."""
        while not self._has_ended and self._received < READ_ON * self._max_body_bytes:
            with_more = await self._receive()
            self._received += len(with_more.get("body", b""))
            self._has_ended = not with_more.get("more_body", False)
        sentence = f"The body is larger than {self._max_body_bytes:,} bytes."
        errors = [FieldError(field="body", message=sentence, near=[])]
        await self.refuse(problem(413, sentence, errors, {"Connection": "close"}))
