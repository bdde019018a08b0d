"""Exact money: every amount is a fraction until it is shown, and the parts that are shown add up.

Amounts are fractions of the decimal numbers that people wrote, so 0.1 is one tenth and not the nearest float. They
are rounded once, half up, to millionths of their currency, when a bill is settled; the difference between the rounded
total and the rounded parts is a part of its own, so the parts add up to the last millionth in every currency.
In JSON an amount is a plain number (`number`), like every other price of this service.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import lcm

from service.domain.band import Band

MICRO = 1_000_000
NANO = 1_000_000_000
USD = "USD"


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown figure, with the sentence that says why."""

    reason: str


def exact(number: float | int) -> Fraction:
    """Returns the decimal number that was written, without the error of its binary form: 0.1 is one tenth."""
    return Fraction(*exact_ratio(number))


def exact_ratio(number: float | int) -> tuple[int, int]:
    """Returns numerator and denominator of a number as a person wrote it in decimals: 1 and 10 for 0.1."""
    # repr() of a float is the shortest text that means it, which is what the person wrote.
    return (number, 1) if isinstance(number, int) else Decimal(repr(float(number))).as_integer_ratio()


def half_up(amount: Fraction, scale: int = 1) -> int:
    """Returns amount x scale as the nearest whole number; a half is rounded away from zero, as on paper."""
    return quotient_half_up(amount.numerator * scale, amount.denominator)


def quotient_half_up(numerator: int, denominator: int) -> int:
    """Returns the quotient as the nearest whole number; a half is rounded away from zero."""
    # Python's round() would round a half to the even neighbour, as no invoice does.
    rounded = (2 * abs(numerator) + denominator) // (2 * denominator)
    return rounded if numerator >= 0 else -rounded


def number(micros: int) -> float:
    """Returns an amount in millionths as a float that prints with at most six decimals, for amounts below 10^9 units.

    A float that is the nearest one to a decimal of at most 15 digits prints as that decimal.
    """
    return micros / MICRO


@dataclass(frozen=True, slots=True)
class Micros:
    """Low, likely and high of an amount in millionths of its currency."""

    low: int
    likely: int
    high: int


NO_MICROS = Micros(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Exact:
    """Low, likely and high of a figure: whole numbers over one denominator, which need not be the smallest one.

    Sums of `Fraction` compute a greatest common divisor each time, which took most of the time of a bill.
    """

    numerators: tuple[int, int, int]
    denominator: int = 1

    @classmethod
    def of(cls, band: Band) -> "Exact":
        """Returns the exact figures of a band."""
        ratios = [exact_ratio(figure) for figure in (band.low, band.likely, band.high)]
        common = lcm(*(denominator for _, denominator in ratios))
        low, likely, high = (numerator * (common // denominator) for numerator, denominator in ratios)
        return cls((low, likely, high), common)

    @classmethod
    def same(cls, figure: Fraction | float) -> "Exact":
        """Returns a certain figure: low, likely and high are equal."""
        value = figure if isinstance(figure, Fraction) else exact(figure)
        return cls((value.numerator,) * 3, value.denominator)

    @property
    def likely(self) -> float:
        """The likely figure as the nearest float."""
        return self.numerators[1] / self.denominator

    @property
    def band(self) -> Band:
        """The figures as the nearest floats."""
        return Band(*(numerator / self.denominator for numerator in self.numerators))

    @property
    def micros(self) -> Micros:
        """The figures rounded to millionths."""
        if not self:  # most parts of most bills are 0
            return NO_MICROS
        return Micros(*(quotient_half_up(numerator * MICRO, self.denominator) for numerator in self.numerators))

    def times(self, factor: Fraction | int) -> "Exact":
        """Returns the figure multiplied by a factor."""
        (low, likely, high), by = self.numerators, factor.numerator
        return Exact((low * by, likely * by, high * by), self.denominator * factor.denominator)

    def by(self, other: "Exact") -> "Exact":
        """Returns the product of two figures case by case: low by low, likely by likely, high by high."""
        (low, likely, high), (by_low, by_likely, by_high) = self.numerators, other.numerators
        return Exact((low * by_low, likely * by_likely, high * by_high), self.denominator * other.denominator)

    def __add__(self, other: "Exact") -> "Exact":
        (low, likely, high), (other_low, other_likely, other_high) = self.numerators, other.numerators
        if self.denominator == other.denominator:
            return Exact((low + other_low, likely + other_likely, high + other_high), self.denominator)
        denominator = lcm(self.denominator, other.denominator)
        by, by_other = denominator // self.denominator, denominator // other.denominator
        return Exact(
            (low * by + other_low * by_other, likely * by + other_likely * by_other, high * by + other_high * by_other),
            denominator,
        )

    def __sub__(self, other: "Exact") -> "Exact":
        return self + other.times(-1)

    def __bool__(self) -> bool:
        """Whether any of the three is not 0."""
        return any(self.numerators)


NOTHING = Exact((0, 0, 0))


def total_of(amounts: Iterable[Exact | None]) -> Exact:
    """Returns the sum of the amounts that are not None."""
    total = NOTHING
    for amount in amounts:
        # Most parts of most bills are 0.
        total = total + amount if amount else total
    return total


@dataclass(frozen=True, slots=True)
class Settled:
    """Parts as rounded millionths, the total rounded once, and the remainder that makes them add up."""

    parts: tuple[Micros | None, ...]
    rounding: Micros
    total: Micros


def settle(amounts: Sequence[Exact | None]) -> Settled:
    """Rounds the total and each part; `rounding` is the difference between the total and the sum of the parts.

    A part that is unknown (None) stays None and counts as 0.
    """
    parts = tuple(None if amount is None else amount.micros for amount in amounts)
    total, known = total_of(amounts).micros, [part for part in parts if part is not None]
    rounding = Micros(
        total.low - sum(part.low for part in known),
        total.likely - sum(part.likely for part in known),
        total.high - sum(part.high for part in known),
    )
    return Settled(parts, rounding, total)


# Currencies


@dataclass(frozen=True, slots=True)
class ExchangeRate:
    """The value of a unit of a currency from a day on, in thousand-millionths of a dollar."""

    currency: str
    on: date
    usd_per_unit_nanos: int
    source: str

    @property
    def usd_per_unit(self) -> Fraction:
        """US dollars per unit of the currency."""
        return Fraction(self.usd_per_unit_nanos, NANO)


def rate_on(rates: Sequence[ExchangeRate], currency: str, day: date) -> ExchangeRate | None:
    """Returns the latest rate on or before a day; None if every rate is newer. `rates` are in order of days."""
    if currency == USD:
        return ExchangeRate(USD, day, NANO, "")
    known = [rate for rate in rates if rate.currency == currency]
    earlier = bisect_right(known, day, key=lambda rate: rate.on)
    return known[earlier - 1] if earlier else None


def converted(amount: Exact, currency: str, into: str, rate: ExchangeRate | None) -> Exact | None:
    """Returns an amount in another currency, where one of the two is the dollar; None if the rate is unknown."""
    if currency == into:
        return amount
    if rate is None:
        return None
    return amount.times(rate.usd_per_unit if into == USD else 1 / rate.usd_per_unit)
