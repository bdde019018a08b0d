"""POST /recommend: a workload and constraints in, ranked choices and counted rejections out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import isnan
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Request, Response
from pydantic import Field, TypeAdapter
from pydantic_core import to_json

from service.api.catalog.instance_type import InstanceTypeResponse, PriceResponse
from service.api.estimate.response import rounded, warnings_on
from service.api.http.batch import RefusedItem, answered, items_of
from service.api.http.body import JsonItemsRoute, JsonRoute
from service.api.http.current import CatalogStamp, Live, catalog_for, catalog_on, stamp_json
from service.api.http.examples import QUESTION_BATCH, QUESTIONS
from service.api.http.fields import BodyModel, NoteResponse, RequestModel, StatementResponse
from service.api.http.query import query_reader
from service.api.recommend.advise import advice_json
from service.api.recommend.host import USUAL, HostResponse, host_told, loading_of
from service.api.recommend.job_choice import (
    EncodedEstimate,
    JobEstimateResponse,
    MeasuredEstimateResponse,
    PlacementResponse,
    SpotResponse,
    appraised,
    current_estimate,
    machine_chosen,
    placement_of,
    told_of,
)
from service.api.recommend.request import RecommendRequest, in_full, to_question
from service.api.recommend.sentences import (
    notes_json,
    reasons_for,
    rejection_json,
    standing_json,
    terms_told,
    tied_json,
    warnings_for,
)
from service.domain.catalog.catalog import Catalog
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.physics.input_pipeline import SampleLoading
from service.domain.recommend.fleet import FleetEstimate
from service.domain.recommend.named_work import NamedWork
from service.domain.recommend.plans import Planner
from service.domain.recommend.recommend import Answer, Choice, Question, recommend
from service.domain.selection.requirements import NOTHING, Requirements

router = APIRouter(tags=["decision"], route_class=JsonRoute)
batch_router = APIRouter(tags=["decision"], route_class=JsonItemsRoute)
read_query = query_reader(RequestModel)
"""There is nothing to ask in the query, and whatever stands there is refused."""


@dataclass(frozen=True, slots=True)
class ChosenGpuResponse:
    """The GPU of a choice."""

    id: str
    per_node: int


@dataclass(frozen=True, slots=True)
class PeakEstimateResponse:
    """What ranks a choice of no known job. `basis: peak` is the vendor's peak rate, not a prediction of speed."""

    basis: Literal["peak"]
    precision: str | None
    peak_tflops: Annotated[
        float | None, Field(description="Dense peak of the machine at the precision, in 10^12 operations per second.")
    ]
    peak_tflops_per_usd_hour: float | None
    peak_tflops_per_watt: float | None


@dataclass(frozen=True, slots=True)
class ComparedToCurrentResponse:
    """The choice beside the caller's current instance."""

    relative_usd_per_hour: float | None
    relative_peak: Annotated[float | None, Field(description="Where peaks rank; null of a job.")]
    relative_speed: Annotated[float | None, Field(description="Of a job: samples per second; null where peaks rank.")]
    relative_usd: Annotated[float | None, Field(description="Of the whole job; null without an amount of work.")]


@dataclass(frozen=True, slots=True)
class AvailabilityResponse:
    """Whether machines are there to be had now. Nobody tells yet; that a type is sold says nothing of it."""

    state: Literal["unknown"]
    confidence: float | None
    observed_on: date | None


@dataclass(frozen=True, slots=True)
class ChoiceResponse:
    """A ranked offer."""

    rank: int
    provider: str
    instance: str
    region: str | None
    zone: str | None
    market: str
    nodes: int
    instances: int
    gpu: ChosenGpuResponse | None
    usd_per_hour: float | None
    price: PriceResponse
    estimate: JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse
    placement: Annotated[
        PlacementResponse | None, Field(description="Of several nodes: whether they must stand together.")
    ]
    spot: Annotated[
        SpotResponse | None, Field(description="Of a job on a spot machine: what interruptions make of it.")
    ]
    specs: InstanceTypeResponse
    compared_to_current: ComparedToCurrentResponse | None
    reasons: list[StatementResponse]
    host: HostResponse
    availability: AvailabilityResponse
    warnings: list[StatementResponse]
    evidence: list[dict[str, str]]
    tied_with: list[int]
    pareto: Annotated[
        bool,
        Field(description="No other candidate is both cheaper and faster: in all with a job, else by price and peak."),
    ]


@dataclass(frozen=True, slots=True)
class RelaxationBestResponse:
    """The best of what a relaxation lets in."""

    instance: str
    region: str | None
    market: str
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True)
class RelaxationResponse:
    """The smallest change of one constraint that lets something in."""

    to: Annotated[
        dict[str, Any],
        Field(description="Constraints (or paths into the question) with their new values; null takes one away."),
    ]
    admits: int
    best: RelaxationBestResponse


@dataclass(frozen=True, slots=True)
class RejectionResponse:
    """How many instance types a constraint turned away."""

    code: str
    ground: str
    text: str
    count: int
    only_this: Annotated[int, Field(description="Of them those that nothing else keeps out.")]
    relax: RelaxationResponse | None


@dataclass(frozen=True, slots=True)
class CurrentInstanceResponse:
    """The caller's current instance, priced and rated like a choice."""

    instance: str
    market: str
    nodes: int
    usd_per_hour: Annotated[float | None, Field(description="Of all nodes.")]
    estimate: JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse | None


@dataclass(frozen=True, slots=True)
class CountsResponse:
    """Every instance type of the catalog's day is either admitted or rejected."""

    considered: int
    admitted: int
    rejected: int


@dataclass(frozen=True, slots=True)
class RecommendResponse:
    """Ranked choices, and why the rest is not among them."""

    catalog: CatalogStamp
    question: Annotated[RecommendRequest, Field(description="The question with every default filled in.")]
    counts: CountsResponse
    choices: list[ChoiceResponse]
    rejections: list[RejectionResponse]
    current: CurrentInstanceResponse | None
    advice: list[StatementResponse]
    notes: list[NoteResponse]


@router.post(
    "/recommend",
    summary="Recommend machines for a workload",
    response_model=RecommendResponse,
)
async def post_recommend(
    asked: Annotated[RecommendRequest, Body(openapi_examples=QUESTIONS)], request: Request
) -> Response:
    """Rank offers for a workload, and count what kept every other instance type out.

    With a model, physics ranks (`basis: modelled`): dollars and hours of the whole job. Without one, hardware and price
    do: dollars per hour and the dense peak at the precision (`basis: peak`). No match is an answer with its
    rejections, not an error.
    """
    read_query(request)
    return answer_to(asked, request)


def answer_to(asked: RecommendRequest, request: Request) -> Response:
    return Response(answer_in(asked, catalog_for(request, asked.as_of)), media_type="application/json")


def answer_in(asked: RecommendRequest, catalog: Catalog) -> bytes:
    question = to_question(asked, catalog)
    return answer_json(asked, question, recommend(question, catalog), catalog)


class RecommendBatchRequest(BodyModel):
    """Many questions at once."""

    items: items_of("POST /recommend")  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True)
class RecommendBatchResponse:
    """In the order of the questions: each an answer, or a problem."""

    items: list[RecommendResponse | RefusedItem]


ASKED: TypeAdapter[RecommendRequest] = TypeAdapter(RecommendRequest)


@batch_router.post("/recommend/batch", summary="Recommend for many workloads", response_model=RecommendBatchResponse)
async def post_recommend_batch(
    asked: Annotated[RecommendBatchRequest, Body(openapi_examples=QUESTION_BATCH)], live: Live, request: Request
) -> Response:
    """Up to 1,000 questions, answered in order; a bad item has a `problem` and does not fail the others."""
    read_query(request)

    pinned = live.pinned()

    def answer(each: RecommendRequest) -> bytes:
        return answer_in(each, catalog_on(pinned, each.as_of))

    return await answered(asked.items, ASKED, answer, request)


# The answer in the caller's words, as JSON. What rests on the catalog alone is encoded once and put in as it is: to
# write a whole `RecommendResponse` for each question took longer than to find the answer.


def answer_json(asked: RecommendRequest, question: Question, answer: Answer, catalog: Catalog) -> bytes:
    told = to_json(
        {
            "counts": {
                "considered": answer.considered,
                "admitted": answer.admitted,
                "rejected": answer.considered - answer.admitted,
            },
            "current": None if answer.current is None else current_told(answer.current, answer.planner, catalog),
        }
    )
    return b'{"catalog":%b,"question":%b,"choices":[%b],"rejections":[%b],"advice":%b,"notes":%b,%b' % (
        stamp_json(catalog),
        in_full(asked, catalog),
        choices_json(asked, question, answer, catalog),
        b",".join([rejection_json(each, catalog) for each in answer.rejections]),
        advice_json(asked, question, answer, first_appraised(answer, catalog), catalog),
        notes_json(asked, answer, catalog),
        told[1:],
    )


def first_appraised(answer: Answer, catalog: Catalog) -> JobEstimate | None:
    """The job on the first choice."""
    if answer.outlook is None or isinstance(answer.outlook.job, NamedWork) or not answer.choices:
        return None
    return appraised(answer.choices[0], answer.outlook, catalog)


SaidOf = tuple[str, SampleLoading | None, Requirements | None, float | None, str | None, tuple[str, ...]]
"""What of a question the words on a choice depend on: task, how samples come, needs, how many there are, the framework
and terms of the objective. What is not told is None, which is the quickest to look up."""


def host_told_of(
    asked: RecommendRequest, question: Question
) -> tuple[str, SampleLoading | None, Requirements | None, float | None]:
    work, needs = asked.workload, question.needs
    loading = loading_of(work, question.modelled)
    samples = work.amount.samples if work.amount and loading.from_local_disks else None
    return work.task, None if loading is USUAL else loading, None if needs is NOTHING else needs, samples


def choices_json(asked: RecommendRequest, question: Question, answer: Answer, catalog: Catalog) -> bytes:
    """All of them; while the same ones lead as many others, they are encoded once."""
    said_of = (*host_told_of(asked, question), asked.workload.software.framework, terms_told(question, answer))

    def encode() -> bytes:
        return b",".join([choice_json(each, asked, question, answer, said_of, catalog) for each in answer.choices])

    if answer.current is not None:
        return encode()
    return answer.leading.pieces.get_or_compute((said_of, asked.constraints.same_placement, answer.ranked), encode)


def choice_json(
    choice: Choice, asked: RecommendRequest, question: Question, answer: Answer, said_of: SaidOf, catalog: Catalog
) -> bytes:
    """What does not depend on the others that were ranked is encoded once."""
    planner = answer.planner
    key = ("choice", choice.offer_place, choice.precision if planner is None else planner.key, said_of)
    pieces = catalog.fragments if planner is None else catalog.of_jobs
    offered, figures, others = pieces.get_or_compute(
        key, lambda: choice_encoded(choice, asked, question, said_of[-1], planner, catalog)
    )
    if choice.tied_with:
        others += tied_json(choice.tied_with)
    against = None if answer.current is None else compared(choice, answer.current, question)
    placed = placement_of(choice, together=asked.constraints.same_placement)
    return b'{"rank":%d,%b,"placement":%b,"compared_to_current":%b,"reasons":[%b%b],"tied_with":%b,"pareto":%b}' % (
        choice.rank,
        offered,
        b"null" if placed is None else to_json(placed),
        b"null" if against is None else to_json(against),
        standing_json(choice.rank, answer.ranked, figures),
        others,
        to_json(choice.tied_with) if choice.tied_with else b"[]",
        b"true" if choice.pareto else b"false",
    )


def choice_encoded(
    choice: Choice,
    asked: RecommendRequest,
    question: Question,
    terms: Sequence[str],
    planner: Planner | None,
    catalog: Catalog,
) -> tuple[bytes, bytes, bytes]:
    """The offer, the figures that put it where it stands, and the other reasons."""
    told = None if planner is None else told_of(choice, planner, catalog, asked.workload.software.framework)
    outlook = None if planner is None else planner.outlook
    offered = b'%b,%b,"specs":%b,%b,"availability":%b' % (
        to_json(offer_fields(choice))[1:-1],
        peak_json(choice) if told is None else told.json(),
        machine_json(choice.place, catalog),
        host_json(choice, asked, question, told, outlook, catalog),
        to_json(AvailabilityResponse(state="unknown", confidence=None, observed_on=None)),
    )
    figures, others = reasons_for(choice, terms, outlook)
    if told is not None:
        others += told.reasons
    return offered, to_json(figures)[1:-1], b"".join(b",%b" % to_json(each) for each in others)


def peak_json(choice: Choice) -> bytes:
    return b'"estimate":%b,"spot":null,"evidence":[]' % to_json(peak_told(choice))


def offer_fields(choice: Choice) -> dict[str, object]:
    kind, offer = choice.instance_type, choice.offer
    usd, machines = offer.price.usd_per_hour, choice.nodes * choice.instances
    return {
        "provider": kind.provider,
        "instance": kind.name,
        "region": offer.region,
        "zone": offer.zone,
        "market": offer.market,
        "nodes": choice.nodes,
        "instances": choice.instances,
        "gpu": None if kind.gpu is None else ChosenGpuResponse(id=kind.gpu.id, per_node=kind.gpu_count),
        "usd_per_hour": usd if usd is None or machines == 1 else rounded(usd * machines),
        "price": PriceResponse.of(offer),
    }


def machine_json(place: int, catalog: Catalog) -> bytes:
    def encode() -> bytes:
        return InstanceTypeResponse.of(catalog.instance_types[place], catalog.day).model_dump_json().encode()

    return catalog.fragments.get_or_compute(("machine", place), encode)


def host_json(
    choice: Choice,
    asked: RecommendRequest,
    question: Question,
    told: EncodedEstimate | None,
    outlook: FleetEstimate[Any] | None,
    catalog: Catalog,
) -> bytes:
    """What the host needs and what to beware of, without the braces."""
    work, kind = asked.workload, choice.instance_type
    job = question.modelled
    found = None if outlook is None or job is None else appraised(choice, outlook, catalog)
    warnings = warnings_for(choice, asked, question.needs, found, job, catalog)
    if found is not None:
        warnings += warnings_on(found, machine_chosen(choice))
    if told is not None:
        warnings += told.warnings
    host = host_told(kind, work, loading_of(work, job), found, choice.nodes)
    return b'"host":%b,"warnings":%b' % (to_json(host), to_json(warnings))


def peak_told(choice: Choice) -> PeakEstimateResponse:
    peak = choice.speed if choice.precision else None
    usd, watts = choice.offer.price.usd_per_hour, choice.instance_type.tdp_watts
    return PeakEstimateResponse(
        basis="peak",
        precision=choice.precision,
        peak_tflops=peak,
        peak_tflops_per_usd_hour=None if peak is None or usd is None else round(peak / usd, 4),
        peak_tflops_per_watt=None if peak is None or watts is None else round(peak / watts, 4),
    )


def compared(choice: Choice, current: Choice, question: Question) -> ComparedToCurrentResponse:
    speed = ratio(choice.speed, current.speed)
    is_job = question.job is not None
    has_amount = question.job is not None and question.job.amount is not None
    return ComparedToCurrentResponse(
        relative_usd_per_hour=ratio(usd_per_hour(choice), usd_per_hour(current)),
        relative_peak=None if is_job else speed,
        relative_speed=speed if is_job else None,
        relative_usd=ratio(choice.usd, current.usd) if has_amount else None,
    )


def usd_per_hour(choice: Choice) -> float | None:
    """Of all nodes and instances."""
    usd = choice.offer.price.usd_per_hour
    return None if usd is None else usd * choice.nodes * choice.instances


def ratio(one: float | None, other: float | None) -> float | None:
    """To four places, or as many figures of what is less than one: a ratio that is not 0 is never told as 0."""
    if one is None or not other or isnan(one) or isnan(other):
        return None
    found = one / other
    return round(found, 4) if found >= 1 else float(f"{found:.4g}")


def current_told(current: Choice, planner: Planner | None, catalog: Catalog) -> dict[str, object]:
    """As `CurrentInstanceResponse` says."""
    return {
        "instance": current.instance_type.id,
        "market": current.offer.market,
        "nodes": current.nodes,
        "usd_per_hour": None if (usd := usd_per_hour(current)) is None else rounded(usd),
        "estimate": peak_told(current) if planner is None else current_estimate(current, planner, catalog),
    }
