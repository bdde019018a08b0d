"""Terms of sellers besides the hourly price: rounding of time, commitments, storage, and data that is sent."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeVar, get_args

from service.domain.band import Band
from service.domain.money import MICRO, NOTHING, Exact, Unknown, exact, quotient_half_up
from service.domain.units import DAYS_A_WEEK, HOURS_A_DAY, HOURS_A_MONTH, SECONDS_AN_HOUR

FAR = 10**18
"""End of an open-ended tier, in GB."""

StorageKind = Literal["block", "file", "object"]
STORAGE_KINDS: tuple[StorageKind, ...] = get_args(StorageKind)

MachineKind = Literal["virtual", "bare_metal"]
MACHINES: tuple[MachineKind, ...] = get_args(MachineKind)

Destination = Literal["internet", "region", "zone"]
DESTINATIONS: tuple[Destination, ...] = get_args(Destination)


@dataclass(frozen=True, slots=True)
class BillingRule:
    """How a provider rounds the time of its machines, from a day on. Empty fields mean any: any market, any service."""

    provider: str
    service: str
    machine: str
    market: str
    operating_system: str
    valid_from: date
    increment_seconds: int
    minimum_seconds: int
    source: str
    note: str | None

    def billed_hours(self, hours: Exact) -> Exact:
        """Returns the hours that are billed for hours of use: whole increments, at least the minimum; 0 for no use."""
        return _in_whole_seconds(hours, self._billed_seconds)

    def _billed_seconds(self, microseconds: int) -> int:
        # Whole microseconds, so that rounding errors of 105 seconds in hours do not start another second.
        if microseconds <= 0:
            return 0
        increments = -(-microseconds // (self.increment_seconds * MICRO))
        return max(self.minimum_seconds, increments * self.increment_seconds)


def _in_whole_seconds(hours: Exact, billed_seconds: Callable[[int], int]) -> Exact:
    """Returns the billed hours for hours of use, by a function from microseconds of use to billed seconds."""
    low, likely, high = (
        billed_seconds(quotient_half_up(case * SECONDS_AN_HOUR * MICRO, hours.denominator)) for case in hours.numerators
    )
    return Exact((low, likely, high), SECONDS_AN_HOUR)


# Commitments

HOURS_A_YEAR = 8760
CAPACITY_BLOCK = "capacity_block"
BY_THE_DAY = (CAPACITY_BLOCK, "dws_calendar")
"""Terms for which the buyer orders a number of days: AWS Capacity Blocks, and the calendar mode of Google's DWS."""
BLOCK_DAYS = 14
"""Capacity Blocks are sold in days up to this length and in weeks beyond (AWS, EC2 user guide)."""

LONGEST_BLOCK_DAYS = 182
"""Most days of one Capacity Block (AWS, EC2 user guide)."""

TERM = re.compile(r"(\d+)([ymd])_(\w+)")
HOURS_OF = {"y": HOURS_A_YEAR, "m": HOURS_A_YEAR // 12, "d": HOURS_A_DAY}

PAID_UPFRONT = {"all_upfront": 1, "no_upfront": 0, "committed_use": 0, CAPACITY_BLOCK: 1}
"""End of the name of a plan → share of the term that is paid at its start. AWS charges Capacity Blocks in advance, and
Google bills committed use every month. The share of other plans differs from offer to offer."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """The commitment of a reserved offer: all hours of its term are paid for, used or not.

    `hours` is the length of a term; None for plans that are sold by the day.
    """

    plan: str
    hours: int | None

    @property
    def paid_upfront(self) -> int | None:
        """The share of the term that is paid at its start; None if the name of the plan does not say."""
        return next((share for ending, share in PAID_UPFRONT.items() if self.plan.endswith(ending)), None)

    @property
    def term_seconds(self) -> int:
        """The length of the shortest term in seconds."""
        return (self.hours or HOURS_A_DAY) * SECONDS_AN_HOUR

    @property
    def long_term_seconds(self) -> int:
        """Seconds that are sold together beyond `BLOCK_DAYS`: a week of a Capacity Block, else one term."""
        return self.term_seconds * (DAYS_A_WEEK if self.plan == CAPACITY_BLOCK else 1)

    @property
    def longest_hours(self) -> int | None:
        """The most hours that are sold together; None if there is no limit, or none is known."""
        return LONGEST_BLOCK_DAYS * HOURS_A_DAY if self.plan == CAPACITY_BLOCK else None

    def billed_hours(self, hours: Exact) -> Exact:
        """Returns the hours that are billed for hours of use: whole terms, and at least one."""
        return _in_whole_seconds(hours, self._committed_seconds)

    def _committed_seconds(self, microseconds: int) -> int:
        long = microseconds > BLOCK_DAYS * self.term_seconds * MICRO
        increment = self.long_term_seconds if long else self.term_seconds
        return max(1, -(-microseconds // (increment * MICRO))) * increment


def commitment_in(term: str | None) -> Commitment | None:
    """Returns the commitment that a term such as `1y_reserved_no_upfront` states; None if it has another form."""
    if term in BY_THE_DAY:
        return Commitment(term, None)
    match = TERM.fullmatch(term or "")
    return Commitment(match[3], int(match[1]) * HOURS_OF[match[2]]) if match else None


# Storage and transfer


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """The price of a storage class per GiB and month, from a day on. `included` storage is part of the machine's price.

    Each machine needs a block volume of its own; all machines share files and objects.
    """

    provider: str
    region: str
    storage_class: str
    valid_from: date
    kind: StorageKind
    micros_per_gib_month: int | None
    included: bool
    source: str
    note: str | None

    def cost(self, gib: float, hours: Exact, machines: int) -> Exact:
        """Returns the dollars for some GiB over some hours, for a number of machines."""
        if self.micros_per_gib_month is None:
            return NOTHING
        volumes = machines if self.kind == "block" else 1
        per_hour = Fraction(self.micros_per_gib_month, MICRO * HOURS_A_MONTH) * exact(gib) * volumes
        return hours.times(per_hour)


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """The price per GB sent to a destination: one tier, for the GB of a month from `tier_from_gb` to `tier_to_gb`."""

    provider: str
    from_region: str
    destination: Destination
    tier_from_gb: int
    valid_from: date
    tier_to_gb: int | None
    micros_per_gb: int
    source: str
    note: str | None

    def cost(self, start: Fraction, end: Fraction) -> Fraction:
        """Returns the dollars for the part of the GB from `start` to `end` of a month that is in this tier."""
        upper = end if self.tier_to_gb is None else min(end, Fraction(self.tier_to_gb))
        return max(Fraction(0), upper - max(start, Fraction(self.tier_from_gb))) * self.micros_per_gb / MICRO


def transfer_cost(tiers: Sequence[TransferPrice], gb: float, already_gb: float = 0.0) -> Exact | Unknown:
    """Returns the dollars for sending some GB, after `already_gb` in the same month; unknown beyond the last tier."""
    start = exact(already_gb)
    end = start + exact(gb)
    last_gb = max((FAR if tier.tier_to_gb is None else tier.tier_to_gb for tier in tiers), default=0)
    # Beyond the tables of some sellers, prices are negotiated; a guess would look like a price.
    if end > last_gb:
        return Unknown(f"No price is known for more than {last_gb:,} GB a month.")
    return Exact.same(sum((tier.cost(start, end) for tier in tiers), Fraction(0)))


class InForceFrom(Protocol):
    """A row that is in force from a day on."""

    @property
    def valid_from(self) -> date:
        """The first day on which the row is in force."""


Row = TypeVar("Row", bound=InForceFrom)


def most_specific(rows: Sequence[Row], day: date, exactly: Mapping[str, str], or_any: Mapping[str, Any]) -> list[Row]:
    """Returns the rows that fit best, and of these the newest that are in force on a day.

    A row fits if it has all values of `exactly`, and each field of `or_any` has the value or is empty, which means any.
    A tuple has several values, the narrowest first. A row fits better the more fields of `or_any` it states; of equally
    many, the earlier fields count, and of these the narrower values. Rows that fit equally well and differ in other
    fields are all returned.
    """
    for name, value in exactly.items():
        rows = [row for row in rows if getattr(row, name) == value]
    # From the widest value, which is empty, to the narrowest one.
    values = {name: ("", *reversed(value if isinstance(value, tuple) else (value,))) for name, value in or_any.items()}
    rows = [row for row in rows if row.valid_from <= day and all(getattr(row, name) in values[name] for name in values)]

    def fit(row: Row) -> tuple[int, list[int], date]:
        narrowness = [known.index(getattr(row, name)) for name, known in values.items()]
        return sum(map(bool, narrowness)), narrowness, row.valid_from

    best = max(map(fit, rows), default=None)
    return [row for row in rows if fit(row) == best]


def rule_of(
    rules: Sequence[BillingRule], provider: str, service: str, machine: MachineKind, market: str,
    operating_system: str, day: date,
) -> BillingRule | Unknown:  # fmt: skip
    """Returns the most specific rule in force on a day; of equally specific ones, the newest."""
    or_any = {"service": service, "machine": machine, "market": market, "operating_system": operating_system}
    if applicable := most_specific(rules, day, {"provider": provider}, or_any):
        return applicable[0]
    return Unknown(f"How {provider} rounds the time of its machines is not known; they are billed here by the second.")


def storage_price_of(
    prices: Sequence[StoragePrice], provider: str, region: str | None, storage_class: str, day: date
) -> StoragePrice | Unknown:
    """Returns the newest price of a storage class by a day: that of the region, else that of all regions."""
    exactly = {"provider": provider, "storage_class": storage_class}
    if applicable := most_specific(prices, day, exactly, {"region": region}):
        return applicable[0]
    classes, others = storage_classes(price for price in prices if price.provider == provider), ""
    if classes and storage_class not in classes:
        others = f"; those of {', '.join(classes)} are"
    return Unknown(f"The price of {storage_class} at {_location(provider, region)} is not known{others}.")


def storage_classes(prices: Iterable[StoragePrice]) -> tuple[str, ...]:
    """Returns the storage classes of some prices, by name."""
    return tuple(sorted({price.storage_class for price in prices}))


def transfer_prices_of(
    prices: Sequence[TransferPrice], provider: str, region: str | None, destination: str, day: date
) -> tuple[TransferPrice, ...] | Unknown:
    """Returns the tiers of the newest price table by a day: that of the region, else that of all regions."""
    exactly = {"provider": provider, "destination": destination}
    tiers = most_specific(prices, day, exactly, {"from_region": region})
    if tiers:
        return tuple(sorted(tiers, key=lambda tier: tier.tier_from_gb))
    to = {"internet": "to the internet", "region": "to another region", "zone": "to another zone"}
    where = _location(provider, region)
    return Unknown(f"The price of a GB {to.get(destination, destination)} at {where} is not known.")


def _location(provider: str, region: str | None) -> str:
    return f"{provider} in {region}" if region else provider


@dataclass(frozen=True, slots=True)
class InterruptionPrior:
    """Interruptions per hour of a node, assumed until they are measured. An empty provider or GPU means any other one.

    `lost_together` is the share of the interruptions of a node that stop all nodes of a job; `available_share` is the
    share of time in which capacity is available. The monthly shares that providers publish are not used: 5 % a month
    would be one interruption in 14,200 hours (730 / -ln(1 - 0.05)), and traces of GPU spot pools show one in 2 to 10
    hours.
    """

    market: str
    provider: str
    gpu: str
    valid_from: date
    per_hour_low: float
    per_hour_likely: float
    per_hour_high: float
    lost_together: float
    available_share: float | None
    source: str
    note: str | None

    @property
    def per_hour(self) -> Band:
        """The band of interruptions per hour of a node."""
        return Band(self.per_hour_low, self.per_hour_likely, self.per_hour_high)


def prior_of(
    priors: Sequence[InterruptionPrior], provider: str, market: str, gpu: str | None, day: date
) -> InterruptionPrior | Unknown:
    """Returns the prior in force on a day for a market, provider and GPU: the most specific one, then the newest."""
    if applicable := most_specific(priors, day, {"market": market}, {"provider": provider, "gpu": gpu}):
        return applicable[0]
    return Unknown(f"How often {provider} interrupts {market} machines is not known.")
