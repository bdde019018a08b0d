"""Samples of models that are not language models: their meaning, and the work that they take."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import get_json, post_estimate, post_recommend

L4, L40S = "aws/g6.xlarge", "aws/g6e.xlarge"


def inference(client: TestClient, model: str | dict[str, Any], machine: str = L4, **workload: Any) -> dict[str, Any]:
    body = {"workload": {"task": "inference", "model": model, **workload}, "machine": machine}
    estimate: dict[str, Any] = post_estimate(client, body)["estimate"]
    return estimate


def rate(client: TestClient, model: str | dict[str, Any], machine: str = L4, **workload: Any) -> float:
    likely: float = inference(client, model, machine, **workload)["samples_per_second"]["likely"]
    return likely


@pytest.mark.parametrize(
    ("checkpointing", "least", "most"), [("none", 20.0, 24.0), ("selective", 12.0, 16.0), ("full", 9.0, 12.0)]
)
def test_lora_of_sdxl_takes_12_to_24_gb_by_its_checkpointing(
    client: TestClient, checkpointing: str, least: float, most: float
) -> None:
    """Guides to kohya's scripts state a card with 24 GB, and 11 to 12 GB with gradient checkpointing.

    Users of the scripts train without checkpointing on an RTX 3090 Ti and an RTX 4090, so it takes no more than 24 GB.
    The scripts hold the text encoders and the decoder of images too, which the estimate leaves out.
    """
    body = {
        "workload": {"task": "training", "model": "sdxl", "method": "lora", "precision": ["fp16"]},
        "machine": {"gpu": "a100-sxm4-80gb", "gpu_count": 1},
        "layout": {"micro_batch": 1, "activation_checkpointing": checkpointing},
    }
    needed = post_estimate(client, body)["estimate"]["memory"]["needed_gib_per_gpu"] * 1.0737
    encoders = get_json(client, "/models/sdxl")["other_parameters"] * 2 / 1e9
    assert least < needed + encoders < most


def test_a_diffusion_model_is_checkpointed_where_its_activations_do_not_fit(client: TestClient) -> None:
    work = {"task": "training", "model": "sdxl", "method": "lora", "precision": ["fp16"], "batch_size": 1}
    layouts = {
        gpu: post_estimate(client, {"workload": work, "machine": {"gpu": gpu, "gpu_count": 1}})["estimate"]["layout"]
        for gpu in ("a100-sxm4-80gb", "rtx-4090-24gb", "rtx-3060-12gb")
    }
    kinds = [layout["activation_checkpointing"] for layout in layouts.values()]
    assert kinds == ["none", "none", "full"]  # the last two as users of kohya's scripts train on these cards


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
    assert inference(client, "flux.1-dev", L40S)["sample"] == "image 1024x1024 in 28 steps"
    assert 0.3 < 28 * rate(client, "flux.1-dev", L40S) < 3
    assert rate(client, "sdxl", L40S) > 2 * rate(client, "flux.1-dev", L40S)


PUBLISHED_SECONDS = [
    ("sdxl", "a100-sxm4-80gb", 3.31),  # pytorch.org/blog/accelerating-generative-ai-3, 2024-01-03: bf16 and SDPA
    ("flux.1-dev", "h100-sxm5-80gb", 6.71),  # xDiT, docs/performance/flux.md: one GPU
    ("flux.1-dev", "l20-48gb", 24.85),  # cache-dit, docs/benchmark/HYBRID_CACHE.md: the baseline
]


@pytest.mark.parametrize(("model", "gpu", "seconds"), PUBLISHED_SECONDS)
def test_an_image_in_plain_pytorch_takes_about_its_published_seconds(
    client: TestClient, model: str, gpu: str, seconds: float
) -> None:
    work = {"task": "inference", "model": model, "precision": ["bf16"], "software": {"framework": "pytorch"}}
    per_second = post_estimate(client, {"workload": work, "machine": {"gpu": gpu}})["estimate"]["samples_per_second"]
    assert 1 / per_second["likely"] == pytest.approx(seconds, rel=0.35)
    assert per_second["low"] < 1 / seconds < per_second["high"]


def test_an_image_takes_its_steps_and_two_passes_each_with_guidance(client: TestClient) -> None:
    usual = rate(client, "sdxl", denoising_steps=30, guidance=True)
    assert rate(client, "sdxl") == usual
    # Text encoders and VAE work once, whatever the steps.
    assert 1.9 < rate(client, "sdxl", denoising_steps=15) / usual < 2.0
    assert 1.5 < rate(client, "sdxl", guidance=False) / usual < 2.0
    assert rate(client, "flux", L40S, guidance=True) < 0.6 * rate(client, "flux", L40S)


def test_a_million_images_take_months_of_one_gpu(client: TestClient) -> None:
    estimate = inference(client, "sdxl", L40S, amount={"samples": 1e6})
    assert estimate["sample"] == "image 1024x1024 in 30 steps"
    assert 30 * 24 < estimate["hours"]["likely"] < 300 * 24
    # 60 passes of 6 TFLOP at the peak of the GPU are a lower bound.
    assert estimate["hours"]["likely"] * 3600 > 1e6 * 60 * 5.98 / estimate["peak_tflops_per_gpu"]


def test_text_encoders_and_the_decoder_of_images_need_memory(client: TestClient) -> None:
    memory = inference(client, "flux", L40S, precision=["bf16"])["memory"]
    assert memory["parts"]["weights"] == pytest.approx((11.9e9 + 4.969e9) * 2 / 1024**3, rel=0.1)


def test_encoders_that_run_in_each_step_of_training_take_memory_and_time(client: TestClient) -> None:
    """SDXL has 901 million parameters besides the network that trains; LoRA passes twice through its 5.98 TFLOP."""
    work = {
        "task": "training",
        "model": "sdxl",
        "method": "lora",
        "batch_size": 1,
        "software": {"framework": "pytorch"},
    }
    ask = {"machine": L40S, "layout": {"activation_checkpointing": "none"}}
    before, within = (
        post_estimate(client, {"workload": {**work, "encoders_in_training": each}, **ask})["estimate"]
        for each in (False, True)
    )
    assert before == post_estimate(client, {"workload": work, **ask})["estimate"]
    weights = [each["memory"]["parts"]["weights"] for each in (before, within)]
    assert weights[1] - weights[0] == pytest.approx(901e6 * 2 / 1024**3, rel=0.1)
    matrix = [each["step_seconds"]["matrix"] for each in (before, within)]
    assert matrix[1] / matrix[0] == pytest.approx((2 * 5.98 + 10.75) / (2 * 5.98), rel=0.01)
    assert within["samples_per_second"]["likely"] < before["samples_per_second"]["likely"]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "resnet-50", "qwen2.5-vl-7b"])
def test_a_model_without_encoders_besides_its_network_refuses_them(client: TestClient, model: str) -> None:
    work = {"task": "training", "model": model, "encoders_in_training": True}
    problem = client.post("/estimate", json={"workload": work, "machine": L40S})
    assert problem.status_code == 422
    assert problem.json()["errors"][0]["field"] == "workload.encoders_in_training"


def test_hours_of_audio_are_an_amount_of_speech(client: TestClient) -> None:
    hours = inference(client, "whisper-large-v3", amount={"audio_hours": 10_000})["hours"]
    assert hours == inference(client, "whisper-large-v3", amount={"samples": 10_000 * 120})["hours"]


def test_the_question_of_an_answer_says_what_a_sample_is_and_can_be_sent_back(client: TestClient) -> None:
    work = {"task": "inference", "model": "sdxl", "amount": {"samples": 1e6}}
    answer = post_recommend(client, {"workload": work, "constraints": {"provider": ["aws"]}, "limit": 1})
    asked = answer["question"]
    assert asked["workload"]["sample"] == "image 1024x1024 in 30 steps"
    assert answer["choices"][0]["estimate"]["sample"] == asked["workload"]["sample"]
    assert post_recommend(client, asked)["choices"] == answer["choices"]


def test_images_of_another_size_are_asked_for_by_their_sample(client: TestClient) -> None:
    at_512 = inference(client, "flux.1-dev", L40S, sample="image 512x512")
    assert at_512["sample"] == "image 512x512 in 28 steps"
    assert rate(client, "flux.1-dev-512", L40S) == pytest.approx(at_512["samples_per_second"]["likely"], rel=0.05)
    assert at_512["samples_per_second"]["likely"] > 2.5 * rate(client, "flux.1-dev", L40S)
    in_words = inference(client, "flux.1-dev", L40S, sample=at_512["sample"])
    assert in_words == at_512
    assert rate(client, "yolov8n", sample="image 1280x1280") < rate(client, "yolov8n") / 2


def test_training_on_larger_images_takes_longer_and_more_memory(client: TestClient) -> None:
    def trained(sample: str) -> dict[str, Any]:
        work = {"task": "training", "model": "vit-b-16", "sample": sample, "batch_size": 64}
        body = {"workload": work, "machine": L4, "layout": {"activation_checkpointing": "none"}}
        estimate: dict[str, Any] = post_estimate(client, body)["estimate"]
        return estimate

    usual, larger = trained("image 224x224"), trained("image 384x384")
    assert 2.5 < usual["samples_per_second"]["likely"] / larger["samples_per_second"]["likely"] < 4
    assert larger["memory"]["parts"]["activations"] > 2.5 * usual["memory"]["parts"]["activations"]


@pytest.mark.parametrize(
    ("field", "work"),
    [
        ("workload.sample", {"model": "sam-vit-b", "sample": "image 512x512"}),
        ("workload.sample", {"model": "resnet-50", "sample": "image 0x0"}),
        ("workload.sample", {"model": "resnet-50", "sample": "image 99999x99999x99999"}),
        ("workload.sample", {"model": "wan2.1-t2v-14b", "sample": "video 99999x99999 of 99999 frames"}),
        ("workload.sample", {"model": "sdxl", "sample": "image 512x512 in 7 steps"}),
        ("workload.sample", {"model": "llama-3.1-8b", "sample": "image 512x512"}),
        ("workload.denoising_steps", {"model": "llama-3.1-8b", "denoising_steps": 20}),
        ("workload.guidance", {"model": "resnet-50", "guidance": True}),
        ("workload.amount.audio_hours", {"model": "sdxl", "amount": {"audio_hours": 1}}),
        ("workload.amount.audio_hours", {"amount": {"audio_hours": 1}, "name": "alexnet_train"}),
        ("workload.sample", {"model": "sdxl", "sample": "denoising step"}),
    ],
)
def test_what_a_model_does_not_have_is_refused(client: TestClient, field: str, work: dict[str, Any]) -> None:
    problem = client.post("/recommend", json={"workload": {"task": "inference", **work}})
    assert problem.status_code == 422
    assert problem.json()["errors"][0]["field"] == field


@pytest.mark.parametrize("path", ["/estimate", "/recommend"])
def test_a_model_whose_work_is_unknown_is_refused(client: TestClient, path: str) -> None:
    body: dict[str, Any] = {"workload": {"task": "inference", "model": "waveglow"}}
    problem = client.post(path, json=body if path == "/recommend" else {**body, "machine": L4})
    assert problem.status_code == 422
    assert problem.json()["errors"][0]["field"] == "workload.model"
    assert "forward_flops_per_sample" in problem.json()["detail"]


@pytest.mark.parametrize("gpus", [1, 8])
def test_the_samples_in_flight_are_those_of_all_gpus(client: TestClient, gpus: int) -> None:
    """Each GPU passes over the samples that are asked for. The answer had those of one GPU, and the rate of all."""
    machine = {"gpu": "h100-sxm5-80gb", "gpu_count": gpus}
    work = {"task": "inference", "model": "resnet-50", "software": {"engine": "tensorrt"}, "concurrency": 16}
    found = post_estimate(client, {"workload": work, "machine": machine})["estimate"]
    assert found["concurrency"] == 16 * gpus
    in_flight = found["samples_per_second"]["likely"] * sum(found["step_seconds"].values())
    assert in_flight == pytest.approx(16 * gpus, rel=0.1)


def test_recordings_of_a_speech_model_that_states_their_length_are_counted_in_hours(client: TestClient) -> None:
    hours = inference(client, "rnnt", amount={"audio_hours": 100})["hours"]
    assert hours == inference(client, "rnnt", amount={"samples": 100 * 3600 / 12})["hours"]


def test_a_recurrent_network_learns_from_thousands_of_tokens_in_a_step(client: TestClient) -> None:
    """NVIDIA's GNMT on eight V100 reads 387,282 tokens/s, half of them targets; with 128 in a step it was 34,004."""
    work = {"task": "training", "model": "gnmt", "precision": ["fp16"], "software": {"framework": "pytorch"}}
    found = post_estimate(client, {"workload": work, "machine": "aws/p3.16xlarge"})["estimate"]
    assert 0.5 < found["samples_per_second"]["likely"] / (387_282 / 2) < 2


@pytest.mark.parametrize(
    ("model", "one_epoch", "whole"),
    [
        ("llama-3-8b", {"tokens": 5e7, "epochs": 3}, {"tokens": 15e7}),
        ("llama-3-8b", {"samples": 1000, "epochs": 3}, {"samples": 3000}),
        ("whisper-small", {"audio_hours": 10, "epochs": 2}, {"audio_hours": 20}),
    ],
)
def test_epochs_multiply_the_work_of_one_of_them_in_every_unit(
    client: TestClient, model: str, one_epoch: dict[str, float], whole: dict[str, float]
) -> None:
    def hours(amount: dict[str, float]) -> Any:
        work = {"task": "training", "model": model, "method": "lora", "amount": amount}
        return post_estimate(client, {"workload": work, "machine": "aws/g5.12xlarge"})["estimate"]["hours"]

    assert hours(one_epoch) == hours(whole)


CLIP_VIT_H_14 = {
    "model_type": "clip", "projection_dim": 1024,
    "text_config": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096},
    "vision_config": {"hidden_size": 1280, "num_hidden_layers": 32, "num_attention_heads": 16,
                      "intermediate_size": 5120, "patch_size": 14},
}  # fmt: skip


@pytest.mark.parametrize("model", ["clip-vit-h-14", {"huggingface_config": CLIP_VIT_H_14}], ids=["named", "pasted"])
def test_layers_of_encoders_can_be_computed_again(client: TestClient, model: Any) -> None:
    """OpenCLIP trained ViT-H/14 with 96 pairs per A100 of 40 GB, and computed activations again."""
    work = {"task": "training", "model": model, "precision": ["fp16"], "batch_size": 96}
    body = {"workload": work, "machine": "aws/p4d.24xlarge", "nodes": 103}
    answer = post_estimate(client, body)
    assert answer["fits"]
    assert answer["estimate"]["layout"]["activation_checkpointing"] != "none"
    kept = post_estimate(client, {**body, "layout": {"activation_checkpointing": "none"}})
    assert kept["estimate"]["memory"]["fit_probability"] < 0.9


WHISPER_SMALL = {
    "model_type": "whisper", "d_model": 768, "vocab_size": 51865, "encoder_layers": 12, "decoder_layers": 12,
    "encoder_attention_heads": 12, "decoder_attention_heads": 12, "decoder_ffn_dim": 3072,
}  # fmt: skip


@pytest.mark.parametrize("task", ["training", "inference"])
def test_a_config_of_whisper_reads_audio_as_its_name_does(client: TestClient, task: str) -> None:
    def estimate(model: Any) -> Any:
        work = {"task": task, "model": model, "amount": {"audio_hours": 100}, "precision": ["fp16"]}
        return post_estimate(client, {"workload": work, "machine": "aws/g5.xlarge"})["estimate"]

    named, pasted = estimate("whisper-small"), estimate({"huggingface_config": WHISPER_SMALL})
    assert pasted["sample"] == named["sample"]
    for figure in ("hours", "samples_per_second"):
        assert pasted[figure]["likely"] == pytest.approx(named[figure]["likely"], rel=0.01)


def test_hours_on_a_machine_are_the_work_that_it_does_in_them(client: TestClient) -> None:
    """Thirty hours on a p3.8xlarge take thirty hours there, and fewer on eight A100."""
    amount = {"hours_on": {"instance": "p3.8xlarge", "hours": 30}}
    work = {"task": "training", "model": "resnet-50", "precision": ["fp16"], "global_batch_size": 1024}

    def hours(machine: str, amount: dict[str, Any]) -> float:
        body = {"workload": {**work, "amount": amount}, "machine": machine}
        likely: float = post_estimate(client, body)["estimate"]["hours"]["likely"]
        return likely

    assert hours("aws/p3.8xlarge", amount) == pytest.approx(30)
    assert 1.5 < 30 / hours("aws/p4d.24xlarge", amount) < 8
    body = {"workload": {**work, "amount": amount}, "constraints": {"instance": ["aws/p4d.24xlarge"]}}
    answer = post_recommend(client, body)
    assert answer["choices"][0]["estimate"]["hours"]["likely"] == pytest.approx(hours("aws/p4d.24xlarge", amount))
    assert "no_amount" not in {note["code"] for note in answer["notes"]}


def test_hours_on_a_machine_that_does_not_run_the_job_are_of_no_known_work(client: TestClient) -> None:
    amount = {"hours_on": {"instance": "aws/g4dn.xlarge", "hours": 30}}
    work = {"task": "training", "model": "llama-3-8b", "precision": ["bf16"], "amount": amount}
    answer = post_recommend(client, {"workload": work})
    texts = {note["code"]: note["text"] for note in answer["notes"]}
    assert texts["no_amount"].startswith("The work of the given hours is unknown")
    assert answer["choices"][0]["estimate"]["hours"] is None


def test_padding_is_no_work_of_a_training_sample(client: TestClient) -> None:
    """Samples of a quarter of the padded length have counted four times the FLOPs, beyond the peak of the GPU."""
    work = {"task": "training", "model": "llama-3.1-8b", "precision": ["bf16"], "sequence_length": 4096}
    body = {"workload": {**work, "mean_length": 1024}, "machine": {"gpu": "a100-sxm4-80gb", "gpu_count": 8}}
    found = post_estimate(client, body)["estimate"]
    assert found["model_tflops_per_gpu"] < found["peak_tflops_per_gpu"]


EFFICIENTNET = {"family": "cnn", "parameters": 19.3e6, "forward_flops_per_sample": 8.79e9}


def test_a_described_network_that_is_known_writes_as_many_values_as_under_its_name(client: TestClient) -> None:
    """EfficientNet-B4 writes 4.2 times as many values per FLOP as ResNet-50, and was 3.4 times as fast as described."""
    assert rate(client, EFFICIENTNET) == pytest.approx(rate(client, "efficientnet-b4"), rel=0.02)


def test_the_values_that_a_described_network_writes_can_be_sent(client: TestClient) -> None:
    """Without them, a warning says that they are not known."""
    unlike_any = {**EFFICIENTNET, "parameters": 18e6}
    counted = {**unlike_any, "activation_values_per_sample": 49.5e6}
    assert rate(client, counted) == pytest.approx(rate(client, "efficientnet-b4"), rel=0.1)
    assert rate(client, unlike_any) > 2 * rate(client, counted)
    for model in (unlike_any, counted):
        body = {"workload": {"task": "inference", "model": model}, "machine": L4}
        codes = {warning["code"] for warning in post_estimate(client, body)["warnings"]}
        assert ("values_assumed" in codes) == (model is unlike_any)


@pytest.mark.parametrize("slip", [{"parameters": 25.6}, {"forward_flops_per_sample": 8.2}])
def test_counts_in_billions_are_refused(client: TestClient, slip: dict[str, float]) -> None:
    """A network of 25.6 parameters was answered as one."""
    model = {"family": "cnn", "parameters": 25.6e6, "forward_flops_per_sample": 8.2e9, **slip}
    body = {"workload": {"task": "training", "model": model}, "machine": "aws/g6e.xlarge"}
    (error,) = client.post("/estimate", json=body).json()["errors"]
    assert error["field"].endswith(next(iter(slip)))
    assert error["message"].endswith("should be at least 1,000.")


@pytest.mark.parametrize("count", ["forward_flops_per_sample", "activation_values_per_sample"])
def test_counts_next_to_the_dimensions_of_a_transformer_are_refused(client: TestClient, count: str) -> None:
    """They were ignored without a word."""
    model = {"family": "vit", "layers": 12, "hidden": 768, "heads": 12, "context_tokens": 197, count: 3.5e10}
    answer = client.post("/estimate", json={"workload": {"task": "inference", "model": model}, "machine": L4})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"workload.model.{count}"


def test_a_described_diffusion_model_takes_as_many_steps_as_asked(client: TestClient) -> None:
    """Its steps were refused, so that only a single pass could be estimated."""
    model = {"family": "diffusion", "parameters": 860e6, "forward_flops_per_sample": 8e11}
    one_pass = rate(client, model, concurrency=8)
    steps = rate(client, model, concurrency=8, denoising_steps=50, guidance=False)
    assert steps == pytest.approx(one_pass / 50, rel=0.2)
    assert rate(client, model, concurrency=8, denoising_steps=50) == pytest.approx(steps / 2, rel=0.2)


def test_other_steps_in_the_words_of_a_sample_are_a_field_of_their_own(client: TestClient) -> None:
    """The refusal asked for another size in this form, which the question had."""
    work = {"task": "inference", "model": "sdxl", "sample": "image 512x512 in 4 steps"}
    answer = client.post("/estimate", json={"workload": work, "machine": L4})
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith("Send other steps as denoising_steps.")
    assert inference(client, "sdxl", sample=work["sample"], denoising_steps=4)["sample"] == work["sample"]


def test_a_sample_of_a_described_network_is_what_its_flops_count(client: TestClient) -> None:
    work = {"task": "training", "model": EFFICIENTNET | {"parameters": 18e6}, "sample": "image 512x512"}
    answer = client.post("/estimate", json={"workload": work, "machine": L4})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("A sample of custom is what its forward_flops_per_sample count.")
