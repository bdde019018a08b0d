"""Exact money: every amount is a fraction until it is shown, and what is shown adds up.

Amounts are fractions of the decimal numbers that people wrote, so 0.1 is one tenth and not the nearest float. They
are rounded once, half up, to millionths of their currency, when a bill is settled; the difference between the rounded
total and the rounded parts is a part of its own, so the parts add up to the last millionth in every currency.
In JSON an amount is a plain number (`number`), like every other price of this service.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

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
    return Fraction(number) if isinstance(number, int) else Fraction(repr(float(number)))


def half_up(amount: Fraction, scale: int = 1) -> int:
    """Returns amount x scale as the nearest whole number; a half is rounded away from zero, as on paper."""
    # Whole numbers need no greatest common divisor, which is where a bill in fractions spends its time.
    numerator, denominator = amount.numerator * scale, amount.denominator
    rounded = (2 * abs(numerator) + denominator) // (2 * denominator)
    return rounded if numerator >= 0 else -rounded


def number(micros: int) -> float:
    """Returns millionths as the number to print: at most six decimals and no artefact, up to a thousand million units.

    The quotient is the float nearest to a decimal of at most 15 digits, and such a float prints as that decimal.
    """
    return micros / MICRO


@dataclass(frozen=True, slots=True)
class Micros:
    """Low, likely and high of an amount in millionths of its currency."""

    low: int
    likely: int
    high: int

    def __add__(self, other: "Micros") -> "Micros":
        return Micros(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __sub__(self, other: "Micros") -> "Micros":
        return Micros(self.low - other.low, self.likely - other.likely, self.high - other.high)


@dataclass(frozen=True, slots=True)
class Exact:
    """Low, likely and high of a figure as exact fractions: hours, or whole units of a currency."""

    low: Fraction
    likely: Fraction
    high: Fraction

    @classmethod
    def of(cls, band: Band) -> "Exact":
        """Returns the exact figures of a band."""
        return cls(exact(band.low), exact(band.likely), exact(band.high))

    @classmethod
    def same(cls, figure: float | int | Fraction) -> "Exact":
        """Returns a certain figure: low, likely and high are equal."""
        value = figure if isinstance(figure, Fraction) else exact(figure)
        return cls(value, value, value)

    def each(self, change: Callable[[Fraction], Fraction]) -> "Exact":
        """Returns the figure with a change applied to low, likely and high."""
        return Exact(change(self.low), change(self.likely), change(self.high))

    def times(self, factor: Fraction | int) -> "Exact":
        """Returns the figure multiplied by a factor."""
        return Exact(self.low * factor, self.likely * factor, self.high * factor)

    def __add__(self, other: "Exact") -> "Exact":
        return Exact(self.low + other.low, self.likely + other.likely, self.high + other.high)

    def __sub__(self, other: "Exact") -> "Exact":
        return Exact(self.low - other.low, self.likely - other.likely, self.high - other.high)

    def __bool__(self) -> bool:
        """Whether any of the three is not 0."""
        return bool(self.low or self.likely or self.high)

    @property
    def micros(self) -> Micros:
        """The figure rounded to millionths."""
        if self.low == self.high == self.likely:
            same = half_up(self.likely, MICRO)
            return Micros(same, same, same)
        return Micros(half_up(self.low, MICRO), half_up(self.likely, MICRO), half_up(self.high, MICRO))


NOTHING = Exact.same(0)


def total_of(amounts: Iterable[Exact]) -> Exact:
    """Returns the sum of some amounts."""
    total = NOTHING
    for amount in amounts:
        # Most parts of most bills are 0, and bills spend most of their time on adding fractions.
        total = total + amount if amount else total
    return total


@dataclass(frozen=True, slots=True)
class Settled:
    """Parts as rounded millionths, the total rounded once, and the remainder that makes them add up."""

    parts: tuple[Micros, ...]
    rounding: Micros
    total: Micros


def settle(amounts: Sequence[Exact]) -> Settled:
    """Rounds the total and each part; `rounding` is the difference between the total and the sum of the parts."""
    parts = tuple(amount.micros for amount in amounts)
    total = total_of(amounts).micros
    shown = Micros(0, 0, 0)
    for part in parts:
        shown = shown + part
    return Settled(parts, total - shown, total)


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

    def to_usd(self, amount: Exact) -> Exact:
        """Returns an amount of the currency in US dollars."""
        return amount.times(self.usd_per_unit)

    def from_usd(self, amount: Exact) -> Exact:
        """Returns an amount of US dollars in the currency: the exact inverse of `to_usd`."""
        return amount.times(1 / self.usd_per_unit)


def rate_on(rates: Sequence[ExchangeRate], currency: str, day: date) -> ExchangeRate | None:
    """Returns the last rate by a day; None if every rate is newer. Rates are in order of days."""
    if currency == USD:
        return ExchangeRate(USD, day, NANO, "")
    known = [rate for rate in rates if rate.currency == currency]
    earlier = bisect_right(known, day, key=lambda rate: rate.on)
    return known[earlier - 1] if earlier else None


def converted(amount: Exact, currency: str, into: str, rate: ExchangeRate | None) -> Exact | None:
    """Returns an amount in another currency, one of the two being the dollar; None if the rate is unknown."""
    if currency == into:
        return amount
    if rate is None:
        return None
    return rate.to_usd(amount) if into == USD else rate.from_usd(amount)
