"""Earlier questions change no answer: every cache holds the answers to just its own question."""

import gc
from dataclasses import fields, replace
from random import Random
from types import FunctionType
from typing import Any

import pytest
from fastapi import FastAPI

from service.api.recommend.recommend import REQUEST, answer_in
from service.domain.cache import Cache
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.fleet import FleetEstimate

WORKLOADS: dict[str, dict[str, Any]] = {
    "peaks": {"task": "training", "precision": ["fp16"]},
    "a job": {
        "task": "training",
        "model": "llama-3.1-8b",
        "precision": ["bf16"],
        "sequence_length": 2048,
        "global_batch_size": 64,
        "amount": {"tokens": 1e9},
    },
}
BESIDES: list[dict[str, Any]] = [
    {},
    {"limit": 2},
    {"limit": 100},
    {"objective": "fastest"},
    {"diversify": True},
    {"per": "offer"},
    {"current_instance": "aws/p4d.24xlarge"},
    {"constraints": {"max_nodes": 4, "same_placement": True}},
    {"constraints": {"max_nodes": 4}},
    {"constraints": {"market": ["on_demand", "spot"]}},
    {"constraints": {"min_memory_gib": 60}},
    {"constraints": {"min_memory_gib": 60}, "host_per_gpu": {"memory_gib": 80}},
    {"constraints": {"min_memory_gib": 60}, "host_per_gpu": {"memory_gib": 20}},
]
LIMITS = (None, 0.3, 3.0, 20.0)


def forgetful(catalog: Catalog, *, remembering: str = "") -> Catalog:
    """A copy of the catalog with empty caches, apart from one that both share."""
    memories = {
        each.name: each.default_factory()  # type: ignore[operator]
        for each in fields(catalog)
        if isinstance(getattr(catalog, each.name), Cache) and each.name != remembering
    }
    return replace(catalog, **memories)


def questions(workload: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "workload": workload,
            **besides,
            "constraints": besides.get("constraints", {}) | ({} if usd is None else {"max_usd_per_hour": usd}),
        }
        for besides in BESIDES
        for usd in LIMITS
    ]


@pytest.mark.parametrize("name", WORKLOADS)
def test_earlier_questions_change_no_answer(app: FastAPI, name: str) -> None:
    catalog: Catalog = app.state.live_catalog.on(None)
    warm, asked = forgetful(catalog), questions(WORKLOADS[name])
    # To compute what follows from the catalog alone takes most of the time: only questions that differ in the limit on
    # the price share it.
    alike = [forgetful(catalog) for _ in BESIDES]
    expected = [
        answer_in(REQUEST.validate_python(each), forgetful(alike[place // len(LIMITS)], remembering="memory"))
        for place, each in enumerate(asked)
    ]
    for seed in range(3):
        for place in Random(seed).sample(range(len(asked)), len(asked)):
            assert answer_in(REQUEST.validate_python(asked[place]), warm) == expected[place], asked[place]


def test_the_estimates_of_a_job_are_dropped_with_the_cache_of_outlooks(app: FastAPI) -> None:
    kept = forgetful(app.state.live_catalog.on(None))
    answer_in(REQUEST.validate_python({"workload": WORKLOADS["a job"], "constraints": {"max_nodes": 4}}), kept)
    others = [each for each in fields(kept) if isinstance(getattr(kept, each.name), Cache) and each.name != "outlooks"]
    reachable, found = [getattr(kept, each.name) for each in others], {id(kept)}
    estimates = 0
    while reachable:
        one = reachable.pop()
        if id(one) not in found:
            found.add(id(one))
            estimates += isinstance(one, FleetEstimate)
            # Functions and classes lead to their modules, and from there to every cache.
            reachable += [] if isinstance(one, FunctionType | type) else gc.get_referents(one)
    assert estimates == 0


def test_hosts_that_a_question_describes_add_no_caches(app: FastAPI) -> None:
    """Each such question could otherwise leave the tables of a whole catalog in memory."""
    catalog = forgetful(app.state.live_catalog.on(None))
    asked = {"workload": WORKLOADS["peaks"], "constraints": {"gpu": ["a100"]}}
    answer_in(REQUEST.validate_python(asked), catalog)
    before, caches = living(Catalog), living(Cache)
    for vcpus in range(1, 41):
        answer_in(REQUEST.validate_python(asked | {"host_per_gpu": {"vcpus": vcpus}}), catalog)
    assert living(Cache) == caches
    assert living(Catalog) - before <= 32, "as many as `choices` has entries"


def living(kind: type) -> int:
    gc.collect()
    return sum(isinstance(each, kind) for each in gc.get_objects())
