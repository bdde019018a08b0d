"""Single instance types explained, hosts that the caller describes, and nodes without a model."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

DAY = "2022-02-17"


def answer(client: TestClient, **question: Any) -> dict[str, Any]:
    answer = client.post("/recommend", json={"workload": {"task": "training"}, "as_of": DAY, **question})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_rejected_type_is_explained_by_every_constraint_that_it_fails(client: TestClient) -> None:
    limits = {"provider": ["aws"], "min_gpu_memory_gb": 20, "cpu_architecture": ["arm64"]}
    explained = answer(client, constraints=limits, explain=["g4dn.xlarge", "aws/g5.xlarge"])["explained"]
    codes = {each["instance"]: {ground["code"] for ground in each["grounds"]} for each in explained}
    assert codes == {
        "aws/g4dn.xlarge": {"min_gpu_memory_gb", "cpu_architecture"},
        "aws/g5.xlarge": {"cpu_architecture"},
    }
    assert not any(each["admitted"] for each in explained)


def test_a_type_without_a_ground_is_admitted(client: TestClient) -> None:
    (explained,) = answer(client, explain=["g5.xlarge"])["explained"]
    assert explained == {"instance": "aws/g5.xlarge", "admitted": True, "grounds": []}


def test_a_rejection_names_types_that_it_rejects(client: TestClient) -> None:
    rejections = answer(client, constraints={"family": ["g5"], "min_gpu_count": 4})["rejections"]
    named = next(each for each in rejections if each["code"] == "min_gpu_count")["instances"]
    assert 1 <= len(named) <= 3
    assert all(name.startswith("aws/g5.") for name in named)


@pytest.mark.parametrize("count", [1, 4])
def test_hosts_grow_with_their_gpus_only_where_they_are_unknown(client: TestClient, count: int) -> None:
    only = {"min_gpu_count": count, "max_gpu_count": count}
    host = {"vcpus": 15, "memory_gib": 80}
    unknown = answer(client, constraints={"provider": ["autodl"], **only}, host_per_gpu=host, as_of="2022-03-04")
    assert {each["specs"]["memory_gib"] for each in unknown["choices"]} == {80 * count}
    known = answer(client, constraints={"instance": ["g4dn.xlarge", "g4dn.12xlarge"], **only}, host_per_gpu=host)
    assert known["choices"][0]["specs"]["memory_gib"] == {1: 16, 4: 192}[count]


def test_nodes_without_a_model_multiply_price_and_peak(client: TestClient) -> None:
    one = answer(client, constraints={"instance": ["p4d.24xlarge"]})["choices"][0]
    four = answer(client, constraints={"instance": ["p4d.24xlarge"], "min_nodes": 4, "max_nodes": 4})["choices"][0]
    assert four["nodes"] == 4
    assert four["usd_per_hour"] == pytest.approx(4 * one["usd_per_hour"], abs=0.01)
    assert four["estimate"]["peak_tflops"] == 4 * one["estimate"]["peak_tflops"]
    per_dollar = "peak_tflops_per_usd_hour"
    assert four["estimate"][per_dollar] == pytest.approx(one["estimate"][per_dollar], rel=1e-4)
    assert four["placement"]["together"]
