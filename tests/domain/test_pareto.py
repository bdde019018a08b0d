"""The front of price and speed against a comparison of every pair."""

from math import isnan, nan

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from service.domain.pareto import pareto

figures = st.sampled_from([1.0, 2.0, 3.0, 5.0, nan])


def beats(other: tuple[float, float], point: tuple[float, float]) -> bool:
    return other[0] <= point[0] and other[1] >= point[1] and other != point


@given(st.lists(st.tuples(figures, figures), min_size=1, max_size=8), st.data())
def test_the_front_is_beaten_by_no_other(points: list[tuple[float, float]], data: st.DataObject) -> None:
    shown = data.draw(st.integers(1, len(points)))
    usd, speed = (np.array(column) for column in zip(*points, strict=True))
    expected = [
        not any(map(isnan, point)) and point not in points[:index] and not any(beats(other, point) for other in points)
        for index, point in enumerate(points[:shown])
    ]
    assert pareto(usd, speed, shown) == expected


def test_a_figure_that_differs_by_rounding_alone_puts_nothing_on_the_front() -> None:
    rounded, exact = 0.1 + 0.2, 0.3
    assert rounded > exact
    assert pareto(np.array([1.0, 2.0]), np.array([exact, rounded]), 2) == [True, False]
    assert pareto(np.array([rounded, exact]), np.array([2.0, 1.0]), 2) == [True, False]
