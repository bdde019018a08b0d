"""Offers and their prices as values, and as the columns of a catalog."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import start_of_day
from service.domain.catalog.offer import (
    DATED,
    FOREVER,
    MARKETS,
    PRICE_KINDS,
    UNKNOWN,
    Dated,
    Market,
    OfferColumns,
    PriceColumns,
    PriceKind,
)
from tests.builders.instance_types import instance_type as p4d
from tests.builders.sources import SOURCE


@dataclass(frozen=True, slots=True)
class Priced:
    """The price of an offer from a day on."""

    instance_type: InstanceType
    usd_per_hour: float | None = 10.0
    region: str | None = "us-east-1"
    zone: str | None = None
    market: Market = "on_demand"
    valid_from: date = date(2024, 5, 1)
    valid_to: date | None = None
    observed_on: date | None = date(2024, 5, 1)
    dated: Dated = "day"
    kind: PriceKind = "api"
    currency: str = "USD"
    native_per_hour: float | None = None
    """In its currency, where that is not the dollar."""
    note: str | None = None
    term: str | None = None
    number: int = 0
    """Tells apart offers that differ in nothing else; offers are ordered by it first."""

    @property
    def offer(self) -> tuple[Any, ...]:
        """The key of the offer: prices with the same key follow each other in time."""
        place = self.region or "", self.zone or ""
        return self.number, self.instance_type.id, *place, self.market, self.currency, self.term or ""


def priced(instance_type: InstanceType | None = None, usd_per_hour: float | None = 10.0, **given: Any) -> Priced:
    return Priced(instance_type or p4d(), usd_per_hour, **given)


def columns(instance_types: Sequence[InstanceType], prices: Sequence[Priced]) -> tuple[OfferColumns, PriceColumns]:
    """The prices as the columns of a catalog with these instance types."""
    chains = sorted(prices, key=lambda price: (price.offer, price.valid_from))
    first_price = {price.offer: price for price in reversed(chains)}
    offers = sorted(first_price)
    index_of = {instance_type.id: index for index, instance_type in enumerate(instance_types)}
    places = tuple(sorted({word for price in prices for word in (price.region, price.zone) if word}))
    terms = tuple(sorted({price.term for price in prices if price.term}))
    words = tuple(sorted({word for price in prices for word in (price.currency, price.note) if word} | {SOURCE}))

    def code(among: tuple[str, ...], word: str | None) -> int:
        return UNKNOWN if word is None else among.index(word)

    def micros(per_hour: float | None) -> int:
        return UNKNOWN if per_hour is None else round(per_hour * 1_000_000)

    def native(price: Priced) -> float | None:
        return price.usd_per_hour if price.currency == "USD" else price.native_per_hour

    return (
        OfferColumns(
            instance_type=np.array([index_of[first_price[key].instance_type.id] for key in offers], np.int32),
            region=np.array([code(places, first_price[key].region) for key in offers], np.int32),
            zone=np.array([code(places, first_price[key].zone) for key in offers], np.int32),
            market=np.array([MARKETS.index(first_price[key].market) for key in offers], np.int8),
            places=places,
            term=np.array([code(terms, first_price[key].term) for key in offers], np.int16),
            terms=terms,
        ),
        PriceColumns(
            offer=np.array([offers.index(price.offer) for price in chains], np.int32),
            valid_from=np.array([start_of_day(price.valid_from) for price in chains], np.int64),
            valid_to=np.array(
                [start_of_day(price.valid_to) if price.valid_to else FOREVER for price in chains], np.int64
            ),
            usd_micros=np.array([micros(price.usd_per_hour) for price in chains], np.int64),
            native_micros=np.array([micros(native(price)) for price in chains], np.int64),
            observed_day=np.array(
                [price.observed_on.toordinal() if price.observed_on else UNKNOWN for price in chains], np.int32
            ),
            currency=np.array([code(words, price.currency) for price in chains], np.int16),
            dated=np.array([DATED.index(price.dated) for price in chains], np.int8),
            kind=np.array([PRICE_KINDS.index(price.kind) for price in chains], np.int8),
            source=np.array([code(words, SOURCE) for _ in chains], np.int32),
            note=np.array([code(words, price.note) for price in chains], np.int32),
            words=words,
        ),
    )
