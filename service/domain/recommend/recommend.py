"""Question in, Answer out: which offers to take, in which order, and what kept the others out. Forward only."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from service.domain.bill.interruption import Checkpoints
from service.domain.cache import Cache
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import Offer
from service.domain.jobs.job import Job
from service.domain.recommend.fallbacks import apart
from service.domain.recommend.fleet import FleetEstimate, as_seen, job_checks, node_counts, outlook_of
from service.domain.recommend.named_work import NamedWork, not_seen, outlook_by_name, seen_under
from service.domain.recommend.objective import NAMED, NEEDS_POWER, NEEDS_SPEED, Objective
from service.domain.recommend.peaks import Peaks, assumed_peaks, figures_of, known
from service.domain.recommend.plans import Limits, Planner, keeping_on_more, limit_checks, types_among
from service.domain.recommend.ranking import Order, Ranked, order_of
from service.domain.recommend.ties import Uncertain, lead_of_peaks, tied_with, uncertain, weight_of_speed
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import AdmittedOffers, CheapestOffers, offer_choice, passing_offers
from service.domain.selection.relax import Check, Obstacle, Relaxation
from service.domain.selection.requirements import NOTHING, Requirements, requirement_checks
from service.domain.selection.selection import Selection, select
from service.domain.typeset import TypeSet, types_where

MOST_TIES = 20
MOST_REMEMBERED = 10
"""Longer lists of choices are asked for seldom, and would take too much room."""

LIMITS = frozenset({"deadline_hours", "budget_usd"})
"""Limits on the whole job, as relaxations call them."""

NO_LIMITS = Limits()
NOTHING_LOST = Checkpoints(save_seconds=0.0, restart_seconds=0.0)


@dataclass(frozen=True, slots=True)
class Question:
    """What to rent, in the catalog's own words."""

    task: str
    precisions: tuple[str, ...]
    """In order of preference; empty: the best of the task's usual ones that each GPU has."""
    constraints: Constraints
    objective: Objective
    current_instance: str | None
    limit: int
    per_offer: bool
    job: Job | NamedWork | None = None
    """Where there is one, physics ranks, or what was seen under its name; else the peaks do."""
    name: str | None = None
    """Under which the work was measured."""
    nodes: tuple[int, int] = (1, 1)
    """The least and the most."""
    limits: Limits = NO_LIMITS
    """On the whole job."""
    checkpoints: Checkpoints = NOTHING_LOST
    diversify: bool = False
    needs: Requirements = NOTHING
    usual: tuple[str, ...] = ()
    """Of these the fastest counts, where no precisions are named and the work does not bear all of the task's own."""

    @property
    def modelled(self) -> Job | None:
        """The job, where physics can tell what comes of it."""
        return None if isinstance(self.job, NamedWork) else self.job


class Choice(NamedTuple):
    """One ranked offer. `speed` is the peak at `precision`, in 10^12 operations per second, or vCPUs without one.

    Of a job, it is samples per second of all nodes.
    """

    rank: int
    instance_type: InstanceType
    place: int
    offer_place: int
    offer: Offer
    precision: str | None
    speed: float | None
    nodes: int
    instances: int
    hours: float | None
    """Until the job is done, with what interruptions cost; nothing without a job or an amount of work."""
    usd: float | None
    """Of the whole job, or of an hour where no amount is told; nothing without a job or a price."""
    score: float
    tied_with: tuple[int, ...]
    pareto: bool


class RelaxationOutcome(NamedTuple):
    """The least change of one constraint that lets something in: to what, how many types, and the best of them."""

    to: dict[str, object]
    admits: int
    instance_type: InstanceType
    offer_place: int
    offer: Offer


class Rejection(NamedTuple):
    """How many types a constraint turned away, and how many of them it alone."""

    code: str
    ground: str
    count: int  # type: ignore[assignment]  # of a tuple it would be a method, which nobody asks of this one
    only_this: int
    relaxation: RelaxationOutcome | None


class Leading(NamedTuple):
    """The first choices of a ranking. While they are remembered, so are the pieces that the outside makes of them."""

    choices: tuple[Choice, ...]
    pieces: Cache

    @classmethod
    def of(cls, choices: Iterable[Choice]) -> "Leading":
        return cls(tuple(choices), Cache(size=2))


@dataclass(frozen=True, slots=True)
class Answer:
    """Ranked choices and counted rejections; every type considered is either admitted or rejected."""

    leading: Leading
    rejections: tuple[Rejection, ...]
    considered: int
    admitted: int
    ranked: int
    """How many choices there would be without a limit: one per type admitted, or one per offer."""
    current: Choice | None
    price_ignored: bool
    planner: Planner | None = None
    """Of the job, where the question has one."""
    in_time: Choice | None = None
    """Where nothing is both in time and within the budget: the cheapest that is in time."""
    in_budget: Choice | None = None
    """And the fastest that is within the budget."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        return self.leading.choices

    @property
    def outlook(self) -> FleetEstimate[Job] | FleetEstimate[NamedWork] | None:
        return None if self.planner is None else self.planner.outlook


def recommend(question: Question, catalog: Catalog) -> Answer:
    """Rank what the constraints admit. Where none of it has a price, hardware alone ranks and the answer says so."""
    view, asked = View.of(question, catalog), question.constraints
    selection, ignored = view.select(asked), False
    if (
        asked.needs_price
        and not selection.admitted.types
        and question.limits.budget_usd is None
        and any(o.code == "price_unknown" for o in selection.obstacles)
    ):
        unpriced, fallback = replace(asked, needs_price=False), view.weighing(Objective({"hours": 1.0}))
        found = fallback.select(unpriced)
        if found.admitted.types:
            asked, selection, view, ignored = unpriced, found, fallback, True
    admitted = selection.admitted.types
    ranked = admitted.bit_count()
    if question.per_offer or question.diversify:
        offers = view.rank_offers(asked, admitted, question)
        leading = Leading.of(view.choices(offers, offers.front(question.limit)))
        ranked = len(offers.score) if question.per_offer else ranked
    else:
        leading = view.leading(selection.admitted, question.limit)
    in_time, in_budget = (None, None) if admitted else view.nearest(asked)
    return Answer(
        leading=leading,
        rejections=tuple([view.rejection(count, obstacle) for count, obstacle in by_count(selection)]),
        considered=len(catalog.instance_types),
        admitted=admitted.bit_count(),
        ranked=ranked,
        current=view.current(question),
        price_ignored=ignored,
        planner=view.planner,
        in_time=in_time,
        in_budget=in_budget,
    )


def anew(_key: Hashable, compute: Callable[[], Leading]) -> Leading:
    """As a memory recalls what it has never heard of."""
    return compute()


def planner_of(question: Question, catalog: Catalog) -> Planner | None:
    """By the physics of the job, and by what was measured under the name of the work; nothing without either."""
    if question.job is None:
        return None
    outlook = outlook_on(question.job, question.name, node_counts(*question.nodes), catalog)
    return Planner(outlook, question.objective, question.limits, question.checkpoints)


def outlook_on(
    job: Job | NamedWork, name: str | None, counts: tuple[int, ...], catalog: Catalog
) -> FleetEstimate[Job] | FleetEstimate[NamedWork]:
    if isinstance(job, NamedWork):
        return outlook_by_name(job, counts, catalog)
    found = outlook_of(job, counts, catalog)
    return as_seen(found, name, catalog) if name is not None and seen_under(name, catalog) else found


def runs_where(
    outlook: FleetEstimate[Job] | FleetEstimate[NamedWork],
    keeping: Callable[[TypeSet], TypeSet] | None,
    catalog: Catalog,
) -> list[Check]:
    if isinstance(outlook.job, NamedWork):
        return not_seen(outlook, catalog)
    return job_checks(outlook, keeping)


def by_count(selection: Selection) -> list[tuple[int, Obstacle]]:
    """The most first, and even ones by name."""
    counted = [(-each.fails.bit_count(), each.code, place) for place, each in enumerate(selection.obstacles)]
    return [(-count, selection.obstacles[place]) for count, _, place in sorted(counted)]


def figures_needed(objective: Objective, peaks: Peaks | None, catalog: Catalog) -> list[Check]:
    """Types that cannot be ranked because a figure that the objective needs is not known."""
    checks = []
    if peaks is not None and objective.needs(NEEDS_SPEED):
        checks.append(Check("peak_unknown", "data", peaks.unknown))
    if objective.needs(NEEDS_POWER):
        watts = catalog.columns.numbers["tdp_watts"]
        unknown = catalog.memory.get_or_compute("power_unknown", lambda: types_where(np.isnan(watts)))
        checks.append(Check("power_unknown", "data", unknown))
    return checks


@dataclass(frozen=True, slots=True)
class View:
    """A catalog seen under one objective: by a job's plans, or by peaks where there is no job."""

    catalog: Catalog
    objective: Objective
    peaks: Peaks | None
    planner: Planner | None
    needs: Requirements
    key: Hashable
    even: float
    """Scores of peaks that are no farther apart are tied."""

    @classmethod
    def of(cls, question: Question, catalog: Catalog) -> "View":
        planner = planner_of(question, catalog)
        peaks = None
        if planner is None:
            support = question.constraints.precision_support
            peaks = assumed_peaks(question.task, question.precisions, question.usual, support, catalog)
        return cls.on(catalog, question.objective, peaks, planner, question.needs)

    @classmethod
    def on(
        cls, catalog: Catalog, objective: Objective, peaks: Peaks | None, planner: Planner | None, needs: Requirements
    ) -> "View":
        rests_on = peaks.key if peaks is not None else planner.key if planner is not None else None
        key = (rests_on, objective.key)
        return cls(catalog, objective, peaks, planner, needs, key, lead_of_peaks(objective.key))

    def weighing(self, objective: Objective, limits: Limits | None = None) -> "View":
        """The same under another objective, and other limits of the job."""
        planner = self.planner
        if planner is not None:
            planner = replace(planner, objective=objective, limits=planner.limits if limits is None else limits)
        return View.on(self.catalog, objective, self.peaks, planner, self.needs)

    def select(self, asked: Constraints) -> Selection:
        return select(asked, self.catalog, self.checks(asked))

    def checks(self, asked: Constraints) -> list[Check]:
        needed = figures_needed(self.objective, self.peaks, self.catalog)
        if self.needs is not NOTHING:
            needed += requirement_checks(self.needs, self.catalog)
        if self.planner is None:
            return needed
        planner, cells = self.planner, offer_choice(asked.of_offers, self.catalog).cells
        found = limit_checks(planner, cells, asked.max_usd_per_hour, self.catalog)
        keeping = None
        if planner.limits.bind:
            keeping = partial(keeping_on_more, planner, cells, catalog=self.catalog)
        return [*runs_where(planner.outlook, keeping, self.catalog), *found, *needed]

    def order(self, some: AdmittedOffers) -> Order:
        """An order that holds the candidates, worked out once for cells that stay."""
        order = some.cells.orders.get_or_compute(self.key, lambda: self.order_of(some.cells))
        if order.unknown & some.types:
            return self.order_of(CheapestOffers.of(some.cells.offer[some.places], self.catalog))
        return order

    def order_of(self, cells: CheapestOffers) -> Order:
        if self.planner is None:
            assert self.peaks is not None
            return order_of(cells, self.objective, figures_of(cells, self.peaks, self.catalog), None, self.catalog)
        plans = self.planner.plans(cells, self.catalog)
        return order_of(cells, self.objective, plans.figures, plans, self.catalog)

    def leading(self, some: AdmittedOffers, limit: int) -> Leading:
        """The best of each type, best first: worked out once for types that stay, as the few under a price limit do."""
        order = self.order(some)
        get_or_compute = self.catalog.leading.get_or_compute if limit <= MOST_REMEMBERED else anew
        among = (order.identity, some.types, 0 if order.one_each else some.cells.count_within(some.limit), limit)

        def find() -> Leading:
            """Of other types the same ones may lead: what is ranked and told of those is remembered as well."""
            ranked = order.best_of_each(some)
            front = ranked.front(limit)
            first = (order.identity, ranked.cell[: limit + MOST_TIES].tobytes(), tuple(front))
            return get_or_compute(first, lambda: Leading.of(self.choices(ranked, front)))

        return get_or_compute(among, find)

    def rank_offers(self, asked: Constraints, admitted: TypeSet, question: Question) -> Ranked:
        some = passing_offers(asked.of_offers, admitted, asked.max_usd_per_hour, self.catalog)
        ranked = self.order(some).among(some)
        return self.diverse(ranked, question) if question.diversify else ranked

    def choices(self, ranked: Ranked, front: Sequence[bool]) -> Iterator[Choice]:
        """As many of the first as it is told of whether they stand on the front."""
        shown = len(front)
        scores = ranked.score[: shown + MOST_TIES].tolist()
        rivals, even = self.rivals(ranked, scores), self.even
        found = zip(ranked.instance_type[:shown].tolist(), ranked.offer[:shown].tolist(), strict=True)
        for place, (kind, offer) in enumerate(found):
            score = scores[place]
            if rivals is not None:
                others = tied_with(place, rivals)
            else:
                tied = range(bisect_left(scores, score - even), bisect_left(scores, score + even))[:MOST_TIES]
                others = tuple([other + 1 for other in tied if other != place]) if len(tied) > 1 else ()
            yield self.choice(
                kind, offer, ranked, place, rank=place + 1, score=score, tied_with=others, pareto=front[place]
            )

    def rivals(self, ranked: Ranked, scores: list[float]) -> list[Uncertain] | None:
        """How far the first ones may be off; nothing where peaks rank, which are what they are."""
        if self.planner is None or ranked.plans is None:
            return None
        outlook, plans = self.planner.outlook, ranked.plans
        weight = weight_of_speed(self.objective, has_amount=outlook.job.amount is not None)
        cells = ranked.cell[: len(scores)]
        rows = zip(
            scores,
            ranked.instance_type[: len(scores)].tolist(),
            plans.option.take(cells).tolist(),
            plans.nodes.take(cells).tolist(),
            strict=True,
        )
        return [
            uncertain(
                score,
                weight,
                outlook.options[option],
                kind,
                self.catalog.instance_types[kind],
                nodes,
                seen=kind in outlook.seen,
            )
            for score, kind, option, nodes in rows
        ]

    def choice(
        self,
        kind: int,
        offer: int,
        ranked: Ranked,
        place: int,
        *,
        rank: int,
        score: float,
        tied_with: tuple[int, ...] = (),
        pareto: bool = False,
    ) -> Choice:
        precision, speed, nodes, instances, hours, usd = None, None, 1, 1, None, None
        if ranked.plans is None:
            assert self.peaks is not None
            precision, speed = self.peaks.told[kind]
        else:
            plans, cell = ranked.plans, int(ranked.cell[place])
            nodes, instances = int(plans.nodes[cell]), int(plans.instances[cell])
            speed, hours = known(float(plans.rate[cell])), known(float(plans.hours[cell]))
            usd = known(float(plans.figures.usd[cell]))
        return Choice(
            rank,
            self.catalog.instance_types[kind],
            kind,
            offer,
            self.catalog.offer(offer),
            precision,
            speed,
            nodes,
            instances,
            hours,
            usd,
            score,
            tied_with,
            pareto,
        )

    def diverse(self, ranked: Ranked, question: Question) -> Ranked:
        """Offers that differ in what can fail together, the best of them first."""
        words, offers = self.catalog.columns.words, self.catalog.offers
        kinds = ranked.instance_type
        domains = (words["family"].codes[kinds], offers.region[ranked.offer], offers.market[ranked.offer])
        once = None if question.per_offer else kinds
        return ranked.some(apart(ranked.score, domains, question.limit, once))

    def nearest(self, asked: Constraints) -> tuple[Choice | None, Choice | None]:
        """Of what misses either the deadline or the budget, the cheapest in time and the fastest within the budget."""
        if self.planner is None or self.planner.limits.deadline_hours is None or self.planner.limits.budget_usd is None:
            return None, None
        limits = self.planner.limits
        in_time = self.weighing(Objective(NAMED["cheapest"]), replace(limits, budget_usd=None))
        in_budget = self.weighing(Objective(NAMED["fastest"]), replace(limits, deadline_hours=None))
        return in_time.first(asked), in_budget.first(asked)

    def first(self, asked: Constraints) -> Choice | None:
        return next(iter(self.leading(self.select(asked).admitted, 1).choices), None)

    def rejection(self, count: int, obstacle: Obstacle) -> Rejection:
        if not obstacle.alone:
            return Rejection(obstacle.code, obstacle.ground, count, 0, None)
        relaxed = obstacle.relax(self.catalog)
        relaxation = None if relaxed is None else self.relaxation(relaxed)
        return Rejection(obstacle.code, obstacle.ground, count, obstacle.alone.bit_count(), relaxation)

    def relaxation(self, relaxed: Relaxation) -> RelaxationOutcome | None:
        view, to, admitted = self, relaxed.to, relaxed.admitted
        if self.planner is not None and "max_nodes" not in to:
            if loosened := {name: value for name, value in to.items() if name in LIMITS}:
                view = self.weighing(self.objective, replace(self.planner.limits, **loosened))  # type: ignore[arg-type]
            plans = view.planner.plans(admitted.cells, self.catalog)  # type: ignore[union-attr]
            cells, limit = admitted.cells, admitted.limit
            keeps = plans.keeps if limit is None else plans.keeps & (cells.usd <= limit)
            keeping = types_among(cells, keeps, len(self.catalog.instance_types))
            admitted = admitted._replace(types=admitted.types & keeping)
        if not admitted.types:
            return None
        kind, offer = view.order(admitted).first(admitted)
        best = self.catalog.instance_types[kind]
        return RelaxationOutcome(to, admitted.types.bit_count(), best, offer, self.catalog.offer(offer))

    def current(self, question: Question) -> Choice | None:
        """The machine the caller has, at the cheapest offer in the regions and markets asked for."""
        if question.current_instance is None:
            return None
        place = self.catalog.place_of[question.current_instance]
        asked = Constraints(
            words={"instance": (question.current_instance,)},
            region=question.constraints.region,
            market=question.constraints.market,
        )
        admitted = select(asked, self.catalog).admitted
        offers = admitted.cells.offer[admitted.places]
        known = offers if len(offers) else np.array(self.catalog.offer_places(place)[:1])
        if not len(known):
            return None
        cheapest = int(known[np.nanargmin(np.nan_to_num(self.catalog.offers.usd_per_hour_at(known), nan=np.inf))])
        only = CheapestOffers.of(np.array([cheapest]), self.catalog)
        return self.choice(place, cheapest, self.order_of(only).ranked(), 0, rank=0, score=0.0)
