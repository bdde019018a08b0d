"""The client of the benchmark waits for whole answers, sent at once or in parts."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from bench.load import HOST, Asker

WHOLE = [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n", b"ab", b"cd"]
IN_PARTS = [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"2\r\nab\r\n", b"2\r\ncd", b"\r\n0\r", b"\n\r\n"]
EMPTY = [b"HTTP/1.1 204 No Content\r\n\r\n"]


@pytest.mark.parametrize(("parts", "status"), [(WHOLE, 200), (IN_PARTS, 200), (EMPTY, 204)])
def test_an_answer_ends_with_its_last_part(parts: Sequence[bytes], status: int) -> None:
    assert asyncio.run(answered(parts)) == (len(parts), Counter({status: 1}))


async def answered(parts: Sequence[bytes]) -> tuple[int, Counter[int]]:
    """Sends the parts one by one until the client is satisfied; returns how many it took, and its statuses."""
    statuses = Counter[int]()
    askers: list[Asker] = []
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(100)
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
            sent += 1
            if askers[0].seconds:
                break
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    askers.append(Asker(iter([b"GET / HTTP/1.1\r\n\r\n"]), statuses))
    await asyncio.get_running_loop().create_connection(lambda: askers[0], HOST, port)
    await asyncio.wait_for(askers[0].closed, timeout=10)
    await asyncio.sleep(0.05)
    server.close()
    return sent, statuses
