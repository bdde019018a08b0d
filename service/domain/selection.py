"""Which instance types and offers a question admits, and what stands in the way of the others.

Offers enter in two steps. Region, market and the age of a price are asked of every offer once and remembered, since few
such combinations occur; what is left per question – hardware, software, a price limit – is asked per instance type.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog import Catalog, Floats, Mask, Memory, Offers
from service.domain.constraints import Check, Constraints, Ground, type_checks
from service.domain.offer import MARKETS

OFFER_CODES: tuple[tuple[str, Ground], ...] = (
    ("region", "constraint"),
    ("market", "constraint"),
    ("max_price_age_days", "constraint"),
    ("price_unknown", "data"),
)
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Alone:
    """The offers that miss one constraint and nothing else, grouped by type: `starts[i]` to `starts[i + 1]`."""

    places: Places
    starts: Places
    some: Mask
    """The types that have any."""
    cheapest: Floats
    """Per type, the lowest price among them; infinite where there is none or none is known."""

    @classmethod
    def of(cls, places: Places, catalog: Catalog) -> "Alone":
        types = len(catalog.instance_types)
        starts = np.searchsorted(catalog.offers.instance_type[places], np.arange(types + 1))
        cheapest = np.full(types, np.inf)
        np.fmin.at(cheapest, catalog.offers.instance_type[places], catalog.offers.usd_per_hour[places])
        return cls(places, starts, starts[1:] > starts[:-1], cheapest)

    def types(self, limit: float | None) -> Mask:
        """The types with an offer among them that costs no more than the limit."""
        return self.some if limit is None else self.cheapest <= limit

    def of_types(self, kinds: Mask) -> Places:
        """The offers of these types."""
        slices = [self.places[self.starts[kind] : self.starts[kind + 1]] for kind in np.flatnonzero(kinds)]
        return np.concatenate(slices) if slices else self.places[:0]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Instance type and offer, side by side; an offer of -1 is a type without one."""

    instance_type: Places
    offer: Places
    among: Places | None = None
    """Where they stand among `OfferChoice.cells`; nothing for candidates that are not taken from there."""

    def __len__(self) -> int:
        return len(self.instance_type)


@dataclass(frozen=True, slots=True)
class OfferChoice:
    """What one combination of region, markets and price age leaves of each instance type's offers.

    `cells` are each type's cheapest passing offer in each market, and `usd` their prices (infinite: not known);
    `cheapest` is the lowest of a type's. For a type without any (`nothing`) the nearest offer counts, the one
    that misses the fewest constraints: `blocked[c]` are the types where that misses constraint c. `alone[c]` are the
    offers that miss constraint c and no other.
    """

    cells: Candidates
    usd: Floats
    cheapest: Floats
    nothing: Mask
    blocked: dict[int, Mask]
    unoffered: Mask
    alone: dict[int, Alone]
    orders: Memory = field(default_factory=lambda: Memory(size=16))
    """What the cells come to under an objective, for whoever ranks them."""

    def within(self, limit: float | None) -> Mask:
        """The types with an offer within the price limit."""
        return ~self.nothing if limit is None else self.cheapest <= limit

    def candidates(self, kinds: Mask, limit: float | None) -> Candidates:
        """Of these types, the cheapest offer in each market, within the price limit."""
        taken = kinds[self.cells.instance_type]
        if limit is not None:
            taken &= self.usd <= limit
        among = np.flatnonzero(taken)
        return Candidates(self.cells.instance_type[among], self.cells.offer[among], among)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A constraint that turned types away: which, which of them by itself, and the least change that lets some in."""

    code: str
    ground: Ground
    fails: Mask
    alone: Mask
    relax: Callable[[], tuple[dict[str, object], Candidates] | None]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a question admits, and what kept the others out."""

    admitted: Candidates
    obstacles: tuple[Obstacle, ...]
    rejected: Mask


def select(asked: Constraints, catalog: Catalog, more: Sequence[Check] = ()) -> Selection:
    """Ask every constraint of every instance type and offer, and `more` of every type."""
    choice = offer_choice(asked, catalog)
    checks = [*type_checks(asked, catalog), *more]
    misses = np.zeros(len(catalog.instance_types), np.int16)
    for check in checks:
        misses += check.fails
    affordable = choice.within(asked.max_usd_per_hour)
    admitted = (misses == 0) & affordable
    out = ~admitted
    obstacles = (
        *type_obstacles(checks, misses, affordable, choice, asked),
        *offer_obstacles(asked, choice, catalog, out, out & (misses == 0)),
    )
    return Selection(
        choice.candidates(admitted, asked.max_usd_per_hour),
        tuple(o for o in obstacles if np.count_nonzero(o.fails)),
        out,
    )


# Offers


def offer_choice(asked: Constraints, catalog: Catalog) -> OfferChoice:
    signature = (asked.region, asked.market, asked.max_price_age_days, asked.needs_price)
    return catalog.choices.recall(signature, lambda: ask_offers(asked, catalog))


def ask_offers(asked: Constraints, catalog: Catalog) -> OfferChoice:
    offers, types = catalog.offers, len(catalog.instance_types)
    misses = offer_misses(asked, offers)
    markets = [np.flatnonzero((misses == 0) & (offers.market == market)) for market in range(len(MARKETS))]
    best = np.concatenate([places[first_of_run(offers.instance_type[places])] for places in markets])
    cells = Candidates(offers.instance_type[best].astype(np.int64), best)
    nearest = first_per_type(offers, np.lexsort((np.bitwise_count(misses), offers.instance_type)), types)
    missed = np.zeros(types, np.uint8)
    missed[nearest >= 0] = misses[nearest[nearest >= 0]]
    bits = [bit for bit in range(len(OFFER_CODES)) if (misses & (1 << bit)).any()]
    blocked = {bit: (missed & (1 << bit)).astype(np.bool_) for bit in bits}
    alone = {bit: Alone.of(np.flatnonzero(misses == 1 << bit), catalog) for bit in bits}
    usd = np.nan_to_num(offers.usd_per_hour[best], nan=np.inf)
    cheapest, nothing = np.full(types, np.inf), np.ones(types, np.bool_)
    np.minimum.at(cheapest, cells.instance_type, usd)
    nothing[cells.instance_type] = False
    return OfferChoice(cells, usd, cheapest, nothing, blocked, nearest < 0, alone)


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


def every_offer(asked: Constraints, selection: Selection, catalog: Catalog) -> Candidates:
    """All offers of the admitted types that pass, not only the cheapest of each market."""
    offers = catalog.offers
    passing = (offer_misses(asked, offers) == 0) & within(offers.usd_per_hour, asked.max_usd_per_hour)
    places = np.flatnonzero(passing & ~selection.rejected[offers.instance_type])
    return Candidates(offers.instance_type[places].astype(np.int64), places)


def offers_of_types(some: Candidates) -> tuple[Places, Places]:
    """Each type among the candidates once, in the catalog's order, with the default one of its offers."""
    order = np.lexsort((some.offer, some.instance_type))  # offers stand in order of preference within a type
    kinds, offers = some.instance_type[order], some.offer[order]
    first = first_of_run(kinds)
    return kinds[first], offers[first]


# Obstacles


def type_obstacles(
    checks: list[Check],
    misses: NDArray[np.int16],
    affordable: Mask,
    choice: OfferChoice,
    asked: Constraints,
) -> Iterator[Obstacle]:
    sole = (misses == 1) & affordable
    for check in checks:

        def relax(check: Check = check) -> tuple[dict[str, object], Candidates] | None:
            relaxed = check.relax(sole)
            if relaxed is None:
                return None
            return relaxed.to, choice.candidates(relaxed.admits, asked.max_usd_per_hour)

        yield Obstacle(check.code, check.ground, check.fails, check.fails & sole, relax)


def offer_obstacles(
    asked: Constraints, choice: OfferChoice, catalog: Catalog, out: Mask, near: Mask
) -> Iterator[Obstacle]:
    """The constraints on offers; `near` are rejected types that only their offers keep out."""
    without = out & choice.nothing
    for bit, others in choice.alone.items():
        code, ground = OFFER_CODES[bit]
        alone = near & others.types(asked.max_usd_per_hour)
        fails = (without & choice.blocked[bit]) | alone

        def relax(
            code: str = code, others: Alone = others, alone: Mask = alone
        ) -> tuple[dict[str, object], Candidates] | None:
            places = others.of_types(alone)
            kept = within(catalog.offers.usd_per_hour[places], asked.max_usd_per_hour)
            return relax_offers(code, places[kept], asked, catalog.offers)

        yield Obstacle(code, ground, fails, alone, relax)
    yield Obstacle("no_offer", "data", out & choice.unoffered, np.zeros(len(out), np.bool_), lambda: None)
    if asked.max_usd_per_hour is not None:
        yield price_obstacle(choice, out & ~choice.nothing, near & ~choice.nothing)


def relax_offers(
    code: str, places: Places, asked: Constraints, offers: Offers
) -> tuple[dict[str, object], Candidates] | None:
    """The one word more, or the least age more, that lets in the most types."""
    if not len(places):
        return None
    match code:
        case "region":
            codes, words, wanted = offers.region[places], offers.places, asked.region
        case "market":
            codes, words, wanted = offers.market[places].astype(np.int32), MARKETS, asked.market
        case "max_price_age_days":
            age = float(np.nanmin(offers.age_days[places])) if not np.isnan(offers.age_days[places]).all() else None
            kept = places if age is None else places[within(offers.age_days[places], age)]
            return {code: age}, cheapest_per_type(kept, offers)
        case _:
            return None
    told = codes >= 0
    # Each pair of a type and a word once, as one number.
    pairs = np.unique(offers.instance_type[places][told].astype(np.int64) * len(words) + codes[told]) % len(words)
    if not len(pairs):
        return {code: None}, cheapest_per_type(places, offers)
    added = int(np.bincount(pairs).argmax())
    return {code: [*wanted, words[added]]}, cheapest_per_type(places[codes == added], offers)


def cheapest_per_type(places: Places, offers: Offers) -> Candidates:
    owner = offers.instance_type[places].astype(np.int64)
    order = np.lexsort((offers.usd_per_hour[places], owner))
    owner, places = owner[order], places[order]
    first = first_of_run(owner)
    return Candidates(owner[first], places[first])


def price_obstacle(choice: OfferChoice, fails: Mask, near: Mask) -> Obstacle:
    alone = near & (choice.cheapest < np.inf)

    def relax() -> tuple[dict[str, object], Candidates] | None:
        nearest = float(choice.cheapest[alone].min())
        return {"max_usd_per_hour": nearest}, choice.candidates(alone, nearest)

    return Obstacle("max_usd_per_hour", "constraint", fails, alone, relax)
