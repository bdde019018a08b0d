"""Which choices the estimates cannot tell apart."""

from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import inf, log
from typing import NamedTuple

from service.domain.catalog.hardware import InstanceType
from service.domain.recommend.fleet import EstimateColumns
from service.domain.recommend.objective import EVEN, Objective

PEAKS_APART = log(1.1)
"""Peaks that are closer say nothing of which is faster: of what is scaled by peaks, eight of ten cases lie between 0.47
and 2.11 times the truth (`evidence.SCALED_BANDS`)."""

SPEEDS = frozenset({"hours", "samples_per_second"})


@lru_cache(maxsize=256)
def lead_of_peaks(weights: tuple[tuple[str, float], ...]) -> float:
    """How far apart the scores of peaks must be; prices are what they are, and so they need not be apart."""
    told = {term: weight for term, weight in weights if weight}
    return PEAKS_APART * sum(told.values()) if told.keys() <= SPEEDS else EVEN


class Uncertain(NamedTuple):
    """What ranks a choice, and how far it may be off.

    `better` and `worse` are by how much the score falls or rises at the ends of the estimate's band, in which eight of
    ten cases lie. Estimates of the same hardware are off together, so between these the score alone decides.
    """

    score: float
    better: float
    worse: float
    hardware: Hashable


def uncertain(
    score: float, weight: float, on_nodes: EstimateColumns, place: int, kind: InstanceType, nodes: float, *, seen: bool
) -> Uncertain:
    """`weight` is how much a speed counts in the score, a sum of logarithms; what was `seen` is off by itself."""
    low, likely, high = on_nodes.low.item(place), on_nodes.likely.item(place), on_nodes.high.item(place)
    gpu = kind.gpu.id if kind.gpu else None
    hardware: Hashable = kind.id if seen else (gpu, kind.gpu_count, kind.interconnect, nodes)
    if not 0 < low <= likely <= high < inf:
        return Uncertain(score, 0.0, 0.0, hardware)
    return Uncertain(score, weight * log(high / likely), weight * log(likely / low), hardware)


def tied_with(place: int, ranked: Sequence[Uncertain]) -> tuple[int, ...]:
    """The ranks of those whose likely scores lie within the band of this one, and this one's within theirs.

    The best stand first, so on either side the first one beyond this one's own band ends the search.
    """
    one, tied = ranked[place], list[int]()
    for better in range(place - 1, -1, -1):
        if one.score - ranked[better].score > max(EVEN, one.better):
            break
        if tie(ranked[better], one):
            tied.append(better + 1)
    tied.reverse()
    for worse in range(place + 1, len(ranked)):
        if ranked[worse].score - one.score > max(EVEN, one.worse):
            break
        if tie(one, ranked[worse]):
            tied.append(worse + 1)
    return tuple(tied)


def tie(first: Uncertain, second: Uncertain) -> bool:
    lead = second.score - first.score
    if first.hardware == second.hardware:
        return lead <= EVEN
    return lead <= max(EVEN, min(first.worse, second.better))


def weight_of_speed(objective: Objective, *, has_amount: bool) -> float:
    """How much the score changes with the logarithm of a speed: dollars count where they are those of a whole job."""
    return sum(
        weight
        for term, weight in objective.weights.items()
        if term in ("hours", "samples_per_second", "samples_per_usd", "joules") or (term == "usd" and has_amount)
    )
