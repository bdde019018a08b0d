"""A job on a GPU: its precision, the format of its weights, and the defaults of its stack there."""

from collections.abc import Collection, Hashable
from dataclasses import replace

from service.domain.catalog.hardware import CPU, Gpu, peak_flops
from service.domain.catalog.precision import SINGLE_PRECISIONS, USUAL_PRECISIONS, bytes_per_value, format_of, runs_as
from service.domain.errors import QuestionError
from service.domain.jobs.config import QLORA_FORMAT, Config, Expansion, InferenceConfig, TrainingConfig
from service.domain.jobs.job import (
    JOB_PRECISIONS,
    Job,
    Task,
    denoising_steps,
    input_length,
    mean_length_over_layers,
    output_length,
    passes_per_step,
    purpose_of,
    samples_of,
    sequence_length,
    tokens_per_sample,
    written_length,
)
from service.domain.jobs.stacks import PLATFORMS_WITH_STACKS, Stack

_NARROW_BITS = 9.0
"""Formats up to this size can store weights on any GPU; GPUs without arithmetic for them multiply in a usual precision.
"""

_KEPT_ON_CPUS = "bf16"
"""Format in which engines keep published weights, and keys and values, on CPUs, also on those that multiply in fp32."""

_LEAST_GB_OF_A_LARGE_GPU = 70.0
"""Memory from which vLLM counts a GPU as large, except an A100."""

_INTEGERS = frozenset({"int8", "int1"})
"""Formats of integers with arithmetic of their own. No trainer computes in them: the weights of LLM.int8() are frozen,
and gradients flow through them at 16 bits (Dettmers et al. 2022, 2208.07339)."""


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
    return gpu.has_flash_attention, usual, support, platform, architecture, gpu.kind == CPU, _is_small(gpu)


def _is_small(gpu: Gpu) -> bool:
    """Returns whether vLLM counts a GPU among those that run fewer requests at once by default."""
    return (gpu.memory_gb or 0.0) < _LEAST_GB_OF_A_LARGE_GPU or gpu.id.startswith("a100")


def _most_in_flight(stack: Stack, gpu: Gpu) -> float:
    return (stack.most_on_small_gpus if _is_small(gpu) else None) or stack.most_in_flight


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
        mean_length=mean_length_over_layers(job),
        written_length=written_length(job),
        image_tokens=job.image_tokens,
        global_batch=job.global_batch,
        batch_per_gpu=job.micro_batch,
        flash_attention=_has_flash(job, gpu),
        chunked_loss=job.chunked_loss,
        loss_logits=job.loss_logits,
        fused_optimizer=job.fused_optimizer,
        offload_activations=job.offload_activations or job.software.stack.offloads_activations,
        offload_optimizer=job.offload_optimizer,
        offload_parameters=job.offload_parameters,
        encoders_in_training=job.encoders_in_training,
        task=purpose_of(job),
        loading=job.loading,
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
        steps=denoising_steps(job),
        passes=denoising_steps(job) * passes_per_step(job),
        longest_output=job.longest_output,
        most_on_gpu=_most_in_flight(job.software.stack, gpu),
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
