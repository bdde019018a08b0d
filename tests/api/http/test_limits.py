"""The body limit keeps a large body from the app, however it comes."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from service.api.http.limits import READ_ON, BodyLimit
from tests.api.raw_asgi import call


@pytest.mark.parametrize("chunk", [10, 99, 100, 101, 5000])
@pytest.mark.parametrize("size", [0, 99, 100, 101, 5000])
def test_the_app_sees_no_more_than_the_limit(size: int, chunk: int) -> None:
    seen = 0

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal seen
        more = True
        while more:
            message = await receive()
            seen += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    chunks = [b"x" * min(chunk, size - start) for start in range(0, size, chunk)] or [b""]
    answer = call(BodyLimit(app, max_bytes=100), "POST", "/", chunks=chunks)
    assert answer.status == (200 if size <= 100 else 413)
    assert seen <= 100


def test_the_rest_of_a_large_body_is_read_but_not_without_end() -> None:
    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    taken = 0

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        async def counted() -> Message:
            nonlocal taken
            taken += 1
            return await receive()

        await BodyLimit(app, max_bytes=100)(scope, counted, send)

    assert call(counting, "POST", "/", chunks=[b"x" * 100] * 1000).status == 413
    assert 2 < taken <= READ_ON
