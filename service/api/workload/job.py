"""Translates a workload into a job of the domain: the model is looked up or read, and every name is checked."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar, get_args

from service.api.catalog.filters import resolved
from service.api.workload.described_model import ModelDimensionsRequest
from service.api.workload.layout import FixedLayoutRequest, fixed_layout
from service.api.workload.requirements import faster_formats, precision_requirement_of
from service.api.workload.serving import serving_of
from service.api.workload.workload import (
    AmountRequest,
    WorkloadRequest,
)
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import (
    either,
    format_in_name,
    published_model,
    resolve,
    resolve_instance,
    resolve_model,
    unknown,
)
from service.domain.catalog.precision import (
    FORMATS,
    GGUF_BITS,
    gguf_bits,
)
from service.domain.catalog.software_support import classical_libraries, software_names
from service.domain.errors import QuestionError
from service.domain.estimate.hours_on import amount_of_hours
from service.domain.evidence.named import NamedWork
from service.domain.jobs.checks import check_job
from service.domain.jobs.config import LOSSES_ON_PAIRS, LOSSES_ON_SCORES, PREFERENCE_LOSSES
from service.domain.jobs.job import IN_STEPS, JOB_PRECISIONS, Amount, Job, Task
from service.domain.jobs.loading import SampleLoading
from service.domain.jobs.losses import logits_with
from service.domain.jobs.published_format import published_precision
from service.domain.jobs.similar_stacks import similar_stacks
from service.domain.jobs.software_names import software_name
from service.domain.jobs.stacks import UNKNOWN, software_called
from service.domain.models.counts import scoring
from service.domain.models.described import (
    DIMENSIONS,
    UNNAMED_SAMPLE,
    described,
    model_like,
    recognised,
    with_dimensions_of,
)
from service.domain.models.huggingface import read_config
from service.domain.models.model import FAMILIES, Model
from service.domain.models.sample_size import of_size, takes_sizes
from service.domain.physics.memory import OPTIMIZER_STATES
from service.domain.units import SECONDS_AN_HOUR
from service.domain.versions import split_requirement

UNITS_OF_WORK = ("tokens", "samples", "pairs", "audio_hours", "steps", "hours_on")

PER_EPOCH = frozenset({"tokens", "samples", "pairs", "audio_hours"})
"""Units of which `epochs` says how often they are repeated."""

JobOrName = TypeVar("JobOrName", Job, NamedWork)

METHODS = {"full": "full", "lora": "lora", "qlora": "qlora", "adapters": "adapter"}
"""Methods of training as the domain names them."""

OTHER_OPTIMIZERS = {
    **dict.fromkeys(
        ("adamw_torch", "adamw_torch_fused", "adamw_apex_fused", "adamw_hf", "fused_adamw", "fusedadamw"), "adamw"
    ),
    **dict.fromkeys(("adamw_torch_xla", "adamw_torch_npu_fused", "stable_adamw", "schedule_free_adamw"), "adamw"),
    **dict.fromkeys(("fused_adam", "fusedadam", "adamax", "nadam", "radam", "schedule_free_radam"), "adam"),
    **dict.fromkeys(("adamw_bnb_8bit", "adamw8bit", "adamw_torch_8bit"), "adamw_8bit"),
    "adamw_torch_4bit": "adamw_4bit",
    **dict.fromkeys(("lion_32bit", "lion_pytorch"), "lion"),
    "paged_lion_32bit": "paged_lion",
    **dict.fromkeys(("rmsprop_bnb", "rmsprop_bnb_32bit"), "rmsprop"),
    **dict.fromkeys(("paged_adamw_32bit", "pagedadamw"), "paged_adamw"),
    "pagedadamw8bit": "paged_adamw_8bit",
    **dict.fromkeys(("nesterov", "sgd_momentum", "momentum_sgd"), "momentum"),
    "fused_lamb": "lamb",
}
"""Names that trainers use → the optimizer with the same states. A fused kernel has no states of its own."""

HINT_ON_WEIGHT_BITS = (
    "For a format that is not listed, send workload.weight_bits instead: the bits of its file over the parameters."
)
HINTS_ON_FORMATS = {"weight_precision": HINT_ON_WEIGHT_BITS, "kv_cache_precision": ""}
"""For each field that names a format: what to send instead of an unknown one."""

NAMES_OF_FORMATS = {
    "weight_precision": (*FORMATS, *GGUF_BITS, "awq"),
    "kv_cache_precision": (*FORMATS, "fp8_e4m3", "fp8_e5m2"),
}
"""For each field that names a format: the names that an error about an unknown one suggests."""

AS_SENT = (
    "trainable_parameters", "sequence_length", "mean_length", "flash_attention",
    "mixed_precision", "chunked_loss", "fused_optimizer", "offload_activations", "offload_optimizer",
    "offload_parameters", "encoders_in_training", "image_tokens", "denoising_steps", "guidance", "memory_confidence",
)  # fmt: skip
"""Fields of a workload that a job takes over unchanged."""


def _is_listed(software: str, catalog: Catalog) -> bool:
    """Returns whether rules say where software runs, as `GET /frameworks` lists it."""
    name, _ = split_requirement(software, "workload.software")
    return software_name(name, catalog.derive(software_names)) is not None


def job_of(work: WorkloadRequest, catalog: Catalog, layout: FixedLayoutRequest | None = None) -> Job | None:
    """Returns the job; None without a model, or if the task cannot be estimated. Raises `QuestionError`."""
    for field, hint in HINTS_ON_FORMATS.items():
        if (name := getattr(work, field)) is not None and name not in FORMATS and not (hint and gguf_bits(name)):
            raise unknown("number format", name, NAMES_OF_FORMATS[field], f"workload.{field}", hint)
    _check_classical(work, catalog)
    optimizer = _listed("optimizer", _optimizer_called(work.optimizer or "adamw"), OPTIMIZER_STATES)
    if work.model is None or work.task not in get_args(Task):
        return None
    # An engine decides the speed of serving, whatever framework it is written in.
    engine, named = software_called(work.software.engine), (work.software.framework, work.software.engine)
    libraries = [each.name for each in work.software.libraries if each.required]
    framework = software_called(work.software.framework).using(libraries)
    model = _in_named_format(_of_size(published_model(_model(work.model, catalog), catalog), work), work)
    like = model_like(model, catalog.reference.models.values()) if _lacks_dimensions(model, work) else None
    model = model if like is None else with_dimensions_of(like, model)
    model = scoring(model) if work.purpose in LOSSES_ON_SCORES else model
    serving = serving_of(work, model, catalog)
    unrecognised = tuple(name for name in named if name and software_called(name) is UNKNOWN)
    listed = tuple(name for name in unrecognised if _is_listed(name, catalog) and not similar_stacks(name))
    job = Job(
        task=work.task,  # type: ignore[arg-type]
        model=model,
        precisions=_precisions(work, model, catalog),
        software=engine if engine is not UNKNOWN else framework,
        amount=amount_of(work.amount, model),
        runs=work.concurrent_runs if serving is None else 1,
        method=METHODS[work.method or "full"],  # type: ignore[arg-type]
        optimizer=optimizer,
        purpose="finetune" if work.purpose in PREFERENCE_LOSSES else work.purpose,  # type: ignore[arg-type]
        has_reference=PREFERENCE_LOSSES.get(work.purpose or "", False),
        samples_together=2 if work.purpose in LOSSES_ON_PAIRS else 1,
        loss_logits=logits_with(split_requirement(name, "workload.software.libraries")[0] for name in libraries),
        global_batch=work.global_batch_size,
        micro_batch=work.batch_size if work.task == "training" else None,
        layout=fixed_layout(layout),
        kv_precision=work.kv_cache_precision,
        input_length=work.input_length if serving is None else serving.prompt.mean,
        output_length=serving.answer.mean if serving is not None and model.generates else work.output_length,
        longest_output=work.longest_output_length,
        concurrency=work.concurrency if work.concurrency is not None else work.batch_size,
        serving=serving,
        prompt_field=f"workload.{'serving.' if work.input_length is None and serving else ''}input_length",
        loading=loading_of(work, model),
        assumed_network_gbps=work.assume_network_gbps,
        dimensions_of=None if like is None else like.name,
        unrecognised_software=unrecognised,
        listed_software=listed,
        similar_stacks=tuple(near for name in unrecognised for near in similar_stacks(name)),
        **{name: getattr(work, name) for name in AS_SENT},
        **_weights(work),
    )
    _check_preferences(work, model)
    _check_pairs(work)
    _check_sample(work, job)
    check_job(job)
    return job if job.serving is not None else _with_hours_on(job, work, catalog)


def named_work_of(work: WorkloadRequest, catalog: Catalog) -> NamedWork | None:
    """Returns a workload that is known by its name alone; None if no measurement under that name counts."""
    if work.name is None or not catalog.measurements.under(work.name):
        return None
    precision = next(iter(resolved("precision", work.precision, catalog, "workload.")), None)
    named = NamedWork(work.name, work.task, precision, amount_of(work.amount), work.concurrent_runs)
    return _with_hours_on(named, work, catalog)


def _with_hours_on(job: JobOrName, work: WorkloadRequest, catalog: Catalog) -> JobOrName:
    """Returns the job with an amount of work; hours on a machine become the work that the machine does in them."""
    sent = None if work.amount is None else work.amount.hours_on
    if sent is None:
        return job
    machine = resolve_instance(sent.instance, catalog, "workload.amount.hours_on.instance")
    return replace(job, amount=amount_of_hours(job, work.name, machine, sent.hours, catalog))


def _lacks_dimensions(model: Model, work: WorkloadRequest) -> bool:
    """Returns whether the job trains a language model of which only the number of parameters is known.

    That number gives the FLOPs of a token. Memory and traffic of a training step also depend on sequences and layers.
    """
    return work.task == "training" and model.family == "llm" and model.transformer is None


def _precisions(work: WorkloadRequest, model: Model, catalog: Catalog) -> tuple[str, ...]:
    """Returns the named precisions, else the published one of the model; of these, the ones that the numerics allow,
    after the faster ones that may replace them.
    """
    hint = HINT_ON_WEIGHT_BITS if work.task == "inference" else ""
    named = tuple(_listed("precision", name, FORMATS, hint) for name in work.precision)
    faster = faster_formats(work, named, JOB_PRECISIONS[work.task], catalog)
    required = None
    if "numerics" in work.model_fields_set:
        required = precision_requirement_of(work, JOB_PRECISIONS[work.task], catalog, needs_peak=False)
    fixed = named or _as_published(work, model) if required is None else required.usable
    return (*faster, *fixed)


def _format_named(work: WorkloadRequest) -> str | None:
    """Returns the number format that the name of the model in the question has, if any."""
    return format_in_name(_name_alone(work.model) or "")


def _of_size(model: Model, work: WorkloadRequest) -> Model:
    """Returns the model for samples of the size that the workload states. Raises `QuestionError`."""
    if work.sample is None:
        return model
    size, _, _ = work.sample.partition(IN_STEPS)
    try:
        return of_size(model, size)
    except QuestionError as error:
        raise error.at("workload.sample") from None


def _in_named_format(model: Model, work: WorkloadRequest) -> Model:
    """Returns the model as published in the number format that its name in the question has, if any."""
    named = _format_named(work)
    return model if named is None or gguf_bits(named) else replace(model, published_precision=named)


def _weights(work: WorkloadRequest) -> dict[str, Any]:
    """Returns the format of the weights as sent, or else as the name of the model has it; of GGUF files the bits.

    Raises `QuestionError` for training on a GGUF file.
    """
    sent = {"weight_precision": work.weight_precision, "weight_bits": work.weight_bits}
    named = None if work.weight_bits else _format_named(work)
    bits = gguf_bits(work.weight_precision or named or "")
    if bits is None:
        # If the caller names no precision, the published one is used elsewhere, so the format in the name is not sent
        # on.
        by_name = work.weight_precision is None and work.task == "inference" and bool(work.precision)
        return sent | ({"weight_precision": named} if by_name else {})
    if work.task == "training":
        field = "model" if work.weight_precision is None else "weight_precision"
        raise QuestionError("Weights in a GGUF file do not train.", field=f"workload.{field}")
    return {"weight_precision": None, "weight_bits": work.weight_bits or bits, "mean_bits": True}


def _as_published(work: WorkloadRequest, model: Model) -> tuple[str, ...]:
    """Returns the published format of the weights, if the caller names no other for inference; empty if unknown."""
    unnamed = work.task == "inference" and work.weight_precision is None and work.weight_bits is None
    return (model.published_precision,) if unnamed and model.published_precision else ()


def loading_of(work: WorkloadRequest, model: Model | None) -> SampleLoading:
    """Returns how samples reach the GPUs. Tokens need no decoding."""
    transformer = None if model is None else model.transformer
    # A vision transformer has no vocabulary: its samples are images, which have to be decoded.
    reads_tokens = transformer is not None and transformer.vocabulary > 0
    host = work.host
    return SampleLoading(
        vcpus_per_gpu=host.vcpus_per_gpu,
        samples_per_second_per_vcpu=None if host.gpu_decoding else host.cpu_samples_per_second_per_vcpu,
        samples_per_second=host.samples_per_second,
        gpu_decoding=host.gpu_decoding or reads_tokens,
        sample_mb=work.sample_mb,
        from_local_disks=work.reads_from == "local",
        single_threaded=work.host.single_threaded,
    )


def amount_of(sent: AmountRequest | None, model: Model | None = None) -> Amount | None:
    """Returns the amount of work; None if none is sent, or hours on a machine. Raises `QuestionError`."""
    if sent is None:
        return None
    units = [name for name in UNITS_OF_WORK if getattr(sent, name) is not None]
    if len(units) > 1:
        raise QuestionError(
            f"The amount is given in {' and '.join(units)}; give it in one unit.", field=f"workload.amount.{units[1]}"
        )
    if sent.epochs is not None and not PER_EPOCH.intersection(units):
        raise QuestionError(
            f"Epochs need the amount of one epoch in {either(sorted(PER_EPOCH))}.", field="workload.amount.epochs"
        )
    if not units or units == ["hours_on"]:
        return None
    epochs = sent.epochs or 1
    tokens = None if sent.tokens is None else sent.tokens * epochs
    if tokens is not None and model is not None and model.transformer is None and model.sample == "token":
        return Amount(samples=tokens, epochs=sent.epochs)
    one_epoch = sent.samples if sent.pairs is None else 2 * sent.pairs
    if sent.audio_hours is not None:
        one_epoch = sent.audio_hours * SECONDS_AN_HOUR / _audio_seconds(model)
    samples = None if one_epoch is None else one_epoch * epochs
    return Amount(samples=samples, tokens=tokens, steps=sent.steps, epochs=sent.epochs)


def _audio_seconds(model: Model | None) -> float:
    """Returns the seconds of audio per sample. Raises `QuestionError` for a model without audio."""
    if model is None or model.audio_seconds_per_sample is None:
        name = "A workload without a model" if model is None else model.name
        raise QuestionError(
            f"{name} is not measured in hours of audio: give workload.amount.samples.",
            field="workload.amount.audio_hours",
        )
    return model.audio_seconds_per_sample


def _check_classical(work: WorkloadRequest, catalog: Catalog) -> None:
    """Raises `QuestionError` for a library of classical machine learning as a model or in a task of neural networks."""
    of_framework = "workload.software.framework"
    framework, _ = split_requirement(work.software.framework or "", of_framework)
    named = {"workload.model": work.model if isinstance(work.model, str) else ""}
    if work.task in get_args(Task):
        named[of_framework] = framework
    libraries = catalog.derive(classical_libraries)
    for field, name in named.items():
        if name and software_name(name, libraries) is not None:
            raise QuestionError(
                f"{name} is a library of classical machine learning, and no model of it has a known cost: send task "
                "classical without a model, and a name, so that measurements under that name give the rates.",
                field=field,
            )


def _check_preferences(work: WorkloadRequest, model: Model) -> None:
    """Raises `QuestionError` for a loss on preferred answers with a model that gives no answers to prefer."""
    gives_answers = model.has_tokens or model.steps_per_sample is not None
    if work.task == "training" and work.purpose in PREFERENCE_LOSSES and not gives_answers:
        raise QuestionError(
            f"{str(work.purpose).upper()} trains on answers that people prefer, and {model.name} gives none: leave "
            "purpose out, or send finetune.",
            field="workload.purpose",
            near=("finetune",),
        )


def _check_pairs(work: WorkloadRequest) -> None:
    """Raises `QuestionError` for an amount in samples if a sample could mean a pair or one sequence of it."""
    if work.purpose in LOSSES_ON_PAIRS and work.amount and work.amount.samples is not None:
        raise QuestionError(
            f"{str(work.purpose).upper()} trains on pairs of sequences: give workload.amount.pairs.",
            field="workload.amount.samples",
        )


def _check_sample(work: WorkloadRequest, job: Job) -> None:
    """Raises `QuestionError` for denoising steps and encoders that the model does not have, and for a sample unlike the
    job's.
    """
    is_denoised = job.model.steps_per_sample is not None or job.model.family == "diffusion"
    for name in ("denoising_steps", "guidance"):
        if getattr(work, name) is not None and not is_denoised:
            raise QuestionError(f"{job.model.name} has no denoising steps: leave {name} out.", field=f"workload.{name}")
    # The other networks of a language model are its encoder of images, which `image_tokens` is about.
    if work.encoders_in_training and (job.model.transformer or not job.model.other_parameters):
        raise QuestionError(
            f"{job.model.name} is not known to have encoders besides the network that trains: leave "
            "encoders_in_training out.",
            field="workload.encoders_in_training",
        )
    known = (None, job.sample_name, *((job.model.sample,) if job.has_fixed_sample else ()))
    if work.sample not in known:
        is_one = f"A sample of this workload is: {job.sample_name}."
        if job.model.sample == UNNAMED_SAMPLE:
            is_one = f"A sample of {job.model.name} is what its forward_flops_per_sample count."
        if work.sample is not None and work.sample.partition(IN_STEPS)[0] == job.model.sample:
            raise QuestionError(f"{is_one} Send other steps as denoising_steps.", field="workload.sample")
        other = ", or send another size in this form" if takes_sizes(job.model) else ""
        raise QuestionError(f"{is_one} Leave workload.sample out{other}.", field="workload.sample")


def _dimensions(sent: ModelDimensionsRequest) -> dict[str, Any]:
    return {name: value for name in DIMENSIONS if (value := getattr(sent, name, None)) is not None}


def _name_alone(sent: str | ModelDimensionsRequest | None) -> str | None:
    """Returns the name of a model of the catalog; None for a description. An object may have nothing but a name."""
    if sent is None or isinstance(sent, str):
        return sent
    is_described = sent.huggingface_config is not None or sent.parameters is not None or bool(_dimensions(sent))
    return None if is_described else sent.name


def _model(sent: str | ModelDimensionsRequest, catalog: Catalog) -> Model:
    """Returns the model of the catalog, or the one that is described."""
    if isinstance(sent, str):
        return resolve_model(sent, catalog, "workload.model")
    dimensions = _dimensions(sent)
    if (named := _name_alone(sent)) is not None:
        return resolve_model(named, catalog, "workload.model.name")
    try:
        return _described(sent, dimensions, catalog)
    except QuestionError as error:
        raise error.inside("workload.model") from None


def _described(sent: ModelDimensionsRequest, dimensions: dict[str, Any], catalog: Catalog) -> Model:
    known = catalog.reference.models.values()
    if sent.huggingface_config is not None:
        described_twice = sent.model_dump(exclude={"name", "huggingface_config"}, exclude_defaults=True)
        if others := sorted(described_twice):
            raise QuestionError(
                f"huggingface_config describes the whole model: leave {', '.join(others)} out.", field=others[0]
            )
        model = recognised(read_config(sent.huggingface_config, sent.name or "custom"), known)
        return replace(model, published_precision=published_precision(sent.huggingface_config))
    return described(
        known,
        name=sent.name,
        family=None if sent.family is None else resolve("family", [sent.family], FAMILIES, "family")[0],
        parameters=sent.parameters,
        active_parameters=sent.active_parameters,
        forward_flops_per_sample=sent.forward_flops_per_sample,
        activation_values_per_sample=sent.activation_values_per_sample,
        dimensions=dimensions,
    )


def _optimizer_called(name: str) -> str:
    return OTHER_OPTIMIZERS.get(name.lower().replace("-", "_"), name)


def _listed(field: str, name: str, names: Collection[str], hint: str = "") -> str:
    folded = name.lower()
    for spelling in (folded, folded.replace("-", "_")):  # optimizers are written with both
        if spelling in names:
            return spelling
    raise unknown(field, name, names, f"workload.{field}", hint)
