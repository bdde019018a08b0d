"""Random questions about serving on the real seed: the laws of a queue hold, and no answer contradicts another.

A few hundred by default. To ask more: `SELECTOR_TEST_QUESTIONS=10000 python3 dev.py test` with the path of this file.
"""

import json
import os
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.domain.arrays import Floats
from service.domain.calibration.calibration import Calibration
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.serving import Length, Serving
from service.domain.jobs.stacks import software_called
from service.domain.models.model import Model
from service.domain.physics.cluster import Cluster, cluster_of
from service.domain.physics.estimate import estimate_config
from service.domain.physics.features import inference_features
from service.domain.physics.generation import engine_factors, engine_with
from service.domain.physics.load import TIMES, Replicas
from service.domain.physics.parallelism import Layout
from tests.api.answers import full_name, get_json
from tests.builders.invariants import ROUNDED, contradictions_in_load, impossible_speed, littles_law
from tests.builders.random_questions import ENGINES, Questions, Vocabulary
from tests.builders.request_bodies import Body, relaxed

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "300"))
SHARES = 4
IN_ONE_BATCH = 25


@pytest.fixture(scope="module")
def vocabulary(client: TestClient) -> Vocabulary:
    return Vocabulary.of(client)


def batch(client: TestClient, path: str, items: list[Body]) -> list[Any]:
    answer = client.post(f"{path}/batch", json={"items": items})
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["items"]
    return found


def estimated(question: Body, choice: Body) -> Body:
    """The body of `POST /estimate` for the machine of a choice."""
    machine = f"{choice['provider']}/{choice['instance']}"
    where = {name: choice[name] for name in ("nodes", "region", "market")}
    return {"workload": question["workload"], "machine": machine, **where}


@pytest.mark.parametrize("share", range(SHARES))
def test_a_choice_keeps_its_question_and_is_the_estimate_of_its_machine(
    share: int, client: TestClient, vocabulary: Vocabulary
) -> None:
    questions, compared = Questions(vocabulary, Random(share)), 0
    for _ in range(0, ASKED // SHARES, IN_ONE_BATCH):
        items = [questions.load() for _ in range(IN_ONE_BATCH)]
        for question, answer in zip(items, batch(client, "/recommend", items), strict=True):
            assert "problem" not in answer, f"{answer}\n{json.dumps(question)}"
            bodies = [estimated(question, choice) for choice in answer["choices"]]
            estimates = batch(client, "/estimate", bodies) if bodies else []
            for choice, alone in zip(answer["choices"], estimates, strict=True):
                found = list(contradictions(question, choice, alone))
                assert not found, f"{found}\n{json.dumps(question)}"
                compared += 1
    assert compared > ASKED / SHARES


def test_instances_in_each_zone_are_no_more_than_are_allowed(client: TestClient) -> None:
    """Six clients need an engine each to wait for none, so five instances do not keep the limit in any number of zones.

    Four keep a longer limit, and three zones make six of them.
    """
    load = {"concurrency": 6, "input_length": 1635, "output_length": 12, "availability_zones": 3}
    work = {"task": "inference", "model": "deepseek-v3.2", "precision": ["fp16"], "serving": load}
    for seconds in (0.0746, 0.08, 0.09, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5):
        limits = {"max_nodes": 4, "max_instances": 5, "gpu": ["b200-sxm-180gb"]}
        asked = {"workload": {**work, "serving": {**load, "max_seconds_to_first_token": seconds}}, "limit": 100}
        (answer,) = batch(client, "/recommend", [{**asked, "constraints": limits}])
        assert {choice["instances"] for choice in answer["choices"]} <= {3}
        (more,) = batch(client, "/recommend", [{**asked, "constraints": {**limits, "max_instances": 6}}])
        assert {choice["instances"] for choice in more["choices"]} <= {3, 6}
    assert answer["choices"]


def contradictions(question: Body, choice: Body, alone: Body) -> Any:
    """Yields what a choice says against the question, or against the estimate of its machine."""
    work, estimate = question["workload"], choice["estimate"]
    if "serving" not in work:
        if estimate["concurrency"] < work["concurrency"] * (1 - ROUNDED):
            yield f"{estimate['concurrency']} requests in flight"
        yield from littles_law(estimate, work["output_length"], work["concurrency"])
        same = [name for name in alone["estimate"] if name in estimate and name != "joules_per_sample"]
        yield from (name for name in same if estimate[name] != alone["estimate"][name])
        return
    yield from contradictions_in_load(question, choice)
    yield from (name for name, value in alone["load"].items() if choice["serving"][name] != value)


@pytest.mark.parametrize("share", range(SHARES))
def test_a_relaxation_sent_back_admits_what_it_promised(share: int, client: TestClient, vocabulary: Vocabulary) -> None:
    questions, sent_back = Questions(vocabulary, Random(SHARES + share)), 0
    for _ in range(0, ASKED // SHARES, IN_ONE_BATCH):
        items = [{**questions.load(), "limit": 1} for _ in range(IN_ONE_BATCH)]
        sent_back += len(kept_promises(client, items))
    assert sent_back > ASKED / SHARES / 2


def test_long_prompts_have_the_room_that_was_promised(client: TestClient, vocabulary: Vocabulary) -> None:
    questions, changes = Questions(vocabulary, Random(4 * SHARES)), Counter[str]()
    for _ in range(0, ASKED // 2, IN_ONE_BATCH):
        items = [questions.long_prompts() for _ in range(IN_ONE_BATCH)]
        changes.update(field for code, field in kept_promises(client, items) if code == "kv_cache")
    assert changes.total() >= ASKED / 100


def kept_promises(client: TestClient, items: list[Body]) -> list[tuple[str, str]]:
    """Sends every relaxation back, checks what it admits, and returns the code and the field of each."""
    found = []
    for question, answer in zip(items, batch(client, "/recommend", items), strict=True):
        assert "problem" not in answer, f"{answer}\n{json.dumps(question)}"
        promises = [(each["code"], each["relax"]) for each in answer["rejections"] if each["relax"]]
        changed = [relaxed(question, promise["to"]) for _, promise in promises]
        again = batch(client, "/recommend", changed) if changed else []
        for (code, promise), other in zip(promises, again, strict=True):
            assert "problem" not in other, f"{other}\n{promise}\n{json.dumps(question)}"
            stay = answer["counts"]["admitted"] - promise["drops"]
            admits = other["counts"]["admitted"] - stay
            assert admits == promise["admits"], f"{admits}, not {promise}\n{json.dumps(question)}"
            # The best of what a change admits leads where nothing else is admitted.
            if not stay and admits:
                leads = full_name(other["choices"][0])
                assert leads == promise["best"]["instance"], f"{leads}, not {promise}\n{json.dumps(question)}"
            found += [(code, field) for field in promise["to"]]
    return found


@pytest.mark.parametrize("share", range(SHARES))
def test_an_engine_keeps_the_laws_of_a_queue_as_requests_grow(
    share: int, app: FastAPI, client: TestClient, vocabulary: Vocabulary
) -> None:
    questions, answered = Questions(vocabulary, Random(2 * SHARES + share)), 0
    gpus = app.state.live_catalog.on(None).reference.gpus
    details = cache(lambda model: get_json(client, f"/models/{model}"))
    for _ in range(ASKED // SHARES):
        model, work = questions.served_model()
        work |= questions.lengths(model)
        gpu = gpus[questions.random.choice(list(gpus))]
        body = {"workload": work, "machine": {"gpu": gpu.id, "gpu_count": questions.random.choice((1, 1, 2, 4, 8))}}
        (free,) = batch(client, "/estimate", [body])
        if "problem" in free or free["estimate"]["tokens_per_second"] is None:
            continue
        answered += 1
        room, tokens = free["estimate"]["kv_cache_tokens"], work["input_length"] + work["output_length"]
        assert not free["fits"] or room >= tokens * (1 - ROUNDED), json.dumps(body)
        layout = {name: free["estimate"]["layout"][name] for name in ("tensor", "pipeline", "data", "expert")}
        some = questions.whole(1024)
        in_flight = sorted({1, some, 2 * some, 8 * some})
        bodies = [{**body, "workload": {**work, "concurrency": requests}, "layout": layout} for requests in in_flight]
        estimates = [each["estimate"] for each in batch(client, "/estimate", bodies)]
        for requests, estimate in zip(in_flight, estimates, strict=True):
            found = [
                *littles_law(estimate, work["output_length"], requests),
                *impossible_speed(details(work["model"]), work, estimate, gpu.memory_bandwidth_gb_per_second),
            ]
            assert not found, f"{found}\n{requests} of {json.dumps(body)}"
        for few, many in pairwise(estimates):
            for figure in ("tokens_per_second", *(["seconds_per_output_token"] if work["output_length"] > 1 else [])):
                assert many[figure]["likely"] >= few[figure]["likely"] * (1 - ROUNDED), f"{figure}\n{json.dumps(body)}"
    assert answered > ASKED / SHARES / 3


@pytest.mark.parametrize("share", range(SHARES))
def test_more_room_for_the_cache_never_hurts(share: int, app: FastAPI) -> None:
    reference = app.state.live_catalog.on(None).reference
    random, compared = Random(3 * SHARES + share), 0
    models = [model for model in reference.models.values() if model.generates]
    gpus = [gpu for gpu in reference.gpus.values() if gpu.memory_gb and gpu.memory_bandwidth_gb_per_second]
    for _ in range(ASKED // SHARES):
        gpu, tensor = random.choice(gpus), random.choice((1, 2, 4, 8))
        config = InferenceConfig(
            model=random.choice(models),
            precision=random.choice(("bf16", "fp8")),
            input_length=random.choice((16, 500, 4000)),
            output_length=random.choice((4, 100, 1000)),
            concurrency=random.choice((None, 1, 16, 300)),
            software=software_called(random.choice(("vllm", "sglang", "transformers", None))),
        )
        if config.precision not in gpu.rates:
            continue
        memory = gpu.usable_memory_gib or 0.9 * gpu.memory_gb
        small, large = (
            estimate_config(
                reference.calibration,
                config,
                cluster_of(replace(gpu, usable_memory_gib=factor * memory), tensor),
                Layout(tensor=tensor),
            )
            for factor in (1.0, random.choice((1.01, 1.3, 3.0)))
        )
        if small.tokens_per_second is None:
            continue
        compared += 1
        assert large.tokens_per_second is not None
        assert large.tokens_per_second.likely >= small.tokens_per_second.likely * (1 - 1e-9), (config, gpu.id, tensor)
        assert (large.concurrency or 0.0) >= (small.concurrency or 0.0), (config, gpu.id, tensor)
        assert (large.kv_cache_tokens or 0.0) >= (small.kv_cache_tokens or 0.0)
    assert compared > ASKED / SHARES / 8


@pytest.mark.parametrize("share", range(SHARES))
def test_more_instances_at_the_same_load_make_no_figure_worse(share: int, app: FastAPI, vocabulary: Vocabulary) -> None:
    reference = app.state.live_catalog.on(None).reference
    questions, compared = Questions(vocabulary, Random(5 * SHARES + share)), 0
    models = [model for model in reference.models.values() if model.generates]
    gpus = [gpu for gpu in reference.gpus.values() if gpu.memory_gb and gpu.memory_bandwidth_gb_per_second]
    for _ in range(ASKED // SHARES):
        random = questions.random
        config, gpu, tensor = loaded(questions, random.choice(models)), random.choice(gpus), random.choice((1, 2, 8))
        if config.precision not in gpu.rates:
            continue
        compared += 1
        cluster, layout, places = cluster_of(gpu, tensor), Layout(tensor=tensor), float(questions.whole(1024))
        figures = figures_on_fewer_and_fewer(reference.calibration, config, cluster, layout, places)
        for name, figure in figures.items():
            assert (np.diff(figure) >= -ROUNDED * figure[1:]).all(), f"{name} {figure}\n{config}\n{gpu.id} {places}"
    assert compared > ASKED / SHARES / 4


def loaded(questions: Questions, model: Model) -> InferenceConfig:
    """A load of an engine that is limited by times at a percentile."""
    random, lengths = questions.random, [questions.whole(16384), questions.whole(4096)]
    software = software_called(random.choice((*ENGINES, "transformers", None)))
    prompt, answer = (Length(mean, mean * random.uniform(1.0, 3.8) if questions.maybe() else None) for mean in lengths)
    serving = Serving(
        concurrency=random.choice((None, 1.0)),
        prompt=prompt,
        answer=answer,
        percentile=random.choice((0.5, 0.95, 0.99)),
        prefix_cache_hit_rate=random.choice((0.0, 0.0, 0.9)),
        static_batches=software.stack.static_batches,
    )
    return InferenceConfig(
        model=model,
        precision=random.choice(("bf16", "fp16", "fp8", "int4")),
        input_length=lengths[0],
        output_length=lengths[1],
        software=software,
        serving=serving,
    )


def figures_on_fewer_and_fewer(
    calibration: Calibration, config: InferenceConfig, cluster: Cluster, layout: Layout, places: float
) -> dict[str, Floats]:
    """Seconds at loads of a replica that grow as its instances become fewer."""
    serving, one = config.serving, np.ones(40)
    assert serving is not None
    factors = engine_factors(calibration.coefficients, inference_features(config, cluster, layout))
    engine = engine_with(factors, config, cluster, layout)
    replicas = Replicas.of(engine, places * one, one, one)
    closed = serving.concurrency is not None
    load = np.geomspace(1.0, places, 40) if closed else replicas.most(serving) * np.geomspace(1e-3, 0.999, 40)
    times = replicas.times(load, serving)
    limited = {name: figure(times, serving.percentile) for name, (_, figure) in TIMES.items()}
    return limited | {name: getattr(times, name) for name in ("mean_first_token", "mean_per_token", "mean_request")}
