"""Questions in the catalog's words, and what tests compare of their answers, sets of types and relaxations."""

from math import inf
from typing import Any

from service.domain.catalog.catalog import Catalog
from service.domain.recommend.answer import Answer, Question, WorkContext
from service.domain.selection.offers import AdmittedOffers, OfferConstraints, offer_choice
from service.domain.selection.relax import Check, FailedConstraint, Preference, Relaxation
from service.domain.typeset import TypeSet, first_of


def first_type(offers: AdmittedOffers) -> int | None:
    """The first of the types, as the one that an objective prefers."""
    return next(iter(first_of(offers.types, 1)), None)


def relaxed_check(
    check: Check, catalog: Catalog, types: TypeSet | None = None, preferred: Preference = first_type
) -> Relaxation | None:
    """The relaxation of a check if some types, by default all, fail no other."""
    offers = offer_choice(OfferConstraints(), catalog).cheapest
    rejected = AdmittedOffers(offers, catalog.all_types if types is None else types, None)
    return FailedConstraint(check, rejected).relax(catalog, preferred)


def question_of(**given: Any) -> Question:
    """The question with these fields, some of which belong to its work; that has the providers of its constraints."""
    constraints = given["constraints"]
    of_work = {"providers": constraints.words.get("provider", ()), "part_of_gpu": constraints.part_of_gpu}
    of_work |= _of_work(given)
    return Question(WorkContext(**of_work), **given)


def changed_question(question: Question, **given: Any) -> Question:
    """The question with other fields, some of which belong to its work."""
    return question._replace(work=question.work._replace(**_of_work(given)), **given)


def _of_work(given: dict[str, Any]) -> dict[str, Any]:
    """Takes the fields that belong to the work out of those given."""
    return {name: given.pop(name) for name in WorkContext._fields if name in given}


def names_of(types: TypeSet, of: Catalog) -> set[str]:
    """The names of a set of instance types."""
    return {kind.name for place, kind in enumerate(of.instance_types) if types >> place & 1}


def rank_of(answer: Answer, place: int) -> float:
    """The rank of the offer at an index of the catalog; infinity if it is not among the choices."""
    return next((choice.rank for choice in answer.choices if choice.index == place), inf)


def rejects_by_code(answer: Answer) -> dict[str, int]:
    """How many instance types each constraint rejects."""
    return {rejection.code: rejection.rejects for rejection in answer.rejections}
