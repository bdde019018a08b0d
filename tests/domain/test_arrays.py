"""Tables whose columns are arrays."""

from dataclasses import dataclass

import numpy as np
import pytest

from service.domain.arrays import Floats, either, read_only, taken


@dataclass(frozen=True)
class Inner:
    matrix: Floats


@dataclass(frozen=True)
class Outer:
    column: Floats
    inner: Inner


def table(*rows: float) -> Outer:
    column = np.array(rows)
    return Outer(column, Inner(np.column_stack((column, -column))))


def test_rows_are_taken_in_the_given_order_from_nested_tables_too() -> None:
    rows = taken(table(1.0, 2.0, 3.0), np.array([2, 0]))
    assert rows.column.tolist() == [3.0, 1.0]
    assert rows.inner.matrix.tolist() == [[3.0, -3.0], [1.0, -1.0]]


def test_each_row_comes_from_the_better_table() -> None:
    rows = either(table(1.0, 2.0), table(8.0, 9.0), np.array([False, True]))
    assert rows.column.tolist() == [1.0, 9.0]
    assert rows.inner.matrix.tolist() == [[1.0, -1.0], [9.0, -9.0]]


def test_an_array_of_a_catalog_cannot_be_written_to() -> None:
    array = read_only(np.zeros(2))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0
