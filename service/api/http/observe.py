"""Gives each request an id and a line in the log, and counts requests for Prometheus."""

import logging
import os
import re
from collections.abc import Mapping
from functools import cache
from secrets import token_hex
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import Scope

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


class Identity(NamedTuple):
    """The id of a request, taken from its `X-Request-ID` or created, and its `traceparent` if that is valid."""

    request_id: bytes
    trace: bytes | None

    @classmethod
    def of(cls, sent: Mapping[bytes, bytes]) -> "Identity":
        """Returns the identity of a request with these raw headers."""
        request_id, parent = sent.get(b"x-request-id", b""), sent.get(b"traceparent", b"")
        if not REQUEST_ID.fullmatch(request_id):
            request_id = token_hex(16).encode()
        return cls(request_id, parent if TRACE_PARENT.fullmatch(parent) else None)

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The headers that return it to the client."""
        return [(b"x-request-id", self.request_id), *([(b"traceparent", self.trace)] if self.trace else ())]


class Answered(NamedTuple):
    """A request with the figures of its answer. Status 0 means that the client left before the answer began."""

    method: str
    route: str
    status: int
    size: int
    seconds: float
    identity: Identity


def count(answered: Answered) -> None:
    """Counts a request and its duration."""
    method = answered.method if answered.method in METHODS else "other"
    requests, durations = _figures_of(method, answered.route, answered.status)
    requests.inc()
    durations.observe(answered.seconds)


@cache
def _figures_of(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    return REQUESTS.labels(method, route, status), SECONDS.labels(method, route)


def log_answer(scope: Scope, answered: Answered) -> None:
    """Writes a line about an answer, as a warning if it was slow: no query values, bodies or keys."""
    client, identity = scope.get("client"), answered.identity
    fields = {
        "method": answered.method,
        "path": scope["path"][:200],
        "route": answered.route,
        "status": answered.status,
        "milliseconds": round(answered.seconds * 1000, 3),
        "bytes": answered.size,
        "client": client[0] if client else None,
        "request_id": identity.request_id.decode(),
        "trace_id": identity.trace[3:35].decode() if identity.trace else None,
    }
    level = logging.WARNING if answered.seconds > SLOW_SECONDS else logging.INFO
    log.log(level, "answered", extra={"fields": fields})
