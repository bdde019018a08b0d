"""Array types of the domain, and tables whose columns are arrays of equal length."""

from collections.abc import Iterable
from math import isnan
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.int64]
Number: TypeAlias = float | NDArray[Any]
"""A scalar, or an array with one number per row of a table. A formula over it computes one layout or many."""

Column = TypeVar("Column", bound=NDArray[Any])
Table = TypeVar("Table")
"""A dataclass of arrays of equal length, or of such dataclasses."""


def cube(number: Number) -> Number:
    """Returns the third power, in an eighth of the time of numpy's own."""
    return number * number * number


def taken(table: Table, rows: Indices) -> Table:
    """Returns some rows of a table, in the given order."""
    return type(table)(*[_taken(value, rows) for value in _columns(table).values()])


def either(first: Table, second: Table, second_is_better: NDArray[np.bool_]) -> Table:
    """Returns the rows of the second table where the mask is true, and those of the first elsewhere."""
    others = _columns(second)
    columns = _columns(first).items()
    return type(first)(**{name: _either(value, others[name], second_is_better) for name, value in columns})


def _columns(table: object) -> dict[str, Any]:
    names: Iterable[str] = table.__dataclass_fields__  # type: ignore[attr-defined]  # a dataclass
    return {name: getattr(table, name) for name in names}


def _taken(value: Any, rows: Indices) -> Any:
    if not isinstance(value, np.ndarray):
        return taken(value, rows)
    # Indexing takes thirty times as long as `take` where rows are vectors, and less time where they are numbers.
    return value[rows] if value.ndim == 1 else value.take(rows, axis=0)


def _either(first: Any, second: Any, second_is_better: NDArray[np.bool_]) -> Any:
    if not isinstance(first, np.ndarray):
        return either(first, second, second_is_better)
    # The mask has one dimension; the added ones let it apply to columns of vectors.
    return np.where(second_is_better.reshape(-1, *[1] * (first.ndim - 1)), second, first)


def known(value: float) -> float | None:
    """Returns the value; None for NaN."""
    return None if isnan(value) else value


def read_only(array: Column) -> Column:
    """Makes an array read-only and returns it; a catalog is shared by all requests."""
    array.setflags(write=False)
    return array
