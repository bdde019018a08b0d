"""Exact amounts, rounding once, and currencies there and back."""

from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.money import Exact, ExchangeRate, Micros, converted, exact, half_up, number, rate_on, settle
from tests.builders.bills import exact_figures, fractions_of, rate

fractions = st.fractions(min_value=0, max_value=10**7, max_denominator=10**9)
triples = st.builds(exact_figures, fractions, fractions, fractions)


def test_a_number_is_what_was_written_and_not_its_binary_neighbour() -> None:
    assert exact(0.1) + exact(0.2) == Fraction(3, 10)
    assert exact(16.534391534391535) == Fraction("16.534391534391535")
    assert exact(7) == 7


@pytest.mark.parametrize(
    ("amount", "rounded"), [("0.5", 1), ("1.5", 2), ("2.5", 3), ("2.4999999", 2), ("-0.5", -1), ("-1.4", -1), ("3", 3)]
)
def test_a_half_goes_away_from_zero(amount: str, rounded: int) -> None:
    assert half_up(Fraction(amount)) == rounded


@given(st.lists(triples, max_size=9))
def test_rounded_parts_and_the_rounding_add_up_to_the_total(amounts: list[Exact]) -> None:
    settled = settle(amounts)
    for index, case in enumerate(("low", "likely", "high")):
        total = sum((fractions_of(amount)[index] for amount in amounts), Fraction(0))
        assert getattr(settled.total, case) == half_up(total * 1_000_000)
        shown = sum(getattr(part, case) for part in settled.parts) + getattr(settled.rounding, case)
        assert shown == getattr(settled.total, case)
        assert abs(getattr(settled.rounding, case)) <= (len(amounts) + 1) // 2


def test_the_rounding_is_shown_where_there_is_some() -> None:
    third = Exact.same(Fraction(1, 3))
    settled = settle([third, third, third])
    assert settled.parts == (Micros(333_333, 333_333, 333_333),) * 3
    assert settled.rounding == Micros(1, 1, 1)
    assert settled.total == Micros(1_000_000, 1_000_000, 1_000_000)


@given(triples, st.integers(1, 10**13), st.sampled_from(["EUR", "CNY", "INR", "JPY"]))
def test_a_currency_round_trip_is_exact(amount: Exact, nanos: int, currency: str) -> None:
    known = ExchangeRate(currency, date(2024, 6, 1), nanos, "a-test")
    there = converted(amount, currency, "USD", known)
    assert there is not None
    back = converted(there, "USD", currency, known)
    assert back is not None
    assert fractions_of(back) == fractions_of(amount)


def test_without_a_rate_nothing_is_converted() -> None:
    amount = Exact.same(1)
    assert converted(amount, "EUR", "USD", None) is None
    assert converted(amount, "USD", "EUR", None) is None
    assert converted(amount, "EUR", "EUR", None) == amount


def test_the_rate_is_that_of_the_day_or_the_last_before_it() -> None:
    rates = [rate("CNY", 0.14), rate("EUR", 1.07, date(2024, 5, 2)), rate("EUR", 1.08, date(2024, 6, 3))]
    assert rate_on(rates, "EUR", date(2024, 5, 1)) is None
    assert rate_on(rates, "EUR", date(2024, 5, 2)) == rates[1]
    assert rate_on(rates, "EUR", date(2024, 6, 2)) == rates[1]
    assert rate_on(rates, "EUR", date(2025, 1, 1)) == rates[2]
    dollar = rate_on(rates, "USD", date(1999, 1, 1))
    assert dollar is not None
    assert dollar.usd_per_unit == 1


@given(st.integers(0, 10**15 - 1))
def test_a_printed_amount_has_six_decimals_at_most_and_no_artefact(micros: int) -> None:
    whole, rest = divmod(micros, 1_000_000)
    written = Fraction(repr(number(micros)))
    assert written == Fraction(f"{whole}.{rest:06d}")


def test_a_band_keeps_its_three_figures() -> None:
    assert Exact.of(Band(0.1, 0.2, 0.3)).micros == Micros(100_000, 200_000, 300_000)
