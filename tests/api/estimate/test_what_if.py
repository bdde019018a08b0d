"""The what-if table: a base over machines, markets, regions and nodes, sorted by dollars."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from service.domain.estimate.what_if import on_front
from tests.api.answers import post_estimate
from tests.builders.request_bodies import SERVING, TRAINING, Body, changed

BASE = changed(TRAINING, machine=None)
OVER: Body = {
    "machine": ["aws/p4d.24xlarge", "aws/g5.48xlarge", "aws/nowhere", {"gpu": "h100-sxm5-80gb", "gpu_count": 8}],
    "market": ["on_demand", "spot"],
    "nodes": [1, 2],
}


def rows_of(client: TestClient, base: Body, over: Body) -> list[Any]:
    answer = client.post("/estimate/batch", json={"base": base, "over": over})
    assert answer.status_code == 200, answer.text
    rows: list[Any] = answer.json()["items"]
    return rows


def test_every_combination_is_there_by_dollars_and_problems_come_last(client: TestClient) -> None:
    rows = rows_of(client, BASE, OVER)
    assert len(rows) == 16
    assert len({str(row["over"]) for row in rows}) == 16
    known = [row["usd"]["likely"] for row in rows if row["usd"]]
    assert known == sorted(known)
    assert [row["usd"] is None for row in rows] == sorted(row["usd"] is None for row in rows)
    refused = [row for row in rows if row["problem"]]
    assert rows[-len(refused) :] == refused
    assert {row["over"]["machine"] for row in refused if isinstance(row["over"]["machine"], str)} == {"aws/nowhere"}
    assert any("price of its own" in row["problem"]["detail"] for row in refused)


def test_a_combination_answers_as_if_it_were_asked_alone(client: TestClient) -> None:
    for row in rows_of(client, BASE, {**OVER, "region": ["us-east-1"]}):
        if row["answer"] is not None:
            # A batch searches for no changes that would make a job fit more surely.
            alone = {**post_estimate(client, {**BASE, **row["over"]}), "nearest_changes": None}
            assert row["answer"] == alone


@pytest.mark.parametrize("instances", [[2, 6], [6, 2]])
def test_a_load_is_served_by_the_instances_of_its_combination(client: TestClient, instances: list[int]) -> None:
    base: Body = {
        "workload": SERVING["workload"] | {"serving": {"requests_per_second": 10}},
        "machine": "aws/g6e.xlarge",
    }
    for row in rows_of(client, base, {"instances": instances}):
        load, alone = row["answer"]["load"], post_estimate(client, {**base, **row["over"]})
        assert load["instances"] == row["over"]["instances"]
        assert (load, row["answer"]["cost"]) == (alone["load"], alone["cost"])


def test_loads_are_in_the_order_of_the_dollars_of_a_month(client: TestClient) -> None:
    base: Body = {"workload": SERVING["workload"] | {"serving": {"requests_per_second": 10}}, "market": "on_demand"}
    over: Body = {"machine": ["aws/p5.48xlarge", "aws/g6e.xlarge"], "region": ["ap-northeast-1", "us-east-1"]}
    rows = rows_of(client, base, over)
    months = [row["answer"]["cost"][0]["month"]["usd"]["likely"] for row in rows if row["answer"]]
    assert len(months) > 2
    assert months == sorted(months)
    assert [row["usd_per_month"]["likely"] for row in rows if row["answer"]] == months
    assert {row["usd"] for row in rows} == {None}
    # The cheapest is on the front, and so is the one whose requests take the least time.
    soonest = min((row for row in rows if row["answer"]), key=lambda row: row["answer"]["load"]["seconds_per_request"])
    assert rows[0]["pareto"]
    assert soonest["pareto"]
    assert not all(row["pareto"] for row in rows)


def test_the_marked_ones_are_those_that_none_beats(client: TestClient) -> None:
    rows = [row for row in rows_of(client, BASE, OVER) if row["usd"]]
    points = [(row["usd"]["likely"], row["hours"]["likely"]) for row in rows]
    for row, (usd, hours) in zip(rows, points, strict=True):
        beaten = any(a <= usd and b <= hours and (a, b) != (usd, hours) for a, b in points)
        assert row["pareto"] is not beaten
    assert 0 < sum(row["pareto"] for row in rows) < len(rows)


@given(st.lists(st.none() | st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30))
def test_pareto_is_the_plain_definition(points: list[Any]) -> None:
    def good(one: Any) -> bool:
        others = [each for each in points if each is not None and each != one]
        return one is not None and not any(a <= one[0] and b <= one[1] for a, b in others)

    assert on_front(points) == [good(one) for one in points]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "items"),
        ({"base": {}}, "over"),
        ({"over": {"nodes": [1]}}, "items"),
        ({"items": [], "base": {}}, "base"),
        ({"items": [], "over": {"nodes": [1]}}, "over"),
        ({"base": {}, "over": {}}, "over"),
        ({"base": {}, "over": {"nodes": []}}, "over.nodes"),
        ({"base": {}, "over": {"nodes": [0]}}, "over.nodes.0"),
        ({"base": {}, "over": {"node": [1]}}, "over.node"),
        ({"base": {}, "over": {"nodes": list(range(1, 101)), "instances": list(range(1, 12))}}, "over"),
    ],
)
def test_what_cannot_be_varied_is_a_sentence(client: TestClient, body: Body, field: str) -> None:
    answer = client.post("/estimate/batch", json=body)
    assert answer.status_code == 422, answer.text
    assert field in [error["field"] for error in answer.json()["errors"]], answer.text
