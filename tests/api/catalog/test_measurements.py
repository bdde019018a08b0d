"""Measurements through the API: two kinds of evidence in one list, filters, order, and days."""

from datetime import date
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.catalog.measurements import MeasurementResponse
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.measurement_log import VisibleMeasurements
from service.domain.catalog.reference import RUN_UNITS
from tests.api.answers import all_items, get_json


@pytest.fixture(scope="module")
def items(client: TestClient) -> list[Any]:
    return all_items(client, "/measurements?as_of=2026-11-01")


def test_runs_and_named_workloads_have_one_shape(items: list[Any]) -> None:
    assert len({tuple(item) for item in items}) == 1
    assert {item["kind"] for item in items} >= {"workload_throughput", "train_throughput", "infer_throughput", "oom"}
    assert {item["unit"] for item in items} <= set(RUN_UNITS)
    assert all(item["value"] > 0 or (item["unit"], item["value"]) == ("fits", 0) for item in items)
    assert [item["id"] for item in items] == sorted(item["id"] for item in items)


def test_a_workload_is_listed_by_name_with_its_machine(client: TestClient) -> None:
    found = get_json(client, "/measurements?kind=workload_throughput&q=alexnet%20g3.4xlarge")["items"]
    assert [(item["machine"], item["gpu"], item["nodes"], item["value"], item["unit"]) for item in found] == [
        ("aws/g3.4xlarge", "m60-8gb", 1, 1089.36, "samples_per_second")
    ]
    assert (found[0]["measured_on"], found[0]["year"], found[0]["model"]) == ("2017-08-01", 2017, None)


def test_a_machine_that_is_not_rented_out_has_no_known_gpu(client: TestClient) -> None:
    found = get_json(client, "/measurements?q=dgx-1")["items"]
    assert [(item["machine"], item["gpu"], item["gpu_count"]) for item in found] == [("nvidia/dgx-1-v100", None, 8)]


def test_filters_find_by_any_spelling(client: TestClient) -> None:
    found = all_items(client, "/measurements?model=meta-llama/Meta_Llama-3-8B-Instruct&gpu=a100,h100&framework=vLLM")
    assert found
    for item in found:
        assert item["model"] == "llama-3-8b"
        assert item["gpu"].startswith(("a100-", "h100-"))
        assert item["framework"] == "vllm"


def test_every_source_is_known_and_every_gpu(client: TestClient, items: list[Any]) -> None:
    gpus = {item["id"] for item in all_items(client, "/gpus")}
    models = {item["id"] for item in all_items(client, "/models")}
    assert {item["gpu"] for item in items} - {None} <= gpus
    assert {item["model"] for item in items} - {None} <= models


def test_order_and_unknown_last(client: TestClient) -> None:
    found = all_items(client, "/measurements?kind=train_throughput&framework=mxnet&sort=-value")
    values = [item["value"] for item in found]
    assert values == sorted(values, reverse=True)
    days = [item["measured_on"] for item in all_items(client, "/measurements?sort=measured_on&q=2017")]
    known = [day for day in days if day]
    assert days[: len(known)] == sorted(known)


def test_a_run_counts_once_it_was_certainly_published(client: TestClient) -> None:
    runs = all_items(client, "/measurements?as_of=2022-11-08&kind=train_throughput")
    # Of the sources of that year, one has a day, which is in March.
    assert {run["source"] for run in runs if run["year"] >= 2022} == {"runs-convnext-issue"}
    assert get_json(client, "/measurements?as_of=2022-11-08&q=mlperf-training-2.1")["total"] == 0
    assert get_json(client, "/measurements?as_of=2022-11-09&q=mlperf-training-2.1")["total"] > 50
    everybody = all_items(client, "/measurements?as_of=2022-12-31")
    assert max(item["year"] for item in everybody) == 2022
    named = [item for item in everybody if item["measured_on"]]
    assert all(date.fromisoformat(item["measured_on"]) <= date(2022, 12, 31) for item in named)


def test_only_the_rows_of_a_page_are_rendered(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalog may have a million measurements."""
    rendered = []

    def of(row: Any, catalog: Catalog) -> MeasurementResponse:
        rendered.append(row)
        return response_of(row, catalog)

    response_of = MeasurementResponse.of
    monkeypatch.setattr(MeasurementResponse, "of", of)
    for asked in ("sort=-value", "q=2017&sort=gpu", "gpu=a100,m60", "workload=alexnet_train"):
        rendered.clear()
        page = get_json(client, f"/measurements?limit=2&{asked}")
        assert page["total"] > 2
        assert [row.id for row in rendered] == [item["id"] for item in page["items"]]


def test_measurements_under_a_name_are_looked_up(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [
        item for item in all_items(client, "/measurements?kind=workload_throughput") if item["workload"] == "rnn_train"
    ]
    assert all_items(client, "/measurements?workload=RNN-train") == expected != []

    def read_all(_visible: VisibleMeasurements) -> None:
        raise AssertionError("all measurements are read")

    monkeypatch.setattr(VisibleMeasurements, "__iter__", read_all)
    assert all_items(client, "/measurements?workload=rnn_train") == expected


@pytest.mark.parametrize(
    ("target", "field", "near"),
    [
        ("/measurements?workload=rnn_trai", "workload", "rnn_train"),
        ("/measurements?model=lama-3-8b", "model", "llama-3-8b"),
        ("/measurements?gpu=t100", "gpu", "t4"),
        ("/measurements?kind=train", "kind", "train_time"),
        ("/measurements?framework=vlm", "framework", "vllm"),
        ("/measurements?sort=valu", "sort", "value"),
    ],
)
def test_an_unknown_word_is_answered_with_near_ones(client: TestClient, target: str, field: str, near: str) -> None:
    answer = client.get(target)
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert error["field"] == field
    assert near in error["near"]
