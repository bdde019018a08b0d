"""Many questions in one body: each is answered or refused by itself, beside the event loop and not in it."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.concurrency import run_in_threadpool

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
    """The answer of each item, or its problem; in a thread, so that other requests are answered meanwhile."""

    def each(item: Any) -> bytes:
        try:
            return answer(adapter.validate_python(item))
        except ValidationError as error:
            found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
            return refusal(invalid(found, item, request))
        except QuestionError as error:
            return refusal(document_of(error))

    told = [await run_in_threadpool(each, item) for item in items]
    return Response(b'{"items":[' + b",".join(told) + b"]}", media_type="application/json")


def refusal(document: ProblemDocument) -> bytes:
    return Refused(problem=document).model_dump_json().encode()
