"""The Pareto front of price and speed: no other choice equals one of its choices in both and beats it in one."""

from math import inf, isnan

import numpy as np

from service.domain.arrays import Floats

EQUAL_BITS = 30
"""Binary digits to which figures are compared, about one part in 10^9: closer figures differ by rounding errors."""


def pareto(usd: Floats, speed: Floats, shown: int) -> list[bool]:
    """Returns whether each of the first `shown` choices is on the front of all choices; of equal ones, the first is.

    A lower price in `usd` and a higher `speed` are better. A choice with an unknown figure (NaN) is not on the front.
    """
    front = [False] * shown
    usd, speed = _rounded(usd), _rounded(speed)
    # A choice that costs more than all shown ones, or is slower than all of them, beats none of them.
    prices, speeds = usd[:shown].tolist(), speed[:shown].tolist()
    highest = max((price for price in prices if price < inf), default=-inf)
    slowest = min((value for value in speeds if not isnan(value)), default=inf)
    rivals = ((usd <= highest) & (speed >= slowest)).nonzero()[0]
    fastest = -inf
    for _, slowness, index in sorted(
        zip(usd.take(rivals).tolist(), (-speed.take(rivals)).tolist(), rivals.tolist(), strict=True)
    ):
        # In order of price, only a choice faster than all cheaper ones is on the front.
        if -slowness > fastest:
            fastest = -slowness
            if index < shown:
                front[index] = True
    return front


def _rounded(figures: Floats) -> Floats:
    mantissa, exponent = np.frexp(figures)
    scaled: Floats = np.ldexp(np.rint(np.ldexp(mantissa, EQUAL_BITS)), exponent - EQUAL_BITS)
    return scaled
