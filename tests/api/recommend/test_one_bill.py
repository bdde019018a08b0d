"""Choices and estimates state the same dollars for the same run on the same offer.

Sixty questions by default. To ask more: `SELECTOR_TEST_QUESTIONS=10000 python3 dev.py test` with this path.
"""

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate, post_recommend
from tests.builders.random_questions import Questions, Vocabulary
from tests.builders.request_bodies import Body, changed, relaxed

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "60"))
SHARES = 4
IN_ONE_BATCH = 25
PLACE = ("market", "term", "region", "zone", "price")
"""Fields of a bill that identify its offer."""
MACHINE_PARTS = ["compute", "checkpoints", "interruption", "setup", "idle", "billing_rounding"]
BILLED = (
    "managed_service", "storage", "data_transfer_out_gb", "data_transfer_already_gb",
    "data_transfer_between_regions_gb", "data_transfer_between_zones_gb", "setup_minutes", "idle_fraction",
    "checkpoint", "commitments_held",
)  # fmt: skip
"""Fields of both requests that are about the bill."""
SHORT: Body = {
    "workload": {
        "task": "training",
        "model": "resnet-50",
        "global_batch_size": 64,
        "amount": {"samples": 600_000},
        "fault_tolerant": True,
    },
    "limit": 100,
}
"""A run of a few minutes, which the rounding of sellers changes most."""


CHARGES: dict[str, Body] = {
    "none": {},
    "set-up and idle time": {"setup_minutes": 20, "idle_fraction": 0.3},
    "transfer": {"data_transfer_out_gb": 3000},
    "storage": {"storage": [{"gib": 2000, "class": "pd-ssd", "hours": 300}, {"gib": 500, "class": "gp3"}]},
    "a managed service": {"managed_service": "sagemaker-training"},
}


@pytest.fixture(scope="module")
def vocabulary(client: TestClient) -> Vocabulary:
    return Vocabulary.of(client)


def batch(client: TestClient, path: str, items: list[Body]) -> list[Any]:
    answer = client.post(path, json={"items": items}) if items else None
    assert answer is None or answer.status_code == 200, answer.text
    return [] if answer is None else list(answer.json()["items"])


def random_question(questions: Questions) -> Body:
    """A job with an amount of work, sold in any market."""
    work = {**questions.workload(), **questions.model(), "task": questions.random.choice(("training", "inference"))}
    work["amount"] = questions.quantity(in_tokens="output_length" in work)
    constraints = questions.constraints(has_precision=False)
    if questions.maybe(0.5):
        constraints["market"] = ["on_demand", "spot", "reserved"]
    asked = {"workload": work, "constraints": constraints, "objective": questions.objective(), "limit": 4}
    asked |= {"per": "offer"} if questions.maybe() else {}
    return questions.billed(asked) if questions.maybe(0.5) else asked


def estimate_of(question: Body, choice: Any) -> Body:
    """The body of POST /estimate for the run of a choice, in its layout."""
    body = {
        "workload": question["workload"],
        "machine": f"{choice['provider']}/{choice['instance']}",
        "nodes": choice["nodes"],
        "instances": choice["instances"],
        "layout": choice["estimate"]["layout"],
        "market": choice["cost"]["term"] or choice["market"],
    }
    body |= {name: question[name] for name in BILLED if name in question}
    return body | {name: choice[name] for name in ("region", "zone") if choice[name]}


@pytest.mark.parametrize("share", range(SHARES))
def test_a_choice_has_the_bill_of_its_estimate(share: int, client: TestClient, vocabulary: Vocabulary) -> None:
    questions, compared = Questions(vocabulary, Random(share)), 0
    for start in range(0, ASKED // SHARES, IN_ONE_BATCH):
        items = [random_question(questions) for _ in range(min(IN_ONE_BATCH, ASKED // SHARES - start))]
        answers = batch(client, "/recommend/batch", items)
        pairs = list(modelled_choices(items, answers))
        estimates = batch(client, "/estimate/batch", [estimate_of(*pair) for pair in pairs])
        for (question, choice), estimate in zip(pairs, estimates, strict=True):
            assert "problem" not in estimate, f"{estimate}\n{json.dumps(estimate_of(question, choice))}"
            bill, machines = choice["cost"], choice["nodes"] * choice["instances"]
            assert choice["estimate"]["usd"] == bill["usd"]
            assert bill["usd"] is None or adds_up(bill, machines), f"{bill}"
            same = [entry for entry in estimate["cost"] if all(entry[name] == bill[name] for name in PLACE)]
            # An estimate shows the cheapest offer of a region, or that of a zone; `per: offer` has the others too.
            assert same or not bill["zone"]
            for entry in same:
                assert entry == bill, f"{json.dumps(estimate_of(question, choice))}"
                compared += 1
    assert compared > ASKED / SHARES / 4


def test_a_layout_of_many_small_steps_can_be_sent_back(client: TestClient) -> None:
    """A million tokens in a step are half a million short sequences, accumulated more than 100,000 times."""
    sizes = {"batch_size": 4, "global_batch_size": 2**19}
    work = {"task": "training", "model": "bert-base", "sequence_length": 2, "amount": {"steps": 1}, **sizes}
    asked = {"workload": work, "constraints": {"instance": ["azure/Standard_NC4as_T4_v3"]}}
    (choice,) = post_recommend(client, asked)["choices"]
    assert choice["estimate"]["layout"]["accumulation"] > 100_000
    (estimate,) = batch(client, "/estimate/batch", [estimate_of(asked, choice)])
    assert estimate["cost"][0] == choice["cost"]


def modelled_choices(questions: list[Body], answers: list[Any]) -> Iterator[tuple[Body, Any]]:
    for question, answer in zip(questions, answers, strict=True):
        for choice in answer.get("choices", ()):
            if choice["estimate"]["basis"] == "modelled":
                yield question, choice


def adds_up(bill: Any, machines: int) -> bool:
    """Whether the parts add up, and the machines cost hours x price x machines, at each end of both bands."""
    for case in ("low", "likely", "high"):
        micros = [round(1e6 * (part["usd"] or {case: 0})[case]) for part in bill["parts"]]
        price = bill["price"][f"usd_per_hour{'' if case == 'likely' else f'_{case}'}"]
        dollars = bill["billed_hours"][case] * price * machines
        # Hours and the ends of prices have six digits in the answer.
        of_machines = sum(micros[: len(MACHINE_PARTS)]) / 1e6
        if sum(micros) != round(1e6 * bill["usd"][case]) or of_machines != pytest.approx(dollars, 2e-5, 1e-5):
            return False
    return [part["name"] for part in bill["parts"][: len(MACHINE_PARTS)]] == MACHINE_PARTS


@pytest.mark.parametrize("market", [["on_demand"], ["spot"], ["on_demand", "spot", "reserved"]])
@pytest.mark.parametrize(("charges", "objective"), [("none", "best_value"), *((name, "cheapest") for name in CHARGES)])
def test_the_order_is_that_of_the_bills(charges: str, objective: str, market: list[str], client: TestClient) -> None:
    asked = {**changed(SHORT, constraints__market=market, objective=objective), **CHARGES[charges]}
    bills = [ranked_usd(choice) for choice in post_recommend(client, asked)["choices"]]
    assert len(bills) > 20
    # Parts are rounded to micro-dollars, and the factor of an old price multiplies that.
    assert all((unknown, usd) <= (later, more * (1 + 1e-6) + 1e-5) for (unknown, usd), (later, more) in pairwise(bills))


def ranked_usd(choice: Any) -> tuple[bool, float]:
    """Whether a charge is unknown, which ranks last, and dollars with old prices at their high end."""
    price = choice["price"]
    factor = price["usd_per_hour_high"] / price["usd_per_hour"] if price["old"] else 1.0
    parts = dict.fromkeys(("machines", "data"), 0.0)
    for part in choice["cost"]["parts"]:
        kind = "data" if part["name"] in ("storage", "transfer") else "machines"
        parts[kind] += 0 if part["usd"] is None else part["usd"]["likely"]
    unknown = "cost_incomplete" in {warning["code"] for warning in choice["warnings"]}
    return unknown, parts["machines"] * factor + parts["data"]


@pytest.mark.parametrize("instance", ["aws/p5.4xlarge", "aws/g6e.xlarge"])
def test_the_best_region_is_that_of_the_lowest_bill(instance: str, client: TestClient) -> None:
    """The prices of data are known in some regions alone, and not in the one with the cheapest hour."""
    asked = changed(SHORT, constraints__instance=[instance], constraints__market=["spot"], data_transfer_out_gb=3000)
    (best,) = post_recommend(client, asked)["choices"]
    offers = post_recommend(client, {**asked, "per": "offer"})["choices"]
    assert ranked_usd(best) == min(map(ranked_usd, offers))
    assert best["usd_per_hour"] > min(offer["usd_per_hour"] for offer in offers)


@pytest.mark.parametrize("charges", CHARGES)
def test_a_budget_of_the_bill_admits_its_choice_and_less_does_not(charges: str, client: TestClient) -> None:
    asked = {**changed(SHORT, constraints__provider=["aws"]), **CHARGES[charges]}
    if charges == "none":  # bare metal is billed by the hour there
        asked = changed(SHORT, constraints__provider=["oci"], constraints__bare_metal=True)
    if charges == "storage":  # a cost that is unknown in part keeps no budget, and AWS sells no pd-ssd
        asked |= {"storage": [{"gib": 2000, "class": "gp3", "hours": 300}, {"gib": 500, "class": "gp3"}]}
    (choice, *_) = post_recommend(client, {**asked, "limit": 1})["choices"]
    name, usd = choice["instance"], choice["cost"]["usd"]
    only = changed(
        asked, constraints__instance=[f"{choice['provider']}/{name}"], constraints__market=[choice["market"]]
    )
    only["constraints"] |= {"region": [choice["region"]]} if choice["region"] else {}
    for confidence, case in (("likely", "likely"), ("safe", "high")):
        for budget, admitted in ((usd[case] + 2e-6, 1), (usd[case] - 2e-6, 0)):
            limits = {"constraints__budget_usd": budget, "constraints__confidence": confidence}
            assert post_recommend(client, changed(only, **limits))["counts"]["admitted"] == admitted


def test_the_relaxation_of_a_budget_is_the_next_cent_above_the_bill(client: TestClient) -> None:
    asked = changed(SHORT, constraints__provider=["oci"], constraints__bare_metal=True, constraints__budget_usd=0.01)
    (rejection,) = [
        each for each in post_recommend(client, asked)["rejections"] if each["code"] == "budget_usd" and each["relax"]
    ]
    to = rejection["relax"]["to"]["budget_usd"]
    (choice, *_) = post_recommend(client, changed(asked, constraints__budget_usd=to))["choices"]
    assert 0 <= to - choice["cost"]["usd"]["likely"] < 0.01


def test_rounding_by_the_hour_decides_between_machines(client: TestClient) -> None:
    """The bare-metal shapes of a seller are paid for an hour at least, so a run of minutes costs an hour there."""
    choices = post_recommend(client, changed(SHORT, constraints__provider=["oci"]))["choices"]
    by_metal = {choice["specs"]["bare_metal"]: choice for choice in reversed(choices)}
    rounded = {part["name"]: part for part in by_metal[True]["cost"]["parts"]}["billing_rounding"]
    assert by_metal[True]["cost"]["billed_hours"]["likely"] == 1
    assert rounded["usd"]["likely"] > 0
    assert by_metal[False]["rank"] < by_metal[True]["rank"]


def hours_of(term: str) -> int:
    """Hours of one term."""
    return 24 if term in ("capacity_block", "dws_calendar") else 8760 * int(term[0])


RESERVED = changed(SHORT, constraints__market=["reserved"])


def test_a_short_run_pays_a_whole_term_unless_the_caller_holds_it(client: TestClient) -> None:
    """A budget and its relaxation count the same dollars as the bill."""
    for choice in (choices := post_recommend(client, RESERVED)["choices"]):
        cost, term = choice["cost"], choice["price"]["term"]
        assert cost["billed_hours"]["likely"] == hours_of(term)
        assert cost["usd"] == cost["commitment"]["usd_committed"]
        (warning,) = [each["text"] for each in choice["warnings"] if each["code"] == "commits"]
        assert f"{hours_of(term):,} hours" in warning
    held = post_recommend(client, {**RESERVED, "commitments_held": "reserved"})["choices"]
    assert len(held) == len(choices) > 20
    for choice in held:
        assert choice["cost"]["usd"]["likely"] < choice["cost"]["commitment"]["usd_committed"]["likely"] / 20
        assert "commits" not in {each["code"] for each in choice["warnings"]}
    cheapest = min(choice["cost"]["usd"]["likely"] for choice in choices)
    for budget, admits in ((cheapest * 1.001, True), (cheapest * 0.999, False)):
        answer = post_recommend(client, changed(RESERVED, constraints__budget_usd=budget))
        assert bool(answer["choices"]) is admits
    to = next(each["relax"]["to"]["budget_usd"] for each in answer["rejections"] if each["code"] == "budget_usd")
    assert 0 <= to - cheapest < 0.01


def test_terms_of_a_type_compete_by_the_length_of_the_job(client: TestClient) -> None:
    """A year is paid in full by a job of minutes, and by one of two years three years cost less than two."""
    only = changed(RESERVED, constraints__instance=["gcp/a2-highgpu-1g"])
    terms = {}
    for samples in (20_000, 2e11):
        asked = changed(only, workload__amount={"samples": samples})
        (best,) = post_recommend(client, asked)["choices"]
        bills = {each["price"]["term"]: each for each in post_recommend(client, {**asked, "per": "offer"})["choices"]}
        assert len(bills) > 1
        assert best["cost"] == min(bills.values(), key=ranked_usd)["cost"]
        terms[samples] = best["price"]["term"]
    assert list(terms.values()) == ["1y_committed_use", "3y_committed_use"]


def test_a_block_of_more_than_two_weeks_is_paid_by_the_week(client: TestClient) -> None:
    """The ranking, whose figures a budget limits, counts the same weeks as the bill."""
    only = changed(SHORT, constraints__market=["capacity_block"], constraints__instance=["aws/p4d.24xlarge"])
    asked = changed(only, workload__amount={"samples": 2.5e10})
    (choice,) = post_recommend(client, asked)["choices"]
    days = choice["cost"]["billed_hours"]["likely"] / 24
    assert days > choice["estimate"]["hours"]["likely"] / 24 > 14
    assert days % 7 == 0
    (warning,) = [each["text"] for each in choice["warnings"] if each["code"] == "commits"]
    assert f"{24 * days:,.0f} hours of the machine are paid for" in warning
    assert warning.endswith(f"${choice['cost']['usd']['likely']:,.0f}.")
    usd = choice["cost"]["usd"]["likely"]
    for budget, admitted in ((usd + 1, 1), (usd - 1, 0)):
        answer = post_recommend(client, changed(asked, constraints__budget_usd=budget))
        assert answer["counts"]["admitted"] == admitted


@pytest.mark.parametrize(("hours", "warned"), [(4300, False), (4800, True)])
def test_a_block_longer_than_the_seller_offers_has_a_warning(hours: int, warned: bool, client: TestClient) -> None:
    """AWS sells Capacity Blocks of up to 182 days."""
    answer = post_estimate(client, {"hours": hours, "machine": "aws/p5.48xlarge", "market": ["capacity_block"]})
    texts = [each["text"] for each in answer["warnings"] if each["code"] == "term_too_long"]
    assert bool(texts) is warned
    assert all("203 days, and the seller offers at most 182" in text for text in texts)


def test_a_term_is_a_market(client: TestClient) -> None:
    """Naming a term admits it alone, and holding one admits it together with the markets of single hours."""
    named = post_recommend(client, changed(SHORT, constraints__market=["3y_committed_use"]))["choices"]
    assert {choice["price"]["term"] for choice in named} == {"3y_committed_use"}
    of_gcp = changed(SHORT, constraints__provider=["gcp"], per="offer")
    answer = post_recommend(client, {**of_gcp, "commitments_held": ["1y_committed_use"]})
    assert {choice["price"]["term"] for choice in answer["choices"]} == {None, "1y_committed_use"}
    assert answer["question"]["constraints"]["market"] == ["on_demand", "spot", "1y_committed_use"]


@pytest.mark.parametrize("model", [None, "llama-3.1-8b"])
def test_the_premium_of_a_managed_service_is_part_of_every_hourly_price(model: str | None, client: TestClient) -> None:
    """Limit, relaxation, cost and choice are in the same dollars."""
    amount = {} if model is None else {"model": model, "method": "lora", "amount": {"tokens": 1e8}}
    body = {
        "workload": {"task": "training", **amount}, "managed_service": "sagemaker-training", "objective": "cheapest",
        "constraints": {"max_usd_per_hour": 0.7, "provider": ["aws"], "gpu_kind": ["gpu", "npu"]},
    }  # fmt: skip
    answer = post_recommend(client, body)
    (relax,) = [each["relax"] for each in answer["rejections"] if each["code"] == "max_usd_per_hour"]
    after = post_recommend(client, relaxed(body, relax["to"]))
    known = [each for each in after["choices"] if each["usd_per_hour"] is not None]
    new = [each for each in known if each["usd_per_hour"] > 0.7]
    assert relax["to"]["max_usd_per_hour"] == relax["best"]["usd_per_hour"] == new[0]["usd_per_hour"]
    assert after["counts"]["admitted"] - answer["counts"]["admitted"] == relax["admits"] > 0
    assert all(each["usd_per_hour"] <= relax["to"]["max_usd_per_hour"] for each in known)
    if model is not None:
        costs = [each["cost"]["usd_per_hour"] for each in known]
        assert costs == pytest.approx([each["usd_per_hour"] for each in known], rel=1e-5)


def test_a_managed_service_has_only_the_machines_that_it_supports(client: TestClient) -> None:
    service = {"managed_service": "sagemaker-training"}
    body = {"workload": {"task": "training"}, "constraints": {"instance": ["aws/g5g.xlarge", "aws/g5.xlarge"]}}
    answer = post_recommend(client, body | service)
    assert [choice["instance"] for choice in answer["choices"]] == ["g5.xlarge"]
    plain = post_recommend(client, body | {"constraints": {"instance": ["aws/g5g.xlarge"]}})
    assert "managed_training" not in {each["code"] for each in plain["advice"]}
    refused = client.post("/estimate", json={"hours": 1, "machine": "aws/g5g.xlarge", **service})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "managed_service")
    assert refused.json()["errors"][0]["message"] == "sagemaker-training does not rent out aws/g5g.xlarge."
    own = post_recommend(client, body | service | {"constraints": {"instance": ["aws/ml.g5.xlarge"]}})
    assert own["counts"]["admitted"] == 1


@pytest.mark.parametrize("service", ["sagemaker-training", "sagemaker-managed-spot-training", "vertex-ai-training"])
def test_a_managed_training_service_runs_no_inference(service: str, client: TestClient) -> None:
    work = {
        "task": "inference",
        "model": "llama-3.1-8b",
        "serving": {"requests_per_second": 1, "input_length": 100, "output_length": 10},
    }
    for path, machine in (("/recommend", {}), ("/estimate", {"machine": "aws/g5.xlarge"})):
        refused = client.post(path, json={"workload": work, "managed_service": service, **machine})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "managed_service")
        assert "runs training jobs, and no inference" in refused.text


def test_a_managed_service_runs_on_machines_of_its_provider(client: TestClient) -> None:
    answer = post_recommend(client, {**SHORT, "managed_service": "sagemaker-training"})
    assert {choice["provider"] for choice in answer["choices"]} == {"aws"}
    assert {choice["cost"]["managed_service"] for choice in answer["choices"]} == {"sagemaker-training"}
    assert "managed_service" in {rejection["code"] for rejection in answer["rejections"]}
    spot = post_recommend(client, {**SHORT, "managed_service": "sagemaker-managed-spot-training"})
    assert {choice["market"] for choice in spot["choices"]} == {"spot"}


@pytest.mark.parametrize("model", [None, "resnet-50"], ids=["by peaks", "by rates"])
def test_an_hour_through_a_managed_service_ranks_with_its_premium(model: str | None, client: TestClient) -> None:
    """The premium is 40 % on the smallest machine of G4dn and 15 % on P4d, which then has more peak for a dollar."""
    work = {"task": "training", "precision": ["fp16"]} | ({} if model is None else {"model": model})
    families = {"provider": ["aws"], "region": ["us-east-1"], "family": ["g4dn", "g5", "p4d"]}
    asked = {"workload": work, "constraints": families, "objective": "cheapest", "limit": 50}
    plain, managed = (
        {choice["instance"]: choice for choice in post_recommend(client, {**asked, **service})["choices"]}
        for service in ({}, {"managed_service": "sagemaker-training"})
    )
    premiums = {"g4dn.xlarge": 1.4, "g5.xlarge": 1.4, "p4d.24xlarge": 1.15}
    for name, choice in managed.items():
        of_machine = choice["price"]["usd_per_hour"]
        assert of_machine == plain[name]["price"]["usd_per_hour"]
        assert choice["usd_per_hour"] == pytest.approx(of_machine * premiums.get(name, 1.25), abs=1e-6)
        assert f"${choice['usd_per_hour']:.6g} an hour" in choice["reasons"][0]["text"]
        if model is None:
            per_usd = choice["estimate"]["peak_tflops"] / choice["usd_per_hour"]
            assert choice["estimate"]["peak_tflops_per_usd_hour"] == pytest.approx(per_usd, rel=1e-3)
    value = {**asked, "objective": "best_value", "managed_service": "sagemaker-training"}
    bests = [post_recommend(client, each)["choices"][0] for each in ({**value, "managed_service": None}, value)]
    if model is None:
        assert [best["instance"] for best in bests] == ["g4dn.xlarge", "p4d.24xlarge"]
    advised = {each["code"] for each in post_recommend(client, value)["advice"]}
    assert "managed_training" not in advised


def test_an_hour_with_an_unknown_premium_is_unknown_and_comes_last(client: TestClient) -> None:
    """The premium of SageMaker training is known for the ml.* machines, whose price has it, and for few others."""
    work = {"task": "training", "precision": ["bf16"]}
    families = {"provider": ["aws"], "family": ["g5", "trn1", "trn1n", "ml.p5"]}
    asked = {"workload": work, "constraints": families, "managed_service": "sagemaker-training", "limit": 50}
    choices = post_recommend(client, asked)["choices"]
    known = [choice["usd_per_hour"] is not None for choice in choices]
    assert known == sorted(known, reverse=True)
    assert set(known) == {True, False}
    for choice in choices:
        texts = [each["text"] for each in choice["warnings"] if each["code"] == "cost_incomplete"]
        assert bool(texts) is (choice["usd_per_hour"] is None)
        assert all("The premium of sagemaker-training on" in text for text in texts)


def test_an_unknown_charge_is_a_warning_and_not_nothing(client: TestClient) -> None:
    stored = {"gib": 1e4, "class": "gp3", "hours": 700}
    asked = changed(SHORT, constraints__provider=["lambda", "aws"], storage=stored)
    providers = [choice["provider"] for choice in post_recommend(client, asked)["choices"]]
    # The bills of aws in some regions are known and high, those of lambda are lower bounds.
    assert providers[0] == "aws"
    assert providers[-1] == "lambda"
    answer = post_recommend(client, changed(asked, constraints__provider=["lambda"]))
    for choice in answer["choices"]:
        (warning,) = [each for each in choice["warnings"] if each["code"] == "cost_incomplete"]
        assert "gp3" in warning["text"]
        assert choice["cost"]["usd_complete"] is False


def test_a_cost_that_is_unknown_in_part_keeps_no_budget(client: TestClient) -> None:
    """Its known part alone is far below the budget."""
    limits = {"constraints__budget_usd": 1e6, "constraints__deadline_hours": 1000}
    asked = changed(SHORT, constraints__provider=["aws"], data_transfer_out_gb=20000, **limits)
    asked = changed(asked, constraints__region=["ap-south-1", "us-east-1"])
    answer = post_recommend(client, asked)
    assert {choice["region"] for choice in answer["choices"]} == {"us-east-1"}
    alone = changed(asked, constraints__region=["ap-south-1"])
    answer = post_recommend(client, alone)
    assert not answer["choices"]
    (rejection,) = [each for each in answer["rejections"] if each["code"] == "cost_unknown"]
    assert rejection["relax"]["to"] == {"budget_usd": None}
    relaxed = post_recommend(client, changed(alone, constraints__budget_usd=None))
    assert relaxed["counts"]["admitted"] == rejection["relax"]["admits"] > 0


def test_charges_without_an_amount_of_work_are_named_as_not_weighed(client: TestClient) -> None:
    asked = changed(SHORT, workload__amount=None, setup_minutes=5, limit=1)
    notes = {note["code"]: note["fields"] for note in post_recommend(client, asked)["notes"]}
    assert "setup_minutes" in notes["not_weighed"]
    for sent in ({}, {"data_transfer_out_gb": 10}):
        answer = post_recommend(client, {**SHORT, "limit": 1, "data_transfer_already_gb": 10, **sent})
        notes = {note["code"]: note["fields"] for note in answer["notes"]}
        assert ("data_transfer_already_gb" in notes.get("not_weighed", [])) is not bool(sent)


def test_saving_at_a_stated_interval_is_in_the_hours_that_rank(client: TestClient) -> None:
    """Ten minutes of every twenty."""
    asked = changed(SHORT, constraints__provider=["aws"], constraints__market=["on_demand"], limit=1)
    plain, slow = (
        post_recommend(client, {**asked, **more})["choices"][0]
        for more in ({}, {"checkpoint": {"interval_minutes": 0.1, "save_seconds": 6}})
    )
    assert slow["instance"] == plain["instance"]
    assert slow["estimate"]["hours"]["likely"] == pytest.approx(2 * plain["estimate"]["hours"]["likely"], rel=1e-5)
    assert slow["cost"]["hours"] == slow["estimate"]["hours"]


def test_fields_of_checkpoints_that_only_spot_takes_are_named_as_not_weighed(client: TestClient) -> None:
    def unused(market: list[str], **sent: Any) -> set[str]:
        answer = post_recommend(client, changed(SHORT, constraints__market=market, limit=1, **sent))
        notes = {note["code"]: note["fields"] for note in answer["notes"]}
        return set(notes.get("not_weighed", ()))

    both = {"save_seconds": 60, "restart_seconds": 60}
    assert unused(["on_demand"], workload__checkpoint=both) == {
        "workload.checkpoint.restart_seconds", "workload.checkpoint.save_seconds",
    }  # fmt: skip
    assert unused(["on_demand"], checkpoint={**both, "interval_minutes": 60}) == {"checkpoint.restart_seconds"}
    assert unused(["on_demand", "spot"], workload__checkpoint=both) == set()


def test_a_deadline_counts_the_set_up(client: TestClient) -> None:
    only = changed(SHORT, constraints__provider=["gcp"], constraints__deadline_hours=1)
    for minutes, admitted in ((0, True), (61, False)):
        counts = post_recommend(client, {**only, "setup_minutes": minutes})["counts"]
        assert bool(counts["admitted"]) is admitted


def test_the_reason_of_a_choice_at_spot_compares_it_as_its_bill_does(client: TestClient) -> None:
    choices = post_recommend(client, {**SHORT, "constraints": {"market": ["spot"]}})["choices"]
    found = set()
    for choice in choices:
        (text,) = [reason["text"] for reason in choice["reasons"] if reason["code"] == "spot_in_expectation"]
        even, rate = choice["cost"]["break_even"], choice["spot"]["break_even_interruptions_per_hour"]
        assert rate == (even and even["interruptions_per_hour"])
        compared = f"up to {rate:.3g} interruptions an hour" if rate else "it is no cheaper than on demand"
        assert ("no price on demand is known there" if even is None else compared) in text
        found.add((even is None, rate is None))
    assert {(True, True), (False, False)} <= found


def test_a_service_of_spot_is_refused_where_spot_is_left_out(client: TestClient) -> None:
    work = {**SHORT["workload"], "fault_tolerant": False}
    limits = {"market": ["on_demand", "spot"]}
    body = {**SHORT, "workload": work, "constraints": limits, "managed_service": "sagemaker-managed-spot-training"}
    problem = client.post("/recommend", json=body)
    assert problem.status_code == 422
    assert problem.json()["errors"][0]["field"] == "constraints.market"


def test_a_managed_service_has_no_idle_time_on_any_machine(client: TestClient) -> None:
    """A machine whose price contains the premium is stopped like a plain one; it paid for its idle time."""
    body = {**SHORT, "constraints": {"gpu": ["a100-sxm4-40gb"]}, "managed_service": "sagemaker-training"}
    busy, idle = post_recommend(client, body), post_recommend(client, {**body, "idle_fraction": 0.5})
    assert {choice["instance"] for choice in busy["choices"]} == {"p4d.24xlarge", "ml.p4d.24xlarge"}
    assert [each["cost"]["usd"] for each in idle["choices"]] == [each["cost"]["usd"] for each in busy["choices"]]
    assert "idle_fraction" in {field for note in idle["notes"] for field in note["fields"]}
    for machine in ("aws/p4d.24xlarge", "aws/ml.p4d.24xlarge"):
        asked = {"hours": 10, "machine": machine, "managed_service": "sagemaker-training", "idle_fraction": 0.5}
        answer = post_estimate(client, asked)
        parts = [part for each in answer["cost"] for part in each["parts"]]
        assert {part["basis"] for part in parts if part["name"] == "idle"} == {"none"}
        reason = "`idle_fraction` has no effect here, because a managed service stops its machines when they are idle."
        assert reason in answer["notes"]
