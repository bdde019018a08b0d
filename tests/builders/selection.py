"""Relaxations of a check that is the only one that types fail."""

from service.domain.catalog.catalog import Catalog
from service.domain.selection.offers import AdmittedOffers, OfferConstraints, offer_choice
from service.domain.selection.relax import Check, Relaxation
from service.domain.typeset import TypeSet


def relaxed_check(check: Check, catalog: Catalog, types: TypeSet | None = None) -> Relaxation | None:
    """The relaxation of a check if some types, by default all, fail no other."""
    offers = offer_choice(OfferConstraints(), catalog).cheapest
    rejected = AdmittedOffers(offers, catalog.everyone if types is None else types, None)
    return check.rule.relax(rejected, catalog) if check.rule else None
