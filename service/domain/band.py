"""A figure with its uncertainty."""

from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist

NORMAL = NormalDist()
DEVIATIONS_TO_AN_END = NORMAL.inv_cdf(0.9)
"""Standard deviations from the likely figure to either end of its band. One case in ten lies beyond each end."""


@dataclass(frozen=True, slots=True)
class Band:
    """Low, likely and high of a figure: in eight of ten cases the truth lies between low and high."""

    low: float
    likely: float
    high: float

    def inverse_of(self, amount: float) -> "Band":
        """Returns the band of amount / figure, such as the hours that an amount of work takes at a rate."""
        return Band(amount / self.high, amount / self.likely, amount / self.low)

    def times(self, factor: float) -> "Band":
        """Returns the figure multiplied by a factor."""
        return Band(self.low * factor, self.likely * factor, self.high * factor)

    def with_likely(self, figure: float) -> "Band":
        """Returns the band with another likely figure, widened where the figure is outside."""
        return Band(min(self.low, figure), figure, max(self.high, figure))

    def quantile(self, probability: float) -> float:
        """Returns the value that the truth does not exceed with this probability, for probabilities of at least 0.5."""
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
