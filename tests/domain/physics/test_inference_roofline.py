"""Ideal seconds of reading a prompt and of decoding."""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.calibration.coefficients import Coefficients
from service.domain.calibration.step_kinds import GENERATION
from service.domain.catalog.hardware import Gpu, peak_flops
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.job import Job
from service.domain.jobs.job_on_gpu import required_config_on
from service.domain.jobs.stacks import SoftwareStack, software_called
from service.domain.models.counts import multiplied_parameters
from service.domain.models.described import model_of
from service.domain.models.model import Model
from service.domain.physics.estimate import estimate_config
from service.domain.physics.inference_roofline import (
    HOP_SECONDS,
    arrival_demands,
    forward_demands,
    forward_terms,
    pass_demands,
    prompt_demands,
    request_demands,
    step_demands,
    step_expert_launches,
    step_weight_bytes,
)
from service.domain.physics.parallelism import Layout
from service.domain.physics.resources import Demands, seconds_per_flop
from service.domain.physics.training_roofline import kernels_per_pass, training_demands
from tests.builders.calibrations import FITTED, UNFITTED
from tests.builders.clusters import cluster
from tests.builders.gpus import rate, unknown_gpu
from tests.builders.jobs import LLAMA_3_8B, MIXTRAL, inference, model, training

WHISPER: dict[str, Any] = {
    "hidden": 1280,
    "heads": 20,
    "kv_heads": 20,
    "head_size": 64,
    "ffn": 5120,
    "gated": False,
    "vocabulary": 51_866,
    "tied": True,
    "encoder_layers": 32,
    "context_tokens": 448,
    "learned_positions": 1948,
}
"""Dimensions that Whisper large and turbo share."""


def test_decoding_alone_waits_for_memory() -> None:
    found = estimate_config(UNFITTED, inference(concurrency=1.0), cluster(gpus=1), Layout())
    assert found.bottleneck == "gpu_memory_bandwidth"
    assert found.seconds_to_first_token is not None
    assert found.seconds_per_output_token is not None


PROJECTION = 128_256 * 4096
"""Weights of the output projection of Llama 3 8B."""


def test_decoding_reads_every_weight_once_and_the_cache_of_every_conversation() -> None:
    """8.03e9 parameters without an embedding of 0.53e9, and 131,072 bytes of cache per token, at 16 bits."""
    config = inference(input_length=900.0, output_length=200.0)
    weights = step_weight_bytes(config, Layout(), 4.0)
    assert weights == pytest.approx(2 * 7.5e9, rel=0.01)
    assert request_demands(config, Layout(), 1)["cache", "memory"] == pytest.approx(1000 * 131_072)
    quantised = step_weight_bytes(replace(config, weight_bits=4.0), Layout(), 4.0)
    assert quantised == pytest.approx(weights / 4 + 3 / 4 * 2 * PROJECTION)  # which stays at 16 bits


@pytest.mark.parametrize("decoding", [32, 4])
def test_an_encoder_reads_the_prompt_and_a_decoder_writes_the_answer(decoding: int) -> None:
    """Whisper large has 32 layers of each, and turbo 4 that decode. A layer has 12 h^2 weights, and 4 h^2 more where it
    attends to the encoder, of which the 2 h^2 for keys and values multiply the prompt.
    """
    square = 1280**2
    t = replace(LLAMA_3_8B, **WHISPER, layers=32 + decoding)
    config = inference(model=model_of(t, name="whisper"), input_length=1500.0, output_length=100.0)
    read, written = (12 * 32 + 2 * decoding) * square, 14 * decoding * square + 51_866 * 1280
    assert multiplied_parameters(config.model) == pytest.approx(read + written)
    prompt, step = prompt_demands(config, Layout(), 1), step_demands(config, Layout())
    assert prompt["prefill", "flops"] == pytest.approx(2 * 1500 * read)
    assert prompt["attention", "wide_flops"] == pytest.approx(32 * 4 * 1280 * 1500**2)  # nothing is masked
    assert pass_demands(config, Layout())["pass", "memory"] == pytest.approx(2 * read)
    assert step_weight_bytes(config, Layout(), 1.0) == pytest.approx(2 * written)
    assert request_demands(config, Layout(), 1)["matrix", "flops"] == pytest.approx(2 * written)
    deeper = inference(model=model_of(replace(t, layers=32 + 2 * decoding), name="deeper"))
    assert step_demands(deeper, Layout())["launch", "seconds"] == pytest.approx(2 * step["launch", "seconds"])


def test_an_encoder_sums_over_tensor_ranks_in_prompts_and_a_decoder_in_steps() -> None:
    """A layer that decodes has three sums, because it also attends to the encoder."""
    t = replace(LLAMA_3_8B, **WHISPER, layers=32 + 4)
    config, half = inference(model=model_of(t, name="whisper"), input_length=1500.0), Layout(tensor=2)
    of_sublayer = 2 * 1280  # 2 (n - 1) / n is 1 for two ranks
    assert prompt_demands(config, half, 2)["tensor", "link"] == 2 * 32 * of_sublayer * 1500
    assert request_demands(config, half, 2)["tensor", "link"] == 3 * 4 * of_sublayer
    assert step_demands(config, half)["latency", "seconds"] == pytest.approx(3 * 4 * HOP_SECONDS)


def stored_as(name: str, stack: str, clients: float) -> InferenceConfig:
    """Llama 3 8B in a stack, with its weights in a format."""
    job = Job("inference", inference().model, precisions=(name,), software=SoftwareStack(stack), concurrency=clients)
    config = required_config_on(job, unknown_gpu(rates=[rate("bf16", dense_tflops=100.0)]))
    assert isinstance(config, InferenceConfig)
    return config


def read_by_a_step(name: str, stack: str, clients: float) -> float:
    """Bytes of the weights that a step moves in a stack, where they are stored in a format, apart from its output
    projection at 16 bits.
    """
    return float(step_weight_bytes(stored_as(name, stack, clients), Layout(), clients)) - 2 * PROJECTION


def test_narrow_weights_are_no_faster_in_a_stack_that_expands_them() -> None:
    assert read_by_a_step("int8", "transformers", 4.0) == read_by_a_step("bf16", "transformers", 4.0)
    whole, narrow = (step_weight_bytes(stored_as(name, "vllm", 4.0), Layout(), 4.0) for name in ("bf16", "int8"))
    assert narrow == pytest.approx(whole / 2)


@pytest.mark.parametrize("stack", ["vllm", "transformers", "litgpt-generate", "unknown"])
def test_bitsandbytes_expands_weights_for_several_tokens_in_every_stack(stack: str) -> None:
    """One token reads them as they are stored; several make it write them at 16 bits and read them again."""

    def bits(name: str, clients: float) -> float:
        return 16 * read_by_a_step(name, stack, clients) / read_by_a_step("bf16", stack, clients)

    assert bits("nf4", 1.0) == pytest.approx(4.5)
    assert bits("nf4", 2.0) == bits("nf4", 64.0) == pytest.approx(36.5)
    assert stored_as("nf4", stack, 1.0).formats.unpacking_flops == 50.0
    assert stored_as("int4", stack, 1.0).formats.unpacking_flops == 0.0
    assert bits("nf4-dq", 8.0) == pytest.approx(36.127)
    # GPTQ and AWQ have kernels of their own, also in stacks that expand other formats.
    assert bits("int4", 1.0) == bits("int4", 64.0) == pytest.approx(4.25)


@pytest.mark.parametrize(("int8", "tflops"), [(284.0, 142.0), (142.0, 71.0)])
def test_sums_in_16_bits_double_the_rate_of_cards_with_slow_sums_in_32(int8: float, tflops: float) -> None:
    """An RTX 3090 multiplies 16 bits at 71 TFLOPS with sums in 32 bits, 142 in 16, and int8 at 284."""
    rates = [rate("bf16", dense_tflops=71.0), rate("int8", dense_tflops=int8)]
    card = unknown_gpu(rates=rates, tensor_core_generation=3)

    def tflops_in(stack: str, card: Gpu = card) -> float:
        return 1e-12 / seconds_per_flop(inference(software=SoftwareStack(stack)), card)["flops"]

    assert tflops_in("llama.cpp") == pytest.approx(tflops)
    assert tflops_in("vllm") == pytest.approx(71.0)
    # Pascal adds products of int8 without tensor cores, and has no such unit for 16 bits.
    assert tflops_in("llama.cpp", replace(card, tensor_core_generation=None)) == pytest.approx(71.0)


def test_products_take_their_time_at_the_rate_that_a_card_sustains() -> None:
    card = unknown_gpu(rates=[rate("bf16", dense_tflops=65.0)], base_clock_mhz=585.0, boost_clock_mhz=1590.0)
    held = replace(card, base_clock_mhz=1500.0)
    for config in (inference(), training()):
        slow, fast = (seconds_per_flop(config, each) for each in (card, held))
        assert 1e-12 / fast["flops"] == pytest.approx(65.0)
        assert {name: fast[name] / slow[name] for name in slow} == {
            name: pytest.approx(card.sustained_share("bf16")) for name in ("flops", "wide_flops")
        }


def test_products_in_fp32_take_the_power_of_a_card() -> None:
    """An A10 has twice the fp32 rate of a V100 and half of its power, and runs BERT no faster."""
    rates = [rate("fp32", dense_tflops=31.2), rate("fp16", dense_tflops=125.0)]
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)

    def seconds(precision: str, watts: float) -> float:
        config = inference(model=resnet, precision=precision, concurrency=64.0)
        card = replace(unknown_gpu(rates=rates), tdp_watts=watts, memory_bandwidth_gb_per_second=600.0)
        return sum(forward_terms(config, cluster(card, gpus=1)).seconds.values())

    assert seconds("fp32", 150.0) > 1.3 * seconds("fp32", 300.0)
    assert seconds("fp16", 300.0) < seconds("fp16", 150.0) < 1.3 * seconds("fp16", 300.0)


def test_matrix_products_take_the_power_of_a_card() -> None:
    rates = [rate("fp32", dense_tflops=31.2), rate("fp16", dense_tflops=125.0)]
    network = model(None, 0.9e9, family="diffusion", forward_flops_per_sample=8e11)

    def joules(precision: str, watts: float, steps: float = 50.0) -> float:
        config = inference(model=network, precision=precision, concurrency=1.0, steps=steps, passes=steps)
        card = replace(unknown_gpu(rates=rates), tdp_watts=watts, memory_bandwidth_gb_per_second=600.0)
        return watts * forward_terms(config, cluster(card, gpus=1)).seconds.get("matrix_power", 0.0)

    assert joules("fp16", 150.0) == pytest.approx(joules("fp16", 300.0))
    assert joules("fp16", 150.0) > 0.0 == joules("fp32", 150.0)
    assert joules("fp16", 150.0, steps=1.0) == pytest.approx(joules("fp16", 150.0) / 50.0)


def test_kernels_for_one_token_unpack_weights_outside_of_matrix_engines() -> None:
    """llama.cpp writes 54 tokens of an 8B in fp16 per second on an A100 and on an RTX 4090, with half of its memory
    bandwidth and 4.2 times its fp32 rate.
    """

    def token(stack: str, fp32: float, bits: float | None = None, unpacking: float = 0.0) -> float:
        rates = [rate("fp32", dense_tflops=fp32), rate("bf16", dense_tflops=312.0)]
        card = replace(unknown_gpu(rates=rates), memory_bandwidth_gb_per_second=2000.0, memory_gb=80.0)
        config = inference(concurrency=1.0, weight_bits=bits, software=SoftwareStack(stack), unpacking_flops=unpacking)
        found = estimate_config(UNFITTED, config, cluster(card, gpus=1), Layout())
        assert found.seconds_per_output_token is not None
        return found.seconds_per_output_token.likely

    slower = token("llama.cpp", 19.5) - token("llama.cpp", 39.0)
    # 7.5 billion weights, with an addition and a multiplication each.
    assert slower == pytest.approx(GENERATION.start["unpacking"] * 15e9 / 39e12, rel=0.01)
    assert token("llama.cpp", 19.5, 4.0) - token("llama.cpp", 39.0, 4.0) == pytest.approx(slower)
    assert token("vllm", 19.5) == token("vllm", 39.0)
    # A format that takes 50 operations to unpack takes them in every stack, but for the output projection.
    of_format = token("vllm", 19.5, 4.5, 50.0) - token("vllm", 39.0, 4.5, 50.0)
    assert of_format == pytest.approx(25 * slower * (1 - PROJECTION / 7.5e9), rel=0.01)


def test_a_prompt_takes_two_flops_per_parameter_and_token() -> None:
    demands = prompt_demands(inference(input_length=2000.0), Layout(), 1)
    assert demands["prefill", "flops"] == pytest.approx(2 * 7.5e9 * 2000, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "format_"), [("fp8", "bf16"), ("fp16", "bf16"), ("fp32", "fp32"), ("tf32", "tf32")]
)
def test_attention_runs_at_16_bits_or_more(precision: str, format_: str) -> None:
    gpu = cluster().gpu
    wide = seconds_per_flop(inference(precision=precision), gpu)["wide_flops"]
    assert wide == 1 / peak_flops(gpu, format_)


def arrival_of(config: InferenceConfig, layout: Layout) -> Demands:
    return arrival_demands(config, layout, prompt_demands(config, layout, 8))


def test_the_kernels_of_a_prompt_start_one_by_one_and_experts_get_their_tokens_first() -> None:
    dense, experts = (arrival_of(inference(model=each), Layout()) for each in (inference().model, MIXTRAL))
    assert dense["prompt_launch", "seconds"] == pytest.approx(32 * 12 * 5e-6)
    assert dense["prompt_routing", "seconds"] == 0.0
    assert experts["prompt_routing", "seconds"] == pytest.approx(0.032)


def test_experts_that_are_computed_one_after_another_start_kernels_of_their_own() -> None:
    """Each of 32 layers: the two experts of one token, and all eight for a prompt and for a large batch."""

    def launches(name: str, concurrency: float = 1) -> list[float]:
        config = inference(model=MIXTRAL, software=software_called(name), concurrency=concurrency)
        step = step_demands(config, Layout())["launch", "seconds"] + step_expert_launches(config, concurrency)
        prompt = pass_demands(config, Layout())["pass", "seconds"]
        arrival = arrival_of(config, Layout())["prompt_launch", "seconds"]
        return [float(each) for each in (step, prompt, arrival)]

    grouped, kernel = launches("transformers==5.1.0"), 32 * 12 * 5e-6
    assert grouped == launches("vllm")
    added = [apart - of_group for apart, of_group in zip(launches("transformers"), grouped, strict=True)]
    assert added == pytest.approx([2 * kernel, 8 * kernel, 8 * kernel])
    assert launches("transformers", 256)[0] - grouped[0] == pytest.approx(8 * kernel)


def test_a_pass_starts_the_kernels_of_each_kind_of_layer_in_prompts_and_in_steps() -> None:
    """An expert layer starts more kernels than a dense one, as MLA does than other attention."""
    routed, dense = MIXTRAL.transformer, inference().model.transformer
    assert routed is not None
    assert dense is not None
    shared = replace(routed, shared_experts=1)
    latent = replace(dense, mla_kv_rank=512, mla_rope_size=64, mla_value_size=128)
    assert kernels_per_pass(routed) > kernels_per_pass(dense) == 32 * 12
    assert kernels_per_pass(shared) > kernels_per_pass(routed)
    assert kernels_per_pass(latent) > kernels_per_pass(dense)
    config, launch = inference(model=MIXTRAL), kernels_per_pass(routed) * 5e-6
    assert step_demands(config, Layout())["launch", "seconds"] == pytest.approx(launch)
    assert pass_demands(config, Layout())["pass", "seconds"] == pytest.approx(launch)
    assert arrival_of(config, Layout())["prompt_launch", "seconds"] == pytest.approx(launch)


def test_a_prompt_takes_two_flops_per_parameter_in_experts_and_elsewhere() -> None:
    """Each token of Mixtral uses 2 of 8 experts, of 5.64e9 parameters each."""
    demands = prompt_demands(inference(model=MIXTRAL, input_length=1000.0), Layout(), 1)
    experts = demands["prefill_experts", "flops"]
    assert experts == pytest.approx(2 * 1000 * 2 * (46.7e9 - 12.88e9) / 6, rel=1e-3)
    both = 2 * 1000 * multiplied_parameters(MIXTRAL)
    assert demands["prefill", "flops"] + experts == pytest.approx(both)


@pytest.mark.parametrize(("tokens", "stages", "share"), [(4096.0, 2, 1.0), (4096.0, 4, 1.0), (4 * 8192.0, 4, 7 / 16)])
def test_a_prompt_passes_through_all_stages_before_its_first_token(tokens: float, stages: int, share: float) -> None:
    """Stages that share its work shorten the time of a prompt only as far as it takes several passes."""
    config, work = inference(input_length=tokens), ("prefill", "flops")
    alone, cut = (
        prompt_demands(config, layout, 8)[work] + arrival_of(config, layout)[work]
        for layout in (Layout(tensor=2), Layout(tensor=2, pipeline=stages))
    )
    assert cut == pytest.approx(share * alone)


def test_a_recommender_reads_a_few_rows_of_its_tables() -> None:
    """DLRM has 48 GB of tables, of which no batch reads much."""
    tables = model(None, 24.1e9, family="recommender", forward_flops_per_sample=4.9e6)
    demands = forward_demands(inference(model=replace(tables, active_parameters=2.4e6)))
    assert demands.batch["weights", "memory"] == pytest.approx(2 * 2.4e6)


def test_spread_experts_are_read_by_the_gpus_that_hold_them() -> None:
    """Mixtral on 4 GPUs with 2 of its 8 experts each: many tokens use all experts, each GPU reads a quarter."""
    config = inference(model=MIXTRAL)
    whole, spread = (step_weight_bytes(config, Layout(data=4, expert=expert), 1e4) for expert in (1, 4))
    experts = 2.0 * (46.7e9 - 12.88e9) / 6 * 8
    assert whole - spread == pytest.approx(0.75 * experts, rel=1e-3)
    assert ("expert", "link") in request_demands(config, Layout(data=4, expert=4), 8)


def test_tokens_cross_the_network_once_for_each_other_node_with_their_experts() -> None:
    """Mixtral with an expert on each of 8 GPUs: two of them per token, on one node of 8 GPUs or on two of 4."""
    layout, config = Layout(data=8, expert=8), inference(model=MIXTRAL)
    one_node, two_nodes = (request_demands(config, layout, linked) for linked in (8, 4))
    assert one_node["expert", "slow_link"] == 0
    # A token goes to the other node unless both experts are on its own: with a probability of 3/4.
    assert two_nodes["expert", "slow_link"] == pytest.approx(one_node["expert", "link"] * 0.75 / (2 * 7 / 8))
    assert two_nodes["expert", "link"] == pytest.approx(one_node["expert", "link"] * (3 / 4) / (7 / 8))


def test_each_stage_of_a_pipeline_is_scheduled_for_itself() -> None:
    config = inference()
    one, four = (Layout(pipeline=stages) for stages in (1, 4))
    assert step_demands(config, four)["step", "seconds"] == 4 * step_demands(config, one)["step", "seconds"]
    assert request_demands(config, four, 8)["matrix", "flops"] == request_demands(config, one, 8)["matrix", "flops"] / 4


def test_tokens_travel_to_spread_experts_in_the_width_that_the_experts_read() -> None:
    layout, transformer = Layout(data=4, expert=4), MIXTRAL.transformer
    assert transformer is not None
    narrow = replace(MIXTRAL, transformer=replace(transformer, expert_latent=1024))
    whole, latent = (request_demands(inference(model=each), layout, 8) for each in (MIXTRAL, narrow))
    assert latent["expert", "link"] == whole["expert", "link"] / 4


def test_no_step_is_faster_than_reading_the_weights() -> None:
    config = inference(concurrency=1.0)
    found = estimate_config(FITTED, config, cluster(gpus=1), Layout())
    assert found.seconds_per_output_token is not None
    weights = step_weight_bytes(config, Layout(), 1.0)
    assert found.seconds_per_output_token.likely >= weights / cluster(gpus=1).memory_bandwidth


def test_no_coefficient_makes_weights_arrive_faster_than_the_memory_delivers_them() -> None:
    """The time of a step is that of reading the weights and of all other work, by any coefficients."""
    config, machine = inference(concurrency=1.0), cluster(gpus=1)

    def seconds(log_factor: float) -> float:
        calibration = replace(UNFITTED, coefficients=Coefficients({"generation.weights": {"": log_factor}}))
        found = estimate_config(calibration, config, machine, Layout())
        assert found.seconds_per_output_token is not None
        return found.seconds_per_output_token.likely

    weights = step_weight_bytes(config, Layout(), 1.0) / machine.memory_bandwidth
    launches = step_demands(config, Layout())["launch", "seconds"] * GENERATION.start["launch"]
    assert seconds(-20.0) > weights + launches
    assert seconds(0.0) == pytest.approx(seconds(-20.0) + GENERATION.start["weights"] * weights, rel=1e-3)


def test_a_named_engine_or_none_reads_every_prompt() -> None:
    """The whole rate leaves no more prompts per second than the prefill rate has tokens for."""
    for software in (SoftwareStack("vllm"), SoftwareStack()):
        config = inference(input_length=2000.0, output_length=16.0, concurrency=64.0, software=software)
        found = estimate_config(UNFITTED, config, cluster(gpus=1), Layout())
        assert found.samples_per_second is not None
        assert found.prefill_tokens_per_second is not None
        assert found.samples_per_second.likely * 2000 < found.prefill_tokens_per_second.likely


def test_a_larger_batch_takes_more_flops_and_the_same_weights() -> None:
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    one, many = (
        forward_terms(inference(model=resnet, concurrency=batch), cluster(gpus=1)).seconds for batch in (1.0, 64.0)
    )
    assert many["matrix"] == pytest.approx(64 * one["matrix"])
    assert many["weights"] == one["weights"]


def test_weights_that_are_only_stored_in_4_bits_narrow_no_values() -> None:
    network = inference(model=model(None, 12e9, family="diffusion", forward_flops_per_sample=1e13))
    whole, stored = (forward_demands(replace(network, weight_bits=bits)) for bits in (None, 4.0))
    assert stored.sample["memory", "memory"] == whole.sample["memory", "memory"]
    assert stored.batch["weights", "memory"] == whole.batch["weights", "memory"] / 4
    narrow = forward_demands(replace(network, precision="fp8"))
    assert narrow.sample["memory", "memory"] == whole.sample["memory", "memory"] / 2


def test_a_network_moves_the_values_that_its_convolutions_write() -> None:
    """EfficientNet-B0 has a tenth of the FLOPs of ResNet-50 and writes 0.6 times as many values."""
    resnet, efficientnet = (
        model(None, parameters, family="cnn", forward_flops_per_sample=flops, activation_values_per_sample=values)
        for parameters, flops, values in ((25.6e6, 8.2e9, 11.1e6), (5.3e6, 0.78e9, 6.75e6))
    )
    moved = [forward_terms(inference(model=each), cluster(gpus=1)).seconds["memory"] for each in (resnet, efficientnet)]
    assert moved[1] == pytest.approx(moved[0] * 6.75 / 11.1)
    unknown = forward_terms(inference(model=replace(resnet, activation_values_per_sample=None)), cluster(gpus=1))
    assert unknown.seconds["memory"] == pytest.approx(moved[0], rel=0.01)


def test_the_kernels_of_a_network_grow_with_its_layers() -> None:
    """DenseNet-121 has 121 layers with weights and ResNet-50 has 54, which a network of unknown depth takes."""
    resnet, densenet, unknown = (
        model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9, weight_layers=layers)
        for layers in (54, 121, None)
    )

    def launches(each: Model) -> tuple[float, float]:
        forward = forward_terms(inference(model=each), cluster(gpus=1)).seconds["launch"]
        return forward, float(training_demands(training(model=each), Layout(), 1)["launch", "seconds"])

    assert launches(densenet) == pytest.approx([121 / 54 * seconds for seconds in launches(resnet)])
    assert launches(unknown) == launches(resnet)


@pytest.mark.parametrize("family", ["cnn", "encoder"])
def test_a_stack_that_compiles_a_network_launches_a_kernel_per_layer(family: str) -> None:
    """ResNet-50 and an encoder of 32 layers launch a fifth of the kernels that PyTorch does."""
    network = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9) if family == "cnn" else model()

    def launches(stack: str) -> float:
        config = inference(model=network, software=SoftwareStack(stack))
        return forward_terms(config, cluster(gpus=1)).seconds["launch"]

    assert launches("tensorrt") == launches("onnxruntime") == pytest.approx(launches("pytorch") / 5)
    assert launches("mxnet") == launches("pytorch")


def test_attention_that_is_not_fused_writes_the_scores_of_every_pair_of_tokens() -> None:
    """A layer of 32 heads and a width of 4,096 moves 34 bytes per value of a token, and 5 per pair of tokens."""

    def moved(stack: str, length: float) -> float:
        config = inference(software=SoftwareStack(stack), input_length=length)
        return forward_terms(config, cluster(gpus=1)).seconds["memory"] / length

    assert moved("pytorch", 512.0) == pytest.approx(moved("pytorch", 128.0))
    for length in (128.0, 512.0):
        assert moved("torchscript", length) / moved("pytorch", length) == pytest.approx(
            1 + 5 * 32 * length / (34 * 4096)
        )


def test_one_image_waits_for_the_host_and_many_hide_it() -> None:
    """ResNet-50 in PyTorch answers 1 and 8 images in about the same time, and 1,024 in that of their FLOPs."""
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    one, eight, many = (
        estimate_config(
            UNFITTED,
            inference(model=resnet, concurrency=batch, software=SoftwareStack("pytorch")),
            cluster(gpus=1),
            Layout(),
        ).step
        for batch in (1.0, 8.0, 1024.0)
    )
    assert one is not None
    assert eight is not None
    assert many is not None
    assert one.bottleneck == eight.bottleneck == "host_overhead"
    assert eight.seconds < 1.25 * one.seconds
    assert many.parts["launch"] + many.parts["step"] < 0.1 * many.seconds
