"""Bodies larger than the limit are refused before they are read whole."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import FieldError, problem


class TooLarge(Exception):
    """The body has passed the limit."""


class BodyLimit:
    """ASGI middleware: 413 for a body above `max_bytes`, whether or not it says its length."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        read, answered = 0, False

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except TooLarge:
            if answered:
                raise
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        sentence = f"The body is larger than {self._max_bytes:,} bytes."
        refusal = problem(413, sentence, [FieldError(field="body", message=sentence, near=[])], {"Connection": "close"})
        await refusal(scope, receive, send)
