"""The work of a run: its physics on one gang of machines, its amount, and the run that is priced for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from service.domain.band import Band
from service.domain.bill.interruption import Checkpoints
from service.domain.bill.market_bills import PricedRun
from service.domain.bill.run import Run, RunAmount
from service.domain.codes import WarningCode
from service.domain.evidence.named import NamedRate, NamedWork
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.job import Amount, Job, time_of_share
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import Unknown
from service.domain.statement import Statement, statement
from service.domain.units import SECONDS_AN_HOUR

NO_AMOUNT = Unknown("No amount of work is given, so the hours of the run are unknown.")
ENDLESS = Unknown("A load has no end, so its cost is that of a month.")
DOES_NOT_FIT = Unknown("The workload does not fit the machine, so it has no hours.")


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A measured rate of one gang of nodes, and the amount of work, both in samples or both in tokens."""

    per_second: float
    unit: str
    amount: float | None = None
    epochs: float | None = None
    of_gpus: float | None = None
    """The rate of the GPUs, where the host prepares samples more slowly; `per_second` is then that of the host."""


class Physics(NamedTuple):
    """Work on one gang of machines, apart from its price; None where the work has no job, or no run applies."""

    job: JobEstimate | None
    measured: NamedRate | None
    """The rate by measured runs under the name of the work, in place of the modelled one."""

    def watts_of_node(self, rated: float | None) -> float | None:
        """Returns the power of a node: measured with the work, else the rated power of its GPUs."""
        run = self.measured.evidence if self.measured is not None and self.measured.basis == "measured" else None
        return (run and run.watts) or rated


def priced_run(
    work: Job | NamedWork | MeasuredRate | float, physics: Physics, run: Run, checkpoints: Checkpoints
) -> PricedRun:
    """Returns a run with the hours of some work, to be priced in any market."""
    served = None if physics.job is None else physics.job.estimate.served
    return PricedRun.of(run, _amount_of(work, physics, run.instances), checkpoints, served)


def sharing_warnings(work: Job | NamedWork, instances: int) -> Iterator[Statement[WarningCode]]:
    """Yields a warning where several independent instances share one run of training."""
    if work.task == "training" and work.runs == 1 and instances > 1 and work.amount is not None:
        yield statement(WarningCode.TRAINING_SHARED, instances=instances)


def _amount_of(work: Job | NamedWork | MeasuredRate | float, physics: Physics, instances: int) -> RunAmount:
    """Returns the hours of each machine and the amount of work. Instances share work and runs, but not plain hours."""
    job, measured = physics
    if isinstance(work, Job):
        assert job is not None
        amount = _job_amount(job, instances)
        return amount if measured is None else replace(amount, basis=measured.basis)
    if isinstance(work, NamedWork):
        assert measured is not None
        return _named_amount(work, measured, instances)
    if isinstance(work, MeasuredRate):
        return _measured_amount(work, instances)
    return RunAmount(Band(work, work, work), "given")


def _named_amount(work: NamedWork, rate: NamedRate, instances: int) -> RunAmount:
    """Returns the samples of all runs, which the instances share, at the rate of one machine for this named work."""
    per_second, given = rate.samples_per_second, work.amount
    amount = RunAmount(NO_AMOUNT, rate.basis, samples_per_second=per_second)
    if given is None or given.samples is None:
        return amount
    samples = given.samples * work.runs
    return replace(
        amount,
        hours=per_second.inverse_of(samples / SECONDS_AN_HOUR).times(
            float(time_of_share(work.task, work.runs, instances))
        ),
        samples=samples,
        epochs=None if given.epochs is None else given.epochs * work.runs,
    )


def _measured_amount(work: MeasuredRate, instances: int) -> RunAmount:
    hours: Band | Unknown = NO_AMOUNT
    if work.amount is not None:
        likely = work.amount / (work.per_second * instances) / SECONDS_AN_HOUR
        hours = Band(likely, likely, likely)
    if work.unit == "tokens":
        return RunAmount(hours, "measured", tokens=work.amount, epochs=work.epochs)
    rate = Band(work.per_second, work.per_second, work.per_second)
    return RunAmount(hours, "measured", samples=work.amount, epochs=work.epochs, samples_per_second=rate)


def _job_amount(estimate: JobEstimate, instances: int) -> RunAmount:
    """Returns the amount of a job, which independent instances share, and the rates of one instance."""
    job, estimated = estimate.job, estimate.estimate
    inference, given = job.task == "inference", job.amount or Amount()
    length = estimate.tokens_per_sample
    tokens, epochs = (None if each is None else each * job.runs for each in (given.tokens, given.epochs))
    # Tokens given by the caller are exact; samples x mean length are not.
    if tokens is None and estimate.samples is not None and length:
        tokens = estimate.samples * length
    no_hours = DOES_NOT_FIT if not estimate.fits else NO_AMOUNT if job.serving is None else ENDLESS
    return RunAmount(
        hours=estimate.hours_on(instances) or no_hours,
        basis="modelled",
        samples=estimate.samples,
        tokens=tokens,
        epochs=epochs,
        samples_per_second=estimated.samples_per_second,
        input_tokens_per_second=estimated.prefill_tokens_per_second,
        output_tokens_per_second=_rate_of_answers(estimate) if inference else None,
    )


def _rate_of_answers(estimate: JobEstimate) -> Band | None:
    """Returns output tokens per second of the time in which no prompts are read.

    A request then costs its prompt at the price by the prompt rate, and its answer at the price by this rate.
    """
    estimated, rate = estimate.estimate, estimate.estimate.tokens_per_second
    prompts, requests = estimated.prefill_tokens_per_second, estimated.samples_per_second
    if rate is None or prompts is None or requests is None or not isinstance(estimate.config, InferenceConfig):
        return rate
    share = requests.likely * estimate.config.input_length / prompts.likely
    return rate.times(1.0 / (1.0 - share)) if share < 1.0 else rate
