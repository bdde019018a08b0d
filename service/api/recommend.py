"""POST /recommend: a workload and constraints in, ranked choices and counted rejections out."""

from datetime import date
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Body, Query, Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, Tag

from service.api.body import JsonRoute
from service.api.current import CatalogStamp, Live, catalog_on, stamp
from service.api.examples import QUESTIONS
from service.api.explain import Note, Statement, notes_on, reasons_for, rejection_text, warnings_for
from service.api.fields import LARGEST, Amount, Asked, AsOf, AtLeastOne, Count, Name, Names, Positive, Sent, Told, whole
from service.api.filters import Filters, PrecisionSupport, Task, constraints_of, resolved
from service.api.machines import Machine, PriceTold, machine_fields
from service.domain.catalog import Catalog
from service.domain.constraints import Constraints
from service.domain.errors import QuestionError
from service.domain.names import resolve_gpus, resolve_instance, unknown
from service.domain.objective import NAMED, NEEDS_PRICE, NEEDS_SPEED, TERMS, Objective
from service.domain.recommend import Answer, Choice, Question, Rejection, recommend, usual_precisions

router = APIRouter(tags=["decision"], route_class=JsonRoute)

Words = Annotated[str, Field(max_length=200)]


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
    platforms: Names = []
    libraries: Annotated[list[dict[str, Words | bool]], Field(max_length=50)] = []
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
    """A model by its size."""

    parameters: Positive | None = None
    active_parameters: Positive | None = None
    layers: Count | None = None
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    ffn: Count | None = None
    vocabulary: Count | None = None
    experts: Count | None = None
    experts_per_token: Count | None = None
    forward_flops_per_sample: Positive | None = None
    huggingface_config: HuggingfaceConfig | None = None


class WorkloadAsked(Sent):
    """What shall run."""

    task: Task
    name: Name | None = None
    model: Named[Name, ModelDimensions] | None = None
    method: Literal["full", "lora", "qlora", "adapters"] | None = None
    precision: Annotated[
        Names, Field(description="In order of preference; left out: the best usual one of each GPU.")
    ] = []
    precision_support: PrecisionSupport = "native"
    weight_precision: Name | None = None
    kv_cache_precision: Name | None = None
    optimizer: Name | None = None
    sequence_length: Count | None = None
    global_batch_size: Count | None = None
    batch_size: Count | None = None
    concurrency: Count | None = None
    input_length: Count | None = None
    output_length: Count | None = None
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

    exclude: Annotated[Names, Field(description="Providers, families, instance types or GPUs not to answer with.")] = []
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


class GpuChosen(Told):
    """The GPU of a choice."""

    id: str
    per_node: int


class EstimateTold(Told):
    """What the choice is ranked by. `basis: peak` is the vendor's peak rate, not a prediction of speed."""

    basis: Literal["peak"]
    precision: str | None
    peak_tflops: float | None = Field(
        description="Dense peak of the machine at the precision, in 10^12 operations per second."
    )
    peak_tflops_per_usd_hour: float | None
    peak_tflops_per_watt: float | None


class Compared(Told):
    """The choice beside the caller's current instance."""

    relative_usd_per_hour: float | None
    relative_peak: float | None


class ChoiceTold(Told):
    """A ranked offer."""

    rank: int
    provider: str
    instance: str
    region: str | None
    zone: str | None
    market: str
    nodes: int
    instances: int
    gpu: GpuChosen | None
    usd_per_hour: float | None
    price: PriceTold
    estimate: EstimateTold
    specs: Machine
    compared_to_current: Compared | None
    reasons: list[Statement]
    warnings: list[Statement]
    evidence: list[dict[str, str]]
    tied_with: list[int]
    pareto: bool = Field(description="No other candidate is both cheaper per hour and faster at peak.")


class BestOf(Told):
    """The best of what a relaxation lets in."""

    instance: str
    region: str | None
    market: str
    usd_per_hour: float | None


class Relaxation(Told):
    """The smallest change of one constraint that lets something in."""

    to: dict[str, Any] = Field(
        description="Constraints (or paths into the question) with their new values; null takes one away."
    )
    admits: int
    best: BestOf


class RejectionTold(Told):
    """How many instance types a constraint turned away."""

    code: str
    ground: str
    text: str
    count: int
    only_this: int = Field(description="Turned away by this constraint and no other.")
    relax: Relaxation | None


class Current(Told):
    """The caller's current instance, priced and rated like a choice."""

    instance: str
    usd_per_hour: float | None
    estimate: EstimateTold


class Counts(Told):
    """Every instance type of the catalog's day is either admitted or rejected."""

    considered: int
    admitted: int
    rejected: int


class RecommendTold(Told):
    """Ranked choices, and why the rest is not among them."""

    catalog: CatalogStamp
    question: RecommendAsked = Field(description="The question with every default filled in.")
    counts: Counts
    choices: list[ChoiceTold]
    rejections: list[RejectionTold]
    current: Current | None
    advice: list[Statement]
    notes: list[Note]


@router.post(
    "/recommend",
    summary="Recommend machines for a workload",
    response_model=RecommendTold,
)
async def post_recommend(
    asked: Annotated[RecommendAsked, Body(openapi_examples=QUESTIONS)], _query: Annotated[Asked, Query()], live: Live
) -> Response:
    """Rank offers for a workload, and count what kept every other instance type out.

    The ranking rests on hardware and price: dollars per hour and the dense peak rate at the precision (`basis: peak`).
    No match is an answer with its rejections, not an error.
    """
    catalog = catalog_on(live, asked.as_of)
    question = to_question(asked, catalog)
    told = answer_told(asked, question, recommend(question, catalog), catalog)
    return Response(told.model_dump_json().encode(), media_type="application/json")


# The request in the catalog's own words


def to_question(asked: RecommendAsked, catalog: Catalog) -> Question:
    work = asked.workload
    objective = Objective(NAMED[asked.objective]) if isinstance(asked.objective, str) else weighted(asked.objective)
    precisions = resolved("precision", work.precision, catalog, "workload.")
    for field in ("weight_precision", "kv_cache_precision"):
        if (name := getattr(work, field)) is not None:
            resolved("precision", [name], catalog, field=f"workload.{field}")
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
    filled = limits.model_copy(update=defaults(asked))
    return constraints_of(
        filled,
        catalog,
        prefix="constraints.",
        precision_any=needed,
        precision_support=work.precision_support,
        task=work.task if work.task in ("training", "inference") else None,
        exclude=excluded(limits.exclude, catalog),
        needs_price=objective.needs(NEEDS_PRICE),
        needs_peak=objective.needs(NEEDS_SPEED),
    )


def defaults(asked: RecommendAsked) -> dict[str, list[str]]:
    """What the caller left open and the answer depends on."""
    filled = {}
    if not asked.constraints.market:
        filled["market"] = ["on_demand", "spot"] if asked.workload.fault_tolerant else ["on_demand"]
    if not asked.constraints.lifecycle:
        filled["lifecycle"] = ["available", "closed_to_new", *(["preview"] if asked.constraints.allow_preview else [])]
    return filled


def excluded(names: list[str], catalog: Catalog) -> tuple[str, ...]:
    """Each name as the catalog's own: a provider, a family, an instance type, or what a GPU's name means."""
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


# The answer in the caller's words


def answer_told(asked: RecommendAsked, question: Question, answer: Answer, catalog: Catalog) -> RecommendTold:
    filled = asked.constraints.model_copy(update=defaults(asked))
    return RecommendTold(
        catalog=stamp(catalog),
        question=asked.model_copy(update={"constraints": filled, "as_of": catalog.day}),
        counts=Counts(
            considered=answer.considered, admitted=answer.admitted, rejected=answer.considered - answer.admitted
        ),
        choices=[choice_told(choice, asked, question, answer, catalog) for choice in answer.choices],
        rejections=[rejection_told(rejection) for rejection in answer.rejections],
        current=None if answer.current is None else current_told(answer.current),
        advice=[],
        notes=notes_on(asked, answer),
    )


def choice_told(
    choice: Choice, asked: RecommendAsked, question: Question, answer: Answer, catalog: Catalog
) -> ChoiceTold:
    kind, offer = choice.instance_type, choice.offer
    return ChoiceTold(
        rank=choice.rank,
        provider=kind.provider,
        instance=kind.name,
        region=offer.region,
        zone=offer.zone,
        market=offer.market,
        nodes=1,
        instances=1,
        gpu=None if kind.gpu is None else GpuChosen(id=kind.gpu.id, per_node=kind.gpu_count),
        usd_per_hour=offer.price.usd_per_hour,
        price=PriceTold.of(offer),
        estimate=estimate_told(choice),
        specs=machine(choice, catalog.day, catalog),
        compared_to_current=None if answer.current is None else compared(choice, answer.current),
        reasons=reasons_for(choice, question, answer),
        warnings=warnings_for(choice, asked, catalog),
        evidence=[],
        tied_with=list(choice.tied_with),
        pareto=choice.pareto,
    )


def machine(choice: Choice, day: date, catalog: Catalog) -> Machine:
    return catalog.fragments.recall(
        ("machine", choice.place), lambda: Machine(**machine_fields(choice.instance_type, day))
    )


def estimate_told(choice: Choice) -> EstimateTold:
    peak = choice.speed if choice.precision else None
    usd, watts = choice.offer.price.usd_per_hour, choice.instance_type.tdp_watts
    return EstimateTold(
        basis="peak",
        precision=choice.precision,
        peak_tflops=peak,
        peak_tflops_per_usd_hour=None if peak is None or usd is None else round(peak / usd, 4),
        peak_tflops_per_watt=None if peak is None or watts is None else round(peak / watts, 4),
    )


def compared(choice: Choice, current: Choice) -> Compared:
    usd, current_usd = choice.offer.price.usd_per_hour, current.offer.price.usd_per_hour
    return Compared(
        relative_usd_per_hour=None if usd is None or not current_usd else round(usd / current_usd, 4),
        relative_peak=None if choice.speed is None or not current.speed else round(choice.speed / current.speed, 4),
    )


def current_told(current: Choice) -> Current:
    return Current(
        instance=current.instance_type.id,
        usd_per_hour=current.offer.price.usd_per_hour,
        estimate=estimate_told(current),
    )


def rejection_told(rejection: Rejection) -> RejectionTold:
    relaxed = rejection.relaxation
    return RejectionTold(
        code=rejection.code,
        ground=rejection.ground,
        text=rejection_text(rejection),
        count=rejection.count,
        only_this=rejection.only_this,
        relax=None
        if relaxed is None
        else Relaxation(
            to=relaxed.to,
            admits=relaxed.admits,
            best=BestOf(
                instance=relaxed.best.instance_type.id,
                region=relaxed.best.offer.region,
                market=relaxed.best.offer.market,
                usd_per_hour=relaxed.best.offer.price.usd_per_hour,
            ),
        ),
    )
