"""Jobs: workloads with resolved names and defaults, and their configuration on a GPU."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from service.domain.arrays import Floats
from service.domain.catalog.hardware import CPU, Gpu, peak_flops
from service.domain.catalog.precision import SINGLE_PRECISIONS, USUAL_PRECISIONS, bytes_per_value, format_of, runs_as
from service.domain.errors import QuestionError
from service.domain.jobs.config import (
    QLORA_FORMAT,
    USUAL_CONFIDENCE,
    Config,
    Expansion,
    InferenceConfig,
    Method,
    TrainingConfig,
)
from service.domain.jobs.fixed_layout import FREE, STAGE_OF_OFFLOADED_WEIGHTS, FixedLayout
from service.domain.jobs.loading import SampleLoading
from service.domain.jobs.serving import Serving
from service.domain.jobs.stacks import PLATFORMS_WITH_STACKS, UNKNOWN, SoftwareStack
from service.domain.models.model import Model, Transformer

Samples = TypeVar("Samples", float, Floats)
Task = Literal["training", "inference"]
JOB_PRECISIONS: dict[str, tuple[str, ...]] = {
    "training": USUAL_PRECISIONS,
    "inference": tuple(name for name in USUAL_PRECISIONS if name != "tf32"),
}
"""Task → the precisions of which the fastest on a GPU is taken if the caller names none."""

_NARROW_BITS = 9.0
"""Formats up to this size can store weights on any GPU; GPUs without arithmetic for them multiply in a usual precision.
"""

_KEPT_ON_CPUS = "bf16"
"""Format in which engines keep published weights, and keys and values, on CPUs, also on those that multiply in fp32."""

_INTEGERS = frozenset({"int8", "int1"})
"""Formats of integers with arithmetic of their own. No trainer computes in them: the weights of LLM.int8() are frozen,
and gradients flow through them at 16 bits (Dettmers et al. 2022, 2208.07339)."""

_KEPT_UNDER_ADAPTERS = frozenset({"int4", "int8", "nf4", "nf4-dq"})
"""Formats of published weights that adapters are trained on as they are: GPTQ, AWQ and bitsandbytes (documentation of
PEFT on quantization). Weights in 8-bit and 4-bit floats are first expanded to 16 bits (OpenAI's guide to fine-tuning
gpt-oss, conversion of DeepSeek-V3)."""

IN_STEPS = " in "
"""Between the sample of a diffusion model and its denoising steps: `image 512x512 in 30 steps`."""

_USUAL_SEQUENCE = 2048
"""Default tokens of a training sequence, unless the model reads fewer: the usual length from GPT-3 to Llama 1."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much work there is, in one of samples, tokens or steps. `samples` are those of all `epochs`."""

    samples: float | None = None
    tokens: float | None = None
    steps: float | None = None
    epochs: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A workload with its names and defaults resolved. Lengths are in tokens, batches in samples.

    The stack and the GPU decide about fields that are None.
    """

    task: Task
    model: Model
    precisions: tuple[str, ...] = ()
    """Precisions that may be used, in order of preference; empty: the usual ones of the task."""
    software: SoftwareStack = UNKNOWN
    amount: Amount | None = None
    """The work of one run."""
    runs: int = 1
    """Independent runs at the same time, each on nodes of its own."""
    weight_precision: str | None = None
    weight_bits: float | None = None
    mean_bits: bool = False
    """Whether `weight_bits` are a mean over all weights, as those of a GGUF file are; so are those of some stacks."""
    method: Method = "full"
    optimizer: str = "adamw"
    purpose: Literal["pretrain", "finetune"] | None = None
    has_reference: bool = False
    samples_together: int = 1
    """Training samples that a pass reads together, such as the two sequences of a pair."""
    trainable_parameters: float | None = None
    sequence_length: int | None = None
    mean_length: float | None = None
    global_batch: int | None = None
    micro_batch: int | None = None
    layout: FixedLayout = FREE
    """The parts of the layout that the caller fixes; `fixed` has those that other fields imply as well."""
    flash_attention: bool | None = None
    mixed_precision: bool | None = None
    chunked_loss: bool = False
    fused_optimizer: bool = False
    offload_activations: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    encoders_in_training: bool = False
    kv_precision: str | None = None
    input_length: float | None = None
    output_length: float | None = None
    longest_output: float | None = None
    image_tokens: float = 0.0
    """Tokens of a prompt, or on average of a training sample, that are images."""
    denoising_steps: int | None = None
    guidance: bool | None = None
    concurrency: float | None = None
    serving: Serving | None = None
    memory_confidence: float = USUAL_CONFIDENCE
    """Probability with which the GPUs' memory has to suffice."""
    prompt_field: str = "workload.input_length"
    """The field of the question that states the length of a prompt."""
    loading: SampleLoading = field(default_factory=SampleLoading)
    assumed_network_gbps: float | None = None
    marketplace_clusters: bool = True
    unrecognised_software: tuple[str, ...] = ()
    """Names of the framework and the engine that no stack has; `listed_software` has those that rules list."""
    listed_software: tuple[str, ...] = ()
    similar_stacks: tuple[str, ...] = ()
    """Names of stacks that the unrecognised names may mean: those that a server runs, or a name nearly the same."""
    dimensions_of: str | None = None
    """The model whose dimensions are assumed, for a language model of which only the parameters are known."""

    @property
    def fixed(self) -> FixedLayout:
        """The fixed parts of the layout: as the caller says, else as the batch of a GPU and offloaded weights imply."""
        micro_batch, stage = self.layout.micro_batch or self.micro_batch, self.layout.zero_stage
        if stage is None and self.offload_parameters:
            stage = STAGE_OF_OFFLOADED_WEIGHTS
        return replace(self.layout, micro_batch=micro_batch, zero_stage=stage)

    @property
    def in_any_layout(self) -> "Job":
        """The job without the parts of a layout that the caller fixes."""
        return replace(self, layout=FREE)

    @property
    def layout_is_fixed(self) -> bool:
        """Whether the caller fixes a part of the layout that no other field implies."""
        return self.fixed != self.in_any_layout.fixed

    @property
    def as_published(self) -> str | None:
        """The format in which the weights are used because they are published in it; None if another one decides."""
        published = self.model.published_precision
        if self.task == "inference":
            return published if self.precisions == (published,) else None
        return self.weights_of_checkpoint if self.method != "full" and self.weight_precision is None else None

    @property
    def weights_of_checkpoint(self) -> str | None:
        """The published format of the weights, if trainers add adapters to weights in it; None for other formats."""
        published = self.model.published_precision
        return published if published in _KEPT_UNDER_ADAPTERS else None

    @property
    def weight_formats(self) -> tuple[str, ...]:
        """The formats in which the weights of inference may be stored, as far as the question says it."""
        return self.precisions if self.weight_precision is None else (self.weight_precision,)

    @property
    def limits(self) -> int:
        """Number of limits of the load; 0 without a load."""
        return 0 if self.serving is None else len(self.serving.limits)

    @property
    def has_fixed_sample(self) -> bool:
        """Whether a sample has the one size that the model states, such as an image of 224 x 224 pixels."""
        return not self.model.sample.startswith(("token", "sequence"))

    @property
    def sample_name(self) -> str:
        """A sample of this job in words, such as `sequence of 2048 tokens`."""
        model, steps = self.model, _denoising_steps(self)
        if model.sample not in ("token", "sequence"):
            is_denoised = self.task == "inference" and steps > 1
            return f"{model.sample}{IN_STEPS}{steps:g} steps" if is_denoised else model.sample
        if model.transformer is None:
            return model.sample
        if self.task == "inference":
            return "request" if model.generates else f"sequence of {input_length(self):g} tokens"
        return f"sequence of {sequence_length(self)} tokens"

    @property
    def serves(self) -> bool:
        """Whether the job is inference of a model that generates tokens."""
        return self.task == "inference" and self.model.generates


def config_on(job: Job, gpu: Gpu) -> Config | None:
    """Returns the job's configuration on a GPU; None if the GPU runs none of the precisions asked for."""
    precision = _precision_on(job, gpu)
    if precision is None:
        return None
    if gpu.platform in PLATFORMS_WITH_STACKS:
        trains = job.task == "training" and job.model.generates
        job = replace(job, software=job.software.on(gpu.platform, trains_language_model=trains))
    if job.model.selects_tokens and not selects_tokens(job, gpu):
        job = replace(job, model=job.model.attending_to_all)
    return _training_on(job, gpu, precision) if job.task == "training" else _inference_on(job, gpu, precision)


def selects_tokens(job: Job, gpu: Gpu) -> bool:
    """Returns whether a layer attends to selected tokens only, for which model, stack and GPU have to be made."""
    stack = job.software.on(gpu.platform).stack
    return job.model.selects_tokens and gpu.architecture in stack.selects_tokens_on


def required_config_on(job: Job, gpu: Gpu) -> Config:
    """Returns the job's configuration on a GPU. Raises `QuestionError` if it runs none of the precisions asked for."""
    config = config_on(job, gpu)
    if config is None:
        near = tuple(sorted(name for name in gpu.rates if gpu.runs(name)))
        asked, known = " or ".join(job.precisions or JOB_PRECISIONS[job.task]), ", ".join(near) or "none we know"
        sentence = f"{gpu.name} does not run {asked}; it runs {known}."
        if gpu.kind == CPU:
            sentence = f"The rate of {gpu.name} is known in {known} alone, and not in {asked}."
            sentence += " To store weights in a narrower format, send workload.weight_precision."
        raise QuestionError(sentence, field="workload.precision", near=near)
    return config


def gpu_traits(gpu: Gpu, precisions: Collection[str] = (), *, selects: bool = False) -> Hashable:
    """Returns the traits of a GPU that decide a job's configuration: GPUs with equal traits have the same one.

    `selects` is whether the model attends to selected tokens, for which only some architectures have kernels.
    """
    usual = tuple(_usual_precision(task, gpu) for task in JOB_PRECISIONS)
    names = {*USUAL_PRECISIONS, *precisions, *map(runs_as, precisions)}
    support = frozenset((name, rate.support) for name, rate in gpu.rates.items() if name in names)
    platform = gpu.platform if gpu.platform in PLATFORMS_WITH_STACKS else None
    # Stacks differ in the architectures on which they have kernels.
    matters = selects or "int8" in precisions or not gpu.has_flash_attention
    architecture = gpu.architecture if matters else None
    return gpu.has_flash_attention, usual, support, platform, architecture, gpu.kind == CPU


def sequence_length(job: Job) -> int:
    """Returns the tokens (or patches) of a training sample; 0 for a network without sequences.

    If an encoder reads a fixed number of tokens and a decoder another, it is the mean over all layers. Raises
    `QuestionError` if an encoder has too few positions; decoders are often trained beyond theirs.
    """
    t = job.model.transformer
    if t is None:
        return 0
    if job.sequence_length:
        _check_length(job, job.sequence_length, "workload.sequence_length")
    if _reads_fixed_tokens(job.model):
        return round(_mean_over_layers(job.model, job.sequence_length or job.model.output_tokens_per_sample or 0.0))
    return job.sequence_length or min(_USUAL_SEQUENCE, _most_tokens(t) or _USUAL_SEQUENCE)


def _mean_length(job: Job) -> float | None:
    """Returns the mean tokens of a training sample without padding, averaged over all layers; None if not stated."""
    if job.mean_length is None or not _reads_fixed_tokens(job.model):
        return job.mean_length
    return _mean_over_layers(job.model, job.mean_length)


def written_length(job: Job) -> float | None:
    """Returns the tokens of a training sample that a decoder learns to write, where the network fixes those that its
    encoder reads; None for other models, all of whose layers have the same tokens.
    """
    if not _reads_fixed_tokens(job.model):
        return None
    return job.mean_length or job.sequence_length or job.model.output_tokens_per_sample


def _reads_fixed_tokens(model: Model) -> bool:
    """Returns whether an encoder reads a number of tokens that the network fixes, and a decoder another one."""
    encodes = model.transformer is not None and model.transformer.encoder_layers > 0
    return bool(encodes and model.input_tokens_per_sample and model.output_tokens_per_sample)


def _mean_over_layers(model: Model, decoded: float) -> float:
    """Returns the tokens of a layer, averaged over those of the encoder and those of the decoder."""
    assert model.transformer is not None
    assert model.input_tokens_per_sample is not None
    share = model.transformer.encoder_layers / model.transformer.layers
    return decoded + (model.input_tokens_per_sample - decoded) * share


def _most_tokens(t: Transformer) -> int:
    """Returns the largest number of tokens of a sample; 0 if unknown."""
    return t.context_tokens or (t.learned_positions if not t.vocabulary else 0)


def _check_length(job: Job, tokens: float, field: str) -> None:
    """Raises `QuestionError` if the model is an encoder and a sample has no tokens, or more than its positions."""
    t = job.model.transformer
    # Decoders are often used beyond their positions, and networks without sequences have no tokens.
    if t is None or t.decoder:
        return
    most = _most_tokens(t)
    if tokens < 1:
        raise QuestionError(f"{job.model.name} reads at least 1 token, not {tokens:g}.", field=field)
    if most and tokens > most:
        raise QuestionError(f"{job.model.name} reads at most {most} tokens, not {tokens:g}.", field=field)


def input_length(job: Job) -> float:
    """Returns the tokens of a prompt, or of a sample of a network that generates nothing; 0 if unknown.

    If the caller states none, it is the number that the network fixes, and for an encoder the length of a training
    sample. Raises `QuestionError` if an encoder has too few positions.
    """
    if job.input_length is not None:
        _check_length(job, job.input_length, job.prompt_field)
        return job.input_length
    if job.sequence_length is None and job.model.input_tokens_per_sample is not None:
        return job.model.input_tokens_per_sample
    return float(job.sequence_length or 0) if job.model.generates else float(sequence_length(job))


def with_prompt(job: Job, tokens: float) -> Job:
    """Returns the job with another mean length of prompts, in tokens; a 95th percentile changes in proportion."""
    if job.serving is None:
        return replace(job, input_length=tokens)
    prompt = job.serving.prompt
    scaled = replace(prompt, mean=tokens, p95=prompt.p95 and prompt.p95 * tokens / prompt.mean)
    return replace(job, input_length=tokens, serving=replace(job.serving, prompt=scaled))


def prompt_change(job: Job, tokens: float) -> dict[str, object]:
    """Returns the request fields that ask for the prompts of `with_prompt`, with their values."""
    shorter = with_prompt(job, tokens).serving
    if shorter is None or shorter.prompt.p95 is None:
        return {job.prompt_field: tokens}
    return {job.prompt_field: {"mean": tokens, "p95": shorter.prompt.p95}}


def output_length(job: Job) -> float:
    """Returns the tokens of an answer: as requested, else as the model usually generates per sample; 0 if unknown."""
    return job.output_length or job.model.output_tokens_per_sample or 0.0


def assumed_lengths(job: Job) -> dict[str, float]:
    """Returns the tokens of `input` and `output` of inference that are assumed, if not stated or fixed."""
    model = job.model
    if job.task != "inference" or model.transformer is None:
        return {}
    stated = job.input_length or job.sequence_length or job.mean_length
    lengths = {} if stated or job.has_fixed_sample else {"input": max(1.0, input_length(job))}
    writes = model.generates and not job.output_length
    return lengths | ({"output": max(1.0, output_length(job))} if writes else {})


def _denoising_steps(job: Job) -> float:
    """Returns the denoising steps of a sample; 1 for a network without them."""
    return job.denoising_steps or job.model.steps_per_sample or 1.0


def _passes_per_step(job: Job) -> float:
    usual = job.model.passes_per_step or 1.0
    return usual if job.guidance is None else 1.0 + job.guidance


def tokens_per_sample(job: Job) -> float:
    """Returns the tokens of a sample, by which an amount in tokens is converted to samples; 0 if unknown."""
    if job.task == "training":
        return job.mean_length or written_length(job) or sequence_length(job)
    return output_length(job) or job.mean_length or input_length(job)


def samples_of(amount: Amount, length: float, samples_per_step: Samples) -> float | Samples | None:
    """Returns the samples of an amount; None if unknown. `length` is the tokens of a sample, 0 if unknown."""
    if amount.samples is not None:
        return amount.samples
    if amount.tokens is not None:
        return amount.tokens / length if length else None
    return None if amount.steps is None else amount.steps * samples_per_step


def _precision_on(job: Job, gpu: Gpu) -> str | None:
    """Returns the first precision asked for that the GPU runs or stores, or the usual one; None if there is none."""
    if not job.precisions:
        keeps = gpu.kind == CPU and job.serves and not job.software.stack.expands_weights
        return _KEPT_ON_CPUS if keeps else _usual_precision(job.task, gpu)
    # Formats that only store values, or that the GPU lacks, are multiplied in a usual precision.
    usual = _runs_usual(job.task, gpu)
    for support in ("native", "any"):
        for name in job.precisions:
            if (usual and only_stores(job.task, name)) or gpu.runs(name, support):
                return name
    narrow = (name for name in job.precisions if format_of(name).stored_bits <= _storable_bits(gpu))
    return next(narrow, None) if usual and job.task == "inference" else None


def only_stores(task: Task, precision: str) -> bool:
    """Returns whether work of this kind only stores weights in a format, and multiplies them in another one."""
    return format_of(precision).stored_only or (task == "training" and precision in _INTEGERS)


def _storable_bits(gpu: Gpu) -> float:
    """Returns the bits of the widest format that is only stored where there is no arithmetic for it."""
    return format_of(_KEPT_ON_CPUS).stored_bits if gpu.kind == CPU else _NARROW_BITS


def _runs_usual(task: str, gpu: Gpu) -> bool:
    return any(gpu.runs(name) for name in JOB_PRECISIONS[task])


def _usual_precision(task: str, gpu: Gpu) -> str | None:
    usual = [name for name in JOB_PRECISIONS[task] if gpu.runs(name)]
    return max(usual, key=lambda name: (peak_flops(gpu, name), -usual.index(name)), default=None)


def _training_on(job: Job, gpu: Gpu, precision: str) -> TrainingConfig:
    stored = job.weight_precision
    if only_stores(job.task, precision):  # a base model of 4 bits is multiplied at 16
        stored, precision = stored or precision, _sixteen_bits(gpu)
    stored = stored or job.as_published or (QLORA_FORMAT if job.method == "qlora" else None)
    if job.method == "full" and stored and only_stores(job.task, stored):
        stored = None  # weights that change are kept in the format of the arithmetic
    # Weights in fp8 are only cast, which adds nothing to a step of FLUX on an A6000 (kohya_ss, issue 2701).
    if job.method == "lora" and stored and stored != "fp8" and bytes_per_value(stored) < 2:
        job = replace(job, method="qlora")
    return TrainingConfig(
        model=job.model,
        precision=precision,
        recipe=_recipe(job, precision),
        method=job.method,
        weight_precision=stored,
        optimizer=job.optimizer,
        trainable_parameters=job.trainable_parameters,
        has_reference=job.has_reference,
        samples_together=job.samples_together,
        sequence_length=sequence_length(job),
        mean_length=_mean_length(job),
        written_length=written_length(job),
        image_tokens=job.image_tokens,
        global_batch=job.global_batch,
        batch_per_gpu=job.micro_batch,
        flash_attention=_has_flash(job, gpu),
        chunked_loss=job.chunked_loss or job.software.stack.chunks_loss,
        fused_optimizer=job.fused_optimizer,
        offload_activations=job.offload_activations or job.software.stack.offloads_activations,
        offload_optimizer=job.offload_optimizer,
        offload_parameters=job.offload_parameters,
        encoders_in_training=job.encoders_in_training,
        task=purpose_of(job),
        software=job.software,
        memory_confidence=job.memory_confidence,
    )


def _inference_on(job: Job, gpu: Gpu, precision: str) -> InferenceConfig:
    bits = job.weight_bits or (format_of(job.weight_precision).stored_bits if job.weight_precision else None)
    stored = job.weight_precision or precision
    multiplied = _multiplied_in(job, precision, gpu)
    if multiplied != precision:
        bits = bits or format_of(precision).stored_bits
    cache = "fp8" if multiplied in job.software.stack.fp8_cache_with else None
    if multiplied != precision and multiplied in SINGLE_PRECISIONS:
        cache = "bf16"  # wider arithmetic does not widen what is kept
    return InferenceConfig(
        model=job.model,
        precision=multiplied,
        weight_bits=bits,
        mean_bits=job.mean_bits or job.software.stack.mean_bits,
        expansion=_expansion(job, stored),
        unpacking_flops=format_of(stored).unpacking_flops,
        kv_precision=job.kv_precision or cache,
        input_length=input_length(job),
        output_length=output_length(job),
        image_tokens=job.image_tokens,
        concurrency=job.concurrency,
        mean_length=job.mean_length,
        burst=None if job.amount is None else samples_of(job.amount, tokens_per_sample(job), 0.0),
        steps=_denoising_steps(job),
        passes=_denoising_steps(job) * _passes_per_step(job),
        longest_output=job.longest_output,
        # Networks that generate nothing are served in batches of the requests that arrived during the last batch.
        serving=job.serving
        and replace(
            job.serving,
            static_batches=job.software.stack.static_batches or not job.model.generates,
            clients_queue=not job.model.generates,
        ),
        loading=job.loading,
        software=job.software,
        memory_confidence=job.memory_confidence,
    )


def _expansion(job: Job, stored: str) -> Expansion:
    """Returns when products expand weights that are stored in a format."""
    number_format = format_of(stored)
    if number_format.expanded:
        return "for_several_tokens"
    return "always" if job.software.stack.expands_weights and not number_format.has_kernels else "never"


def _sixteen_bits(gpu: Gpu) -> str:
    return "bf16" if gpu.runs("bf16") else "fp16"


def _recipe(job: Job, precision: str) -> str:
    """Returns the key of `memory.RECIPES` for training in a precision."""
    if precision == "fp64":
        return "double"
    if precision in SINGLE_PRECISIONS:
        return "single"
    if job.mixed_precision is None:
        return "pure" if precision == "bf16" and job.software.stack.half_weights else "mixed"
    return "mixed" if job.mixed_precision else "pure"


def _has_flash(job: Job, gpu: Gpu) -> bool:
    if job.flash_attention is not None:
        return job.flash_attention
    stack = job.software.stack
    return (gpu.has_flash_attention or gpu.architecture in stack.fuses_attention_on) and not stack.before_flash


def purpose_of(job: Job) -> str:
    """Returns the purpose of training, in the terms of published runs: it decides about packed or short sequences."""
    if job.method != "full":
        return {"lora": "lora", "qlora": "qlora"}.get(job.method, "peft_other")
    if job.purpose == "finetune":
        return "finetune_full"
    t = job.model.transformer
    return "pretrain" if t is not None and t.decoder and not t.encoder_layers else "train"


def multiplies_in(job: Job, precision: str, gpu: Gpu) -> bool:
    """Returns whether the stack of a job that answers multiplies in a precision on a GPU, and not only stores in it."""
    return _multiplied_in(job, precision, gpu) == precision


def _multiplied_in(job: Job, precision: str, gpu: Gpu) -> str:
    """Returns the precision that multiplies weights of a format: the usual one of a GPU that only stores the format, or
    the format itself on a chip without a usual one, which computes with integers alone.
    """
    usual, number_format, stack = _usual_precision(job.task, gpu), format_of(precision), job.software.stack
    if number_format.stored_only or not gpu.runs(precision, "any"):
        stores = number_format.stored_bits <= _storable_bits(gpu)
    else:
        stores = precision == "int8" and job.model.generates and gpu.architecture not in stack.multiplies_int8_on
    return usual if usual is not None and stores else precision
