"""The catalog of one day: instance types and offers as columns, never changed once built."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import date
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

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
    """A table of prices."""

    def price(self, row: int) -> Price:
        """Returns the price in a row."""


@dataclass(frozen=True, slots=True)
class Offers:
    """One row per offer, ordered by instance type, then known prices first, on-demand before spot, cheapest first.

    Reserved offers come last, since no single hour of them can be rented. So the first row of a type is its default
    offer, and the offers of a type are one slice: `starts[i]` to `starts[i + 1]`.
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

    def sorted_by_type(self) -> "Offers":
        """Returns the offers as read-only columns in their order."""
        reserved, unknown = self.market == MARKETS.index("reserved"), np.isnan(self.usd_per_hour)
        order = np.lexsort(
            (self.zone, self.region, self.usd_per_hour, self.market, unknown, reserved, self.instance_type)
        )
        columns: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        ordered = {name: still(column[order]) for name, column in columns.items() if isinstance(column, np.ndarray)}
        return Offers(**{**columns, **ordered})

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
    """The instance types and offers of one day, and what was known about them. `identity` names the content."""

    version: int
    day: date
    instance_types: tuple[InstanceType, ...]
    columns: Columns
    offers: Offers
    starts: NDArray[np.int64]
    reference: Reference
    memory: Cache = field(default_factory=Cache)
    """Values derived from the catalog alone; see `derive`."""
    choices: Cache = field(default_factory=lambda: Cache(size=32))
    """Offers that pass some constraints. An entry is as large as the columns, so there are few."""
    outlooks: Cache = field(default_factory=lambda: Cache(size=48))
    """What jobs come to on every type: entries as large as forty columns of types, the most that is kept of a job."""
    fragments: Cache = field(default_factory=lambda: Cache(size=10_000))
    """Encoded pieces of answers, which the outside keeps beside the catalog they belong to."""
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
        """Returns a mask of the instance types that is true at those in the set."""
        return mask_of(types, len(self.instance_types))

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Index of each instance type, by `provider/name`."""
        return {instance_type.id: index for index, instance_type in enumerate(self.instance_types)}

    @cached_property
    def default_offers(self) -> NDArray[np.int64]:
        """The first offer of each instance type; -1 if it has none, or only offers that commit to a term."""
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
        return tuple(each for each in self.reference.measurements if each.measured_on <= self.day)

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
        """Which offers have a price whose day of observation is unknown."""
        return self.known_prices & np.isnan(self.offers.age_days)

    @cached_property
    def observed_span(self) -> tuple[date | None, date | None]:
        """The days of the oldest and of the newest price observation that is still in force."""
        return self.span_of(self.offers.age_days)

    def span_of(self, age_days: Floats) -> tuple[date | None, date | None]:
        """Returns the days of the oldest and of the newest of some prices; None if no age is known."""
        known = age_days[~np.isnan(age_days)]
        if not len(known):
            return None, None
        today = self.day.toordinal()
        return date.fromordinal(today - int(known.max())), date.fromordinal(today - int(known.min()))

    def offer_places(self, place: int) -> range:
        """Returns the indices of the offers of an instance type."""
        return range(int(self.starts[place]), int(self.starts[place + 1]))
