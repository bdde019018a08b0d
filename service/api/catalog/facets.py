"""Facets: which values a list holds in a column, and how often each."""

from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic_core import to_json

from service.api.http.fields import ResponseModel
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import near_names
from service.domain.errors import QuestionError

NOT_FACETS = ("instance",)
"""A column in which every value stands once."""


class FacetResponse(ResponseModel):
    """A value, and how many items of the whole list have it."""

    value: Annotated[str | float | None, Field(description="Null: not known, or it has none.")]
    count: int


def facets_json(names: tuple[str, ...], catalog: Catalog, places: NDArray[np.int64]) -> bytes:
    """By column, the values in order, what is not known last; null where none is asked for. Raises `QuestionError`."""
    if not names:
        return b"null"
    return to_json({name: counted(name, catalog, places) for name in names})


def counted(name: str, catalog: Catalog, places: NDArray[np.int64]) -> list[dict[str, Any]]:
    columns = catalog.columns
    if name in columns.words and name not in NOT_FACETS:
        column = columns.words[name]
        codes, counts = np.unique(column.codes[places], return_counts=True)
        values = [None if code < 0 else column.words[code] for code in codes.tolist()]
    elif name in columns.numbers:
        found, counts = np.unique(columns.numbers[name][places], return_counts=True)
        values = [None if np.isnan(value) else value for value in found.tolist()]
    else:
        known = sorted({*columns.words, *columns.numbers} - {*NOT_FACETS})
        near = near_names(name, known)
        raise QuestionError(f"There is no facet '{name}'. Known: {', '.join(known)}.", field="facets", near=near)
    told = [{"value": value, "count": count} for value, count in zip(values, counts.tolist(), strict=True)]
    return sorted(told, key=lambda each: each["value"] is None)
