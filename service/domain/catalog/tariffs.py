"""Terms of sellers besides the hourly price: rounding of time, commitments, storage, and data that is sent."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any, Literal, Protocol, TypeVar, get_args

from service.domain.band import Band
from service.domain.money import MICRO, NOTHING, Exact, Unknown, exact, quotient_half_up
from service.domain.units import DAYS_A_WEEK, HOURS_A_DAY, HOURS_A_MONTH, SECONDS_AN_HOUR

FAR = 10**18
"""End of a tier without an end, in GB."""

StorageKind = Literal["block", "file", "object"]
STORAGE_KINDS: tuple[StorageKind, ...] = get_args(StorageKind)

MachineKind = Literal["virtual", "bare_metal"]
MACHINES: tuple[MachineKind, ...] = get_args(MachineKind)

Destination = Literal["internet", "region", "zone"]
DESTINATIONS: tuple[Destination, ...] = get_args(Destination)


@dataclass(frozen=True, slots=True)
class BillingRule:
    """How a provider rounds time, from a day on. An empty service, machine, market or operating system means any."""

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
        """Returns the hours that are paid for: whole increments, and at least the minimum; 0 for no time."""
        return _in_whole_seconds(hours, self._billed_seconds)

    def _billed_seconds(self, microseconds: int) -> int:
        # Whole microseconds, so that 105 seconds as a float of hours do not begin a 106th.
        if microseconds <= 0:
            return 0
        increments = -(-microseconds // (self.increment_seconds * MICRO))
        return max(self.minimum_seconds, increments * self.increment_seconds)


def _in_whole_seconds(hours: Exact, billed_seconds: Callable[[int], int]) -> Exact:
    """Returns the hours that are billed, given the seconds that are billed for microseconds of use."""
    low, likely, high = (
        billed_seconds(quotient_half_up(case * SECONDS_AN_HOUR * MICRO, hours.denominator)) for case in hours.numerators
    )
    return Exact((low, likely, high), SECONDS_AN_HOUR)


# Commitments

HOURS_A_YEAR = 8760
CAPACITY_BLOCK = "capacity_block"
BY_THE_DAY = (CAPACITY_BLOCK, "dws_calendar")
"""Terms that have as many days as the buyer orders: AWS Capacity Blocks, and the calendar mode of Google's DWS."""
BLOCK_DAYS = 14
"""Capacity Blocks are sold in days up to this length and in weeks beyond, to 182 days (AWS, EC2 user guide)."""

TERM = re.compile(r"(\d+)([ymd])_(\w+)")
HOURS_OF = {"y": HOURS_A_YEAR, "m": HOURS_A_YEAR // 12, "d": HOURS_A_DAY}

PAID_UPFRONT = {"all_upfront": 1, "no_upfront": 0, "committed_use": 0, CAPACITY_BLOCK: 1}
"""Share of a term that is paid at its start, by the end of a plan's name: AWS charges Capacity Blocks in advance, and
Google bills committed use every month. The share of other plans differs from offer to offer."""


@dataclass(frozen=True, slots=True)
class Commitment:
    """A reserved offer obliges to a term, and every hour of it is paid for, used or not.

    `hours` are those of one term; None for what is sold by the day, which has as many days as it needs.
    """

    plan: str
    hours: int | None

    @property
    def paid_upfront(self) -> int | None:
        """Returns the share of the term that is paid at its start; None where the plan does not say."""
        return next((share for ending, share in PAID_UPFRONT.items() if self.plan.endswith(ending)), None)

    @property
    def term_seconds(self) -> int:
        """Returns the seconds of the shortest term."""
        return (self.hours or HOURS_A_DAY) * SECONDS_AN_HOUR

    @property
    def long_term_seconds(self) -> int:
        """Returns the increment beyond `BLOCK_DAYS`: a week for capacity blocks, else one term."""
        return self.term_seconds * (DAYS_A_WEEK if self.plan == CAPACITY_BLOCK else 1)

    def billed_hours(self, hours: Exact) -> Exact:
        """Returns the hours paid for in order to use so many: whole terms, and one even if nothing is used."""
        return _in_whole_seconds(hours, self._committed_seconds)

    def _committed_seconds(self, microseconds: int) -> int:
        long = microseconds > BLOCK_DAYS * self.term_seconds * MICRO
        increment = self.long_term_seconds if long else self.term_seconds
        return max(1, -(-microseconds // (increment * MICRO))) * increment


def commitment_in(term: str | None) -> Commitment | None:
    """Returns the commitment that a term names; None where the name does not say.

    A term is a length and a plan, such as `1y_reserved_no_upfront` or `3y_committed_use`, or one of `BY_THE_DAY`.
    """
    if term in BY_THE_DAY:
        return Commitment(term, None)
    match = TERM.fullmatch(term or "")
    return Commitment(match[3], int(match[1]) * HOURS_OF[match[2]]) if match else None


# Storage and transfer


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """The price of a GiB of a storage class per month, from a day on. `included` storage comes with the machine, free.

    A block volume belongs to one machine and is paid for each; files and objects are shared.
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
        """Returns the dollars for some GiB over some hours."""
        if self.micros_per_gib_month is None:
            return NOTHING
        volumes = machines if self.kind == "block" else 1
        per_hour = Fraction(self.micros_per_gib_month, MICRO * HOURS_A_MONTH) * exact(gib) * volumes
        return hours.times(per_hour)


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """The price of a GB sent to a destination, for the GB of a month from `tier_from_gb` to `tier_to_gb`."""

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
        """Returns the dollars for the GB from `start` to `end` that are in this tier."""
        upper = end if self.tier_to_gb is None else min(end, Fraction(self.tier_to_gb))
        return max(Fraction(0), upper - max(start, Fraction(self.tier_from_gb))) * self.micros_per_gb / MICRO


def transfer_cost(tiers: Sequence[TransferPrice], gb: float, already_gb: float = 0.0) -> Exact | Unknown:
    """Returns the dollars for some GB after `already_gb` of the same month; unknown beyond the last tier."""
    start = exact(already_gb)
    end = start + exact(gb)
    reach = max((FAR if tier.tier_to_gb is None else tier.tier_to_gb for tier in tiers), default=0)
    # Some sellers end their tables and negotiate beyond them; a guess would look like a price.
    if end > reach:
        return Unknown(f"No price is known for more than {reach:,} GB a month.")
    return Exact.same(sum((tier.cost(start, end) for tier in tiers), Fraction(0)))


class InForceFrom(Protocol):
    """A row that is in force from a day on."""

    @property
    def valid_from(self) -> date:
        """Returns the first day on which the row holds."""


Row = TypeVar("Row", bound=InForceFrom)


def most_specific(rows: Sequence[Row], day: date, exactly: Mapping[str, str], or_any: Mapping[str, Any]) -> list[Row]:
    """Returns the rows that fit best, and of these the newest by a day; several where they differ in other fields.

    A row has the values of `exactly`, and each value of `or_any` or an empty text, which stands for every value. A row
    that states more of them fits better; of equally many, one that states an earlier one.
    """
    for name, value in exactly.items():
        rows = [row for row in rows if getattr(row, name) == value]
    for name, value in or_any.items():
        rows = [row for row in rows if getattr(row, name) in ("", value)]
    rows = [row for row in rows if row.valid_from <= day]

    def fit(row: Row) -> tuple[int, list[bool], date]:
        stated = [getattr(row, name) != "" for name in or_any]
        return sum(stated), stated, row.valid_from

    best = max(map(fit, rows), default=None)
    return [row for row in rows if fit(row) == best]


def rule_of(
    rules: Sequence[BillingRule], provider: str, service: str, machine: MachineKind, market: str,
    operating_system: str, day: date,
) -> BillingRule | Unknown:  # fmt: skip
    """Returns the most specific rule that applies; among equally specific ones the newest by that day."""
    or_any = {"service": service, "machine": machine, "market": market, "operating_system": operating_system}
    for rule in most_specific(rules, day, {"provider": provider}, or_any):
        return rule
    return Unknown(f"How {provider} rounds the time of its machines is not known; they are billed here by the second.")


def storage_price_of(
    prices: Sequence[StoragePrice], provider: str, region: str | None, storage_class: str, day: date
) -> StoragePrice | Unknown:
    """Returns the newest price of a class by a day: of the region, or else of every region."""
    exactly = {"provider": provider, "storage_class": storage_class}
    for price in most_specific(prices, day, exactly, {"region": region}):
        return price
    return Unknown(f"What {storage_class} costs at {_location(provider, region)} is not known.")


def storage_classes(prices: Sequence[StoragePrice], provider: str | None = None) -> tuple[str, ...]:
    """Returns the known storage classes, of one provider or of all."""
    return tuple(sorted({price.storage_class for price in prices if provider in (None, price.provider)}))


def transfer_prices_of(
    prices: Sequence[TransferPrice], provider: str, region: str | None, destination: str, day: date
) -> tuple[TransferPrice, ...] | Unknown:
    """Returns the tiers of the newest table by a day: of the region, or else of every region."""
    exactly = {"provider": provider, "destination": destination}
    tiers = most_specific(prices, day, exactly, {"from_region": region})
    if tiers:
        return tuple(sorted(tiers, key=lambda tier: tier.tier_from_gb))
    away = {"internet": "to the internet", "region": "to another region", "zone": "to another zone"}
    where = _location(provider, region)
    return Unknown(f"What a GB {away.get(destination, destination)} costs at {where} is not known.")


def _location(provider: str, region: str | None) -> str:
    return f"{provider} in {region}" if region else provider


@dataclass(frozen=True, slots=True)
class InterruptionPrior:
    """Interruptions per hour of a node, assumed until they are measured.

    `lost_together` is the share of the interruptions of a node that stop the whole gang; `available_share` is the share
    of time in which capacity is available. An empty provider or GPU means every other one. The monthly shares that
    providers publish are not used: 5 % a month would be one interruption in 14,200 hours (-ln(1 - share) / 730), and
    traces of GPU spot pools show one in 2 to 10 hours.
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
        """Returns the band of interruptions per hour."""
        return Band(self.per_hour_low, self.per_hour_likely, self.per_hour_high)


def prior_of(
    priors: Sequence[InterruptionPrior], provider: str, market: str, gpu: str | None, day: date
) -> InterruptionPrior | Unknown:
    """Returns the most specific prior, and of those the newest, for a GPU of a provider in a market on a day."""
    for prior in most_specific(priors, day, {"market": market}, {"provider": provider, "gpu": gpu}):
        return prior
    return Unknown(f"How often {provider} interrupts {market} machines is not known.")
