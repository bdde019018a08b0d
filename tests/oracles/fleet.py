"""Estimates and plans of a job, one type and one number of nodes after the other: slow, and obviously right."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from service.domain.band import Band
from service.domain.bill.interruption import Checkpoints, expect_by_prior, saving_band
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.tariffs import InterruptionPrior, prior_of
from service.domain.errors import QuestionError
from service.domain.jobs.config import TrainingConfig
from service.domain.jobs.job import Job
from service.domain.jobs.job_on_gpu import config_on
from service.domain.layouts.fleet_columns import unknown_figures
from service.domain.layouts.job_estimate import estimate_job
from service.domain.money import Unknown
from service.domain.physics.cluster import cluster_of_instance
from service.domain.physics.memory import weight_bytes
from service.domain.units import GIB

CHECK_OF_FIELD = {
    "workload.precision": "precision",
    "workload.global_batch_size": "global_batch_size",
    "layout": "global_batch_size",
}
"""The check that a job fails, by the field of the error: a batch or a model that no layout divides."""


@dataclass(frozen=True)
class NodeEstimate:
    """A job on a number of nodes of one type; `misses` is the first thing that it lacks, or empty."""

    nodes: int
    misses: str
    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0
    hours: float = inf
    needed_bytes: float = inf
    instances: float = 1.0
    """Instances that serve the load of the job."""
    keeps_limits: bool = True
    samples: float = 1.0
    """Samples of the whole amount, done in `hours`; one without an amount."""
    seconds_per_request: float | None = None
    """Seconds of a request of a load whose rate is given."""

    @property
    def works(self) -> bool:
        return not self.misses


def estimate_on_nodes(job: Job, instance_type: InstanceType, nodes: int, catalog: Catalog) -> NodeEstimate:
    gpu = instance_type.gpu
    if gpu is None or not instance_type.gpu_count:
        return NodeEstimate(nodes, "no_gpu")
    if None in (gpu.memory_gb, gpu.memory_bandwidth_gb_per_second) or not any(
        rate.dense_tflops for rate in gpu.rates.values()
    ):
        known = None if gpu.memory_gb is None else gpu.memory_gb * instance_type.gpu_count * nodes * GIB
        too_small = known is not None and known < _least_weight_bytes(job, catalog)
        return NodeEstimate(nodes, "gpu_memory" if too_small else "gpu_figures_unknown")
    try:
        answer = estimate_job(catalog.reference.calibration, job, cluster_of_instance(instance_type, nodes))
    except QuestionError as error:
        return NodeEstimate(nodes, CHECK_OF_FIELD[error.field or ""])
    memory, rate = answer.estimate.memory, answer.estimate.samples_per_second
    if not answer.estimate.fits_surely:
        misses = (
            "host_memory"
            if memory.fits_surely
            else "kv_cache"
            if _holds_weights(job, instance_type, nodes, catalog)
            else "gpu_memory"
        )
        return NodeEstimate(nodes, misses, needed_bytes=memory.needed_bytes)
    held = answer.estimate.concurrency
    if job.task == "inference" and job.model.generates and (held or 0.0) < (job.concurrency or 0.0) * (1 - 1e-9):
        return NodeEstimate(nodes, "concurrency", needed_bytes=memory.needed_bytes)
    assert rate is not None
    hours = 1 / rate.likely / 3600 if answer.hours is None else answer.hours.likely
    served, needed = answer.estimate.served, memory.needed_bytes
    if served is None:
        samples = 1.0 if answer.samples is None else answer.samples
        return NodeEstimate(nodes, "", rate.low, rate.likely, rate.high, hours, needed, samples=samples)
    request = None if served.serving.concurrency else served.seconds_per_request
    return NodeEstimate(
        nodes, "", rate.low, rate.likely, rate.high, hours, needed, served.instances.likely, not served.missed,
        seconds_per_request=request,
    )  # fmt: skip


def _holds_weights(job: Job, instance_type: InstanceType, nodes: int, catalog: Catalog) -> bool:
    """Whether the model fits with hardly a token in its cache."""
    if job.task != "inference" or not job.model.generates:
        return False
    tiny = replace(job, input_length=1e-6, output_length=1e-6, concurrency=1, serving=None, amount=None)
    cluster = cluster_of_instance(instance_type, nodes)
    return estimate_job(catalog.reference.calibration, tiny, cluster).estimate.memory.fits_surely


def _least_weight_bytes(job: Job, catalog: Catalog) -> float:
    """The bytes of the weights in the narrowest format in which a GPU of the catalog would run the job."""
    least = inf
    for gpu in {type_.gpu.id: type_.gpu for type_ in catalog.instance_types if type_.gpu}.values():
        config = None if unknown_figures(gpu) else config_on(job, gpu)
        if isinstance(config, TrainingConfig):
            least = min(least, 0.0 if config.offload_parameters else weight_bytes(config))
        elif config is not None:
            least = min(least, float(config.model.parameters * config.formats.weight_bits / 8))
    return 0.0 if least == inf else least


def checks_missed(estimates: Sequence[NodeEstimate]) -> set[str]:
    """The checks that a job fails if it runs on no number of nodes: those of the least memory that it needs."""
    if any(estimate.works for estimate in estimates):
        return set()
    least = min(estimate.needed_bytes for estimate in estimates)
    return {estimate.misses for estimate in estimates if estimate.needed_bytes == least}


@dataclass(frozen=True)
class PlainPlan:
    """A job on an offer, on a number of nodes and instances, with the cost of interruptions; in hours and dollars."""

    nodes: int
    instances: int
    rate: float
    hours: float
    hours_high: float
    usd: float | None
    usd_high: float | None
    usd_per_hour: float | None
    paid_hours: float


def plan_on_offer(
    job: Job,
    estimate: NodeEstimate,
    instance_type: InstanceType,
    market: str,
    usd: float | None,
    instances: int,
    checkpoints: Checkpoints,
    catalog: Catalog,
) -> PlainPlan | None:
    """The plan, or None where interruptions would hardly ever let the job end."""
    nodes = estimate.nodes
    per_hour = None if usd is None else usd * nodes * instances
    if job.amount is None:
        count = int(estimate.instances)
        price = None if usd is None else usd * nodes * count
        rate, hours = estimate.likely * count, estimate.hours
        return PlainPlan(nodes, count, rate, hours, hours, price, price, price, hours)
    whole_runs = job.task == "training" and job.runs > 1
    share = estimate.hours * ceil(job.runs / instances) / job.runs if whole_runs else estimate.hours / instances
    undisturbed = Band(share * estimate.likely / estimate.high, share, share * estimate.likely / estimate.low)
    saving = saving_band(undisturbed, checkpoints)
    paid = elapsed = Band(*(getattr(undisturbed, end) + getattr(saving, end) for end in ("low", "likely", "high")))
    if market == "spot":
        gpu = None if instance_type.gpu is None else instance_type.gpu.id
        prior = prior_of(catalog.reference.interruption_priors, instance_type.provider, "spot", gpu, catalog.day)
        expected = expect_by_prior(undisturbed, prior, checkpoints, nodes)
        if isinstance(prior, InterruptionPrior):
            if isinstance(expected, Unknown):
                return None
            paid, elapsed = expected.hours, expected.elapsed or expected.hours
    return PlainPlan(
        nodes,
        instances,
        estimate.likely * instances,
        elapsed.likely,
        elapsed.high,
        None if per_hour is None else per_hour * paid.likely,
        None if per_hour is None else per_hour * paid.high,
        per_hour,
        paid.likely,
    )
