"""Errors → problem documents (RFC 9457): a sentence, the field, near names. Never what was sent; always ASCII."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from service.domain.errors import CursorExpired, NotFound, QuestionError
from service.domain.names import near_names

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
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


def problem(
    status: int, detail: str, errors: Iterable[FieldError] = (), headers: Mapping[str, str] | None = None
) -> Response:
    document = ProblemDocument(
        type="about:blank", title=HTTPStatus(status).phrase, status=status, detail=detail, errors=list(errors)
    )
    body = json.dumps(document.model_dump(), ensure_ascii=True)
    return Response(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


STATUS_OF: dict[type[QuestionError], int] = {NotFound: 404, CursorExpired: 410}


async def question_problem(_request: Request, error: Exception) -> Response:
    assert isinstance(error, QuestionError)
    return problem(STATUS_OF.get(type(error), 422), error.sentence, field_errors(error))


def field_errors(error: QuestionError) -> list[FieldError]:
    if error.field is None:
        return []
    return [FieldError(field=error.field, message=error.sentence, near=list(error.near))]


async def validation_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found: Sequence[Any] = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return problem(
            400, "The body is not valid JSON.", [FieldError(field="body", message="Not valid JSON.", near=[])]
        )
    known = known_names(request)
    errors = [field_error(each, known) for each in found[:ERRORS_TOLD]]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return problem(422, f"{errors[0].message}{more}" if errors else "The request cannot be understood.", errors)


def field_error(found: Mapping[str, Any], known: Sequence[str]) -> FieldError:
    where, *path = found["loc"]
    field = ".".join(printable(str(part)) for part in path) or str(where)
    near: tuple[str, ...] = ()
    if found["type"] == "extra_forbidden":
        near = near_names(field.rsplit(".", 1)[-1], known)
        kind = "query parameter" if where == "query" else "field"
        message = f"There is no {kind} '{field}'." + (f" Did you mean {' or '.join(near)}?" if near else "")
    elif found["type"] == "missing":
        message = f"'{field}' is missing."
    else:
        message = f"'{field}': {found['msg']}."
    return FieldError(field=field, message=message, near=list(near))


def printable(text: str) -> str:
    """Field names come from outside as well: cut to a length that a person reads."""
    return text if len(text) <= 80 else f"{text[:80]}…"


def known_names(request: Request) -> list[str]:
    """The parameters and body fields that the operation asked has, for near names."""
    route = request.scope.get("route")
    operation = request.app.openapi()["paths"].get(getattr(route, "path", ""), {}).get(request.method.lower(), {})
    names = [parameter["name"] for parameter in operation.get("parameters", [])]
    if "requestBody" in operation:
        schemas = request.app.openapi()["components"]["schemas"].values()
        names += [name for schema in schemas for name in schema.get("properties", {})]
    return sorted(set(names))


async def http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return problem(404, "There is nothing at this address. /docs lists what there is.")
    if error.status_code == 405:
        return problem(405, f"This address does not take {request.method}.", headers=error.headers)
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def unexpected_problem(request: Request, error: Exception) -> Response:
    log.error("%s %s failed.", request.method, request.url.path, exc_info=error)
    return problem(500, "The service failed on this request; the fault is logged and is ours.")


def answer_problems(app: FastAPI) -> None:
    app.add_exception_handler(QuestionError, question_problem)
    app.add_exception_handler(RequestValidationError, validation_problem)
    app.add_exception_handler(HTTPException, http_problem)
    app.add_exception_handler(Exception, unexpected_problem)
