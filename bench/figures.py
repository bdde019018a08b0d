"""Statistics of measurements."""

from collections.abc import Sequence
from math import ceil, log


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns the percentile of ordered values by the nearest-rank method. Raises `ValueError` without values."""
    if not ordered:
        raise ValueError("There is no percentile without values: no answer came back.")
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1]


def exponent(small: float, large: float, times: float) -> float:
    """Returns e in cost ~ size^e, from the cost at one size and at `times` that size."""
    return log(large / small) / log(times)
