"""The OpenAPI document is whole, current, and its examples are what the service answers."""

import re
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.api.http.examples import EXAMPLES, FOLDER, Example, ask
from service.cli.development import openapi_text
from tests.api.documented import COMMITTED, DOCUMENT

RENEW = "Out of date: run python3 dev.py openapi"


OPERATIONS = [
    pytest.param(operation, id=f"{method} {path}")
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def test_the_committed_document_is_current(app: FastAPI) -> None:
    assert COMMITTED.read_text(encoding="utf-8") == openapi_text(app), RENEW


def test_it_is_openapi_3_1_of_this_service() -> None:
    assert DOCUMENT["openapi"].startswith("3.1")
    assert DOCUMENT["info"]["license"]["identifier"] == "Apache-2.0"
    assert "ValidationError" not in DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.path.stem)
def test_examples_are_real(example: Example, request: pytest.FixtureRequest) -> None:
    client: TestClient = request.getfixturevalue("client_to_write" if example.status == "201" else "client")
    assert example.answer() == ask(example, client), RENEW


def test_no_example_is_left_over() -> None:
    assert set(FOLDER.iterdir()) == {example.path for example in EXAMPLES}


@pytest.mark.parametrize("answer", ["EstimateResponse", "ChoiceResponse"])
def test_evidence_has_a_schema(answer: str) -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert schemas[answer]["properties"]["evidence"]["items"] == {"$ref": "#/components/schemas/EvidenceResponse"}
    kinds = schemas["EvidenceResponse"]["properties"]["kind"]["enum"]
    assert kinds == ["measurement", "published_run"]


def good_answer(operation: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(
        answer for status, answer in operation["responses"].items() if status in ("200", "201")
    )
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_described_with_an_example(operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    content = next(iter(good_answer(operation)["content"].values()))
    assert content["examples"]
    for each in operation["parameters"]:
        assert each["in"] != "path" or each["example"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_problem_is_a_problem_document(operation: dict[str, Any]) -> None:
    statuses = [status for status in operation["responses"] if status >= "400"]
    for status in statuses:
        assert list(operation["responses"][status]["content"]) == ["application/problem+json"]
    places = {parameter["in"] for parameter in operation["parameters"]}
    assert ("404" in statuses) == ("path" in places)
    assert ("422" in statuses) == bool(places or "requestBody" in operation)
    assert ({"400", "413", "415"} <= set(statuses)) == ("requestBody" in operation)
    takes_known_at = any(parameter["name"] == "known_at" for parameter in operation["parameters"])
    assert ("503" in statuses) == (takes_known_at or "requestBody" in operation)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_rests_on_a_catalog_has_an_etag_and_a_list_has_csv(operation: dict[str, Any]) -> None:
    names = {parameter["name"] for parameter in operation["parameters"]}
    answer = good_answer(operation)
    assert ("as_of" in names) == ("If-None-Match" in names) == ("304" in operation["responses"])
    assert ("as_of" in names) == ("ETag" in answer.get("headers", {}))
    assert ("cursor" in names) == ("text/csv" in answer["content"]) == ("410" in operation["responses"])


def test_the_service_serves_the_committed_document(client: TestClient) -> None:
    answer = client.get("/openapi.json")
    assert answer.json() == DOCUMENT


def test_the_service_describes_itself_without_other_hosts(client: TestClient) -> None:
    page = client.get("/").text
    assert "https://" not in page
    assert "http://" not in page
    needed = ["/openapi.json", "/docs/files/swagger-ui-bundle.js", "/docs/files/swagger-ui.css"]
    for path in (*needed, "/docs/files/favicon-32x32.png"):
        assert path in page
        assert client.get(path).status_code == 200


SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]

NAMES_THAT_SAY_ENOUGH = frozenset({
    "id", "name", "provider", "source", "note", "text", "sentence", "items", "aliases", "status", "state", "basis",
    "code", "admitted", "description", "starts_on", "measured_on", "base_clock_mhz", "boost_clock_mhz",
    "memory_bandwidth_gb_per_second", "instance_types",
})  # fmt: skip
"""Names that mean the same in every class, or whose unit and words say everything."""

CLASSES_THAT_SAY_ENOUGH = frozenset({
    "BandResponse", "MoneyResponse", "BoardResponse", "CodesResponse", "CpuResponse", "ImportResponse", "ReadyResponse",
    "RowCountsResponse", "TransformerResponse", "ParameterPartsResponse", "UnmappedResponse", "SoftwareSupportResponse",
    "MatrixRequest", "RecommendBatchRequest", "EstimateBatchRequest",
})  # fmt: skip
"""Classes whose own description says what those of their fields mean that have none."""


def refers_to_a_described_class(schema: dict[str, Any]) -> bool:
    """Whether the field, or each item of its list, is null or of a class with a description."""
    if "$ref" in schema:
        return bool(SCHEMAS[schema["$ref"].rpartition("/")[2]].get("description"))
    inner = [schema["items"]] if "items" in schema else schema.get("anyOf", [])
    return bool(inner) and all(part.get("type") == "null" or refers_to_a_described_class(part) for part in inner)


def test_every_field_is_explained() -> None:
    unexplained = [
        f"{name}.{field}"
        for name, schema in SCHEMAS.items()
        for field, of_field in schema.get("properties", {}).items()
        if not (of_field.get("description") or refers_to_a_described_class(of_field))
        and field not in NAMES_THAT_SAY_ENOUGH
        and name not in CLASSES_THAT_SAY_ENOUGH
    ]
    assert unexplained == []
    assert all(SCHEMAS[name]["description"] for name in CLASSES_THAT_SAY_ENOUGH)


def test_a_description_says_more_than_the_name_of_its_field() -> None:
    repeated = [
        f"{name}.{field}: {text}"
        for name, schema in SCHEMAS.items()
        for field, of_field in schema.get("properties", {}).items()
        if (text := of_field.get("description"))
        and {*re.findall(r"[a-z]+", text.lower())} <= {*field.split("_"), "the", "of", "a", "an", "its"}
    ]
    assert repeated == []


def test_a_field_copied_from_a_class_has_its_docstring_with_the_word_of_json() -> None:
    platform = SCHEMAS["GpuResponse"]["properties"]["platform"]["description"]
    assert platform.startswith("The platform that code for this GPU is written for")
    assert platform.endswith("null if no deep-learning code runs on it.")


def test_a_field_that_a_class_states_again_is_described_there_and_other_fields_as_in_its_base() -> None:
    of_base, again = (SCHEMAS[name]["properties"] for name in ("ModelledEstimateResponse", "JobEstimateResponse"))
    assert again["bottleneck"]["description"] == of_base["bottleneck"]["description"]
    assert of_base["hours"]["description"].startswith("Hours in which all instances do the amount")
    assert again["hours"]["description"].startswith("Hours until the whole amount is done")
