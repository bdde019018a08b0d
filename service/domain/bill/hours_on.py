"""The amount of work that a machine does in a number of hours."""

from dataclasses import replace

from service.domain.catalog.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.evidence.named import NamedMeasurements, NamedWork
from service.domain.jobs.job import Amount, Job
from service.domain.layouts.fleet_columns import is_rated
from service.domain.layouts.job_estimate import estimate_job
from service.domain.physics.cluster import cluster_of_instance
from service.domain.units import SECONDS_AN_HOUR


def amount_of_hours(
    work: Job | NamedWork, name: str | None, machine: str, hours: float, catalog: Catalog
) -> Amount | None:
    """Returns the work of a machine in these hours, at its measured rate, else the estimated one; None: unknown."""
    measured = name and NamedMeasurements.of(catalog.measurements.under(name), catalog).measured_on(machine)
    rate, beyond = (measured.samples_per_second.likely if measured else None), 0.0
    if isinstance(work, Job) and (estimated := catalog.derive(_estimated_on, work, machine, cache=catalog.outlooks)):
        rate, beyond = rate or estimated[0], estimated[1]
    return None if rate is None else Amount(samples=rate * hours * SECONDS_AN_HOUR / (1.0 + beyond))


def _estimated_on(catalog: Catalog, job: Job, machine: str) -> tuple[float, float] | None:
    """Returns the samples per second of a job on a machine, and the time beyond the steps of a run as a share."""
    # Only an amount of work has time beyond its steps. Inference gets no amount, which would be a burst of requests.
    job = replace(job, amount=Amount(samples=1.0)) if job.task == "training" else job
    instance_type = catalog.instance_types[catalog.index_of[machine]]
    if not is_rated(instance_type):
        return None
    cluster = cluster_of_instance(instance_type, 1, job.assumed_network_gbps)
    try:
        estimated = estimate_job(catalog.reference.calibration, job.in_any_layout, cluster)
    except QuestionError:  # no precision or layout of the job exists there
        return None
    rate = estimated.estimate.samples_per_second
    return None if rate is None else (rate.likely, estimated.beyond_steps or 0.0)
