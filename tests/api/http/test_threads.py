"""Answers that may take long are computed in threads; quick ones are not, because a thread costs a tenth of them."""

import json
import threading
from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from service.api.catalog import instances
from service.api.estimate import estimate
from service.api.http import body, problems
from service.api.recommend import recommend
from service.app import create_app
from service.settings import Settings
from tests.api.keys import bearer

TRAINING = {"task": "training"}
Asking = Callable[[TestClient], Any]


@pytest.fixture(scope="module")
def fresh(seeded_file: Any) -> FastAPI:
    """A service of this file alone, whose catalog a test may use first."""
    return create_app(Settings(database_url=f"sqlite:///{seeded_file}"))


@pytest.fixture
def asking(fresh: FastAPI) -> Iterator[TestClient]:
    client = TestClient(fresh)
    yield client
    client.close()


@pytest.fixture
def thread_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[str]]:
    """Records the names of the threads in which a function of a module runs."""

    def record(module: Any, name: str) -> list[str]:
        names: list[str] = []
        original = getattr(module, name)

        def recorded(*args: Any, **kwargs: Any) -> Any:
            names.append(threading.current_thread().name)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, recorded)
        return names

    return record


def is_worker(name: str) -> bool:
    return name.startswith(("AnyIO worker", "computing"))


def large(question: dict[str, Any]) -> bytes:
    return json.dumps(question).encode() + b" " * body.LARGE_BODY_BYTES


@pytest.mark.parametrize(
    ("question", "in_thread"),
    [
        ({"workload": TRAINING}, False),
        ({"workload": TRAINING, "limit": 20}, False),
        ({"workload": TRAINING, "limit": 21}, True),
        ({"workload": TRAINING, "as_of": "2024-02-03"}, True),
        ({"workload": {**TRAINING, "model": "resnet-50"}}, True),
        ({"workload": {**TRAINING, "name": "nightly"}}, True),
    ],
)
def test_questions_that_may_take_long_are_answered_in_a_thread(
    asking: TestClient, thread_of: Callable[[Any, str], list[str]], question: dict[str, Any], in_thread: bool
) -> None:
    asking.post("/recommend", json={"workload": TRAINING})  # the first question of a catalog takes long
    names = thread_of(recommend, "answer_in")
    assert asking.post("/recommend", json=question).status_code == 200
    assert list(map(is_worker, names)) == [in_thread]


def test_estimates_are_computed_in_the_threads_of_single_questions(
    asking: TestClient, thread_of: Callable[[Any, str], list[str]]
) -> None:
    names, question = thread_of(estimate, "response_of"), {"workload": {**TRAINING, "model": "resnet-50"}}
    assert asking.post("/estimate", json={**question, "machine": "aws/p4d.24xlarge"}).status_code == 200
    assert [name.startswith("computing") for name in names] == [True]


@pytest.mark.parametrize(
    ("query", "headers", "in_thread"),
    [
        ("", {}, False),
        ("?facets=gpu", {}, True),
        ("?as_of=2024-02-03", {}, True),
        ("", {"Accept": "text/csv"}, True),
    ],
)
def test_lists_that_may_take_long_are_made_in_a_thread(
    asking: TestClient,
    thread_of: Callable[[Any, str], list[str]],
    query: str,
    headers: dict[str, str],
    in_thread: bool,
) -> None:
    asking.get("/instances")
    names = thread_of(instances, "list_instances")
    assert asking.get(f"/instances{query}", headers=headers).status_code == 200
    assert list(map(is_worker, names)) == [in_thread]


@pytest.mark.parametrize("path", ["/recommend", "/instances"])
def test_the_first_question_of_a_catalog_is_answered_in_a_thread(
    seeded_file: Any, thread_of: Callable[[Any, str], list[str]], path: str
) -> None:
    names = thread_of(recommend, "answer_in") if path == "/recommend" else thread_of(instances, "list_instances")
    client = TestClient(create_app(Settings(database_url=f"sqlite:///{seeded_file}")))
    for _ in range(2):
        client.post(path, json={"workload": TRAINING}) if path == "/recommend" else client.get(path)
    client.close()
    assert list(map(is_worker, names)) == [True, False]


@pytest.mark.parametrize("path", ["/recommend", "/estimate", "/measurements", "/recommend/batch", "/estimate/batch"])
@pytest.mark.parametrize("sent", [b'{"a": 1}', b'{"a" 1}'])
def test_a_large_body_is_read_in_a_thread_and_answered_like_a_small_one(
    asking: TestClient, thread_of: Callable[[Any, str], list[str]], path: str, sent: bytes
) -> None:
    names = thread_of(body._DECODER, "decode")
    header = {"content-type": "application/json", **bearer()}
    padded = asking.post(path, content=sent + b" " * body.LARGE_BODY_BYTES, headers=header)
    assert names
    assert is_worker(names[0]) or names[0].startswith("asyncio")
    plain = asking.post(path, content=sent, headers=header)
    assert (padded.status_code, padded.json()) == (plain.status_code, plain.json())
    assert 400 <= plain.status_code < 500


def test_a_large_question_has_the_answer_of_a_small_one(asking: TestClient) -> None:
    question = {"workload": {**TRAINING, "model": "resnet-50"}}
    padded = asking.post("/recommend", content=large(question), headers={"content-type": "application/json"})
    assert padded.json() == asking.post("/recommend", json=question).json()


def test_errors_of_a_body_are_described_in_a_thread(
    asking: TestClient, thread_of: Callable[[Any, str], list[str]]
) -> None:
    names = thread_of(problems, "_invalid")
    assert asking.post("/recommend", json={"bogus": 1}).status_code == 422
    assert list(map(is_worker, names)) == [True]


def test_every_other_answer_from_the_catalog_is_made_in_a_thread(fresh: FastAPI) -> None:
    """FastAPI calls plain functions in a thread; of the others, each is quick, or decides by itself."""
    routes = [route for route in fresh.routes if isinstance(route, APIRoute) and route.include_in_schema]
    on_the_loop = {route.operation_id for route in routes if iscoroutinefunction(route.endpoint)}
    batches = {"post_recommend_batch", "post_estimate_batch"}
    decide_themselves = {"get_instances", "post_recommend", "post_estimate"} | batches
    assert on_the_loop == {"get_healthz", "get_readyz", "get_metrics", "get_codes"} | decide_themselves
