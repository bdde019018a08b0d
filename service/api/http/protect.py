"""Headers that protect browsers, and the hosts that the service answers for."""

import base64
import hashlib
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.http.problems import FieldError, problem

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


class Protect:
    """ASGI middleware: adds security headers, and refuses requests for hosts that are not allowed.

    `hosts` are names without a port; `*.example.org` allows all names below example.org; empty allows every host.
    """

    def __init__(self, app: ASGIApp, *, hosts: Sequence[str]) -> None:
        self._app = app
        self._names = frozenset(host.lower() for host in hosts if not host.startswith("*."))
        self._suffixes = tuple(host[1:].lower() for host in hosts if host.startswith("*."))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on a request to an allowed host, and adds the security headers to every answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *HEADERS]
                if POLICY not in dict(headers):
                    headers.append(NO_CONTENT)
                message["headers"] = headers
            await send(message)

        if scope["path"] in PROBES or self._allows(scope):
            await self._app(scope, receive, protected)
        else:
            sentence = "The service does not answer for this host."
            refusal = problem(421, sentence, [FieldError(field="Host", message=sentence, near=[])])
            await refusal(scope, receive, protected)

    def _allows(self, scope: Scope) -> bool:
        if not self._names and not self._suffixes:
            return True
        host = Headers(scope=scope).get("host", "")
        # An IPv6 address has colons of its own: only digits after the last one are a port.
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host
        return name.lower() in self._names or name.lower().endswith(self._suffixes)
