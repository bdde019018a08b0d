"""POST /recommend with a model: choices equal POST /estimate, money multiplies out, every fact is stated."""

import json
from math import isfinite
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from service.api.recommend.response import RecommendResponse
from tests.api.answers import get_json, post_estimate, post_recommend, ranked_factor
from tests.api.raw_asgi import recommend
from tests.builders.request_bodies import Body, changed, question, relaxed

LLAMA = {"model": "llama-3.1-8b", "precision": ["bf16"], "sequence_length": 4096, "global_batch_size": 64}
TOKENS = {"amount": {"tokens": 1e9}}
SERVING = {"model": "llama-3.1-70b", "input_length": 512, "output_length": 128, "software": {"engine": "vllm"}}

JOBS: dict[str, Body] = {
    "training": question(workload={**LLAMA, **TOKENS}, constraints={"provider": ["aws"]}, limit=20),
    "on nodes": question(
        workload={**LLAMA, **TOKENS, "model": "llama-3.1-70b", "software": {"framework": "torchtitan"}},
        constraints={"provider": ["aws", "gcp"], "max_nodes": 4},
        objective="fastest",
        limit=20,
    ),
    "LoRA without an amount": question(
        workload={"model": "llama-3.1-8b", "method": "lora"}, constraints={"max_gpu_count": 2}, limit=10
    ),
    "serving": question("inference", workload={**SERVING, "amount": {"tokens": 1e8}}, objective="best_value", limit=20),
    "one answer at a time": question("inference", workload={**SERVING, "concurrency": 1}, limit=10),
    "pictures": question(
        workload={"model": "resnet-50", "global_batch_size": 256, "amount": {"samples": 1.2e6, "epochs": 90}},
        constraints={"deadline_hours": 24, "max_nodes": 2},
        limit=20,
    ),
    "experts in a hurry": question(
        workload={"model": "mixtral-8x7b", "global_batch_size": 32, "amount": {"steps": 1000}},
        constraints={"deadline_hours": 10, "max_nodes": 2},
        objective={"usd": 1, "hours": 0.5},
        limit=20,
    ),
    "offers": question(
        workload={**LLAMA, **TOKENS, "fault_tolerant": True}, constraints={"family": ["p4d", "p5"]}, per="offer"
    ),
    "watts": question(workload={**LLAMA, **TOKENS}, constraints={"provider": ["gcp"]}, objective="most_efficient"),
}


@pytest.fixture(scope="module")
def answers(client: TestClient) -> dict[str, Any]:
    return {name: post_recommend(client, body) for name, body in JOBS.items()}


@pytest.mark.parametrize("name", JOBS)
def test_dollars_are_hours_times_price_of_all_nodes(answers: dict[str, Any], name: str) -> None:
    choices = answers[name]["choices"]
    assert choices
    for choice in choices:
        estimate = choice["estimate"]
        assert estimate["basis"] == "modelled"
        if choice["price"]["usd_per_hour"] is None:  # the fastest may have no price
            assert choice["usd_per_hour"] is estimate["usd"] is estimate["samples_per_usd"] is None
            continue
        assert choice["usd_per_hour"] == round(choice["price"]["usd_per_hour"] * choice["nodes"], 6)
        if "amount" in JOBS[name]["workload"]:
            paid, price = choice["cost"]["billed_hours"], choice["price"]
            prices = {"likely": price["usd_per_hour"], **{end: price[f"usd_per_hour_{end}"] for end in ("low", "high")}}
            for part, usd in prices.items():
                assert estimate["usd"][part] == pytest.approx(paid[part] * usd * choice["nodes"], rel=1e-4)
            usd = choice["cost"]["per_unit"]["usd_per_thousand_samples"]["likely"]
            assert usd == pytest.approx(1000 / estimate["samples_per_usd"], rel=1e-5, abs=1e-6)
            assert choice["cost"]["per_unit"]["samples_per_usd"]["likely"] == estimate["samples_per_usd"]
        else:
            assert estimate["usd"] is None
            assert estimate["hours"] is None
            rate = estimate["samples_per_second"]["likely"]
            assert estimate["samples_per_usd"] == pytest.approx(rate * 3600 / choice["usd_per_hour"], rel=1e-4)


SHARED = {
    "precision", "samples_per_second", "tokens_per_second", "seconds_to_first_token", "hours", "bottleneck", "layout",
    "memory", "concurrency", "joules_per_sample", "extrapolates", "step_seconds", "kv_cache_tokens",
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_a_choice_is_what_an_estimate_of_its_machine_says(
    client: TestClient, answers: dict[str, Any], name: str
) -> None:
    for choice in answers[name]["choices"][:4]:
        asked = {
            "workload": JOBS[name]["workload"],
            "machine": f"{choice['provider']}/{choice['instance']}",
            "nodes": choice["nodes"],
        }
        alone = client.post("/estimate", json=asked).json()
        assert alone["fits"] is True
        # The hours of spot machines include interruptions, which the estimate reports in fields of their own.
        for field in SHARED - ({"hours"} if choice["market"] == "spot" else set()):
            assert choice["estimate"][field] == near(alone["estimate"][field]), field


def near(value: Any) -> Any:
    """Equal but for the last digit."""
    if isinstance(value, float):
        return pytest.approx(value, rel=2e-5)
    if isinstance(value, dict):
        return {key: near(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize("name", JOBS)
def test_counts_of_a_job_add_up(client: TestClient, answers: dict[str, Any], name: str) -> None:
    answer, counts = answers[name], answers[name]["counts"]
    assert counts["considered"] == counts["admitted"] + counts["rejected"]
    known = get_json(client, "/recommend/codes")
    for rejection in answer["rejections"]:
        assert rejection["code"] in known["rejections"]
        assert 0 <= rejection["only_this"] <= rejection["count"] <= counts["rejected"]
    assert sum(rejection["count"] for rejection in answer["rejections"]) >= counts["rejected"]
    assert {w["code"] for choice in answer["choices"] for w in choice["warnings"]} <= set(known["warnings"])
    assert {r["code"] for choice in answer["choices"] for r in choice["reasons"]} <= set(known["reasons"])
    documented = TypeAdapter(RecommendResponse)
    assert documented.dump_python(documented.validate_python(answer), mode="json") == answer


@pytest.mark.parametrize("name", JOBS)
def test_relaxations_of_a_job_admit_what_they_say(client: TestClient, answers: dict[str, Any], name: str) -> None:
    answer = answers[name]
    for rejection in answer["rejections"]:
        if rejection["relax"] is not None and rejection["code"] in ("gpu_memory", "deadline_hours"):
            after = post_recommend(client, relaxed(JOBS[name], rejection["relax"]["to"]))
            assert after["counts"]["admitted"] == answer["counts"]["admitted"] + rejection["relax"]["admits"]


@pytest.mark.parametrize("more", [{}, {"deadline_hours": 24}, {"deadline_hours": 2}, {"budget_usd": 50}], ids=str)
def test_what_the_price_of_an_hour_alone_keeps_out_of_a_job_comes_in_without_it(
    client: TestClient, more: dict[str, float]
) -> None:
    work = {**LLAMA, **TOKENS}
    answer = post_recommend(client, question(workload=work, constraints={"max_usd_per_hour": 2, **more}))
    after = post_recommend(client, question(workload=work, constraints=more))
    alone = next(each["only_this"] for each in answer["rejections"] if each["code"] == "max_usd_per_hour")
    assert after["counts"]["admitted"] == answer["counts"]["admitted"] + alone


def test_these_jobs_meet_the_reasons_that_only_jobs_have(answers: dict[str, Any]) -> None:
    relaxations = {
        rejection["code"]
        for answer in answers.values()
        for rejection in answer["rejections"]
        if rejection["relax"] is not None
    }
    assert relaxations >= {"gpu_memory", "deadline_hours"}
    met = {rejection["code"] for answer in answers.values() for rejection in answer["rejections"]}
    assert met >= {"without_gpu", "gpu_figures_unknown", "precision", "gpu_memory", "deadline_hours"}


@pytest.mark.parametrize("name", JOBS)
def test_the_same_job_has_the_same_bytes(client: TestClient, name: str) -> None:
    assert client.post("/recommend", json=JOBS[name]).content == client.post("/recommend", json=JOBS[name]).content


def test_no_choice_is_late(answers: dict[str, Any]) -> None:
    for name in ("pictures", "experts in a hurry"):
        limit = JOBS[name]["constraints"]["deadline_hours"]
        hours = [choice["estimate"]["hours"]["likely"] for choice in answers[name]["choices"]]
        assert hours
        assert max(hours) <= limit


def test_each_objective_ranks_a_job_by_its_own_figure(answers: dict[str, Any]) -> None:
    def ranked(name: str, *path: str) -> list[float]:
        found = answers[name]["choices"]
        for step in path:
            found = [each[step] for each in found]
        return found  # type: ignore[no-any-return]

    def figures_of(name: str, *path: str) -> list[float]:
        factors = [ranked_factor(price) for price in ranked(name, "price")]
        return [figure * factor for figure, factor in zip(ranked(name, *path), factors, strict=True)]

    cheapest = figures_of("training", "estimate", "usd", "likely")
    fastest = ranked("on nodes", "estimate", "hours", "likely")
    value = [
        choice["estimate"]["samples_per_usd"] / ranked_factor(choice["price"])
        for choice in answers["serving"]["choices"]
    ]
    per_hour = figures_of("LoRA without an amount", "usd_per_hour")
    watts = ranked("watts", "estimate", "joules_per_sample")
    offers = figures_of("offers", "estimate", "usd", "likely")
    for figures in (cheapest, fastest, per_hour, watts, offers):
        assert figures == pytest.approx(sorted(figures), rel=1e-4)
    assert value == pytest.approx(sorted(value, reverse=True), rel=1e-4)
    assert len(offers) > len({choice["instance"] for choice in answers["offers"]["choices"]})


def test_the_concurrency_asked_for_is_kept_or_the_type_is_rejected(client: TestClient) -> None:
    answer = post_recommend(client, question("inference", workload={**SERVING, "concurrency": 512}, limit=100))
    assert answer["choices"]
    assert all(choice["estimate"]["concurrency"] >= 512 * (1 - 1e-9) for choice in answer["choices"])
    assert {each["code"]: each["count"] for each in answer["rejections"]}["concurrency"] > 0


@pytest.mark.parametrize("amount", [{}, TOKENS], ids=["rate", "amount"])
def test_fewer_requests_in_flight_admit_what_the_relaxation_says(client: TestClient, amount: dict[str, Any]) -> None:
    asked = question("inference", workload={**SERVING, **amount, "concurrency": 5000}, limit=1)
    answer = post_recommend(client, asked)
    (rejection,) = (each for each in answer["rejections"] if each["code"] == "concurrency")
    fewer, admits = rejection["relax"]["to"]["workload.concurrency"], rejection["relax"]["admits"]
    asked["workload"]["concurrency"] = fewer + 1
    more = post_recommend(client, asked)
    # Types without a price are admitted where no type with a price is.
    unpriced = bool(more["choices"]) and more["choices"][0]["usd_per_hour"] is None
    assert unpriced or more["counts"]["admitted"] == answer["counts"]["admitted"]
    asked["workload"]["concurrency"] = fewer
    assert post_recommend(client, asked)["counts"]["admitted"] == answer["counts"]["admitted"] + admits


def test_requests_in_flight_are_not_lowered_where_limits_depend_on_them(client: TestClient) -> None:
    work = {**SERVING, **TOKENS, "concurrency": 5000}
    answer = post_recommend(client, question("inference", workload=work, constraints={"deadline_hours": 100}))
    (rejection,) = (each for each in answer["rejections"] if each["code"] == "concurrency")
    assert rejection["relax"] is None


LOAD = {"requests_per_second": 20, "input_length": 512, "output_length": 128}
OF_A_LOAD = {"model": "llama-3.1-70b", "software": {"engine": "vllm"}}
SERVING_LIMITS = [
    ("max_seconds_to_first_token", "too_slow_first_token", "seconds_to_first_token"),
    ("max_seconds_per_output_token", "too_slow_per_token", "seconds_per_output_token"),
    ("max_seconds_per_request", "too_slow_per_request", "seconds_per_request"),
]


def serve(client: TestClient, load: dict[str, Any], **constraints: Any) -> Any:
    asked = {"provider": ["aws"], **constraints}
    work = {**OF_A_LOAD, "serving": {**LOAD, **load}}
    return post_recommend(client, question("inference", workload=work, constraints=asked, limit=100))


@pytest.mark.parametrize(("field", "code", "figure"), SERVING_LIMITS)
def test_a_limit_on_a_time_is_kept_and_the_least_change_of_it_admits_what_it_says(
    client: TestClient, field: str, code: str, figure: str
) -> None:
    free = serve(client, {"max_seconds_per_output_token": None})
    seconds = sorted(choice["serving"][figure] for choice in free["choices"])
    limit = seconds[0] / 2
    answer = serve(client, {field: limit})
    assert all(choice["serving"][figure] <= limit for choice in answer["choices"])
    rejection = next(each for each in answer["rejections"] if each["code"] == code)
    assert rejection["only_this"] == free["counts"]["admitted"] - answer["counts"]["admitted"] > 0
    relaxed = rejection["relax"]["to"][f"workload.serving.{field}"]
    wider = serve(client, {field: relaxed})
    assert wider["counts"]["admitted"] == answer["counts"]["admitted"] + rejection["relax"]["admits"]


def test_a_load_without_limits_is_served_twice_as_fast_as_people_read(client: TestClient) -> None:
    field = "max_seconds_per_output_token"
    load = {"requests_per_second": None, "concurrency": 2000, "input_length": 30000, "output_length": 500}
    free, none, named = serve(client, load), serve(client, {**load, field: None}), serve(client, {**load, field: 0.1})
    assert free["question"]["workload"]["serving"][field] == 0.1
    assert none["question"]["workload"]["serving"][field] is None
    (note,) = (each for each in free["notes"] if each["code"] == "reading_speed")
    assert note["fields"] == [f"workload.serving.{field}"]
    assert "0.1 s per token" in note["text"]
    assert "reading_speed" not in {each["code"] for answer in (none, named) for each in answer["notes"]}
    assert free["choices"] == named["choices"]
    seconds, unlimited = ([each["serving"]["seconds_per_output_token"] for each in answer["choices"]]
                          for answer in (free, none))  # fmt: skip
    assert max(seconds) <= 0.1 < max(unlimited)
    again = post_recommend(client, {**none["question"], "limit": 100})
    assert again["choices"] == none["choices"]


def test_the_stack_of_inferentia_serves_a_model_of_vllm(client: TestClient) -> None:
    answer = serve(client, {}, gpu=["inferentia2-32gb", "h100-sxm5-80gb"])
    engines = {choice["instance"].split(".")[0]: choice["serving"]["engine"] for choice in answer["choices"]}
    assert engines["inf2"] == "neuronx-distributed"
    assert engines["p5"] == "vllm"


LONG = {"input_length": 120_000, "output_length": 1000, "concurrency": 4}
LONGER = LONG | {"input_length": {"mean": 120_000, "p95": 150_000}}
ALONE = {"provider": ["vast"], "max_gpu_count": 1}
OF_SMALL_GPUS = {"provider": ["aws"], "gpu": ["a10g-24gb"]}
# On one T4G, whose memory has bytes to spare, the engine's share of it has no room for a request.
TIGHT = {
    "model": "open-llama-13b",
    "precision": ["fp16"],
    "software": {"engine": "vllm==0.6.0"},
    "input_length": 1001,
    "output_length": 710,
    "concurrency": 286,
}
ROOM_FOR_CACHE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an fp8 cache": ({"serving": LONG}, {}, "workload.kv_cache_precision"),
    # Four A10G hold the weights in the share of their memory in which vLLM plans, but not with nine chances in ten.
    "nodes": ({**LONG, "kv_cache_precision": "fp8", "memory_confidence": 0.5}, OF_SMALL_GPUS, "max_nodes"),
    "nodes where memory is to spare": (TIGHT, {"max_nodes": 2}, "max_nodes"),
    "a prompt": ({**LONG, "kv_cache_precision": "fp8"}, ALONE, "workload.input_length"),
    # With more confidence, less of it comes first: a card with 96 GB holds such a request with a probability of 72 %.
    "a prompt of a load": (
        {"serving": LONGER, "kv_cache_precision": "fp8", "memory_confidence": 0.5},
        ALONE,
        "workload.serving.input_length",
    ),
}


@pytest.mark.parametrize("name", ROOM_FOR_CACHE)
def test_the_smallest_change_that_makes_room_for_the_cache_admits_what_it_says(client: TestClient, name: str) -> None:
    work, limits, field = ROOM_FOR_CACHE[name]
    work = {"model": "llama-3.1-70b", "precision": ["fp8"], "software": {"engine": "vllm"}, **work}
    asked = question("inference", workload=work, constraints=limits, limit=1)
    answer = post_recommend(client, asked)
    (rejection,) = (each for each in answer["rejections"] if each["code"] == "kv_cache")
    promise = rejection["relax"]
    assert list(promise["to"]) == [field]
    again = post_recommend(client, relaxed(asked, promise["to"]))
    assert again["counts"]["admitted"] == answer["counts"]["admitted"] + promise["admits"]
    if field.endswith("input_length"):
        longer = relaxed(asked, {field: with_longer_prompt(promise["to"][field])})
        beyond = post_recommend(client, {**longer, "explain": rejection["instances"]})
        assert not any(each["admitted"] for each in beyond["explained"])


def test_fewer_requests_admit_the_machines_that_hold_them_on_the_most_nodes(client: TestClient) -> None:
    """On one node, g7e.24xlarge has too little memory; on two, it runs some hundred requests."""
    asked = question(
        "inference",
        workload={
            "model": "nemotron-4-340b", "precision": ["fp8"], "kv_cache_precision": "fp8", "input_length": 2048,
            "output_length": 2, "concurrency": 807,
        },
        constraints={"max_nodes": 2},
        explain=["aws/g7e.24xlarge"],
    )  # fmt: skip
    answer = post_recommend(client, asked)
    assert [ground["code"] for ground in answer["explained"][0]["grounds"]] == ["concurrency"]
    (rejection,) = (each for each in answer["rejections"] if each["code"] == "concurrency")
    again = post_recommend(client, relaxed(asked, rejection["relax"]["to"]))
    assert again["counts"]["admitted"] == answer["counts"]["admitted"] + rejection["relax"]["admits"]


def with_longer_prompt(prompt: Any) -> Any:
    """A prompt that is longer by as much as the search leaves open."""
    # The percentile is in proportion to the mean, so the search leaves more of it open.
    if isinstance(prompt, dict):
        return {name: tokens * (1 + 120 / prompt["mean"]) for name, tokens in prompt.items()}
    return prompt + 120


def test_a_limit_on_instances_is_kept_and_the_least_change_of_it_admits_what_it_says(client: TestClient) -> None:
    free = serve(client, {})
    fewest = sorted(choice["instances"] for choice in free["choices"])
    assert fewest[-1] > fewest[0]
    answer = serve(client, {}, max_instances=fewest[0])
    assert all(choice["instances"] <= fewest[0] for choice in answer["choices"])
    rejection = next(each for each in answer["rejections"] if each["code"] == "max_instances")
    wider = serve(client, {}, max_instances=rejection["relax"]["to"]["max_instances"])
    assert wider["counts"]["admitted"] == answer["counts"]["admitted"] + rejection["relax"]["admits"]


@pytest.mark.parametrize("load", [{}, {"requests_per_second": None, "concurrency": 64, "percentile": 50}])
def test_a_choice_for_a_load_is_the_estimate_of_its_machine(client: TestClient, load: dict[str, Any]) -> None:
    choice = serve(client, {**load, "max_seconds_per_output_token": 0.1})["choices"][0]
    machine = f"{choice['provider']}/{choice['instance']}"
    work = {"task": "inference", **OF_A_LOAD, "serving": {**LOAD, **load, "max_seconds_per_output_token": 0.1}}
    answer = client.post(
        "/estimate", json={"workload": work, "machine": machine, "region": choice["region"], "market": "on_demand"}
    ).json()
    assert answer["load"] == {name: choice["serving"][name] for name in answer["load"]}
    assert answer["cost"][0]["month"]["usd"] == choice["serving"]["usd_per_month"]
    assert (
        answer["cost"][0]["per_unit"]["usd_per_million_input_tokens"]
        == (choice["serving"]["usd_per_million_input_tokens"])
    )
    assert choice["usd_per_hour"] == pytest.approx(choice["serving"]["usd_per_month"]["likely"] / 730, rel=1e-5)


def test_instances_spread_evenly_over_zones(client: TestClient) -> None:
    answer = serve(client, {"availability_zones": 3, "min_replicas": 2})
    assert answer["choices"]
    assert all(choice["instances"] % 3 == 0 for choice in answer["choices"])


def test_each_of_several_runs_of_a_job_has_machines_of_its_own(client: TestClient) -> None:
    work = {"model": "resnet-50", "amount": {"samples": 1e7}}
    one, four, two = (
        post_recommend(client, question(workload={**work, "concurrent_runs": runs}, constraints=limits, limit=3))
        for runs, limits in ((1, {}), (4, {}), (4, {"max_instances": 2}))
    )
    for alone, together, in_turns in zip(one["choices"], four["choices"], two["choices"], strict=True):
        assert (alone["instances"], together["instances"], in_turns["instances"]) == (1, 4, 2)
        hours, usd = alone["estimate"]["hours"]["likely"], alone["estimate"]["usd"]["likely"]
        assert together["estimate"]["hours"]["likely"] == pytest.approx(hours, rel=1e-4)
        assert in_turns["estimate"]["hours"]["likely"] == pytest.approx(2 * hours, rel=1e-4)
        assert together["estimate"]["usd"]["likely"] == pytest.approx(4 * usd, rel=1e-4)
        assert in_turns["estimate"]["usd"]["likely"] == pytest.approx(4 * usd, rel=1e-4)
    bodies = [
        {"workload": question(workload=sent)["workload"], "machine": "aws/g5.xlarge"}
        for sent in ({**work, "concurrent_runs": 4}, work)
    ]
    costs = [client.post("/estimate", json=body).json()["cost"][0] for body in bodies]
    assert costs[0]["hours"]["likely"] == pytest.approx(costs[1]["hours"]["likely"], rel=1e-4)
    assert costs[0]["usd"]["likely"] == pytest.approx(4 * costs[1]["usd"]["likely"], rel=1e-3)


@pytest.mark.parametrize(
    ("limits", "instances", "waves"),
    [
        ({}, 8, 1),
        ({"max_instances": 16}, 8, 1),
        ({"max_instances": 5}, 4, 2),
        ({"max_instances": 3}, 3, 3),
    ],
)
def test_runs_of_training_are_not_divided(client: TestClient, limits: Body, instances: int, waves: int) -> None:
    """Eight runs on five instances take two turns, as on four."""
    work = question(workload={"model": "resnet-50", "amount": {"samples": 1e7}})["workload"]
    machine = {"instance": ["aws/g5.xlarge"]}
    (alone,) = post_recommend(client, {"workload": work, "constraints": machine})["choices"]
    asked = {"workload": {**work, "concurrent_runs": 8}, "constraints": {**machine, **limits}}
    (choice,) = post_recommend(client, asked)["choices"]
    (fastest,) = post_recommend(client, {**asked, "objective": "fastest"})["choices"]
    hours = alone["estimate"]["hours"]["likely"]
    assert choice["instances"] == fastest["instances"] == instances
    assert choice["estimate"]["hours"]["likely"] == pytest.approx(waves * hours, rel=1e-5)
    body = {"workload": asked["workload"], "machine": "aws/g5.xlarge", "instances": instances}
    assert post_estimate(client, body)["estimate"]["hours"] == choice["estimate"]["hours"]
    too_short = {**asked["constraints"], "deadline_hours": 0.9 * waves * hours}
    assert not post_recommend(client, {**asked, "constraints": too_short})["choices"]


def test_one_run_of_training_on_several_instances_has_a_warning(client: TestClient) -> None:
    work = question(workload={"model": "resnet-50", "amount": {"samples": 1e7}})["workload"]
    limits = {"instance": ["aws/g5.xlarge"], "deadline_hours": 2, "max_instances": 8}
    (choice,) = post_recommend(client, {"workload": work, "constraints": limits})["choices"]
    body = {"workload": work, "machine": "aws/g5.xlarge", "instances": choice["instances"]}
    for warnings in (choice["warnings"], post_estimate(client, body)["warnings"]):
        (text,) = (each["text"] for each in warnings if each["code"] == "training_shared")
        assert text.startswith(f"{choice['instances']} independent instances share one run of training")
    (alone,) = post_recommend(client, {"workload": work, "constraints": {"instance": ["aws/g5.xlarge"]}})["choices"]
    assert "training_shared" not in {each["code"] for each in alone["warnings"]}


@pytest.mark.parametrize("model", ["resnet-50", None])
@pytest.mark.parametrize("gpu", ["rtx-3080-10gb", "rtx-5090-32gb"])
def test_machines_of_marketplaces_form_no_cluster_unless_the_caller_allows_it(
    client: TestClient, gpu: str, model: str | None
) -> None:
    asked = question(
        workload={"model": model} if model else {},
        constraints={"gpu": [gpu], "min_nodes": 2, "max_nodes": 2},
    )
    answer = post_recommend(client, asked)
    assert all(choice["provider"] != "vast" for choice in answer["choices"])
    rejection = next(each for each in answer["rejections"] if each["code"] == "no_cluster_there")
    allowed = post_recommend(client, relaxed(asked, rejection["relax"]["to"]))
    assert allowed["counts"]["admitted"] - answer["counts"]["admitted"] == rejection["relax"]["admits"] > 0
    assert any(choice["provider"] == "vast" for choice in allowed["choices"])


def test_a_single_card_of_a_marketplace_works_alone_where_several_nodes_are_allowed(client: TestClient) -> None:
    limits = {"gpu": ["rtx-3080-10gb"], "max_nodes": 4}
    alone, together = (
        post_recommend(
            client,
            question(
                workload={"model": "resnet-50"},
                constraints={**limits, "allow_marketplace_clusters": allowed},
                objective="fastest",
            ),
        )["choices"]
        for allowed in (False, True)
    )
    assert {choice["nodes"] for choice in alone if choice["provider"] == "vast"} == {1}
    assert {choice["nodes"] for choice in together if choice["provider"] == "vast"} == {4}


def test_more_vcpus_than_prepare_the_samples_bring_no_speed(client: TestClient) -> None:
    work = {"model": "resnet-50", "host": {"cpu_samples_per_second_per_vcpu": 500}}
    for choice in post_recommend(client, question(workload=work, constraints={"family": ["g5"]}))["choices"]:
        texts = [reason["text"] for reason in choice["reasons"] if reason["code"] == "spare_vcpus"]
        assert len(texts) == (choice["host"]["needed_vcpus"] < choice["specs"]["vcpus"])
        vcpus = f"of its {choice['specs']['vcpus']:g} vCPUs prepare"
        assert all(vcpus in text and "samples as fast" in text for text in texts)  # one of them `prepares`


def test_a_training_batch_per_gpu_is_kept_by_every_choice(client: TestClient) -> None:
    work = {"model": "resnet-50", "batch_size": 48, "global_batch_size": 96}
    choices = post_recommend(client, question(workload=work, constraints={"provider": ["aws"]}))["choices"]
    assert {choice["estimate"]["layout"]["micro_batch"] for choice in choices} == {48}


def test_an_estimate_takes_a_precision_that_the_numerics_allow(client: TestClient) -> None:
    work = {"task": "training", "model": "resnet-50"}
    for numerics, precision in (({}, "fp16"), ({"fp16_overflows": True}, "fp32")):
        body = {"workload": {**work, "numerics": numerics}, "machine": "aws/p3.16xlarge"}
        assert client.post("/estimate", json=body).json()["estimate"]["precision"] == precision


def test_a_load_without_an_end_has_no_amount(client: TestClient) -> None:
    work = {**OF_A_LOAD, "serving": LOAD, "amount": {"tokens": 1e9}}
    refused = client.post("/recommend", json=question("inference", workload=work))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "workload.amount"


def test_weights_are_served_as_published_where_no_precision_is_asked_for(client: TestClient) -> None:
    def ask(**work: Any) -> tuple[dict[str, str], list[str]]:
        answer = post_recommend(
            client,
            question(
                "inference",
                workload={"model": "gpt-oss-120b", "input_length": 500, "output_length": 100, "concurrency": 4, **work},
                constraints={"provider": ["aws"]},
                limit=100,
            ),
        )
        precisions = {choice["gpu"]["id"]: choice["estimate"]["precision"] for choice in answer["choices"]}
        return precisions, [note["code"] for note in answer["notes"]]

    left_open, notes = ask()
    stated, notes_on_stated = ask(precision=["mxfp4"])
    assert left_open == stated
    assert "h100-sxm5-80gb" in left_open
    assert "published_precision" in notes
    assert "published_precision" not in notes_on_stated
    halves, notes_on_halves = ask(precision=["bf16"])
    assert set(halves.values()) == {"bf16"}
    assert "published_precision" not in notes_on_halves


@pytest.mark.parametrize("limits", [{}, {"deadline_hours": 200}], ids=["memory", "deadline"])
def test_less_confidence_admits_machines_that_likely_hold_the_job(client: TestClient, limits: dict[str, float]) -> None:
    work = {"model": "llama-3-8b", "precision": ["bf16"], "sequence_length": 6144, "amount": {"tokens": 1e9}}

    def on_aws(**more: float) -> Any:
        workload = {**work, **more}
        return post_recommend(client, question(workload=workload, constraints={"provider": ["aws"], **limits}, limit=9))

    sure = on_aws()
    assert all(choice["estimate"]["memory"]["fit_probability"] >= 0.9 for choice in sure["choices"])
    (relax,) = [each["relax"] for each in sure["rejections"] if each["code"] == "gpu_memory"]
    confidence = relax["to"]["workload.memory_confidence"]
    assert 0.5 <= confidence < 0.9
    assert on_aws(memory_confidence=confidence)["counts"]["admitted"] == sure["counts"]["admitted"] + relax["admits"]
    body = {"workload": {"task": "training", **work}, "machine": relax["best"]["instance"]}
    estimate = post_estimate(client, body)
    assert confidence <= estimate["estimate"]["memory"]["fit_probability"] < 0.9
    assert "gpu_memory" in {warning["code"] for warning in estimate["warnings"]}


@pytest.mark.parametrize("limits", [{}, {"deadline_hours": 2400}], ids=["memory", "deadline"])
def test_a_job_for_many_nodes_is_pointed_to_the_first_power_of_two_that_admits_something(
    limits: dict[str, float], client: TestClient
) -> None:
    work = {"model": "llama-3.1-405b", "precision": ["bf16"], "purpose": "pretrain", "amount": {"tokens": 1e12}}

    def on_up_to(nodes: int) -> Any:
        return post_recommend(client, question(workload=work, constraints={**limits, "max_nodes": nodes}))

    (relax,) = [each["relax"] for each in on_up_to(1)["rejections"] if each["code"] == "gpu_memory"]
    nodes = relax["to"]["max_nodes"]
    assert nodes > 2
    assert on_up_to(nodes)["counts"]["admitted"] == relax["admits"] > 0
    assert on_up_to(nodes // 2)["counts"]["admitted"] == 0


def test_more_nodes_for_memory_are_proposed_only_to_machines_that_lack_it(client: TestClient) -> None:
    work = {"model": "llama-3.1-8b", "precision": ["bf16"], "amount": {"tokens": 1e10}}
    cards = {"provider": ["aws"], "gpu": ["h100-sxm5-80gb", "l4-24gb"]}

    def on_up_to(nodes: int, **limits: float) -> Any:
        return post_recommend(client, question(workload=work, constraints={**cards, **limits, "max_nodes": nodes}))

    fastest = min(choice["estimate"]["hours"]["likely"] for choice in on_up_to(1)["choices"])
    too_late = on_up_to(1, deadline_hours=0.7 * fastest)
    # Two nodes of eight H100 are in time, but one of these has enough memory.
    assert on_up_to(2, deadline_hours=0.7 * fastest)["counts"]["admitted"] > 0 == too_late["counts"]["admitted"]
    (lacking,) = [each for each in too_late["rejections"] if each["code"] == "gpu_memory"]
    to = lacking["relax"]["to"]
    assert to["max_nodes"] > 2
    on_more = on_up_to(to["max_nodes"], deadline_hours=0.7 * fastest)
    assert "p5.4xlarge" in {choice["instance"] for choice in on_more["choices"]}  # a machine of one H100


def test_limits_on_the_whole_job_are_said_not_to_count_without_an_amount(client: TestClient) -> None:
    def text(**limits: float) -> str:
        notes = post_recommend(client, question(workload={"model": "llama-3.1-8b"}, constraints=limits))["notes"]
        return str(next(each["text"] for each in notes if each["code"] == "no_amount"))

    both = text(deadline_hours=5, budget_usd=500)
    assert both.endswith(" No choice was compared with the limit on these: deadline_hours and budget_usd.")
    assert "compared" not in text(max_usd_per_hour=100)


@pytest.mark.parametrize("limit", ["budget_usd", "max_usd_per_million_tokens"])
@pytest.mark.parametrize("work", [{}, {"model": "llama-3.1-8b", "output_length": 9}, {"name": "alexnet_train"}])
def test_a_limit_in_dollars_without_an_amount_rejects_no_machine(client: TestClient, work: Body, limit: str) -> None:
    asked = question("inference", workload=work, objective="fastest")
    limited = post_recommend(client, changed(asked, **{f"constraints__{limit}": 5}))
    assert limited["counts"] == post_recommend(client, asked)["counts"]
    notes = {each["code"]: each["fields"] for each in limited["notes"]}
    assert f"constraints.{limit}" in notes["not_weighed"]


def test_a_price_of_tokens_asks_for_their_number(client: TestClient) -> None:
    asked = question("inference", workload={"model": "llama-3.1-8b"}, constraints={"max_usd_per_million_tokens": 1})
    refused = client.post("/recommend", json=asked)
    assert refused.status_code == 422
    detail = "max_usd_per_million_tokens needs workload.output_length or workload.input_length."
    assert refused.json()["detail"] == detail


def test_a_price_of_tokens_does_not_limit_a_measured_workload(client: TestClient) -> None:
    work, limits = {"name": "alexnet_train", "amount": {"samples": 1e6}}, {"max_usd_per_million_tokens": 1e-6}
    answer = post_recommend(client, question(workload=work, constraints=limits, objective="fastest"))
    assert "constraints.max_usd_per_million_tokens" in {field for note in answer["notes"] for field in note["fields"]}


def test_notes_say_what_was_unknown_and_left_out(client: TestClient) -> None:
    work = {"model": "llama-3.1-8b", "checkpoint": {"save_seconds": 30}, "batch_size": 4, "output_length": 7}
    limits = {"budget_usd": 500, "max_nodes": 2, "family": ["p4d"]}
    notes = {
        each["code"]: each["fields"]
        for each in post_recommend(client, question(workload=work, constraints=limits))["notes"]
    }
    assert notes["no_amount"] == ["workload.amount"]
    assert set(notes["not_weighed"]) == {
        "workload.checkpoint", "workload.output_length", "constraints.budget_usd",
    }  # fmt: skip
    served = post_recommend(client, question("inference", workload={**SERVING, **TOKENS, "optimizer": "lion"}))
    notes = {each["code"]: each["fields"] for each in served["notes"]}
    assert notes["not_weighed"] == ["workload.optimizer"]
    assert "no_amount" not in notes


def test_a_null_is_a_field_that_was_not_sent(client: TestClient) -> None:
    body = question(workload=LLAMA)
    nulls = {"amount": None, "output_length": None, "optimizer": None}
    null = {**body, "storage": None, "constraints": {"budget_usd": None}, "workload": {**body["workload"], **nulls}}
    assert post_recommend(client, null)["notes"] == post_recommend(client, body)["notes"]


def test_choices_are_compared_with_what_the_job_takes_on_the_current_machine(client: TestClient) -> None:
    limits = {"provider": ["aws"], "region": ["us-east-1"]}
    body = question(workload={**LLAMA, **TOKENS}, constraints=limits, current_instance="p4d.24xlarge")
    answer = post_recommend(client, body)
    now = answer["current"]
    for choice in answer["choices"]:
        compared = choice["compared_to_current"]
        speed = choice["estimate"]["samples_per_second"]["likely"] / now["estimate"]["samples_per_second"]["likely"]
        assert compared["relative_speed"] == pytest.approx(speed, abs=1e-3)
        usd = choice["estimate"]["usd"]["likely"] / now["estimate"]["usd"]["likely"]
        assert compared["relative_usd"] == pytest.approx(usd, abs=1e-3)
        assert compared["relative_peak"] is None
    of_no_amount = post_recommend(client, question(workload=LLAMA, constraints=limits, current_instance="p4d.24xlarge"))
    assert {choice["compared_to_current"]["relative_usd"] for choice in of_no_amount["choices"]} == {None}


@pytest.mark.parametrize(
    ("machine", "work", "estimated", "ground"),
    [
        ("aws/p3.8xlarge", {"precision": ["fp8"]}, False, "precision"),
        ("aws/m5.large", {}, False, "precision"),
        (
            "aws/p3.16xlarge",
            {"model": "resnet-50", "global_batch_size": 3, "sequence_length": None},
            False,
            "global_batch_size",
        ),
        ("aws/g4dn.xlarge", {"model": "llama-3.1-70b"}, True, "gpu_memory"),
    ],
    ids=["lacks the precision", "has no GPU", "has more GPUs than the batch has samples", "is too small"],
)
def test_a_current_machine_that_cannot_run_the_job_is_compared_as_far_as_possible(
    client: TestClient, machine: str, work: dict[str, Any], estimated: bool, ground: str
) -> None:
    body = question(
        workload={**LLAMA, "precision": ["fp16"], "amount": {"steps": 10}, **work}, current_instance=machine, limit=5
    )
    answer = post_recommend(client, body)
    estimate = answer["current"]["estimate"]
    assert (estimate is not None) == estimated
    assert ground in {each["code"] for each in answer["current"]["grounds"]}
    if estimated:
        assert estimate["samples_per_second"] is None
        assert estimate["usd"] is None
        assert estimate["memory"]["needed_gib_per_gpu"] > estimate["memory"]["usable_gib_per_gpu"]
    for choice in answer["choices"]:
        assert choice["compared_to_current"]["relative_speed"] is None
        assert choice["compared_to_current"]["relative_usd"] is None


def test_little_host_memory_takes_a_smaller_micro_batch(client: TestClient) -> None:
    """The largest micro-batch that fits on the GPUs has more images in its loaders than this host holds."""
    work = {"task": "training", "model": "alexnet", "global_batch_size": 65_536}
    machine = {"gpu": "v100-sxm2-16gb", "gpu_count": 4}
    sizes = [
        post_estimate(client, {"workload": work, "machine": {**machine, **host}})["estimate"]["layout"]["micro_batch"]
        for host in ({}, {"memory_gib": 20}, {"memory_gib": 16})
    ]
    assert sizes[0] > sizes[1] > sizes[2]


WRONG: dict[str, tuple[Body, str]] = {
    "unknown model": (question(workload={"model": "lama-3.1-8b"}), "workload.model"),
    "unknown optimizer": (question(workload={**LLAMA, "optimizer": "adamm"}), "workload.optimizer"),
    "no number format": (question(workload={**LLAMA, "precision": ["bf17"]}), "workload.precision"),
    "no weight format": (question(workload={**LLAMA, "weight_precision": "int5"}), "workload.weight_precision"),
    "nodes": (question(workload=LLAMA, constraints={"min_nodes": 4, "max_nodes": 2}), "constraints.min_nodes"),
    "two amounts": (question(workload={**LLAMA, "amount": {"tokens": 1, "steps": 1}}), "workload.amount.steps"),
    "tokens of pictures": (question(workload={"model": "resnet-50", **TOKENS}), "workload.amount.tokens"),
    "tokens of no length": (
        question("inference", workload={"model": "llama-3-8b", **TOKENS}),
        "workload.amount.tokens",
    ),
    "too long": (question(workload={"model": "bert-large", "sequence_length": 9999}), "workload.sequence_length"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_asked_of_a_job_is_said_of_its_field(client: TestClient, name: str) -> None:
    body, field = WRONG[name]
    answer = client.post("/recommend", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


# Whatever is asked


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


MODELS = ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b", "resnet-50", "bert-large", "gpt-oss-20b", "vit-b-16"]
AMOUNTS: list[dict[str, float]] = [{"samples": 1}, {"samples": 1e15}, {"steps": 3}, {"samples": 1e6, "epochs": 2}]


@st.composite
def bodies(draw: st.DrawFn) -> Body:
    drawn = {
        "precision": draw(maybe(st.sampled_from([["bf16"], ["fp8", "fp16"], ["int4"], ["fp32"]]))),
        "global_batch_size": draw(maybe(st.sampled_from([1, 3, 256, 100_000]))),
        "sequence_length": draw(maybe(st.sampled_from([1, 128, 512]))),
        "input_length": draw(maybe(st.sampled_from([0, 1, 100_000]))),
        "output_length": draw(maybe(st.sampled_from([0, 1, 1000]))),
        "concurrency": draw(maybe(st.sampled_from([1, 7, 100_000]))),
        "amount": draw(maybe(st.sampled_from(AMOUNTS))),
        "method": draw(maybe(st.sampled_from(["full", "lora", "qlora"]))),
    }
    limits = {
        "max_nodes": draw(maybe(st.sampled_from([1, 2, 3]))),
        "deadline_hours": draw(maybe(st.sampled_from([1e-6, 1.0, 1e9]))),
        "provider": draw(maybe(st.sampled_from([["aws"], ["gcp", "lambda"]]))),
    }
    objectives = ["cheapest", "fastest", "best_value", "most_efficient", {"usd": 1, "hours": 1, "risk": 1}]
    return {
        "workload": {
            "task": draw(st.sampled_from(["training", "inference"])),
            "model": draw(st.sampled_from(MODELS)),
            **{name: value for name, value in drawn.items() if value is not None},
        },
        "constraints": {name: value for name, value in limits.items() if value is not None},
        "objective": draw(st.sampled_from(objectives)),
        "current_instance": draw(maybe(st.sampled_from(["aws/p4d.24xlarge", "aws/m5.large"]))),
        "per": draw(st.sampled_from(["type", "offer"])),
    }


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [each for held in value.values() for each in numbers(held)]
    if isinstance(value, list):
        return [each for held in value for each in numbers(held)]
    return [value] if isinstance(value, float) else []


def refuse(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


@settings(max_examples=150)
@given(bodies())
def test_every_answer_is_json_with_finite_figures(app: FastAPI, body: Body) -> None:
    answer = recommend(app, body)
    assert answer.status in (200, 422), answer.body
    read = json.loads(answer.body, parse_constant=refuse)
    assert all(map(isfinite, numbers(read)))
    if answer.status == 200:
        counts = read["counts"]
        assert counts["considered"] == counts["admitted"] + counts["rejected"]
        for choice in read["choices"]:
            assert choice["estimate"]["samples_per_second"]["likely"] > 0


def test_every_precision_of_the_catalog_can_be_asked_of_a_job(client: TestClient) -> None:
    known = [item["id"] for item in get_json(client, "/precisions")["items"]]
    for precision in known:
        post_recommend(
            client, question("inference", workload={"model": "resnet-50", "precision": [precision]}, limit=1)
        )


FIXED = (
    ({"task": "inference", "input_length": 1024, "output_length": 256}, {"tensor": 4, "pipeline": 1}),
    (
        {"task": "inference", "serving": {"requests_per_second": 2, "input_length": 1024, "output_length": 256}},
        {"tensor": 4, "data": 2},
    ),
    ({"task": "training", "method": "lora", "sequence_length": 2048}, {"zero_stage": 3, "tensor": 1, "pipeline": 1}),
    (
        {"task": "training", "method": "lora", "sequence_length": 2048, "global_batch_size": 64},
        {"micro_batch": 2, "accumulation": 4, "activation_checkpointing": "full"},
    ),
)


@pytest.mark.parametrize(("work", "layout"), FIXED)
def test_every_choice_has_the_fixed_parts_of_the_layout(
    client: TestClient, work: dict[str, Any], layout: dict[str, Any]
) -> None:
    workload = {**work, "model": "llama-3.1-70b", "precision": ["bf16"]}
    asked = {"workload": workload, "constraints": {"layout": layout, "max_nodes": 2}, "limit": 20}
    answer = client.post("/recommend", json=asked).json()
    assert len(answer["choices"]) > 3
    for choice in answer["choices"]:
        chosen = choice["estimate"]["layout"]
        assert {name: chosen[name] for name in layout} == layout, choice["instance"]


def test_a_layout_that_divides_over_no_machine_is_relaxed(client: TestClient) -> None:
    """64 heads are not divided over 7 GPUs, and no machine of the catalog has a multiple of 5."""
    for layout in ({"tensor": 7}, {"data": 5}):
        work = {"task": "inference", "model": "llama-3.1-70b", "precision": ["bf16"]}
        asked = {"workload": work, "constraints": {"layout": layout}}
        answer = client.post("/recommend", json=asked).json()
        assert answer["counts"]["admitted"] == 0
        (promise,) = [each["relax"] for each in answer["rejections"] if each["code"] == "layout"]
        assert promise["to"] == {"layout": None}
        assert post_recommend(client, relaxed(asked, promise["to"]))["counts"]["admitted"] == promise["admits"] > 0


@pytest.mark.parametrize(
    ("model", "layout", "sentence"),
    [
        ("resnet-50", {"tensor": 2}, "ResNet-50 can only be spread by data: tensor 2 needs a transformer."),
        ("llama-3.1-8b", {"pipeline": 64}, "32 layers cannot be cut into 64 pipeline stages."),
        ("llama-3.1-8b", {"expert": 2}, "Llama 3.1 8B has no experts, which therefore cannot be spread over 2 GPUs."),
        (None, {"tensor": 2}, "A fixed layout needs a model: send workload.model."),
    ],
)
def test_a_layout_that_no_machine_can_have_is_refused(
    client: TestClient, model: str | None, layout: dict[str, int], sentence: str
) -> None:
    body = {"workload": {"task": "training", "model": model}, "constraints": {"layout": layout}}
    problem = client.post("/recommend", json=body).json()
    assert (problem["detail"], problem["errors"][0]["field"]) == (sentence, "constraints.layout")


def test_every_choice_shards_offloaded_weights(client: TestClient) -> None:
    """Machines with less GPU memory train the model, of whose weights they hold two layers at a time."""
    work = {"task": "training", "model": "llama-2-13b", "precision": ["bf16"], "sequence_length": 2048}
    plain, offloaded = (
        post_recommend(client, {"workload": {**work, "offload_optimizer": True, **more}, "limit": 20})
        for more in ({}, {"offload_parameters": True})
    )
    assert offloaded["counts"]["admitted"] > plain["counts"]["admitted"]
    assert {choice["estimate"]["layout"]["zero_stage"] for choice in offloaded["choices"]} == {3}
    assert offloaded["choices"][0]["usd_per_hour"] < plain["choices"][0]["usd_per_hour"]


def test_the_best_of_another_precision_is_the_best_in_that_precision(client: TestClient) -> None:
    """Machines without a GPU run fp32 alone, and the cheapest of them per hour is not the cheapest for the job."""
    work = {"task": "training", "model": "efficientnet-b0", "precision": ["fp16"], "global_batch_size": 64}
    body = {"workload": {**work, "amount": {"samples": 50000, "epochs": 20}}, "constraints": {"max_gpu_count": 0}}
    change = next(each["relax"] for each in post_recommend(client, body)["rejections"] if each["code"] == "precision")
    again = post_recommend(client, changed(body, workload__precision=change["to"]["workload.precision"]))
    best, first = change["best"], again["choices"][0]
    assert best["instance"] == f"{first['provider']}/{first['instance']}"


def test_a_limit_on_a_time_is_relaxed_to_what_a_sensible_number_of_instances_keeps(client: TestClient) -> None:
    load = {
        "requests_per_second": 20,
        "input_length": 4000,
        "output_length": 300,
        "max_seconds_per_output_token": 0.005,
    }
    work = {"task": "inference", "model": "llama-3.1-405b", "precision": ["bf16"], "software": {"engine": "vllm"}}
    body = {"workload": {**work, "serving": load}}
    rejections = post_recommend(client, body)["rejections"]
    change = next(each["relax"] for each in rejections if each["code"] == "too_slow_per_token")["to"]
    limit = change["workload.serving.max_seconds_per_output_token"]
    again = post_recommend(client, changed(body, workload__serving__max_seconds_per_output_token=limit))
    assert max(choice["serving"]["utilisation"] for choice in again["choices"]) > 0.1


def test_more_instances_are_offered_where_the_allowed_ones_miss_a_limit_on_a_time(client: TestClient) -> None:
    """Two are too slow, and no limit on a time alone admits them: thousands of nodes of small GPUs were offered."""
    limits = {"max_seconds_per_output_token": 0.02, "max_seconds_to_first_token": 0.3}
    load = {"requests_per_second": 50, "input_length": 2000, "output_length": 500, **limits}
    work = {"task": "inference", "model": "llama-3.3-70b", "precision": ["fp8"], "software": {"engine": "vllm"}}
    body = {"workload": {**work, "serving": load}, "constraints": {"max_instances": 2}}
    answer = post_recommend(client, body)
    assert not answer["choices"]
    offered = {each["code"]: each["relax"] for each in answer["rejections"] if each["relax"]}
    more = offered["max_instances"]
    again = post_recommend(client, relaxed(body, more["to"]))
    assert again["counts"]["admitted"] == more["admits"]
    assert all(choice["instances"] <= more["to"]["max_instances"] for choice in again["choices"])
    assert not [each for each in offered.values() if each["to"].get("max_nodes", 1) > 64]


def test_the_front_of_a_load_has_the_machines_that_answer_faster_for_more_money(client: TestClient) -> None:
    work = {
        "model": "llama-3.1-8b",
        "serving": {"requests_per_second": 0.05, "input_length": 500, "output_length": 200},
    }
    asked = question("inference", workload=work, constraints={"provider": ["aws"], "market": ["on_demand"]}, limit=50)
    choices = post_recommend(client, asked)["choices"]
    served = [choice["serving"] for choice in choices]
    points = [(each["usd_per_month"]["likely"], each["seconds_per_request"]) for each in served]
    front = [point for point, choice in zip(points, choices, strict=True) if choice["pareto"]]
    assert len(front) > 1
    for usd, seconds in front:
        assert not any(u < usd and s < seconds * 0.999 for u, s in points)


def test_a_load_is_compared_with_the_current_machine_by_the_time_of_a_request(client: TestClient) -> None:
    work = {
        "model": "llama-3.1-8b",
        "serving": {"requests_per_second": 0.05, "input_length": 500, "output_length": 200},
    }
    asked = question("inference", workload=work, constraints={"gpu": ["h100-sxm5-80gb"]}, limit=1)
    (choice,) = post_recommend(client, {**asked, "current_instance": "aws/g6.xlarge"})["choices"]
    assert choice["compared_to_current"]["relative_speed"] > 3


@pytest.mark.parametrize(
    "times", [{}, {"max_seconds_per_output_token": 0.05}], ids=["usual times", "a time of its own"]
)
def test_a_load_that_a_budget_rejects_is_not_too_slow(client: TestClient, times: dict[str, float]) -> None:
    """Dropping the budget admits what it alone rejects. Limits on times that were not sent had rejected these types."""
    load = {"requests_per_second": 20, "input_length": 1000, "output_length": 300, **times}
    work = {"task": "inference", "model": "llama-3.1-8b", "precision": ["bf16"], "serving": load}
    asked = {"workload": work, "constraints": {"provider": ["aws"], "region": ["us-east-1"], "budget_usd": 1000}}
    answer = post_recommend(client, asked)
    only_this = {each["code"]: each["only_this"] for each in answer["rejections"]}
    without = post_recommend(client, changed(asked, constraints__budget_usd=None))
    assert not answer["choices"]
    assert only_this["budget_usd"] == without["counts"]["admitted"] > 10
    assert not {"too_slow_first_token", "too_slow_per_request"} & only_this.keys()


def test_a_tiny_share_of_the_current_machine_is_not_rounded_to_zero(client: TestClient) -> None:
    body = question(
        "inference",
        workload={"model": "resnet-50", "amount": {"samples": 1e6}},
        constraints={"instance": ["aws/p5.48xlarge"]},
        current_instance="aws/g2.2xlarge",
        objective="fastest",
    )
    compared = post_recommend(client, body)["choices"][0]["compared_to_current"]
    assert all(figure is None or figure > 0 for figure in compared.values())


@pytest.mark.parametrize(
    "work",
    [
        {"task": "inference", "model": "mistral-7b", "amount": {"samples": 10000}, "precision": ["fp16", "bf16"]},
        {"task": "training", "name": "alexnet_train", "precision": ["fp16"], "amount": {"samples": 1e6}},
    ],
)
def test_limits_on_the_peak_hold_at_the_first_precision_of_a_job(client: TestClient, work: Body) -> None:
    answer = post_recommend(client, {"workload": work, "constraints": {"min_tflops": 300}, "limit": 100})
    assert answer["choices"]
    for choice in answer["choices"]:
        machine = get_json(client, f"/instances/{choice['provider']}/{choice['instance']}")
        assert machine["gpu"]["count"] * machine["gpu"]["precisions"]["fp16"]["tflops"] >= 300
    assert "min_tflops" in {rejection["code"] for rejection in answer["rejections"]}
    unnamed = {name: value for name, value in work.items() if name != "precision"}
    refused = client.post("/recommend", json={"workload": unnamed, "constraints": {"min_tflops": 300}})
    assert refused.json()["detail"] == "min_tflops and max_tflops need workload.precision."
