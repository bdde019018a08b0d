"""Random estimates on the real seed: no answer contradicts itself.

A few hundred by default. To ask more: `SELECTOR_TEST_QUESTIONS=10000 python3 dev.py test` with the path of this file.
"""

import json
import os
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import all_items
from tests.builders.invariants import at_most, contradictions_in_estimate, work_above_peak
from tests.builders.random_questions import Questions, Vocabulary
from tests.builders.request_bodies import Body

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "300"))
SHARES = 4
IN_ONE_BATCH = 50


@pytest.fixture(scope="module")
def vocabulary(client: TestClient) -> Vocabulary:
    return Vocabulary.of(client)


@pytest.fixture(scope="module")
def gpus(client: TestClient) -> list[Body]:
    """The GPUs whose figures estimates need."""
    return [gpu for gpu in all_items(client, "/gpus") if gpu["memory_bandwidth_gb_per_second"] and peaks(gpu)]


def peaks(gpu: Body) -> dict[str, float]:
    rates = gpu["precisions"].items()
    return {name: rate["dense_tflops"] for name, rate in rates if rate["dense_tflops"] and rate["support"] != "none"}


def peaks_at_the_base_clock(gpu: Body) -> dict[str, float]:
    """Peaks where a GPU does not hold its boost clock; without known clocks, as if it held it."""
    base, boost = gpu["base_clock_mhz"], gpu["boost_clock_mhz"]
    return {name: peak * (base / boost if base and boost else 1.0) for name, peak in peaks(gpu).items()}


def estimates(client: TestClient, items: list[Body]) -> Iterator[Body]:
    for start in range(0, len(items), IN_ONE_BATCH):
        yield from client.post("/estimate/batch", json={"items": items[start : start + IN_ONE_BATCH]}).json()["items"]


def random_estimate(questions: Questions) -> Body:
    """A job on nodes of an instance type, or on a machine that is described."""
    random = questions.random
    machine = questions.names("instance")[0]
    described = {"gpu": questions.names("gpu")[0], "gpu_count": random.choice((1, 2, 4, 8)), "usd_per_hour": 2.0}
    work = {**questions.workload(), **questions.model(), "task": random.choice(("training", "training", "inference"))}
    return {
        "workload": work,
        "machine": machine if questions.maybe(0.7) else described,
        "nodes": random.choice((1, 1, 2, 8)),
    }


@pytest.mark.parametrize("share", range(SHARES))
def test_a_random_estimate_does_not_contradict_itself(share: int, client: TestClient, vocabulary: Vocabulary) -> None:
    questions = Questions(vocabulary, Random(share))
    known, answered = {model["id"]: model for model in vocabulary.models}, 0
    items = [random_estimate(questions) for _ in range(ASKED // SHARES)]
    for body, answer in zip(items, estimates(client, items), strict=True):
        if "problem" not in answer:  # such as a machine without a GPU, or a precision that its GPU does not run
            answered += 1
            found = list(contradictions_in_estimate(body["workload"], answer["estimate"]))
            model = body["workload"]["model"]
            found += work_above_peak(
                known[model] if isinstance(model, str) else model, body["workload"], answer["estimate"]
            )
            assert not found, f"{found}\n{json.dumps(body)}"
    assert answered > ASKED / SHARES / 4


# Pairs of machines

Pair = tuple[Body, Body]
"""A machine and a better one, each with its nodes, for the same work."""


def training_of(questions: Questions, **given: object) -> Body:
    """Training without the fields that the pairs set themselves."""
    work = {**questions.workload(), **questions.model(), "task": "training", **given}
    return {name: value for name, value in work.items() if name not in ("amount", "batch_size", "numerics")}


def with_faster_links(questions: Questions, gpus: list[Body]) -> Iterator[Pair]:
    draw = questions.random
    while True:
        times, nodes, task = draw.choice((2, 4)), draw.choice((1, 2, 4)), draw.choice(("training", "inference"))
        rates = {"network_gbps": 100, "interconnect_gb_per_second": 100, "vcpus": 32, "memory_gib": 500}
        machine = {"gpu": draw.choice(gpus)["id"], "gpu_count": draw.choice((2, 4, 8))}
        work = {**training_of(questions), "task": task}
        slow, fast = ({**machine, **{name: by * rate for name, rate in rates.items()}} for by in (1, times))
        yield tuple({"workload": work, "machine": each, "nodes": nodes} for each in (slow, fast))  # type: ignore[misc]


def with_a_better_gpu(questions: Questions, gpus: list[Body]) -> Iterator[Pair]:
    """Two GPUs of one architecture, of which the second has no lower figure than the first."""
    draw = questions.random

    def is_better(gpu: Body, than: Body) -> bool:
        figures = ("memory_gb", "memory_bandwidth_gb_per_second", "tdp_watts")
        same = all(gpu[name] == than[name] for name in ("architecture", "kind", "tensor_core_generation"))
        no_lower = all((gpu[name] or 0) >= (than[name] or float("inf")) for name in figures) and (
            (gpu["usable_memory_gib"] or gpu["memory_gb"]) >= (than["usable_memory_gib"] or than["memory_gb"])
        )
        no_slower = all(
            clocked(gpu).get(name, 0.0) >= peak
            for clocked in (peaks, peaks_at_the_base_clock)
            for name, peak in clocked(than).items()
        )
        return same and no_lower and no_slower

    pairs = [(worse, better) for worse in gpus for better in gpus if worse is not better and is_better(better, worse)]
    while True:
        worse, better = draw.choice(pairs)
        task, nodes = draw.choice(("training", "inference")), draw.choice((1, 2))
        work = training_of(questions, precision=[draw.choice(sorted(peaks(worse)))]) | {"task": task}
        machine = {"gpu_count": draw.choice((1, 2, 8)), "network_gbps": 100, "interconnect_gb_per_second": 300}
        yield tuple(
            {"workload": work, "machine": {**machine, "gpu": gpu["id"]}, "nodes": nodes} for gpu in (worse, better)
        )  # type: ignore[misc]


def with_more_nodes(questions: Questions, gpus: list[Body]) -> Iterator[Pair]:
    """Twice the nodes at the same batch per GPU, where data parallelism alone crosses the network."""
    draw = questions.random
    while True:
        work, count, nodes, per_gpu = (
            training_of(questions),
            draw.choice((1, 2, 8)),
            draw.choice((2, 4)),
            draw.choice((1, 8, 32)),
        )
        machine = {"gpu": draw.choice(gpus)["id"], "gpu_count": count, "network_gbps": draw.choice((25, 100, 800))}
        cut = {"tensor": 1, "pipeline": 1, "context": 1, "expert": 1}
        few, many = (
            {
                "workload": {**work, "global_batch_size": per_gpu * count * each},
                "machine": machine,
                "nodes": each,
                "layout": cut,
            }
            for each in (nodes, 2 * nodes)
        )
        yield few, many


@pytest.mark.parametrize("draw", [with_faster_links, with_a_better_gpu, with_more_nodes])
def test_a_better_machine_is_never_slower_in_its_best_layout(
    draw: Callable[[Questions, list[Body]], Iterator[Pair]],
    client: TestClient,
    vocabulary: Vocabulary,
    gpus: list[Body],
) -> None:
    questions, compared = Questions(vocabulary, Random(5)), 0
    pairs = list(islice(draw(questions, gpus), ASKED // SHARES))
    answers = list(estimates(client, [body for each in pairs for body in each]))
    for bodies, worse, better in zip(pairs, answers[::2], answers[1::2], strict=True):
        if "problem" not in worse and worse["fits"]:
            compared += 1
            assert "problem" not in better, f"{better}\n{json.dumps(bodies)}"
            assert better["fits"], json.dumps(bodies)
            slow, fast = (each["estimate"]["samples_per_second"]["likely"] for each in (worse, better))
            assert at_most(slow, fast), f"{slow} > {fast}\n{json.dumps(bodies)}"
    assert compared > ASKED / SHARES / 4


def test_a_larger_micro_batch_never_takes_longer_per_sample_in_the_matrix_part(
    client: TestClient, vocabulary: Vocabulary, gpus: list[Body]
) -> None:
    questions, compared = Questions(vocabulary, Random(6)), 0
    bodies = []
    for _ in range(ASKED // SHARES):
        micro, gpu, work = questions.random.choice((1, 2, 16)), questions.random.choice(gpus), training_of(questions)
        layout = {"data": 2, "tensor": 1, "pipeline": 1, "activation_checkpointing": "none", "zero_stage": 0}
        machine = {"gpu": gpu["id"], "gpu_count": 2}
        bodies += [
            {
                "workload": {**work, "global_batch_size": 8 * micro},
                "machine": machine,
                "layout": {**layout, "micro_batch": each},
            }
            for each in (micro, 2 * micro)
        ]
    answers = list(estimates(client, bodies))
    for body, small, large in zip(bodies[::2], answers[::2], answers[1::2], strict=True):
        if "problem" not in large and large["estimate"]["step_seconds"]:
            compared += 1
            # Both steps have the same samples.
            short, long = (answer["estimate"]["step_seconds"] for answer in (large, small))
            matrix, before = (sum(part.get(name, 0.0) for name in ("matrix", "narrow")) for part in (short, long))
            assert at_most(matrix, before), f"{matrix} > {before}\n{json.dumps(body)}"
    assert compared > ASKED / SHARES / 4
