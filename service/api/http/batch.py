"""Many questions in one body: each is answered or refused by itself, in threads and within a budget."""

import asyncio
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic, thread_time
from typing import Annotated, Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from service.api.http.body import MAX_ITEMS, JsonItemsRequest, JsonRoute, read_json
from service.api.http.problems import BudgetSpent, ProblemDocument, document_of, invalid_item

T = TypeVar("T")

HELD_BYTES = 16 * 1024**2
"""Compressed bytes of answers that a batch may compute before their turn. A batch of 1,000 questions about training
needs half of them."""
PART_BYTES, PART_SECONDS = 64 * 1024, 0.05
"""A part is sent when it has this size or has taken this long, so that the batch of a lost client ends soon."""
LONGEST_SECONDS = 300.0
"""How long a batch may take altogether: a client that reads slowly must not occupy a place for hours."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many batches a process answers at a time, and the CPU seconds and bytes of each."""

    at_once: int
    cpu_seconds: float
    answer_bytes: int


class Batches:
    """The batches that this process is answering."""

    def __init__(self, limits: BatchLimits) -> None:
        self.limits = limits
        self._open = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """Takes a place until the block ends. Raises `HTTPException` with 503 if all are taken."""
        if self._open >= self.limits.at_once:
            sentence = (
                f"{self.limits.at_once} batches are being answered, and no more are accepted. Send this again later."
            )
            raise HTTPException(503, sentence)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


class Budget:
    """CPU seconds and bytes that the answer to one batch may still cost. Used by one thread at a time."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._ends_at = monotonic() + LONGEST_SECONDS
        self._cpu_began: float | None = None
        self._cpu_seconds = 0.0
        self._bytes = 0
        self._client_left = False

    @contextmanager
    def charged(self) -> Iterator[None]:
        """Charges the CPU seconds that this thread spends in the block. Raises `BudgetSpent` if the budget is spent."""
        self._cpu_began = thread_time()
        try:
            self.require()
            yield
        finally:
            self._cpu_seconds += thread_time() - self._cpu_began
            self._cpu_began = None

    def charge(self, answer: bytes) -> None:
        """Charges the bytes of an answer."""
        self._bytes += len(answer)

    def cancel(self) -> None:
        """Spends the whole budget, because the client has left."""
        self._client_left = True

    def require(self) -> None:
        """Raises `BudgetSpent` if the time or the bytes are used up, or if the client has left."""
        running = 0.0 if self._cpu_began is None else thread_time() - self._cpu_began
        limits = self._limits
        if self._client_left:
            raise BudgetSpent("The client has left.")
        if self._cpu_seconds + running > limits.cpu_seconds:
            raise BudgetSpent(
                f"The {limits.cpu_seconds:g} CPU seconds of a batch are used up. Send the rest in another one."
            )
        if self._bytes > limits.answer_bytes:
            raise BudgetSpent(
                f"The {limits.answer_bytes:,} bytes of a batch's answer are used up. Send the rest in another one."
            )
        if monotonic() > self._ends_at:
            raise BudgetSpent(f"A batch may take {LONGEST_SECONDS:g} seconds. Send the rest in another one.")


class _BatchRequest(JsonItemsRequest):
    """A request that takes a place among the batches when its body has arrived, before the body is parsed."""

    async def json(self) -> Any:
        body = await self.body()
        self.state.places.enter_context(self.app.state.batches.place())
        return await run_in_threadpool(read_json, body, self.max_names)


class BatchRoute(JsonRoute):
    """A route of batches: a request keeps its place until the answer is sent."""

    request_class = _BatchRequest
    large_body_bytes = math.inf  # the answer waits for its client on the event loop, and uses threads by itself

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles a request, and frees its place whatever happens."""
        with ExitStack() as places:
            scope.setdefault("state", {})["places"] = places
            await super().handle(scope, receive, send)


class RefusedItem(BaseModel):
    """The problem of an item that cannot be answered."""

    problem: ProblemDocument


def items_of(operation: str) -> Any:
    """Returns the type of a list of bodies of another operation.

    The route validates each body by itself, so that a bad one does not fail the others. For the same reason, the
    OpenAPI document gives no schema of the bodies.
    """
    item = Annotated[Any, WithJsonSchema({"description": f"A body of {operation}."})]
    return Annotated[list[item], Field(max_length=MAX_ITEMS)]


def budget_of(request: Request) -> Budget:
    """Returns the budget of a new batch."""
    batches: Batches = request.app.state.batches
    return Budget(batches.limits)


def answered(items: list[Any], adapter: TypeAdapter[Any], answer: Callable[[Any], bytes], request: Request) -> Response:
    """Returns the answer to each item, or its problem, in the order of the items.

    Answers are computed while others are sent, and no longer when the client has left. Once the budget is spent, each
    further item has a problem that says so.
    """
    budget = budget_of(request)

    def answer_item(item: Any) -> bytes:
        try:
            with budget.charged():
                encoded = answer(adapter.validate_python(item))
        except ValidationError as error:
            encoded = _refusal(invalid_item(error, item, request))
        except Exception as error:  # noqa: BLE001 – the answer has begun, and the other items are still wanted
            encoded = _refusal(document_of(error, request.scope))
        budget.charge(encoded)
        return encoded

    # Starlette takes each part of a plain iterator from a thread, and stops when the client has left.
    return StreamingResponse(in_parts(answers_in_order(items, answer_item)), media_type="application/json")


def answers_in_order(items: Sequence[Any], answer: Callable[[Any], bytes]) -> Iterator[bytes]:
    """Yields the answers as one JSON document, and an empty part after each answer that is computed before its turn.

    All items of one workload and day are answered as soon as the first is due, while the caches hold what they share.
    Up to `HELD_BYTES` of their answers are held until their turn.
    """
    groups = grouped(items)
    group_of = {index: group for group in groups for index in group}
    held: dict[int, bytes] = {}
    held_bytes = 0
    yield b'{"items":['
    for index in range(len(items)):
        for later in group_of[index] if index not in held else ():
            if later < index or later in held or (later > index and held_bytes > HELD_BYTES):
                continue
            # Compression to a quarter takes a fiftieth of the time of the answer.
            held[later] = zlib.compress(answer(items[later]), level=1)
            held_bytes += len(held[later])
            yield b""
        held_bytes -= len(held[index])
        yield b"," * bool(index) + zlib.decompress(held.pop(index))
    yield b"]}"


def in_parts(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Joins chunks into parts. A part ends at about `PART_BYTES`, or after `PART_SECONDS`."""
    part, ends_at = bytearray(), monotonic() + PART_SECONDS
    for chunk in chunks:
        part += chunk
        if len(part) >= PART_BYTES or monotonic() >= ends_at:
            yield bytes(part)
            part, ends_at = bytearray(), monotonic() + PART_SECONDS
    yield bytes(part)


async def in_thread_while_connected(work: Callable[[Budget], T], request: Request) -> T:
    """Returns the result of `work`, which runs in a thread. When the client leaves, the budget of the work is spent."""
    budget = budget_of(request)

    async def watch_client() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        budget.cancel()

    watcher = asyncio.create_task(watch_client())
    try:
        return await run_in_threadpool(work, budget)
    finally:
        watcher.cancel()


def grouped(items: Sequence[Any]) -> list[list[int]]:
    """Returns the indices of the items, grouped by workload and day."""
    groups = defaultdict[str, list[int]](list)
    for index, item in enumerate(items):
        shared = [item.get(name) for name in ("workload", "as_of", "known_at")] if isinstance(item, dict) else None
        groups[json.dumps(shared, sort_keys=True)].append(index)
    return list(groups.values())


def _refusal(problem: ProblemDocument) -> bytes:
    return RefusedItem(problem=problem).model_dump_json().encode()
