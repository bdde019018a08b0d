"""What sellers charge beside the hour of a machine: rounding of time, storage, and what leaves their network."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from math import ceil
from typing import Literal, get_args

from service.domain.band import Band
from service.domain.money import MICRO, Exact, Unknown, exact, half_up

HOURS_A_MONTH = 730
"""Hours that a price per month is spread over: a year of 8,760 hours in twelve parts, as AWS and Azure count."""

StorageKind = Literal["block", "file", "object"]
STORAGE_KINDS: tuple[StorageKind, ...] = get_args(StorageKind)

MachineKind = Literal["virtual", "bare_metal"]
MACHINES: tuple[MachineKind, ...] = get_args(MachineKind)

Destination = Literal["internet", "region", "zone"]
DESTINATIONS: tuple[Destination, ...] = get_args(Destination)


@dataclass(frozen=True, slots=True)
class BillingRule:
    """How a seller rounds time, from a day on. An empty service, machine, market or operating system is every one."""

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

    def billed_hours(self, hours: Fraction) -> Fraction:
        """Hours that are paid for: whole increments, and no less than the minimum; nothing for nothing.

        Time is taken to the microsecond, so that 105 seconds told as a float of hours do not begin a 106th.
        """
        seconds = Fraction(half_up(hours * 3600 * MICRO), MICRO)
        if seconds <= 0:
            return Fraction(0)
        increments = ceil(seconds / self.increment_seconds)
        return max(Fraction(self.minimum_seconds), Fraction(increments * self.increment_seconds)) / 3600


@dataclass(frozen=True, slots=True)
class StoragePrice:
    """What a GiB of a storage class costs a month, from a day on. `included`: it comes with the machine, for nothing.

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
        """Dollars of so many GiB, held for so many hours."""
        if self.micros_per_gib_month is None:
            return Exact.same(0)
        volumes = machines if self.kind == "block" else 1
        per_hour = Fraction(self.micros_per_gib_month, MICRO * HOURS_A_MONTH) * exact(gib) * volumes
        return hours.times(per_hour)


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """What a GB costs that leaves for a destination, of the GB of a month from `tier_from_gb` to `tier_to_gb`."""

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
        """Dollars of what lies in this tier of the GB from `start` to `end`."""
        upper = end if self.tier_to_gb is None else min(end, Fraction(self.tier_to_gb))
        return max(Fraction(0), upper - max(start, Fraction(self.tier_from_gb))) * self.micros_per_gb / MICRO


def transfer_cost(tiers: Sequence[TransferPrice], gb: float, already_gb: float = 0.0) -> Exact | Unknown:
    """Dollars of so many GB after `already_gb` of the same month; unknown where the tiers do not reach."""
    start = exact(already_gb)
    end = start + exact(gb)
    reach = max((FAR if tier.tier_to_gb is None else tier.tier_to_gb for tier in tiers), default=0)
    if end > reach:
        return Unknown(f"No price is known for more than {reach:,} GB a month.")
    return Exact.same(sum((tier.cost(start, end) for tier in tiers), Fraction(0)))


FAR = 10**18
"""GB that nobody sends."""


# What holds somewhere on a day


def rule_of(
    rules: Sequence[BillingRule], provider: str, service: str, machine: MachineKind, market: str,
    operating_system: str, day: date,
) -> BillingRule | Unknown:  # fmt: skip
    """The rule that speaks most precisely of what is rented; of those the newest by that day."""
    known = [
        rule
        for rule in rules
        if rule.provider == provider
        and rule.service in ("", service)
        and rule.machine in ("", machine)
        and rule.market in ("", market)
        and rule.operating_system in ("", operating_system)
        and rule.valid_from <= day
    ]
    if not known:
        return Unknown(
            f"How {provider} rounds the time of its machines is not known; they are billed here by the second."
        )

    def precision(rule: BillingRule) -> tuple[int, date]:
        return sum(map(bool, (rule.service, rule.machine, rule.market, rule.operating_system))), rule.valid_from

    return max(known, key=precision)


def storage_price_of(
    prices: Sequence[StoragePrice], provider: str, region: str | None, storage_class: str, day: date
) -> StoragePrice | Unknown:
    """The price of a class in a region, or the one without a region that stands for all; the newest by that day."""
    known = [
        price
        for price in prices
        if price.provider == provider
        and price.storage_class == storage_class
        and price.region in ("", region)
        and price.valid_from <= day
    ]
    if known:
        return max(known, key=lambda price: (bool(price.region), price.valid_from))
    return Unknown(f"What {storage_class} costs at {place_of(provider, region)} is not known.")


def storage_classes(prices: Sequence[StoragePrice], provider: str | None = None) -> tuple[str, ...]:
    """The classes that anything is known of, of one provider or of all."""
    return tuple(sorted({price.storage_class for price in prices if provider in (None, price.provider)}))


def transfer_prices_of(
    prices: Sequence[TransferPrice], provider: str, region: str | None, destination: str, day: date
) -> tuple[TransferPrice, ...] | Unknown:
    """The tiers from a region, or those without a region that stand for all; the newest table by that day."""
    known = [
        price
        for price in prices
        if price.provider == provider
        and price.destination == destination
        and price.from_region in ("", region)
        and price.valid_from <= day
    ]
    if not known:
        away = {"internet": "to the internet", "region": "to another region", "zone": "to another zone"}
        return Unknown(
            f"What a GB {away.get(destination, destination)} costs at {place_of(provider, region)} is not known."
        )
    table = max((bool(price.from_region), price.valid_from) for price in known)
    tiers = [price for price in known if (bool(price.from_region), price.valid_from) == table]
    return tuple(sorted(tiers, key=lambda tier: tier.tier_from_gb))


def place_of(provider: str, region: str | None) -> str:
    return f"{provider} in {region}" if region else provider


@dataclass(frozen=True, slots=True)
class InterruptionPrior:
    """What is believed of interruptions until they are measured, per hour of a node.

    `lost_together` is the share of interruptions of a node that take the whole gang with them; `available_share` is
    the share of time in which capacity is there at all. An empty provider or GPU is every other one. Bands that
    providers publish are not believed: see `rate_of_monthly_share`.
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
        return Band(self.per_hour_low, self.per_hour_likely, self.per_hour_high)
