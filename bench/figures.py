"""Figures made of measurements."""

from collections.abc import Sequence
from math import ceil, log


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the ordered values that so many percent of them do not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("There is no percentile of nothing: not one answer came back.")
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1]


def exponent(small: float, large: float, times: float) -> float:
    """How a cost grows with size: cost ~ size^exponent, from its value at one size and at `times` that size."""
    return log(large / small) / log(times)
