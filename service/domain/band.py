"""A figure with its uncertainty."""

from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

NORMAL = NormalDist()
DEVIATIONS_TO_AN_END = NORMAL.inv_cdf(0.9)
"""Standard deviations between the likely figure and an end of its band, beyond which one case in ten lies."""


@dataclass(frozen=True, slots=True)
class Band:
    """Low, likely and high of a figure: in eight of ten cases the truth lies between low and high."""

    low: float
    likely: float
    high: float

    def inverse_of(self, amount: float) -> "Band":
        """Returns amount / figure, such as the hours of a rate."""
        return Band(amount / self.high, amount / self.likely, amount / self.low)

    def times(self, factor: float) -> "Band":
        """Returns the figure multiplied by a factor."""
        return Band(self.low * factor, self.likely * factor, self.high * factor)

    def with_likely(self, figure: float) -> "Band":
        """Returns the band with another likely figure, and wider if that is outside."""
        return Band(min(self.low, figure), figure, max(self.high, figure))

    def by(self, factors: tuple[float, float, float]) -> "Band":
        """Returns the figure multiplied by factors of low, likely and high."""
        return Band(self.low * factors[0], self.likely * factors[1], self.high * factors[2])

    def quantile(self, probability: float) -> float:
        """Returns the value that the truth does not exceed with this probability, which is at least one half."""
        deviations = NORMAL.inv_cdf(probability) / DEVIATIONS_TO_AN_END
        return self.likely * exp(deviations * log(self.high / self.likely))

    def probability_up_to(self, value: float) -> float:
        """Returns the probability that the truth is at most a value.

        The logarithm of the truth is taken to be normally distributed around the likely figure, with a deviation on
        each side that follows from that end of the band. All figures are above 0.
        """
        end = self.high if value > self.likely else self.low
        width, distance = abs(log(end / self.likely)), log(value / self.likely)
        return NORMAL.cdf(DEVIATIONS_TO_AN_END * distance / width) if width else float(distance >= 0)
