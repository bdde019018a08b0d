"""The endpoints that are asked most, answered without the framework around them.

FastAPI takes as long to find a route and to solve its dependencies as some questions take to be answered. A question
in which all is as it should be is answered here; any other goes the ordinary way, which tells what is wrong with it.
"""

from collections.abc import Callable, Mapping, Sequence

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.domain.errors import QuestionError

Way = Callable[[Request, bytes], Response | None]
"""Request and body → the answer, or nothing where the ordinary way has to look."""


class QuickAnswers:
    """ASGI middleware: asks the quick way of a method and path, and the app where that does not answer."""

    def __init__(self, app: ASGIApp, *, ways: Mapping[tuple[str, str], Way]) -> None:
        self._app = app
        self._ways = ways

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        way = self._ways.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if way is None:
            await self._app(scope, receive, send)
            return
        sent = await all_of_body(receive) if scope["method"] == "POST" else []
        answer = answered(way, scope, sent)
        if answer is None:
            await self._app(scope, again(sent, receive), send)
        else:
            await answer(scope, receive, send)


def answered(way: Way, scope: Scope, sent: Sequence[Message]) -> Response | None:
    try:
        return way(Request(scope), b"".join(message.get("body", b"") for message in sent))
    except (QuestionError, RequestValidationError):
        return None


async def all_of_body(receive: Receive) -> list[Message]:
    """The messages that bring the body, or what came of it before the client hung up."""
    messages = [await receive()]
    while messages[-1].get("more_body", False):
        messages.append(await receive())
    return messages


def again(sent: Sequence[Message], receive: Receive) -> Receive:
    """Brings once more what has been received, and then what comes."""
    kept = iter(sent)

    async def receive_again() -> Message:
        message = next(kept, None)
        return await receive() if message is None else message

    return receive_again
