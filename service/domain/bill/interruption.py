"""Spot in expectation: how much longer a run takes, and what it costs, when its machines are taken away now and then.

The model is the usual one: interruptions come at random at a constant rate (exponential times between them), work is
saved every interval, and after an interruption the machine is started again and redoes what was not saved.
Real spot markets are burstier: see `InterruptionPrior` and the rows of `seed/interruption_priors.csv`.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval" (CACM 17, 1974); J. T. Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps" (FGCS 22, 2006).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import exp, expm1, inf, isfinite, log1p, sqrt
from typing import Any, TypeVar

from numpy.typing import NDArray

from service.domain.band import Band
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.money import Unknown

T = TypeVar("T", float, NDArray[Any])

SECONDS_AN_HOUR = 3600.0
HOURS_A_MONTH = 730.0

EIGHT_IN_TEN = 1.2816
"""Standard deviations on either side of the mean that hold eight of ten normal cases, as every band here does."""

LONGEST_STRETCH = 100.0
"""A run that takes a hundred times as long as undisturbed is one that never ends."""

NEVER_ENDS = "Interruptions come so often that the run would hardly ever finish."


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """How a run saves its work. Without an interval the best one is used; `inf` saves only at the end."""

    save_seconds: float
    restart_seconds: float
    interval_seconds: float | None = None


def prior_of(
    priors: Sequence[InterruptionPrior], provider: str, market: str, gpu: str | None, day: date
) -> InterruptionPrior | Unknown:
    """What holds for a GPU of a provider in a market on a day: the narrowest row, and of those the newest."""
    known = [
        prior
        for prior in priors
        if prior.market == market
        and prior.provider in ("", provider)
        and prior.gpu in ("", gpu)
        and prior.valid_from <= day
    ]
    if not known:
        return Unknown(f"How often {provider} interrupts {market} machines is not known.")
    return max(known, key=lambda prior: (bool(prior.provider), bool(prior.gpu), prior.valid_from))


def rate_of_monthly_share(share: float) -> float:
    """Interruptions per hour that a published monthly share would mean: -ln(1 - share) / 730.

    5 % a month would be one in 14,200 hours. Traces of GPU spot pools show one in 2 to 10 hours, so a published share
    ranks pools and says nothing of the time between interruptions.
    """
    return -log1p(-share) / HOURS_A_MONTH


def gang_rate(per_hour: float, nodes: T, lost_together: T | float = 0.0) -> T:
    """Interruptions per hour of a gang that stops as soon as one of its nodes does.

    rate x (together + (1 - together) x nodes): independent nodes add up, and nodes that are lost together count once.
    """
    return per_hour * (lost_together + (1.0 - lost_together) * nodes)


def young_interval(save_seconds: float, mean_seconds: float) -> float:
    """Seconds of work between checkpoints, to first order: sqrt(2 x save x mean time between interruptions)."""
    return sqrt(2.0 * save_seconds * mean_seconds)


def daly_interval(save_seconds: float, mean_seconds: float) -> float:
    """The interval to higher order: sqrt(2 s M) [1 + sqrt(s / 2M) / 3 + (s / 2M) / 9] - s, and M where s >= 2 M."""
    if save_seconds >= 2.0 * mean_seconds:
        return mean_seconds
    ratio = save_seconds / (2.0 * mean_seconds)
    return young_interval(save_seconds, mean_seconds) * (1.0 + sqrt(ratio) / 3.0 + ratio / 9.0) - save_seconds


def interval_of(checkpoints: Checkpoints, work_seconds: float, per_hour: float) -> float:
    """Seconds of work between checkpoints: the caller's, or Daly's; never longer than the work."""
    interval = checkpoints.interval_seconds
    if interval is None:
        mean = SECONDS_AN_HOUR / per_hour if per_hour > 0 else inf
        interval = daly_interval(checkpoints.save_seconds, mean) if isfinite(mean) else inf
    # Saving costs nothing where it takes no time; a second is then as often as anyone saves.
    return min(max(interval, 1.0), work_seconds)


def expected_seconds(work_seconds: float, interval: float, checkpoints: Checkpoints, per_hour: float) -> float:
    """Seconds that the work takes in the mean, with saving, restarting and redoing (Daly 2006, eq. 20).

    M e^(R/M) (e^((interval + save)/M) - 1) x work / interval, with M seconds between interruptions and R to restart;
    work x (1 + save / interval) where nothing interrupts. Infinite where it cannot be told from never ending.
    """
    if work_seconds <= 0:
        return 0.0
    segments, segment = work_seconds / interval, interval + checkpoints.save_seconds
    if per_hour <= 0:
        return segments * segment
    mean = SECONDS_AN_HOUR / per_hour
    try:
        return segments * mean * exp(checkpoints.restart_seconds / mean) * expm1(segment / mean)
    except OverflowError:
        return inf


def deviation_seconds(expected: float, interval: float, checkpoints: Checkpoints, per_hour: float) -> float:
    """Standard deviation of those seconds: sqrt(number x (R^2 + R s + s^2 / 3)), s being an interval with its saving.

    Each of a Poisson number of interruptions loses a restart and, evenly spread, a part of an interval.
    """
    segment, restart = interval + checkpoints.save_seconds, checkpoints.restart_seconds
    number = expected * per_hour / SECONDS_AN_HOUR
    return sqrt(number * (restart**2 + restart * segment + segment**2 / 3.0))


@dataclass(frozen=True, slots=True)
class Expectation:
    """What interruptions make of a run. Hours are of one machine of the gang, all of them paid for.

    `likely` is the mean at the likely rate; low and high are the ends of the rate and the luck of one run in ten.
    `elapsed` adds the hours of waiting for capacity, which nobody pays; it is None where its share is not known.
    """

    hours: Band
    elapsed: Band | None
    interruptions: Band
    interval_seconds: float
    per_hour: Band
    stretch: float
    basis: str
    source: str | None


def expect(
    hours: Band, per_hour: Band, checkpoints: Checkpoints, available_share: float | None = None,
    basis: str = "given", source: str | None = None,
) -> Expectation | Unknown:  # fmt: skip
    """A run of so many undisturbed hours on a gang that is interrupted so often per hour (see `gang_rate`).

    The interval is chosen once, at the likely figures: whoever runs the work knows no better. It is unknown where even
    the mean is more than a hundred times the work, for then the model says only that the run will not end.
    """
    interval = interval_of(checkpoints, hours.likely * SECONDS_AN_HOUR, per_hour.likely)
    if interval <= 0:
        return Expectation(hours, hours, Band(0.0, 0.0, 0.0), 0.0, per_hour, 1.0, basis, source)

    low, likely, high = (
        hours_with_luck(work, interval, checkpoints, rate, luck)
        for work, rate, luck in (
            (hours.low, per_hour.low, -EIGHT_IN_TEN),
            (hours.likely, per_hour.likely, 0.0),
            (hours.high, per_hour.high, EIGHT_IN_TEN),
        )
    )
    if not isfinite(likely) or not isfinite(high):
        return Unknown(NEVER_ENDS)
    paid = Band(low, likely, high)
    return Expectation(
        hours=paid,
        elapsed=paid.times(1.0 / available_share) if available_share else None,
        interruptions=Band(low * per_hour.low, likely * per_hour.likely, high * per_hour.high),
        interval_seconds=interval,
        per_hour=per_hour,
        stretch=likely / hours.likely,
        basis=basis,
        source=source,
    )


def hours_with_luck(
    work_hours: float, interval: float, checkpoints: Checkpoints, per_hour: float, deviations: float
) -> float:
    """Mean hours and so many standard deviations, never below the undisturbed run; infinite where it hardly ends."""
    work = work_hours * SECONDS_AN_HOUR
    interval = min(interval, work)
    if interval <= 0:
        return 0.0
    undisturbed = expected_seconds(work, interval, checkpoints, 0.0)
    mean = expected_seconds(work, interval, checkpoints, per_hour)
    if not mean < LONGEST_STRETCH * undisturbed:
        return inf
    lucky = mean + deviations * deviation_seconds(mean, interval, checkpoints, per_hour)
    return max(undisturbed, lucky) / SECONDS_AN_HOUR


def expect_by_prior(
    hours: Band, prior: InterruptionPrior | Unknown, checkpoints: Checkpoints, nodes: int
) -> Expectation | Unknown:
    """The same from what is believed of a market, for a gang of so many nodes."""
    if isinstance(prior, Unknown):
        return prior
    per_hour = prior.per_hour.times(gang_rate(1.0, nodes, prior.lost_together))
    return expect(hours, per_hour, checkpoints, prior.available_share, "prior", prior.source)


def break_even_rate(work_hours: float, price_ratio: float, checkpoints: Checkpoints) -> float | None:
    """Interruptions per hour of the gang at which spot costs as much as on-demand without any.

    `price_ratio` is spot's price over on-demand's. The interval is the best (or the caller's) at each rate. None where
    spot is no cheaper even undisturbed.
    """

    def ratio(per_hour: float) -> float:
        work = work_hours * SECONDS_AN_HOUR
        interval = interval_of(checkpoints, work, per_hour)
        return price_ratio * expected_seconds(work, interval, checkpoints, per_hour) / work

    if work_hours <= 0 or ratio(0.0) >= 1.0:
        return None
    below, above = 0.0, 1.0 / work_hours
    while ratio(above) < 1.0:
        below, above = above, above * 2.0
        if above > SECONDS_AN_HOUR:
            return above  # more than one a second, which means that nothing is ever lost
    for _ in range(80):
        middle = (below + above) / 2.0
        below, above = (middle, above) if ratio(middle) < 1.0 else (below, middle)
    return below
