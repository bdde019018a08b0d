"""recommend() by hardware and price: equal to a loop over every offer, and what must hold of any ranking."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from math import inf, log
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.domain.catalog.hardware import Gpu, InstanceType, LifecycleEvent
from service.domain.catalog.precision import SUPPORT_LEVELS, Rate
from service.domain.jobs.loading import SampleLoading
from service.domain.recommend.answer import Answer, Choice, Question
from service.domain.recommend.objective import (
    CRITERIA,
    OBJECTIVES,
    Objective,
)
from service.domain.recommend.peaks import PRECISION_BY_TASK
from service.domain.recommend.ranking import tie_distance_of_peaks
from service.domain.recommend.recommend import BY_HARDWARE, BY_SPEED_OF_A_GPU, recommend
from service.domain.selection.constraints import Constraints
from service.domain.selection.requirements import Requirements
from tests.builders.selection import changed_question, question_of, rank_of
from tests.oracles.selection import offer_misses, relaxed_constraints, runs, type_misses
from tests.strategies.catalogs import (
    PRECISIONS,
    PROVIDERS,
    REGIONS,
    Offer,
    World,
    catalog_of,
    constraints,
    one_or_two_of,
    worlds,
)

MANY = settings(max_examples=60)
named = st.sampled_from([*OBJECTIVES]).map(lambda name: OBJECTIVES[name])
weighted = st.dictionaries(
    st.sampled_from(["usd", "hours", "samples_per_second", "samples_per_usd", "joules", "risk"]),
    st.sampled_from([0.5, 1.0, 3.0]),
    min_size=1,
    max_size=3,
).map(Objective)
objectives = st.one_of(named, named, weighted)
wide = st.one_of(st.just(Constraints()), st.just(Constraints()), constraints())
seldom = st.sampled_from([True, False, False, False])
tasks = st.sampled_from(["training", "training", "inference", "hpc", "development", "classical"])


peaks = st.sampled_from([5.0, 20.0, 40.0, 100.0, 312.0, None])
levels = st.sampled_from([*SUPPORT_LEVELS, "accelerated", "native"])
prices = st.sampled_from([0.5, 1.0, 1.5, 2.0, 4.0, 32.77, None])


@st.composite
def rich_worlds(draw: st.DrawFn) -> World:
    """Worlds in which most machines are for rent, with GPUs whose rates and prices are known."""
    world = draw(worlds())
    answer: dict[str, Gpu] = {}
    kinds = []
    for kind in world.catalog.instance_types:
        gpu = kind.gpu
        if gpu is not None and gpu.id not in answer:
            rates = {name: Rate(name, draw(levels), draw(peaks), None, "s", None) for name in ("bf16", "fp16", "fp32")}
            answer[gpu.id] = replace(gpu, rates={**gpu.rates, **rates})
        state = LifecycleEvent("available", date(2020, 1, 1), "published", "s", None)
        kinds.append(
            replace(
                kind,
                lifecycle=kind.lifecycle if draw(seldom) else (state,),
                gpu=None if gpu is None else answer[gpu.id],
            )
        )
    markets = st.sampled_from(["on_demand", "on_demand", "spot"])
    offer = st.tuples(st.integers(0, len(kinds) - 1), st.sampled_from(REGIONS), markets, prices, st.just(30))
    offers = [*world.offers, *draw(st.lists(offer, min_size=4, max_size=12))]
    return World(catalog_of(kinds, offers), offers)


@st.composite
def questions(draw: st.DrawFn, asked: st.SearchStrategy[Constraints] = wide) -> Question:
    """The questions as the API asks them: the constraint on the precision is the question's own."""
    task, objective = draw(tasks), draw(objectives)
    answer = (
        ()
        if task in ("development", "classical")
        else draw(st.one_of(st.just(()), one_or_two_of("bf16", "fp16", "fp32", "fp64")))
    )
    limits = draw(asked)._replace(
        precision_any=answer or PRECISION_BY_TASK.get(task, ()),
        needs_price=objective.needs("price"),
        needs_peak=objective.needs("speed"),
    )
    return question_of(
        task=task, precisions=answer, constraints=limits, objective=objective, limit=100, per_offer=draw(st.booleans())
    )


def speed(kind: InstanceType, asked: Question) -> float | None:
    """The first known peak of the precisions given, or the highest of the usual ones; else vCPUs; to develop, one."""
    usual = PRECISION_BY_TASK.get(asked.work.task, ())
    if not (asked.precisions or usual):
        return None if kind.vcpus is None else min(kind.vcpus, 1.0 if asked.work.task == "development" else inf)
    running = [name for name in asked.precisions or usual if runs(kind, name, asked.constraints)]
    peaks = [peak for name in running if (peak := kind.tflops(name)) is not None]
    return max(peaks[:1] if asked.precisions else peaks, default=None)


@dataclass(frozen=True)
class Row:
    """An offer that nothing speaks against."""

    place: int
    offer: Offer
    score: float


def score(kind: InstanceType, offer: Offer, asked: Question, objective: Objective) -> float:
    """The sum of logarithms, those of what is better the more there is taken off; low is good."""
    usd, rate, watts = offer[3], speed(kind, asked), kind.tdp_watts
    total = 0.0
    for term, weight in objective.weights.items():
        if term == "risk":
            total += weight * (offer[2] == "spot")
            continue
        found: dict[str, Callable[[], float | None]] = {
            "usd": lambda: usd,
            "hours": lambda: 1 / rate,  # type: ignore[operator]
            "samples_per_second": lambda: rate,
            "samples_per_usd": lambda: rate / usd,  # type: ignore[operator]
            "joules": lambda: watts / rate,  # type: ignore[operator]
            "fewer_gpus": lambda: kind.gpu_count or 1,  # without GPUs, as one with a GPU
        }
        value = found[term]()
        assert value is not None
        total += weight * log(value) * (-1 if CRITERIA[term].more_is_better else 1)
    return total


def rows(asked: Question, world: World, objective: Objective) -> Iterator[Row]:
    limits = asked.constraints._replace(needs_price=objective.needs("price"))
    for place, kind in enumerate(world.catalog.instance_types):
        lacks_peak = objective.needs("speed") and speed(kind, asked) is None
        lacks_power = objective.needs("power") and kind.tdp_watts is None
        if type_misses(limits, kind) or lacks_peak or lacks_power:
            continue
        for offer in world.offers:
            if offer[0] == place and not offer_misses(limits, offer):
                yield Row(place, offer, score(kind, offer, asked, objective))


def best_of_each(found: list[Row]) -> list[Row]:
    best: dict[int, Row] = {}
    for row in sorted(found, key=lambda row: row.score):
        best.setdefault(row.place, row)
    return list(best.values())


@MANY
@given(rich_worlds(), questions())
def test_it_equals_the_loop_over_every_offer(world: World, asked: Question) -> None:
    answer = recommend(asked, world.catalog)
    objective = asked.objective
    if answer.price_ignored:
        assert not list(rows(asked, world, objective))
        objective = BY_SPEED_OF_A_GPU if objective.weights.get("samples_per_usd") else BY_HARDWARE
    found = list(rows(asked, world, objective))
    expected = sorted(row.score for row in (found if asked.per_offer else best_of_each(found)))
    response = [score_of(choice, asked, objective) for choice in answer.choices]
    assert response == pytest.approx(expected, abs=1e-9)
    assert {choice.index for choice in answer.choices} == {row.place for row in found}
    assert answer.admitted == len({row.place for row in found})
    for choice in answer.choices:
        assert choice.speed == speed(choice.instance_type, asked)


def score_of(choice: Choice, asked: Question, objective: Objective) -> float:
    offer = (choice.index, choice.offer.region, choice.offer.market, choice.offer.price.usd_per_hour, None)
    return score(choice.instance_type, offer, asked, objective)


@MANY
@given(rich_worlds(), questions())
def test_ties_are_within_the_precision_of_peaks_and_no_choice_beats_the_front(world: World, asked: Question) -> None:
    answer = recommend(asked, world.catalog)
    distance = tie_distance_of_peaks(BY_SPEED_OF_A_GPU if answer.price_ignored else asked.objective)
    for choice in answer.choices:
        for other in choice.tied.ranks:
            assert answer.choices[other - 1].score == pytest.approx(choice.score, abs=distance + 1e-8)
        if choice.pareto:
            assert not any(beats(other, choice) for other in answer.choices)


def beats(one: Choice, other: Choice) -> bool:
    """At least as cheap and as fast, and one of them better."""
    usd, others = one.offer.price.usd_per_hour, other.offer.price.usd_per_hour
    if usd is None or others is None or one.speed is None or other.speed is None:
        return False
    return usd <= others and one.speed >= other.speed and (usd, one.speed) != (others, other.speed)


# What must hold of any ranking


def again(world: World, offers: list[Offer]) -> World:
    return World(catalog_of(list(world.catalog.instance_types), offers), offers)


def summary_of(answer: Answer) -> list[tuple[int, float | None, str, str | None]]:
    return [
        (choice.index, choice.offer.price.usd_per_hour, choice.offer.market, choice.offer.region)
        for choice in answer.choices
    ]


def turned_away(answer: Answer) -> Mapping[str, tuple[int, int]]:
    return {each.code: (each.rejects, each.only_this) for each in answer.rejections}


@MANY
@given(rich_worlds(), questions(), st.floats(1.01, 10.0), st.data())
def test_a_higher_price_never_raises_a_rank(world: World, asked: Question, times: float, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(world.catalog.instance_types) - 1))
    pricier = [
        (kind, where, how, usd * times if usd is not None and kind == place else usd, age)
        for kind, where, how, usd, age in world.offers
    ]
    cheapest = OBJECTIVES["cheapest"]
    asked = asked._replace(
        objective=cheapest, per_offer=False, constraints=asked.constraints._replace(needs_price=True)
    )
    before, after = recommend(asked, world.catalog), recommend(asked, again(world, pricier).catalog)
    assert before.price_ignored == after.price_ignored
    assert rank_of(after, place) >= rank_of(before, place)


REJECTS_NOBODY: list[dict[str, Any]] = [
    {"at_least": {"gpu_count": 0.0}},
    {"at_most": {"gpu_count": 1e6}},
    {"words": {"provider": PROVIDERS}},
    {"exclude": ("nobody",)},
    {"market": ("on_demand", "spot", "reserved")},
]


@MANY
@given(rich_worlds(), questions(), st.sampled_from(REJECTS_NOBODY))
def test_a_constraint_that_rejects_no_type_changes_nothing(world: World, asked: Question, more: dict[str, Any]) -> None:
    (name, value), limits = next(iter(more.items())), asked.constraints
    already = getattr(limits, name)
    assume(not already if isinstance(already, tuple) else not set(value) & set(already))
    value = value if isinstance(already, tuple) else {**already, **value}
    before = recommend(asked, world.catalog)
    after = recommend(asked._replace(constraints=with_(limits, name, value)), world.catalog)
    assert summary_of(after) == summary_of(before)
    assert turned_away(after) == turned_away(before)
    assert after.admitted == before.admitted


@MANY
@given(rich_worlds(), questions(), st.floats(1.01, 10.0), st.data())
def test_an_offer_with_only_a_higher_price_changes_no_choice(
    world: World, asked: Question, times: float, data: st.DataObject
) -> None:
    known = [offer for offer in world.offers if offer[3] is not None]
    if not known:
        return
    kind, where, how, usd, age = data.draw(st.sampled_from(known))
    assert usd is not None
    asked = asked._replace(per_offer=False)
    before = recommend(asked, world.catalog)
    after = recommend(asked, again(world, [*world.offers, (kind, where, how, usd * times, age)]).catalog)
    assert summary_of(after) == summary_of(before)
    assert turned_away(after) == turned_away(before)


@MANY
@given(rich_worlds(), questions())
def test_a_wider_question_never_has_a_worse_best(world: World, asked: Question) -> None:
    narrow = recommend(asked, world.catalog)
    if not narrow.choices or narrow.price_ignored:
        return
    for wider in wider_than(asked.constraints):
        found = recommend(asked._replace(constraints=wider), world.catalog)
        assert found.admitted >= narrow.admitted
        best, before = (score_of(each.choices[0], asked, asked.objective) for each in (found, narrow))
        assert best <= before + 1e-9


def wider_than(asked: Constraints) -> Iterator[Constraints]:
    """Each constraint in turn taken away."""
    for group in ("words", "at_least", "at_most", "flags"):
        held = getattr(asked, group)
        for name in held:
            yield with_(asked, group, {other: value for other, value in held.items() if other != name})
    for name in ("exclude", "region", "market"):
        yield with_(asked, name, ())
    yield asked._replace(max_usd_per_hour=None)
    yield asked._replace(max_price_age_days=None)


def with_(asked: Constraints, name: str, value: object) -> Constraints:
    changed: dict[str, Any] = {name: value}
    return asked._replace(**changed)


@MANY
@given(rich_worlds(), questions(), st.randoms(use_true_random=False))
def test_the_order_of_offers_does_not_matter(world: World, asked: Question, random: Any) -> None:
    shuffled = again(world, random.sample(world.offers, len(world.offers)))
    first, second = recommend(asked, world.catalog), recommend(asked, shuffled.catalog)
    assert [choice[:2] for choice in summary_of(first)] == [choice[:2] for choice in summary_of(second)]
    assert turned_away(first) == turned_away(second)


@MANY
@given(rich_worlds(), questions())
def test_a_relaxation_admits_what_it_promises_and_its_best_is_the_best_of_them(world: World, asked: Question) -> None:
    answer = recommend(asked, world.catalog)
    if answer.price_ignored:
        return
    inside = {choice.index for choice in answer.choices}
    for rejection in answer.rejections:
        if rejection.relaxation is None:
            continue
        to = rejection.relaxation.to
        changed = asked._replace(constraints=relaxed_constraints(asked.constraints, to))
        if "workload.precision" in to:
            changed = changed._replace(precisions=changed.constraints.precision_any)
        after = recommend(changed, world.catalog)
        added = [choice for choice in after.choices if choice.index not in inside]
        assert len({choice.index for choice in added}) == rejection.relaxation.admits, rejection
        if "workload.precision" not in to:
            best = min(added, key=lambda choice: choice.rank)
            promised = next(each for each in added if each.instance_type.id == rejection.relaxation.instance_type.id)
            assert promised.score == pytest.approx(best.score, abs=1e-9), rejection


def test_precisions_of_the_worlds_are_those_of_the_tasks() -> None:
    assert {name for usual in PRECISION_BY_TASK.values() for name in usual} <= set(PRECISIONS)


ONE_CHANGE: tuple[dict[str, Any], ...] = (
    {"limit": 1},
    {"fault_tolerant": True},
    {"concurrent_runs": 4},
    {"refused_precisions": ("bf16", "fp16")},
    {"loading": SampleLoading(vcpus_per_gpu=64.0)},
    {"needs": Requirements(host_memory_gib=64.0)},
    {"objective": OBJECTIVES["fastest"]},
)


@MANY
@given(rich_worlds(), questions(), st.sampled_from(ONE_CHANGE), prices)
def test_an_answer_does_not_depend_on_similar_questions_before_it(
    world: World, asked: Question, change: dict[str, Any], max_usd_per_hour: float | None
) -> None:
    asked = asked._replace(limit=5, per_offer=False)
    limited = asked.constraints._replace(max_usd_per_hour=max_usd_per_hour)
    for similar in (asked, asked._replace(constraints=limited), changed_question(asked, constraints=limited, **change)):
        fresh = catalog_of(list(world.catalog.instance_types), world.offers)
        assert repr(recommend(similar, world.catalog)) == repr(recommend(similar, fresh))
