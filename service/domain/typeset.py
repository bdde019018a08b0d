"""Sets of instance types, each one whole number: bit i is on when the i-th type is in it.

A question asks a hundred times which types two sets share, or how many are in one. Of a thousand types that takes 50 ns
with whole numbers, and ten to fifty times as long with numpy masks, whose cost is in the call.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

TypeSet = int
"""Without b: `a & ~b`. How many: `a.bit_count()`."""


def types_where(mask: NDArray[np.bool_]) -> TypeSet:
    """The types at which the mask is true."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def mask_of(types: TypeSet, count: int) -> NDArray[np.bool_]:
    """A mask over all `count` types, true at those in the set."""
    held = np.frombuffer(types.to_bytes((count + 7) // 8, "little"), np.uint8)
    return np.unpackbits(held, count=count, bitorder="little").view(np.bool_)


class ThresholdIndex(NamedTuple):
    """A number of each type: the numbers that occur, ascending, and which types have one of the first k of them.

    A question for the types below a limit, or for the least number among some types, is then a few steps of a search
    instead of a look at every type. What is not known is at no step.
    """

    values: list[float]
    first: list[TypeSet]

    @classmethod
    def of(cls, column: NDArray[np.float64]) -> Self:
        kinds = np.flatnonzero(np.isfinite(column))
        kinds = kinds[np.argsort(column[kinds], kind="stable")]
        values: list[float] = []
        first = [0]
        for kind, value in zip(kinds.tolist(), column[kinds].tolist(), strict=True):
            if values and values[-1] == value:
                first[-1] |= 1 << kind
            else:
                values.append(value)
                first.append(first[-1] | 1 << kind)
        return cls(values, first)

    def below(self, limit: float) -> TypeSet:
        return self.first[bisect_left(self.values, limit)]

    def at_most(self, limit: float) -> TypeSet:
        return self.first[bisect_right(self.values, limit)]

    def above(self, limit: float) -> TypeSet:
        return self.first[-1] & ~self.at_most(limit)

    def least(self, some: TypeSet) -> float:
        """The least number among some types, of which one is known at least."""
        return self.values[bisect_left(self.first, 1, key=lambda types: (some & types) != 0) - 1]

    def most(self, some: TypeSet) -> float:
        """The greatest number among some types, of which one is known at least."""
        known = some & self.first[-1]
        return self.values[bisect_left(self.first, 1, key=lambda types: (known & types) == known) - 1]


class WordTypes(NamedTuple):
    """A word of a column, by its code, and the types that have it."""

    size: int
    code: int
    types: TypeSet


def by_word(codes: Iterable[int]) -> list[WordTypes]:
    """The words that occur in a column of codes, those of most types first; -1 is no word."""
    found: dict[int, TypeSet] = {}
    for kind, code in enumerate(codes):
        if code >= 0:
            found[code] = found.get(code, 0) | 1 << kind
    words = [WordTypes(types.bit_count(), code, types) for code, types in found.items()]
    return sorted(words, key=lambda word: (-word.size, word.code))


def commonest(words: list[WordTypes], some: TypeSet) -> WordTypes | None:
    """The word that most of some types have, and of even ones the first; nothing where none of them has any."""
    best, most = None, 0
    for word in words:
        if best is not None and (word.size < most or best.size == word.size == most):
            break
        count = (some & word.types).bit_count()
        if count > most or (best is not None and count == most and word.code < best.code):
            best, most = word, count
    return best
