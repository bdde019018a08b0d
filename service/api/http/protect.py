"""Headers that protect browsers, and the hosts that the service answers for."""

import base64
import hashlib
import re
from collections.abc import Sequence

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that load balancers and monitors request by the machine's address, so that any host is allowed."""
POLICY = b"content-security-policy"
NO_CONTENT = (POLICY, b"default-src 'none'; frame-ancestors 'none'")
"""The content security policy of every answer without one of its own. Pages have their own."""


def page_policy(html: str) -> str:
    """Returns the content security policy of a page: files of the service, and the page's scripts by their hashes.

    Swagger UI sets styles from its script and shows an image from a data URL.
    """
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(["'self'", *(f"'sha256-{value}'" for value in hashes)])
    return (
        f"default-src 'self'; script-src {allowed}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
    )


def protected(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Returns the headers of an answer with those that protect browsers."""
    policy = () if POLICY in dict(headers) else (NO_CONTENT,)
    return [*headers, *HEADERS, *policy]


class Hosts:
    """The hosts that the service answers for: names without a port.

    `*.example.org` allows all names below example.org; without any name, every host is allowed.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = frozenset(name.lower() for name in names if not name.startswith("*."))
        self._suffixes = tuple(name[1:].lower() for name in names if name.startswith("*."))

    def allow(self, sent: bytes) -> bool:
        """Returns whether the service answers for the host that a request names."""
        if not self._names and not self._suffixes:
            return True
        host = sent.decode("latin-1")
        # An IPv6 address has colons of its own: only digits after the last one are a port.
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
        return name.lower() in self._names or name.lower().endswith(self._suffixes)
