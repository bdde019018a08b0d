"""What a run costs in every market asked, side by side: the bill of each, per unit, and where they cost the same."""

from dataclasses import replace

from service.api.estimate.cost_request import run_of
from service.api.estimate.cost_response import (
    BillingResponse,
    CostPartResponse,
    CostResponse,
    HourlyRateResponse,
    PriceUsedResponse,
    hours_told,
    money,
    plain_usd,
)
from service.api.estimate.per_unit import month_told, per_unit
from service.api.estimate.priced_run import PricedRun, bill_under, terms_for
from service.api.estimate.versus_on_demand import break_even_told, commitment_told
from service.domain.band import Band
from service.domain.bill.bill import Bill, HourlyPrice, SellerTerms
from service.domain.bill.payment_options import PaymentOption, on_demand_offer, payment_options
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import unknown
from service.domain.catalog.tariffs import storage_classes
from service.domain.money import MICRO, USD, Micros, Unknown, exact, half_up, number, rate_on

BESIDE = "beside a machine of one's own"
OWN = "A machine that is described has no seller: its hour costs what was told, and nothing else is known."


WORDS = {"on_demand": "on demand", "spot": "at spot", "reserved": "reserved"}

# In every market


def costs_of(purchase: PricedRun, kind: InstanceType, ways: tuple[str, ...], regions: tuple[str, ...],
             service: str | None) -> list[CostResponse]:  # fmt: skip
    """One entry for every market, term and managed service of each region. Raises `QuestionError`."""
    found = payment_options(purchase.catalog, kind, regions, ways, service, training=purchase.training)
    priced = [(option, terms_for(purchase, kind, option)) for option in found]
    bills = [(option, terms, bill_under(purchase, terms)) for option, terms in priced]
    return [cost_told(purchase, kind, *each) for each in bills]


def cost_told(
    purchase: PricedRun, kind: InstanceType, option: PaymentOption, terms: SellerTerms, bill: Bill | Unknown
) -> CostResponse:
    offer = option.offer
    plain = on_demand_offer(purchase.catalog, kind, offer.region)
    usd = offer.price.usd_micros_per_hour
    used = PriceUsedResponse(
        usd_per_hour=None if usd is None else number(usd),
        per_hour=None if isinstance(terms.price, Unknown) else number(terms.price.micros_per_hour),
        currency=offer.price.currency,
        kind=offer.price.kind,
        observed_on=offer.price.observed_on,
        source=offer.price.source,
    )
    words = WORDS[offer.market] if offer.term is None else f"under {offer.term}"
    where = f"{kind.id} {words}{f' in {offer.region}' if offer.region else ''}"
    if option.service:
        where += f" through {option.service}"
    entry = entry_of(purchase, terms, bill, usd, used, where)
    return replace(
        entry,
        market=offer.market,
        term=offer.term,
        region=offer.region,
        zone=offer.zone,
        managed_service=option.service,
        commitment=commitment_told(purchase, kind, offer, terms, bill, plain),
        break_even=break_even_told(purchase, kind, option, bill, plain),
    )


def entry_of(
    purchase: PricedRun,
    terms: SellerTerms,
    bill: Bill | Unknown,
    usd_micros: int | None,
    price: PriceUsedResponse,
    where: str,
) -> CostResponse:
    """All of an entry that does not depend on the market."""
    known = bill if isinstance(bill, Bill) else None
    total = known.usd if known else None
    missing = list(known.missing) if known else [*unknown_price(terms), *reasons(bill)]
    rate = terms.rate
    return CostResponse(
        market="on_demand",
        term=None,
        region=None,
        zone=None,
        managed_service=None,
        usd_per_hour=None if usd_micros is None else plain_usd(usd_micros, purchase.machines),
        price=price,
        hours=hours_told(known.hours) if known else None,
        billed_hours=hours_told(known.billed_hours) if known else None,
        elapsed_hours=hours_told(known.elapsed_hours) if known else None,
        billing=None if isinstance(terms.rule, Unknown) or terms.rule is None else BillingResponse.of(terms.rule),
        parts=[CostPartResponse.of(part) for part in known.parts] if known else [],
        usd=money(total),
        usd_complete=not missing,
        missing=missing,
        native=money(known.native) if known else None,
        currency=terms.currency,
        exchange_rate=HourlyRateResponse.of(rate),
        per_unit=per_unit(purchase, total, usd_micros),
        month=month_told(purchase, usd_micros),
        commitment=None,
        break_even=None,
        unknown_because=missing[0] if total is None and missing else None,
        text=sentence(total, known, where, missing),
    )


def unknown_price(terms: SellerTerms) -> list[str]:
    return [terms.price.reason] if isinstance(terms.price, Unknown) else []


def reasons(bill: Bill | Unknown) -> list[str]:
    return [bill.reason] if isinstance(bill, Unknown) else []


def sentence(usd: Micros | None, bill: Bill | None, where: str, missing: list[str]) -> str:
    if usd is None or bill is None:
        return f"What the run costs on {where} is not known. {' '.join(missing)}".strip()
    least = "at least " if missing else ""
    span = "" if usd.low == usd.high else f" ({dollars(usd.low)} to {dollars(usd.high)})"
    hours = f"{float(bill.hours.likely):.4g} h on {'' if bill.machines == 1 else f'{bill.machines} x '}{where}"
    return f"{hours} cost {least}{dollars(usd.likely)}{span}.{f' Not known: {missing[0]}' if missing else ''}"


def dollars(micros: int) -> str:
    return f"${micros / MICRO:,.2f}" if micros >= MICRO or micros == 0 else f"${micros / MICRO:.4g}"


# A machine that is described


def own_cost(purchase: PricedRun, usd_per_hour: float | None) -> CostResponse:
    """The one entry of a machine that nobody sells: its hour as told, billed as used. Raises `UnknownName`."""
    reference, asked = purchase.catalog.reference, purchase.asked
    known = storage_classes(reference.storage_prices)
    for each in asked.storage:
        if each.storage_class not in known:
            raise unknown("storage class", each.storage_class, known, "storage.class")
    micros = None if usd_per_hour is None else half_up(exact(usd_per_hour) * MICRO)
    run = run_of(asked, Band(0.0, 0.0, 0.0), purchase.nodes, "given")
    terms = SellerTerms(
        price=Unknown("The machine was described without usd_per_hour.")
        if micros is None
        else HourlyPrice(micros, USD, "given", ""),
        rate=rate_on((), USD, purchase.catalog.day),
        rule=None,
        storage=tuple(Unknown(f"What {each.storage_class} costs {BESIDE} is not known.") for each in run.stored),
        transfer=tuple(Unknown(f"What sending data costs {BESIDE} is not known.") for _ in run.sent),
    )  # fmt: skip
    price = PriceUsedResponse(None if micros is None else number(micros), None if micros is None else number(micros),
                      USD, "given", None, "the request")  # fmt: skip
    return entry_of(purchase, terms, bill_under(purchase, terms), micros, price, "the machine described")
