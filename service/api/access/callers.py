"""Finds the caller of a request by the API key in its Authorization field."""

from collections.abc import Iterable
from datetime import UTC, datetime

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.access.rate_limits import Allowance, RateLimits
from service.api.http.problems import FieldError, problem
from service.api.http.protect import PROBES
from service.db.keys import KeyRing
from service.domain.keys import ApiKey

OPEN_PATHS = ("/", "/docs", "/openapi.json")
"""Paths of the documentation. They need no key, so that a browser can show where to enter one."""


class Callers:
    """ASGI middleware: puts the caller's key into the state of the request.

    The middleware refuses an invalid key, more requests than `limits` allow and, unless `open_reads`, a request without
    a key. Probes are always answered.
    """

    def __init__(self, app: ASGIApp, *, keys: KeyRing, limits: RateLimits, open_reads: bool) -> None:
        self._app = app
        self._keys = keys
        self._limits = limits
        self._open_reads = open_reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on with its caller, unless the key or a limit forbids it; probes pass without a key."""
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        token = _bearer_token(scope["headers"])
        now = datetime.now(UTC)
        key = None if token is None else self._keys.key_with(token, now)
        valid = key if key is not None and key.state_at(now) == "active" else None
        scope.setdefault("state", {})["caller"] = valid
        allowance = await self._limits.spend(valid, scope["client"][0] if scope.get("client") else "")
        if allowance is not None:
            send = _sending_fields(allowance, send)
        if allowance is not None and allowance.exceeded:
            answer: ASGIApp = _too_many(allowance, valid)
        elif token is not None and valid is None:
            answer = unauthorized(_sentence(key, now), 'Bearer error="invalid_token"')
        elif valid is None and not self._open_reads and not _is_open(scope["path"]):
            answer = missing_key()
        else:
            answer = self._app
        await answer(scope, receive, send)


def missing_key() -> Response:
    """Returns the answer to a request that needs a key and has none."""
    return unauthorized("This request needs an API key. Send it as Authorization: Bearer <key>.", "Bearer")


def unauthorized(sentence: str, challenge: str) -> Response:
    """Returns status 401 with the challenge that RFC 9110 requires and RFC 6750 describes."""
    errors = [FieldError(field="Authorization", message=sentence, near=[])]
    return problem(401, sentence, errors, {"WWW-Authenticate": challenge})


def _too_many(allowance: Allowance, key: ApiKey | None) -> Response:
    whose = "This address without an API key" if key is None else f"The API key {key.id}"
    sentence = f"{whose} may send {allowance.limit:,} requests per minute. Wait {allowance.reset_seconds} seconds."
    return problem(429, sentence)


def _sending_fields(allowance: Allowance, send: Send) -> Send:
    """Returns a `send` that adds the headers of the rate limit."""

    async def send_fields(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *allowance.headers]
        await send(message)

    return send_fields


def _bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Returns the token, or None. Other schemes than Bearer are ignored, because they may belong to a proxy."""
    value = next((value for name, value in headers if name == b"authorization"), b"")
    scheme, _, token = value.partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else None


def _sentence(key: ApiKey | None, now: datetime) -> str:
    return "The API key is not known." if key is None else f"The API key {key.id} is {key.state_at(now)}."


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/docs/files/")
