"""Figures with their uncertainty."""

from service.domain.band import Band


def test_the_hours_of_a_rate_are_longest_where_the_rate_is_lowest() -> None:
    assert Band(2.0, 4.0, 5.0).inverse_of(20.0) == Band(4.0, 5.0, 10.0)


def test_a_factor_applies_to_each_figure() -> None:
    assert Band(1.0, 2.0, 4.0).times(3.0) == Band(3.0, 6.0, 12.0)
