"""The gate: when a cost passes and when it fails."""

import pytest

from service.domain.bill.verdict import Gate, verdict
from tests.builders.bills import usd


@pytest.mark.parametrize(
    ("cost", "allowed", "outcome"),
    [(132.0, 10, "pass"), (132.000001, 10, "fail"), (120.0, 0, "pass"), (120.01, 0, "fail"), (90.0, 0, "pass")],
)
def test_the_likely_cost_is_held_against_the_baseline(cost: float, allowed: float, outcome: str) -> None:
    assert verdict(usd(cost), Gate(120.0, allowed)).outcome == outcome


def test_the_change_is_in_percent_of_the_baseline() -> None:
    assert verdict(usd(150.0), Gate(120.0, 10)).change_percent == 25.0


@pytest.mark.parametrize(("cost", "outcome"), [(500.0, "pass"), (500.000001, "fail")])
def test_the_budget_may_be_spent_to_the_last_millionth(cost: float, outcome: str) -> None:
    assert verdict(usd(cost), Gate(budget_usd=500.0)).outcome == outcome


def test_within_the_baseline_and_over_the_budget_fails() -> None:
    judged = verdict(usd(120.0), Gate(120.0, budget_usd=100.0))
    assert (judged.outcome, judged.change_percent, judged.over_budget) == ("fail", 0.0, True)


def test_an_unknown_cost_does_not_pass() -> None:
    judged = verdict(None, Gate(budget_usd=100.0), ("No price.",))
    assert (judged.outcome, judged.missing) == ("unknown", ("No price.",))


@pytest.mark.parametrize(
    ("cost", "gate", "outcome"),
    [
        (0.004, Gate(budget_usd=100.0), "unknown"),
        (100.01, Gate(budget_usd=100.0), "fail"),
        (100.0, Gate(100.0), "unknown"),
        (111.0, Gate(100.0, 10), "fail"),
    ],
)
def test_a_lower_bound_does_not_pass_and_fails_where_it_is_too_high(cost: float, gate: Gate, outcome: str) -> None:
    judged = verdict(usd(cost), gate, ("No price of storage.",), lower_bound=True)
    assert (judged.outcome, judged.missing) == (outcome, ("No price of storage.",))


def test_a_baseline_of_nothing_has_no_percentage() -> None:
    assert verdict(usd(0.0), Gate(0.0)).outcome == "pass"
    judged = verdict(usd(1.0), Gate(0.0, 50))
    assert (judged.outcome, judged.change_percent) == ("fail", None)


def test_without_a_limit_it_passes() -> None:
    assert verdict(usd(7.0), Gate()).outcome == "pass"
