"""Warnings of training: images that CPUs prepare too slowly, encoders of images, and engines of inference."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate

MACHINE = {"gpu": "rtx-3090", "gpu_count": 4, "vcpus": 8}


def warned(client: TestClient, machine: str | dict[str, Any], **work: Any) -> dict[str, str]:
    body = {"workload": {"task": "training", "global_batch_size": 256, **work}, "machine": machine}
    return {each["code"]: each["text"] for each in post_estimate(client, body)["warnings"]}


@pytest.mark.parametrize("model", ["resnet-50", "vit-b-16"])
def test_a_network_that_trains_on_more_images_than_its_cpus_prepare_has_a_warning(
    client: TestClient, model: str
) -> None:
    """Pillow prepares 100 to 150 images per second and core; published runs had DALI or synthetic images."""
    warning = warned(client, MACHINE, model=model)["images_per_vcpu"]
    assert "its 8 vCPUs usually prepare 1,040. The estimate does not count this limit" in warning
    assert "images_per_vcpu" not in warned(client, MACHINE | {"vcpus": 96}, model=model)
    for host in ({"gpu_decoding": True}, {"cpu_samples_per_second_per_vcpu": 130}):
        assert "images_per_vcpu" not in warned(client, MACHINE, model=model, host=host)


def test_tpus_that_form_no_slice_are_joined_by_the_network(client: TestClient) -> None:
    work = {
        "task": "training", "model": "llama-3.1-8b", "amount": {"tokens": 1e10}, "sequence_length": 4096,
        "software": {"framework": "maxtext"},
    }  # fmt: skip
    rates = {}
    for nodes in (8, 10):
        body = {"workload": work, "machine": "gcp/ct6e-standard-4t", "nodes": nodes}
        rates[nodes] = client.post("/estimate", json=body).json()["estimate"]["samples_per_second"]["likely"]
    assert rates[10] < rates[8]
    constraints = {"instance": ["gcp/ct6e-standard-4t"], "max_nodes": 16}
    (choice,) = client.post("/recommend", json={"workload": work, "constraints": constraints}).json()["choices"]
    assert choice["nodes"] in (2, 4, 8, 16)


def test_training_of_a_model_without_images_needs_no_cpus_for_them(client: TestClient) -> None:
    assert "images_per_vcpu" not in warned(client, MACHINE, model="bert-base")


@pytest.mark.parametrize("engine", ["vllm", "tgi", "text-embeddings-inference"])
def test_an_engine_of_inference_does_not_train(client: TestClient, engine: str) -> None:
    work = {"model": "bge-m3", "sequence_length": 512, "software": {"engine": engine}}
    assert warned(client, "aws/g6e.xlarge", **work)["engine_of_inference"].startswith(f"{engine} is an engine for")
    assert "engine_of_inference" not in warned(client, "aws/g6e.xlarge", **work, task="inference")


@pytest.mark.parametrize("framework", ["pytorch", "deepspeed", "jax"])
def test_a_framework_trains(client: TestClient, framework: str) -> None:
    work = {"model": "bge-m3", "software": {"framework": framework}}
    assert "engine_of_inference" not in warned(client, "aws/g6e.xlarge", **work)


def test_training_of_a_model_that_reads_images_says_that_their_encoder_is_left_out(client: TestClient) -> None:
    """The encoder of Qwen2.5-VL 7B takes 5.18 GFLOPs per token of an image, its language model 2 per parameter."""
    work = {"method": "lora", "sequence_length": 2048}
    text = warned(client, "aws/p4d.24xlarge", model="qwen2.5-vl-7b", **work)["image_encoder_left_out"]
    assert "a token of an image takes 5.18 GFLOPs more, 37 % of those in the language model" in text
    assert "image_encoder_left_out" not in warned(client, "aws/p4d.24xlarge", model="qwen2.5-7b", **work)
    of_images = {"model": "qwen2.5-vl-7b", "sequence_length": 2048, "image_tokens": 1000}
    assert (
        warned(client, "aws/p4d.24xlarge", **of_images, method="lora")
        .keys()
        .isdisjoint({"image_encoder_left_out", "image_encoder_frozen"})
    )
    assert "image_encoder_frozen" in warned(client, "aws/p5.48xlarge", **of_images)
    assert "image_encoder_left_out" not in warned(client, "aws/p4d.24xlarge", model="qwen2.5-vl-7b", task="inference")
