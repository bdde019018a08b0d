"""Reading a query string into a model of many fields.

FastAPI's own way (`Annotated[Model, Query()]`) works out anew on every request which of the fields are lists: with the
fifty fields of `GET /instances` that was two fifths of the time of a whole request. As a dependency it would still be a
tenth, so a handler calls it.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_origin

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)


def query_reader(model: type[Model]) -> Callable[[Request], Model]:
    """Reads the query as this model; what is wrong with it is told as FastAPI tells it."""
    lists = frozenset(name for name, field in model.model_fields.items() if get_origin(field.annotation) is tuple)

    def read(request: Request) -> Model:
        sent = request.query_params
        values = {name: sent.getlist(name) if name in lists else sent[name] for name in sent}
        try:
            return model.model_validate(values)
        except ValidationError as error:
            found = error.errors(include_url=False)
            raise RequestValidationError([{**each, "loc": ("query", *each["loc"])} for each in found]) from None

    return read


def query_parameters(model: type[BaseModel]) -> dict[str, Any]:
    """What the OpenAPI document says of them, for `openapi_extra` of the route."""
    fields = model.model_json_schema()["properties"]
    return {"parameters": [query_parameter(name, dict(schema)) for name, schema in fields.items()]}


def query_parameter(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("default", ...) is None:
        del schema["default"]  # as FastAPI does: to leave a parameter out is no value of it
    told = {"name": name, "in": "query", "required": False, "schema": schema}
    return told | ({"description": schema["description"]} if "description" in schema else {})
