"""Figures made of measurements, and what passes a gate."""

import pytest

from bench.figures import exponent, percentile
from bench.verdict import Gate, Line, table


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (1, 1), (50, 50), (99, 99), (100, 100)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(percent: float, value: float) -> None:
    assert percentile(range(1, 101), percent) == value


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no answer came back"):
        percentile([], 50)


@pytest.mark.parametrize(("large", "power"), [(1, 0), (4, 1), (16, 2), (2, 0.5)])
def test_the_exponent_of_growth(large: float, power: float) -> None:
    assert exponent(1, large, 4) == pytest.approx(power)


@pytest.mark.parametrize(
    ("value", "gate", "verdict"),
    [
        (0.2, Gate(0.25, 0.5, "more"), "FAILS"),
        (0.25, Gate(0.25, 0.5, "more"), "passes"),
        (0.5, Gate(0.25, 0.5, "more"), "goal"),
        (7, Gate(6, 3, "less"), "FAILS"),
        (6, Gate(6, 3, "less"), "passes"),
        (0, Gate(0, 0, "less"), "goal"),
    ],
)
def test_the_verdict_on_a_figure(value: float, gate: Gate, verdict: str) -> None:
    assert Line("a figure", value, gate).verdict == verdict


def test_a_table_is_as_wide_as_its_cells() -> None:
    assert table(("a", "b"), [("long", "1"), ("x", "200")]) == "a       b\n----  ---\nlong    1\nx     200"
