"""Samples of models that are not language models: their meaning, and the work that they take."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate

L4, L40S = "aws/g6.xlarge", "aws/g6e.xlarge"


def inference(client: TestClient, model: str, machine: str = L4, **workload: Any) -> dict[str, Any]:
    body = {"workload": {"task": "inference", "model": model, **workload}, "machine": machine}
    estimate: dict[str, Any] = post_estimate(client, body)["estimate"]
    return estimate


def rate(client: TestClient, model: str, machine: str = L4, **workload: Any) -> float:
    likely: float = inference(client, model, machine, **workload)["samples_per_second"]["likely"]
    return likely


def test_speech_is_read_by_the_encoder_and_written_by_the_decoder(client: TestClient) -> None:
    ten_thousand_hours = {"samples": 10_000 * 120}
    estimate = inference(client, "whisper-large-v3", amount=ten_thousand_hours)
    assert estimate["sample"].startswith("30 s of audio")
    assert 24 < estimate["hours"]["likely"] < 10 * 24
    fewer_words = inference(client, "whisper-large-v3", amount=ten_thousand_hours, output_length=10)
    assert fewer_words["hours"]["likely"] < estimate["hours"]["likely"]


@pytest.mark.parametrize(("model", "tokens"), [("bert-large", 512), ("vit-l-16", 197)])
def test_a_network_that_reads_has_the_length_of_its_positions(client: TestClient, model: str, tokens: int) -> None:
    assert rate(client, model) == rate(client, model, input_length=tokens)
    assert rate(client, model) < rate(client, model, input_length=1) / 10


def test_embeddings_are_counted_in_sequences(client: TestClient) -> None:
    estimate = inference(client, "bge-large-en-v1.5", input_length=256, amount={"tokens": 1e9})
    assert estimate["sample"] == "sequence of 256 tokens"
    seconds = estimate["hours"]["likely"] * 3600
    assert seconds * estimate["samples_per_second"]["likely"] == pytest.approx(1e9 / 256, rel=1e-3)


def test_a_denoising_step_of_flux_takes_about_a_second(client: TestClient) -> None:
    assert inference(client, "flux.1-dev", L40S)["sample"] == "denoising step of an image 1024x1024"
    assert 0.3 < rate(client, "flux.1-dev", L40S) < 3
    assert rate(client, "sdxl", L40S) > 5 * rate(client, "flux.1-dev", L40S)


@pytest.mark.parametrize("path", ["/estimate", "/recommend"])
def test_a_model_whose_work_is_unknown_is_refused(client: TestClient, path: str) -> None:
    body: dict[str, Any] = {"workload": {"task": "inference", "model": "waveglow"}}
    problem = client.post(path, json=body if path == "/recommend" else {**body, "machine": L4})
    assert problem.status_code == 422
    assert problem.json()["errors"][0]["field"] == "workload.model"
    assert "forward_flops_per_sample" in problem.json()["detail"]
