"""Errors as problem documents (RFC 9457): a sentence, the field, near names; never the value sent, and always ASCII."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Scope

from service.api.http.fields import Described
from service.api.http.figures import plural
from service.api.http.usual_words import meant_by, suggested
from service.db.errors import DatabaseUnusable
from service.domain.catalog.names import either, near_names, with_near
from service.domain.errors import CursorExpired, NotFound, NotYet, QuestionError

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
LONGEST_TEXT = 200
RETRY_SECONDS = 10
"""When a client should send again what was refused with status 503."""

MAX_NEAR = 3
DEEPEST_NAMESAKE = 2
"""Depth to which fields with the name of an unknown one are suggested; few callers mean a deeper one."""

MAX_ERRORS = 20
"""A request can be wrong in ten thousand places; a caller needs only the first few."""


class FieldError(BaseModel):
    """An error in one field."""

    field: str = Field(description="The query parameter, or the path into the body.")
    message: str = Field(description="What is wrong with the field, in a sentence.")
    near: list[str] = Field(description="Names that the caller may have meant, best first; empty: none.")


class ProblemDocument(Described, BaseModel):
    """An RFC 9457 problem."""

    type: str
    """Always `about:blank`: the status says what kind of problem it is."""
    title: str
    """The phrase of the status code, such as `Not Found`."""
    status: int
    """The HTTP status code; in a batch, that of one item."""
    detail: str
    """A sentence for the person who has to correct the request."""
    errors: list[FieldError]
    """The fields with errors; empty if the problem is with the whole request."""


def _document(status: int, detail: str, errors: Iterable[FieldError] = ()) -> ProblemDocument:
    title = HTTPStatus(status).phrase
    return ProblemDocument(type="about:blank", title=title, status=status, detail=detail, errors=list(errors))


def problem(
    status: int, detail: str, errors: Iterable[FieldError] = (), headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a problem as a response."""
    return _response(_document(status, detail, errors), headers)


def _response(document: ProblemDocument, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(document.model_dump(), ensure_ascii=True)
    retry = {"Retry-After": str(RETRY_SECONDS)} if document.status == 503 else {}
    return Response(body, document.status, headers={**retry, **(headers or {})}, media_type=MEDIA_TYPE)


class BodyUnreadable(HTTPException):
    """The body is not JSON, is compressed, is ambiguous, or is too complex."""

    def __init__(self, sentence: str, field: str = "body", status: int = 400) -> None:
        super().__init__(status, _printable(sentence))
        self.field = _printable(field)


class BudgetSpent(QuestionError):
    """A batch has used up what it may cost."""


STATUS_OF: dict[type[QuestionError], int] = {NotFound: 404, CursorExpired: 410, BudgetSpent: 413, NotYet: 503}


def document_of(error: Exception, scope: Scope) -> ProblemDocument:
    """Returns the problem of a request, or of an item of a batch, that raised an error.

    An error that is not about the question is logged for the operator; the client learns no more than who has to act.
    """
    match error:
        case QuestionError():
            field, sentence = error.field, error.sentence
            errors = [] if field is None else [FieldError(field=field, message=sentence, near=list(error.near))]
            return _document(STATUS_OF.get(type(error), 422), sentence, errors)
        case DatabaseUnusable():
            log.error("%s %s was refused: %s", scope["method"], scope["path"], error)
            sentence = "The database cannot be used now, so nothing was stored. Send the request again later."
            return _document(503, sentence)
        case _:
            log.error("%s %s failed.", scope["method"], scope["path"], exc_info=error)
            return _document(500, "The service failed on this request; the fault is ours, and it is logged.")


def problem_of(error: Exception, scope: Scope) -> Response:
    """Returns the problem of a request as a response, see `document_of`."""
    return _response(document_of(error, scope))


async def _raised_problem(request: Request, error: Exception) -> Response:
    return problem_of(error, request.scope)


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation of the service, whose fields the OpenAPI document names. Creating the document takes long."""

    app: FastAPI
    method: str
    path: str

    @classmethod
    def of(cls, request: Request) -> "_Operation":
        """Returns the operation that a request asks for; one without fields for an address outside of the document."""
        path = getattr(request.scope.get("route"), "path_format", "")
        return cls(request.app, request.method.lower(), path)

    @property
    def repeated(self) -> "_Operation":
        """The operation that answers each item of this one, which is a batch."""
        return replace(self, path=self.path.removesuffix("/batch"))

    @property
    def description(self) -> Mapping[str, Any]:
        """The operation in the OpenAPI document."""
        description: Mapping[str, Any] = self.app.openapi()["paths"].get(self.path, {}).get(self.method, {})
        return description

    @property
    def schemas(self) -> Mapping[str, Any]:
        """The schemas of the OpenAPI document by name."""
        schemas: Mapping[str, Any] = self.app.openapi()["components"]["schemas"]
        return schemas


async def _validation_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors: Sequence[Any] = error.errors()
    if isinstance(error.body, bytes):
        return _body_problem(415, "Send the body as JSON, with the header Content-Type: application/json.")
    # Thousands of errors and the first look at the document take long.
    return _response(await run_in_threadpool(_invalid, errors, error.body, _Operation.of(request)))


def _invalid(faults: Sequence[Any], body: Any, operation: _Operation) -> ProblemDocument:
    """Returns the errors that pydantic found in the query or the body of an operation as a problem."""
    # A default that cannot be computed because another field is wrong is not an error of its own.
    faults = [fault for fault in faults if fault["type"] != "default_factory_not_called"]
    errors = [_field_error(fault, body, operation) for fault in faults[:MAX_ERRORS]]
    others = len(faults) - 1
    more = f" There {'is' if others == 1 else 'are'} {plural(others, 'more error')}." if others else ""
    # A field that is missing is often the one that was misspelt, and the near name says so.
    first = next((error for error in errors if error.near), errors[0] if errors else None)
    return _document(422, f"{first.message}{more}" if first else "The request cannot be understood.", errors)


def invalid_item(error: ValidationError, body: Any, request: Request) -> ProblemDocument:
    """Returns the errors that pydantic found in one item of a batch as a problem."""
    faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
    return _invalid(faults, body, _Operation.of(request).repeated)


def _body_problem(status: int, sentence: str, field: str = "body") -> Response:
    return problem(status, sentence, [FieldError(field=field, message=sentence, near=[])])


def _field_error(fault: Mapping[str, Any], body: Any, operation: _Operation) -> FieldError:
    where, *path = fault["loc"]
    # In a query every value belongs to a parameter; in a body pydantic's path has more in it than names and places.
    steps = list(_steps_in_body(path, body, missing=fault["type"] == "missing")) if where == "body" else path[:1]
    field = _printable(".".join(str(step) for step in steps)) or str(where)
    near: Sequence[str] = ()
    match fault["type"]:
        case "extra_forbidden":
            near = _near_fields(operation, where, steps)
            message = f"There is no {'query parameter' if where == 'query' else 'field'} '{field}'."
        case code if code in PREDICATES:
            limits = {name: _decimal(limit) for name, limit in fault.get("ctx", {}).items()}
            message = f"'{field}' {PREDICATES[code].format_map(limits)}."
            if code == "literal_error":
                values = re.findall(r"'([^']*)'", fault["ctx"]["expected"])
                near = suggested(str(fault["input"])[:LONGEST_TEXT], values)
        case _:
            message = f"'{field}': {fault['msg'].removeprefix('Value error, ')}."
    return FieldError(field=field, message=with_near(message, near), near=list(near))


PREDICATES = {
    "missing": "is missing",
    "repeated": "takes one value and is given more than once",
    "literal_error": "should be {expected}",
    "greater_than": "should be above {gt}",
    "greater_than_equal": "should be at least {ge}",
    "less_than": "should be below {lt}",
    "less_than_equal": "should be at most {le}",
    "finite_number": "should be a finite number",
    **dict.fromkeys(("float_type", "float_parsing"), "should be a number"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "should be a whole number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "should be true or false"),
    "string_type": "should be a text",
    "string_unicode": "should be a text of whole Unicode characters",
    "string_too_short": "should not be empty",
    "string_too_long": "should have at most {max_length} characters",
    **dict.fromkeys(("tuple_type", "list_type"), "should be a list"),
    "too_short": "should not be empty",
    "too_long": "should have at most {max_length} items; it has {actual_length}",
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "should be a JSON object"),
}
"""Predicates about a field, by the code of the error: pydantic's, or `repeated` of `query_reader`.

No field asks for more than one character or item.
"""


def _decimal(limit: Any) -> Any:
    """Returns a number in decimal notation with commas, and any other value as it is."""
    return f"{Decimal(str(limit)).normalize():,f}" if isinstance(limit, int | float) else limit


def _steps_in_body(path: Sequence[Any], body: Any, *, missing: bool) -> Iterator[Any]:
    """Yields the names and indices in pydantic's path into the body, without the branches of unions."""
    for index, step in enumerate(path):
        match body, step:
            case dict(), str() if step in body:
                body = body[step]
            case list(), int() if step < len(body):
                body = body[step]
            case dict(), str() if missing and index == len(path) - 1:
                pass
            case str(), int():  # `a,b` instead of a list
                return
            case _:
                continue
        yield step


def _printable(text: str) -> str:
    """Shortens text from outside, and replaces halves of characters, which no JSON reader accepts."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def _near_fields(operation: _Operation, where: str, steps: Sequence[Any]) -> Sequence[str]:
    """Returns the fields that an unknown name may mean: its usual meaning, a field elsewhere, or a similar name.

    A name without its limit, such as `gpu_count`, may mean `min_gpu_count` or `max_gpu_count`.
    """
    *parent, name = steps
    name = str(name)[:LONGEST_TEXT]
    description, schemas, meant = operation.description, operation.schemas, meant_by(name)
    if where != "body":
        known = [field["name"] for field in description.get("parameters", []) if field["in"] == where]
        return suggested(name, known)[:MAX_NEAR]
    body = [content["schema"] for content in description.get("requestBody", {}).get("content", {}).values()]
    here = body
    for step in parent:
        parts = [part for schema in here for part in _alternatives(schema, schemas)]
        inner = (part.get("items") if isinstance(step, int) else part.get("properties", {}).get(step) for part in parts)
        here = [schema for schema in inner if schema]
    prefix = "".join(f"{step}." for step in parent)
    siblings = [field for schema in here for field, _ in _fields(schema, schemas)]
    limits = (f"min_{name}", f"max_{name}")
    namesakes, of_limits, of_meaning = (
        [path for field in fields for schema in body for path in _paths_to(field, schema, schemas)]
        for fields in ((name,), limits, meant)
    )
    usual = [prefix + field for field in (*meant, *limits) if field in siblings]
    # Where the meaning of a word is known, fields that only look like it mislead.
    similar = () if of_meaning or not {*meant}.isdisjoint(siblings) else near_names(name, siblings)
    near = [*usual, *namesakes, *(prefix + field for field in similar), *of_limits, *of_meaning]
    return list(dict.fromkeys(near))[:MAX_NEAR]


def _paths_to(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yields the paths of the fields with a name, those of outer objects first, down to `DEEPEST_NAMESAKE`."""
    fields = list(_fields(schema, schemas))
    yield from (path + name for field, _ in fields if field == name)
    if path.count(".") < DEEPEST_NAMESAKE:
        for field, inner in fields:
            yield from _paths_to(name, inner, schemas, f"{path}{field}.")


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields the fields of an object with their schemas."""
    for part in _alternatives(schema, schemas):
        yield from part.get("properties", {}).items()


def _alternatives(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the schemas that a value may have: the members of a union, or the schema that a reference names."""
    yield schema
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    for part in (*([schemas[name]] if name else ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _alternatives(part, schemas)


async def _http_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error, BodyUnreadable):
        return _body_problem(error.status_code, error.detail, error.field)
    if error.status_code == 404:
        addresses = (await run_in_threadpool(request.app.openapi))["paths"]
        near = _near_addresses(request.url.path.rstrip("/"), [path for path in addresses if "{" not in path])
        return problem(404, with_near("There is nothing at this address.", near) + " /docs lists the endpoints.")
    if error.status_code == 405:
        return await _wrong_method(request, (error.headers or {}).get("Allow", ""))
    return problem(error.status_code, str(error.detail), headers=error.headers)


def _near_addresses(path: str, addresses: Sequence[str]) -> Sequence[str]:
    """Returns the addresses that the last word of a path means or that end in it, else those like the path."""
    word = path.rpartition("/")[2]
    meant = [each for each in addresses if each in meant_by(word) or each.endswith(f"/{word}")]
    return meant or near_names(path, addresses)


async def _wrong_method(request: Request, allowed: str) -> Response:
    """Returns the problem with the methods of the OpenAPI document, or `allowed` for an address outside of it.

    Starlette's own list has the methods of the first route with this address only, and lacks HEAD.
    """
    path = getattr(request.scope.get("route"), "path_format", "")
    operations = (await run_in_threadpool(request.app.openapi))["paths"].get(path, {})
    methods = sorted([*map(str.upper, operations), *(["HEAD"] if "get" in operations else [])]) or [allowed]
    sentence = f"This address does not accept {request.method}: send {either(methods)}."
    return problem(405, sentence, headers={"Allow": ", ".join(methods)})


def answer_problems(app: FastAPI) -> None:
    """Makes the app answer every error with a problem document, except for faults of the service."""
    app.add_exception_handler(QuestionError, _raised_problem)
    app.add_exception_handler(DatabaseUnusable, _raised_problem)
    app.add_exception_handler(RequestValidationError, _validation_problem)
    app.add_exception_handler(HTTPException, _http_problem)
