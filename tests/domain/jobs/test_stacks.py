"""Stacks by the names that people write."""

import pytest

from service.domain.jobs.software_names import aliases_of, software_name
from service.domain.jobs.stacks import PLATFORMS_WITH_STACKS, STACKS, UNKNOWN, SoftwareStack, software_called


@pytest.mark.parametrize(
    ("text", "line", "profile"),
    [
        ("vllm", "vllm", "vllm"),
        ("vLLM==0.6.0", "vllm", "vllm-0.6.0"),
        ("vllm[audio] >= 0.6", "vllm", "vllm-0.6"),
        ("vllm<0.6", "vllm", "vllm"),
        ("vllm!=0.6.1", "vllm", "vllm"),
        ("vllm==0.5.4", "early-vllm", "early-vllm-0.5.4"),
        ("vllm==0.11.0", "vllm", "vllm-0.11.0"),
        ("trt-llm", "tensorrt-llm", "tensorrt-llm"),
        ("TRT", "tensorrt", "tensorrt"),
        ("mlperf-inference", "tensorrt", "tensorrt"),
        ("peft", "transformers", "transformers"),
        ("torch==2.3", "pytorch", "pytorch-2.3"),
        ("PyTorch FSDP2", "pytorch", "pytorch"),
        ("PyTorch v2.3.1", "pytorch", "pytorch-2.3.1"),
        ("TF2", "tensorflow", "tensorflow"),
        ("nemo-megatron", "nemo-megatron", "nemo-megatron"),
        ("torch==1.13", "pytorch-1", "pytorch-1-1.13"),
        ("pytorch==23.02", "early-pytorch-ngc", "early-pytorch-ngc-23.02"),
        ("pytorch-ngc", "pytorch", "pytorch"),
        ("pytorch-ngc==25.01", "pytorch", "pytorch-25.01"),
        ("pytorch==21.03", "early-pytorch-ngc", "early-pytorch-ngc-21.03"),
        ("trtllm", "tensorrt-llm", "tensorrt-llm"),
        ("trtllm-serve", "tensorrt-llm", "tensorrt-llm"),
        ("vLLM TPU", "vllm-tpu", "vllm-tpu"),
        ("vllm-rocm==0.11.0", "vllm", "vllm-0.11.0"),
        ("Hugging Face", "transformers", "transformers"),
        ("llama cpp", "llama.cpp", "llama.cpp"),
        ("maxtext", "maxtext", "maxtext"),
        ("nxd", "neuronx-distributed", "neuronx-distributed"),
        ("torch.compile", "torch-compile", "torch-compile"),
        ("nanoGPT", "torch-compile", "torch-compile"),
        ("faster-whisper==1.1", "ctranslate2", "ctranslate2-1.1"),
        ("TEI", "text-embeddings-inference", "text-embeddings-inference"),
        ("DeepSpeed ZeRO-3", "deepspeed", "deepspeed"),
        ("pytorch with CUDA 11.8", "pytorch", "pytorch"),
        ("PyTorch release 23.10", "pytorch", "pytorch-23.10"),
        ("vllm 0.10.1rc1", "vllm", "vllm-0.10.1"),
        ("Hugging Face Transformers", "transformers", "transformers"),
        ("diffusers==0.31", "pytorch", "pytorch"),
        ("torchvision 0.19", "pytorch", "pytorch"),
        ("trl==0.12", "transformers", "transformers"),
        ("sentence-transformers 5.1", "transformers", "transformers"),
        ("kohya", "pytorch", "pytorch"),
        ("kohya_ss", "pytorch", "pytorch"),
        ("kohya_ss==25.2", "pytorch", "pytorch"),
        ("sd-scripts", "pytorch", "pytorch"),
        ("OneTrainer", "pytorch", "pytorch"),
        ("ai-toolkit", "pytorch", "pytorch"),
        ("SimpleTuner v4", "pytorch", "pytorch"),
        ("open_clip", "pytorch", "pytorch"),
        ("nnU-Net", "pytorch", "pytorch"),
        ("OpenRLHF", "deepspeed", "deepspeed"),
        ("abacus", "unknown", "unknown"),
        (None, "unknown", "unknown"),
    ],
)
def test_a_name_or_requirement_finds_its_stack_and_release(text: str | None, line: str, profile: str) -> None:
    software = software_called(text)
    assert (software.line, software.profile) == (line, profile)


def test_a_library_that_compiles_pytorch_makes_it_another_stack() -> None:
    assert software_called("torch==2.3").using(["dali", "torch.compile"]) == SoftwareStack("torch-compile")
    for name in ("torchtitan", "torch==2.3"):
        assert software_called(name).using(["dali"]) == software_called(name)
    assert software_called("torchtitan").using(["torch.compile"]) == software_called("torchtitan")


def test_every_stack_is_found_by_its_own_name_and_no_name_stands_twice() -> None:
    assert [software_called(stack.id).stack for stack in STACKS] == list(STACKS)
    assert len({stack.id for stack in STACKS}) == len(STACKS)


def test_no_alias_stands_twice_or_for_the_name_of_another_stack() -> None:
    aliases = [alias for stack in STACKS for alias in (*stack.aliases, *stack.runs)]
    assert len(aliases) == len({*aliases, *(stack.id for stack in STACKS)}) - len(STACKS)


def test_every_stack_of_a_platform_is_one_that_people_can_name() -> None:
    platforms = sorted(PLATFORMS_WITH_STACKS)
    stood_for = {(each.id, platform): SoftwareStack(each.id).on(platform) for each in STACKS for platform in platforms}
    others = {key: found for key, found in stood_for.items() if found.line != key[0]}
    assert {key[1] for key in others} == PLATFORMS_WITH_STACKS
    assert all(found == software_called(found.line) for found in others.values())
    assert all(software_called(name).on("cuda").line == name for name, _ in others)


@pytest.mark.parametrize("name", ["pytorch", "pytorch-neuronx", "transformers", "optimum-neuron"])
def test_language_models_are_trained_with_nxd_on_trainium_whatever_library_is_named(name: str) -> None:
    software = software_called(name)
    assert software.on("neuron", trains_language_model=True).line == "neuronx-distributed"
    assert software.on("neuron").line != "neuronx-distributed"
    assert software.on("cuda", trains_language_model=True) == software


def test_plain_pytorch_has_fused_attention_and_old_pytorch_has_not() -> None:
    assert not software_called("pytorch").stack.before_flash
    assert not software_called("pytorch>=2.3").stack.before_flash
    assert software_called("pytorch==1.10").stack.before_flash


def test_an_unknown_stack_has_the_habits_of_none() -> None:
    assert not UNKNOWN.stack_class.prefers_model_parallelism
    assert not UNKNOWN.stack_class.batches_continuously


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("TRT-LLM", "tensorrt-llm"),
        ("megatron", "megatron-lm"),
        ("paddle", "paddlepaddle"),
        ("SDPA", "scaled-dot-product-attention"),
        ("Scaled Dot Product Attention", "scaled-dot-product-attention"),
        ("pytorch_lightning", "pytorch-lightning"),
        ("Lightning", "pytorch-lightning"),
        ("Neuron SDK", "neuron"),
        ("vllm", "vllm"),
        ("no such thing", None),
    ],
)
def test_software_is_known_by_any_of_its_names(written: str, name: str | None) -> None:
    known: tuple[str, ...] = ("tensorrt-llm", "megatron-lm", "paddlepaddle", "vllm", "pytorch", "neuron")
    known += ("scaled-dot-product-attention", "pytorch-lightning", "torch-neuronx")
    assert software_name(written, known) == name


def test_a_stack_and_a_feature_list_their_other_names() -> None:
    known = ("tensorrt-llm", "multi-instance-gpu", "sglang")
    assert "trtllm" in aliases_of("tensorrt-llm", known)
    assert aliases_of("multi-instance-gpu", known) == ["mig"]
    assert aliases_of("sglang", known) == []
