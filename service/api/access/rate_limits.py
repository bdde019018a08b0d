"""Rate limits: how many requests a key, or an address without a key, may send in a minute."""

import asyncio
import logging
import time
from dataclasses import dataclass
from functools import cached_property, lru_cache
from ipaddress import ip_address, ip_network
from math import ceil
from typing import TYPE_CHECKING

from service.domain.keys import ApiKey

if TYPE_CHECKING:  # the library takes 0.2 s to load, so it is imported with the first request that is counted
    from limits.strategies import FixedWindowRateLimiter

log = logging.getLogger(__name__)

STORAGE_SECONDS = 0.25
"""How long a request waits for the storage that processes share, before it is answered without a limit."""
PAUSE_SECONDS = 5.0
"""How long requests are answered without a limit after the storage has failed: each attempt delays some requests."""

NETWORK_BITS = {4: 32, 6: 64}
"""The bits of an address that identify a caller: a customer with IPv6 commonly has all addresses of a /64."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The rest of a limit per minute after a request was counted."""

    limit: int
    remaining: int
    reset_seconds: int
    exceeded: bool

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The RateLimit fields and, for a refused request, Retry-After."""
        fields = [(b"ratelimit-limit", self.limit), (b"ratelimit-remaining", self.remaining)]
        fields += [(b"ratelimit-reset", self.reset_seconds)]
        fields += [(b"retry-after", self.reset_seconds)] if self.exceeded else []
        return [(name, str(value).encode()) for name, value in fields]


class RateLimits:
    """Counts the requests of each key, and those without a valid key by address.

    Requests from this machine are not counted. A limit of 0 means no limit. Processes with the same storage count
    together; without a storage, each process counts by itself.
    """

    def __init__(self, *, per_key: int, per_address: int, storage_url: str) -> None:
        self._per_key = per_key
        self._per_address = per_address
        self._storage_url = storage_url
        self._paused_until = 0.0

    @cached_property
    def _limiter(self) -> "FixedWindowRateLimiter":
        from limits import storage, strategies

        scheme = self._storage_url.partition(":")[0]
        # Without a limit of the driver, threads that wait for a server that is silent would wait for ever.
        names = ("socket_timeout", "socket_connect_timeout") if scheme.startswith(("redis", "valkey")) else ()
        options = dict.fromkeys(names, STORAGE_SECONDS)
        return strategies.FixedWindowRateLimiter(
            storage.storage_from_string(self._storage_url or "memory://", **options)
        )

    async def spend(self, key: ApiKey | None, address: str) -> Allowance | None:
        """Counts a request and returns the rest of its limit; None if it has no limit, or the storage fails.

        After a failure, the storage is left alone for `PAUSE_SECONDS`.
        """
        limit, counted = (self._per_address, counted_as(address)) if key is None else (self._per_key, key.id)
        if not limit or not counted:
            return None
        if not self._storage_url:
            return self._spent(limit, counted)
        if time.monotonic() < self._paused_until:
            return None
        try:  # in a thread, because another machine answers
            if "_limiter" not in vars(self):  # to import the library takes long, and is no fault of the storage
                await asyncio.to_thread(getattr, self, "_limiter")
            async with asyncio.timeout(STORAGE_SECONDS):
                return await asyncio.to_thread(self._spent, limit, counted)
        except Exception as error:  # noqa: BLE001 – each storage raises errors of its own driver
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            sentence = "Requests are not limited for %g seconds, because the storage of the limits fails: %r"
            log.warning(sentence, PAUSE_SECONDS, error)
            return None

    def _spent(self, limit: int, counted: str) -> Allowance:
        from limits import RateLimitItemPerMinute

        item = RateLimitItemPerMinute(limit)
        allowed = self._limiter.hit(item, counted)
        window = self._limiter.get_window_stats(item, counted)
        return Allowance(limit, window.remaining, max(1, ceil(window.reset_time - time.time())), not allowed)


@lru_cache(4096)
def counted_as(address: str) -> str:
    """Returns the network of an address; an empty text for this machine and for a local socket."""
    try:
        parsed = ip_address(address)
    # A client over a local socket has a path instead of an address.
    except ValueError:
        return ""
    return "" if parsed.is_loopback else str(ip_network((parsed, NETWORK_BITS[parsed.version]), strict=False))
