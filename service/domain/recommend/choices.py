"""Completes a ranked offer: what the work takes there, what it costs with interruptions, and why it ranks there."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from math import isnan

from service.domain.band import Band
from service.domain.bill.interruption import Expectation, break_even_rate, expect_by_prior
from service.domain.bill.payment_options import on_demand_offer
from service.domain.bill.serving import LoadCost, cost_of_load
from service.domain.bill.unit_costs import samples_per_usd
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.tariffs import prior_of
from service.domain.evidence.named import NamedRate
from service.domain.evidence.published import Evidence, evidence_for
from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import JobEstimate, estimate_job_in
from service.domain.money import Unknown
from service.domain.physics.cluster import Cluster, cluster_of_instance
from service.domain.recommend.answer import (
    Choice,
    CurrentComparison,
    NamedWork,
    PeakEstimate,
    RankedOffer,
    SpotEstimate,
    WorkContext,
    WorkEstimate,
)
from service.domain.recommend.codes import ReasonCode
from service.domain.recommend.fleet import FleetEstimate
from service.domain.recommend.objective import NEEDS_PRICE
from service.domain.recommend.plans import Planner
from service.domain.recommend.warnings import host_needs, warnings_on
from service.domain.statement import Statement, statement

_RANKED = tuple(column.name for column in fields(RankedOffer))
Reasons = Iterator[Statement[ReasonCode]]
_Modelled = tuple[JobEstimate | None, Cluster | None, tuple[Evidence, ...]]


@dataclass(frozen=True, slots=True)
class Completer:
    """Completes the ranked offers of one answer to choices."""

    context: WorkContext
    planner: Planner | None
    criteria: tuple[str, ...]
    """Criteria of the objective that ranked."""
    ranked: int
    """Number of choices that were ranked."""
    catalog: Catalog

    def complete(self, offer: RankedOffer) -> Choice:
        """Returns the offer with its estimate, host, reasons and warnings."""
        planner, catalog = self.planner, self.catalog
        estimate = _peak_estimate(offer) if planner is None else work_estimate(offer, planner, catalog)
        work = estimate if isinstance(estimate, WorkEstimate) else None
        modelled = None if work is None else work.modelled
        return Choice(
            **{name: getattr(offer, name) for name in _RANKED},
            estimate=estimate,
            host=host_needs(self.context, offer.instance_type, offer.nodes, modelled),
            reasons=tuple(self._reasons(offer, work)),
            warnings=warnings_on(self.context, offer, work, catalog),
        )

    def _reasons(self, offer: RankedOffer, work: WorkEstimate | None) -> Reasons:
        figures = tuple(dict.fromkeys(criterion_figures(offer, self.criteria, self.context)))
        yield statement(ReasonCode.OBJECTIVE, rank=offer.rank, ranked=self.ranked, figures=figures)
        if self.ranked <= 1:
            yield statement(ReasonCode.ONLY_CHOICE)
        belief, usd = offer.offer.price.belief, offer.usd_per_hour
        if belief is not None and belief.old and usd is not None and set(self.criteria) & NEEDS_PRICE:
            yield statement(ReasonCode.RANKED_AT_HIGH_PRICE, usd_per_hour=usd * belief.high)
        if self.planner is None and offer.precision is not None:
            yield statement(ReasonCode.PRECISION, precision=offer.precision, tflops=offer.speed)
        if self.planner is not None and work is not None:
            yield from _work_reasons(offer, work, self.planner)
        if software := [each.software for each in (self.context.needs.framework, self.context.needs.engine) if each]:
            yield statement(ReasonCode.SOFTWARE, software=software)
        yield from _link_reasons(offer.instance_type)
        if offer.tied_with:
            yield statement(ReasonCode.TIED, ranks=offer.tied_with)


# Estimates


def _peak_estimate(offer: RankedOffer) -> PeakEstimate:
    tflops = offer.speed if offer.precision else None
    usd, watts = offer.usd_per_hour, offer.watts
    return PeakEstimate(offer.precision, tflops, _quotient(tflops, usd), _quotient(tflops, watts))


def work_estimate(offer: RankedOffer, planner: Planner, catalog: Catalog) -> WorkEstimate | None:
    """Returns the work on an offer, with its interruptions; None if no layout runs it there."""
    fleet = planner.fleet
    columns = fleet.on(offer.nodes)
    if not (columns.runs[offer.index] and columns.exists[offer.index]):
        return None
    measured = fleet.measured.get(offer.index) if offer.nodes == 1 else None
    modelled, cluster, evidence = _modelled(offer, planner, catalog)
    whole = _undisturbed_hours(offer, modelled, measured, planner)
    hours = None if whole is None else whole.times(1 / offer.instances)
    expected = None if hours is None else _expectation(offer, hours, planner, catalog)
    paid, elapsed = hours, hours
    if expected is not None:
        paid, elapsed = expected.hours, expected.elapsed or expected.hours
    rate = _rate(offer, modelled, measured)
    return WorkEstimate(
        modelled=modelled,
        cluster=cluster,
        instances=offer.instances,
        measured=measured,
        samples_per_second=rate,
        hours=elapsed,
        usd=None
        if paid is None or offer.usd_per_hour is None
        else paid.times(offer.usd_per_hour).by(offer.price_factors),
        samples_per_usd=_samples_per_usd(offer, None if rate is None else rate.likely, expected),
        joules_per_sample=_joules_per_sample(offer, modelled, measured, rate),
        spot=None if expected is None or hours is None else _spot(offer, hours, expected, planner, catalog),
        load_cost=_load_cost(offer, modelled),
        evidence=evidence,
    )


def _load_cost(offer: RankedOffer, modelled: JobEstimate | None) -> LoadCost | None:
    served = None if modelled is None else modelled.estimate.served
    return (
        None
        if served is None
        else cost_of_load(served, offer.offer.price.usd_micros_per_hour, offer.nodes, offer.price_factors)
    )


def _modelled(offer: RankedOffer, planner: Planner, catalog: Catalog) -> _Modelled:
    """Returns the job on one instance, in the layout that the fleet's estimate found best, and its evidence."""
    if isinstance(planner.fleet.job, NamedWork):
        return None, None, ()
    # Estimating the shown choices takes three times as long as the rest of the answer for a job that was asked before.
    return catalog.derive(_model, planner.fleet, offer.index, offer.nodes, cache=catalog.outlooks)


def _model(catalog: Catalog, fleet: FleetEstimate[Job], index: int, nodes: int) -> _Modelled:
    cluster = cluster_of_instance(catalog.instance_types[index], nodes)
    estimate = estimate_job_in(catalog.reference.physics, fleet.job, cluster, fleet.layout(index, nodes))
    return estimate, cluster, evidence_for(estimate.config, cluster.gpu, cluster.gpus, catalog)


def _rate(offer: RankedOffer, modelled: JobEstimate | None, measured: NamedRate | None) -> Band | None:
    """Returns samples per second of all instances."""
    if measured is not None:
        return measured.samples_per_second.times(offer.instances)
    rate = None if modelled is None else modelled.estimate.samples_per_second
    return None if rate is None else rate.times(offer.instances)


def _undisturbed_hours(
    offer: RankedOffer, modelled: JobEstimate | None, measured: NamedRate | None, planner: Planner
) -> Band | None:
    """Returns the hours of the whole amount on one instance without interruptions; a measured rate comes first."""
    fleet = planner.fleet
    if fleet.job.amount is None or (modelled is not None and modelled.hours is None):
        return None
    if measured is None:
        return None if modelled is None else modelled.hours
    rate, hours = measured.samples_per_second, float(fleet.options[0].hours[offer.index])
    return Band(hours * rate.likely / rate.high, hours, hours * rate.likely / rate.low)


def _samples_per_usd(offer: RankedOffer, rate: float | None, expected: Expectation | None = None) -> float | None:
    usd = offer.usd_per_hour
    if rate is None or not usd:
        return None
    return samples_per_usd(rate, usd if expected is None else usd * expected.stretch)


def _joules_per_sample(
    offer: RankedOffer, modelled: JobEstimate | None, measured: NamedRate | None, rate: Band | None
) -> float | None:
    watts = offer.instance_type.tdp_watts
    if measured is not None and measured.basis == "measured":
        watts = measured.evidence.watts or watts
    if modelled is not None:  # the physics of one instance, whatever was measured
        own = modelled.estimate.samples_per_second
        return None if watts is None or own is None else watts * offer.nodes / own.likely
    return None if watts is None or rate is None else watts * offer.instances / rate.likely


# Spot


def _expectation(offer: RankedOffer, hours: Band, planner: Planner, catalog: Catalog) -> Expectation | None:
    """Returns what interruptions add to one instance; None for other markets, or if their rate is unknown."""
    if offer.offer.market != "spot":
        return None
    gpu = offer.instance_type.gpu
    prior = prior_of(
        catalog.reference.interruption_priors,
        offer.instance_type.provider, "spot", None if gpu is None else gpu.id, catalog.day,
    )  # fmt: skip
    expected = expect_by_prior(hours, prior, planner.checkpoints, offer.nodes)
    return None if isinstance(expected, Unknown) else expected


def _spot(offer: RankedOffer, hours: Band, expected: Expectation, planner: Planner, catalog: Catalog) -> SpotEstimate:
    on_demand = on_demand_offer(catalog, offer.instance_type, offer.offer.region)
    ratio = None if on_demand is None else _quotient(offer.offer.price.usd_per_hour, on_demand.price.usd_per_hour)
    return SpotEstimate(
        expected=expected,
        interruptions=expected.interruptions.times(offer.instances),
        interruptions_per_hour=expected.per_hour.times(offer.instances),
        notice_seconds=catalog.reference.providers[offer.instance_type.provider].spot_notice_seconds,
        break_even_per_hour=break_even_rate(hours.likely, ratio, planner.checkpoints) if ratio else None,
    )


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
    watts = offer.instance_type.tdp_watts
    match criterion:
        case "usd":
            return ("usd_of_job" if context.has_amount else "usd_per_hour"), offer.usd
        case "hours" if offer.hours is not None:
            return "hours", offer.hours
        case "samples_per_usd":
            return "samples_per_usd", _samples_per_usd(offer, offer.speed)
        case "joules":
            return "joules_per_sample", _quotient(None if watts is None else watts * offer.machines, offer.speed)
        case _:
            return "samples_per_second", offer.speed


def _link_reasons(machine: InstanceType) -> Reasons:
    """Yields how the GPUs are linked: as the machine states it, else as cards of their kind are."""
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
        yield statement(ReasonCode.FITS, needed_bytes=needed, usable_bytes=usable)
    if work.measured is not None:
        yield statement(ReasonCode(work.measured.basis), rate=work.measured)
    yield from _limit_reasons(offer, planner)
    if work.spot is not None:
        yield statement(ReasonCode.SPOT_IN_EXPECTATION, spot=work.spot)


def _limit_reasons(offer: RankedOffer, planner: Planner) -> Reasons:
    limits = planner.limits
    deadline = limits.deadline_hours if offer.hours is not None else None
    budget = limits.budget_usd if offer.hours is not None and offer.usd is not None else None
    if deadline is not None or budget is not None:
        yield statement(
            ReasonCode.WITHIN_LIMITS,
            hours=offer.hours, deadline_hours=deadline, usd=offer.usd, budget_usd=budget,
            safe=limits.safe, instances=offer.instances,
        )  # fmt: skip


# The current machine


def compared(choice: Choice, current: Choice, context: WorkContext) -> Choice:
    """Returns the choice with its figures relative to those of the current machine."""
    is_job, speed = context.job is not None, _quotient(choice.speed, current.speed)
    comparison = CurrentComparison(
        usd_per_hour=_quotient(choice.usd_per_hour, current.usd_per_hour),
        peak=None if is_job else speed,
        speed=speed if is_job else None,
        usd=_quotient(choice.usd, current.usd) if context.has_amount else None,
    )
    return replace(choice, comparison=comparison)


def _quotient(value: float | None, other: float | None) -> float | None:
    """Returns value / other; None if either is unknown or the other is 0."""
    return None if value is None or not other or isnan(value) or isnan(other) else value / other
