"""Question in, Answer out: which offers to take, in which order, and what kept the others out. Forward only."""

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from math import inf, isnan
from operator import or_
from typing import NamedTuple

import numpy as np

from service.domain.catalog import Catalog, Floats, Mask
from service.domain.constraints import Check, Constraints, never
from service.domain.hardware import InstanceType
from service.domain.job import Job
from service.domain.objective import NEEDS_POWER, NEEDS_SPEED, Figures, Objective, scores
from service.domain.offer import Offer
from service.domain.outlook import Aim, Outlook, job_checks, node_counts, outlook_of
from service.domain.precision import ENOUGH, SUPPORT_LEVELS
from service.domain.selection import Candidates, Cells, Obstacle, Places, Selection, every_offer, select, usd_per_hour
from service.domain.typeset import TypeSet, types_where

PRECISION_BY_TASK: dict[str, tuple[str, ...]] = {
    "training": ("bf16", "fp16", "tf32", "fp32"),
    "inference": ("bf16", "fp16", "tf32", "fp32"),
    "hpc": ("fp64",),
    "graphics": ("fp32",),
}
"""Precisions a task can use when the caller names none; the fastest that a GPU has counts. Other tasks need no GPU."""

SPOT = 1
TIE = 1e-9
MOST_TIES = 20


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
    job: Job | None = None
    """Where there is one, physics ranks; else the peaks do."""
    nodes: tuple[int, int] = (1, 1)
    """The least and the most."""
    deadline_hours: float | None = None


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
    node_hours: float | None
    """Of the job, on all nodes; how many nodes where no amount of work is told, and nothing without a job."""
    score: float
    tied_with: tuple[int, ...]
    pareto: bool


class Relaxation(NamedTuple):
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
    relaxation: Relaxation | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Ranked choices and counted rejections; every type considered is either admitted or rejected."""

    choices: tuple[Choice, ...]
    rejections: tuple[Rejection, ...]
    considered: int
    admitted: int
    ranked: int
    """How many choices there would be without a limit: one per type admitted, or one per offer."""
    current: Choice | None
    price_ignored: bool
    outlook: Outlook | None = None
    """Of the job, where the question has one."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Per instance type: the precision that the ranking assumes, and the peak at it, or samples per second of a job."""

    peak: Floats
    told: tuple[tuple[str | None, float | None], ...]
    """The precision and the peak, null where there is none or it is not known."""
    unknown: TypeSet
    """The types whose peak is not known although they are rated by one."""
    key: Hashable
    """What they were assumed for."""
    nodes: Floats | None = None
    """How many nodes of each type; one of each where there is no job."""
    node_hours: Floats | None = None
    """What a price is multiplied by to tell what the job costs; an hour's price counts where there is no job."""


def recommend(question: Question, catalog: Catalog) -> Answer:
    """Rank what the constraints admit. Where none of it has a price, hardware alone ranks and the answer says so."""
    outlook = job_outlook(question, catalog)
    speeds = assumed_speeds(question, catalog) if outlook is None else job_speeds(outlook, catalog)
    checks = [] if outlook is None else job_checks(outlook, catalog)
    asked, objective, ignored = question.constraints, question.objective, False
    selection = select(asked, catalog, [*checks, *figures_needed(objective, speeds, catalog)])
    if (
        asked.needs_price
        and not selection.admitted.types
        and any(o.code == "price_unknown" for o in selection.obstacles)
    ):
        fallback = Objective({"hours": 1.0})
        unpriced = replace(asked, needs_price=False)
        found = select(unpriced, catalog, [*checks, *figures_needed(fallback, speeds, catalog)])
        if found.admitted.types:
            asked, selection, objective, ignored = unpriced, found, fallback, True
    view = View.of(catalog, speeds, objective)
    admitted = selection.admitted.types
    if question.per_offer:
        ranked = view.rank(every_offer(asked, admitted, catalog), per_offer=True)
    else:
        ranked = view.rank(selection.admitted)
    return Answer(
        choices=tuple(view.choices(ranked, question)),
        rejections=tuple([view.rejection(count, obstacle) for count, obstacle in by_count(selection)]),
        considered=len(catalog.instance_types),
        admitted=admitted.bit_count(),
        ranked=len(ranked.score),
        current=view.current(question),
        price_ignored=ignored,
        outlook=outlook,
    )


def job_outlook(question: Question, catalog: Catalog) -> Outlook | None:
    if question.job is None:
        return None
    weights = question.objective.weights
    usd = sum(weights.get(name, 0.0) for name in ("usd", "samples_per_usd", "joules"))
    hours = sum(weights.get(name, 0.0) for name in ("hours", "samples_per_second"))
    return outlook_of(question.job, node_counts(*question.nodes), Aim(usd, hours, question.deadline_hours), catalog)


def job_speeds(found: Outlook, catalog: Catalog) -> Speeds:
    """Samples per second and what they cost; a type that cannot run the job has neither."""
    return catalog.outlooks.recall(("speeds", found.key), lambda: find_job_speeds(found))


def find_job_speeds(found: Outlook) -> Speeds:
    best = found.best
    rate = np.where(best.works, best.likely, np.nan)
    told = tuple((None, known(each)) for each in rate.tolist())
    return Speeds(rate, told, 0, found.key, best.nodes, found.node_hours())


def by_count(selection: Selection) -> list[tuple[int, Obstacle]]:
    """The most first, and even ones by name."""
    counted = [(-each.fails.bit_count(), each.code, place) for place, each in enumerate(selection.obstacles)]
    return [(-count, selection.obstacles[place]) for count, _, place in sorted(counted)]


def assumed_speeds(question: Question, catalog: Catalog) -> Speeds:
    """Per type, the precision the work would run in, and its peak.

    That is the first of the caller's precisions that runs there, or the fastest usual one when the caller names none.
    """
    key = (question.task, question.precisions, question.constraints.precision_support)
    return catalog.memory.recall(("speeds", key), lambda: find_speeds(question, catalog, key))


def usual_precisions(task: str, catalog: Catalog) -> tuple[str, ...]:
    """The precisions that a task can use when the caller names none; empty for work that needs no GPU."""
    return tuple(name for name in PRECISION_BY_TASK.get(task, ()) if name in catalog.reference.precisions)


def find_speeds(question: Question, catalog: Catalog, key: Hashable) -> Speeds:
    types = len(catalog.instance_types)
    names = question.precisions or usual_precisions(question.task, catalog)
    if not names:
        vcpus = catalog.columns.numbers["vcpus"]
        return Speeds(vcpus, tuple((None, known(peak)) for peak in vcpus.tolist()), types_where(np.isnan(vcpus)), key)
    enough = np.array([level in ENOUGH[question.constraints.precision_support] for level in SUPPORT_LEVELS] + [False])
    peak, chosen = np.full(types, np.nan), np.full(types, -1)
    for code, name in enumerate(names):
        runs = enough[catalog.columns.support[name]]
        offered = catalog.columns.tflops[name]
        better = (chosen < 0) if question.precisions else (chosen < 0) | np.greater(offered, np.nan_to_num(peak))
        taken = runs & better
        peak[taken], chosen[taken] = offered[taken], code
    precisions = [None if code < 0 else names[code] for code in chosen.tolist()]
    told = tuple(zip(precisions, map(known, peak.tolist()), strict=True))
    return Speeds(peak, told, types_where(np.isnan(peak) & (chosen >= 0)), key)


def known(value: float) -> float | None:
    return None if isnan(value) else value


def figures_needed(objective: Objective, speeds: Speeds, catalog: Catalog) -> list[Check]:
    """Types that cannot be ranked because a figure that the objective needs is not known."""
    checks = []
    if objective.needs(NEEDS_SPEED):
        checks.append(Check("peak_unknown", "data", speeds.unknown, never))
    if objective.needs(NEEDS_POWER):
        watts = catalog.columns.numbers["tdp_watts"]
        unknown = catalog.memory.recall("power_unknown", lambda: types_where(np.isnan(watts)))
        checks.append(Check("power_unknown", "data", unknown, never))
    return checks


BLOCK = 8
Block = list[tuple[TypeSet, int, int, float]]
"""Of each cell its type, as a set and by its place, its offer and its price."""


@dataclass(frozen=True, slots=True)
class Order:
    """Cells under an objective, best first. Columns stand side by side.

    Scores are sums of logarithms beside those of the best, so a choice among the cells shifts them all alike: what is
    first of all cells is first of any part that it belongs to.
    """

    instance_type: Places
    offer: Places
    usd: Floats
    """The price of an hour, which limits are on."""
    cost: Floats
    """Of the job where there is one, else of an hour."""
    speed: Floats
    score: Floats
    unknown: TypeSet
    """The types whose score is not known; among others, none of which has the figure, it may be."""
    one_each: bool
    """No type has more than one cell."""
    blocks: tuple[Block, ...]
    """A few cells at a time."""
    through: list[TypeSet]
    """The types that have a cell in a block or in one before."""

    def first(self, some: Candidates) -> tuple[int, int]:
        """Type and offer of the best of the candidates: faster than the column of all of them."""
        types, limit = some.types, inf if some.limit is None else some.limit
        start = bisect_left(self.through, 1, key=lambda held: (held & types) != 0)
        for block in range(start, len(self.blocks)):
            for one, kind, offer, usd in self.blocks[block]:
                if one & types and usd <= limit:
                    return kind, offer
        raise AssertionError("every candidate is among the cells")


def order_of(cells: Cells, objective: Objective, speeds: Speeds, catalog: Catalog) -> Order:
    """Best score first; ties go to the lower price, then to on-demand, then by name."""
    told = figures(cells, speeds, catalog)
    score = scores(objective, told)
    order = order_by(score, cells.usd, told.risk, cells.instance_type, cells.offer)
    kinds, offers, usd = cells.instance_type[order], cells.offer[order], cells.usd[order]
    lacking = np.bincount(cells.instance_type[np.isnan(score)], minlength=len(catalog.instance_types))
    listed = [
        (1 << kind, kind, offer, price)
        for kind, offer, price in zip(kinds.tolist(), offers.tolist(), usd.tolist(), strict=True)
    ]
    blocks = tuple(listed[start : start + BLOCK] for start in range(0, len(listed), BLOCK))
    return Order(
        instance_type=kinds,
        offer=offers,
        usd=usd,
        cost=told.usd[order],
        speed=told.speed[order],
        score=score[order],
        unknown=types_where(lacking > 0),
        one_each=len(kinds) == cells.types.bit_count(),
        blocks=blocks,
        through=list(accumulate((reduce(or_, (cell[0] for cell in block)) for block in blocks), or_)),
    )


def figures(some: Cells, speeds: Speeds, catalog: Catalog) -> Figures:
    kinds, price = some.instance_type, usd_per_hour(catalog.offers, some.offer)
    nodes = 1.0 if speeds.nodes is None else speeds.nodes[kinds]
    return Figures(
        usd=price if speeds.node_hours is None else price * speeds.node_hours[kinds],
        usd_per_hour=price * nodes,
        speed=speeds.peak[kinds],
        watts=catalog.columns.numbers["tdp_watts"][kinds] * nodes,
        risk=(catalog.offers.market[some.offer] == SPOT).astype(np.float64),
    )


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates, best first. An unknown cost is NaN, and so is an unknown speed."""

    instance_type: Places
    offer: Places
    cost: Floats
    speed: Floats
    score: Floats


@dataclass(frozen=True, slots=True)
class View:
    """A catalog seen under one objective."""

    catalog: Catalog
    speeds: Speeds
    objective: Objective
    key: Hashable

    @classmethod
    def of(cls, catalog: Catalog, speeds: Speeds, objective: Objective) -> "View":
        return cls(catalog, speeds, objective, (speeds.key, tuple(objective.weights.items())))

    def order(self, some: Candidates) -> Order:
        """An order that holds the candidates, worked out once for cells that stay."""
        order = some.cells.orders.recall(self.key, lambda: self.order_of(some.cells))
        if order.unknown & some.types:
            return self.order_of(Cells.of(some.cells.offer[some.places], self.catalog))
        return order

    def order_of(self, cells: Cells) -> Order:
        return order_of(cells, self.objective, self.speeds, self.catalog)

    def rank(self, some: Candidates, *, per_offer: bool = False) -> Ranked:
        """The best of each type, or every offer, best first."""
        order = self.order(some)
        places = some.among(order.instance_type, order.usd).nonzero()[0]
        if not (per_offer or order.one_each):
            places = places[first_of_each(order.instance_type[places])]
        return Ranked(
            order.instance_type.take(places),
            order.offer.take(places),
            order.cost.take(places),
            order.speed.take(places),
            order.score.take(places),
        )

    def choices(self, ranked: Ranked, question: Question) -> Iterator[Choice]:
        shown = min(question.limit, len(ranked.score))
        front = pareto(ranked.cost, ranked.speed, shown)
        scores = ranked.score[: shown + MOST_TIES].tolist()
        found = zip(ranked.instance_type[:shown].tolist(), ranked.offer[:shown].tolist(), strict=True)
        for place, (kind, offer) in enumerate(found):
            score = scores[place]
            tied = range(bisect_left(scores, score - TIE), bisect_left(scores, score + TIE))[:MOST_TIES]
            others = tuple([other + 1 for other in tied if other != place]) if len(tied) > 1 else ()
            yield self.choice(kind, offer, rank=place + 1, score=score, tied_with=others, pareto=front[place])

    def choice(
        self, kind: int, offer: int, *, rank: int, score: float, tied_with: tuple[int, ...] = (), pareto: bool = False
    ) -> Choice:
        precision, speed = self.speeds.told[kind]
        return Choice(
            rank=rank,
            instance_type=self.catalog.instance_types[kind],
            place=kind,
            offer_place=offer,
            offer=self.catalog.offer(offer),
            precision=precision,
            speed=speed,
            nodes=1 if self.speeds.nodes is None else int(self.speeds.nodes[kind]),
            node_hours=None if self.speeds.node_hours is None else float(self.speeds.node_hours[kind]),
            score=score,
            tied_with=tied_with,
            pareto=pareto,
        )

    def rejection(self, count: int, obstacle: Obstacle) -> Rejection:
        if not obstacle.alone:
            return Rejection(obstacle.code, obstacle.ground, count, 0, None)
        relaxed = obstacle.relax()
        relaxation = None if relaxed is None else self.relaxation(*relaxed)
        return Rejection(obstacle.code, obstacle.ground, count, obstacle.alone.bit_count(), relaxation)

    def relaxation(self, to: dict[str, object], admitted: Candidates) -> Relaxation | None:
        if not admitted.types:
            return None
        kind, offer = self.order(admitted).first(admitted)
        best = self.catalog.instance_types[kind]
        return Relaxation(to, admitted.types.bit_count(), best, offer, self.catalog.offer(offer))

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
        cheapest = known[np.nanargmin(np.nan_to_num(usd_per_hour(self.catalog.offers, known), nan=np.inf))]
        return self.choice(place, int(cheapest), rank=0, score=0.0)


def order_by(score: Floats, *tie_breakers: np.ndarray) -> Places:
    """Where to find the lowest score, the next and so on; even ones by the first tie breaker, then by the next.

    Sorting by every key costs several times as much as sorting by the score, and mostly few scores are even.
    """
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    even = np.zeros(len(order) + 1, np.bool_)
    even[1:-1] = ordered[1:] == ordered[:-1]
    among = np.flatnonzero(even[1:] | even[:-1])
    if len(among):
        mixed = order[among]
        order[among] = mixed[np.lexsort([key[mixed] for key in (*reversed(tie_breakers), score)])]
    return order


def first_of_each(kinds: Places) -> Mask:
    """Where each kind stands for the first time."""
    places = np.arange(len(kinds))
    first = np.zeros(int(kinds.max(initial=-1)) + 1, np.int64)
    first[kinds[::-1]] = places[::-1]
    return np.asarray(first[kinds] == places, np.bool_)


def pareto(usd: Floats, speed: Floats, shown: int) -> list[bool]:
    """Which of the first `shown` no candidate beats on price and speed at once; unknown figures are on no front."""
    front = [False] * shown
    # Only who is as cheap as the dearest of them and as fast as the slowest can beat one.
    prices, speeds = usd[:shown].tolist(), speed[:shown].tolist()
    dearest = max((price for price in prices if price < inf), default=-inf)
    slowest = min((each for each in speeds if not isnan(each)), default=inf)
    rivals = ((usd <= dearest) & (speed >= slowest)).nonzero()[0]
    fastest = -inf
    for _, slowness, place in sorted(
        zip(usd.take(rivals).tolist(), (-speed.take(rivals)).tolist(), rivals.tolist(), strict=True)
    ):
        if -slowness > fastest:
            fastest = -slowness
            if place < shown:
                front[place] = True
    return front
