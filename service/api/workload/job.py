"""A workload as sent → a job of the domain: its model resolved or read, every name known."""

from typing import Any

from service.api.workload.workload import AmountRequest, ModelDimensionsRequest, WorkloadRequest
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_model, unknown
from service.domain.catalog.precision import FORMATS
from service.domain.errors import QuestionError
from service.domain.jobs.job import Amount, Job, tokens_per_sample
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack, software_called
from service.domain.models.described import DIMENSIONS, described, recognised
from service.domain.models.huggingface import read_config
from service.domain.models.model import FAMILIES, Model
from service.domain.physics.memory import OPTIMIZER_STATES

PHYSICAL_TASKS = ("training", "inference")
"""Tasks whose time the physics knows."""

METHODS = {"full": "full", "lora": "lora", "qlora": "qlora", "adapters": "adapter"}


def job_of(work: WorkloadRequest, catalog: Catalog) -> Job | None:
    """The job; nothing where no model is told or the task is none that the physics knows. Raises `QuestionError`."""
    for field in ("weight_precision", "kv_cache_precision"):
        if (name := getattr(work, field)) is not None and name not in FORMATS:
            raise unknown("number format", name, FORMATS, f"workload.{field}")
    kept = optimizer(work.optimizer)
    if work.model is None or work.task not in PHYSICAL_TASKS:
        return None
    job = Job(
        task=work.task,  # type: ignore[arg-type]
        model=as_measured(model_asked(work.model, catalog), catalog),
        precisions=tuple(number_format(name) for name in work.precision),
        software=software_of(work),
        amount=amount_of(work.amount),
        weight_precision=work.weight_precision,
        weight_bits=work.weight_bits,
        method=METHODS[work.method or "full"],  # type: ignore[arg-type]
        optimizer=kept,
        purpose=work.purpose,
        trainable_parameters=work.trainable_parameters,
        sequence_length=work.sequence_length,
        mean_length=work.mean_length,
        global_batch=work.global_batch_size,
        flash_attention=work.flash_attention,
        mixed_precision=work.mixed_precision,
        chunked_loss=work.chunked_loss,
        fused_optimizer=work.fused_optimizer,
        offload_activations=work.offload_activations,
        kv_precision=work.kv_cache_precision,
        input_length=work.input_length,
        output_length=work.output_length,
        concurrency=work.concurrency if work.concurrency is not None else work.batch_size,
    )
    check_tokens(job)
    return job


def check_tokens(job: Job) -> None:
    """Raises where an amount in tokens cannot be told in samples."""
    if job.amount is None or job.amount.tokens is None or tokens_per_sample(job):
        return
    answers = job.task == "inference" and job.model.transformer is not None
    raise QuestionError(
        "An amount in tokens needs workload.output_length or workload.input_length."
        if answers
        else f"{job.model.name} reads no tokens: tell the amount in samples or steps.",
        field="workload.amount.tokens",
    )


def model_asked(asked: str | ModelDimensionsRequest, catalog: Catalog) -> Model:
    """The model of the catalog, or the one described."""
    if isinstance(asked, str):
        return resolve_model(asked, catalog, "workload.model")
    known = catalog.reference.models.values()
    try:
        if asked.huggingface_config is not None:
            return recognised(read_config(asked.huggingface_config, asked.name or "custom"), known)
        told: dict[str, Any] = {name: value for name in DIMENSIONS if (value := getattr(asked, name, None)) is not None}
        if asked.name is not None and not told and asked.parameters is None:
            return resolve_model(asked.name, catalog, "workload.model.name")
        family = None if asked.family is None else resolve("family", [asked.family], FAMILIES, "family")[0]
        return described(
            known,
            name=asked.name,
            family=family,
            parameters=asked.parameters,
            active_parameters=asked.active_parameters,
            forward_flops_per_sample=asked.forward_flops_per_sample,
            dimensions=told,
        )
    except QuestionError as error:
        if error.field and not error.field.startswith("workload."):
            error.field = f"workload.model.{error.field}"
        raise


def as_measured(model: Model, catalog: Catalog) -> Model:
    """Under the name of the model of the same sizes that runs were published of, if it has none of its own."""
    measured = catalog.memory.get_or_compute("measured_models", lambda: measured_models(catalog))
    if model.id in measured:
        return model
    if catalog.reference.models.get(model.id) is not model:
        return recognised(model, measured.values())
    return catalog.memory.get_or_compute(("as_measured", model.id), lambda: recognised(model, measured.values()))


def measured_models(catalog: Catalog) -> dict[str, Model]:
    models = catalog.reference.models
    return {name: models[name] for name in sorted(catalog.reference.physics.calibration.models()) if name in models}


def number_format(name: str) -> str:
    folded = name.lower()
    if folded not in FORMATS:
        raise unknown("precision", name, FORMATS, "workload.precision")
    return folded


def software_of(work: WorkloadRequest) -> SoftwareStack:
    """The engine's profile, or else the framework's."""
    engine = software_called(work.software.engine)
    return engine if engine is not UNKNOWN else software_called(work.software.framework)


def optimizer(name: str | None) -> str:
    if name is None:
        return "adamw"
    folded = name.lower().replace("-", "_")
    if folded not in OPTIMIZER_STATES:
        raise unknown("optimizer", name, OPTIMIZER_STATES, "workload.optimizer")
    return folded


def amount_of(asked: AmountRequest | None) -> Amount | None:
    """At most one way of telling it. Raises `QuestionError`."""
    if asked is None:
        return None
    told = [name for name in ("tokens", "samples", "steps", "hours_on") if getattr(asked, name) is not None]
    if len(told) > 1:
        raise QuestionError(
            f"The amount is told as {' and '.join(told)}: tell it in one way.", field=f"workload.amount.{told[1]}"
        )
    if asked.epochs is not None and asked.samples is None:
        raise QuestionError("Epochs need samples: how many one epoch has.", field="workload.amount.epochs")
    if not told or told == ["hours_on"]:
        return None
    samples = None if asked.samples is None else asked.samples * (asked.epochs or 1)
    return Amount(samples=samples, tokens=asked.tokens, steps=asked.steps)
