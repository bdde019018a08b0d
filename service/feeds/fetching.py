"""The ways in which feeds ask for their documents: at fixed paths, or page by page."""

from collections.abc import Callable, Iterator
from typing import Protocol
from urllib.parse import quote

from service.feeds.listing import DocumentRefused

MOST_PAGES = 400


class Get(Protocol):
    """Returns the body at a path of the feed's server, or at a full address on the same server.

    With a `body`, the request is a POST of that JSON. Raises what the fetcher raises.
    """

    def __call__(self, path: str, *, body: object = None) -> bytes:
        """Returns the body of the answer."""


Fetch = Callable[[Get, str], Iterator[bytes]]
"""Yields the documents of a part, given its name."""


def documents_at(*paths: str) -> Fetch:
    """Returns the fetch of a document at each path, in which `{part}` stands for the name of the part."""

    def fetch(get: Get, part: str) -> Iterator[bytes]:
        for path in paths:
            yield get(path.replace("{part}", quote(part)))

    return fetch


def pages_from(get: Get, path: str | None, next_path: Callable[[bytes], str | None]) -> Iterator[bytes]:
    """Yields a page and those that follow it. Raises `DocumentRefused` where the links between them loop."""
    visited: set[str] = set()
    while path:
        if path in visited or len(visited) >= MOST_PAGES:
            raise DocumentRefused(f"The pages do not end: a link comes again, or there are more than {MOST_PAGES}.")
        visited.add(path)
        page = get(path)
        yield page
        path = next_path(page)
