"""The price of a load: for a month, and for a million tokens of prompts and of answers."""

from dataclasses import dataclass

from service.domain.band import Band
from service.domain.bill.unit_costs import MILLION
from service.domain.money import Exact, Micros, number
from service.domain.physics.generation import ServedLoad
from service.domain.units import SECONDS_AN_HOUR


@dataclass(frozen=True, slots=True)
class LoadCost:
    """The cost of all instances that serve a load. Prompts and answers share it as they share the time of the engine,
    so a request costs its prompt at the price of input tokens and its answer at the price of output tokens.
    """

    month: Micros
    per_million_tokens: Micros | None
    """The whole cost over the tokens of answers, or over those read where none are written; None without tokens."""
    per_million_input_tokens: Micros | None
    """None for samples without tokens."""
    per_million_output_tokens: Micros | None
    """None for answers without tokens."""
    per_thousand_requests: Micros
    requests_per_usd: Band | None
    """None if the machine costs nothing."""


CERTAIN = (1.0, 1.0, 1.0)
"""Low, likely and high of a price that is certain, as factors of it."""


def cost_of_load(
    served: ServedLoad,
    usd_micros_per_hour: int | None,
    nodes: int,
    factors: tuple[float, float, float] = CERTAIN,
    paid_hours: float | None = None,
) -> LoadCost | None:
    """Returns the cost of a load; None where the price of a machine is unknown, or the limits are not kept.

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

    tokens = serving.prompt.mean if served.tokens is None else serving.answer.mean

    def per_units(share_of_time: float, units: float) -> Micros:
        return Exact.of(usd_per_second.times(share_of_time * units / rate)).micros

    return LoadCost(
        month=Micros(*(round(price * nodes * int(count) * hours) for price, count in pairs)),
        per_million_tokens=per_units(1.0, MILLION / tokens) if tokens else None,
        per_million_input_tokens=per_units(share, MILLION / serving.prompt.mean) if serving.prompt.mean else None,
        per_million_output_tokens=None
        if served.tokens is None
        else per_units(1.0 - share, MILLION / serving.answer.mean),
        per_thousand_requests=per_units(1.0, 1000.0),
        requests_per_usd=usd_per_second.inverse_of(rate) if usd_per_second.low else None,
    )
