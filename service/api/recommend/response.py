"""The answer of POST /recommend, rendered from the domain's values."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import Field

from service.api.catalog.instance_type import InstanceTypeResponse, PriceResponse
from service.api.estimate.cost_response import CostResponse
from service.api.estimate.response import (
    BandResponse,
    ModelledEstimateResponse,
    MoneyResponse,
    like,
    modelled_estimate,
    own_run,
    published_run,
    rounded,
    shown,
    shown_fields,
)
from service.api.estimate.serving import PricedLoadResponse, priced_load
from service.api.http.current import CatalogStamp, stamp
from service.api.http.fields import NoteResponse, StatementResponse
from service.api.recommend.codes import REJECTIONS
from service.api.recommend.request import RecommendRequest
from service.api.recommend.sentences import note_response, placement_text, prior_text, rejection_text, with_text
from service.domain.band import Band
from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import (
    Answer,
    Choice,
    CitedPrior,
    CurrentComparison,
    Explained,
    HostNeeds,
    PeakEstimate,
    Rejection,
    RelaxationOutcome,
    SpotEstimate,
    WorkEstimate,
)
from service.domain.units import GIB

HOURS = "Hours until the whole amount is done, with interruptions, waiting for capacity, set-up and idle time."
USD = "Dollars of the whole job, as in `cost.usd`; null without a price or an amount of work."


@dataclass(slots=True)
class ChosenGpuResponse:
    """The GPU of a choice."""

    id: str
    per_node: int


@dataclass(slots=True)
class PeakEstimateResponse:
    """The figures that rank a choice without a model: the vendor's peak rates, not a predicted speed."""

    basis: Literal["peak"]
    precision: str | None
    peak_tflops: Annotated[
        float | None, Field(description="Dense peak of the machine at the precision, in 10^12 operations per second.")
    ]
    peak_tflops_per_usd_hour: float | None
    peak_tflops_per_watt: float | None


@dataclass(slots=True)
class JobEstimateResponse(ModelledEstimateResponse):
    """The job on all instances of a choice, and its cost there."""

    hours: Annotated[BandResponse | None, Field(description=HOURS)]
    usd: Annotated[MoneyResponse | None, Field(description=USD)]
    samples_per_usd: float | None


@dataclass(slots=True)
class MeasuredEstimateResponse:
    """Figures of a workload without a model: measured on this machine, or scaled from the most similar one."""

    basis: Literal["measured", "scaled"]
    samples_per_second: BandResponse
    hours: Annotated[BandResponse | None, Field(description=f"{HOURS} Null without an amount in samples.")]
    usd: Annotated[MoneyResponse | None, Field(description=USD)]
    samples_per_usd: float | None
    joules_per_sample: Annotated[float | None, Field(description="Energy of a sample at the rated power of the GPUs.")]


@dataclass(slots=True)
class SpotResponse:
    """Expected cost of interruptions at spot, of all nodes and instances together."""

    interruptions: BandResponse
    interruptions_per_hour: BandResponse
    checkpoint_interval_minutes: float
    stretch: Annotated[float, Field(description="Paid hours over the hours of a run without interruptions.")]
    paid_hours: BandResponse
    notice_seconds: Annotated[int | None, Field(description="Seconds between the warning and the end of a machine.")]
    break_even_interruptions_per_hour: Annotated[
        float | None,
        Field(
            description="Interruptions per hour at which on demand costs the same in the region; null if spot "
            "never pays."
        ),
    ]
    basis: str
    source: str | None


@dataclass(slots=True)
class PlacementResponse:
    """Where the nodes of a choice must be placed."""

    together: bool
    text: str


@dataclass(slots=True)
class HostResponse:
    """vCPUs and memory that the host of each node should have; null: unknown. `specs` says what the host has."""

    needed_vcpus: float | None
    ideal_vcpus: float | None
    needed_memory_gib: float | None


@dataclass(slots=True)
class ComparedToCurrentResponse:
    """The choice relative to the caller's current instance."""

    relative_usd_per_hour: float | None
    relative_peak: Annotated[
        float | None, Field(description="Peak relative to that of the current instance, if peaks rank; null for a job.")
    ]
    relative_speed: Annotated[
        float | None, Field(description="Relative samples per second of a job; null if peaks rank.")
    ]
    relative_usd: Annotated[
        float | None, Field(description="Relative dollars of the whole job; null without an amount of work.")
    ]


@dataclass(slots=True)
class AvailabilityResponse:
    """Current availability. Always `unknown` for now: no feed reports capacity."""

    state: Literal["unknown"]
    confidence: float | None
    observed_on: date | None


@dataclass(slots=True)
class ChoiceResponse:
    """A ranked offer."""

    rank: int
    provider: str
    instance: str
    region: str | None
    zone: str | None
    market: str
    nodes: Annotated[int, Field(description="Machines that run one instance of the job together.")]
    instances: Annotated[int, Field(description="Independent copies of the job's machines, which share the work.")]
    gpu: ChosenGpuResponse | None
    platform: Annotated[str | None, Field(description="What its code is written for, such as `cuda`; null: unknown.")]
    code_change_required: Annotated[
        str | None,
        Field(description="What has to change in code written for CUDA; null if nothing has to."),
    ]
    usd_per_hour: Annotated[float | None, Field(description="Price of all machines; null: unknown.")]
    price: PriceResponse
    estimate: JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse
    placement: Annotated[
        PlacementResponse | None, Field(description="Whether several nodes must be close together; null for one node.")
    ]
    cost: Annotated[
        CostResponse | None,
        Field(description="The bill, as `POST /estimate` gives it for the same run and offer; null if peaks rank."),
    ]
    serving: Annotated[PricedLoadResponse | None, Field(description="The instances that serve a load; null without.")]
    spot: Annotated[SpotResponse | None, Field(description="The cost of interruptions; null unless a job is at spot.")]
    specs: InstanceTypeResponse
    compared_to_current: ComparedToCurrentResponse | None
    reasons: list[StatementResponse]
    host: HostResponse
    availability: AvailabilityResponse
    warnings: list[StatementResponse]
    evidence: list[dict[str, str]]
    tied_with: Annotated[
        list[int],
        Field(description="Ranks of other choices from which the estimates cannot distinguish this one."),
    ]
    pareto: Annotated[
        bool,
        Field(
            description="Whether no candidate is both cheaper and faster: over the whole job, else by price and peak."
        ),
    ]


@dataclass(slots=True)
class RelaxationBestResponse:
    """The best of the types that a relaxation admits."""

    instance: str
    region: str | None
    market: str
    usd_per_hour: float | None


@dataclass(slots=True)
class RelaxationResponse:
    """The smallest change of one constraint that admits at least one more instance type."""

    to: Annotated[
        dict[str, Any],
        Field(description="Fields of `constraints`, or paths into the request, with new values; null removes a field."),
    ]
    admits: Annotated[int, Field(description="Instance types that are then admitted.")]
    best: RelaxationBestResponse


@dataclass(slots=True)
class RejectionResponse:
    """How many instance types a constraint rejected."""

    code: str
    ground: str
    text: str
    count: int
    only_this: Annotated[int, Field(description="How many of these types no other constraint rejects.")]
    instances: Annotated[
        list[str], Field(description="Up to three of these types, first those that no other constraint rejects.")
    ]
    relax: RelaxationResponse | None


@dataclass(slots=True)
class FailedConstraintResponse:
    """A constraint that rejects an instance type."""

    code: str
    ground: str
    text: str


@dataclass(slots=True)
class ExplainedResponse:
    """An instance type of `explain`, with every constraint that rejects it."""

    instance: str
    admitted: bool
    grounds: list[FailedConstraintResponse]


@dataclass(slots=True)
class PriorResponse:
    """A published rule of thumb, and whether the answer follows it."""

    kind: Literal["prior"]
    id: str
    verdict: Annotated[
        Literal["followed", "overridden", "open"],
        Field(description="`overridden`: figures or measurements contradict it; `open`: a figure is unknown."),
    ]
    text: str
    min_gpus: int | None
    max_gpus: int | None
    deadline_hours: float | None
    source: str
    published_on: str | None


@dataclass(slots=True)
class CurrentInstanceResponse:
    """The caller's current instance, priced and rated like a choice."""

    instance: str
    market: str
    nodes: int
    usd_per_hour: Annotated[float | None, Field(description="Price of all nodes.")]
    estimate: JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse | None


@dataclass(slots=True)
class CountsResponse:
    """Numbers of instance types on the catalog's day: each is either admitted or rejected."""

    considered: int
    admitted: int
    rejected: int


@dataclass(slots=True)
class RecommendResponse:
    """Ranked choices, and why other instance types were rejected."""

    catalog: CatalogStamp
    question: Annotated[RecommendRequest, Field(description="The question with every default filled in.")]
    counts: CountsResponse
    choices: list[ChoiceResponse]
    rejections: list[RejectionResponse]
    current: CurrentInstanceResponse | None
    advice: list[StatementResponse]
    notes: list[NoteResponse]
    priors: Annotated[list[PriorResponse], Field(description="Rules of thumb that apply to the question.")]
    explained: Annotated[list[ExplainedResponse], Field(description="The instance types of `explain`.")]
    disclaimer: str


DISCLAIMER = (
    "The ranking follows from the figures and sources that it names. It endorses no provider: measure your own "
    "workload before a long run."
)
NO_WORK: dict[str, Any] = {"cost": None, "serving": None, "spot": None, "evidence": []}
AVAILABILITY = AvailabilityResponse(state="unknown", confidence=None, observed_on=None)


def rendered(request: RecommendRequest, answer: Answer, catalog: Catalog) -> RecommendResponse:
    """Returns the answer without its choices; `request` is the question with every default filled in."""
    return RecommendResponse(
        catalog=stamp(catalog),
        question=request,
        counts=CountsResponse(answer.considered, answer.admitted, answer.considered - answer.admitted),
        choices=[],
        rejections=[_rejection(rejection) for rejection in answer.rejections],
        current=None if answer.current is None else _current(answer.current),
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
        work = NO_WORK | {"price": PriceResponse.of(offer), "estimate": _estimate(estimate)}
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
        usd_per_hour=_usd_per_hour(choice),
        placement=None if choice.nodes == 1 else PlacementResponse(together, placement_text(choice, together=together)),
        specs=catalog.derive(_specs, choice.index),
        compared_to_current=None if choice.comparison is None else _compared(choice.comparison),
        reasons=[with_text(reason) for reason in choice.reasons],
        host=_host(choice.host),
        availability=AVAILABILITY,
        warnings=[with_text(warning) for warning in choice.warnings],
        tied_with=list(choice.tied.ranks),
        pareto=choice.pareto,
        **work,
    )


def _work(catalog: Catalog, work: WorkEstimate, offer_index: int) -> dict[str, Any]:
    """Returns the fields of a choice that depend on its offer and its work alone; many answers share them."""
    offer = catalog.offers.offer(offer_index)
    return {
        "price": PriceResponse.of(offer),
        "estimate": _estimate(work),
        "cost": CostResponse.of(work.bill, catalog.instance_types[offer.instance_type]),
        "serving": priced_load(work.modelled, work.bill),
        "spot": None if work.spot is None else _spot(work.spot),
        "evidence": [*own_run(work.measured), *map(published_run, work.evidence)],
    }


def _specs(catalog: Catalog, index: int) -> InstanceTypeResponse:
    """Returns the instance type as every endpoint shows it; made once per catalog."""
    return InstanceTypeResponse.of(catalog.instance_types[index], catalog.day)


def _usd_per_hour(choice: Choice) -> float | None:
    usd = choice.usd_per_hour
    return usd if usd is None or choice.machines == 1 else rounded(usd)


def _host(host: HostNeeds) -> HostResponse:
    memory = host.needed_memory_bytes
    figures = (host.needed_vcpus, host.ideal_vcpus, None if memory is None else memory / GIB)
    return HostResponse(*(None if figure is None else round(figure, 3) for figure in figures))


def _compared(comparison: CurrentComparison) -> ComparedToCurrentResponse:
    return ComparedToCurrentResponse(
        relative_usd_per_hour=ratio(comparison.usd_per_hour),
        relative_peak=ratio(comparison.peak),
        relative_speed=ratio(comparison.speed),
        relative_usd=ratio(comparison.usd),
    )


def ratio(value: float | None) -> float | None:
    """Returns a ratio with four decimals, or four digits if it is below 1, so that a ratio above 0 never becomes 0."""
    if value is None:
        return None
    # Four decimals alone would show a ratio of 0.00003 as 0.
    return round(value, 4) if value >= 1 else float(f"{value:.4g}")


def _current(current: Choice) -> CurrentInstanceResponse:
    usd, estimate = current.usd_per_hour, current.estimate
    return CurrentInstanceResponse(
        instance=current.instance_type.id,
        market=current.offer.market,
        nodes=current.nodes,
        usd_per_hour=None if usd is None else rounded(usd),
        estimate=None if estimate is None else _estimate(estimate),
    )


# Estimates


def _estimate(
    estimate: WorkEstimate | PeakEstimate,
) -> JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse:
    if isinstance(estimate, WorkEstimate):
        return _work_estimate(estimate)
    return PeakEstimateResponse(
        basis="peak",
        precision=estimate.precision,
        peak_tflops=estimate.tflops,
        peak_tflops_per_usd_hour=_four_decimals(estimate.tflops_per_usd_hour),
        peak_tflops_per_watt=_four_decimals(estimate.tflops_per_watt),
    )


def _four_decimals(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _work_estimate(estimate: WorkEstimate) -> JobEstimateResponse | MeasuredEstimateResponse:
    measured, instances = estimate.measured, estimate.instances
    if estimate.modelled is None:
        assert measured is not None
        return like(MeasuredEstimateResponse, estimate, basis=measured.basis)
    # An estimate is of one instance; rates, requests and hours of a choice are of all its instances together.
    physics = estimate.modelled.estimate
    of_all = ("samples_per_second", "hours", "joules_per_sample", "usd", "samples_per_usd")
    return modelled_estimate(
        JobEstimateResponse,
        estimate.modelled,
        basis="modelled" if measured is None else measured.basis,
        tokens_per_second=_of_all(physics.tokens_per_second, instances),
        prefill_tokens_per_second=_of_all(physics.prefill_tokens_per_second, instances),
        concurrency=None if physics.concurrency is None else rounded(physics.concurrency * instances),
        **shown_fields(estimate, *of_all),
    )


def _of_all(rate: Band | None, instances: int) -> BandResponse | None:
    return None if rate is None else BandResponse.of(rate.times(instances))


def _spot(spot: SpotEstimate) -> SpotResponse:
    expected = spot.expected
    return like(
        SpotResponse,
        expected,
        checkpoint_interval_minutes=rounded(expected.interval_seconds / 60),
        paid_hours=BandResponse.of(expected.hours),
        break_even_interruptions_per_hour=shown(spot.break_even_per_hour),
        **shown_fields(spot, "interruptions", "interruptions_per_hour", "notice_seconds"),
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
    best = RelaxationBestResponse(
        relaxation.instance_type.id, relaxation.region, relaxation.market, relaxation.usd_per_hour
    )
    return RelaxationResponse(relaxation.to, relaxation.admits, best)
