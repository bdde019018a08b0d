"""Random valid questions: each is answered, with figures that are numbers and sentences that say something.

A few hundred by default. To ask more: `SELECTOR_TEST_QUESTIONS=100000 python3 dev.py test` with the path of this file.
"""

import json
import os
from collections.abc import Iterator
from itertools import cycle
from math import isclose, isfinite
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import full_name, price_ignored
from tests.api.documented import DOCUMENT
from tests.builders.boundary_values import Edges
from tests.builders.invariants import contradictions_in_choice, crossed_bands, differences_from_estimate
from tests.builders.random_questions import Questions, Vocabulary
from tests.builders.request_bodies import relaxed

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "300"))
SHARES = 4
IN_ONE_BATCH = 50
SCHEMAS = DOCUMENT["components"]["schemas"]


@pytest.fixture(scope="module")
def vocabulary(client: TestClient) -> Vocabulary:
    return Vocabulary.of(client)


def refuse_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def batch_answers(client: TestClient, items: list[dict[str, Any]]) -> list[Any]:
    response = client.post("/recommend/batch", json={"items": items})
    assert response.status_code == 200, response.text
    found: list[Any] = json.loads(response.text, parse_constant=refuse_constant)["items"]
    return found


def estimates(client: TestClient, items: list[dict[str, Any]]) -> list[Any]:
    found: list[Any] = client.post("/estimate/batch", json={"items": items}).json()["items"] if items else []
    return found


@pytest.mark.parametrize("share", range(SHARES))
def test_a_random_question_is_answered_in_figures_and_sentences(
    share: int, client: TestClient, vocabulary: Vocabulary
) -> None:
    questions = Questions(vocabulary, Random(share))
    for start in range(0, ASKED // SHARES, IN_ONE_BATCH):
        items = [questions.question() for _ in range(min(IN_ONE_BATCH, ASKED // SHARES - start))]
        for question, answer in zip(items, batch_answers(client, items), strict=True):
            faults = list(faults_of(question, answer))
            assert not faults, f"{faults}\n{json.dumps(question)}"


@pytest.mark.parametrize("share", range(SHARES))
def test_a_relaxation_sent_back_admits_what_it_promised(share: int, client: TestClient, vocabulary: Vocabulary) -> None:
    questions, sent_back = Questions(vocabulary, Random(3 * SHARES + share)), 0
    for start in range(0, ASKED // SHARES, IN_ONE_BATCH):
        items = [{**questions.question(), "limit": 1} for _ in range(min(IN_ONE_BATCH, ASKED // SHARES - start))]
        for item, confidence in zip(items, cycle((0.5, 0.75, 0.9, 0.97)), strict=False):
            item["workload"]["memory_confidence"] = confidence
        for question, answer in zip(items, batch_answers(client, items), strict=True):
            promises = [each["relax"] for each in answer["rejections"] if each["relax"]]
            changed = [relaxed(question, promise["to"]) for promise in promises]
            for promise, again in zip(promises, batch_answers(client, changed) if changed else (), strict=True):
                assert "problem" not in again, f"{again}\n{promise}\n{json.dumps(question)}"
                stay = answer["counts"]["admitted"] - promise["drops"]
                found = again["counts"]["admitted"] - stay
                assert found == promise["admits"], f"{found}, not {promise}\n{json.dumps(question)}"
                # The best of what a change admits leads where nothing else is admitted.
                if not stay and found:
                    leads = full_name(again["choices"][0])
                    assert leads == promise["best"]["instance"], f"{leads}, not {promise}\n{json.dumps(question)}"
                sent_back += 1
    assert sent_back > ASKED / SHARES / 2


A_PART_OF_A_CARD = {
    "workload": {"task": "training", "host": {"memory_gib": 42}},
    "constraints": {"max_gpu_count": 0.5, "bare_metal": False},
}
SPOT_KEEPS_THE_BUDGET = {
    "workload": {"task": "inference", "model": "whisper-tiny", "amount": {"steps": 112_457}, "fault_tolerant": False},
    "constraints": {"min_total_gpu_memory_gb": 96, "budget_usd": 839, "same_placement": True},
}


SPOT_STAYS = {
    "workload": {"task": "inference", "fault_tolerant": False},
    "constraints": {"continent": ["asia"], "market": ["spot"], "gpudirect_rdma": True, "max_nodes": 2},
}
CODE_FOR_CPUS = {
    "workload": {"task": "inference", "model": "resnet-50", "software": {"platforms": ["cpu"]}},
    "objective": "fastest",
}


@pytest.mark.parametrize(
    ("question", "code"),
    [
        (A_PART_OF_A_CARD, "mainstream"),
        (A_PART_OF_A_CARD, "max_gpu_count"),
        (SPOT_KEEPS_THE_BUDGET, "market"),
        (SPOT_STAYS, "spot_price_unknown"),
        (CODE_FOR_CPUS, "software_platforms"),
    ],
)
def test_a_relaxation_counts_types_that_stay_and_types_that_then_keep_a_limit(
    question: dict[str, Any], code: str, client: TestClient
) -> None:
    answer = client.post("/recommend", json=question).json()
    promise = next(each["relax"] for each in answer["rejections"] if each["code"] == code and each["relax"])
    again = client.post("/recommend", json=relaxed(question, promise["to"])).json()
    stay = answer["counts"]["admitted"] - promise["drops"]
    assert again["counts"]["admitted"] - stay == promise["admits"] > 0


def test_a_relaxation_by_hardware_alone_promises_nothing_that_a_known_price_changes(client: TestClient) -> None:
    """With `fp16`, machines with a price take part, of which some have no known power."""
    question = {
        "workload": {"task": "hpc", "precision": ["mxfp8", "fp8", "int1"]},
        "constraints": {"max_local_storage_gb": 100},
        "objective": {"samples_per_usd": 5, "joules": 1},
    }
    answer = client.post("/recommend", json=question).json()
    assert price_ignored(answer)
    promises = {each["code"]: each["relax"] for each in answer["rejections"]}
    assert promises.pop("precision") is None
    compared = 0
    for promise in filter(None, promises.values()):
        again = client.post("/recommend", json=relaxed(question, promise["to"])).json()
        stay = answer["counts"]["admitted"] - promise["drops"]
        assert again["counts"]["admitted"] - stay == promise["admits"] > 0
        compared += 1
    assert compared


@pytest.mark.parametrize("share", range(SHARES))
def test_an_estimate_repeats_the_layout_the_rate_and_the_hours_of_a_choice(
    share: int, client: TestClient, vocabulary: Vocabulary
) -> None:
    questions, compared = Questions(vocabulary, Random(4 * SHARES + share)), 0
    for start in range(0, ASKED // SHARES, IN_ONE_BATCH):
        asked = [questions.question_of_a_job() for _ in range(min(IN_ONE_BATCH, ASKED // SHARES - start))]
        choices = [
            (question, choice)
            for question, answer in zip(asked, batch_answers(client, asked), strict=True)
            for choice in answer["choices"]
            if choice["estimate"]["basis"] == "modelled"
        ]
        items = [
            {
                "workload": question["workload"],
                "machine": f"{choice['provider']}/{choice['instance']}",
                "nodes": choice["nodes"],
                "instances": choice["instances"],
                "as_of": question.get("as_of"),
                "layout": question["constraints"].get("layout", {}),
            }
            for question, choice in choices
        ]
        for (question, choice), answer in zip(choices, estimates(client, items), strict=True):
            found = list(differences_from_estimate(question["workload"], choice, answer))
            assert not found, f"{found}\n{choice['instance']}\n{json.dumps(question)}"
            compared += 1
    assert compared > ASKED / SHARES / 2


def test_a_layout_that_is_fixed_is_not_that_of_runs_on_other_machines(client: TestClient) -> None:
    """A choice was modelled where `POST /estimate` scaled a run on a machine that the layout does not divide over."""
    work = {
        "task": "training", "name": "alexnet_train", "amount": {"steps": 700},
        "model": {"parameters": 5e8, "active_parameters": 1e8, "forward_flops_per_sample": 1e9},
    }  # fmt: skip
    layout, day = {"data": 2, "activation_checkpointing": "none"}, "2021-05-16"
    limits = {"instance": ["aws/g3.8xlarge"], "layout": layout}
    [choice] = client.post("/recommend", json={"workload": work, "constraints": limits, "as_of": day}).json()["choices"]
    item = {"workload": work, "machine": "aws/g3.8xlarge", "layout": layout, "as_of": day}
    assert choice["estimate"]["basis"] == "scaled"
    assert list(differences_from_estimate(work, choice, client.post("/estimate", json=item).json())) == []


@pytest.mark.parametrize("share", range(SHARES))
def test_numbers_at_the_ends_of_what_is_allowed_are_answered_or_refused(
    share: int, client: TestClient, vocabulary: Vocabulary
) -> None:
    random = Random(SHARES + share)
    questions, edges = Questions(vocabulary, random), Edges(SCHEMAS, random)
    for _ in range(ASKED // SHARES):
        asked = edges.moved(questions.question(), "RecommendRequest-Input", random.choice((0.05, 0.2, 0.5)))
        answer = client.post("/recommend", json=asked)
        if answer.status_code == 422 and answer.json()["errors"][0]["field"]:
            continue
        assert answer.status_code == 200, f"{answer.text}\n{json.dumps(asked)}"
        faults = list(faults_of(asked, json.loads(answer.text, parse_constant=refuse_constant)))
        assert not faults, f"{faults}\n{json.dumps(asked)}"


@pytest.mark.parametrize("share", range(SHARES))
def test_estimates_of_numbers_at_the_ends_are_figures(share: int, client: TestClient, vocabulary: Vocabulary) -> None:
    random = Random(2 * SHARES + share)
    questions, edges = Questions(vocabulary, random), Edges(SCHEMAS, random)
    for _ in range(ASKED // SHARES):
        work = {**questions.workload(), **questions.model(), "task": random.choice(("training", "inference"))}
        body = {"workload": work, "machine": questions.names("instance")[0], "nodes": random.choice((1, 2, 8, 10_000))}
        asked = edges.moved(body, "EstimateRequest", random.choice((0.05, 0.2, 0.5)))
        answer = client.post("/estimate", json=asked)
        assert answer.status_code in (200, 422), f"{answer.text}\n{json.dumps(asked)}"
        json.loads(answer.text, parse_constant=refuse_constant)


def faults_of(question: dict[str, Any], answer: dict[str, Any]) -> Iterator[str]:
    if "problem" in answer:
        yield f"refused: {answer['problem']['detail']}"
        return
    counts, choices = answer["counts"], answer["choices"]
    if counts["considered"] != counts["admitted"] + counts["rejected"]:
        yield f"counts: {counts}"
    if [choice["rank"] for choice in choices] != list(range(1, len(choices) + 1)):
        yield "ranks have gaps"
    if len(choices) > question.get("limit", 5):
        yield "more choices than asked for"
    if counts["admitted"] and not choices:
        yield "admitted, but none is chosen"
    yield from faults_of_choices(answer)
    yield from (f"nothing says why {choice['instance']}" for choice in choices if not choice["reasons"])
    for rejection in answer["rejections"]:
        relax = rejection["relax"]
        if rejection["count"] < max(1, rejection["only_this"]) or (relax and relax["admits"] < 1):
            yield f"rejection: {rejection}"
    for part in ("choices", "rejections", "current", "advice", "notes"):
        yield from odd(answer[part], part)
        yield from crossed_bands(answer[part], part)


def faults_of_choices(answer: dict[str, Any]) -> Iterator[str]:
    helps = [each["relax"] for each in answer["rejections"] if each["relax"]]
    helps += [note for note in answer["notes"] if note["code"] == "several_constraints"]
    if not answer["choices"] and not helps:
        yield "nothing is chosen, and nothing says what would admit something"
    for choice in answer["choices"]:
        yield from contradictions_in_choice(answer["question"], choice)
        yield from usd_against_hours(choice)


def usd_against_hours(choice: dict[str, Any]) -> Iterator[str]:
    """A choice costs its billed hours times the price of all machines, and its data, at each end of the bands."""
    bill, price = choice["cost"], choice["price"]
    if bill is None or bill["usd"] is None:
        return
    prices = {end: price[f"usd_per_hour{name}"] for end, name in (("low", "_low"), ("likely", ""), ("high", "_high"))}
    machines = choice["nodes"] * choice["instances"]
    for end, usd_per_hour in prices.items():
        data = (part["usd"] for part in bill["parts"] if part["name"] in ("storage", "transfer"))
        of_data = sum(part[end] for part in data if part is not None)  # a bill leaves unknown charges out
        usd = bill["billed_hours"][end] * usd_per_hour * machines + of_data
        if not isclose(bill["usd"][end], usd, rel_tol=1e-4, abs_tol=1e-6):
            yield f"${bill['usd']} for {bill['billed_hours']} h of {machines:g} machines at ${usd_per_hour} ({end})"


def odd(value: Any, where: str) -> Iterator[str]:
    """Figures that are none, dollars that are 0 or less, and texts that say nothing."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from odd(each, f"{where}.{name}")
            if "usd" in name and isinstance(each, int | float) and not isinstance(each, bool) and each <= 0:
                yield f"{where}.{name} = {each}"
            if name in ("text", "code") and not each:
                yield f"{where}.{name} is empty"
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from odd(each, f"{where}[{place}]")
    elif isinstance(value, float) and not isfinite(value):
        yield f"{where} = {value}"
