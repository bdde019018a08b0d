"""The price of a unit of work: an epoch, a sample or a token."""

from dataclasses import dataclass
from math import isfinite

from service.domain.band import Band
from service.domain.bill.run import RunAmount
from service.domain.money import Exact, Micros, exact_ratio, number, quotient_half_up
from service.domain.units import SECONDS_AN_HOUR

MILLION = 1_000_000
LEAST_AMOUNT = 1e-9
"""Smallest amount of work whose units have a price that can be printed."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Prices of units of work; None for a unit that the run does not count in.

    The first three are the whole bill divided by the work, and `samples_per_usd` is the work divided by the bill. The
    others count machine time alone, at the rates of one gang; so does `samples_per_usd` of a run without an amount.
    For a load, `LoadCost` has the prices.
    """

    usd_per_epoch: Micros | None
    usd_per_million_tokens: Micros | None
    usd_per_thousand_samples: Micros | None
    samples_per_usd: Band | None
    usd_per_million_input_tokens: Micros | None
    usd_per_million_output_tokens: Micros | None


def unit_costs(usd: Micros | None, amount: RunAmount, gang_micros_per_hour: int | None) -> UnitCosts:
    """Returns the total of a bill by units of work, and the hourly price of a gang divided by its rates."""
    gang_usd = None if gang_micros_per_hour is None else number(gang_micros_per_hour)
    rate = amount.samples_per_second
    at_rate = None if not gang_usd or rate is None else rate.times(samples_per_usd(1.0, gang_usd))
    return UnitCosts(
        usd_per_epoch=usd_per(usd, 1, amount.epochs),
        usd_per_million_tokens=usd_per(usd, MILLION, amount.tokens),
        usd_per_thousand_samples=usd_per(usd, 1000, amount.samples),
        samples_per_usd=_samples_for(usd, amount.samples) or at_rate,
        usd_per_million_input_tokens=_at_rate(gang_usd, amount.input_tokens_per_second),
        usd_per_million_output_tokens=_at_rate(gang_usd, amount.output_tokens_per_second),
    )


def usd_per(usd: Micros | None, units: int, amount: float | None) -> Micros | None:
    """Returns the dollars for a number of units, given the dollars for an amount; rounded half up."""
    if usd is None or amount is None or amount < LEAST_AMOUNT:
        return None
    numerator, denominator = exact_ratio(amount)
    factor = units * denominator
    return Micros(*(quotient_half_up(case * factor, numerator) for case in (usd.low, usd.likely, usd.high)))


def _samples_for(usd: Micros | None, samples: float | None) -> Band | None:
    """Returns the samples of a run divided by its bill; None without both, for next to no samples, and for a run that
    costs nothing.
    """
    if usd is None or samples is None or samples < LEAST_AMOUNT or not usd.low:
        return None
    return Band(number(usd.low), number(usd.likely), number(usd.high)).inverse_of(samples)


def samples_per_usd(samples_per_second: float, usd_per_hour: float) -> float:
    """Samples for a dollar of machine time: samples/s x 3600 / hourly price."""
    return samples_per_second * SECONDS_AN_HOUR / usd_per_hour


def _at_rate(usd_per_hour: float | None, tokens_per_second: Band | None) -> Micros | None:
    if usd_per_hour is None or tokens_per_second is None:
        return None
    usd = usd_per_million_tokens(usd_per_hour, tokens_per_second)
    # A rate may be so low that a million tokens have no price.
    if not isfinite(usd.high):
        return None
    return Exact.of(usd).micros


# Serving


def usd_per_million_tokens(usd_per_hour: float, tokens_per_second: Band) -> Band:
    """Dollars per million tokens of a machine that does nothing else: price / (tokens/s x 3600) x 10^6.

    With the prefill rate this is the price of input tokens, and with the decode rate that of output tokens. A request
    costs the sum of its input and its output at these prices.
    """
    return tokens_per_second.inverse_of(usd_per_hour / SECONDS_AN_HOUR * MILLION)
