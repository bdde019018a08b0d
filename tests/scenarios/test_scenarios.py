"""Every scenario holds, or says what it waits for; and the document tells them as they are."""

import pytest
from fastapi.testclient import TestClient

from tests.scenarios.book import DOCUMENT, STRENGTHS, Scenario, chapters, document
from tests.scenarios.holding import misses

SCENARIOS = [each for chapter in chapters() for each in chapter.scenarios]


def marked(told: Scenario) -> object:
    """What waits announces itself when it holds: an unexpected pass is a failure."""
    waits = [pytest.mark.xfail(strict=True, reason=f"waits for {told.waits_for}")] if told.waits_for else []
    return pytest.param(told, id=told.id, marks=waits)


@pytest.mark.parametrize("told", [marked(each) for each in SCENARIOS])
def test_a_scenario_holds(told: Scenario, request: pytest.FixtureRequest) -> None:
    writes = any(step.target == "/measurements" for step in told.steps)
    client: TestClient = request.getfixturevalue("client_to_write" if writes else "client")
    for step in told.steps:
        answer = client.request(step.method, step.target, json=step.body)
        assert answer.status_code == step.expect.get("status", 200), answer.text
        assert not list(misses(answer.json(), step.expect)), f"{told.title}: {step.method} {step.target}"


def test_every_scenario_has_a_name_of_its_own_and_a_strength() -> None:
    assert len({told.id for told in SCENARIOS}) == len(SCENARIOS)
    assert {told.strength for told in SCENARIOS} <= set(STRENGTHS)


def test_the_document_is_fresh() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "Renew it: python3 dev.py scenarios"
