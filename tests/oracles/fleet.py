"""What a job comes to, one type and one number of nodes after the other: slow, and obviously right."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from service.domain.band import Band
from service.domain.bill.interruption import Checkpoints, expect_by_prior, prior_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.errors import QuestionError
from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import estimate_job
from service.domain.money import Unknown
from service.domain.physics.cluster import cluster_of_instance

WHERE_REFUSED = {
    "workload.precision": "precision",
    "global_batch_size": "global_batch_size",
    "layout": "global_batch_size",
}
"""A batch that no layout spreads, or a model that none divides."""


@dataclass(frozen=True)
class Alone:
    """A job on so many nodes of one type; `misses` is the first thing it lacks, or empty."""

    nodes: int
    misses: str
    low: float = 0.0
    likely: float = 0.0
    high: float = 0.0
    hours: float = inf
    needed_bytes: float = inf

    @property
    def works(self) -> bool:
        return not self.misses


def alone(job: Job, kind: InstanceType, nodes: int, catalog: Catalog) -> Alone:
    gpu = kind.gpu
    if gpu is None or not kind.gpu_count:
        return Alone(nodes, "no_gpu")
    if None in (gpu.memory_gb, gpu.memory_bandwidth_gb_per_second) or not any(
        rate.dense_tflops for rate in gpu.rates.values()
    ):
        return Alone(nodes, "gpu_figures_unknown")
    try:
        found = estimate_job(catalog.reference.physics, job, cluster_of_instance(kind, nodes))
    except QuestionError as error:
        return Alone(nodes, WHERE_REFUSED[error.field or ""])
    memory, rate = found.estimate.memory, found.estimate.samples_per_second
    if not found.estimate.fits:
        return Alone(nodes, "host_memory" if memory.fits else "gpu_memory", needed_bytes=memory.needed_bytes)
    assert rate is not None
    hours = 1 / rate.likely / 3600 if found.hours is None else found.hours.likely
    return Alone(nodes, "", rate.low, rate.likely, rate.high, hours, memory.needed_bytes)


def works_on_none(each: Sequence[Alone]) -> set[str]:
    """Of what runs on no number of nodes, what any of them that needs the least memory misses."""
    if any(one.works for one in each):
        return set()
    least = min(one.needed_bytes for one in each)
    return {one.misses for one in each if one.needed_bytes == least}


@dataclass(frozen=True)
class Planned:
    """A job on an offer, on so many nodes and instances, with what interruptions cost; in hours and dollars."""

    nodes: int
    instances: int
    rate: float
    hours: float
    hours_high: float
    usd: float | None
    usd_high: float | None
    usd_per_hour: float | None
    paid_hours: float


def planned(
    job: Job, one: Alone, kind: InstanceType, market: str, usd: float | None, instances: int, checkpoints: Checkpoints,
    catalog: Catalog,
) -> Planned | None:  # fmt: skip
    """Nothing where interruptions would hardly ever let it end."""
    per_hour = None if usd is None else usd * one.nodes * instances
    if job.amount is None:
        price = None if usd is None else usd * one.nodes
        return Planned(one.nodes, 1, one.likely, one.hours, one.hours, price, price, price, one.hours)
    share = one.hours / instances
    undisturbed = Band(share * one.likely / one.high, share, share * one.likely / one.low)
    paid = elapsed = undisturbed
    if market == "spot":
        gpu = None if kind.gpu is None else kind.gpu.id
        prior = prior_of(catalog.reference.interruption_priors, kind.provider, "spot", gpu, catalog.day)
        expected = expect_by_prior(undisturbed, prior, checkpoints, one.nodes)
        if isinstance(prior, InterruptionPrior):
            if isinstance(expected, Unknown):
                return None
            paid, elapsed = expected.hours, expected.elapsed or expected.hours
    return Planned(
        one.nodes,
        instances,
        one.likely * instances,
        elapsed.likely,
        elapsed.high,
        None if per_hour is None else per_hour * paid.likely,
        None if per_hour is None else per_hour * paid.high,
        per_hour,
        paid.likely,
    )
