"""Many questions in one body: each is answered or refused by itself, in a thread, while other requests go on."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.concurrency import run_in_threadpool

from service.api.http.problems import ProblemDocument, document_of, invalid
from service.domain.errors import QuestionError

MOST_ITEMS = 1000


class RefusedItem(BaseModel):
    """An item that cannot be answered as asked."""

    problem: ProblemDocument


def items_of(operation: str) -> Any:
    """Returns the type of a list of bodies of another operation.

    Each body is validated by itself, so that a bad one does not fail the others. The document leaves their shape open
    for the same reason: the problem of an item stands in its place.
    """
    item = Annotated[Any, WithJsonSchema({"description": f"A body of {operation}."})]
    return Annotated[list[item], Field(max_length=MOST_ITEMS)]


async def answered(
    items: list[Any], adapter: TypeAdapter[Any], answer: Callable[[Any], bytes], request: Request
) -> Response:
    """Returns the answer to each item, or its problem, in the order of the items.

    Items of one workload are answered one after the other, so that what they share is in a cache for all of them.
    """

    def answer_item(item: Any) -> bytes:
        try:
            return answer(adapter.validate_python(item))
        except ValidationError as error:
            errors = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
            return _refusal(invalid(errors, item, request, item=True))
        except QuestionError as error:
            return _refusal(document_of(error))

    def answer_items(indices: list[int]) -> None:
        for index in indices:
            answers[index] = answer_item(items[index])

    answers = [b""] * len(items)
    for indices in together(items):
        await run_in_threadpool(answer_items, indices)
    return StreamingResponse(_in_parts(answers), media_type="application/json")


async def _in_parts(answers: list[bytes]) -> AsyncIterator[bytes]:
    """Yields the answers as one JSON document and drops each of them: joining them would take their memory twice."""
    yield b'{"items":['
    for index, answer in enumerate(answers):
        answers[index] = b""
        yield b"," + answer if index else answer
    yield b"]}"


def together(items: list[Any]) -> list[list[int]]:
    """Returns the indices of the items, grouped by workload and day."""
    groups = defaultdict[str, list[int]](list)
    for index, item in enumerate(items):
        shared = [item.get("workload"), item.get("as_of")] if isinstance(item, dict) else None
        groups[json.dumps(shared, sort_keys=True)].append(index)
    return list(groups.values())


def _refusal(problem: ProblemDocument) -> bytes:
    return RefusedItem(problem=problem).model_dump_json().encode()
