"""The OpenAPI document: what FastAPI reads off the code, and what holds for all operations alike."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from fastapi import FastAPI

from service.api.http.examples import examples_of
from service.api.http.problems import MEDIA_TYPE, ProblemDocument

Node = dict[str, Any]

PROBLEMS = {
    "400": "The body cannot be read as JSON.",
    "404": "There is no such thing in the catalog; near names are told.",
    "410": "The cursor's place is gone since the catalog changed.",
    "413": "The body is too large.",
    "415": "The body is not sent as JSON.",
    "422": "The question cannot be answered as asked: the field and near names are told.",
    "503": "The database cannot be written to now; nothing of the request was kept.",
}
ETAG = {
    "ETag": ("Names the catalog that answered, and this version of the service.", "string"),
    "Cache-Control": ("Keep the answer, but ask whether it still holds.", "string"),
    "Vary": ("Which request headers the answer depends on.", "string"),
}
IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETags that the client has; when one of them still holds, the answer is 304 without a body.",
    "schema": {"type": "string"},
}


def complete_document(app: FastAPI) -> None:
    """Let the app tell the whole document instead of what FastAPI knows by itself."""
    derived = app.openapi

    @cache
    def told() -> Node:
        document = derived()
        for path, operations in document["paths"].items():
            for operation in operations.values():
                complete(operation, path)
        schemas = document["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs") | {"ProblemDocument": problem}
        return document

    app.openapi = told  # type: ignore[method-assign]


def complete(operation: Node, path: str) -> None:
    parameters: list[Node] = operation.setdefault("parameters", [])
    for parameter in parameters:
        if parameter["in"] == "query":
            parameter["schema"] = in_query(parameter["schema"])
    names = {each["name"] for each in parameters}
    responses: Node = operation["responses"]
    responses.pop("422", None)
    for status in problem_statuses(operation, names):
        schema = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
        responses[status] = {"description": PROBLEMS[status], "content": {MEDIA_TYPE: schema}}
    answer = next(told for status, told in responses.items() if status < "300")
    if "as_of" in names:  # the answer rests on a catalog, and on nothing else
        parameters.append(IF_NONE_MATCH)
        answer["headers"] = headers(ETAG)
        responses["304"] = {"description": "The answer that the client has still holds.", "headers": headers(ETAG)}
    if "cursor" in names:
        answer["content"]["text/csv"] = {"schema": {"type": "string"}}
        answer["headers"] |= headers({"X-Next-Cursor": ("In CSV: the cursor of the next page, if any.", "string")})
    add_examples(operation, path)
    operation["responses"] = dict(sorted(responses.items()))


def in_query(schema: Node) -> Node:
    """A query cannot say null, and of a list and its comma form the list is enough."""
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if not options:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    kept: Node = next((each for each in options if each.get("type") == "array"), options[0])
    return kept | rest


def problem_statuses(operation: Node, names: set[str]) -> Iterator[str]:
    if "requestBody" in operation:
        yield from ("400", "413", "415")
    if any(each["in"] == "path" for each in operation["parameters"]):
        yield "404"
    if "cursor" in names:
        yield "410"
    if names or "requestBody" in operation:
        yield "422"
    if "201" in operation["responses"]:
        yield "503"


def headers(table: dict[str, tuple[str, str]]) -> Node:
    return {name: {"description": told, "schema": {"type": kind}} for name, (told, kind) in table.items()}


def add_examples(operation: Node, path: str) -> None:
    """Each example to the answer with its status, and the first one's names to the path."""
    for example in examples_of(operation["operationId"]):
        content = operation["responses"][example.status]["content"]
        media = next(iter(content.values()))
        media.setdefault("examples", {})[example.name] = {"summary": example.summary, "value": example.answer()}
    first = next(examples_of(operation["operationId"]), None)
    if first:
        steps = zip(path.split("/"), first.target.partition("?")[0].split("/"), strict=False)
        given = {step.strip("{}"): value for step, value in steps if step.startswith("{")}
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                parameter["example"] = given[parameter["name"]]
