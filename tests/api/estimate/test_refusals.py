"""Questions that contradict themselves, and names that are not known, are refused with what would be right."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate

EIGHT_H100 = {"gpu": "h100-sxm5-80gb", "gpu_count": 8}
LLAMA = {"task": "training", "model": "llama-3.1-8b", "software": {"framework": "megatron-lm"}}


def error_of(client: TestClient, body: dict[str, Any]) -> Any:
    answer = client.post("/estimate", json=body)
    assert answer.status_code == 422, answer.text
    return answer.json()["errors"][0]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("vast/rtx-4090", "vast/1x-RTX_4090-32-65536"),
        ("autodl/3090", "autodl/rtx-3090x1"),
        ("lambda/a100", "lambda/gpu_1x_a100"),
        ("runpod/H100 SXM", "runpod/1x_H100-80GB-HBM3_COMMUNITY"),
        ("AWS/H100", "aws/p5.4xlarge"),
        ("gcp/l4", "gcp/g2-standard-4"),
    ],
)
def test_the_name_of_a_gpu_leads_to_the_smallest_machines_of_the_seller_with_it(
    client: TestClient, name: str, near: str
) -> None:
    assert error_of(client, {"hours": 1, "machine": name})["near"][0] == near


@pytest.mark.parametrize(
    ("field", "name", "near"),
    [
        ("weight_precision", "q4_k", "q4_k_m"),
        ("weight_precision", "iq3", "iq3_m"),
        ("weight_precision", "awqq", "awq"),
        ("kv_cache_precision", "fp8_e4m", "fp8_e4m3"),
    ],
)
def test_near_names_of_a_format_are_among_all_that_its_field_takes(
    client: TestClient, field: str, name: str, near: str
) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", field: name}
    error = error_of(client, {"workload": work, "machine": EIGHT_H100})
    assert near in error["near"]
    post_estimate(client, {"workload": {**work, field: near}, "machine": EIGHT_H100})


def test_all_formats_of_weights_are_listed_where_none_is_near(client: TestClient) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "weight_precision": "zzz"}
    message = error_of(client, {"workload": work, "machine": EIGHT_H100})["message"]
    assert {"awq", "q4_k_m", "nf4"} <= set(message.partition("Known: ")[2].partition(". ")[0].split(", "))


@pytest.mark.parametrize(
    ("layout", "batch", "says"),
    [
        ({"virtual_stages": 4}, {}, "needs a pipeline of at least two stages"),
        ({"virtual_stages": 4, "pipeline": 1}, {}, "needs a pipeline of at least two stages"),
        ({"data": 8, "micro_batch": 48}, {"global_batch_size": 64}, "have 384 samples, more than the 64"),
        ({"micro_batch": 65}, {"global_batch_size": 64}, "Micro-batches of 65 are more than the 64"),
    ],
)
def test_a_layout_whose_parts_contradict_each_other_is_refused(
    client: TestClient, layout: dict[str, int], batch: dict[str, int], says: str
) -> None:
    error = error_of(client, {"workload": {**LLAMA, **batch}, "machine": EIGHT_H100, "layout": layout})
    assert error["field"] == "layout"
    assert says in error["message"]


@pytest.mark.parametrize("layout", [{"virtual_stages": 4, "pipeline": 2}, {"data": 8, "micro_batch": 8}])
def test_a_layout_whose_parts_agree_is_taken(client: TestClient, layout: dict[str, int]) -> None:
    answer = post_estimate(
        client, {"workload": {**LLAMA, "global_batch_size": 64}, "machine": EIGHT_H100, "layout": layout}
    )
    assert layout.items() <= answer["estimate"]["layout"].items()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("H100", "is a GPU."),
        ("h100-sxm5-80gb", "is a GPU."),
        ("8xH100", "names GPUs."),
        ("8 x a100", "names GPUs."),
    ],
)
def test_the_name_of_a_gpu_is_no_machine(client: TestClient, name: str, says: str) -> None:
    """One seller has a machine called H100, which a caller who names the GPU hardly means."""
    error = error_of(client, {"hours": 1, "machine": name})
    assert error["message"].startswith(f"'{name}' {says} Describe a machine with it, as an object")
    body = {"workload": {"task": "training"}, "current_instance": name}
    answer = client.post("/recommend", json=body)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "current_instance"
    assert error["message"].startswith(f"'{name}' {says} Name the machine of a seller")


def test_near_names_of_machines_can_be_sent(client: TestClient) -> None:
    """A machine that is called as its GPU is named with its seller."""
    for near in error_of(client, {"hours": 1, "machine": "dgx h100"})["near"]:
        assert post_estimate(client, {"hours": 1, "machine": near})


@pytest.mark.parametrize("name", ["azure-ml", "AzureML", "azure_ml"])
def test_a_managed_service_is_found_by_its_initials(client: TestClient, name: str) -> None:
    machine = "azure/Standard_ND96isr_H100_v5"
    error = error_of(client, {"hours": 1, "machine": machine, "managed_service": name})
    assert error["near"] == ["azure-machine-learning"]


def test_the_longest_answer_is_no_shorter_than_the_mean(client: TestClient) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "output_length": 200, "longest_output_length": 100}
    error = error_of(client, {"workload": work, "machine": EIGHT_H100})
    assert error["field"] == "workload.longest_output_length"
    assert post_estimate(client, {"workload": {**work, "longest_output_length": 200}, "machine": EIGHT_H100})
