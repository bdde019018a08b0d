"""The time that interruptions of machines add to a run, for one run or a column of runs.

Interruptions come at random with a constant rate (exponential times between them). Work is saved after every interval,
and after an interruption the machine restarts and repeats the work since the last checkpoint. In real spot markets
interruptions come in bursts: see `InterruptionPrior` and the rows of `seed/interruption_priors.csv`.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval" (CACM 17, 1974); J. T. Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps" (FGCS 22, 2006).
"""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np

from service.domain.arrays import Floats, Number, taken
from service.domain.band import DEVIATIONS_TO_AN_END, Band
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.tariffs import InterruptionPrior, prior_of
from service.domain.money import Unknown
from service.domain.units import SECONDS_AN_HOUR

SHORTEST_INTERVAL_SECONDS = 1.0
"""Shortest interval between checkpoints: where saving takes no time, Daly's formula gives an interval of 0."""

LONGEST_STRETCH = 100.0
"""A run counts as endless from this multiple of its uninterrupted time on."""

MOST_INTERRUPTIONS_PER_HOUR = 3600.0
"""End of the search for a break-even rate: one interruption per second."""

GRID, SEARCHES = 200, 3
"""Points of each search for a break-even rate, and the number of searches, each between two points of the last one."""

NEVER_ENDS = "Interruptions come so often that the run would hardly ever finish."


class Checkpoints(NamedTuple):
    """How a run saves its work. None as the interval means the best one; `inf` saves only at the end."""

    save_seconds: float = 30.0
    """Seconds to write a checkpoint. The default is an assumption without a source."""
    restart_seconds: float = 300.0
    """Seconds from an interruption until the run goes on. The default is an assumption without a source."""
    interval_seconds: float | None = None

    @property
    def states_interval(self) -> bool:
        """Whether the run saves at an interval of the caller, which it does on every machine, interrupted or not."""
        return self.interval_seconds not in (None, inf)

    def unused(self, *, at_spot: bool) -> tuple[str, ...]:
        """Returns the fields that do not affect the time of a run, by whether it may be interrupted."""
        if at_spot:
            return ()
        return ("restart_seconds",) if self.states_interval else ("restart_seconds", "save_seconds")


# The formulas take floats or columns


def gang_factor(nodes: Number, lost_together: Number = 0.0) -> Any:
    """Returns the interruptions of a gang, which stops as soon as one of its nodes does, per interruption of a node.

    together + (1 - together) x nodes: independent nodes add up, and nodes that are lost together count once.
    """
    return lost_together + (1.0 - lost_together) * nodes


def young_interval(save_seconds: float, mean_seconds: Number) -> Any:
    """Seconds of work between checkpoints, to first order: sqrt(2 x save x mean time between interruptions)."""
    return np.sqrt(2.0 * save_seconds * mean_seconds)


@np.errstate(all="ignore")
def daly_interval(save_seconds: float, mean_seconds: Number) -> Any:
    """Seconds between checkpoints, to higher order: sqrt(2 s M) [1 + sqrt(s/2M)/3 + (s/2M)/9] - s; M where s >= 2 M."""
    ratio = save_seconds / (2.0 * mean_seconds)
    interval = young_interval(save_seconds, mean_seconds) * (1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0) - save_seconds
    return np.where(save_seconds >= 2.0 * mean_seconds, mean_seconds, interval)[()]


@np.errstate(all="ignore")
def interval_of(checkpoints: Checkpoints, work_seconds: Number, per_hour: Number) -> Any:
    """Seconds of work between checkpoints: the caller's, or Daly's; never longer than the work."""
    interval: Number | None = checkpoints.interval_seconds
    if interval is None:
        best = daly_interval(checkpoints.save_seconds, np.divide(SECONDS_AN_HOUR, per_hour))
        interval = np.where(np.equal(per_hour, 0.0), np.inf, best)[()]
    return np.minimum(np.maximum(interval, SHORTEST_INTERVAL_SECONDS), work_seconds)


@np.errstate(all="ignore")
def saving_hours(work_hours: Number, checkpoints: Checkpoints) -> Any:
    """Returns the hours in which a run without interruptions saves: 0 unless the caller states an interval.

    Without one, a run saves for the sake of interruptions alone.
    """
    if not checkpoints.states_interval or not checkpoints.save_seconds:
        return np.zeros(np.shape(work_hours))[()]
    work = np.multiply(work_hours, SECONDS_AN_HOUR)
    interval = interval_of(checkpoints, work, 0.0)
    once = checkpoints.save_seconds / SECONDS_AN_HOUR
    saving = np.where(np.equal(interval, work), once, once * np.divide(work, interval))
    return np.select([np.equal(work, 0.0), np.isinf(work)], [0.0, inf], saving)[()]


@np.errstate(all="ignore")
def expected_seconds(work_seconds: Number, interval: Number, checkpoints: Checkpoints, per_hour: Number) -> Any:
    """Mean seconds of the work with saving, restarting and repeating (Daly 2006, eq. 20).

    M e^(R/M) (e^((interval + save)/M) - 1) x work / interval, with M seconds between interruptions and R to restart;
    work x (1 + save / interval) where nothing interrupts. Infinite where the exponential overflows.
    """
    segments = np.where(np.greater(work_seconds, 0.0), np.divide(work_seconds, interval), 0.0)
    segment, mean = interval + checkpoints.save_seconds, np.divide(SECONDS_AN_HOUR, per_hour)
    interrupted = mean * np.exp(checkpoints.restart_seconds / mean) * np.expm1(segment / mean)
    return (segments * np.where(np.equal(per_hour, 0.0), segment, interrupted))[()]


def deviation_seconds(expected: Number, interval: Number, checkpoints: Checkpoints, per_hour: Number) -> Any:
    """Standard deviation of `expected_seconds`: sqrt(number x (R^2 + R s + s^2 / 3)), where R is the time to restart
    and s an interval with its saving.

    Each of a Poisson number of interruptions loses a restart and a uniformly distributed part of s.
    """
    segment, restart = interval + checkpoints.save_seconds, checkpoints.restart_seconds
    number = expected * per_hour / SECONDS_AN_HOUR
    return np.sqrt(number * (restart**2 + restart * segment + segment**2 / 3.0))


@np.errstate(all="ignore")
def hours_with_luck(
    work_hours: Number, interval: Number, checkpoints: Checkpoints, per_hour: Number, deviations: Number
) -> Any:
    """Mean hours plus a number of standard deviations, and no less than without interruptions.

    Infinite where the mean is `LONGEST_STRETCH` times the uninterrupted hours or more; 0 for no work.
    """
    work = work_hours * SECONDS_AN_HOUR
    # A run that is shorter than the interval saves once, at its end.
    interval = np.minimum(interval, work)
    uninterrupted = expected_seconds(work, interval, checkpoints, 0.0)
    mean = expected_seconds(work, interval, checkpoints, per_hour)
    with_luck = mean + deviations * deviation_seconds(mean, interval, checkpoints, per_hour)
    seconds = np.where(mean < LONGEST_STRETCH * uninterrupted, np.maximum(uninterrupted, with_luck), np.inf)
    return np.where(np.equal(work, 0.0), 0.0, seconds / SECONDS_AN_HOUR)[()]


# One run


def saving_band(hours: Band, checkpoints: Checkpoints) -> Band:
    """Returns the `saving_hours` of a run."""
    return Band(*(float(saving_hours(each, checkpoints)) for each in (hours.low, hours.likely, hours.high)))


@dataclass(frozen=True, slots=True)
class Expectation:
    """A run with its interruptions. `hours` are of one machine of the gang, and all of them are paid for.

    The likely figures are means at the likely rate. Low and high take the ends of the rate, and the fastest and slowest
    run in ten. `elapsed` adds the unpaid hours of waiting for capacity; it is None where the share of the time in which
    capacity is available is unknown. `stretch` is the likely hours divided by the uninterrupted ones, in which the run
    saves at the caller's interval, if there is one.
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
    """Returns the expectation for uninterrupted hours on a gang with a rate of interruptions (see `gang_factor`).

    The interval is chosen once, at the likely figures, because nothing better is known before the run. The result is
    `Unknown` where the mean or the high end reaches `LONGEST_STRETCH`.
    """
    interval = float(interval_of(checkpoints, hours.likely * SECONDS_AN_HOUR, per_hour.likely))
    if interval <= 0:
        return Expectation(hours, hours, Band(0.0, 0.0, 0.0), 0.0, per_hour, 1.0, basis, source)
    work, rate = (np.array([band.low, band.likely, band.high]) for band in (hours, per_hour))
    luck = np.array([-DEVIATIONS_TO_AN_END, 0.0, DEVIATIONS_TO_AN_END])
    low, likely, high = hours_with_luck(work, interval, checkpoints, rate, luck).tolist()
    # A total with an infinite end could be neither added to other parts nor printed in JSON.
    if not isfinite(likely) or not isfinite(high):
        return Unknown(NEVER_ENDS)
    paid = Band(low, likely, high)
    return Expectation(
        hours=paid,
        elapsed=paid.times(1.0 / available_share) if available_share else None,
        interruptions=Band(low * per_hour.low, likely * per_hour.likely, high * per_hour.high),
        interval_seconds=interval,
        per_hour=per_hour,
        stretch=likely / (hours.likely + float(saving_hours(hours.likely, checkpoints))),
        basis=basis,
        source=source,
    )


def expect_by_prior(
    hours: Band, prior: InterruptionPrior | Unknown, checkpoints: Checkpoints, nodes: int
) -> Expectation | Unknown:
    """Returns the expectation for uninterrupted hours on a gang of nodes, with the interruption prior of its market."""
    if isinstance(prior, Unknown):
        return prior
    per_hour = prior.per_hour.times(gang_factor(nodes, prior.lost_together))
    return expect(hours, per_hour, checkpoints, prior.available_share, "prior", prior.source)


def break_even_rate(
    work_hours: float, price_ratio: float, checkpoints: Checkpoints, setup_hours: float = 0.0
) -> float | None:
    """Interruptions per hour of the gang at which spot costs as much as on-demand without any.

    `price_ratio` is the price of spot divided by that of on-demand, and `setup_hours` are paid in both markets. At each
    rate the interval is the caller's, which holds in both markets, or else the best one. None where spot is no cheaper
    even without interruptions.
    """
    work, setup = work_hours * SECONDS_AN_HOUR, setup_hours * SECONDS_AN_HOUR
    on_demand = work + float(saving_hours(work_hours, checkpoints)) * SECONDS_AN_HOUR + setup

    def more_than_on_demand(per_hour: Floats) -> Floats:
        """Returns the cost at spot minus the cost on demand, both in seconds at the on-demand price.

        Their ratio would overflow for runs of hardly any work.
        """
        interval = interval_of(checkpoints, work, per_hour)
        at_spot = expected_seconds(work, interval, checkpoints, per_hour) + setup
        return np.asarray(price_ratio * at_spot - on_demand)

    if work_hours <= 0:
        return None
    rates = np.concatenate(([0.0], np.geomspace(min(1.0 / work_hours, 1.0), MOST_INTERRUPTIONS_PER_HOUR, GRID)))
    crossing = 0.0
    for _ in range(SEARCHES):
        more = more_than_on_demand(rates)
        if more[0] >= 0.0:
            return None
        above = int(np.argmax(more >= 0.0))
        if not above:
            return float(rates[-1])
        between = slice(above - 1, above + 1)
        # Each search narrows the interval about 200-fold, so that the last one is a straight line to eleven digits.
        crossing = float(np.interp(0.0, more[between], rates[between]))
        rates = np.linspace(rates[above - 1], rates[above], GRID)
    return crossing


# A column of runs


@dataclass(frozen=True, slots=True)
class Rates:
    """Interruptions per hour of a spot node, by instance type; NaN where there is no prior."""

    likely: Floats
    high: Floats
    lost_together: Floats
    available_share: Floats
    """Share of the time in which capacity is available; 1 where it is unknown, so that no waiting is counted."""


NO_PRIOR = (np.nan, np.nan, np.nan, 1.0)
"""Fields of `Rates` where there is no prior."""


def spot_rates(catalog: Catalog) -> Rates:
    """Returns the prior of every instance type's spot machines on the catalog's day."""
    keys = [(machine.provider, None if machine.gpu is None else machine.gpu.id) for machine in catalog.instance_types]
    priors = catalog.reference.interruption_priors
    rows = {}
    # Hundreds of instance types share a few dozen pairs of provider and GPU.
    for provider, gpu in set(keys):
        prior = prior_of(priors, provider, "spot", gpu, catalog.day)
        if isinstance(prior, Unknown):
            rows[provider, gpu] = NO_PRIOR
        else:
            rate, available = prior.per_hour, prior.available_share or 1.0
            rows[provider, gpu] = (rate.likely, rate.high, prior.lost_together, available)
    return Rates(*np.array([rows[key] for key in keys], np.float64).reshape(-1, 4).T)


@dataclass(frozen=True, slots=True)
class Expected:
    """Mean hours, and the hours of the slowest run in ten: paid, and elapsed with the waiting for capacity."""

    paid: Floats
    paid_high: Floats
    elapsed: Floats
    elapsed_high: Floats


def expected(hours: Floats, hours_high: Floats, nodes: Floats, rates: Rates, checkpoints: Checkpoints) -> Expected:
    """Returns the expectation for columns of uninterrupted hours on gangs of nodes; see `expect_by_prior`.

    Hours are infinite where a run would not end. Where the rates are unknown, only the time to save is added: an
    unknown rate must not make known hours unknown.
    """
    known = np.flatnonzero(~np.isnan(rates.likely + rates.lost_together))
    paid, paid_high = (np.array(each + saving_hours(each, checkpoints)) for each in (hours, hours_high))
    some = taken(rates, known)
    gang = gang_factor(nodes[..., known], some.lost_together)
    likely, high = some.likely * gang, some.high * gang
    interval = interval_of(checkpoints, hours[..., known] * SECONDS_AN_HOUR, likely)
    paid[..., known] = hours_with_luck(hours[..., known], interval, checkpoints, likely, 0.0)
    paid_high[..., known] = hours_with_luck(hours_high[..., known], interval, checkpoints, high, DEVIATIONS_TO_AN_END)
    return Expected(paid, paid_high, paid / rates.available_share, paid_high / rates.available_share)
