"""The request of POST /recommend, and its translation into a question of the domain."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, create_model

from service.api.catalog.filters import LIFECYCLE, MARKET, InstanceFilters, constraints_of, resolved
from service.api.estimate.cost_request import BillingRequest, run_of, service_of
from service.api.http.fields import Amount, AsOf, AtLeastOne, BodyModel, KnownAt, Name, Named, Names, Positive, whole
from service.api.workload.checkpoints import checkpoints_in, is_not_fault_tolerant
from service.api.workload.job import job_of, loading_of, named_work_of
from service.api.workload.layout import FixedLayoutRequest
from service.api.workload.requirements import (
    faster_formats,
    platform_named_by,
    precision_requirement_of,
    refused_precisions,
    requirements_of,
    unknown_software,
)
from service.api.workload.serving import NEEDED_BY
from service.api.workload.workload import WorkloadRequest
from service.domain.bill.payment_options import markets_of_service, markets_rented
from service.domain.bill.run import Run
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import IN_USE
from service.domain.catalog.names import (
    NO_LETTER_OR_DIGIT,
    meanings_of,
    provider_names,
    resolve_instance,
    resolve_instances,
    resolve_machine,
    unknown,
)
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.errors import QuestionError
from service.domain.evidence.named import NamedWork
from service.domain.jobs.job import JOB_PRECISIONS, Job, tokens_per_sample
from service.domain.jobs.kind_of_work import kind_of, library_of
from service.domain.jobs.serving import MOST_INSTANCES
from service.domain.recommend.answer import Limits, Question, WorkContext
from service.domain.recommend.objective import CRITERIA, OBJECTIVES, Criterion, Objective
from service.domain.recommend.peaks import usual_precisions
from service.domain.selection.constraints import Constraints
from service.domain.selection.requirements import PrecisionRequirement, Requirements, leaves_cpus_out
from service.domain.units import HOURS_A_DAY

HARDWARE_NAMES = frozenset({
    "instance", "family", "letters", "series", "gpu", "gpu_vendor", "gpu_kind", "architecture", "platform",
})  # fmt: skip
"""Constraints that name hardware, and thereby the platform of the code."""

TASKS_OF_RULES = ("training", "inference", "development", "graphics")
"""Tasks that software rules are about."""


class ConstraintsRequest(InstanceFilters, BodyModel):
    """Constraints on the answer: every filter of `GET /instances`, and limits on the whole job."""

    market: Annotated[
        Names,
        Field(
            description=f"{MARKET} Default: `on_demand` and `commitments_held`, and `spot` if the workload is "
            "`fault_tolerant`; with a managed service, its markets."
        ),
    ] = ()
    lifecycle: Annotated[
        Names,
        Field(description=f"{LIFECYCLE} Default: `available`, `closed_to_new`, and `preview` with `allow_preview`."),
    ] = ()
    exclude: Names = ()
    """Providers, families, instance types or GPUs to leave out."""
    budget_usd: Positive | None = None
    """Most US dollars of a job with an amount of work, or of a month (730 hours) of a load. A cost that is unknown in
    part keeps no limit. Default: no limit."""
    max_usd_per_million_tokens: Positive | None = None
    """Most US dollars of a million tokens of answers, which pay for their prompts too; of tokens trained on, or read
    by a model that writes none. Default: no limit."""
    deadline_hours: Positive | None = None
    """Most hours until the whole job is done; needs an amount of work. Default: no limit."""
    min_nodes: AtLeastOne = 1
    """Fewest machines that run one job together."""
    max_nodes: AtLeastOne | None = None
    """Most machines that run one job together. Default: `min_nodes`."""
    max_instances: AtLeastOne | None = None
    """Most instances. Default: as many as a load needs, up to 10,000, else `workload.concurrent_runs`."""
    layout: FixedLayoutRequest | None = None
    """The parts of the layout that every choice must have, such as `{"tensor": 4}`. Default: all parts are free."""
    same_placement: bool = True
    """Whether the nodes of a job must be close together, in a placement group."""
    confidence: Literal["likely", "safe"] = "likely"
    """Whether the likely estimate must keep deadline, budget and the limits of a load, or (`safe`) the pessimistic end
    of the band. The figures of a load are then those of engines as slow as that."""
    allow_preview: bool = False
    """Whether instance types in preview are admitted."""
    allow_marketplace_clusters: bool = False
    """Whether machines of a marketplace, which belong to different owners, may form a cluster."""

    @property
    def nodes(self) -> tuple[int, int]:
        """Fewest and most machines that run one job together."""
        return self.min_nodes, self.min_nodes if self.max_nodes is None else self.max_nodes


def _weight_fields() -> dict[str, Any]:
    """Returns the fields of `ObjectiveWeightsRequest`, as `create_model` takes them."""
    return {
        name: (Annotated[Amount, Field(description=f"{each.description}; {_better(each)} is better.")], 0)
        for name, each in CRITERIA.items()
        if each.description
    }


def _better(criterion: Criterion) -> str:
    return "more" if criterion.more_is_better else "less"


if TYPE_CHECKING:  # mypy cannot know names that are made from a table
    NamedObjective = str
    ObjectiveWeightsRequest = BodyModel
else:
    NamedObjective = Literal[*OBJECTIVES]
    ObjectiveWeightsRequest = create_model(
        "ObjectiveWeightsRequest",
        __base__=BodyModel,
        __module__=__name__,
        __doc__="Weights of the criteria of an objective. Only their ratios matter; 0 leaves a criterion out.",
        **_weight_fields(),
    )


class HostPerGpuRequest(BodyModel):
    """The host that comes with each GPU, for machines whose host the catalog does not know."""

    vcpus: Annotated[Positive | None, Field(description="vCPUs for each GPU. Null: unknown.")] = None
    memory_gib: Annotated[Positive | None, Field(description="Host memory in GiB for each GPU. Null: unknown.")] = None


class RecommendRequest(BillingRequest):
    """The question which machine should run a workload.

    Set-up, idle time and data are billed only for a job with an amount of work.
    """

    workload: WorkloadRequest
    constraints: ConstraintsRequest = ConstraintsRequest()
    objective: Named[NamedObjective, ObjectiveWeightsRequest] = "cheapest"
    """A named objective, or weights of criteria such as `{"usd": 1, "hours": 1}`."""
    previous_objective: Named[NamedObjective, ObjectiveWeightsRequest] | None = None
    """Another objective: a note compares its first choice with that of `objective`. Default: none."""
    current_instance: Name | None = None
    """The instance type in use now, as `name` or `provider/name`: choices are compared with it. Default: none."""
    host_per_gpu: HostPerGpuRequest | None = None
    """The host that comes with each GPU, for machines whose host is unknown. Default: it stays unknown."""
    explain: Names = ()
    """Instance types to explain: the answer lists every constraint that rejects them."""
    limit: Annotated[int, Field(ge=1, le=100), BeforeValidator(whole)] = 5
    """Most choices in the answer."""
    per: Literal["type", "offer"] = "type"
    """One choice for each instance type, or for each offer."""
    diversify: bool = False
    """Whether choices should differ in family, region and market, so that not all fail at once."""
    as_of: AsOf = None
    known_at: KnownAt = None


def _markets(request: RecommendRequest, run: Run, service: str | None, catalog: Catalog) -> tuple[str, ...]:
    """Returns the markets that take part: those requested, without spot if it is left out; else the usual ones."""
    rented = markets_of_service(catalog, service)
    named = _markets_asked(request, catalog)
    if _leaves_spot_out(request, catalog):
        named = tuple(market for market in named if market != "spot")
    asked = markets_rented(service, rented, named, "constraints.market")
    # Reserved offers commit to a term, so they are admitted only if the caller names or holds them.
    usual = ("on_demand", "spot") if request.workload.fault_tolerant else ("on_demand",)
    if asked or not rented:
        return asked or (*usual, *run.commitments_held)
    return tuple(market for market in usual if market in rented) or rented


def _markets_asked(request: RecommendRequest, catalog: Catalog) -> tuple[str, ...]:
    return resolved("market", request.constraints.market, catalog, "constraints.")


def _leaves_spot_out(request: RecommendRequest, catalog: Catalog) -> bool:
    """Returns whether spot is left out: other markets are allowed too, and the workload is not fault-tolerant."""
    return set(_markets_asked(request, catalog)) > {"spot"} and is_not_fault_tolerant(request.workload)


def in_full(request: RecommendRequest, question: Question, catalog: Catalog) -> RecommendRequest:
    """Returns the request with every default and the meaning of a sample filled in."""
    job, asked = question.work.job, question.constraints
    meant: dict[str, Any] = {"max_nodes": request.constraints.nodes[1], "max_instances": _instances(request)}
    meant |= {"market": asked.market, "lifecycle": asked.words["lifecycle"]}
    constraints = request.constraints.model_copy(update=meant)
    load, sample = request.workload.serving, job.sample_name if isinstance(job, Job) else None
    if load is not None and isinstance(job, Job) and job.serving is not None:
        in_use = [name for name, needed in NEEDED_BY.items() if getattr(load, needed) and hasattr(job.serving, name)]
        usual = ("max_seconds_per_output_token", *in_use)
        load = load.model_copy(update={name: getattr(job.serving, name) for name in usual})
    workload = request.workload
    if (workload.sample, workload.serving) != (sample, load):
        workload = workload.model_copy(update={"sample": sample, "serving": load})
    return request.model_copy(update={"workload": workload, "constraints": constraints, "as_of": catalog.day})


def _instances(request: RecommendRequest) -> int:
    """Returns how many instances are allowed: by default as many as a load needs, or as many as there are runs."""
    asked, work = request.constraints.max_instances, request.workload
    if asked is not None:
        return asked
    return work.concurrent_runs if work.serving is None else MOST_INSTANCES


def _only_clusters(request: RecommendRequest) -> bool:
    """Returns whether every choice consists of machines that work together."""
    load = request.workload.serving
    return request.constraints.min_nodes > 1 or (load is not None and load.disaggregated)


def hosted(request: RecommendRequest, catalog: Catalog) -> Catalog:
    """Returns the catalog with the hosts that the request describes."""
    host = request.host_per_gpu
    return catalog if host is None else catalog.with_hosts(host.vcpus, host.memory_gib)


def to_question(request: RecommendRequest, catalog: Catalog) -> Question:
    """Returns the request as a question of the domain. Raises `QuestionError` naming the field."""
    work, limits, given = request.workload, request.constraints, request.constraints.given()
    objective, previous = _objective(request.objective, "objective"), request.previous_objective
    job, run = _job(request, catalog), run_of(request, catalog)
    # If nothing was measured under the name, hardware and price rank.
    named = job or named_work_of(work, catalog)
    precisions = _precisions(
        work, catalog, has_job=job is not None, needs_peak=objective.needs("speed") and named is None
    )
    if work.amount and work.amount.hours_on:
        resolve_instance(work.amount.hours_on.instance, catalog, "workload.amount.hours_on.instance")
    current = request.current_instance
    # If the question names hardware, it needs no other hint at the platform.
    names_hardware = not HARDWARE_NAMES.isdisjoint(given)
    platform = None if names_hardware else platform_named_by(work, catalog, has_job=job is not None)
    library = library_of(job, work.task, work.method, work.software.framework)
    needs = requirements_of(
        work, precisions.required, catalog,
        has_job=job is not None, platform_named_by=platform, library=library, kind=kind_of(job),
    )  # fmt: skip
    asked_limits = _limits(request, named)
    constraints = _constraints(
        request, given, objective, precisions.any_of, run, needs, catalog,
        in_dollars=asked_limits.in_dollars, has_job=named is not None,
    )  # fmt: skip
    _check_hours_per_day(job, constraints.market, run)
    context = WorkContext(
        task=work.task,
        job=named,
        framework=work.software.framework,
        needs=needs,
        loading=loading_of(work, None) if job is None else job.loading,
        samples=None if work.amount is None else work.amount.samples,
        concurrent_runs=work.concurrent_runs,
        fault_tolerant=bool(work.fault_tolerant),
        refused_precisions=refused_precisions(work, catalog),
        asked_precision=precisions.asked,
        current_instance=None if current is None else resolve_machine(current, catalog, "current_instance"),
        providers=constraints.words.get("provider", ()),
        part_of_gpu=constraints.part_of_gpu,
        commitments_held=run.commitments_held,
    )
    return Question(
        work=context,
        precisions=precisions.ranked,
        usual=precisions.usual,
        constraints=constraints,
        objective=objective,
        previous_objective=None if previous is None else _objective(previous, "previous_objective"),
        limit=request.limit,
        per_offer=request.per == "offer",
        name=work.name,
        nodes=limits.nodes,
        limits=asked_limits,
        checkpoints=checkpoints_in(request.checkpoint_of(work), work),
        run=run,
        diversify=request.diversify,
        given=_given_fields(request),
        spot_left_out=_leaves_spot_out(request, catalog),
        software_unknown=tuple(unknown_software(work, catalog).items()),
        explain=resolve_instances(request.explain, catalog, "explain"),
        subjects={f"workload.{field}": _subject(name) for field in SUBJECTS if (name := getattr(work, field))},
    )


SUBJECTS = ("dataset", "goal", "model_size")
"""Fields of a workload that rules of thumb are about."""


def _subject(name: str) -> str:
    """Returns a name in the spelling of rules of thumb: `ms_coco` for `MS COCO`."""
    return NO_LETTER_OR_DIGIT.sub("_", name.lower())


def _job(request: RecommendRequest, catalog: Catalog) -> Job | None:
    """Returns the job with the clusters and instances that the constraints admit; None without a model."""
    layout = request.constraints.layout
    try:
        job = job_of(request.workload, catalog, layout)
    except QuestionError as error:
        raise error.at(f"constraints.{error.field}" if error.field == "layout" else error.field) from None
    if job is None and layout is not None:
        raise QuestionError("A fixed layout needs a model: send workload.model.", field="constraints.layout")
    if job is None:
        return None
    # If every choice must be a cluster, a constraint rejects marketplaces, and the job need not.
    clusters = request.constraints.allow_marketplace_clusters or _only_clusters(request)
    safe = request.constraints.confidence == "safe"
    load = job.serving and replace(job.serving, max_instances=_instances(request), safe=safe)
    return replace(job, marketplace_clusters=clusters, serving=load)


def _check_hours_per_day(job: Job | None, markets: Sequence[str], run: Run) -> None:
    """Raises `QuestionError` for a load of some hours a day under a commitment, whose price an hour is not its cost."""
    committed = set(markets) - {"on_demand", "spot", *run.commitments_held}
    part_time = job is not None and job.serving is not None and job.serving.hours_per_day < HOURS_A_DAY
    if part_time and committed and "reserved" not in run.commitments_held:
        raise QuestionError(
            "A commitment is paid for in all hours, but this load runs in some of them: leave the market out, name "
            "the commitment in commitments_held, or ask POST /estimate for the cost of a month.",
            field="constraints.market",
        )


def _limits(request: RecommendRequest, job: Job | NamedWork | None) -> Limits:
    """Returns the limits that apply: those in dollars apply only to an amount of work or to a load."""
    limits, load = request.constraints, job.serving if isinstance(job, Job) else None
    has_total = load is not None or (job is not None and job.amount is not None)
    if limits.max_usd_per_million_tokens is not None and isinstance(job, Job):
        _check_tokens(job)
    return Limits(
        deadline_hours=limits.deadline_hours,
        budget_usd=limits.budget_usd if has_total else None,
        # The samples of a measured workload have no known tokens.
        max_usd_per_million_tokens=limits.max_usd_per_million_tokens if has_total and isinstance(job, Job) else None,
        safe=limits.confidence == "safe",
        load=load,
        max_instances=_instances(request),
    )


def _check_tokens(job: Job) -> None:
    """Raises `QuestionError` if the samples of a job have no known number of tokens."""
    if tokens_per_sample(job):
        return
    raise QuestionError(
        "max_usd_per_million_tokens needs workload.output_length or workload.input_length."
        if job.task == "inference" and job.model.transformer is not None
        else f"{job.model.name} has no tokens: to limit its cost, send budget_usd.",
        field="constraints.max_usd_per_million_tokens",
    )


class _Precisions(NamedTuple):
    """The precisions of a question that ranks by hardware; those of a job are part of the job."""

    ranked: tuple[str, ...]
    """The precisions whose peaks rank, in order of preference; empty if the fastest of `usual` does."""
    any_of: tuple[str, ...]
    """The precisions of which a GPU must support one in hardware."""
    usual: tuple[str, ...]
    """The precisions from which the fastest is chosen, if the caller leaves the choice open."""
    asked: str | None
    """The precision that the caller names, if faster formats may replace it."""
    required: PrecisionRequirement | None
    """The precisions that the numerics of the workload leave; None if they leave every one."""


def _precisions(work: WorkloadRequest, catalog: Catalog, *, has_job: bool, needs_peak: bool) -> _Precisions:
    named = () if has_job else resolved("precision", work.precision, catalog, "workload.")
    asked = next(iter(named), None) if work.precision_flexible else None
    required = None
    if "numerics" in work.model_fields_set:
        usual = JOB_PRECISIONS[work.task] if has_job else usual_precisions(work.task, catalog)
        required = precision_requirement_of(work, usual, catalog, needs_peak=needs_peak)
    replacing = faster_formats(work, named, USUAL_PRECISIONS, catalog)
    faster = (*named, *replacing) if replacing else ()
    if required is None:
        return _Precisions(() if faster else named, named, faster, asked, None)
    ranked = named if required.free else required.usable
    usual = faster or (required.tolerated if required.free else ())
    return _Precisions(() if faster else ranked, required.preferred, usual, asked, required)


def _given_fields(request: RecommendRequest) -> frozenset[str]:
    """Returns the paths of the fields that the caller set, down to those of the host, the load, the amount and the
    checkpoints.

    Null leaves a field out, except in a load, where it removes the limit that a time has by default.
    """
    work = request.workload
    parts = {
        "": request, "workload.": work, "workload.host.": work.host, "workload.amount.": work.amount,
        "constraints.": request.constraints, "workload.checkpoint.": work.checkpoint, "checkpoint.": request.checkpoint,
    }  # fmt: skip
    given = [
        path + name
        for path, part in parts.items()
        for name in (() if part is None else part.model_fields_set)
        if getattr(part, name) not in (None, ())
    ]
    load = () if work.serving is None else work.serving.model_fields_set
    return frozenset([*given, *(f"workload.serving.{name}" for name in load)])


def _objective(sent: str | ObjectiveWeightsRequest, field: str) -> Objective:
    if isinstance(sent, str):
        return OBJECTIVES[sent]
    named = sent.model_dump()
    if not any(named.values()):
        raise QuestionError("An objective needs at least one weight above 0.", field=field)
    return Objective(named)


def _constraints(
    request: RecommendRequest, given: Mapping[str, Any], objective: Objective, precisions: tuple[str, ...],
    run: Run, needs: Requirements, catalog: Catalog, *, in_dollars: bool, has_job: bool,
) -> Constraints:  # fmt: skip
    limits, work = request.constraints, request.workload
    fewest, most = limits.nodes
    if fewest > most:
        raise QuestionError(f"min_nodes ({fewest}) is above max_nodes ({most}).", field="constraints.min_nodes")
    # The estimate of a job decides which GPUs run it.
    needed = () if has_job else precisions or usual_precisions(work.task, catalog)
    of_job = resolved("precision", work.precision, catalog, "workload.") if has_job else ()
    if not (needed or of_job) and not given.keys().isdisjoint(("min_tflops", "max_tflops")):
        raise QuestionError("min_tflops and max_tflops need workload.precision.", field="workload.precision")
    service = service_of(request, work.task, catalog)
    asked = constraints_of(
        limits,
        catalog,
        prefix="constraints.",
        market=_markets(request, run, service, catalog),
        usual_lifecycle=(*IN_USE, *(("preview",) if limits.allow_preview else ())),
        precision_any=needed,
        precision_of_job=of_job,
        precision_support=work.precision_support,
        task=work.task if work.task in TASKS_OF_RULES else None,
        mainstream=needs.platform_named_by == frozenset(),
        library=needs.library,
        kind=needs.kind,
        of_a_job=has_job,
        platforms=needs.platforms,
        grows=work.growth is not None,
        in_clusters=_only_clusters(request) and not limits.allow_marketplace_clusters,
        exclude=_excluded(limits.exclude, catalog),
        needs_price=objective.needs("price") or in_dollars,
        needs_peak=objective.needs("speed") and not has_job,
        managed_service=service,
        by_region=work.amount is not None and run.has_data,
        spot_refused=is_not_fault_tolerant(work),
    )
    return asked._replace(with_gpu=leaves_cpus_out(work.task, asked, needs.stack, catalog))


def _excluded(names: Names, catalog: Catalog) -> Names:
    """Returns the names to leave out, each once. Raises `UnknownName` for one without a meaning."""
    for name in names:
        if not any(meanings_of(name, catalog).values()):
            words = catalog.columns.words
            known = (*provider_names(catalog), *words["family"].words, *words["instance"].words, *words["gpu"].words)
            raise unknown("provider, family, instance type or GPU", name, known, "constraints.exclude")
    return tuple(dict.fromkeys(names))
