"""The load of a served model: rates, distributions of lengths, and limits on the times of requests."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any

import numpy as np

from service.domain.arrays import Floats, Number
from service.domain.band import NORMAL
from service.domain.jobs.stacks import Stack
from service.domain.models.model import Model
from service.domain.units import HOURS_A_DAY, HOURS_A_MONTH

MOST_P95_OVER_MEAN = 3.8
"""Largest ratio of the 95th percentile to the mean that a request may state. A lognormal distribution has at most
exp(1.645^2 / 2) = 3.87."""

MEAN_OF_LONGEST = 0.57
"""Probability that the largest of many values is at most its mean: exp(-exp(-0.5772)), by the Gumbel distribution."""


@dataclass(frozen=True, slots=True)
class Length:
    """The lognormal distribution of the tokens of prompts or of answers; without `p95`, all have one length."""

    mean: float
    p95: float | None = None

    @property
    def _sigma(self) -> float:
        """Standard deviation s of the logarithm: smaller root of p95 / mean = exp(z s - s^2 / 2), with z = 1.645."""
        z = NORMAL.inv_cdf(0.95)
        return z - sqrt(z * z - 2.0 * log(self.p95 / self.mean)) if self.p95 else 0.0

    @property
    def variation(self) -> float:
        """Squared coefficient of variation: variance / mean^2."""
        return exp(self._sigma**2) - 1.0

    def longest_of(self, requests: Number, share: float | None = None) -> Number:
        """Returns the tokens that the longest of some prompts or answers does not exceed with probability `share`.

        Without `share`, it is the mean of the longest one.
        """
        if self.p95 is None:
            return self.mean
        # The mean of a single lognormal length is its quantile at half a standard deviation of its logarithm.
        of_one = max(MEAN_OF_LONGEST, NORMAL.cdf(self._sigma / 2.0))
        count = np.maximum(1.0, requests)  # with a mean below 1, some batches still have one
        of_many = MEAN_OF_LONGEST + (of_one - MEAN_OF_LONGEST) / count**0.25 if share is None else share
        shares = of_many ** (1.0 / count)
        longest: Floats = np.array([self.at(percentile) for percentile in np.ravel(shares)])
        return longest.reshape(shares.shape)

    def at(self, percentile: float) -> float:
        """Returns the tokens that a share of prompts or answers does not exceed; `percentile` is between 0 and 1."""
        sigma = self._sigma
        return self.mean * exp(NORMAL.inv_cdf(percentile) * sigma - sigma**2 / 2.0)


MOST_INSTANCES = 10_000
"""Largest number of instances that a load may take."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A load in requests per second, or in requests in flight, with limits on the times of requests."""

    requests_per_second: float = 1.0
    """Load, unless `concurrency` is given."""
    concurrency: float | None = None
    """Requests in flight at any time; None if the load is in requests per second."""
    prompt: Length = Length(0.0)
    answer: Length = Length(1.0)
    max_seconds_to_first_token: float | None = None
    """Limit on the seconds to the first token; None for no limit."""
    max_seconds_per_output_token: float | None = None
    max_seconds_per_request: float | None = None
    percentile: float = 0.95
    """Share of the requests that have to keep each limit, unless it has a share of its own."""
    percentile_to_first_token: float | None = None
    """Share of the requests that have to keep `max_seconds_to_first_token`; None for `percentile`."""
    percentile_per_output_token: float | None = None
    percentile_per_request: float | None = None
    safe: bool = False
    """Whether engines as slow as the low end of their band must keep the limits too; all figures are then theirs."""
    headroom: float = 0.0
    """Share of the capacity of a replica that is kept free."""
    min_replicas: int = 1
    availability_zones: int = 1
    """Number of zones over which the instances are spread evenly."""
    prefix_cache_hit_rate: float = 0.0
    """Share of a prompt that all requests have in common; it is processed and cached once."""
    conversation_cache_hit_rate: float = 0.0
    """Share of a prompt that was read in earlier turns of its conversation; each request holds the cache of its own."""
    speculative_acceptance: float = 0.0
    """Probability that a drafted token is accepted; 0 without speculative decoding."""
    draft_length: int = 1
    """Tokens that are drafted per decoding step."""
    draft_cost: float | None = 0.0
    """Time to draft a token / time of a decoding step; None: the time of the work of `drafter`."""
    drafter: Model | None = None
    """The model that drafts tokens, in the memory of the same GPUs; None if drafts need no model, such as n-grams."""
    adapters: int = 0
    """LoRA adapters that are in memory at once; requests choose among them."""
    adapter_rank: int = 16
    disaggregated: bool = False
    """Whether some instances only process prompts and others only generate answers."""
    static_batches: bool = False
    """Whether a batch starts when the last one has ended; see `Stack.static_batches`."""
    clients_queue: bool = False
    """Whether clients may outnumber the places and wait for a later batch, as far as limits on times allow; otherwise
    each has a place. Models without tokens are served so, because a part of their answer is of no use."""
    hours_per_day: float = HOURS_A_DAY
    """Hours of each day in which the load is served; no machines are rented in the others."""
    min_instances: int = 1
    max_instances: int = MOST_INSTANCES

    @property
    def hours_a_month(self) -> float:
        """Hours of a month in which the load is served."""
        return HOURS_A_MONTH * self.hours_per_day / HOURS_A_DAY

    @property
    def load(self) -> float:
        """The load: requests in flight if `concurrency` is given, else requests per second."""
        return self.requests_per_second if self.concurrency is None else self.concurrency

    def spread(self, instances: Floats) -> Floats:
        """Returns numbers of instances, rounded up to a multiple of the zones."""
        return np.asarray(np.ceil(instances / self.availability_zones) * self.availability_zones)

    def up_to(self, most: Floats | float) -> Floats:
        """Returns limits on instances, rounded down to a multiple of the zones."""
        return np.asarray(np.floor(most / self.availability_zones) * self.availability_zones)

    def has_stages_on(self, stack: Stack) -> bool:
        """Returns whether a stack serves this load in pipeline stages, which the drafts of some stacks exclude."""
        return not (self.speculative_acceptance and stack.drafts_exclude_stages)

    @property
    def tokens_verified(self) -> float:
        """Tokens of a request that a decoding step verifies: the drafted ones, and one more of the model itself."""
        return 1.0 + self.draft_length if self.speculative_acceptance else 1.0

    @property
    def steps_per_token(self) -> float:
        """Time per generated token, in decoding steps without drafts: (1 + k c) (1 - a) / (1 - a^(k + 1)).

        k is `draft_length`, c is `draft_cost`, and a is `speculative_acceptance` (Leviathan, Kalman and Matias 2023,
        arXiv 2211.17192, Theorem 3.8). Without a `draft_cost`, the work of `drafter` is not included.
        """
        if not self.speculative_acceptance:
            return 1.0
        return (1.0 + self.draft_length * (self.draft_cost or 0.0)) * self._verifications_per_token

    @property
    def drafts_per_token(self) -> float:
        """Tokens that `drafter` writes per generated token; 0 where `draft_cost` has their time."""
        if self.drafter is None or self.draft_cost is not None:
            return 0.0
        return self.draft_length * self._verifications_per_token

    @property
    def _verifications_per_token(self) -> float:
        accepted = self.speculative_acceptance
        return (1.0 - accepted) / (1.0 - accepted ** (self.draft_length + 1))

    @property
    def percentiles(self) -> Mapping[str, float]:
        """Shares of the requests that have to keep each limit on a time, by request field."""
        return {
            "max_seconds_to_first_token": self.percentile_to_first_token or self.percentile,
            "max_seconds_per_output_token": self.percentile_per_output_token or self.percentile,
            "max_seconds_per_request": self.percentile_per_request or self.percentile,
        }

    @property
    def limits(self) -> Mapping[str, Any]:
        """Limits that a number of instances keeps or misses, by request field; None where there is no limit."""
        return {
            "max_seconds_to_first_token": self.max_seconds_to_first_token,
            "max_seconds_per_output_token": self.max_seconds_per_output_token,
            "max_seconds_per_request": self.max_seconds_per_request,
            "max_instances": self.max_instances,
        }
