"""The question that a recommendation answers, and the answer, as immutable values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from service.domain.band import Band
from service.domain.bill.bill import usd_of_hour
from service.domain.bill.interruption import Checkpoints, Expectation
from service.domain.bill.market_bills import BreakEven, MarketBill
from service.domain.bill.run import ONE_MACHINE, Run
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import Market, Offer
from service.domain.catalog.reference import Prior, ServiceFee
from service.domain.codes import AdviceCode, NoteCode, ReasonCode, RejectionCode, WarningCode
from service.domain.evidence.named import NamedRate, NamedWork
from service.domain.evidence.published import Evidence
from service.domain.jobs.job import Job
from service.domain.jobs.loading import SampleLoading
from service.domain.jobs.serving import Serving
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import MICRO, Micros
from service.domain.physics.cluster import Cluster
from service.domain.recommend.objective import Objective
from service.domain.selection.constraints import Constraints
from service.domain.selection.requirements import NOTHING, Requirements
from service.domain.statement import Statement


class Limits(NamedTuple):
    """Limits on a job: for its likely figures or, if `safe`, for those that one run in ten exceeds."""

    deadline_hours: float | None = None
    budget_usd: float | None = None
    max_usd_per_million_tokens: float | None = None
    """Limit on the dollars for a million tokens that are written or trained on, or read if none are written."""
    max_instances: int = 1
    """Maximum number of independent instances that share the work."""
    safe: bool = False
    load: Serving | None = None
    """The load that instances serve together, with limits of its own."""

    def changed(self, to: Mapping[str, Any]) -> "Limits":
        """Returns the limits with new values, given by field. Fields of the load change the load."""
        if self.load is None:
            return self._replace(**to)
        of_load = {field: limit for field, limit in to.items() if field in self.load.limits}
        others = {field: limit for field, limit in to.items() if field not in of_load}
        return self._replace(load=replace(self.load, **of_load), **others)

    @property
    def bind(self) -> bool:
        """Whether the limits can decide between numbers of nodes: some may miss a limit that others keep."""
        return self.load is not None or self.deadline_hours is not None or self.in_dollars

    @property
    def in_dollars(self) -> bool:
        """Whether prices decide if the limits are kept."""
        return any(getattr(self, field) is not None for field in LIMITS_IN_DOLLARS)


class LimitKind(NamedTuple):
    """A limit that a plan keeps or misses."""

    code: RejectionCode
    """The code of the rejection of types that miss it."""
    parts: int
    """A relaxation rounds the limit up to a multiple of 1 / `parts` of its unit."""
    prefix: str = ""
    """Path to the field, from the constraints of the question."""
    over_least: float = 1.0
    """The limit that a relaxation proposes, as a multiple of the least figure of any number of instances. It applies
    where requests arrive at random and the question does not limit the instances."""


TIME_OVER_LEAST = 1.5
"""A proposed limit on a time under random arrivals, in multiples of the least time (assumed): only thousands of idle
instances keep the least itself."""

LIMITS_BY_FIELD = {
    "max_seconds_to_first_token": LimitKind(
        RejectionCode.TOO_SLOW_FIRST_TOKEN, 10_000, "workload.serving.", TIME_OVER_LEAST
    ),
    "max_seconds_per_output_token": LimitKind(
        RejectionCode.TOO_SLOW_PER_TOKEN, 100_000, "workload.serving.", TIME_OVER_LEAST
    ),
    "max_seconds_per_request": LimitKind(
        RejectionCode.TOO_SLOW_PER_REQUEST, 1000, "workload.serving.", TIME_OVER_LEAST
    ),
    "max_instances": LimitKind(RejectionCode.MAX_INSTANCES, 1),
    "deadline_hours": LimitKind(RejectionCode.DEADLINE_HOURS, 1000),
    "budget_usd": LimitKind(RejectionCode.BUDGET_USD, 100),
    "max_usd_per_million_tokens": LimitKind(RejectionCode.USD_PER_MILLION_TOKENS, MICRO),
}
"""The limits on a plan, by the field of the question that states each one.

A plan must keep all of them. A type without such a plan is rejected for each limit that none of its plans keeps, and
for each limit that admits it if it alone is raised. Without such a limit, it is rejected for the last one given."""


LIMITS_IN_DOLLARS = ("budget_usd", "max_usd_per_million_tokens")
"""The limits that prices decide."""


class WorkContext(NamedTuple):
    """The part of a question on which choices and advice depend, apart from constraints and objective."""

    task: str
    job: Job | NamedWork | None = None
    """The job, which is ranked by physics, or work that is known by its name and ranked by measurements. Without
    either, peaks rank."""
    framework: str | None = None
    """The name that the caller wrote, with versions."""
    needs: Requirements = NOTHING
    loading: SampleLoading = SampleLoading()
    samples: float | None = None
    """Samples of one epoch, if the amount is given in samples."""
    concurrent_runs: int = 1
    fault_tolerant: bool = False
    refused_precisions: tuple[str, ...] = ()
    """Precisions that the workload cannot tolerate."""
    asked_precision: str | None = None
    """The precision that the caller lets faster formats replace."""
    current_instance: str | None = None
    providers: tuple[str, ...] = ()
    """Requested providers; empty for any."""
    part_of_gpu: float | None = None
    """The part of a card that the caller asks for, by a minimum or maximum of GPUs below 1."""
    commitments_held: tuple[str, ...] = ()

    @property
    def has_amount(self) -> bool:
        """Whether there is a job with an amount of work."""
        return self.job is not None and self.job.amount is not None


class Question(NamedTuple):
    """A request in the catalog's own words."""

    work: WorkContext
    precisions: tuple[str, ...]
    """Requested precisions in order of preference; empty for the fastest of the task's usual ones on each GPU."""
    constraints: Constraints
    objective: Objective
    limit: int
    per_offer: bool
    name: str | None = None
    """The name under which the workload was measured."""
    nodes: tuple[int, int] = (1, 1)
    """Minimum and maximum number of nodes."""
    limits: Limits = Limits()
    checkpoints: Checkpoints = Checkpoints(save_seconds=0.0, restart_seconds=0.0)
    run: Run = ONE_MACHINE
    """The set-up, idle time and data that are paid for with a job."""
    diversify: bool = False
    usual: tuple[str, ...] = ()
    """Precisions to choose from where none is named and the workload does not tolerate all of the task's usual ones."""
    given: frozenset[str] = frozenset()
    """Paths of the fields that the caller set, such as `workload.amount`."""
    spot_left_out: bool = False
    """Whether spot was removed from the requested markets, because the workload is not fault-tolerant."""
    software_unknown: tuple[tuple[str, str], ...] = ()
    """Software without any rule, each with the field that names it."""
    previous_objective: Objective | None = None
    """The objective of an earlier question, to be compared with."""
    explain: tuple[str, ...] = ()
    """Instance types whose rejections are explained one by one."""
    subjects: Mapping[str, str] = MappingProxyType({})
    """The data set, the goal and the size of the model by request field, in small letters with underscores."""

    @property
    def managed_service(self) -> str | None:
        """The managed service that the machines are rented through."""
        return self.constraints.managed_service

    @property
    def modelled(self) -> Job | None:
        """The job, if physics can estimate it."""
        return None if isinstance(self.work.job, NamedWork) else self.work.job

    @property
    def asks_for_least_hardware(self) -> bool:
        """Whether the caller asked for the cheapest hour of a machine for any work.

        Where no price is known, a weak GPU is assumed to be cheapest.
        """
        by_value = self.objective.weights.get("samples_per_usd")
        return self.work.job is None and not by_value and "objective" in self.given


@dataclass(frozen=True, slots=True)
class Note:
    """A remark on the whole answer, and the fields of the question that it concerns."""

    code: NoteCode
    fields: tuple[str, ...]
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeakEstimate:
    """Peak rates, by which choices without a job are ranked, in 10^12 operations per second of all machines."""

    precision: str | None
    peak_tflops: float | None
    peak_tflops_per_usd_hour: float | None
    peak_tflops_per_watt: float | None


@dataclass(frozen=True, slots=True)
class SpotEstimate:
    """Interruptions of a choice on spot machines: `expected` and `break_even` of one instance, the others of all."""

    expected: Expectation
    interruptions: Band
    interruptions_per_hour: Band
    notice_seconds: int | None
    break_even: BreakEven | None
    """The comparison with on demand in the same region; None if no on-demand bill is known there."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkEstimate:
    """A job on a choice; rates are of all instances. Compared by identity, because choices of many answers share it."""

    modelled: JobEstimate | None
    """The physics of one instance, on `cluster`."""
    cluster: Cluster | None
    instances: int
    measured: NamedRate | None
    """The rate of one machine that was measured or scaled under the workload's name; it replaces the modelled one."""
    samples_per_second: Band | None
    hours: Band | None
    """Hours until the work is done, with interruptions, waiting, set-up and idle time."""
    bill: MarketBill
    """The bill, equal to that of `POST /estimate` for the same run on the same offer."""
    samples_per_usd: float | None
    joules_per_sample: float | None
    """At the power that was measured with the work, else the rated power of the GPUs."""
    spot: SpotEstimate | None
    evidence: tuple[Evidence, ...]
    """The nearest published runs."""

    @property
    def usd(self) -> Micros | None:
        """Dollars of the whole job; None without a price or an amount of work."""
        return self.bill.usd


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """CPU cores and memory that each node's host should have."""

    needed_vcpus: float | None
    ideal_vcpus: float | None
    needed_memory_bytes: float | None


@dataclass(frozen=True, slots=True)
class CurrentComparison:
    """Figures of a choice divided by those of the current machine; None if one of them is unknown or does not apply."""

    relative_usd_per_hour: float | None
    relative_peak: float | None
    relative_speed: float | None
    relative_usd: float | None


class Ties(NamedTuple):
    """Choices that are tied with one choice: the ranks of those in the answer, and whether there are others."""

    ranks: tuple[int, ...] = ()
    beyond: bool = False

    @classmethod
    def among(cls, ranks: Iterable[int], shown: int) -> "Ties":
        """Returns ties with these ranks; the answer has the ranks up to `shown`."""
        ranks = tuple(ranks)
        within = tuple(rank for rank in ranks if rank <= shown)
        return cls(within, len(within) < len(ranks))


UNTIED = Ties()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFigures:
    """The figures of a ranked offer that the basis of its ranking decides."""

    speed: float | None
    """Samples per second of all nodes; without a job, the peak in 10^12 operations per second, or the vCPUs."""
    nodes: int
    instances: int
    precision: str | None = None
    """The precision of the peak; None for a job, whose estimate has it."""
    hours: float | None = None
    """Likely hours until the job is done, interruptions included; None without an amount of work."""
    usd: float | None = None
    """Likely cost of the whole job, or of an hour if there is no amount; None without a job or a price."""
    samples_per_usd: float | None = None
    seconds_per_request: float | None = None
    """Seconds of a request of a load whose rate is given, at its percentile; None for other work."""
    joules_per_sample: float | None = None
    """At the power that was measured with the work, else the rated power of the GPUs; None where peaks rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedOffer(OfferFigures):
    """An offer in the order of the ranking."""

    rank: int
    instance_type: InstanceType
    index: int
    """Index of the instance type in the catalog."""
    offer_index: int
    offer: Offer
    score: float
    service_fee: ServiceFee = None
    """The premium of the managed service that rents the machines."""
    tied: Ties = UNTIED
    pareto: bool = False

    @property
    def machines(self) -> int:
        """Number of machines: the nodes of all instances."""
        return self.nodes * self.instances

    @property
    def watts(self) -> float | None:
        """Rated power of the GPUs of all machines."""
        watts = self.instance_type.tdp_watts
        return None if watts is None else watts * self.machines

    @property
    def usd_per_hour(self) -> float | None:
        """Price of an hour of all machines, with the premium of a managed service."""
        of_machine = usd_of_hour(self.offer.price, self.service_fee)
        return None if of_machine is None else of_machine * self.machines


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Choice(RankedOffer):
    """A ranked offer with all that the answer says about it. Compared by identity, because answers share choices."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    estimate: WorkEstimate | PeakEstimate | None
    """None for a current machine that cannot run the job."""
    code_change: str | None
    """The change that code written for CUDA needs; None if it needs none."""
    host: HostNeeds
    reasons: tuple[Statement[ReasonCode], ...]
    warnings: tuple[Statement[WarningCode], ...]
    comparison: CurrentComparison | None = None


@dataclass(frozen=True, slots=True)
class CitedPrior:
    """A rule of thumb with its verdict: whether the answer follows it, overrides it, or lacks the figures to say."""

    prior: Prior
    verdict: Literal["followed", "overridden", "open"]
    compared: tuple[RankedOffer, ...]
    """The offers that decide the verdict: the better and the worse one by the rule, or the first choice."""
    figures: tuple[tuple[str, float | None], ...] = ()
    """The figure of the objective of each of them, by its name."""


class RelaxationOutcome(NamedTuple):
    """The smallest change of one constraint that admits something, the number of types, and the best offer of them."""

    to: dict[str, object]
    admits: int
    instance_type: InstanceType
    region: str | None
    market: Market
    usd_per_hour: float | None
    """Price of an hour of all machines of that offer."""
    has_price: bool
    """Whether the price of some admitted offer is known."""
    drops: int = 0
    """Number of types of the answer that are then no longer admitted."""


class Rejection(NamedTuple):
    """A constraint, with the number of types that it rejects and the number of those that it alone rejects."""

    code: str
    ground: str
    rejects: int
    only_this: int
    relaxation: RelaxationOutcome | None
    instances: tuple[str, ...] = ()
    """Some of the rejected types; those that this constraint alone rejects come first."""
    about: tuple[str, ...] = ()
    """Words of the question that these types lack, such as the family of a model; empty: the code says it all."""


@dataclass(frozen=True, slots=True)
class Explained:
    """An instance type with the code and the ground of every constraint that rejects it."""

    instance: str
    admitted: bool
    grounds: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """Ranked choices and counted rejections; every type considered is either admitted or rejected."""

    choices: tuple[Choice, ...]
    rejections: tuple[Rejection, ...]
    considered: int
    admitted: int
    ranked: int
    """Number of choices without the limit on their number: one per admitted type, or one per offer."""
    current: Choice | None
    current_explained: Explained | None
    """The grounds on which the question rejects the current machine."""
    price_ignored: bool
    advice: tuple[Statement[AdviceCode], ...]
    notes: tuple[Note, ...]
    priors: tuple[CitedPrior, ...] = ()
    explained: tuple[Explained, ...] = ()
