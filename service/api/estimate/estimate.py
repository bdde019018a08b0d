"""POST /estimate: memory, speed, duration and cost of a workload on a machine."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response
from pydantic import Field, TypeAdapter, with_config

from service.api.estimate.cost_response import CostResponse, GpuHourResponse, VerdictResponse
from service.api.estimate.notes import notes_on
from service.api.estimate.request import EstimateRequest, question_of
from service.api.estimate.response import (
    EvidenceResponse,
    ModelledEstimateResponse,
    evidence_of,
    like,
    modelled_estimate,
    shown,
)
from service.api.estimate.sentences import fit_change_text, warning_text
from service.api.estimate.serving import ServedResponse, served_response
from service.api.http.body import QuestionRoute
from service.api.http.computing import in_thread
from service.api.http.current import CatalogStamp, catalog_on, stamp, visible_to_caller
from service.api.http.examples import ESTIMATES
from service.api.http.fields import BUILT_AT_FIRST_USE, Described, StatementResponse
from service.api.http.figures import rounded
from service.api.http.query import refuse_query
from service.db.live_catalog import PinnedCatalog
from service.domain.bill.verdict import Outcome
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import CPU
from service.domain.estimate.estimate import EstimateAnswer, estimate
from service.domain.estimate.work import MeasuredRate
from service.domain.evidence.named import NamedWork
from service.domain.layouts.would_fit import FitChange
from service.domain.physics.cluster import Cluster
from service.domain.units import GIB

router = APIRouter(tags=["decision"], route_class=QuestionRoute)


@dataclass(frozen=True, slots=True)
class MachineResponse(Described):
    """The cluster of the estimate."""

    name: str | None
    """Null for a machine that was described."""
    gpu: str | None
    """Null for a machine without a GPU, whose CPUs count as one."""
    platform: Annotated[str | None, Field(description="What its code is written for, such as `cuda`; null: unknown.")]
    gpus_per_node: int
    """GPUs of one machine; all CPUs of a machine without GPUs count as one."""
    nodes: int
    """Machines of one instance."""
    interconnect: str
    """Link between the GPUs of a node, such as `nvlink`; where the catalog states none, the one that is assumed."""
    link_gb_per_second: float
    """Bandwidth between GPUs per GPU, in one direction."""
    network_gbps: float
    """Network of one node in gigabits per second; where the catalog states none, the one that is assumed."""
    usable_gib_per_gpu: float
    """Memory of a GPU that programs can allocate."""


@dataclass(frozen=True, slots=True)
class ChangeResponse(Described):
    """A field with its new value."""

    code: str
    """A field of the workload or layout."""
    to: int | float | str | bool
    """The value that `code` has to have."""


@dataclass(frozen=True, slots=True)
class FitChangeResponse(ChangeResponse):
    """A change that would make the job fit, everything else being equal."""

    code: str
    """A field of the workload or layout; `layout` (all of its fields), `nodes`, `usable_memory_gib` or
    `host_memory_gib`."""
    also: ChangeResponse | None
    """The other change of a pair that makes the job fit only together; null: this one is enough."""
    needed_gib: float
    """GiB that the job needs after the change: per GPU, or per node if host memory is what it lacks."""
    text: str


@with_config(BUILT_AT_FIRST_USE)
@dataclass(frozen=True, slots=True)
class EstimateResponse(Described):
    """The estimate of a run on a machine: its physics, its risks, and its cost in every market."""

    catalog: CatalogStamp
    machine: MachineResponse | None
    """Null for an instance type without a GPU whose CPUs have unknown figures."""
    fits: bool | None
    """Whether the job fits in the memory of its GPUs; null without a job."""
    estimate: ModelledEstimateResponse | None
    """Null: a rate, hours or a named workload were given, and no model."""
    code_change_required: Annotated[
        str | None, Field(description="What has to change in code written for CUDA; null if it runs unchanged.")
    ]
    measured_per_second: float | None
    """The rate of `measured` in its unit: of the GPUs or of the host, whichever is lower. For a workload without a
    model: samples per second, measured on this machine or scaled from another."""
    cost: list[CostResponse]
    """One entry per market, term and managed service of a region."""
    load: ServedResponse | None
    """The load on the instances that serve it."""
    elsewhere: list[GpuHourResponse]
    """The cheapest on-demand hours of the same GPU at up to three sellers."""
    verdict: Outcome | None
    """Whether the cost keeps to the baseline and the budget; `unknown` where only a part of it is known, and keeps to
    them; null where neither is given."""
    verdict_of: VerdictResponse | None
    """The entry of `cost` that was judged: the cheapest on-demand one, else the cheapest."""
    warnings: list[StatementResponse]
    """Risks of the run on this machine, and assumptions of the estimate."""
    evidence: list[EvidenceResponse]
    """The measurement from which the rate follows, if there is one, and then the published runs nearest to the
    question."""
    nearest_changes: list[FitChangeResponse] | None
    """Changes that would make the job fit, the smallest first; if it probably fits already, only changes of its layout.
    Null in a batch, and if it fits with the requested confidence."""
    largest_batch: int | None
    """Most training samples of a micro-batch that fit with the degrees and the ZeRO stage of `layout`; activation
    checkpointing is chosen again unless the request fixes it. Null in a batch, and if not requested."""
    notes: list[str]
    """Assumptions about the cost."""


ANSWER = TypeAdapter(EstimateResponse)


@router.post("/estimate", summary="Estimate a workload on a machine", response_model=EstimateResponse)
async def post_estimate(
    body: Annotated[EstimateRequest, Body(openapi_examples=ESTIMATES)], request: Request
) -> Response:
    """Memory per GPU in parts, speed with a band, the bottleneck, and hours and dollars of the whole job.

    There is a bill for every market, in parts and per unit of the work, and a verdict for CI. A workload that does not
    fit gets an answer too: `fits: false`, with the memory that it needs.
    """
    refuse_query(request)
    return await in_thread(_answer_to, body, visible_to_caller(request))


def _answer_to(body: EstimateRequest, live: PinnedCatalog) -> Response:
    catalog = catalog_on(live, body)
    answer = estimate(question_of(body, catalog), catalog, changes=True)
    return Response(ANSWER.dump_json(response_of(body, answer, catalog)), media_type="application/json")


def response_of(body: EstimateRequest, answer: EstimateAnswer, catalog: Catalog) -> EstimateResponse:
    """Returns the answer of the domain as a response."""
    question, job, changes = answer.question, answer.job, answer.nearest_changes
    instance_type, cluster = question.instance_type, question.cluster
    name = None if instance_type is None else instance_type.id
    return EstimateResponse(
        catalog=stamp(catalog),
        machine=None if cluster is None else _machine(cluster, name),
        fits=None if job is None else job.fits,
        estimate=None
        if job is None
        else modelled_estimate(
            ModelledEstimateResponse,
            job,
            1 if job.job.serving is not None else question.run.instances,
            basis="modelled" if answer.measured is None else answer.measured.basis,
            joules_per_sample=shown(answer.joules_per_sample),
        ),
        code_change_required=answer.code_change,
        measured_per_second=_measured_per_second(answer),
        cost=[CostResponse.of(bill, instance_type) for bill in answer.bills],
        load=served_response(job),
        elsewhere=[GpuHourResponse.of(elsewhere) for elsewhere in answer.elsewhere],
        verdict=None if answer.verdict is None else answer.verdict.outcome,
        verdict_of=None if answer.verdict is None else VerdictResponse.of(answer.verdict, answer),
        warnings=[StatementResponse(warning.code, warning_text(warning)) for warning in answer.warnings],
        evidence=evidence_of(answer.measured, answer.evidence),
        nearest_changes=None if changes is None else [_fit_change(change, cluster) for change in changes],
        largest_batch=answer.largest_batch,
        notes=list(notes_on(body, answer, catalog)),
    )


def _measured_per_second(answer: EstimateAnswer) -> float | None:
    work, measured = answer.question.work, answer.measured
    if isinstance(work, NamedWork) and measured is not None:
        return rounded(measured.samples_per_second.likely)
    return work.per_second if isinstance(work, MeasuredRate) else None


def _machine(cluster: Cluster, name: str | None) -> MachineResponse:
    return like(
        MachineResponse,
        cluster,
        name=name,
        gpu=None if cluster.gpu.kind == CPU else cluster.gpu.id,
        platform=cluster.gpu.platform,
        link_gb_per_second=rounded(cluster.link_bytes_per_second / 1e9),
        # The cluster has bytes per second per GPU; sellers state gigabits per second of the whole node.
        network_gbps=rounded(cluster.network_bytes_per_second * 8 * cluster.gpus_per_node / 1e9),
        usable_gib_per_gpu=rounded(cluster.usable_bytes / GIB),
    )


def _fit_change(change: FitChange, cluster: Cluster | None) -> FitChangeResponse:
    of_cpus = cluster is not None and cluster.gpu.kind == CPU
    text = fit_change_text(change, of_cpus=of_cpus)
    also = None if change.also is None else ChangeResponse(*map(shown, change.also))
    return FitChangeResponse(change.code, shown(change.to), also, rounded(change.needed_bytes / GIB), text)
