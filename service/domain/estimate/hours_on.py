"""The amount of work that a machine does in a number of hours."""

from dataclasses import replace

from service.domain.catalog.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.estimate.estimate import modelled_rate
from service.domain.evidence.named import NamedMeasurements, NamedWork
from service.domain.jobs.job import Amount, Job
from service.domain.layouts.fleet_columns import is_rated
from service.domain.layouts.job_estimate import JobEstimate, estimate_job
from service.domain.physics.cluster import cluster_of_instance
from service.domain.units import SECONDS_AN_HOUR


def amount_of_hours(
    work: Job | NamedWork, name: str | None, machine: str, hours: float, catalog: Catalog
) -> Amount | None:
    """Returns the work of a machine in these hours, at its measured rate, else the estimated one; None: unknown."""
    estimated = catalog.derive(_estimated_on, work, machine, cache=catalog.outlooks) if isinstance(work, Job) else None
    modelled = None if estimated is None else modelled_rate(estimated)
    runs = NamedMeasurements.of(catalog.measurements.under(name) if name else (), catalog)
    # A run above the peak of the machine was other work under the same name.
    measured = runs.measured_on(machine, 1, lambda run: modelled is None or run.samples_per_second <= modelled.at_peak)
    band = modelled and modelled.band if measured is None else measured.samples_per_second
    beyond = 0.0 if estimated is None else estimated.beyond_steps or 0.0
    return None if band is None else Amount(samples=band.likely * hours * SECONDS_AN_HOUR / (1.0 + beyond))


def _estimated_on(catalog: Catalog, job: Job, machine: str) -> JobEstimate | None:
    """Returns the estimate of a job on a machine; None where it does not run there."""
    # Only an amount of work has time beyond its steps. Inference gets no amount, which would be a burst of requests.
    job = replace(job, amount=Amount(samples=1.0)) if job.task == "training" else job
    instance_type = catalog.instance_types[catalog.index_of[machine]]
    if not is_rated(instance_type):
        return None
    cluster = cluster_of_instance(instance_type, 1, job.assumed_network_gbps)
    try:
        return estimate_job(catalog.reference.calibration, job.in_any_layout, cluster)
    except QuestionError:  # no precision or layout of the job exists there
        return None
