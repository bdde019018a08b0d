"""Connections that send too much, too slowly or too often are refused or closed; honest ones are not disturbed."""

import asyncio
import gc
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from service.server.process import DrainingServer
from service.server.protocol import BoundedProtocol, ConnectionLimits

QUICK = ConnectionLimits(header_seconds=0.6, body_seconds=0.6, stalled_seconds=1.0, per_address=20)
LARGE_ANSWER = b"x" * 50_000_000


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body, or with a large answer under `/large`, or after a second under `/slow`."""
    if scope["type"] != "http":
        return
    length, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        length += len(message.get("body", b""))
        more = message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    body = LARGE_ANSWER if scope["path"] == "/large" else str(length).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(limits: ConnectionLimits) -> Iterator[tuple[DrainingServer, int]]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            echo,
            http=partial(BoundedProtocol, limits=limits),  # type: ignore[arg-type]
            lifespan="off",
            log_level="critical",
            timeout_graceful_shutdown=10,
        )
        server = DrainingServer(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield server, listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(QUICK) as (_, port):
        yield port


def exchange(port: int, sent: bytes) -> bytes:
    """Everything that the server answers until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)
        return received(connection)


def received(connection: socket.socket) -> bytes:
    answer = b""
    while part := connection.recv(1 << 20):
        answer += part
    return answer


def problem(answer: bytes) -> dict[str, object]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    found: dict[str, object] = json.loads(body)
    assert head.startswith(f"HTTP/1.1 {found['status']} ".encode())
    return found


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /" + b"a" * 8200 + b" HTTP/1.1\r\nhost: x\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"f%d: x\r\n" % n for n in range(101)) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nlong: " + b"x" * 8200 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nendless: " + b"x" * 200_000, 431),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"trailer: x\r\n" * 200 + b"\r\n", 431),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nunfin", 408),
        (b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc", 408),
    ],
)
def test_what_exceeds_a_limit_is_refused_with_a_problem(port: int, sent: bytes, status: int) -> None:
    assert problem(exchange(port, sent))["status"] == status


def test_a_request_at_the_limits_is_answered(port: int) -> None:
    fields = b"".join(b"f%d: x\r\n" % n for n in range(98))
    head = b"POST /" + b"a" * 8189 + b" HTTP/1.1\r\n" + fields + b"content-length: 3\r\nconnection: close\r\n\r\n"
    answer = exchange(port, head + b"abc")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"3")


def test_a_slow_body_above_the_least_rate_is_answered() -> None:
    limits = ConnectionLimits(body_seconds=0.3, least_bytes_per_second=100)
    with serving(limits) as (_, port), socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\ncontent-length: 400\r\nconnection: close\r\n\r\n")
        for _ in range(4):
            connection.sendall(b"x" * 100)
            time.sleep(0.3)
        assert received(connection).endswith(b"400")


def test_a_connection_without_a_request_is_closed_in_silence(port: int) -> None:
    assert exchange(port, b"") == b""


def test_a_client_that_does_not_read_its_answer_is_cut_off(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        time.sleep(3.5)
        assert 0 < len(received(connection)) < len(LARGE_ANSWER)


def test_an_address_has_a_limited_number_of_connections(port: int) -> None:
    opened = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(QUICK.per_address)]
    try:
        assert problem(exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"))["status"] == 503
    finally:
        for connection in opened:
            connection.close()


def test_requests_on_one_connection_are_independent(port: int) -> None:
    client = HTTPConnection("127.0.0.1", port, timeout=20)
    for length in (0, 5, 70_000, 1):
        client.request("POST", "/", body=b"x" * length)
        assert client.getresponse().read() == str(length).encode()
        time.sleep(0.4)
    client.close()


def test_stopping_finishes_answers_and_resets_no_connection() -> None:
    answered, failures = [], []

    def ask(port: int) -> None:
        client = HTTPConnection("127.0.0.1", port, timeout=20)
        while True:
            try:
                client.request("GET", "/")
                response = client.getresponse()
                response.read()
            except OSError as error:
                failures.append(repr(error))
                break
            answered.append(response.status)
            if response.getheader("connection") == "close":
                break
        client.close()

    with serving(ConnectionLimits()) as (server, port):
        threads = [threading.Thread(target=ask, args=[port]) for _ in range(8)]
        for thread in threads:
            thread.start()
        slow = socket.create_connection(("127.0.0.1", port), timeout=20)
        slow.sendall(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        half_sent = socket.create_connection(("127.0.0.1", port), timeout=20)
        half_sent.sendall(b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc")
        while len(answered) < 1000:
            time.sleep(0.01)
        server.should_exit = True
        for thread in threads:
            thread.join()
        assert received(slow).endswith(b"0")
        slow.close()
        half_sent.close()
    assert failures == []
    assert set(answered) == {200}


def test_a_server_collects_garbage_once_it_answers() -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10)
    gc.disable()  # as `service.__main__` does
    try:
        with serving(QUICK) as (_, port):
            assert b"200 OK" in exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert gc.isenabled()
            new, older, _ = gc.get_threshold()
            assert (new, older) == (700, 1000)
    finally:
        gc.enable()
        gc.set_threshold(*before)
