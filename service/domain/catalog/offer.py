"""Offers: an instance type in a region, in a market, at a price."""

from dataclasses import dataclass
from datetime import date
from typing import Literal, get_args

Market = Literal["on_demand", "spot", "reserved"]
MARKETS: tuple[Market, ...] = get_args(Market)

BY_THE_HOUR: tuple[Market, ...] = ("on_demand", "spot")
"""Markets where a single hour can be had: what is meant where no market is named."""

PriceKind = Literal["api", "published", "entered", "assumed"]
PRICE_KINDS: tuple[PriceKind, ...] = get_args(PriceKind)

Dated = Literal["day", "month", "not_before", "unknown"]
DATED: tuple[Dated, ...] = get_args(Dated)
"""How well the day of an observation is known."""


@dataclass(frozen=True, slots=True)
class Price:
    """What an offer costs over `[valid_from, valid_to)`; money in millionths, null when it is not known."""

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
        return None if self.usd_micros_per_hour is None else self.usd_micros_per_hour / 1_000_000


@dataclass(frozen=True, slots=True)
class Offer:
    """One place and market where an instance type can be had, with its price at the catalog's moment."""

    instance_type: int
    region: str | None
    zone: str | None
    market: Market
    price: Price
    term: str | None = None
    """What a reserved offer commits to: see `service.domain.commitments`."""
