"""Choices and estimates state the same dollars for the same run on the same offer.

A hundred questions by default. To ask more: `SELECTOR_TEST_QUESTIONS=10000 python3 dev.py test` with this path.
"""

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_recommend
from tests.builders.random_questions import Questions, Vocabulary
from tests.builders.request_bodies import Body, changed

ASKED = int(os.environ.get("SELECTOR_TEST_QUESTIONS", "100"))
SHARES = 4
IN_ONE_BATCH = 25
PLACE = ("market", "term", "region", "zone", "price")
"""Fields of a bill that identify its offer."""
SHORT: Body = {
    "workload": {
        "task": "training",
        "model": "resnet-50",
        "global_batch_size": 64,
        "amount": {"samples": 20_000},
        "fault_tolerant": True,
    },
    "limit": 100,
}
"""A run of a few minutes, which the rounding of sellers changes most."""


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
    return asked | ({"per": "offer"} if questions.maybe() else {})


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
    return body | ({"region": choice["region"]} if choice["region"] else {})


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
            assert bill["usd"] is None or is_hours_times_price_times_machines(bill, machines), f"{bill}"
            # An estimate shows the cheapest offer of a region; `per: offer` has the others too.
            for entry in estimate["cost"]:
                if all(entry[name] == bill[name] for name in PLACE):
                    assert entry == bill, f"{json.dumps(estimate_of(question, choice))}"
                    compared += 1
    assert compared > ASKED / SHARES / 4


def modelled_choices(questions: list[Body], answers: list[Any]) -> Iterator[tuple[Body, Any]]:
    for question, answer in zip(questions, answers, strict=True):
        for choice in answer.get("choices", ()):
            if choice["estimate"]["basis"] == "modelled":
                yield question, choice


def is_hours_times_price_times_machines(bill: Any, machines: int) -> bool:
    """Whether the dollars are hours x price x machines, and the parts add up, at each end of both bands."""
    for case in ("low", "likely", "high"):
        price = bill["price"][f"usd_per_hour{'' if case == 'likely' else f'_{case}'}"]
        dollars = bill["billed_hours"][case] * price * machines
        micros = [round(1e6 * (part["usd"] or {case: 0})[case]) for part in bill["parts"]]
        # Hours and the ends of prices have six digits in the answer.
        if sum(micros) != round(1e6 * bill["usd"][case]) or bill["usd"][case] != pytest.approx(dollars, 2e-5, 1e-6):
            return False
    return True


@pytest.mark.parametrize("objective", ["cheapest", "best_value"])
@pytest.mark.parametrize("market", [["on_demand"], ["spot"], ["reserved"], ["on_demand", "spot", "reserved"]])
def test_the_order_is_that_of_the_bills(objective: str, market: list[str], client: TestClient) -> None:
    asked = changed(SHORT, constraints__market=market, objective=objective)
    bills = [ranked_usd(choice) for choice in post_recommend(client, asked)["choices"]]
    assert len(bills) > 40
    assert all(usd <= more * (1 + 1e-6) for usd, more in pairwise(bills))


def ranked_usd(choice: Any) -> float:
    """Dollars that rank: an old price ranks at its high end."""
    price = choice["price"]
    factor = price["usd_per_hour_high"] / price["usd_per_hour"] if price["old"] else 1.0
    usd: float = choice["cost"]["usd"]["likely"]
    return usd * factor


def test_a_budget_of_the_bill_admits_its_choice_and_less_does_not(client: TestClient) -> None:
    (choice, *_) = post_recommend(client, {**SHORT, "limit": 1})["choices"]
    name, usd = choice["instance"], choice["cost"]["usd"]
    only = changed(SHORT, constraints__instance=[f"{choice['provider']}/{name}"])
    for confidence, case in (("likely", "likely"), ("safe", "high")):
        for budget, admitted in ((usd[case] + 1e-6, 1), (usd[case] - 1e-6, 0)):
            limits = {"constraints__budget_usd": budget, "constraints__confidence": confidence}
            assert post_recommend(client, changed(only, **limits))["counts"]["admitted"] == admitted


def test_rounding_by_the_hour_decides_between_machines(client: TestClient) -> None:
    """The bare-metal shapes of a seller are paid for an hour at least, so a run of minutes costs an hour there."""
    choices = post_recommend(client, changed(SHORT, constraints__provider=["oci"]))["choices"]
    by_metal = {choice["specs"]["bare_metal"]: choice for choice in reversed(choices)}
    rounded = {part["name"]: part for part in by_metal[True]["cost"]["parts"]}["billing_rounding"]
    assert by_metal[True]["cost"]["billed_hours"]["likely"] == 1
    assert rounded["usd"]["likely"] > 0
    assert by_metal[False]["rank"] < by_metal[True]["rank"]
