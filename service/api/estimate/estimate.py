"""POST /estimate: what a workload needs on a machine, what it yields, how long it takes and what that costs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Query, Response
from pydantic import BeforeValidator, Field, TypeAdapter
from starlette.concurrency import run_in_threadpool

from service.api.catalog.filters import resolved
from service.api.estimate.cost_request import CostRequest, Hours, MeasuredRateRequest, checkpoint_told, only_one
from service.api.estimate.cost_response import CostResponse, GpuHourResponse, LoadResponse, VerdictResponse
from service.api.estimate.costs import OWN, costs_of, own_cost
from service.api.estimate.elsewhere import elsewhere_of, own_gpu_hour
from service.api.estimate.per_unit import load_told
from service.api.estimate.priced_run import PricedRun
from service.api.estimate.response import (
    FitChangeResponse,
    ModelledEstimateResponse,
    changes_told,
    estimate_told,
    evidence_on,
    warnings_on,
)
from service.api.estimate.runtime import served_by, work_appraised, work_in_hours, work_measured
from service.api.estimate.verdict import judged
from service.api.http.body import JsonRoute
from service.api.http.current import CatalogStamp, Live, catalog_on, stamp
from service.api.http.examples import ESTIMATES
from service.api.http.fields import (
    Amount,
    AsOf,
    AtLeastOne,
    BodyModel,
    Name,
    Named,
    Positive,
    RequestModel,
    StatementResponse,
    whole,
)
from service.api.workload.checkpoints import assumed_of, checkpoints_in
from service.api.workload.job import job_of
from service.api.workload.workload import WorkloadRequest
from service.domain.bill.payment_options import markets_known, service_known
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import resolve, resolve_gpus, resolve_instance
from service.domain.errors import QuestionError
from service.domain.jobs.job import required_config_on
from service.domain.layouts.job_estimate import JobEstimate, estimate_job
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.layouts.would_fit import nearest_changes
from service.domain.physics.cluster import Cluster, cluster_of, cluster_of_instance

router = APIRouter(tags=["decision"], route_class=JsonRoute)

Degree = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(whole)]


class MachineDescriptionRequest(BodyModel):
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


class LayoutRequest(BodyModel):
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


class EstimateRequest(CostRequest):
    """A workload, or what was measured, or plain hours, on a machine."""

    workload: WorkloadRequest | None = None
    hours: Annotated[Hours | None, Field(description="Instead of a workload: how long each machine runs.")] = None
    measured: Annotated[
        MeasuredRateRequest | None, Field(description="Instead of a workload: how fast it was seen.")
    ] = None
    machine: Annotated[
        Named[Name, MachineDescriptionRequest], Field(description="Such as `aws/p4d.24xlarge`, or one described.")
    ]
    nodes: AtLeastOne = 1
    layout: LayoutRequest = LayoutRequest()
    as_of: AsOf = None


@dataclass(frozen=True, slots=True)
class MachineResponse:
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
class EstimateResponse:
    """An estimate with its arithmetic."""

    catalog: CatalogStamp
    machine: MachineResponse | None
    fits: bool | None
    estimate: ModelledEstimateResponse | None
    cost: Annotated[
        list[CostResponse], Field(description="One entry per market, term and managed service of a region.")
    ]
    load: Annotated[LoadResponse | None, Field(description="What it takes to serve the load asked.")]
    elsewhere: Annotated[
        list[GpuHourResponse], Field(description="The cheapest on-demand hours of the same GPU at up to three sellers.")
    ]
    verdict: Annotated[
        Literal["pass", "fail"] | None, Field(description="Of the baseline and the budget; null where none is told.")
    ]
    verdict_of: Annotated[
        VerdictResponse | None,
        Field(description="What the verdict speaks of: on demand where that was asked, else the cheapest entry."),
    ]
    warnings: list[StatementResponse]
    evidence: Annotated[list[dict[str, str]], Field(description="The published runs nearest to the question.")]
    nearest_changes: Annotated[
        list[FitChangeResponse] | None,
        Field(description="What would make it fit, the nearest first; null in a batch, and where it fits."),
    ]
    notes: Annotated[list[str], Field(description="What was assumed of the cost.")]


ANSWER = TypeAdapter(EstimateResponse)

Appraised = Callable[["EstimateRequest", Cluster | None, Catalog], JobEstimate]


@router.post("/estimate", summary="Estimate a workload on a machine", response_model=EstimateResponse)
async def post_estimate(
    asked: Annotated[EstimateRequest, Body(openapi_examples=ESTIMATES)],
    _query: Annotated[RequestModel, Query()],
    live: Live,
) -> Response:
    """Memory per GPU in parts, speed with a band, the resource that binds, hours and dollars of the whole job.

    The bill comes in parts for every market side by side, per unit of the work, and with a verdict for CI.
    A workload that does not fit is an answer too: `fits: false`, with what is needed.
    """
    catalog = catalog_on(live, asked.as_of)
    answer = estimate(asked, catalog)
    if answer.fits is False:  # tells of dozens of layouts, each searched for: not beside other requests
        answer = replace(answer, nearest_changes=await run_in_threadpool(would_fit, asked, catalog))
    return Response(ANSWER.dump_json(answer), media_type="application/json")


def estimate(asked: EstimateRequest, catalog: Catalog, appraised: Appraised | None = None) -> EstimateResponse:
    """Raises `QuestionError`. `appraised` stands in for the physics where the same was asked before."""
    only_one(
        (("workload", asked.workload), ("hours", asked.hours), ("measured", asked.measured)),
        "Tell a workload, or how many hours.",
    )
    kind = instance_asked(asked.machine, catalog) if isinstance(asked.machine, str) else None
    machine = machine_asked(asked, kind, catalog)
    found = (appraised or appraised_on)(asked, machine, catalog) if asked.workload is not None else None
    told = None if found is None else estimate_told(found, watts_of(asked, machine))
    purchase = purchase_of(asked, machine, found, told, catalog)
    costs = costs_asked(purchase, asked, kind)
    outcome, sentence = judged(asked, costs)
    gpus = 0.0 if machine is None else machine.gpus_per_node
    return EstimateResponse(
        catalog=stamp(catalog),
        machine=None if machine is None else machine_told(machine, kind),
        fits=None if found is None else found.estimate.fits,
        estimate=told,
        cost=costs,
        load=load_told(purchase.served),
        elsewhere=elsewhere_of(catalog, None if machine is None else machine.gpu.id, kind, own_gpu_hour(costs, gpus)),
        verdict=outcome,
        verdict_of=sentence,
        warnings=[] if found is None or machine is None else warnings_on(found, machine),
        evidence=[] if found is None or machine is None else evidence_on(found, machine, catalog),
        nearest_changes=None,
        notes=notes_on(asked, costs, kind),
    )


def instance_asked(name: str, catalog: Catalog) -> InstanceType:
    return catalog.instance_types[catalog.place_of[resolve_instance(name, catalog, "machine")]]


def machine_asked(asked: EstimateRequest, kind: InstanceType | None, catalog: Catalog) -> Cluster | None:
    """The nodes asked for; nothing of a type without a GPU."""
    if kind is not None:
        return cluster_of_instance(kind, asked.nodes) if kind.gpu is not None and kind.gpu_count else None
    m = asked.machine
    assert isinstance(m, MachineDescriptionRequest)
    found = resolve_gpus([m.gpu], catalog, "machine.gpu")
    if len(found) > 1:
        raise QuestionError(
            f"'{m.gpu}' may be any of {', '.join(found)}: name one.", field="machine.gpu", near=found[:3]
        )
    return cluster_of(
        catalog.reference.gpus[found[0]],
        m.gpu_count,
        asked.nodes,
        m.interconnect,
        m.interconnect_gb_per_second,
        m.network_gbps,
        m.vcpus,
        m.memory_gib,
    )


def appraised_on(asked: EstimateRequest, machine: Cluster | None, catalog: Catalog) -> JobEstimate:
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
    return estimate_job(catalog.reference.physics, job, machine, fixed_layout(asked), asked.layout.choose)


def fixed_layout(asked: EstimateRequest) -> FixedLayout:
    """What is told of the layout; a training batch per GPU is its micro-batch."""
    told = {name: getattr(asked.layout, name) for name in asked.layout.model_fields_set if name != "choose"}
    work = asked.workload
    if work is not None and work.task == "training" and work.batch_size is not None:
        told.setdefault("micro_batch", work.batch_size)
    return FixedLayout(**told) if told else FREE


def would_fit(asked: EstimateRequest, catalog: Catalog) -> list[FitChangeResponse]:
    """Single changes that make it fit, the nearest first."""
    assert asked.workload is not None
    kind = instance_asked(asked.machine, catalog) if isinstance(asked.machine, str) else None
    machine, job = machine_asked(asked, kind, catalog), job_of(asked.workload, catalog)
    assert machine is not None
    assert job is not None
    work = required_config_on(job, machine.gpu)
    return changes_told(nearest_changes(catalog.reference.physics, work, machine, fixed_layout(asked)))


def watts_of(asked: EstimateRequest, machine: Cluster | None) -> float | None:
    """Of all nodes together."""
    if isinstance(asked.machine, MachineDescriptionRequest) and asked.machine.watts is not None:
        return asked.machine.watts * asked.nodes
    if machine is None or machine.gpu.tdp_watts is None:
        return None
    return machine.gpu.tdp_watts * machine.gpus


def machine_told(machine: Cluster, kind: InstanceType | None) -> MachineResponse:
    return MachineResponse(
        name=None if kind is None else kind.id,
        gpu=machine.gpu.id,
        gpus_per_node=machine.gpus_per_node,
        nodes=machine.nodes,
        interconnect=machine.interconnect,
        link_gb_per_second=round(machine.link_bytes_per_second / 1e9, 3),
        network_gbps=round(machine.network_bytes_per_second * 8 * machine.gpus_per_node / 1e9, 3),
        usable_gib_per_gpu=round(machine.usable_bytes / 1024**3, 3),
    )


# Cost


def purchase_of(
    asked: EstimateRequest,
    machine: Cluster | None,
    found: JobEstimate | None,
    told: ModelledEstimateResponse | None,
    catalog: Catalog,
) -> PricedRun:
    if asked.hours is not None:
        work = work_in_hours(asked.hours)
    elif asked.measured is not None:
        work = work_measured(asked.measured, asked.instances)
    else:
        assert found is not None
        assert told is not None
        assert asked.workload is not None
        work = work_appraised(found, asked.workload, asked.instances, told.basis)

    def again(concurrency: float) -> JobEstimate:
        assert asked.workload is not None
        fewer = asked.workload.model_copy(update={"concurrency": int(concurrency)})
        return appraised_on(asked.model_copy(update={"workload": fewer}), machine, catalog)

    return PricedRun(
        asked=asked,
        catalog=catalog,
        work=work,
        nodes=asked.nodes,
        checkpoints=checkpoints_in(checkpoint_told(asked, asked.workload), asked.workload),
        training=asked.workload is None or asked.workload.task == "training",
        served=served_by(asked, asked.workload, found, again),
    )


def costs_asked(purchase: PricedRun, asked: EstimateRequest, kind: InstanceType | None) -> list[CostResponse]:
    catalog = purchase.catalog
    if kind is None:
        assert isinstance(asked.machine, MachineDescriptionRequest)
        for field in ("market", "region", "managed_service"):
            if getattr(asked, field):
                raise QuestionError(
                    f"A machine that is described has a price of its own: {field} cannot be asked of it.", field=field
                )
        return [own_cost(purchase, asked.machine.usd_per_hour)]
    service = None
    if asked.managed_service is not None:
        service = service_known(catalog, asked.managed_service, "managed_service")
    regions = resolved("region", asked.region, catalog)
    return costs_of(purchase, kind, resolve("market", asked.market, markets_known(catalog), "market"), regions, service)


def notes_on(asked: EstimateRequest, costs: list[CostResponse], kind: InstanceType | None) -> list[str]:
    notes = [] if kind is not None else [OWN]
    assumed = assumed_of(checkpoint_told(asked, asked.workload), asked.workload)
    if assumed is not None and any(each.market == "spot" for each in costs):
        notes.append(assumed)
    return notes
