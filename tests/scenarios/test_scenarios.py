"""Every scenario holds, asks its case and nothing else, and the document is rendered from the scenarios."""

import pytest
from fastapi.testclient import TestClient

from tests.scenarios.case_expectations import unasserted
from tests.scenarios.cases import Case, added, cases, left_out
from tests.scenarios.expectations import misses
from tests.scenarios.render import DOCUMENT, STRENGTHS, Scenario, chapters, document

SCENARIOS = [each for chapter in chapters() for each in chapter.scenarios]
CASES = cases()
OF_A_CASE = [pytest.param(CASES[each.case], each, id=each.case) for each in SCENARIOS if each.case]


@pytest.mark.parametrize("scenario", [pytest.param(each, id=each.id) for each in SCENARIOS])
def test_a_scenario_holds(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    writes = any(step.target == "/measurements" for step in scenario.steps)
    client: TestClient = request.getfixturevalue("client_to_write" if writes else "client")
    for step in scenario.steps:
        answer = client.request(step.method, step.target, json=step.body)
        assert answer.status_code == step.expect.get("status", 200), answer.text
        assert not list(misses(answer.json(), step.expect)), f"{scenario.title}: {step.method} {step.target}"


def test_every_case_has_its_scenario() -> None:
    assert {each.case for each in SCENARIOS if each.case} == set(CASES)


@pytest.mark.parametrize(("case", "scenario"), OF_A_CASE)
def test_a_scenario_sends_what_its_case_says_and_nothing_else(case: Case, scenario: Scenario) -> None:
    assert scenario.strength == case.strength
    # The day of an event that a case presumes is the day on which the catalog has it.
    assert scenario.day.isoformat() == case.as_of or case.request.get("given", {}).get("event") == "lifecycle_changed"
    assert not added(case, scenario.steps)
    assert not left_out(case, scenario.steps)


@pytest.mark.parametrize(("case", "scenario"), OF_A_CASE)
def test_a_scenario_asserts_all_that_its_case_expects(case: Case, scenario: Scenario) -> None:
    lacking = unasserted(case, scenario.steps)
    if scenario.differs:
        assert lacking, "Nothing differs from the case: remove the mark."
        # A fact turns an order or a number round; what else the case expects has to hold all the same.
        assert all(set(each.split()) & {"first", "order", "above", "value"} for each in lacking), lacking
        if case.strength == "prior":
            assert "overridden" in str(scenario.steps), "An answer that differs from a rule of thumb has to cite it."
    else:
        assert not lacking


def test_every_scenario_has_a_name_of_its_own_and_a_strength() -> None:
    assert len({scenario.id for scenario in SCENARIOS}) == len(SCENARIOS)
    assert {scenario.strength for scenario in SCENARIOS} <= set(STRENGTHS)


def test_the_document_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "Renew it: python3 dev.py scenarios"
