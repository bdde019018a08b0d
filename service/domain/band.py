"""A figure with its uncertainty."""

from dataclasses import dataclass


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

    def by(self, factors: tuple[float, float, float]) -> "Band":
        """Returns the figure multiplied by factors of low, likely and high."""
        return Band(self.low * factors[0], self.likely * factors[1], self.high * factors[2])
