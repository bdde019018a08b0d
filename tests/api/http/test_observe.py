"""Requests can be followed from outside: by their ids, in the log and in the figures."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.types import Message

from service.api.http import examples
from service.app import create_app
from service.server.logs import JsonFormatter, TextFormatter
from service.settings import Settings

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def access_log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="selector.access"):
        yield caplog


def test_a_request_keeps_its_id_and_its_trace(client: TestClient) -> None:
    answer = client.get("/healthz", headers={"X-Request-ID": "build-17.3", "traceparent": TRACE})
    assert answer.headers["X-Request-ID"] == "build-17.3"
    assert answer.headers["traceparent"] == TRACE


@pytest.mark.parametrize("sent", ["", "a b", "x" * 200, "{}", "id\u00e9"])
def test_an_unusable_id_is_replaced(client: TestClient, sent: str) -> None:
    answer = client.get("/healthz", headers={b"X-Request-ID": sent.encode("latin-1"), b"traceparent": b"00-1-2-3"})
    assert len(answer.headers["X-Request-ID"]) == 32
    assert "traceparent" not in answer.headers


def test_problems_have_ids_too(client: TestClient) -> None:
    assert client.get("/nothing").headers["X-Request-ID"]
    assert client.post("/recommend", json={}).headers["X-Request-ID"]


def test_the_log_names_the_route_and_hides_the_query(seeded_file: Path, access_log: pytest.LogCaptureFixture) -> None:
    settings = Settings(database_url=f"sqlite:///{seeded_file}", access_log=True)
    client = TestClient(create_app(settings, today=lambda: examples.DAY))
    client.get("/gpus/a100?as_of=2023-01-01", headers={"X-Request-ID": "one", "X-API-Key": "secret"})
    (record,) = [record for record in access_log.records if record.name == "selector.access"]
    fields = record.__dict__["fields"]
    assert (fields["route"], fields["status"], fields["request_id"]) == ("/gpus/{id}", 200, "one")
    line = JsonFormatter().format(record)
    assert json.loads(line)["path"] == "/gpus/a100"
    for text in (line, TextFormatter().format(record)):
        assert "2023-01-01" not in text
        assert "secret" not in text
        assert "\n" not in text


def test_a_request_adds_no_lines_and_no_fields_to_the_log(
    seeded_file: Path, access_log: pytest.LogCaptureFixture
) -> None:
    settings = Settings(database_url=f"sqlite:///{seeded_file}", access_log=True)
    client = TestClient(create_app(settings, today=lambda: examples.DAY))
    client.get("/a%0A2026-11-27T00:00:00.000+00:00 error forged%20status=200%E2%80%A8%1B[2J")
    (record,) = [record for record in access_log.records if record.name == "selector.access"]
    line = TextFormatter().format(record)
    assert line.isprintable()
    assert r'path="/a\n2026-11-27T00:00:00.000+00:00 error forged status=200\u2028\u001b[2J" route=' in line
    assert line.count(" status=") == 2


def test_a_message_and_a_traceback_add_no_events_to_the_log() -> None:
    try:
        raise ValueError("broken\n2026-11-27T00:00:00.000+00:00 error forged")
    except ValueError:
        fault = __import__("sys").exc_info()
    record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "GET %s failed.", ("/a\nb",), fault)
    first, *others = TextFormatter().format(record).splitlines()
    assert first.endswith(r" error GET /a\nb failed.")
    assert all(line.startswith("  ") for line in others)
    assert others[-1] == "  2026-11-27T00:00:00.000+00:00 error forged"


def test_a_traceback_stays_within_one_json_line() -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "failed", (), None)
        record.exc_info = __import__("sys").exc_info()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert "ValueError: broken" in json.loads(line)["traceback"]


def figure(client: TestClient, line: str) -> float:
    lines = [each for each in client.get("/metrics").text.splitlines() if each.startswith(line)]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_requests_are_counted_by_route_and_status(client: TestClient) -> None:
    good = 'selector_requests_total{method="GET",route="/gpus/{id}",status="200"}'
    bad = 'selector_requests_total{method="GET",route="/gpus/{id}",status="404"}'
    seconds = 'selector_request_seconds_count{method="GET",route="/gpus/{id}"}'
    before = [figure(client, line) for line in (good, bad, seconds)]
    client.get("/gpus/a100")
    client.get("/gpus/nonsense")
    after = [figure(client, line) for line in (good, bad, seconds)]
    assert [new - old for new, old in zip(after, before, strict=True)] == [1, 1, 2]


def test_head_is_counted_under_its_route(client: TestClient) -> None:
    line = 'selector_requests_total{method="HEAD",route="/gpus/{id}",status="200"}'
    before = figure(client, line)
    client.head("/gpus/a100")
    assert figure(client, line) == before + 1


def test_a_fault_of_the_service_has_an_id_and_is_counted(
    seeded_file: Path, access_log: pytest.LogCaptureFixture
) -> None:
    client = TestClient(create_app(Settings(database_url=f"sqlite:///{seeded_file}")))
    failed = 'selector_requests_total{method="GET",route="/gpus",status="500"}'
    live, before = client.app.state.live_catalog, figure(client, failed)  # type: ignore[attr-defined]
    client.app.state.live_catalog = None  # type: ignore[attr-defined]
    answer = client.get("/gpus", headers={"X-Request-ID": "one"})
    client.app.state.live_catalog = live  # type: ignore[attr-defined]
    assert (answer.status_code, answer.headers["X-Request-ID"]) == (500, "one")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert figure(client, failed) == before + 1
    (record,) = [record for record in access_log.records if record.exc_info]
    assert record.getMessage() == "GET /gpus failed."


def test_a_client_that_leaves_within_its_body_is_no_fault(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    parts: list[Message] = [
        {"type": "http.request", "body": b"{", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return parts.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/recommend", "query_string": b"", "headers": []}
    asyncio.run(app({**scope, "http_version": "1.1", "scheme": "http", "server": ("test", 80)}, receive, send))
    assert not sent
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_made_up_methods_and_paths_do_not_multiply_the_figures(client: TestClient) -> None:
    client.request("BREW", "/a/b/c")
    text = client.get("/metrics").text
    assert "BREW" not in text
    assert "/a/b/c" not in text
    assert figure(client, 'selector_requests_total{method="other",route="none"') >= 1
