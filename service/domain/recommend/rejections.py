"""The rejections of an answer with what would admit more, and the offers nearest to the limits of a job."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.codes import RejectionCode
from service.domain.recommend.answer import (
    Explained,
    Limits,
    RankedOffer,
    Rejection,
    RelaxationOutcome,
)
from service.domain.recommend.basis import Basis, PeakBasis, best_by, rank_by, ranked_offer, select_by
from service.domain.recommend.objective import OBJECTIVES
from service.domain.recommend.plans import plans_of
from service.domain.recommend.ranking import Ranked
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers
from service.domain.selection.relax import RESUMING, FailedConstraint, Relaxation
from service.domain.selection.requirements import Requirements
from service.domain.selection.selection import OFFER_CODES, Selection
from service.domain.typeset import TypeSet, first_of, union

SOME = 3
"""Most instance types that a rejection names."""

HOPELESS = 100.0
"""Weight of a missed constraint that no change of the question can relax; other constraints weigh 1."""

HIDDEN = 1.5
"""Weight of the limits on a job, time and money, where they are not compared with a type: it may miss one or both."""


def rejections(basis: Basis, selection: Selection, catalog: Catalog) -> tuple[Rejection, ...]:
    """Returns the rejections of a selection: those with the most types first, and equal ones by code."""
    resuming = next((each for each in selection.failed if each.code == RejectionCode.INTERRUPTIONS), None)
    now = selection.admitted.types
    rejected = [_rejection(basis, constraint, resuming, now, catalog) for constraint in selection.failed]
    return tuple(sorted(rejected, key=lambda rejection: (-rejection.rejects, rejection.code)))


def priced_first(
    rejected: Sequence[Rejection], priced: Sequence[Rejection], without_price: int
) -> tuple[Rejection, ...]:
    """Returns rejections by hardware alone, in which relaxations that admit something with a price take precedence.

    Once something with a price is admitted, machines without a known price are no longer ranked, so that such a
    relaxation drops the types that are admitted `without_price`. A change that admits a machine without a price by
    hardware alone, and nothing once prices count, is left out, because its result is unknown.
    """
    unpriced = {
        rejection.code: rejection.relaxation
        for rejection in rejected
        if rejection.relaxation and not rejection.relaxation.has_price
    }
    relaxations = unpriced | {
        each.code: each.relaxation._replace(drops=without_price) for each in priced if each.relaxation
    }
    return tuple(rejection._replace(relaxation=relaxations.get(rejection.code)) for rejection in rejected)


class NearestMiss(NamedTuple):
    """The instance type that misses the fewest constraints, and the codes of their rejections."""

    instance: str
    codes: tuple[str, ...]


def nearest_miss(selection: Selection, rejected: Sequence[Rejection], catalog: Catalog) -> NearestMiss | None:
    """Returns the type that misses the fewest constraints; None if something is admitted, if one change admits
    something, or if the catalog of the day has no instance types.

    Constraints that no change of the question relaxes, such as those on data or hardware, count more. So do types on
    which the job does not run, or which no offer admits, since they have no hours or cost to compare with its limits.
    Of types that miss equally few, the one with the most memory is returned, since most jobs that fit nowhere lack
    memory.
    """
    is_helped = any(rejection.relaxation is not None for rejection in rejected)
    if selection.admitted.types or is_helped or not catalog.instance_types:
        return None
    missed = np.zeros(len(catalog.instance_types))
    for constraint in selection.failed:
        missed += catalog.mask(constraint.fails) * (1.0 if constraint.check.rule is not None else HOPELESS)
    hiding = (each.fails for each in selection.failed if each.check.hides_limits or each.code in OFFER_CODES)
    missed += HIDDEN * catalog.mask(union(hiding))
    memory = np.nan_to_num(catalog.columns.numbers["total_gpu_memory_gb"])
    index = int(np.lexsort((-memory, missed))[0])
    codes = (constraint.code for constraint in selection.failed if constraint.fails >> index & 1)
    return NearestMiss(catalog.instance_types[index].id, tuple(codes))


class Nearest(NamedTuple):
    """The offers nearest to a deadline and a budget that no offer keeps both."""

    in_time: RankedOffer | None
    """The cheapest in time; None if none is."""
    in_budget: RankedOffer | None
    """The fastest within the budget; None if none is."""
    fastest: RankedOffer | None
    """The fastest of all, if none is in time."""
    cheapest: RankedOffer | None
    """The cheapest of all, if none is within the budget."""


def nearest(basis: Basis, constraints: Constraints, needs: Requirements, catalog: Catalog) -> Nearest | None:
    """Returns the offers nearest to the deadline and to the budget; None without both limits, or without any offer."""
    if isinstance(basis, PeakBasis):
        return None
    limits = basis.limits
    if limits.deadline_hours is None or limits.budget_usd is None:
        return None

    def cheapest(limits: Limits) -> RankedOffer | None:
        under = basis.under(OBJECTIVES["cheapest"]).within(limits)
        ranked = _keeping(under, constraints, needs, catalog)
        # Budgets limit the likely cost, whereas an old price ranks at its high end.
        row = int(np.nan_to_num(ranked.cost, nan=np.inf).argmin()) if len(ranked.cost) else 0
        return _row(under, ranked, row, catalog)

    def fastest(limits: Limits) -> RankedOffer | None:
        under = basis.under(OBJECTIVES["fastest"]).within(limits)
        return _row(under, _keeping(under, constraints, needs, catalog), 0, catalog)

    in_time, in_budget = cheapest(limits._replace(budget_usd=None)), fastest(limits._replace(deadline_hours=None))
    free = limits._replace(deadline_hours=None, budget_usd=None)
    offers = Nearest(in_time, in_budget, None if in_time else fastest(free), None if in_budget else cheapest(free))
    return offers if any(offers) else None


def _keeping(basis: Basis, constraints: Constraints, needs: Requirements, catalog: Catalog) -> Ranked:
    return rank_by(basis, select_by(basis, constraints, needs, catalog).admitted, catalog).keeping_limits()


def _row(basis: Basis, ranked: Ranked, row: int, catalog: Catalog) -> RankedOffer | None:
    return ranked_offer(basis, ranked, row, catalog) if len(ranked.score) else None


def _rejection(
    basis: Basis, constraint: FailedConstraint, resuming: FailedConstraint | None, now: TypeSet, catalog: Catalog
) -> Rejection:
    alone, relaxation = constraint.fails_alone, _relaxed(basis, constraint, resuming, catalog)
    if constraint.check.hides_limits:
        alone &= 0 if relaxation is None else relaxation.admitted.types
    return Rejection(
        code=constraint.code,
        ground=constraint.check.ground,
        rejects=constraint.fails.bit_count(),
        only_this=alone.bit_count(),
        relaxation=None if relaxation is None else _outcome(basis, relaxation, now, catalog),
        instances=tuple([catalog.ids[index] for index in first_of(alone or constraint.fails, SOME)]),
        about=constraint.check.about,
    )


def _relaxed(
    basis: Basis, constraint: FailedConstraint, resuming: FailedConstraint | None, catalog: Catalog
) -> Relaxation | None:
    """Returns the relaxation of a constraint with all types that it admits.

    A relaxation of the market may let the run resume. It then also admits the types that `resuming` alone rejects, on
    which the run would otherwise never end.
    """
    preferred = partial(_preferred, basis, catalog)
    relaxation = constraint.relax(catalog, preferred)
    if relaxation is None or resuming is None or constraint is resuming or relaxation.work != RESUMING:
        return relaxation
    resumed = resuming.relax(catalog, preferred)
    if resumed is None:
        return relaxation
    return relaxation._replace(admitted=relaxation.admitted.joined(resumed.admitted, catalog))


def _preferred(basis: Basis, catalog: Catalog, offers: AdmittedOffers) -> int | None:
    """Returns the type with the best of these offers by the objective; None if none keeps the limits on the job."""
    admitted = _keeping_limits(basis, offers, catalog)
    if not admitted.types:
        return None
    ranked, row = best_by(basis, admitted, catalog)
    return int(ranked.instance_type[row])


def _keeping_limits(basis: Basis, admitted: AdmittedOffers, catalog: Catalog) -> AdmittedOffers:
    """Returns the offers of the types on which the job keeps its own limits with one of these offers."""
    if isinstance(basis, PeakBasis):
        return admitted
    keeps = plans_of(basis, admitted.cheapest, catalog).keeps
    return admitted.only(admitted.cheapest.types_at(keeps, admitted.limit))


def explained(names: Sequence[str], selection: Selection, catalog: Catalog) -> tuple[Explained, ...]:
    """Returns for each instance type whether it is admitted, and every ground on which it fails."""
    indices = [catalog.index_of[name] for name in names]
    checks = [failed.check for failed in selection.failed]
    return tuple(
        Explained(
            instance=name,
            admitted=bool(selection.admitted.types >> index & 1),
            grounds=tuple((check.code, check.ground) for check in checks if check.fails >> index & 1),
        )
        for name, index in zip(names, indices, strict=True)
    )


def _outcome(basis: Basis, relaxation: Relaxation, now: TypeSet, catalog: Catalog) -> RelaxationOutcome | None:
    """Returns the result of a relaxation, of a question that admits some types `now`; None if it admits no other."""
    to, admitted, change, instead = relaxation
    if change is not None:
        # No plans and ranks of other types are known after the change.
        basis, admitted = basis.after(change, admitted.types, catalog), admitted.alone(catalog)
    admitted = _keeping_limits(basis, admitted, catalog)
    if not admitted.types:
        return None
    best = ranked_offer(basis, *best_by(basis, admitted, catalog), catalog)
    return RelaxationOutcome(
        to=to,
        admits=admitted.types.bit_count(),
        instance_type=best.instance_type,
        region=best.offer.region,
        market=best.offer.market,
        usd_per_hour=best.usd_per_hour,
        has_price=bool(admitted.types & admitted.cheapest.priced),
        drops=0 if instead is None else (now & ~_keeping_limits(basis, instead, catalog).types).bit_count(),
    )
