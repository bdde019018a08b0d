"""Answers that rest on the catalog alone: encoded once, kept, and told apart by ETag.

Such an answer is a function of the request and the catalog, so its ETag is the catalog's identity and the software's
version. `RememberedAnswers` keeps the bytes of GET answers that are asked for more than once, and gives them again
until the catalog moves.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fastapi import Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.domain.catalog.catalog import Catalog
from service.version import VERSION

KEPT_BYTES = 16 * 1024 * 1024
BYTES_AN_ENTRY = 2000
"""What Python needs beside the bytes themselves: the headers, and the objects around them. Measured, rounded up."""
KNOWN_ONCE = 10_000
"""Questions that were asked once: to know them again a number is enough. Most questions are never asked again, and to
keep each one's answer and to drop another for it took a sixth of the whole request."""
CACHE_CONTROL = "private, no-cache"
"""Clients may keep an answer, but ask whether it still holds: the ETag makes that cheap."""


def etag_of(catalog: Catalog) -> str:
    return f'"{catalog.identity}-{VERSION}"'


def json_answer(
    body: bytes,
    catalog: Catalog,
    *,
    media_type: str = "application/json",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A GET answer that rests on this catalog and nothing else."""
    told = {"ETag": etag_of(catalog), "Cache-Control": CACHE_CONTROL, "Vary": "Accept", **(headers or {})}
    return Response(body, headers=told, media_type=media_type)


def wants_csv(request: Request) -> bool:
    return "text/csv" in request.headers.get("accept", "")


@dataclass(frozen=True, slots=True)
class Remembered:
    """An answer as it went over the wire, and the catalog's identity that it rests on."""

    etag: bytes
    newest: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class RememberedAnswers:
    """ASGI middleware: replays GET answers that carry an ETag, and answers 304 to those who have them already."""

    def __init__(self, app: ASGIApp, *, newest: Callable[[], str], kept_bytes: int = KEPT_BYTES) -> None:
        self._app = app
        self._newest = newest
        self._room = kept_bytes
        self._kept: OrderedDict[tuple[bytes, bytes, bytes], Remembered] = OrderedDict()
        self._once: set[int] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        asked = {name: value for name, value in scope["headers"] if name in (b"accept", b"if-none-match")}
        key = (scope["path"].encode(), scope["query_string"], asked.get(b"accept", b""))
        newest = self._newest()
        answer = self._kept.get(key)
        if answer is None or answer.newest != newest:
            answer = await self._ask(scope, receive, send, key, newest)
            if answer is None:
                return
        else:
            self._kept.move_to_end(key)
        if matches(asked.get(b"if-none-match", b""), answer.etag):
            kept = tuple(header for header in answer.headers if header[0] not in (b"content-length", b"content-type"))
            await reply(send, 304, kept, b"")
        else:
            await reply(send, 200, answer.headers, b"" if scope["method"] == "HEAD" else answer.body)

    async def _ask(
        self, scope: Scope, receive: Receive, send: Send, key: tuple[bytes, bytes, bytes], newest: str
    ) -> Remembered | None:
        """The inner answer when it may be remembered; any other is passed on as it comes, and nothing is returned."""
        start: Message | None = None
        parts: list[bytes] = []

        async def catch(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and rememberable(message):
                start = message
            elif start is None:
                await send(message)
            else:
                parts.append(message.get("body", b""))

        await self._app(scope if scope["method"] == "GET" else {**scope, "method": "GET"}, receive, catch)
        if start is None:
            return None
        headers = tuple((name, value) for name, value in start["headers"])
        answer = Remembered(dict(headers)[b"etag"], newest, headers, b"".join(parts))
        if self._asked_before(key):
            self._keep(key, answer)
        return answer

    def _asked_before(self, key: tuple[bytes, bytes, bytes]) -> bool:
        """Whether the question is known; from now on it is."""
        number = hash(key)
        if number in self._once:
            return True
        if len(self._once) >= KNOWN_ONCE:
            self._once.clear()
        self._once.add(number)
        return False

    def _keep(self, key: tuple[bytes, bytes, bytes], answer: Remembered) -> None:
        replaced = self._kept.pop(key, None)
        self._room += taken(key, replaced) if replaced else 0
        self._kept[key] = answer
        self._room -= taken(key, answer)
        while self._room < 0:
            self._room += taken(*self._kept.popitem(last=False))


def taken(key: tuple[bytes, bytes, bytes], answer: Remembered) -> int:
    """Bytes that an entry takes; a question can be longer than its answer."""
    return len(answer.body) + sum(map(len, key)) + BYTES_AN_ENTRY


def rememberable(start: Message) -> bool:
    return start["status"] == 200 and any(name == b"etag" for name, _ in start["headers"])


def matches(if_none_match: bytes, etag: bytes) -> bool:
    tags = [tag.strip().removeprefix(b"W/") for tag in if_none_match.split(b",")]
    return b"*" in tags or etag in tags


async def reply(send: Send, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})
