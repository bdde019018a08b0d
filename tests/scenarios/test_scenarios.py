"""Every scenario holds, and the document is rendered from them."""

import pytest
from fastapi.testclient import TestClient

from tests.scenarios.expectations import misses
from tests.scenarios.render import DOCUMENT, STRENGTHS, Scenario, chapters, document

SCENARIOS = [each for chapter in chapters() for each in chapter.scenarios]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.id)
def test_a_scenario_holds(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    writes = any(step.target == "/measurements" for step in scenario.steps)
    client: TestClient = request.getfixturevalue("client_to_write" if writes else "client")
    for step in scenario.steps:
        answer = client.request(step.method, step.target, json=step.body)
        assert answer.status_code == step.expect.get("status", 200), answer.text
        assert not list(misses(answer.json(), step.expect)), f"{scenario.title}: {step.method} {step.target}"


def test_every_scenario_has_a_name_of_its_own_and_a_strength() -> None:
    assert len({scenario.id for scenario in SCENARIOS}) == len(SCENARIOS)
    assert {scenario.strength for scenario in SCENARIOS} <= set(STRENGTHS)


def test_the_document_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "Renew it: python3 dev.py scenarios"
