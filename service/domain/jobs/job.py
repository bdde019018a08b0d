"""A job before it is known where it runs, and the same on one GPU, with that GPU's precision and its stack's habits."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from service.domain.catalog.formats import BITS, RUNS_AS, peak_flops
from service.domain.catalog.hardware import Gpu
from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig, Method, TrainingConfig
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack
from service.domain.models.model import Model

USUAL_PRECISIONS = {"training": ("bf16", "fp16", "tf32", "fp32"), "inference": ("bf16", "fp16", "fp32")}
"""What a job runs in where nobody says; the fastest that a GPU has."""

STORED_ONLY = frozenset({"int4", "nf4", "nf4-dq"})
"""Weights are kept so and multiplied at 16 bits: no GPU of the catalog multiplies them as they are stored."""

NARROW_BITS = 9.0
"""Engines keep weights in such formats on any GPU, and multiply at 16 bits where it has no unit for them."""

WITHOUT_FLASH = frozenset({"kepler", "maxwell", "pascal", "volta", "turing"})
"""Architectures that FlashAttention-2 does not run on."""

SINGLE = frozenset({"fp32", "tf32"})
USUAL_SEQUENCE = 2048
"""What a training sequence was for years, where nobody says how long; a model that reads less gets all it reads."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much work there is; at most one is told."""

    samples: float | None = None
    tokens: float | None = None
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """What shall run, as asked: None is left to the stack and the machine. Lengths are tokens, batches samples."""

    task: Literal["training", "inference"]
    model: Model
    precisions: tuple[str, ...] = ()
    """In order of preference."""
    software: SoftwareStack = UNKNOWN
    amount: Amount | None = None
    weight_precision: str | None = None
    weight_bits: float | None = None
    method: Method = "full"
    optimizer: str = "adamw"
    purpose: Literal["pretrain", "finetune"] | None = None
    trainable_parameters: float | None = None
    sequence_length: int | None = None
    mean_length: float | None = None
    global_batch: int | None = None
    flash_attention: bool | None = None
    mixed_precision: bool | None = None
    chunked_loss: bool = False
    fused_optimizer: bool = False
    offload_activations: bool = False
    kv_precision: str | None = None
    input_length: float | None = None
    output_length: float | None = None
    concurrency: float | None = None


def precision_on(job: Job, gpu: Gpu) -> str | None:
    """Returns the first requested precision that the GPU runs, else the fastest usual one; None if it runs none."""
    if not job.precisions:
        return usual_precision(job.task, gpu)
    for support in ("native", "any"):
        for name in job.precisions:
            if name in STORED_ONLY or gpu.runs(RUNS_AS.get(name, name), support):
                return name
    narrow = [name for name in job.precisions if BITS[name] <= NARROW_BITS]
    return narrow[0] if job.task == "inference" and narrow else None


def _required_precision_on(job: Job, gpu: Gpu) -> str:
    """Returns `precision_on`. Raises `QuestionError` if the GPU runs none of the requested precisions."""
    precision = precision_on(job, gpu)
    if precision is not None:
        return precision
    known = sorted(runs(gpu))
    raise QuestionError(
        f"{gpu.name} does not run {' or '.join(job.precisions)}; it runs {', '.join(known) or 'none that is known'}.",
        field="workload.precision",
        near=tuple(known),
    )


def usual_precision(task: str, gpu: Gpu) -> str:
    usual = [name for name in USUAL_PRECISIONS[task] if gpu.runs(name)] or ["fp32"]
    return max(usual, key=lambda name: (peak_flops(gpu, name), -usual.index(name)))


def sort_of(gpu: Gpu) -> Hashable:
    """What makes jobs run on GPUs in the same way, however fast these are."""
    usual = tuple(usual_precision(task, gpu) for task in USUAL_PRECISIONS)
    support = frozenset((name, rate.support) for name, rate in gpu.rates.items())
    return gpu.architecture in WITHOUT_FLASH, usual, support


def runs(gpu: Gpu) -> list[str]:
    return [name for name in gpu.rates if gpu.runs(name)]


def sequence_length(job: Job) -> int:
    """Tokens (or patches) of a training sample; 0 of a network without a sequence. Raises where it is too long."""
    t = job.model.transformer
    if t is None:
        return 0
    most = t.context_tokens or (t.learned_positions if not t.vocabulary else 0)
    if job.sequence_length and most and job.sequence_length > most and not t.decoder:
        raise QuestionError(
            f"{job.model.name} reads at most {most} tokens, not {job.sequence_length}.",
            field="workload.sequence_length",
        )
    return job.sequence_length or min(USUAL_SEQUENCE, most or USUAL_SEQUENCE)


def training_on(job: Job, gpu: Gpu) -> TrainingConfig:
    """The job as a training step on this GPU."""
    precision = _required_precision_on(job, gpu)
    stored = job.weight_precision or ("nf4" if job.method == "qlora" else None)
    if precision in STORED_ONLY:  # a base model kept in 4 bits is trained through at 16
        stored, precision = stored or precision, sixteen_bits(gpu)
    return TrainingConfig(
        model=job.model,
        precision=precision,
        recipe=recipe(job, precision),
        method="qlora" if job.method == "lora" and stored else job.method,
        weight_precision=stored,
        optimizer=job.optimizer,
        trainable_parameters=job.trainable_parameters,
        sequence_length=sequence_length(job),
        mean_length=job.mean_length,
        global_batch=job.global_batch,
        flash_attention=has_flash(job, gpu),
        chunked_loss=job.chunked_loss,
        fused_optimizer=job.fused_optimizer,
        offload_activations=job.offload_activations,
        task=purpose(job),
        software=job.software,
    )


def sixteen_bits(gpu: Gpu) -> str:
    return "bf16" if gpu.runs("bf16") else "fp16"


def recipe(job: Job, precision: str) -> str:
    """What is kept in which width: `single` all in fp32, `mixed` with fp32 masters, `pure` without."""
    if precision in SINGLE:
        return "single"
    if job.mixed_precision is None:
        stack = job.software.stack
        return "pure" if precision == "bf16" and stack is not None and stack.half_weights else "mixed"
    return "mixed" if job.mixed_precision else "pure"


def has_flash(job: Job, gpu: Gpu) -> bool:
    if job.flash_attention is not None:
        return job.flash_attention
    stack = job.software.stack
    return gpu.architecture not in WITHOUT_FLASH and not (stack is not None and stack.before_flash)


def purpose(job: Job) -> str:
    """Why it is trained, in the words of the published runs: long packed sequences or short examples."""
    if job.method != "full":
        return {"lora": "lora", "qlora": "qlora"}.get(job.method, "peft_other")
    if job.purpose == "finetune":
        return "finetune_full"
    t = job.model.transformer
    return "pretrain" if t is not None and t.decoder and not t.encoder_layers else "train"


def inference_on(job: Job, gpu: Gpu) -> InferenceConfig:
    """The job as answers on this GPU. Weights asked for in 4 or 8 bits are multiplied at 16 unless a unit runs them."""
    precision = _required_precision_on(job, gpu)
    bits = job.weight_bits or (BITS[job.weight_precision] if job.weight_precision else None)
    if stored_only(job, precision, gpu):
        bits, precision = bits or BITS[precision], sixteen_bits(gpu)
    return InferenceConfig(
        model=job.model,
        precision=precision,
        weight_bits=bits,
        kv_precision=job.kv_precision or usual_kv_precision(job, precision),
        input_length=job.input_length if job.input_length is not None else float(job.sequence_length or 0),
        output_length=job.output_length or 0.0,
        concurrency=job.concurrency,
        mean_length=job.mean_length,
        software=job.software,
    )


def stored_only(job: Job, precision: str, gpu: Gpu) -> bool:
    """Whether weights are kept so and multiplied at 16 bits."""
    if precision in STORED_ONLY or not gpu.runs(RUNS_AS.get(precision, precision), "any"):
        return BITS[precision] <= NARROW_BITS
    return precision == "int8" and job.model.generates and not multiplies_int8(job)


def multiplies_int8(job: Job) -> bool:
    """Engines that quantise activations too (W8A8)."""
    return job.software.line in ("tensorrt", "mlperf-inference")


def usual_kv_precision(job: Job, precision: str) -> str | None:
    """TensorRT-LLM keeps the cache in fp8 with fp8 and fp4 weights."""
    return "fp8" if job.software.line == "tensorrt-llm" and precision in ("fp8", "fp4", "nvfp4") else None


def tokens_per_sample(job: Job) -> float:
    """What an amount in tokens is divided by; 0 where nothing tells."""
    if job.task == "training":
        return job.mean_length or sequence_length(job)
    return job.output_length or job.mean_length or job.input_length or job.sequence_length or 0.0


def samples_of(amount: Amount, length: float, samples_per_step: Sequence[float] | float) -> float | None:
    """How many samples the amount is, at so many tokens a sample and samples a step."""
    if amount.samples is not None:
        return amount.samples
    if amount.tokens is not None:
        return amount.tokens / length if length else None
    if amount.steps is not None and isinstance(samples_per_step, int | float):
        return amount.steps * samples_per_step
    return None
