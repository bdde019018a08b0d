"""The gate: when a cost passes, when it fails, and what it says."""

import pytest

from service.api.estimate.sentences import verdict_text
from service.domain.bill.verdict import Gate, verdict
from service.domain.money import Micros


def usd(dollars: float) -> Micros:
    return Micros(round(dollars * 5e5), round(dollars * 1e6), round(dollars * 2e6))


@pytest.mark.parametrize(
    ("cost", "allowed", "outcome"),
    [(132.0, 10, "pass"), (132.000001, 10, "fail"), (120.0, 0, "pass"), (120.01, 0, "fail"), (90.0, 0, "pass")],
)
def test_the_likely_cost_is_held_against_the_baseline(cost: float, allowed: float, outcome: str) -> None:
    assert verdict(usd(cost), Gate(120.0, allowed)).outcome == outcome


def test_the_sentence_says_how_far_and_how_far_is_allowed() -> None:
    found = verdict(usd(150.0), Gate(120.0, 10))
    assert (
        verdict_text(found, None)
        == "The run costs $150.00, 25 % above the baseline of $120.00, and 10 % more is allowed."
    )
    assert found.change_percent == 25.0


@pytest.mark.parametrize(("cost", "outcome"), [(500.0, "pass"), (500.000001, "fail")])
def test_the_budget_may_be_spent_to_the_last_millionth(cost: float, outcome: str) -> None:
    assert verdict(usd(cost), Gate(budget_usd=500.0)).outcome == outcome


def test_within_the_baseline_and_over_the_budget_fails() -> None:
    found = verdict(usd(120.0), Gate(120.0, budget_usd=100.0))
    assert found.outcome == "fail"
    assert verdict_text(found, None) == (
        "The run costs $120.00, exactly the baseline of $120.00, and 0 % more is allowed; "
        "it is over the budget of $100.00."
    )


def test_a_cost_that_is_not_known_does_not_pass() -> None:
    found = verdict(None, Gate(budget_usd=100.0), ("No price.",))
    assert (found.outcome, verdict_text(found, None)) == ("fail", "The cost is not known. No price.")


def test_a_lower_bound_says_what_it_leaves_out() -> None:
    found = verdict(usd(0.004), Gate(budget_usd=100.0), ("No price of storage.",))
    assert found.outcome == "pass"
    assert verdict_text(found, None) == (
        "The run costs at least $0.004000, which is within the budget of $100.00. Not counted: No price of storage."
    )


def test_a_baseline_of_nothing_has_no_percentage() -> None:
    assert verdict(usd(0.0), Gate(0.0)).outcome == "pass"
    found = verdict(usd(1.0), Gate(0.0, 50))
    assert (found.outcome, found.change_percent) == ("fail", None)


def test_without_anything_to_hold_it_against_it_passes() -> None:
    assert verdict_text(verdict(usd(7.0), Gate()), None) == "The run costs $7.00."
