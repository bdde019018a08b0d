"""Sends a trace of each request to an OpenTelemetry collector. Needs the packages of the extra `tracing`."""

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.version import VERSION

SERVER_ERROR = 500


def provider_for(url: str) -> TracerProvider:
    """Returns a provider whose spans a thread sends by OTLP over HTTP, so that no request waits for the collector."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "instance-selector", "service.version": VERSION})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
    return provider


class Trace:
    """ASGI middleware: a span for each request, as a child of the caller's span if a `traceparent` names one.

    The names of attributes are those of OpenTelemetry's conventions for HTTP servers. Spans hold neither query values
    nor bodies nor keys.
    """

    def __init__(self, app: ASGIApp, *, provider: TracerProvider) -> None:
        self._app = app
        self._tracer = provider.get_tracer("instance-selector", VERSION)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on within a span, which gets the status and the route of the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {"http.request.method": method, "url.path": scope["path"]}
        with self._tracer.start_as_current_span(method, extract(headers), SpanKind.SERVER, attributes) as span:

            async def traced(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= SERVER_ERROR:
                        span.set_status(StatusCode.ERROR)
                await send(message)

            await self._app(scope, receive, traced)
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
