"""A default that the OpenAPI document declares means the same whether it is sent or left out."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.answers import post_estimate, post_recommend
from tests.api.documented import DOCUMENT
from tests.builders.request_bodies import TRAINING, Body, changed

LOAD: Body = {
    "task": "inference",
    "model": "mistral-7b",
    "input_length": 500,
    "output_length": 200,
    "serving": {"requests_per_second": 5},
}


def declared(schema: str) -> dict[str, Any]:
    """The fields of a schema with the defaults that the document declares."""
    properties = DOCUMENT["components"]["schemas"][schema]["properties"]
    return {name: field["default"] for name, field in properties.items() if "default" in field}


@pytest.mark.parametrize(
    ("work", "limits"),
    [(LOAD, {}), (TRAINING["workload"] | {"concurrent_runs": 3}, {}), (TRAINING["workload"], {"min_nodes": 2})],
    ids=["load", "runs", "nodes"],
)
def test_declared_constraints_change_no_recommendation(client: TestClient, work: Body, limits: Body) -> None:
    plain = post_recommend(client, {"workload": work, "constraints": limits})
    sent = post_recommend(client, {"workload": work, "constraints": declared("ConstraintsRequest-Input") | limits})
    assert plain["choices"]
    assert sent == plain


@pytest.mark.parametrize("work", [LOAD, TRAINING["workload"] | {"concurrent_runs": 3}], ids=["load", "runs"])
def test_declared_fields_change_no_estimate(client: TestClient, work: Body) -> None:
    body = changed(TRAINING, workload=work, market="on_demand")
    sent = post_estimate(client, declared("EstimateRequest") | body)
    assert sent == post_estimate(client, body)
