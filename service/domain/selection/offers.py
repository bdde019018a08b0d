"""Constraints on offers (region, market and price): the offers that pass, and those that miss one of them.

Questions use few combinations of constraints other than the price limit, so results for these are cached. The price
limit can be any number; each question applies it to the cheapest offer of each instance type in each market.
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
"""Constraints on the place of an offer."""


class OfferConstraints(NamedTuple):
    """Constraints on an offer other than its price limit. An empty field admits every offer."""

    region: tuple[str, ...] = ()
    country: tuple[str, ...] = ()
    continent: tuple[str, ...] = ()
    market: tuple[str, ...] = ()
    max_price_age_days: float | None = None
    needs_price: bool = False
    allow_unknown_region: bool = False
    """Whether offers of unknown region, country or continent pass constraints on the unknown one."""
    by_region: bool = False
    """Whether the cheapest offer of each region is kept, because other charges of a bill differ between regions."""
    managed_service: str | None = None
    """The managed service whose premium is part of every price."""


@dataclass(frozen=True, eq=False)
class CheapestOffers:
    """Offers that represent their type, such as the cheapest one of each type in each market, as columns.

    Objects are compared by identity, so that they can be keys of cached results.
    """

    instance_type: Indices
    offer: Indices
    """Index of each offer in the catalog."""
    usd: Floats
    """Price per hour with the premium of `service`; infinite if unknown."""
    lowest_usd: Floats
    """Lowest price of each instance type of the catalog; infinite if it has no offer here, or no known price."""
    types: TypeSet
    """Types with an offer here."""
    service: str | None
    """The managed service that the machines are rented through."""

    @classmethod
    def of(cls, offers: NDArray[Any], service: str | None, catalog: Catalog) -> "CheapestOffers":
        """Builds the columns of the offers with these indices in the catalog, rented through a managed service."""
        types = catalog.offers.instance_type[offers].astype(np.int64)
        usd = np.nan_to_num(catalog.hourly_usd(offers, service), nan=np.inf)
        lowest_usd = np.full(len(catalog.instance_types), np.inf)
        np.minimum.at(lowest_usd, types, usd)
        return cls(types, offers.astype(np.int64), usd, lowest_usd, _types_of(offers, catalog), service)

    def among(self, rows: NDArray[Any], catalog: Catalog) -> "CheapestOffers":
        """Returns the offers in some rows, by index or mask."""
        return CheapestOffers.of(self.offer[rows], self.service, catalog)

    @cached_property
    def prices(self) -> ThresholdIndex:
        """Index of the lowest prices of the types."""
        return ThresholdIndex.of(self.lowest_usd)

    @cached_property
    def priced(self) -> TypeSet:
        """Types with an offer whose price is known."""
        return types_where(np.isfinite(self.lowest_usd))

    def within(self, limit: float | None) -> TypeSet:
        """Returns the types with an offer that costs at most the limit; all types with an offer if it is None."""
        return self.types if limit is None else self.prices.at_most(limit)

    def types_at(self, where: Mask, limit: float | None = None) -> TypeSet:
        """Returns the types with an offer that is in the mask and, if there is a limit, costs at most that."""
        rows = where if limit is None else where & (self.usd <= limit)
        return types_where(np.bincount(self.instance_type[rows], minlength=len(self.lowest_usd)) > 0)

    def restricted_to(self, types: TypeSet, limit: float | None) -> "AdmittedOffers":
        """Returns the part of these offers that belongs to some types and is within a price limit."""
        return AdmittedOffers(self, types & self.within(limit), limit)


class AdmittedOffers(NamedTuple):
    """The part of `cheapest` whose type is in `types` and whose price is at most `limit`."""

    cheapest: CheapestOffers
    types: TypeSet
    """Types with an offer within the limit."""
    limit: float | None

    @property
    def rows(self) -> Indices:
        """The rows of `cheapest` that belong to this part."""
        return np.flatnonzero(self.among(self.cheapest.instance_type, self.cheapest.usd))

    def among(self, instance_type: NDArray[Any], usd: Floats) -> Mask:
        """Returns a mask of the rows that belong to this part, given columns of types and prices of any offers."""
        of_types: Mask = mask_of(self.types, len(self.cheapest.lowest_usd)).take(instance_type)
        return of_types if self.limit is None else of_types & (usd <= self.limit)

    def tightened(self, catalog: Catalog) -> "AdmittedOffers":
        """Returns the same offers with the highest price among them as the limit.

        Different limits that admit the same offers become equal values, under which results are cached.
        """
        if self.limit is None:
            return self
        prices = catalog.derive(_prices_of, self.cheapest, self.types, cache=catalog.outlooks)
        return AdmittedOffers(self.cheapest, self.types, prices[bisect_right(prices, self.limit) - 1])

    def only(self, types: TypeSet) -> "AdmittedOffers":
        """Returns the part of these offers that belongs to some types."""
        return AdmittedOffers(self.cheapest, self.types & types, self.limit)

    def alone(self, catalog: Catalog) -> "AdmittedOffers":
        """Returns the same offers, in columns without the offers of other types; cached."""
        cheapest = catalog.derive(offers_of, self.cheapest, self.types, cache=catalog.outlooks)
        return AdmittedOffers(cheapest, self.types, self.limit)

    def joined(self, other: "AdmittedOffers", catalog: Catalog) -> "AdmittedOffers":
        """Returns these offers and others, each within its own price limit."""
        offers = np.concatenate([part.cheapest.offer[part.rows] for part in (self, other)])
        joined = CheapestOffers.of(offers, self.cheapest.service, catalog)
        return joined.restricted_to(self.types | other.types, None)


def offers_of(catalog: Catalog, cheapest: CheapestOffers, types: TypeSet) -> CheapestOffers:
    """Returns the offers of some types, in columns of their own."""
    return cheapest.among(AdmittedOffers(cheapest, types, None).rows, catalog)


def _prices_of(_catalog: Catalog, cheapest: CheapestOffers, types: TypeSet) -> list[float]:
    """Returns 0 and the prices of the offers of some types, ascending."""
    return [0.0, *np.sort(cheapest.usd[mask_of(types, len(cheapest.lowest_usd)).take(cheapest.instance_type)]).tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class NearMisses:
    """Offers that miss one constraint and no other, and the types that this constraint rejects."""

    nearest: TypeSet
    """Types whose nearest offer misses this constraint. The nearest offer misses the fewest constraints."""
    offers: Indices
    """Indices of these offers in the catalog."""
    code: NDArray[np.int32]
    """Code of the region, country, continent or market of each row of `cheapest`; the market for other constraints."""
    pair: Indices
    """Number of the combination of type and `code` of each row of `cheapest`, ascending."""
    cheapest: CheapestOffers
    """The cheapest of these offers for each type, `code`, market and term; old prices have rows of their own."""
    asked: OfferConstraints

    @classmethod
    def of(cls, code: str, nearest: TypeSet, misses: Mask, asked: OfferConstraints, catalog: Catalog) -> "NearMisses":
        """Builds the near misses from a mask of the offers that miss only the constraint with this code."""
        offers = np.flatnonzero(misses)
        words = catalog.offer_words.get(code, catalog.offer_words["market"])
        types, codes = catalog.offers.instance_type[offers], words.codes[offers]
        kinds = _kinds(offers, asked, catalog)
        order = np.lexsort((catalog.offers.usd_per_hour[offers], kinds, codes, types))
        codes, new_pair = codes[order], first_of_run(types[order]) | first_of_run(codes[order])
        first = new_pair | first_of_run(kinds[order])
        cheapest = CheapestOffers.of(offers[order][first], asked.managed_service, catalog)
        return cls(nearest, offers, codes[first], np.cumsum(new_pair, dtype=np.int64)[first], cheapest, asked)

    def most_frequent_code(self, rows: Indices) -> int | None:
        """Returns the code that most types have in some rows of `cheapest`; None without rows."""
        # A type may have two offers with a code, one of them with an old price; it counts once.
        first = rows[first_of_run(self.pair[rows])]
        return int(np.bincount(self.code[first]).argmax()) if len(rows) else None

    def with_codes(self, codes: tuple[int, ...], catalog: Catalog) -> CheapestOffers:
        """Returns the cheapest of these offers in some regions, countries, continents or markets."""
        return catalog.derive(_with_codes, self, codes, cache=catalog.choices)


def _with_codes(catalog: Catalog, misses: NearMisses, codes: tuple[int, ...]) -> CheapestOffers:
    offers = np.sort(misses.cheapest.offer[np.isin(misses.code, codes)])
    return cheapest_of_each_market(offers, misses.asked, catalog)


@dataclass(frozen=True, slots=True)
class OfferChoice:
    """The offers that pass some constraints, and those that miss one of them."""

    cheapest: CheapestOffers
    """The cheapest passing offers of each type in each market and term; see `cheapest_of_each_market`."""
    unoffered: TypeSet
    """Types without any offer."""
    near_misses: dict[str, NearMisses]
    """Near misses by the code of the rejection, without constraints that reject nothing."""


def offer_choice(asked: OfferConstraints, catalog: Catalog) -> OfferChoice:
    """Checks every offer against the constraints; the result is cached."""
    return catalog.derive(_check_offers, asked, cache=catalog.choices)


def passing_offers(asked: OfferConstraints, types: TypeSet, limit: float | None, catalog: Catalog) -> AdmittedOffers:
    """Returns all passing offers of some types, and not only the cheapest one of each market."""
    passing = catalog.mask(types)[catalog.offers.instance_type]
    for misses in _misses(asked, catalog).values():
        passing &= ~misses
    return CheapestOffers.of(np.flatnonzero(passing), asked.managed_service, catalog).restricted_to(types, limit)


def offers_of_types(admitted: AdmittedOffers) -> tuple[Indices, Indices]:
    """Returns the index of each admitted type, ascending, and that of its first admitted offer."""
    rows = admitted.rows
    types, offers = admitted.cheapest.instance_type[rows], admitted.cheapest.offer[rows]
    order = np.lexsort((offers, types))  # the rows of a type are in order of preference
    types, offers = types[order], offers[order]
    first = first_of_run(types)
    return types[first], offers[first]


def cheapest_of_each_market(offers: Indices, asked: OfferConstraints, catalog: Catalog) -> CheapestOffers:
    """Returns the cheapest of some offers for each type, market, term, and old or recent price.

    Old prices are kept apart because they rank at their high end, and terms because the hours of a job decide which one
    is cheapest. With `asked.by_region`, regions are kept apart too. `offers` are indices in ascending order.
    """
    kinds = _kinds(offers, asked, catalog)
    # The offers of a type are in order of price in each market, and a stable sort keeps this order.
    order = np.argsort(kinds, kind="stable")
    types, kinds = catalog.offers.instance_type[offers[order]], kinds[order]
    first = first_of_run(types) | first_of_run(kinds)
    return CheapestOffers.of(offers[order][first], asked.managed_service, catalog)


def _kinds(offers: Indices, asked: OfferConstraints, catalog: Catalog) -> NDArray[Any]:
    """Returns a code for the combination of market, term, old or recent price and, with `asked.by_region`, region."""
    columns = catalog.offers
    kinds = ((columns.term[offers] + 1) * len(MARKETS) + columns.market[offers]) * 2 + columns.old[offers]
    of_region = 2 * len(MARKETS) * (len(columns.terms) + 1)
    return kinds + (columns.region[offers] + 1) * of_region if asked.by_region else kinds


def within(column: Floats, limit: float | None) -> Mask:
    """Returns a mask of the rows with a known number of at most the limit; all rows if the limit is None."""
    if limit is None:
        return np.ones(len(column), np.bool_)
    with np.errstate(invalid="ignore"):
        return np.asarray(column <= limit, np.bool_)


def _misses(asked: OfferConstraints, catalog: Catalog) -> dict[str, Mask]:
    """Returns masks of the offers that miss each constraint, by the code of the rejection."""
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
    # The cheapest offer of each market is kept, because only spot offers can be interrupted.
    passing = np.flatnonzero(missed_count == 0)
    ordered = np.lexsort((missed_count, offers.instance_type))
    nearest = ordered[first_of_run(offers.instance_type[ordered])]
    return OfferChoice(
        cheapest=cheapest_of_each_market(passing, asked, catalog),
        unoffered=catalog.all_types & ~_types_of(nearest, catalog),
        near_misses={
            code: NearMisses.of(
                code,
                _types_of(nearest[mask[nearest]], catalog),
                mask & (missed_count == 1),
                asked,
                catalog,
            )
            for code, mask in misses.items()
        },
    )


def _types_of(offers: NDArray[Any], catalog: Catalog) -> TypeSet:
    types = catalog.offers.instance_type[offers]
    return types_where(np.bincount(types, minlength=len(catalog.instance_types)) > 0)


def first_of_run(column: NDArray[Any]) -> Mask:
    """Returns a mask of the rows whose value differs from that of the row before; the first row is one."""
    first = np.ones(len(column), np.bool_)
    np.not_equal(column[1:], column[:-1], out=first[1:])
    return first
