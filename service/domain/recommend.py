"""Question in, Answer out: which offers to take, in which order, and what kept the others out. Forward only."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from service.domain.catalog import Catalog, Floats, Mask
from service.domain.constraints import Check, Constraints, never
from service.domain.hardware import InstanceType
from service.domain.objective import NEEDS_POWER, NEEDS_SPEED, Figures, Objective, scores
from service.domain.offer import Offer
from service.domain.precision import ENOUGH, SUPPORT_LEVELS
from service.domain.selection import (
    Candidates,
    Obstacle,
    Places,
    Selection,
    every_offer,
    offer_choice,
    select,
    usd_per_hour,
)

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


@dataclass(frozen=True, slots=True)
class Choice:
    """One ranked offer. `speed` is the peak at `precision`, in 10^12 operations per second, or vCPUs without one."""

    rank: int
    instance_type: InstanceType
    place: int
    offer_place: int
    offer: Offer
    precision: str | None
    speed: float | None
    score: float
    tied_with: tuple[int, ...]
    pareto: bool


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The least change of one constraint that lets something in: to what, how many types, and the best of them."""

    to: dict[str, object]
    admits: int
    best: Choice


@dataclass(frozen=True, slots=True)
class Rejection:
    """How many types a constraint turned away, and how many of them it alone."""

    code: str
    ground: str
    count: int
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


@dataclass(frozen=True, slots=True)
class Speeds:
    """Per instance type: the peak the ranking assumes, and the code of its precision (-1: none)."""

    peak: Floats
    precision: np.ndarray
    names: tuple[str, ...]
    key: Hashable
    """What they were assumed for."""

    def name(self, place: int) -> str | None:
        code = int(self.precision[place])
        return None if code < 0 else self.names[code]


def recommend(question: Question, catalog: Catalog) -> Answer:
    """Rank what the constraints admit. Where none of it has a price, hardware alone ranks and the answer says so."""
    speeds = assumed_speeds(question, catalog)
    asked, objective, ignored = question.constraints, question.objective, False
    selection = select(asked, catalog, figures_needed(objective, speeds, catalog))
    if (
        asked.needs_price
        and not len(selection.admitted)
        and any(o.code == "price_unknown" for o in selection.obstacles)
    ):
        fallback = Objective({"hours": 1.0})
        unpriced = replace(asked, needs_price=False)
        found = select(unpriced, catalog, figures_needed(fallback, speeds, catalog))
        if len(found.admitted):
            asked, selection, objective, ignored = unpriced, found, fallback, True
    view = View(catalog, speeds, objective, known_order(asked, speeds, objective, catalog))
    if question.per_offer:
        ranked = view.rank(every_offer(asked, selection, catalog), per_offer=True)
    else:
        ranked = view.rank(selection.admitted)
    return Answer(
        choices=tuple(view.choices(ranked, question)),
        rejections=tuple(view.rejection(obstacle) for obstacle in by_count(selection)),
        considered=len(catalog.instance_types),
        admitted=int((~selection.rejected).sum()),
        ranked=len(ranked.score),
        current=view.current(question),
        price_ignored=ignored,
    )


def by_count(selection: Selection) -> list[Obstacle]:
    return sorted(selection.obstacles, key=lambda obstacle: (-np.count_nonzero(obstacle.fails), obstacle.code))


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
        return Speeds(catalog.columns.numbers["vcpus"], np.full(types, -1), (), key)
    enough = np.array([level in ENOUGH[question.constraints.precision_support] for level in SUPPORT_LEVELS] + [False])
    peak, chosen = np.full(types, np.nan), np.full(types, -1)
    for code, name in enumerate(names):
        runs = enough[catalog.columns.support[name]]
        offered = catalog.columns.tflops[name]
        better = (chosen < 0) if question.precisions else (chosen < 0) | np.greater(offered, np.nan_to_num(peak))
        taken = runs & better
        peak[taken], chosen[taken] = offered[taken], code
    return Speeds(peak, chosen, names, key)


def figures_needed(objective: Objective, speeds: Speeds, catalog: Catalog) -> list[Check]:
    """Types that cannot be ranked because a figure that the objective needs is not known."""
    checks = []
    if objective.needs(NEEDS_SPEED):
        unknown = np.isnan(speeds.peak) & ((speeds.precision >= 0) | (not speeds.names))
        checks.append(Check("peak_unknown", "data", unknown, never))
    if objective.needs(NEEDS_POWER):
        checks.append(Check("power_unknown", "data", np.isnan(catalog.columns.numbers["tdp_watts"]), never))
    return checks


@dataclass(frozen=True, slots=True)
class Ranked:
    """Candidates in order, best first, one per instance type; figures stand beside them."""

    candidates: Candidates
    score: Floats
    figures: Figures


@dataclass(frozen=True, slots=True)
class Order:
    """Every cell of an offer choice under an objective: its score, and its place in the order, best first.

    Scores are sums of logarithms beside those of the best, so a choice among the cells shifts them all alike: what is
    first of all cells is first of any part that it belongs to.
    """

    score: Floats
    rank: Places


def known_order(asked: Constraints, speeds: Speeds, objective: Objective, catalog: Catalog) -> Order:
    """Worked out once for all questions with these offers, precisions and this objective."""
    choice = offer_choice(asked, catalog)

    def build() -> Order:
        told = figures(choice.cells, speeds, catalog)
        score = scores(objective, told)
        rank = np.empty(len(score), np.int64)
        rank[order_by(score, *tie_breakers(choice.cells, told))] = np.arange(len(score))
        return Order(score, rank)

    return choice.orders.recall((speeds.key, tuple(objective.weights.items())), build)


def figures(some: Candidates, speeds: Speeds, catalog: Catalog) -> Figures:
    return Figures(
        usd_per_hour=usd_per_hour(catalog.offers, some.offer),
        speed=speeds.peak[some.instance_type],
        watts=catalog.columns.numbers["tdp_watts"][some.instance_type],
        risk=(catalog.offers.market[some.offer] == SPOT).astype(np.float64),
    )


@dataclass(frozen=True, slots=True)
class View:
    """A catalog seen under one objective."""

    catalog: Catalog
    speeds: Speeds
    objective: Objective
    order: Order

    def figures(self, some: Candidates) -> Figures:
        return figures(some, self.speeds, self.catalog)

    def rank(self, some: Candidates, *, per_offer: bool = False) -> Ranked:
        """Best score first; ties go to the lower price, then to on-demand, then by name."""
        figures = self.figures(some)
        rank = self.known_ranks(some)
        if rank is None:
            score = scores(self.objective, figures)
            order = order_by(score, *tie_breakers(some, figures))
        else:
            score = self.order.score[some.among]
            order = np.argsort(rank)
        if not per_offer:
            order = order[first_of_each(some.instance_type[order])]
        return Ranked(
            Candidates(some.instance_type[order], some.offer[order]),
            score[order],
            Figures(*(column[order] for column in (figures.usd_per_hour, figures.speed, figures.watts, figures.risk))),
        )

    def best(self, some: Candidates) -> Choice:
        """The one that `rank` would put first."""
        rank = self.known_ranks(some)
        if rank is None:
            told = self.figures(some)
            score = scores(self.objective, told)
            lowest = np.flatnonzero(score == np.fmin.reduce(score))
            even = lowest if len(lowest) else np.arange(len(score))  # no score is known
            first = even[np.lexsort([key[even] for key in reversed(tie_breakers(some, told))])[0]]
        else:
            first = rank.argmin()
        return self.choice(int(some.instance_type[first]), int(some.offer[first]), rank=1, score=0.0)

    def known_ranks(self, some: Candidates) -> Places | None:
        """How the candidates stand to each other, where the order of all cells tells it."""
        if some.among is None or np.isnan(self.order.score[some.among]).any():
            return None  # what is not known of these alone might leave them even
        return self.order.rank[some.among]

    def choices(self, ranked: Ranked, question: Question) -> Iterator[Choice]:
        shown = min(question.limit, len(ranked.score))
        front = pareto(ranked.figures.usd_per_hour, ranked.figures.speed, shown)
        for place in range(shown):
            score = float(ranked.score[place])
            tied = range(below(ranked.score, score - TIE), below(ranked.score, score + TIE))[:MOST_TIES]
            yield self.choice(
                int(ranked.candidates.instance_type[place]),
                int(ranked.candidates.offer[place]),
                rank=place + 1,
                score=score,
                tied_with=tuple(other + 1 for other in tied if other != place),
                pareto=bool(front[place]),
            )

    def choice(
        self, kind: int, offer: int, *, rank: int, score: float, tied_with: tuple[int, ...] = (), pareto: bool = False
    ) -> Choice:
        peak = float(self.speeds.peak[kind])
        return Choice(
            rank=rank,
            instance_type=self.catalog.instance_types[kind],
            place=kind,
            offer_place=offer,
            offer=self.catalog.offer(offer),
            precision=self.speeds.name(kind),
            speed=None if np.isnan(peak) else peak,
            score=score,
            tied_with=tied_with,
            pareto=pareto,
        )

    def rejection(self, obstacle: Obstacle) -> Rejection:
        alone = int(np.count_nonzero(obstacle.alone))
        relaxed = obstacle.relax() if alone else None
        relaxation = None
        if relaxed and len(relaxed[1]):
            to, admitted = relaxed
            relaxation = Relaxation(to, len(set(admitted.instance_type.tolist())), self.best(admitted))
        return Rejection(obstacle.code, obstacle.ground, int(np.count_nonzero(obstacle.fails)), alone, relaxation)

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
        offers = select(asked, self.catalog).admitted.offer
        known = offers if len(offers) else np.array(self.catalog.offer_places(place)[:1])
        if not len(known):
            return None
        cheapest = known[np.nanargmin(np.nan_to_num(usd_per_hour(self.catalog.offers, known), nan=np.inf))]
        return self.choice(place, int(cheapest), rank=0, score=0.0)


def tie_breakers(some: Candidates, figures: Figures) -> tuple[np.ndarray, ...]:
    """Even scores go to the lower price, then to on-demand, then by name."""
    price = np.where(np.isnan(figures.usd_per_hour), np.inf, figures.usd_per_hour)
    return price, figures.risk, some.instance_type, some.offer


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


def below(ordered: Floats, value: float) -> int:
    """How many of the ordered values are lower."""
    return int(ordered.searchsorted(value))


def first_of_each(kinds: Places) -> Mask:
    """Where each kind stands for the first time."""
    places = np.arange(len(kinds))
    first = np.zeros(int(kinds.max(initial=-1)) + 1, np.int64)
    first[kinds[::-1]] = places[::-1]
    return np.asarray(first[kinds] == places, np.bool_)


def pareto(usd: Floats, speed: Floats, shown: int) -> Mask:
    """Which of the first `shown` no candidate beats on price and speed at once; unknown figures are on no front."""
    front = np.zeros(shown, np.bool_)
    if not shown:
        return front
    # Only who is as cheap as the dearest of them and as fast as the slowest can beat one.
    dearest, slowest = np.fmax.reduce(usd[:shown]), np.fmin.reduce(speed[:shown])
    rivals = np.flatnonzero((usd <= dearest) & (speed >= slowest))
    if not len(rivals):
        return front
    order = rivals[np.lexsort((-speed[rivals], usd[rivals]))]
    ahead = np.full(len(order), -np.inf)
    np.maximum.accumulate(speed[order[:-1]], out=ahead[1:])
    found = order[speed[order] > ahead]
    front[found[found < shown]] = True
    return front
