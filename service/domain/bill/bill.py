"""The bill of a run: what it costs, part by part, and what is not known of it.

Every part has three cases, low, likely and high, which follow the hours; within a case the parts add up to the total.
A part that is not known is null with its reason. The total of the others is then a lower bound and says so, and where
the price of the machine itself is not known there is no total, for the rest alone would look like a price.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from service.domain.bill.interruption import Expectation
from service.domain.bill.run import BilledRun, StoredData, TransferredData, check
from service.domain.catalog.reference import Fee
from service.domain.catalog.tariffs import BillingRule, StoragePrice, TransferPrice, transfer_cost
from service.domain.money import (
    MICRO,
    NOTHING,
    USD,
    Exact,
    ExchangeRate,
    Micros,
    Unknown,
    converted,
    exact,
    settle,
    total_of,
)

PartName = Literal[
    "compute", "interruption", "setup", "idle", "billing_rounding", "management_fee", "storage", "transfer", "rounding"
]
MACHINE_TIME: tuple[PartName, ...] = ("compute", "interruption", "setup", "idle", "billing_rounding")


@dataclass(frozen=True, slots=True)
class HourlyPrice:
    """What an hour of one machine costs, in millionths of the seller's currency, and how that is known."""

    micros_per_hour: int
    currency: str
    kind: str
    source: str

    @property
    def per_hour(self) -> Fraction:
        return Fraction(self.micros_per_hour, MICRO)


@dataclass(frozen=True, slots=True)
class Contained:
    """The price of the machine already holds the service's premium, as that of an ml.* twin does."""


@dataclass(frozen=True, slots=True)
class SellerTerms:
    """What the seller asks, as far as it is known; `storage` and `transfer` stand beside the run's own entries.

    `interruptions` and `fee` are None where there are none to expect and none to pay, and `rule` where nobody rounds.
    """

    price: HourlyPrice | Unknown
    rate: ExchangeRate | None
    rule: BillingRule | Unknown | None
    storage: tuple[StoragePrice | Unknown, ...] = ()
    transfer: tuple[tuple[TransferPrice, ...] | Unknown, ...] = ()
    fee: Fee | Contained | Unknown | None = None
    interruptions: Expectation | Unknown | None = None

    @property
    def currency(self) -> str:
        return USD if isinstance(self.price, Unknown) else self.price.currency


@dataclass(frozen=True, slots=True)
class Part:
    """One line of a bill, in dollars and in the seller's currency. `basis` says how it is known, `text` how it was got.

    `usd` and `native` are null where they are not known, and `reason` says why.
    """

    name: PartName
    usd: Micros | None
    native: Micros | None
    basis: str
    text: str
    reason: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run costs. `missing` has the sentences of all that is not known; `complete` says that there are none.

    `usd` and `native` are sums of the known parts: a lower bound where the bill is not complete, and null where the
    price of the machine is not known. `hours` are those of one machine as it is used, `billed_hours` as it is paid for,
    `elapsed_hours` those of the calendar where waiting for capacity is known.
    """

    parts: tuple[Part, ...]
    usd: Micros | None
    native: Micros | None
    currency: str
    rate: ExchangeRate | None
    hours: Exact
    billed_hours: Exact
    elapsed_hours: Exact | None
    machines: int
    rule: BillingRule | None
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not self.missing

    def part(self, name: PartName) -> Part:
        return next(part for part in self.parts if part.name == name)


@dataclass(frozen=True, slots=True)
class BillLine:
    """A part before it is rounded: an amount in one of the two currencies, or the reason why there is none."""

    name: PartName
    amount: Exact | Unknown
    currency: str
    basis: str
    text: str
    source: str | None = None


def bill_of(run: BilledRun, terms: SellerTerms) -> Bill:
    """The bill of a run on these terms. Raises `ImpossibleRun` for hours or amounts that nothing can have."""
    check(run)
    hours = machine_hours(run, terms)
    used = total_of(known for name, known in hours.items() if name != "billing_rounding" and isinstance(known, Exact))
    billed = total_of(known for known in hours.values() if isinstance(known, Exact))
    elapsed = elapsed_hours(used, terms.interruptions)
    lines = [
        *machine_lines(run, terms, hours),
        fee_line(run, terms, billed),
        *storage_lines(run, terms, elapsed or used),
        *transfer_lines(run, terms),
    ]
    return settled_bill(run, terms, lines, used, billed, elapsed)


# Time


Hours = dict[PartName, Exact | Unknown]


def machine_hours(run: BilledRun, terms: SellerTerms) -> Hours:
    """Hours that one machine is paid for, by what they are for. Idle hours are a share of all that it is used."""
    hours: Hours = {"compute": Exact.of(run.hours), "interruption": NOTHING}
    if isinstance(terms.interruptions, Unknown):
        hours["interruption"] = terms.interruptions
    elif terms.interruptions is not None:
        hours["interruption"] = Exact.of(terms.interruptions.hours) - Exact.of(run.hours)
    hours["setup"] = Exact.same(exact(run.setup_minutes) / 60)
    busy = total_of(known for known in hours.values() if isinstance(known, Exact))
    idle = exact(run.idle_fraction)
    hours["idle"] = wasted = busy.times(idle / (1 - idle))
    used = busy + wasted
    hours["billing_rounding"] = rounding_hours(terms.rule, used)
    return hours


def rounding_hours(rule: BillingRule | Unknown | None, used: Exact) -> Exact | Unknown:
    if rule is None:
        return NOTHING
    return rule if isinstance(rule, Unknown) else used.each(rule.billed_hours) - used


def elapsed_hours(used: Exact, interruptions: Expectation | Unknown | None) -> Exact | None:
    """Hours of the calendar: nobody pays for waiting until capacity is there, but storage is held meanwhile."""
    if interruptions is None:
        return used
    if isinstance(interruptions, Unknown) or interruptions.elapsed is None:
        return None
    return used + Exact.of(interruptions.elapsed) - Exact.of(interruptions.hours)


# Lines


def machine_lines(run: BilledRun, terms: SellerTerms, hours: Hours) -> list[BillLine]:
    return [machine_line(run, terms, name, hours[name]) for name in MACHINE_TIME]


def machine_line(run: BilledRun, terms: SellerTerms, name: PartName, hours: Exact | Unknown) -> BillLine:
    basis = time_basis(run, terms, name)
    if isinstance(hours, Unknown):
        return BillLine(name, hours, terms.currency, "unknown", "")
    if not hours:
        return BillLine(name, NOTHING, terms.currency, "none", "none")
    if isinstance(terms.price, Unknown):
        return BillLine(name, terms.price, terms.currency, "unknown", "")
    price = terms.price
    text = f"{told(hours)} h x {counted(run.machines, 'machine')} at {plain(price.per_hour)} {price.currency} an hour"
    return BillLine(name, hours.times(run.machines * price.per_hour), price.currency, basis, text, price.source)


def time_basis(run: BilledRun, terms: SellerTerms, name: PartName) -> str:
    """How the hours of a part are known; their price has a kind of its own, which the offer tells."""
    if name == "interruption" and isinstance(terms.interruptions, Expectation):
        return terms.interruptions.basis
    if name == "billing_rounding":
        return "rule"
    return run.basis if name == "compute" else "given"


def fee_line(run: BilledRun, terms: SellerTerms, billed: Exact) -> BillLine:
    """The premium of a managed service, in percent of all machine time that is paid for."""
    fee, price = terms.fee, terms.price
    if fee is None:
        return BillLine("management_fee", NOTHING, terms.currency, "none", "none")
    if isinstance(fee, Contained):
        return BillLine("management_fee", NOTHING, terms.currency, "contained", "contained in the price of the machine")
    if isinstance(fee, Unknown) or isinstance(price, Unknown):
        reason = fee if isinstance(fee, Unknown) else price
        assert isinstance(reason, Unknown)
        return BillLine("management_fee", reason, terms.currency, "unknown", "")
    amount = billed.times(run.machines * price.per_hour * exact(fee.percent_of_compute) / 100)
    text = f"{fee.percent_of_compute:g} % of the machines' price, for {fee.service}"
    return BillLine("management_fee", amount, price.currency, "published", text, fee.source)


def storage_lines(run: BilledRun, terms: SellerTerms, elapsed: Exact) -> list[BillLine]:
    if not run.stored:
        return [BillLine("storage", NOTHING, USD, "none", "none")]
    return [storage_line(run, each, price, elapsed) for each, price in zip(run.stored, terms.storage, strict=True)]


def storage_line(run: BilledRun, stored: StoredData, price: StoragePrice | Unknown, elapsed: Exact) -> BillLine:
    if isinstance(price, Unknown):
        return BillLine("storage", price, USD, "unknown", stored.what)
    hours = elapsed if stored.hours is None else Exact.same(stored.hours)
    of = f" x {counted(run.machines, 'machine')}" if price.kind == "block" else ""
    per_month = "comes with the machine" if price.micros_per_gib_month is None else (
        f"at {plain(Fraction(price.micros_per_gib_month, MICRO))} USD a GiB-month of 730 hours"
    )  # fmt: skip
    text = f"{stored.what}: {stored.gib:g} GiB of {price.storage_class} for {told(hours)} h{of}, {per_month}"
    return BillLine("storage", price.cost(stored.gib, hours, run.machines), USD, "published", text, price.source)


def transfer_lines(run: BilledRun, terms: SellerTerms) -> list[BillLine]:
    if not run.sent:
        return [BillLine("transfer", NOTHING, USD, "none", "none")]
    return [transfer_line(each, tiers) for each, tiers in zip(run.sent, terms.transfer, strict=True)]


def transfer_line(sent: TransferredData, tiers: tuple[TransferPrice, ...] | Unknown) -> BillLine:
    text = f"{sent.gb:g} GB to {DESTINATION_TEXT.get(sent.destination, sent.destination)}"
    if sent.gb == 0:
        return BillLine("transfer", NOTHING, USD, "none", text)
    if isinstance(tiers, Unknown):
        return BillLine("transfer", tiers, USD, "unknown", text)
    text += f", after {sent.already_gb:g} GB in the same month"
    return BillLine("transfer", transfer_cost(tiers, sent.gb, sent.already_gb), USD, "published", text, tiers[0].source)


DESTINATION_TEXT = {"internet": "the internet", "region": "another region", "zone": "another zone"}


# The sum


def settled_bill(
    run: BilledRun, terms: SellerTerms, lines: Sequence[BillLine], used: Exact, billed: Exact, elapsed: Exact | None
) -> Bill:
    """Both currencies settled apart, so that the parts add up in each."""
    in_usd = in_native = amounts(lines, USD, terms.rate)
    usd = native = settle([amount for amount in in_usd if amount is not None])
    if terms.currency != USD:
        in_native = amounts(lines, terms.currency, terms.rate)
        native = settle([amount for amount in in_native if amount is not None])
    usd_parts, native_parts = iter(usd.parts), iter(native.parts)
    parts = [
        part_of(line, None if a is None else next(usd_parts), None if b is None else next(native_parts), terms)
        for line, a, b in zip(lines, in_usd, in_native, strict=True)
    ]
    rounding = Part(
        "rounding", usd.rounding, native.rounding, "exact", "what the rounded parts lack of the rounded total"
    )
    missing = tuple(dict.fromkeys(part.reason for part in parts if part.reason))
    compute = parts[0]
    return Bill(
        parts=(*parts, rounding),
        usd=None if compute.usd is None else usd.total,
        native=None if compute.native is None else native.total,
        currency=terms.currency,
        rate=terms.rate,
        hours=used,
        billed_hours=billed,
        elapsed_hours=elapsed,
        machines=run.machines,
        rule=None if isinstance(terms.rule, Unknown) else terms.rule,
        missing=missing,
    )


def amounts(lines: Sequence[BillLine], currency: str, rate: ExchangeRate | None) -> list[Exact | None]:
    """The exact amount of every line in a currency, before anything is rounded."""
    return [
        None
        if isinstance(line.amount, Unknown)
        else converted(line.amount, line.currency, currency, rate) if line.amount else NOTHING
        for line in lines
    ]  # fmt: skip


def part_of(line: BillLine, usd: Micros | None, native: Micros | None, terms: SellerTerms) -> Part:
    reason = line.amount.reason if isinstance(line.amount, Unknown) else None
    if reason is None and (usd is None or native is None):
        reason = f"No exchange rate of {terms.currency} is known for the day."
    return Part(line.name, usd, native, line.basis, line.text, reason, line.source)


def told(hours: Exact) -> str:
    return f"{float(hours.likely):.4g}"


def plain(amount: Fraction) -> str:
    return f"{float(amount):.10g}"


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
