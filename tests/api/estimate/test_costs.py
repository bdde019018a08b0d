"""The bill of POST /estimate: every market side by side, in parts that add up, with sentences for what is not known."""

import re
from decimal import Decimal
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st

from service.ci.report import exit_code
from tests.api.answers import get_json, offers_of, post_estimate
from tests.builders.request_bodies import NETWORK, SERVING, TRAINING, Body, changed

HOURS: Body = {"hours": 10, "machine": "aws/p4d.24xlarge", "region": "us-east-1"}
CASES = ("low", "likely", "high")
NAMES = [
    "compute", "checkpoints", "interruption", "setup", "idle", "billing_rounding", "management_fee", "storage",
    "transfer", "rounding",
]  # fmt: skip


def entry(answer: Any, market: str = "on_demand", **more: Any) -> Any:
    """The entry of a market; without a managed service unless one is named."""
    wanted = {"market": market, "managed_service": None, **more}
    return next(each for each in answer["cost"] if all(each[name] == value for name, value in wanted.items()))


def part(cost: Any, name: str) -> Any:
    return next(each for each in cost["parts"] if each["name"] == name)


def refused(client: TestClient, body: Body) -> Any:
    answer = client.post("/estimate", json=body)
    assert answer.status_code == 422, answer.text
    return answer.json()


# The parts


@pytest.mark.parametrize(
    "body",
    [
        changed(TRAINING, storage={"gib": 333.3, "class": "gp3"}, data_transfer_out_gb=777.7, setup_minutes=7.7,
                idle_fraction=0.123, nodes=3, instances=2),
        changed(HOURS, hours=1 / 3),
        {"hours": 1 / 7, "machine": "aws/g3.16xlarge", "region": "cn-north-1", "setup_minutes": 1 / 3},
        changed(SERVING, workload__amount={"samples": 1e5}, idle_fraction=0.5),
    ],
    ids=["everything", "a third", "yuan", "described"],
)  # fmt: skip
def test_parts_add_up_to_the_last_millionth_in_every_currency(client: TestClient, body: Body) -> None:
    answer = client.post("/estimate", json=body)
    for cost in answer.json()["cost"]:
        assert {each["name"] for each in cost["parts"]} == set(NAMES)
        for currency in ("usd", "native"):
            for case in CASES:
                amounts = [each[currency][case] for each in cost["parts"] if each[currency] is not None]
                assert sum(Decimal(str(amount)) for amount in amounts) == Decimal(str(cost[currency][case]))


def test_no_amount_has_the_artefacts_of_floats(client: TestClient) -> None:
    answer = post_estimate(
        client, changed(TRAINING, nodes=3, storage={"gib": 333.3, "class": "gp3"}, setup_minutes=1 / 3)
    )

    def amounts(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            for key, held in value.items():
                yield from amounts(held, key if key not in CASES else name)
        elif isinstance(value, list):
            for held in value:
                yield from amounts(held, name)
        elif isinstance(value, float) and ("usd" in name or name in ("native", "per_hour")):
            yield value

    found = list(amounts(answer["cost"]))
    assert len(found) > 100
    assert all(-Decimal(str(each)).as_tuple().exponent <= 6 for each in found)  # type: ignore[operator]


def test_storage_transfer_setup_and_idle_time_by_hand(client: TestClient) -> None:
    storage = [{"gib": 500, "class": "gp3"}, {"gib": 100, "class": "s3-standard", "hours": 730}]
    extras = {"data_transfer_out_gb": 1000, "setup_minutes": 30, "idle_fraction": 0.5}
    body = changed(HOURS, nodes=2, storage=storage, **extras)
    cost = entry(post_estimate(client, body))
    hour = cost["usd_per_hour"]
    assert cost["price"]["usd_per_hour"] * 2 == hour
    assert part(cost, "compute")["usd"]["likely"] == pytest.approx(10 * hour)
    assert part(cost, "setup")["usd"]["likely"] == pytest.approx(0.5 * hour)
    assert part(cost, "idle")["usd"]["likely"] == pytest.approx(10.5 * hour)
    assert cost["hours"]["likely"] == 21
    volumes, objects = (each for each in cost["parts"] if each["name"] == "storage")
    assert volumes["usd"]["likely"] == pytest.approx(2 * 500 * 0.08 / 730 * 21, abs=1e-6)
    assert objects["usd"]["likely"] == pytest.approx(100 * 0.023, abs=1e-6)
    assert part(cost, "transfer")["usd"]["likely"] == pytest.approx(900 * 0.09)
    assert cost["usd_complete"] is True


def test_a_second_is_paid_as_a_minute_and_before_2017_as_an_hour(client: TestClient) -> None:
    for day, hours, increment in (("2017-09-30", 1.0, 3600), ("2018-06-01", 1 / 60, 1)):
        cost = entry(
            post_estimate(client, {"hours": 1 / 3600, "machine": "aws/p2.xlarge", "as_of": day, "region": "us-east-1"})
        )
        assert cost["usd"]["likely"] == pytest.approx(0.9 * hours, abs=1e-6)
        assert cost["billing"]["increment_seconds"] == increment
        assert part(cost, "billing_rounding")["usd"]["likely"] > 0


def test_a_managed_service_takes_its_premium_of_every_price_of_a_unit(client: TestClient) -> None:
    """Also of a rate, where nothing has an end, so that no bill has the premium as a part."""
    machine = {"machine": "aws/g5.xlarge", "region": "us-east-1", "market": "on_demand"}
    body = {"workload": {"task": "training", "model": "resnet-50", "precision": ["fp16"]}, **machine}
    (plain,), (managed,) = (
        post_estimate(client, changed(body, managed_service=service))["cost"]
        for service in (None, "sagemaker-training")
    )
    assert (plain["usd_per_hour"], managed["usd_per_hour"]) == (1.006, 1.4084)
    assert managed["price"]["usd_per_hour"] == plain["price"]["usd_per_hour"]
    units = [name for name, price in plain["per_unit"].items() if price is not None]
    assert units
    for name in units:
        more = plain["per_unit"][name]["likely"] / managed["per_unit"][name]["likely"]
        assert more == pytest.approx(1.4 if name == "samples_per_usd" else 1 / 1.4, rel=1e-4), name


def test_a_bill_without_an_amount_of_work_says_that_its_hours_are_unknown(client: TestClient) -> None:
    """It said that the hours are priced, and had no hours and no price of them."""
    workload = {"task": "training", "model": "resnet-50", "precision": ["fp16"]}
    cost = entry(post_estimate(client, {"workload": workload, "machine": "aws/g5.xlarge", "region": "us-east-1"}))
    assert (cost["hours"], cost["usd"]) == (None, None)
    assert cost["text"].endswith("No amount of work is given, so the hours of the run are unknown.")


def test_an_unknown_premium_leaves_prices_of_a_unit_unknown(client: TestClient) -> None:
    service = {"managed_service": "sagemaker-managed-spot-training", "market": "spot"}
    rated = {"task": "training", "model": "resnet-50", "precision": ["fp16"]}
    body = {"workload": rated, "machine": "aws/g5.xlarge", "region": "us-east-1", **service}
    (cost,) = post_estimate(client, body)["cost"]
    assert set(cost["per_unit"].values()) == {None}
    assert "The premium of sagemaker-managed-spot-training on g5 machines is not known." in cost["missing"]


def test_a_managed_service_takes_its_premium(client: TestClient) -> None:
    plain = entry(post_estimate(client, HOURS))
    answer = post_estimate(client, changed(HOURS, managed_service="sagemaker-training", market="on_demand"))
    (managed,) = answer["cost"]
    assert part(managed, "management_fee")["usd"]["likely"] == pytest.approx(0.15 * plain["usd"]["likely"], abs=1e-6)
    beside = entry(post_estimate(client, HOURS), managed_service="sagemaker-training")
    assert beside["usd"] == managed["usd"]


def test_azure_machine_learning_adds_nothing_to_the_price_of_a_machine(client: TestClient) -> None:
    body = {"hours": 10, "machine": "azure/Standard_NC24ads_A100_v4", "region": "eastus", "market": "on_demand"}
    (managed,) = post_estimate(client, {**body, "managed_service": "azure-machine-learning"})["cost"]
    assert (part(managed, "management_fee")["usd"]["likely"], managed["missing"]) == (0, [])
    assert managed["usd"] == entry(post_estimate(client, body))["usd"]


def test_yuan_are_shown_with_their_dated_rate(client: TestClient) -> None:
    cost = entry(post_estimate(client, {"hours": 100, "machine": "aws/g3.16xlarge", "region": "cn-north-1"}))
    assert cost["currency"] == "CNY"
    rate = cost["exchange_rate"]
    assert rate["on"] <= "2026-11-01"
    assert cost["usd"]["likely"] == pytest.approx(cost["native"]["likely"] * rate["usd_per_unit"], abs=1e-6)


# Markets and regions


def test_every_market_stands_side_by_side(client: TestClient) -> None:
    answer = post_estimate(client, changed(HOURS, region=None))
    ways = [(each["market"], each["term"], each["managed_service"]) for each in answer["cost"]]
    assert ways == [
        ("on_demand", None, None),
        ("spot", None, None),
        ("reserved", "1y_reserved_all_upfront", None),
        ("reserved", "3y_reserved", None),
        ("reserved", "capacity_block", None),
        ("on_demand", None, "sagemaker-training"),
    ]


def test_a_zone_has_its_own_prices_and_those_of_its_region(client: TestClient) -> None:
    """Spot has a price in each zone, and for the whole region, which holds only in zones without one of their own."""
    spot = {
        item["zone"]: item["usd_per_hour"]
        for item in offers_of(client, HOURS["machine"], "spot")
        if item["region"] == "us-east-1"
    }
    assert {None, "use1-az1", "use1-az2"} <= spot.keys()
    assert "use1-az5" not in spot
    for zone, priced in (("use1-az2", "use1-az2"), ("use1-az5", None), ("USE1-AZ1", "use1-az1")):
        answer = post_estimate(client, changed(HOURS, region=None, zone=zone))
        at_spot = entry(answer, "spot")
        assert (at_spot["zone"], at_spot["usd_per_hour"]) == (priced, spot[priced])
        assert {each["region"] for each in answer["cost"]} == {"us-east-1"}
        assert {each["zone"] for each in answer["cost"]} == {None, priced}
        assert {each["market"] for each in answer["cost"]} == {"on_demand", "spot", "reserved"}
    both = post_estimate(client, changed(HOURS, region="United States", zone="use1-az2", market="spot"))
    assert [each["zone"] for each in both["cost"]] == ["use1-az2"]


def test_zones_are_compared_in_a_batch(client: TestClient) -> None:
    zones = ["use1-az1", "use1-az2"]
    body = {"base": changed(HOURS, region=None, market="spot"), "over": {"zone": zones}}
    items = client.post("/estimate/batch", json=body).json()["items"]
    assert sorted(item["over"]["zone"] for item in items) == zones
    assert all(item["answer"]["cost"][0]["zone"] == item["over"]["zone"] for item in items)


def test_every_region_asked_has_its_own_prices(client: TestClient) -> None:
    answer = post_estimate(client, changed(HOURS, region=["us-east-1", "eu-central-1"], market="on_demand"))
    assert [each["region"] for each in answer["cost"]] == ["us-east-1", "eu-central-1"]
    assert answer["cost"][0]["usd"]["likely"] < answer["cost"][1]["usd"]["likely"]
    joined = post_estimate(client, changed(HOURS, region="us-east-1,eu-central-1", market=["on_demand"]))
    assert joined["cost"] == answer["cost"]


def test_set_up_that_is_cheaper_at_spot_lets_spot_be_interrupted_more_often(client: TestClient) -> None:
    short, long = (
        post_estimate(client, changed(HOURS, market="spot", setup_minutes=minutes))["cost"][0]["break_even"]
        for minutes in (0, 600)
    )
    assert long["interruptions_per_hour"] > 1.1 * short["interruptions_per_hour"]


def test_spot_is_priced_in_expectation_by_its_checkpoints(client: TestClient) -> None:
    often = changed(HOURS, market="spot", checkpoint={"save_seconds": 5, "restart_seconds": 60})
    seldom = changed(
        HOURS, market="spot", checkpoint={"save_seconds": 5, "restart_seconds": 60, "interval_minutes": 240}
    )
    one, other = (post_estimate(client, body)["cost"][0] for body in (often, seldom))
    assert part(one, "interruption")["basis"] == "prior"
    assert 0 < part(one, "interruption")["usd"]["likely"] < part(other, "interruption")["usd"]["likely"]
    assert one["usd"]["low"] < one["usd"]["likely"] < one["usd"]["high"]
    assert one["elapsed_hours"]["likely"] > one["hours"]["likely"] > 10
    assert one["break_even"]["interruptions_per_hour"] > other["break_even"]["interruptions_per_hour"]
    assert post_estimate(client, often)["notes"] == []
    assert "assumed" in post_estimate(client, changed(HOURS, market="spot"))["notes"][0]


def test_saving_at_a_stated_interval_takes_its_share_of_the_time_in_every_market(client: TestClient) -> None:
    """Ten minutes of every twenty."""
    saves = {"interval_minutes": 10, "save_seconds": 600}
    plain, slow = (post_estimate(client, changed(HOURS, checkpoint=each)) for each in (None, saves))
    for before, after in zip(plain["cost"], slow["cost"], strict=True):
        assert part(before, "checkpoints")["usd"]["likely"] == 0
        assert part(after, "checkpoints")["usd"] == part(after, "compute")["usd"]
        if before["market"] != "spot":
            assert after["hours"]["likely"] == 20
    assert entry(slow)["usd"]["likely"] == pytest.approx(2 * entry(plain)["usd"]["likely"])
    at_spot = entry(slow, "spot")
    assert 0 < part(at_spot, "interruption")["usd"]["likely"] < part(at_spot, "compute")["usd"]["likely"]
    hours = {name: cost["hours"]["likely"] for name, cost in (("spot", at_spot), ("on_demand", entry(slow)))}
    assert at_spot["break_even"]["interruptions_per_hour"] > 0 < hours["spot"] - hours["on_demand"]
    endless = post_estimate(client, changed(HOURS, checkpoint={"interval_minutes": 1, "save_seconds": 1e12}))
    assert "century" in entry(endless)["missing"][0]


def test_fields_of_checkpoints_without_an_effect_are_named(client: TestClient) -> None:
    def notes(market: str, **sent: float) -> str:
        return " ".join(post_estimate(client, changed(HOURS, market=market, checkpoint=sent))["notes"])

    both = {"save_seconds": 60, "restart_seconds": 60}
    assert "`checkpoint.restart_seconds` and `checkpoint.save_seconds` change no bill" in notes("on_demand", **both)
    assert "`checkpoint.restart_seconds` changes no bill" in notes("on_demand", **both, interval_minutes=60)
    assert notes("on_demand", save_seconds=60, interval_minutes=60) == notes("spot", **both) == ""


def test_at_spot_work_that_is_not_fault_tolerant_hardly_ends(client: TestClient) -> None:
    answer = post_estimate(
        client, changed(TRAINING, workload__fault_tolerant=False, workload__amount={"tokens": 2e10}, market="spot")
    )
    (cost,) = answer["cost"]
    assert cost["usd_complete"] is False
    assert "hardly ever finish" in cost["text"]
    assert "at least" in cost["text"]
    assert "loses all progress" in answer["notes"][0]


@pytest.mark.parametrize(
    ("held", "paid"),
    [
        ([], "usd_committed"),
        (["3y_committed_use"], "usd_committed"),
        (["1y_reserved_all_upfront"], "usd_used"),
        ("reserved", "usd_used"),
    ],
)
def test_a_run_pays_the_whole_term_unless_the_caller_holds_it(held: Any, paid: str, client: TestClient) -> None:
    machine = {"machine": "aws/p3.2xlarge", "as_of": "2025-06-01", "region": "us-east-1"}
    answer = post_estimate(client, {"hours": 100, **machine, "commitments_held": held})
    cost = entry(answer, "reserved")
    commitment = cost["commitment"]
    assert cost["usd"] == commitment[paid]
    assert commitment["held"] is (paid == "usd_used")
    assert commitment["usd_used"]["likely"] == pytest.approx(1.949201 * 100)
    assert commitment["usd_committed"]["likely"] == pytest.approx(1.949201 * 8760)
    assert commitment["break_even_utilisation"] == pytest.approx(1.949201 / 3.06, rel=1e-5)
    assert commitment["used_share"] == pytest.approx(100 / 8760, rel=1e-5)
    hours = 100 if commitment["held"] else 8760
    assert cost["break_even"]["saves_percent"] == pytest.approx(100 - 1.949201 * hours / 306 * 100, abs=0.01)


def test_an_unknown_commitment_cannot_be_held(client: TestClient) -> None:
    answer = client.post("/estimate", json={**HOURS, "commitments_held": ["1y_reserved_all_upfrond"]})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["near"][0]) == ("commitments_held", "1y_reserved_all_upfront")


def test_a_price_of_a_term_follows_a_cut_of_the_list_price(client: TestClient) -> None:
    """AWS cut p4d by a third in June 2025, days after the price of a year was captured."""
    body = {"hours": 100, "machine": "aws/p4d.24xlarge", "region": "us-east-1", "market": "1y_reserved_all_upfront"}
    (before,), (after,) = (post_estimate(client, {**body, **day})["cost"] for day in ({"as_of": "2025-06-01"}, {}))
    assert before["price"]["usd_per_hour"] == before["price"]["usd_per_hour_high"] == 18.830479
    assert after["price"]["usd_per_hour"] == pytest.approx(18.830479 * 21.957642 / 32.7726, rel=1e-4)
    assert after["price"]["usd_per_hour_high"] >= after["price"]["listed_usd_per_hour"] == 18.830479
    assert after["price"]["usd_per_hour_high"] < 21


def test_a_block_is_paid_by_the_day(client: TestClient) -> None:
    (cost,) = post_estimate(client, changed(HOURS, hours=25, market="capacity_block", region=None))["cost"]
    assert cost["commitment"]["committed_hours"]["likely"] == 48
    assert cost["billed_hours"]["likely"] == 48


# Per unit


def test_a_dollar_buys_the_samples_of_the_article(client: TestClient) -> None:
    body = {"machine": "aws/p3.16xlarge", "as_of": "2023-06-07", "market": "on_demand", "region": "us-east-1"}
    answer = post_estimate(client, {**body, "measured": {"samples_per_second": 2560}})
    (cost,) = answer["cost"]
    assert cost["usd_per_hour"] == 24.48
    assert cost["per_unit"]["samples_per_usd"]["likely"] == pytest.approx(376_471, abs=1)
    assert cost["usd"] is None
    assert "No amount" in cost["unknown_because"]
    whole = entry(
        post_estimate(client, {**body, "measured": {"samples_per_second": 2560, "samples": 2560 * 3600, "epochs": 2}})
    )
    assert whole["usd"]["likely"] == 48.96
    assert whole["per_unit"]["usd_per_epoch"]["likely"] == 24.48
    assert whole["per_unit"]["usd_per_thousand_samples"]["likely"] == pytest.approx(1000 / 376_470.588, abs=1e-6)


def test_four_instances_meet_the_deadline_for_375_dollars(client: TestClient) -> None:
    body = {"machine": "aws/g5.12xlarge", "region": "us-east-1", "market": "on_demand", "as_of": "2023-06-07"}
    answer = post_estimate(client, {**body, "instances": 4, "measured": {"samples_per_second": 4200, "samples": 1e9}})
    (cost,) = answer["cost"]
    assert round(cost["hours"]["likely"], 2) == 16.53
    assert round(cost["usd"]["likely"], 2) == pytest.approx(375.13, abs=0.01)
    one = {"machine": "aws/p4d.24xlarge", "measured": {"samples_per_second": 20000, "samples": 1e9}}
    assert entry(post_estimate(client, {**body, **one}))["usd"]["likely"] == pytest.approx(455.17, abs=0.01)


def test_instances_share_the_work_and_each_has_its_own_boot(client: TestClient) -> None:
    one, four = (entry(post_estimate(client, changed(TRAINING, instances=n, setup_minutes=6))) for n in (1, 4))
    assert four["hours"]["likely"] - 0.1 == pytest.approx((one["hours"]["likely"] - 0.1) / 4, rel=1e-4)
    assert part(four, "setup")["usd"]["likely"] == pytest.approx(4 * part(one, "setup")["usd"]["likely"], abs=1e-5)
    assert part(four, "compute")["usd"]["likely"] == pytest.approx(part(one, "compute")["usd"]["likely"], rel=1e-4)


def test_an_epoch_a_token_and_a_sample_have_their_price(client: TestClient) -> None:
    network, tokens = (entry(post_estimate(client, body)) for body in (NETWORK, TRAINING))
    total = network["usd"]["likely"]
    assert network["per_unit"]["usd_per_epoch"]["likely"] == pytest.approx(total / 2, abs=1e-6)
    assert network["per_unit"]["usd_per_thousand_samples"]["likely"] == pytest.approx(total / 2000, abs=1e-6)
    assert tokens["per_unit"]["usd_per_million_tokens"]["likely"] == pytest.approx(
        tokens["usd"]["likely"] / 1000, abs=1e-6
    )
    assert tokens["per_unit"]["usd_per_million_output_tokens"] is None


@pytest.mark.parametrize("concurrency", [None, 1, 16])
def test_a_request_costs_its_prompt_at_one_price_and_its_answer_at_another(
    client: TestClient, concurrency: int | None
) -> None:
    answer = post_estimate(client, changed(SERVING, workload__concurrency=concurrency))
    (cost,) = answer["cost"]
    estimate, work = answer["estimate"], SERVING["workload"]
    prompt, reply = (cost["per_unit"][f"usd_per_million_{unit}_tokens"]["likely"] for unit in ("input", "output"))
    assert prompt == pytest.approx(3.0 / 3600 / estimate["prefill_tokens_per_second"]["likely"] * 1e6, rel=1e-4)
    request = (prompt * work["input_length"] + reply * work["output_length"]) / 1e6
    assert request * estimate["samples_per_second"]["likely"] == pytest.approx(3.0 / 3600, rel=1e-3)


def serving(**load: Any) -> Body:
    lengths = {"input_length": None, "output_length": None, "concurrency": None}
    workload = {name: value for name, value in SERVING["workload"].items() if name not in lengths}
    return changed(SERVING, workload={**workload, "serving": {"input_length": 512, "output_length": 128, **load}})


def test_a_load_takes_instances_for_a_month_of_730_hours(client: TestClient) -> None:
    answer = post_estimate(client, serving(requests_per_second=500))
    load, (cost,) = answer["load"], answer["cost"]
    assert load["keeps_limits"] is True
    assert load["instances_low"] <= load["instances"] <= load["instances_high"]
    assert load["utilisation"] <= 0.8
    assert load["concurrency"] == pytest.approx(load["batch"] * load["replicas"], rel=0.1)
    assert cost["month"]["usd"]["likely"] == load["instances"] * 3.0 * 730
    busy = post_estimate(client, serving(requests_per_second=500, headroom=0.0))["load"]
    # The usual limit on the time per token takes more instances than the capacity does.
    slow = serving(requests_per_second=500, headroom=0.0, max_seconds_per_output_token=10)
    of_capacity = post_estimate(client, slow)["load"]["instances"]
    assert of_capacity == pytest.approx(0.8 * load["instances"], abs=1)
    assert of_capacity <= busy["instances"] < load["instances"]
    more = post_estimate(client, changed(serving(requests_per_second=500), instances=2 * load["instances"]))["load"]
    assert more["instances"] == 2 * load["instances"]
    assert more["utilisation"] == pytest.approx(load["utilisation"] / 2, rel=1e-3)


def test_prompts_and_answers_of_a_load_share_the_price_of_its_machines(client: TestClient) -> None:
    answer = post_estimate(client, serving(requests_per_second=500))
    per_unit, load = answer["cost"][0]["per_unit"], answer["load"]
    tokens = {"input": 512, "output": 128}
    a_request = sum(
        per_unit[f"usd_per_million_{unit}_tokens"]["likely"] * count / 1e6 for unit, count in tokens.items()
    )
    assert a_request * 500 * 3600 == pytest.approx(load["instances"] * 3.0, rel=1e-3)


def test_a_limit_on_a_time_takes_more_instances_with_fewer_requests_each(client: TestClient) -> None:
    free = post_estimate(client, serving(requests_per_second=500))["load"]
    quick = 0.7 * free["seconds_per_output_token"]
    answer = post_estimate(client, serving(requests_per_second=500, max_seconds_per_output_token=quick))["load"]
    assert answer["instances"] > free["instances"]
    assert answer["batch"] < free["batch"]
    assert answer["seconds_per_output_token"] <= quick
    never = post_estimate(client, serving(requests_per_second=500, max_seconds_per_output_token=1e-6))
    assert never["load"]["keeps_limits"] is False
    assert "max_seconds_per_output_token is 1e-06, and the least is 0.0" in never["load"]["reason"]
    assert never["cost"][0]["month"]["usd"] is None


def test_a_load_may_be_sent_next_to_the_workload(client: TestClient) -> None:
    inside = serving(requests_per_second=500)
    workload = dict(inside["workload"])
    load = workload.pop("serving")
    assert (
        post_estimate(client, changed(inside, workload=workload, load=load))["load"]
        == post_estimate(client, inside)["load"]
    )


@pytest.mark.parametrize(
    ("load", "field"),
    [
        ({}, "workload.serving"),
        ({"requests_per_second": 1, "concurrency": 1}, "workload.serving"),
        ({"requests_per_second": 1, "output_length": 0}, "workload.serving.output_length"),
        ({"requests_per_second": 1, "output_length": {"mean": 100, "p95": 90}}, "workload.serving.output_length.p95"),
        ({"requests_per_second": 1, "output_length": {"mean": 100, "p95": 900}}, "workload.serving.output_length.p95"),
        ({"requests_per_second": 1, "percentile": 49}, "workload.serving.percentile"),
        ({"requests_per_second": 0}, "workload.serving.requests_per_second"),
    ],
)
def test_a_load_that_says_too_little_or_too_much_is_refused(client: TestClient, load: Body, field: str) -> None:
    answer = client.post("/estimate", json=serving(**load))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


@pytest.mark.parametrize("market", ["on_demand", "1y_reserved_all_upfront"])
def test_a_load_of_some_hours_a_day_pays_for_these_and_under_a_commitment_for_all(
    client: TestClient, market: str
) -> None:
    load = {"requests_per_second": 50, "input_length": 500, "output_length": 100}
    work = {"task": "inference", "model": "llama-3.1-70b", "serving": load}
    body = {"workload": work, "machine": "aws/p4d.24xlarge", "region": "us-east-1", "market": market}
    whole, some = (
        post_estimate(client, changed(body, workload__serving__hours_per_day=hours))["cost"][0] for hours in (24, 6)
    )
    share = 0.25 if market == "on_demand" else 1.0
    assert some["month"]["hours"] == 730 * share
    assert some["month"]["usd"]["likely"] == pytest.approx(whole["month"]["usd"]["likely"] * share)
    assert f"{730 * share:.4g} h" in some["text"]
    per_token = [cost["per_unit"]["usd_per_million_tokens"]["likely"] for cost in (whole, some)]
    assert per_token[1] == pytest.approx(per_token[0] * share * 4)


# What is not known


def test_an_unknown_price_is_null_with_its_reason(client: TestClient) -> None:
    unpriced = client.get("/prices?provider=aws&limit=500").json()["items"]
    name = next(each["instance"] for each in unpriced if each["usd_per_hour"] is None and each["market"] == "on_demand")
    answer = post_estimate(client, {"hours": 5, "machine": f"aws/{name}"})
    cost = entry(answer)
    assert cost["usd"] is None
    assert cost["usd_per_hour"] is None
    assert cost["usd_complete"] is False
    assert "is not known" in cost["unknown_because"]
    assert all(each["usd"] is None or each["usd"]["likely"] == 0 for each in cost["parts"])


def test_the_total_of_an_unknown_part_is_a_lower_bound(client: TestClient) -> None:
    answer = post_estimate(client, changed(HOURS, storage={"gib": 10, "class": "pd-ssd"}, market="on_demand"))
    (cost,) = answer["cost"]
    assert cost["usd_complete"] is False
    (missing,) = cost["missing"]
    assert missing.startswith("The price of pd-ssd at aws in us-east-1 is not known; those of efs-standard, ")
    assert part(cost, "storage")["usd"] is None
    assert part(cost, "storage")["reason"] == missing
    assert "at least $" in cost["text"]


def test_a_machine_of_ones_own_costs_its_hour_and_says_so(client: TestClient) -> None:
    own = {"gpu": "h100-sxm5-80gb", "usd_per_hour": 3.0}
    answer = post_estimate(client, {"hours": 1 / 3, "machine": own, "storage": {"gib": 1, "class": "gp3"}})
    (cost,) = answer["cost"]
    assert cost["usd"]["likely"] == 1.0
    assert cost["billing"] is None
    assert cost["usd_complete"] is False
    assert "has no seller" in answer["notes"][0]
    (cost,) = post_estimate(client, {"hours": 1, "machine": {"gpu": "h100-sxm5-80gb"}})["cost"]
    assert cost["usd"] is None
    assert "usd_per_hour" in cost["unknown_because"]


def test_the_same_gpu_is_cheaper_elsewhere(client: TestClient) -> None:
    answer = post_estimate(client, changed(HOURS, market="on_demand"))
    hours = answer["elsewhere"]
    assert hours == sorted(hours, key=lambda each: each["usd_per_gpu_hour"])
    assert len({each["instance"].partition("/")[0] for each in hours}) == len(hours) > 1
    for each in hours:
        cheapest = min(price["usd_per_hour"] for price in offers_of(client, each["instance"]))
        assert each["usd_per_gpu_hour"] == pytest.approx(cheapest / each["gpus"], abs=1e-6)
    own = answer["cost"][0]["usd_per_hour"] / 8
    assert hours[0]["saves_percent"] == pytest.approx(100 - hours[0]["usd_per_gpu_hour"] / own * 100, abs=0.01)


# The gate


@pytest.mark.parametrize(
    ("gate", "verdict"),
    [
        ({"baseline": {"usd": 250}}, "pass"),
        ({"baseline": {"usd": 200, "fail_above_percent": 10}}, "pass"),
        ({"baseline": {"usd": 199, "fail_above_percent": 10}}, "fail"),
        ({"budget_usd": 219.57642}, "pass"),
        ({"budget_usd": 219.57}, "fail"),
        ({"baseline": {"usd": 250}, "budget_usd": 1}, "fail"),
        ({}, None),
    ],
)
def test_the_gate_passes_and_fails_with_a_sentence(client: TestClient, gate: Body, verdict: str | None) -> None:
    answer = post_estimate(client, {**HOURS, "as_of": "2025-07-01", **gate})
    assert entry(answer)["usd"]["likely"] == 219.57642
    assert answer["verdict"] == verdict
    if verdict is None:
        assert answer["verdict_of"] is None
    else:
        assert answer["verdict_of"]["market"] == "on_demand"
        assert "$219.58" in answer["verdict_of"]["sentence"]


@pytest.mark.parametrize(
    ("machine", "service", "budget"),
    [
        ("azure/Standard_ND96isr_H100_v5", "azure-machine-learning", 500),
        ("aws/p4d.24xlarge", "sagemaker-training", 100),
    ],
)
def test_the_gate_judges_an_on_demand_bill_through_the_service_that_is_named(
    client: TestClient, machine: str, service: str, budget: float
) -> None:
    answer = post_estimate(client, {"hours": 10, "machine": machine, "managed_service": service, "budget_usd": budget})
    judged = entry(answer, managed_service=service)
    assert entry(answer, "spot", managed_service=service)["usd"]["likely"] < budget < judged["usd"]["likely"]
    assert (answer["verdict"], answer["verdict_of"]["market"]) == ("fail", "on_demand")
    assert answer["verdict_of"]["usd"] == judged["usd"]


def test_what_is_not_known_does_not_pass(client: TestClient) -> None:
    answer = post_estimate(client, {"hours": 1, "machine": {"gpu": "h100-sxm5-80gb"}, "budget_usd": 1e9})
    assert answer["verdict"] == "unknown"
    assert "not known" in answer["verdict_of"]["sentence"]


@pytest.mark.parametrize(("region", "verdict"), [("ap-south-1", "unknown"), ("us-east-1", "fail")])
def test_a_part_of_the_cost_passes_no_budget(client: TestClient, region: str, verdict: str) -> None:
    """The price of sending data out is known in one of the two regions."""
    run = {"hours": 1, "machine": "aws/p5.48xlarge", "region": region, "market": ["on_demand"]}
    answer = post_estimate(client, {**run, "data_transfer_out_gb": 20000, "budget_usd": 400})
    assert answer["verdict"] == verdict
    assert exit_code(answer) == {"unknown": 2, "fail": 1}[verdict]
    assert verdict != "unknown" or "the whole cost is not known" in answer["verdict_of"]["sentence"]


def test_how_a_seller_rounds_time_decides_no_verdict(client: TestClient) -> None:
    """Most sellers do not say it, and it is rarely more than an hour."""
    answer = post_estimate(client, {"hours": 10, "machine": "hyperstack/h100-sxm", "budget_usd": 1e6})
    assert answer["verdict"] == "pass"
    assert "hyperstack rounds the time" in answer["verdict_of"]["sentence"]


def test_a_load_without_an_amount_is_judged_by_its_month(client: TestClient) -> None:
    answer = post_estimate(client, changed(SERVING, load={"requests_per_second": 500}, budget_usd=10))
    assert answer["verdict"] == "fail"
    assert answer["verdict_of"]["sentence"].startswith("A month of the load")


def test_a_verdict_on_a_load_says_that_its_data_is_not_counted(client: TestClient) -> None:
    body = changed(SERVING, load={"requests_per_second": 500}, budget_usd=1e6)
    stored = post_estimate(client, {**body, "storage": {"gib": 1e6, "class": "gp3"}})
    assert ". A month of a load is the time of its machines, " in stored["verdict_of"]["sentence"]
    assert "costs at least $" in stored["verdict_of"]["sentence"]
    assert any("without storage" in note for note in stored["notes"])
    plain = post_estimate(client, body)
    assert "storage" not in plain["verdict_of"]["sentence"]
    assert not any("storage" in note for note in plain["notes"])


def test_a_load_is_judged_in_the_region_with_the_cheapest_month(client: TestClient) -> None:
    regions = ["ap-northeast-1", "us-east-1"]
    body = changed(
        SERVING, load={"requests_per_second": 10}, machine="aws/g6e.xlarge", market="on_demand", budget_usd=1e6
    )
    for order in (regions, regions[::-1]):
        answer = post_estimate(client, {**body, "region": order})
        months = {cost["region"]: cost["month"]["usd"] for cost in answer["cost"]}
        assert months["us-east-1"]["likely"] < months["ap-northeast-1"]["likely"]
        assert answer["verdict_of"]["region"] == "us-east-1"
        assert answer["verdict_of"]["usd"] == months["us-east-1"]


# What cannot be


WRONG: dict[str, tuple[Body, str, str]] = {
    "hours below nothing": (changed(HOURS, hours=-1), "hours", "above 0"),
    "more than a century": (changed(HOURS, hours=1e7), "hours", "at most 1,000,000"),
    "idle all the time": (changed(HOURS, idle_fraction=1), "idle_fraction", "below 1"),
    "unknown storage": (changed(HOURS, storage={"gib": 1, "class": "gp4"}), "storage.class", "gp3"),
    "unknown market": (changed(HOURS, market="spott"), "market", "spot"),
    "a market it lacks": (
        changed(HOURS, market="1y_committed_use"), "market",
        "it is sold there as 1y_reserved_all_upfront, 3y_reserved, on_demand, spot",
    ),
    "a market the region lacks": (changed(HOURS, market="reserved", region="eu-central-1"), "market", "us-east-1"),
    "unknown region": (changed(HOURS, region="us-esat-1"), "region", "us-east-1"),
    "a letter of a zone": (changed(HOURS, region=None, zone="us-east-1a"), "zone", "use1-az1"),
    "a zone of another region": (changed(HOURS, zone="euc1-az1"), "zone", "euc1-az1 is a zone of eu-central-1"),
    "a zone without it": (
        changed(HOURS, region=None, zone="usw1-az3"), "zone", "The nearest region that has it is us-west-2.",
    ),
    "a market the zone lacks": (
        changed(HOURS, region=None, zone="euc1-az1", market="reserved"), "market", "not sold as reserved in euc1-az1",
    ),
    "a zone of a described machine": ({"hours": 1, "machine": {"gpu": "t4"}, "zone": "use1-az1"}, "zone", "leave zone"),
    "a region without it": (changed(HOURS, region="us-west-1"), "region", "us-west-2"),
    "a region that is far from all others": (
        changed(HOURS, region="sa-east-1"), "region",
        "It has prices in ap-northeast-1, ap-northeast-2, ap-south-1 and 10 more regions.",
    ),
    "two regions that are far": (
        {"hours": 1, "machine": "aws/g5.xlarge", "region": "eu-west-1"}, "region",
        "It has prices in cn-north-1, us-east-1.",
    ),
    "one price everywhere": (
        {"hours": 1, "machine": "lambda/gpu_8x_a100", "region": "us-east-1"}, "region", "leave the region out",
    ),
    "a continent without it": (
        {"hours": 1, "machine": "lambda/gpu_8x_a100", "region": "Europe"}, "region",
        "has no offer of lambda/gpu_8x_a100 in Europe.",
    ),
    "a commitment to plain machines under a service": (
        changed(HOURS, managed_service="sagemaker-training", market="reserved"), "market", "and not as reserved.",
    ),
    "managed spot on demand": (
        changed(HOURS, managed_service="sagemaker-managed-spot-training", market="on_demand"),
        "market", "rents machines as spot",
    ),
    "unknown service": (changed(HOURS, managed_service="sagemaker"), "managed_service", "sagemaker-training"),
    "a service of another seller": (
        {"hours": 1, "machine": "azure/Standard_NC4as_T4_v3", "managed_service": "sagemaker-training"},
        "managed_service", "sagemaker-training rents no machines of azure.",
    ),
    "a market of one's own": (
        {"hours": 1, "machine": {"gpu": "h100-sxm5-80gb"}, "market": "spot"}, "market", "price of its own",
    ),
    "a load of training": (changed(TRAINING, load={"requests_per_second": 1}), "load", "inference"),
    "a load in no unit": (changed(SERVING, load={}), "load", "requests_per_second"),
    "measured in other units": (
        {"machine": "aws/g5.xlarge", "measured": {"samples_per_second": 1, "tokens": 5}}, "measured.tokens", "unit",
    ),
}  # fmt: skip


@pytest.mark.parametrize("region", ["us-ashburn-1", "eu-frankfurt-1"])
def test_a_price_of_all_regions_holds_in_those_without_a_price_of_their_own(region: str, client: TestClient) -> None:
    (cost,) = post_estimate(client, {"hours": 1, "machine": "oci/BM.GPU.H100.8", "region": region})["cost"]
    assert cost["usd_per_hour"] == 80
    assert cost["region"] == (region if region == "us-ashburn-1" else None)


def test_a_known_machine_at_the_price_of_the_caller_has_the_other_terms_of_its_seller(client: TestClient) -> None:
    here = {"workload": TRAINING["workload"], "machine": "aws/p4d.24xlarge", "region": "us-east-1"}
    here |= {"storage": {"gib": 500, "class": "gp3"}}
    listed = entry(post_estimate(client, {**here, "market": "spot"}), "spot")
    own = {**here, "usd_per_hour": {"spot": listed["price"]["usd_per_hour"], "reserved": 12}}
    given = entry(post_estimate(client, own), "spot")
    for name in ("hours", "billing", "missing", "region"):
        assert given[name] == listed[name], name
    assert given["usd"]["likely"] == listed["usd"]["likely"]
    assert part(given, "interruption")["usd"]["likely"] > 0
    rarely = entry(post_estimate(client, {**own, "checkpoint": {"interval_minutes": 120}}), "spot")
    assert rarely["usd"]["likely"] > given["usd"]["likely"]
    # A term at the caller's price is paid anyway, so that the hours used are charged.
    assert entry(post_estimate(client, own), "reserved")["usd_complete"]


def test_data_that_was_sent_earlier_alone_has_no_effect_and_says_so(client: TestClient) -> None:
    sent = {"data_transfer_already_gb": 5000, "market": "on_demand"}
    assert any("data_transfer_already_gb" in note for note in post_estimate(client, changed(HOURS, **sent))["notes"])
    both = post_estimate(client, changed(HOURS, data_transfer_out_gb=1, **sent))
    assert not any("data_transfer_already_gb" in note for note in both["notes"])


def test_large_ratios_and_hours_have_no_exponent_in_sentences(client: TestClient) -> None:
    (short,) = post_estimate(client, changed(HOURS, hours=1, market="3y_reserved"))["cost"]
    assert re.fullmatch(r"Costs [0-9,]{5,} times as much as on demand\.", short["break_even"]["text"])
    (long,) = post_estimate(client, changed(HOURS, hours=20_000, market="3y_reserved"))["cost"]
    assert "The run uses 20,000 of 26,280 committed hours" in long["commitment"]["text"]
    judged = post_estimate(client, changed(HOURS, market="on_demand", baseline={"usd": 0.01}))["verdict_of"]
    assert re.search(r"[0-9,]{9,} % above the baseline", judged["sentence"])


def test_large_figures_of_a_bill_have_no_exponent(client: TestClient) -> None:
    stored = {"gib": 2.5e7, "class": "s3-standard", "hours": 40_000}
    body = changed(HOURS, hours=123_456, nodes=2_000, market="on_demand", storage=stored, data_transfer_out_gb=3e7)
    (cost,) = post_estimate(client, body)["cost"]
    texts = {part["name"]: part["text"] for part in cost["parts"]}
    assert cost["text"].startswith("123,456 h on 2,000 x aws/p4d.24xlarge")
    assert texts["compute"].startswith("123,456 h x 2,000 machines at ")
    assert texts["storage"].startswith("volume: 25,000,000 GiB of s3-standard for 40,000 h, at ")
    assert texts["transfer"] == "30,000,000 GB to the internet, after 0 GB in the same month"


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_a_sentence_with_the_near_names(client: TestClient, name: str) -> None:
    body, field, words = WRONG[name]
    problem = refused(client, body)
    assert field in [error["field"] for error in problem["errors"]], problem
    assert words in problem["detail"]


# What holds of every bill


@settings(max_examples=25, derandomize=True)
@given(st.integers(1, 2000), st.integers(2, 9), st.integers(1, 8))
def test_cost_is_linear_in_hours_and_machines_above_the_minimum(
    client: TestClient, minutes: int, times: int, nodes: int
) -> None:
    def usd(hours: float, nodes: int) -> Decimal:
        body = changed(HOURS, hours=hours, nodes=nodes, market="on_demand")
        return Decimal(str(post_estimate(client, body)["cost"][0]["usd"]["likely"]))

    one = usd(minutes / 60, nodes)
    assert abs(usd(minutes * times / 60, nodes) - times * one) <= times * Decimal("0.0000005") + Decimal("0.0000005")
    assert usd(minutes / 60, nodes * times) >= one
    assert abs(usd(minutes / 60, nodes * times) - times * one) <= times * Decimal("0.000001")


@settings(max_examples=25, derandomize=True)
@given(st.floats(0.001, 1000), st.floats(0.01, 100), st.floats(0, 10), st.floats(0, 10))
def test_cost_grows_with_price_and_hours(
    client: TestClient, hours: float, price: float, longer: float, pricier: float
) -> None:
    def usd(hours: float, price: float) -> float:
        answer = post_estimate(client, {"hours": hours, "machine": {"gpu": "h100-sxm5-80gb", "usd_per_hour": price}})
        likely: float = answer["cost"][0]["usd"]["likely"]
        return likely

    assert usd(hours, price) <= usd(hours + longer, price)
    assert usd(hours, price) <= usd(hours, price + pricier)


TINY = 5e-324
EXTREME: list[Body] = [
    changed(HOURS, hours=TINY),
    changed(HOURS, hours=1e6, nodes=10_000, instances=10_000, setup_minutes=1e6, idle_fraction=0.9999999999999999),
    changed(HOURS, checkpoint={"save_seconds": 1e15, "restart_seconds": 1e15}),
    changed(HOURS, hours=TINY, checkpoint={"interval_minutes": TINY, "save_seconds": 0, "restart_seconds": 0}),
    changed(HOURS, storage={"gib": 1e15, "class": "gp3", "hours": 1e6}, data_transfer_out_gb=1e15),
    changed(HOURS, baseline={"usd": 1e-6, "fail_above_percent": 1e15}, budget_usd=TINY),
    changed(TRAINING, workload__amount={"samples": 1e-310}),
    {
        "workload": {
            "task": "training", "amount": {"steps": TINY}, "sample_mb": 1e15, "output_length": 1e8,
            "model": {
                "parameters": 7e9, "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
                "vocabulary": 32000,
            },
        },
        "machine": "aws/p2.16xlarge", "nodes": 10_000, "data_transfer_between_regions_gb": 1e15,
    },
    changed(TRAINING, workload__amount={"samples": 1e15, "epochs": 1e15}),
    {
        "workload": {"task": "inference", "model": "qwen2.5-1.5b", "mean_length": TINY, "amount": {"tokens": 1e15}},
        "machine": "aws/p2.xlarge", "nodes": 8,
    },
    {"machine": "aws/g5.xlarge", "measured": {"samples_per_second": 1e-9, "samples": 1e15}},
    {"machine": "aws/g5.xlarge", "measured": {"samples_per_second": 1e15, "samples": 1e-310}},
    {"hours": 1, "machine": {"gpu": "h100-sxm5-80gb", "usd_per_hour": 1e15}, "nodes": 10_000, "instances": 10_000},
    {"hours": 1, "machine": {"gpu": "h100-sxm5-80gb", "usd_per_hour": TINY}, "baseline": {"usd": 1e15}},
    changed(SERVING, load={"requests_per_second": 1e15, "headroom": 0.99}, machine__usd_per_hour=1e15),
    changed(SERVING, load={"output_tokens_per_second": 1e-9, "max_seconds_per_output_token": TINY}),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(EXTREME)))
def test_extreme_figures_are_answered_with_finite_ones(client: TestClient, place: int) -> None:
    answer = client.post("/estimate", json=EXTREME[place])
    assert answer.status_code == 200, answer.text
    assert not any(word in answer.text for word in ("NaN", "Infinity"))


def test_managed_spot_rents_spot_machines_at_a_premium_that_is_not_published(client: TestClient) -> None:
    body = {
        "hours": 2,
        "machine": "aws/g4dn.xlarge",
        "managed_service": "sagemaker-managed-spot-training",
        "as_of": "2026-09-30",
    }
    answer = post_estimate(client, body)
    assert [(each["market"], each["usd_per_hour"]) for each in answer["cost"]] == [("spot", 0.1578)]
    assert not answer["cost"][0]["usd_complete"]
    assert refused(client, {**body, "as_of": "2021-11-01"})["errors"][0]["field"] == "market"


@pytest.mark.parametrize(("machine", "percent"), [("g5.xlarge", 40), ("g5.2xlarge", 25), ("p3.8xlarge", 20)])
def test_a_managed_service_has_the_premium_of_the_machine_where_it_has_its_own(
    client: TestClient, machine: str, percent: float
) -> None:
    """SageMaker asks for 40 % more on the smallest machine of a family, and 25 % on the others."""
    body = {"machine": machine, "hours": 10, "managed_service": "sagemaker-training", "market": "on_demand"}
    (cost,) = post_estimate(client, body)["cost"]
    parts = {part["name"]: part["usd"]["likely"] for part in cost["parts"]}
    assert parts["management_fee"] == pytest.approx(parts["compute"] * percent / 100, abs=1e-6)


def test_a_term_states_from_which_hours_on_it_pays_off(client: TestClient) -> None:
    body = {"machine": "aws/p4d.24xlarge", "hours": 10, "region": "us-east-1", "market": "1y_reserved_all_upfront"}
    (cost,) = post_estimate(client, body)["cost"]
    text, even = cost["commitment"]["text"], cost["commitment"]["break_even_hours"]
    assert text.startswith("The run uses 10 of 8,760 committed hours and pays all of them. The term pays off once ")
    assert text.endswith(f" % of it is used ({even:,.0f} hours).")
    assert cost["break_even"]["text"] == "Costs 503 times as much as on demand."
    (longer,) = post_estimate(client, {**body, "hours": round(even) + 1})["cost"]
    assert longer["break_even"]["saves_percent"] > 0


def test_a_run_that_hardly_ever_ends_is_not_said_to_cost_less(client: TestClient) -> None:
    body = {"hours": 100, "machine": "aws/p5.48xlarge", "region": "us-east-1", "market": ["spot", "on_demand"]}
    ends, never = (
        entry(post_estimate(client, body | checkpoint), "spot")
        for checkpoint in ({}, {"checkpoint": {"interval_minutes": 6000}})
    )
    assert ends["break_even"]["saves_percent"] > 0
    assert " % less than on demand." in ends["break_even"]["text"]
    assert never["missing"] == ["Interruptions come so often that the run would hardly ever finish."]
    assert never["break_even"]["saves_percent"] is None
    assert never["break_even"]["text"].startswith("Whether it costs less than on demand is not known. ")


def test_a_saving_of_a_bill_that_is_unknown_in_part_is_the_most_that_may_be_saved(client: TestClient) -> None:
    """How often AWS interrupted spot machines in 2022 is not known."""
    body = {"hours": 10, "machine": "aws/p3.2xlarge", "usd_per_hour": {"on_demand": 3.06, "spot": 0.918}}
    spot = entry(post_estimate(client, body | {"as_of": "2022-02-17"}), "spot")
    assert not spot["usd_complete"]
    assert spot["break_even"]["text"].startswith("Costs at most 70 % less than on demand. ")
    known = entry(post_estimate(client, body), "spot")
    assert known["usd_complete"]
    assert " at most " not in known["break_even"]["text"]
    unknown = {"storage": {"gib": 10, "class": "pd-ssd"}, "as_of": "2022-02-17"}
    assert entry(post_estimate(client, body | unknown), "spot")["break_even"]["saves_percent"] is None


def test_a_commitment_under_which_no_bill_is_asked_for_has_a_note(client: TestClient) -> None:
    held = changed(HOURS, commitments_held=["3y_reserved"])
    sentence = "None of the bills is under the commitments held, so they change no price."
    assert sentence in post_estimate(client, held | {"market": "on_demand"})["notes"]
    assert sentence not in post_estimate(client, held)["notes"]


LOAD = changed(SERVING, load={"requests_per_second": 1})
TRAINED = changed(TRAINING, workload__amount=None)


@pytest.mark.parametrize(
    ("body", "sent", "note"),
    [
        (LOAD, {"setup_minutes": 10}, "`setup_minutes` has no effect here, because a load has no end."),
        (
            LOAD,
            {"setup_minutes": 10, "idle_fraction": 0.2, "checkpoint": {"interval_minutes": 5}},
            "`setup_minutes`, `idle_fraction` and `checkpoint` have no effect here, because a load has no end.",
        ),
        (
            TRAINED,
            {"workload__checkpoint": {"interval_minutes": 5}, "data_transfer_out_gb": 5},
            "`workload.checkpoint` and `data_transfer_out_gb` have no effect here, because the hours of the run",
        ),
        (
            HOURS,
            {"layout": {"tensor": 2}, "largest_batch": True},
            "`layout` and `largest_batch` have no effect here, because no job is estimated.",
        ),
        (
            SERVING,
            {"largest_batch": True},
            "`largest_batch` has no effect here, because only training has a largest batch.",
        ),
    ],
)
def test_fields_without_an_effect_are_named(client: TestClient, body: Body, sent: Body, note: str) -> None:
    assert note in " ".join(post_estimate(client, changed(body, **sent))["notes"])
    assert "no effect here" not in str(post_estimate(client, body)["notes"])


def test_a_storage_class_is_read_in_any_spelling(client: TestClient) -> None:
    plain, capital = (
        post_estimate(client, changed(HOURS, storage={"gib": 100, "class": name}, market="on_demand"))["cost"]
        for name in ("gp3", "GP3")
    )
    assert plain == capital


def test_a_charge_that_is_not_known_is_stated_once(client: TestClient) -> None:
    body = {"machine": "scaleway/H100-1-80G", "hours": 30, "data_transfer_out_gb": 100}
    (cost,) = post_estimate(client, body)["cost"]
    assert cost["text"].lower().count("not known") == 1


def test_a_machine_without_any_price_on_a_day_is_said_to_have_none(client: TestClient) -> None:
    """The catalog has prices of Inf1 from a later day on; no sentence may claim one price for all regions."""
    asked = {"hours": 100, "machine": "aws/inf1.xlarge", "as_of": "2020-06-01"}
    none = "The catalog of 2020-06-01 has no offer of aws/inf1.xlarge"
    answer = post_estimate(client, asked)
    assert answer["cost"] == []
    assert answer["notes"] == [f"{none}: what the run costs is unknown."]
    for named in ({"region": "us-east-1"}, {"market": "on_demand"}):
        assert refused(client, {**asked, **named})["detail"] == f"{none}."
    assert "has no offer" not in str(post_estimate(client, {**asked, "as_of": "2026-11-01"})["notes"])


def test_less_than_a_dollar_is_stated_in_cents(client: TestClient) -> None:
    (cost,) = post_estimate(client, {"hours": 1, "machine": {"gpu": "t4", "usd_per_hour": 0.9}})["cost"]
    assert cost["text"] == "1 h on the described machine cost $0.90."


def test_a_bill_without_a_price_is_in_the_currency_of_its_exchange_rate(client: TestClient) -> None:
    (cost,) = post_estimate(client, {"hours": 1, "machine": "autodl/rtx-3090x1", "as_of": "2022-03-04"})["cost"]
    assert (cost["usd"], cost["native"]) == (None, None)
    assert cost["currency"] == cost["price"]["currency"] == "CNY"
    assert cost["exchange_rate"]["usd_per_unit"] < 1


def test_less_than_a_minute_of_rounding_is_stated_in_seconds(client: TestClient) -> None:
    answer = post_estimate(client, {"hours": 10.0001, "machine": "aws/p4d.24xlarge", "market": "on_demand"})
    (rounding,) = (part for part in answer["cost"][0]["parts"] if part["name"] == "billing_rounding")
    assert rounding["text"].startswith("0.64 s x 1 machine at ")


@pytest.mark.parametrize("machine", ["vast/1x-RTX_4090-32-65536", "akash/h200"])
def test_an_offer_of_a_marketplace_without_a_region_is_in_no_region_that_is_asked_for(
    machine: str, client: TestClient
) -> None:
    """The offer of an unknown region was billed for every region of a marketplace."""
    assert {each["region"] for each in get_json(client, f"/instances/{machine}")["offers"]} == {None}
    detail = refused(client, {"hours": 10, "machine": machine, "region": "US"})["detail"]
    assert detail.endswith(f"in US. The regions of {machine} are not known: leave the region out.")


def test_a_market_that_a_region_lacks_is_not_said_to_be_sold_there(client: TestClient) -> None:
    asked = {"hours": 10, "machine": "verda/1H200.141S.44V", "region": "FIN-02", "market": "spot"}
    assert "not sold as spot in FIN-02; it is sold there as on_demand." in refused(client, asked)["detail"]


def test_near_names_of_machines_are_spelt_as_the_seller_does(client: TestClient) -> None:
    near = {"azure/Standard_ND96asr_v5": "azure/Standard_ND96asr_v4", "BM.GPU5.8": "BM.GPU4.8"}
    for name, meant in near.items():
        assert refused(client, {"hours": 1, "machine": name})["errors"][0]["near"][0] == meant
