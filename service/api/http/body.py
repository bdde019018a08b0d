"""Reads a JSON body, and refuses one that is ambiguous or costs too much to read."""

import asyncio
import json
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from service.api.http.problems import BodyUnreadable
from service.api.http.query import DirectRoute

MAX_DIGITS = 300
MAX_DEPTH = 64
MAX_NAMES = 10_000
LARGE_BODY_BYTES = 32 * 1024
"""Reading and checking a body of this size takes about ten milliseconds, and other requests should not wait longer."""
WHITE_SPACE = b" \t\r\n"
CONTAINERS = (list, dict)
MAX_ITEMS = 1000
"""Most items of a body, and most combinations of what a batch varies."""
MAX_NAMES_OF_ITEMS = 100 * MAX_ITEMS
"""Most names in a body of items: 100 for each item, more than any useful question has."""
JSON_TYPE = re.compile(r"\s*application/([^/;]*\+)?json\s*(;.*)?", re.IGNORECASE | re.DOTALL)


def read_json(body: bytes, max_names: int = MAX_NAMES) -> Any:
    """Returns the value that the body holds. Raises `BodyUnreadable`."""
    try:
        # Some editors begin a file with a byte order mark, which the JSON parser would refuse.
        value = _DECODER.decode(body.removeprefix(BOM_UTF8).decode())
    except UnicodeDecodeError:
        raise BodyUnreadable("The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise BodyUnreadable(f"The body is not valid JSON: see line {error.lineno}, column {error.colno}.") from None
    except RecursionError:
        raise _too_deep() from None
    _check_size(value, max_names)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object as a dict. Raises `BodyUnreadable` for a name that occurs twice.

    Python would keep the last of the two values, but the caller may have meant the first.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise BodyUnreadable(f"The body names '{twice[:80]}' twice.", field=twice)
    return values


def _integer(digits: str) -> int | float:
    """Reads an integer; a very long one, for which Python raises, becomes infinity, which every field refuses."""
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


def _check_size(value: Any, max_names: int) -> None:
    """Raises `BodyUnreadable` for more than `max_names` names, or nesting deeper than `MAX_DEPTH`."""
    # Level by level: a recursive walk would itself fail on a body that is nested too deeply.
    containers, names = [value] if isinstance(value, CONTAINERS) else [], 0
    for _ in range(MAX_DEPTH):
        if not containers:
            return
        names += sum(len(container) for container in containers if isinstance(container, dict))
        if names > max_names:
            raise BodyUnreadable(f"The body holds more than {max_names:,} names.")
        containers = [
            inner
            for outer in containers
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, CONTAINERS)
        ]
    if containers:
        raise _too_deep()


def _too_deep() -> BodyUnreadable:
    return BodyUnreadable(f"The body is nested deeper than {MAX_DEPTH} levels.")


class _JsonRequest(Request):
    """A request that reads its JSON body with `read_json`."""

    max_names = MAX_NAMES

    async def body(self) -> bytes:
        """Returns the body without white space at its end.

        The JSON decoder would hold the interpreter's lock while it skips megabytes of white space. Here the pieces are
        checked one by one as they arrive, so other requests are answered in between.
        """
        # Pieces that are all white space wait in `blank` until another piece follows.
        if not hasattr(self, "_body"):
            kept, blank = list[bytes](), list[bytes]()
            async for piece in self.stream():
                blank.append(piece)
                if piece.translate(None, WHITE_SPACE):
                    kept.extend(blank)
                    blank.clear()
            self._body = b"".join(kept)
        return self._body

    async def json(self) -> Any:
        return read_json(await self.body(), self.max_names)


class JsonItemsRequest(_JsonRequest):
    """A request whose JSON body is a list of many items."""

    max_names = MAX_NAMES_OF_ITEMS


class JsonRoute(APIRoute):
    """A route whose JSON body is read by `read_json`. Every POST has one."""

    request_class: type[Request] = _JsonRequest
    large_body_bytes: float = LARGE_BODY_BYTES
    """Requests with larger bodies are read, checked and answered in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns FastAPI's handler, which gets a request of `request_class`; large bodies are handled in a thread."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            request = self.request_class(request.scope, request.receive)
            if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
                raise BodyUnreadable(f"Send the body without the Content-Encoding '{coding}'.", status=415)
            if len(await request.body()) < self.large_body_bytes:
                return await handler(request)
            # The whole body has arrived, so the handler needs nothing from this event loop.
            return await run_in_threadpool(asyncio.run, handler(request))

        return handle


class JsonItemsRoute(JsonRoute):
    """A route whose JSON body is a list of many items, and may therefore hold more names."""

    request_class = JsonItemsRequest


class _CheckedRoute(DirectRoute):
    """A route whose endpoint takes the validated body and the request, and returns the response.

    FastAPI would also look for other parameters in each request, and encode the response a second time.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns a handler that refuses the same bodies as FastAPI's."""
        field, endpoint = self.body_field, self.endpoint
        assert field is not None, "the endpoint takes a body"

        async def handle(request: Request) -> Response:
            body = await request.body()
            if not body:
                raise RequestValidationError([{"type": "missing", "loc": ("body",)}])
            if not JSON_TYPE.fullmatch(request.headers.get("content-type", "")):
                raise RequestValidationError([], body=body)
            value = await request.json()
            asked, errors = field.validate(value, loc=("body",))
            if errors:
                raise RequestValidationError(errors, body=value)
            response: Response = await endpoint(asked, request)
            return response

        return handle


class QuestionRoute(JsonRoute, _CheckedRoute):
    """A route for frequent questions: FastAPI's own handler would take a tenth of the time of an answer."""
