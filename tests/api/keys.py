"""API keys of tests: one with every scope that all seeded databases have, and others on demand."""

from collections.abc import Sequence
from datetime import UTC, datetime

from service.db.engine import connect
from service.db.keys import create_key, new_token
from service.domain.keys import SCOPES

TOKEN = "a-key-of-the-tests-with-every-scope"
CREATED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def bearer(token: str = TOKEN) -> dict[str, str]:
    """The header field that sends a token."""
    return {"Authorization": f"Bearer {token}"}


def add_key(
    database_url: str,
    owner: str = "tests",
    scopes: Sequence[str] = SCOPES,
    *,
    token: str | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Stores a key and returns its token."""
    token = token or new_token()
    engine = connect(database_url)
    create_key(engine, token, owner, scopes, CREATED_AT, expires_at)
    engine.dispose()
    return token
