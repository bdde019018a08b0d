"""The question of POST /recommend: what is sent, and the same in the catalog's own words."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, Tag

from service.api.fields import LARGEST, Amount, AsOf, AtLeastOne, Count, Name, Names, Positive, Sent, standing, whole
from service.api.filters import Filters, PrecisionSupport, Task, constraints_of, resolved
from service.domain.catalog import Catalog
from service.domain.constraints import Constraints
from service.domain.errors import QuestionError
from service.domain.memory import OPTIMIZER_STATES
from service.domain.names import resolve_gpus, resolve_instance, unknown
from service.domain.objective import NAMED, NEEDS_PRICE, NEEDS_SPEED, TERMS, Objective
from service.domain.recommend import Question, usual_precisions

Words = Annotated[str, Field(max_length=200)]


Length = Annotated[int, Field(ge=0, le=100_000_000), BeforeValidator(whole)]
AtLeastOneOfMany = Annotated[int, Field(ge=1, le=100_000_000), BeforeValidator(whole)]

N = TypeVar("N")
D = TypeVar("D")
Named = Annotated[
    Annotated[N, Tag("name")] | Annotated[D, Tag("described")],
    Discriminator(lambda value: "described" if isinstance(value, dict | BaseModel) else "name"),
]
"""By name or described, told apart beforehand, so that an error speaks of the one that was meant."""


class Software(Sent):
    """What the code is written for."""

    framework: Words | None = None
    engine: Words | None = None
    cuda: Words | None = None
    platforms: Names = ()
    libraries: Annotated[tuple[dict[str, Words | bool], ...], Field(max_length=50), BeforeValidator(standing)] = ()
    custom_cuda_kernels: bool = False


class Host(Sent):
    """What the input pipeline needs of the host."""

    vcpus_per_gpu: Amount | None = None
    memory_gib: Amount | None = None
    cpu_samples_per_second_per_vcpu: Amount | None = None
    gpu_decoding: bool = False


class Checkpoint(Sent):
    """How the work saves and resumes."""

    interval_minutes: Positive | None = None
    save_seconds: Amount | None = None
    restart_seconds: Amount | None = None


class HoursOn(Sent):
    """Work as the hours it takes on a machine."""

    instance: Name
    hours: Positive


class Quantity(Sent):
    """How much work there is."""

    tokens: Positive | None = None
    samples: Positive | None = None
    epochs: Positive | None = None
    steps: Positive | None = None
    hours_on: HoursOn | None = None


class Numerics(Sent):
    """What the numbers of the work bear."""

    fp16_overflows: bool = False
    min_bits: Annotated[int, Field(ge=1, le=64), BeforeValidator(whole)] | None = None


DEEPEST = 16


def plain(value: Any, depth: int = 0) -> Any:
    """The value, when it can be sent back as it came. Raises `ValueError`."""
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        return {plain(key): plain(held, depth + 1) for key, held in value.items()}
    if isinstance(value, list):
        return [plain(held, depth + 1) for held in value]
    if isinstance(value, str) and not value.isprintable() and any("\ud800" <= each <= "\udfff" for each in value):
        raise ValueError("half of a surrogate pair is no text")
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValueError(f"a number beyond {LARGEST:g}")
    return value


HuggingfaceConfig = Annotated[dict[str, Any], Field(max_length=300), AfterValidator(plain)]


class ModelDimensions(Sent):
    """A model by its size: a transformer's dimensions, a Hugging Face config, or parameters and forward FLOPs."""

    name: Name | None = None
    family: Annotated[Name | None, Field(description="Such as `llm`, `moe`, `encoder`, `cnn` or `vit`.")] = None
    parameters: Positive | None = None
    active_parameters: Positive | None = None
    forward_flops_per_sample: Annotated[Positive | None, Field(description="2 x multiply-accumulates.")] = None
    layers: Count | None = None
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_size: Count | None = None
    ffn: Count | None = None
    gated: bool | None = None
    vocabulary: Count | None = None
    tied: bool | None = None
    experts: Count | None = None
    experts_per_token: Count | None = None
    shared_experts: Count | None = None
    expert_ffn: Count | None = None
    dense_layers: Count | None = None
    mla_kv_rank: Count | None = None
    mla_rope_size: Count | None = None
    mla_query_rank: Count | None = None
    mla_value_size: Count | None = None
    sliding_window: Count | None = None
    global_layers: Count | None = None
    context_tokens: Annotated[int | None, Field(ge=0, le=1_000_000_000), BeforeValidator(whole)] = None
    decoder: bool | None = None
    huggingface_config: HuggingfaceConfig | None = None


class WorkloadAsked(Sent):
    """What shall run."""

    task: Task
    name: Name | None = None
    model: Named[Name, ModelDimensions] | None = None
    method: Literal["full", "lora", "qlora", "adapters"] | None = None
    purpose: Annotated[
        Literal["pretrain", "finetune"] | None, Field(description="Long packed sequences, or short examples.")
    ] = None
    precision: Annotated[
        Names, Field(description="In order of preference; left out: the best usual one of each GPU.")
    ] = ()
    precision_support: PrecisionSupport = "native"
    weight_precision: Annotated[
        Name | None, Field(description="How weights are kept where that differs, such as `int4`, `nf4` or `fp8`.")
    ] = None
    weight_bits: Annotated[
        float | None, Field(gt=0, le=64, description="Bits a stored weight takes, its scales included.")
    ] = None
    kv_cache_precision: Name | None = None
    optimizer: Annotated[Name | None, Field(description=f"One of {', '.join(OPTIMIZER_STATES)}.")] = None
    trainable_parameters: Positive | None = None
    mixed_precision: Annotated[
        bool | None, Field(description="Whether 16-bit training keeps an fp32 copy of the weights.")
    ] = None
    flash_attention: bool | None = None
    chunked_loss: Annotated[bool, Field(description="The loss is computed in chunks, so logits are never whole.")] = (
        False
    )
    fused_optimizer: Annotated[bool, Field(description="The optimizer steps inside the backward pass.")] = False
    offload_activations: bool = False
    sequence_length: Annotated[Length | None, Field(description="Tokens of a training sample.")] = None
    mean_length: Annotated[
        Positive | None, Field(description="Real tokens of a sample in the mean, where samples are padded or packed.")
    ] = None
    global_batch_size: Annotated[AtLeastOneOfMany | None, Field(description="Samples per optimizer step.")] = None
    batch_size: Annotated[
        AtLeastOneOfMany | None, Field(description="Training: samples per GPU and pass. Inference: samples at once.")
    ] = None
    concurrency: Annotated[
        AtLeastOneOfMany | None, Field(description="Requests in flight; left out: the most that fits.")
    ] = None
    input_length: Annotated[Length | None, Field(description="Tokens of a prompt, or of a sample.")] = None
    output_length: Annotated[Length | None, Field(description="Tokens of an answer.")] = None
    amount: Quantity | None = None
    software: Software = Software()
    host: Host = Host()
    numerics: Numerics = Numerics()
    concurrent_runs: AtLeastOne = 1
    sample_mb: Amount | None = None
    reads_from: Literal["network", "local"] | None = None
    fault_tolerant: bool = False
    checkpoint: Checkpoint = Checkpoint()


class ConstraintsAsked(Filters, Sent):
    """What the answer must satisfy: every filter of `GET /instances`, and limits on the whole job."""

    exclude: Annotated[Names, Field(description="Providers, families, instance types or GPUs not to answer with.")] = ()
    budget_usd: Positive | None = None
    deadline_hours: Positive | None = None
    min_nodes: AtLeastOne = 1
    max_nodes: AtLeastOne = 1
    max_instances: AtLeastOne = 1
    same_placement: bool = True
    allow_preview: bool = False


class Weights(Sent):
    """An objective of one's own: how much each term counts."""

    usd: Amount = 0
    hours: Amount = 0
    samples_per_second: Amount = 0
    samples_per_usd: Amount = 0
    joules: Amount = 0
    risk: Amount = 0


NamedObjective = Literal["cheapest", "fastest", "best_value", "most_efficient"]


class RecommendAsked(Sent):
    """A question: which machine should run this?"""

    workload: WorkloadAsked
    constraints: ConstraintsAsked = ConstraintsAsked()
    objective: Named[NamedObjective, Weights] = "cheapest"
    current_instance: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100), BeforeValidator(whole)] = 5
    per: Annotated[Literal["type", "offer"], Field(description="One choice per instance type, or every offer.")] = (
        "type"
    )
    as_of: AsOf = None


def in_full(asked: RecommendAsked, catalog: Catalog) -> RecommendAsked:
    """The question with all that the caller left open and the answer depends on."""
    limits, filled = asked.constraints, dict[str, tuple[str, ...]]()
    if not limits.market:
        filled["market"] = ("on_demand", "spot") if asked.workload.fault_tolerant else ("on_demand",)
    if not limits.lifecycle:
        filled["lifecycle"] = ("available", "closed_to_new", *(("preview",) if limits.allow_preview else ()))
    return asked.model_copy(update={"constraints": limits.model_copy(update=filled), "as_of": catalog.day})


def to_question(asked: RecommendAsked, catalog: Catalog) -> Question:
    """A question in full, in the catalog's own words. Raises `QuestionError` naming the field."""
    work = asked.workload
    objective = Objective(NAMED[asked.objective]) if isinstance(asked.objective, str) else weighted(asked.objective)
    precisions = resolved("precision", work.precision, catalog, "workload.")
    for field in ("weight_precision", "kv_cache_precision"):
        if (name := getattr(work, field)) is not None:
            resolved("precision", [name], catalog, field=f"workload.{field}")
    if work.optimizer is not None and work.optimizer.lower().replace("-", "_") not in OPTIMIZER_STATES:
        raise unknown("optimizer", work.optimizer, OPTIMIZER_STATES, "workload.optimizer")
    if work.amount and work.amount.hours_on:
        resolve_instance(work.amount.hours_on.instance, catalog, "workload.amount.hours_on.instance")
    current = asked.current_instance
    return Question(
        task=work.task,
        precisions=precisions,
        constraints=constraints(asked, objective, precisions, catalog),
        objective=objective,
        current_instance=None if current is None else resolve_instance(current, catalog, "current_instance"),
        limit=asked.limit,
        per_offer=asked.per == "offer",
    )


def weighted(weights: Weights) -> Objective:
    named = {term: getattr(weights, term) for term in TERMS}
    if not any(named.values()):
        raise QuestionError("An objective of weights needs at least one above 0.", field="objective")
    return Objective(named)


def constraints(
    asked: RecommendAsked, objective: Objective, precisions: tuple[str, ...], catalog: Catalog
) -> Constraints:
    limits, work = asked.constraints, asked.workload
    if limits.min_nodes > limits.max_nodes:
        raise QuestionError(
            f"min_nodes ({limits.min_nodes}) is above max_nodes ({limits.max_nodes}).", field="constraints.min_nodes"
        )
    needed = precisions or usual_precisions(work.task, catalog)
    if (limits.min_tflops is not None or limits.max_tflops is not None) and not needed:
        raise QuestionError("min_tflops and max_tflops need workload.precision.", field="workload.precision")
    return constraints_of(
        limits,
        catalog,
        prefix="constraints.",
        precision_any=needed,
        precision_support=work.precision_support,
        task=work.task if work.task in ("training", "inference") else None,
        exclude=excluded(limits.exclude, catalog),
        needs_price=objective.needs(NEEDS_PRICE),
        needs_peak=objective.needs(NEEDS_SPEED),
    )


def excluded(names: tuple[str, ...], catalog: Catalog) -> tuple[str, ...]:
    """Each name as the catalog's own: a provider, a family, an instance type, or what a GPU's name means."""
    if not names:
        return ()
    words = catalog.columns.words
    simple = {*catalog.reference.providers, *words["family"].words}
    found: list[str] = []
    for name in names:
        if name in simple:
            found.append(name)
            continue
        try:
            found.append(resolve_instance(name, catalog, "constraints.exclude"))
        except QuestionError:
            try:
                found.extend(resolve_gpus([name], catalog, "constraints.exclude"))
            except QuestionError:
                known = (*simple, *words["instance"].words, *words["gpu"].words)
                raise unknown("provider, family, instance type or GPU", name, known, "constraints.exclude") from None
    return tuple(dict.fromkeys(found))
