"""POST /recommend keeps its promises: counts add up, relaxations admit what they say, nothing is left unsaid."""

from datetime import date, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from service.api.recommend.response import RecommendResponse
from tests.api.answers import get_json, offers_of, post_recommend, price_ignored, ranked_factor
from tests.builders.request_bodies import Body, question, relaxed

VARIED: dict[str, Body] = {
    "anything": question(),
    "bf16 in Virginia": question(
        workload={"precision": ["bf16"]}, constraints={"provider": ["aws"], "region": ["us-east-1"]}
    ),
    "80 GB": question(workload={"precision": ["bf16"]}, constraints={"min_gpu_memory_gb": 80, "max_usd_per_hour": 30}),
    "nothing": question(constraints={"gpu": ["h100"], "max_usd_per_hour": 0.5}),
    "one family": question(constraints={"family": ["g5"], "provider": ["aws"], "max_gpu_count": 1}),
    "fp8 on 8 GPUs": question(
        "inference", workload={"precision": ["fp8"]}, constraints={"min_gpu_count": 8}, objective="fastest"
    ),
    "NVLink and RDMA": question(constraints={"interconnect": ["nvlink"], "rdma": True}, objective="fastest"),
    "Arm": question("inference", constraints={"cpu_architecture": ["arm64"], "min_vcpus": 8}, objective="best_value"),
    "little power": question("inference", constraints={"provider": ["aws", "gcp"]}, objective="most_efficient"),
    "spot": question(workload={"fault_tolerant": True}, constraints={"provider": ["gcp"], "max_usd_per_hour": 3}),
    "only spot in Frankfurt": question(constraints={"market": ["spot"], "region": ["eu-central-1"]}),
    "Japan": question(constraints={"country": ["JP"], "seller_class": ["hyperscaler"], "provider": ["aws", "gcp"]}),
    "small sellers in Europe": question(constraints={"continent": ["europe"], "seller_class": ["neocloud"]}),
    "a seller without regions": question(constraints={"provider": ["lambda", "gcp"], "region": ["us-east-1"]}),
    "perhaps in the US": question(constraints={"country": ["US"], "gpu": ["h100"], "allow_unknown_region": True}),
    "in preview": question(constraints={"provider": ["aws", "gcp"], "lifecycle": ["preview"]}),
    "no CPU": question("development", constraints={"max_vcpus": 8, "max_memory_gib": 64}),
    "double precision": question("hpc", constraints={"min_tflops": 9}, objective="best_value"),
    "a fresh price": question(constraints={"max_price_age_days": 30, "min_vcpus_per_gpu": 8}),
    "excluded": question(constraints={"exclude": ["aws", "a100", "p5"], "gpu_vendor": ["nvidia"]}),
    "software": question(constraints={"framework": ["pytorch"], "max_local_storage_gb": 2000}),
    "long ago": question(workload={"precision": ["fp16"]}, constraints={"provider": ["aws"]}, as_of="2019-06-01"),
    "everywhere else": question(constraints={"region": ["us-east-1"], "provider": ["azure", "lambda"]}),
    "not NVIDIA": question(constraints={"gpu_vendor": ["amd"], "max_network_gbps": 400, "min_memory_gib": 128}),
    "one place": question(constraints={"instance": ["aws/p4d.24xlarge"], "region": ["ap-south-1"]}),
    "CUDA 12.1": question(workload={"software": {"cuda": "12.1"}}, constraints={"provider": ["aws", "gcp"]}),
    "CUDA 11.0 on Hopper": question(workload={"software": {"cuda": "11.0"}}, constraints={"family": ["p5"]}),
    "an old framework": question(workload={"software": {"framework": "torch<1.8"}}, constraints={"provider": ["aws"]}),
    "an engine": question("inference", workload={"software": {"engine": "vllm>=0.15"}}, objective="best_value"),
    "ROCm or CPUs": question(workload={"software": {"platforms": ["rocm", "cpu"]}}),
    "own kernels": question(workload={"software": {"custom_cuda_kernels": True}}, constraints={"max_gpu_count": 1}),
    "libraries": question(workload={"software": {"libraries": [{"name": "sagemaker-model-parallel"}]}}),
    "fp16 overflows": question(workload={"precision": ["fp16", "bf16"], "numerics": {"fp16_overflows": True}}),
    "wide numbers": question(workload={"numerics": {"min_bits": 32}}, constraints={"provider": ["gcp"]}),
    "wider numbers, fast": question(
        workload={"precision": ["fp64", "fp32"], "numerics": {"min_bits": 64}}, objective="fastest"
    ),
    "host memory": question(workload={"host": {"memory_gib": 1500}}, constraints={"provider": ["aws"]}),
    "weights": question(constraints={"provider": ["aws"]}, objective={"usd": 1, "hours": 2, "risk": 0.5}),
}


def test_a_price_without_a_region_is_no_match_and_says_how_to_admit_it(client: TestClient) -> None:
    body = question(constraints={"provider": ["lambda"], "region": ["us-east-1"]})
    answer = post_recommend(client, body)
    rejection = next(each for each in answer["rejections"] if each["code"] == "region_unknown")
    assert (answer["choices"], rejection["ground"]) == ([], "data")
    assert rejection["text"].startswith("Its prices name no region, or a region of unknown country, so it is not known")
    assert rejection["relax"]["to"] == {"allow_unknown_region": True}
    admitted = post_recommend(client, relaxed(body, rejection["relax"]["to"]))
    assert admitted["counts"]["admitted"] == rejection["only_this"] == rejection["relax"]["admits"] > 10
    assert {each["region"] for each in admitted["choices"]} == {None}


def test_a_known_region_elsewhere_is_no_match_though_unknown_ones_are_allowed(client: TestClient) -> None:
    body = question(constraints={"country": ["US"], "allow_unknown_region": True})
    countries = {(each["provider"], each["id"]): each["country"] for each in get_json(client, "/regions")["items"]}
    found = {countries.get((each["provider"], each["region"])) for each in post_recommend(client, body)["choices"]}
    assert found == {"US", None}


@pytest.mark.parametrize("name", VARIED)
def test_counts_add_up(client: TestClient, name: str) -> None:
    answer = post_recommend(client, VARIED[name])
    counts = answer["counts"]
    day = f"?as_of={answer['catalog']['as_of']}"
    assert counts["considered"] == get_json(client, f"/catalog{day}")["rows"]["instance_types"]
    assert counts["considered"] == counts["admitted"] + counts["rejected"]
    assert len(answer["choices"]) == min(counts["admitted"], 100)
    assert [choice["rank"] for choice in answer["choices"]] == list(range(1, len(answer["choices"]) + 1))
    assert len({(choice["provider"], choice["instance"]) for choice in answer["choices"]}) == len(answer["choices"])
    codes = get_json(client, "/recommend/codes")
    for rejection in answer["rejections"]:
        assert 0 <= rejection["only_this"] <= rejection["count"] <= counts["rejected"]
        assert rejection["code"] in codes["rejections"]
    assert sum(rejection["only_this"] for rejection in answer["rejections"]) <= counts["rejected"]
    for choice in answer["choices"]:
        assert {reason["code"] for reason in choice["reasons"]} <= set(codes["reasons"])
        assert {warning["code"] for warning in choice["warnings"]} <= set(codes["warnings"])


@pytest.mark.parametrize("name", VARIED)
def test_each_relaxation_admits_just_what_it_says(client: TestClient, name: str) -> None:
    body = VARIED[name]
    answer = post_recommend(client, body)
    before = {(choice["provider"], choice["instance"]) for choice in answer["choices"]}
    for rejection in answer["rejections"]:
        if (relax := rejection["relax"]) is None:
            continue
        assert relax["admits"] > 0
        if None not in relax["to"].values():  # taking a limit away lets in whom it and an unknown figure kept out
            assert relax["admits"] <= rejection["only_this"], rejection
        after = post_recommend(client, relaxed(body, relax["to"]))
        stay = answer["counts"]["admitted"] - relax["drops"]
        assert after["counts"]["admitted"] == stay + relax["admits"], rejection
        if after["counts"]["admitted"] <= 100:
            new = [choice for choice in after["choices"] if (choice["provider"], choice["instance"]) not in before]
            best = next(each for each in new if f"{each['provider']}/{each['instance']}" == relax["best"]["instance"])
            assert best["usd_per_hour"] == relax["best"]["usd_per_hour"]
            if body.get("objective", "cheapest") == "cheapest" and not price_ignored(answer):
                ranked = [each["usd_per_hour"] * ranked_factor(each["price"]) for each in new]
                assert best["usd_per_hour"] * ranked_factor(best["price"]) == pytest.approx(min(ranked), rel=1e-6)


def test_these_questions_meet_most_kinds_of_rejections(client: TestClient) -> None:
    answers = [post_recommend(client, body) for body in VARIED.values()]
    with_relaxation = {each["code"] for answer in answers for each in answer["rejections"] if each["relax"] is not None}
    assert with_relaxation >= {
        "precision", "region", "market", "max_usd_per_hour", "provider", "gpu", "family", "interconnect", "rdma",
        "exclude", "min_gpu_memory_gb", "max_gpu_count", "lifecycle", "min_vcpus", "max_price_age_days",
    }  # fmt: skip


@pytest.mark.parametrize("name", VARIED)
def test_the_same_question_has_the_same_bytes(client: TestClient, name: str) -> None:
    assert client.post("/recommend", json=VARIED[name]).content == client.post("/recommend", json=VARIED[name]).content


@pytest.mark.parametrize("name", VARIED)
def test_the_pieces_that_an_answer_is_put_together_from_make_what_the_document_says(
    client: TestClient, name: str
) -> None:
    answer = post_recommend(client, VARIED[name])
    documented = TypeAdapter(RecommendResponse)
    assert documented.dump_python(documented.validate_python(answer), mode="json") == answer


@pytest.mark.parametrize("name", VARIED)
def test_the_question_that_comes_back_is_the_same_question(client: TestClient, name: str) -> None:
    answer = post_recommend(client, VARIED[name])
    again = post_recommend(client, answer["question"])
    assert again["choices"] == answer["choices"]
    assert again["question"] == answer["question"]


# Objectives


def test_cheapest_first(client: TestClient) -> None:
    choices = post_recommend(client, question())["choices"]
    prices = [choice["usd_per_hour"] * ranked_factor(choice["price"]) for choice in choices]
    assert prices == pytest.approx(sorted(prices), rel=1e-4)


def test_fastest_first(client: TestClient) -> None:
    rates = [
        choice["estimate"]["peak_tflops"] for choice in post_recommend(client, question(objective="fastest"))["choices"]
    ]
    assert rates == sorted(rates, reverse=True)


def test_best_value_first(client: TestClient) -> None:
    choices = post_recommend(client, question(objective="best_value"))["choices"]
    value = [choice["estimate"]["peak_tflops_per_usd_hour"] / ranked_factor(choice["price"]) for choice in choices]
    assert value == pytest.approx(sorted(value, reverse=True), rel=1e-4)
    for choice in choices:
        expected = choice["estimate"]["peak_tflops"] / choice["usd_per_hour"]
        assert choice["estimate"]["peak_tflops_per_usd_hour"] == pytest.approx(expected, rel=1e-3)


def test_most_efficient_first(client: TestClient) -> None:
    choices = post_recommend(client, question(objective="most_efficient"))["choices"]
    per_watt = [choice["estimate"]["peak_tflops_per_watt"] for choice in choices]
    assert per_watt == sorted(per_watt, reverse=True)


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({"usd": 1}, "cheapest"),
        ({"hours": 3}, "fastest"),
        ({"samples_per_usd": 0.1}, "best_value"),
        ({"joules": 1}, "most_efficient"),
    ],
)
def test_one_weight_is_the_objective_of_its_name(client: TestClient, weights: dict[str, float], named: str) -> None:
    def ranking(objective: Any) -> list[str]:
        return [choice["instance"] for choice in post_recommend(client, question(objective=objective))["choices"]]

    assert ranking(weights) == ranking(named)


def test_risk_keeps_off_spot(client: TestClient) -> None:
    body = question(workload={"fault_tolerant": True}, constraints={"provider": ["aws"]}, per="offer")
    cheap = post_recommend(client, {**body, "objective": {"usd": 1}})["choices"]
    careful = post_recommend(client, {**body, "objective": {"usd": 0.001, "risk": 1}})["choices"]
    assert "spot" in {choice["market"] for choice in cheap[:10]}
    assert {choice["market"] for choice in careful[:10]} == {"on_demand"}


def test_pareto_choices_are_beaten_by_none(client: TestClient) -> None:
    choices = post_recommend(client, question(constraints={"provider": ["aws"]}))["choices"]
    assert len(choices) < 100
    for choice in choices:
        beaten = (
            any(
                other["usd_per_hour"] <= choice["usd_per_hour"]
                and other["estimate"]["peak_tflops"] >= choice["estimate"]["peak_tflops"]
                and (other["usd_per_hour"], other["estimate"]["peak_tflops"])
                != (choice["usd_per_hour"], choice["estimate"]["peak_tflops"])
                for other in choices
                if other["estimate"]["peak_tflops"] is not None
            )
            if choice["estimate"]["peak_tflops"] is not None
            else True
        )
        assert not (choice["pareto"] and beaten), choice["instance"]


# Markets and offers


def test_spot_alone_is_not_left_out_even_if_it_is_named_twice(client: TestClient) -> None:
    workload = {"task": "training", "fault_tolerant": False}
    once, twice = (
        post_recommend(client, {"workload": workload, "constraints": {"market": ["spot"] * times}}) for times in (1, 2)
    )
    assert twice["choices"] == once["choices"]
    assert "spot_left_out" not in {note["code"] for note in twice["notes"]}


@pytest.mark.parametrize("spot", ["Spot", "SPOT"])
def test_spot_is_left_out_in_any_spelling(client: TestClient, spot: str) -> None:
    workload = {"task": "training", "fault_tolerant": False}
    answer = post_recommend(client, {"workload": workload, "constraints": {"market": ["on_demand", spot]}})
    assert answer["question"]["constraints"]["market"] == ["on_demand"]
    assert "spot_left_out" in {note["code"] for note in answer["notes"]}


@pytest.mark.parametrize("objective", ["fastest", "cheapest"])
def test_an_unknown_price_is_not_said_to_be_above_the_limit(client: TestClient, objective: str) -> None:
    limits = {"provider": ["autodl"], "max_usd_per_hour": 1e6}
    body = question(constraints=limits, objective=objective)
    rejected = {each["code"]: each for each in post_recommend(client, body)["rejections"]}
    unknown = rejected["usd_per_hour_unknown"]
    assert "max_usd_per_hour" not in rejected
    assert unknown["ground"] == "data"
    assert unknown["only_this"] > 0
    assert unknown["relax"]["to"] == {"max_usd_per_hour": None}
    admitted = post_recommend(client, relaxed(body, unknown["relax"]["to"]))["counts"]["admitted"]
    assert unknown["relax"]["admits"] == admitted


def test_a_budget_that_needs_a_price_is_said_to_need_it(client: TestClient) -> None:
    work = {"task": "training", "model": "bert-base", "amount": {"samples": 1e5}}
    body = {"workload": work, "constraints": {"provider": ["autodl"], "budget_usd": 10}, "objective": "fastest"}
    rejected = {each["code"]: each["text"] for each in post_recommend(client, body)["rejections"]}
    needed = "No price is known, and the objective or a limit in dollars needs one."
    assert rejected["price_unknown"].startswith(needed)


def test_fault_tolerance_adds_spot(client: TestClient) -> None:
    firm = post_recommend(client, question(constraints={"provider": ["aws"]}))
    loose = post_recommend(client, question(workload={"fault_tolerant": True}, constraints={"provider": ["aws"]}))
    assert firm["question"]["constraints"]["market"] == ["on_demand"]
    assert loose["question"]["constraints"]["market"] == ["on_demand", "spot"]
    assert {choice["market"] for choice in firm["choices"]} == {"on_demand"}
    assert "spot" in {choice["market"] for choice in loose["choices"]}
    for choice in loose["choices"]:
        warned = "spot_can_be_interrupted" in {warning["code"] for warning in choice["warnings"]}
        assert warned == (choice["market"] == "spot")


def test_per_offer_ranks_every_offer(client: TestClient) -> None:
    body = question(constraints={"instance": ["aws/p4d.24xlarge", "aws/g5.12xlarge"], "market": ["on_demand"]})
    by_type = post_recommend(client, body)
    by_offer = post_recommend(client, {**body, "per": "offer"})
    offers = [price for name in ("p4d.24xlarge", "g5.12xlarge") for price in offers_of(client, f"aws/{name}")]
    assert len(by_type["choices"]) == 2
    assert len(by_offer["choices"]) == len(offers) > 2
    assert [choice["usd_per_hour"] * ranked_factor(choice["price"]) for choice in by_offer["choices"]] == pytest.approx(
        sorted(each["usd_per_hour"] * ranked_factor(each) for each in offers), rel=1e-6
    )
    assert by_offer["choices"][0]["usd_per_hour"] == by_type["choices"][0]["usd_per_hour"]
    assert f"of {len(offers)} by" in by_offer["choices"][0]["reasons"][0]["text"]


def test_per_offer_keeps_to_the_constraints(client: TestClient) -> None:
    limits = {"region": ["us-east-1", "us-east-2"], "max_usd_per_hour": 2, "market": ["spot", "on_demand"]}
    answer = post_recommend(client, question(constraints=limits, per="offer"))
    assert len(answer["choices"]) > 10
    for choice in answer["choices"]:
        assert choice["region"] in limits["region"]  # type: ignore[operator]
        assert choice["usd_per_hour"] <= 2


def test_a_country_without_the_machine_gives_way_to_the_country_that_admits_most(client: TestClient) -> None:
    body = question(constraints={"country": ["ZA"], "instance": ["aws/p5.48xlarge"], "market": ["on_demand"]})
    answer = post_recommend(client, body)
    (rejection,) = (each for each in answer["rejections"] if each["code"] == "country")
    assert (answer["counts"]["admitted"], rejection["only_this"]) == (0, 1)
    assert rejection["relax"]["to"]["country"][0] == "ZA"
    (choice,) = post_recommend(client, relaxed(body, rejection["relax"]["to"]))["choices"]
    regions = {
        (each["provider"], each["id"]): each["country"] for each in get_json(client, "/regions?limit=500")["items"]
    }
    assert regions["aws", choice["region"]] == rejection["relax"]["to"]["country"][1]


# Nothing is excluded by prejudice


def warned(answer: Any, code: str) -> list[Any]:
    return [choice for choice in answer["choices"] if code in {warning["code"] for warning in choice["warnings"]}]


def test_pcie_inference_cards_and_arm_are_warned_of_and_stay_in(client: TestClient) -> None:
    answer = post_recommend(client, question(constraints={"family": ["g5", "g5g", "g4dn"], "provider": ["aws"]}))
    pcie = warned(answer, "pcie_multi_gpu")
    assert {"g5.12xlarge", "g4dn.12xlarge"} <= {choice["instance"] for choice in pcie}
    assert "g4dn.xlarge" in {choice["instance"] for choice in warned(answer, "sold_for_inference")}
    assert "g5g.xlarge" in {choice["instance"] for choice in warned(answer, "arm_host")}
    infer = post_recommend(client, question("inference", constraints={"family": ["g5", "g4dn"], "provider": ["aws"]}))
    assert not warned(infer, "pcie_multi_gpu")
    assert not warned(infer, "sold_for_inference")


def test_a_part_of_a_card_is_stated(client: TestClient) -> None:
    answer = post_recommend(client, question(constraints={"family": ["g6f"]}))
    assert len(warned(answer, "part_of_a_card")) == len(answer["choices"]) > 0


def test_what_the_host_lacks_is_warned_of(client: TestClient) -> None:
    answer = post_recommend(client, question(workload={"host": {"vcpus_per_gpu": 12}}, constraints={"family": ["g5"]}))
    for choice in answer["choices"]:
        lacking = choice["specs"]["vcpus"] / choice["gpu"]["per_node"] < 12
        assert (choice in warned(answer, "few_vcpus")) == lacking


# Unknown prices


def test_without_any_price_hardware_ranks_and_the_answer_says_so(client: TestClient) -> None:
    unpriced = next(
        f"{item['provider']}/{item['instance']}"
        for item in get_json(client, "/prices?market=on_demand&limit=500")["items"]
        if item["usd_per_hour"] is None
    )
    answer = post_recommend(client, question(constraints={"instance": [unpriced]}))
    assert [choice["usd_per_hour"] for choice in answer["choices"]] == [None]
    assert "price_ignored" in {note["code"] for note in answer["notes"]}
    priced = post_recommend(client, question(constraints={"instance": ["aws/g5.xlarge"]}))
    assert "price_ignored" not in {note["code"] for note in priced["notes"]}


def test_a_relaxation_says_how_many_machines_without_a_price_it_drops(client: TestClient) -> None:
    work = {"model": "qwen2-7b", "method": "lora", "sequence_length": 2048, "amount": {"samples": 30000}}
    body = question(workload=work, constraints={"provider": ["autodl"]}, as_of="2024-08-01")
    answer = post_recommend(client, body)
    (relax,) = [each["relax"] for each in answer["rejections"] if each["code"] == "provider"]
    after = post_recommend(client, relaxed(body, relax["to"]))
    assert relax["drops"] == answer["counts"]["admitted"] > 0
    assert after["counts"]["admitted"] == relax["admits"]
    assert "autodl" not in {choice["provider"] for choice in after["choices"]}


# What was not weighed is said


def test_fields_that_did_not_weigh_are_named(client: TestClient) -> None:
    work = {
        "sequence_length": 512,
        "method": "lora",
        "host": {"vcpus_per_gpu": 8, "cpu_samples_per_second_per_vcpu": 9},
    }
    answer = post_recommend(
        client, question(workload=work, constraints={"budget_usd": 500, "provider": ["aws"]}, objective="fastest")
    )
    notes = {note["code"]: note["fields"] for note in answer["notes"]}
    assert set(notes) == {"not_weighed", "unranked"}
    assert set(notes["not_weighed"]) == {
        "workload.sequence_length", "workload.method", "workload.host.cpu_samples_per_second_per_vcpu",
        "constraints.budget_usd",
    }  # fmt: skip
    plain = post_recommend(client, question(workload={"precision": ["bf16"]}, objective="fastest"))
    assert {note["code"] for note in plain["notes"]} == {"unranked"}


def test_a_default_objective_is_stated(client: TestClient) -> None:
    assert "objective_defaulted" in {note["code"] for note in post_recommend(client, question())["notes"]}


# The machine that the caller has


def test_choices_are_compared_with_the_current_machine(client: TestClient) -> None:
    limits = {"provider": ["aws"], "region": ["us-east-1"]}
    answer = post_recommend(
        client, question(constraints=limits, current_instance="p3.8xlarge", workload={"precision": ["fp16"]})
    )
    current = answer["current"]
    assert current["instance"] == "aws/p3.8xlarge"
    assert current["estimate"]["peak_tflops"] == pytest.approx(500)
    assert [each["code"] for each in current["grounds"]] == ["lifecycle"]
    assert not post_recommend(client, question(constraints=limits, current_instance="g5.xlarge"))["current"]["grounds"]
    for choice in answer["choices"]:
        assert choice["compared_to_current"]["relative_usd_per_hour"] == pytest.approx(
            choice["usd_per_hour"] / current["usd_per_hour"], abs=1e-4
        )
    alone = post_recommend(client, question(constraints=limits))
    assert alone["current"] is None
    assert alone["choices"][0]["compared_to_current"] is None


# Days


def test_the_answer_is_of_the_day_asked(client: TestClient) -> None:
    answer = post_recommend(
        client, question(workload={"precision": ["bf16"]}, constraints={"provider": ["aws"]}, as_of="2022-02-17")
    )
    families = {choice["specs"]["family"] for choice in answer["choices"]}
    assert answer["catalog"]["as_of"] == answer["question"]["as_of"] == "2022-02-17"
    assert {"p4d", "g5"} <= families
    assert not families & {"p3", "g4dn", "p2", "p5", "g6"}
    for choice in answer["choices"]:
        assert choice["price"]["observed_on"] is None or choice["price"]["observed_on"] <= "2022-02-17"


# Many at once


def test_a_batch_answers_in_order_and_one_bad_item_is_alone(client: TestClient) -> None:
    good = question(workload={"model": "resnet-50"}, constraints={"provider": ["aws"]})
    items = [good, question(workload={"model": "resnet-05"}), 5, question("inference", objective="fastest")]
    batch = client.post("/recommend/batch", json={"items": items}).json()["items"]
    assert [("problem" in item) for item in batch] == [False, True, True, False]
    assert batch[0] == post_recommend(client, good)
    assert batch[1]["problem"]["errors"][0]["field"] == "workload.model"


def test_items_of_one_workload_are_answered_together_in_the_order_they_came(client: TestClient) -> None:
    of_two = [{"model": "resnet-50"}, {"model": "bert-large"}]
    items = [question(workload=of_two[place % 2], limit=1 + place) for place in range(6)]
    batch = client.post("/recommend/batch", json={"items": items}).json()["items"]
    assert batch == [post_recommend(client, item) for item in items]


def test_a_job_is_ranked_by_dollars_of_the_whole_of_it(client: TestClient) -> None:
    work = {"model": "llama-3-8b", "precision": ["bf16"], "global_batch_size": 64, "amount": {"tokens": 1e9}}
    answer = post_recommend(client, question(workload=work, constraints={"provider": ["aws"], "max_nodes": 4}))
    choices = answer["choices"]
    dollars = [choice["estimate"]["usd"]["likely"] * ranked_factor(choice["price"]) for choice in choices]
    assert dollars == pytest.approx(sorted(dollars), rel=1e-4)
    for choice in choices:
        estimate = choice["estimate"]
        assert estimate["basis"] == "modelled"
        of_hours = estimate["hours"]["likely"] * choice["usd_per_hour"]
        a_second = choice["usd_per_hour"] / 3600  # every machine here is billed by the second, rounded up
        assert of_hours * (1 - 1e-5) <= estimate["usd"]["likely"] <= of_hours * (1 + 1e-5) + a_second
    assert any(rejection["code"] == "gpu_memory" for rejection in answer["rejections"])


def test_several_nodes_are_counted_without_a_model(client: TestClient) -> None:
    one, four = (
        post_recommend(client, question(constraints={"instance": ["p4d.24xlarge"], "min_nodes": nodes, "max_nodes": 4}))
        for nodes in (1, 4)
    )
    single, several = one["choices"][0], four["choices"][0]
    assert (single["nodes"], several["nodes"]) == (1, 4)
    assert several["usd_per_hour"] == pytest.approx(4 * single["usd_per_hour"])
    assert several["estimate"]["peak_tflops"] == pytest.approx(4 * single["estimate"]["peak_tflops"])
    ratio = "peak_tflops_per_usd_hour"
    assert several["estimate"][ratio] == pytest.approx(single["estimate"][ratio])


@pytest.mark.parametrize("workload", [{}, {"model": "llama-3.1-8b", "amount": {"tokens": 1e9}}])
def test_at_least_so_many_nodes_need_no_limit_above(client: TestClient, workload: dict[str, object]) -> None:
    limits = {"instance": ["p4d.24xlarge"], "min_nodes": 4}
    choices = post_recommend(client, question(workload=workload, constraints=limits))["choices"]
    assert {choice["nodes"] for choice in choices} == {4}


def test_spot_comes_with_the_fault_tolerance_that_it_needs(client: TestClient) -> None:
    asked = question(workload={"fault_tolerant": False}, constraints={"provider": ["salad"]})
    market = next(each for each in post_recommend(client, asked)["rejections"] if each["code"] == "market")
    assert market["relax"]["to"]["workload.fault_tolerant"] is True
    assert (
        post_recommend(client, relaxed(asked, market["relax"]["to"]))["counts"]["admitted"] >= market["relax"]["admits"]
    )


@pytest.mark.parametrize("work", [{}, {"model": "llama-3.1-8b", "method": "lora", "amount": {"tokens": 1e9}}])
@pytest.mark.parametrize("constraints", [{"instance": ["aws/g6.12xlarge"]}, {"provider": ["aws"]}])
def test_another_market_than_spot_takes_no_fault_tolerance_and_says_what_is_no_longer_admitted(
    client: TestClient, constraints: Body, work: Body
) -> None:
    """In a list of markets, spot does not count for a job that is not fault-tolerant."""
    asked = question(workload={**work, "fault_tolerant": False}, constraints={**constraints, "market": ["spot"]})
    answer = post_recommend(client, asked)
    (relax,) = [each["relax"] for each in answer["rejections"] if each["code"] == "spot_price_unknown"]
    assert relax["to"] == {"market": ["spot", "on_demand"]}
    after = post_recommend(client, relaxed(asked, relax["to"]))["counts"]["admitted"]
    assert after == answer["counts"]["admitted"] - relax["drops"] + relax["admits"]


@pytest.mark.parametrize("objective", ["cheapest", "fastest"])
@pytest.mark.parametrize("field", ["gpu", "family", "architecture"])
def test_a_further_word_is_that_of_the_best_type_by_the_objective(
    client: TestClient, field: str, objective: str
) -> None:
    job = {"model": "resnet-50", "amount": {"samples": 1e7}}
    best = post_recommend(client, question(workload=job, objective=objective))["choices"][0]
    words = {"gpu": "p100", "family": "g4dn", "architecture": "pascal"}
    named = question(workload=job, objective=objective, constraints={field: [words[field]]})
    (relax,) = [each["relax"] for each in post_recommend(client, named)["rejections"] if each["code"] == field]
    assert relax["best"]["instance"] == f"{best['provider']}/{best['instance']}"
    found = get_json(client, f"/instances/{relax['best']['instance']}")
    word = found["family"] if field == "family" else found["gpu"]["id" if field == "gpu" else field]
    assert relax["to"][field][-1] == word


@pytest.mark.parametrize("objective", ["cheapest", "fastest"])
@pytest.mark.parametrize("work", [{}, {"model": "resnet-50", "amount": {"samples": 1e7}}], ids=["peak", "job"])
def test_a_further_instance_type_is_the_best_by_the_objective(
    client: TestClient, work: dict[str, object], objective: str
) -> None:
    limits: dict[str, object] = {"provider": ["aws", "lambda"]} | ({"deadline_hours": 3} if work else {})
    best = post_recommend(client, question(workload=work, constraints=limits, objective=objective))["choices"][0]
    named = {**limits, "instance": ["g4dn.xlarge"]}
    answer = post_recommend(client, question(workload=work, constraints=named, objective=objective))
    (relax,) = [each["relax"] for each in answer["rejections"] if each["code"] == "instance"]
    assert relax["to"] == {"instance": ["aws/g4dn.xlarge", f"{best['provider']}/{best['instance']}"]}
    assert (relax["admits"], relax["best"]["usd_per_hour"]) == (1, best["usd_per_hour"])


def test_limits_that_no_offer_keeps_are_answered_with_the_fastest_and_the_cheapest(client: TestClient) -> None:
    work = {"model": "llama-3.1-70b", "purpose": "finetune", "global_batch_size": 64, "amount": {"tokens": 1e9}}

    def text(**limits: object) -> str:
        asked = question(workload=work, constraints={"provider": ["aws"], "max_nodes": 4, **limits})
        return str(next(each["text"] for each in post_recommend(client, asked)["notes"] if each["code"] == "nearest"))

    def best(objective: str) -> str:
        asked = question(workload=work, constraints={"provider": ["aws"], "max_nodes": 4}, objective=objective)
        choice = post_recommend(client, asked)["choices"][0]
        return f"{choice['provider']}/{choice['instance']}"

    neither = text(deadline_hours=0.01, budget_usd=0.01)
    assert f"nothing is in time, and the fastest is {best('fastest')} in " in neither
    assert f"nothing is within the budget, and the cheapest is {best('cheapest')} for $" in neither
    one = text(deadline_hours=1000, budget_usd=0.01)
    assert "in time, the cheapest is aws/" in one
    assert "nothing is in time" not in one
    assert "nothing is within the budget" in one


def test_constraints_that_exclude_everything_together_name_the_nearest_machine(client: TestClient) -> None:
    asked = question(constraints={"provider": ["aws"], "family": ["NC"], "gpu_vendor": ["amd"]})
    answer = post_recommend(client, asked)
    assert not answer["choices"]
    assert not any(each["relax"] for each in answer["rejections"])
    assert "several_constraints" in [note["code"] for note in answer["notes"]]


@pytest.mark.parametrize("name", ["H100", "l4", "T4", "mi300x", "A100", "g5", "aws", "lambda", "vast/1x-L40S-32-65536"])
def test_what_is_excluded_by_name_is_gone_in_every_meaning_of_the_name(client: TestClient, name: str) -> None:
    """Some sellers call a machine or a family by the name of its GPU."""
    asked = question(constraints={"exclude": [name]}, per="offer", limit=100)
    answer, gpus = post_recommend(client, asked), client.get(f"/gpus/{name}")
    meant = {each["id"] for each in gpus.json()["items"]} if gpus.status_code == 200 and "/" not in name else set()
    assert answer["choices"]
    for choice in answer["choices"]:
        assert choice["gpu"] is None or choice["gpu"]["id"] not in meant
        assert name not in (choice["instance"], choice["provider"], f"{choice['provider']}/{choice['instance']}")
    (excluded,) = [each for each in answer["rejections"] if each["code"] == "exclude"]
    assert excluded["count"] >= 1


def test_the_cheapest_in_time_costs_what_the_relaxed_budget_is(client: TestClient) -> None:
    """Both go by the likely cost, also of a price that ranks at its high end because it is old."""
    job = {"task": "training", "model": "resnet-50", "amount": {"samples": 1e7}}
    limits = {"provider": ["runpod", "vast"], "budget_usd": 0.45, "deadline_hours": 0.2}
    answer = post_recommend(client, {"workload": job, "constraints": limits})
    (budget,) = [each["relax"]["to"] for each in answer["rejections"] if each["code"] == "budget_usd"]
    (text,) = [note["text"] for note in answer["notes"] if note["code"] == "nearest"]
    usd = float(text.partition(" for $")[2].partition(";")[0])
    assert budget["budget_usd"] == pytest.approx(usd, abs=0.011)


def test_a_job_that_fits_nowhere_is_nearest_to_fit_where_memory_is_largest(client: TestClient) -> None:
    job = {"task": "training", "model": "llama-3.1-405b", "amount": {"tokens": 1e12}}
    limits = {"provider": ["aws"], "family": ["g5", "p4d"], "budget_usd": 1000, "deadline_hours": 1}
    answer = post_recommend(client, {"workload": job, "constraints": limits})
    (text,) = (note["text"] for note in answer["notes"] if note["code"] == "several_constraints")
    assert "aws/p4d.24xlarge misses the fewest constraints" in text


def test_the_nearest_machine_misses_all_that_one_change_cannot_admit(client: TestClient) -> None:
    job = {"task": "training", "model": "llama-3.1-70b", "amount": {"tokens": 1e11}, "sequence_length": 8192}
    code = {"global_batch_size": 256, "software": {"framework": "pytorch"}}
    limits = {"max_nodes": 8, "budget_usd": 1000, "deadline_hours": 48}
    answer = post_recommend(client, {"workload": job | code, "constraints": limits})
    # Some are sold at spot only, and miss the limits there too: to admit another market would not be enough.
    (market,) = [each for each in answer["rejections"] if each["code"] == "market"]
    assert (market["only_this"], market["relax"]) == (0, None)
    assert market["count"]
    (text,) = (note["text"] for note in answer["notes"] if note["code"] == "several_constraints")
    assert not text.endswith(": market.")


def test_a_machine_without_the_memory_is_not_nearer_than_one_that_misses_the_limits(client: TestClient) -> None:
    job = {"task": "training", "model": "llama-3.1-70b", "method": "lora", "amount": {"tokens": 1e9}}
    answer = post_recommend(client, {"workload": job, "constraints": {"budget_usd": 10, "deadline_hours": 2}})
    (text,) = (note["text"] for note in answer["notes"] if note["code"] == "several_constraints")
    assert text.endswith(": deadline_hours, budget_usd.")


def test_a_name_that_was_not_measured_comes_with_a_similar_one(client: TestClient) -> None:
    asked = question(workload={"task": "training", "name": "resnet-50"})
    notes = {note["code"]: note["text"] for note in post_recommend(client, asked)["notes"]}
    assert notes["name_not_measured"].endswith("Did you mean resnet50_imagenet_train?")


def test_a_list_of_constraints_may_be_null(client: TestClient) -> None:
    nothing = post_recommend(client, question(constraints={"region": None, "provider": None}))
    assert nothing["counts"] == post_recommend(client, question())["counts"]


@pytest.mark.parametrize("workload", [{}, {"model": "resnet-50", "amount": {"samples": 1e6}}])
def test_a_day_before_the_first_instance_type_is_answered_with_nothing(client: TestClient, workload: Any) -> None:
    answer = client.post("/recommend", json=question(workload=workload) | {"as_of": "2010-01-01"})
    assert answer.status_code == 200
    assert answer.json()["counts"] == {"considered": 0, "admitted": 0, "rejected": 0}


def test_no_change_of_the_question_brings_back_a_retired_machine(client: TestClient) -> None:
    """G2 and P2 are retired and cannot be rented, so their last prices are of no use."""
    answer = post_recommend(client, question(constraints={"provider": ["aws"]}))
    (rejection,) = [each for each in answer["rejections"] if each["code"] == "lifecycle"]
    assert rejection["only_this"]
    relax = rejection["relax"]
    assert relax is None or relax["to"] == {"lifecycle": ["available", "closed_to_new", "preview"]}
    retired = post_recommend(client, question(constraints={"provider": ["aws"], "lifecycle": ["retired"]}))
    (rejection,) = [each for each in retired["rejections"] if each["code"] == "lifecycle"]
    assert rejection["relax"]["to"] == {"lifecycle": ["retired", "available"]}


@pytest.mark.parametrize(
    ("admitted", "ground"),
    [({}, "availability"), ({"allow_preview": True}, "availability"), ({"lifecycle": ["retired"]}, "constraint")],
)
def test_a_lifecycle_that_the_question_names_is_a_constraint_of_the_caller(
    client: TestClient, admitted: Body, ground: str
) -> None:
    answer = post_recommend(client, question(constraints=admitted))
    (rejection,) = [each for each in answer["rejections"] if each["code"] == "lifecycle"]
    assert rejection["ground"] == ground
    assert rejection["text"].startswith("Its lifecycle on the catalog's day is not among those admitted, ")


@pytest.mark.parametrize("limit", [{"deadline_hours": 10}, {"budget_usd": 150}], ids=str)
def test_what_the_region_alone_rejects_keeps_the_limits_of_the_job_elsewhere(
    client: TestClient, limit: dict[str, float]
) -> None:
    """Machines that are sold only elsewhere, and miss the deadline or the budget there, count for both."""
    work = {"model": "llama-3.1-8b", "method": "lora", "amount": {"tokens": 1e9}}
    limits = {"provider": ["aws", "scaleway", "gcp"], **limit}
    answer = post_recommend(client, question(workload=work, constraints={**limits, "country": ["FR"]}))
    anywhere = post_recommend(client, question(workload=work, constraints=limits))
    (rejection,) = [each for each in answer["rejections"] if each["code"] == "country"]
    more = anywhere["counts"]["admitted"] - answer["counts"]["admitted"]
    assert 0 < rejection["only_this"] <= more < rejection["count"]


def test_commitments_that_match_no_offer_are_pointed_out(client: TestClient) -> None:
    def ask(held: str, provider: str) -> tuple[Body, Body]:
        body = question(constraints={"provider": [provider], "gpu": ["a100"]}) | {"commitments_held": [held]}
        answer = post_recommend(client, body)
        notes = {note["code"]: note for note in answer["notes"]}
        return answer["choices"][0], notes

    choice, notes = ask("1y_reserved_all_upfront", "gcp")
    assert choice["market"] == "on_demand"
    assert "1y_reserved_all_upfront" in notes["commitment_unused"]["text"]
    assert notes["commitment_unused"]["fields"] == ["commitments_held"]
    choice, notes = ask("1y_reserved_all_upfront", "aws")
    assert (choice["market"], choice["price"]["term"]) == ("reserved", "1y_reserved_all_upfront")
    assert "commitment_unused" not in notes


def test_a_commitment_that_the_constraints_leave_out_is_not_said_to_be_without_offers(client: TestClient) -> None:
    limits = {"instance": ["gcp/a2-highgpu-1g"], "market": ["on_demand"]}
    answer = post_recommend(client, question(constraints=limits) | {"commitments_held": ["3y_committed_use"]})
    (text,) = [note["text"] for note in answer["notes"] if note["code"] == "commitment_unused"]
    assert text.startswith("The constraints leave out the offers of the admitted instance types under 3y_committed_use")


def test_a_day_before_the_first_instance_type_is_answered_with_the_first_day(client: TestClient) -> None:
    def notes(day: str) -> dict[str, str]:
        return {note["code"]: note["text"] for note in post_recommend(client, question() | {"as_of": day})["notes"]}

    text = notes("2010-01-01")["empty_catalog"]
    first = text.rpartition(" ")[2].rstrip(".")
    assert "empty_catalog" not in notes(first)
    assert "empty_catalog" in notes((date.fromisoformat(first) - timedelta(days=1)).isoformat())


def test_equal_risks_are_in_the_order_of_the_cost_of_the_job(client: TestClient) -> None:
    work = {"model": "llama-3.1-8b", "method": "lora", "precision": ["bf16"], "amount": {"tokens": 1e9}}
    asked = question(workload=work, constraints={"provider": ["aws"], "market": ["on_demand"]}, objective={"risk": 1})
    bills = [choice["cost"]["usd"] for choice in post_recommend(client, asked)["choices"]]
    costs = [usd["likely"] for usd in bills if usd is not None]
    assert len(costs) > 10
    assert costs == sorted(costs)


def test_limits_of_a_job_are_not_said_to_be_kept_where_it_does_not_run(client: TestClient) -> None:
    """A GPU without the precision of the job has no hours and no cost to compare with the limits."""
    work = {"model": "llama-3.1-8b", "method": "lora", "precision": ["bf16"], "amount": {"tokens": 1e9}}
    limits = {"provider": ["aws"], "region": ["us-east-1"], "budget_usd": 20, "deadline_hours": 0.2}
    answer = post_recommend(client, question(workload=work, constraints=limits))
    (text,) = [note["text"] for note in answer["notes"] if note["code"] == "several_constraints"]
    assert text.endswith(": deadline_hours, budget_usd.")
    only_this = {each["code"]: each["only_this"] for each in answer["rejections"]}
    assert (only_this["precision"], only_this["gpu_memory"]) == (0, 0)
    without = {name: limits[name] for name in ("provider", "region")}
    free = post_recommend(client, question(workload=work, constraints=without))
    assert next(each["only_this"] for each in free["rejections"] if each["code"] == "precision") > 0


@pytest.mark.parametrize(("model", "code"), [("llama-3.1-70b", "gpu_memory"), ("llama-3.2-1b", "gpu_figures_unknown")])
def test_a_memory_that_is_known_to_be_too_small_is_named_before_figures_that_are_unknown(
    client: TestClient, model: str, code: str
) -> None:
    """The memory of this part of an L4 is known, and its bandwidth is not."""
    work = {"model": model, "method": "lora", "precision": ["bf16"], "amount": {"tokens": 1e9}}
    answer = post_recommend(client, question(workload=work, constraints={"instance": ["aws/g6f.large"]}))
    assert [each["code"] for each in answer["rejections"] if "aws/g6f.large" in each["instances"]] == [code]
    assert ("unranked" in {note["code"] for note in answer["notes"]}) is (code == "gpu_figures_unknown")


@pytest.mark.parametrize(("machine", "unused"), [("gcp/a2-highgpu-8g", True), ("aws/p4d.24xlarge", False)])
def test_an_estimate_says_that_a_commitment_held_matches_no_offer(
    client: TestClient, machine: str, unused: bool
) -> None:
    body = {"machine": machine, "hours": 10, "commitments_held": ["1y_reserved_all_upfront"]}
    answer = client.post("/estimate", json=body).json()
    assert any("commitments held" in note for note in answer["notes"]) is unused


@pytest.mark.parametrize(("named", "noted"), [({"family": ["p3"]}, True), ({"family": ["p3", "g5"]}, False)], ids=str)
def test_constraints_that_name_retired_machines_only_say_since_when(
    client: TestClient, named: Body, noted: bool
) -> None:
    answer = post_recommend(client, question(constraints=named))
    texts = [note["text"] for note in answer["notes"] if note["code"] == "retired"]
    assert bool(texts) is noted is not bool(answer["choices"])
    assert all(text.startswith("p3 has not been offered since 2025-12-20") for text in texts)


def test_a_price_that_is_carried_over_is_not_said_to_be_observed(client: TestClient) -> None:
    answer = post_recommend(client, question(constraints={"family": ["g5"], "provider": ["aws"]}, as_of="2022-02-17"))
    codes = [[warning["code"] for warning in choice["warnings"]] for choice in answer["choices"]]
    assert any("price_assumed" in each for each in codes)
    assert not any({"price_assumed", "price_old"} <= set(each) for each in codes)


def test_a_note_names_the_unknown_subject_and_not_a_known_one(client: TestClient) -> None:
    answer = post_recommend(client, question(workload={"dataset": "ms_coco", "goal": "win a prize"}))
    fields = {note["code"]: note["fields"] for note in answer["notes"]}
    assert fields["not_weighed"] == ["workload.goal"]


def test_a_field_of_inference_does_not_affect_training(client: TestClient) -> None:
    work = {"model": "llama-3.1-8b", "longest_output_length": 100}
    answer = post_recommend(client, question(workload=work))
    fields = {note["code"]: note["fields"] for note in answer["notes"]}
    assert "workload.longest_output_length" in fields["not_weighed"]


def test_the_current_machine_has_its_cheapest_price_where_the_requested_region_has_none(client: TestClient) -> None:
    machine, region = "aws/p4de.24xlarge", "ap-south-2"
    offers = get_json(client, f"/prices?instance={machine}&market=on_demand&limit=100")["items"]
    assert region not in {offer["region"] for offer in offers}
    asked = question(constraints={"region": [region], "market": ["on_demand"]}, current_instance=machine, limit=1)
    current = post_recommend(client, asked)["current"]
    cheapest = min(offer["usd_per_hour"] for offer in offers if offer["usd_per_hour"])
    assert current["usd_per_hour"] == pytest.approx(cheapest, abs=1e-4)


@pytest.mark.parametrize(
    "limits",
    [
        {"family": ["Dsv5"]},
        {"family": ["dsv5"]},
        {"series": ["c7"]},
        {"platform": ["CPU"]},
        {"instance": ["aws/C7I.XLARGE"]},
    ],
    ids=str,
)
def test_machines_without_a_gpu_are_ranked_where_they_are_named_in_any_spelling(
    client: TestClient, limits: dict[str, list[str]]
) -> None:
    answer = post_recommend(client, question("inference", workload={"model": "resnet-50"}, constraints=limits))
    assert "without_gpu" not in {rejection["code"] for rejection in answer["rejections"]}


@pytest.mark.parametrize(
    ("gpu", "precision", "expected"),
    [
        ("a100-sxm4-80gb", "fp64", "tf32"),
        ("a100-sxm4-80gb", "fp32", "tf32"),
        ("rtx-4090-24gb", "fp32", "fp32"),  # as fast as TF32 there
        ("a100-sxm4-80gb", "fp16", "fp16"),
    ],
)
def test_a_flexible_precision_is_replaced_by_faster_ones_alone(
    client: TestClient, gpu: str, precision: str, expected: str
) -> None:
    work = {"precision": [precision], "precision_flexible": True, "code_changes": False}
    answer = post_recommend(client, question("hpc", workload=work, constraints={"gpu": [gpu]}, limit=1))
    assert answer["choices"][0]["estimate"]["precision"] == expected


def test_the_peak_of_several_runs_has_six_digits(client: TestClient) -> None:
    work, limits = {"concurrent_runs": 3, "precision": ["bf16"]}, {"gpu": ["rtx-3090"], "provider": ["autodl"]}
    answer = post_recommend(client, question(workload=work, constraints=limits))
    assert {choice["estimate"]["peak_tflops"] for choice in answer["choices"]} == {213.6}
