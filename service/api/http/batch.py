"""Many questions in one body: each is answered or refused by itself, beside the event loop and not in it."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from service.api.http.problems import ProblemDocument, document_of, invalid
from service.domain.errors import QuestionError

MOST_ITEMS = 1000


class RefusedItem(BaseModel):
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
    """The answer of each item, or its problem; in a thread, so that other requests are answered meanwhile.

    Items of one workload are answered one after the other, whatever their order: what they share is worked out once
    and need not be kept until the next of them comes.
    """

    def each(item: Any) -> bytes:
        try:
            return answer(adapter.validate_python(item))
        except ValidationError as error:
            found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
            return refusal(invalid(found, item, request))
        except QuestionError as error:
            return refusal(document_of(error))

    def all_of(alike: list[int]) -> None:
        for place in alike:
            told[place] = each(items[place])

    told = [b""] * len(items)
    for alike in together(items):
        await run_in_threadpool(all_of, alike)
    return in_parts([b'{"items":[', *separated(told), b"]}"])


def separated(told: list[bytes]) -> Iterator[bytes]:
    """The answers with commas before all but the first."""
    return (b"," + each if place else each for place, each in enumerate(told))


def in_parts(parts: list[bytes]) -> Response:
    """One body of many parts, each dropped as it is sent: to join a thousand answers took three times their memory."""
    length = sum(map(len, parts))
    parts.reverse()

    async def sent() -> AsyncIterator[bytes]:
        while parts:
            yield parts.pop()

    return StreamingResponse(sent(), media_type="application/json", headers={"Content-Length": str(length)})


def together(items: list[Any]) -> list[list[int]]:
    """Where the items of each workload stand, of one day."""
    places = defaultdict[str, list[int]](list)
    for place, item in enumerate(items):
        shared = [item.get("workload"), item.get("as_of")] if isinstance(item, dict) else None
        places[json.dumps(shared, sort_keys=True)].append(place)
    return list(places.values())


def refusal(document: ProblemDocument) -> bytes:
    return RefusedItem(problem=document).model_dump_json().encode()
