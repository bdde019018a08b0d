"""The answer to POST /estimate: a job or a run on a machine, with its physics and its bill in every market."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from service.domain.bill.interruption import Checkpoints
from service.domain.bill.market_bills import (
    MarketBill,
    price_as_given,
    price_everywhere,
    price_own_machine,
    term_warnings,
    verdict_on,
)
from service.domain.bill.payment_options import GpuHour, cheapest_gpu_hours, payment_options
from service.domain.bill.run import Run
from service.domain.bill.seller_terms import is_held
from service.domain.bill.verdict import Gate, Verdict
from service.domain.catalog.catalog import Catalog, without_cluster
from service.domain.catalog.hardware import ENDED, InstanceType
from service.domain.catalog.offer import Market
from service.domain.catalog.software_support import (
    LIBRARIES_OF_KERNELS,
    RUNS,
    near_software,
    remark_by,
    restrictions_on_gpu,
    rules_on_gpu,
    support_by,
    task_mask,
)
from service.domain.codes import WarningCode
from service.domain.errors import QuestionError
from service.domain.estimate.work import MeasuredRate, Physics, priced_run, sharing_warnings
from service.domain.evidence.named import ModelledRate, NamedMeasurements, NamedRate, NamedWork, Place
from service.domain.evidence.published import Evidence, evidence_for
from service.domain.evidence.step_size import step_warnings
from service.domain.groups import grouped
from service.domain.jobs.config import TrainingConfig
from service.domain.jobs.job import Job, assumed_lengths
from service.domain.jobs.kind_of_work import fields_without_effect, restriction_warnings
from service.domain.layouts.host_warnings import requested_host_warnings
from service.domain.layouts.job_estimate import Choose, JobEstimate, at_rate, estimate_job
from service.domain.layouts.warnings import estimate_warnings
from service.domain.layouts.would_fit import FitChange, largest_batch, nearest_changes
from service.domain.physics.cluster import Cluster, cluster_of_instance
from service.domain.physics.generation import ServedLoad
from service.domain.selection.requirements import NOTHING, Requirement, Requirements, code_change_on
from service.domain.statement import Statement, statement

_Warnings = Iterator[Statement[WarningCode]]


@dataclass(frozen=True, slots=True)
class JobQuestion:
    """A job on a cluster, and how the free parts of its layout are chosen."""

    job: Job
    cluster: Cluster
    choose: Choose
    name: str | None = None
    """The name under which the work was measured."""


@dataclass(frozen=True, slots=True)
class EstimateQuestion:
    """A job, named work, a measured rate or plain hours, on nodes of an instance type or of the caller's own machine.

    `markets`, `regions`, `zone` and `service` do not apply to the caller's own machine.
    """

    work: JobQuestion | NamedWork | MeasuredRate | float
    instance_type: InstanceType | None
    cluster: Cluster | None
    run: Run
    checkpoints: Checkpoints
    own_usd_per_hour: float | None = None
    own_watts: float | None = None
    markets: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zone: str | None = None
    service: str | None = None
    gate: Gate | None = None
    usd_per_hour: Mapping[Market, float] = field(default_factory=dict)
    """The caller's own prices by market, in place of the catalog's."""
    finds_largest_batch: bool = False
    needs: Requirements = NOTHING
    """The software and the host memory that the workload needs."""
    unknown_libraries: tuple[str, ...] = ()
    """Names of libraries without rules on where they run."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The price of one GPU for an hour on another machine, and the percentage that it saves."""

    hour: GpuHour
    saves_percent: float | None


@dataclass(frozen=True, slots=True)
class EstimateAnswer:
    """An estimate with its bills; the physics is None where only hours or a rate were given.

    `nearest_changes` is None where the job fits with its confidence, and where changes are not asked for.
    """

    question: EstimateQuestion
    job: JobEstimate | None
    joules_per_sample: float | None
    warnings: tuple[Statement[WarningCode], ...]
    evidence: tuple[Evidence, ...]
    served: ServedLoad | None
    bills: tuple[MarketBill, ...]
    elsewhere: tuple[Elsewhere, ...]
    verdict: Verdict | None
    verdict_on: MarketBill | None
    nearest_changes: tuple[FitChange, ...] | None = None
    largest_batch: int | None = None
    """Samples of a micro-batch in the layout of the job; None where the question does not ask for it."""
    measured: NamedRate | None = None
    """The rate by measured runs under the name of the work, in place of the modelled one."""
    code_change: str | None = None
    """The change that code written for CUDA needs; None if it needs none, and without a job."""

    @property
    def without_effect(self) -> dict[str, tuple[str, ...]]:
        """Fields of the workload that cannot affect the job, by the reason; empty without a job."""
        unused = {} if self.job is None else fields_without_effect(self.job.job)
        return grouped((reason, field) for field, reason in unused.items())

    @property
    def holds_unused_commitments(self) -> bool:
        """Whether the caller holds commitments, and no bill is under one of them."""
        held, options = self.question.run.commitments_held, [bill.option for bill in self.bills if bill.option]
        return bool(held) and not any(is_held(each.offer.market, each.offer.term, held) for each in options)


def physics_of(question: EstimateQuestion, catalog: Catalog) -> Physics:
    """Returns the physics of a question, which depends on its work, its machine and its nodes alone.

    Raises `QuestionError`.
    """
    work = question.work
    if isinstance(work, NamedWork):
        return Physics(None, _rate_by_name(question, work, catalog))
    if not isinstance(work, JobQuestion):
        return Physics(None, None)
    job = estimate_job(catalog.reference.calibration, work.job, work.cluster, work.choose)
    measured = _rate_by_own_runs(question, work, job, catalog)
    if measured is not None:
        job = at_rate(job, measured.samples_per_second, measured=measured.basis == "measured")
    return Physics(job, measured)


def estimate(
    question: EstimateQuestion, catalog: Catalog, physics: Physics | None = None, *, changes: bool = False
) -> EstimateAnswer:
    """Returns the physics and the bills of a question. Raises `QuestionError`.

    `physics` is that of the question, if it is known already. With `changes`, the answer has the nearest changes that
    would make a job fit with its confidence, and the largest batch if the question asks for it; both may take dozens of
    searches.
    """
    work, cluster, calibration = question.work, question.cluster, catalog.reference.calibration
    physics = physics or physics_of(question, catalog)
    job = physics.job
    served = None if job is None else job.estimate.served
    bills = _bills(question, physics, catalog)
    verdict, judged = (None, None) if question.gate is None else verdict_on(bills, question.gate)
    fit_changes = batch = None
    if changes and isinstance(work, JobQuestion) and job is not None:
        if not job.fits_surely:
            best = job.estimate if work.choose == "fastest" else None
            fit_changes = nearest_changes(calibration, job.config, work.cluster, work.job.fixed, best)
        if question.finds_largest_batch and isinstance(job.config, TrainingConfig):
            batch = largest_batch(calibration, job.config, work.cluster, job.estimate.layout, work.job.fixed)
    return EstimateAnswer(
        question=question,
        job=job,
        joules_per_sample=None if job is None else _joules_per_sample(question, job, physics),
        warnings=(*_warnings(question, job, catalog), *_term_warnings(bills)),
        evidence=() if job is None or cluster is None else evidence_for(job.config, cluster.gpu, cluster.gpus, catalog),
        served=served,
        bills=bills,
        elsewhere=_elsewhere(question, bills, catalog),
        verdict=verdict,
        verdict_on=judged,
        nearest_changes=fit_changes,
        largest_batch=batch,
        measured=physics.measured,
        code_change=code_change_on(work.cluster.gpu, question.needs, work.job, catalog)
        if isinstance(work, JobQuestion)
        else None,
    )


def _rate_by_name(question: EstimateQuestion, work: NamedWork, catalog: Catalog) -> NamedRate:
    """Returns the rate of one machine by the runs under a name. Raises `QuestionError` where no run applies."""
    machine, measured = question.instance_type, catalog.measurements.under(work.name)
    if question.run.nodes > 1:
        raise QuestionError(
            f"Only runs of '{work.name}' on single machines count, because the share of time that several nodes lose "
            "to their network differs by machine: send the rate of all nodes together as measured.samples_per_second.",
            field="nodes",
        )
    rate = (
        None if machine is None else NamedMeasurements.of(measured, catalog).measured_or_scaled(machine, work.precision)
    )
    if rate is None:
        raise QuestionError(
            f"No run of '{work.name}' says how fast this machine is: describe the workload by its model.",
            field="machine",
        )
    return rate


def modelled_rate(job: JobEstimate) -> ModelledRate | None:
    """Returns the rate of an estimate, and the rate at the peak of its GPUs; None for a job without a rate."""
    rate, utilisation = job.estimate.samples_per_second, job.model_flops_utilisation
    if rate is None:
        return None
    if utilisation:
        return ModelledRate(rate, rate.likely / utilisation)
    least_flops = job.config.model.forward_flops_per_sample  # each sample passes through the network at least once
    peak = job.peak_flops_per_gpu * job.estimate.layout.gpus
    return ModelledRate(rate, peak / least_flops if least_flops else inf)


def modelled_rate_in(job: Job, machine: InstanceType, nodes: int, catalog: Catalog) -> ModelledRate | None:
    """Returns the rate of a job in its best layout on machines of a type; None where it does not fit surely.

    As in a recommendation, runs count only on machines that hold the job and all its requests at once.
    """
    cluster = cluster_of_instance(machine, nodes, job.assumed_network_gbps)
    try:
        other = estimate_job(catalog.reference.calibration, job.in_any_layout, cluster)
    except QuestionError:  # no layout divides the job over these machines
        return None
    return modelled_rate(other) if other.estimate.fits_surely and other.holds_requests else None


def _rate_by_own_runs(
    question: EstimateQuestion, work: JobQuestion, job: JobEstimate, catalog: Catalog
) -> NamedRate | None:
    """Returns the rate by the runs under the name of the work; None where they do not apply.

    Where the job cannot fit, or the rate exceeds the peak of the GPUs, the runs were of other work.
    """
    machine, measured = question.instance_type, () if work.name is None else catalog.measurements.under(work.name)
    if machine is None or not measured or work.job.serving is not None:
        return None
    if job.estimate.samples_per_second is None:
        return None
    here = Place(machine.id, work.cluster.nodes)
    runs = NamedMeasurements.of(measured, catalog, several=here.nodes > 1)

    def modelled_in(place: Place) -> ModelledRate | None:
        if place == here:
            return modelled_rate(job)
        return modelled_rate_in(work.job, runs.machines[place], place.nodes, catalog)

    return runs.measured_or_corrected(here, None if machine.gpu is None else machine.gpu.id, modelled_in)


def _software_warnings(question: EstimateQuestion, catalog: Catalog) -> _Warnings:
    """Yields a task that no software on the machine does, else software that runs only in part or not at all."""
    if question.cluster is None:
        return
    machine, work = question.instance_type, question.work
    task = None if machine is None or not isinstance(work, JobQuestion) else work.job.task
    if machine is not None and task and not catalog.derive(task_mask, task)[catalog.index_of[machine.id]]:
        yield statement(WarningCode.TASK_UNSUPPORTED, task=task, instance=machine.id)
        return
    gpu = question.cluster.gpu
    if question.unknown_libraries:
        yield statement(WarningCode.SOFTWARE_UNKNOWN, near=near_software(question.unknown_libraries, catalog))
    usual, needed = question.needs.library, question.needs.of_code
    is_unnamed = usual is not None and all(each.software != usual for each in needed)
    for software, versions, cuda in (*needed, *([Requirement(usual)] if usual and is_unnamed else [])):
        rules = catalog.derive(rules_on_gpu, software, gpu.id)
        level = support_by(rules, versions, cuda)
        if level not in RUNS and (software != usual or software in LIBRARIES_OF_KERNELS):
            named = f"{software} {versions}".strip()
            yield statement(WarningCode.SOFTWARE_UNSUPPORTED, software=named, gpu=gpu.name)
        elif level != RUNS[0]:
            remark = remark_by(rules, versions, cuda)
            yield statement(WarningCode.SOFTWARE_PARTLY, software=((software, remark),))
    yield from _kind_warnings(question, catalog)


def _kind_warnings(question: EstimateQuestion, catalog: Catalog) -> _Warnings:
    """Yields software that does not work with the family of the model or the format of its weights, or in part."""
    if not isinstance(question.work, JobQuestion):
        return
    kind, gpu, software = question.needs.kind, question.work.cluster.gpu, question.needs.runs_the_work
    restricted = catalog.derive(restrictions_on_gpu, software.software, software.versions, kind, gpu.id)
    yield from restriction_warnings(restricted, kind, gpu.name)
    if partly := tuple((each.software, each.note) for each in restricted if each.supported in RUNS):
        yield statement(WarningCode.SOFTWARE_PARTLY, software=partly)


def _warnings(question: EstimateQuestion, job: JobEstimate | None, catalog: Catalog) -> _Warnings:
    work, cluster, machine = question.work, question.cluster, question.instance_type
    if isinstance(work, MeasuredRate) and work.of_gpus is not None:
        yield statement(WarningCode.HOST_BOUND, rate=work.of_gpus, fed=work.per_second)
    if job is not None and cluster is not None:
        of_estimate = list(estimate_warnings(job, cluster))
        yield from of_estimate
        if machine is not None:
            requested = requested_host_warnings(machine, job.job.loading, question.needs.host_memory_gib)
            shown = {warning.code for warning in of_estimate}
            yield from (warning for warning in requested if warning.code not in shown)
        yield from step_warnings(job.config, catalog)
        yield from _batch_warnings(job)
        alone = machine is not None and catalog.derive(without_cluster)[catalog.index_of[machine.id]]
        if alone and cluster.nodes > 1:
            yield statement(WarningCode.NO_CLUSTER_THERE, nodes=cluster.nodes)
    if isinstance(work, JobQuestion | NamedWork):
        yield from sharing_warnings(work.job if isinstance(work, JobQuestion) else work, question.run.instances)
    yield from _software_warnings(question, catalog)
    if machine is not None:
        yield from _machine_warnings(machine, catalog)


def _machine_warnings(machine: InstanceType, catalog: Catalog) -> _Warnings:
    """Yields the share of its speed that a burstable type sustains, and the end of a type on the catalog's day."""
    if machine.cpu_baseline_share is not None:
        yield statement(WarningCode.BURSTABLE, share=machine.cpu_baseline_share)
    event = machine.event_on(catalog.day)
    if event is not None and event.state in ENDED:
        yield statement(WarningCode.ENDED, instance=machine.id, state=event.state, since=event.starts_on)


def _term_warnings(bills: Sequence[MarketBill]) -> tuple[Statement[WarningCode], ...]:
    """Returns the warnings on terms, each once: bills of several regions have the same."""
    return tuple({warning.code: warning for bill in bills for warning in term_warnings(bill)}.values())


def _batch_warnings(job: JobEstimate) -> _Warnings:
    """Yields what is assumed of a batch or a sample, and requests that wait, which a recommendation rejects."""
    estimate, asked = job.estimate, job.job.concurrency
    if lengths := assumed_lengths(job.job):
        yield statement(WarningCode.LENGTHS_ASSUMED, lengths=lengths, speech=job.job.model.family == "speech")
    if isinstance(job.config, TrainingConfig) and job.config.global_batch is None:
        yield statement(WarningCode.BATCH_ASSUMED, samples=estimate.layout.global_batch)
    if not job.job.serves or estimate.served is not None or not asked or not estimate.concurrency:
        return
    # A replica runs whole requests, so a missing fraction of one is ignored.
    if job.fits and estimate.concurrency <= asked - 1:
        yield statement(WarningCode.REQUESTS_WAIT, asked=asked, running=estimate.concurrency)


def _joules_per_sample(question: EstimateQuestion, job: JobEstimate, physics: Physics) -> float | None:
    """Returns the power of all nodes, as given or measured with the work, else as rated, divided by the likely rate."""
    cluster, rate = question.cluster, job.estimate.samples_per_second
    tdp = None if cluster is None else cluster.gpu.tdp_watts
    rated = None if cluster is None or tdp is None else tdp * cluster.gpus_per_node
    watts = question.own_watts or physics.watts_of_node(rated)
    return None if watts is None or rate is None else watts * question.run.nodes / rate.likely


# The bills


def _bills(question: EstimateQuestion, physics: Physics, catalog: Catalog) -> tuple[MarketBill, ...]:
    work, instance_type = question.work, question.instance_type
    done = work.job if isinstance(work, JobQuestion) else work
    priced = priced_run(done, physics, question.run, question.checkpoints)
    if instance_type is None:
        return (price_own_machine(priced, question.own_usd_per_hour, catalog),)
    if question.usd_per_hour:
        return price_as_given(priced, question.usd_per_hour, instance_type, question.regions, catalog)
    # Plain hours may be of a training run, so managed training is offered for them as well.
    task = done.task if isinstance(done, Job | NamedWork) else "training"
    options = payment_options(
        catalog,
        instance_type,
        question.regions,
        question.markets,
        question.service,
        zone=question.zone,
        training=task == "training",
    )
    return price_everywhere(priced, instance_type, options, catalog)


def _elsewhere(question: EstimateQuestion, bills: Sequence[MarketBill], catalog: Catalog) -> tuple[Elsewhere, ...]:
    """Returns the cheapest hours of the same GPU on other machines, compared with an on-demand hour of this machine."""
    cluster, instance_type = question.cluster, question.instance_type
    if cluster is None:
        return ()
    plain = next((bill for bill in bills if bill.on_demand), None)
    micros = None if plain is None else plain.usd_micros_per_hour
    own = micros / 1e6 / cluster.gpus_per_node if micros else None
    besides = None if instance_type is None else instance_type.id
    hours = cheapest_gpu_hours(catalog, cluster.gpu.id, besides, in_cluster=cluster.nodes > 1)
    return tuple(Elsewhere(hour, 100 - hour.usd_per_gpu_hour / own * 100 if own else None) for hour in hours)
