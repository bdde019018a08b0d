"""A market against renting on demand in the same region: what a commitment costs, and where both cost the same."""

from fractions import Fraction

from service.api.estimate.cost_response import BreakEvenResponse, CommitmentResponse, hours_told, money
from service.api.estimate.priced_run import PricedRun, bill_under, terms_for
from service.api.estimate.response import BandResponse, rounded
from service.domain.bill.bill import Bill, HourlyPrice, SellerTerms
from service.domain.bill.commitments import break_even_hours, commitment_in, committed_cost
from service.domain.bill.interruption import break_even_rate
from service.domain.bill.payment_options import PaymentOption
from service.domain.bill.seller_terms import hourly_price
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import Offer
from service.domain.money import USD, ExchangeRate, Micros, Unknown, half_up


def commitment_told(
    purchase: PricedRun, kind: InstanceType, offer: Offer, terms: SellerTerms, bill: Bill | Unknown, plain: Offer | None
) -> CommitmentResponse | None:
    commitment = commitment_in(offer.term)
    if commitment is None or isinstance(terms.price, Unknown) or isinstance(bill, Unknown):
        return None
    listed = None if plain is None else hourly_price(plain.price, kind, plain.region)
    on_demand = listed if isinstance(listed, HourlyPrice) else None
    found = committed_cost(commitment, bill.billed_hours, purchase.machines, terms.price, on_demand)
    even = found.break_even_utilisation
    told = f"The run uses {found.used_share:.3g} of what it commits to"
    told += "." if even is None else f"; from {even:.3g} on, the term costs no more than on demand."
    return CommitmentResponse(
        plan=found.plan,
        committed_hours=hours_told(found.committed_hours) or BandResponse(0, 0, 0),
        usd_used=money(in_usd(found.uses, terms.currency, terms.rate)),
        usd_committed=money(in_usd(found.commits, terms.currency, terms.rate)),
        used_share=rounded(found.used_share),
        break_even_utilisation=None if even is None else rounded(even),
        break_even_hours=None if on_demand is None else figure(break_even_hours(commitment, terms.price, on_demand)),
        text=told,
    )


def figure(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def in_usd(amount: Micros, currency: str, rate: ExchangeRate | None) -> Micros | None:
    if currency == USD:
        return amount
    if rate is None:
        return None
    return Micros(*(half_up(each * rate.usd_per_unit) for each in (amount.low, amount.likely, amount.high)))


def break_even_told(
    purchase: PricedRun, kind: InstanceType, option: PaymentOption, bill: Bill | Unknown, plain: Offer | None
) -> BreakEvenResponse | None:
    offer = option.offer
    if offer.market == "on_demand" or plain is None or isinstance(bill, Unknown) or bill.usd is None:
        return None
    beside = bill_under(purchase, terms_for(purchase, kind, PaymentOption(plain, option.service)))
    if isinstance(beside, Unknown) or beside.usd is None or not beside.usd.likely:
        return None
    saves = round(float(100 - Fraction(bill.usd.likely, beside.usd.likely) * 100), 2)
    often = spot_break_even(purchase, offer, plain) if offer.market == "spot" else None
    told = f"{'Saves' if saves >= 0 else 'Costs'} {abs(saves):g} % {'of' if saves >= 0 else 'more than'} on demand."
    if offer.market == "spot":
        told += (
            f" With {often:.3g} interruptions an hour it would cost as much."
            if often is not None
            else " It is no cheaper even undisturbed."
        )
    return BreakEvenResponse("on_demand", saves, figure(often), told)


def spot_break_even(purchase: PricedRun, offer: Offer, plain: Offer) -> float | None:
    hours, spot, full = purchase.work.hours, offer.price.usd_micros_per_hour, plain.price.usd_micros_per_hour
    if hours is None or not hours.likely or spot is None or not full:
        return None
    return break_even_rate(hours.likely, spot / full, purchase.checkpoints)
