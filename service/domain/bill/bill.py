"""The bill of a run: its cost, part by part, and the reason for every part that is unknown.

Every part has three cases, low, likely and high, which follow the hours; within a case the parts add up to the total.
A part that is unknown is null with its reason. The total of the others is then a lower bound, and `missing` says so.
Where the price of the machine itself is unknown there is no total, because the rest alone would look like a price.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from service.domain.bill.interruption import Expectation
from service.domain.bill.run import BilledRun, StoredData, TransferredData, check
from service.domain.catalog.offer import Price
from service.domain.catalog.reference import Fee, ServiceFee
from service.domain.catalog.tariffs import BillingRule, Commitment, StoragePrice, TransferPrice, transfer_cost
from service.domain.money import (
    MICRO,
    NO_MICROS,
    NOTHING,
    USD,
    Exact,
    ExchangeRate,
    Micros,
    Unknown,
    converted,
    exact,
    exact_ratio,
    half_up,
    settle,
    total_of,
)
from service.domain.units import SECONDS_AN_HOUR

A_MINUTE = Fraction(1, 60)
"""A minute in hours."""


class PartName(StrEnum):
    """The parts of a bill, in their order."""

    COMPUTE = "compute"
    CHECKPOINTS = "checkpoints"
    INTERRUPTION = "interruption"
    SETUP = "setup"
    IDLE = "idle"
    BILLING_ROUNDING = "billing_rounding"
    MANAGEMENT_FEE = "management_fee"
    STORAGE = "storage"
    TRANSFER = "transfer"
    ROUNDING = "rounding"


@dataclass(frozen=True, slots=True)
class HourlyPrice:
    """The price of one machine for an hour, in millionths of the seller's currency, and how it is known.

    `factors` are low, likely and high of a price that is believed and not certain.
    """

    micros_per_hour: int
    currency: str
    kind: str
    source: str
    factors: tuple[float, float, float] = (1.0, 1.0, 1.0)

    @property
    def per_hour(self) -> Exact:
        """Returns low, likely and high of the price in millionths per hour, exactly."""
        low, likely, high = (round(self.micros_per_hour * factor) for factor in self.factors)
        return Exact((low, likely, high), MICRO)


def with_premium(micros_per_hour: int | None, fee: ServiceFee) -> int | None:
    """Returns the price of an hour with the premium of a managed service; None if one of the two is unknown."""
    if micros_per_hour is None or isinstance(fee, Unknown):
        return None
    if not isinstance(fee, Fee):
        return micros_per_hour
    return half_up(micros_per_hour * (100 + exact(fee.percent_of_compute)) / 100)


def usd_of_hour(price: Price, fee: ServiceFee) -> float | None:
    """Returns the dollars of an hour with the premium of a managed service; None if one of the two is unknown."""
    micros = with_premium(price.usd_micros_per_hour, fee)
    return None if micros is None else micros / MICRO


@dataclass(frozen=True, slots=True)
class SellerTerms:
    """The prices and rules of a seller for a run, as far as they are known.

    `storage` and `transfer` have an entry for each entry of the run's data. `rule` is None where time is not rounded,
    and a commitment where a whole term is paid for. `interruptions` is None where none are expected.
    """

    price: HourlyPrice | Unknown
    rate: ExchangeRate | None
    rule: BillingRule | Commitment | Unknown | None
    storage: tuple[StoragePrice | Unknown, ...] = ()
    transfer: tuple[tuple[TransferPrice, ...] | Unknown, ...] = ()
    fee: ServiceFee = None
    interruptions: Expectation | Unknown | None = None
    managed: bool = False
    """Whether a managed service runs the work, and bills only the hours of the run."""

    @property
    def currency(self) -> str:
        """Returns the currency of the price; where the price is unknown, that of the exchange rate, else dollars."""
        if not isinstance(self.price, Unknown):
            return self.price.currency
        return USD if self.rate is None else self.rate.currency


@dataclass(frozen=True, slots=True)
class MachineTime:
    """The likely hours of each machine, the number of machines, and the price of an hour."""

    hours: float
    machines: int
    price: HourlyPrice


@dataclass(frozen=True, slots=True)
class StoredVolume:
    """Data in storage for likely hours. An unknown price is None; each machine has a block volume of its own."""

    data: StoredData
    price: StoragePrice | None
    hours: float
    machines: int


Calculation: TypeAlias = MachineTime | Fee | StoredVolume | TransferredData | None
"""The figures that a part was computed from."""


class Part(NamedTuple):
    """One line of a bill, in dollars (`usd`) and in the seller's currency (`native`). `basis` says how it is known.

    Both amounts are None where they are unknown, and `reason` says why.
    """

    name: PartName
    usd: Micros | None
    native: Micros | None
    basis: str
    calculation: Calculation = None
    reason: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of a run in parts. `missing` has a sentence for everything unknown; `complete` means that it is empty.

    `usd` and `native` are sums of the known parts: a lower bound where the bill is not complete, and null where the
    price of the machine is unknown. `hours` are those of one machine as it is used, `billed_hours` as it is paid for,
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
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every charge is known."""
        return not self.missing

    @property
    def run_hours(self) -> Exact:
        """Returns the hours until the run is done: of the calendar if these are known, else of use."""
        return self.elapsed_hours or self.hours

    def part(self, name: str) -> Part:
        """Returns the first part with a name."""
        return next(part for part in self.parts if part.name == name)


class _Line(NamedTuple):
    """A part before it is rounded: an amount in one of the two currencies, or the reason why there is none."""

    name: PartName
    amount: Exact | Unknown
    currency: str
    basis: str = "none"
    calculation: Calculation = None
    source: str | None = None


def bill_of(run: BilledRun, terms: SellerTerms) -> Bill:
    """Returns the bill of a run on these terms. Raises `ImpossibleRun` for impossible hours or amounts."""
    check(run)
    hours, used = _machine_hours(run, terms)
    rounding = hours[PartName.BILLING_ROUNDING]
    billed = used if isinstance(rounding, Unknown) else used + rounding
    # Storage is paid while a run waits for capacity; machines are not.
    elapsed = _elapsed_hours(used, terms.interruptions)
    lines = [
        *_machine_lines(run, terms, hours),
        _fee_line(run, terms, billed),
        *_storage_lines(run, terms, elapsed or used),
        *_transfer_lines(run, terms),
    ]
    usd, native, parts = _settled(lines, terms)
    return Bill(
        parts=parts,
        usd=None if parts[0].usd is None else usd,
        native=None if parts[0].native is None else native,
        currency=terms.currency,
        rate=terms.rate,
        hours=used,
        billed_hours=billed,
        elapsed_hours=elapsed,
        machines=run.machines,
        missing=tuple(dict.fromkeys(part.reason for part in parts if part.reason)),
    )


# Time


def _machine_hours(run: BilledRun, terms: SellerTerms) -> tuple[dict[PartName, Exact | Unknown], Exact]:
    """Returns the hours for which one machine is paid, by purpose, and those for which it is used."""
    work, saving, interruptions, rule = Exact.of(run.hours), Exact.of(run.saving), terms.interruptions, terms.rule
    lost: Exact | Unknown = NOTHING
    if interruptions is not None:
        lost = interruptions if isinstance(interruptions, Unknown) else Exact.of(interruptions.hours) - work - saving
    setup = Exact.same(run.setup_minutes).times(A_MINUTE)
    busy = total_of(time for time in (work, saving, lost, setup) if isinstance(time, Exact))
    # The idle fraction is a share of all hours, idle ones included. A managed service stops its machines when idle.
    share, whole = exact_ratio(0 if terms.managed else run.idle_fraction)
    idle = busy.times(Fraction(share, whole - share)) if share else NOTHING
    used = busy + idle
    rounding: Exact | Unknown = NOTHING
    if rule is not None:
        rounding = rule if isinstance(rule, Unknown) else rule.billed_hours(used) - used
    hours = {
        PartName.COMPUTE: work,
        PartName.CHECKPOINTS: saving,
        PartName.INTERRUPTION: lost,
        PartName.SETUP: setup,
        PartName.IDLE: idle,
        PartName.BILLING_ROUNDING: rounding,
    }
    return hours, used


def _elapsed_hours(used: Exact, interruptions: Expectation | Unknown | None) -> Exact | None:
    """Returns the hours on the calendar: no machine is billed while capacity is awaited, but stored data is."""
    if interruptions is None:
        return used
    if isinstance(interruptions, Unknown) or interruptions.elapsed is None:
        return None
    return used + Exact.of(interruptions.elapsed) - Exact.of(interruptions.hours)


# Lines


def _machine_lines(run: BilledRun, terms: SellerTerms, hours: Mapping[PartName, Exact | Unknown]) -> list[_Line]:
    """Returns a line for the hours of each purpose."""
    price, currency, lines = terms.price, terms.currency, list[_Line]()
    per_hour = NOTHING if isinstance(price, Unknown) else price.per_hour.times(run.machines)
    # The basis is that of the hours; their price has a kind of its own.
    bases = {PartName.COMPUTE: run.basis, PartName.BILLING_ROUNDING: "rule"}
    if isinstance(terms.interruptions, Expectation):
        bases[PartName.INTERRUPTION] = terms.interruptions.basis
    for name, each in hours.items():
        if isinstance(each, Unknown) or not each:
            lines.append(_Line(name, each, currency))
        elif isinstance(price, Unknown):
            lines.append(_Line(name, price, currency))
        elif name == PartName.BILLING_ROUNDING and each.times(SECONDS_AN_HOUR).micros == NO_MICROS:
            # Hours are floats: whole seconds may differ from them by far less than a microsecond.
            lines.append(_Line(name, each.by(per_hour), currency))
        else:
            time = MachineTime(each.likely, run.machines, price)
            lines.append(_Line(name, each.by(per_hour), currency, bases.get(name, "given"), time, price.source))
    return lines


def _fee_line(run: BilledRun, terms: SellerTerms, billed: Exact) -> _Line:
    """Returns the premium of a managed service, which is a percentage of all machine time that is paid for."""
    name, fee, price = PartName.MANAGEMENT_FEE, terms.fee, terms.price
    if fee is None or fee == "contained":
        return _Line(name, NOTHING, terms.currency, fee or "none")
    if isinstance(fee, Unknown):
        return _Line(name, fee, terms.currency)
    if isinstance(price, Unknown):
        return _Line(name, price, terms.currency)
    amount = billed.times(run.machines * exact(fee.percent_of_compute) / 100).by(price.per_hour)
    return _Line(name, amount, price.currency, "published", fee, fee.source)


def _storage_lines(run: BilledRun, terms: SellerTerms, elapsed: Exact) -> list[_Line]:
    lines = []
    for data, price in zip(run.stored, terms.storage, strict=True):
        hours = elapsed if data.hours is None else Exact.same(data.hours)
        known = None if isinstance(price, Unknown) else price
        volume = StoredVolume(data, known, hours.likely, run.machines)
        if isinstance(price, Unknown):
            lines.append(_Line(PartName.STORAGE, price, USD, calculation=volume))
        else:
            cost = price.cost(data.gib, hours, run.machines)
            lines.append(_Line(PartName.STORAGE, cost, USD, "published", volume, price.source))
    return lines or [_Line(PartName.STORAGE, NOTHING, USD)]


def _transfer_lines(run: BilledRun, terms: SellerTerms) -> list[_Line]:
    lines = []
    for data, tiers in zip(run.sent, terms.transfer, strict=True):
        if data.gb == 0 or isinstance(tiers, Unknown):
            amount = tiers if data.gb and isinstance(tiers, Unknown) else NOTHING
            lines.append(_Line(PartName.TRANSFER, amount, USD, calculation=data))
        else:
            cost = transfer_cost(tiers, data.gb, data.already_gb)
            lines.append(_Line(PartName.TRANSFER, cost, USD, "published", data, tiers[0].source))
    return lines or [_Line(PartName.TRANSFER, NOTHING, USD)]


# The sum


def _settled(lines: Sequence[_Line], terms: SellerTerms) -> tuple[Micros, Micros, tuple[Part, ...]]:
    """Returns both totals and the parts. Each currency is settled separately, so that the parts add up in both."""
    currency = terms.currency
    usd = native = settle([_amount_in(line, USD, terms.rate) for line in lines])
    # Most sellers charge dollars, and the bill is then settled once.
    if currency != USD:
        native = settle([_amount_in(line, currency, terms.rate) for line in lines])
    parts = (_part(*line, currency) for line in zip(lines, usd.parts, native.parts, strict=True))
    return usd.total, native.total, (*parts, Part(PartName.ROUNDING, usd.rounding, native.rounding, "exact"))


def _amount_in(line: _Line, currency: str, rate: ExchangeRate | None) -> Exact | None:
    if isinstance(line.amount, Unknown):
        return None
    # An amount of 0 is 0 in every currency, also where the exchange rate is unknown.
    return converted(line.amount, line.currency, currency, rate) if line.amount else NOTHING


def _part(line: _Line, usd: Micros | None, native: Micros | None, currency: str) -> Part:
    if isinstance(line.amount, Unknown):
        return Part(line.name, usd, native, "unknown", line.calculation, line.amount.reason, line.source)
    reason = f"No exchange rate of {currency} is known for the day." if usd is None or native is None else None
    return Part(line.name, usd, native, line.basis, line.calculation, reason, line.source)
