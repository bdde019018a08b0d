"""Warnings of training: images that CPUs prepare too slowly, encoders of images, and engines of inference."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate, post_recommend

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
    assert rates[10] / 10 < rates[8] / 8
    constraints = {"instance": ["gcp/ct6e-standard-4t"], "max_nodes": 16}
    (choice,) = client.post("/recommend", json={"workload": work, "constraints": constraints}).json()["choices"]
    assert choice["nodes"] in (2, 4, 8, 16)


def test_training_of_a_model_without_images_needs_no_cpus_for_them(client: TestClient) -> None:
    assert "images_per_vcpu" not in warned(client, MACHINE, model="bert-base")


@pytest.mark.parametrize("engine", ["vllm", "tgi", "text-embeddings-inference", "llama.cpp"])
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


@pytest.mark.parametrize(("batch", "warns"), [(4_194_304, True), (65_536, False)])
def test_a_batch_of_tokens_in_place_of_samples_is_a_warning(client: TestClient, batch: int, warns: bool) -> None:
    """The largest step of a published run has 134 million tokens: BERT with 1,048,576 samples of 128 tokens."""
    work = {
        "task": "training", "model": "llama-3.1-8b", "precision": ["bf16"], "sequence_length": 8192,
        "global_batch_size": batch, "software": {"framework": "megatron-lm"},
    }  # fmt: skip
    machine = {"gpu": "h100-sxm5-80gb", "gpu_count": 8}
    estimated = post_estimate(client, {"workload": work, "machine": machine, "nodes": 8})
    texts = [each["text"] for each in estimated["warnings"] if each["code"] == "step_very_large"]
    assert bool(texts) is warns
    if warns:
        assert "34,359,738,368 tokens" in texts[0]
        assert "134,217,728 (bert-large" in texts[0]
        constraints = {"gpu": ["h100-sxm5-80gb"], "min_gpu_count": 8, "min_nodes": 8}
        (choice,) = post_recommend(client, {"workload": work, "constraints": constraints, "limit": 1})["choices"]
        assert texts[0] in [each["text"] for each in choice["warnings"]]


@pytest.mark.parametrize(("batch", "runs", "warns"), [(131_072, 1, True), (32_768, 1, False), (32_768, 2, False)])
def test_an_amount_below_one_step_is_a_warning(client: TestClient, batch: int, runs: int, warns: bool) -> None:
    """100 million tokens in samples of 2,048 are 48,828 samples, and each of several runs has all of them."""
    work = {
        "task": "training", "model": "llama-3-8b", "method": "lora", "precision": ["bf16"], "sequence_length": 2048,
        "global_batch_size": batch, "amount": {"tokens": 1e8}, "concurrent_runs": runs,
    }  # fmt: skip
    answer = post_estimate(client, {"workload": work, "machine": "aws/p4d.24xlarge"})
    texts = [each["text"] for each in answer["warnings"] if each["code"] == "amount_below_step"]
    assert len(texts) == warns
    assert all("is 48,828 samples, and a step has 131,072" in text for text in texts)


def test_a_single_thread_is_what_prepares_too_few_samples(client: TestClient) -> None:
    host = {"cpu_samples_per_second_per_vcpu": 130, "single_threaded": True}
    alone = warned(client, "aws/g5.4xlarge", model="resnet-50", host=host)["host_bound"]
    assert "its single thread prepares only 130" in alone
    many = warned(client, "aws/g5.4xlarge", model="resnet-50", host={**host, "cpu_samples_per_second_per_vcpu": 8})
    assert "single thread prepares only 8" in many["host_bound"]
    several = warned(client, "aws/g5.4xlarge", model="resnet-50", host={"cpu_samples_per_second_per_vcpu": 8})
    assert "its 16 vCPUs prepare only 128" in several["host_bound"]


def test_runs_at_the_same_time_have_the_same_rate_and_hours_in_both_answers(client: TestClient) -> None:
    work = {
        "task": "training", "model": "bert-base", "precision": ["fp16"], "sequence_length": 128, "batch_size": 32,
        "amount": {"samples": 400_000, "epochs": 3}, "concurrent_runs": 5, "software": {"framework": "transformers"},
    }  # fmt: skip
    estimated = post_estimate(client, {"workload": work, "machine": "aws/g5g.xlarge", "market": "on_demand"})
    constraints = {"instance": ["g5g.xlarge"], "market": ["on_demand"], "max_instances": 5}
    (choice,) = post_recommend(client, {"workload": work, "constraints": constraints})["choices"]
    assert choice["instances"] == 5
    for name in ("samples_per_second", "tokens_per_second", "hours"):
        assert estimated["estimate"][name] == choice["estimate"][name]
    assert estimated["estimate"]["hours"]["likely"] == pytest.approx(estimated["cost"][0]["hours"]["likely"], rel=1e-3)


def test_a_host_with_less_than_the_workload_asks_for_has_the_warnings_of_a_choice(client: TestClient) -> None:
    resnet = {"model": "resnet-50", "precision": ["fp16"], "batch_size": 128, "software": {"framework": "pytorch"}}
    small = warned(client, "aws/g4dn.xlarge", **resnet, host={"memory_gib": 160})
    assert small["host_memory_small"] == "The host has 16 GiB of memory; the workload asks for 160 GiB."
    host = {"vcpus_per_gpu": 16, "samples_per_second": 1000, "cpu_samples_per_second_per_vcpu": 100, "memory_gib": 16}
    answer = warned(client, "aws/g4dn.xlarge", **resnet, host=host)
    work = {"task": "training", **resnet, "global_batch_size": 256, "host": host}
    constraints = {"instance": ["aws/g4dn.xlarge"]}
    (choice,) = post_recommend(client, {"workload": work, "constraints": constraints})["choices"]
    of_host = {each["code"]: each["text"] for each in choice["warnings"] if each["code"] in ("few_vcpus", "host_bound")}
    assert of_host
    assert of_host.items() <= answer.items()
    assert "host_memory_small" not in answer
    asked = warned(client, "aws/g4dn.xlarge", **resnet, host={"vcpus_per_gpu": 16})
    assert asked["few_vcpus"] == "It has 4 vCPUs per GPU; the workload asks for 16."
