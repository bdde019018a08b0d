"""What a job comes to, one type and one number of nodes after the other: slow, and obviously right."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf, log

from service.domain.appraisal import appraise
from service.domain.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.hardware import InstanceType
from service.domain.job import Job
from service.domain.machine import machine_of_instance
from service.domain.outlook import Aim

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
        found = appraise(catalog.reference.physics, job, machine_of_instance(kind, nodes))
    except QuestionError as error:
        return Alone(nodes, WHERE_REFUSED[error.field or ""])
    memory, rate = found.estimate.memory, found.estimate.samples_per_second
    if not found.estimate.fits:
        return Alone(nodes, "host_memory" if memory.fits else "gpu_memory", needed_bytes=memory.needed_bytes)
    assert rate is not None
    hours = 1 / rate.likely / 3600 if found.hours is None else found.hours.likely
    return Alone(nodes, "", rate.low, rate.likely, rate.high, hours, memory.needed_bytes)


@dataclass(frozen=True)
class Prospect:
    """A job on one type, on every number of nodes."""

    each: Sequence[Alone]
    aim: Aim
    has_amount: bool

    @cached_property
    def candidates(self) -> list[Alone]:
        """The numbers of nodes to choose among: those in time, or else the fastest; nothing where it runs on none."""
        working = [one for one in self.each if one.works]
        limit = self.aim.deadline_hours
        if not working or limit is None:
            return working
        in_time = [one for one in working if one.hours <= limit]
        return in_time or [min(working, key=lambda one: one.hours)]

    def score(self, one: Alone) -> float:
        dollars = log(one.nodes * one.hours) if self.has_amount else log(one.nodes)
        return self.aim.usd * dollars + self.aim.hours * log(one.hours)

    @property
    def best_score(self) -> float:
        return min(map(self.score, self.candidates))

    @property
    def misses(self) -> set[str]:
        """Of what runs on no number of nodes, what any of them that needs the least memory misses."""
        if any(one.works for one in self.each):
            return {"deadline_hours"} if self.late else set()
        least = min(one.needed_bytes for one in self.each)
        return {one.misses for one in self.each if one.needed_bytes == least}

    @property
    def late(self) -> bool:
        limit = self.aim.deadline_hours
        return limit is not None and all(one.hours > limit for one in self.candidates)


def prospect(job: Job, kind: InstanceType, counts: Sequence[int], aim: Aim, catalog: Catalog) -> Prospect:
    return Prospect([alone(job, kind, nodes, catalog) for nodes in counts], aim, job.amount is not None)
