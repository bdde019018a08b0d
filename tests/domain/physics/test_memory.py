"""Bytes of each part of a training step and of a forward pass on one GPU."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.fixed_layout import CHECKPOINTINGS
from service.domain.jobs.serving import Length, Serving
from service.domain.jobs.stacks import SoftwareStack
from service.domain.models.model import Transformer
from service.domain.physics.memory import (
    PLANNED_SHARE,
    cache_bytes_of_step,
    cache_tokens_that_fit,
    conversations_held,
    figures,
    inference_memory,
    inference_parts,
    layer_activation_bytes,
    plannable_bytes,
    replicas_in_use,
    requests_in,
    requests_with_room,
    sequence_cache_bytes,
    stored_weight_bytes,
    trainable_parameters,
    training_parts,
)
from service.domain.physics.parallelism import Layout
from tests.builders.jobs import GPT_175B, LLAMA_2_7B, LLAMA_3_8B, inference, model, training
from tests.oracles.growing_cache import mean_running


def test_mixed_adam_takes_16_bytes_per_parameter() -> None:
    parts = figures(training_parts(training(), Layout()))
    assert sum(parts[name] for name in ("weights", "gradients", "optimizer")) == 16 * 8.03e9


def test_adam_in_fp64_takes_32_bytes_per_parameter() -> None:
    parts = figures(training_parts(training(precision="fp64", recipe="double"), Layout()))
    assert sum(parts[name] for name in ("weights", "gradients", "optimizer")) == 32 * 8.03e9


def test_offloaded_gradients_and_states_leave_13b_room_on_a_v100() -> None:
    """ZeRO-Offload trains 13 billion parameters on one V100 with 32 GB (arXiv 2101.06840)."""
    work = training(model=model(LLAMA_2_7B, 13e9), offload_optimizer=True)
    parts = figures(training_parts(work, Layout(activation_checkpointing="full")))
    assert parts["weights"] == 2 * 13e9
    assert sum(parts[name] for name in ("weights", "gradients", "optimizer")) < 28e9


def test_an_optimizer_in_the_backward_pass_keeps_the_gradients_of_a_layer_unless_they_accumulate() -> None:
    """torchtune refuses to accumulate with it (`optimizer_in_bwd` of its recipes)."""
    work = training(fused_optimizer=True)
    at_once, accumulated = (
        figures(training_parts(work, Layout(accumulation=rounds)))["gradients"] for rounds in (1, 4)
    )
    assert at_once == 2 * 8.03e9 / LLAMA_3_8B.layers
    assert accumulated == 2 * 8.03e9


def test_zero_three_shards_every_state() -> None:
    whole = training_parts(training(), Layout(data=8))
    cut = training_parts(training(), Layout(data=8, zero_stage=3))
    for name in ("weights", "gradients", "optimizer"):
        assert cut[name] == pytest.approx(whole[name] / 8)


def test_a_recounted_layer_is_near_34_bytes_per_value() -> None:
    per_value = layer_activation_bytes(GPT_175B, 2048, 2048, 2.0, flash=True) / (2048 * 12288)
    assert 30 <= per_value <= 34


def test_a_layer_of_a_hybrid_keeps_the_mean_of_its_layers() -> None:
    """By value of a token: an FFN keeps 2 h + 2 f, attention 2 h + 4 h, and a state space 2 h + 4 x 2 h + 2 x 128."""
    h, plain = LLAMA_2_7B.hidden, replace(LLAMA_2_7B, gated=False)
    state: dict[str, Any] = {"ssm_heads": 2 * h // 64, "ssm_head_size": 64, "ssm_state": 128, "ssm_groups": 1}
    hybrid = replace(plain, layers=4, attention_layers=1, ssm_layers=2, **state)
    by_hand = ((2 * h + 4 * h) + 2 * (2 * h + 8 * h + 256) + (2 * h + 2 * plain.ffn)) / 4
    assert layer_activation_bytes(hybrid, 1, 2048, 2.0, flash=True) == 2 * by_hand
    scores = layer_activation_bytes(hybrid, 1, 2048, 2.0, flash=False) - 2 * by_hand
    assert scores == 32 * 2048 * 5.0 / 4


def kept_per_token(t: Transformer) -> float:
    return float(layer_activation_bytes(t, 1.0, 4096, 2.0, flash=True))


def test_a_layer_keeps_the_results_of_its_shared_experts() -> None:
    """Two routed experts and two shared ones of a token are as wide as four routed ones, and as one dense FFN."""
    routed = replace(LLAMA_2_7B, ffn=0, experts=8, experts_per_token=4, expert_ffn=1024)
    shared = replace(routed, experts_per_token=2, shared_experts=2)
    assert kept_per_token(shared) == kept_per_token(routed) == kept_per_token(replace(LLAMA_2_7B, ffn=4096))
    half = replace(routed, dense_layers=16, ffn=8192)
    assert kept_per_token(half) == kept_per_token(replace(LLAMA_2_7B, ffn=6144))


def test_a_layer_of_latent_attention_keeps_queries_and_keys_with_their_rotary_part() -> None:
    plain = replace(LLAMA_2_7B, heads=128, kv_heads=128)
    latent = replace(plain, mla_kv_rank=512, mla_rope_size=64, mla_value_size=128)
    assert kept_per_token(latent) - kept_per_token(plain) == 2 * 2 * 128 * 64


def test_65b_in_nf4_takes_34_gb() -> None:
    llama = replace(LLAMA_2_7B, hidden=8192)
    stored = stored_weight_bytes(model(llama, 65.29e9), bytes_per_value("nf4-dq") * 8)
    assert stored / 1e9 == pytest.approx(34.5, abs=0.1)


def test_only_the_adapters_of_lora_learn() -> None:
    """Frozen weights have neither gradients nor optimizer states."""
    whole, lora = (figures(training_parts(training(method=method), Layout())) for method in ("full", "lora"))
    share = trainable_parameters(training(method="lora")) / trainable_parameters(training())
    assert share < 0.01
    assert lora["gradients"] == pytest.approx(whole["gradients"] * share)
    assert lora["optimizer"] == pytest.approx(whole["optimizer"] * share)
    assert lora["weights"] == pytest.approx(whole["weights"] * (1 + share))


def test_checkpointing_keeps_the_boundaries_of_layers_and_one_layer() -> None:
    kept, boundaries = (
        figures(training_parts(training(), Layout(activation_checkpointing=how))) for how in ("none", "full")
    )
    assert kept["boundaries"] == kept["activations"] == boundaries["kept"] == 0
    assert boundaries["activations"] == pytest.approx(kept["kept"] / 32)
    assert boundaries["boundaries"] < kept["kept"] / 10


def test_interleaved_stages_hold_more_micro_batches() -> None:
    """1 + (p - 1) / (p v) times the activations of whole stages (Korthikanti et al. 2022)."""
    whole, pieces, many = (
        figures(training_parts(training(), Layout(pipeline=8, accumulation=64, virtual_stages=virtual)))["kept"]
        for virtual in (1, 2, 4)
    )
    assert pieces / whole == pytest.approx(1 + 7 / 16)
    assert many / whole == pytest.approx(1 + 7 / 32)


def test_a_network_keeps_the_values_that_its_training_saves() -> None:
    resnet = model(family="cnn", transformer=None, activation_values_per_sample=11.1e6, saved_values_per_sample=21.5e6)
    parts = {
        kind: figures(training_parts(training(model=resnet), Layout(micro_batch=64, activation_checkpointing=kind)))
        for kind in CHECKPOINTINGS
    }
    assert parts["none"]["kept"] == pytest.approx(64 * 43e6)
    assert parts["selective"]["selected"] == parts["none"]["kept"] / 2
    assert 0 < parts["full"]["activations"] < parts["selective"]["selected"]
    assert not any(parts["full"][name] for name in ("kept", "selected"))
    # A convolution and its normalisation each keep their input.
    uncounted = training(model=replace(resnet, saved_values_per_sample=None))
    assert training_parts(uncounted, Layout(micro_batch=64))["kept"] == pytest.approx(64 * 2 * 2 * 11.1e6)


def test_networks_without_dimensions_hold_the_activations_of_their_batch() -> None:
    """A ResNet-50 writes 11.1 million values per image, of which three tenths are in memory at once."""
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9, activation_values_per_sample=11.1e6)
    work = inference(model=resnet, input_length=0.0, output_length=0.0, concurrency=4096.0, precision="fp16")
    together = figures(inference_parts(replace(work, software=SoftwareStack("pytorch")), Layout(), 0.0))
    assert together["activations"] == pytest.approx(4096 * 0.3 * 11.1e6 * 2)
    one = figures(inference_parts(replace(work, concurrency=None), Layout(), 0.0))
    assert one["activations"] == pytest.approx(0.3 * 11.1e6 * 2)
    in_fp32 = replace(work, precision="fp32", software=SoftwareStack("pytorch"))
    assert figures(inference_parts(in_fp32, Layout(), 0.0))["activations"] == 2 * together["activations"]


def test_only_tokens_of_transcripts_have_logits() -> None:
    """Whisper large-v3 had logits for the 800 tokens of a mean layer, 10.4 GiB for 32 clips on a GPU."""
    work = training(sequence_length=800)
    of_all = figures(training_parts(work, Layout()))
    of_transcripts = figures(training_parts(replace(work, written_length=100.0), Layout()))
    assert of_transcripts.pop("logits") == of_all.pop("logits") / 8
    assert of_transcripts == of_all


def test_a_loss_in_chunks_holds_the_logits_of_one() -> None:
    """An eighth of them in torchtune, and as many as the hidden states have values in Unsloth and in Liger Kernel."""
    torchtune, unsloth = SoftwareStack("torchtune"), SoftwareStack("unsloth")
    works = [training(), training(chunked_loss=True, software=torchtune), training(software=unsloth)]
    whole, in_chunks, fused = (training_parts(work, Layout())["logits"] for work in works)
    assert whole / in_chunks == 8
    assert whole / fused == 128256 / 4096
    others = [training(chunked_loss=True), training(chunked_loss=True, loss_logits=1.0, software=torchtune)]
    assert {training_parts(work, Layout())["logits"] for work in others} == {fused}
    assert training_parts(training(loss_logits=0.0), Layout())["logits"] == 0


def test_checkpointing_keeps_the_inputs_of_known_blocks_and_one_block_with_gradients() -> None:
    values = {"activation_values_per_sample": 10e9, "saved_values_per_sample": 35e9}
    network = model(family="diffusion", transformer=None, **values, blocks=50, block_inputs_per_sample=1e9)
    layout = Layout(micro_batch=2, activation_checkpointing="full")
    checkpointed = training_parts(training(model=network), layout)["activations"]
    assert checkpointed == pytest.approx(2 * 2 * (1e9 + 1.5 * 35e9 / 50))
    unknown = training(model=replace(network, blocks=None))
    assert training_parts(unknown, layout)["activations"] == pytest.approx(2 * 2 * 0.15 * 35e9)


@pytest.mark.parametrize(("tokens", "width", "blocks", "gib"), [(20_224, 3072, 60, 17.6), (17_776, 3072, 42, 9.6)])
def test_checkpointed_video_models_keep_about_what_is_published(
    tokens: int, width: int, blocks: int, gib: float
) -> None:
    """LoRA of HunyuanVideo and of CogVideoX 5B on videos of 49 frames, above the memory before training (finetrainers,
    docs/training/hunyuan_video.md and cogvideox.md).
    """
    inputs = float(tokens * width * blocks)
    network = model(
        family="diffusion",
        transformer=None,
        activation_values_per_sample=10 * inputs,
        blocks=blocks,
        block_inputs_per_sample=inputs,
    )
    layout = Layout(micro_batch=1, activation_checkpointing="full")
    assert training_parts(training(model=network), layout)["activations"] / 2**30 == pytest.approx(gib, rel=0.3)


def test_a_dropout_mask_takes_a_byte_in_any_precision() -> None:
    t, tokens, length = GPT_175B, 1024, 2048
    scores = {
        value: layer_activation_bytes(t, tokens, length, value, flash=False)
        - layer_activation_bytes(t, tokens, length, value, flash=True)
        for value in (2.0, 4.0)
    }
    assert scores[2.0] == 5 * t.heads * length * tokens
    assert scores[4.0] == 9 * t.heads * length * tokens


def test_an_encoder_scores_no_vocabulary() -> None:
    decoder = training()
    assert decoder.model.transformer is not None
    encoder = replace(decoder.model, transformer=replace(decoder.model.transformer, decoder=False))
    assert training_parts(decoder, Layout())["logits"] > 0
    assert training_parts(replace(decoder, model=encoder), Layout())["logits"] == 0


def test_tensor_and_pipeline_ranks_share_weights_and_cache() -> None:
    config = inference(concurrency=1.0)
    whole, cut = (figures(inference_parts(config, layout, 4.0)) for layout in (Layout(), Layout(tensor=2, pipeline=2)))
    for name in ("weights", "kv_cache"):
        assert cut[name] == pytest.approx(whole[name] / 4)
    assert cut["context"] == whole["context"]


def test_a_cache_in_fp8_takes_half() -> None:
    config = inference()
    assert sequence_cache_bytes(config, 1000) == 2 * sequence_cache_bytes(replace(config, kv_precision="fp8"), 1000)


@pytest.mark.parametrize(("tensor", "times_as_many"), [(8, 1), (16, 2), (24, 2), (32, 1)])
def test_on_neuron_cores_each_query_head_has_a_cache_if_there_are_more_cores_than_shared_heads(
    tensor: int, times_as_many: int
) -> None:
    usual, copied = (inference(software=SoftwareStack(stack)) for stack in ("vllm", "transformers-neuronx"))
    for count in (sequence_cache_bytes, cache_bytes_of_step):
        assert count(copied, 1000, tensor) == times_as_many * count(usual, 1000, tensor)


@pytest.mark.parametrize(("stack", "size"), [("transformers", 4), ("unknown", 4), ("llama.cpp", 2)])
def test_a_cache_of_fp32_has_its_format_unless_the_stack_keeps_16_bits(stack: str, size: int) -> None:
    half, single = (
        inference(precision=precision, software=SoftwareStack(stack)).formats.cache_bytes
        for precision in ("bf16", "fp32")
    )
    assert (half, single) == (2, size)


def test_activations_of_a_pass_take_twice_as_much_in_fp32() -> None:
    half, single = (
        inference_memory(inference(precision=each), Layout()).empty["activations"] for each in ("bf16", "fp32")
    )
    assert single == 2 * half


# Room for the cache

GB = 1e9


def test_the_cache_takes_the_room_that_weights_and_activations_leave() -> None:
    """A token of Llama 3 8B takes 131,072 bytes."""
    config, layout = inference(), Layout()
    room = 80 * GB - sum(inference_parts(config, layout, 0.0).values())
    assert cache_tokens_that_fit(config, 80 * GB, layout, inference_memory(config, layout)) == pytest.approx(
        room / 131_072
    )
    assert cache_tokens_that_fit(config, 10 * GB, layout, inference_memory(config, layout)) == 0


@pytest.mark.parametrize(("stack", "share"), [("vllm", PLANNED_SHARE), ("unknown", PLANNED_SHARE), ("llama.cpp", 1.0)])
def test_engines_plan_within_a_share_of_the_memory(stack: str, share: float) -> None:
    """Other stacks take memory as they need it."""
    assert plannable_bytes(inference(software=SoftwareStack(stack)), 80 * GB) == pytest.approx(share * 80 * GB)


MT_NLG = model(replace(GPT_175B, layers=105, hidden=20480, heads=128, kv_heads=128, ffn=81920, head_size=160), 530e9)


@pytest.mark.parametrize(
    ("batch", "prompt", "answer", "ran"),
    [(256, 20, 8, True), (128, 60, 20, True), (256, 60, 20, False), (64, 128, 8, True), (128, 128, 8, False)],
)
def test_a_static_batch_has_room_on_16_a100s_where_fastertransformer_had(
    batch: int, prompt: int, answer: int, ran: bool
) -> None:
    """NVIDIA's guide of FasterTransformer, Performance of Megatron-530B; 79.15 GiB of an A100 are usable."""
    software = SoftwareStack("fastertransformer")
    config = InferenceConfig(MT_NLG, "fp16", input_length=prompt, output_length=answer, software=software)
    needed = sum(inference_parts(config, Layout(tensor=16), batch).values())
    assert (needed <= 79.15 * 1024**3) == ran


def test_as_many_requests_run_as_fit_whole_in_an_engine_that_reserves_cache() -> None:
    many = inference(concurrency=None, software=SoftwareStack("tgi"))
    room = cache_tokens_that_fit(many, 40 * GB, Layout(), inference_memory(many, Layout())) / 1500
    assert requests_with_room(many, 40 * GB, inference_memory(many, Layout())) == int(room)
    assert requests_with_room(many, 1 * GB, inference_memory(many, Layout())) == 0


@pytest.mark.parametrize(
    ("prompt", "answer", "p95"), [(500, 1000, None), (2000, 200, None), (1000, 1000, 2500.0), (50, 1000, 3000.0)]
)
@pytest.mark.parametrize("conversations", [20, 60])
def test_as_many_requests_run_in_a_growing_cache_as_in_the_simulation(
    prompt: int, answer: int, p95: float | None, conversations: int
) -> None:
    length = Length(answer, p95)
    config = inference(
        concurrency=None,
        input_length=prompt,
        output_length=answer,
        software=SoftwareStack("vllm"),
        serving=Serving(prompt=Length(prompt), answer=length),
    )

    def draw(random: Random) -> int:
        return max(1, round(length.at(random.random()) if p95 else answer))

    simulated = mean_running(conversations * (prompt + answer), prompt, draw, 600)
    running = requests_in(config, conversations)
    assert running == pytest.approx(simulated, rel=0.16)
    assert conversations_held(config, running) == pytest.approx(conversations)


@pytest.mark.parametrize("config", [inference(software=SoftwareStack("tgi")), inference(burst=100.0)])
def test_requests_hold_whole_conversations_where_cache_is_reserved_or_all_write_at_once(
    config: InferenceConfig,
) -> None:
    assert config.written_share == (1.0, 0.0)
    assert conversations_held(config, 7.0) == 7.0
    assert requests_in(config, 7.0) == pytest.approx(7.0)


def test_a_state_is_whole_from_the_start() -> None:
    """Half of the answers of 500 tokens is written on average, of which the cache of a hybrid is a part."""
    state: dict[str, Any] = {"ssm_layers": 8, "ssm_heads": 64, "ssm_head_size": 64, "ssm_state": 128, "ssm_groups": 1}
    alone = replace(LLAMA_2_7B, layers=8, heads=0, kv_heads=0, head_size=0, ffn=0, **state)
    hybrid = replace(LLAMA_2_7B, layers=16, attention_layers=4, **state)
    of_attention, of_hybrid, of_states = (
        inference(model=model(t), software=SoftwareStack("vllm")).written_share[0] for t in (LLAMA_2_7B, hybrid, alone)
    )
    assert of_states == 1.0
    assert of_attention == pytest.approx(1250 / 1500)
    values, held = 1500 * 4 * 2 * 32 * 128, 8 * (64 * 64 * 128 + 4 * (64 * 64 + 256))
    assert of_hybrid == pytest.approx(1 - values / (values + held) / 6)


def test_a_stack_limits_how_many_requests_run() -> None:
    config = inference(concurrency=None, input_length=10.0, output_length=10.0)
    config = replace(config, software=SoftwareStack("vllm"))
    assert requests_with_room(config, 80 * GB, inference_memory(config, Layout())) == 1024


def test_an_engine_reserves_the_logits_of_the_most_requests_that_it_runs() -> None:
    """4.8 GiB for 1,024 sequences of a vocabulary of 128,256 on an H100, measured in vLLM 0.11, and not less in a
    tensor group.
    """
    config = inference(concurrency=1.0, software=SoftwareStack("vllm"))
    few = replace(config, most_on_gpu=256.0)
    for layout in (Layout(), Layout(tensor=2)):
        most, a_quarter = (inference_memory(each, layout).empty["sampler"] for each in (config, few))
        assert most == pytest.approx(4.8 * 2**30, rel=0.03)
        assert a_quarter == most / 4
    assert "sampler" not in inference_memory(replace(config, software=SoftwareStack("sglang")), Layout()).empty


def test_replicas_without_a_request_stay_idle() -> None:
    layout = Layout(data=8)
    assert replicas_in_use(inference(concurrency=3.0), layout) == 3
    assert replicas_in_use(inference(concurrency=None), layout) == 8
