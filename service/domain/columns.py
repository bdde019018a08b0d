"""Rows of values that are made of columns."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Table = TypeVar("Table")
"""A dataclass of arrays of equal length, or of such dataclasses."""


def taken(table: Table, places: NDArray[np.int64]) -> Table:
    """Those rows, in that order."""
    return type(table)(**{name: _taken(value, places) for name, value in _columns(table).items()})


def joined(first: Table, second: Table) -> Table:
    """The rows of the first, and then those of the second."""
    others = _columns(second)
    return type(first)(**{name: _joined(value, others[name]) for name, value in _columns(first).items()})


def either(first: Table, second: Table, second_is_better: NDArray[np.bool_]) -> Table:
    """Row by row the first, or the second where it is better."""
    rows = len(second_is_better)
    return taken(joined(first, second), np.arange(rows) + rows * second_is_better)


def _columns(table: object) -> dict[str, Any]:
    assert is_dataclass(table)
    return {field.name: getattr(table, field.name) for field in fields(table)}


def _taken(value: Any, places: NDArray[np.int64]) -> Any:
    return taken(value, places) if is_dataclass(value) else value[places]


def _joined(first: Any, second: Any) -> Any:
    return joined(first, second) if is_dataclass(first) else np.concatenate([first, second])
