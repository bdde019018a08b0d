"""A word that a filter does not have is answered with the words that it means."""

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import all_items


@pytest.mark.parametrize(
    ("name", "word", "near"),
    [
        ("gpu_vendor", "habana", ["intel"]),
        ("platform", "habana", ["synapse"]),
        ("framework", "habana", ["synapse"]),
        ("framework", "jetstream", ["xla", "vllm"]),
        ("architecture", "sm_90", ["hopper"]),
        ("architecture", "gfx942", ["cdna-3"]),
        ("market", "preemptible", ["spot"]),
        ("market", "1y", ["1y_committed_use", "1y_reserved_all_upfront", "1y_reserved_no_upfront"]),
        ("continent", "EU", ["europe"]),
        # Names of GPUs: the words that their GPUs have.
        ("platform", "tpu", ["xla"]),
        ("platform", "gaudi", ["synapse"]),
        ("platform", "h100", ["cuda"]),
        ("gpu_vendor", "mi300x", ["amd"]),
        ("architecture", "a100", ["ampere"]),
        ("gpu_kind", "gaudi", ["npu"]),
        # Neither.
        ("gpu_vendor", "nvida", ["nvidia"]),
        ("platform", "abacus", []),
    ],
)
def test_a_filter_knows_what_a_word_means(client: TestClient, name: str, word: str, near: list[str]) -> None:
    answer = client.get(f"/instances?{name}={word}")
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["near"]) == (name, near)
    assert all(each in error["message"] for each in near)


@pytest.mark.parametrize(
    ("method", "near"), [("dora", ["lora"]), ("galore", ["full"]), ("prefix", ["adapters"]), ("abacus", [])]
)
def test_methods_of_trainers_are_answered_with_the_method_that_counts_as_theirs(
    client: TestClient, method: str, near: list[str]
) -> None:
    answer = client.post("/recommend", json={"workload": {"task": "training", "method": method}})
    (error,) = answer.json()["errors"]
    assert (error["field"], error["near"]) == ("workload.method", near)


def test_a_word_with_a_meaning_elsewhere_gets_no_field_that_only_looks_like_it(client: TestClient) -> None:
    """Recomputation is a part of the layout; workload.checkpoint is how a run saves and resumes."""
    work = {"task": "training", "model": "llama-3-8b", "gradient_checkpointing": True}
    of_recommend = client.post("/recommend", json={"workload": work})
    of_estimate = client.post("/estimate", json={"workload": work, "machine": "aws/p4d.24xlarge"})
    near = [answer.json()["errors"][0]["near"] for answer in (of_recommend, of_estimate)]
    assert near == [["constraints.layout.activation_checkpointing"], ["layout.activation_checkpointing"]]


def test_a_program_with_rules_of_its_own_is_no_other_name_of_what_it_runs_in(client: TestClient) -> None:
    aliases = {each["id"]: set(each["aliases"]) for each in all_items(client, "/frameworks")}
    assert {"kohya", "sd-scripts"} <= aliases["kohya-ss"]
    assert not {"kohya", "kohya-ss", "detectron2", "mmdetection", "mmdet", "pytorch-lightning"} & aliases["pytorch"]
