"""Loads on models that write no tokens: embeddings, rerankers, images and detectors by requests per second."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate, post_recommend

L4 = "aws/g6.xlarge"


def work(model: str, serving: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"task": "inference", "model": model, "serving": serving, **fields}


def load(client: TestClient, model: str, machine: str = L4, **serving: Any) -> dict[str, Any]:
    found: dict[str, Any] = post_estimate(client, {"workload": work(model, serving), "machine": machine})["load"]
    return found


MODELS = ("bge-large-en-v1.5", "bge-reranker-v2-m3", "yolov8x", "resnet-50", "sdxl", "vit-l-16")


@pytest.mark.parametrize("model", MODELS)
def test_requests_in_flight_are_their_rate_times_their_seconds(client: TestClient, model: str) -> None:
    """Little's law, and no GPU does more than the batches of an amount of samples."""
    amount = {"task": "inference", "model": model, "amount": {"samples": 1e6}}
    most = post_estimate(client, {"workload": amount, "machine": L4})["estimate"]["samples_per_second"]["likely"]
    few, many = (
        load(client, model, requests_per_second=share * most, headroom=0, percentile=99) for share in (0.05, 3.5)
    )
    assert few["instances"] == 1
    assert few["seconds_per_request"] < many["seconds_per_request"]
    # Of 100 images, 95 find a GPU idle that is busy for a twentieth of the time: the 95th percentile is below the mean.
    assert few["concurrency"] < 0.05 * most * few["seconds_per_request"]
    assert many["instances"] >= 4
    assert many["utilisation"] <= 1


@pytest.mark.parametrize("model", MODELS)
def test_clients_that_wait_for_their_answers_share_a_batch(client: TestClient, model: str) -> None:
    clients = load(client, model, concurrency=1)
    assert clients["requests_per_second"] * clients["seconds_per_request"] == pytest.approx(1, rel=0.01)
    more = load(client, model, concurrency=32)
    assert more["requests_per_second"] >= clients["requests_per_second"] * 0.999


def test_clients_who_wait_for_a_whole_image_share_a_gpu(client: TestClient) -> None:
    """Twenty people within thirty seconds took twenty A100, one for each, where three of them answer in 24 seconds."""
    alone = load(client, "sdxl", concurrency=1)["seconds_per_request"]
    for turns, instances, of_the_last in ((20.5, 1, 20), (10.5, 2, 10), (9.5, 3, 7), (1.5, 20, 1)):
        found = load(client, "sdxl", concurrency=20, max_seconds_per_request=turns * alone)
        assert (found["instances"], found["concurrency"]) == (instances, 20)
        assert found["seconds_per_request"] == pytest.approx(of_the_last * alone, rel=1e-4)
        assert found["requests_per_second"] == pytest.approx(instances / alone, rel=1e-4)
    assert load(client, "sdxl", concurrency=20)["instances"] == 1
    assert load(client, "sdxl", concurrency=20, headroom=0.2)["instances"] == 20


def test_clients_who_outnumber_a_batch_wait_for_the_next_one(client: TestClient) -> None:
    """There are 128 places: 2 of 130 requests wait for a second batch, and 32 of 160 do."""
    few, some = (load(client, "bge-m3", concurrency=clients, percentile=95) for clients in (130, 160))
    batch = few["max_batch"] / few["requests_per_second"]
    assert few["seconds_per_request"] == pytest.approx(130 / 128 * batch, rel=1e-3)
    assert some["seconds_per_request"] == pytest.approx(2 * batch, rel=1e-3)


@pytest.mark.parametrize("model", MODELS)
def test_no_more_requests_run_than_are_in_flight(client: TestClient, model: str) -> None:
    """A GPU that is idle most of the time runs less than one request on average, in batches of at least one."""
    for asked in ({"requests_per_second": 0.01}, {"concurrency": 3, "min_replicas": 8}, {"requests_per_second": 5}):
        found = load(client, model, **asked)
        assert 0 < found["batch"] * found["replicas"] <= found["concurrency"] * 1.0001


def test_a_model_that_does_not_fit_serves_no_load(client: TestClient) -> None:
    """The tables of DLRM need 45 GiB. One L4 has 22: it used to serve the load at a price."""
    asked = {"workload": work("dlrm", {"requests_per_second": 1000}), "machine": L4}
    answer = post_estimate(client, asked)
    assert not answer["fits"]
    assert answer["load"] is None
    assert all(entry["month"] is None and "costs $" not in entry["text"] for entry in answer["cost"])
    assert post_estimate(client, {**asked, "machine": "aws/g7e.2xlarge"})["load"] is not None


def test_a_model_without_tokens_has_no_times_of_tokens(client: TestClient) -> None:
    found = load(client, "bge-large-en-v1.5", requests_per_second=20, input_length=256)
    for name in ("seconds_to_first_token", "seconds_per_output_token", "output_tokens_per_second"):
        assert found[name] is None
    assert 0.005 < found["seconds_per_request"] < 0.1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_seconds_to_first_token", 1),
        ("max_seconds_per_output_token", 0.05),
        ("output_length", 10),
        ("disaggregated", True),
        ("prefix_cache_hit_rate", 0.5),
        ("speculative_acceptance", 0.5),
    ],
)
def test_what_only_tokens_have_is_refused_with_the_limit_that_applies(
    client: TestClient, field: str, value: float
) -> None:
    serving = {"requests_per_second": 10, field: value}
    answer = client.post("/estimate", json={"workload": work("bge-m3", serving), "machine": L4})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == f"workload.serving.{field}"
    assert "max_seconds_per_request" in error["message"]


def test_a_limit_on_the_time_of_a_request_takes_more_instances(client: TestClient) -> None:
    free = load(client, "sdxl", "aws/g6e.xlarge", requests_per_second=0.5)
    limit = 0.9 * free["seconds_per_request"]
    limited = load(client, "sdxl", "aws/g6e.xlarge", requests_per_second=0.5, max_seconds_per_request=limit)
    assert limited["seconds_per_request"] <= limit
    assert limited["instances"] > free["instances"]


def test_a_recommendation_agrees_with_the_estimate_and_has_prices(client: TestClient) -> None:
    serving = {"requests_per_second": 500, "input_length": 256, "max_seconds_per_request": 0.2}
    asked = work("bge-large-en-v1.5", serving)
    limits = {"provider": "aws", "gpu": "L4"}
    answer = post_recommend(client, {"workload": asked, "constraints": limits, "limit": 1})
    choice, found = answer["choices"][0], answer["choices"][0]["serving"]
    machine = f"aws/{choice['instance']}"
    alone = post_estimate(client, {"workload": asked, "machine": machine})["load"]
    assert {name: found[name] for name in alone} == alone
    assert found["usd_per_million_output_tokens"] is None
    per_request = choice["usd_per_hour"] / (3600 * 500)
    assert found["usd_per_thousand_samples"]["likely"] == pytest.approx(1000 * per_request, rel=0.01)
    assert found["usd_per_million_input_tokens"]["likely"] == pytest.approx(1e6 / 256 * per_request, rel=0.01)
    assert answer["question"]["workload"]["serving"]["max_seconds_per_output_token"] is None
    assert "reading_speed" not in {each["code"] for each in answer["notes"]}


def test_images_one_at_a_time_wait_as_pollaczek_and_khinchin_say(client: TestClient) -> None:
    alone = load(client, "sdxl", concurrency=1)["seconds_per_request"]
    found = load(client, "sdxl", requests_per_second=0.8 / alone, headroom=0)
    assert found["instances"] == 1
    mean = found["concurrency"] / found["requests_per_second"]
    assert mean == pytest.approx(alone * (1 + 0.8 / (2 * 0.2)), rel=0.001)
    assert 2.2 * mean < found["seconds_per_request"] < 2.6 * mean


def test_a_load_without_a_limit_on_its_times_says_so(client: TestClient) -> None:
    def notes(**limit: Any) -> set[str]:
        asked = work("sdxl", {"requests_per_second": 0.5, **limit})
        return {each["code"] for each in post_recommend(client, {"workload": asked, "limit": 1})["notes"]}

    assert "no_time_limit" in notes()
    for limit in (30, None):
        assert "no_time_limit" not in notes(max_seconds_per_request=limit)


def test_no_number_of_instances_is_faster_than_a_batch_of_one(client: TestClient) -> None:
    serving = {"requests_per_second": 100, "input_length": 300, "max_seconds_per_request": 0.0005}
    answer = post_recommend(client, {"workload": work("bge-reranker-v2-m3", serving)})
    assert not answer["choices"]
    (rejection,) = (each for each in answer["rejections"] if each["code"] == "too_slow_per_request")
    least = rejection["relax"]["to"]["workload.serving.max_seconds_per_request"]
    serving["max_seconds_per_request"] = least
    assert post_recommend(client, {"workload": work("bge-reranker-v2-m3", serving), "limit": 1})["choices"]


@pytest.mark.parametrize(
    ("rate", "host", "warned"),
    [
        (100, {}, False),
        (700, {}, True),  # 4 vCPUs usually prepare 520 images per second
        (700, {"gpu_decoding": True}, False),
        (700, {"cpu_samples_per_second_per_vcpu": 500}, False),
    ],
)
def test_images_that_cpus_usually_prepare_too_slowly_are_stated(
    client: TestClient, rate: float, host: dict[str, Any], warned: bool
) -> None:
    asked = work("resnet-50", {"requests_per_second": rate}, software={"engine": "tensorrt"}, host=host)
    answer = post_estimate(client, {"workload": asked, "machine": "aws/g4dn.xlarge"})
    texts = [each["text"] for each in answer["warnings"] if each["code"] == "images_per_vcpu"]
    assert len(texts) == warned
    if warned:
        assert answer["load"]["instances"] == 1
        assert "read 700 images per second, and its 4 vCPUs usually prepare 520" in texts[0]


CHAT_WITH_IMAGES = {"image_tokens": 1200, "input_length": 1500, "output_length": 20, "software": {"engine": "vllm"}}


@pytest.mark.parametrize(
    ("model", "fields", "images_per_vcpu"),
    [("vit-l-16", {}, 30.0), ("qwen2.5-vl-7b", CHAT_WITH_IMAGES, 0.5)],
)
def test_a_load_takes_the_machines_whose_cpus_prepare_its_images(
    client: TestClient, model: str, fields: dict[str, Any], images_per_vcpu: float
) -> None:
    """By hand: 4 vCPUs prepare four times the images of one, of which a fifth stays free under a rate of arrivals."""
    fed, host = 4 * images_per_vcpu, {"host": {"cpu_samples_per_second_per_vcpu": images_per_vcpu}}
    for serving, instances, rate in (
        ({"requests_per_second": 3.9 * fed}, 5, 3.9 * fed),
        ({"requests_per_second": 3.9 * fed, "headroom": 0}, 4, 3.9 * fed),
        ({"concurrency": 60, "max_seconds_per_request": 15.5 / fed, "percentile": 50}, 4, 4 * fed),
    ):
        asked = work(model, serving, **fields, **host)
        answer = post_estimate(client, {"workload": asked, "machine": "aws/g6e.xlarge"})
        found = answer["load"]
        assert (found["instances"], found["requests_per_second"]) == (instances, pytest.approx(rate, rel=1e-3))
        assert found["utilisation"] == pytest.approx(rate / fed / instances, rel=1e-3)
        assert "host_bound" in {each["code"] for each in answer["warnings"]}
        if "concurrency" in serving:  # Little's law
            assert found["seconds_per_request"] == pytest.approx(60 / rate, rel=0.05)
        (choice,) = post_recommend(client, {"workload": asked, "constraints": {"instance": ["aws/g6e.xlarge"]}})[
            "choices"
        ]
        assert {key: choice["serving"][key] for key in found} == found
        free = post_estimate(client, {"workload": work(model, serving, **fields), "machine": "aws/g6e.xlarge"})
        assert free["load"]["instances"] < instances


def test_a_host_that_prepares_more_than_the_load_changes_nothing(client: TestClient) -> None:
    asked = work("vit-l-16", {"requests_per_second": 40}, host={"cpu_samples_per_second_per_vcpu": 30})
    answer = post_estimate(client, {"workload": asked, "machine": L4})
    free = load(client, "vit-l-16", requests_per_second=40)
    assert answer["load"] == free | {"utilisation": pytest.approx(40 / 120, rel=1e-3)}
    assert "host_bound" not in {each["code"] for each in answer["warnings"]}


def test_requests_that_wait_for_their_host_count_in_the_time_to_the_first_token(client: TestClient) -> None:
    """Little's law: 16 requests in flight at 2 a second take 8 seconds each."""
    asked = {"task": "inference", "model": "qwen2.5-vl-7b", "concurrency": 16, **CHAT_WITH_IMAGES}
    found = post_estimate(
        client, {"workload": {**asked, "host": {"cpu_samples_per_second_per_vcpu": 0.5}}, "machine": "aws/g6e.xlarge"}
    )["estimate"]
    seconds = found["seconds_to_first_token"]["likely"] + 19 * found["seconds_per_output_token"]["likely"]
    assert found["samples_per_second"]["likely"] * seconds == pytest.approx(16, rel=0.01)


def test_speech_has_the_lengths_of_its_audio(client: TestClient) -> None:
    """A request is 30 s of audio: 1,500 frames and about 100 tokens."""
    usual = load(client, "whisper-large-v3", requests_per_second=2)
    assert usual == load(client, "whisper-large-v3", requests_per_second=2, input_length=1500, output_length=100)


def test_the_config_of_a_known_speech_model_has_the_usual_answers_of_its_name(client: TestClient) -> None:
    """It was read as a model with one token of prompt and of answer. A config does not state the convolutions."""
    config = {
        "model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "vocab_size": 51866,
        "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120,
    }  # fmt: skip
    rates = [
        post_estimate(client, {"workload": {"task": "inference", "model": model, "concurrency": 8}, "machine": L4})
        for model in ("whisper-large-v3", {"huggingface_config": config})
    ]
    by_name, by_config = (answer["estimate"]["samples_per_second"]["likely"] for answer in rates)
    assert by_config == pytest.approx(by_name, rel=0.01)
    assert rates[1]["estimate"]["sample"] == "30 s of audio (1500 encoder tokens)"


@pytest.mark.parametrize("serving", [{"model": "bert-base", "input_length": 512}, {"model": "dinov2-large"}])
def test_an_encoder_reads_its_whole_context_and_writes_no_token(client: TestClient, serving: dict[str, Any]) -> None:
    load = {"requests_per_second": 10, **serving}
    asked = {"workload": work(load.pop("model"), load), "machine": L4}
    assert "beyond_context" not in {each["code"] for each in post_estimate(client, asked)["warnings"]}


@pytest.mark.parametrize("name", ["input_length", "output_length"])
def test_a_length_of_nothing_is_refused(client: TestClient, name: str) -> None:
    lengths = {"input_length": 100, "output_length": 100, name: 0}
    body = {"workload": work("llama-3.1-8b", {"requests_per_second": 1, **lengths}), "machine": L4}
    (error,) = client.post("/estimate", json=body).json()["errors"]
    assert (error["field"], error["message"]) == (
        f"workload.serving.{name}", f"A load has at least one token of {name}."
    )  # fmt: skip


def test_a_machine_without_a_gpu_is_asked_for_by_its_number_of_gpus(client: TestClient) -> None:
    asked = {"workload": work("bert-base", {"requests_per_second": 1}), "constraints": {"gpu_kind": ["cpu"]}}
    (error,) = client.post("/recommend", json=asked).json()["errors"]
    assert error["message"].endswith("Machines without a GPU have a `max_gpu_count` of 0.")


def test_a_gpu_that_no_machine_of_the_catalog_has_is_named(client: TestClient) -> None:
    load = work("bert-base", {"requests_per_second": 1})
    for gpu, without in (("gaudi3", True), ("l4", False)):
        notes = post_recommend(client, {"workload": load, "constraints": {"gpu": [gpu]}})["notes"]
        texts = [note["text"] for note in notes if note["code"] == "gpu_not_rented"]
        assert len(texts) == without
        assert all(text.startswith("No instance type of the catalog has gaudi3-128gb: ") for text in texts)


def test_a_transcript_is_not_read_while_it_is_written(client: TestClient) -> None:
    """Speech has no limit of readers, as its note says, and text has one."""
    for model, note in (("whisper-large-v3", "no_time_limit"), ("llama-3.1-8b", "reading_speed")):
        lengths = {} if note == "no_time_limit" else {"input_length": 1000, "output_length": 200}
        work = {"task": "inference", "model": model, "serving": {"requests_per_second": 2, **lengths}}
        answer = post_recommend(client, {"workload": work})
        assert note in {each["code"] for each in answer["notes"]} & {"no_time_limit", "reading_speed"}
        limit = answer["question"]["workload"]["serving"]["max_seconds_per_output_token"]
        assert (limit is None) == (note == "no_time_limit")


def test_an_engine_reads_more_requests_than_fit_at_once_in_several_passes(client: TestClient) -> None:
    """128 documents of 8,192 tokens in flight did not fit on an L4, which read them where no number was given."""

    def fits(requests: int | None, engine: str) -> bool:
        asked = {"task": "inference", "model": "bge-m3", "input_length": 8192, "software": {"engine": engine}}
        asked |= {} if requests is None else {"concurrency": requests}
        found: bool = post_estimate(client, {"workload": asked, "machine": L4})["fits"]
        return found

    for engine in ("text-embeddings-inference", "vllm"):
        assert all(fits(requests, engine) for requests in (None, 128, 1024))
    assert not fits(128, "sentence-transformers")


@pytest.mark.parametrize(
    ("model", "lengths", "text"),
    [
        ("llama-3.1-8b", {}, "to have 1 token of input and 1 token of output."),
        (
            "llama-3.1-8b",
            {"input_length": 500},
            "No `output_length` was given, so a sample is taken to have 1 token of",
        ),
        ("bge-m3", {}, "to have 2,048 tokens of input."),
        ("whisper-large-v3", {}, "to have 100 tokens of output. Published runs decide how many beams count:"),
        ("whisper-large-v3", {"output_length": 150}, None),
        ("llama-3.1-8b", {"input_length": 500, "output_length": 100}, None),
        ("sdxl", {}, None),
        ("vit-b-16", {}, None),
    ],
)
def test_lengths_that_are_assumed_are_stated(
    client: TestClient, model: str, lengths: dict[str, int], text: str | None
) -> None:
    """A million requests to an 8B model without lengths took 21 seconds, and no sentence said that they were empty."""
    asked = {"task": "inference", "model": model, "amount": {"samples": 1e6}, **lengths}
    notes = post_recommend(client, {"workload": asked, "limit": 1})["notes"]
    warnings = post_estimate(client, {"workload": asked, "machine": "aws/p5.48xlarge"})["warnings"]
    for statements in (notes, warnings):
        found = {each["code"]: each["text"] for each in statements}.get("lengths_assumed")
        assert (found is None) == (text is None)
        assert text is None or text in str(found)
