"""Checks of single constraints, and how each can be relaxed: the smallest change of the question that admits more.

A check holds a rule, which is plain data. The rule is applied once all checks of a question are known, because only
types that miss a single constraint are admitted by relaxing it.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

import numpy as np

from service.domain.arrays import Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.selection.offers import (
    AdmittedOffers,
    CheapestOffers,
    NearMisses,
    cheapest_of_each_market,
    within,
)
from service.domain.typeset import ThresholdIndex, TypeSet, WordIndex

KeepingOffers = Callable[[CheapestOffers], Mask]
"""Returns which of some offers keep the limits on the whole job."""

Ground = Literal["hardware", "software", "availability", "constraint", "data"]


class Relaxation(NamedTuple):
    """A change of the question, by request field, and the offers that it admits."""

    to: dict[str, object]
    admitted: AdmittedOffers


class RelaxationRule(Protocol):
    """A way to relax one constraint."""

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        """Returns the smallest change that admits some of the rejected offers; null if no change does.

        The rejected offers are those of types that miss exactly one constraint, this one or another.
        """


class Check(NamedTuple):
    """One constraint and the instance types that fail it."""

    code: str
    ground: Ground
    fails: TypeSet
    rule: RelaxationRule | None = None
    """Null if no change of the question helps, because data or software is missing."""
    of_plans: bool = False
    """Whether types fail it with the offers that pass, and may not with others."""
    changes_plans: bool = False
    """Whether its relaxation changes the plans of a job, so that types may keep several limits that they miss."""
    last_resort: bool = False
    """Whether it is relaxed only where nothing is admitted: its relaxation takes estimates of its own."""


class FailedConstraint(NamedTuple):
    """A constraint that rejects instance types."""

    code: str
    ground: Ground
    fails: TypeSet
    """Types that miss this constraint."""
    rejected: AdmittedOffers
    """Offers of the types that miss exactly one constraint, this one or another."""
    rule: RelaxationRule | None = None
    helped: AdmittedOffers | None = None
    """Offers of the types that a relaxation of this constraint may admit, where they are more than `rejected`."""

    @property
    def alone(self) -> TypeSet:
        """Types that miss this constraint and no other."""
        return self.fails & self.rejected.types

    def relax(self, catalog: Catalog) -> Relaxation | None:
        """Returns the smallest change that admits some of the types; null if no change does."""
        return self.rule.relax(self.helped or self.rejected, catalog) if self.rule and self.alone else None


class AddWord(NamedTuple):
    """Adds the word that admits the most types to a list of words."""

    field: str
    words: tuple[str, ...]
    fails: TypeSet
    vocabulary: WordIndex
    """Types that have each word. Among words that admit equally many types, the first is added."""
    or_drop: bool = False
    """Whether to remove the constraint if no word admits anything."""
    own: WordIndex | None = None
    """Types by the word that describes each of them best. Where there are any, the word is chosen by them."""

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the change to the list of words; None where no word helps."""
        types = rejected.types & self.fails
        word = (None if self.own is None else self.own.most_frequent(types)) or self.vocabulary.most_frequent(types)
        if word is not None:
            return Relaxation({self.field: [*self.words, word]}, rejected.only(types & self.vocabulary.types_of[word]))
        return Relaxation({self.field: []}, rejected.only(types)) if self.or_drop else None


class MoveLimit(NamedTuple):
    """Moves a limit to the nearest value that occurs."""

    field: str
    side: Literal["min", "max"]
    fails: TypeSet
    """Types that another limit may admit."""
    numbers: ThresholdIndex

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the limit that admits a type at the nearest value."""
        types = rejected.types & self.fails
        if not types:
            return None
        if self.side == "min":
            limit = self.numbers.greatest(types)
            return Relaxation({self.field: limit}, rejected.only(types & ~self.numbers.below(limit)))
        limit = self.numbers.least(types)
        return Relaxation({self.field: limit}, rejected.only(types & self.numbers.at_most(limit)))


class BestOption(NamedTuple):
    """Makes the change that admits the most types, at least one of which fails the constraint."""

    fails: TypeSet
    options: tuple[tuple[Mapping[str, object], TypeSet], ...]
    """Changes and the types that pass after each. Among changes that admit equally many types, the first is made."""
    otherwise: Mapping[str, object] | None = None
    """The change that admits all types, for when no option admits any."""

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the best change; None where none helps."""
        helpful = [(to, rejected.types & types) for to, types in self.options if rejected.types & types & self.fails]
        if helpful:
            to, types = max(helpful, key=lambda option: option[1].bit_count())
            return Relaxation(dict(to), rejected.only(types))
        return None if self.otherwise is None else Relaxation(dict(self.otherwise), rejected.only(self.fails))


def drop(to: Mapping[str, object], types: TypeSet) -> BestOption:
    """Returns the rule that removes a constraint, which admits the types."""
    return BestOption(types, ((to, types),))


# Rules for constraints on offers


class AddOfferWord(NamedTuple):
    """Adds the region, country, continent or market that admits the most types."""

    field: str
    """`region`, `country`, `continent` or `market`."""
    words: tuple[str, ...]
    near_misses: NearMisses
    spot_refused: bool = False
    keeping: KeepingOffers | None = None

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        """Returns the added word that admits the most types; None where no offer keeps the other constraints."""
        if self.keeping is None or self.spot_refused:
            # Most questions that differ in limits alone leave the same offers to choose from.
            part = rejected.tightened(catalog)
            most = catalog.derive(_most_frequent_code, self.near_misses, part, cache=catalog.outlooks)
        else:
            most = self.near_misses.most_frequent_code(_keeping_rows(rejected, self.keeping))
        if most is None:
            return None
        word = catalog.offer_words[self.field].words[most]
        offers = self.near_misses.with_code(most, catalog)
        to: dict[str, object] = {self.field: [*self.words, word]}
        # Spot is left out of several markets, unless the job can resume.
        if self.spot_refused and "spot" in (word, *self.words):
            to["workload.fault_tolerant"] = True
        return Relaxation(to, offers.candidates(rejected.types, rejected.limit))


def _most_frequent_code(_catalog: Catalog, near_misses: NearMisses, rejected: AdmittedOffers) -> int | None:
    return near_misses.most_frequent_code(rejected.rows)


class AllowUnknownRegion(NamedTuple):
    """Admits the offers whose region, country or continent is unknown."""

    keeping: KeepingOffers | None = None

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the change that admits these offers; null if none keeps the limits on the whole job."""
        if not len(_keeping_rows(rejected, self.keeping)):
            return None
        return Relaxation({"allow_unknown_region": True}, rejected)


class RaisePriceAge(NamedTuple):
    """Raises the age limit of prices to the lowest age that admits something."""

    near_misses: NearMisses

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation:
        """Returns the age of the newest price among the offers that fail by age alone."""
        offers, indices = catalog.offers, self.near_misses.offers
        indices = indices[rejected.among(offers.instance_type[indices], offers.usd_per_hour[indices])]
        ages = offers.age_days[indices]
        age = None if np.isnan(ages).all() else float(np.nanmin(ages))
        by_region = self.near_misses.by_region
        cheapest = cheapest_of_each_market(indices[within(ages, age)], catalog, by_region=by_region)
        return Relaxation({"max_price_age_days": age}, AdmittedOffers(cheapest, cheapest.types, rejected.limit))


class RaisePriceLimit(NamedTuple):
    """Raises the price limit to the lowest price above it that admits something."""

    limit: float
    keeping: KeepingOffers | None = None

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the lowest price above the limit; None where there is none."""
        cheapest = rejected.cheapest
        if self.keeping is None:
            limit = cheapest.prices.least(rejected.types)  # all prices of the rejected types are above the limit
        else:
            usd = cheapest.usd[_keeping_rows(rejected, self.keeping)]
            limit = float(usd.min(initial=np.inf, where=usd > self.limit))
        admitted = cheapest.candidates(rejected.types, limit)
        return None if limit == np.inf else Relaxation({"max_usd_per_hour": limit}, admitted)


def _keeping_rows(offers: AdmittedOffers, keeping: KeepingOffers | None) -> Indices:
    """Returns the rows of offers that keep the limits on the whole job; all rows if there are none."""
    rows = offers.rows
    return rows if keeping is None else rows[keeping(offers.cheapest)[rows]]
