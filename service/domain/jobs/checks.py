"""Checks of a job that need no machine: whether its model, batch, amount and engine fit together."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from service.domain.catalog.precision import bytes_per_value
from service.domain.errors import QuestionError
from service.domain.jobs.fixed_layout import STAGE_OF_OFFLOADED_WEIGHTS
from service.domain.jobs.job import Job, input_length, output_length, sequence_length, tokens_per_sample
from service.domain.jobs.stacks import STACKS
from service.domain.models.counts import is_routed

CACHE_BYTES = 2.0
"""Bytes of a cached key or value in 16 bits."""

DEGREES_OF_A_TRANSFORMER = ("tensor", "pipeline", "context", "expert")


def check_job(job: Job) -> None:
    """Raises `QuestionError` for the first contradiction within a job."""
    _check_work(job)
    _check_tokens(job)
    _check_sequences(job)
    _check_mean(job)
    _check_longest(job)
    _check_batch(job)
    _check_trained(job)
    _check_images(job)
    _check_engine(job)
    _check_offload(job)
    for fault in (*_faults_of_parts(job), *_faults_of_layout(job)):
        raise QuestionError(fault, field="layout")


def _check_work(job: Job) -> None:
    """Raises `QuestionError` for a model whose FLOPs per sample are unknown."""
    model = job.model
    if model.transformer is None and model.forward_flops_per_sample is None:
        raise QuestionError(
            f"The work of a {model.sample} by {model.name} is unknown: describe the model by its parameters and "
            "forward_flops_per_sample.",
            field="workload.model",
        )


def _check_tokens(job: Job) -> None:
    """Raises `QuestionError` if an amount in tokens cannot be converted to samples."""
    if job.amount is None or job.amount.tokens is None or tokens_per_sample(job):
        return
    generates = job.task == "inference" and job.model.transformer is not None
    raise QuestionError(
        "An amount in tokens needs workload.output_length or workload.input_length."
        if generates
        else f"{job.model.name} has no tokens: give the amount in samples or steps.",
        field="workload.amount.tokens",
    )


def _check_sequences(job: Job) -> None:
    """Raises `QuestionError` for a length in tokens of samples that have none to choose."""
    for name in ("sequence_length", "mean_length", "input_length", "output_length"):
        # A load without tokens has prompts of no length.
        if getattr(job, name) and job.model.transformer is None:
            raise QuestionError(
                f"{job.model.name} has samples without a number of tokens to choose: leave {name} out.",
                field=job.prompt_field if name == "input_length" else f"workload.{name}",
            )


def _check_longest(job: Job) -> None:
    """Raises `QuestionError` if the longest answer has fewer tokens than the mean one."""
    mean = output_length(job)
    if job.longest_output is not None and job.longest_output < mean:
        raise QuestionError(
            f"longest_output_length has the tokens of the longest answer, and the mean one has {mean:,g}.",
            field="workload.longest_output_length",
        )


def _check_mean(job: Job) -> None:
    """Raises `QuestionError` if the samples of training have more tokens without their padding than with it."""
    if job.task != "training" or job.mean_length is None:
        return
    padded = tokens_per_sample(replace(job, mean_length=None))
    if job.mean_length <= padded:
        return
    default = "" if job.sequence_length else ", its default here"
    raise QuestionError(
        f"mean_length counts the tokens of a sample without padding, so it cannot exceed the {padded:,.0f} of "
        f"sequence_length{default}.",
        field="workload.mean_length",
    )


def _check_batch(job: Job) -> None:
    """Raises `QuestionError` for a global batch below the batch of one GPU, and for a batch with a part of a pair."""
    if job.micro_batch and job.global_batch and job.micro_batch > job.global_batch:
        raise QuestionError(
            f"batch_size counts the samples of one GPU in one pass, so it cannot exceed the {job.global_batch:,} of "
            "global_batch_size, which all GPUs share.",
            field="workload.batch_size",
        )
    batches = {
        "workload.global_batch_size": job.global_batch,
        "workload.batch_size": job.micro_batch,
        "layout": job.layout.micro_batch,
    }
    for field, samples in batches.items():
        if samples and samples % job.samples_together:
            raise QuestionError(
                "Both sequences of a pair are read in one pass, and batches count sequences: send an even number, "
                f"such as {samples + 1} in place of {samples}.",
                field=field,
            )


ROUNDED_UP = 1.05
"""Largest ratio of a rounded number of parameters to the exact one, such as 8.4 to 8.03 billion."""


def _check_trained(job: Job) -> None:
    """Raises `QuestionError` if more parameters learn than the model has, even if their number is rounded up."""
    if job.task == "training" and (job.trainable_parameters or 0.0) > ROUNDED_UP * job.model.parameters:
        raise QuestionError(
            f"trainable_parameters cannot exceed the {job.model.parameters:g} parameters of {job.model.name}.",
            field="workload.trainable_parameters",
        )


def _check_images(job: Job) -> None:
    """Raises `QuestionError` for tokens of images of a model that reads none, or beyond the prompt or the sample."""
    if not job.image_tokens:
        return
    if not job.model.reads_images:
        raise QuestionError(
            f"{job.model.name} is not known to read images: leave image_tokens out, or give the model's config.json "
            "with its vision_config as model.huggingface_config.",
            field="workload.image_tokens",
        )
    training = job.task == "training"
    tokens = job.mean_length or sequence_length(job) if training else input_length(job)
    if job.image_tokens > tokens:
        raise QuestionError(
            f"image_tokens are some of the {tokens:g} tokens of a {'sample' if training else 'prompt'}.",
            field="workload.image_tokens",
        )


def _check_engine(job: Job) -> None:
    """Raises `QuestionError` for a narrow cache, or disaggregated serving, with an engine that does not support it."""
    narrow = job.kv_precision is not None and bytes_per_value(job.kv_precision) < CACHE_BYTES
    if narrow and job.software.stack.keeps_wide_cache:
        raise QuestionError(
            f"{job.software.line} keeps keys and values in 16 bits or more: leave kv_cache_precision out.",
            field="workload.kv_cache_precision",
        )
    if job.serving is None or not job.serving.disaggregated or job.software.stack.disaggregates:
        return
    able = ", ".join(stack.id for stack in STACKS if stack.disaggregates)
    raise QuestionError(
        f"{job.software.line} reads prompts and writes answers with the same instances. Engines that can use other "
        f"instances for each: {able}.",
        field="workload.serving.disaggregated",
    )


def _check_offload(job: Job) -> None:
    """Raises `QuestionError` for offloaded weights that are not sharded."""
    if not job.offload_parameters:
        return
    if job.task == "training" and STAGE_OF_OFFLOADED_WEIGHTS not in job.software.stack_class.zero_stages:
        raise QuestionError(
            f"{job.software.line} does not shard weights, so that it cannot keep them in host memory: leave "
            "offload_parameters out, or name a framework that does, such as deepspeed.",
            field="workload.offload_parameters",
        )
    if job.layout.zero_stage not in (None, STAGE_OF_OFFLOADED_WEIGHTS):
        raise QuestionError(
            f"offload_parameters needs zero_stage {STAGE_OF_OFFLOADED_WEIGHTS}, which shards weights.", field="layout"
        )


def _faults_of_parts(job: Job) -> Iterator[str]:
    """Yields fixed parts of the layout that contradict each other or the global batch."""
    fixed, data = job.fixed, job.fixed.data or 1
    if (fixed.virtual_stages or 1) > 1 and (fixed.pipeline or 1) == 1:
        yield f"virtual_stages {fixed.virtual_stages} needs a pipeline of at least two stages: fix pipeline too."
    # The micro-batches of a step may be filled in part: 252 samples are up to 32 on each of 8 ranks.
    if fixed.micro_batch and job.global_batch and fixed.micro_batch > ceil(job.global_batch / data):
        ranks = f" on {data} data-parallel ranks have {fixed.micro_batch * data:,} samples," if data > 1 else " are"
        yield (
            f"Micro-batches of {fixed.micro_batch:,}{ranks} more than the {job.global_batch:,} of global_batch_size."
        )


def _faults_of_layout(job: Job) -> Iterator[str]:
    """Yields what no cluster can divide as the fixed parts of the layout say."""
    fixed, model, t = job.fixed, job.model, job.model.transformer
    # A language model whose dimensions are unknown may be divided, although the cost of that is unknown.
    if t is None and model.family not in ("llm", "enc_dec") and not is_routed(model):
        for name in DEGREES_OF_A_TRANSFORMER:
            if (getattr(fixed, name) or 1) > 1:
                yield f"{model.name} can only be spread by data: {name} {getattr(fixed, name)} needs a transformer."
    if t is None:
        return
    excludes_stages = job.serving is not None and not job.serving.has_stages_on(job.software.stack)
    if excludes_stages and (fixed.pipeline or 1) > 1:
        yield (
            f"{job.software.line} does not run speculative decoding with pipeline stages: fix pipeline 1, or leave "
            "speculative_acceptance out."
        )
    if fixed.pipeline and fixed.pipeline > t.layers:
        yield f"{t.layers} layers cannot be cut into {fixed.pipeline} pipeline stages."
    elif (fixed.virtual_stages or 1) > ceil(t.layers / (fixed.pipeline or 1)):
        yield f"{t.layers} layers cannot be cut into {fixed.virtual_stages} pieces on each pipeline stage."
    expert = fixed.expert or 1
    # Experts are divided over groups of tensor parallelism. Engines of inference copy some where these do not divide
    # their number.
    spread = max(1, expert // (fixed.tensor or 1))
    if expert > 1 and (t.experts % spread if job.task == "training" else spread > t.experts):
        yield f"{t.experts} experts cannot be divided over {expert} GPUs."
    if expert > 1 and not t.experts and not is_routed(model):
        yield f"{model.name} has no experts, which therefore cannot be spread over {expert} GPUs."
