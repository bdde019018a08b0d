"""Traces of requests reach an exporter, and only when a setting names one."""

import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from service.app import create_app
from service.server import tracing
from service.settings import Settings

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
COLLECTOR = "http://127.0.0.1:9/v1/traces"


@pytest.fixture
def spans_of(seeded_file: Path, monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "OTLPSpanExporter", {COLLECTOR: exporter}.__getitem__)
    settings = Settings(database_url=f"sqlite:///{seeded_file}", trace_url=COLLECTOR, feeds="off")
    with TestClient(create_app(settings)) as client:
        client.get("/gpus/a100?as_of=2023-01-01", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        client.get("/nothing")
        monkeypatch.setattr(client.app.state, "live_catalog", None)  # type: ignore[attr-defined]
        client.get("/gpus")
    return exporter


def test_each_request_is_a_span_within_the_trace_of_its_caller(spans_of: InMemorySpanExporter) -> None:
    known, unknown, failed = spans_of.get_finished_spans()
    assert known.name == "GET /gpus/{id}"
    assert known.kind is SpanKind.SERVER
    assert format_trace_id(known.context.trace_id) == TRACE
    assert known.parent
    assert format_span_id(known.parent.span_id) == PARENT
    assert attributes(known) == {
        "http.request.method": "GET",
        "url.path": "/gpus/a100",
        "http.route": "/gpus/{id}",
        "http.response.status_code": 200,
    }
    assert (unknown.name, unknown.parent) == ("GET", None)
    assert attributes(unknown)["http.response.status_code"] == 404
    assert attributes(failed)["http.response.status_code"] == 500
    assert [span.status.status_code for span in (known, unknown, failed)] == [
        StatusCode.UNSET,
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_nothing_is_traced_by_default(seeded_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "service.server.tracing", None)
    client = TestClient(create_app(Settings(database_url=f"sqlite:///{seeded_file}")))
    assert client.get("/healthz").status_code == 200
