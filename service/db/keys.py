"""Stores API keys, and holds them in memory for the requests that send one."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine, insert, or_, select, update

from service.db.errors import DatabaseUnusable, in_sentences
from service.db.tables import API_KEY
from service.domain.keys import ID_LETTERS, ApiKey, hash_of, id_of

SECRET_BYTES = 32
WRITE_USES_EVERY = timedelta(minutes=1)
"""Interval at which the times of the last uses of keys are written."""


def new_token() -> str:
    """Returns the token of a new key: its id and 256 random bits."""
    return f"sel_{secrets.token_hex(ID_LETTERS // 2)}_{secrets.token_urlsafe(SECRET_BYTES)}"


def create_key(
    engine: Engine, token: str, owner: str, scopes: Sequence[str], now: datetime, expires_at: datetime | None = None
) -> ApiKey:
    """Stores a key by the hash of its token, and returns it. Raises `DatabaseUnusable`."""
    key = ApiKey(id_of(token), owner, tuple(scopes), hash_of(token), now, expires_at, None, None)
    with in_sentences(engine), engine.begin() as connection:
        connection.execute(insert(API_KEY).values(asdict(key)))
    return key


def read_keys(engine: Engine) -> tuple[ApiKey, ...]:
    """Returns all keys, the oldest first. Raises `DatabaseUnusable`."""
    with in_sentences(engine), engine.connect() as connection:
        rows = connection.execute(select(API_KEY).order_by(API_KEY.c.created_at, API_KEY.c.id)).mappings()
        return tuple(ApiKey(**{**row, "scopes": tuple(row["scopes"])}) for row in rows)


def revoke_key(engine: Engine, key_id: str, now: datetime) -> bool:
    """Revokes a key, and returns False if no key has this id or it was revoked before. Raises `DatabaseUnusable`."""
    is_active = (API_KEY.c.id == key_id) & API_KEY.c.revoked_at.is_(None)
    with in_sentences(engine), engine.begin() as connection:
        return connection.execute(update(API_KEY).where(is_active).values(revoked_at=now)).rowcount == 1


class KeyRing:
    """All keys in memory, so that the check of a token needs no database.

    The constructor raises `DatabaseUnusable`. While the database cannot be read later, the keys read last stay in use.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._uses: dict[str, datetime] = {}
        self._uses_written_at = datetime.min.replace(tzinfo=UTC)
        self.refresh()

    def key_with(self, token: str, now: datetime) -> ApiKey | None:
        """Returns the key with this token, even an expired or revoked one, and notes the time of its use."""
        key = self._keys.get(id_of(token))
        if key is None or not key.has_token(token):
            return None
        self._uses[key.id] = now
        return key

    def refresh(self) -> None:
        """Reads all keys. Raises `DatabaseUnusable`."""
        self._keys = {key.id: key for key in read_keys(self._engine)}

    def write_uses(self) -> None:
        """Stores when keys were used, once a minute; does nothing while the database cannot be written to."""
        now = datetime.now(UTC)
        if self._uses and now - self._uses_written_at >= WRITE_USES_EVERY:
            self._uses_written_at = now
            uses = {key_id: self._uses.pop(key_id) for key_id in list(self._uses)}
            try:
                _write_uses(self._engine, uses)
            except DatabaseUnusable:
                for key_id, used_at in uses.items():
                    self._uses.setdefault(key_id, used_at)  # a request may have noted a later use meanwhile


def _write_uses(engine: Engine, uses: Mapping[str, datetime]) -> None:
    """Stores when keys were last used, unless another process has stored a later use."""
    with in_sentences(engine), engine.begin() as connection:
        for key_id, used_at in uses.items():
            is_older = or_(API_KEY.c.last_used_at.is_(None), API_KEY.c.last_used_at < used_at)
            connection.execute(update(API_KEY).where(API_KEY.c.id == key_id, is_older).values(last_used_at=used_at))
