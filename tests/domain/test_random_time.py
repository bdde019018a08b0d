"""A random time: its quantiles and its equally likely points follow one formula, and the points have its mean."""

import numpy as np
import pytest

from service.domain.band import NORMAL
from service.domain.random_time import POINTS, RandomTime

TIMES = RandomTime(np.array([0.2, 1.0, 30.0]), np.array([0.001, 0.09, 100.0]))


@pytest.mark.parametrize("point", range(len(POINTS)))
def test_each_point_is_the_quantile_of_its_probability(point: int) -> None:
    probability = NORMAL.cdf(POINTS[point])
    assert TIMES.quantile(probability, TIMES.variance) == pytest.approx(TIMES.at_points()[:, point])


def test_the_points_have_the_mean_and_nearly_the_variance_of_the_time() -> None:
    points = TIMES.at_points()
    assert points.mean(axis=1) == pytest.approx(TIMES.mean, rel=0.01)
    assert points.var(axis=1) == pytest.approx(TIMES.variance, rel=0.15)
