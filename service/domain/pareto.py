"""The Pareto front: choices that no other one beats in both of two figures."""

from math import inf, isnan

import numpy as np

from service.domain.arrays import Floats

EQUAL_BITS = 30
"""Figures that agree in so many binary digits, a part in a billion, are equal: rounding alone can tell them apart."""


def pareto(usd: Floats, speed: Floats, shown: int) -> list[bool]:
    """Marks those of the first `shown` that no other one beats in price and speed; of equal ones, the first.

    A choice with an unknown figure (NaN) is not on the front.
    """
    front = [False] * shown
    usd, speed = _rounded(usd), _rounded(speed)
    # Only what is as cheap as the most expensive of them and as fast as the slowest can beat one.
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
