"""A bounded cache for values that are derived from an immutable catalog."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
Key = TypeVar("Key", bound=Hashable)


class Cache:
    """Approximates a least-recently-used cache with two generations.

    A value that is used moves to the newer generation; when that is full, the older one is dropped. Keeping an exact
    order of use would take four times as long per look-up.
    """

    def __init__(self, size: int = 256) -> None:
        self._half = max(1, size // 2)
        self._newer: dict[Hashable, Any] = {}
        self._older: dict[Hashable, Any] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no value is cached."""
        return not self._newer

    def get_or_compute(self, key: Hashable, compute: Callable[[*Arguments], T], *args: *Arguments) -> T:
        """Returns the value of a key, computed as `compute(*args)` if it is not cached."""
        try:
            return self._newer[key]  # type: ignore[no-any-return]
        except KeyError:
            return self._renew(key, compute, *args)

    def get_or_compute_each(self, keys: Sequence[Key], compute: Callable[[Key], T]) -> list[T]:
        """Returns the values of the keys, in the order of the keys."""
        newer = self._newer
        return [newer[key] if key in newer else self._renew(key, compute, key) for key in keys]

    def _renew(self, key: Hashable, compute: Callable[[*Arguments], T], *args: *Arguments) -> T:
        older = self._older
        value: T = older[key] if key in older else compute(*args)
        if len(self._newer) >= self._half:
            self._older, self._newer = self._newer, {}
        self._newer[key] = value
        return value
