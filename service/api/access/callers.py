"""Finds the caller of a request by the API key in its Authorization field."""

from datetime import UTC, datetime

from starlette.responses import Response
from starlette.types import Scope

from service.api.access.rate_limits import Allowance, RateLimits
from service.api.http.problems import FieldError, problem
from service.db.keys import KeyRing
from service.domain.keys import ApiKey

OPEN_PATHS = ("/", "/docs", "/openapi.json")
"""Paths of the documentation. They need no key, so that a browser can show where to enter one."""


class Callers:
    """Finds the caller of each request. It refuses an invalid key, more requests than `limits` allow and, unless
    `open_reads`, a request without a key.
    """

    def __init__(self, *, keys: KeyRing, limits: RateLimits, open_reads: bool) -> None:
        self._keys = keys
        self._limits = limits
        self._open_reads = open_reads

    async def admit(self, scope: Scope, authorization: bytes) -> tuple[list[tuple[bytes, bytes]], Response | None]:
        """Counts a request and puts the caller's key into its state.

        Returns the headers of the caller's rate limit, and the answer to a request that is refused, else None.
        """
        key, valid, token = None, None, _bearer_token(authorization)
        if token is not None:
            now = datetime.now(UTC)
            key = self._keys.key_with(token, now)
            valid = key if key is not None and key.state_at(now) == "active" else None
        scope.setdefault("state", {})["caller"] = valid
        allowance = await self._limits.spend(valid, scope["client"][0] if scope.get("client") else "")
        fields = [] if allowance is None else allowance.headers
        if allowance is not None and allowance.exceeded:
            return fields, _too_many(allowance, valid)
        if token is not None and valid is None:
            return fields, unauthorized(_sentence(key, now), 'Bearer error="invalid_token"')
        if valid is None and not self._open_reads and not _is_open(scope["path"]):
            return fields, missing_key()
        return fields, None


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


def _bearer_token(authorization: bytes) -> str | None:
    """Returns the token, or None. Other schemes than Bearer are ignored, because they may belong to a proxy."""
    scheme, _, token = authorization.partition(b" ")
    return token.strip().decode("latin-1") if scheme.lower() == b"bearer" else None


def _sentence(key: ApiKey | None, now: datetime) -> str:
    return "The API key is not known." if key is None else f"The API key {key.id} is {key.state_at(now)}."


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith("/docs/files/")
