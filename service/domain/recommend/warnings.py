"""Risks of a choice, as codes and figures: its machine, software, network, host, price and estimate."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from service.domain.bill.bill import Bill, PartName
from service.domain.bill.market_bills import MarketBill, term_warnings
from service.domain.bill.seller_terms import commitment_of
from service.domain.catalog.catalog import Catalog, without_cluster
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import ON_DEMAND
from service.domain.catalog.reference import ServiceFee
from service.domain.catalog.software_support import no_framework_mask, software_names
from service.domain.catalog.tariffs import Commitment
from service.domain.codes import WarningCode
from service.domain.errors import QuestionError
from service.domain.estimate.work import sharing_warnings
from service.domain.evidence.named import NamedRate
from service.domain.evidence.step_size import step_warnings
from service.domain.jobs.kind_of_work import restriction_warnings
from service.domain.jobs.loading import SampleLoading
from service.domain.layouts.host_warnings import slow_input, too_few_cores, unknown_memory
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.layouts.warnings import estimate_warnings
from service.domain.money import MICRO, Unknown
from service.domain.physics.cluster import cluster_of_instance
from service.domain.physics.generation import ServedLoad
from service.domain.physics.input_pipeline import (
    FAMILIES_OF_IMAGES,
    samples_fed_per_second,
)
from service.domain.recommend.answer import UNTIED, RankedOffer, WorkContext, WorkEstimate
from service.domain.selection.requirements import Requirement, not_run, partly_run, restrictions_there
from service.domain.selection.successors import successor
from service.domain.statement import Statement, statement
from service.domain.units import SECONDS_AN_HOUR

OLD_PRICE_DAYS = 90
"""Prices of instance types change a few times a year; spot prices change daily."""

DAYS_BEFORE_AN_END = 365
"""Days before the end of an instance type from which on it has a warning: plans for a year would outlive it."""

ASKED_CHARGES = (PartName.MANAGEMENT_FEE, PartName.STORAGE, PartName.TRANSFER)
"""Parts of a bill that only some questions ask for."""

TASKS_THAT_LOAD = frozenset({"training", "inference"})
"""Tasks of deep learning, whose samples the host prepares for the GPUs."""

Warnings = Iterator[Statement[WarningCode]]


@dataclass(frozen=True, slots=True)
class _Subject:
    """An offer for some work, and the physics of the job on one instance of it and its bill, if there is a job."""

    context: WorkContext
    offer: RankedOffer
    modelled: JobEstimate | None
    catalog: Catalog
    bill: MarketBill | None = None

    @property
    def instance_type(self) -> InstanceType:
        return self.offer.instance_type


def warnings_on(
    context: WorkContext, offer: RankedOffer, estimate: WorkEstimate | None, catalog: Catalog
) -> tuple[Statement[WarningCode], ...]:
    """Returns the risks of an offer for some work."""
    modelled, bill = (None, None) if estimate is None else (estimate.modelled, estimate.bill)
    subject = _Subject(context, offer, modelled, catalog, bill)
    warnings = [warning for warn in _WARNERS for warning in warn(subject)]
    if estimate is not None and estimate.modelled is not None and estimate.cluster is not None:
        of_estimate = list(estimate_warnings(estimate.modelled, estimate.cluster))
        of_estimate += step_warnings(estimate.modelled.config, catalog)
        # What the estimate says of a host includes the rate of the GPUs, so it replaces what follows from the question.
        replaced = {warning.code for warning in of_estimate}
        warnings = [warning for warning in warnings if warning.code not in replaced] + of_estimate
    warnings += cost_warnings(offer.service_fee, None if estimate is None else estimate.bill.bill)
    if estimate is not None and estimate.measured is not None:
        warnings += measurement_warnings(estimate.measured, context.framework, catalog)
    return tuple(warnings)


def cost_warnings(fee: ServiceFee, bill: Bill | None) -> Warnings:
    """Yields the charges that the caller asks for and whose price is unknown."""
    reasons = [fee.reason] if isinstance(fee, Unknown) else []
    reasons += [part.reason for part in bill.parts if part.reason and part.name in ASKED_CHARGES] if bill else []
    if reasons:
        yield statement(WarningCode.COST_INCOMPLETE, reasons=tuple(dict.fromkeys(reasons)))


def measurement_warnings(measured: NamedRate, framework: str | None, catalog: Catalog) -> Warnings:
    """Yields why a measurement may no longer hold: its age, or other software than the workload's."""
    # A measurement is never adjusted to another release of its software, so the answer has to say that it differs.
    measurement = measured.evidence
    if measured.is_stale:
        yield statement(WarningCode.MEASUREMENT_OLD, measured_on=measurement.measured_on, machine=measurement.machine)
    software = measurement.software or measurement.framework
    if software and framework and not _may_be_the_same(software, framework, catalog):
        yield statement(WarningCode.MEASUREMENT_OTHER_SOFTWARE, measured=software, requested=framework)


def _may_be_the_same(measured: str, requested: str, catalog: Catalog) -> bool:
    known = catalog.derive(software_names)
    try:
        return Requirement.of(measured, "software", known).overlaps(Requirement.of(requested, "framework", known))
    except QuestionError:  # a measurement may name a version that is no number
        return measured == requested


# The machine


def _machine_warnings(subject: _Subject) -> Warnings:
    instance_type, gpu = subject.instance_type, subject.instance_type.gpu
    trains = subject.context.task == "training"
    # Several runs that peaks rank take a GPU each, so that their links do not matter.
    linked = trains and (subject.context.concurrent_runs == 1 or subject.context.job is not None)
    if linked and instance_type.gpu_count > 1 and instance_type.interconnect == "pcie":
        yield statement(WarningCode.PCIE_MULTI_GPU, gpus=instance_type.gpu_count)
    if trains and gpu and gpu.positioned_for == "inference":
        yield statement(WarningCode.SOLD_FOR_INFERENCE, gpu=gpu.name)
    yield from _cpu_warnings(subject)
    if gpu and gpu.fraction < 1:
        card = subject.catalog.reference.card_of(gpu).name
        yield statement(WarningCode.PART_OF_A_CARD, fraction=gpu.fraction, card=card)
    if (state := instance_type.state_on(subject.catalog.day)) in ("preview", "closed_to_new"):
        yield statement(WarningCode(state))
    if (end := instance_type.end_after(subject.catalog.day)) is not None:
        days = (end.starts_on - subject.catalog.day).days
        if days <= DAYS_BEFORE_AN_END:
            yield statement(WarningCode.ENDS, state=end.state, starts_on=end.starts_on, days=days)
    newer, precision = successor(subject.offer.index, subject.catalog), subject.offer.precision
    # Successors are found by peaks of deep learning. One without fast fp64 replaces no machine for fp64.
    if newer and newer.instance_type.gpu and (precision is None or newer.instance_type.gpu.runs(precision)):
        yield statement(WarningCode.SUPERSEDED, successor=newer)


def _cpu_warnings(subject: _Subject) -> Warnings:
    instance_type = subject.instance_type
    if instance_type.gpu is None and subject.context.task in TASKS_THAT_LOAD:
        yield statement(WarningCode.WITHOUT_GPU, tflops=instance_type.cpu_fp32_tflops)
    if (share := instance_type.cpu_baseline_share) is not None:
        yield statement(WarningCode.BURSTABLE, share=share)
    if instance_type.cpu_architecture == "arm64":
        yield statement(WarningCode.ARM_HOST)


def _software_warnings(subject: _Subject) -> Warnings:
    gpu, index = subject.instance_type.gpu, subject.offer.index
    if gpu and subject.context.task in TASKS_THAT_LOAD and subject.catalog.derive(no_framework_mask)[index]:
        yield statement(WarningCode.NO_FRAMEWORK, gpu=gpu.name)
        return
    name = gpu.name if gpu else "CPU"
    for software in not_run(subject.context.needs, index, subject.catalog):
        yield statement(WarningCode.SOFTWARE_UNSUPPORTED, software=software, gpu=name)
    restricted = restrictions_there(subject.context.needs, index, subject.catalog)
    yield from restriction_warnings(restricted, subject.context.needs.kind, name)
    if partly := partly_run(subject.context.needs, index, subject.catalog):
        yield statement(WarningCode.SOFTWARE_PARTLY, software=partly)


def _shares_fast_links(instance_type: InstanceType, nodes: int) -> bool:
    """Whether the GPUs of all nodes are in one rack or pod, so that they do not communicate over the network."""
    return instance_type.processor is not None and not cluster_of_instance(instance_type, nodes).crosses_network


def _network_warnings(subject: _Subject) -> Warnings:
    instance_type, nodes = subject.instance_type, subject.offer.nodes
    if nodes > 1 and not instance_type.rdma and not _shares_fast_links(instance_type, nodes):
        stated = instance_type.sustained_network_gbps
        assumed = None if stated or subject.modelled is None else subject.modelled.job.assumed_network_gbps
        gbps, rdma = stated or assumed, instance_type.rdma
        yield statement(WarningCode.SLOW_NETWORK, nodes=nodes, gbps=gbps, assumed=bool(assumed), rdma=rdma)
    if nodes > 1 and subject.catalog.derive(without_cluster)[subject.offer.index]:
        yield statement(WarningCode.NO_CLUSTER_THERE, nodes=nodes)


# The host


def cpus_decode_too_slowly(
    context: WorkContext, offer: RankedOffer, modelled: JobEstimate | None, catalog: Catalog
) -> bool:
    """Returns whether the samples may be images, and the CPUs of the host prepare them too slowly for the GPUs."""
    if context.loading.gpu_decoding or (modelled is not None and modelled.job.model.family not in FAMILIES_OF_IMAGES):
        return False
    if modelled is not None:
        return modelled.estimate.bottleneck == "host_cpu"
    return WarningCode.FEW_VCPUS in {
        warning.code for warning in _host_warnings(_Subject(context, offer, None, catalog))
    }


def _host_warnings(subject: _Subject) -> Warnings:
    instance_type, loading = subject.instance_type, subject.context.loading
    yield from unknown_memory(instance_type, subject.context.needs.host_memory_gib)
    yield from _disk_warnings(instance_type, loading, subject.context.samples)
    if subject.context.task not in TASKS_THAT_LOAD or not instance_type.gpu_count:
        return
    if loading.single_threaded and (instance_type.vcpus is None or instance_type.vcpus > 1):
        yield statement(WarningCode.SINGLE_THREADED, vcpus=instance_type.vcpus)
    yield from slow_input(instance_type, loading)
    if subject.modelled is None or samples_fed_per_second(instance_type.vcpus, loading) is None:
        yield from too_few_cores(instance_type, loading)


def _disk_warnings(instance_type: InstanceType, loading: SampleLoading, samples: float | None) -> Warnings:
    local_gb = instance_type.local_storage_gb
    if not loading.from_local_disks or local_gb is None:
        return
    needed_gb = None if samples is None or loading.sample_mb is None else samples * loading.sample_mb / 1000
    if not local_gb or (needed_gb is not None and needed_gb > local_gb):
        yield statement(WarningCode.LOCAL_STORAGE_SMALL, needed_gb=needed_gb, local_gb=local_gb)


# The price


def _left_to_serve(served: ServedLoad | None) -> dict[str, float | None]:
    """Returns the number of other instances and their utilisation while an instance of a load is replaced."""
    if served is None:
        return {"others": None, "utilisation": None}
    others = round(served.instances.likely) - 1
    # Clients of a fixed number send fewer requests to slower instances, so that no share of their throughput follows.
    is_known = others > 0 and served.serving.concurrency is None
    return {"others": others, "utilisation": served.utilisation * (others + 1) / others if is_known else None}


def _spot_warnings(subject: _Subject) -> Warnings:
    catalog, offer = subject.catalog, subject.offer.offer
    if offer.market != "spot":
        return
    seller = catalog.reference.providers[subject.instance_type.provider]
    left = _left_to_serve(None if subject.modelled is None else subject.modelled.estimate.served)
    yield statement(WarningCode.SPOT_CAN_BE_INTERRUPTED, notice_seconds=seller.spot_notice_seconds, **left)
    offers, rows = catalog.offers, np.array(catalog.offers_of(subject.offer.index))
    in_region = offers.region[rows] == offers.region[subject.offer.offer_index]
    on_demand = in_region & (offers.market[rows] == ON_DEMAND)
    spot = offer.price.usd_per_hour
    cheapest = np.fmin.reduce(offers.usd_per_hour[rows[on_demand]], initial=np.nan)
    if spot is not None and cheapest < spot:
        yield statement(WarningCode.SPOT_MORE_EXPENSIVE, on_demand=float(cheapest), spot=spot)


def _commitment_warnings(subject: _Subject) -> Warnings:
    offer, usd = subject.offer.offer, subject.offer.usd_per_hour
    commitment = commitment_of(offer.market, offer.term, subject.context.commitments_held)
    if isinstance(commitment, Commitment):
        # A run may take several terms, as one of nine days takes nine of the term that is sold by the day.
        cost = None if subject.bill is None else subject.bill.commitment
        hours = commitment.term_seconds / SECONDS_AN_HOUR if cost is None else cost.committed_hours.likely
        usd = None if usd is None else usd * hours
        yield statement(WarningCode.COMMITS, term=offer.term, hours=hours, machines=subject.offer.machines, usd=usd)
        if subject.bill is not None:
            yield from term_warnings(subject.bill)


def _price_warnings(subject: _Subject) -> Warnings:
    price = subject.offer.offer.price
    if price.usd_per_hour is None:
        return
    belief = price.belief
    if belief is not None and belief.suspect and belief.usd_micros_listed is not None:
        listed = belief.usd_micros_listed / MICRO
        yield statement(WarningCode.PRICE_SUSPECT, listed=listed, believed=price.usd_per_hour)
    # The day of a price that is carried over is not one on which it was observed.
    if price.kind == "assumed":
        yield statement(WarningCode.PRICE_ASSUMED, note=price.note)
    elif price.observed_on is None:
        yield statement(WarningCode.PRICE_UNDATED)
    # The age of a price matters only where it could change the order.
    elif subject.offer.tied != UNTIED and (age := (subject.catalog.day - price.observed_on).days) > OLD_PRICE_DAYS:
        yield statement(WarningCode.PRICE_OLD, days=age, observed_on=price.observed_on)


def _sharing_warnings(subject: _Subject) -> Warnings:
    if subject.context.job is not None:
        yield from sharing_warnings(subject.context.job, subject.offer.instances)


_WARNERS = (
    _machine_warnings,
    _sharing_warnings,
    _software_warnings,
    _network_warnings,
    _host_warnings,
    _spot_warnings,
    _commitment_warnings,
    _price_warnings,
)
