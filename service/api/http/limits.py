"""Refuses bodies larger than a limit, before the application reads more of them."""

from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.problems import FieldError, problem

READ_ON = 16
"""How many times the limit is read and dropped before the answer: many clients read no answer while they send."""


class TooLarge(Exception):
    """The body has passed the limit."""


class BodyLimit:
    """ASGI middleware: 413 for a body above `max_bytes`, whether or not it says its length."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, and answers 413 as soon as its body is larger than the limit."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read, ended, answered = 0, False, False

        async def counted() -> Message:
            nonlocal read, ended
            message = await receive()
            read += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            if read > self._max_bytes:
                raise TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal answered
            if read <= self._max_bytes:  # otherwise this is the app's answer to TooLarge
                answered = True
                await send(message)

        with suppress(TooLarge):
            await self._app(scope, counted, watched)
        if read > self._max_bytes and not answered:
            while not ended and read < READ_ON * self._max_bytes:
                message = await receive()
                read += len(message.get("body", b""))
                ended = not message.get("more_body", False)
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        sentence = f"The body is larger than {self._max_bytes:,} bytes."
        refusal = problem(413, sentence, [FieldError(field="body", message=sentence, near=[])], {"Connection": "close"})
        await refusal(scope, receive, send)
