"""The answer of POST /recommend, rendered from the domain's values."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, with_config

from service.api.catalog.instance_type import InstanceTypeResponse, PriceResponse
from service.api.estimate.cost_response import CostResponse
from service.api.estimate.response import EvidenceResponse, evidence_of, like
from service.api.estimate.serving import PricedLoadResponse, priced_load
from service.api.http.current import CatalogStamp, stamp
from service.api.http.fields import BUILT_AT_FIRST_USE, Described, NoteResponse, StatementResponse
from service.api.http.figures import money, rounded
from service.api.recommend.codes import REJECTIONS
from service.api.recommend.estimates import (
    JobEstimateResponse,
    MeasuredEstimateResponse,
    PeakEstimateResponse,
    SpotResponse,
    estimate_response,
    spot_response,
)
from service.api.recommend.request import RecommendRequest
from service.api.recommend.sentences import note_response, placement_text, prior_text, rejection_text, with_text
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import (
    Answer,
    Choice,
    CitedPrior,
    Explained,
    HostNeeds,
    Rejection,
    RelaxationOutcome,
    WorkEstimate,
)
from service.domain.units import GIB


@dataclass(slots=True)
class ChosenGpuResponse:
    """The GPU of a choice."""

    id: Annotated[str, Field(description="Id of the GPU, see `/gpus/{id}`.")]
    per_node: Annotated[int, Field(description="GPUs of one machine; a part of a card counts as one.")]


@dataclass(slots=True)
class PlacementResponse(Described):
    """Where the nodes of a choice must be placed."""

    together: bool
    """Whether the caller wants the nodes close together (`constraints.same_placement`)."""
    text: str


@dataclass(slots=True)
class HostResponse(Described):
    """vCPUs and memory that the host of each node should have; null: unknown. `specs` says what the host has."""

    needed_vcpus: float | None
    """vCPUs that prepare samples as fast as the GPUs take them, or a rule of thumb where no rate is known."""
    ideal_vcpus: float | None
    """The high end of the rule of thumb; else the same as `needed_vcpus`."""
    needed_memory_gib: float | None
    """The larger of the memory that was asked for and that which the job needs."""


@dataclass(slots=True)
class ComparedToCurrentResponse(Described):
    """The choice relative to the caller's current instance."""

    relative_usd_per_hour: float | None
    """Price of all machines over that of all current ones; null: unknown."""
    relative_peak: float | None
    """Peak relative to that of the current instance, if peaks rank; null for a job."""
    relative_speed: float | None
    """Relative samples per second of a job, or inverse of the relative seconds of a load's request; null if peaks
    rank."""
    relative_usd: float | None
    """Relative dollars of the whole job; null without an amount of work."""


@dataclass(slots=True)
class AvailabilityResponse:
    """Current availability. Always `unknown` for now: no feed reports capacity."""

    state: Literal["unknown"]
    confidence: Annotated[float | None, Field(description="Always null for now.")]
    observed_on: Annotated[date | None, Field(description="Always null for now.")]


@dataclass(slots=True)
class ChoiceResponse(Described):
    """A ranked offer."""

    rank: int
    """1 is the best choice; see `tied_with`."""
    provider: str
    instance: str
    """Name of the instance type at the provider."""
    region: str | None
    """Null: the source names no region."""
    zone: str | None
    """Zone of a spot price; null if the price holds in the whole region."""
    market: str
    """`on_demand`, `spot` or `reserved`; `price.term` has the commitment of a reserved offer."""
    nodes: int
    """Machines that run one instance of the job together."""
    instances: int
    """Independent copies of the job's machines, which share the work."""
    gpu: ChosenGpuResponse | None
    """Null: the machine has no GPU."""
    platform: Annotated[str | None, Field(description="What its code is written for, such as `cuda`; null: unknown.")]
    code_change_required: Annotated[
        str | None,
        Field(description="What has to change in code written for CUDA; null if nothing has to."),
    ]
    usd_per_hour: float | None
    """Price of all machines, with the premium of a managed service; null: unknown."""
    price: PriceResponse
    """The price of one machine from its seller, to which a managed service adds its premium."""
    estimate: Annotated[
        JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse,
        Field(description="A job by formulas, a named workload by measurements, or peaks: `basis` says which."),
    ]
    placement: PlacementResponse | None
    """Whether several nodes must be close together; null for one node."""
    cost: CostResponse | None
    """The bill, as `POST /estimate` gives it for the same run and offer; null if peaks rank."""
    serving: PricedLoadResponse | None
    """The instances that serve a load; null without."""
    spot: SpotResponse | None
    """Interruptions; null unless at spot with a known rate."""
    specs: InstanceTypeResponse
    compared_to_current: ComparedToCurrentResponse | None
    """Null without `current_instance`."""
    reasons: list[StatementResponse]
    """Why the choice has its rank, in the figures that decide."""
    host: HostResponse
    availability: AvailabilityResponse
    warnings: list[StatementResponse]
    """Risks of the choice, and assumptions of its estimate."""
    evidence: list[EvidenceResponse]
    """The measurement from which the rate follows, if there is one, and then the published runs nearest to the
    question; empty if peaks rank."""
    tied_with: list[int]
    """Ranks of other choices from which the estimates cannot distinguish this one."""
    pareto: bool
    """Whether no candidate is both cheaper and faster: over the whole job, in a request of a load, else by price and
    peak."""


@dataclass(slots=True)
class RelaxationBestResponse:
    """The best of the types that a relaxation admits."""

    instance: Annotated[str, Field(description="The instance type, as `provider/name`.")]
    region: Annotated[str | None, Field(description="Null: the source names no region.")]
    market: Annotated[str, Field(description="`on_demand`, `spot` or `reserved`.")]
    usd_per_hour: Annotated[float | None, Field(description="Price of all its machines; null: unknown.")]


@dataclass(slots=True)
class RelaxationResponse(Described):
    """The smallest change of one constraint that admits at least one more instance type.

    A limit on a time of a load that is given as a rate is raised to 1.5 times the shortest possible time, because only
    thousands of idle instances would keep that one.
    """

    to: dict[str, Any]
    """Fields of `constraints`, or paths into the request, with new values; null removes a field."""
    admits: int
    """Instance types that are then admitted, and are not now."""
    drops: int
    """Instance types that are admitted now and no longer after the change. Types without a known price give way to the
    first ones with a price. For a job that is not fault-tolerant, types sold at spot alone do not count next to other
    markets."""
    best: RelaxationBestResponse


@dataclass(slots=True)
class RejectionResponse(Described):
    """How many instance types a constraint rejected."""

    code: str
    """A code of `rejections` in `GET /recommend/codes`."""
    ground: str
    """`hardware`, `software`, `availability`, `constraint` (of the caller) or `data` (a figure is unknown)."""
    text: str
    count: int
    """Instance types that it rejects; other constraints may reject them too."""
    only_this: int
    """How many of these types no other constraint rejects."""
    instances: list[str]
    """Up to three of these types, first those that no other constraint rejects."""
    relax: RelaxationResponse | None
    """Null: no change of this constraint alone admits a type."""


@dataclass(slots=True)
class FailedConstraintResponse:
    """A constraint that rejects an instance type."""

    code: Annotated[str, Field(description="A code of `rejections` in `GET /recommend/codes`.")]
    ground: Annotated[str, Field(description="The ground, as in `rejections`.")]
    text: str


@dataclass(slots=True)
class ExplainedResponse:
    """An instance type of `explain`, with every constraint that rejects it."""

    instance: Annotated[str, Field(description="The instance type, as `provider/name`.")]
    admitted: bool
    grounds: Annotated[list[FailedConstraintResponse], Field(description="Empty if it is admitted.")]


@dataclass(slots=True)
class PriorResponse(Described):
    """A published rule of thumb, and whether the answer follows it."""

    kind: Literal["prior"]
    """Always `prior`: a rule of thumb and not a figure."""
    id: str
    """Id of the rule."""
    verdict: Literal["followed", "overridden", "open"]
    """`overridden`: figures or measurements contradict it; `open`: a figure is unknown."""
    text: str
    min_gpus: int | None
    """Fewest GPUs by the rule; null: it states none."""
    max_gpus: int | None
    """Most GPUs by the rule; null: it states none."""
    deadline_hours: float | None
    """Hours that such work may take by the rule; null: it states none."""
    source: str
    published_on: str | None
    """Year, month or day of the source; null: unknown."""


@dataclass(slots=True)
class CurrentInstanceResponse(Described):
    """The caller's current instance, priced and rated like a choice."""

    instance: str
    """The instance type, as `provider/name`."""
    market: str
    """`on_demand`, `spot` or `reserved`."""
    nodes: int
    """Machines of the current cluster."""
    usd_per_hour: float | None
    """Price of all nodes."""
    estimate: JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse | None
    """Null: it cannot run the job; `grounds` say why."""
    grounds: list[FailedConstraintResponse]
    """Every constraint that rejects it; empty if it is admitted."""


@dataclass(slots=True)
class CountsResponse:
    """Numbers of instance types on the catalog's day: each is either admitted or rejected."""

    considered: Annotated[int, Field(description="`admitted` + `rejected`.")]
    admitted: Annotated[int, Field(description="Types that pass every constraint.")]
    rejected: Annotated[int, Field(description="Types that a constraint rejects.")]


@with_config(BUILT_AT_FIRST_USE)
@dataclass(slots=True)
class RecommendResponse(Described):
    """Ranked choices, and why other instance types were rejected."""

    catalog: CatalogStamp
    question: RecommendRequest
    """The question with every default filled in."""
    counts: CountsResponse
    choices: list[ChoiceResponse]
    """The admitted offers, the best first, up to `limit`."""
    rejections: list[RejectionResponse]
    """Why types were rejected, one entry per constraint."""
    current: CurrentInstanceResponse | None
    """Null without `current_instance`, or if it has no offer."""
    advice: list[StatementResponse]
    """Changes of the workload or the question that would help."""
    notes: list[NoteResponse]
    """Remarks on the whole answer."""
    priors: list[PriorResponse]
    """Rules of thumb that apply to the question."""
    explained: list[ExplainedResponse]
    """The instance types of `explain`."""
    disclaimer: Annotated[str, Field(description="What the ranking rests on, the same in every answer.")]


DISCLAIMER = (
    "The ranking follows from the figures and sources that it names. It endorses no provider: measure your own "
    "workload before a long run."
)
AVAILABILITY = AvailabilityResponse(state="unknown", confidence=None, observed_on=None)


def rendered(request: RecommendRequest, answer: Answer, catalog: Catalog) -> RecommendResponse:
    """Returns the answer without its choices; `request` is the question with every default filled in."""
    return RecommendResponse(
        catalog=stamp(catalog),
        question=request,
        counts=CountsResponse(answer.considered, answer.admitted, answer.considered - answer.admitted),
        choices=[],
        rejections=[_rejection(rejection) for rejection in answer.rejections],
        current=_current(answer),
        advice=[with_text(advice) for advice in answer.advice],
        notes=[note_response(note) for note in answer.notes],
        priors=[_prior(prior, catalog) for prior in answer.priors],
        explained=[_explained(explained) for explained in answer.explained],
        disclaimer=DISCLAIMER,
    )


def choice_response(choice: Choice, catalog: Catalog, *, together: bool) -> ChoiceResponse:
    """Returns a choice as it is shown; `together` says whether nodes must be placed together."""
    instance_type, offer = choice.instance_type, choice.offer
    gpu, estimate = instance_type.gpu, choice.estimate
    assert estimate is not None, "every choice can run the job"
    if isinstance(estimate, WorkEstimate):
        work = catalog.derive(_work, estimate, choice.offer_index, cache=catalog.outlooks)
    else:
        work = _WorkFields(PriceResponse.of(offer), estimate_response(estimate), [])
    return ChoiceResponse(
        rank=choice.rank,
        provider=instance_type.provider,
        instance=instance_type.name,
        region=offer.region,
        zone=offer.zone,
        market=offer.market,
        nodes=choice.nodes,
        instances=choice.instances,
        gpu=None if gpu is None else ChosenGpuResponse(gpu.id, instance_type.gpu_count),
        platform=instance_type.platform,
        code_change_required=choice.code_change,
        usd_per_hour=money(choice.usd_per_hour),
        placement=None if choice.nodes == 1 else PlacementResponse(together, placement_text(choice, together=together)),
        specs=catalog.derive(_specs, choice.index),
        compared_to_current=None if choice.comparison is None else like(ComparedToCurrentResponse, choice.comparison),
        reasons=[with_text(reason) for reason in choice.reasons],
        host=_host(choice.host),
        availability=AVAILABILITY,
        warnings=[with_text(warning) for warning in choice.warnings],
        tied_with=list(choice.tied.ranks),
        pareto=choice.pareto,
        **work._asdict(),
    )


class _WorkFields(NamedTuple):
    """The fields of a choice that depend on its offer and its work alone."""

    price: PriceResponse
    estimate: JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse
    evidence: list[EvidenceResponse]
    cost: CostResponse | None = None
    serving: PricedLoadResponse | None = None
    spot: SpotResponse | None = None


def _work(catalog: Catalog, work: WorkEstimate, offer_index: int) -> _WorkFields:
    """Returns the fields of a choice that depend on its offer and its work alone; many answers share them."""
    offer = catalog.offers.offer(offer_index)
    return _WorkFields(
        price=PriceResponse.of(offer),
        estimate=estimate_response(work),
        cost=CostResponse.of(work.bill, catalog.instance_types[offer.instance_type]),
        serving=priced_load(work.modelled, work.bill),
        spot=None if work.spot is None else spot_response(work.spot),
        evidence=evidence_of(work.measured, work.evidence),
    )


def _specs(catalog: Catalog, index: int) -> InstanceTypeResponse:
    """Returns the instance type as every endpoint shows it; made once per catalog."""
    return InstanceTypeResponse.of(catalog.instance_types[index], catalog.day)


def _host(host: HostNeeds) -> HostResponse:
    memory = host.needed_memory_bytes
    figures = (host.needed_vcpus, host.ideal_vcpus, None if memory is None else memory / GIB)
    return HostResponse(*map(rounded, figures))


def _current(answer: Answer) -> CurrentInstanceResponse | None:
    current, grounds = answer.current, answer.current_explained
    if current is None or grounds is None:
        return None
    estimate = current.estimate
    return CurrentInstanceResponse(
        instance=current.instance_type.id,
        market=current.offer.market,
        nodes=current.nodes,
        usd_per_hour=money(current.usd_per_hour),
        estimate=None if estimate is None else estimate_response(estimate),
        grounds=_explained(grounds).grounds,
    )


def _explained(explained: Explained) -> ExplainedResponse:
    grounds = [FailedConstraintResponse(code, ground, REJECTIONS[code]) for code, ground in explained.grounds]
    return ExplainedResponse(explained.instance, explained.admitted, grounds)


def _prior(cited: CitedPrior, catalog: Catalog) -> PriorResponse:
    prior = cited.prior
    return like(
        PriorResponse,
        prior,
        kind="prior",
        verdict=cited.verdict,
        text=prior_text(cited),
        published_on=catalog.reference.sources[prior.source].published_on,
    )


# Rejections


def _rejection(rejection: Rejection) -> RejectionResponse:
    return RejectionResponse(
        code=rejection.code,
        ground=rejection.ground,
        text=rejection_text(rejection),
        count=rejection.rejects,
        only_this=rejection.only_this,
        instances=list(rejection.instances),
        relax=None if rejection.relaxation is None else _relaxation(rejection.relaxation),
    )


def _relaxation(relaxation: RelaxationOutcome) -> RelaxationResponse:
    usd = money(relaxation.usd_per_hour)
    best = RelaxationBestResponse(relaxation.instance_type.id, relaxation.region, relaxation.market, usd)
    return RelaxationResponse(relaxation.to, relaxation.admits, relaxation.drops, best)
