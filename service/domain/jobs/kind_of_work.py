"""The kind of work of a job, which rules of software may restrict, and the warnings of such restrictions."""

from collections.abc import Iterable, Iterator

from service.domain.catalog.software_support import (
    ANY_WORK,
    LIBRARIES_OF_KERNELS,
    RUNS,
    Restriction,
    WorkKind,
    usual_library,
)
from service.domain.codes import WarningCode
from service.domain.jobs.job import Job
from service.domain.jobs.stacks import software_called
from service.domain.statement import Statement, statement

CODES = {"model": WarningCode.SOFTWARE_MODEL, "format": WarningCode.SOFTWARE_FORMAT}
"""The part of the work that is restricted → the code of the warning."""


TRAINING_ONLY = frozenset({
    "method", "purpose", "optimizer", "trainable_parameters", "mixed_precision", "flash_attention", "chunked_loss",
    "fused_optimizer", "offload_activations", "offload_optimizer", "offload_parameters", "global_batch_size",
    "encoders_in_training",
})  # fmt: skip
"""Fields of a workload that affect training alone."""

INFERENCE_ONLY = frozenset({
    "kv_cache_precision", "concurrency", "input_length", "output_length", "longest_output_length", "serving",
    "denoising_steps", "guidance",
})  # fmt: skip
"""Fields of a workload that affect inference alone."""


def fields_without_effect(job: Job) -> dict[str, str]:
    """Returns the fields of a workload that cannot affect a job, each with the reason."""
    of_another_task = INFERENCE_ONLY if job.task == "training" else TRAINING_ONLY
    unused = dict.fromkeys(sorted(of_another_task), f"the work is {job.task}")
    if job.task == "inference" and job.input_length is not None:
        unused["sequence_length"] = "`input_length` states the tokens that are read"
    if job.task == "inference" and job.model.transformer is not None and not job.model.generates:
        unused["output_length"] = f"{job.model.name} writes no tokens"
    return unused


def library_of(job: Job | None, task: str, method: str | None, framework: str | None) -> str | None:
    """Returns the library or feature that work needs in its framework; None if it needs none.

    That is the usual one of the mainstream framework, unless it has kernels for PyTorch and the framework is JAX.
    """
    of_job = ((), None, None) if job is None else (job.weight_formats, job.model.family, job.optimizer)
    library = usual_library(task, method, *of_job)
    in_jax = framework is not None and software_called(framework).stack_class.id == "xla"
    return None if task == "training" and library in LIBRARIES_OF_KERNELS and in_jax else library


def kind_of(job: Job | None) -> WorkKind:
    """Returns the kind of work of a job; any work without a job.

    Formats restrict engines, which load the weights of inference in them. Trainers convert what they load, and a number
    of bits is that of a file with formats of its own.
    """
    if job is None:
        return ANY_WORK
    formats = job.weight_formats if job.task == "inference" and job.weight_bits is None else ()
    return WorkKind(job.task, job.model.family, formats)


def restriction_warnings(
    restrictions: Iterable[Restriction], kind: WorkKind, gpu: str
) -> Iterator[Statement[WarningCode]]:
    """Yields software that does not do a kind of work on a GPU."""
    for each in restrictions:
        if each.supported not in RUNS:
            words = (kind.family,) if each.about == "model" else kind.formats
            figures = {"software": each.software, "gpu": gpu, "task": kind.task, "words": words, "note": each.note}
            yield statement(CODES[each.about], **figures)
