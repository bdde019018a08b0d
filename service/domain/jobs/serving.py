"""The load that a model shall serve, and the limits on its times."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np

from service.domain.arrays import Floats, Number
from service.domain.band import NORMAL
from service.domain.models.model import Model

MOST_P95_OVER_MEAN = 3.8
"""Largest ratio of the 95th percentile to the mean of a lognormal distribution: exp(1.645^2 / 2) is 3.87."""

MEAN_OF_LONGEST = 0.57
"""Probability that the largest of many values is at most its mean: exp(-exp(-0.5772)) (Gumbel)."""


@dataclass(frozen=True, slots=True)
class Length:
    """The distribution of tokens of prompts or of answers: lognormal, or a single length if `p95` is not given."""

    mean: float
    p95: float | None = None

    @property
    def _sigma(self) -> float:
        """Standard deviation of the logarithm: the smaller root of p95 / mean = exp(z s - s^2 / 2)."""
        z = NORMAL.inv_cdf(0.95)
        return z - sqrt(z * z - 2.0 * log(self.p95 / self.mean)) if self.p95 else 0.0

    @property
    def variation(self) -> float:
        """Variance over the square of the mean."""
        return exp(self._sigma**2) - 1.0

    def longest_of(self, requests: Number, share: float | None = None) -> Number:
        """Returns the tokens that the longest of so many prompts or answers does not exceed with this probability; the
        mean by default.
        """
        if self.p95 is None:
            return self.mean
        # The mean of a single lognormal length is its quantile at half a standard deviation of its logarithm.
        of_one = max(MEAN_OF_LONGEST, NORMAL.cdf(self._sigma / 2.0))
        count = np.maximum(1.0, requests)  # fewer than one in the mean are one in some batches
        of_many = MEAN_OF_LONGEST + (of_one - MEAN_OF_LONGEST) / count**0.25 if share is None else share
        shares = of_many ** (1.0 / count)
        longest: Floats = np.array([self.at(each) for each in np.ravel(shares)])
        return longest.reshape(shares.shape)

    def at(self, percentile: float) -> float:
        """Returns the tokens that this share of prompts or answers does not exceed."""
        sigma = self._sigma
        return self.mean * exp(NORMAL.inv_cdf(percentile) * sigma - sigma**2 / 2.0)


MOST_INSTANCES = 10_000
"""Largest number of instances that a load may take."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A load in requests per second, or in requests in flight, with limits on its times."""

    requests_per_second: float = 1.0
    """Does not apply where a concurrency is given."""
    concurrency: float | None = None
    prompt: Length = Length(0.0)
    answer: Length = Length(1.0)
    max_seconds_to_first_token: float | None = None
    """Applies at the percentile, as the next two limits do."""
    max_seconds_per_output_token: float | None = None
    max_seconds_per_request: float | None = None
    percentile: float = 0.95
    headroom: float = 0.0
    """Share of what a replica can do that is kept free."""
    min_replicas: int = 1
    availability_zones: int = 1
    """Zones over which the instances are spread evenly."""
    prefix_cache_hit_rate: float = 0.0
    """Share of a prompt that all requests have in common, so that it is read and kept once."""
    speculative_acceptance: float = 0.0
    """Probability that a drafted token is accepted; 0 without drafts."""
    draft_length: int = 1
    """Tokens that are drafted for a step."""
    draft_cost: float = 0.0
    """Time of a drafted token over that of a step."""
    drafter: Model | None = None
    """The model that drafts, in the memory of the same GPUs; None for drafts that need none, as of n-grams."""
    disaggregated: bool = False
    """Whether other instances read the prompts than write the answers."""
    static_batches: bool = False
    """Whether engines start a batch when the last one has ended, as `Stack.static_batches` has it."""
    min_instances: int = 1
    max_instances: int = MOST_INSTANCES

    @property
    def load(self) -> float:
        """Requests in flight, or per second."""
        return self.requests_per_second if self.concurrency is None else self.concurrency

    def spread(self, instances: Floats) -> Floats:
        """Returns the instances rounded up to a multiple of the zones."""
        return np.asarray(np.ceil(instances / self.availability_zones) * self.availability_zones)

    def up_to(self, most: Floats | float) -> Floats:
        """Returns the most instances that are a multiple of the zones, up to a limit."""
        return np.asarray(np.floor(most / self.availability_zones) * self.availability_zones)

    @property
    def tokens_verified(self) -> float:
        """Tokens of a request in a step: the drafted ones, and the one that the model adds."""
        return 1.0 + self.draft_length if self.speculative_acceptance else 1.0

    @property
    def steps_per_token(self) -> float:
        """Steps, with the time of their drafts, over the tokens that they yield: (1 + k c) (1 - a) / (1 - a^(k + 1)).

        Leviathan, Kalman and Matias, Fast Inference from Transformers via Speculative Decoding, 2023, Theorem 3.8.
        """
        if not self.speculative_acceptance:
            return 1.0
        drafted, accepted = self.draft_length, self.speculative_acceptance
        return (1.0 + drafted * self.draft_cost) * (1.0 - accepted) / (1.0 - accepted ** (drafted + 1))

    @property
    def limits(self) -> Mapping[str, Any]:
        """Limits that a number of instances keeps or misses, by field."""
        return {
            "max_seconds_to_first_token": self.max_seconds_to_first_token,
            "max_seconds_per_output_token": self.max_seconds_per_output_token,
            "max_seconds_per_request": self.max_seconds_per_request,
            "max_instances": self.max_instances,
        }
