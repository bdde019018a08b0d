"""Array types of the domain, and tables whose columns are arrays of equal length."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = NDArray[np.int64]
Number: TypeAlias = float | NDArray[Any]
"""A scalar or a column of numbers. A formula for it serves a single layout and a table of layouts."""

Column = TypeVar("Column", bound=NDArray[Any])
Table = TypeVar("Table")
"""A dataclass of arrays of equal length, or of such dataclasses."""


def taken(table: Table, rows: Indices) -> Table:
    """Returns some rows of a table, in the given order."""
    return type(table)(**{name: _taken(value, rows) for name, value in _columns(table).items()})


def either(first: Table, second: Table, second_is_better: NDArray[np.bool_]) -> Table:
    """Returns each row of the first table, or of the second where that is better."""
    others = _columns(second)
    columns = _columns(first).items()
    return type(first)(**{name: _either(value, others[name], second_is_better) for name, value in columns})


def _columns(table: object) -> dict[str, Any]:
    assert is_dataclass(table)
    return {field.name: getattr(table, field.name) for field in fields(table)}


def _taken(value: Any, rows: Indices) -> Any:
    return taken(value, rows) if is_dataclass(value) else value[rows]


def _either(first: Any, second: Any, second_is_better: NDArray[np.bool_]) -> Any:
    if is_dataclass(first):
        return either(first, second, second_is_better)
    # The mask has one dimension; the added ones let it apply to columns of vectors.
    return np.where(second_is_better.reshape(-1, *[1] * (first.ndim - 1)), second, first)


def still(array: Column) -> Column:
    """Makes an array read-only and returns it; a catalog is shared by all requests."""
    array.setflags(write=False)
    return array
