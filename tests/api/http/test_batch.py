"""Batches stay within a budget, stop when the client has left, are few at a time, and hold few answers in memory."""

import asyncio
import json
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from service.api.http import batch
from service.api.http.batch import BatchLimits, Budget, answers_in_order, grouped, in_parts, in_thread_while_connected
from service.api.http.problems import BudgetSpent
from service.api.recommend.recommend import answer_in
from service.api.recommend.request import RecommendRequest
from service.app import create_app
from service.db.errors import DatabaseUnusable
from service.domain.catalog.catalog import Catalog
from service.settings import Settings
from tests.server import Server, running

QUESTION = {"workload": {"task": "training"}, "limit": 1}
PATIENCE_SECONDS = 60
Serving = Callable[..., TestClient]


def heavy(count: int) -> dict[str, Any]:
    """A batch whose questions share nothing: each takes a third of a second of CPU."""
    work = {"task": "training", "model": "llama-3.1-70b", "precision": ["bf16"], "global_batch_size": 2048}
    return {
        "items": [
            {"workload": {**work, "sequence_length": 512 + index}, "constraints": {"max_nodes": 10_000}, "limit": 100}
            for index in range(count)
        ]
    }


@pytest.fixture
def serving(seeded_file: Path) -> Iterator[Serving]:
    """Creates clients of services with given settings."""
    clients = []

    def serve(**settings: Any) -> TestClient:
        clients.append(TestClient(create_app(Settings(database_url=f"sqlite:///{seeded_file}", **settings))))
        return clients[-1]

    yield serve
    for client in clients:
        client.close()


# The budget


def problems_of(answer: httpx2.Response) -> list[str | None]:
    assert answer.status_code == 200
    return [item["problem"]["detail"] if "problem" in item else None for item in answer.json()["items"]]


def test_items_after_the_bytes_of_a_batch_have_a_problem(serving: Serving) -> None:
    client = serving(batch_answer_bytes=30_000)
    answer = client.post("/recommend/batch", json={"items": [QUESTION] * 40})
    problems = problems_of(answer)
    count = problems.index("The 30,000 bytes of a batch's answer are used up. Send the rest in another one.")
    assert problems[:count] == [None] * count
    assert set(problems[count:]) == {problems[count]}
    assert answer.json()["items"][-1]["problem"]["status"] == 413
    assert sum(len(json.dumps(item)) for item in answer.json()["items"][: count - 1]) <= 40_000


def test_items_after_the_cpu_seconds_of_a_batch_have_a_problem(serving: Serving) -> None:
    problems = problems_of(serving(batch_cpu_seconds=0.5).post("/recommend/batch", json=heavy(30)))
    assert problems[0] is None
    assert problems[-1] == "The 0.5 CPU seconds of a batch are used up. Send the rest in another one."


@pytest.mark.parametrize("limit", [{"batch_cpu_seconds": 0.05}, {"batch_answer_bytes": 100_000}])
def test_a_matrix_beyond_its_budget_is_refused(serving: Serving, limit: dict[str, Any]) -> None:
    base = {"workload": heavy(1)["items"][0]["workload"], "machine": "aws/p5.48xlarge"}
    answer = serving(**limit).post("/estimate/batch", json={"base": base, "over": {"nodes": list(range(1, 200))}})
    assert answer.status_code == 413
    assert "are used up" in answer.json()["detail"]


def test_a_cancelled_budget_is_spent() -> None:
    budget = Budget(BatchLimits(1, 1, 1))
    budget.require()
    budget.cancel()
    with pytest.raises(BudgetSpent), budget.charged():
        pass


def test_a_batch_ends_when_its_client_reads_for_too_long(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "LONGEST_SECONDS", -1.0)
    problems = problems_of(serving().post("/recommend/batch", json={"items": [QUESTION] * 2}))
    assert problems == ["A batch may take -1 seconds. Send the rest in another one."] * 2


def test_work_in_a_thread_ends_when_the_client_leaves(serving: Serving) -> None:
    async def leave() -> Message:
        return {"type": "http.disconnect"}

    def work_without_end(budget: Budget) -> None:
        while True:
            budget.require()

    request = Request({"type": "http", "app": serving().app}, leave)
    with pytest.raises(BudgetSpent, match="The client has left"):
        asyncio.run(in_thread_while_connected(work_without_end, request))


# Faults of single items


def test_an_item_that_cannot_be_answered_does_not_fail_the_others(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def without_database(*_: Any) -> Any:
        raise DatabaseUnusable("postgresql://10.0.0.7/prices cannot be reached")

    def answer_or_fail(request: RecommendRequest, catalog: Catalog) -> bytes:
        if request.limit == 7:
            raise KeyError("a fault of ours")
        return answer_in(request, catalog)

    monkeypatch.setattr("service.db.live_catalog.history_known_on", without_database)
    monkeypatch.setattr("service.api.recommend.recommend.answer_in", answer_or_fail)
    items = [QUESTION, QUESTION | {"known_at": "2026-01-01"}, QUESTION | {"limit": 7}, QUESTION | {"limit": 2}]
    answer = serving().post("/recommend/batch", json={"items": items})
    assert answer.status_code == 200
    first, unread, failed, last = answer.json()["items"]
    assert (len(first["choices"]), len(last["choices"])) == (1, 2)
    assert [item["problem"]["status"] for item in (unread, failed)] == [503, 500]
    assert "10.0.0.7" not in answer.text
    assert "a fault of ours" not in answer.text
    assert "postgresql://10.0.0.7/prices cannot be reached" in caplog.text
    assert "a fault of ours" in caplog.text


# Order and memory


def held_bytes(answer: bytes) -> int:
    return len(zlib.compress(answer, level=1))


@given(
    st.lists(st.sampled_from("abcdef"), max_size=60),
    st.integers(0, 40),
)
def test_answers_are_in_order_and_few_are_held(workloads: list[str], size: int) -> None:
    """Each item answers with its index; a group of one workload is answered ahead while there is room."""
    items = [{"workload": name, "index": index} for index, name in enumerate(workloads)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batch, "HELD_BYTES", 60)
        computed = sent = 0

        def answer(item: dict[str, Any]) -> bytes:
            nonlocal computed
            encoded = json.dumps(str(item["index"]) + "x" * size).encode()
            computed += held_bytes(encoded)
            return encoded

        whole = b""
        for chunk in answers_in_order(items, answer):
            whole += chunk
            sent += held_bytes(chunk.lstrip(b",")) if chunk.endswith(b'"') else 0
            assert computed - sent <= 60 + 2 * held_bytes(b"x" * (size + 5))
    assert [entry.rstrip("x") for entry in json.loads(whole)["items"]] == [str(index) for index in range(len(items))]


def test_items_of_one_workload_are_answered_together() -> None:
    items = [{"workload": name} for name in "abab"]
    asked: list[int] = []

    def answer(item: dict[str, Any]) -> bytes:
        asked.append(next(index for index, each in enumerate(items) if each is item))
        return b"1"

    assert b"".join(answers_in_order(items, answer)) == b'{"items":[1,1,1,1]}'
    assert asked == [0, 2, 1, 3]


def test_items_without_a_workload_are_grouped_apart() -> None:
    items = [{"workload": "a"}, {"workload": "b"}, {"workload": "a"}, 5, {}, {"workload": "a", "as_of": "2023-06-07"}]
    assert grouped(items) == [[0, 2], [1], [3], [4], [5]]


def test_chunks_are_joined_to_parts_of_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PART_BYTES", 3)
    monkeypatch.setattr(batch, "PART_SECONDS", 1e9)
    assert list(in_parts(iter([b"a", b"", b"bc", b"defgh", b"i"]))) == [b"abc", b"defgh", b"i"]


def test_a_part_is_sent_after_a_time_even_if_it_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PART_SECONDS", -1.0)
    assert list(in_parts(iter([b"a", b"", b"b"]))) == [b"a", b"", b"b", b""]


# Over a socket


@pytest.fixture(scope="module")
def narrow(seeded_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that answers one batch at a time and lets it cost more than any test waits for."""
    log = tmp_path_factory.mktemp("narrow") / "log"
    settings = {"SELECTOR_BATCHES_AT_ONCE": "1", "SELECTOR_BATCH_CPU_SECONDS": "3600"}
    with running(f"sqlite:///{seeded_file}", log, **settings) as server:
        yield server


def begun(server: Server, path: str, body: dict[str, Any]) -> socket.socket:
    """A connection that has sent a batch and has read nothing of the answer."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    encoded = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(encoded)}"
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    connection.sendall(f"{head}\r\n\r\n".encode() + encoded)
    return connection


def test_a_batch_keeps_its_place_until_its_client_leaves(narrow: Server) -> None:
    one = {"items": [QUESTION]}
    with httpx2.Client(base_url=narrow.url, timeout=PATIENCE_SECONDS) as client:
        connection = begun(narrow, "/recommend/batch", heavy(1000))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (refused := client.post("/recommend/batch", json=one)).status_code == 200:
            assert time.monotonic() < deadline
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "10"
        assert refused.json()["detail"].startswith("1 batches are being answered")
        assert client.post("/recommend", json=QUESTION).status_code == 200
        connection.close()
        while client.post("/recommend/batch", json=one).status_code == 503:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_body_that_is_still_being_sent_takes_no_place(narrow: Server) -> None:
    host, _, port = narrow.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(f"POST /recommend/batch HTTP/1.1\r\nhost: {host}\r\ncontent-length: 9\r\n\r\n{{".encode())
        answer = httpx2.post(f"{narrow.url}/recommend/batch", json={"items": [QUESTION]}, timeout=PATIENCE_SECONDS)
        assert answer.status_code == 200
