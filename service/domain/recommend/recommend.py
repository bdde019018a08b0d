"""The answer to a question, in four steps: select, rank, complete, relax."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.domain.arrays import Indices
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import Prior
from service.domain.codes import AdviceCode, NoteCode, RejectionCode
from service.domain.recommend.advice import advise, situation_of
from service.domain.recommend.answer import (
    Answer,
    Choice,
    CitedPrior,
    Note,
    Question,
    RankedOffer,
    Ties,
    WorkContext,
)
from service.domain.recommend.basis import Basis, basis_of, best_of_types, rank_by, ranked_offer, select_by
from service.domain.recommend.choices import Completer, compared
from service.domain.recommend.notes import notes_on
from service.domain.recommend.objective import Objective
from service.domain.recommend.priors import applying_priors, cited_priors, usual_gpus
from service.domain.recommend.ranking import (
    Ranked,
    fallbacks,
    ties,
    with_prices,
)
from service.domain.recommend.rejections import explained, nearest, nearest_miss, priced_first, rejections
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers, CheapestOffers, passing_offers
from service.domain.selection.requirements import Requirements
from service.domain.selection.selection import Selection, select
from service.domain.selection.upgrades import Upgrades
from service.domain.statement import Statement
from service.domain.typeset import types_where

MAX_TIES = 20
"""Number of choices beyond the shown ones that are compared for ties."""

MOST_KEPT = 5
"""Length of the longest answer whose choices are kept for later questions: each choice takes about 8 KB."""

BY_HARDWARE = Objective({"fewer_gpus": 1.0, "hours": 0.1})
"""Replaces `cheapest` for a job where no price is known: few GPUs cost little, and fast ones run for few hours."""

BY_LEAST_HARDWARE = Objective({"fewer_gpus": 1.0, "lower_peak": 0.1})
"""Replaces `cheapest` for an hour of any work where no price is known: fewer and weaker GPUs cost less."""

BY_SPEED_OF_A_GPU = Objective({"fewer_gpus": 1.0, "hours": 1.0})
"""Replaces `best_value` where no price is known: the work that one GPU does."""


def recommend(question: Question, catalog: Catalog) -> Answer:
    """Returns the ranked choices that the constraints admit, and the rejections with the changes that admit more.

    If nothing admitted has a price, the ranking is by hardware alone and the answer says so.
    """
    basis, constraints, needs = basis_of(question, catalog), question.constraints, question.work.needs
    selection, rejected_priced = select_by(basis, constraints, needs, catalog), None
    if _lacks_prices(question, selection):
        unpriced = constraints._replace(needs_price=False)
        by_hardware = basis.under(_without_price(question, basis, catalog))
        without_price = select_by(by_hardware, unpriced, needs, catalog)
        if without_price.admitted.types or _lacks_only_prices(without_price):
            # The rejections while prices count also have the changes that admit something with a price.
            rejected_priced = rejections(basis, selection, catalog)
            basis, constraints, selection = by_hardware, unpriced, without_price
    admitted = selection.admitted.tightened(catalog)
    later = _for_later(basis, constraints, needs, admitted, catalog)
    leading = _leading(basis, question, constraints, admitted, later, catalog)
    choices, current, rented = leading.choices, None, _current(basis, question, catalog)
    if rented is not None:
        completer = Completer(question.work, basis, leading.ranked, catalog)
        current = completer.complete(rented)
        choices = tuple(compared(choice, current, question.work) for choice in choices)
    near = None if admitted.types else nearest(basis, constraints, needs, catalog)
    rejected = rejections(basis, selection, catalog)
    if rejected_priced is not None:
        rejected = priced_first(rejected, rejected_priced, admitted.types.bit_count())
    miss, price_ignored = nearest_miss(selection, rejected, catalog), rejected_priced is not None and bool(choices)
    notes = notes_on(question, admitted, rejected, leading.priors, near, miss, catalog, price_ignored=price_ignored)
    return Answer(
        choices=choices,
        rejections=rejected,
        considered=len(catalog.instance_types),
        admitted=admitted.types.bit_count(),
        ranked=leading.ranked,
        current=current,
        current_explained=None if rented is None else explained((rented.instance_type.id,), selection, catalog)[0],
        price_ignored=price_ignored,
        advice=leading.advice,
        notes=(*_changed_objective(question, basis, constraints, choices, catalog), *notes),
        priors=leading.priors,
        explained=explained(question.explain, selection, catalog),
    )


def _without_price(question: Question, basis: Basis, catalog: Catalog) -> Objective:
    cheapest = BY_LEAST_HARDWARE if question.asks_for_least_hardware else BY_HARDWARE
    objective = BY_SPEED_OF_A_GPU if basis.objective.weights.get("samples_per_usd") else cheapest
    return replace(objective, usual_gpus=usual_gpus(question, catalog))


def _lacks_prices(question: Question, selection: Selection) -> bool:
    """Returns whether nothing is admitted, and some types only because their prices are unknown."""
    return (
        question.constraints.needs_price
        and not selection.admitted.types
        and not question.limits.in_dollars
        and any(constraint.code == RejectionCode.PRICE_UNKNOWN for constraint in selection.failed)
    )


def _lacks_only_prices(selection: Selection) -> bool:
    """Returns whether some types fail only `max_usd_per_hour`, and the prices of all of these are unknown."""
    alone = {constraint.code for constraint in selection.failed if constraint.fails_alone}
    return RejectionCode.USD_PER_HOUR_UNKNOWN in alone and RejectionCode.MAX_USD_PER_HOUR not in alone


def _changed_objective(
    question: Question, basis: Basis, constraints: Constraints, choices: tuple[Choice, ...], catalog: Catalog
) -> Iterator[Note]:
    """Yields the first choice under the objective of an earlier question, compared with the first choice now."""
    if question.previous_objective is None or not choices:
        return
    # Objectives differ in the figures that they need, so that they do not admit the same machines.
    before, objective = basis.under(question.previous_objective), question.previous_objective
    asked = constraints._replace(needs_price=objective.needs("price") or question.limits.in_dollars)
    admitted = select_by(before, asked, question.work.needs, catalog).admitted
    ranked = rank_by(before, admitted, catalog).keeping_limits()
    if len(ranked.score):
        figures = {"before": ranked_offer(before, ranked, 0, catalog), "after": choices[0]}
        yield Note(NoteCode.OBJECTIVE_CHANGED, ("previous_objective",), figures)


@dataclass(frozen=True, slots=True)
class _Leading:
    """The first choices of a ranking, the number of all its choices, advice, and rules of thumb with verdicts."""

    choices: tuple[Choice, ...]
    ranked: int
    advice: tuple[Statement[AdviceCode], ...]
    priors: tuple[CitedPrior, ...]


def _for_later(
    basis: Basis, constraints: Constraints, needs: Requirements, admitted: AdmittedOffers, catalog: Catalog
) -> AdmittedOffers:
    """Returns the offers to which the work may move later: with other hardware, under all other constraints."""
    later = constraints.for_later
    return admitted if later == constraints else select_by(basis, later, needs, catalog).admitted.tightened(catalog)


def _upgrades(basis: Basis, later: AdmittedOffers, catalog: Catalog) -> Upgrades:
    best = best_of_types(basis, later, catalog)
    usd = np.full(len(catalog.instance_types), np.nan)
    usd[best.instance_type] = np.where(np.isfinite(best.usd), best.usd, np.nan)
    types = np.zeros(len(usd), np.bool_)
    types[best.instance_type] = True
    return Upgrades(types_where(types), usd, basis.rate)


def _leading(
    basis: Basis, question: Question, constraints: Constraints, admitted: AdmittedOffers, later: AdmittedOffers,
    catalog: Catalog,
) -> _Leading:  # fmt: skip
    types, limit, priors = admitted.types, question.limit, applying_priors(question, catalog)
    if not (question.per_offer or question.diversify):
        asked = (question.work, basis, admitted, later, priors, limit)
        if limit > MOST_KEPT:
            return _best_types(catalog, *asked)
        # Cached, because many questions differ only in limits and admit the same offers.
        return catalog.derive(_best_types, *asked, cache=catalog.outlooks)
    offers = passing_offers(constraints.of_offers, types, constraints.max_usd_per_hour, catalog)
    ranked = rank_by(basis, offers, catalog).keeping_limits()
    if question.diversify:
        ranked, limit = _diverse_first(ranked, question, catalog)
    count = len(ranked.score) if question.per_offer else types.bit_count()
    cited = cited_priors(priors, basis, best_of_types(basis, admitted, catalog), question.work, catalog)
    return _completed(question.work, basis, ranked, later, count, limit, cited, catalog)


def _best_types(
    catalog: Catalog, work: WorkContext, basis: Basis, admitted: AdmittedOffers, later: AdmittedOffers,
    priors: Sequence[Prior], limit: int,
) -> _Leading:  # fmt: skip
    """Returns the best offer of each of the best types."""
    ranked = best_of_types(basis, admitted, catalog)
    cited = cited_priors(priors, basis, ranked, work, catalog)
    return _completed(work, basis, ranked, later, admitted.types.bit_count(), limit, cited, catalog)


def _completed(
    work: WorkContext, basis: Basis, ranked: Ranked, later: AdmittedOffers, count: int, limit: int,
    cited: tuple[CitedPrior, ...], catalog: Catalog,
) -> _Leading:  # fmt: skip
    completer = Completer(work, basis, count, catalog)
    choices = tuple(completer.complete(offer) for offer in _ranked_offers(basis, ranked, limit, catalog))
    situation = situation_of(work, choices, _upgrades(basis, later, catalog), catalog)
    return _Leading(choices, count, advise(situation, catalog), cited)


def _diverse_first(ranked: Ranked, question: Question, catalog: Catalog) -> tuple[Ranked, int]:
    """Returns the ranking with offers first that differ in the domains that can fail together, and their number.

    These domains are family, region and market.
    """
    offers, types, words = catalog.offers, ranked.instance_type, catalog.columns.words
    # Regions of two providers are different ones, also where both have the same name or none, which is -1.
    region = words["provider"].codes[types] * (len(offers.places) + 1) + offers.region[ranked.offer]
    domains = (words["family"].codes[types], region, offers.market[ranked.offer])
    first = fallbacks(ranked.score, domains, question.limit, None if question.per_offer else types)
    # The others stay in the ranking, because a choice is compared with all of them.
    others = np.setdiff1d(np.arange(len(ranked.score)), first)
    return ranked.rows(np.concatenate((first, others))), len(first)


def _ranked_offers(basis: Basis, ranked: Ranked, limit: int, catalog: Catalog) -> list[RankedOffer]:
    front = ranked.front(limit)
    tied = _ties(basis, ranked, len(front), catalog)
    return [ranked_offer(basis, ranked, row, catalog, tied[row], pareto=on_front) for row, on_front in enumerate(front)]


def _ties(basis: Basis, ranked: Ranked, shown: int, catalog: Catalog) -> list[Ties]:
    """Returns for each of the shown rows those within the uncertainty of its estimate."""
    scores = ranked.score[: shown + MAX_TIES].tolist()
    estimates = basis.uncertain(ranked, scores, catalog)
    rivals = with_prices(estimates, basis.objective.weight_of("price"), catalog.offers, ranked.offer[: len(scores)])
    return [Ties.among(ranks, shown) for ranks in ties(rivals, shown)]


def _current(basis: Basis, question: Question, catalog: Catalog) -> RankedOffer | None:
    """Returns the caller's current machine at its cheapest offer in the requested regions, countries and markets.

    Where it has none there, its cheapest offer in the requested markets counts, or else that of all.
    """
    name, asked = question.work.current_instance, question.constraints
    if name is None:
        return None
    anywhere = Constraints(words={"instance": (name,)}, market=asked.market)
    there = anywhere._replace(
        region=asked.region,
        country=asked.country,
        continent=asked.continent,
        allow_unknown_region=asked.allow_unknown_region,
    )
    wider = (there, anywhere, anywhere._replace(market=()))
    offers = next((each for constraints in wider if len(each := _offers_within(constraints, catalog))), None)
    if offers is None:
        return None
    cheapest = int(offers[np.argmin(np.nan_to_num(catalog.offers.usd_per_hour_at(offers), nan=np.inf))])
    candidates = CheapestOffers.of(np.array([cheapest]), question.managed_service, catalog)
    return replace(ranked_offer(basis, basis.order(candidates, catalog), 0, catalog), rank=0, score=0.0)


def _offers_within(constraints: Constraints, catalog: Catalog) -> Indices:
    admitted = select(constraints, catalog).admitted
    return admitted.cheapest.offer[admitted.rows]
