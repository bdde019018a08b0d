"""What a unit of the work costs, and what a month of a load."""

from service.api.estimate.cost_response import LoadResponse, MoneyResponse, MonthResponse, PerUnitResponse, money
from service.api.estimate.priced_run import PricedRun
from service.api.estimate.response import BandResponse, maybe, rounded
from service.domain.band import Band
from service.domain.bill.serving import Served
from service.domain.bill.unit_costs import samples_per_usd, unit_costs, usd_micros_a_month, usd_per_million_tokens
from service.domain.catalog.tariffs import HOURS_A_MONTH
from service.domain.money import Micros, Unknown, number


def per_unit(purchase: PricedRun, total: Micros | None, usd_micros_per_hour: int | None) -> PerUnitResponse:
    """The bill over what the run does, and machine time over the rates at which it is done."""
    work = purchase.work
    found = unit_costs(total, epochs=work.epochs, tokens=work.tokens, samples=work.samples)
    gang = None if usd_micros_per_hour is None else number(usd_micros_per_hour * purchase.nodes)
    return PerUnitResponse(
        usd_per_epoch=money(found.usd_per_epoch),
        usd_per_million_tokens=money(found.usd_per_million_tokens),
        usd_per_thousand_samples=money(found.usd_per_thousand_samples),
        samples_per_usd=maybe(of_a_dollar(gang, work.samples_per_second)),
        usd_per_million_input_tokens=at_rate(gang, work.input_tokens_per_second),
        usd_per_million_output_tokens=at_rate(gang, work.output_tokens_per_second),
    )


def of_a_dollar(usd_per_hour: float | None, per_second: Band | None) -> Band | None:
    return None if not usd_per_hour or per_second is None else per_second.times(samples_per_usd(1.0, usd_per_hour))


def at_rate(usd_per_hour: float | None, rate: Band | None) -> MoneyResponse | None:
    if usd_per_hour is None or rate is None:
        return None
    return MoneyResponse.of_band(usd_per_million_tokens(usd_per_hour, rate))


def month_told(purchase: PricedRun, usd_micros_per_hour: int | None) -> MonthResponse | None:
    served = purchase.served
    if served is None:
        return None
    if isinstance(served, Unknown):
        return MonthResponse(None, HOURS_A_MONTH, served.reason)
    counts = (served.few, served.likely, served.many)
    gang = f"{served.likely} x {purchase.nodes} machines" if purchase.nodes > 1 else f"{served.likely} replicas"
    if usd_micros_per_hour is None:
        return MonthResponse(None, HOURS_A_MONTH, f"{gang}; what an hour costs is not known.")
    usd = Micros(*(usd_micros_a_month(usd_micros_per_hour, count, purchase.nodes) for count in counts))
    return MonthResponse(MoneyResponse.of(usd), HOURS_A_MONTH, f"{gang} for {HOURS_A_MONTH} h.")


def load_told(served: Served | Unknown | None) -> LoadResponse | None:
    if served is None:
        return None
    if isinstance(served, Unknown):
        return LoadResponse(None, None, None, None, None, None, None, served.reason)
    return LoadResponse(
        replicas=served.likely,
        replicas_low=served.few,
        replicas_high=served.many,
        concurrency=None if served.concurrency is None else rounded(served.concurrency),
        per_replica_per_second=BandResponse.of(served.per_second),
        seconds_to_first_token=maybe(served.seconds_to_first_token),
        seconds_per_output_token=maybe(served.seconds_per_output_token),
        reason=None,
    )
