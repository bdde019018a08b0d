"""Facets: which values a list holds in a column, and how often each."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

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


def facets_of(
    names: tuple[str, ...], catalog: Catalog, types: NDArray[np.int64]
) -> dict[str, list[FacetResponse]] | None:
    """Returns per column its values among these types, in order, unknown last; None if no column is asked for.

    Raises `QuestionError` for a column that does not exist.
    """
    return {name: counted(name, catalog, types) for name in names} if names else None


def counted(name: str, catalog: Catalog, places: NDArray[np.int64]) -> list[FacetResponse]:
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
    facets = [FacetResponse(value=value, count=count) for value, count in zip(values, counts.tolist(), strict=True)]
    return sorted(facets, key=lambda facet: facet.value is None)
