"""Software stacks: the habits that a family of stacks shares, and the habits of each stack."""

import re
from dataclasses import dataclass
from typing import Literal

_VERSION = re.compile(r"\d+(?:\.\d+)*")
_REQUIREMENT = re.compile(r"\s*([^<>=!~@\[\s]+)\s*(?:\[[^\]]*\])?\s*([<>=!~@]*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StackClass:
    """A family of stacks that run jobs in similar ways. Calibration falls back to it for a stack without runs."""

    id: Literal["unknown", "megatron", "tuned", "fsdp", "eager", "graph", "engine", "neuron"]
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages that the stacks offer."""
    cuts_models: bool = True
    """Tensor and pipeline parallelism are available; without them, training uses replicas and ZeRO alone."""
    cuts_by_habit: bool = False
    """Large models are cut by default; other stacks shard them over the data-parallel ranks (ZeRO-3, FSDP)."""
    batches_continuously: bool = False
    """Prompts of new requests are processed between the decoding steps of running requests."""
    pads_heads: bool = False
    """A tensor-parallel degree need not divide the attention heads: 12 NeuronCores run models of 32 heads (AWS)."""


_UNKNOWN_CLASS = StackClass("unknown")
# Megatron's distributed optimizer is ZeRO-1.
_MEGATRON = StackClass("megatron", zero_stages=(0, 1), cuts_by_habit=True)
# A benchmark's own code.
_TUNED = StackClass("tuned", zero_stages=(0, 1), cuts_by_habit=True)
_FSDP = StackClass("fsdp")
_EAGER = StackClass("eager", cuts_models=False)
_GRAPH = StackClass("graph", zero_stages=(0,), cuts_models=False)
_ENGINE = StackClass("engine", batches_continuously=True)
# Compiled for AWS' own chips.
_NEURON = StackClass("neuron", pads_heads=True)


@dataclass(frozen=True, slots=True)
class Stack:
    """A framework or engine. One entry of `STACKS` is all that a new stack needs."""

    id: str
    stack_class: StackClass
    pattern: str = ""
    """Regular expression of its other names."""
    before_flash: bool = False
    """Its published profiles predate FlashAttention."""
    half_weights: bool = False
    """Fine-tunes in 16 bits without an fp32 copy of the weights by default."""
    keeps_gathered_weights: bool = False
    """Holds whole weights besides their shards: 13B with LoRA takes 35.6 GB on each of 4 GPUs (LitGPT)."""
    multiplies_int8: bool = False
    """Quantises activations as well as weights (W8A8), so that int8 units are used."""
    fp8_cache_with: tuple[str, ...] = ()
    """Precisions with which it keeps the KV cache in fp8 by default."""
    bits_of_whole_file: bool = False
    """Its bits per weight include the embedding and the head."""
    most_in_flight: float = 2048.0
    """Most sequences that are decoded together; the default is TensorRT-LLM's."""


UNKNOWN_STACK = Stack("unknown", _UNKNOWN_CLASS)
STACKS = (
    Stack("megatron-bridge", _MEGATRON),
    Stack("nemo-automodel", _FSDP, r"nemo[ -]?automodel|automodel"),
    Stack("nemo-megatron", _MEGATRON, r"nemo[ -]megatron"),
    Stack("nemo", _MEGATRON, r"nemo|nvidia[ -]nemo"),
    Stack("megatron-core", _MEGATRON),
    Stack("megatron-lm", _MEGATRON, r"megatron"),
    Stack("mlperf-training", _TUNED),
    Stack("llm-foundry", _FSDP),
    Stack("torchtitan", _FSDP),
    Stack("torchtune", _EAGER, half_weights=True),
    Stack("litgpt-generate", _EAGER),
    Stack("litgpt", _EAGER, r"lit-gpt", keeps_gathered_weights=True),
    Stack("llama-factory", _EAGER),
    Stack("tensorrt-llm", _ENGINE, r"trt-?llm|tensorrt_llm", fp8_cache_with=("fp8", "fp4", "nvfp4", "mxfp4")),
    Stack("mlperf-inference", _GRAPH, multiplies_int8=True),
    Stack("tensorrt", _GRAPH, r"trt", multiplies_int8=True),
    Stack("vllm", _ENGINE, most_in_flight=1024.0),  # the default of max_num_seqs on GPUs of 70 GB
    Stack("sglang", _ENGINE),
    Stack("mlperf-serving", _ENGINE, fp8_cache_with=("fp8", "fp4", "nvfp4")),
    Stack("vllm-ascend", _ENGINE),
    Stack("mindie", _ENGINE),
    Stack("tgi", _ENGINE, r"text-generation-inference"),
    Stack("llama.cpp", _GRAPH, r"llama[ -]?cpp|ollama", bits_of_whole_file=True),
    Stack("gpt-fast", _GRAPH),
    Stack("exllamav2", _GRAPH, r"exllama"),
    Stack("mlc-llm", _GRAPH, r"mlc"),
    Stack("neuronx-distributed", _NEURON),
    Stack("transformers-neuronx", _NEURON),
    Stack("torch-neuronx", _NEURON, r"neuronx?", before_flash=True),
    Stack("gpt-neox", _MEGATRON),
    Stack("deepspeed-inference", _ENGINE),
    Stack("deepspeed", _FSDP),
    Stack("transformers", _EAGER, r"accelerate|hugging ?face|hf|peft|trl|llama-recipes|unsloth", half_weights=True),
    Stack("pytorch-ngc", _EAGER, r"ngc[ -]pytorch", before_flash=True),
    Stack("mxnet", _GRAPH, before_flash=True),
    Stack("tensorflow", _GRAPH, r"tf|keras|horovod", before_flash=True),
    Stack("paddle", _GRAPH, r"paddlepaddle", before_flash=True),
    Stack("pytorch", _EAGER, r"torch|pytorch-lightning|lightning", before_flash=True),
    Stack("hai-llm", _MEGATRON),
)
_BY_ID = {stack.id: stack for stack in STACKS}


@dataclass(frozen=True, slots=True)
class SoftwareStack:
    """A stack by its name (vllm), with its release where one is known (vllm-0.6.0)."""

    line: str = "unknown"
    release: str = ""

    @property
    def profile(self) -> str:
        """The name under which runs were calibrated: the release where one is known."""
        return self.release or self.line

    @property
    def stack(self) -> Stack:
        """Habits of the stack; those of `UNKNOWN_STACK` when the name is not in `STACKS`."""
        return _BY_ID.get(self.line, UNKNOWN_STACK)

    @property
    def stack_class(self) -> StackClass:
        """Habits that it shares with similar stacks."""
        return self.stack.stack_class


UNKNOWN = SoftwareStack()


def software_called(text: str | None) -> SoftwareStack:
    """Finds the stack by a name or a requirement such as `vllm==0.6.0`; `UNKNOWN` when none matches."""
    if not text:
        return UNKNOWN
    name, version = _split(text)
    stack = _BY_ID.get(name) or next((s for s in STACKS if s.pattern and re.fullmatch(s.pattern, name)), None)
    if stack is None:
        return UNKNOWN
    return SoftwareStack(stack.id, f"{stack.id}-{version}" if version else "")


def _split(text: str) -> tuple[str, str]:
    requirement = _REQUIREMENT.fullmatch(text.lower())
    if requirement is None:
        return "", ""
    name, operator, rest = requirement.groups()
    version = _VERSION.search(rest)
    # A version after `<` or `!` is one that does not run.
    return name, version[0] if version and "<" not in operator and "!" not in operator else ""
