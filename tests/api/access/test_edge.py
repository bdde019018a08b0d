"""The body limit keeps a large body from the app, however it comes."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.access.callers import Callers
from service.api.access.edge import READ_ON, Edge
from service.api.access.rate_limits import RateLimits
from service.api.http.protect import Hosts
from service.db.engine import connect
from service.db.keys import KeyRing
from tests.api.raw_asgi import call


@pytest.fixture(scope="module")
def limited(seeded_file: Path) -> Callable[[ASGIApp], Edge]:
    """Returns the edge around an app, through which anybody may send a body of up to 100 bytes."""
    limits = RateLimits(per_key=0, per_address=0, storage_url="")
    callers = Callers(keys=KeyRing(connect(f"sqlite:///{seeded_file}")), limits=limits, open_reads=True)
    return partial(Edge, hosts=Hosts(), callers=callers, max_body_bytes=100)


@pytest.mark.parametrize("chunk", [10, 99, 100, 101, 5000])
@pytest.mark.parametrize("size", [0, 99, 100, 101, 5000])
def test_the_app_sees_no_more_than_the_limit(limited: Callable[[ASGIApp], Edge], size: int, chunk: int) -> None:
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
    answer = call(limited(app), "POST", "/", chunks=chunks)
    assert answer.status == (200 if size <= 100 else 413)
    assert seen <= 100


def test_the_rest_of_a_large_body_is_read_but_not_without_end(limited: Callable[[ASGIApp], Edge]) -> None:
    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    taken = 0

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        async def counted() -> Message:
            nonlocal taken
            taken += 1
            return await receive()

        await limited(app)(scope, counted, send)

    assert call(counting, "POST", "/", chunks=[b"x" * 100] * 1000).status == 413
    assert 2 < taken <= READ_ON
