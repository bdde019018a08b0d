"""What interruption.py says of one run, of many runs at once: how long each takes where it is interrupted."""

from dataclasses import dataclass

import numpy as np

from service.domain.arrays import Floats
from service.domain.bill.interruption import (
    EIGHT_IN_TEN,
    LONGEST_STRETCH,
    SECONDS_AN_HOUR,
    Checkpoints,
    gang_rate,
    prior_of,
)
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.tariffs import InterruptionPrior
from service.domain.money import Unknown


@dataclass(frozen=True, slots=True)
class Rates:
    """Of each instance type's spot machines, interruptions per hour of a node; NaN where nothing is believed."""

    low: Floats
    likely: Floats
    high: Floats
    lost_together: Floats
    available_share: Floats
    """1 where it is not known: waiting is not counted then."""


def spot_rates(catalog: Catalog) -> Rates:
    return catalog.memory.get_or_compute("spot_rates", lambda: find_rates(catalog))


def find_rates(catalog: Catalog) -> Rates:
    found: dict[tuple[str, str | None], InterruptionPrior | Unknown] = {}
    rows = []
    for kind in catalog.instance_types:
        key = (kind.provider, None if kind.gpu is None else kind.gpu.id)
        if key not in found:
            found[key] = prior_of(catalog.reference.interruption_priors, key[0], "spot", key[1], catalog.day)
        prior = found[key]
        if isinstance(prior, Unknown):
            rows.append((np.nan, np.nan, np.nan, np.nan, 1.0))
            continue
        rate = prior.per_hour
        rows.append((rate.low, rate.likely, rate.high, prior.lost_together, prior.available_share or 1.0))
    columns = np.array(rows, np.float64).reshape(-1, 5).T
    return Rates(*columns)


@dataclass(frozen=True, slots=True)
class Expected:
    """Hours in the mean, and as long as one run in ten takes; paid, and with the waiting for capacity."""

    paid: Floats
    paid_high: Floats
    elapsed: Floats
    elapsed_high: Floats


def expected(hours: Floats, hours_high: Floats, nodes: Floats, rates: Rates, checkpoints: Checkpoints) -> Expected:
    """As `expect_by_prior`: hours of undisturbed work on a gang of nodes; infinite where it would hardly ever end.

    Where nothing is believed of interruptions, the hours stay as they are.
    """
    gang = gang_rate(1.0, nodes, rates.lost_together)
    likely, high = rates.likely * gang, rates.high * gang
    with np.errstate(all="ignore"):
        interval = intervals(checkpoints, hours * SECONDS_AN_HOUR, likely)
        paid = with_luck(hours, interval, checkpoints, likely, 0.0)
        paid_high = with_luck(hours_high, interval, checkpoints, high, EIGHT_IN_TEN)
    unknown = np.isnan(likely) & ~np.isnan(hours)
    paid, paid_high = np.where(unknown, hours, paid), np.where(unknown, hours_high, paid_high)
    return Expected(paid, paid_high, paid / rates.available_share, paid_high / rates.available_share)


def intervals(checkpoints: Checkpoints, work_seconds: Floats, per_hour: Floats) -> Floats:
    """As `interval_of`."""
    if checkpoints.interval_seconds is not None:
        return np.minimum(max(checkpoints.interval_seconds, 1.0), work_seconds)
    mean, save = SECONDS_AN_HOUR / per_hour, checkpoints.save_seconds
    ratio = save / (2.0 * mean)
    daly = np.sqrt(2.0 * save * mean) * (1.0 + np.sqrt(ratio) / 3.0 + ratio / 9.0) - save
    return np.minimum(np.maximum(np.where(save >= 2.0 * mean, mean, daly), 1.0), work_seconds)


def with_luck(hours: Floats, interval: Floats, checkpoints: Checkpoints, per_hour: Floats, deviations: float) -> Floats:
    """As `hours_with_luck`."""
    work = hours * SECONDS_AN_HOUR
    interval = np.minimum(interval, work)
    segment, restart, mean = (
        interval + checkpoints.save_seconds,
        checkpoints.restart_seconds,
        SECONDS_AN_HOUR / per_hour,
    )
    undisturbed = work / interval * segment
    disturbed = work / interval * mean * np.exp(restart / mean) * np.expm1(segment / mean)
    number = disturbed * per_hour / SECONDS_AN_HOUR
    deviation = np.sqrt(number * (restart**2 + restart * segment + segment**2 / 3.0))
    seconds = np.maximum(undisturbed, disturbed + deviations * deviation)
    return np.where(disturbed < LONGEST_STRETCH * undisturbed, seconds / SECONDS_AN_HOUR, np.inf)
