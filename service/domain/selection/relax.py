"""Checks of constraints, and rules to relax them: the smallest change of the question that admits more.

A check has a rule, which is plain data. Rules are applied when all checks of a question are known, because relaxing a
constraint only helps types that fail no other one.
"""

from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import numpy as np

from service.domain.arrays import Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.regions import regions_meant_by
from service.domain.jobs.job import Job
from service.domain.selection.offers import (
    AdmittedOffers,
    CheapestOffers,
    NearMisses,
    cheapest_of_each_market,
    within,
)
from service.domain.typeset import ThresholdIndex, TypeSet, union

KeepingOffers = Callable[[CheapestOffers], Mask]
"""Returns a mask of the offers that keep the limits on the whole job, such as a deadline."""

Preference = Callable[[AdmittedOffers], int | None]
"""Returns the type that the objective of the question prefers among offers; None if none keeps its limits."""

Ground = Literal["hardware", "software", "availability", "constraint", "data"]
"""Kinds of reasons of a rejection, as the API states them."""


class Relaxation(NamedTuple):
    """A change of the question, by request field, and the offers that it admits."""

    to: dict[str, object]
    admitted: AdmittedOffers
    work: "ChangeOfWork | None" = None
    """Change of the work that is ranked; None for a change of constraints alone."""
    instead: AdmittedOffers | None = None
    """The offers that replace all those that were admitted before; None if these stay."""


class ChangeOfWork(NamedTuple):
    """The part of a change of the question that changes its work, by which offers are ranked."""

    job: Job | None = None
    """The job with the change; None for the job of the question."""
    precisions: tuple[str, ...] = ()
    """Precisions of work without a job; empty for those of the question."""
    counts: tuple[int, ...] = ()
    """Numbers of nodes to try; empty for those of the question."""
    limits: Mapping[str, float | None] = MappingProxyType({})
    """Limits on the whole job that change, by field; None drops a limit."""
    resumes: bool = False
    """Whether the run can then resume after an interruption."""


RESUMING = ChangeOfWork(resumes=True)


class RelaxationRule(Protocol):
    """A way to relax one constraint."""

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        """Returns the smallest change that admits some of the rejected offers; None if no change does.

        `rejected` are the offers of all types that miss exactly one constraint, this one or another.
        """


class Check(NamedTuple):
    """One constraint and the instance types that fail it."""

    code: str
    """A `RejectionCode`, or one of `FILTER_CODES`."""
    ground: Ground
    fails: TypeSet
    rule: "RelaxationRule | AddWord | None" = None
    """None if no change of the question helps, because data or software is missing."""
    of_plans: bool = False
    """Whether it is a limit on the whole job, which types fail with the passing offers but may keep with others."""
    changes_plans: bool = False
    """Whether its relaxation changes the plans of a job, so that types may then keep several limits at once."""
    last_resort: bool = False
    """Whether it is relaxed only where nothing is admitted: its relaxation takes estimates of its own."""
    about: tuple[str, ...] = ()
    """Words of the question that types lack, such as the family of a model; empty: the code says it all."""
    hides_limits: bool = False
    """Whether the job has limits that cannot be compared with types that fail it, because it does not run there."""


class FailedConstraint(NamedTuple):
    """A constraint that rejects instance types, and the offers that a relaxation of it may admit."""

    check: Check
    rejected: AdmittedOffers
    """Offers of the types that miss exactly one constraint, this one or another."""
    helped: AdmittedOffers | None = None
    """Offers of the types that a relaxation of this constraint may admit; None: those of `rejected`."""
    kept: TypeSet | None = None
    """Types that keep the limits on the whole job with an offer of `rejected`; None: these count for no type."""

    @property
    def code(self) -> str:
        """The code of the check."""
        return self.check.code

    @property
    def fails(self) -> TypeSet:
        """Types that miss this constraint."""
        return self.check.fails

    @property
    def fails_alone(self) -> TypeSet:
        """Types that fail this constraint alone: they pass every other one, and keep the limits on the whole job."""
        alone = self.fails & self.rejected.types
        return alone if self.kept is None else alone & self.kept

    def relax(self, catalog: Catalog, preferred: Preference) -> Relaxation | None:
        """Returns the smallest change that admits some of the types; None if no change does."""
        rule, offers = self.check.rule, self.helped or self.rejected
        if rule is None or not self.fails & offers.types:
            return None
        return rule.relax(offers, preferred) if isinstance(rule, AddWord) else rule.relax(offers, catalog)


class AddWord(NamedTuple):
    """Adds a word to a list of words. Each word is an equally small change, so the objective decides between them."""

    field: str
    words: tuple[str, ...]
    fails: TypeSet
    types_of: Mapping[str, TypeSet]
    """Types that have each word. Of several words of a type, the first is added."""
    or_drop: bool = False
    """Whether to remove the constraint if the rejected types have no word."""
    made_for: Mapping[str, TypeSet] = MappingProxyType({})
    """Types that a word describes best. Such a word of a type is added before others."""

    def relax(self, rejected: AdmittedOffers, preferred: Preference) -> Relaxation | None:
        """Returns the list with the word of the preferred type; None if no type is preferred."""
        types = rejected.types & self.fails
        if not (with_word := types & union(self.types_of.values())):
            return Relaxation({self.field: []}, rejected.only(types)) if self.or_drop and types else None
        if (index := preferred(rejected.only(with_word))) is None:
            return None
        words = chain(self.made_for.items(), self.types_of.items())
        word = next(word for word, of_word in words if of_word >> index & 1)
        return Relaxation({self.field: [*self.words, word]}, rejected.only(types & self.types_of[word]))


class MoveLimit(NamedTuple):
    """Moves a limit to the nearest value that occurs."""

    field: str
    side: Literal["min", "max"]
    fails: TypeSet
    """Types that another limit can admit."""
    numbers: ThresholdIndex

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the limit at the nearest value of a rejected type; None if there is none."""
        types = rejected.types & self.fails
        if not types:
            return None
        if self.side == "min":
            limit = self.numbers.greatest(types)
            return Relaxation({self.field: limit}, rejected.only(types & ~self.numbers.below(limit)))
        limit = self.numbers.least(types)
        return Relaxation({self.field: limit}, rejected.only(types & self.numbers.at_most(limit)))


class BestOption(NamedTuple):
    """Makes the change that admits the most types, of the changes that admit a type which the constraint rejects."""

    fails: TypeSet
    options: tuple[tuple[Mapping[str, object], TypeSet], ...]
    """Changes, each with the types that pass after it. Of changes that admit equally many types, the first is made."""
    otherwise: Mapping[str, object] | None = None
    """The change to make if no option admits any type; it admits all of them."""

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the best change; None if none helps."""
        helpful = [(to, rejected.types & types) for to, types in self.options if rejected.types & types & self.fails]
        if helpful:
            to, types = max(helpful, key=lambda option: option[1].bit_count())
            return Relaxation(dict(to), rejected.only(types))
        return None if self.otherwise is None else Relaxation(dict(self.otherwise), rejected.only(self.fails))


def drop(to: Mapping[str, object], types: TypeSet) -> BestOption:
    """Returns the rule that removes a constraint by a change, which admits the types."""
    return BestOption(types, ((to, types),))


class DropLimits(NamedTuple):
    """Removes limits on the whole job, for types that cannot be shown to keep them."""

    fields: tuple[str, ...]
    fails: TypeSet
    misses: TypeSet
    """Types that run the job, of which no plan keeps all limits; some may keep the other ones."""

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the question without these limits; None if no type passes everything else."""
        if not rejected.types & self.fails:
            return None
        without = dict.fromkeys(self.fields)
        return Relaxation({**without}, rejected.only(self.misses), ChangeOfWork(limits=without))


# Rules for constraints on offers


class AddOfferWord(NamedTuple):
    """Adds the region, country, continent or market that admits the most types."""

    field: str
    """The constraint to extend: `region`, `country`, `continent` or `market`."""
    words: tuple[str, ...]
    near_misses: NearMisses
    spot_refused: bool = False
    keeping: KeepingOffers | None = None

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation | None:
        """Returns the added word that admits the most types; None if no offer keeps the limits on the job."""
        if self.keeping is None or self.spot_refused:
            # Questions that differ only in limits often have the same rejected offers, so the result is cached.
            part = rejected.tightened(catalog)
            code = catalog.derive(_most_frequent_code, self.near_misses, part, cache=catalog.outlooks)
        else:
            code = self.near_misses.most_frequent_code(_keeping_rows(rejected, self.keeping))
        if code is None:
            return None
        known = catalog.offer_words[self.field]
        word = known.words[code]
        meant = regions_meant_by(word, catalog) if self.field == "region" else (word,)
        codes = tuple(known.words.index(each) for each in meant if each in known.words)
        offers = self.near_misses.with_codes(codes, catalog)
        to: dict[str, object] = {self.field: [*self.words, word]}
        admitted = offers.restricted_to(rejected.types, rejected.limit)
        if not self.spot_refused or "spot" not in (word, *self.words):
            return Relaxation(to, admitted)
        # In a list of markets, spot only counts for a job that tolerates interruptions.
        if word == "spot":
            return Relaxation({**to, "workload.fault_tolerant": True}, admitted, RESUMING)
        return Relaxation(to, admitted, instead=offers.restricted_to(offers.types, rejected.limit))


def _most_frequent_code(_catalog: Catalog, near_misses: NearMisses, rejected: AdmittedOffers) -> int | None:
    return near_misses.most_frequent_code(rejected.rows)


class AllowUnknownRegion(NamedTuple):
    """Admits the offers whose region, country or continent is unknown."""

    keeping: KeepingOffers | None = None

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the change that admits these offers; None if none keeps the limits on the whole job."""
        if not len(_keeping_rows(rejected, self.keeping)):
            return None
        return Relaxation({"allow_unknown_region": True}, rejected)


class RaisePriceAge(NamedTuple):
    """Raises the limit on the age of prices to the lowest age that admits an offer."""

    near_misses: NearMisses

    def relax(self, rejected: AdmittedOffers, catalog: Catalog) -> Relaxation:
        """Returns the age of the newest price among the offers that fail by age alone; no limit if all are undated."""
        offers, indices = catalog.offers, self.near_misses.offers
        usd = catalog.hourly_usd(indices, self.near_misses.asked.managed_service)
        indices = indices[rejected.among(offers.instance_type[indices], usd)]
        ages = offers.age_days[indices]
        age = None if np.isnan(ages).all() else float(np.nanmin(ages))
        cheapest = cheapest_of_each_market(indices[within(ages, age)], self.near_misses.asked, catalog)
        return Relaxation({"max_price_age_days": age}, AdmittedOffers(cheapest, cheapest.types, rejected.limit))


class RaisePriceLimit(NamedTuple):
    """Raises the price limit to the lowest price above it that admits an offer."""

    limit: float
    keeping: KeepingOffers | None = None

    def relax(self, rejected: AdmittedOffers, _catalog: Catalog) -> Relaxation | None:
        """Returns the lowest price above the limit; None if there is none."""
        cheapest = rejected.cheapest
        if self.keeping is None:
            limit = cheapest.prices.least(rejected.types)  # all prices of the rejected types are above the limit
        else:
            usd = cheapest.usd[_keeping_rows(rejected, self.keeping)]
            limit = float(usd.min(initial=np.inf, where=usd > self.limit))
        admitted = cheapest.restricted_to(rejected.types, limit)
        return None if limit == np.inf else Relaxation({"max_usd_per_hour": limit}, admitted)


def _keeping_rows(offers: AdmittedOffers, keeping: KeepingOffers | None) -> Indices:
    """Returns the rows of offers that keep the limits on the whole job; all rows if there are no limits."""
    rows = offers.rows
    return rows if keeping is None else rows[keeping(offers.cheapest)[rows]]
