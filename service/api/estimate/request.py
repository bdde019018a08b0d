"""The body of POST /estimate, and the question that it asks of the domain."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, Literal

from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.estimate.cost_request import CostRequest, Hours, Rate, gate_of, only_one, run_of, service_of
from service.api.http.fields import (
    Amount,
    AsOf,
    AtLeastOne,
    BodyModel,
    Gbps,
    KnownAt,
    Name,
    Named,
    Positive,
)
from service.api.workload.checkpoints import checkpoints_in
from service.api.workload.job import job_of, named_work_of
from service.api.workload.layout import FixedLayoutRequest
from service.api.workload.requirements import LIBRARIES, requirements_of, unknown_software
from service.api.workload.workload import WorkloadRequest
from service.domain.bill.payment_options import regions_with
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import resolve_gpus, resolve_machine
from service.domain.catalog.offer import Market
from service.domain.catalog.regions import resolve_zones, zones_with_prices
from service.domain.errors import QuestionError
from service.domain.estimate.estimate import EstimateQuestion, JobQuestion
from service.domain.estimate.work import MeasuredRate
from service.domain.evidence.named import NamedWork
from service.domain.jobs.kind_of_work import kind_of, library_of
from service.domain.layouts.fleet_columns import has_processor, unknown_figures
from service.domain.physics.cluster import Cluster, cluster_of, cluster_of_instance
from service.domain.selection.requirements import NOTHING, Requirements


class MachineDescriptionRequest(BodyModel):
    """One node of hardware that need not be for rent."""

    gpu: Name
    """GPU id, name or alias that means one GPU, see `/gpus`."""
    gpu_count: AtLeastOne = 1
    """GPUs of the node."""
    interconnect: (
        Literal["none", "pcie", "nvlink", "nvswitch", "infinity_fabric", "ici", "neuronlink", "roce"] | None
    ) = None
    """How the GPUs are linked. Default: as is usual for the GPU."""
    interconnect_gb_per_second: Positive | None = None
    """Bandwidth per GPU, both directions added. Default: as is usual for `interconnect`."""
    vcpus: Positive | None = None
    """vCPUs of the node. Default: unknown."""
    memory_gib: Positive | None = None
    """Host memory of the node. Default: unknown."""
    network_gbps: Gbps | None = None
    """Network of the node. Default: `workload.assume_network_gbps`."""
    usd_per_hour: Amount | None = None
    """Price of the node. Default: unknown."""
    watts: Positive | None = None
    """Power of the node. Default: the rated power of its GPUs."""


class LayoutRequest(FixedLayoutRequest):
    """How the job is divided over the GPUs; `choose` says how omitted fields are chosen."""

    choose: Literal["fastest", "usual", "usual_if_it_fits"] = "fastest"
    """How omitted fields are chosen: the fastest layout that fits, the usual one, or the usual one if it fits."""


class MeasuredRateRequest(BodyModel):
    """A rate that the caller measured on all `nodes` together, and the amount of work. No speed is estimated then."""

    samples_per_second: Rate | None = None
    """Samples per second of all `nodes` together; or send `tokens_per_second`."""
    tokens_per_second: Rate | None = None
    """Tokens per second of all `nodes` together."""
    host_samples_per_second: Rate | None = None
    """Samples per second that the CPUs prepare; the lower of the two rates counts."""
    samples: Positive | None = None
    """Amount of work; with `epochs`, of one epoch."""
    tokens: Positive | None = None
    """Amount of work; with `epochs`, of one epoch."""
    epochs: Positive | None = None
    """How often the data is used. Default: 1."""


class EstimateRequest(CostRequest):
    """A workload, or a measured rate, or plain hours, on a machine."""

    workload: Annotated[
        WorkloadRequest | None, Field(description="What runs. Give one of `workload`, `measured` and `hours`.")
    ] = None
    hours: Hours | None = None
    """In place of a workload: how many hours each machine runs, such as 24."""
    measured: MeasuredRateRequest | None = None
    """In place of a workload: its measured rate and its amount."""
    machine: Named[Name, MachineDescriptionRequest]
    """An instance type such as `aws/p4d.24xlarge`, or the description of a machine."""
    nodes: AtLeastOne = 1
    """Machines that run one job together."""
    layout: LayoutRequest = LayoutRequest()
    """How the job is divided over the GPUs. Default: the fastest layout that fits."""
    largest_batch: bool = False
    """Also find the largest micro-batch of training that fits in the layout of the answer. Not in a batch."""
    as_of: AsOf = None
    known_at: KnownAt = None

    @property
    def instances_asked(self) -> int:
        """Number of instances: as sent, else one for each run of the workload. A load determines its own number."""
        if self.instances is not None:
            return self.instances
        return 1 if self.workload is None or self.workload.serving is not None else self.workload.concurrent_runs


def question_of(body: EstimateRequest, catalog: Catalog) -> EstimateQuestion:
    """Returns the question with every name resolved. Raises `QuestionError`."""
    only_one(
        (("workload", body.workload), ("hours", body.hours), ("measured", body.measured)),
        "Give a workload, or a number of hours.",
    )
    instance_type = _instance_type(body.machine, catalog) if isinstance(body.machine, str) else None
    if body.load is not None and body.workload is None:
        raise QuestionError("A load needs a workload of the task 'inference'.", field="load")
    cluster = cluster_in(body, instance_type, catalog)
    own = body.machine if isinstance(body.machine, MachineDescriptionRequest) else None
    markets, work = resolved("market", body.market, catalog), _work(body, cluster, catalog)
    return EstimateQuestion(
        work=work,
        instance_type=instance_type,
        cluster=cluster,
        run=run_of(body, catalog, body.nodes, body.instances_asked),
        checkpoints=checkpoints_in(body.checkpoint_of(body.workload), body.workload),
        own_usd_per_hour=None if own is None else own.usd_per_hour,
        own_watts=None if own is None else own.watts,
        service=service_of(body, None if body.workload is None else body.workload.task, catalog),
        regions=_regions(body, instance_type, catalog),
        zone=_zone(body, catalog),
        markets=markets,
        gate=gate_of(body),
        usd_per_hour=_own_prices(body, markets),
        finds_largest_batch=body.largest_batch,
        needs=NOTHING if body.workload is None else _needs(body.workload, work, catalog),
        unknown_libraries=() if body.workload is None else _unknown_libraries(body.workload, catalog),
    )


def _needs(sent: WorkloadRequest, work: object, catalog: Catalog) -> Requirements:
    """Returns the requirements of a workload, with the library that a job takes whether it is named or not."""
    job = work.job if isinstance(work, JobQuestion) else None
    library = None if job is None else library_of(job, job.task, sent.method, sent.software.framework)
    return requirements_of(
        sent, None, catalog, has_job=job is not None, platform_named_by=None, library=library, kind=kind_of(job)
    )


def _unknown_libraries(work: WorkloadRequest, catalog: Catalog) -> tuple[str, ...]:
    """Returns the names of libraries without rules. The estimate says of other software which stack it assumes."""
    return tuple(name for name, field in unknown_software(work, catalog).items() if field == LIBRARIES)


def _regions(body: EstimateRequest, instance_type: InstanceType | None, catalog: Catalog) -> tuple[str, ...]:
    """Returns the named regions; of a place, those of its regions that have the machine. Raises `QuestionError`."""
    meant = [resolved("region", (name,), catalog) for name in body.region]
    if instance_type is not None:
        meant = [regions_with(catalog, instance_type, name, ids) for name, ids in zip(body.region, meant, strict=True)]
    return tuple(dict.fromkeys(chain(*meant)))


def _zone(body: EstimateRequest, catalog: Catalog) -> str | None:
    """Returns the id of the zone. Raises `QuestionError`, also for one that is in none of the named regions."""
    if body.zone is None:
        return None
    zones = zones_with_prices(catalog.offers)
    (zone,) = resolve_zones((body.zone,), zones, catalog.reference.regions)
    if body.region and zones[zone] not in resolved("region", body.region, catalog):
        raise QuestionError(f"{zone} is a zone of {zones[zone]}: name that region, or none.", field="zone")
    return zone


DESCRIBE = "Describe a machine with it, as an object with its gpu and gpu_count."


def _instance_type(name: str, catalog: Catalog) -> InstanceType:
    """Returns the instance type. Raises `QuestionError` for the name of a GPU, which may also be a seller's machine."""
    return catalog.instance_types[catalog.index_of[resolve_machine(name, catalog, "machine", DESCRIBE)]]


def cluster_in(body: EstimateRequest, instance_type: InstanceType | None, catalog: Catalog) -> Cluster | None:
    """Returns the nodes that the body asks for; None for a type without a GPU. Raises `QuestionError`."""
    assumed = None if body.workload is None else body.workload.assume_network_gbps
    if instance_type is not None:
        return cluster_of_instance(instance_type, body.nodes, assumed) if has_processor(instance_type) else None
    machine = body.machine
    assert isinstance(machine, MachineDescriptionRequest)
    gpus = resolve_gpus([machine.gpu], catalog, "machine.gpu")
    if len(gpus) > 1:
        raise QuestionError(
            f"'{machine.gpu}' may be any of {', '.join(gpus)}: name one.", field="machine.gpu", near=gpus[:3]
        )
    # Refused rather than ignored: the caller would take the answer for a price in that market.
    for field in ("market", "region", "zone", "managed_service"):
        if getattr(body, field):
            raise QuestionError(f"A described machine has a price of its own: leave {field} out.", field=field)
    return cluster_of(
        catalog.reference.gpus[gpus[0]],
        machine.gpu_count,
        body.nodes,
        machine.interconnect,
        machine.interconnect_gb_per_second,
        machine.network_gbps or assumed,
        machine.vcpus,
        machine.memory_gib,
    )


def _work(
    body: EstimateRequest, cluster: Cluster | None, catalog: Catalog
) -> JobQuestion | NamedWork | MeasuredRate | float:
    if body.hours is not None:
        return body.hours
    if body.measured is not None:
        return _measured(body.measured)
    work = loaded(body)
    try:
        job = job_of(work, catalog, body.layout)
    except QuestionError as error:
        raise error.at((error.field or "").replace("workload.serving", "load") if body.load else error.field) from None
    named = named_work_of(work, catalog) if work.model is None and work.serving is None else None
    if named is not None:
        return named
    if job is None:
        raise QuestionError(
            "An estimate needs workload.model: a name of GET /models, or its dimensions"
            + (f", since nothing was measured under '{work.name}'." if work.name else ".")
            if work.model is None
            else f"The duration of '{work.task}' cannot be estimated; give hours instead.",
            field="workload.model" if work.model is None else "workload.task",
        )
    if cluster is None:
        raise QuestionError("The machine has no GPU, and the figures of its CPUs are unknown.", field="machine")
    if unknown := unknown_figures(cluster.gpu):
        raise QuestionError(
            f"The {' and the '.join(unknown)} of the {cluster.gpu.name} {'are' if len(unknown) > 1 else 'is'} not "
            "known, so no job can be estimated on it: give hours or a measured rate instead.",
            field="machine",
        )
    if job.serving is not None and body.instances is not None:
        job = replace(job, serving=replace(job.serving, min_instances=body.instances, max_instances=body.instances))
    return JobQuestion(job, cluster, body.layout.choose, work.name)


def _measured(rate: MeasuredRateRequest) -> MeasuredRate:
    if (rate.samples_per_second is None) == (rate.tokens_per_second is None):
        raise QuestionError("Give either measured.samples_per_second or measured.tokens_per_second.", field="measured")
    if rate.samples is not None and rate.tokens is not None:
        raise QuestionError("Give either measured.samples or measured.tokens.", field="measured.tokens")
    if rate.epochs is not None and rate.samples is None and rate.tokens is None:
        raise QuestionError("Epochs need the samples or tokens of one epoch.", field="measured.epochs")
    unit, other = ("tokens", "samples") if rate.tokens_per_second is not None else ("samples", "tokens")
    if getattr(rate, other) is not None:
        raise QuestionError("The amount must be in the unit of the rate: samples or tokens.", field=f"measured.{other}")
    one_epoch = getattr(rate, unit)
    amount = None if one_epoch is None else one_epoch * (rate.epochs or 1)
    measured, host = getattr(rate, f"{unit}_per_second"), rate.host_samples_per_second
    if host is not None and unit == "samples" and host < measured:
        return MeasuredRate(host, unit, amount, rate.epochs, of_gpus=measured)
    return MeasuredRate(measured, unit, amount, rate.epochs)


def loaded(body: EstimateRequest) -> WorkloadRequest:
    """Returns the workload with the load, which the body may have next to the workload. Raises `QuestionError`."""
    work = body.workload
    assert work is not None
    if body.load is None:
        return work
    if work.serving is not None:
        raise QuestionError("Give either load or workload.serving, not both.", field="load")
    return work.model_copy(update={"serving": body.load})


def _own_prices(body: EstimateRequest, markets: Sequence[str]) -> dict[Market, float]:
    """Returns the caller's own prices of the requested markets. Raises `QuestionError`."""
    prices = body.usd_per_hour or {}
    if not prices:
        return {}
    for name in ("zone", "managed_service"):
        if getattr(body, name):
            raise QuestionError(f"usd_per_hour applies to no {name}: leave one of the two out.", field=name)
    if not isinstance(body.machine, str):
        raise QuestionError("A described machine has its price in machine.usd_per_hour.", field="usd_per_hour")
    if missing := [market for market in markets if market not in prices]:
        raise QuestionError(f"market names {missing[0]}, but usd_per_hour has no price for it.", field="usd_per_hour")
    return {market: usd for market, usd in prices.items() if not markets or market in markets}
