"""Published rules of thumb, each with a verdict on whether an answer follows or overrules it, and figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import Prior
from service.domain.recommend.answer import CitedPrior, Question, RankedOffer, WorkContext
from service.domain.recommend.basis import Basis, ranked_offer
from service.domain.recommend.choices import criterion_figures
from service.domain.recommend.objective import OBJECTIVES
from service.domain.recommend.ranking import Ranked

OTHERS = ("*",)


def cited_priors(
    applying: Sequence[Prior], basis: Basis, ranked: Ranked, context: WorkContext, catalog: Catalog
) -> tuple[CitedPrior, ...]:
    """Returns the verdicts on the rules of thumb that the ranking can follow or overrule, in their order."""
    if not applying or not len(ranked.score):
        return ()
    rows = _first_rows(ranked, catalog)
    first = ranked_offer(basis, ranked, 0, catalog)
    cited: list[CitedPrior] = []
    for prior in applying:
        if prior.groups:
            cited += _on_ranking(prior, rows, basis, ranked, catalog)
        elif prior.min_gpus is not None:
            cited.append(_on_gpus(prior, prior.min_gpus, first))
        else:
            cited.append(_on_hours(prior, first))
    return tuple(_with_figures(each, basis, context) for each in cited)


def _with_figures(cited: CitedPrior, basis: Basis, context: WorkContext) -> CitedPrior:
    criteria = basis.objective.criteria
    figures = [next(criterion_figures(offer, criteria, context), ("risk", None)) for offer in cited.compared]
    return replace(cited, figures=tuple(figures))


def usual_gpus(question: Question, catalog: Catalog) -> int:
    """Returns the number of GPUs that a rule of thumb names for the work.

    It is 1 without such a rule, with a job, whose own figures overrule it, and where the question asks for the least
    hardware.
    """
    if question.work.job is not None or question.asks_for_least_hardware:
        return 1
    rules = (prior.min_gpus for prior in applying_priors(question, catalog))
    return max((gpus for gpus in rules if gpus is not None), default=1)


def in_conflict(priors: Sequence[CitedPrior]) -> tuple[str, ...]:
    """Returns the ids of the priors that rank the same families in opposite orders."""
    conflicting = {
        id_
        for one, other in combinations([cited.prior for cited in priors if cited.prior.groups], 2)
        for id_ in (one.id, other.id)
        if _pairs(one) & {(worse, better) for better, worse in _pairs(other)}
    }
    return tuple(sorted(conflicting))


def _pairs(prior: Prior) -> set[tuple[str, str]]:
    """Returns all pairs of families that a rule ranks, the better family first."""
    return {(one, other) for better, worse in combinations(prior.groups, 2) for one in better for other in worse}


def _priors_for(catalog: Catalog, task: str, has_subjects: bool) -> tuple[Prior, ...]:
    """Returns the priors on a task that hold on the day; those about a subject only for a question that names one."""
    priors = (prior for prior in catalog.reference.priors if prior.task == task and prior.is_in_force_on(catalog.day))
    return tuple(prior for prior in priors if has_subjects or not prior.subjects)


def applying_priors(question: Question, catalog: Catalog) -> tuple[Prior, ...]:
    """Returns the rules of thumb that apply to a question, by their ids."""
    # Most rules are about subjects, and most questions name none.
    priors = catalog.derive(_priors_for, question.work.task, bool(question.subjects))
    return tuple([prior for prior in priors if _applies(prior, question)])


def _applies(prior: Prior, question: Question) -> bool:
    if prior.deadline_hours is not None:
        return "workload.amount" in question.given and question.limits.deadline_hours is None
    if prior.objective is not None and OBJECTIVES[prior.objective].weights != question.objective.weights:
        return False
    if prior.subjects and prior.subjects.isdisjoint(question.subjects.values()):
        return False
    limits = question.constraints
    match prior.gpus:
        case "one":
            return limits.at_most.get("gpu_count") == 1
        case "several":
            return limits.at_least.get("gpu_count", 1) > 1
        case None:
            return True


def _first_rows(ranked: Ranked, catalog: Catalog) -> dict[str, int]:
    """Returns the best row of each family."""
    words = catalog.columns.words["family"]
    rows: dict[str, int] = {}
    for row, code in enumerate(words.codes[ranked.instance_type].tolist()):
        rows.setdefault(words.words[code], row)
    return rows


def _on_ranking(
    prior: Prior, rows: Mapping[str, int], basis: Basis, ranked: Ranked, catalog: Catalog
) -> Iterator[CitedPrior]:
    """Yields the verdict if two groups of the prior are ranked: overridden by the first pair in reverse order."""
    named = {family for group in prior.groups for family in group}
    others = [row for family, row in rows.items() if family not in named]
    present = [others if group == OTHERS else [rows[name] for name in group if name in rows] for group in prior.groups]
    pairs = list(pairwise([min(group) for group in present if group]))
    if pairs:
        reverse = next((pair for pair in pairs if pair[0] > pair[1]), None)
        better, worse = (ranked_offer(basis, ranked, row, catalog) for row in reverse or pairs[0])
        yield CitedPrior(prior, "overridden" if reverse else "followed", (better, worse))


def _on_gpus(prior: Prior, min_gpus: int, first: RankedOffer) -> CitedPrior:
    gpus = first.instance_type.gpu_count * first.machines
    follows = min_gpus <= gpus and (prior.max_gpus is None or gpus <= prior.max_gpus)
    return CitedPrior(prior, "followed" if follows else "overridden", (first,))


def _on_hours(prior: Prior, first: RankedOffer) -> CitedPrior:
    assert prior.deadline_hours is not None
    if first.hours is None:
        return CitedPrior(prior, "open", (first,))
    return CitedPrior(prior, "followed" if first.hours <= prior.deadline_hours else "overridden", (first,))
