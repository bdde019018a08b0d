"""POST /estimate: what a workload needs on a machine, what it yields, how long it takes and what that costs."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BeforeValidator, Field, TypeAdapter
from starlette.concurrency import run_in_threadpool

from service.api.batch import Refused, answered, items_of
from service.api.body import JsonRoute
from service.api.current import CatalogStamp, Live, catalog_on, stamp
from service.api.estimated import (
    BandTold,
    ChangeTold,
    EstimateTold,
    changes_told,
    estimate_told,
    evidence_on,
    maybe,
    warnings_on,
)
from service.api.examples import ESTIMATE_BATCH, ESTIMATES
from service.api.explain import Statement
from service.api.fields import Amount, Asked, AsOf, AtLeastOne, Name, Positive, Sent, whole
from service.api.filters import resolved
from service.api.job import job_of
from service.api.workload import Named, WorkloadAsked
from service.domain.appraisal import Appraisal, appraise
from service.domain.bands import Band
from service.domain.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.hardware import InstanceType
from service.domain.job import inference_on, training_on
from service.domain.layouts import FREE, FixedLayout
from service.domain.machine import Machine, machine_of, machine_of_instance
from service.domain.names import resolve_gpus, resolve_instance
from service.domain.nearest_change import nearest_changes
from service.domain.offer import MARKETS

router = APIRouter(tags=["decision"], route_class=JsonRoute)

Degree = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(whole)]


class MachineDescribed(Sent):
    """Hardware that nobody need rent out: one node of it."""

    gpu: Name
    gpu_count: AtLeastOne = 1
    interconnect: Annotated[
        Literal["none", "pcie", "nvlink", "nvswitch", "infinity_fabric", "ici", "neuronlink", "roce"] | None,
        Field(description="How the GPUs are linked; left out: as such cards usually are."),
    ] = None
    interconnect_gb_per_second: Annotated[Positive | None, Field(description="Per GPU, both directions added.")] = None
    vcpus: Positive | None = None
    memory_gib: Annotated[Positive | None, Field(description="Host memory.")] = None
    network_gbps: Annotated[Positive | None, Field(description="Of the node.")] = None
    usd_per_hour: Annotated[Amount | None, Field(description="Of the node.")] = None
    watts: Annotated[Positive | None, Field(description="Of the node; left out: the rated power of its GPUs.")] = None


class LayoutAsked(Sent):
    """How the job is cut; what is left out is chosen."""

    tensor: Degree | None = None
    pipeline: Degree | None = None
    data: Degree | None = None
    context: Degree | None = None
    expert: Degree | None = None
    zero_stage: Annotated[int | None, Field(ge=0, le=3), BeforeValidator(whole)] = None
    micro_batch: Degree | None = None
    accumulation: Degree | None = None
    activation_checkpointing: Literal["none", "selective", "full"] | None = None
    virtual_stages: Degree | None = None
    choose: Annotated[
        Literal["fastest", "usual", "usual_if_it_fits"],
        Field(
            description="How what is left out is chosen: the fastest that fits, what people choose, "
            "or what people choose where that fits."
        ),
    ] = "fastest"


class EstimateAsked(Sent):
    """A workload, or plain hours, on a machine."""

    workload: WorkloadAsked | None = None
    hours: Annotated[Positive | None, Field(description="Instead of a workload: how long the machine runs.")] = None
    machine: Annotated[
        Named[Name, MachineDescribed], Field(description="Such as `aws/p4d.24xlarge`, or one described.")
    ]
    nodes: AtLeastOne = 1
    region: Name | None = None
    market: Annotated[Name | None, Field(description="Left out: every market side by side.")] = None
    layout: LayoutAsked = LayoutAsked()
    as_of: AsOf = None


@dataclass(frozen=True, slots=True)
class MachineTold:
    """What was estimated for."""

    name: Annotated[str | None, Field(description="Null of a machine that was described.")]
    gpu: str
    gpus_per_node: int
    nodes: int
    interconnect: str
    link_gb_per_second: Annotated[float, Field(description="One direction, per GPU.")]
    network_gbps: float
    usable_gib_per_gpu: float


@dataclass(frozen=True, slots=True)
class CostTold:
    """What the job costs in one market."""

    market: str
    region: str | None
    usd_per_hour: Annotated[float | None, Field(description="Of all nodes; null when it is not known.")]
    unknown_because: str | None
    hours: BandTold | None
    usd: Annotated[BandTold | None, Field(description="Price times hours; null without a price or an amount of work.")]


@dataclass(frozen=True, slots=True)
class EstimateAnswer:
    """An estimate with its arithmetic."""

    catalog: CatalogStamp
    machine: MachineTold | None
    fits: bool | None
    estimate: EstimateTold | None
    cost: list[CostTold]
    warnings: list[Statement]
    evidence: Annotated[list[dict[str, str]], Field(description="The published runs nearest to the question.")]
    nearest_changes: Annotated[
        list[ChangeTold] | None,
        Field(description="What would make it fit, the nearest first; null in a batch, and where it fits."),
    ]


ANSWER = TypeAdapter(EstimateAnswer)


@router.post("/estimate", summary="Estimate a workload on a machine", response_model=EstimateAnswer)
async def post_estimate(
    asked: Annotated[EstimateAsked, Body(openapi_examples=ESTIMATES)], _query: Annotated[Asked, Query()], live: Live
) -> Response:
    """Memory per GPU in parts, speed with a band, the resource that binds, hours and dollars of the whole job.

    A workload that does not fit is an answer too: `fits: false`, with what is needed.
    """
    catalog = catalog_on(live, asked.as_of)
    answer = estimate(asked, catalog)
    if answer.fits is False:  # tells of dozens of layouts, each searched for: not beside other requests
        answer = replace(answer, nearest_changes=await run_in_threadpool(would_fit, asked, catalog))
    return Response(ANSWER.dump_json(answer), media_type="application/json")


class EstimateBatchAsked(Sent):
    """Many estimates at once."""

    items: items_of("POST /estimate")  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True)
class EstimateBatchAnswer:
    """In the order of the questions: each an answer, or a problem."""

    items: list[EstimateAnswer | Refused]


ASKED: TypeAdapter[EstimateAsked] = TypeAdapter(EstimateAsked)


@router.post("/estimate/batch", summary="Estimate many at once", response_model=EstimateBatchAnswer)
async def post_estimate_batch(
    asked: Annotated[EstimateBatchAsked, Body(openapi_examples=ESTIMATE_BATCH)],
    _query: Annotated[Asked, Query()],
    live: Live,
    request: Request,
) -> Response:
    """Up to 1,000 estimates, answered in order; a bad item has a `problem` and does not fail the others."""

    def answer(each: EstimateAsked) -> bytes:
        return ANSWER.dump_json(estimate(each, catalog_on(live, each.as_of)))

    return await answered(asked.items, ASKED, answer, request)


def estimate(asked: EstimateAsked, catalog: Catalog) -> EstimateAnswer:
    """Raises `QuestionError`."""
    if (asked.workload is None) == (asked.hours is None):
        raise QuestionError(
            "Tell either a workload or hours." if asked.hours else "Tell a workload, or how many hours.",
            field="hours" if asked.hours else "workload",
        )
    kind = instance_asked(asked.machine, catalog) if isinstance(asked.machine, str) else None
    machine = machine_asked(asked, kind, catalog)
    found = appraised_on(asked, machine, catalog) if asked.workload is not None else None
    hours = plain_hours(asked) if found is None else found.hours
    return EstimateAnswer(
        catalog=stamp(catalog),
        machine=None if machine is None else machine_told(machine, kind),
        fits=None if found is None else found.estimate.fits,
        estimate=None if found is None else estimate_told(found, watts_of(asked, machine)),
        cost=costs(asked, kind, hours, catalog),
        warnings=[] if found is None or machine is None else warnings_on(found, machine),
        evidence=[] if found is None or machine is None else evidence_on(found, machine, catalog),
        nearest_changes=None,
    )


def instance_asked(name: str, catalog: Catalog) -> InstanceType:
    return catalog.instance_types[catalog.place_of[resolve_instance(name, catalog, "machine")]]


def machine_asked(asked: EstimateAsked, kind: InstanceType | None, catalog: Catalog) -> Machine | None:
    """The nodes asked for; nothing of a type without a GPU."""
    if kind is not None:
        return machine_of_instance(kind, asked.nodes) if kind.gpu is not None and kind.gpu_count else None
    m = asked.machine
    assert isinstance(m, MachineDescribed)
    found = resolve_gpus([m.gpu], catalog, "machine.gpu")
    if len(found) > 1:
        raise QuestionError(
            f"'{m.gpu}' may be any of {', '.join(found)}: name one.", field="machine.gpu", near=found[:3]
        )
    return machine_of(
        catalog.reference.gpus[found[0]],
        m.gpu_count,
        asked.nodes,
        m.interconnect,
        m.interconnect_gb_per_second,
        m.network_gbps,
        m.vcpus,
        m.memory_gib,
    )


def appraised_on(asked: EstimateAsked, machine: Machine | None, catalog: Catalog) -> Appraisal:
    assert asked.workload is not None
    job = job_of(asked.workload, catalog)
    if job is None:
        raise QuestionError(
            "An estimate needs workload.model: a name of GET /models, or its dimensions."
            if asked.workload.model is None
            else f"Nothing is known of how long '{asked.workload.task}' takes; tell hours instead.",
            field="workload.model" if asked.workload.model is None else "workload.task",
        )
    if machine is None:
        raise QuestionError("The machine has no GPU to estimate for.", field="machine")
    return appraise(catalog.reference.physics, job, machine, fixed_layout(asked), asked.layout.choose)


def fixed_layout(asked: EstimateAsked) -> FixedLayout:
    """What is told of the layout; a training batch per GPU is its micro-batch."""
    told = {name: getattr(asked.layout, name) for name in asked.layout.model_fields_set if name != "choose"}
    work = asked.workload
    if work is not None and work.task == "training" and work.batch_size is not None:
        told.setdefault("micro_batch", work.batch_size)
    return FixedLayout(**told) if told else FREE


def would_fit(asked: EstimateAsked, catalog: Catalog) -> list[ChangeTold]:
    """Single changes that make it fit, the nearest first."""
    assert asked.workload is not None
    kind = instance_asked(asked.machine, catalog) if isinstance(asked.machine, str) else None
    machine, job = machine_asked(asked, kind, catalog), job_of(asked.workload, catalog)
    assert machine is not None
    assert job is not None
    work = training_on(job, machine.gpu) if job.task == "training" else inference_on(job, machine.gpu)
    return changes_told(nearest_changes(catalog.reference.physics, work, machine, fixed_layout(asked)))


def plain_hours(asked: EstimateAsked) -> Band:
    assert asked.hours is not None
    return Band(asked.hours, asked.hours, asked.hours)


def watts_of(asked: EstimateAsked, machine: Machine | None) -> float | None:
    """Of all nodes together."""
    if isinstance(asked.machine, MachineDescribed) and asked.machine.watts is not None:
        return asked.machine.watts * asked.nodes
    if machine is None or machine.gpu.tdp_watts is None:
        return None
    return machine.gpu.tdp_watts * machine.gpus


def machine_told(machine: Machine, kind: InstanceType | None) -> MachineTold:
    return MachineTold(
        name=None if kind is None else kind.id,
        gpu=machine.gpu.id,
        gpus_per_node=machine.gpus_per_node,
        nodes=machine.nodes,
        interconnect=machine.interconnect,
        link_gb_per_second=round(machine.link_bytes_per_second / 1e9, 3),
        network_gbps=round(machine.network_bytes_per_second * 8 * machine.gpus_per_node / 1e9, 3),
        usable_gib_per_gpu=round(machine.usable_bytes / 1024**3, 3),
    )


# Cost: price times hours


def costs(asked: EstimateAsked, kind: InstanceType | None, hours: Band | None, catalog: Catalog) -> list[CostTold]:
    if kind is None:
        assert isinstance(asked.machine, MachineDescribed)
        return [cost_told("on_demand", None, asked.machine.usd_per_hour, "No price was told.", asked, hours)]
    regions = resolved("region", [asked.region], catalog, field="region") if asked.region else ()
    markets = resolved("market", [asked.market], catalog, field="market") if asked.market else MARKETS
    best: dict[str, CostTold] = {}
    for place in catalog.offer_places(catalog.place_of[kind.id]):
        offer = catalog.offer(place)
        if offer.market not in markets or (regions and offer.region not in regions):
            continue
        usd = offer.price.usd_per_hour
        told = cost_told(offer.market, offer.region, usd, offer.price.note or "No price is known.", asked, hours)
        held = best.get(offer.market)
        if held is None or (usd is not None and (held.usd_per_hour is None or told.usd_per_hour < held.usd_per_hour)):  # type: ignore[operator]
            best[offer.market] = told
    return [best[market] for market in MARKETS if market in best]


def cost_told(
    market: str, region: str | None, usd_per_hour: float | None, unknown: str, asked: EstimateAsked, hours: Band | None
) -> CostTold:
    whole_rate = None if usd_per_hour is None else usd_per_hour * asked.nodes
    return CostTold(
        market=market,
        region=region,
        usd_per_hour=whole_rate,
        unknown_because=unknown if usd_per_hour is None else None,
        hours=maybe(hours),
        usd=None if hours is None or whole_rate is None else BandTold.of(hours.times(whole_rate)),
    )
