"""The catalog of one day: instance types and offers as columns, never changed once built."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask, still
from service.domain.cache import Cache
from service.domain.catalog.columns import Columns
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import MARKETS, Offer, Price
from service.domain.catalog.reference import Measurement, PublishedRun, Reference, SoftwareRule
from service.domain.typeset import TypeSet, mask_of

P = ParamSpec("P")
T = TypeVar("T")


class Prices(Protocol):
    """Whatever can tell the price behind a row number."""

    def price(self, row: int) -> Price: ...


@dataclass(frozen=True, slots=True)
class Offers:
    """One entry per offer, by instance type; within one, known prices first, on-demand before spot, cheap first.

    Reserved offers come last, known or not: nobody can rent a single hour of them.
    So the first entry of a type is its default offer, and its offers are one slice: `starts[i]` to `starts[i + 1]`.
    """

    instance_type: NDArray[np.int32]
    region: NDArray[np.int32]
    zone: NDArray[np.int32]
    market: NDArray[np.int8]
    usd_per_hour: Floats
    age_days: Floats
    price_row: NDArray[np.int32]
    term: NDArray[np.int16]
    terms: tuple[str, ...]
    places: tuple[str, ...]
    prices: Prices

    @classmethod
    def sorted_by_type(
        cls,
        *,
        instance_type: NDArray[np.int32],
        region: NDArray[np.int32],
        zone: NDArray[np.int32],
        market: NDArray[np.int8],
        usd_per_hour: Floats,
        age_days: Floats,
        price_row: NDArray[np.int32],
        term: NDArray[np.int16],
        terms: tuple[str, ...],
        places: tuple[str, ...],
        prices: Prices,
    ) -> "Offers":
        reserved = market == MARKETS.index("reserved")
        order = np.lexsort((zone, region, usd_per_hour, market, np.isnan(usd_per_hour), reserved, instance_type))
        return cls(
            instance_type=still(instance_type[order]),
            region=still(region[order]),
            zone=still(zone[order]),
            market=still(market[order]),
            usd_per_hour=still(usd_per_hour[order]),
            age_days=still(age_days[order]),
            price_row=still(price_row[order]),
            term=still(term[order]),
            terms=terms,
            places=places,
            prices=prices,
        )

    def __len__(self) -> int:
        return len(self.instance_type)

    def usd_per_hour_at(self, indices: NDArray[np.int32] | Indices) -> Floats:
        """Prices of the offers at these indices; NaN where the index is -1 or the price is unknown."""
        if not len(self):
            return np.full(indices.shape, np.nan)
        return np.where(indices < 0, np.nan, self.usd_per_hour[indices])

    def offer(self, place: int) -> Offer:
        return Offer(
            instance_type=int(self.instance_type[place]),
            region=self._word(int(self.region[place])),
            zone=self._word(int(self.zone[place])),
            market=MARKETS[self.market[place]],
            price=self.prices.price(int(self.price_row[place])),
            term=None if self.term[place] < 0 else self.terms[self.term[place]],
        )

    def _word(self, code: int) -> str | None:
        return None if code < 0 else self.places[code]


@dataclass(frozen=True, eq=False)
class Catalog:
    """What could be rented on one day, and what was known of it. `identity` names its content."""

    version: int
    day: date
    instance_types: tuple[InstanceType, ...]
    columns: Columns
    offers: Offers
    starts: NDArray[np.int64]
    reference: Reference
    memory: Cache = field(default_factory=Cache)
    choices: Cache = field(default_factory=lambda: Cache(size=32))
    """What was once chosen among the offers: entries as large as the columns, so only a few."""
    outlooks: Cache = field(default_factory=lambda: Cache(size=48))
    """What jobs come to on every type: entries as large as forty columns of types, the most that is kept of a job."""
    works: Cache = field(default_factory=Cache)
    """How jobs are done, and what is smaller than a column of them."""
    leading: Cache = field(default_factory=lambda: Cache(size=500))
    """What ranks first among some types, with what the outside makes of it: as large as an answer."""
    fragments: Cache = field(default_factory=lambda: Cache(size=10_000))
    """Encoded pieces of answers, which the outside keeps beside the catalog they belong to."""
    of_jobs: Cache = field(default_factory=lambda: Cache(size=2_000))
    """Such pieces that belong to one job on one type: without end, so fewer are kept."""
    encoded_items: Cache = field(default_factory=lambda: Cache(size=10_000))
    """JSON of instance types with one of their offers, as lists show them."""

    @classmethod
    def of(
        cls,
        version: int,
        day: date,
        instance_types: tuple[InstanceType, ...],
        offers: Offers,
        reference: Reference,
    ) -> "Catalog":
        starts = still(np.searchsorted(offers.instance_type, np.arange(len(instance_types) + 1)))
        columns = Columns.of(instance_types, day, reference.precisions)
        return cls(version, day, instance_types, columns, offers, starts, reference)

    def offer(self, place: int) -> Offer:
        return self.fragments.get_or_compute(("offer", place), lambda: self.offers.offer(place))

    def derive(self, compute: Callable[Concatenate["Catalog", P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns `compute(catalog, *args)`, computed once and cached under the function and its arguments."""
        return self.memory.get_or_compute((compute, *args, *kwargs.items()), lambda: compute(self, *args, **kwargs))

    @cached_property
    def identity(self) -> str:
        return f"{self.version}-{self.day.isoformat()}"

    @cached_property
    def everyone(self) -> TypeSet:
        """All instance types."""
        return (1 << len(self.instance_types)) - 1

    def mask(self, types: TypeSet) -> Mask:
        return mask_of(types, len(self.instance_types))

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Where an instance type stands, by `provider/name`."""
        return {kind.id: place for place, kind in enumerate(self.instance_types)}

    @cached_property
    def default_offers(self) -> NDArray[np.int64]:
        """Per instance type its first offer; -1 where it has none, or only such as commit to a term."""
        if not len(self.offers):
            return still(np.full(len(self.instance_types), -1, np.int64))
        first = np.minimum(self.starts[:-1], len(self.offers) - 1)
        reserved = self.offers.market[first] == MARKETS.index("reserved")
        return still(np.where((np.diff(self.starts) > 0) & ~reserved, first, -1))

    @cached_property
    def software(self) -> tuple[SoftwareRule, ...]:
        """The software rules in force on the catalog's day."""
        return tuple(rule for rule in self.reference.software if rule.holds_on(self.day))

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """The measurements made by the catalog's day."""
        return tuple(seen for seen in self.reference.measurements if seen.measured_on <= self.day)

    @cached_property
    def published_runs(self) -> tuple[PublishedRun, ...]:
        """The runs that were certainly published by the catalog's day."""
        return tuple(run for run in self.reference.published_runs if run.known_on <= self.day)

    @cached_property
    def known_prices(self) -> Mask:
        """Which offers have a price that is known in dollars."""
        return ~np.isnan(self.offers.usd_per_hour)

    @cached_property
    def undated(self) -> Mask:
        """Which offers have a price of which nobody knows the day."""
        return self.known_prices & np.isnan(self.offers.age_days)

    @cached_property
    def observed_span(self) -> tuple[date | None, date | None]:
        """The days of the oldest and of the newest price observation that is still in force."""
        return self.span_of(self.offers.age_days)

    def span_of(self, age_days: Floats) -> tuple[date | None, date | None]:
        """Ages of prices in days → the days of the oldest and of the newest; nothing where no age is known."""
        known = age_days[~np.isnan(age_days)]
        if not len(known):
            return None, None
        today = self.day.toordinal()
        return date.fromordinal(today - int(known.max())), date.fromordinal(today - int(known.min()))

    def offer_places(self, place: int) -> range:
        """Where the offers of an instance type stand."""
        return range(int(self.starts[place]), int(self.starts[place + 1]))
