"""Instance types that pass constraints, each with its best offer, in the requested order, and counts of values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import near_names
from service.domain.catalog.offer import BY_THE_HOUR
from service.domain.catalog.text_search import matching
from service.domain.errors import QuestionError
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.offers import offers_of_types
from service.domain.selection.selection import select

Indices = NDArray[np.int64]
UNIQUE_COLUMNS = ("instance",)
"""Columns in which every value occurs once."""


def list_instances(constraints: Constraints, words: str | None, sort: Sequence[str], catalog: Catalog) -> Indices:
    """Returns a row per instance type that passes: its index, and that of its best offer (-1: none).

    `words` must all occur in names, families, GPUs or aliases. `sort` holds columns, `-` for descending. Raises
    `QuestionError` for a column that does not exist.
    """
    types, offers = _admitted(constraints, catalog)
    if words:
        matches = matching(words, catalog)[types]
        types, offers = types[matches], offers[matches]
    if sort:
        order = _order(sort, constraints, catalog, types, offers)
        types, offers = types[order], offers[order]
    return np.column_stack((types, offers))


def _admitted(constraints: Constraints, catalog: Catalog) -> tuple[Indices, Indices]:
    if any(
        (
            constraints.region,
            constraints.market,
            constraints.max_usd_per_hour is not None,
            constraints.max_price_age_days is not None,
        )
    ):
        by_the_hour = replace(constraints, market=constraints.market or BY_THE_HOUR)
        return offers_of_types(select(by_the_hour, catalog).admitted)
    passing = catalog.everyone
    for check in type_checks(constraints, catalog):
        passing &= ~check.fails
    types = np.flatnonzero(catalog.mask(passing))
    return types, catalog.default_offers[types]


def _order(
    sort: Sequence[str], constraints: Constraints, catalog: Catalog, types: Indices, offers: Indices
) -> NDArray[np.intp]:
    """The order of the rows: unknown values come last, and ties are in the order of names."""
    keys: list[NDArray[Any]] = [types]
    for column in reversed(sort):
        values = _column(column.removeprefix("-"), constraints, catalog, types, offers)
        keys.append(-values if column.startswith("-") else values)
    return np.lexsort(keys)


def _column(name: str, constraints: Constraints, catalog: Catalog, types: Indices, offers: Indices) -> Floats | Indices:
    numbers = catalog.columns.numbers
    if name in numbers:
        return numbers[name][types]
    match name:
        case "name":
            return types
        case "usd_per_hour":
            return _usd_per_hour(catalog, offers)
        case "tflops":
            return _tflops(name, constraints, catalog, types)
        case "tflops_per_usd":
            return _tflops(name, constraints, catalog, types) / _usd_per_hour(catalog, offers)
    columns = [*numbers, "usd_per_hour", "tflops", "tflops_per_usd", "name"]
    near = near_names(name, columns)
    tail = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(columns)}."
    raise QuestionError(f"There is no column '{name}' to sort by. {tail}", field="sort", near=near)


def _usd_per_hour(catalog: Catalog, offers: Indices) -> Floats:
    if not len(catalog.offers):
        return np.full(len(offers), np.nan)
    return np.where(offers < 0, np.nan, catalog.offers.usd_per_hour[offers])


def _tflops(name: str, constraints: Constraints, catalog: Catalog, types: Indices) -> Floats:
    if not constraints.precision_all:
        raise QuestionError(f"Sorting by {name} needs a precision: add for example precision=bf16.", field="sort")
    return catalog.columns.tflops[constraints.precision_all[0]][types]


def count_values(column: str, types: Indices, catalog: Catalog) -> list[tuple[str | float | None, int]]:
    """Returns each value that the instance types have in a column, with its count; values in order, unknown last.

    Raises `QuestionError` for a column that does not exist or whose values are all different.
    """
    words, numbers = catalog.columns.words, catalog.columns.numbers
    values: list[str | float | None]
    if column in words and column not in UNIQUE_COLUMNS:
        codes, counts = np.unique(words[column].codes[types], return_counts=True)
        values = [None if code < 0 else words[column].words[code] for code in codes.tolist()]
    elif column in numbers:
        figures, counts = np.unique(numbers[column][types], return_counts=True)
        values = [None if np.isnan(figure) else figure for figure in figures.tolist()]
    else:
        known = sorted({*words, *numbers} - {*UNIQUE_COLUMNS})
        raise QuestionError(
            f"There is no facet '{column}'. Known: {', '.join(known)}.", field="facets", near=near_names(column, known)
        )
    return sorted(zip(values, counts.tolist(), strict=True), key=lambda counted: counted[0] is None)
