"""Offers and their prices, as values and as columns. An offer is an instance type in a region and a market."""

from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask, read_only

Market = Literal["on_demand", "spot", "reserved"]
MARKETS: tuple[Market, ...] = get_args(Market)
ON_DEMAND, SPOT, RESERVED = range(len(MARKETS))
"""Codes of the markets in columns: their indices in `MARKETS`."""

BY_THE_HOUR: tuple[Market, ...] = ("on_demand", "spot")
"""Markets that rent single hours; they are the default."""

PriceKind = Literal["api", "published", "entered", "assumed"]
PRICE_KINDS: tuple[PriceKind, ...] = get_args(PriceKind)

Dated = Literal["day", "month", "not_before", "unknown"]
DATED: tuple[Dated, ...] = get_args(Dated)
"""How well the day of an observation is known."""

UNKNOWN = -1
"""Null in integer columns, in which all other values are at least 0."""

FOREVER = np.iinfo(np.int64).max
"""End of a price that is still in force."""


OFFER_FIELDS = ("region", "zone", "market", "term", "operating_system", "currency")
"""Fields that identify an offer, besides its instance type."""


def offer_key(offer: Any) -> str:
    """Returns the text that identifies the offer of a priced row; names may contain anything but a line break."""
    return "\n".join(getattr(offer, name) or "" for name in ("provider", "name", *OFFER_FIELDS))


class Belief(NamedTuple):
    """How a price is believed: the listed price in millionths, and the band as factors of the likely price."""

    usd_micros_listed: int | None
    native_micros_listed: int | None
    low: float
    high: float
    old: bool
    suspect: bool


class Price(NamedTuple):
    """The price of an offer over `[valid_from, valid_to)`; money in millionths, None if it is unknown.

    The price of an offer in a catalog is the believed one, with its `belief`; a recorded price is as listed.
    """

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
    belief: Belief | None = None

    @property
    def usd_per_hour(self) -> float | None:
        """US dollars per hour of one machine; None if unknown."""
        return None if self.usd_micros_per_hour is None else self.usd_micros_per_hour / 1_000_000

    @property
    def listed(self) -> tuple[int | None, int | None]:
        """The listed price, in millionths of a dollar and in millionths of the seller's currency."""
        if self.belief is None:
            return self.usd_micros_per_hour, self.native_micros_per_hour
        return self.belief.usd_micros_listed, self.belief.native_micros_listed

    @property
    def factors(self) -> tuple[float, float, float]:
        """Low, likely and high of the believed price as factors of the likely one."""
        return (1.0, 1.0, 1.0) if self.belief is None else (self.belief.low, 1.0, self.belief.high)

    def believed(self, low: float, likely: float, high: float, *, old: bool, suspect: bool) -> "Price":
        """Returns the believed price; low, likely and high are factors of the listed price."""
        usd, native = self.usd_micros_per_hour, self.native_micros_per_hour
        return self._replace(
            usd_micros_per_hour=None if usd is None else round(usd * likely),
            native_micros_per_hour=None if native is None else round(native * likely),
            belief=Belief(usd, native, low / likely, high / likely, old, suspect),
        )


class Offer(NamedTuple):
    """An instance type in a region and a market, with its price on the catalog's day."""

    instance_type: int
    region: str | None
    zone: str | None
    market: Market
    price: Price
    term: str | None = None
    """The commitment of a reserved offer, such as `1y_reserved_no_upfront`; see `tariffs.commitment_in`."""


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def region_at(self, row: int) -> str | None:
        """Returns the region of the offer in a row; None if it is unknown."""
        region = self.region.item(row)
        return None if region == UNKNOWN else self.places[region]

    def market_at(self, row: int) -> Market:
        """Returns the market of the offer in a row."""
        return MARKETS[self.market.item(row)]

    def offer_at(self, row: int, price: Price) -> Offer:
        """Returns the offer in a row, with one of its prices."""
        zone, term = self.zone.item(row), self.term.item(row)
        return Offer(
            instance_type=self.instance_type.item(row),
            region=self.region_at(row),
            zone=None if zone == UNKNOWN else self.places[zone],
            market=self.market_at(row),
            price=price,
            term=None if term == UNKNOWN else self.terms[term],
        )


@dataclass(frozen=True, slots=True)
class PriceColumns:
    """One row per recorded price: half-open intervals in epoch seconds, money in millionths (-1: unknown).

    `offer` is an index into the offers, and `observed_day` a proleptic Gregorian ordinal (-1: unknown).
    """

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

    def in_force_at(self, moment: int) -> Mask:
        """Returns which prices are in force at an instant in epoch seconds."""
        return (self.valid_from <= moment) & (moment < self.valid_to)

    def price(self, row: int) -> Price:
        """Returns the price in a row."""
        # Figures of arrays become plain numbers here, because JSON knows no others.
        observed, usd, native = self.observed_day.item(row), self.usd_micros.item(row), self.native_micros.item(row)
        note, end = self.note.item(row), self.valid_to.item(row)
        return Price(
            usd_micros_per_hour=None if usd == UNKNOWN else usd,
            native_micros_per_hour=None if native == UNKNOWN else native,
            currency=self.words[self.currency.item(row)],
            valid_from=self.valid_from.item(row),
            valid_to=None if end == FOREVER else end,
            observed_on=None if observed == UNKNOWN else date.fromordinal(observed),
            dated=DATED[self.dated.item(row)],
            kind=PRICE_KINDS[self.kind.item(row)],
            source=self.words[self.source.item(row)],
            note=None if note == UNKNOWN else self.words[note],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers(OfferColumns):
    """The offers of one day, ordered by instance type, then known prices first, on-demand before spot, cheapest first.

    Reserved offers come last, because they cannot be rented by the hour. So the first row of a type is its default
    offer, and the offers of a type are one slice.
    """

    usd_per_hour: Floats
    """Believed price; NaN if unknown."""
    low: Floats
    """Low end of the believed price as a factor of the listed price; `likely` and `high` are factors of it as well."""
    likely: Floats
    high: Floats
    suspect: Mask
    old: Mask
    """Whether no recent observation confirms the price; it then ranks at its high end."""
    age_days: Floats
    """Days since the price was observed; NaN if unknown."""
    price_row: NDArray[np.int32]
    """Rows of `prices`."""
    prices: PriceColumns

    def sorted_by_type(self) -> "Offers":
        """Returns the offers as read-only columns in the order of this class."""
        reserved, unknown = self.market == RESERVED, np.isnan(self.usd_per_hour)
        order = np.lexsort(
            # lexsort sorts by the last key first.
            (self.zone, self.region, self.usd_per_hour, self.market, unknown, reserved, self.instance_type)
        )
        columns: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        ordered = {name: read_only(column[order]) for name, column in columns.items() if isinstance(column, np.ndarray)}
        return Offers(**{**columns, **ordered})

    def __len__(self) -> int:
        return len(self.instance_type)

    def usd_per_hour_at(self, rows: NDArray[np.int32] | Indices) -> Floats:
        """Returns the prices in some rows; NaN where the row is -1 or the price is unknown."""
        # An index into an empty column fails, also for rows that are masked out.
        if not len(self):
            return np.full(rows.shape, np.nan)
        return np.where(rows < 0, np.nan, self.usd_per_hour[rows])

    def offer(self, row: int) -> Offer:
        """Returns the offer in a row, with the price that is believed on the day."""
        listed = self.prices.price(self.price_row.item(row))
        factors = (self.low.item(row), self.likely.item(row), self.high.item(row))
        return self.offer_at(row, listed.believed(*factors, old=self.old.item(row), suspect=self.suspect.item(row)))

    def ranking_factor(self, rows: Indices) -> Floats:
        """Returns, for some rows, the price that ranks over the believed price: above 1 for an old one, else 1."""
        return np.where(self.old[rows], self.high[rows] / self.likely[rows], 1.0)
