"""recommend() with a job: equal to a loop over every candidate and offer, and what must hold of any ranking."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.domain.constraints import Constraints
from service.domain.hardware import InstanceType
from service.domain.job import Job
from service.domain.objective import NAMED, NEEDS_PRICE, Objective
from service.domain.outlook import Aim, node_counts
from service.domain.recommend import Answer, Choice, Question, recommend
from tests.domain import plain
from tests.domain.job_worlds import jobs, physical_worlds
from tests.domain.one_by_one import Alone, prospect
from tests.domain.test_estimate import FITTED
from tests.domain.test_selection import apply
from tests.domain.worlds import Offer, World, catalog_of, constraints

AIMS = {"cheapest": Aim(1.0, 0.0), "fastest": Aim(0.0, 1.0), "best_value": Aim(1.0, 0.0)}
some = settings(max_examples=40, deadline=None)
nodes = st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 4), (1, 3)])
deadlines = st.sampled_from([None, None, 1e-4, 0.1, 5.0])
objectives = st.sampled_from(["cheapest", "fastest", "best_value"])
wide = st.one_of(st.just(Constraints()), st.just(Constraints()), constraints())


def question(job: Job, objective: str, asked: Constraints, **given_: Any) -> Question:
    """As the API asks it: precision is the physics' to judge."""
    weights = Objective(NAMED[objective])
    return Question(
        task=job.task,
        precisions=(),
        constraints=replace(asked, precision_any=(), needs_price=weights.needs(NEEDS_PRICE)),
        objective=weights,
        current_instance=None,
        limit=100,
        **{"per_offer": False, "job": job, **given_},
    )


def figure(objective: str, usd: float | None, nodes: int, hours: float, job: Job) -> float:
    """What ranks, the lower the better: dollars, hours, or dollars per sample."""
    if objective == "fastest" or usd is None:
        return hours
    if objective == "cheapest" and job.amount is None:
        return usd * nodes
    return usd * nodes * hours


def figure_of(choice: Choice, objective: str, job: Job) -> float:
    assert choice.speed is not None
    hours = 1 / choice.speed / 3600
    if job.amount is not None:
        assert choice.node_hours is not None
        hours = choice.node_hours / choice.nodes
    return figure(objective, choice.offer.price.usd_per_hour, choice.nodes, hours, job)


@dataclass(frozen=True)
class Loop:
    """Every type and offer in turn."""

    asked: Question
    world: World
    objective: str

    def chosen(self, kind: InstanceType) -> Alone | None:
        """On the best number of nodes; nothing where it does not run in time."""
        assert self.asked.job is not None
        aim = replace(AIMS[self.objective], deadline_hours=self.asked.deadline_hours)
        slow = prospect(self.asked.job, kind, node_counts(*self.asked.nodes), aim, self.world.catalog)
        return None if slow.misses else min(slow.candidates, key=lambda one: (slow.score(one), one.nodes))

    def figures(self, *, needs_price: bool) -> Iterator[tuple[int, float]]:
        limits = replace(self.asked.constraints, needs_price=needs_price)
        for place, kind in enumerate(self.world.catalog.instance_types):
            if plain.type_misses(limits, kind) or (one := self.chosen(kind)) is None:
                continue
            for offer in self.world.offers:
                if offer[0] == place and not plain.offer_misses(limits, offer):
                    assert self.asked.job is not None
                    usd = offer[3] if needs_price else None
                    yield place, figure(self.objective, usd, one.nodes, one.hours, self.asked.job)


def best_of_each(figures: Iterator[tuple[int, float]]) -> dict[int, float]:
    lowest: dict[int, float] = {}
    for place, each in figures:
        lowest[place] = min(each, lowest.get(place, inf))
    return lowest


@some
@given(physical_worlds(), jobs(), objectives, wide, nodes, deadlines, st.booleans())
def test_it_equals_the_loop_over_every_candidate_and_offer(
    world: World,
    job: Job,
    objective: str,
    limits: Constraints,
    span: tuple[int, int],
    deadline: float | None,
    per_offer: bool,
) -> None:
    asked = question(job, objective, limits, nodes=span, deadline_hours=deadline, per_offer=per_offer)
    answer = recommend(asked, world.catalog)
    loop = Loop(asked, world, objective)
    priced = asked.constraints.needs_price and not answer.price_ignored
    if answer.price_ignored:
        assert asked.constraints.needs_price
        assert not list(loop.figures(needs_price=True))
    rows = list(loop.figures(needs_price=priced))
    if not rows:
        assert not answer.choices
        assert asked.constraints.needs_price <= (not list(loop.figures(needs_price=False)))
    expected = sorted(each for _, each in rows) if per_offer else sorted(best_of_each(iter(rows)).values())
    ranked_by = "fastest" if answer.price_ignored else objective
    found = [figure_of(choice, ranked_by, job) for choice in answer.choices]
    assert found == pytest.approx(expected, rel=1e-6)
    assert {choice.place for choice in answer.choices} == {place for place, _ in rows}


@some
@given(physical_worlds(), jobs(), objectives, wide, nodes, deadlines)
def test_a_relaxation_admits_what_it_promises(
    world: World, job: Job, objective: str, limits: Constraints, span: tuple[int, int], deadline: float | None
) -> None:
    asked = question(job, objective, limits, nodes=span, deadline_hours=deadline)
    answer = recommend(asked, world.catalog)
    for rejection in answer.rejections:
        if rejection.relaxation is None:
            continue
        after = recommend(relaxed(asked, rejection.relaxation.to), world.catalog)
        stay = 0 if answer.price_ignored and not after.price_ignored else answer.admitted
        assert after.admitted == stay + rejection.relaxation.admits, rejection


def relaxed(asked: Question, to: dict[str, Any]) -> Question:
    if "max_nodes" in to:
        return replace(asked, nodes=(asked.nodes[0], to["max_nodes"]))
    if "deadline_hours" in to:
        return replace(asked, deadline_hours=to["deadline_hours"])
    return replace(asked, constraints=apply(asked.constraints, to))


@some
@given(physical_worlds(), jobs(), objectives, wide, nodes, deadlines)
def test_types_add_up(
    world: World, job: Job, objective: str, limits: Constraints, span: tuple[int, int], deadline: float | None
) -> None:
    answer = recommend(question(job, objective, limits, nodes=span, deadline_hours=deadline), world.catalog)
    assert len(answer.choices) == answer.admitted
    assert sum(rejection.only_this for rejection in answer.rejections) <= answer.considered - answer.admitted
    assert sum(rejection.count for rejection in answer.rejections) >= answer.considered - answer.admitted
    for choice in answer.choices:
        assert span[0] <= choice.nodes <= span[1]
        assert choice.speed is not None
        assert 0 < choice.speed < inf
        assert deadline is None or figure_of(choice, "fastest", job) <= deadline * (1 + 1e-9)


# What must hold of any ranking


def rank_of(answer: Answer, place: int) -> float:
    return next((choice.rank for choice in answer.choices if choice.place == place), inf)


@some
@given(physical_worlds(), jobs(), nodes, st.floats(1.01, 10.0), st.data())
def test_a_higher_price_never_raises_a_rank(
    world: World, job: Job, span: tuple[int, int], times: float, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(world.catalog.instance_types) - 1))
    dearer = [
        (kind, where, how, usd * times if usd is not None and kind == place else usd, age)
        for kind, where, how, usd, age in world.offers
    ]
    asked = question(job, "cheapest", Constraints(), nodes=span)
    before, after = recommend(asked, world.catalog), recommend(asked, again(world, dearer).catalog)
    assert rank_of(after, place) >= rank_of(before, place)


def again(world: World, offers: list[Offer]) -> World:
    return World(catalog_of(list(world.catalog.instance_types), offers, physics=FITTED), offers)


def best(answer: Answer, objective: str, job: Job) -> float:
    return figure_of(answer.choices[0], objective, job) if answer.choices else inf


@some
@given(physical_worlds(), jobs(), objectives, constraints(), nodes, deadlines)
def test_a_wider_question_never_has_a_worse_best(
    world: World, job: Job, objective: str, limits: Constraints, span: tuple[int, int], deadline: float | None
) -> None:
    asked = question(job, objective, limits, nodes=span, deadline_hours=deadline)
    narrow = recommend(asked, world.catalog)
    assume(not narrow.price_ignored)
    for wider in (
        replace(asked, deadline_hours=None),
        replace(asked, constraints=question(job, objective, Constraints()).constraints),
    ):
        assert best(recommend(wider, world.catalog), objective, job) <= best(narrow, objective, job) * (1 + 1e-9)


@some
@given(physical_worlds(), jobs(), deadlines)
def test_more_nodes_never_make_the_fastest_slower(world: World, job: Job, deadline: float | None) -> None:
    found = [
        best(
            recommend(question(job, "fastest", Constraints(), nodes=(1, most), deadline_hours=deadline), world.catalog),
            "fastest",
            job,
        )
        for most in (1, 2, 4, 8)
    ]
    assert found == sorted(found, reverse=True)


@some
@given(physical_worlds(), jobs(), objectives, nodes, st.randoms(use_true_random=False))
def test_the_order_of_offers_does_not_matter(
    world: World, job: Job, objective: str, span: tuple[int, int], random: Any
) -> None:
    asked = question(job, objective, Constraints(), nodes=span)
    shuffled = again(world, random.sample(world.offers, len(world.offers)))
    first, second = recommend(asked, world.catalog), recommend(asked, shuffled.catalog)
    assert [each.instance_type.id for each in first.choices] == [each.instance_type.id for each in second.choices]
    assert [each.offer.price.usd_per_hour for each in first.choices] == [
        each.offer.price.usd_per_hour for each in second.choices
    ]
    assert codes(first) == codes(second)


def codes(answer: Answer) -> Mapping[str, int]:
    return {rejection.code: rejection.count for rejection in answer.rejections}
