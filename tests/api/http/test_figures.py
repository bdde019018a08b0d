"""Figures keep six significant digits, however small they are."""

from service.api.http.figures import rounded


def test_a_figure_above_0_never_becomes_0() -> None:
    assert rounded(1.0 / 3e7) == 3.33333e-08
    assert rounded(2.0 / 3.0) == 0.666667
    assert rounded(2e7 / 3.0) == 6_666_670.0


def test_nothing_is_not_0() -> None:
    assert rounded(None) is None


def test_a_figure_that_rounds_to_0_has_no_sign() -> None:
    assert str(rounded(-0.0)) == "0.0"
