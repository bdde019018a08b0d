"""Sets of instance types as whole numbers: bit i is set if the i-th type belongs to the set.

A question combines and counts such sets about a hundred times. With a thousand types, an operation on whole numbers
takes 50 ns; numpy masks take ten to fifty times as long, because of the cost of each call.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

TypeSet = int
"""`a & b` is the intersection, `a | b` the union, `a & ~b` the difference, and `a.bit_count()` the size."""


def types_where(mask: NDArray[np.bool_]) -> TypeSet:
    """Returns the types at which a mask is true."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(types: TypeSet, count: int) -> NDArray[np.bool_]:
    """Returns a mask over all `count` types, true at those in the set."""
    # Bytes and bits are little-endian, so that bit i of the number is row i of the mask.
    packed = np.frombuffer(types.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)


def first_of(types: TypeSet, most: int) -> list[int]:
    """Returns the indices of the first types in the set, ascending; all of them if there are no more than `most`."""
    indices: list[int] = []
    while types and len(indices) < most:
        lowest = types & -types
        indices.append(lowest.bit_length() - 1)
        types ^= lowest
    return indices


class ThresholdIndex(NamedTuple):
    """A number of each type, indexed for comparisons with a limit.

    Finding the types below a limit, or the least number among some types, takes a binary search instead of a look at
    every type.
    """

    values: list[float]
    """The different numbers that occur, ascending."""
    first: list[TypeSet]
    """Item k is the set of types whose number is one of the k least values; no item has types of unknown number."""

    @classmethod
    def of(cls, column: NDArray[np.float64]) -> Self:
        """Indexes a column with one number for each type; an infinite number counts as unknown."""
        indices = np.flatnonzero(np.isfinite(column))
        indices = indices[np.argsort(column[indices], kind="stable")]
        values = column[indices]
        last = np.flatnonzero(np.diff(values, append=np.inf)).tolist()
        up_to = list(accumulate((1 << index for index in indices.tolist()), or_))
        return cls(values[last].tolist(), [0, *(up_to[place] for place in last)])

    @property
    def known(self) -> TypeSet:
        """The types whose number is known."""
        return self.first[-1]

    def below(self, limit: float) -> TypeSet:
        """Returns the types whose number is below a limit."""
        return self.first[bisect_left(self.values, limit)]

    def at_most(self, limit: float) -> TypeSet:
        """Returns the types whose number is not above a limit."""
        return self.first[bisect_right(self.values, limit)]

    def above(self, limit: float) -> TypeSet:
        """Returns the types whose number is above a limit."""
        return self.known & ~self.at_most(limit)

    def least(self, types: TypeSet) -> float:
        """Returns the least known number among the types; at least one must be known."""
        return self.values[bisect_left(self.first, 1, key=lambda first: (types & first) != 0) - 1]

    def greatest(self, types: TypeSet) -> float:
        """Returns the greatest known number among the types; at least one must be known."""
        known = types & self.known
        return self.values[bisect_left(self.first, 1, key=lambda first: (known & first) == known) - 1]


def types_by_code(codes: NDArray[np.int32]) -> dict[int, TypeSet]:
    """Returns the types that have each code of a column, by ascending code; a negative code means unknown."""
    types: dict[int, TypeSet] = {}
    for index, code in enumerate(codes.tolist()):
        if code >= 0:
            types[code] = types.get(code, 0) | 1 << index
    return dict(sorted(types.items()))


def union(sets: Iterable[TypeSet]) -> TypeSet:
    """Returns the types that are in any of the sets."""
    return reduce(or_, sets, 0)


def in_any_and_in_one(sets: Iterable[TypeSet]) -> tuple[TypeSet, TypeSet]:
    """Returns the types that are in any of the sets, and those that are in exactly one."""
    once = twice = 0
    for types in sets:
        twice |= once & types
        once |= types
    return once, once & ~twice
