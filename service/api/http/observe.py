"""Gives each request an id and a line in the log, and counts requests for Prometheus."""

import logging
import os
import re
from secrets import token_hex
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.problems import fault_problem

log = logging.getLogger("selector.access")

REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
TRACE_PARENT = re.compile(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})
SLOW_SECONDS = 1.0
"""Requests that take longer are logged as warnings."""

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)  # CPU seconds, memory and descriptors; Linux only
REQUESTS = Counter(
    "selector_requests", "Requests that were answered.", ["method", "route", "status"], registry=REGISTRY
)
SECONDS = Histogram(
    "selector_request_seconds",
    "Seconds from the first byte of a request to the last byte of its answer.",
    ["method", "route"],
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
    registry=REGISTRY,
)
IN_FLIGHT = Gauge(
    "selector_requests_in_flight", "Requests that are being answered.", registry=REGISTRY, multiprocess_mode="livesum"
)
REFUSALS = Counter(
    "selector_refusals", "Requests that a limit of the connection refused, by status.", ["status"], registry=REGISTRY
)
LEADS = Gauge(
    "selector_feeds_leader",
    "1 in the process that reads feeds in the background.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)


def metrics_registry() -> CollectorRegistry:
    """Returns the metrics of this process, or of all server processes if they share a folder for metrics."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class Observe:
    """ASGI middleware: gives each request an id, counts, times and logs it, and answers an unexpected exception.

    `X-Request-ID` is taken from the request or created, and returned. A valid `traceparent` is returned too, and its
    trace id is logged. Neither query values nor bodies nor keys are logged.
    """

    def __init__(self, app: ASGIApp, *, access_log: bool) -> None:
        self._app = app
        self._access_log = access_log
        self._counters: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on with its id, and records the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Raw headers: objects around them would take as long as some answers.
        sent = {name: value for name, value in scope["headers"] if name in (b"x-request-id", b"traceparent")}
        request_id, parent = sent.get(b"x-request-id", b""), sent.get(b"traceparent", b"")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = token_hex(16).encode()
        trace = parent if TRACE_PARENT.fullmatch(parent) else None
        added = [(b"x-request-id", request_id), *([(b"traceparent", trace)] if trace else ())]
        scope.setdefault("state", {})["request_id"] = request_id.decode()
        status, size = 0, 0

        async def observed(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *added]
            else:
                size += len(message.get("body", b""))
            await send(message)

        started = perf_counter()
        IN_FLIGHT.inc()
        try:
            await self._app(scope, receive, observed)
        except ClientDisconnect:
            pass  # no answer can arrive
        except Exception as error:
            if status:
                raise  # the answer has begun, and the server cuts it off
            # A handler of Starlette would answer outside of this middleware, where no fault is counted.
            await fault_problem(scope, error)(scope, receive, observed)
        finally:
            IN_FLIGHT.dec()
            seconds = perf_counter() - started
            route = getattr(scope.get("route"), "path", "none")
            self._count(scope["method"] if scope["method"] in METHODS else "other", route, status, seconds)
            if self._access_log or seconds > SLOW_SECONDS:
                _log(scope, route, status, size, seconds, request_id.decode(), trace)

    def _count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request and its duration. Status 0 means that the client left before the answer began."""
        key = (method, route, status)
        if key not in self._counters:
            self._counters[key] = REQUESTS.labels(method, route, status), SECONDS.labels(method, route)
        requests, durations = self._counters[key]
        requests.inc()
        durations.observe(seconds)


def _log(
    scope: Scope, route: str, status: int, size: int, seconds: float, request_id: str, trace: bytes | None
) -> None:
    client = scope.get("client")
    fields = {
        "method": scope["method"],
        "path": scope["path"][:200],
        "route": route,
        "status": status,
        "milliseconds": round(seconds * 1000, 3),
        "bytes": size,
        "client": client[0] if client else None,
        "request_id": request_id,
        "trace_id": trace[3:35].decode() if trace else None,
    }
    log.log(logging.WARNING if seconds > SLOW_SECONDS else logging.INFO, "answered", extra={"fields": fields})
