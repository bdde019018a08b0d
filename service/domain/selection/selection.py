"""The instance types and offers that a question admits, and the constraints that reject the others."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from service.domain.catalog.catalog import Catalog
from service.domain.codes import RejectionCode
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.offers import (
    PLACES,
    AdmittedOffers,
    CheapestOffers,
    NearMisses,
    OfferChoice,
    offer_choice,
)
from service.domain.selection.relax import (
    AddOfferWord,
    AllowUnknownRegion,
    BestOption,
    Check,
    FailedConstraint,
    Ground,
    KeepingOffers,
    RaisePriceAge,
    RaisePriceLimit,
    RelaxationRule,
)
from service.domain.typeset import TypeSet, in_any_and_in_one, union

OFFER_CODES: dict[str, Ground] = {
    RejectionCode.REGION: "constraint",
    RejectionCode.COUNTRY: "constraint",
    RejectionCode.CONTINENT: "constraint",
    RejectionCode.REGION_UNKNOWN: "data",
    RejectionCode.MARKET: "constraint",
    RejectionCode.SPOT_PRICE_UNKNOWN: "data",
    RejectionCode.MAX_PRICE_AGE_DAYS: "constraint",
    RejectionCode.PRICE_UNKNOWN: "data",
    RejectionCode.NO_OFFER: "data",
    RejectionCode.MAX_USD_PER_HOUR: "constraint",
    RejectionCode.USD_PER_HOUR_UNKNOWN: "data",
}
"""Codes of rejections by constraints on offers, with their grounds."""


class Selection(NamedTuple):
    """The offers that a question admits, and the constraints that reject the others."""

    admitted: AdmittedOffers
    failed: list[FailedConstraint]


def select(
    asked: Constraints, catalog: Catalog, more: Iterable[Check] = (), keeping: KeepingOffers | None = None
) -> Selection:
    """Checks all constraints on all instance types and offers, and `more` checks on all types.

    `keeping` finds the offers that keep the limits on the whole job; None if the job has no limits.
    """
    choice, limit = offer_choice(asked.of_offers, catalog), asked.max_usd_per_hour
    checks = [*type_checks(asked, catalog), *more]
    # Relaxing a check can only admit types that fail no other one.
    failing, failing_one = in_any_and_in_one(check.fails for check in checks)
    passing = choice.cheapest.restricted_to(catalog.all_types, limit)
    admitted, rejected = passing.only(~failing), passing.only(failing_one)
    by_limits = union(check.fails for check in checks if check.of_plans)
    if by_limits:
        by_limits &= ~union(check.fails for check in checks if not check.of_plans)
    rejected_types = _Rejected(catalog.all_types & ~admitted.types, failing, by_limits)
    helped = passing.only(failing_one | rejected_types.by_limits)
    failed = [
        FailedConstraint(
            check._replace(rule=None) if check.last_resort and admitted.types else check,
            rejected,
            helped if check.changes_plans else None,
        )
        for check in checks
        if check.fails
    ]
    by_offers = _failed_by_offers(asked, choice, rejected_types, keeping, catalog)
    return Selection(admitted, [*failed, *(constraint for constraint in by_offers if constraint.fails)])


class _Rejected(NamedTuple):
    """The types that a question rejects."""

    types: TypeSet
    failing: TypeSet
    """Types that fail a check; all others fail constraints on offers only."""
    by_limits: TypeSet
    """Types that fail no check but limits on the job, which they may keep with another offer."""


def _failed_by_offers(
    asked: Constraints, choice: OfferChoice, rejected: _Rejected, keeping: KeepingOffers | None, catalog: Catalog
) -> Iterator[FailedConstraint]:
    """Yields the constraints on offers that reject types; they alone reject a type that fails no check."""
    cheapest, limit, only_by_offers = choice.cheapest, asked.max_usd_per_hour, rejected.types & ~rejected.failing
    for code, near_misses in choice.near_misses.items():
        kept = _kept(near_misses.cheapest, keeping, limit)
        helped = near_misses.cheapest.restricted_to(only_by_offers | rejected.by_limits & (kept or 0), limit)
        fails = (rejected.types & near_misses.nearest & ~cheapest.types) | (helped.types & only_by_offers)
        rule = _offer_rule(code, near_misses, asked, keeping)
        # If a provider sells spot machines, a missing spot price is missing data and not a missed constraint.
        unknown = catalog.derive(sold_at_spot) if code == RejectionCode.MARKET and asked.market == ("spot",) else 0
        if unknown & fails:
            yield FailedConstraint(
                Check(RejectionCode.SPOT_PRICE_UNKNOWN, "data", fails & unknown, rule), helped, kept=kept
            )
        if fails & ~unknown:
            yield FailedConstraint(Check(code, OFFER_CODES[code], fails & ~unknown, rule), helped, kept=kept)
    unoffered = Check(RejectionCode.NO_OFFER, "data", rejected.types & choice.unoffered)
    yield FailedConstraint(unoffered, AdmittedOffers(cheapest, 0, limit))
    if limit is not None:
        too_expensive = cheapest.types & ~cheapest.within(limit)
        helped_types = only_by_offers | rejected.by_limits & (_kept(cheapest, keeping, None) or 0)
        unpriced = too_expensive & ~cheapest.priced
        helped = AdmittedOffers(cheapest, helped_types & too_expensive, None)
        priced, higher = too_expensive & ~unpriced, RaisePriceLimit(limit, keeping)
        yield FailedConstraint(
            Check(RejectionCode.MAX_USD_PER_HOUR, "constraint", priced, higher), helped.only(cheapest.priced)
        )
        # No limit admits an unknown price, so the limit is dropped, which admits every price.
        without = BestOption(unpriced, (({"max_usd_per_hour": None}, too_expensive),))
        yield FailedConstraint(Check(RejectionCode.USD_PER_HOUR_UNKNOWN, "data", unpriced, without), helped)


def _kept(offers: CheapestOffers, keeping: KeepingOffers | None, limit: float | None) -> TypeSet | None:
    """Returns the types that keep the limits on the job with one of the offers; None if the job has no limits."""
    return None if keeping is None else offers.types_at(keeping(offers), limit)


def sold_at_spot(catalog: Catalog) -> TypeSet:
    """Returns the types of providers that sell spot machines."""
    sellers = {id_ for id_, provider in catalog.reference.providers.items() if provider.spot_term}
    return catalog.types_that(lambda type_: type_.provider in sellers)


def _offer_rule(
    code: str, near_misses: NearMisses, asked: Constraints, keeping: KeepingOffers | None
) -> RelaxationRule | None:
    if code in (*PLACES, RejectionCode.MARKET):
        return AddOfferWord(code, getattr(asked, code), near_misses, asked.spot_refused, keeping)
    if code == RejectionCode.REGION_UNKNOWN:
        return AllowUnknownRegion(keeping)
    return RaisePriceAge(near_misses) if code == RejectionCode.MAX_PRICE_AGE_DAYS else None
