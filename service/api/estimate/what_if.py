"""What-if: one estimate over machines, markets, regions and nodes, sorted by dollars."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from service.api.estimate.cost_request import Hours
from service.api.estimate.cost_response import MoneyResponse
from service.api.estimate.estimate import EstimateResponse, MachineDescriptionRequest
from service.api.estimate.response import BandResponse
from service.api.estimate.verdict import spoken_of
from service.api.http.batch import MOST_ITEMS
from service.api.http.fields import AtLeastOne, BodyModel, Name, Named, standing
from service.api.http.problems import ProblemDocument
from service.domain.errors import QuestionError
from service.domain.pareto import pareto


def values_of(each: Any) -> Any:
    """A list of values that a field takes in turn."""
    return Annotated[tuple[each, ...], Field(min_length=1, max_length=MOST_ITEMS), BeforeValidator(standing)] | None


class MatrixRequest(BodyModel):
    """The values that fields of the base take in turn: every combination is asked, 1,000 at most."""

    machine: values_of(Named[Name, MachineDescriptionRequest]) = None  # type: ignore[valid-type]
    nodes: values_of(AtLeastOne) = None  # type: ignore[valid-type]
    instances: values_of(AtLeastOne) = None  # type: ignore[valid-type]
    hours: values_of(Hours) = None  # type: ignore[valid-type]
    region: values_of(Name) = None  # type: ignore[valid-type]
    market: values_of(Name) = None  # type: ignore[valid-type]
    managed_service: values_of(Name) = None  # type: ignore[valid-type]


@dataclass(frozen=True, slots=True)
class CombinationResponse:
    """One combination, by its entry on demand where it has one, else by its cheapest; a `problem` has no figures."""

    over: Annotated[dict[str, Any], Field(description="The values that the fields took.")]
    fits: bool | None
    hours: Annotated[BandResponse | None, Field(description="Of the calendar where that is known, else of use.")]
    usd: MoneyResponse | None
    usd_complete: Annotated[bool, Field(description="False: `usd` is a lower bound or null.")]
    pareto: Annotated[bool, Field(description="No other is both as quick and as cheap, by the likely figures.")]
    answer: EstimateResponse | None
    problem: ProblemDocument | None


NOTHING = CombinationResponse(
    over={}, fits=None, hours=None, usd=None, usd_complete=False, pareto=False, answer=None, problem=None
)


@dataclass(frozen=True, slots=True)
class MatrixResponse:
    """Combinations by likely dollars; then those whose cost is not known, then those that cannot be answered."""

    items: list[CombinationResponse]


def combinations(over: MatrixRequest) -> list[dict[str, Any]]:
    """Every combination of the values. Raises `QuestionError` for none, and for more than a batch holds."""
    told: dict[str, Sequence[Any]] = {
        name: getattr(over, name) for name in over.model_fields_set if getattr(over, name)
    }
    if not told:
        raise QuestionError(
            f"Tell a list of values of {', '.join(MatrixRequest.model_fields)}, or of several of these.", field="over"
        )
    count = prod(len(values) for values in told.values())
    if count > MOST_ITEMS:
        raise QuestionError(f"That is {count:,} combinations; more than {MOST_ITEMS:,} are not answered.", field="over")
    names = [name for name in MatrixRequest.model_fields if name in told]
    return [dict(zip(names, values, strict=True)) for values in product(*(told[name] for name in names))]


async def matrix(
    cells: Sequence[dict[str, Any]], answer: Callable[[dict[str, Any]], EstimateResponse | ProblemDocument]
) -> MatrixResponse:
    rows = []
    for cell in cells:
        rows.append(combination(cell, answer(cell)))
        await asyncio.sleep(0)
    rows.sort(key=lambda row: (row.problem is not None, row.usd is None, row.usd.likely if row.usd else 0.0))
    best = on_front([point(row) for row in rows])
    return MatrixResponse([replace(row, pareto=good) for row, good in zip(rows, best, strict=True)])


def combination(cell: dict[str, Any], told: EstimateResponse | ProblemDocument) -> CombinationResponse:
    over = {name: value.model_dump() if isinstance(value, BodyModel) else value for name, value in cell.items()}
    if isinstance(told, ProblemDocument):
        return replace(NOTHING, over=over, problem=told)
    answered = replace(NOTHING, over=over, fits=told.fits, answer=told)
    entry = spoken_of(told.cost)
    if entry is None:
        return answered
    return replace(
        answered,
        hours=entry.elapsed_hours or entry.hours,
        usd=entry.usd,
        usd_complete=entry.usd_complete,
    )


def point(row: CombinationResponse) -> tuple[float, float] | None:
    """Likely dollars and hours, where both are known."""
    return None if row.usd is None or row.hours is None else (row.usd.likely, row.hours.likely)


def on_front(points: Sequence[tuple[float, float] | None]) -> list[bool]:
    """Marks the points that no other one beats in one figure without losing in the other; equals are all marked."""
    known = sorted({point for point in points if point is not None})
    usd, hours = np.array(known, np.float64).reshape(-1, 2).T
    front = {point for point, good in zip(known, pareto(usd, -hours, len(known)), strict=True) if good}
    return [point in front for point in points]
