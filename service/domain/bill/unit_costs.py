"""The price of a unit of work: an epoch, a sample or a token of a run; a month, a request or a token of a load."""

from dataclasses import dataclass
from math import isfinite

from service.domain.band import Band
from service.domain.bill.run import RunAmount
from service.domain.money import Exact, Micros, exact_ratio, number, quotient_half_up
from service.domain.physics.generation import ServedLoad
from service.domain.units import SECONDS_AN_HOUR

MILLION = 1_000_000
LEAST_AMOUNT = 1e-9
"""Smallest amount of work whose units have a price that can be printed."""


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Prices of units of work; None for a unit that the run does not count in.

    Of a run, epochs, tokens and samples divide the whole bill, and `samples_per_usd` is the work divided by the bill.
    Tokens of input and output count machine time alone, at the rates of one gang; so does `samples_per_usd` without an
    amount.

    Of a load, all count the machine time of all instances. Prompts and answers share it as they share the time of the
    engine, so a request costs its prompt at the price of input tokens and its answer at the price of output tokens.
    """

    usd_per_million_tokens: Micros | None
    """Tokens of a load are those of its answers, or those that it reads if it writes none."""
    usd_per_million_input_tokens: Micros | None
    usd_per_million_output_tokens: Micros | None
    usd_per_thousand_samples: Micros | None
    samples_per_usd: Band | None
    """None if the machine costs nothing."""
    usd_per_epoch: Micros | None = None
    usd_per_month: Micros | None = None
    """Cost of serving a load for a month; None for a run."""


def unit_costs(usd: Micros | None, amount: RunAmount, gang_micros_per_hour: int | None) -> UnitCosts:
    """Returns the cost of each unit of work: the bill over the amount, else the price of an hour over the rate."""
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


def usd_per_million_tokens(usd_per_hour: float, tokens_per_second: Band) -> Band:
    """Dollars per million tokens of a machine that does nothing else: price / (tokens/s x 3600) x 10^6.

    With the prefill rate this is the price of input tokens, and with the decode rate that of output tokens. A request
    costs the sum of its input and its output at these prices.
    """
    return tokens_per_second.inverse_of(usd_per_hour / SECONDS_AN_HOUR * MILLION)


# A load

CERTAIN = (1.0, 1.0, 1.0)
"""Low, likely and high of a price that is certain, as factors of it."""


def costs_of_load(
    served: ServedLoad,
    usd_micros_per_hour: int | None,
    nodes: int,
    factors: tuple[float, float, float] = CERTAIN,
    paid_hours: float | None = None,
) -> UnitCosts | None:
    """Returns the prices of a load; None where the price of a machine is unknown, or the limits are not kept.

    `factors` are low, likely and high of the price of a machine, divided by the likely price. `paid_hours` are the
    hours of a month that are paid for; by default those in which the load is served.
    """
    instances = served.instances
    if usd_micros_per_hour is None or served.missed:
        return None
    counts = (instances.low, instances.likely, instances.high)
    micros = [round(usd_micros_per_hour * factor) for factor in factors]
    pairs = list(zip(micros, counts, strict=True))
    serving, share, rate = served.serving, served.prompt_share, served.requests_per_second
    hours = serving.hours_a_month if paid_hours is None else paid_hours
    seconds_of_service = SECONDS_AN_HOUR * serving.hours_a_month / hours
    usd_per_second = Band(*(number(price) * nodes * count / seconds_of_service for price, count in pairs))

    prompt, answer = serving.prompt.mean, 0.0 if served.tokens is None else serving.answer.mean

    def per_units(units: int, tokens: float, share_of_time: float = 1.0) -> Micros | None:
        """Returns the price of units, of which a request has so many; None if it has none."""
        return Exact.of(usd_per_second.times(share_of_time * (units / tokens) / rate)).micros if tokens else None

    return UnitCosts(
        usd_per_million_tokens=per_units(MILLION, answer if served.tokens else prompt),
        usd_per_million_input_tokens=per_units(MILLION, prompt, share),
        usd_per_million_output_tokens=per_units(MILLION, answer, 1.0 - share),
        usd_per_thousand_samples=per_units(1000, 1.0),
        samples_per_usd=usd_per_second.inverse_of(rate) if usd_per_second.low else None,
        usd_per_month=Micros(*(round(price * nodes * int(count) * hours) for price, count in pairs)),
    )
