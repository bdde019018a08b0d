"""The price of an offer today, believed from its last listed price and from the same GPU at other sellers."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.calibration.coefficients import Coefficient
from service.domain.calibration.price_belief import (
    CONFIRMED_DAYS,
    UNDATED_DAYS,
    Beliefs,
    ListedPrices,
    PriceMovement,
    beliefs,
    level_elsewhere,
)

CHANGE, SPREAD = 0.4, 0.5


def movement(**values: float) -> PriceMovement:
    named = {"change": CHANGE, "level": 0.0, "spread": SPREAD, **values}
    return PriceMovement.of([Coefficient(f"price.{name}", "", value, "", "", 1) for name, value in named.items()])


def listed(*usd: float, age_days: float = 0.0, **given: list[int]) -> ListedPrices:
    """Prices of one kind of GPU, each of a seller and a source of its own."""
    rows = len(usd)
    zeros, each = np.zeros(rows, np.int64), np.arange(rows)
    plain = ListedPrices(
        np.array(usd), np.full(rows, age_days), zeros, each, zeros, zeros, each, np.zeros(rows, np.bool_),
        np.full(rows, np.nan),
    )  # fmt: skip
    return replace(plain, **{name: np.array(values) for name, values in given.items()})


def believed(prices: ListedPrices, known: PriceMovement | None = None) -> Beliefs:
    return beliefs(prices, known or movement(), ("on_demand",), ("neocloud",))


def first_aged(days: float, *usd: float) -> ListedPrices:
    prices = listed(*usd)
    prices.age_days[0] = days
    return prices


def test_a_fresh_price_is_believed_as_it_is_listed() -> None:
    one = believed(first_aged(CONFIRMED_DAYS, 3.0, 4.0, 4.0, 4.0))
    assert (one.low[0], one.likely[0], one.high[0], one.old[0]) == (1.0, 1.0, 1.0, False)


def test_without_other_sellers_age_only_widens_the_band() -> None:
    one = believed(first_aged(CONFIRMED_DAYS + 365.25, 3.0, 4.0, 4.0))
    assert one.likely[0] == 1.0
    assert one.high[0] == pytest.approx(exp(1.2815516 * CHANGE))
    assert one.low[0] == pytest.approx(exp(-1.2815516 * CHANGE))


def test_an_ageing_price_is_drawn_to_the_median_of_the_other_sellers() -> None:
    one = believed(first_aged(CONFIRMED_DAYS + 365.25, 3.0, 4.0, 4.0, 4.0))
    weight = CHANGE**2 / (CHANGE**2 + SPREAD**2)
    assert 3 * one.likely[0] == pytest.approx(exp(log(3) + weight * log(4 / 3)))


@given(st.floats(0.5, 20), st.floats(0, 3000), st.floats(0, 3000))
def test_an_older_price_is_never_believed_more_closely(usd: float, age: float, further: float) -> None:
    younger, older = (believed(first_aged(days, usd, 4.0, 5.0, 6.0)) for days in (age, age + further))
    assert older.high[0] / older.low[0] >= younger.high[0] / younger.low[0] * (1 - 1e-9)


def test_a_list_price_that_hardly_changes_stays_as_it_is_listed() -> None:
    one = believed(first_aged(CONFIRMED_DAYS + 365.25, 3.0, 4.0, 4.0, 4.0), movement(change=0.025))
    assert one.likely[0] == 1.0
    assert one.low[0] < 1.0 < one.high[0]


def test_an_undated_price_is_as_uncertain_as_an_old_one() -> None:
    undated, old = (believed(first_aged(days, 3.0, 4.0, 4.0, 4.0)) for days in (np.nan, UNDATED_DAYS))
    assert undated.old[0]
    assert undated.high[0] == old.high[0]


def test_a_price_carried_back_is_as_uncertain_as_one_that_is_as_old() -> None:
    back, old = (believed(first_aged(days, 3.0, 4.0, 4.0, 4.0)) for days in (-400, 400))
    assert back.high[0] == old.high[0]


def test_a_price_that_one_source_states_far_below_all_others_is_suspect() -> None:
    one = believed(listed(1.0, 4.0, 4.0, 4.0))
    assert one.suspect.tolist() == [True, False, False, False]
    assert one.old[0]
    assert 2.0 < one.likely[0] < 4.0


@pytest.mark.parametrize(("second", "suspect"), [(1.04, False), (1.2, True)])
def test_a_second_source_that_agrees_clears_a_suspect_price(second: float, suspect: bool) -> None:
    one = believed(listed(1.0, second, 4.0, 4.0, 4.0, seller=[0, 0, 1, 2, 3]))
    assert bool(one.suspect[0]) is suspect


@pytest.mark.parametrize(("age", "suspect"), [(10, False), (100, True)])
def test_a_fresh_capture_that_agrees_clears_a_suspect_price(age: float, suspect: bool) -> None:
    prices = first_aged(age, 1.0, 4.0, 4.0, 4.0)
    prices.recaptured[0] = True
    assert bool(believed(prices).suspect[0]) is suspect


def test_a_class_of_sellers_below_the_others_is_suspect_only_below_its_own_level() -> None:
    assert believed(listed(2.0, 4.0, 4.0, 4.0)).suspect[0]
    assert not believed(listed(2.0, 4.0, 4.0, 4.0), movement(level=log(0.5))).suspect[0]
    assert not believed(listed(4.0, 4.0, 4.0, 4.0), movement(level=log(2.0))).suspect[0]


def test_without_coefficients_every_price_is_believed_as_listed() -> None:
    one = believed(listed(1.0, 4.0, 4.0, 4.0, age_days=2000.0), PriceMovement())
    assert np.all(one.high == 1.0)
    assert not one.old.any()


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 5), st.floats(0.1, 50)), min_size=1, max_size=25))
def test_the_median_elsewhere_is_that_of_the_other_sellers(rows: list[tuple[int, int, float]]) -> None:
    kinds, sellers, usd = zip(*rows, strict=True)
    found = level_elsewhere(listed(*usd, kind=list(kinds), seller=list(sellers)))
    for row, (kind, seller, _) in enumerate(rows):
        assert found[row] == pytest.approx(median_elsewhere(rows, kind, seller), nan_ok=True)


def median_elsewhere(rows: list[tuple[int, int, float]], kind: int, seller: int) -> float:
    """The slow and obvious way: the median of the medians of at least three other sellers."""
    by_seller: dict[int, list[float]] = {}
    for other_kind, other, usd in rows:
        if other_kind == kind and other != seller and kind >= 0:
            by_seller.setdefault(other, []).append(log(usd))
    if len(by_seller) < 3:
        return float("nan")
    return float(np.median([np.median(prices) for prices in by_seller.values()]))


# Prices of terms


def plan_price(left: float, days: float) -> Beliefs:
    """The believed price of a plan, given how much of its list price is left since its observation."""
    return believed(replace(first_aged(days, 3.0, 4.0), list_price_ratio=np.array([left, np.nan])))


def test_the_price_of_a_plan_falls_with_its_list_price_and_ranks_as_it_was_listed() -> None:
    cut, uncut = plan_price(0.56, CONFIRMED_DAYS), plan_price(1.0, CONFIRMED_DAYS)
    assert (cut.low[0], cut.likely[0], cut.high[0], cut.old[0]) == (0.56, 0.56, 1.0, True)
    assert (uncut.low[0], uncut.likely[0], uncut.high[0], uncut.old[0]) == (1.0, 1.0, 1.0, False)


def test_the_price_of_a_plan_moves_as_list_prices_do() -> None:
    known = PriceMovement({"price.change": {"": 0.6, "market=on_demand": 0.02}})
    aged = replace(first_aged(CONFIRMED_DAYS + 365.25, 3.0, 4.0), list_price_ratio=np.array([1.0, np.nan]))
    of_plan, of_block = (
        beliefs(prices, known, ("reserved",), ("neocloud",)).high[0]
        for prices in (aged, replace(aged, list_price_ratio=np.full(2, np.nan)))
    )
    assert log(of_plan) * 30 == pytest.approx(log(of_block))
