"""Decisions about a whole job: limits, instances, spot in expectation, ties and fallbacks, over the seed."""

import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_recommend
from tests.builders.request_bodies import Body, changed, relaxed

JOB = {
    "task": "training",
    "model": "llama-3.1-8b",
    "precision": ["bf16"],
    "global_batch_size": 128,
    "amount": {"tokens": 2e9},
    "fault_tolerant": True,
}


def ask(client: TestClient, **more: Any) -> dict[str, Any]:
    body = {"workload": {**JOB, **more.pop("workload", {})}, "constraints": more.pop("constraints", {}), **more}
    answer = client.post("/recommend", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def codes(answer: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["code"]: each for each in answer}


AWS = {"provider": ["aws"]}


@pytest.fixture(scope="module")
def free(client: TestClient) -> dict[str, Any]:
    """Without a limit: how cheap and how fast it can be."""
    return {name: ask(client, constraints=AWS, objective=name)["choices"][0] for name in ("cheapest", "fastest")}


def test_limits_are_kept_and_the_answer_says_how(client: TestClient, free: dict[str, Any]) -> None:
    usd = free["cheapest"]["estimate"]["usd"]["likely"] * 3
    hours = free["fastest"]["estimate"]["hours"]["likely"] * 4
    answer = ask(client, constraints={**AWS, "deadline_hours": hours, "budget_usd": usd}, limit=100)
    assert answer["choices"]
    for choice in answer["choices"]:
        assert choice["estimate"]["hours"]["likely"] <= hours * 1.00001
        assert choice["estimate"]["usd"]["likely"] <= usd * 1.00001
        assert "of" in codes(choice["reasons"])["within_limits"]["text"]
    assert {"deadline_hours", "budget_usd"} <= codes(answer["rejections"]).keys()


def test_a_relaxed_limit_admits_what_it_promised(client: TestClient, free: dict[str, Any]) -> None:
    for name, limit in (
        ("deadline_hours", free["fastest"]["estimate"]["hours"]["likely"] / 2),
        ("budget_usd", free["cheapest"]["estimate"]["usd"]["likely"] / 2),
    ):
        answer = ask(client, constraints={**AWS, name: limit})
        assert answer["choices"] == []
        relax = codes(answer["rejections"])[name]["relax"]
        after = ask(client, constraints={**AWS, **relax["to"]})
        assert after["counts"]["admitted"] == relax["admits"] > 0
        assert f"{after['choices'][0]['provider']}/{after['choices'][0]['instance']}" == relax["best"]["instance"]


LOAD: dict[str, Any] = {"requests_per_second": 5, "input_length": 1000, "output_length": 200}
SERVED = {"workload": {"task": "inference", "model": "llama-3.1-8b", "serving": LOAD}, "constraints": AWS}


SERVED_LOADS = [{"requests_per_second": 20}, {"concurrency": 200}, {"requests_per_second": 3, "disaggregated": True}]


@pytest.mark.parametrize("load", SERVED_LOADS, ids=str)
def test_a_safe_load_has_the_instances_that_slow_engines_need(client: TestClient, load: dict[str, Any]) -> None:
    """With `safe`, each machine has the instances that it has at most, and its slow engines keep the limits on them."""
    serving = {**load, "input_length": 1000, "output_length": 300, "max_seconds_per_output_token": 0.03}
    work = {"task": "inference", "model": "llama-3.1-8b", "software": {"engine": "vllm"}, "serving": serving}
    likely, safe = (
        {
            (choice["provider"], choice["instance"]): choice
            for choice in post_recommend(
                client, {"workload": work, "constraints": {**AWS, "confidence": confidence}, "limit": 100}
            )["choices"]
        }
        for confidence in ("likely", "safe")
    )
    assert safe.keys() <= likely.keys()
    assert any(safe[name]["instances"] > likely[name]["instances"] for name in safe)
    for name, choice in safe.items():
        figures = choice["serving"]
        assert choice["instances"] == figures["instances"] == figures["instances_high"]
        assert figures["instances_high"] >= likely[name]["serving"]["instances"]
        assert figures["keeps_limits"]
        assert figures["seconds_per_output_token"] <= 0.03
        month = figures["usd_per_month"]["likely"]
        assert month == pytest.approx(choice["usd_per_hour"] * 730, rel=1e-3)


def test_a_safe_budget_of_a_load_is_that_of_its_most_expensive_month(client: TestClient) -> None:
    asked = changed(SERVED, constraints__confidence="safe")
    choices = post_recommend(client, {**asked, "limit": 100})["choices"]
    months = sorted(choice["serving"]["usd_per_month"]["likely"] for choice in choices)
    answer = post_recommend(client, changed(asked, constraints__budget_usd=months[len(months) // 2]))
    for choice in answer["choices"]:
        assert choice["usd_per_hour"] * 730 <= months[len(months) // 2]
    assert "not_weighed" not in codes(answer["notes"])


@pytest.mark.parametrize(
    "more", [{}, {"constraints__max_instances": 2}, {"workload__serving__max_seconds_per_output_token": 0.01}], ids=str
)
def test_a_budget_of_a_load_is_that_of_its_month(client: TestClient, more: dict[str, Any]) -> None:
    """A budget of precisely the month admits its machine, and less does not, as the verdict of the estimate says."""
    asked = changed(SERVED, **more)
    choices = post_recommend(client, {**asked, "limit": 100})["choices"]
    months = sorted(choice["serving"]["usd_per_month"]["likely"] for choice in choices)
    budget = months[len(months) // 2]
    limited = changed(asked, constraints__budget_usd=budget)
    answer = post_recommend(client, limited)
    assert answer["counts"]["admitted"] == sum(usd <= budget for usd in months) > 1
    assert codes(answer["rejections"])["budget_usd"]["count"] >= sum(usd > budget for usd in months) > 1
    assert "A month of the load costs $" in codes(answer["choices"][0]["reasons"])["within_budget"]["text"]
    assert "not_weighed" not in codes(answer["notes"])
    for choice in choices[:20]:
        body = {"workload": asked["workload"], "machine": f"aws/{choice['instance']}", "market": choice["market"]}
        estimate = client.post("/estimate", json={**body, "region": choice["region"], "budget_usd": budget}).json()
        assert (estimate["verdict"] == "pass") is (choice["serving"]["usd_per_month"]["likely"] <= budget)


def test_a_relaxed_budget_of_a_load_is_the_next_month_that_fits(client: TestClient) -> None:
    asked = changed(SERVED, constraints__budget_usd=1)
    (relax,) = (each["relax"] for each in post_recommend(client, asked)["rejections"] if each["code"] == "budget_usd")
    assert relax["to"].keys() == {"budget_usd"}
    answer = post_recommend(client, relaxed(asked, relax["to"]))
    assert answer["counts"]["admitted"] == relax["admits"] > 0
    assert 0 <= relax["to"]["budget_usd"] - answer["choices"][0]["serving"]["usd_per_month"]["likely"] < 0.01


def test_a_budget_of_a_load_of_some_hours_a_day_is_that_of_its_month(client: TestClient) -> None:
    asked = changed(SERVED, workload__serving__hours_per_day=8)
    whole, some = (post_recommend(client, {**each, "limit": 1})["choices"][0] for each in (SERVED, asked))
    assert some["usd_per_hour"] == whole["usd_per_hour"]
    month = some["serving"]["usd_per_month"]["likely"]
    assert month == pytest.approx(whole["serving"]["usd_per_month"]["likely"] / 3, abs=1e-5)
    assert post_recommend(client, changed(asked, constraints__budget_usd=month + 0.01))["choices"]
    assert not post_recommend(client, changed(asked, constraints__budget_usd=month - 0.01))["choices"]


def test_a_load_of_some_hours_a_day_is_not_ranked_under_a_commitment_that_is_paid_for_in_all(
    client: TestClient,
) -> None:
    """At 0.6 times the price on demand, a commitment would come first, and would cost 1.8 times as much a month."""
    asked = changed(SERVED, workload__serving__hours_per_day=8, constraints__market=["on_demand", "reserved"])
    answer = client.post("/recommend", json=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "constraints.market"
    assert post_recommend(client, {**asked, "commitments_held": ["reserved"]})["choices"]
    assert post_recommend(client, changed(asked, workload__serving__hours_per_day=24))["choices"]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "bge-m3"])
def test_the_fastest_machines_of_a_load_answer_a_request_soonest(client: TestClient, model: str) -> None:
    """All machines serve the rate that is asked for, so that rates do not decide which is fast."""
    lengths = {"input_length": 500} | ({} if model == "bge-m3" else {"output_length": 200})
    work = {"task": "inference", "model": model, "serving": {"requests_per_second": 5, **lengths}}
    choices = post_recommend(client, {"workload": work, "objective": "fastest", "limit": 50})["choices"]
    seconds = [choice["serving"]["seconds_per_request"] for choice in choices]
    assert len(set(seconds)) > 3
    assert seconds == sorted(seconds)
    assert f"{seconds[0]:.3g} seconds per request" in codes(choices[0]["reasons"])["objective"]["text"]


def test_a_type_whose_offers_miss_different_limits_of_a_load_is_not_admitted(client: TestClient) -> None:
    """On demand, eight A40 are above the budget. On spot, the load takes more of them than are allowed."""
    serving = {
        "requests_per_second": 19.0,
        "input_length": 2034,
        "output_length": {"mean": 1, "p95": 1.2734324094063159},
        "max_seconds_to_first_token": 0.5164748988946964,
        "max_seconds_per_output_token": 0.2736546406524236,
        "min_replicas": 7,
        "availability_zones": 3,
    }
    work = {
        "task": "inference",
        "model": "llava-1.5-7b",
        "precision": ["bf16"],
        "kv_cache_precision": "fp8",
        "software": {"engine": "tgi<2"},
        "serving": serving,
    }
    limits = {"provider": ["runpod", "gcp"], "market": ["on_demand", "spot"], "max_instances": 3, "budget_usd": 41_960}
    answer = post_recommend(client, {"workload": work, "constraints": limits, "limit": 100})
    assert 5 < answer["counts"]["admitted"] == len(answer["choices"])


PER_MILLION = "max_usd_per_million_tokens"


@pytest.mark.parametrize(
    "asked",
    [
        SERVED,
        changed(SERVED, workload__serving__requests_per_second=None, workload__serving__concurrency=64),
        changed(SERVED, workload__serving=None, workload__amount={"samples": 1e5}, workload__output_length=300),
        changed(SERVED, workload__model="bge-m3", workload__serving={"requests_per_second": 9, "input_length": 99}),
    ],
    ids=["rate", "clients", "amount", "embeddings"],
)
def test_a_limit_on_the_price_of_tokens_is_that_of_the_price_shown(client: TestClient, asked: Body) -> None:
    choices = post_recommend(client, {**asked, "limit": 100})["choices"]
    prices = sorted(choice["cost"]["per_unit"]["usd_per_million_tokens"]["likely"] for choice in choices)
    limit = prices[len(prices) // 2] + 1e-6
    limited = changed({**asked, "limit": 100}, **{f"constraints__{PER_MILLION}": limit})
    answer = post_recommend(client, limited)
    kept = [choice["cost"]["per_unit"]["usd_per_million_tokens"]["likely"] for choice in answer["choices"]]
    assert len(kept) >= len(prices) // 2
    assert max(kept) <= limit
    assert "not_weighed" not in codes(answer["notes"])
    relax = codes(answer["rejections"])["usd_per_million_tokens"]["relax"]
    assert relax["to"].keys() == {PER_MILLION}
    again = post_recommend(client, relaxed(limited, relax["to"]))
    assert again["counts"]["admitted"] - answer["counts"]["admitted"] == relax["admits"] > 0


def test_a_price_of_tokens_pays_for_their_prompts_too(client: TestClient) -> None:
    (choice,) = post_recommend(client, {**SERVED, "limit": 1})["choices"]
    load = choice["serving"]
    an_hour = load["output_tokens_per_second"] * 3600 * load["usd_per_million_tokens"]["likely"] / 1e6
    assert an_hour == pytest.approx(choice["usd_per_hour"], rel=1e-3)


def test_a_limit_on_the_price_of_tokens_needs_tokens(client: TestClient) -> None:
    work = {"task": "inference", "model": "resnet-50", "serving": {"requests_per_second": 100}}
    answer = client.post("/recommend", json={"workload": work, "constraints": {PER_MILLION: 1}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == f"constraints.{PER_MILLION}"
    assert "budget_usd" in error["message"]


def test_a_longer_time_is_promised_only_within_the_budget(client: TestClient) -> None:
    """A machine that keeps a limit with many instances costs less under a longer limit, and may cost too much still."""
    promised = 0
    for budget in (1500, 20_000, 1e7):
        asked = changed(
            SERVED, constraints__budget_usd=budget, constraints__max_instances=8,
            workload__serving__requests_per_second=50, workload__serving__max_seconds_to_first_token=0.1,
        )  # fmt: skip
        before = post_recommend(client, asked)
        relax = codes(before["rejections"])["too_slow_first_token"]["relax"]
        if relax is not None:
            promised += 1
            after = post_recommend(client, relaxed(asked, relax["to"]))
            assert after["counts"]["admitted"] - before["counts"]["admitted"] == relax["admits"]
    assert promised


def test_a_load_that_only_misses_its_budget_is_not_said_to_be_slow(client: TestClient) -> None:
    """Times are those of the instances that keep the limits, whatever these cost."""
    asked = changed(SERVED, constraints__budget_usd=1)
    free, poor = (codes(post_recommend(client, each)["rejections"]) for each in (SERVED, asked))
    for code in ("too_slow_first_token", "too_slow_per_token", "too_slow_per_request"):
        assert poor.get(code, {"count": 0})["count"] == free.get(code, {"count": 0})["count"]
    assert poor["budget_usd"]["only_this"] > 0


def test_the_pessimistic_end_is_harder_to_keep(client: TestClient, free: dict[str, Any]) -> None:
    limits = {**AWS, "deadline_hours": free["fastest"]["estimate"]["hours"]["likely"] * 2}
    likely, safe = (ask(client, constraints={**limits, "confidence": each}, limit=100) for each in ("likely", "safe"))
    assert likely["counts"]["admitted"] > safe["counts"]["admitted"]
    for choice in safe["choices"]:
        assert choice["estimate"]["hours"]["high"] <= limits["deadline_hours"] * 1.00001


def test_where_both_limits_cannot_be_kept_the_nearest_is_named_on_each_side(
    client: TestClient, free: dict[str, Any]
) -> None:
    hours, usd = free["fastest"]["estimate"]["hours"]["likely"], free["cheapest"]["estimate"]["usd"]["likely"]
    answer = ask(client, constraints={**AWS, "deadline_hours": hours * 1.01, "budget_usd": usd * 1.01})
    assert answer["choices"] == []
    response = codes(answer["notes"])["nearest"]["text"]
    assert "in time, the cheapest is aws/" in response
    assert "within the budget, the fastest is aws/" in response


def test_several_instances_share_the_work_to_be_in_time(client: TestClient) -> None:
    limits = {**AWS, "instance": ["p4d.24xlarge"], "market": ["on_demand"]}
    alone = ask(client, constraints=limits)["choices"][0]
    hours = alone["estimate"]["hours"]["likely"]
    deadline = {**limits, "deadline_hours": hours / 2.5}
    assert ask(client, constraints=deadline)["choices"] == []
    shared = ask(client, constraints={**deadline, "max_instances": 8})["choices"][0]
    assert shared["instances"] == 3
    assert shared["estimate"]["hours"]["likely"] == pytest.approx(hours / 3, rel=1e-4)
    assert shared["estimate"]["usd"]["likely"] == pytest.approx(alone["estimate"]["usd"]["likely"], rel=1e-4)
    assert shared["usd_per_hour"] == pytest.approx(3 * alone["usd_per_hour"])
    assert "3 independent instances" in codes(shared["reasons"])["within_limits"]["text"]


def test_no_more_instances_share_the_work_than_are_in_time_with_the_luck_of_each(client: TestClient) -> None:
    limits = {**AWS, "instance": ["p4d.24xlarge"], "market": ["spot"], "confidence": "safe"}
    high = ask(client, constraints=limits)["choices"][0]["estimate"]["hours"]["high"]

    def on_at_most(instances: int) -> Any:
        return ask(client, constraints={**limits, "deadline_hours": high / 10, "max_instances": instances})

    # A tenth of the work takes more than a tenth of the hours of an unlucky run, so ten are not enough.
    fewest = next(count for count in range(1, 20) if on_at_most(count)["choices"])
    assert fewest > 10
    for most in (fewest, 100):
        answer = on_at_most(most)
        assert answer["choices"][0]["instances"] == fewest
        assert "price_ignored" not in codes(answer["notes"])


def test_instances_share_the_runs_of_a_sweep(client: TestClient) -> None:
    limits = {**AWS, "instance": ["p4d.24xlarge"], "market": ["on_demand"], "deadline_hours": 1e4}
    workload = {
        "task": "training", "model": "resnet-50", "precision": ["fp16"], "amount": {"samples": 1e7},
        "concurrent_runs": 6,
    }  # fmt: skip
    answer = client.post("/recommend", json={"workload": workload, "constraints": limits}).json()
    text = codes(answer["choices"][0]["reasons"])["within_limits"]["text"]
    assert text.startswith("The 6 runs, shared by 6 independent instances, take ")


def test_spot_is_priced_in_expectation(client: TestClient) -> None:
    answer = ask(client, constraints={"market": ["on_demand", "spot"]}, per="offer", limit=100)
    spot = [choice for choice in answer["choices"] if choice["market"] == "spot"]
    assert spot
    for choice in spot:
        response = choice["spot"]
        assert response["stretch"] > 1
        assert response["interruptions"]["likely"] == pytest.approx(
            response["interruptions_per_hour"]["likely"] * response["paid_hours"]["likely"], rel=1e-3
        )
        if choice["provider"] == "aws":
            assert response["notice_seconds"] == 120
        assert choice["estimate"]["hours"]["likely"] >= response["paid_hours"]["likely"]
        reason = codes(choice["reasons"])["spot_in_expectation"]["text"]
        waiting = choice["estimate"]["hours"]["likely"] - response["paid_hours"]["likely"]
        stated = re.search(r"and ([\d.e+-]+) more pass without capacity", reason)
        assert waiting == pytest.approx(float(stated[1]) if stated else 0.0, rel=0.01, abs=1e-3)
    assert any("without capacity" in codes(choice["reasons"])["spot_in_expectation"]["text"] for choice in spot)
    assert all(choice["spot"] is None for choice in answer["choices"] if choice["market"] != "spot")


def test_a_lead_within_the_bands_is_a_tie(client: TestClient) -> None:
    choices = ask(client, constraints=AWS, limit=20)["choices"]
    tied = [choice for choice in choices if choice["tied_with"]]
    assert tied
    for choice in tied:
        assert "tied" in codes(choice["reasons"])
        for other in choice["tied_with"]:
            assert choice["rank"] in choices[other - 1]["tied_with"]


def test_ties_with_choices_that_are_not_shown_have_no_ranks(client: TestClient) -> None:
    shown = ask(client, constraints=AWS, limit=20)["choices"]
    assert shown[0]["tied_with"]
    (alone,) = ask(client, constraints=AWS, limit=1)["choices"]
    assert alone["tied_with"] == []
    texts = {reason["code"]: reason["text"] for reason in alone["reasons"]}
    assert texts["tied"] == "The estimates cannot distinguish it from choices beyond the limit."


def test_fallbacks_differ_in_what_can_fail_together(client: TestClient) -> None:
    usual, apart = (ask(client, diversify=each, limit=5)["choices"] for each in (False, True))
    assert usual[0]["instance"] == apart[0]["instance"]

    def places(choices: list[dict[str, Any]]) -> int:
        return len({(choice["provider"], choice["region"], choice["specs"]["family"]) for choice in choices})

    assert places(apart) == 5
    assert len({choice["region"] for choice in apart}) >= len({choice["region"] for choice in usual})


def test_regions_of_two_providers_with_one_name_do_not_fail_together(client: TestClient) -> None:
    limits = {"provider": ["gcp", "nebius"], "region": ["us-central1"]}
    body = {"workload": {"task": "training", "precision": ["bf16"]}, "constraints": limits, "objective": "fastest"}
    choices = post_recommend(client, {**body, "limit": 2, "diversify": True})["choices"]
    assert len({choice["provider"] for choice in choices}) == 2


def test_a_fallback_is_compared_with_all_choices_and_not_with_the_shown_ones_alone(client: TestClient) -> None:
    body = {
        "workload": {"task": "training", "precision": ["bf16"]}, "objective": {"usd": 1, "hours": 1}, "per": "offer",
    }  # fmt: skip
    every, apart, alone = (
        post_recommend(client, {**body, **more})["choices"]
        for more in ({"limit": 100}, {"limit": 6, "diversify": True}, {"limit": 1, "diversify": True})
    )
    for choice in apart:
        usd, peak = choice["usd_per_hour"], choice["estimate"]["peak_tflops"]
        figures = [(other["usd_per_hour"], other["estimate"]["peak_tflops"]) for other in every]
        beaten = any(a <= usd and b >= peak and (a, b) != (usd, peak) for a, b in figures)
        assert not (choice["pareto"] and beaten), choice["instance"]
    assert "only_choice" not in codes(alone[0]["reasons"])
    assert codes(alone[0]["reasons"])["objective"]["text"] == codes(every[0]["reasons"])["objective"]["text"]


def test_limits_on_the_whole_job_need_an_amount(client: TestClient) -> None:
    answer = ask(client, workload={"amount": None}, constraints={**AWS, "budget_usd": 1, "deadline_hours": 1})
    assert answer["choices"]
    assert set(codes(answer["notes"])["not_weighed"]["fields"]) == {
        "constraints.budget_usd",
        "constraints.deadline_hours",
    }


@pytest.mark.parametrize(
    ("name", "precision"),
    [("half precision", "fp16"), ("Double", "fp64"), ("BFloat16", "bf16"), ("FP16 tensor cores", "fp16")],
)
def test_a_precision_is_known_by_its_other_names(client: TestClient, name: str, precision: str) -> None:
    def ranked(asked: str) -> list[str]:
        body = {"workload": {"task": "training", "precision": [asked]}, "constraints": AWS}
        return [choice["instance"] for choice in client.post("/recommend", json=body).json()["choices"]]

    assert ranked(name) == ranked(precision) != []


@pytest.mark.parametrize(
    ("name", "meanings"), [("full precision", "fp32 or fp64"), ("Mixed Precision", "fp16 or bf16")]
)
def test_a_precision_with_two_meanings_is_refused_with_both(client: TestClient, name: str, meanings: str) -> None:
    answer = client.post("/recommend", json={"workload": {"task": "training", "precision": [name]}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "workload.precision"
    assert meanings in error["message"]


@pytest.mark.parametrize(
    ("framework", "admitted"), [("pytorch==2.0", {"g5"}), ("pytorch==1.13", set()), ("pytorch", {"g5"})]
)
def test_a_required_feature_needs_the_hardware_and_the_version_of_the_framework(
    client: TestClient, framework: str, admitted: set[str]
) -> None:
    body = {
        "workload": {
            "task": "training",
            "software": {"framework": framework, "libraries": [{"name": "torch.compile"}]},
        },
        "constraints": {"family": ["g5", "p2"]},
        "as_of": "2023-06-07",
    }
    answer = client.post("/recommend", json=body).json()
    assert {choice["specs"]["family"] for choice in answer["choices"]} == admitted
    assert "software_libraries" in codes(answer["rejections"])


# Numbers of nodes

PRETRAINING = {"task": "training", "model": "mpt-70b", "purpose": "pretrain", "amount": {"tokens": 1e12}}


@pytest.mark.parametrize("gpu", ["a100-sxm4-40gb", "l40s-48gb"])
@pytest.mark.parametrize(("objective", "figure"), [("cheapest", "usd"), ("fastest", "hours")])
def test_more_nodes_never_have_the_worse_first_choice(
    gpu: str, objective: str, figure: str, client: TestClient
) -> None:
    def first(nodes: int) -> Any:
        asked = {"workload": PRETRAINING, "constraints": {"gpu": [gpu], "max_nodes": nodes}, "objective": objective}
        return post_recommend(client, {**asked, "limit": 1})["choices"][0]["estimate"][figure]["likely"]

    found = [first(nodes) for nodes in range(5, 22)]
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0]


# Precisions


@pytest.mark.parametrize(
    ("work", "limits", "precisions"),
    [
        ({"precision": ["fp8"]}, {"gpu": ["A100"]}, ["fp8", "bf16"]),
        ({"precision": ["fp8"]}, {"gpu": ["A100"], "deadline_hours": 24}, ["fp8", "bf16"]),
        ({"model": "resnet-50", "amount": {"samples": 1e8}}, {"family": ["g4dn"]}, ["bf16", "fp16"]),
    ],
)
def test_a_job_whose_precision_runs_nowhere_is_pointed_to_the_one_that_admits_the_most(
    work: dict[str, Any], limits: dict[str, Any], precisions: list[str], client: TestClient
) -> None:
    none = ask(client, workload=work, constraints=limits)
    relax = codes(none["rejections"])["precision"]["relax"]
    assert none["counts"]["admitted"] == 0
    assert relax["to"] == {"workload.precision": precisions}
    some = ask(client, workload={**work, "precision": precisions}, constraints=limits)
    assert some["counts"]["admitted"] == relax["admits"] > 0
    assert codes(some["rejections"])["precision"]["relax"] is None


# Relaxations of long jobs and of clusters


LONG = {**PRETRAINING, "amount": {"tokens": 1e11}, "fault_tolerant": False}
FULL = {"task": "training", "model": "llama-3.1-70b", "method": "full", "amount": {"tokens": 1e9}}


@pytest.mark.parametrize(
    ("code", "work", "limits", "to"),
    [
        ("interruptions", LONG, {"market": ["spot"], "max_nodes": 16}, {"workload.fault_tolerant": True}),
        ("interruptions", LONG, {"market": ["spot"], "max_usd_per_hour": 30}, {"workload.fault_tolerant": True}),
        ("market", LONG, {"market": ["spot"], "max_nodes": 16}, {"market": ["spot", "on_demand"]}),
        ("gpu_memory", FULL, {"provider": ["vast"], "max_nodes": 4}, {"allow_marketplace_clusters": True}),
        (
            "gpu_memory",
            FULL,
            {"provider": ["vast"], "max_nodes": 4, "deadline_hours": 100},
            {"allow_marketplace_clusters": True},
        ),
    ],
)
def test_what_would_admit_more_admits_as_many_as_it_says(
    code: str, work: dict[str, Any], limits: dict[str, Any], to: dict[str, Any], client: TestClient
) -> None:
    body = {"workload": work, "constraints": limits, "limit": 1}
    before = post_recommend(client, body)
    relax = codes(before["rejections"])[code]["relax"]
    assert relax["to"] == to
    after = post_recommend(client, relaxed(body, to))
    assert after["counts"]["admitted"] == before["counts"]["admitted"] + relax["admits"]


def test_a_rule_on_the_number_of_gpus_counts_those_of_all_nodes(client: TestClient) -> None:
    work = {"task": "training", "dataset": "ms_coco", "precision": ["fp16"]}
    limits = {"provider": ["autodl"], "gpu": ["RTX 3090"], "min_nodes": 2, "max_nodes": 2}
    limits["allow_marketplace_clusters"] = True
    answer = post_recommend(client, {"workload": work, "constraints": limits, "as_of": "2022-03-04"})
    assert answer["choices"][0]["gpu"]["per_node"] == 2
    assert [prior["verdict"] for prior in answer["priors"]] == ["followed"]


def test_a_rule_on_the_time_of_a_run_states_a_long_one_in_whole_hours(client: TestClient) -> None:
    work = {"task": "training", "model": "llama-3.1-8b", "method": "lora", "amount": {"tokens": 4e11}}
    answer = post_recommend(client, {"workload": work, "constraints": {"instance": ["aws/p4d.24xlarge"]}})
    (rule,) = answer["priors"]
    hours = answer["choices"][0]["estimate"]["hours"]["likely"]
    assert rule["text"].endswith(f" takes {hours:,.0f} hours.")


def test_a_deadline_of_one_hour_is_singular(client: TestClient) -> None:
    work = {"task": "training", "model": "resnet-50", "amount": {"samples": 1e5}}
    limits = {"instance": ["aws/p4d.24xlarge"], "deadline_hours": 1}
    reasons = codes(post_recommend(client, {"workload": work, "constraints": limits})["choices"][0]["reasons"])
    assert reasons["within_limits"]["text"].endswith(" of 1 hour.")
