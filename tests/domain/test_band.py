"""Figures with their uncertainty."""

import pytest

from service.domain.band import Band


def test_the_hours_of_a_rate_are_longest_where_the_rate_is_lowest() -> None:
    assert Band(2.0, 4.0, 5.0).inverse_of(20.0) == Band(4.0, 5.0, 10.0)


def test_a_factor_applies_to_each_figure() -> None:
    assert Band(1.0, 2.0, 4.0).times(3.0) == Band(3.0, 6.0, 12.0)


@pytest.mark.parametrize(("value", "share"), [(0.1, 0.0), (40.0, 0.1), (50.0, 0.5), (80.0, 0.9), (900.0, 1.0)])
def test_one_truth_in_ten_is_beyond_each_end(value: float, share: float) -> None:
    assert Band(40.0, 50.0, 80.0).probability_up_to(value) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("share", [0.5, 0.75, 0.9, 0.99])
def test_a_quantile_is_reached_with_its_probability(share: float) -> None:
    band = Band(40.0, 50.0, 80.0)
    assert band.probability_up_to(band.quantile(share)) == pytest.approx(share)


def test_a_figure_without_uncertainty_is_reached_or_not() -> None:
    exact = Band(50.0, 50.0, 50.0)
    assert [exact.probability_up_to(value) for value in (49.0, 50.0, 51.0)] == [0.0, 1.0, 1.0]
