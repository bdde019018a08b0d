"""Which instance types and offers a question admits, and what stands in the way of the others.

Offers enter in two steps. Region, market and the age of a price are asked of every offer once and remembered, since few
such combinations occur; what is left per question – hardware, software, a price limit – is asked per instance type.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask
from service.domain.cache import Cache
from service.domain.catalog.catalog import Catalog, Offers
from service.domain.catalog.offer import MARKETS
from service.domain.selection.constraints import Check, Constraints, Ground, TypeRelaxation, never, type_checks
from service.domain.typeset import ThresholdIndex, TypeSet, mask_of, types_where

OFFER_CODES: tuple[tuple[str, Ground], ...] = (
    ("region", "constraint"),
    ("market", "constraint"),
    ("max_price_age_days", "constraint"),
    ("price_unknown", "data"),
)
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CheapestOffers:
    """Offers that stand for the others of their type: the cheapest of each type in each market, say."""

    instance_type: Places
    offer: Places
    usd: Floats
    """Infinite: not known."""
    cheapest: Floats
    """Per type, the lowest price of its cells; infinite where there is none or none is known."""
    types: TypeSet
    """The types that have any."""
    priced: TypeSet
    """The types that have one with a known price."""
    orders: Cache = field(default_factory=lambda: Cache(size=16))
    """What they come to under an objective, for whoever ranks them."""
    steps: Cache = field(default_factory=Cache)

    @classmethod
    def of(cls, places: NDArray[Any], catalog: Catalog) -> "CheapestOffers":
        offers, types = catalog.offers, len(catalog.instance_types)
        kinds = offers.instance_type[places].astype(np.int64)
        usd = np.nan_to_num(offers.usd_per_hour[places], nan=np.inf)
        cheapest = np.full(types, np.inf)
        np.minimum.at(cheapest, kinds, usd)
        return cls(
            kinds,
            places.astype(np.int64),
            usd,
            cheapest,
            types=types_where(np.bincount(kinds, minlength=types) > 0),
            priced=types_where(cheapest < np.inf),
        )

    def within(self, limit: float | None) -> TypeSet:
        """The types with an offer that costs no more than the limit."""
        return self.types if limit is None else self.prices.at_most(limit)

    def count_within(self, limit: float | None) -> int:
        """How many cells cost no more than the limit."""
        if limit is None:
            return len(self.usd)
        return bisect_right(self.steps.get_or_compute("each", lambda: np.sort(self.usd).tolist()), limit)

    @property
    def prices(self) -> ThresholdIndex:
        """The lowest price of each type, in order; worked out when it is first asked for."""
        return self.steps.get_or_compute("cheapest", lambda: ThresholdIndex.of(self.cheapest))

    def candidates(self, types: TypeSet, limit: float | None) -> "AdmittedOffers":
        return AdmittedOffers(self, types & self.within(limit), limit)


class AdmittedOffers(NamedTuple):
    """Of the cells, those of these types that cost no more than the limit; each of the types has one."""

    cells: CheapestOffers
    types: TypeSet
    limit: float | None

    @property
    def places(self) -> Places:
        """Where they stand among the cells."""
        return np.flatnonzero(self.among(self.cells.instance_type, self.cells.usd))

    def among(self, instance_type: NDArray[Any], usd: Floats) -> Mask:
        """Where they stand in these columns of the cells, whatever order the columns are in."""
        taken: Mask = mask_of(self.types, len(self.cells.cheapest)).take(instance_type)
        return taken if self.limit is None else taken & (usd <= self.limit)


Loosened = tuple[dict[str, object], AdmittedOffers]
"""A change of the question, and what it lets in."""


@dataclass(frozen=True, slots=True)
class NearMisses:
    """The offers that miss one constraint and nothing else, by type; `cells` are the cheapest of each type and word."""

    places: Places
    code: NDArray[np.int32]
    """Per cell, its region or market; -1 where that is not known."""
    cells: CheapestOffers
    by_code: Cache = field(default_factory=Cache)

    @classmethod
    def of(cls, places: Places, words: NDArray[Any], catalog: Catalog) -> "NearMisses":
        offers, codes = catalog.offers, words[places].astype(np.int32)
        order = np.lexsort((offers.usd_per_hour[places], codes, offers.instance_type[places]))
        ordered, codes = places[order], codes[order]
        first = first_of_run(offers.instance_type[ordered]) | first_of_run(codes)
        return cls(places, codes[first], CheapestOffers.of(ordered[first], catalog))

    def under(self, code: int, catalog: Catalog) -> CheapestOffers:
        """The cells with this word."""
        return self.by_code.get_or_compute(
            code, lambda: CheapestOffers.of(self.cells.offer[self.code == code], catalog)
        )


@dataclass(frozen=True, slots=True)
class OfferChoice:
    """What one combination of region, markets and price age leaves of each instance type's offers.

    `cells` are each type's cheapest passing offer in each market. For a type without any the nearest offer counts, the
    one that misses the fewest constraints: `blocked[c]` are the types where that misses constraint c. `alone[c]` are
    the offers that miss constraint c and no other.
    """

    cells: CheapestOffers
    blocked: dict[int, TypeSet]
    unoffered: TypeSet
    alone: dict[int, NearMisses]


class Obstacle(NamedTuple):
    """A constraint that turned types away: which, and which of them by itself."""

    code: str
    ground: Ground
    fails: TypeSet
    alone: TypeSet
    loosened: Callable[[TypeSet], Loosened | TypeRelaxation | None]
    near: TypeSet
    """The types that miss one constraint and nothing else."""
    cells: CheapestOffers
    limit: float | None

    def relax(self) -> Loosened | None:
        """The least change that lets some of them in."""
        change = self.loosened(self.near)
        if isinstance(change, TypeRelaxation):
            return change.to, AdmittedOffers(self.cells, change.admits, self.limit)
        return change


class Selection(NamedTuple):
    """What a question admits, and what kept the others out."""

    admitted: AdmittedOffers
    obstacles: list[Obstacle]


def select(asked: Constraints, catalog: Catalog, more: Sequence[Check] = ()) -> Selection:
    """Ask every constraint of every instance type and offer, and `more` of every type."""
    choice, limit = offer_choice(asked, catalog), asked.max_usd_per_hour
    checks = [*type_checks(asked, catalog), *more] if more else type_checks(asked, catalog)
    once = twice = 0
    for check in checks:
        twice |= once & check.fails
        once |= check.fails
    affordable = choice.cells.within(limit)
    admitted = affordable & ~once
    out = catalog.everyone & ~admitted
    sole = once & ~twice & affordable
    obstacles = [
        Obstacle(check.code, check.ground, check.fails, check.fails & sole, check.relax, sole, choice.cells, limit)
        for check in checks
        if check.fails
    ]
    obstacles += [each for each in offer_obstacles(asked, choice, catalog, out, out & ~once) if each.fails]
    return Selection(AdmittedOffers(choice.cells, admitted, limit), obstacles)


# Offers


def offer_choice(asked: Constraints, catalog: Catalog) -> OfferChoice:
    signature = (asked.region, asked.market, asked.max_price_age_days, asked.needs_price)
    return catalog.choices.get_or_compute(signature, lambda: ask_offers(asked, catalog))


def ask_offers(asked: Constraints, catalog: Catalog) -> OfferChoice:
    offers, types = catalog.offers, len(catalog.instance_types)
    misses = offer_misses(asked, offers)
    markets = [np.flatnonzero((misses == 0) & (offers.market == market)) for market in range(len(MARKETS))]
    best = np.concatenate([places[first_of_run(offers.instance_type[places])] for places in markets])
    nearest = first_per_type(offers, np.lexsort((np.bitwise_count(misses), offers.instance_type)), types)
    missed = np.zeros(types, np.uint8)
    missed[nearest >= 0] = misses[nearest[nearest >= 0]]
    bits = [bit for bit in range(len(OFFER_CODES)) if (misses & (1 << bit)).any()]
    words: list[NDArray[Any]] = [offers.region, offers.market, offers.market, offers.market]
    return OfferChoice(
        cells=CheapestOffers.of(best, catalog),
        blocked={bit: types_where((missed & (1 << bit)) > 0) for bit in bits},
        unoffered=types_where(nearest < 0),
        alone={bit: NearMisses.of(np.flatnonzero(misses == 1 << bit), words[bit], catalog) for bit in bits},
    )


def offer_misses(asked: Constraints, offers: Offers) -> NDArray[np.uint8]:
    """Per offer, one bit for each of OFFER_CODES that it misses."""
    misses = np.zeros(len(offers), np.uint8)
    if asked.region:
        regions = set(asked.region)
        wanted = np.array([place in regions for place in offers.places] + [False])
        misses |= ~wanted[offers.region] * np.uint8(1)
    if asked.market:
        wanted = np.array([market in asked.market for market in MARKETS])
        misses |= ~wanted[offers.market] * np.uint8(2)
    if asked.max_price_age_days is not None:
        misses |= ~within(offers.age_days, asked.max_price_age_days) * np.uint8(4)
    if asked.needs_price:
        misses |= np.isnan(offers.usd_per_hour) * np.uint8(8)
    return misses


def within(column: Floats, limit: float | None) -> Mask:
    """Where a number is known and not above the limit; anything where there is no limit."""
    if limit is None:
        return np.ones(len(column), np.bool_)
    with np.errstate(invalid="ignore"):
        return np.asarray(column <= limit, np.bool_)


def first_per_type(offers: Offers, places: Places, types: int) -> NDArray[np.int32]:
    """The first of the places of each instance type, -1 where it has none; places come grouped by type."""
    first = np.full(types, -1, np.int32)
    starting = places[first_of_run(offers.instance_type[places])]
    first[offers.instance_type[starting]] = starting
    return first


def first_of_run(column: NDArray[Any]) -> Mask:
    """Where another value begins."""
    first = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=first[1:])
    return first


def usd_per_hour(offers: Offers, places: NDArray[np.int32] | Places) -> Floats:
    """Prices of the offers at these places; NaN where the place is -1."""
    return np.where(places < 0, np.nan, offers.usd_per_hour[places]) if len(offers) else np.full(places.shape, np.nan)


def every_offer(asked: Constraints, admitted: TypeSet, catalog: Catalog) -> AdmittedOffers:
    """All offers of these types that pass, not only the cheapest of each market."""
    offers = catalog.offers
    passing = (offer_misses(asked, offers) == 0) & within(offers.usd_per_hour, asked.max_usd_per_hour)
    places = np.flatnonzero(passing & catalog.mask(admitted)[offers.instance_type])
    return CheapestOffers.of(places, catalog).candidates(admitted, None)


def offers_of_types(some: AdmittedOffers) -> tuple[Places, Places]:
    """Each type among the candidates once, in the catalog's order, with the default one of its offers."""
    places = some.places
    kinds, offers = some.cells.instance_type[places], some.cells.offer[places]
    order = np.lexsort((offers, kinds))  # offers stand in order of preference within a type
    kinds, offers = kinds[order], offers[order]
    first = first_of_run(kinds)
    return kinds[first], offers[first]


# Obstacles


def offer_obstacles(
    asked: Constraints, choice: OfferChoice, catalog: Catalog, out: TypeSet, near: TypeSet
) -> Iterator[Obstacle]:
    """The constraints on offers; `near` are rejected types that only their offers keep out."""
    cells, some, limit = choice.cells, choice.cells.types, asked.max_usd_per_hour
    for bit, others in choice.alone.items():
        code, ground = OFFER_CODES[bit]
        alone = near & others.cells.types and near & others.cells.within(limit)
        fails = (out & choice.blocked[bit] & ~some) | alone
        yield Obstacle(
            code, ground, fails, alone, partial(relax_offers, code, others, asked, catalog), alone, cells, limit
        )
    yield Obstacle("no_offer", "data", out & choice.unoffered, 0, never, 0, cells, limit)
    if limit is not None:
        dear, alone = some & ~cells.within(limit), near & cells.priced
        yield Obstacle("max_usd_per_hour", "constraint", dear, alone, partial(raise_price, cells), alone, cells, limit)


def relax_offers(
    code: str, others: NearMisses, asked: Constraints, catalog: Catalog, alone: TypeSet
) -> Loosened | None:
    """The one word more, or the least age more, that lets in the most types."""
    near = AdmittedOffers(others.cells, alone, asked.max_usd_per_hour)
    match code:
        case "region":
            counts = np.bincount(others.code[near.places] + 1, minlength=2)[1:].tolist()
            return one_word_more(code, asked.region, catalog.offers.places, counts, others, near, catalog)
        case "market":
            held = [others.under(market, catalog).within(near.limit) for market in range(len(MARKETS))]
            counts = [(alone & types).bit_count() for types in held]
            return one_word_more(code, asked.market, MARKETS, counts, others, near, catalog)
        case "max_price_age_days":
            return least_age_more(others, near, catalog)
        case _:
            return None


def one_word_more(
    code: str,
    wanted: Sequence[str],
    known: Sequence[str],
    counts: Sequence[int],
    others: NearMisses,
    near: AdmittedOffers,
    catalog: Catalog,
) -> Loosened:
    """Of the known words the one that lets in the most, by how many each would let in."""
    if not any(counts):
        return {code: None}, near
    added = counts.index(max(counts))
    return {code: [*wanted, known[added]]}, others.under(added, catalog).candidates(near.types, near.limit)


def least_age_more(others: NearMisses, near: AdmittedOffers, catalog: Catalog) -> Loosened:
    offers = catalog.offers
    places = others.places[near.among(offers.instance_type[others.places], offers.usd_per_hour[others.places])]
    ages = offers.age_days[places]
    age = None if np.isnan(ages).all() else float(np.nanmin(ages))
    kept = places if age is None else places[within(ages, age)]
    kept = kept[np.lexsort((offers.usd_per_hour[kept], offers.instance_type[kept]))]
    cells = CheapestOffers.of(kept[first_of_run(offers.instance_type[kept])], catalog)
    return {"max_price_age_days": age}, AdmittedOffers(cells, cells.types, near.limit)


def raise_price(cells: CheapestOffers, alone: TypeSet) -> Loosened:
    nearest = cells.prices.least(alone)
    return {"max_usd_per_hour": nearest}, cells.candidates(alone, nearest)
