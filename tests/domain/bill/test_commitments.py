"""Commitments: what a run uses of them, what they cost, and from which use on they pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.bill.commitments import committed_cost
from service.domain.catalog.tariffs import Commitment, commitment_in
from service.domain.money import Exact
from tests.builders.bills import fractions_of, price


@pytest.mark.parametrize(
    ("term", "plan", "hours"),
    [
        ("1y_reserved_no_upfront", "reserved_no_upfront", 8760),
        ("3y_savings_plan_all_upfront", "savings_plan_all_upfront", 26_280),
        ("6m_committed_use", "committed_use", 4380),
        ("30d_reservation", "reservation", 720),
        ("capacity_block", "capacity_block", None),
        ("dws_calendar", "dws_calendar", None),
    ],
)
def test_a_term_names_its_plan_and_length(term: str, plan: str, hours: int | None) -> None:
    assert commitment_in(term) == Commitment(plan, hours)


@pytest.mark.parametrize("term", [None, "", "weekly", "1y", "y_reserved"])
def test_a_term_without_a_plan_or_length_is_none(term: str | None) -> None:
    assert commitment_in(term) is None


def test_what_a_run_uses_and_what_it_commits_to() -> None:
    year = Commitment("reserved", 8760)
    found = committed_cost(year, Exact.same(876), 2, price(6.0), price(10.0), None)
    assert found.usd_used is not None
    assert found.usd_committed is not None
    assert found.usd_used.likely == 876 * 2 * 6_000_000
    assert found.usd_committed.likely == 8760 * 2 * 6_000_000
    assert found.used_share == 0.1
    assert found.break_even_utilisation == 0.6
    assert found.break_even_hours == 5256


@pytest.mark.parametrize(
    ("plan", "share"),
    [
        ("reserved_all_upfront", 1),
        ("savings_plan_no_upfront", 0),
        ("committed_use", 0),
        ("capacity_block", 1),
        ("reserved_partial_upfront", None),
        ("reserved", None),
    ],
)
def test_the_plan_says_how_much_is_paid_at_the_start(plan: str, share: int | None) -> None:
    found = committed_cost(Commitment(plan, 8760), Exact.same(10), 2, price(6.0), None, None)
    assert found.usd_committed is not None
    upfront = None if found.usd_upfront is None else found.usd_upfront.likely
    assert upfront == (None if share is None else found.usd_committed.likely * share)


def test_without_a_price_to_compare_with_there_is_no_break_even() -> None:
    year = Commitment("reserved", 8760)
    assert committed_cost(year, Exact.same(1), 1, price(6.0), None, None).break_even_utilisation is None
    assert committed_cost(year, Exact.same(1), 1, price(6.0, "EUR"), price(10.0), None).break_even_utilisation is None
    assert committed_cost(year, Exact.same(1), 1, price(6.0, "EUR"), price(10.0), None).break_even_hours is None
    block = Commitment("capacity_block", None)
    assert committed_cost(block, Exact.same(1), 1, price(6.0), price(10.0), None).break_even_hours is None


@pytest.mark.parametrize(
    ("hours", "days"), [(0, 1), (1, 1), (24, 1), (25, 2), (336, 14), (337, 21), (504, 21), (505, 28)]
)
def test_blocks_are_sold_in_days_and_then_in_weeks(hours: int, days: int) -> None:
    assert Commitment("capacity_block", None).billed_hours(Exact.same(hours)).band.likely == days * 24


@given(st.integers(0, 10**6), st.sampled_from([8760, 26_280, None]))
def test_no_less_is_paid_for_than_is_used(hours: int, length: int | None) -> None:
    _, committed, _ = fractions_of(Commitment("plan", length).billed_hours(Exact.same(hours)))
    assert committed >= hours
    assert committed > 0
    assert length is None or committed % length == 0


@given(st.integers(1, 10**8), st.integers(1, 10**8))
def test_at_the_break_even_both_cost_the_same(reserved: int, on_demand: int) -> None:
    year, one, other = Commitment("reserved", 8760), price(reserved / 1e6), price(on_demand / 1e6)
    used = committed_cost(year, Exact.same(1), 1, one, other, None).break_even_hours
    assert used is not None
    assert used * other.micros_per_hour == pytest.approx(8760 * one.micros_per_hour)
