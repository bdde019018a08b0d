"""Items grouped by keys."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from service.domain.arrays import Indices

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[tuple[Key, Item]]) -> dict[Key, tuple[Item, ...]]:
    """Returns the items of each key in their order, given pairs of a key and an item."""
    groups: dict[Key, list[Item]] = {}
    for key, item in items:
        groups.setdefault(key, []).append(item)
    return {key: tuple(group) for key, group in groups.items()}


def one_of_each(items: Sequence[Item], keys: Iterable[Hashable]) -> tuple[tuple[Item, ...], Indices]:
    """Returns the first item of each key, and for every item the index of its key among these."""
    index_of: dict[Hashable, int] = {}
    indices = [index_of.setdefault(key, len(index_of)) for key in keys]
    first = dict(zip(reversed(indices), reversed(items), strict=True))
    return tuple(first[index] for index in range(len(first))), np.array(indices, np.int64)
