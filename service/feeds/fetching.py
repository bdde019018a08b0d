"""The ways in which the documents of feeds are fetched: at fixed paths, or page by page."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote, urlsplit

from service.feeds.listing import DocumentRefused

MAX_PAGES = 400


class Get(Protocol):
    """Returns the body at a path of the feed's server, or of its other `server`; a mirror has the paths of both.

    `server` is never from a document. With a `body`, the request is a POST of that JSON. A `conditional` request ends
    the part as unchanged if the server still has the last document of the part, so no other document of the part may
    have changed then: it is the only one, or its address names its version. Raises what the fetcher raises.
    """

    def __call__(
        self, path: str, *, server: str | None = None, body: object = None, conditional: bool = False
    ) -> bytes:
        """Returns the body of the answer."""


Fetch = Callable[[Get, str], Iterator[bytes]]
"""Yields the documents of a part, given its name."""


def documents_at(*paths: str) -> Fetch:
    """Returns a function that fetches a document at each path; `{part}` in a path stands for the name of the part."""

    def fetch(get: Get, part: str) -> Iterator[bytes]:
        for path in paths:
            yield get(path.replace("{part}", quote(part)), conditional=len(paths) == 1)

    return fetch


def utc_now() -> datetime:
    """Returns the present instant in whole seconds, as documents are dated."""
    return datetime.now(UTC).replace(microsecond=0)


def path_of(address: str) -> str | None:
    """Returns the path and the query of an address, which keeps requests on the feed's own server; None without one."""
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}" if parts.path else None


def pages_from(get: Get, path: str | None, next_path: Callable[[bytes], str | None]) -> Iterator[bytes]:
    """Yields a page and its following pages. Raises `DocumentRefused` if the links between pages form a loop."""
    visited: set[str] = set()
    while path:
        if path in visited or len(visited) >= MAX_PAGES:
            raise DocumentRefused(f"The pages do not end: a link is repeated, or there are more than {MAX_PAGES}.")
        visited.add(path)
        page = get(path)
        yield page
        path = next_path(page)
