"""Every system and principle of the guides is asked, and the table of them is rendered from the questions."""

import pytest
from fastapi.testclient import TestClient

from tests.scenarios.expectations import misses
from tests.scenarios.render import SYSTEMS_DOCUMENT, Step, systems, systems_document

SYSTEMS = systems()


@pytest.mark.parametrize("step", [pytest.param(step, id=name) for name, step in SYSTEMS])
def test_a_system_answers_its_question(step: Step, client: TestClient) -> None:
    answer = client.request(step.method, step.target, json=step.body)
    assert answer.status_code == step.expect.get("status", 200), answer.text
    assert not list(misses(answer.json(), step.expect))


def test_every_system_has_a_name_of_its_own() -> None:
    assert len({name for name, _ in SYSTEMS}) == len(SYSTEMS)


def test_the_table_of_systems_is_fresh() -> None:
    assert SYSTEMS_DOCUMENT.read_text(encoding="utf-8") == systems_document(), "Renew it: python3 dev.py scenarios"
