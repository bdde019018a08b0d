"""The OpenAPI document: FastAPI derives it from the code; problems, ETags and examples are added to each operation."""

from collections.abc import Iterator
from threading import Lock
from typing import Any

from fastapi import FastAPI

from service.api.http.examples import examples_of
from service.api.http.problems import MEDIA_TYPE, ProblemDocument

Node = dict[str, Any]

SCHEME = "api_key"
SECURITY_SCHEMES = {
    SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key from `instance-selector keys create`. Reading needs a key only if the operator "
        "requires it. An operation that writes names the scope that the key must have.",
    }
}

PROBLEMS = {
    "400": "The body cannot be read as JSON.",
    "401": "An API key is missing, or the one sent is not valid.",
    "403": "The API key lacks the scope that the problem names.",
    "404": "The catalog does not have the name in the path; the problem lists near names.",
    "410": "The catalog has changed and no longer has the cursor's item.",
    "413": "The body is too large, or a batch has used up what it may cost.",
    "414": "The URL is too long.",
    "415": "The body is not sent as JSON.",
    "422": "The question cannot be answered as asked; the problem names the field and near names.",
    "429": "The key, or the address without a key, has sent too many requests. `Retry-After` says how long to wait.",
    "503": "The database cannot be used, all places for batches are taken, or the catalog of another `known_at` "
    "is being read. Nothing was stored. `Retry-After` says when to send the request again.",
}
ETAG = {
    "ETag": ("Identifies the catalog and the version of the service that answered.", "string"),
    "Cache-Control": ("Store the answer, but revalidate it before each use.", "string"),
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
    """Makes the app return the completed document instead of the one that FastAPI derives."""
    derived, completing = app.openapi, Lock()

    def completed() -> Node:
        with completing:
            return app.openapi_schema or complete()

    def complete() -> Node:
        document = derived()  # FastAPI keeps it as `openapi_schema`
        for path, operations in document["paths"].items():
            for operation in operations.values():
                _complete(operation, path)
        document["components"]["securitySchemes"] = SECURITY_SCHEMES
        document["security"] = [{}, {SCHEME: []}]
        schemas = document["components"]["schemas"]
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        problem = ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= problem.pop("$defs") | {"ProblemDocument": problem}
        return document

    app.openapi = completed  # type: ignore[method-assign]


def _complete(operation: Node, path: str) -> None:
    parameters: list[Node] = operation.setdefault("parameters", [])
    for parameter in parameters:
        if parameter["in"] == "query":
            parameter["schema"] = _in_query(parameter["schema"])
    names = {parameter["name"] for parameter in parameters}
    responses: Node = operation["responses"]
    responses.pop("422", None)
    for status in _problem_statuses(operation, names):
        schema = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
        responses[status] = {"description": PROBLEMS[status], "content": {MEDIA_TYPE: schema}}
    answer = next(response for status, response in responses.items() if status < "300")
    if "as_of" in names:  # the answer rests on a catalog, and on nothing else
        parameters.append(IF_NONE_MATCH)
        answer["headers"] = _headers(ETAG)
        responses["304"] = {"description": "The answer that the client has still holds.", "headers": _headers(ETAG)}
    if "cursor" in names:
        answer["content"]["text/csv"] = {"schema": {"type": "string"}}
        answer["headers"] |= _headers({"X-Next-Cursor": ("In CSV: the cursor of the next page, if any.", "string")})
    _add_examples(operation, path)
    operation["responses"] = dict(sorted(responses.items()))


def _in_query(schema: Node) -> Node:
    """Returns the schema of a query field without null, which a query cannot express; of a list or a text, the list."""
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if not options:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    chosen: Node = next((option for option in options if option.get("type") == "array"), options[0])
    return chosen | rest


def _problem_statuses(operation: Node, names: set[str]) -> Iterator[str]:
    if "operations" not in operation["tags"]:
        yield from ("401", "429")
    if "security" in operation:
        yield "403"
    if "requestBody" in operation:
        yield from ("400", "413", "415")
    if any(parameter["in"] == "path" for parameter in operation["parameters"]):
        yield "404"
    if "cursor" in names:
        yield "410"
    if names:
        yield "414"
    if names or "requestBody" in operation:
        yield "422"
    if "known_at" in names or "requestBody" in operation:
        yield "503"


def _headers(table: dict[str, tuple[str, str]]) -> Node:
    return {name: {"description": text, "schema": {"type": type_}} for name, (text, type_) in table.items()}


def _add_examples(operation: Node, path: str) -> None:
    """Adds each example to the response with its status, and the names in the first path to the path's parameters."""
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
