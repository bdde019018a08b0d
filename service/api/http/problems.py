"""Errors → problem documents (RFC 9457): a sentence, the field, near names. Never what was sent; always ASCII."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from service.db.errors import DatabaseUnusable
from service.domain.catalog.names import near_names
from service.domain.errors import CursorExpired, NotFound, QuestionError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
LONGEST_TEXT = 200
RETRY_SECONDS = 10
ERRORS_TOLD = 20
"""A request can be wrong in ten thousand places; the first few are enough to mend it."""


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="Where: the query parameter, or the path into the body.")
    message: str
    near: list[str] = Field(description="Known names that look like the one sent.")


class ProblemDocument(BaseModel):
    """An RFC 9457 problem."""

    type: str
    title: str
    status: int
    detail: str = Field(description="A sentence for the person who has to mend the request.")
    errors: list[FieldError]


def document(status: int, detail: str, errors: Iterable[FieldError] = ()) -> ProblemDocument:
    return ProblemDocument(
        type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail, errors=list(errors)
    )


def problem(
    status: int, detail: str, errors: Iterable[FieldError] = (), headers: Mapping[str, str] | None = None
) -> Response:
    return response(document(status, detail, errors), headers)


def response(told: ProblemDocument, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(told.model_dump(), ensure_ascii=True)
    return Response(body, told.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


class BodyUnreadable(HTTPException):
    """The body cannot be read as JSON that means one thing."""

    def __init__(self, sentence: str, field: str = "body") -> None:
        super().__init__(400, printable(sentence))
        self.field = printable(field)


STATUS_OF: dict[type[QuestionError], int] = {NotFound: 404, CursorExpired: 410}


async def question_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, QuestionError)
    return response(document_of(error))


def document_of(error: QuestionError) -> ProblemDocument:
    return document(STATUS_OF.get(type(error), 422), error.sentence, field_errors(error))


def field_errors(error: QuestionError) -> list[FieldError]:
    if error.field is None:
        return []
    return [FieldError(field=error.field, message=error.sentence, near=list(error.near))]


async def validation_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: Sequence[Any] = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return body_problem(400, "The body is not valid JSON.")
    if isinstance(error.body, bytes):
        return body_problem(415, "Send the body as JSON, with the header Content-Type: application/json.")
    return response(invalid(found, error.body, request))


def invalid(found: Sequence[Any], body: Any, request: Request) -> ProblemDocument:
    """What pydantic found wrong, in sentences."""
    errors = [field_error(each, body, request) for each in found[:ERRORS_TOLD]]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return document(422, f"{errors[0].message}{more}" if errors else "The request cannot be understood.", errors)


def body_problem(status: int, sentence: str, field: str = "body") -> Response:
    return problem(status, sentence, [FieldError(field=field, message=sentence, near=[])])


def field_error(found: Mapping[str, Any], body: Any, request: Request) -> FieldError:
    where, *path = found["loc"]
    # In a query every value belongs to a parameter; in a body pydantic's path has more in it than names and places.
    steps = list(trodden(path, body, missing=found["type"] == "missing")) if where == "body" else path[:1]
    field = printable(".".join(str(step) for step in steps)) or str(where)
    near: Sequence[str] = ()
    match found["type"]:
        case "extra_forbidden":
            near = near_names(field.rsplit(".", 1)[-1], known_names(request))
            message = f"There is no {'query parameter' if where == 'query' else 'field'} '{field}'."
        case "literal_error":
            near = near_names(str(found["input"]), re.findall(r"'([^']*)'", found["ctx"]["expected"]))
            message = f"'{field}': {found['msg']}."
        case "missing":
            message = f"'{field}' is missing."
        case kind:
            said = SENTENCES.get(kind) or found["msg"].removeprefix("Value error, ").replace("Tuple", "List")
            message = f"'{field}': {said}."
    tail = f" Did you mean {' or '.join(near)}?" if near else ""
    return FieldError(field=field, message=message + tail, near=list(near))


SENTENCES = {
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "Input should be a JSON object"),
    "tuple_type": "Input should be a valid list",
}
"""Where pydantic's own words speak of Python."""


def trodden(path: Sequence[Any], body: Any, *, missing: bool) -> Iterator[Any]:
    """Of pydantic's path into the body, the names and places in it; the branches of unions are left out."""
    for place, step in enumerate(path):
        match body, step:
            case dict(), str() if step in body:
                body = body[step]
            case list(), int() if step < len(body):
                body = body[step]
            case dict(), str() if missing and place == len(path) - 1:
                pass
            case str(), int():  # `a,b` where a list is meant
                return
            case _:
                continue
        yield step


def printable(text: str) -> str:
    """What comes from outside may be long, or hold halves of characters that no JSON reader takes."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def known_names(request: Request) -> list[str]:
    """The parameters and body fields that the operation asked has, for near names."""
    document = request.app.openapi()
    route = request.scope.get("route")
    operation = document["paths"].get(getattr(route, "path_format", ""), {}).get(request.method.lower(), {})
    names = [parameter["name"] for parameter in operation.get("parameters", [])]
    return [*names, *fields_within(operation.get("requestBody", {}), document["components"]["schemas"], set())]


def fields_within(node: Any, schemas: Mapping[str, Any], seen: set[str]) -> Iterator[str]:
    """The names of all properties in a schema and in those that it refers to."""
    if isinstance(node, list):
        for each in node:
            yield from fields_within(each, schemas, seen)
    if not isinstance(node, dict):
        return
    name = str(node.get("$ref", "")).rpartition("/")[2]
    if name and name not in seen:
        seen.add(name)
        yield from fields_within(schemas[name], schemas, seen)
    yield from node.get("properties", {})
    yield from fields_within([held for key, held in node.items() if key not in ("example", "examples")], schemas, seen)


async def http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, BodyUnreadable):
        return body_problem(400, error.detail, error.field)
    if error.status_code == 404:
        return problem(404, "There is nothing at this address. /docs lists what there is.")
    if error.status_code == 405:
        first = (error.headers or {}).get("Allow", "")
        return problem(405, f"This address does not take {request.method}.", headers={"Allow": allowed(request, first)})
    return problem(error.status_code, str(error.detail), headers=error.headers)


def allowed(request: Request, first: str) -> str:
    """Every method of the address: Starlette tells only those of the first route that has it."""
    path = getattr(request.scope.get("route"), "path_format", "")
    operations = request.app.openapi()["paths"].get(path, {})
    return ", ".join(sorted(map(str.upper, operations))) or first


async def database_problem(request: Request, error: Exception) -> Response:
    """What is wrong with the database is for whoever runs it; the client hears that nothing has happened."""
    log.error("%s %s was refused: %s", request.method, request.url.path, error)
    sentence = "The database cannot be written to now, so nothing of this was kept. Send it again later."
    return problem(503, sentence, headers={"Retry-After": str(RETRY_SECONDS)})


async def unexpected_problem(request: Request, error: Exception) -> Response:
    log.error("%s %s failed.", request.method, request.url.path, exc_info=error)
    return problem(500, "The service failed on this request; the fault is logged and is ours.")


def answer_problems(app: FastAPI) -> None:
    app.add_exception_handler(QuestionError, question_problem)
    app.add_exception_handler(RequestValidationError, validation_problem)
    app.add_exception_handler(HTTPException, http_problem)
    app.add_exception_handler(DatabaseUnusable, database_problem)
    app.add_exception_handler(Exception, unexpected_problem)
