"""How much there is to do, and how fast it is done: by the physics, by a measurement, or as plain hours."""

from collections.abc import Callable

from service.api.estimate.cost_request import CostRequest, MeasuredRateRequest, load_of
from service.api.estimate.priced_run import RunAmount
from service.api.workload.workload import WorkloadRequest
from service.domain.band import Band
from service.domain.bill.serving import Served, serve
from service.domain.errors import QuestionError
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import Unknown

SECONDS_AN_HOUR = 3600.0


def work_in_hours(hours: float) -> RunAmount:
    return RunAmount(Band(hours, hours, hours), "given")


def work_measured(told: MeasuredRateRequest, instances: int) -> RunAmount:
    """Work at a rate that was seen; the instances share it. Raises `QuestionError` for an amount in another unit."""
    if (told.samples_per_second is None) == (told.tokens_per_second is None):
        raise QuestionError("Tell either measured.samples_per_second or measured.tokens_per_second.", field="measured")
    if told.samples is not None and told.tokens is not None:
        raise QuestionError("Tell either measured.samples or measured.tokens.", field="measured.tokens")
    if told.epochs is not None and told.samples is None:
        raise QuestionError("Epochs need samples: how many one epoch has.", field="measured.epochs")
    by_tokens = told.tokens_per_second is not None
    samples = None if told.samples is None else told.samples * (told.epochs or 1)
    if (by_tokens and samples is not None) or (not by_tokens and told.tokens is not None):
        raise QuestionError(
            "The amount must be in the unit of the rate: samples or tokens.",
            field="measured.samples" if by_tokens else "measured.tokens",
        )
    rate = told.tokens_per_second if by_tokens else told.samples_per_second
    amount = told.tokens if by_tokens else samples
    assert rate is not None
    band = Band(rate, rate, rate)
    return RunAmount(
        hours=None if amount is None else hours_at(amount, band, instances),
        basis="measured",
        why_no_hours="No amount of work is told, so only its hours are priced.",
        samples=samples,
        tokens=told.tokens,
        epochs=told.epochs,
        samples_per_second=None if by_tokens else band,
    )


def hours_at(amount: float, rate: Band, instances: int) -> Band:
    hours = amount / (rate.likely * instances) / SECONDS_AN_HOUR
    return Band(hours, hours, hours)


def work_appraised(found: JobEstimate, asked: WorkloadRequest, instances: int, basis: str) -> RunAmount:
    """The work of a job on a gang; the instances share its hours."""
    inference = asked.task == "inference"
    length = asked.output_length if inference else found.tokens_per_sample
    estimate = found.estimate
    if not estimate.fits:
        why = "The workload does not fit the machine, so it has no hours."
    else:
        why = "No amount of work is told, so only its hours are priced."
    told = asked.amount
    tokens = None if told is None else told.tokens
    if tokens is None and found.samples is not None and length:
        tokens = found.samples * length
    return RunAmount(
        hours=None if found.hours is None else found.hours.times(1 / instances),
        basis=basis,
        why_no_hours=why,
        samples=found.samples,
        tokens=tokens,
        epochs=None if told is None else told.epochs,
        samples_per_second=estimate.samples_per_second,
        input_tokens_per_second=estimate.prefill_tokens_per_second,
        output_tokens_per_second=estimate.tokens_per_second if inference else None,
    )


def served_by(
    asked: CostRequest, work: WorkloadRequest | None, found: JobEstimate | None, again: Callable[[float], JobEstimate]
) -> Served | Unknown | None:
    """What it takes to serve the load. Raises `QuestionError` for a load of what does not answer."""
    if asked.load is None:
        return None
    load = load_of(asked.load)
    if work is None or found is None or work.task != "inference":
        raise QuestionError("A load needs a workload of the task 'inference'.", field="load")
    fixed = work.concurrency is not None or work.batch_size is not None
    return serve(found, load, None if fixed else again)
