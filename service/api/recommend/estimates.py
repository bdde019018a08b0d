"""The `estimate` and `spot` objects of a choice: a modelled job, a measured workload, or peaks."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from service.api.estimate.response import (
    BandResponse,
    ModelledEstimateResponse,
    MoneyResponse,
    like,
    modelled_estimate,
    shown,
    shown_fields,
)
from service.api.http.fields import Described
from service.api.http.figures import rounded
from service.domain.recommend.answer import PeakEstimate, SpotEstimate, WorkEstimate

HOURS = (
    "Hours until the whole amount is done, with checkpoints, interruptions, waiting for capacity, set-up and idle time."
)
USD = "Dollars of the whole job, as in `cost.usd`; null without a price or an amount of work."


@dataclass(slots=True)
class PeakEstimateResponse(Described):
    """The figures that rank a choice without a model: the vendor's peak rates, not a predicted speed."""

    basis: Literal["peak"]
    precision: str | None
    """The precision of the peak, see `/precisions`; null: no peak is known, or none ranks the machine."""
    peak_tflops: float | None
    """Dense peak of the machine at the precision, in 10^12 operations per second."""
    peak_tflops_per_usd_hour: float | None
    """`peak_tflops` over the hourly price of all machines; null: unknown."""
    peak_tflops_per_watt: float | None
    """`peak_tflops` over the rated power of the GPUs of all machines; null: unknown."""


@dataclass(slots=True)
class JobEstimateResponse(ModelledEstimateResponse):
    """The job on all instances of a choice, and its cost there."""

    hours: Annotated[BandResponse | None, Field(description=HOURS)]
    usd: Annotated[MoneyResponse | None, Field(description=USD)]
    samples_per_usd: float | None
    """The likely value of `cost.per_unit.samples_per_usd`; null: unknown."""


@dataclass(slots=True)
class MeasuredEstimateResponse(Described):
    """Figures of a workload without a model: measured on this machine, or scaled from the most similar one."""

    basis: Literal["measured", "scaled"]
    """`measured` on this machine, or `scaled` from another one."""
    samples_per_second: BandResponse
    """The rate of all machines together."""
    hours: Annotated[BandResponse | None, Field(description=f"{HOURS} Null without an amount in samples.")]
    usd: Annotated[MoneyResponse | None, Field(description=USD)]
    samples_per_usd: float | None
    """The likely value of `cost.per_unit.samples_per_usd`; null: unknown."""
    joules_per_sample: float | None
    """Energy of a sample at the rated power of the GPUs, or at the measured power that the measurement states."""


@dataclass(slots=True)
class SpotResponse(Described):
    """Expected interruptions at spot, and the time that they add."""

    interruptions: BandResponse
    """Interruptions of all instances until the job is done."""
    interruptions_per_hour: BandResponse
    """Rate of all instances together; `break_even_interruptions_per_hour` is that of one."""
    checkpoint_interval_minutes: float
    """Minutes of work between checkpoints: the caller's, or those that cost the least time."""
    stretch: float
    """Paid hours over the hours of a run without interruptions, which saves at the interval of the request, if any."""
    paid_hours: BandResponse
    """Hours of work, checkpoints and interruptions that each machine is paid for, without set-up and idle time."""
    notice_seconds: int | None
    """Seconds between the warning and the end of a machine."""
    break_even_interruptions_per_hour: float | None
    """Interruptions per hour of one instance at which on demand costs the same in the region; null if spot never pays,
    or if no price on demand is known there."""
    basis: str
    """`prior`: the rate is an assumption until it is measured."""
    source: str | None
    """Id of the source of the rate."""


def estimate_response(
    estimate: WorkEstimate | PeakEstimate,
) -> JobEstimateResponse | MeasuredEstimateResponse | PeakEstimateResponse:
    """Returns the estimate of a choice, by which it was ranked."""
    if isinstance(estimate, WorkEstimate):
        return _work_estimate(estimate)
    return like(PeakEstimateResponse, estimate, basis="peak")


def _work_estimate(estimate: WorkEstimate) -> JobEstimateResponse | MeasuredEstimateResponse:
    measured = estimate.measured
    if estimate.modelled is None:
        assert measured is not None
        return like(MeasuredEstimateResponse, estimate, basis=measured.basis)
    of_all = ("samples_per_second", "hours", "joules_per_sample", "usd", "samples_per_usd")
    return modelled_estimate(
        JobEstimateResponse,
        estimate.modelled,
        estimate.instances,
        basis="modelled" if measured is None else measured.basis,
        **shown_fields(estimate, *of_all),
    )


def spot_response(spot: SpotEstimate) -> SpotResponse:
    """Returns the expected interruptions of a choice at spot."""
    expected = spot.expected
    return like(
        SpotResponse,
        expected,
        checkpoint_interval_minutes=rounded(expected.interval_seconds / 60),
        paid_hours=BandResponse.of(expected.hours),
        break_even_interruptions_per_hour=spot.break_even and shown(spot.break_even.interruptions_per_hour),
        **shown_fields(spot, "interruptions", "interruptions_per_hour", "notice_seconds"),
    )
