"""Completes a ranked offer with the time and cost of the work, its host, reasons and warnings."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import isnan

from service.domain.band import Band
from service.domain.bill.interruption import Checkpoints, Expectation
from service.domain.bill.market_bills import MarketBill, price_everywhere
from service.domain.bill.payment_options import PaymentOption
from service.domain.bill.run import Run, RunAmount
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.codes import ReasonCode
from service.domain.estimate.work import Physics, priced_run
from service.domain.evidence.named import NamedWork
from service.domain.evidence.published import Evidence, evidence_for
from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import Unknown, number
from service.domain.physics.cluster import Cluster
from service.domain.physics.input_pipeline import cores_needed
from service.domain.recommend.answer import (
    UNTIED,
    Choice,
    CurrentComparison,
    HostNeeds,
    PeakEstimate,
    RankedOffer,
    SpotEstimate,
    WorkContext,
    WorkEstimate,
)
from service.domain.recommend.basis import Basis, PeakBasis, PlanBasis
from service.domain.recommend.fleet import FleetEstimate, estimate_on
from service.domain.recommend.plans import Planner
from service.domain.recommend.warnings import TASKS_THAT_LOAD, warnings_on
from service.domain.selection.requirements import code_change_on, run_in_full
from service.domain.statement import Statement, statement
from service.domain.units import GIB

_RANKED = tuple(column.name for column in fields(RankedOffer))
Reasons = Iterator[Statement[ReasonCode]]
_Modelled = tuple[JobEstimate | None, Cluster | None, tuple[Evidence, ...]]


@dataclass(frozen=True, slots=True)
class Completer:
    """Completes the ranked offers of one answer to choices."""

    context: WorkContext
    basis: Basis
    ranked: int
    """Number of choices that were ranked."""
    catalog: Catalog

    def complete(self, offer: RankedOffer) -> Choice:
        """Returns the offer with its estimate, host, reasons and warnings."""
        basis, catalog = self.basis, self.catalog
        if isinstance(basis, PeakBasis):
            estimate: PeakEstimate | WorkEstimate | None = _peak_estimate(offer)
        else:
            estimate = work_estimate(offer, basis, catalog)
        work = estimate if isinstance(estimate, WorkEstimate) else None
        modelled = None if work is None else work.modelled
        if work is not None and self.context.has_amount:
            usd, hours = work.usd, work.hours
            # Texts and limits state the figures of the bill; those of the ranking differ by less than a millionth.
            offer = replace(
                offer,
                usd=None if usd is None else number(usd.likely),
                hours=None if hours is None else hours.likely,
                samples_per_usd=work.samples_per_usd,
            )
        host = _host_needs(self.context, offer.instance_type, offer.nodes, modelled)
        return Choice(
            **{name: getattr(offer, name) for name in _RANKED},
            estimate=estimate,
            code_change=code_change_on(offer.instance_type.gpu, self.context.needs, self.context.job, catalog),
            host=host,
            reasons=tuple(self._reasons(offer, work, host)),
            warnings=warnings_on(self.context, offer, work, catalog),
        )

    def _reasons(self, offer: RankedOffer, work: WorkEstimate | None, host: HostNeeds) -> Reasons:
        figures = tuple(dict.fromkeys(criterion_figures(offer, self.basis.objective.criteria, self.context)))
        yield statement(ReasonCode.OBJECTIVE, rank=offer.rank, ranked=self.ranked, figures=figures)
        if self.ranked <= 1:
            yield statement(ReasonCode.ONLY_CHOICE)
        belief, usd = offer.offer.price.belief, offer.usd_per_hour
        if belief is not None and belief.old and usd is not None and self.basis.objective.needs("price"):
            yield statement(ReasonCode.RANKED_AT_HIGH_PRICE, usd_per_hour=usd * belief.high)
        if offer.precision is not None:
            yield statement(ReasonCode.PRECISION, precision=offer.precision, tflops=offer.speed)
        if work is not None and isinstance(self.basis, PlanBasis):
            yield from _work_reasons(offer, work, self.basis)
        if software := run_in_full(self.context.needs, self.catalog.index_of[offer.instance_type.id], self.catalog):
            yield statement(ReasonCode.SOFTWARE, software=software)
        yield from _link_reasons(offer.instance_type)
        needed, vcpus = host.needed_vcpus, offer.instance_type.vcpus
        # Spare vCPUs are certain only if the rate of one is known and the code has several threads.
        loading = self.context.loading
        rated = work is not None and loading.samples_per_second_per_vcpu is not None and not loading.single_threaded
        if rated and needed is not None and vcpus is not None and needed < vcpus:
            yield statement(ReasonCode.SPARE_VCPUS, vcpus=vcpus, needed=needed)
        if offer.tied != UNTIED:
            yield statement(ReasonCode.TIED, ranks=offer.tied.ranks, beyond=offer.tied.beyond)


# Estimates


def _peak_estimate(offer: RankedOffer) -> PeakEstimate:
    tflops = offer.speed if offer.precision else None
    usd, watts = offer.usd_per_hour, offer.watts
    return PeakEstimate(offer.precision, tflops, _quotient(tflops, usd), _quotient(tflops, watts))


def work_estimate(offer: RankedOffer, planner: Planner, catalog: Catalog) -> WorkEstimate | None:
    """Returns the work on an offer, with its bill; None if no layout runs it there."""
    fleet = planner.fleet
    columns = fleet.on(offer.nodes)
    if not (columns.runs[offer.index] and columns.exists[offer.index]):
        return None
    run = replace(planner.run, nodes=offer.nodes, instances=offer.instances)
    # Cached: estimates and bills take most of the time of a choice, and are the same for questions that differ only in
    # their limits.
    return catalog.derive(
        _work_on, fleet, offer.offer_index, run, planner.checkpoints, planner.managed_service, cache=catalog.outlooks
    )


def _work_on(
    catalog: Catalog, fleet: FleetEstimate[Job] | FleetEstimate[NamedWork], offer_index: int, run: Run,
    checkpoints: Checkpoints, service: str | None,
) -> WorkEstimate:  # fmt: skip
    """Returns a run on an offer with its bill, both as `POST /estimate` computes them."""
    offer = catalog.offers.offer(offer_index)
    instance_type = catalog.instance_types[offer.instance_type]
    modelled, cluster, evidence = _modelled(fleet, offer.instance_type, run.nodes, catalog)
    physics = Physics(modelled, fleet.measured.get((offer.instance_type, run.nodes)))
    priced = priced_run(fleet.job, physics, run, checkpoints)
    (bill,) = price_everywhere(priced, instance_type, (PaymentOption(offer, service),), catalog)
    rate, watts = priced.amount.samples_per_second, physics.watts_of_node(instance_type.tdp_watts)
    return WorkEstimate(
        modelled=modelled,
        cluster=cluster,
        instances=run.instances,
        measured=physics.measured,
        samples_per_second=None if rate is None else rate.times(run.instances),
        hours=_hours(priced.amount, bill),
        bill=bill,
        samples_per_usd=None if bill.per_unit.samples_per_usd is None else bill.per_unit.samples_per_usd.likely,
        joules_per_sample=None if watts is None or rate is None else watts * run.nodes / rate.likely,
        spot=_spot(instance_type, bill, catalog),
        evidence=evidence,
    )


def _hours(amount: RunAmount, bill: MarketBill) -> Band | None:
    """Returns the hours of the bill; without a bill, those of the work."""
    if bill.bill is not None:
        return bill.bill.run_hours.band
    return None if isinstance(amount.hours, Unknown) else amount.hours


def _modelled(
    fleet: FleetEstimate[Job] | FleetEstimate[NamedWork], index: int, nodes: int, catalog: Catalog
) -> _Modelled:
    """Returns the job on one instance, in the best layout of the fleet's estimate, with its cluster and evidence."""
    if isinstance(fleet.job, NamedWork):
        return None, None, ()
    estimate, cluster = estimate_on(fleet, index, nodes, catalog)
    return estimate, cluster, evidence_for(estimate.config, cluster.gpu, cluster.gpus, catalog)


def _spot(instance_type: InstanceType, bill: MarketBill, catalog: Catalog) -> SpotEstimate | None:
    """Returns the interruptions of all instances; None for markets other than spot, and if their rate is unknown."""
    expected, option, instances = bill.terms.interruptions, bill.option, bill.priced.run.instances
    at_spot = option is not None and option.offer.market == "spot"
    if not at_spot or bill.bill is None or not isinstance(expected, Expectation):
        return None
    return SpotEstimate(
        expected=expected,
        interruptions=expected.interruptions.times(instances),
        interruptions_per_hour=expected.per_hour.times(instances),
        notice_seconds=catalog.reference.providers[instance_type.provider].spot_notice_seconds,
        break_even=bill.break_even,
    )


# The host


def _host_needs(
    context: WorkContext, instance_type: InstanceType, nodes: int, modelled: JobEstimate | None
) -> HostNeeds:
    """Returns the cores and the memory that each node's host should have, requested or computed."""
    cores = None
    if context.task in TASKS_THAT_LOAD:
        cores = cores_needed(instance_type, context.loading, _samples_per_second_of_a_node(modelled, nodes))
    requested = context.needs.host_memory_gib
    host = None if modelled is None else modelled.estimate.host
    sizes = [None if requested is None else requested * GIB, None if host is None else host.needed_bytes]
    memory = max((size for size in sizes if size is not None), default=None)
    return HostNeeds(None, None, memory) if cores is None else HostNeeds(cores.needed, cores.ideal, memory)


def _samples_per_second_of_a_node(modelled: JobEstimate | None, nodes: int) -> float | None:
    """Returns the samples per second that the GPUs of a node could take if the host brought enough."""
    if modelled is None or modelled.estimate.samples_per_second is None:
        return None
    return (modelled.estimate.gpu_samples_per_second or modelled.estimate.samples_per_second.likely) / nodes


# Reasons


def criterion_figures(
    offer: RankedOffer, criteria: tuple[str, ...], context: WorkContext
) -> Iterator[tuple[str, float | None]]:
    """Yields the name and the value of the figure behind each criterion; risk has none, as the market shows it."""
    figure = _peak_figure if context.job is None else _job_figure
    for criterion in criteria:
        if criterion in ("gpu_count", "fewer_gpus"):
            yield "gpu_count", offer.instance_type.whole_gpus * offer.machines
        elif criterion == "gpu_memory_gb":
            yield criterion, None if offer.instance_type.gpu is None else offer.instance_type.gpu.memory_gb
        elif criterion != "risk":
            yield figure(criterion, offer, context)


def _peak_figure(criterion: str, offer: RankedOffer, _context: WorkContext) -> tuple[str, float | None]:
    unit = "peak_tflops" if offer.precision else "vcpus"
    match criterion:
        case "usd":
            return "usd_per_hour", offer.usd_per_hour
        case "samples_per_usd":
            return f"{unit}_per_usd_hour", _quotient(offer.speed, offer.usd_per_hour)
        case "joules":
            return f"{unit}_per_watt", _quotient(offer.speed, offer.watts)
        case _:
            return unit, offer.speed


def _job_figure(criterion: str, offer: RankedOffer, context: WorkContext) -> tuple[str, float | None]:
    match criterion:
        case "usd":
            return ("usd_of_job" if context.has_amount else "usd_per_hour"), offer.usd
        case "hours" if offer.hours is not None:
            return "hours", offer.hours
        case "hours" if offer.seconds_per_request is not None:
            return "seconds_per_request", offer.seconds_per_request
        case "samples_per_usd":
            return "samples_per_usd", offer.samples_per_usd
        case "joules":
            return "joules_per_sample", offer.joules_per_sample
        case _:
            return "samples_per_second", offer.speed


def _link_reasons(machine: InstanceType) -> Reasons:
    """Yields how the GPUs are linked, by the instance type if it states this, else by the GPU."""
    gpu = machine.gpu
    if gpu is None or machine.gpu_count < 2:
        return
    links, speed = machine.interconnect, machine.interconnect_gb_per_second
    if links is None:
        links, speed = gpu.interconnect, gpu.interconnect_gb_per_second
    if links is not None:
        yield statement(ReasonCode.INTERCONNECT, gpus=machine.gpu_count, links=links, gb_per_second=speed)


def _work_reasons(offer: RankedOffer, work: WorkEstimate, planner: Planner) -> Reasons:
    if work.modelled is not None:
        columns = planner.fleet.on(offer.nodes)
        needed, usable = (float(each[offer.index]) for each in (columns.needed_bytes, columns.usable_bytes))
        on_gpus = offer.instance_type.gpu is not None
        # A measured run proves that the work fits where the estimate says otherwise.
        if needed <= usable:
            yield statement(ReasonCode.FITS, needed_bytes=needed, usable_bytes=usable, on_gpus=on_gpus)
    if work.measured is not None:
        yield statement(ReasonCode(work.measured.basis), rate=work.measured)
    yield from _limit_reasons(offer, work, planner)
    if work.spot is not None:
        yield statement(ReasonCode.SPOT_IN_EXPECTATION, spot=work.spot)


def _limit_reasons(offer: RankedOffer, work: WorkEstimate, planner: Planner) -> Reasons:
    limits, month = planner.limits, work.bill.month
    if month is not None and limits.budget_usd is not None:
        usd = number(month.likely)
        yield statement(ReasonCode.WITHIN_BUDGET, usd_a_month=usd, budget_usd=limits.budget_usd)
    deadline = limits.deadline_hours if offer.hours is not None else None
    budget = limits.budget_usd if offer.hours is not None and offer.usd is not None else None
    if deadline is not None or budget is not None:
        yield statement(
            ReasonCode.WITHIN_LIMITS,
            hours=offer.hours, deadline_hours=deadline, usd=offer.usd, budget_usd=budget,
            safe=limits.safe, instances=offer.instances, runs=planner.fleet.job.runs,
        )  # fmt: skip


# The current machine


def compared(choice: Choice, current: Choice, context: WorkContext) -> Choice:
    """Returns the choice with its figures relative to those of the current machine."""
    is_job, speed = context.job is not None, _quotient(choice.speed, current.speed)
    if choice.seconds_per_request is not None:  # all machines serve the rate of a load
        speed = _quotient(current.seconds_per_request, choice.seconds_per_request)
    comparison = CurrentComparison(
        relative_usd_per_hour=_quotient(choice.usd_per_hour, current.usd_per_hour),
        relative_peak=None if is_job else speed,
        relative_speed=speed if is_job else None,
        # A bill of less than half a millionth of a dollar is shown as 0, which has no ratio.
        relative_usd=_quotient(choice.usd or None, current.usd) if context.has_amount else None,
    )
    return replace(choice, comparison=comparison)


def _quotient(value: float | None, other: float | None) -> float | None:
    """Returns value / other; None if one is unknown or 0 (as a tiny bill is), or if the ratio is too small."""
    return None if not value or not other or isnan(value) or isnan(other) else value / other or None
