"""Serving a load: how many replicas it takes for a rate, when no answer may be slower than so many seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from service.domain.band import Band
from service.domain.bill.unit_costs import replicas_for
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import Unknown

Appraise = Callable[[float], JobEstimate]
"""What a replica does with so many requests in flight."""


@dataclass(frozen=True, slots=True)
class Load:
    """What has to be served per second, how full a replica may be, and how long a token may take (likely figures)."""

    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    utilisation: float = 1.0
    max_seconds_to_first_token: float | None = None
    max_seconds_per_output_token: float | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A replica under a load, and how many it takes: at the high, the likely and the low end of what one can do."""

    concurrency: float | None
    per_second: Band
    seconds_to_first_token: Band | None
    seconds_per_output_token: Band | None
    few: int
    likely: int
    many: int


def meets(found: JobEstimate, load: Load) -> bool:
    limits = (
        (found.estimate.seconds_to_first_token, load.max_seconds_to_first_token),
        (found.estimate.seconds_per_output_token, load.max_seconds_per_output_token),
    )
    return all(limit is None or (told is not None and told.likely <= limit) for told, limit in limits)


def serve(found: JobEstimate, load: Load, again: Appraise | None) -> Served | Unknown:
    """The fullest replica that is quick enough, and how many of it. `again` is None where the concurrency is fixed.

    Latency only grows with the requests in flight, so halving finds the most that meets the limits.
    """
    if not found.estimate.fits:
        return Unknown("The model does not fit the machine, so no replica can serve it.")
    quick: JobEstimate | None = found if meets(found, load) else None
    if quick is None and again is not None and found.estimate.concurrency is not None:
        quick = most_that_meets(load, again, floor(found.estimate.concurrency))
    if quick is None:
        return Unknown(too_slow(found if again is None else again(1.0), load))
    estimate = quick.estimate
    wanted, rate = load.requests_per_second, estimate.samples_per_second
    if load.tokens_per_second is not None:
        wanted, rate = load.tokens_per_second, estimate.tokens_per_second
    if wanted is None or rate is None:
        return Unknown("What a replica answers per second is not known in the unit of the load.")
    few, likely, many = (replicas_for(wanted, each, load.utilisation) for each in (rate.high, rate.likely, rate.low))
    return Served(
        estimate.concurrency, rate, estimate.seconds_to_first_token, estimate.seconds_per_output_token,
        few, likely, many,
    )  # fmt: skip


def most_that_meets(load: Load, again: Appraise, most: int) -> JobEstimate | None:
    best, low, high = None, 1, max(1, most)
    while low <= high:
        middle = (low + high) // 2
        found = again(float(middle))
        if found.estimate.fits and meets(found, load):
            best, low = found, middle + 1
        else:
            high = middle - 1
    return best


def too_slow(found: JobEstimate, load: Load) -> str:
    told = []
    for name, seconds, limit in (
        ("to the first token", found.estimate.seconds_to_first_token, load.max_seconds_to_first_token),
        ("per output token", found.estimate.seconds_per_output_token, load.max_seconds_per_output_token),
    ):
        if limit is None:
            continue
        if seconds is None:
            told.append(f"seconds {name} are not known of this model")
        elif seconds.likely > limit:
            told.append(f"{seconds.likely:.3g} s {name} are likely, and {limit:g} are allowed")
    at = "" if found.estimate.concurrency is None else f" With {found.estimate.concurrency:g} in flight,"
    sentence = f"{at} {' and '.join(told)}".strip()
    return f"No replica is quick enough: {sentence[0].lower()}{sentence[1:]}."
