"""recommend() with a job: equal to a loop over every candidate and offer, and what must hold of any ranking."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from service.domain.bill.interruption import Checkpoints
from service.domain.catalog.hardware import InstanceType
from service.domain.jobs.job import Job, tokens_per_sample
from service.domain.recommend.answer import LIMITS_BY_FIELD, Choice, Limits, Question
from service.domain.recommend.fleet import node_counts
from service.domain.recommend.objective import OBJECTIVES
from service.domain.recommend.recommend import recommend
from service.domain.selection.constraints import Constraints
from tests.builders.calibrations import FITTED
from tests.builders.selection import question_of, rank_of, rejects_by_code
from tests.oracles.fleet import NodeEstimate, PlainPlan, estimate_on_nodes, plan_on_offer
from tests.oracles.selection import offer_misses, relaxed_constraints, type_misses
from tests.strategies.catalogs import Offer, World, catalog_of, constraints
from tests.strategies.jobs import jobs, physical_worlds

some = settings(max_examples=40)
nodes = st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 4), (1, 3)])
objectives = st.sampled_from(["cheapest", "fastest", "best_value"])
wide = st.one_of(st.just(Constraints()), st.just(Constraints()), constraints())
limits_of_jobs = st.builds(
    Limits,
    deadline_hours=st.sampled_from([None, None, 1e-4, 0.1, 5.0]),
    budget_usd=st.sampled_from([None, None, None, None, 0.01, 1.0, 50.0, 500.0]),
    max_usd_per_million_tokens=st.sampled_from([None, None, None, None, 0.01, 0.3, 10.0]),
    max_instances=st.sampled_from([1, 1, 4]),
    safe=st.booleans(),
    load=st.none(),
)
CHECKPOINTS = Checkpoints(save_seconds=30.0, restart_seconds=300.0)


def question(job: Job, objective: str, asked: Constraints, **given_: Any) -> Question:
    """The question as the API asks it: the physics, not a constraint, judges the precision."""
    weights = OBJECTIVES[objective]
    limits = given_.pop("limits", Limits())
    if job.serving is not None:
        in_dollars = limits.budget_usd, limits.max_usd_per_million_tokens
        limits = Limits(None, *in_dollars, load=job.serving)
    return question_of(
        task=job.task,
        precisions=(),
        constraints=asked._replace(
            precision_any=(), needs_price=weights.needs("price") or limits.budget_usd is not None
        ),
        objective=weights,
        current_instance=None,
        limit=100,
        checkpoints=CHECKPOINTS,
        limits=limits,
        **{"per_offer": False, "job": job, **given_},
    )


WITHOUT_PRICE = {"cheapest without a price": 0.1, "best_value without a price": 1.0}
"""The weight of hours, where that of GPUs is 1, by objective."""


def figure(objective: str, plan: PlainPlan, job: Job, one: NodeEstimate, gpus: float) -> float:
    """The figure that ranks, the lower the better: dollars, hours, dollars per sample, or GPUs and hours."""
    hours = plan.hours if job.amount is not None else one.seconds_per_request or 1 / plan.rate
    if objective == "fastest":
        return hours
    if objective in WITHOUT_PRICE:
        return gpus * plan.nodes * plan.instances * float(hours ** WITHOUT_PRICE[objective])
    if objective == "cheapest":
        assert plan.usd is not None
        return plan.usd
    assert plan.usd_per_hour is not None
    return plan.usd_per_hour / plan.rate if job.amount is None else plan.usd_per_hour * plan.paid_hours / one.samples


def keeps_dollars(usd: float | None, samples: float, job: Job, limits: Limits) -> bool:
    """Whether samples that cost this together keep the limits in dollars, where their tokens are known."""
    tokens = samples * tokens_per_sample(job)
    most = limits.max_usd_per_million_tokens if tokens else None
    if limits.budget_usd is None and most is None:
        return True
    if usd is None or (limits.budget_usd is not None and usd > limits.budget_usd):
        return False
    return most is None or usd / tokens * 1e6 <= most


@dataclass(frozen=True)
class Loop:
    """Every type, offer and number of nodes in turn."""

    asked: Question
    world: World
    objective: str

    @property
    def job(self) -> Job:
        assert self.asked.modelled is not None
        return self.asked.modelled

    def estimates(self, kind: InstanceType) -> list[NodeEstimate]:
        return [
            estimate_on_nodes(self.job, kind, count, self.world.catalog) for count in node_counts(*self.asked.nodes)
        ]

    def plan(self, kind: InstanceType, one: NodeEstimate, market: str, usd: float | None) -> PlainPlan | None:
        """On as many instances as are in time, or on all of them for speed."""
        limits, catalog = self.asked.limits, self.world.catalog

        def on(instances: int) -> PlainPlan | None:
            return plan_on_offer(self.job, one, kind, market, usd, instances, CHECKPOINTS, catalog)

        most, deadline = limits.max_instances, limits.deadline_hours
        if self.job.amount is None:
            return on(1)
        if self.objective in ("fastest", *WITHOUT_PRICE):
            return on(most)
        if deadline is None:
            return on(1)

        def in_time(instances: int) -> bool:
            plan = on(instances)
            return plan is not None and (plan.hours_high if limits.safe else plan.hours) <= deadline

        return on(next(filter(in_time, range(1, most)), most))

    def keeps(self, plan: PlainPlan, one: NodeEstimate) -> bool:
        limits = self.asked.limits
        if not one.keeps_limits:
            return False
        if self.job.amount is None:
            month = None if plan.usd_per_hour is None else plan.usd_per_hour * 730
            return limits.load is None or keeps_dollars(month, plan.rate * 3600 * 730, self.job, limits)
        hours, usd = (plan.hours_high, plan.usd_high) if limits.safe else (plan.hours, plan.usd)
        in_time = limits.deadline_hours is None or hours <= limits.deadline_hours
        return in_time and keeps_dollars(usd, one.samples, self.job, limits)

    def figures(self, *, needs_price: bool) -> Iterator[tuple[int, float]]:
        """The best number of nodes of each offer."""
        limits = self.asked.constraints._replace(needs_price=needs_price)
        for place, kind in enumerate(self.world.catalog.instance_types):
            if type_misses(limits, kind):
                continue
            working = [one for one in self.estimates(kind) if one.works]
            for offer in self.world.offers:
                if offer[0] == place and not offer_misses(limits, offer):
                    found = self.best(kind, working, offer)
                    if found is not None:
                        yield place, found

    def best(self, kind: InstanceType, working: list[NodeEstimate], offer: Offer) -> float | None:
        plans = [(self.plan(kind, one, offer[2], offer[3]), one) for one in working]
        return min(
            (
                figure(self.objective, plan, self.job, one, kind.whole_gpus)
                for plan, one in plans
                if plan and self.keeps(plan, one)
            ),
            default=None,
        )

    def figure_of(self, choice: Choice) -> float:
        """The figure that ranks the choice, computed for its nodes and offer."""
        kind, offer = choice.instance_type, choice.offer
        one = estimate_on_nodes(self.job, kind, choice.nodes, self.world.catalog)
        plan = plan_on_offer(
            self.job,
            one,
            kind,
            offer.market,
            offer.price.usd_per_hour,
            choice.instances,
            CHECKPOINTS,
            self.world.catalog,
        )
        assert plan is not None
        assert self.keeps(plan, one)
        assert choice.speed == pytest.approx(plan.rate, rel=1e-6)
        if self.job.amount is not None:
            assert choice.hours == pytest.approx(plan.hours, rel=1e-6)
            # A bill is settled in whole millionths of a dollar.
            assert choice.usd == (None if plan.usd is None else pytest.approx(plan.usd, rel=1e-6, abs=1e-6))
        return figure(self.objective, plan, self.job, one, kind.whole_gpus)


def best_of_each(figures: Iterator[tuple[int, float]]) -> dict[int, float]:
    lowest: dict[int, float] = {}
    for place, each in figures:
        lowest[place] = min(each, lowest.get(place, inf))
    return lowest


@settings(max_examples=40)
@given(physical_worlds(), jobs(), objectives, wide, nodes, limits_of_jobs, st.booleans())
def test_it_equals_the_loop_over_every_candidate_and_offer(
    world: World,
    job: Job,
    objective: str,
    asked_for: Constraints,
    span: tuple[int, int],
    limits: Limits,
    per_offer: bool,
) -> None:
    asked = question(job, objective, asked_for, nodes=span, limits=limits, per_offer=per_offer)
    answer = recommend(asked, world.catalog)
    loop = Loop(asked, world, objective)
    priced = asked.constraints.needs_price and not answer.price_ignored
    if answer.price_ignored:
        assert asked.constraints.needs_price
        assert not list(loop.figures(needs_price=True))
        loop = replace(loop, objective=f"{objective} without a price")
    rows = list(loop.figures(needs_price=priced))
    if not rows:
        assert not answer.choices
    expected = sorted(each for _, each in rows) if per_offer else sorted(best_of_each(iter(rows)).values())
    found = [loop.figure_of(choice) for choice in answer.choices]
    assert found == pytest.approx(expected, rel=1e-6)
    assert {choice.index for choice in answer.choices} == {place for place, _ in rows}


@some
@given(physical_worlds(), jobs(), objectives, wide, nodes, limits_of_jobs)
def test_a_relaxation_admits_what_it_promises(
    world: World, job: Job, objective: str, asked_for: Constraints, span: tuple[int, int], limits: Limits
) -> None:
    asked = question(job, objective, asked_for, nodes=span, limits=limits)
    answer = recommend(asked, world.catalog)
    for rejection in answer.rejections:
        if rejection.relaxation is None:
            continue
        after = recommend(relaxed(asked, rejection.relaxation.to), world.catalog)
        stay = 0 if answer.price_ignored and not after.price_ignored else answer.admitted
        assert after.admitted == stay + rejection.relaxation.admits, rejection
        if rejection.code in ("gpu_memory", "kv_cache"):
            loop, before = Loop(asked, world, objective), {choice.index for choice in answer.choices}
            came = [choice.instance_type for choice in after.choices if choice.index not in before]
            assert any(not any(one.works for one in loop.estimates(kind)) for kind in came), rejection


def relaxed(asked: Question, to: dict[str, Any]) -> Question:
    if "max_nodes" in to:
        return asked._replace(nodes=(asked.nodes[0], to["max_nodes"]))
    of_job = {"workload.precision": "precisions", "workload.memory_confidence": "memory_confidence"}
    if of_job.keys() & to.keys() and asked.modelled is not None:
        changed: dict[str, Any] = {
            of_job[path]: tuple(value) if isinstance(value, list) else value for path, value in to.items()
        }
        return asked._replace(work=asked.work._replace(job=replace(asked.modelled, **changed)))
    fields = {path.rpartition(".")[2]: value for path, value in to.items()}
    if fields.keys() & LIMITS_BY_FIELD.keys():
        job = asked.modelled
        # A load has its own limits on times and instances, and without a load there are none on times.
        limits = asked.limits._replace(**{name: fields[name] for name in fields.keys() & set(Limits._fields)})
        if job is not None and job.serving is not None:
            fields = {name: value for name, value in fields.items() if name in job.serving.limits}
            job = replace(job, serving=replace(job.serving, **fields))
        return asked._replace(limits=limits, work=asked.work._replace(job=job))
    return asked._replace(constraints=relaxed_constraints(asked.constraints, to))


@some
@given(physical_worlds(), jobs(), objectives, wide, nodes, limits_of_jobs)
def test_types_add_up(
    world: World, job: Job, objective: str, asked_for: Constraints, span: tuple[int, int], limits: Limits
) -> None:
    answer = recommend(question(job, objective, asked_for, nodes=span, limits=limits), world.catalog)
    assert len(answer.choices) == answer.admitted
    rejected = answer.considered - answer.admitted
    assert all(rejection.only_this <= rejection.rejects <= rejected for rejection in answer.rejections)
    assert sum(rejection.rejects for rejection in answer.rejections) >= rejected
    for choice in answer.choices:
        assert span[0] <= choice.nodes <= span[1]
        assert choice.speed is not None
        assert 0 < choice.speed < inf
        assert 1 <= choice.instances <= (limits.max_instances if job.serving is None else job.serving.max_instances)
        if job.amount is not None:
            assert choice.hours is not None
            assert limits.deadline_hours is None or choice.hours <= limits.deadline_hours
            assert limits.budget_usd is None or (choice.usd is not None and choice.usd <= limits.budget_usd)


PRICE_CODES = ("max_usd_per_hour", "usd_per_hour_unknown")


@some
@given(physical_worlds(), jobs(), objectives, wide, limits_of_jobs, st.sampled_from([0.4, 0.5, 1.0]))
def test_what_the_price_alone_keeps_out_comes_in_without_it(
    world: World, job: Job, objective: str, asked_for: Constraints, limits: Limits, usd: float
) -> None:
    asked = question(job, objective, asked_for._replace(max_usd_per_hour=usd), limits=limits)
    answer = recommend(asked, world.catalog)
    after = recommend(asked._replace(constraints=asked.constraints._replace(max_usd_per_hour=None)), world.catalog)
    if answer.price_ignored or after.price_ignored:
        return
    alone = sum(each.only_this for each in answer.rejections if each.code in PRICE_CODES)
    assert after.admitted >= answer.admitted + alone


# What must hold of any ranking


@some
@given(physical_worlds(), jobs(), nodes, st.floats(1.01, 10.0), st.data())
def test_a_higher_price_never_raises_a_rank(
    world: World, job: Job, span: tuple[int, int], times: float, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(world.catalog.instance_types) - 1))
    pricier = [
        (kind, where, how, usd * times if usd is not None and kind == place else usd, age)
        for kind, where, how, usd, age in world.offers
    ]
    asked = question(job, "cheapest", Constraints(), nodes=span)
    before, after = recommend(asked, world.catalog), recommend(asked, again(world, pricier).catalog)
    assert rank_of(after, place) >= rank_of(before, place)


def again(world: World, offers: list[Offer]) -> World:
    return World(catalog_of(list(world.catalog.instance_types), offers, calibration=FITTED), offers)


def best(asked: Question, objective: str, world: World) -> float:
    """The score of the first choice; infinite without a choice that has a price."""
    answer = recommend(asked, world.catalog)
    if answer.price_ignored or not answer.choices:
        return inf
    return Loop(asked, world, objective).figure_of(answer.choices[0])


@some
@given(physical_worlds(), jobs(), objectives, constraints(), nodes, limits_of_jobs)
def test_a_wider_question_never_has_a_worse_best(
    world: World, job: Job, objective: str, asked_for: Constraints, span: tuple[int, int], limits: Limits
) -> None:
    limits = limits._replace(max_instances=1)  # as few share the work as are in time, and that changes with the time
    asked = question(job, objective, asked_for, nodes=span, limits=limits)
    assume(not recommend(asked, world.catalog).price_ignored)
    narrow = best(asked, objective, world)
    for wider in (
        *(relaxed(asked, {field: None}) for field in LIMITS_BY_FIELD if field != "max_instances"),
        asked._replace(constraints=question(job, objective, Constraints(), limits=limits).constraints),
    ):
        assert best(wider, objective, world) <= narrow * (1 + 1e-9)


@some
@given(physical_worlds(), jobs(), limits_of_jobs)
def test_more_nodes_never_make_the_fastest_slower(world: World, job: Job, limits: Limits) -> None:
    found = [
        best(question(job, "fastest", Constraints(), nodes=(1, most), limits=limits), "fastest", world)
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
    assert rejects_by_code(first) == rejects_by_code(second)
