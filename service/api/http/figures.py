"""Figures as responses show them: with six significant digits. Money is in millionths of a dollar instead."""

from typing import Annotated, TypeVar, cast

from pydantic import AfterValidator

SIGNIFICANT_DIGITS = 6

Figure = TypeVar("Figure", bound=float | None)


def rounded(value: Figure) -> Figure:
    """Returns the value with six significant digits, and None for None."""
    if value is None:
        return value
    return cast("Figure", float(f"{value:.{SIGNIFICANT_DIGITS}g}") + 0.0)  # no negative zero


Rounded = Annotated[float, AfterValidator(rounded)]
"""A number of a response that is rounded when the response is built."""
