"""Reads a query string into a model of many fields.

FastAPI's own way (`Annotated[Model, Query()]`) determines for every request which fields are lists. With the fifty
fields of `GET /instances` this took two fifths of the time of a request, so its handler calls this reader instead.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, get_origin
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from service.api.http.fields import RequestModel

Model = TypeVar("Model", bound=BaseModel)


def query_reader(model: type[Model]) -> Callable[[Request], Model]:
    """Returns a function that reads the query as this model. It raises `RequestValidationError` as FastAPI does."""
    lists = frozenset(name for name, field in model.model_fields.items() if get_origin(field.annotation) is tuple)

    def read(request: Request) -> Model:
        values: dict[str, Any] = {}
        repeated: list[str] = []
        # As Starlette reads it, without the two copies of each pair that `request.query_params` makes.
        for name, value in parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True):
            if name in lists:
                values.setdefault(name, []).append(value)
            else:
                if name in values and name in model.model_fields:
                    repeated.append(name)
                values[name] = value
        faults: list[Any] = [{"type": "repeated", "loc": (name,)} for name in dict.fromkeys(repeated)]
        try:
            question = model.model_validate(values)
        except ValidationError as error:
            faults += error.errors(include_url=False)
        if faults:
            raise RequestValidationError([{**fault, "loc": ("query", *fault["loc"])} for fault in faults])
        return question

    return read


refuse_query = query_reader(RequestModel)
"""Raises `RequestValidationError` for any query parameter: for routes that take none."""


class DirectRoute(APIRoute):
    """A route that calls its handler and sends the response, without the exit stacks of FastAPI's dependencies."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        handler = self.get_route_handler()

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await handler(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = answer


class QueryRoute(DirectRoute):
    """A route whose endpoint takes the request, reads the query by itself, and returns the response.

    FastAPI's own handler would look for parameters in each request although there are none.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the endpoint."""
        return self.endpoint


def query_parameters(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the parameters of a query for the OpenAPI document, as the `openapi_extra` of a route takes them."""
    fields = model.model_json_schema()["properties"]
    return {"parameters": [_parameter(name, dict(schema)) for name, schema in fields.items()]}


def _parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("default", ...) is None:
        del schema["default"]  # as FastAPI does: a query has no null
    parameter = {"name": name, "in": "query", "required": False, "schema": schema}
    return parameter | ({"description": schema["description"]} if "description" in schema else {})
