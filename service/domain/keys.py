"""API keys: who sends a request, and what it may write. Of the token of a key, only the hash is stored."""

import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import datetime

SCOPES = ("measurements", "outcomes", "watches", "offers", "import", "admin")
"""Rights that a key may have; `admin` allows what concerns every caller, such as public measurements."""

TOKEN = re.compile(r"sel_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
"""Format of a generated token: the mark of this service, the id of the key, and 256 random bits in base64url."""

ID_LETTERS = 12


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its token. Keys with the same `owner` belong to the same caller, so that a key can be replaced."""

    id: str
    owner: str
    scopes: tuple[str, ...]
    token_hash: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    measurements: int = 0
    """Number of stored measurements that were sent with this key."""

    def state_at(self, moment: datetime) -> str:
        """Returns `active`, `expired` or `revoked`."""
        if self.revoked_at is not None and self.revoked_at <= moment:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= moment else "active"

    def has_token(self, token: str) -> bool:
        """Returns whether the token is the one of this key, in a time that does not depend on its content."""
        return hmac.compare_digest(self.token_hash, hash_of(token))


def hash_of(token: str) -> str:
    """Returns the SHA-256 of a token in hexadecimal: enough for 256 random bits, which cannot be guessed."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def id_of(token: str) -> str:
    """Returns the id of the key with this token: from the token if it was generated, else the start of its hash."""
    generated = TOKEN.fullmatch(token)
    return generated[1] if generated else hash_of(token)[:ID_LETTERS]
