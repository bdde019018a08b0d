"""Many questions in one body: each is answered or refused by itself, and the event loop breathes between them."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema

from service.api.problems import ProblemDocument, document_of, invalid
from service.domain.errors import QuestionError

MOST_ITEMS = 1000


class Refused(BaseModel):
    """An item that cannot be answered as asked."""

    problem: ProblemDocument


def items_of(operation: str) -> Any:
    """A list of bodies of another operation; each is read by itself, so that a bad one does not fail the others.

    The document leaves their shape open for the same reason: what is wrong with an item is told in its place.
    """
    each = Annotated[Any, WithJsonSchema({"description": f"A body of {operation}."})]
    return Annotated[list[each], Field(max_length=MOST_ITEMS)]


async def answered(
    items: list[Any], adapter: TypeAdapter[Any], answer: Callable[[Any], bytes], request: Request
) -> Response:
    """The answer of each item, or its problem."""
    told = []
    for item in items:
        try:
            told.append(answer(adapter.validate_python(item)))
        except ValidationError as error:
            found = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
            told.append(refusal(invalid(found, item, request)))
        except QuestionError as error:
            told.append(refusal(document_of(error)))
        await asyncio.sleep(0)
    return Response(b'{"items":[' + b",".join(told) + b"]}", media_type="application/json")


def refusal(document: ProblemDocument) -> bytes:
    return Refused(problem=document).model_dump_json().encode()
