"""Loads on one machine: prefix caches and drafts change the work of an engine as their formulas say."""

from math import sqrt
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate


def answer_to(client: TestClient, **load: Any) -> Any:
    work = {"task": "inference", "model": "llama-3.1-8b", "precision": ["bf16"], "software": {"engine": "vllm"}}
    serving = {"input_length": 2000, "output_length": 300, "percentile": 50, **load}
    return post_estimate(client, {"workload": {**work, "serving": serving}, "machine": {"gpu": "h100-sxm5-80gb"}})


def load(client: TestClient, **asked: Any) -> Any:
    return answer_to(client, **asked)["load"]


LOADS = ({"concurrency": 1}, {"concurrency": 200}, {"requests_per_second": 10})


@pytest.mark.parametrize("asked", LOADS)
def test_no_hits_and_no_acceptance_are_no_prefix_cache_and_no_drafts(client: TestClient, asked: dict[str, Any]) -> None:
    none = {"prefix_cache_hit_rate": 0.0, "speculative_acceptance": 0.0, "draft_length": None, "draft_cost": None}
    plain, with_none = answer_to(client, **asked), answer_to(client, **asked, **none)
    assert with_none["load"] == plain["load"]
    assert with_none["estimate"] == plain["estimate"]


@pytest.mark.parametrize("asked", LOADS)
def test_hits_in_the_prefix_cache_save_reading_and_room(client: TestClient, asked: dict[str, Any]) -> None:
    plain, half, most = (load(client, **asked, prefix_cache_hit_rate=hits) for hits in (0.0, 0.5, 0.9))
    for less, more in ((plain, half), (half, most)):
        # Fewer instances, which each serve more clients, may take longer.
        of_more, of_less = ((each["instances"], each["seconds_to_first_token"]) for each in (more, less))
        assert of_more < of_less
    room = tokens_held(plain["max_batch"], 2000)
    assert tokens_held(half["max_batch"], 1000) == pytest.approx(room, rel=0.02)
    # There is room for more, but vLLM runs at most 1,024 at once.
    assert most["max_batch"] == 1024
    assert tokens_held(1024, 200) < room


@pytest.mark.parametrize("asked", LOADS)
def test_earlier_turns_of_a_conversation_save_reading_and_no_room(client: TestClient, asked: dict[str, Any]) -> None:
    """An agent with 0.9 of its prompt in the cache reads as little as with a common prompt, and has room for as few."""
    plain, common, own = (
        load(client, **asked, **hits)
        for hits in ({}, {"prefix_cache_hit_rate": 0.9}, {"conversation_cache_hit_rate": 0.9})
    )
    assert own["max_batch"] == plain["max_batch"] < common["max_batch"]
    assert own["seconds_to_first_token"] < plain["seconds_to_first_token"]
    if asked != {"concurrency": 200}:
        assert own["seconds_to_first_token"] == pytest.approx(common["seconds_to_first_token"], rel=0.01)


def test_a_prompt_has_something_new(client: TestClient) -> None:
    hits = {"prefix_cache_hit_rate": 0.5, "conversation_cache_hit_rate": 0.5}
    work = {"task": "inference", "model": "llama-3.1-8b", "serving": {"concurrency": 1, "input_length": 9, **hits}}
    answer = client.post("/estimate", json={"workload": work, "machine": {"gpu": "h100-sxm5-80gb"}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "workload.serving.conversation_cache_hit_rate"


def tokens_held(requests: float, prompt: int) -> float:
    """Cached tokens of requests that have written any part of 300 tokens: two standard deviations above the mean."""
    return requests * (prompt + 150) + 2 * 300 * sqrt(requests / 12)


def test_one_request_gets_the_tokens_of_a_step_that_reads_the_weights_once(client: TestClient) -> None:
    plain = load(client, concurrency=1)["seconds_per_output_token"]
    for accepted, drafted, cost in ((0.8, 5, 0.05), (0.5, 2, 0.1), (0.9, 8, 0.0)):
        found = load(client, concurrency=1, speculative_acceptance=accepted, draft_length=drafted, draft_cost=cost)[
            "seconds_per_output_token"
        ]
        tokens = (1 - accepted ** (drafted + 1)) / (1 - accepted)
        assert found == pytest.approx(plain * (1 + drafted * cost) / tokens, rel=0.05)


def test_a_model_that_drafts_takes_memory_and_room(client: TestClient) -> None:
    """1.24 billion parameters of 2 bytes are 2.3 GiB; its cache has a quarter of the bytes of the model's."""
    drafts = {"concurrency": 8, "speculative_acceptance": 0.7, "draft_cost": 0.1}
    none, small = (answer_to(client, **drafts, **more) for more in ({}, {"draft_model": "llama-3.2-1b"}))
    weights, held = (
        [each["estimate"]["memory"]["parts"]["weights"], each["load"]["max_batch"]] for each in (none, small)
    )
    assert held[0] - weights[0] == pytest.approx(2.3, abs=0.1)
    assert 0.6 < held[1] / weights[1] < 0.85
    assert small["estimate"]["kv_cache_tokens"] < 0.85 * none["estimate"]["kv_cache_tokens"]
    per_token = [each["load"]["seconds_per_output_token"] for each in (none, small)]
    assert per_token[0] <= per_token[1] < 1.05 * per_token[0]  # it also reads the prompts of others


def test_adapters_take_memory_of_the_cache_and_a_little_time(client: TestClient) -> None:
    """An adapter of rank 64 has 168 million parameters of 2 bytes, 0.31 GiB; a step reads those of its requests."""
    ranks = {0: {}, 4: {"adapter_rank": 64}, 16: {"adapter_rank": 64}}
    answers = [answer_to(client, concurrency=4, adapters=count, **rank) for count, rank in ranks.items()]
    weights = np.array([each["estimate"]["memory"]["parts"]["weights"] for each in answers])
    room = np.array([each["load"]["kv_cache_tokens"] for each in answers])
    token = [each["load"]["seconds_per_output_token"] for each in answers]
    assert np.diff(weights) == pytest.approx(np.array([4, 12]) * 0.3125, rel=0.02)
    assert np.diff(room)[1] == pytest.approx(3 * np.diff(room)[0], rel=0.01)
    assert token[0] * 1.01 < token[1] < token[0] * 1.3
    assert token[2] == token[1]


def test_a_drafted_token_costs_what_its_model_takes_unless_its_cost_is_sent(client: TestClient) -> None:
    """A draft model of a seventh of the weights takes more than a twentieth of a step, and less than it takes alone."""
    drafts = {"concurrency": 1, "speculative_acceptance": 0.7, "draft_model": "llama-3.2-1b"}
    usual, cheap = (load(client, **drafts, **cost)["seconds_per_output_token"] for cost in ({}, {"draft_cost": 0.05}))
    assert usual > 1.2 * cheap
    serving = {"concurrency": 1, "input_length": 2000, "output_length": 300, "percentile": 50}
    work = {"task": "inference", "model": "llama-3.2-1b", "software": {"engine": "vllm"}, "serving": serving}
    alone = post_estimate(client, {"workload": work, "machine": {"gpu": "h100-sxm5-80gb"}})["load"]
    plain, tokens = load(client, concurrency=1)["seconds_per_output_token"], (1 - 0.7**6) / (1 - 0.7)
    assert usual < (1.1 * plain + 5 * alone["seconds_per_output_token"]) / tokens


def test_drafts_are_at_16_bits_below_a_model_of_4_bits(client: TestClient) -> None:
    """Each reads 2.47 GB of a 1B, and the model some 5 GB; an L4 reads 300 GB/s."""
    drafts = {"speculative_acceptance": 0.7, "draft_length": 4, "draft_model": "llama-3.2-1b"}
    serving = {"concurrency": 1, "input_length": 200, "output_length": 500, **drafts}
    work = {"task": "inference", "model": "llama-3.1-8b", "weight_precision": "int4", "software": {"engine": "vllm"}}
    answer = post_estimate(client, {"workload": work | {"serving": serving}, "machine": "aws/g6.xlarge"})
    tokens = (1 - 0.7**5) / (1 - 0.7)
    assert answer["load"]["seconds_per_output_token"] > (4 * 2.47 + 5.0) / 300 / tokens


def test_drafts_of_vllm_exclude_pipeline_stages(client: TestClient) -> None:
    """Issue 57755 of vLLM. It was given two stages."""
    drafts = {"requests_per_second": 10, "input_length": 2000, "output_length": 300, "speculative_acceptance": 0.8}
    work = {"task": "inference", "model": "llama-3.1-70b", "precision": ["fp8"], "serving": drafts}
    body = {"workload": {**work, "software": {"engine": "vllm"}}, "machine": "aws/p5.48xlarge"}
    assert post_estimate(client, body)["estimate"]["layout"]["pipeline"] == 1
    refused = client.post("/estimate", json={**body, "layout": {"pipeline": 2}})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "layout")


@pytest.mark.parametrize(
    ("model", "acceptance", "says"),
    [
        ("llama-3.2-1b", 0.0, "needs workload.serving.speculative_acceptance"),
        ("bge-m3", 0.5, "cannot draft any"),
        ("llama-3.2-1bn", 0.5, "Did you mean llama-3.2-1b"),
    ],
)
def test_a_model_that_cannot_draft_is_refused(client: TestClient, model: str, acceptance: float, says: str) -> None:
    serving = {"concurrency": 1, "speculative_acceptance": acceptance, "draft_model": model}
    work = {"task": "inference", "model": "llama-3.1-8b", "input_length": 9, "output_length": 9, "serving": serving}
    answer = client.post("/estimate", json={"workload": work, "machine": {"gpu": "h100-sxm5-80gb"}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "workload.serving.draft_model"
    assert says in error["message"]


@pytest.mark.parametrize(
    ("field", "value", "needed"),
    [
        ("draft_length", 5, "speculative_acceptance"),
        ("draft_cost", 0.0, "speculative_acceptance"),
        ("adapter_rank", 16, "adapters"),
    ],
)
@pytest.mark.parametrize("path", ["/estimate", "/recommend"])
def test_a_field_that_changes_nothing_without_another_one_is_refused(
    client: TestClient, path: str, field: str, value: float, needed: str
) -> None:
    load = {"concurrency": 1, "input_length": 9, "output_length": 9, field: value}
    work = {"task": "inference", "model": "llama-3.1-8b", "serving": load}
    machine = {"machine": {"gpu": "h100-sxm5-80gb"}} if path == "/estimate" else {}
    answer = client.post(path, json={"workload": work, **machine})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == f"workload.serving.{field}"
    assert error["message"].startswith(f"{field} needs workload.serving.{needed} above 0")


@pytest.mark.parametrize(
    ("model", "drafter", "fits"),
    [
        ("llama-3.1-70b", "qwen2.5-0.5b", False),
        ("llama-3.1-70b", "llama-2-7b", False),
        ("qwen2.5-72b", "qwen2.5-0.5b", True),
        ("pythia-12b", "pythia-70m", True),
        ("llama-3.1-70b", "llama-3.2-1b", True),
    ],
)
def test_a_draft_model_has_the_vocabulary_of_the_model_apart_from_its_padding(
    client: TestClient, model: str, drafter: str, fits: bool
) -> None:
    """vLLM refuses other vocabularies; tables of one tokenizer are padded to different sizes."""
    serving = {
        "concurrency": 1, "input_length": 9, "output_length": 9, "speculative_acceptance": 0.7, "draft_model": drafter,
    }  # fmt: skip
    work = {"task": "inference", "model": model, "software": {"engine": "vllm"}, "serving": serving}
    answer = client.post("/estimate", json={"workload": work, "machine": {"gpu": "h100-sxm5-80gb", "gpu_count": 8}})
    assert answer.status_code == (200 if fits else 422), answer.text
    if not fits:
        (error,) = answer.json()["errors"]
        assert error["field"] == "workload.serving.draft_model"
        assert "needs the vocabulary of the model" in error["message"]


@pytest.mark.parametrize(
    ("drafts", "pay"),
    [
        ({"speculative_acceptance": 0.7, "draft_model": "llama-3.2-1b"}, True),
        ({"speculative_acceptance": 0.7, "draft_model": "llama-3.1-8b"}, False),
        ({"speculative_acceptance": 0.9, "draft_length": 2, "draft_model": "llama-3.1-70b"}, False),
        ({"speculative_acceptance": 0.3}, True),
        ({"speculative_acceptance": 0.1}, False),
        ({"speculative_acceptance": 0.1, "draft_length": 1}, True),
        ({}, True),
    ],
)
def test_drafts_that_take_longer_than_they_save_have_a_warning(
    client: TestClient, drafts: dict[str, Any], pay: bool
) -> None:
    machine = {"gpu": "h200-nvl", "gpu_count": 4}
    serving = {"concurrency": 1, "input_length": 200, "output_length": 500}
    work = {"task": "inference", "model": "llama-3.1-8b", "software": {"engine": "vllm"}}
    without, with_drafts = (
        post_estimate(client, {"workload": {**work, "serving": {**serving, **more}}, "machine": machine})
        for more in ({}, drafts)
    )
    assert ("drafts_do_not_pay" in {each["code"] for each in with_drafts["warnings"]}) is not pay
    seconds = [each["load"]["seconds_per_output_token"] for each in (with_drafts, without)]
    assert (seconds[0] <= seconds[1]) is pay


def test_drafts_slow_down_many_requests_that_refuse_most_of_them(client: TestClient) -> None:
    drafts = {"speculative_acceptance": 0.3, "draft_length": 5}
    one, many = (
        load(client, concurrency=requests, **drafts)["seconds_per_output_token"]
        / load(client, concurrency=requests)["seconds_per_output_token"]
        for requests in (1, 200)
    )
    assert one < 1 < many


@pytest.mark.parametrize("asked", LOADS)
def test_the_parts_of_a_token_add_up_to_its_time(client: TestClient, asked: dict[str, Any]) -> None:
    estimate = answer_to(client, **asked, speculative_acceptance=0.7)["estimate"]
    parts = sum(estimate["step_seconds"].values())
    assert parts == pytest.approx(estimate["seconds_per_output_token"]["likely"], rel=1e-4)


@pytest.mark.parametrize("field", ["prefix_cache_hit_rate", "speculative_acceptance"])
def test_shares_of_one_are_refused(client: TestClient, field: str) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "input_length": 9, "output_length": 9}
    serving = {"concurrency": 1, field: 1.0}
    answer = client.post(
        "/estimate", json={"workload": {**work, "serving": serving}, "machine": {"gpu": "h100-sxm5-80gb"}}
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"workload.serving.{field}"


@pytest.mark.parametrize(("machine", "bandwidth"), [("aws/g6.xlarge", 300e9), ("aws/g4dn.xlarge", 320e9)])
def test_a_step_reads_the_output_projection_at_16_bits(client: TestClient, machine: str, bandwidth: float) -> None:
    """AWQ and GPTQ leave it as it is: 0.525 of the 7.5 billion parameters that a token is multiplied by."""
    work = {"task": "inference", "model": "llama-3.1-8b", "weight_precision": "int4", "software": {"engine": "vllm"}}
    body = {"workload": {**work, "concurrency": 1, "input_length": 512, "output_length": 256}, "machine": machine}
    seconds = post_estimate(client, body)["estimate"]["seconds_per_output_token"]["likely"]
    assert seconds > (6.98e9 * 4.25 / 8 + 0.525e9 * 2) / bandwidth


def test_a_late_first_token_that_no_limit_covers_is_stated(client: TestClient) -> None:
    long = {"concurrency": 16, "input_length": 60000, "percentile": 95}
    late, short, covered = (
        answer_to(client, **asked)
        for asked in (long, {"concurrency": 16, "percentile": 95}, {**long, "max_seconds_to_first_token": 60})
    )
    (text,) = (each["text"] for each in late["warnings"] if each["code"] == "slow_first_token")
    assert late["load"]["seconds_to_first_token"] > 2 > short["load"]["seconds_to_first_token"]
    assert f"{late['load']['seconds_to_first_token']:.3g} s in 95 % of requests" in text
    for answer in (short, covered):
        assert "slow_first_token" not in {each["code"] for each in answer["warnings"]}


def test_an_engine_that_answers_one_request_after_another_has_one_place(client: TestClient) -> None:
    work = {"task": "inference", "model": "whisper-large-v3", "serving": {"concurrency": 6}}
    for engine, places in (("whisper.cpp", 1), ("faster-whisper", 66)):
        body = {"workload": {**work, "software": {"engine": engine}}, "machine": {"gpu": "rtx-3090"}}
        found = post_estimate(client, body)["load"]
        assert found["max_batch"] == pytest.approx(places, abs=20 * (places > 1))
        assert found["instances"] == (6 if places == 1 else 1)


def test_a_late_first_token_of_a_transcript_is_not_stated(client: TestClient) -> None:
    """Transcripts are read once they are complete: a limit on the first token is one of chats."""
    work = {"task": "inference", "model": "whisper-large-v3", "software": {"engine": "faster-whisper"}}
    answer = post_estimate(
        client, {"workload": {**work, "serving": {"requests_per_second": 20}}, "machine": "aws/g4dn.xlarge"}
    )
    assert answer["load"]["seconds_to_first_token"] > 2
    assert "slow_first_token" not in {each["code"] for each in answer["warnings"]}


@pytest.mark.parametrize(
    ("lengths", "longest"),
    [
        ({"input_length": 130_000, "output_length": 1072}, None),
        ({"input_length": 131_000, "output_length": 1000}, "132,000"),
        # The longest of 95 in 100 conversations, where the mean one is within the context.
        ({"input_length": {"mean": 100_000, "p95": 150_000}, "output_length": 1000}, "151,000"),
    ],
)
def test_conversations_beyond_the_context_of_a_model_are_stated(
    client: TestClient, lengths: dict[str, Any], longest: str | None
) -> None:
    answer = answer_to(client, concurrency=1, percentile=95, **lengths)
    texts = [each["text"] for each in answer["warnings"] if each["code"] == "beyond_context"]
    assert len(texts) == (longest is not None)
    assert all(f"of up to 131,072 tokens, and the longest here have {longest}" in text for text in texts)


@pytest.mark.parametrize(
    ("model", "precision", "gpu", "count"),
    [("llama-3.3-70b", "fp8", "h100-sxm5-80gb", 4), ("llama-3.1-8b", "bf16", "rtx-a6000-48gb", 2)],
)
def test_a_rate_gets_the_layout_that_answers_soonest(
    client: TestClient, model: str, precision: str, gpu: str, count: int
) -> None:
    """A pipeline has the most room for cache, but a token takes the time of all its stages."""
    serving = {"requests_per_second": 4, "input_length": 1000, "output_length": 250}
    work = {"task": "inference", "model": model, "software": {"engine": "vllm"}, "precision": [precision]}
    body = {"workload": {**work, "serving": serving}, "machine": {"gpu": gpu, "gpu_count": count}}
    chosen = post_estimate(client, body)["load"]
    assert chosen["layout"]["pipeline"] == 1
    for layout in ({"pipeline": count}, {"tensor": count}, {"data": count}):
        others = {"tensor": 1, "pipeline": 1, "data": 1} | layout
        other = post_estimate(client, {**body, "layout": others})["load"]
        if other is not None and other["keeps_limits"] and other["instances"] == chosen["instances"]:
            assert other["seconds_per_request"] >= chosen["seconds_per_request"] * 0.999


# Prompts and answers on different instances


RATE = {"requests_per_second": 20, "max_seconds_to_first_token": 0.6, "max_seconds_per_output_token": 0.015}


def test_answers_are_quicker_without_prompts_in_between(client: TestClient) -> None:
    together, apart = load(client, **RATE), load(client, **RATE, disaggregated=True)
    assert together["prefill_instances"] is together["seconds_of_transfer"] is None
    assert 0 < apart["prefill_instances"] < apart["instances"] == apart["replicas"]
    # The cache of Llama 3.1 8B has 128 KiB a token, and 10 Gbps are assumed for a network that is not stated.
    assert apart["seconds_of_transfer"] == pytest.approx(2000 * 2**17 * 8 / 10e9, rel=0.001)
    assert apart["seconds_to_first_token"] <= RATE["max_seconds_to_first_token"]
    assert apart["seconds_per_output_token"] <= RATE["max_seconds_per_output_token"]
    assert apart["seconds_per_output_token"] / apart["batch"] < together["seconds_per_output_token"] / together["batch"]


def test_a_common_part_of_prompts_is_not_sent(client: TestClient) -> None:
    whole, half = (load(client, **RATE, disaggregated=True, prefix_cache_hit_rate=hits) for hits in (0.0, 0.5))
    assert half["seconds_of_transfer"] == pytest.approx(whole["seconds_of_transfer"] / 2, rel=1e-4)
    assert half["prefill_instances"] < whole["prefill_instances"]


def test_a_network_that_is_not_stated_carries_the_caches(client: TestClient) -> None:
    warnings = {each["code"]: each["text"] for each in answer_to(client, **RATE, disaggregated=True)["warnings"]}
    assert "10 Gbps are assumed, and the cache of each prompt crosses it" in warnings["network_unknown"]
    assert "network_unknown" not in {each["code"] for each in answer_to(client, **RATE)["warnings"]}


@pytest.mark.parametrize(
    ("engine", "asked", "field", "words"),
    [
        ("vllm", {"concurrency": 8}, "concurrency", "requests_per_second"),
        ("vllm", {**RATE, "max_seconds_per_request": 9}, "max_seconds_per_request", "max_seconds_to_first_token"),
        ("tgi", RATE, "disaggregated", "tensorrt-llm, vllm, sglang"),
    ],
)
def test_a_disaggregated_load_that_is_not_estimated_is_refused(
    client: TestClient, engine: str, asked: dict[str, Any], field: str, words: str
) -> None:
    serving = {"input_length": 2000, "output_length": 300, **asked, "disaggregated": True}
    work = {"task": "inference", "model": "llama-3.1-8b", "software": {"engine": engine}, "serving": serving}
    answer = client.post("/estimate", json={"workload": work, "machine": {"gpu": "h100-sxm5-80gb"}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == f"workload.serving.{field}"
    assert words in error["message"]


# Images in prompts


def images(client: TestClient, tokens: float, model: str = "qwen2.5-vl-7b") -> Any:
    lengths = {"concurrency": 4, "input_length": 3000, "output_length": 1, "image_tokens": tokens}
    work = {"task": "inference", "model": model, "precision": ["bf16"], "software": {"engine": "vllm"}, **lengths}
    return post_estimate(client, {"workload": work, "machine": {"gpu": "h100-sxm5-80gb"}})["estimate"]


def test_images_are_encoded_before_they_are_read(client: TestClient) -> None:
    text, half, most = (images(client, tokens) for tokens in (0, 1500, 3000))
    prompt = text["step_seconds"]["prefill"]
    # A token takes 13.1 GFLOPs in the language model without its embedding, and 5.2 GFLOPs in the encoder.
    assert most["step_seconds"]["prefill"] == pytest.approx(prompt * (1 + 5.18 / 13.1), rel=0.05)
    assert half["step_seconds"]["prefill"] == pytest.approx((prompt + most["step_seconds"]["prefill"]) / 2, rel=1e-3)
    assert most["samples_per_second"]["likely"] < text["samples_per_second"]["likely"]
    # The encoder of 0.68 B parameters is in memory, whether it is used or not.
    language_model = images(client, 0, "qwen2.5-7b")["memory"]["parts"]["weights"]
    assert text["memory"]["parts"]["weights"] - language_model == pytest.approx(2 * 0.676e9 / 2**30, rel=0.05)


@pytest.mark.parametrize(
    ("model", "patches", "encoder"),
    [
        ("gemma-3-4b", 16, 0.417e9),
        ("gemma-3-27b", 16, 0.417e9),
        ("qwen3.5-9b", 4, 0.447e9),
        ("qwen3.5-27b", 4, 0.447e9),
    ],
)
def test_models_of_the_catalog_read_images(client: TestClient, model: str, patches: int, encoder: float) -> None:
    """Layers of the encoder work on each patch of a token: Gemma 3 makes 256 tokens of 4096 patches."""
    text, most = (images(client, tokens, model)["step_seconds"]["prefill"] for tokens in (0, 3000))
    parameters = {"gemma-3-4b": 3.2e9, "gemma-3-27b": 25.6e9, "qwen3.5-9b": 6.8e9, "qwen3.5-27b": 23.8e9}
    language_model = 2 * parameters[model]
    assert 1 < (most / text - 1) * language_model / (2 * encoder * patches) < 2


@pytest.mark.parametrize("model", ["mistral-small-3.1", "kimi-k2.5", "qwen3.5-397b-a17b"])
def test_the_latest_releases_read_images(client: TestClient, model: str) -> None:
    work = {"task": "inference", "model": model, "input_length": 3000, "output_length": 9, "concurrency": 4}
    text, most = (
        post_estimate(client, {"workload": {**work, "image_tokens": tokens}, "machine": "aws/p5en.48xlarge"})
        for tokens in (0, 3000)
    )
    assert most["estimate"]["seconds_to_first_token"]["likely"] > text["estimate"]["seconds_to_first_token"]["likely"]


@pytest.mark.parametrize(("model", "words"), [("qwen2.5-7b", "read images"), ("qwen2.5-vl-7b", "3000 tokens")])
def test_images_that_cannot_be_read_are_refused(client: TestClient, model: str, words: str) -> None:
    work = {"task": "inference", "model": model, "input_length": 3000, "output_length": 9, "image_tokens": 4000}
    answer = client.post("/estimate", json={"workload": work, "machine": {"gpu": "h100-sxm5-80gb"}})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "workload.image_tokens"
    assert words in error["message"]


@pytest.mark.parametrize(("method", "of_text"), [("full", 3), ("lora", 2)])
def test_a_frozen_encoder_of_images_only_runs_forward_in_training(
    client: TestClient, method: str, of_text: int
) -> None:
    def trained(tokens: int) -> Any:
        work = {"task": "training", "model": "qwen2.5-vl-7b", "precision": ["bf16"], "sequence_length": 2048}
        layout = {"micro_batch": 1, "tensor": 1, "pipeline": 1, "zero_stage": 3, "activation_checkpointing": "full"}
        asked = {**work, "method": method, "global_batch_size": 8, "image_tokens": tokens}
        return post_estimate(client, {"workload": asked, "machine": "aws/p5.48xlarge", "layout": layout})["estimate"]

    text, most = trained(0), trained(2048)
    # A token takes 13.1 GFLOPs in the language model without its embedding, and 5.2 GFLOPs in the encoder.
    forward_passes = of_text + 1  # one more recomputes activations
    longer = most["step_seconds"]["matrix"] / text["step_seconds"]["matrix"] - 1
    assert longer == pytest.approx(5.18 / 13.1 / forward_passes, rel=0.15)
    assert most["memory"]["parts"]["weights"] == text["memory"]["parts"]["weights"]
    # Utilisation counts the work of the encoder.
    done, more = (each["model_flops_utilisation"] / each["samples_per_second"]["likely"] for each in (text, most))
    assert more / done == pytest.approx(1 + 5.18 / 13.1 / of_text, rel=0.1)


@pytest.mark.parametrize("requests", [1, 3, 8])
def test_requests_of_an_amount_do_not_end_sooner_on_replicas_that_have_none(client: TestClient, requests: int) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "input_length": 500, "output_length": 100}

    def seconds(samples: int, gpus: int) -> float:
        body = {"workload": {**work, "amount": {"samples": samples}}, "layout": {"data": gpus, "tensor": 1}}
        answer = client.post("/estimate", json={**body, "machine": {"gpu": "h100-sxm5-80gb", "gpu_count": gpus}})
        likely: float = answer.json()["estimate"]["hours"]["likely"] * 3600
        return likely

    assert seconds(requests, 8) == pytest.approx(seconds(1, 1), rel=1e-4)
    assert seconds(2 * requests, 8) >= seconds(requests, 8)


@pytest.mark.parametrize("asked", [{"concurrency": 500, "input_length": 8000}, {"requests_per_second": 100}])
def test_an_hour_pays_for_all_instances_of_a_load_and_a_month_is_730_of_them(
    client: TestClient, asked: dict[str, Any]
) -> None:
    work = {"task": "inference", "model": "llama-3.1-8b", "software": {"engine": "vllm"}}
    serving = {"input_length": 1000, "output_length": 300, **asked}
    machine = {"gpu": "h100-sxm5-80gb", "usd_per_hour": 3}
    found = post_estimate(client, {"workload": {**work, "serving": serving}, "machine": machine})
    (cost,) = found["cost"]
    assert found["load"]["instances"] > 1
    assert cost["usd_per_hour"] == 3 * found["load"]["instances"]
    assert cost["month"]["usd"]["likely"] == 730 * cost["usd_per_hour"]
    assert f"costs ${cost['month']['usd']['likely']:,.2f}" in cost["text"]
    assert "not known" not in cost["text"]
    assert cost["unknown_because"] == "A load has no end, so its cost is that of a month."


def test_a_load_that_misses_its_limits_says_so_in_place_of_its_cost(client: TestClient) -> None:
    cost = answer_to(client, requests_per_second=1, max_seconds_to_first_token=0.001)["cost"][0]
    assert cost["text"].startswith("The load is not served within its limits: max_seconds_to_first_token is 0.001")
    assert cost["month"]["usd"] is None


@pytest.mark.parametrize("asked", LOADS)
def test_a_percentile_may_have_a_decimal_place(client: TestClient, asked: dict[str, Any]) -> None:
    common, rare = (load(client, **asked, percentile=percentile) for percentile in (99, 99.9))
    assert rare["percentile"] == 99.9
    for name in ("seconds_to_first_token", "seconds_per_request"):
        assert rare[name] >= common[name]
    if "concurrency" not in asked:
        assert rare["seconds_per_request"] > common["seconds_per_request"]


TIMES = ("to_first_token", "per_output_token", "per_request")


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("asked", [*LOADS, {"requests_per_second": 20, "disaggregated": True}])
def test_each_time_may_have_a_percentile_of_its_own(client: TestClient, asked: dict[str, Any], name: str) -> None:
    asked = {**asked, "input_length": {"mean": 2000, "p95": 6000}, "max_seconds_per_output_token": None}
    half, rare, mixed = (
        load(client, **asked, **percentiles)
        for percentiles in ({"percentile": 50}, {"percentile": 99}, {"percentile": 50, f"percentile_{name}": 99})
    )
    assert half["instances"] == rare["instances"]
    expected = {each: (rare if each == name else half)[f"seconds_{each}"] for each in TIMES}
    assert {each: mixed[f"seconds_{each}"] for each in TIMES} == expected
    assert {each: mixed[f"percentile_{each}"] for each in TIMES} == {each: 99 if each == name else 50 for each in TIMES}


def test_a_limit_is_kept_at_its_own_percentile(client: TestClient) -> None:
    asked: dict[str, Any] = {"requests_per_second": 40, "max_seconds_to_first_token": 0.16, "percentile": 50}
    half, rare, other = (
        load(client, **asked, **percentiles)
        for percentiles in ({}, {"percentile_to_first_token": 99}, {"percentile_per_request": 99})
    )
    assert rare["instances"] > half["instances"] == other["instances"]
    assert rare["seconds_to_first_token"] <= 0.16


def test_the_least_time_of_a_load_is_that_of_any_layout(client: TestClient) -> None:
    """The fastest layout of a node serves long prompts late; others answer in less than its least time."""
    load: dict[str, float] = {"requests_per_second": 1, "input_length": 30_000, "output_length": 100}
    work = {"task": "inference", "model": "llama-3.1-70b", "precision": ["fp8"], "software": {"engine": "vllm"}}

    def served(limit: float) -> Any:
        limited = {**load, "max_seconds_to_first_token": limit}
        return post_estimate(client, {"workload": work, "load": limited, "machine": "aws/p5.48xlarge"})["load"]

    reason = served(0.1)["reason"]
    least = float(reason.removesuffix(".").rpartition("the least is ")[2])
    assert served(1.001 * least)["keeps_limits"]
    assert not served(0.99 * least)["keeps_limits"]


def test_limits_that_exclude_each_other_name_no_infinite_figure(client: TestClient) -> None:
    limits = {"max_seconds_to_first_token": 1.0, "max_seconds_per_request": 4.3}
    load = {"requests_per_second": 1, "input_length": 16_000, "output_length": 400, **limits}
    work = {"task": "inference", "model": "llama-3.1-8b", "software": {"engine": "vllm"}}
    served = post_estimate(client, {"workload": work, "load": load, "machine": "aws/g6e.12xlarge"})["load"]
    assert not served["keeps_limits"]
    assert set(limits) <= set(served["reason"].split())
    assert "inf" not in served["reason"]


def test_an_answer_of_one_token_has_no_time_between_tokens(client: TestClient) -> None:
    """Classifiers and judges answer so: a limit on that time, or its default, cannot ask for more instances."""
    one, unlimited, limited = (
        load(client, requests_per_second=40, output_length=1, **limits)
        for limits in ({}, {"max_seconds_per_output_token": None}, {"max_seconds_per_output_token": 0.001})
    )
    assert one == unlimited == limited
    assert one["seconds_per_output_token"] is None
    assert load(client, requests_per_second=40, output_length=2)["seconds_per_output_token"] > 0


@pytest.mark.parametrize("samples", [1, 12, 100])
@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_an_amount_of_few_samples_has_no_more_requests_in_flight_than_samples(
    client: TestClient, samples: int, engine: str
) -> None:
    """The time per token was that of hundreds of requests, and contradicted the hours."""
    work = {
        "task": "inference",
        "model": "llama-3.1-8b",
        "software": {"engine": engine},
        "amount": {"samples": samples},
    }
    lengths = {"input_length": 1000, "output_length": 300}
    asked, as_clients = (
        post_estimate(client, {"workload": {**work, **lengths, **more}, "machine": "aws/p5.48xlarge"})["estimate"]
        for more in ({}, {"concurrency": samples})
    )
    assert asked["concurrency"] == samples
    assert asked == as_clients
    at_least = 299 * asked["seconds_per_output_token"]["likely"]
    assert at_least <= asked["hours"]["likely"] * 3600 * 1.02


def test_a_number_of_machines_that_is_too_small_is_named_by_its_own_field(client: TestClient) -> None:
    serving = {"requests_per_second": 20, "input_length": 1000, "output_length": 200}
    work = {"task": "inference", "model": "llama-3.1-8b", "serving": serving, "software": {"engine": "vllm"}}
    found = post_estimate(client, {"workload": work, "machine": "aws/g6e.xlarge", "instances": 2})["load"]
    assert not found["keeps_limits"]
    least = post_estimate(client, {"workload": work, "machine": "aws/g6e.xlarge"})["load"]["instances"]
    assert found["reason"].endswith(f"limits: it takes {least} instances, and 2 are allowed.")
    many = {"workload": work | {"serving": serving | {"requests_per_second": 1e5}}, "machine": "aws/g6e.xlarge"}
    assert post_estimate(client, many)["load"]["reason"].endswith(" instances, and at most 10,000 are tried.")
