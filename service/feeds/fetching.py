"""The type of the function by which a feed asks for its documents."""

from typing import Protocol


class Get(Protocol):
    """Returns the body at a path of the feed's server, or at a full address on the same server.

    With a `body`, the request is a POST of that JSON. Raises what the fetcher raises.
    """

    def __call__(self, path: str, *, body: object = None) -> bytes:
        """Returns the body of the answer."""
