"""Which instance types and offers a question admits, and what stands in the way of the others.

Offers enter in two steps. Region, market and the age of a price are asked of every offer once and remembered, since few
such combinations occur; what is left per question – hardware, software, a price limit – is asked per instance type.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog import Catalog, Floats, Mask, Memory, Offers
from service.domain.constraints import Check, Constraints, Ground, type_checks
from service.domain.offer import MARKETS
from service.domain.typeset import TypeSet, types_where

OFFER_CODES: tuple[tuple[str, Ground], ...] = (
    ("region", "constraint"),
    ("market", "constraint"),
    ("max_price_age_days", "constraint"),
    ("price_unknown", "data"),
)
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cells:
    """Offers that stand for the others of their type: the cheapest of each type in each market, say."""

    instance_type: Places
    offer: Places
    usd: Floats
    """Infinite: not known."""
    orders: Memory = field(default_factory=lambda: Memory(size=16))
    """What they come to under an objective, for whoever ranks them."""

    @classmethod
    def of(cls, places: NDArray[Any], offers: Offers) -> "Cells":
        usd = np.nan_to_num(offers.usd_per_hour[places], nan=np.inf)
        return cls(offers.instance_type[places].astype(np.int64), places.astype(np.int64), usd)

    def part(self, places: NDArray[Any]) -> "Cells":
        return Cells(self.instance_type[places], self.offer[places], self.usd[places])


@dataclass(frozen=True, slots=True)
class Candidates:
    """Of the cells, those of these types that cost no more than the limit."""

    cells: Cells
    types: TypeSet
    limit: float | None
    catalog: Catalog

    @property
    def places(self) -> Places:
        """Where they stand among the cells."""
        return np.flatnonzero(self.among(self.cells.instance_type, self.cells.usd))

    def among(self, instance_type: Places, usd: Floats) -> Mask:
        """Where they stand in these columns of the cells, whatever order the columns are in."""
        taken = self.catalog.mask(self.types)[instance_type]
        return taken if self.limit is None else taken & (usd <= self.limit)


@dataclass(frozen=True, slots=True)
class Words:
    """Of each type, the cheapest offer under each word (code -1: without one)."""

    code: NDArray[np.int32]
    cells: Cells
    by_code: Memory = field(default_factory=Memory)

    @classmethod
    def of(cls, places: Places, codes: NDArray[Any], offers: Offers) -> "Words":
        order = np.lexsort((offers.usd_per_hour[places], codes, offers.instance_type[places]))
        places, codes = places[order], codes[order].astype(np.int32)
        first = first_of_run(offers.instance_type[places]) | first_of_run(codes)
        return cls(codes[first], Cells.of(places[first], offers))

    def under(self, code: int) -> Cells:
        return self.by_code.recall(code, lambda: self.cells.part(self.code == code))


@dataclass(frozen=True, slots=True)
class Alone:
    """The offers that miss one constraint and nothing else, by type."""

    places: Places
    types: TypeSet
    """The types that have any."""
    cheapest: Floats
    """Per type, the lowest price among them; infinite where there is none or none is known."""
    kept: Memory = field(default_factory=Memory)

    @classmethod
    def of(cls, places: Places, catalog: Catalog) -> "Alone":
        owners, types = catalog.offers.instance_type[places], len(catalog.instance_types)
        cheapest = np.full(types, np.inf)
        np.fmin.at(cheapest, owners, catalog.offers.usd_per_hour[places])
        return cls(places, types_where(np.bincount(owners, minlength=types) > 0), cheapest)

    def within(self, limit: float | None) -> TypeSet:
        """The types with an offer among them that costs no more than the limit."""
        return self.types if limit is None else types_where(self.cheapest <= limit)

    def words(self, code: str, offers: Offers) -> Words:
        codes = offers.region if code == "region" else offers.market
        return self.kept.recall(code, lambda: Words.of(self.places, codes[self.places], offers))


@dataclass(frozen=True, slots=True)
class OfferChoice:
    """What one combination of region, markets and price age leaves of each instance type's offers.

    `cells` are each type's cheapest passing offer in each market, and `cheapest` the lowest price of a type's. For a
    type without any (`nothing`) the nearest offer counts, the one that misses the fewest constraints: `blocked[c]` are
    the types where that misses constraint c. `alone[c]` are the offers that miss constraint c and no other.
    """

    cells: Cells
    cheapest: Floats
    some: TypeSet
    nothing: TypeSet
    blocked: dict[int, TypeSet]
    unoffered: TypeSet
    alone: dict[int, Alone]

    def within(self, limit: float | None) -> TypeSet:
        """The types with an offer within the price limit."""
        return self.some if limit is None else types_where(self.cheapest <= limit)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A constraint that turned types away: which, which of them by itself, and the least change that lets some in."""

    code: str
    ground: Ground
    fails: TypeSet
    alone: TypeSet
    relax: Callable[[], tuple[dict[str, object], Candidates] | None]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a question admits, and what kept the others out."""

    admitted: Candidates
    obstacles: tuple[Obstacle, ...]


def select(asked: Constraints, catalog: Catalog, more: Sequence[Check] = ()) -> Selection:
    """Ask every constraint of every instance type and offer, and `more` of every type."""
    choice, limit = offer_choice(asked, catalog), asked.max_usd_per_hour
    checks = [*type_checks(asked, catalog), *more]
    once = twice = 0
    for check in checks:
        twice |= once & check.fails
        once |= check.fails
    affordable = choice.within(limit)
    admitted = affordable & ~once
    out = catalog.everyone & ~admitted
    obstacles = (
        *type_obstacles(checks, once & ~twice & affordable, Candidates(choice.cells, 0, limit, catalog)),
        *offer_obstacles(asked, choice, catalog, out, out & ~once),
    )
    return Selection(Candidates(choice.cells, admitted, limit, catalog), tuple(o for o in obstacles if o.fails))


# Offers


def offer_choice(asked: Constraints, catalog: Catalog) -> OfferChoice:
    signature = (asked.region, asked.market, asked.max_price_age_days, asked.needs_price)
    return catalog.choices.recall(signature, lambda: ask_offers(asked, catalog))


def ask_offers(asked: Constraints, catalog: Catalog) -> OfferChoice:
    offers, types = catalog.offers, len(catalog.instance_types)
    misses = offer_misses(asked, offers)
    markets = [np.flatnonzero((misses == 0) & (offers.market == market)) for market in range(len(MARKETS))]
    best = np.concatenate([places[first_of_run(offers.instance_type[places])] for places in markets])
    cells = Cells.of(best, offers)
    nearest = first_per_type(offers, np.lexsort((np.bitwise_count(misses), offers.instance_type)), types)
    missed = np.zeros(types, np.uint8)
    missed[nearest >= 0] = misses[nearest[nearest >= 0]]
    bits = [bit for bit in range(len(OFFER_CODES)) if (misses & (1 << bit)).any()]
    cheapest = np.full(types, np.inf)
    np.minimum.at(cheapest, cells.instance_type, cells.usd)
    some = types_where(np.bincount(cells.instance_type, minlength=types) > 0)
    return OfferChoice(
        cells=cells,
        cheapest=cheapest,
        some=some,
        nothing=catalog.everyone & ~some,
        blocked={bit: types_where((missed & (1 << bit)) > 0) for bit in bits},
        unoffered=types_where(nearest < 0),
        alone={bit: Alone.of(np.flatnonzero(misses == 1 << bit), catalog) for bit in bits},
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


def every_offer(asked: Constraints, admitted: TypeSet, catalog: Catalog) -> Candidates:
    """All offers of these types that pass, not only the cheapest of each market."""
    offers = catalog.offers
    passing = (offer_misses(asked, offers) == 0) & within(offers.usd_per_hour, asked.max_usd_per_hour)
    places = np.flatnonzero(passing & catalog.mask(admitted)[offers.instance_type])
    return Candidates(Cells.of(places, offers), admitted, None, catalog)


def offers_of_types(some: Candidates) -> tuple[Places, Places]:
    """Each type among the candidates once, in the catalog's order, with the default one of its offers."""
    places = some.places
    kinds, offers = some.cells.instance_type[places], some.cells.offer[places]
    order = np.lexsort((offers, kinds))  # offers stand in order of preference within a type
    kinds, offers = kinds[order], offers[order]
    first = first_of_run(kinds)
    return kinds[first], offers[first]


# Obstacles


def type_obstacles(checks: list[Check], sole: TypeSet, offered: Candidates) -> Iterator[Obstacle]:
    """The constraints on types; `sole` are those that miss one and nothing else."""
    for check in checks:

        def relax(check: Check = check) -> tuple[dict[str, object], Candidates] | None:
            relaxed = check.relax(sole)
            return None if relaxed is None else (relaxed.to, replace(offered, types=relaxed.admits))

        yield Obstacle(check.code, check.ground, check.fails, check.fails & sole, relax)


def offer_obstacles(
    asked: Constraints, choice: OfferChoice, catalog: Catalog, out: TypeSet, near: TypeSet
) -> Iterator[Obstacle]:
    """The constraints on offers; `near` are rejected types that only their offers keep out."""
    without = out & choice.nothing
    for bit, others in choice.alone.items():
        code, ground = OFFER_CODES[bit]
        alone = near & others.within(asked.max_usd_per_hour)
        relax = partial(relax_offers, code, others, alone, asked, catalog)
        yield Obstacle(code, ground, (without & choice.blocked[bit]) | alone, alone, relax)
    yield Obstacle("no_offer", "data", out & choice.unoffered, 0, lambda: None)
    if asked.max_usd_per_hour is not None:
        yield price_obstacle(choice, out & choice.some, near & choice.some, catalog)


def relax_offers(
    code: str, others: Alone, alone: TypeSet, asked: Constraints, catalog: Catalog
) -> tuple[dict[str, object], Candidates] | None:
    """The one word more, or the least age more, that lets in the most types."""
    if not alone:
        return None
    match code:
        case "region":
            return one_word_more(code, others, alone, asked.region, catalog.offers.places, asked, catalog)
        case "market":
            return one_word_more(code, others, alone, asked.market, MARKETS, asked, catalog)
        case "max_price_age_days":
            return least_age_more(others, alone, asked, catalog)
        case _:
            return None


def one_word_more(
    code: str,
    others: Alone,
    alone: TypeSet,
    wanted: Sequence[str],
    known: Sequence[str],
    asked: Constraints,
    catalog: Catalog,
) -> tuple[dict[str, object], Candidates]:
    words = others.words(code, catalog.offers)
    near = Candidates(words.cells, alone, asked.max_usd_per_hour, catalog)
    codes = words.code[near.among(words.cells.instance_type, words.cells.usd)]
    counts = np.bincount(codes + 1, minlength=len(known) + 1)[1:]
    if not counts.any():
        return {code: None}, replace(near, cells=words.under(-1))
    added = int(counts.argmax())
    return {code: [*wanted, known[added]]}, replace(near, cells=words.under(added))


def least_age_more(
    others: Alone, alone: TypeSet, asked: Constraints, catalog: Catalog
) -> tuple[dict[str, object], Candidates]:
    offers, limit = catalog.offers, asked.max_usd_per_hour
    places = others.places[catalog.mask(alone)[offers.instance_type[others.places]]]
    places = places[within(offers.usd_per_hour[places], limit)]
    ages = offers.age_days[places]
    age = None if np.isnan(ages).all() else float(np.nanmin(ages))
    kept = places if age is None else places[within(ages, age)]
    kept = kept[np.lexsort((offers.usd_per_hour[kept], offers.instance_type[kept]))]
    cells = Cells.of(kept[first_of_run(offers.instance_type[kept])], offers)
    return {"max_price_age_days": age}, Candidates(cells, alone, limit, catalog)


def price_obstacle(choice: OfferChoice, fails: TypeSet, near: TypeSet, catalog: Catalog) -> Obstacle:
    alone = near & types_where(choice.cheapest < np.inf)

    def relax() -> tuple[dict[str, object], Candidates] | None:
        nearest = float(choice.cheapest[catalog.mask(alone)].min())
        return {"max_usd_per_hour": nearest}, Candidates(choice.cells, alone, nearest, catalog)

    return Obstacle("max_usd_per_hour", "constraint", fails, alone, relax)
