"""Annotated fields that more than one endpoint shares: every string, number and list is bounded."""

from datetime import date
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

MOST_VALUES = 100
LARGEST = 1e15

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def split_commas(value: Any) -> Any:
    """`a,b` and a repeated parameter mean the same."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return value
    return [part for item in value for part in (item.split(",") if isinstance(item, str) else [item])]


Names = Annotated[list[Name], BeforeValidator(split_commas), Field(max_length=MOST_VALUES)]
Amount = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Day = Annotated[date, Field(description="A day, YYYY-MM-DD.")]

AsOf = Annotated[
    date | None,
    Field(description="Answer with the catalog of that day: lifecycle, prices, software and evidence. Default: today."),
]


class Asked(BaseModel):
    """A request, or a part of one: what it does not know, it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Told(BaseModel):
    """An answer, or a part of one: every field is always there."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def like(cls, value: object, **more: object) -> Self:
        """What the value holds under the same names, and more."""
        same = {name: getattr(value, name) for name in cls.model_fields if name not in more}
        return cls(**same, **more)


class DayAsked(Asked):
    """A question about the catalog of a day."""

    as_of: AsOf = None


class PageAsked(DayAsked):
    """Which page of a list."""

    limit: Annotated[int, Field(ge=1, le=500, description="Items on a page.")] = 50
    cursor: Annotated[str | None, Field(max_length=1000, description="`next_cursor` of the page before.")] = None
