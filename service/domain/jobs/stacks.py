"""Software stacks: the habits that a family of stacks shares, the habits of each stack, and the names of software."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from service.domain.catalog.names import LONGEST_NAME, VERY_CLOSE

# Digits after letters belong to another name, as in FSDP2.
_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)*)")
_REQUIREMENT = re.compile(r"\s*([^<>=!~@\[\s]+)\s*(?:\[[^\]]*\])?\s*([<>=!~@]*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StackClass:
    """A family of stacks that run jobs in similar ways. Calibration falls back to it for a stack without runs."""

    id: Literal["unknown", "megatron", "tuned", "fsdp", "eager", "graph", "engine", "early_engine", "xla", "neuron"]
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
# The GPU waits for the server and the scheduler in each step.
_EARLY_ENGINE = StackClass("early_engine", batches_continuously=True)
# Compiled as a whole; the compiler shards (GSPMD).
_XLA = StackClass("xla")
# Compiled for AWS' own chips.
_NEURON = StackClass("neuron", pads_heads=True)


@dataclass(frozen=True, slots=True)
class Stack:
    """A framework or engine. One entry of `STACKS` is all that a new stack needs."""

    id: str
    stack_class: StackClass
    aliases: tuple[str, ...] = ()
    """Its other names, in lower case with hyphens."""
    before_flash: bool = False
    """Its published profiles predate FlashAttention."""
    half_weights: bool = False
    """Fine-tunes in 16 bits without an fp32 copy of the weights by default."""
    chunks_loss: bool = False
    """Computes the loss in chunks, so that logits are never whole."""
    offloads_activations: bool = False
    """Keeps what recomputation starts from in the memory of the host."""
    keeps_gathered_weights: bool = False
    """Holds whole weights besides their shards: 13B with LoRA takes 35.6 GB on each of 4 GPUs (LitGPT)."""
    multiplies_int8_on: tuple[str, ...] = ()
    """Architectures on which it quantises activations as well as weights (W8A8), so that int8 units are used."""
    expands_weights: bool = False
    """Expands narrow weights to 16 bits before each product (bitsandbytes): they save memory and no time."""
    fp8_cache_with: tuple[str, ...] = ()
    """Precisions with which it keeps the KV cache in fp8 by default."""
    fuses_kernels: bool = False
    """Compiles a network, so that a layer answers in one kernel and not in one for each of its operations."""
    accumulates_in_16_bits: bool = False
    """Adds products of 16 bits up in 16 bits, which GeForce cards do at twice the rate of sums in 32 bits."""
    bits_of_whole_file: bool = False
    """Its bits per weight include the embedding and the head."""
    grows_cache: bool = False
    """Gives a request cache as its answer grows, and not for its longest answer from the start."""
    static_batches: bool = False
    """Starts a batch of requests when all of the last one have ended, and reserves cache for the longest of them."""
    interleaves_stages: bool = False
    """Can cut the layers of a pipeline stage into pieces that take turns with those of other stages (interleaved 1F1B),
    which shortens the bubble."""
    splits_layers: bool = False
    """Gives whole layers to each GPU, which work one after another, unless it is asked to split the layers."""
    disaggregates: bool = False
    """Reads prompts on other instances than those that write the answers, where it is asked to."""
    most_in_flight: float = 2048.0
    """Most sequences that are decoded together; the default is TensorRT-LLM's."""

    @property
    def plans_memory(self) -> bool:
        """Whether it fills a share of each GPU with cache before the first request, and leaves the rest alone."""
        return (self.stack_class.batches_continuously and not self.static_batches) or self.stack_class is _UNKNOWN_CLASS


# Kernels for W8A8 in int8: of vLLM its documentation of 0.14 (not for Blackwell), of TensorRT-LLM the support matrix of
# NVIDIA's Model Optimizer, of SGLang those of vLLM, from which its kernels come.
_WITH_INT8_KERNELS = ("turing", "ampere", "ada-lovelace", "hopper")
_TPUS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")

# Without a name, the engine is one that fits its machine.
UNKNOWN_STACK = Stack(
    "unknown",
    _UNKNOWN_CLASS,
    multiplies_int8_on=(*_WITH_INT8_KERNELS, *_TPUS),
    grows_cache=True,
    disaggregates=True,
)
STACKS = (
    Stack("megatron-bridge", _MEGATRON, interleaves_stages=True),
    Stack("nemo-automodel", _FSDP, ("automodel",)),
    Stack("nemo-megatron", _MEGATRON, interleaves_stages=True),
    Stack("nemo", _MEGATRON, ("nvidia-nemo",), interleaves_stages=True),
    Stack("megatron-core", _MEGATRON, ("mcore",), interleaves_stages=True),
    Stack("megatron-lm", _MEGATRON, ("megatron", "megatron-deepspeed"), interleaves_stages=True),
    Stack("mlperf-training", _TUNED, interleaves_stages=True),
    Stack("llm-foundry", _FSDP, ("composer", "mosaicml")),
    Stack("torchtitan", _FSDP, interleaves_stages=True),
    Stack("torchtune", _EAGER, half_weights=True, expands_weights=True, static_batches=True),
    Stack("litgpt-generate", _EAGER, static_batches=True),
    Stack("litgpt", _EAGER, ("lit-gpt",), keeps_gathered_weights=True, static_batches=True),
    Stack("llama-factory", _EAGER, ("llamafactory",), expands_weights=True),
    Stack("axolotl", _EAGER, half_weights=True, expands_weights=True),
    # Its checkpointing and its loss, which fit QLoRA of 70B and 12,106 tokens in 48 GB (its blog on Llama 3.3).
    Stack(
        "unsloth",
        _EAGER,
        half_weights=True,
        chunks_loss=True,
        offloads_activations=True,
        static_batches=True,
    ),
    Stack(
        "tensorrt-llm",
        _ENGINE,
        ("trt-llm", "trtllm"),
        multiplies_int8_on=("ampere", "ada-lovelace", "hopper"),
        fp8_cache_with=("fp8", "fp4", "nvfp4", "mxfp4"),
        disaggregates=True,
    ),
    Stack(
        "tensorrt",
        _GRAPH,
        ("trt", "mlperf-inference"),
        multiplies_int8_on=("pascal", "volta", *_WITH_INT8_KERNELS, "blackwell", "blackwell-ultra"),
        fuses_kernels=True,
        static_batches=True,
    ),
    Stack(
        "vllm",
        _ENGINE,
        ("vllm-openai",),
        multiplies_int8_on=(*_WITH_INT8_KERNELS, *_TPUS),
        grows_cache=True,
        most_in_flight=1024.0,  # the default of max_num_seqs on GPUs of 70 GB
        disaggregates=True,
    ),
    Stack("early-vllm", _EARLY_ENGINE, grows_cache=True, most_in_flight=256.0),  # its default of max_num_seqs
    Stack("sglang", _ENGINE, multiplies_int8_on=_WITH_INT8_KERNELS, grows_cache=True, disaggregates=True),
    Stack("mlperf-serving", _ENGINE, fp8_cache_with=("fp8", "fp4", "nvfp4")),
    Stack("vllm-ascend", _ENGINE, grows_cache=True),
    Stack("mindie", _ENGINE),
    Stack("tgi", _ENGINE, ("text-generation-inference", "huggingface-tgi", "hf-tgi")),
    # cuBLAS computes in 16 bits (CUBLAS_COMPUTE_16F) unless llama.cpp is built otherwise (its pull request 19697).
    Stack(
        "llama.cpp",
        _GRAPH,
        ("llamacpp", "llama-cpp", "llama-server", "ollama", "lm-studio", "koboldcpp"),
        accumulates_in_16_bits=True,
        bits_of_whole_file=True,
        splits_layers=True,  # its default of --split-mode
    ),
    Stack("gpt-fast", _GRAPH, static_batches=True),
    Stack("exllamav2", _GRAPH, ("exllama",), splits_layers=True),  # load_autosplit, its default loader
    Stack("mlc-llm", _GRAPH, ("mlc",)),
    Stack("neuronx-distributed", _NEURON, ("nxd", "nxdt")),
    Stack("transformers-neuronx", _NEURON, ("optimum-neuron",)),
    Stack("torch-neuronx", _NEURON, ("neuron", "neuronx", "pytorch-neuronx"), before_flash=True, fuses_kernels=True),
    Stack("gpt-neox", _MEGATRON),
    Stack("deepspeed-inference", _ENGINE, static_batches=True),
    Stack("fastertransformer", _ENGINE, ("ft",), static_batches=True),
    Stack("deepspeed-mii", _ENGINE),
    Stack("deepspeed", _FSDP),
    Stack(
        "transformers",
        _EAGER,
        ("accelerate", "hugging-face", "huggingface", "hf", "peft", "trl", "llama-recipes", "sentence-transformers"),
        half_weights=True,
        expands_weights=True,
        static_batches=True,
        splits_layers=True,  # device_map of Accelerate
    ),
    Stack("pytorch-ngc", _EAGER, ("ngc-pytorch",), before_flash=True, static_batches=True),
    # NVIDIA's own tuned code, in its containers.
    Stack("deeplearningexamples", _EAGER, ("nvidia-deeplearningexamples",), before_flash=True, static_batches=True),
    Stack("mxnet", _GRAPH, before_flash=True, static_batches=True),
    Stack("tensorflow", _GRAPH, ("tf", "tf1", "tf2", "keras"), before_flash=True, static_batches=True),
    Stack("paddle", _GRAPH, ("paddlepaddle",), before_flash=True, static_batches=True),
    Stack("pytorch-1", _EAGER, ("torch7",), before_flash=True, static_batches=True),
    Stack(
        "pytorch",
        _EAGER,
        # Libraries of networks that PyTorch runs.
        ("torch", "pytorch-lightning", "lightning", "fsdp", "diffusers", "timm", "torchvision", "ultralytics"),
        expands_weights=True,
        static_batches=True,
    ),
    # Its published training (Llama 2 of 7 to 70B, GPT-2) is estimated best by stacks that shard and compile, and counts
    # as runs of PyTorch in the fit, so that it has no coefficients of its own.
    Stack(
        "torch-compile",
        _FSDP,
        ("torch.compile", "pytorch-compile", "torchinductor", "inductor", "nanogpt"),
        expands_weights=True,
        fuses_kernels=True,
        static_batches=True,
    ),
    Stack(
        "onnxruntime",
        _GRAPH,
        ("ort", "onnx-runtime", "onnxruntime-gpu"),
        fuses_kernels=True,
        static_batches=True,
    ),
    Stack("jax", _XLA, ("flax",), fuses_kernels=True),
    Stack("maxtext", _XLA),
    Stack("hai-llm", _MEGATRON),
)
_BY_ID = {stack.id: stack for stack in STACKS}
_BY_NAME = _BY_ID | {alias: stack for stack in STACKS for alias in stack.aliases}

_STACKS_BY_FIRST_RELEASE: Mapping[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    # NVIDIA's containers of PyTorch are numbered by year since 17; PyTorch itself has fused attention since 2.0.
    "pytorch": (((17,), "pytorch-ngc"), ((2,), "pytorch"), ((0,), "pytorch-1")),
    # vLLM 0.6.0 moved the server to another process and schedules several steps at once, which made an 8B model on an
    # H100 2.7 times as fast (vLLM's blog of 2024-09-05).
    "vllm": (((0, 6), "vllm"), ((0,), "early-vllm")),
}
"""Releases of one name that are stacks of their own: the first release of each, the newest first."""

_STACKS_WITH_LIBRARIES: Mapping[tuple[str, str], str] = {("pytorch", "torch-compile"): "torch-compile"}
"""By stack and library, the stack that does the work of both."""

_STACKS_OF_PLATFORMS: Mapping[str, Mapping[str, str]] = {
    # Models are compiled for fixed shapes, whatever calls the compiler: vLLM's plugin serves with NxD Inference, and
    # optimum-neuron stands for Transformers (AWS Neuron documentation).
    "neuron": {
        "vllm": "neuronx-distributed",
        "early-vllm": "transformers-neuronx",
        "transformers": "transformers-neuronx",
        "pytorch": "torch-neuronx",
    },
    "cann": {"vllm": "vllm-ascend"},
}
"""By platform, the stacks that do the work of other stacks there."""

_TRAINERS_OF_LANGUAGE_MODELS: Mapping[str, tuple[str, frozenset[str]]] = {
    # AWS trains decoders with NxD Training, on which optimum-neuron builds too (AWS Neuron documentation).
    "neuron": ("neuronx-distributed", frozenset({"torch-neuronx", "transformers-neuronx"})),
}
"""By platform, the stack that trains models which generate, in place of some of the stacks there."""

PLATFORMS_WITH_STACKS = frozenset(_STACKS_OF_PLATFORMS)
"""Platforms on which another stack than the one that is named may do the work."""


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

    def using(self, libraries: Iterable[str]) -> "SoftwareStack":
        """Returns the stack that does its work with some libraries: itself, except where one of them changes it."""
        lines = (_STACKS_WITH_LIBRARIES.get((self.line, software_called(name).line)) for name in libraries)
        return next((SoftwareStack(line) for line in lines if line), self)

    def on(self, platform: str | None, *, trains_language_model: bool = False) -> "SoftwareStack":
        """Returns the stack that does its work on a platform: itself, except where a vendor's own stack does."""
        line = _STACKS_OF_PLATFORMS.get(platform or "", {}).get(self.line, self.line)
        trainer, replaced = _TRAINERS_OF_LANGUAGE_MODELS.get(platform or "", ("", frozenset[str]()))
        line = trainer if trains_language_model and line in replaced else line
        return self if line == self.line else SoftwareStack(line)


UNKNOWN = SoftwareStack()


def software_called(text: str | None) -> SoftwareStack:
    """Finds the stack by a name or a requirement such as `vllm==0.6.0`; `UNKNOWN` when none matches."""
    if not text:
        return UNKNOWN
    whole = re.sub(r"[ _]+", "-", text.strip().lower())
    name, version = (whole, "") if whole in _BY_NAME else _split(text)
    stack = _BY_NAME.get(name)
    if stack is None:
        return UNKNOWN
    if version and stack.id in _STACKS_BY_FIRST_RELEASE:
        release = tuple(map(int, version.split(".")))
        stack = _BY_ID[next(name for first, name in _STACKS_BY_FIRST_RELEASE[stack.id] if release >= first)]
    return SoftwareStack(stack.id, f"{stack.id}-{version}" if version else "")


OTHER_NAMES = {
    "apache-mxnet": "mxnet",
    "aws-neuron": "neuron",
    "bnb": "bitsandbytes",
    "fast-socket": "nccl-fast-socket",
    "fastsocket": "nccl-fast-socket",
    "flash-attn": "flash-attention",
    "flash-attention-2": "flash-attention",
    "flash-attn-3": "flash-attention-3",
    "habana-synapseai": "synapse",
    "lightning": "pytorch-lightning",
    "mig": "multi-instance-gpu",
    "mind-spore": "mindspore",
    "neuron-sdk": "neuron",
    "paddle": "paddlepaddle",
    "rapids": "cuml",
    "sdpa": "scaled-dot-product-attention",
    "sklearn": "scikit-learn",
    "synapseai": "synapse",
    "te": "transformer-engine",
}
"""Other names of software that is no stack or has another name as one, and the names of its rules."""


def software_name(name: str, known: Collection[str]) -> str | None:
    """Returns the known name of a piece of software by one of its names; None if it is not known."""
    joined = name.lower().replace(" ", "-").replace("_", "-")
    names = (name.lower(), joined, OTHER_NAMES.get(joined), software_called(name).line)
    return next((each for each in names if each in known), None)


def similar_stack(name: str) -> str | None:
    """Returns the name of a stack that differs by a letter or two; None if there is none.

    A name that is less similar may well be that of software without a stack.
    """
    return next(iter(get_close_matches(name.lower()[:LONGEST_NAME], _BY_NAME, n=1, cutoff=VERY_CLOSE)), None)


def aliases_of(name: str) -> list[str]:
    """Returns the other names of a piece of software, sorted."""
    stack = _BY_ID.get(name)
    others = {alias for alias, known in OTHER_NAMES.items() if known == name}
    return sorted(others.union(() if stack is None else stack.aliases))


def _split(text: str) -> tuple[str, str]:
    requirement = _REQUIREMENT.fullmatch(text.lower())
    if requirement is None:
        return "", ""
    name, operator, rest = requirement.groups()
    version = _VERSION.search(rest)
    # A version after `<` or `!` is one that does not run.
    return name, version[1] if version and "<" not in operator and "!" not in operator else ""
