"""An order to try that differs in what can fail together: when one choice is not to be had, the next one may be."""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats
from service.domain.recommend.objective import EVEN

NO_WORSE_THAN = log(2.0) + EVEN
"""A fallback that differs is preferred while it is at most twice as bad as the best, as scores are logarithms."""


def apart(
    score: Floats, domains: Sequence[NDArray[Any]], limit: int, once: NDArray[Any] | None = None
) -> NDArray[np.int64]:
    """Places of the candidates to take, the best first; scores come in order.

    Each next one shares the fewest of the domains (family, region, market) with those before it, and of even ones it is
    the best. Of `once`, such as the instance type, no value is taken twice.
    """
    shared, taken = np.zeros(len(score)), np.zeros(len(score), np.bool_)
    far = np.zeros(len(score)) if not len(score) else np.where(score <= score[0] + NO_WORSE_THAN, 0.0, 1e9)
    picked: list[int] = []
    while len(picked) < limit and not taken.all():
        place = int(np.argmin(np.where(taken, np.inf, shared + far)))
        picked.append(place)
        taken |= np.arange(len(score)) == place if once is None else once == once[place]
        for domain in domains:
            shared += domain == domain[place]
    return np.array(picked, np.int64)
