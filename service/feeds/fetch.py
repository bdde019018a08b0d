"""Fetches documents of feeds: one request at a time, conditional, with limits, and with respect for Retry-After.

Only HTTPS is fetched, except from a mirror that the settings name with `http`. Documents name paths, never servers,
and a redirect to a private address is refused, so that a feed cannot make the service send requests into its own
network.
"""

import ipaddress
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urljoin, urlsplit

import httpx2

from service.db.feeds.documents import Origin
from service.feeds.fetching import utc_now
from service.feeds.listing import DocumentRefused
from service.version import VERSION

AGENT = f"instance-selector/{VERSION} (prices of cloud machines; one request at a time)"
MAX_REDIRECTS = 3
TOO_MANY_REQUESTS, NOT_MODIFIED = 429, 304
MAX_WAIT_SECONDS = 120.0
RETRIED_STATUSES = (TOO_MANY_REQUESTS, 500, 502, 503, 504)


class FetchFailed(Exception):
    """A document could not be fetched; the message is a sentence."""


class NotModified(Exception):
    """The server says that a document is the same as the last one."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one request; waits between tries double from the first to the last."""

    bytes: int = 64 * 1024**2
    connect_seconds: float = 10.0
    read_seconds: float = 10.0
    total_seconds: float = 60.0
    tries: int = 4
    first_wait_seconds: float = 2.0
    last_wait_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class FetchedDocument:
    """A fetched document."""

    origin: Origin
    body: bytes


@dataclass(slots=True)
class Fetcher:
    """Fetches the documents of one part of a feed. A call returns a body; `answers` has all that were fetched.

    `last` is the origin of the last document, for conditional requests. `key` is a header that only the feed's own
    server gets, never a server to which it redirects; no text, log or document contains the key.
    """

    base_url: str
    last: Origin | None = None
    is_mirror: bool = False
    """Whether `base_url` is a mirror, which also has the documents of the other servers of the feed."""
    limits: FetchLimits = field(default_factory=FetchLimits)
    sleep: Callable[[float], None] = time.sleep
    answers: list[FetchedDocument] = field(default_factory=list)
    key: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __call__(
        self, path: str, *, server: str | None = None, body: object = None, conditional: bool = False
    ) -> bytes:
        """Returns the body at a path.

        Raises `NotModified` if the request is conditional, `FetchFailed` after the last try, and `DocumentRefused` for
        a document that is too large.
        """
        if not path.startswith("/"):  # the rest of the name of a server, for example
            raise FetchFailed(f"{path!r} is not a path.")
        base_url = self.base_url if server is None or self.is_mirror else server
        url = base_url.rstrip("/") + path
        marks = _marks_of(self.last) if conditional and self.last and self.last.url == url else {}
        wait = self.limits.first_wait_seconds
        for left in reversed(range(self.limits.tries)):
            try:
                answer = self._follow(url, body, marks)
            except _Again as again:
                if not left:
                    raise FetchFailed(str(again)) from again
                self.sleep(min(again.after_seconds or wait, MAX_WAIT_SECONDS))
                wait = min(2 * wait, self.limits.last_wait_seconds)
            else:
                self.answers.append(answer)
                return answer.body
        raise AssertionError("The last try either returns or raises.")

    def _follow(self, url: str, body: object, marks: Mapping[str, str]) -> FetchedDocument:
        target = url
        for _ in range(MAX_REDIRECTS + 1):
            _require_allowed(target, url, self.base_url)
            with self._request(target, url, body, marks) as response:
                location = response.headers.get("Location")
                if not response.is_redirect or location is None:
                    if marks and response.status_code == NOT_MODIFIED:
                        raise NotModified
                    content = self._read(response)
                    return FetchedDocument(_origin(url, response), content)
            target = urljoin(target, location)
        raise FetchFailed(f"{url} redirects more than {MAX_REDIRECTS} times.")

    @contextmanager
    def _request(self, target: str, url: str, body: object, marks: Mapping[str, str]) -> Iterator[httpx2.Response]:
        limits = self.limits
        headers = {"User-Agent": AGENT, "Accept-Encoding": "gzip", **marks}
        # A redirect to another server must not carry the key there.
        headers |= self.key if _server_of(target) == _server_of(self.base_url) else {}
        content = None if body is None else json.dumps(body)
        if body is not None:
            headers["Content-Type"] = "application/json"
        timeout = httpx2.Timeout(limits.read_seconds, connect=limits.connect_seconds)
        try:
            with (
                httpx2.Client(timeout=timeout, trust_env=True) as client,
                client.stream("GET" if body is None else "POST", target, headers=headers, content=content) as response,
            ):
                yield response
        except httpx2.DecodingError as error:
            raise FetchFailed(f"{url} sent a body that is not compressed as it says.") from error
        except httpx2.TransportError as error:
            raise _Again(f"{url} does not answer: {type(error).__name__}.", None) from error
        except httpx2.InvalidURL as error:
            raise FetchFailed(f"{url} is not an address.") from error

    def _read(self, response: httpx2.Response) -> bytes:
        url = str(response.url)
        if response.status_code in RETRIED_STATUSES:
            after = _seconds_until(response.headers.get("Retry-After"))
            raise _Again(f"{url} answers with status {response.status_code}.", after)
        if response.status_code != httpx2.codes.OK:
            raise FetchFailed(f"{url} answers with status {response.status_code}.")
        parts, size, deadline = [], 0, time.monotonic() + self.limits.total_seconds
        for part in response.iter_bytes():
            size += len(part)
            if size > self.limits.bytes:
                raise DocumentRefused(f"{url} sends more than {self.limits.bytes:,} bytes.")
            if time.monotonic() > deadline:
                raise FetchFailed(f"{url} takes longer than {self.limits.total_seconds:g} seconds.")
            parts.append(part)
        return b"".join(parts)


class _Again(Exception):
    """A request failed and may be tried again; `after_seconds` is the wait that the server asks for."""

    def __init__(self, sentence: str, after_seconds: float | None) -> None:
        super().__init__(sentence)
        self.after_seconds = after_seconds


def _origin(url: str, response: httpx2.Response) -> Origin:
    etag, last_modified = response.headers.get("ETag"), response.headers.get("Last-Modified")
    return Origin(url=url, fetched_at=utc_now(), etag=etag, last_modified=last_modified)


def _marks_of(last: Origin) -> dict[str, str]:
    """Returns the headers by which a server recognises the document that it sent last."""
    headers = {"If-None-Match": last.etag, "If-Modified-Since": last.last_modified}
    return {name: mark for name, mark in headers.items() if mark}


def _require_allowed(url: str, asked: str, base_url: str) -> None:
    """Raises `FetchFailed` for an address without TLS, unless the settings name that server themselves.

    Raises the same for a redirect to another server than the `asked` one at an address that is not public.
    """
    server = _server_of(url)
    if not url.startswith("https://") and server != _server_of(base_url):
        raise FetchFailed(f"{url} is not HTTPS.")
    if server != _server_of(asked):
        _require_public(url)


def _server_of(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _require_public(url: str) -> None:
    """Raises `FetchFailed` for a redirect to an address that is not public."""
    parts = urlsplit(url)
    try:
        addresses = socket.getaddrinfo(parts.hostname, parts.port or 443, proto=socket.IPPROTO_TCP)
    except (OSError, ValueError) as error:
        raise FetchFailed(f"{url}, to which the feed redirects, has no address.") from error
    if not all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_global for *_, address in addresses):
        raise FetchFailed(f"The feed redirects to {parts.hostname}, which is not a public address.")


def _seconds_until(retry_after: str | None) -> float | None:
    """Returns the wait that a Retry-After header asks for, in seconds or as a date; None if it cannot be read."""
    if retry_after is None:
        return None
    if retry_after.isdigit():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (moment - datetime.now(moment.tzinfo or UTC)).total_seconds())
