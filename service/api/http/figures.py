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


def dollars(usd: float) -> str:
    """Returns dollars with two decimals, or with six below a cent, so that an amount above 0 never shows as 0.00."""
    return f"{usd:,.2f}" if abs(usd) >= 0.01 or usd == 0 else f"{usd:.6f}"


Rounded = Annotated[float, AfterValidator(rounded)]
"""A number of a response that is rounded when the response is built."""
