"""Candidates in their order under an objective: the best of them, the best of each type, and the Pareto front."""

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import reduce
from math import inf
from operator import or_
from threading import Lock
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, Indices, Mask
from service.domain.catalog.catalog import Catalog
from service.domain.pareto import pareto
from service.domain.recommend.objective import Figures, Objective, compared, scores
from service.domain.recommend.plans import SPOT, Plans
from service.domain.selection.offers import AdmittedOffers, CheapestOffers
from service.domain.typeset import TypeSet, types_where

BLOCK = 16
Block = list[tuple[TypeSet, int, int, float]]
"""Of each cell its type, as a set and by its place, its offer and its price."""


class Blocks:
    """Cells in their order, a few at a time, each made when somebody first looks so far: most look at the first."""

    def __init__(self, kinds: Indices, offers: Indices, usd: Floats) -> None:
        self._columns = (kinds, offers, usd)
        self._blocks: list[Block] = []
        self._through: list[TypeSet] = []
        """The types that have a cell in a block or in one before."""
        self._lock = Lock()

    def first(self, types: TypeSet, limit: float) -> tuple[int, int]:
        """Type and offer of the first cell of these types that costs no more than the limit."""
        start = bisect_left(self._through, 1, key=lambda held: (held & types) != 0)
        for number in range(start, -(-len(self._columns[0]) // BLOCK)):
            for one, kind, offer, usd in self._block(number):
                if one & types and usd <= limit:
                    return kind, offer
        raise AssertionError("every candidate is among the cells")

    def _block(self, number: int) -> Block:
        if number >= len(self._blocks):
            with self._lock:
                while number >= len(self._blocks):
                    self._make()
        return self._blocks[number]

    def _make(self) -> None:
        start = len(self._blocks) * BLOCK
        kinds, offers, usd = (column[start : start + BLOCK].tolist() for column in self._columns)
        block = [(1 << kind, kind, offer, price) for kind, offer, price in zip(kinds, offers, usd, strict=True)]
        before = self._through[-1] if self._through else 0
        self._blocks.append(block)
        self._through.append(reduce(or_, (cell[0] for cell in block), before))


@dataclass(frozen=True, slots=True)
class Order:
    """Cells under an objective, best first. Columns stand side by side.

    Scores are sums of logarithms beside those of the best, so a choice among the cells shifts them all alike: what is
    first of all cells is first of any part that it belongs to.
    """

    instance_type: Indices
    offer: Indices
    usd: Floats
    """The price of an hour, which limits are on."""
    cost: Floats
    """Of the job where there is one, else of an hour."""
    speed: Floats
    score: Floats
    """Infinite: it misses a limit on the whole job."""
    cell: Indices
    """Where it stands among the cells."""
    plans: Plans | None
    """Of the cells, where there is a job."""
    unknown: TypeSet
    """The types whose score is not known; among others, none of which has the figure, it may be."""
    one_each: bool
    """No type has more than one cell."""
    blocks: Blocks
    identity: object = field(default_factory=object)
    """By which others remember what they make of it, without holding it."""

    def ranked(self) -> "Ranked":
        return Ranked(self.instance_type, self.offer, self.cost, self.speed, self.score, self.cell, self.plans)

    def among(self, some: AdmittedOffers) -> "Ranked":
        """The candidates that keep the limits on the whole job, best first."""
        return self.ranked().some(self._places(some))

    def best_of_each(self, some: AdmittedOffers) -> "Ranked":
        """Of them the best of each type."""
        places = self._places(some)
        if not self.one_each:
            places = places[first_of_each(self.instance_type[places])]
        return self.ranked().some(places)

    def _places(self, some: AdmittedOffers) -> Indices:
        places = some.among(self.instance_type, self.usd).nonzero()[0]
        return places if self.plans is None else places[self.score[places] != inf]

    def first(self, some: AdmittedOffers) -> tuple[int, int]:
        """Type and offer of the best of the candidates: faster than the column of all of them."""
        return self.blocks.first(some.types, inf if some.limit is None else some.limit)


def order_of(
    cells: CheapestOffers, objective: Objective, told: Figures, plans: Plans | None, catalog: Catalog
) -> Order:
    """Best score first; ties go to the lower price, then to on-demand, then by name."""
    score = scores(objective, told)
    if plans is not None:
        score = np.where(plans.keeps, score, np.inf)
    spot = catalog.offers.market[cells.offer] == SPOT
    order = order_by(compared(score), cells.usd, spot, cells.instance_type, cells.offer)
    kinds, offers, usd = cells.instance_type[order], cells.offer[order], cells.usd[order]
    lacking = np.bincount(cells.instance_type[np.isnan(score)], minlength=len(catalog.instance_types))
    return Order(
        instance_type=kinds,
        offer=offers,
        usd=usd,
        cost=told.usd[order],
        speed=told.speed[order],
        score=score[order],
        cell=order,
        plans=plans,
        unknown=types_where(lacking > 0),
        one_each=len(kinds) == cells.types.bit_count(),
        blocks=Blocks(kinds, offers, usd),
    )


class Ranked(NamedTuple):
    """Candidates, best first. An unknown cost is NaN, and so is an unknown speed."""

    instance_type: Indices
    offer: Indices
    cost: Floats
    speed: Floats
    score: Floats
    cell: Indices
    plans: Plans | None

    def front(self, limit: int) -> list[bool]:
        """Of the first ones, as many as the limit, whether each stands on the Pareto front of them all."""
        return pareto(self.cost, self.speed, min(limit, len(self.score)))

    def some(self, places: Indices) -> "Ranked":
        return Ranked(
            self.instance_type.take(places),
            self.offer.take(places),
            self.cost.take(places),
            self.speed.take(places),
            self.score.take(places),
            self.cell.take(places),
            self.plans,
        )


def order_by(score: Floats, *tie_breakers: np.ndarray) -> Indices:
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


def first_of_each(kinds: Indices) -> Mask:
    """Where each kind stands for the first time."""
    places = np.arange(len(kinds))
    first = np.zeros(int(kinds.max(initial=-1)) + 1, np.int64)
    first[kinds[::-1]] = places[::-1]
    return np.asarray(first[kinds] == places, np.bool_)
