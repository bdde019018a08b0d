"""Figures as responses show them: with six significant digits. Money is in millionths of a dollar instead."""

from typing import Annotated, overload

from pydantic import AfterValidator

SIGNIFICANT_DIGITS = 6


@overload
def rounded(value: float) -> float: ...


@overload
def rounded(value: float | None) -> float | None: ...


def rounded(value: float | None) -> float | None:
    """Returns the value with six significant digits, and None for None."""
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}") + 0.0  # no negative zero


Rounded = Annotated[float, AfterValidator(rounded)]
"""A number of a response that is rounded when the response is built."""
