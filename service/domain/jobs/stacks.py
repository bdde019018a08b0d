"""Software stacks: properties of classes of stacks and of each stack, and the names by which they are found."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from service.domain.jobs.fixed_layout import CHECKPOINTINGS, Checkpointing

# Digits behind other words are no version but part of a name, such as FSDP2 and ZeRO-3.
_VERSION = re.compile(r"[\s(:=-]*(?:version|release|rel\.?|v)?[\s.]*(\d+(?:\.\d+)*)(?=\W|$|rc|[ab]\d|post|dev)")
_REQUIREMENT = re.compile(r"\s*([^<>=!~@\[\s]+)\s*(?:\[[^\]]*\])?\s*([<>=!~@]*)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class StackClass:
    """A class of stacks that run jobs in similar ways; its coefficients apply to stacks without published runs."""

    id: Literal["unknown", "megatron", "tuned", "fsdp", "eager", "graph", "engine", "early_engine", "xla", "neuron"]
    zero_stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages that these stacks support."""
    has_model_parallelism: bool = True
    """Whether tensor, pipeline and expert parallelism are available without a change of the model's code; without them,
    training uses data parallelism, context parallelism and ZeRO."""
    prefers_model_parallelism: bool = False
    """Whether large models are split by tensor and pipeline parallelism by default; other stacks shard them over the
    data-parallel ranks (ZeRO-3, FSDP)."""
    batches_continuously: bool = False
    """Whether prompts of new requests are processed between the decoding steps of running requests."""
    for_inference: bool = False
    """Whether these stacks are made for inference, unlike others of the same id."""
    checkpointings: tuple[Checkpointing, ...] = CHECKPOINTINGS
    """Kinds of activation checkpointing that are chosen. Libraries around PyTorch recompute whole layers or none (issue
    29648 of Transformers); selective checkpointing is code of stacks for large models."""
    distributes: bool = False
    """Whether these stacks train one model on many GPUs by themselves; code of other ones has to be written for it."""
    unpacks_weights: bool = False
    """Whether kernels of their own unpack weights and multiply them by the values of a token outside of matrix engines,
    as those of llama.cpp do."""
    pads_heads: bool = False
    """Whether heads are padded, so that the tensor-parallel degree need not divide their number: 12 NeuronCores run
    models of 32 heads (AWS)."""
    copies_kv_heads: bool = False
    """Whether each query head has key-value heads of its own in the cache if a tensor group has more GPUs than the
    model has key-value heads."""


_WHOLE_LAYERS: tuple[Checkpointing, ...] = ("none", "full")
_UNKNOWN_CLASS = StackClass("unknown")
# Megatron's distributed optimizer is ZeRO-1.
_MEGATRON = StackClass("megatron", zero_stages=(0, 1), prefers_model_parallelism=True, distributes=True)
# Code that was written for a benchmark.
_TUNED = StackClass("tuned", zero_stages=(0, 1), prefers_model_parallelism=True, distributes=True)
# One model in hand-written kernels, on whole GPUs.
_TUNED_DATA_PARALLEL = replace(
    _TUNED, has_model_parallelism=False, prefers_model_parallelism=False, checkpointings=("none", "selective")
)
_FSDP = StackClass("fsdp", has_model_parallelism=False, checkpointings=_WHOLE_LAYERS, distributes=True)
# Stacks that shard by FSDP and also implement tensor, pipeline and other parallelism.
_FSDP_AND_MORE = replace(_FSDP, has_model_parallelism=True, checkpointings=CHECKPOINTINGS)
_EAGER = StackClass("eager", has_model_parallelism=False, checkpointings=_WHOLE_LAYERS)
# Their own loops of training run on many GPUs, as those of `tune run` and of the Trainer of Transformers do.
_TRAINER = replace(_EAGER, distributes=True)
_GRAPH = StackClass(
    "graph", zero_stages=(0,), has_model_parallelism=False, checkpointings=_WHOLE_LAYERS, unpacks_weights=True
)
_RUNTIME = replace(_GRAPH, for_inference=True)
# Paddle's Fleet shards optimizer states, gradients and weights (`group_sharded_parallel`).
_SHARDING_GRAPH = replace(_GRAPH, zero_stages=(0, 1, 2, 3))
_ENGINE = StackClass("engine", batches_continuously=True)
# The GPU waits for the server and the scheduler in each step.
_EARLY_ENGINE = StackClass("early_engine", batches_continuously=True)
# Compiled as a whole; the compiler shards (GSPMD).
_XLA = StackClass("xla", distributes=True)
_XLA_ENGINE = replace(_XLA, batches_continuously=True)
# Compiled for AWS' own chips. They shard optimizer states alone (guides of optimum-neuron and NeuronX Distributed). The
# time of a token grows with the context as fast for Mistral 7B and Llama 2 70B, relative to their query heads, as for
# Llama 2 13B, which has no shared heads (AWS' results of transformers-neuronx).
_NEURON = StackClass("neuron", zero_stages=(0, 1), pads_heads=True, copies_kv_heads=True)


# Memory-efficient kernels of PyTorch's scaled dot product attention, which are those of xFormers, run from compute
# capability 5.0 on (documentation of PyTorch 2.0). Transformers uses them by default since 4.36.
_SINCE_MAXWELL = ("maxwell", "pascal", "volta", "turing")


@dataclass(frozen=True, slots=True)
class Stack:
    """A framework or engine, with the properties that estimates depend on. A new stack needs one entry of `STACKS`."""

    id: str
    stack_class: StackClass
    aliases: tuple[str, ...] = ()
    """Other names, in lower case with hyphens."""
    runs: tuple[str, ...] = ()
    """Names, written like these, of libraries and programs that do their work in it and have releases of their own."""
    before_flash: bool = False
    """Published runs of it are older than FlashAttention."""
    half_weights: bool = False
    """By default, fine-tuning keeps weights in 16 bits without an fp32 copy."""
    chunks_loss: bool = False
    """The loss is computed in chunks, so that the logits of a batch are never in memory at once."""
    loss_chunks: int | None = None
    """Chunks of such a loss; None: as many as keep the logits of one as small as the hidden states of all tokens."""
    offloads_activations: bool = False
    """The activations that recomputation starts from are kept in host memory."""
    keeps_gathered_weights: bool = False
    """Gathered weights stay in memory besides their shards: 13B with LoRA takes 35.6 GB on each of 4 GPUs (LitGPT)."""
    multiplies_int8_on: tuple[str, ...] = ()
    """Architectures with kernels for int8 weights and activations (W8A8); others multiply int8 weights at 16 bits."""
    selects_tokens_on: tuple[str, ...] = ()
    """Architectures with kernels for attention to the tokens that an indexer selects (DeepSeek-V3.2, GLM-5)."""
    expands_weights: bool = False
    """Narrow weights without kernels of their own are expanded to 16 bits before each product: they save memory but no
    time."""
    fp8_cache_with: tuple[str, ...] = ()
    """Precisions with which the KV cache is in fp8 by default."""
    caches_16_bits: bool = False
    """Cached keys and values are in fp16 also where the arithmetic is in fp32; elsewhere they have its format."""
    keeps_wide_cache: bool = False
    """Cached keys and values cannot be narrower than 16 bits."""
    fuses_kernels: bool = False
    """Networks are compiled, so that a layer is one kernel and not one for each of its operations."""
    accumulates_in_16_bits: bool = False
    """Products of 16-bit values are accumulated in 16 bits, at twice the rate of 32 bits on GeForce cards."""
    mean_bits: bool = False
    """Bits per weight are a mean over all weights, with the embedding and the output projection."""
    grows_cache: bool = False
    """The cache of a request grows with its answer, and is not reserved for the longest answer from the start."""
    static_batches: bool = False
    """A batch of requests starts when all of the last batch have ended, with cache reserved for the longest answer."""
    interleaves_stages: bool = False
    """The layers of a pipeline stage can be cut into pieces that take turns with those of other stages (interleaved
    1F1B), which shortens the bubble."""
    loops_over_experts: bool = False
    """Routed experts are computed one after another, each with kernels of its own, and not by one grouped product."""
    gathers_matrices: bool = False
    """With ZeRO-3, each weight matrix is gathered by itself, as DeepSpeed does, and not a layer at a time (FSDP)."""
    splits_layers: bool = False
    """By default, each GPU has whole layers, and the GPUs work one after another."""
    disaggregates: bool = False
    """Separate instances for prompts and for answers (disaggregated serving) are supported."""
    drafts_exclude_stages: bool = False
    """Speculative decoding does not run with pipeline stages."""
    embeds_only: bool = False
    """It embeds and ranks texts, and writes none."""
    most_in_flight: float = 2048.0
    """Largest number of sequences that are decoded together; the default is that of TensorRT-LLM."""
    most_on_small_gpus: float | None = None
    """Largest number of sequences on GPUs of less than 70 GB and on any A100, where it differs."""
    sampler_bytes: float = 0.0
    """Bytes that sampling takes for each logit of the most sequences, reserved before the first request."""

    @property
    def is_pytorch(self) -> bool:
        """Whether it is PyTorch, or written in it for the GPUs that run PyTorch in full."""
        return self.stack_class.id in ("eager", "fsdp")

    @property
    def fuses_attention_on(self) -> tuple[str, ...]:
        """Architectures without FlashAttention-2 on which other kernels never store the matrix of attention either."""
        return _SINCE_MAXWELL if self.is_pytorch or self.stack_class is _UNKNOWN_CLASS else ()

    @property
    def only_answers(self) -> bool:
        """Whether it is an engine of inference, which no source trains with."""
        return self.stack_class.batches_continuously or self.stack_class.for_inference or self.embeds_only

    @property
    def plans_memory(self) -> bool:
        """Whether a share of the GPU memory is filled with cache before the first request, and the rest left free."""
        return (self.stack_class.batches_continuously and not self.static_batches) or self.stack_class is _UNKNOWN_CLASS

    @property
    def chooses_passes(self) -> bool:
        """Whether it chooses how many of the requests in flight it reads in one pass; other stacks pass over the whole
        batch that they are given.
        """
        return (self.stack_class.batches_continuously or self.embeds_only) and not self.static_batches


# Sources of int8 kernels (W8A8): for vLLM its documentation of 0.14 (not for Blackwell), for TensorRT-LLM the support
# matrix of NVIDIA's Model Optimizer. SGLang has the kernels of vLLM.
_WITH_INT8_KERNELS = ("turing", "ampere", "ada-lovelace", "hopper")
_TPUS = ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")

# Attention to selected tokens: vLLM (its backends flashmla_sparse and rocm_aiter_mla_sparse of 0.22), SGLang (its page
# on DeepSeek-V3.2), TensorRT-LLM (DeepSeekSparseAttentionConfig of 1.3), and llama.cpp on CUDA (its pull request 23346
# of 2026-05). Transformers and MaxText compute attention to all tokens and mask most of it.
_SINCE_HOPPER = ("hopper", "blackwell", "blackwell-ultra")
_SINCE_HOPPER_AND_CDNA_3 = (*_SINCE_HOPPER, "cdna-3", "cdna-4")

_RUN_IN_TRANSFORMERS = (
    "accelerate", "autotrain", "insanely-fast-whisper", "llama-recipes", "ms-swift", "oumi", "peft",
    "sentence-transformers", "setfit", "trl",
)  # fmt: skip
_RUN_IN_PYTORCH = (
    "a1111", "ai-toolkit", "automatic1111", "comfyui", "detectron2", "diffusers", "invokeai", "kohya", "kohya-ss",
    "lightning", "mmdet", "mmdetection", "mmsegmentation", "monai", "musubi-tuner", "nnu-net", "nnunet", "nnunetv2",
    "onetrainer", "open-clip", "open-clip-torch", "openclip", "pytorch-lightning", "sd-scripts", "simpletuner",
    "speechbrain", "stable-diffusion-webui", "timm", "torchvision", "ultralytics",
)  # fmt: skip

# If no engine is named, it is assumed to be one that supports its machine.
UNKNOWN_STACK = Stack(
    "unknown",
    _UNKNOWN_CLASS,
    interleaves_stages=True,
    multiplies_int8_on=(*_WITH_INT8_KERNELS, *_TPUS),
    selects_tokens_on=(*_SINCE_HOPPER_AND_CDNA_3, "da-vinci-3.0"),
    grows_cache=True,
    disaggregates=True,
)
STACKS = (
    Stack("megatron-bridge", _MEGATRON, interleaves_stages=True),
    Stack("nemo-automodel", _FSDP_AND_MORE, ("automodel",)),
    Stack("nemo-megatron", _MEGATRON, interleaves_stages=True),
    Stack("nemo", _MEGATRON, ("nvidia-nemo",), interleaves_stages=True),
    Stack("megatron-core", _MEGATRON, ("mcore",), interleaves_stages=True),
    Stack("megatron-lm", _MEGATRON, ("megatron", "megatron-deepspeed"), interleaves_stages=True),
    Stack("mlperf-training", _TUNED, interleaves_stages=True),
    # Its scripts keep all activations (-r 0); it can compute those of GeLU and of the norms again. It has no ZeRO-2 and
    # 3 (llmc/zero.cuh).
    Stack("llm.c", _TUNED_DATA_PARALLEL, ("llmc", "llm-c")),
    Stack("llm-foundry", _FSDP, ("composer", "mosaicml")),
    Stack("torchtitan", _FSDP_AND_MORE, interleaves_stages=True),
    Stack(
        "torchtune",
        _TRAINER,
        half_weights=True,
        loss_chunks=8,  # its default of `num_output_chunks`
        expands_weights=True,
        static_batches=True,
    ),
    Stack("litgpt-generate", _EAGER, static_batches=True),
    Stack(
        "litgpt",
        _TRAINER,
        ("lit-gpt",),
        keeps_gathered_weights=True,
        static_batches=True,
    ),
    Stack(
        "llama-factory",
        _TRAINER,
        ("llamafactory",),
        expands_weights=True,
        loops_over_experts=True,
        gathers_matrices=True,
    ),
    Stack(
        "axolotl",
        _TRAINER,
        half_weights=True,
        loss_chunks=8,  # its default of `chunked_cross_entropy_num_chunks`
        expands_weights=True,
        loops_over_experts=True,
        gathers_matrices=True,
    ),
    # Its checkpointing and loss fit QLoRA of 70B with 12,106 tokens into 48 GB (its blog on Llama 3.3).
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
        ("trt-llm", "trtllm", "trtllm-serve", "trtllm-bench"),
        multiplies_int8_on=("ampere", "ada-lovelace", "hopper"),
        selects_tokens_on=_SINCE_HOPPER,
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
    # With drafts and stages, vLLM does not start (its issues 14117, 52069 and 57755), nor does SGLang (the check of
    # pp_size in its server_args.py).
    Stack(
        "vllm",
        _ENGINE,
        ("vllm-openai", "vllm-serve", "vllm-rocm", "vllm-cpu", "vllm-neuron"),
        multiplies_int8_on=_WITH_INT8_KERNELS,
        selects_tokens_on=_SINCE_HOPPER_AND_CDNA_3,
        grows_cache=True,
        most_in_flight=1024.0,  # the default of max_num_seqs on GPUs of 70 GB
        most_on_small_gpus=256.0,  # its test_defaults_with_usage_context
        # Ten values of fp32: 4.8 GiB for 1,024 sequences and a vocabulary of 128,256 on an H100, 1.4 GiB for 256 and
        # 152,064 on an RTX 4060 (memory of vLLM 0.11 measured by llm-d, and an issue of vLLM).
        sampler_bytes=40.0,
        disaggregates=True,
        drafts_exclude_stages=True,
    ),
    # Most requests at once are assumed to be those of vLLM on small GPUs.
    Stack("vllm-tpu", _XLA_ENGINE, ("tpu-inference",), multiplies_int8_on=_TPUS, grows_cache=True, most_in_flight=256),
    Stack(
        "early-vllm",
        _EARLY_ENGINE,
        grows_cache=True,
        most_in_flight=256.0,  # the default of max_num_seqs then
        drafts_exclude_stages=True,
    ),
    Stack(
        "sglang",
        _ENGINE,
        multiplies_int8_on=_WITH_INT8_KERNELS,
        selects_tokens_on=(*_SINCE_HOPPER_AND_CDNA_3, "da-vinci-3.0"),
        grows_cache=True,
        disaggregates=True,
        drafts_exclude_stages=True,
    ),
    Stack("sglang-jax", _XLA_ENGINE, multiplies_int8_on=_TPUS, grows_cache=True),
    # Its TurboMind batches continuously. Most requests at once are its default on an H100, and 128 to 384 on other GPUs
    # (lmdeploy/utils.py). LMDeploy-DistServe separates prompts from answers.
    Stack("lmdeploy", _ENGINE, ("turbomind",), grows_cache=True, most_in_flight=1024.0, disaggregates=True),
    Stack("mlperf-serving", _ENGINE, fp8_cache_with=("fp8", "fp4", "nvfp4")),
    Stack("vllm-ascend", _ENGINE, selects_tokens_on=("da-vinci-3.0",), grows_cache=True, drafts_exclude_stages=True),
    Stack("mindie", _ENGINE),
    Stack("tgi", _ENGINE, ("text-generation-inference", "huggingface-tgi", "hf-tgi")),
    # cuBLAS computes in 16 bits (CUBLAS_COMPUTE_16F) unless llama.cpp is built otherwise (its pull request 19697).
    Stack(
        "llama.cpp",
        _RUNTIME,
        (
            "llamacpp",
            "llama-cpp",
            "llama-server",
            "llama-cpp-python",
            "llamafile",
            "ollama",
            "lm-studio",
            "koboldcpp",
            "gpt4all",
        ),
        accumulates_in_16_bits=True,
        selects_tokens_on=("turing", "ampere", "ada-lovelace", *_SINCE_HOPPER),
        mean_bits=True,
        caches_16_bits=True,  # its defaults of --cache-type-k and --cache-type-v
        splits_layers=True,  # its default of --split-mode
    ),
    Stack("gpt-fast", _RUNTIME, static_batches=True),
    Stack("exllamav2", _RUNTIME, ("exllama", "exl2"), splits_layers=True),  # load_autosplit, its default loader
    Stack("exllamav3", _RUNTIME, ("exl3",), splits_layers=True),
    Stack("mlc-llm", _RUNTIME, ("mlc",)),
    Stack("mlx", _GRAPH, ("mlx-lm",)),
    # Its server locks the model for each request.
    Stack(
        "whisper.cpp",
        _RUNTIME,
        ("whispercpp", "whisper-cpp"),
        caches_16_bits=True,
        keeps_wide_cache=True,
        static_batches=True,
        most_in_flight=1.0,
    ),
    # Compiled runtimes with layers fused into few kernels.
    Stack(
        "ctranslate2",
        _RUNTIME,
        ("faster-whisper", "whisperx", "whisper-ctranslate2"),
        multiplies_int8_on=_WITH_INT8_KERNELS,
        keeps_wide_cache=True,
        static_batches=True,
    ),
    Stack("openvino", _GRAPH, ("openvino-genai", "openvino-model-server", "ovms", "optimum-intel"), fuses_kernels=True),
    # Written in Rust, with kernels of its own.
    Stack("text-embeddings-inference", _GRAPH, ("tei", "huggingface-tei", "hf-tei"), embeds_only=True),
    Stack("infinity", _EAGER, ("infinity-emb",), static_batches=True, embeds_only=True),
    Stack("neuronx-distributed", _NEURON, ("nxd", "nxdt")),
    Stack("transformers-neuronx", _NEURON, ("optimum-neuron",)),
    Stack("torch-neuronx", _NEURON, ("neuron", "neuronx", "pytorch-neuronx"), before_flash=True, fuses_kernels=True),
    Stack("gpt-neox", _MEGATRON),
    Stack("deepspeed-inference", _ENGINE, static_batches=True),
    Stack("fastertransformer", _ENGINE, ("ft",), static_batches=True),
    Stack("deepspeed-mii", _ENGINE, ("mii",)),
    # Its pipelines take a model that is written as a list of layers (`PipelineModule`).
    Stack("deepspeed", _FSDP, runs=("openrlhf", "diffusion-pipe"), gathers_matrices=True),
    Stack(
        "transformers",
        _TRAINER,
        ("hugging-face", "hugging-face-transformers", "huggingface", "hf"),
        runs=_RUN_IN_TRANSFORMERS,
        half_weights=True,
        expands_weights=True,
        static_batches=True,
        loops_over_experts=True,
        gathers_matrices=True,
        splits_layers=True,  # device_map of Accelerate
    ),
    # OpenAI's own program transcribes one window of 30 s after another.
    Stack("openai-whisper", _EAGER, keeps_wide_cache=True, static_batches=True, most_in_flight=1.0),
    # NVIDIA's containers of PyTorch until 2022.
    Stack("early-pytorch-ngc", _EAGER, before_flash=True, static_batches=True),
    # NVIDIA's own tuned code, in its containers.
    Stack("deeplearningexamples", _EAGER, ("nvidia-deeplearningexamples",), before_flash=True, static_batches=True),
    Stack("mxnet", _GRAPH, before_flash=True, static_batches=True),
    Stack("tensorflow", _GRAPH, ("tf", "tf1", "tf2", "keras"), before_flash=True, static_batches=True),
    Stack("paddle", _SHARDING_GRAPH, ("paddlepaddle",), before_flash=True, static_batches=True),
    Stack("pytorch-1", _EAGER, ("torch7",), before_flash=True, static_batches=True),
    # PyTorch records a network once and starts its kernels without Python.
    Stack("torchscript", _GRAPH, ("torch-script",), before_flash=True, static_batches=True),
    Stack(
        "pytorch",
        _EAGER,
        ("torch", "fsdp", "pytorch-ngc", "ngc-pytorch"),
        runs=_RUN_IN_PYTORCH,
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
    Stack("onnxruntime", _GRAPH, ("ort", "onnx-runtime", "onnxruntime-gpu"), fuses_kernels=True, static_batches=True),
    Stack("jax", _XLA, ("flax",), fuses_kernels=True),
    Stack("maxtext", _XLA),
    Stack("hai-llm", _MEGATRON),
)
_BY_ID = {stack.id: stack for stack in STACKS}
STACKS_BY_NAME = _BY_ID | {alias: stack for stack in STACKS for alias in (*stack.aliases, *stack.runs)}
"""Stacks by their names and by other names."""

_STACKS_BY_FIRST_RELEASE: Mapping[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    # Versions from 17 on are years: NVIDIA's containers of PyTorch, which have PyTorch 2 since 23.03 (NVIDIA's support
    # matrix of frameworks). PyTorch has fused attention since 2.0.
    "pytorch": (((23, 3), "pytorch"), ((17,), "early-pytorch-ngc"), ((2,), "pytorch"), ((0,), "pytorch-1")),
    # vLLM 0.6.0 moved the server to another process and schedules several steps at once, which made an 8B model on an
    # H100 2.7 times as fast (vLLM's blog of 2024-09-05).
    "vllm": (((0, 6), "vllm"), ((0,), "early-vllm")),
}
"""Name → (first release, stack), the newest first, for names whose releases are several stacks."""

_FIRST_TO_GROUP_EXPERTS: Mapping[str, tuple[int, ...]] = {"transformers": (5,)}
"""First release of a stack that computes routed experts by grouped products, by default (Unsloth on MoE)."""

_STACKS_WITH_LIBRARIES: Mapping[tuple[str, str], str] = {("pytorch", "torch-compile"): "torch-compile"}
"""By stack and library, the stack that does the work of both."""

_STACKS_OF_PLATFORMS: Mapping[str, Mapping[str, str]] = {
    # Models are compiled for fixed shapes by any of these stacks: vLLM serves with NxD Inference, and Transformers runs
    # as optimum-neuron (AWS Neuron documentation).
    "neuron": {
        "vllm": "neuronx-distributed",
        "early-vllm": "transformers-neuronx",
        "transformers": "transformers-neuronx",
        "pytorch": "torch-neuronx",
    },
    "cann": {"vllm": "vllm-ascend"},
    "xla": {"vllm": "vllm-tpu", "sglang": "sglang-jax"},
}
"""Platform → stack → the stack that does its work on this platform."""

_TRAINERS_OF_LANGUAGE_MODELS: Mapping[str, tuple[str, frozenset[str]]] = {
    # AWS trains decoders with NxD Training, and so does optimum-neuron (AWS Neuron documentation).
    "neuron": ("neuronx-distributed", frozenset({"torch-neuronx", "transformers-neuronx"})),
}
"""Platform → the stack that trains language models there, and the stacks that it replaces."""

PLATFORMS_WITH_STACKS = frozenset(_STACKS_OF_PLATFORMS)
"""Platforms on which a stack may be replaced by another one."""


@dataclass(frozen=True, slots=True)
class SoftwareStack:
    """A stack by its name (vllm), with its release where one is known (vllm-0.6.0)."""

    line: str = "unknown"
    release: str = ""

    @property
    def profile(self) -> str:
        """The name by which published runs are calibrated: the release if known, else the name of the stack."""
        return self.release or self.line

    @property
    def stack(self) -> Stack:
        """Properties of the stack; those of `UNKNOWN_STACK` if the name is not in `STACKS`."""
        return _BY_ID.get(self.line, UNKNOWN_STACK)

    @property
    def stack_class(self) -> StackClass:
        """Properties that the stack shares with similar stacks."""
        return self.stack.stack_class

    @property
    def loops_over_experts(self) -> bool:
        """Whether routed experts are computed one after another; so does a stack whose release is unknown."""
        first = _FIRST_TO_GROUP_EXPERTS.get(self.line)
        return self.stack.loops_over_experts and not (first and self.release and self._version >= first)

    @property
    def _version(self) -> tuple[int, ...]:
        return tuple(map(int, self.release.removeprefix(f"{self.line}-").split(".")))

    def using(self, libraries: Iterable[str]) -> "SoftwareStack":
        """Returns the stack that does its work with some libraries: itself, except where one of them changes it."""
        lines = (_STACKS_WITH_LIBRARIES.get((self.line, software_called(name).line)) for name in libraries)
        return next((SoftwareStack(line) for line in lines if line), self)

    def on(self, platform: str | None, *, trains_language_model: bool = False) -> "SoftwareStack":
        """Returns the stack that runs on a platform: this one, or the vendor's stack that does its work there."""
        line = _STACKS_OF_PLATFORMS.get(platform or "", {}).get(self.line, self.line)
        trainer, replaced = _TRAINERS_OF_LANGUAGE_MODELS.get(platform or "", ("", frozenset[str]()))
        line = trainer if trains_language_model and line in replaced else line
        return self if line == self.line else SoftwareStack(line)


UNKNOWN = SoftwareStack()


def software_called(text: str | None) -> SoftwareStack:
    """Returns the stack of a name or a requirement such as `vllm==0.6.0`; `UNKNOWN` if none matches."""
    if not text:
        return UNKNOWN
    whole = re.sub(r"[ _]+", "-", text.strip().lower())
    name, version = (whole, "") if whole in STACKS_BY_NAME else _split(text)
    name = name.replace("_", "-")
    stack = STACKS_BY_NAME.get(name)
    if stack is None:
        return UNKNOWN
    version = "" if name in stack.runs else version
    if version and stack.id in _STACKS_BY_FIRST_RELEASE:
        release = tuple(map(int, version.split(".")))
        stack = _BY_ID[next(name for first, name in _STACKS_BY_FIRST_RELEASE[stack.id] if release >= first)]
    return SoftwareStack(stack.id, f"{stack.id}-{version}" if version else "")


def _split(text: str) -> tuple[str, str]:
    requirement = _REQUIREMENT.fullmatch(text.lower())
    if requirement is None:
        return "", ""
    name, operator, rest = requirement.groups()
    version = _VERSION.match(rest)
    # A version behind `<` or `!` is excluded, so it is not the one that runs.
    return name, version[1] if version and "<" not in operator and "!" not in operator else ""
