"""Models through the API: the list, names that mean one model, and figures that follow from dimensions."""

import json
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import all_items, get_json

RUNS = (
    "AlexNet", "BERT-base", "BERT-large", "Baichuan-7B", "CodeLlama-13B", "DeepSeek-Coder-33B", "DeepSeek-V3",
    "EfficientNet-B0", "Falcon-7B", "GPT-J-6B", "GPT-OSS-120B", "GPT3-175B", "GPT3-5B", "Gemma-2-2B", "LLaMA-13B",
    "LLaMA-65B", "LLaMA-7B", "Llama-2-13B", "Llama-2-70B", "Llama-2-7B", "Llama-3-70B", "Llama-3-8B",
    "Llama-3.1-405B", "Llama-3.2-3B", "Llama-4-Maverick", "Llama-4-Scout", "MCore-GPT-1.7B", "MCore-GPT-119B",
    "MCore-GPT-16B", "MCore-GPT-32B", "MCore-GPT-462B", "MCore-GPT-7.1B", "MCore-GPT-70B", "MLPerf-rnnt",
    "MLPerf-ssd", "MLPerf-stable_diffusion", "MLPerf-unet3d", "MPT-1.3B", "MPT-125m", "MPT-1b", "MPT-30b", "MPT-350m",
    "MPT-3b", "MPT-70b", "MPT-760m", "MPT-7B", "MPT-7b", "MT-NLG-530B", "Megatron-1.7B", "Megatron-1000B(KOR22)",
    "Megatron-175B(KOR22)", "Megatron-18.4B", "Megatron-3.6B", "Megatron-530B(KOR22)", "Megatron-7.5B", "Mistral-7B",
    "Mixtral-8x7B", "Nemotron-3-Nano-30B-A3B", "Nemotron-3-Super-120B", "Nemotron-3-Ultra-550B", "PaLM-540B",
    "Pythia-1.4B", "Pythia-12B", "Pythia-6.9B", "Pythia-70M", "Qwen2.5-7B", "Qwen3-30B-A3B", "ResNeXt101-32x4d",
    "ResNet-101", "ResNet-152", "ResNet-50", "SSD300-RN50", "TinyLlama-1.1B", "TransformerXL-large", "ViT-base-16",
    "bloomz-7b1", "generic-14B", "generic-70B", "gpt2-124M", "gpt2-xl", "mt0-xxl", "phi-1.5",
)  # fmt: skip
"""Names of models as published runs spell them."""


@pytest.fixture(scope="module")
def models(client: TestClient) -> list[Any]:
    return all_items(client, "/models")


def test_there_are_many_of_every_kind(models: list[Any]) -> None:
    families = {model["family"] for model in models}
    assert len(models) >= 100
    assert families >= {"llm", "moe", "hybrid_moe", "encoder", "enc_dec", "cnn", "vit", "diffusion", "speech"}


@pytest.mark.parametrize("name", RUNS)
def test_a_published_run_finds_its_model(client: TestClient, name: str) -> None:
    get_json(client, f"/models/{name}")


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        ("zai-org/GLM-4.5", 131_072),
        ("zai-org/GLM-4.6", 202_752),
        ("zai-org/GLM-4.7", 202_752),
        ("Qwen/Qwen3-235B-A22B", 40_960),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", 262_144),
        ("Qwen/Qwen3-30B-A3B", 40_960),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262_144),
    ],
)
def test_each_release_of_a_model_has_its_own_context(client: TestClient, asked: str, tokens: int) -> None:
    model = get_json(client, f"/models/{asked}")
    model = model["items"][0] if "items" in model else model
    assert model["dimensions"]["context_tokens"] == tokens


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("LLAMA_3.1 8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-24b"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("bert-base", "bert-base"),
        ("bert-large-uncased", "bert-large"),
        ("ViT-B/16", "vit-b-16"),
        ("resnet50", "resnet-50"),
        ("sdxl", "stable-diffusion-xl"),
        ("stable-diffusion-v1.5", "stable-diffusion-1.5"),
        ("Mask R-CNN", "mask-rcnn-resnet50-fpn"),
        ("faster-rcnn-resnet-50-fpn", "faster-rcnn-resnet50-fpn"),
        ("Qwen/Qwen-2.5-7B-Instruct", "qwen2.5-7b"),
    ],
)
def test_a_name_means_one_model(client: TestClient, asked: str, found: str) -> None:
    assert get_json(client, f"/models/{asked}")["id"] == found


@pytest.mark.parametrize(
    "name", ["dit-xl-2-1024", "mistral-small-instruct-2409", "llama-3.1-8b-2048", "llama-3-18b", "qwen25-7b"]
)
def test_a_number_that_is_no_date_is_part_of_the_name(client: TestClient, name: str) -> None:
    """DiT for images of 1024 pixels is another model than for 256, and Mistral Small of 2024-09 has 22 B."""
    assert client.get(f"/models/{name}").status_code == 404


def test_an_unknown_name_is_answered_with_near_ones(client: TestClient) -> None:
    answer = client.get("/models/lama-3.1-8b")
    assert answer.status_code == 404
    assert "llama-3.1-8b" in answer.json()["errors"][0]["near"]


def test_filters_and_order(client: TestClient) -> None:
    found = get_json(client, "/models?family=moe&min_parameters=1e11&max_parameters=3e11&sort=-parameters")["items"]
    sizes = [model["parameters"] for model in found]
    assert sizes == sorted(sizes, reverse=True)
    assert 1e11 <= sizes[-1] < sizes[0] <= 3e11
    assert {model["family"] for model in found} == {"moe"}


def test_words_must_all_be_in_a_name(client: TestClient) -> None:
    found = get_json(client, "/models?q=code%20llama&limit=500")["items"]
    assert {model["id"] for model in found} == {f"codellama-{size}" for size in ("7b", "13b", "34b", "70b")}


def test_unknown_days_come_last_whichever_way(client: TestClient) -> None:
    for sort in ("released_on", "-released_on"):
        days = [model["released_on"] for model in all_items(client, f"/models?sort={sort}")]
        known = [day for day in days if day is not None]
        assert days[: len(known)] == sorted(known, reverse=sort.startswith("-"))


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ("/models?family=robots", "family"),
        ("/models?sort=beauty", "sort"),
        ("/models?min_parameters=2&max_parameters=1", "min_parameters"),
        ("/models/gpt2?context_tokens=5000", "context_tokens"),
        ("/models/gpt2?context_tokens=0", "context_tokens"),
        ("/models/gpt2?contex_tokens=5", "contex_tokens"),
    ],
)
def test_what_cannot_be_asked_names_its_field(client: TestClient, target: str, field: str) -> None:
    answer = client.get(target)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_figures_of_llama(client: TestClient) -> None:
    model = get_json(client, "/models/llama-3.1-8b?context_tokens=8192")
    figures = model["computed"]
    assert figures["parameters"] == sum(figures["parameters_by_part"].values()) == model["parameters"]
    assert figures["kv_bytes_per_token_fp16"] == 131072
    assert figures["kv_cache_bytes_fp16"] == 8192 * 131072
    flops = figures["forward_flops_per_token"]
    assert flops["total"] == flops["matrix"] + flops["attention"]
    assert flops["attention"] == 4 * 8192 * 4096 * 32


def test_experts_are_counted_apart(client: TestClient) -> None:
    figures = get_json(client, "/models/deepseek-v3")["computed"]
    assert figures["parameters_by_part"]["experts"] > 0.95 * figures["parameters"]
    assert figures["active_parameters"] == pytest.approx(37.5e9, rel=0.01)
    assert figures["context_tokens"] == 2048


def test_a_network_that_is_no_transformer_has_its_flops(client: TestClient) -> None:
    model = get_json(client, "/models/resnet-50")
    assert model["forward_flops_per_sample"] == pytest.approx(8.18e9, rel=0.01)
    assert model["activation_values_per_sample"] == pytest.approx(11.1e6, rel=0.01)
    assert model["dimensions"] is None
    assert model["computed"] is None


def test_the_error_about_an_unknown_model_says_how_to_describe_it(client: TestClient) -> None:
    unknown_model = client.get("/models/fancynet-9000").json()
    assert unknown_model["detail"].endswith("by its dimensions, or by its parameters and forward_flops_per_sample.")
    unknown_gpu = client.get("/gpus/fancy-9000").json()
    assert "forward_flops" not in unknown_gpu["detail"]


def test_detectors_by_ultralytics_are_known_with_their_published_operations(client: TestClient) -> None:
    (largest, smallest) = (client.get(f"/models/{name}").json() for name in ("YOLOv8x", "yolov11n"))
    assert (largest["parameters"], largest["forward_flops_per_sample"]) == (68_200_000, 257.8e9)
    assert (smallest["id"], smallest["sample"]) == ("yolo11n", "image 640x640")


@pytest.mark.parametrize(
    "path", ["/models", "/gpus", "/prices?provider=lambda", "/instances?provider=aws", "/frameworks"]
)
def test_every_source_of_a_fact_is_listed(client: TestClient, path: str) -> None:
    listed = {each["id"]: each for each in all_items(client, "/sources")}
    assert listed["article-g3-2017"]["published_on"] == "2017-08-01"
    found = set(re.findall(r'"source": ?"([^"]+)"', json.dumps(all_items(client, path))))
    assert found
    assert found <= listed.keys()
