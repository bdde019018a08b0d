"""All prices ever recorded, as columns, from which the catalog of any day is made."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog.catalog import Catalog, Offers
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import DATED, PRICE_KINDS, Price
from service.domain.catalog.reference import Reference

UNKNOWN = -1
"""Null in integer columns, whose other values are never negative."""

SECONDS_A_DAY = 86_400
EPOCH = date(1970, 1, 1).toordinal()
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class OfferColumns:
    """One row per offer. `instance_type` is an index into the types, `region` and `zone` into `places` (-1: none).

    `term` is an index into `terms` (-1: none); only reserved offers have one.
    """

    instance_type: NDArray[np.int32]
    region: NDArray[np.int32]
    zone: NDArray[np.int32]
    market: NDArray[np.int8]
    places: tuple[str, ...]
    term: NDArray[np.int16]
    terms: tuple[str, ...]

    def term_of(self, offer: int) -> str | None:
        """Returns the term that an offer commits to; None if it commits to none."""
        code = int(self.term[offer])
        return None if code == UNKNOWN else self.terms[code]


@dataclass(frozen=True, slots=True)
class PriceColumns:
    """One row per recorded price: half-open intervals in epoch seconds, money in millionths (-1: unknown)."""

    offer: NDArray[np.int32]
    valid_from: NDArray[np.int64]
    valid_to: NDArray[np.int64]
    usd_micros: NDArray[np.int64]
    native_micros: NDArray[np.int64]
    observed_day: NDArray[np.int32]
    currency: NDArray[np.int16]
    dated: NDArray[np.int8]
    kind: NDArray[np.int8]
    source: NDArray[np.int32]
    note: NDArray[np.int32]
    words: tuple[str, ...]
    """Texts that `currency`, `source` and `note` are indices into."""

    def __len__(self) -> int:
        return len(self.offer)

    def price(self, row: int) -> Price:
        """Returns the price in a row."""
        observed = int(self.observed_day[row])
        usd, native = int(self.usd_micros[row]), int(self.native_micros[row])
        note, end = int(self.note[row]), int(self.valid_to[row])
        return Price(
            usd_micros_per_hour=None if usd == UNKNOWN else usd,
            native_micros_per_hour=None if native == UNKNOWN else native,
            currency=self.words[self.currency[row]],
            valid_from=int(self.valid_from[row]),
            valid_to=None if end == FOREVER else end,
            observed_on=None if observed == UNKNOWN else date.fromordinal(observed),
            dated=DATED[self.dated[row]],
            kind=PRICE_KINDS[self.kind[row]],
            source=self.words[self.source[row]],
            note=None if note == UNKNOWN else self.words[note],
        )


@dataclass(frozen=True, slots=True)
class CatalogHistory:
    """All instance types, offers and prices of one version of the catalog, whatever day they belong to."""

    version: int
    instance_types: tuple[InstanceType, ...]
    offers: OfferColumns
    prices: PriceColumns
    reference: Reference
    facts_version: int = 0
    """Stays the same in a version that only adds measurements."""

    def on(self, day: date) -> Catalog:
        """Returns the catalog at the end of a day (UTC): types announced by then, and prices valid then."""
        moment = end_of_day(day)
        announced = [i for i, each in enumerate(self.instance_types) if each.state_on(day) is not None]
        index_of = np.full(len(self.instance_types), UNKNOWN, np.int32)
        index_of[announced] = np.arange(len(announced), dtype=np.int32)

        rows = np.flatnonzero((self.prices.valid_from <= moment) & (moment < self.prices.valid_to))
        types = index_of[self.offers.instance_type[self.prices.offer[rows]]]
        rows, types = rows[types != UNKNOWN], types[types != UNKNOWN]
        offer = self.prices.offer[rows]
        micros = self.prices.usd_micros[rows]
        observed = self.prices.observed_day[rows].astype(np.float64)
        offers = Offers(
            instance_type=types,
            region=self.offers.region[offer],
            zone=self.offers.zone[offer],
            market=self.offers.market[offer],
            usd_per_hour=np.where(micros == UNKNOWN, np.nan, micros / 1_000_000),
            age_days=np.where(observed == UNKNOWN, np.nan, day.toordinal() - observed),
            price_row=rows.astype(np.int32),
            term=self.offers.term[offer],
            terms=self.offers.terms,
            places=self.offers.places,
            prices=self.prices,
        ).sorted_by_type()
        return Catalog.of(self.version, day, tuple(self.instance_types[i] for i in announced), offers, self.reference)


def start_of_day(day: date) -> int:
    """Returns the first second of a day (UTC), in epoch seconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def end_of_day(day: date) -> int:
    """Returns the last second of a day (UTC), in epoch seconds."""
    return start_of_day(day) + SECONDS_A_DAY - 1


def day_of(moment: int) -> date:
    """Returns the day (UTC) of an instant in epoch seconds."""
    return date.fromordinal(EPOCH + moment // SECONDS_A_DAY)
