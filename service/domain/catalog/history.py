"""Everything ever recorded, as columns; from it the catalog of any day is cut."""

from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog.catalog import Catalog, Offers
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import DATED, PRICE_KINDS, Price
from service.domain.catalog.reference import Reference

UNKNOWN = -1
"""Stands for null in integer columns, none of which can be negative."""

SECONDS_A_DAY = 86_400
EPOCH = date(1970, 1, 1).toordinal()
FOREVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class OfferColumns:
    """One entry per offer. `instance_type` points into the types, `region` and `zone` into `places` (-1: none).

    `term` points into `terms` (-1: none); only reserved offers have one.
    """

    instance_type: NDArray[np.int32]
    region: NDArray[np.int32]
    zone: NDArray[np.int32]
    market: NDArray[np.int8]
    places: tuple[str, ...]
    term: NDArray[np.int16]
    terms: tuple[str, ...]

    def term_of(self, place: int) -> str | None:
        code = int(self.term[place])
        return None if code == UNKNOWN else self.terms[code]


@dataclass(frozen=True, slots=True)
class PriceColumns:
    """One entry per recorded price: half-open intervals in epoch seconds, money in millionths (-1: not known)."""

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
    """What `currency`, `source` and `note` point into."""

    def __len__(self) -> int:
        return len(self.offer)

    def price(self, row: int) -> Price:
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
    """Stays where a version has only more measurements than the one before."""

    def on(self, day: date) -> Catalog:
        """The catalog as it stood at the end of a day (UTC): types announced by then, and prices valid then."""
        moment = end_of_day(day)
        announced = [i for i, kind in enumerate(self.instance_types) if kind.state_on(day) is not None]
        place_of = np.full(len(self.instance_types), UNKNOWN, np.int32)
        place_of[announced] = np.arange(len(announced), dtype=np.int32)

        rows = np.flatnonzero((self.prices.valid_from <= moment) & (moment < self.prices.valid_to))
        kinds = place_of[self.offers.instance_type[self.prices.offer[rows]]]
        rows, kinds = rows[kinds != UNKNOWN], kinds[kinds != UNKNOWN]
        offer = self.prices.offer[rows]
        micros = self.prices.usd_micros[rows]
        observed = self.prices.observed_day[rows].astype(np.float64)
        offers = Offers.sorted_by_type(
            instance_type=kinds,
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
        )
        return Catalog.of(self.version, day, tuple(self.instance_types[i] for i in announced), offers, self.reference)


def start_of_day(day: date) -> int:
    """The first second of a day (UTC), in epoch seconds."""
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def end_of_day(day: date) -> int:
    """The last second of a day (UTC), in epoch seconds: what started on that day has started."""
    return start_of_day(day) + SECONDS_A_DAY - 1


def day_of(moment: int) -> date:
    """The day (UTC) of an instant in epoch seconds."""
    return date.fromordinal(EPOCH + moment // SECONDS_A_DAY)
