"""What a run costs per epoch, token or sample, and what a load costs per month."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from service.domain.band import Band
from service.domain.catalog.tariffs import HOURS_A_MONTH
from service.domain.money import MICRO, Micros, exact, half_up

SECONDS_AN_HOUR = 3600
MILLION = 1_000_000
LEAST_AMOUNT = 1e-9
"""Of less, a unit has no price that could be printed."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Dollars of a run per unit of its work, in millionths; None of what the run does not count in."""

    usd_per_epoch: Micros | None
    usd_per_million_tokens: Micros | None
    usd_per_thousand_samples: Micros | None
    samples_per_usd: Band | None


def unit_costs(
    usd: Micros | None, *, epochs: float | None = None, tokens: float | None = None, samples: float | None = None
) -> UnitCosts:
    """A bill's total over all that the run does; nothing where the total is not known."""
    return UnitCosts(
        usd_per_epoch=per(usd, 1, epochs),
        usd_per_million_tokens=per(usd, MILLION, tokens),
        usd_per_thousand_samples=per(usd, 1000, samples),
        samples_per_usd=samples_for(usd, samples),
    )


def per(usd: Micros | None, units: int, amount: float | None) -> Micros | None:
    """Millionths of a dollar for so many units of an amount, rounded half up."""
    if usd is None or amount is None or amount < LEAST_AMOUNT:
        return None
    share = Fraction(units) / exact(amount)
    return Micros(half_up(usd.low * share), half_up(usd.likely * share), half_up(usd.high * share))


def samples_for(usd: Micros | None, samples: float | None) -> Band | None:
    if usd is None or not samples or usd.low <= 0:
        return None
    return Band(samples * MICRO / usd.high, samples * MICRO / usd.likely, samples * MICRO / usd.low)


def samples_per_usd(samples_per_second: float, usd_per_hour: float) -> float:
    """Samples for a dollar of machine time: samples/s x 3600 / hourly price."""
    return samples_per_second * SECONDS_AN_HOUR / usd_per_hour


# Serving


def usd_per_million_tokens(usd_per_hour: float, tokens_per_second: Band) -> Band:
    """Dollars per million tokens of a machine that does nothing else: price / (tokens/s x 3600) x 10^6.

    Input tokens at the prefill rate and output tokens at the decode rate, each as if alone: a request then costs its
    input at the one price plus its output at the other.
    """
    return tokens_per_second.inverse_of(usd_per_hour / SECONDS_AN_HOUR * MILLION)


def replicas_for(needed_per_second: float, per_replica: float, utilisation: float = 1.0) -> int:
    """Machines (or gangs) for a rate, when each is loaded to at most this share of what it can do."""
    return max(1, ceil(exact(needed_per_second) / (exact(per_replica) * exact(utilisation))))


def usd_micros_a_month(usd_micros_per_hour: int, replicas: int, nodes: int = 1) -> int:
    """Millionths of a dollar for a month of 730 hours, day and night."""
    return usd_micros_per_hour * replicas * nodes * HOURS_A_MONTH
