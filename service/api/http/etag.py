"""ETags of answers that depend on the catalog alone, so that a client need not fetch them twice."""

from collections.abc import Mapping
from types import MappingProxyType

from fastapi import Request, Response
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.domain.catalog.catalog import Catalog
from service.version import VERSION

CACHE_CONTROL = "private, no-cache"
"""Clients may store an answer but must revalidate it, which the ETag makes cheap."""


def json_answer(answer: BaseModel, catalog: Catalog) -> Response:
    """Returns the answer to a GET that depends on this catalog alone, with its ETag."""
    return catalog_answer(answer.model_dump_json(), catalog, "application/json")


def catalog_answer(
    body: str | bytes, catalog: Catalog, media_type: str, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """Returns a response with a body that depends on this catalog alone, and its ETag."""
    etag = f'"{catalog.identity}-{VERSION}"'
    shared = {"ETag": etag, "Cache-Control": CACHE_CONTROL, "Vary": "Accept, Authorization"}
    return Response(body, headers={**shared, **headers}, media_type=media_type)


def wants_csv(request: Request) -> bool:
    """Whether the client accepts CSV."""
    return "text/csv" in request.headers.get("accept", "")


class ConditionalAnswers:
    """ASGI middleware: answers 304 to a client that has the answer, and HEAD as GET; the server drops the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and replaces an answer that the client has already with status 304."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        if scope["type"] == "http" and scope["method"] == "GET":
            # Raw headers, as in `Observe`: few clients have an answer already.
            sent = next((value for name, value in scope["headers"] if name == b"if-none-match"), None)
            send = send if sent is None else _sending_changes(sent.decode("latin-1"), send)
        await self._app(scope, receive, send)


def _sending_changes(if_none_match: str, send: Send) -> Send:
    """Returns a `send` that turns an answer with one of these ETags into a 304 without a body."""
    unchanged = False

    async def send_changes(message: Message) -> None:
        nonlocal unchanged
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            unchanged = message["status"] == 200 and _matches(if_none_match, headers.get("etag"))
            if unchanged:
                # A 304 has no content, so it must not describe one (RFC 9110, section 15.4.5).
                kept = [header for header in headers.raw if header[0] not in (b"content-length", b"content-type")]
                message = {**message, "status": 304, "headers": kept}
        elif unchanged:
            message = {**message, "body": b""}
        await send(message)

    return send_changes


def _matches(if_none_match: str, etag: str | None) -> bool:
    # If-None-Match compares weakly, so the mark of a weak tag does not count (RFC 9110, section 13.1.2).
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag in tags
