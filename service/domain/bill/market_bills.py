"""A run priced in every market of an instance type, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from service.domain.band import Band
from service.domain.bill.bill import Bill, HourlyPrice, PartName, SellerTerms, bill_of, with_premium
from service.domain.bill.commitments import CommittedCost, committed_cost
from service.domain.bill.interruption import NEVER_ENDS, Checkpoints, break_even_rate, saving_band
from service.domain.bill.payment_options import PaymentOption, on_demand_offer
from service.domain.bill.run import BilledRun, Run, RunAmount
from service.domain.bill.seller_terms import hourly_price, terms_of
from service.domain.bill.unit_costs import CERTAIN, UnitCosts, costs_of_load, unit_costs
from service.domain.bill.verdict import Gate, Verdict, verdict
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import Market, Offer, Price
from service.domain.catalog.tariffs import Commitment, commitment_in
from service.domain.codes import WarningCode
from service.domain.money import MICRO, USD, Micros, Unknown, exact, half_up, rate_on
from service.domain.physics.generation import ServedLoad
from service.domain.statement import Statement, statement
from service.domain.units import HOURS_A_MONTH

OWN_MACHINE = "for a described machine"
WITHOUT_DATA = "A month of a load is the time of its machines, without storage and transfer."


@dataclass(frozen=True, slots=True)
class PricedRun:
    """A run that is about to be priced. `run` is a `BilledRun` where the hours of `amount` are known."""

    run: Run
    amount: RunAmount
    checkpoints: Checkpoints
    served: ServedLoad | None = None

    @classmethod
    def of(cls, run: Run, amount: RunAmount, checkpoints: Checkpoints, served: ServedLoad | None) -> "PricedRun":
        """Gives a run without hours those of an amount of work, and the run of a load as many instances as it needs."""
        if isinstance(amount.hours, Band):
            amount = replace(amount, saving=saving_band(amount.hours, checkpoints))
        hours = amount.billable_hours
        if served is not None:
            run = replace(run, instances=round(served.instances.likely))
        timed = run if isinstance(hours, Unknown) else run.lasting(hours, amount.basis, amount.saving)
        return cls(timed, amount, checkpoints, served)


@dataclass(frozen=True, slots=True)
class BreakEven:
    """A market compared with renting on demand in the same region.

    `saves_percent` is a percentage of the likely on-demand bill, and negative where the market costs more; None where a
    part of the on-demand bill is unknown, or where the run would hardly ever finish. It is the most that may be saved
    where `is_most`: a part of the bill in this market is unknown.
    `interruptions_per_hour` is the rate of one instance at which spot costs as much as on-demand; None for other
    markets, and where spot is no cheaper even without interruptions.
    """

    saves_percent: float | None
    interruptions_per_hour: float | None
    is_most: bool = False


@dataclass(frozen=True, slots=True)
class MarketBill:
    """The finished bill of a run in one market. `option` is None for the caller's own machine.

    `usd_micros_per_hour` is the price of one machine without the premium of a managed service.
    """

    priced: PricedRun
    option: PaymentOption | None
    terms: SellerTerms
    usd_micros_per_hour: int | None
    bill: Bill | None
    missing: tuple[str, ...]
    per_unit: UnitCosts
    commitment: CommittedCost | None = None
    break_even: BreakEven | None = None

    @property
    def machines(self) -> int:
        """Returns the number of machines that are paid for."""
        return self.priced.run.machines

    @property
    def charged_micros_per_hour(self) -> int | None:
        """The price of an hour of all machines with the premium of a managed service, as far as that is known."""
        fee = None if isinstance(self.terms.fee, Unknown) else self.terms.fee
        charged = with_premium(self.usd_micros_per_hour, fee)
        return None if charged is None else charged * self.machines

    @property
    def hours_a_month(self) -> float:
        """Hours of a month in which each machine of a load is paid for: all of them under a commitment."""
        return _paid_hours(self.priced, self.terms)

    @property
    def month(self) -> Micros | None:
        """Returns the cost of serving the load for a month; None without a load."""
        return self.per_unit.usd_per_month

    @property
    def usd(self) -> Micros | None:
        """Returns the total of the known charges; None without a bill or without the price of the machine."""
        return None if self.bill is None else self.bill.usd

    @property
    def total(self) -> Micros | None:
        """Returns the total of a run, or the cost of a month of a load, which has no end and therefore no total."""
        return self.month if self.usd is None else self.usd

    @property
    def lower_bound(self) -> bool:
        """Whether an unknown charge may decide. The rounding of time is too small for that, unless it is by terms."""
        commits = self.option is not None and self.option.offer.market == "reserved"
        return self.bill is not None and _is_lower_bound(self.bill, by_terms=commits)

    @property
    def on_demand(self) -> bool:
        """Whether the hours of the machine are rented on demand, or those of the caller's own machine."""
        return self.option is None or self.option.offer.market == "on_demand"

    @property
    def managed(self) -> bool:
        """Whether a managed service rents the machine."""
        return self.option is not None and self.option.service is not None


def price_everywhere(
    priced: PricedRun, instance_type: InstanceType, options: Sequence[PaymentOption], catalog: Catalog
) -> tuple[MarketBill, ...]:
    """Returns the bill of a run under every payment option. Raises `QuestionError`."""
    bills = [_plain_bill(priced, instance_type, option, catalog) for option in dict.fromkeys(options)]
    known = {bill.option: bill.bill for bill in bills}
    return tuple(_compared(priced, instance_type, bill, known, catalog) for bill in bills)


def price_own_machine(priced: PricedRun, usd_per_hour: float | None, catalog: Catalog) -> MarketBill:
    """Returns the bill on the caller's own machine, at a given price of the hours used."""
    run = priced.run
    micros = None if usd_per_hour is None else half_up(exact(usd_per_hour), MICRO)
    price = Unknown("The machine was described without usd_per_hour.")
    terms = SellerTerms(
        price=price if micros is None else HourlyPrice(micros, USD, "given", ""),
        rate=rate_on((), USD, catalog.day),
        rule=None,
        storage=tuple(Unknown(f"The price of {data.storage_class} {OWN_MACHINE} is not known.") for data in run.stored),
        transfer=tuple(Unknown(f"The price of sending data {OWN_MACHINE} is not known.") for _ in run.sent),
    )
    return _market_bill(priced, None, terms, micros)


def price_as_given(
    priced: PricedRun, usd_per_hour: Mapping[Market, float], instance_type: InstanceType, regions: Sequence[str],
    catalog: Catalog,
) -> tuple[MarketBill, ...]:  # fmt: skip
    """Returns the bill of a run in each region and market at the caller's own prices, by the seller's other terms.

    A commitment at the caller's own price is one that the caller has, so that the hours used are paid for. Without a
    region, the seller's prices of data are those of all its regions.
    """
    held, bills = replace(priced, run=replace(priced.run, commitments_held=("reserved",))), list[MarketBill]()
    for region in regions or (None,):
        there = {}
        for market, usd in usd_per_hour.items():
            micros = half_up(exact(usd), MICRO)
            price = Price(micros, micros, USD, 0, None, None, "unknown", "entered", "the request", None)
            option = PaymentOption(Offer(catalog.index_of[instance_type.id], region, None, market, price))
            there[market] = _plain_bill(held, instance_type, option, catalog)
        plain = there.get("on_demand")
        bills += (
            bill
            if plain is None or bill is plain
            else replace(bill, break_even=_break_even(priced, bill, plain.bill, plain.usd_micros_per_hour))
            for bill in there.values()
        )
    return tuple(bills)


def term_warnings(bill: MarketBill) -> Iterator[Statement[WarningCode]]:
    """Yields the longest term of a seller, if a run is paid for longer."""
    rule = bill.terms.rule
    if not isinstance(rule, Commitment) or bill.bill is None:
        return
    hours, longest = bill.bill.billed_hours.likely, rule.longest_hours
    if longest is not None and hours > longest:
        yield statement(WarningCode.TERM_TOO_LONG, term=rule.plan, hours=hours, longest=longest)


def verdict_on(bills: Sequence[MarketBill], gate: Gate) -> tuple[Verdict, MarketBill | None]:
    """Returns the verdict and the bill that it judges, by its total, or by the month of a load without its data."""
    bill = representative(bills)
    if bill is None:
        return verdict(None, gate, ("Nothing is offered.",)), None
    if bill.usd is None and bill.month is not None:
        missing = (WITHOUT_DATA,) if bill.priced.run.has_data else ()
        return verdict(bill.month, gate, missing, lower_bound=bool(missing)), bill
    return verdict(bill.usd, gate, bill.missing, lower_bound=bill.lower_bound), bill


def representative(bills: Sequence[MarketBill]) -> MarketBill | None:
    """Returns the bill that represents the run: the cheapest on-demand bill, else the cheapest bill.

    A plain bill comes before that of a managed service, and a known cost before an unknown one. None without bills.
    """
    return min(
        bills,
        key=lambda bill: (
            not bill.on_demand, bill.managed, bill.total is None, bill.total.likely if bill.total else 0
        ),
        default=None,
    )  # fmt: skip


def _is_lower_bound(bill: Bill, *, by_terms: bool = False) -> bool:
    small = () if by_terms else (PartName.BILLING_ROUNDING,)
    return any(part.reason and part.name not in small for part in bill.parts)


def _market_bill(
    priced: PricedRun, option: PaymentOption | None, terms: SellerTerms, usd_micros_per_hour: int | None
) -> MarketBill:
    bill, hours, served, nodes = None, priced.amount.billable_hours, priced.served, priced.run.nodes
    paid = with_premium(usd_micros_per_hour, terms.fee)
    if isinstance(priced.run, BilledRun):
        bill = bill_of(priced.run, terms)
        missing = bill.missing
    else:
        missing = tuple(each.reason for each in (terms.price, terms.fee, hours) if isinstance(each, Unknown))
    factors = CERTAIN if isinstance(terms.price, Unknown) else terms.price.factors
    load = None if served is None else costs_of_load(served, paid, nodes, factors, _paid_hours(priced, terms))
    gang_micros = None if paid is None else paid * nodes
    return MarketBill(
        priced=priced,
        option=option,
        terms=terms,
        usd_micros_per_hour=usd_micros_per_hour,
        bill=bill,
        missing=missing,
        per_unit=load or unit_costs(None if bill is None else bill.usd, priced.amount, gang_micros),
    )


def _paid_hours(priced: PricedRun, terms: SellerTerms) -> float:
    if priced.served is None or isinstance(terms.rule, Commitment):
        return HOURS_A_MONTH
    return priced.served.serving.hours_a_month


def _plain_bill(priced: PricedRun, instance_type: InstanceType, option: PaymentOption, catalog: Catalog) -> MarketBill:
    terms = _terms(priced, instance_type, option, catalog)
    return _market_bill(priced, option, terms, option.offer.price.usd_micros_per_hour)


def _terms(priced: PricedRun, instance_type: InstanceType, option: PaymentOption, catalog: Catalog) -> SellerTerms:
    return terms_of(
        catalog.reference, instance_type, option.offer, priced.run, catalog.day, priced.checkpoints,
        service=option.service,
    )  # fmt: skip


# Compared with on demand


def _compared(
    priced: PricedRun, instance_type: InstanceType, bill: MarketBill,
    known: dict[PaymentOption | None, Bill | None], catalog: Catalog,
) -> MarketBill:  # fmt: skip
    """Returns a bill with its commitment and its break-even, and adds a missing on-demand bill to the `known` ones."""
    paid = bill.option
    if paid is None or paid.offer.market == "on_demand":
        return bill
    plain = on_demand_offer(catalog, instance_type, paid.offer.region)
    commitment, price, cost, even = commitment_in(paid.offer.term), bill.terms.price, None, None
    if commitment is not None and isinstance(price, HourlyPrice):
        listed = None if plain is None else hourly_price(plain.price, instance_type, plain.region)
        cost = committed_cost(
            commitment,
            None if bill.bill is None else bill.bill.hours,
            bill.machines,
            price,
            listed if isinstance(listed, HourlyPrice) else None,
            bill.terms.rate,
            held=not isinstance(bill.terms.rule, Commitment),
        )
    if plain is not None and isinstance(priced.run, BilledRun):
        # The on-demand bill is through the same service, so that both have its premium.
        option = PaymentOption(plain, paid.service)
        if option not in known:
            known[option] = bill_of(priced.run, _terms(priced, instance_type, option, catalog))
        even = _break_even(priced, bill, known[option], plain.price.usd_micros_per_hour)
    return replace(bill, commitment=cost, break_even=even)


def _break_even(priced: PricedRun, bill: MarketBill, on_demand: Bill | None, full: int | None) -> BreakEven | None:
    """Returns a bill compared with the one on demand, where a machine costs `full` millionths of a dollar an hour."""
    if bill.usd is None or on_demand is None or on_demand.usd is None or not on_demand.usd.likely:
        return None
    saves = None
    if not (_is_lower_bound(on_demand) or bill.terms.interruptions == Unknown(NEVER_ENDS)):
        saves = float(100 - Fraction(bill.usd.likely, on_demand.usd.likely) * 100)
    hours, spot = priced.amount.hours, bill.usd_micros_per_hour
    at_spot = bill.option is not None and bill.option.offer.market == "spot"
    if not at_spot or isinstance(hours, Unknown) or not hours.likely or spot is None or not full:
        return BreakEven(saves, None, bill.lower_bound)
    setup_hours = priced.run.setup_minutes / 60
    rate = break_even_rate(hours.likely, spot / full, priced.checkpoints, setup_hours)
    return BreakEven(saves, rate, bill.lower_bound)
