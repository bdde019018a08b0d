"""Offers that pass the constraints on region, market and price, and the offers that miss one of them.

Few combinations of region, market and price age occur, so each is checked against every offer once and cached. A price
limit can be any number; it is applied per question, to the cheapest offer of each instance type in each market.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import MARKETS
from service.domain.typeset import ThresholdIndex, TypeSet, mask_of, types_where

PLACES = ("region", "country", "continent")
"""The constraints on where an offer is."""


class OfferConstraints(NamedTuple):
    """Constraints on an offer other than its price limit. An empty field admits every offer."""

    region: tuple[str, ...] = ()
    country: tuple[str, ...] = ()
    continent: tuple[str, ...] = ()
    market: tuple[str, ...] = ()
    max_price_age_days: float | None = None
    needs_price: bool = False
    allow_unknown_region: bool = False
    """Whether offers whose region, country or continent is unknown pass constraints on it."""
    by_region: bool = False
    """Whether the cheapest offer of each region represents a type, since the bill depends on more than the price."""


@dataclass(frozen=True, eq=False)
class CheapestOffers:
    """Offers that represent all offers of their type, such as the cheapest of each type in each market.

    Compared by identity: what is derived from them is cached under them.
    """

    instance_type: Indices
    offer: Indices
    usd: Floats
    """Price per hour; infinite if unknown."""
    lowest_usd: Floats
    """Lowest price of each instance type; infinite if it has no offer here or no known price."""
    types: TypeSet
    """Types that have an offer here."""

    @classmethod
    def of(cls, offers: NDArray[Any], catalog: Catalog) -> "CheapestOffers":
        """Builds the columns of the offers with these indices."""
        types = catalog.offers.instance_type[offers].astype(np.int64)
        usd = np.nan_to_num(catalog.offers.usd_per_hour[offers], nan=np.inf)
        lowest_usd = np.full(len(catalog.instance_types), np.inf)
        np.minimum.at(lowest_usd, types, usd)
        return cls(types, offers.astype(np.int64), usd, lowest_usd, _types_of(offers, catalog))

    @cached_property
    def prices(self) -> ThresholdIndex:
        """Finds the types whose lowest price is within a limit."""
        return ThresholdIndex.of(self.lowest_usd)

    @cached_property
    def priced(self) -> TypeSet:
        """Types with an offer whose price is known."""
        return types_where(np.isfinite(self.lowest_usd))

    def within(self, limit: float | None) -> TypeSet:
        """Types with an offer that costs no more than the limit."""
        return self.types if limit is None else self.prices.at_most(limit)

    def candidates(self, types: TypeSet, limit: float | None) -> "AdmittedOffers":
        """These offers, restricted to some types and to a price limit."""
        return AdmittedOffers(self, types & self.within(limit), limit)


class AdmittedOffers(NamedTuple):
    """The part of `cheapest` whose type is in `types` and whose price is within the limit."""

    cheapest: CheapestOffers
    types: TypeSet
    """Types that have an offer within the limit."""
    limit: float | None

    @property
    def rows(self) -> Indices:
        """Rows of `cheapest` that belong to this part."""
        return np.flatnonzero(self.among(self.cheapest.instance_type, self.cheapest.usd))

    def among(self, instance_type: NDArray[Any], usd: Floats) -> Mask:
        """Rows that belong to this part, given columns of types and prices in any order."""
        of_types: Mask = mask_of(self.types, len(self.cheapest.lowest_usd)).take(instance_type)
        return of_types if self.limit is None else of_types & (usd <= self.limit)

    def tightened(self, catalog: Catalog) -> "AdmittedOffers":
        """Returns the same offers with the highest price among them as their limit.

        Many limits admit the same offers; with the same limit, such parts are equal values.
        """
        if self.limit is None:
            return self
        # Most limits between two such prices admit the same types.
        prices = catalog.derive(_prices_of, self.cheapest, self.types, cache=catalog.outlooks)
        return AdmittedOffers(self.cheapest, self.types, prices[bisect_right(prices, self.limit) - 1])

    def only(self, types: TypeSet) -> "AdmittedOffers":
        """The part of these offers that belongs to some types."""
        return AdmittedOffers(self.cheapest, self.types & types, self.limit)


def _prices_of(_catalog: Catalog, cheapest: CheapestOffers, types: TypeSet) -> list[float]:
    """Returns the prices of the offers of some types, ascending, after 0."""
    return [0.0, *np.sort(cheapest.usd[mask_of(types, len(cheapest.lowest_usd)).take(cheapest.instance_type)]).tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class NearMisses:
    """Offers that miss one constraint and no other, and the types that this constraint rejects."""

    nearest: TypeSet
    """Types whose nearest offer, the one that misses the fewest constraints, misses this one."""
    offers: Indices
    code: NDArray[np.int32]
    """Region, country, continent or market of each row of `cheapest`; the market for all other codes."""
    pair: Indices
    """Number of the pair of type and `code` of each row of `cheapest`, ascending."""
    cheapest: CheapestOffers
    """The cheapest of these offers for each type, market, term and region, country or continent, old prices apart."""
    by_region: bool

    @classmethod
    def of(cls, code: str, nearest: TypeSet, misses: Mask, catalog: Catalog, *, by_region: bool) -> "NearMisses":
        """Builds the near misses from a mask of the offers that miss only the constraint with this code."""
        offers = np.flatnonzero(misses)
        words = catalog.offer_words.get(code, catalog.offer_words["market"])
        types, codes = catalog.offers.instance_type[offers], words.codes[offers]
        kinds = _kinds(offers, catalog, by_region=by_region)
        order = np.lexsort((catalog.offers.usd_per_hour[offers], kinds, codes, types))
        codes, new_pair = codes[order], first_of_run(types[order]) | first_of_run(codes[order])
        first = new_pair | first_of_run(kinds[order])
        cheapest = CheapestOffers.of(offers[order][first], catalog)
        return cls(nearest, offers, codes[first], np.cumsum(new_pair, dtype=np.int64)[first], cheapest, by_region)

    def most_frequent_code(self, rows: Indices) -> int | None:
        """Returns the code that the most types have in some rows of `cheapest`; None without rows."""
        # A type may have two offers with a code, one of them with an old price; it counts once.
        first = rows[first_of_run(self.pair[rows])]
        return int(np.bincount(self.code[first]).argmax()) if len(rows) else None

    def with_code(self, code: int, catalog: Catalog) -> CheapestOffers:
        """The cheapest of these offers in one region, country, continent or market."""
        return catalog.derive(_with_code, self, code, cache=catalog.choices)


def _with_code(catalog: Catalog, misses: NearMisses, code: int) -> CheapestOffers:
    return CheapestOffers.of(misses.cheapest.offer[misses.code == code], catalog)


@dataclass(frozen=True, slots=True)
class OfferChoice:
    """The offers that pass some constraints, and those that miss one of them."""

    cheapest: CheapestOffers
    """The cheapest passing offer of each type in each market and term, old prices apart."""
    unoffered: TypeSet
    """Types without any offer."""
    near_misses: dict[str, NearMisses]
    """Near misses by the code of the rejection; constraints that reject nothing are left out."""


def offer_choice(asked: OfferConstraints, catalog: Catalog) -> OfferChoice:
    """Checks every offer against the constraints; the result is cached."""
    return catalog.derive(_check_offers, asked, cache=catalog.choices)


def passing_offers(asked: OfferConstraints, types: TypeSet, limit: float | None, catalog: Catalog) -> AdmittedOffers:
    """Returns all passing offers of some types, not only the cheapest of each market."""
    offers = catalog.offers
    passing = catalog.mask(types)[offers.instance_type] & within(offers.usd_per_hour, limit)
    for misses in _misses(asked, catalog).values():
        passing &= ~misses
    return CheapestOffers.of(np.flatnonzero(passing), catalog).candidates(types, None)


def offers_of_types(admitted: AdmittedOffers) -> tuple[Indices, Indices]:
    """Returns each admitted type, in the catalog's order, and its default offer among the admitted ones."""
    rows = admitted.rows
    types, offers = admitted.cheapest.instance_type[rows], admitted.cheapest.offer[rows]
    order = np.lexsort((offers, types))  # the rows of a type are in order of preference
    types, offers = types[order], offers[order]
    first = first_of_run(types)
    return types[first], offers[first]


def cheapest_of_each_market(offers: Indices, catalog: Catalog, *, by_region: bool) -> CheapestOffers:
    """Returns the cheapest of some offers, in ascending order, for each type, market and term, old prices apart.

    An old price ranks at its high end, and which term costs least depends on the hours of a job. With `by_region`, the
    cheapest of these in each region is returned.
    """
    kinds = _kinds(offers, catalog, by_region=by_region)
    # The offers of a type are in order of price in each market, and a stable sort keeps this order.
    order = np.argsort(kinds, kind="stable")
    types, kinds = catalog.offers.instance_type[offers[order]], kinds[order]
    return CheapestOffers.of(offers[order][first_of_run(types) | first_of_run(kinds)], catalog)


def _kinds(offers: Indices, catalog: Catalog, *, by_region: bool) -> NDArray[Any]:
    """Returns a code of the market, the term, of whether the price is old, and, if asked, of the region of offers."""
    columns = catalog.offers
    kinds = ((columns.term[offers] + 1) * len(MARKETS) + columns.market[offers]) * 2 + columns.old[offers]
    of_region = 2 * len(MARKETS) * (len(columns.terms) + 1)
    return kinds + (columns.region[offers] + 1) * of_region if by_region else kinds


def within(column: Floats, limit: float | None) -> Mask:
    """Rows with a known number that is not above the limit; all rows if there is no limit."""
    if limit is None:
        return np.ones(len(column), np.bool_)
    with np.errstate(invalid="ignore"):
        return np.asarray(column <= limit, np.bool_)


def _misses(asked: OfferConstraints, catalog: Catalog) -> dict[str, Mask]:
    """Offers that miss each constraint, by the code of the rejection."""
    offers = catalog.offers
    misses: dict[str, Mask] = {
        name: ~catalog.offers_among(name, words) for name in catalog.offer_words if (words := getattr(asked, name))
    }
    for name in misses.keys() & PLACES:
        unknown = catalog.offer_words[name].codes < 0
        misses[name] &= ~unknown
        if not asked.allow_unknown_region:
            misses["region_unknown"] = misses.get("region_unknown", False) | unknown
    if asked.max_price_age_days is not None:
        misses["max_price_age_days"] = ~within(offers.age_days, asked.max_price_age_days)
    if asked.needs_price:
        misses["price_unknown"] = np.isnan(offers.usd_per_hour)
    return misses


def _check_offers(catalog: Catalog, asked: OfferConstraints) -> OfferChoice:
    offers = catalog.offers
    misses = {code: mask for code, mask in _misses(asked, catalog).items() if mask.any()}
    missed_count = sum(misses.values(), np.zeros(len(offers), np.int8))
    # The cheapest of each market is kept, because a spot offer may be interrupted and the others not.
    passing = np.flatnonzero(missed_count == 0)
    ordered = np.lexsort((missed_count, offers.instance_type))
    nearest = ordered[first_of_run(offers.instance_type[ordered])]
    return OfferChoice(
        cheapest=cheapest_of_each_market(passing, catalog, by_region=asked.by_region),
        unoffered=catalog.all_types & ~_types_of(nearest, catalog),
        near_misses={
            code: NearMisses.of(
                code,
                _types_of(nearest[mask[nearest]], catalog),
                mask & (missed_count == 1),
                catalog,
                by_region=asked.by_region,
            )
            for code, mask in misses.items()
        },
    )


def _types_of(offers: NDArray[Any], catalog: Catalog) -> TypeSet:
    types = catalog.offers.instance_type[offers]
    return types_where(np.bincount(types, minlength=len(catalog.instance_types)) > 0)


def first_of_run(column: NDArray[Any]) -> Mask:
    """Rows in which another value begins."""
    first = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=first[1:])
    return first
