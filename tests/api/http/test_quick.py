"""What is asked most is answered the quick way, and exactly as the ordinary way would answer it."""

import json
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from service.api.http.body import read_json, read_quickly
from service.api.http.quick import QuickAnswers
from service.api.recommend.request import RecommendRequest
from service.app import QUICK
from tests.api.raw_asgi import JSON, Answer, call, get

TRAINING = {"workload": {"task": "training"}}
ORDINARY = ((b"content-type", b"application/json; charset=utf-8"),)
"""Said so, it is still JSON; but the quick way does not look into it."""

RIGHT: list[dict[str, Any]] = [
    TRAINING,
    {**TRAINING, "constraints": {"gpu": ["a100"], "max_usd_per_hour": 40.5, "min_memory_gib": 100}, "limit": 20},
    {**TRAINING, "objective": {"usd": 1, "risk": 0.5}, "current_instance": "p3.2xlarge", "as_of": "2025-12-31"},
    {"workload": {"task": "inference", "host": {"vcpus_per_gpu": 8}}, "per": "offer", "limit": 5.0},
    {"workload": {"task": "hpc", "precision": "fp64,fp32"}, "objective": "most_efficient"},
]
WRONG = [
    b"",
    b"{",
    b'{"workload": {"task": "training"}, "workload": {"task": "inference"}}',
    b'{"workload": {"task": "training", "task": "training"}}',
    b'{"workload": {"task": "training"}, "constraints": {"min_vcpus": 1, "min_vcpus": 1, "gpu": ["x:y"]}}',
    b'{"workload": {"task": "training"}, "constraints": {"gpu": ["nothing-of-the-kind"]}}',
    b'{"workload": {"task": "training"}, "constraints": {"min_vcpus": NaN}}',
    b'{"workload": {"task": "training"}, "constraints": {"min_vcpus": ' + b"9" * 400 + b"}}",
    b'{"workload": {"task": "training"}, "limit": true}',
    b'{"workload": {"task": "training", "name": "\xff"}}',
    b'{"workload": {"task": "training", "name": "\\ud800"}}',
    b"[" * 100_000,
]


def post(app: FastAPI, body: bytes, headers: Any = JSON, target: str = "/recommend") -> Answer:
    return call(app, "POST", target, headers=headers, chunks=[body])


@pytest.mark.parametrize("body", [*(json.dumps(each).encode() for each in RIGHT), *WRONG])
def test_both_ways_answer_alike(app: FastAPI, body: bytes) -> None:
    quick, ordinary = post(app, body), post(app, body, ORDINARY)
    assert (quick.status, quick.headers, quick.body) == (ordinary.status, ordinary.headers, ordinary.body)
    assert (quick.status == 200) == (body not in WRONG)


@pytest.mark.parametrize("body", RIGHT)
@pytest.mark.parametrize("target", ["/instances?precision=bf16&limit=3", "/instances?precision=fp7"])
def test_a_quick_answer_does_not_reach_the_app(body: dict[str, Any], target: str, app: FastAPI) -> None:
    reached = []

    async def behind(scope: Scope, receive: Receive, send: Send) -> None:
        reached.append(scope["path"])
        await app(scope, receive, send)

    async def quick(scope: Scope, receive: Receive, send: Send) -> None:
        await QuickAnswers(behind, ways=QUICK)({**scope, "app": app}, receive, send)

    assert call(quick, "POST", "/recommend", headers=JSON, chunks=[json.dumps(body).encode()]).status == 200
    assert not reached
    assert (get(quick, target).status == 200) == (not reached)


def test_a_body_in_parts_is_one_body(app: FastAPI) -> None:
    body = json.dumps(RIGHT[1]).encode()
    parts = [body[:7], b"", body[7:50], body[50:]]
    for headers in (JSON, ORDINARY):
        assert call(app, "POST", "/recommend", headers=headers, chunks=parts).body == post(app, body).body


def test_a_query_is_refused(app: FastAPI) -> None:
    answer = post(app, json.dumps(TRAINING).encode(), target="/recommend?limit=5")
    assert answer.status == 422
    assert answer.fields == ["limit"]


def test_what_the_app_receives_is_what_was_sent() -> None:
    got: list[Message] = []

    async def behind(_scope: Scope, receive: Receive, send: Send) -> None:
        while not got or got[-1]["type"] != "http.disconnect":
            got.append(await receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})

    ways = {("POST", "/"): lambda _request, _body: None}
    call(QuickAnswers(behind, ways=ways), "POST", "/", chunks=[b"a", b"b"])
    assert [message.get("body") for message in got] == [b"a", b"b", None]


@pytest.mark.parametrize(
    "number", ["0.1", "9.5e14", "8.41", "123456789.123456789", "2.2250738585072014e-308", "5", "-0"]
)
def test_numbers_are_read_alike(number: str) -> None:
    body = b'{"workload":{"task":"training"},"constraints":{"min_vcpus":%b}}' % number.encode()
    assert read_quickly(body, RecommendRequest) == RecommendRequest.model_validate(read_json(body))
