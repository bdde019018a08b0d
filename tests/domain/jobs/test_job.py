"""A job's configuration on a GPU: the precision that runs there, and the habits of its stack."""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.catalog.hardware import Gpu
from service.domain.errors import QuestionError
from service.domain.jobs.checks import check_job
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.job import Amount, Job, input_length, samples_of, sequence_length, tokens_per_sample
from service.domain.jobs.job_on_gpu import config_on, gpu_traits, required_config_on
from service.domain.jobs.stacks import SoftwareStack
from tests.builders.gpus import gpu, gpu_with_peaks, rate
from tests.builders.jobs import LLAMA_3_8B, model

TRAINING = Job("training", model())
INFERENCE = Job("inference", model())
A100 = gpu_with_peaks()
V100 = gpu("v100", has_flash_attention=False, rates=(rate("fp16", "accelerated", 125.0), rate("fp32", "native", 15.7)))
H100 = gpu(
    "h100", architecture="hopper", rates=(rate("fp8", "accelerated", 1979.0), rate("bf16", "accelerated", 989.0))
)


def training_on(job: Job, on: Gpu) -> TrainingConfig:
    config = required_config_on(job, on)
    assert isinstance(config, TrainingConfig)
    return config


def inference_on(job: Job, on: Gpu) -> InferenceConfig:
    config = required_config_on(job, on)
    assert isinstance(config, InferenceConfig)
    return config


def test_without_a_precision_the_fastest_usual_one_runs() -> None:
    assert training_on(TRAINING, A100).precision == "bf16"
    assert training_on(TRAINING, V100).precision == "fp16"


def test_of_several_precisions_the_first_that_runs_is_taken() -> None:
    job = replace(TRAINING, precisions=("fp8", "bf16", "fp16"))
    assert [training_on(job, card).precision for card in (H100, A100, V100)] == ["fp8", "bf16", "fp16"]


def test_a_precision_that_does_not_run_is_an_error_or_none() -> None:
    job = replace(TRAINING, precisions=("fp8",))
    assert config_on(job, V100) is None
    with pytest.raises(QuestionError, match="fp8"):
        training_on(job, V100)


def test_engines_store_narrow_weights_on_gpus_that_multiply_at_16_bits() -> None:
    config = inference_on(replace(INFERENCE, precisions=("fp8",)), V100)
    assert (config.precision, config.weight_bits) == ("fp16", 8.0)
    assert inference_on(replace(INFERENCE, precisions=("fp8",)), H100).weight_bits is None


@pytest.mark.parametrize(
    ("engine", "architecture", "precision"),
    [
        ("vllm", "ampere", "int8"),
        ("unknown", "turing", "int8"),
        ("tensorrt-llm", "hopper", "int8"),
        ("vllm", "blackwell", "bf16"),
        ("sglang", "cdna-3", "bf16"),
        ("llama.cpp", "ampere", "bf16"),
    ],
)
def test_engines_multiply_in_int8_where_they_have_kernels_for_it_and_store_it_elsewhere(
    engine: str, architecture: str, precision: str
) -> None:
    rates = (rate("bf16", "accelerated", 312.0), rate("int8", "accelerated", 624.0))
    card = gpu("card", architecture=architecture, rates=rates)
    job = replace(INFERENCE, precisions=("int8",), software=SoftwareStack(engine))
    config = inference_on(job, card)
    assert config.precision == precision
    assert config.formats.weight_bits == 8.0
    other = replace(card, architecture="another")
    assert gpu_traits(card, ("int8",)) != gpu_traits(other, ("int8",))
    stored = inference_on(replace(job, precisions=("bf16",), weight_precision="int8"), card)
    assert (stored.precision, stored.weight_bits) == ("bf16", 8.0)


@pytest.mark.parametrize(
    ("engine", "architecture", "selects"),
    [
        ("vllm", "hopper", True),
        ("vllm", "ampere", False),
        ("sglang", "cdna-4", True),
        ("tensorrt-llm", "cdna-4", False),
        ("llama.cpp", "ampere", True),
        ("transformers", "hopper", False),
        ("unknown", "blackwell", True),
    ],
)
def test_a_model_selects_tokens_where_the_engine_has_kernels_for_it(
    engine: str, architecture: str, selects: bool
) -> None:
    sizes: dict[str, Any] = {"indexed_tokens": 2048, "indexer_layers": 2, "indexer_heads": 4, "indexer_head_size": 128}
    job = replace(INFERENCE, model=model(replace(LLAMA_3_8B, **sizes)), software=SoftwareStack(engine))
    card = replace(A100, architecture=architecture)
    assert inference_on(job, card).model == (job.model if selects else INFERENCE.model)
    assert gpu_traits(A100, selects=True) != gpu_traits(replace(A100, architecture="another"), selects=True)


def test_a_chip_for_integers_runs_only_those_that_are_named() -> None:
    chip = gpu("mlu270", rates=(rate("int8", "accelerated", 128.0), rate("int4", "accelerated", 256.0)))
    generation = Job("inference", model())
    for job in (
        TRAINING,
        generation,
        replace(generation, precisions=("nf4",)),
        replace(generation, precisions=("fp8",)),
    ):
        assert config_on(job, chip) is None
    for name in ("int8", "int4"):
        config = inference_on(replace(generation, precisions=(name,)), chip)
        assert (config.precision, config.weight_bits) == (name, None)
    with pytest.raises(QuestionError, match="does not run bf16 or fp16 or fp32; it runs int4, int8"):
        required_config_on(generation, chip)


@pytest.mark.parametrize(
    ("precision", "mixed", "stack", "recipe"),
    [
        ("bf16", None, "unknown", "mixed"),
        ("bf16", False, "unknown", "pure"),
        ("bf16", None, "torchtune", "pure"),
        ("bf16", True, "torchtune", "mixed"),
        ("fp32", None, "unknown", "single"),
        ("fp64", None, "unknown", "double"),
    ],
)
def test_the_recipe_follows_from_precision_stack_and_choice(
    precision: str, mixed: bool | None, stack: str, recipe: str
) -> None:
    job = replace(TRAINING, precisions=(precision,), mixed_precision=mixed, software=SoftwareStack(stack))
    with_fp64 = gpu("a100", rates=(*A100.rates.values(), rate("fp64", "accelerated", 19.5)))
    assert training_on(job, with_fp64).recipe == recipe


def test_flash_attention_needs_a_gpu_and_a_stack_that_have_it() -> None:
    assert training_on(TRAINING, A100).flash_attention
    assert not training_on(TRAINING, V100).flash_attention
    assert not training_on(replace(TRAINING, software=SoftwareStack("mxnet")), A100).flash_attention
    assert training_on(replace(TRAINING, flash_attention=True), V100).flash_attention


@pytest.mark.parametrize(
    ("architecture", "stack", "fused"),
    [
        ("turing", "unsloth", True),
        ("volta", "transformers", True),
        ("volta", "unknown", True),
        ("volta", "deepspeed", True),
        ("volta", "torch-compile", True),
        ("volta", "megatron-lm", False),
        ("volta", "pytorch-1", False),
        ("kepler", "pytorch", False),
    ],
)
def test_pytorch_fuses_attention_on_older_gpus_too(architecture: str, stack: str, *, fused: bool) -> None:
    """QLoRA of an 8B model in Unsloth with 32,768 tokens was said to keep 197 GiB of scores on a T4."""
    older = replace(V100, architecture=architecture)
    assert training_on(replace(TRAINING, software=SoftwareStack(stack)), older).flash_attention is fused
    if fused:
        assert gpu_traits(older) != gpu_traits(replace(older, architecture="kepler"))


def test_gpus_with_equal_traits_share_a_configuration() -> None:
    faster = gpu_with_peaks(tflops=400.0, bandwidth=3000.0)
    assert gpu_traits(A100) == gpu_traits(faster)
    assert training_on(TRAINING, A100) == training_on(TRAINING, faster)
    assert gpu_traits(A100) != gpu_traits(V100)


def test_precisions_that_a_job_does_not_ask_for_decide_nothing() -> None:
    wider = replace(A100, rates={**A100.rates, "fp8": rate("fp8")})
    assert gpu_traits(A100) == gpu_traits(wider)
    assert inference_on(INFERENCE, A100) == inference_on(INFERENCE, wider)
    assert gpu_traits(A100, ("fp8",)) != gpu_traits(wider, ("fp8",))


def test_the_stack_of_a_platform_does_the_work_of_the_one_that_is_named() -> None:
    neuron = replace(A100, platform="neuron")
    vllm, sglang = (replace(INFERENCE, software=SoftwareStack(name)) for name in ("vllm", "sglang"))
    assert inference_on(vllm, A100).software.line == "vllm"
    assert inference_on(vllm, neuron).software.stack_class.id == "neuron"
    assert inference_on(sglang, neuron).software.line == "sglang"
    assert gpu_traits(neuron) != gpu_traits(A100)


def test_a_sequence_is_no_longer_than_the_model_reads() -> None:
    short = model(replace(LLAMA_3_8B, context_tokens=512))
    assert sequence_length(TRAINING) == 2048
    assert sequence_length(replace(TRAINING, model=short)) == 512
    assert sequence_length(replace(TRAINING, model=short, sequence_length=4096)) == 4096
    encoder = model(replace(LLAMA_3_8B, context_tokens=512, decoder=False), family="encoder")
    with pytest.raises(QuestionError, match="reads at most 512 tokens, not 4096"):
        sequence_length(replace(TRAINING, model=encoder, sequence_length=4096))


@pytest.mark.parametrize(("tokens", "limit"), [(0, "at least 1 token, not 0"), (513, "at most 512 tokens, not 513")])
def test_an_encoder_reads_as_many_tokens_as_it_has_positions(tokens: int, limit: str) -> None:
    """A decoder may have no prompt, or one beyond its positions."""
    encoder = model(replace(LLAMA_3_8B, context_tokens=512, decoder=False), family="encoder")
    asked = replace(INFERENCE, input_length=float(tokens))
    assert input_length(asked) == tokens
    with pytest.raises(QuestionError, match=f"reads {limit}"):
        input_length(replace(asked, model=encoder))


def test_a_network_that_reads_audio_trains_on_the_mean_of_its_encoder_and_its_decoder() -> None:
    """Whisper large: 32 layers read 1,500 tokens of audio, and 32 write the text."""
    layers = replace(LLAMA_3_8B, layers=64, encoder_layers=32, context_tokens=448)
    whisper = replace(model(layers, family="speech"), input_tokens_per_sample=1500, output_tokens_per_sample=100)
    assert sequence_length(replace(TRAINING, model=whisper)) == 800
    assert sequence_length(replace(TRAINING, model=whisper, sequence_length=300)) == 900
    assert training_on(replace(TRAINING, model=whisper, mean_length=50.0), H100).mean_length == 775


def test_training_on_audio_counts_the_tokens_of_transcripts() -> None:
    """Users do not know the mean of 800 tokens over the layers of Whisper, in which rates and amounts were counted."""
    layers = replace(LLAMA_3_8B, layers=64, encoder_layers=32, context_tokens=448)
    whisper = replace(model(layers, family="speech"), input_tokens_per_sample=1500, output_tokens_per_sample=100)
    job = replace(TRAINING, model=whisper)
    for sent, tokens in ((job, 100), (replace(job, sequence_length=300), 300), (replace(job, mean_length=50.0), 50)):
        assert tokens_per_sample(sent) == tokens
        assert training_on(sent, H100).tokens_per_sample == tokens
    assert tokens_per_sample(TRAINING) == training_on(TRAINING, H100).tokens_per_sample == 2048
    with pytest.raises(QuestionError, match="cannot exceed the 100 of sequence_length, its default here"):
        check_job(replace(job, mean_length=101.0))
    check_job(replace(job, mean_length=100.0))


def test_an_amount_counts_samples_in_each_of_its_units() -> None:
    assert samples_of(Amount(samples=7.0), 2048, 64) == 7
    assert samples_of(Amount(tokens=1e6), 2000, 64) == 500
    assert samples_of(Amount(steps=10), 2048, 64) == 640
    assert samples_of(Amount(tokens=1e6), 0, 64) is None
    assert samples_of(Amount(), 2048, 64) is None


def test_tokens_of_a_sample_are_those_that_are_generated() -> None:
    assert tokens_per_sample(replace(INFERENCE, input_length=1000.0, output_length=200.0)) == 200
    assert tokens_per_sample(replace(INFERENCE, input_length=1000.0)) == 1000
    assert tokens_per_sample(replace(TRAINING, mean_length=700.0)) == 700


def test_a_batch_per_gpu_and_offloaded_weights_fix_parts_of_a_layout_that_the_caller_leaves_open() -> None:
    job = replace(TRAINING, micro_batch=4, offload_parameters=True)
    assert job.fixed == FixedLayout(micro_batch=4, zero_stage=3)
    assert not job.layout_is_fixed
    by_caller = replace(job, layout=FixedLayout(tensor=2, micro_batch=2))
    assert by_caller.fixed == FixedLayout(tensor=2, micro_batch=2, zero_stage=3)
    assert by_caller.layout_is_fixed
    assert by_caller.in_any_layout == job


def test_a_length_of_answers_does_not_shorten_the_samples_of_an_encoder() -> None:
    """An amount of 1e9 tokens of 512 for an embedding model cost five times as much with answers of 100 tokens."""
    encoder = model(replace(LLAMA_3_8B, decoder=False), family="encoder")
    work = Job("inference", encoder, input_length=512.0, output_length=100.0)
    assert tokens_per_sample(work) == tokens_per_sample(replace(work, output_length=None)) == 512.0
