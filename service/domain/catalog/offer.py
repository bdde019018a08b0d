"""Offers: an instance type in a region, in a market, at a price."""

from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

Market = Literal["on_demand", "spot", "reserved"]
MARKETS: tuple[Market, ...] = get_args(Market)

BY_THE_HOUR: tuple[Market, ...] = ("on_demand", "spot")
"""Markets that rent single hours; they are the default."""

PriceKind = Literal["api", "published", "entered", "assumed"]
PRICE_KINDS: tuple[PriceKind, ...] = get_args(PriceKind)

Dated = Literal["day", "month", "not_before", "unknown"]
DATED: tuple[Dated, ...] = get_args(Dated)
"""How well the day of an observation is known."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an offer over `[valid_from, valid_to)`; money in millionths, None if it is unknown."""

    usd_micros_per_hour: int | None
    native_micros_per_hour: int | None
    currency: str
    valid_from: int
    valid_to: int | None
    observed_on: date | None
    dated: Dated
    kind: PriceKind
    source: str
    note: str | None

    @property
    def usd_per_hour(self) -> float | None:
        """US dollars per hour of one machine; None if unknown."""
        return None if self.usd_micros_per_hour is None else self.usd_micros_per_hour / 1_000_000


@dataclass(frozen=True, slots=True)
class Offer:
    """An instance type in a region and a market, with its price on the catalog's day."""

    instance_type: int
    region: str | None
    zone: str | None
    market: Market
    price: Price
    term: str | None = None
    """The term that a reserved offer commits to, as `service.domain.bill.commitments` reads it."""
