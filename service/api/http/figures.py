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


def money(usd: Figure) -> Figure:
    """Returns dollars in whole millionths, and None for None."""
    return usd if usd is None else cast("Figure", round(usd, 6))


def dollars(usd: float) -> str:
    """Returns dollars with two decimals, or with six below a cent, so that an amount above 0 never shows as 0.00."""
    return f"{usd:,.2f}" if abs(usd) >= 0.01 or usd == 0 else f"{usd:.6f}"


def readable(value: float, digits: int) -> str:
    """Returns a figure with this many significant digits; a larger figure as a whole number, never with an exponent.

    Thousands are separated by commas.
    """
    short = f"{value:,.{digits}g}"
    return f"{value:,.0f}" if "e+" in short else short


def plural(count: float, noun: str) -> str:
    """Returns a count with its noun, such as `1 GPU` or `2,000 GPUs`."""
    return f"{count:,.10g} {noun}{'' if count == 1 else 's'}"


Rounded = Annotated[float, AfterValidator(rounded)]
"""A number of a response that is rounded when the response is built."""
