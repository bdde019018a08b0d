"""A random time by its mean and variance, with its quantiles."""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from service.domain.arrays import Floats, Number, cube
from service.domain.band import NORMAL

POINTS = np.array([NORMAL.inv_cdf((point + 0.5) / 16) for point in range(16)])
"""Equally likely values of a standard normal variable."""


@dataclass(frozen=True, slots=True)
class RandomTime:
    """A random time in seconds, approximated by a gamma distribution with this mean and variance."""

    mean: Floats
    variance: Floats

    @property
    def variation(self) -> Floats:
        """Squared coefficient of variation: variance / mean^2; 0 for a time of zero."""
        return np.asarray(self.variance / np.maximum(self.mean, 1e-30) ** 2)

    def probability_above(self, seconds: Floats) -> Floats:
        """Probability of more than these seconds (Wilson and Hilferty, 1931)."""
        shape = np.maximum(self.mean, 1e-30) ** 2 / np.maximum(self.variance, 1e-12 * self.mean**2 + 1e-60)
        ratio = np.cbrt(np.maximum(seconds, 0.0) / np.maximum(self.mean, 1e-30))
        z = (ratio - 1.0 + 1.0 / (9.0 * shape)) * 3.0 * np.sqrt(shape)
        # This logistic curve differs from the normal one by at most 2 parts in 10,000; numpy has no error function.
        normal = 1.0 / (1.0 + np.exp(np.clip(1.5976 * z + 0.07056 * cube(z), -700.0, 700.0)))
        return np.where(seconds <= 0.0, 1.0, normal)

    def quantile(self, probability: float, steady_variance: Number = 0.0) -> Floats:
        """The seconds that are not exceeded with this probability.

        A skewed distribution can have a lower quantile at a larger variance, but no load makes a request faster.
        Therefore variance counts only as far as it raises the quantile, except for `steady_variance`, which exists
        without load.
        """
        z = NORMAL.inv_cdf(probability)
        # The quantile is greatest at d = z / 2.
        d = np.minimum(self._third(self.variance), np.maximum(self._third(steady_variance), z / 2.0))
        # A greater mean with the same variance must not lower the quantile, as it would above the 98.7th percentile:
        # there (1 - d^2 + z d)^3 / d falls with d until d is the greater root of 5 d^2 - 2 z d + 1.
        turn = np.maximum(d, (z + sqrt(max(0.0, z**2 - 5.0))) / 5.0 + 1e-9)
        return np.asarray(self.mean * np.maximum(_over_mean(d, z), d / turn * _over_mean(turn, z)))

    def at_points(self) -> Floats:
        """Seconds at each of `POINTS`, in a second dimension; above 0, so that others can be divided by them."""
        mean, d = np.maximum(self.mean, 1e-30), self._third(self.variance)
        return np.asarray(mean[:, None] * np.maximum(_over_mean(d[:, None], POINTS), 1e-9))

    def _third(self, variance: Number) -> Floats:
        """A third of the standard deviation that belongs to a variance, over the mean."""
        return np.asarray(np.sqrt(variance) / (3.0 * np.maximum(self.mean, 1e-30)))


def lognormal_over_mean(variation: Floats, probability: float) -> Floats:
    """Quantile of a lognormal distribution over its mean: exp(z s - s^2 / 2), with s^2 = ln(1 + variation).

    `variation` is the squared coefficient of variation, and z the quantile of a standard normal variable.
    """
    square = np.log1p(variation)
    return np.asarray(np.exp(NORMAL.inv_cdf(probability) * np.sqrt(square) - square / 2.0))


def _over_mean(d: Floats, z: Number) -> Floats:
    """Quantile of a gamma distribution over its mean: (1 - d^2 + z d)^3 (Wilson and Hilferty, 1931).

    `z` is the quantile of a standard normal variable, and `d` a third of the standard deviation over the mean.
    """
    return np.asarray(cube(np.maximum(1.0 - d**2 + z * d, 0.0)))
