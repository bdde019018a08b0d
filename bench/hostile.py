"""Faulty and hostile requests, as bytes on the wire. The service refuses each of them with a 4xx."""

import json
from collections.abc import Mapping

from bench.load import HOST
from bench.questions import batch_of, large_body, post

MANY_NAMES = {f"name-{number}": number for number in range(20_000)}


def raw(start: str, *fields: str, body: bytes = b"") -> bytes:
    """Returns a request with these lines above its body."""
    return "\r\n".join((start, f"Host: {HOST}", *fields, "", "")).encode("latin-1") + body


def posted(body: bytes, *fields: str, path: str = "/recommend") -> bytes:
    return raw(
        f"POST {path} HTTP/1.1", "Content-Type: application/json", f"Content-Length: {len(body)}", *fields, body=body
    )


REFUSED: Mapping[str, bytes] = {
    "not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "an unknown method": raw("BREW /instances HTTP/1.1"),
    "a long URL": raw(f"GET /instances?search={'x' * 20_000} HTTP/1.1"),
    "many header fields": raw("GET /healthz HTTP/1.1", *(f"X-{number}: 1" for number in range(300))),
    "a long header field": raw("GET /healthz HTTP/1.1", f"Cookie: {'x' * 20_000}"),
    "a path out of the root": raw("GET /docs/files/..%2f..%2f..%2fetc/passwd HTTP/1.1"),
    "a filter that does not exist": raw("GET /instances?colour=blue&colour=red HTTP/1.1"),
    "a number that is too large": raw("GET /instances?min_vcpus=1e400 HTTP/1.1"),
    "bytes that are not UTF-8": raw("GET /gpus/%ff%fe HTTP/1.1"),
    "an unknown API key": posted(b'{"items": []}', "Authorization: Bearer sel_000000000000_x", path="/measurements"),
    "a body that is not JSON": posted(b"{" * 100),
    "a deep body": posted(b"[" * 10_000 + b"]" * 10_000),
    "a name twice": posted(b'{"workload": {"task": "training", "task": "inference"}}'),
    "many names": posted(json.dumps({"workload": MANY_NAMES}).encode()),
    "a number that is not one": posted(b'{"workload": {"task": "training"}, "constraints": {"max_usd_per_hour": NaN}}'),
    "impossible dimensions": post(
        "/estimate", {"workload": {"task": "training", "model": {"layers": 10**30}}, "machine": "x"}
    ),
    "a negative amount": post("/recommend", {"workload": {"task": "training", "amount": {"tokens": -1}}}),
    "two lengths": raw("POST /recommend HTTP/1.1", "Content-Length: 2", "Content-Length: 3", body=b"{}"),
}
"""Each is refused, or its connection is closed."""

HEAVY: Mapping[str, bytes] = {
    "a body of 3 MB": large_body(),
    "a batch of 1,000 questions about 70B": batch_of(0),
    "half a body": posted(b'{"workload": ')[:-5],
    "the start of a body of 1 GB": raw("POST /recommend HTTP/1.1", "Content-Length: 999999999", body=b"{}"),
    "half a header": b"GET /instances HTTP/1.1\r\nHost: ",
}
"""Each costs much or never ends; the client hangs up after some seconds."""
