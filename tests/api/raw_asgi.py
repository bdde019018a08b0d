"""Requests byte for byte, as no well-behaved client would send them, straight into the app."""

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.types import ASGIApp, Message

from tests.api.keys import TOKEN

JSON = ((b"content-type", b"application/json"),)
KEY = (b"authorization", f"Bearer {TOKEN}".encode())


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def fields(self) -> list[str]:
        return [error["field"] for error in self.json()["errors"]]

    @property
    def near(self) -> list[str]:
        return [name for error in self.json()["errors"] for name in error["near"]]


def call(
    app: ASGIApp,
    method: str,
    target: str | bytes,
    *,
    headers: Sequence[tuple[bytes, bytes]] = (),
    chunks: Iterable[bytes] = (b"",),
) -> Answer:
    """The answer of the app. An exception in the app fails the test."""
    raw = target if isinstance(target, bytes) else target.encode()
    path, _, query = raw.partition(b"?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "root_path": "",
        "query_string": query,
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    parts = list(chunks)
    whole = bool(parts)
    sent: list[Message] = []

    async def receive() -> Message:
        if not parts:
            if whole:
                await asyncio.Event().wait()  # the client stays until it has the answer
            return {"type": "http.disconnect"}
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        await app(scope, receive, send)

    asyncio.run(ask())
    start = sent[0]
    answer = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], answer, b"".join(message.get("body", b"") for message in sent[1:]))


def get(app: ASGIApp, target: str | bytes) -> Answer:
    return call(app, "GET", target)


def recommend(app: ASGIApp, body: bytes | str | dict[str, Any]) -> Answer:
    content = body if isinstance(body, bytes) else body if isinstance(body, str) else json.dumps(body)
    return call(
        app, "POST", "/recommend", headers=JSON, chunks=[content if isinstance(content, bytes) else content.encode()]
    )
