"""The replicas that serve a load, within limits on the seconds of an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor

from service.domain.band import Band
from service.domain.bill.unit_costs import replicas_for
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import Unknown

Appraise = Callable[[float], JobEstimate]
"""Estimates a replica with so many requests in flight."""


@dataclass(frozen=True, slots=True)
class Load:
    """The rate to serve per second, how full a replica may be, and how long a token may take (likely figures)."""

    requests_per_second: float | None = None
    tokens_per_second: float | None = None
    utilisation: float = 1.0
    max_seconds_to_first_token: float | None = None
    max_seconds_per_output_token: float | None = None


@dataclass(frozen=True, slots=True)
class Served:
    """A replica under a load, and how many it takes: at the high, the likely and the low end of what one can do."""

    concurrency: float | None
    per_replica_per_second: Band
    seconds_to_first_token: Band | None
    seconds_per_output_token: Band | None
    replicas_low: int
    replicas: int
    replicas_high: int


def _meets(replica: JobEstimate, load: Load) -> bool:
    limits = (
        (replica.estimate.seconds_to_first_token, load.max_seconds_to_first_token),
        (replica.estimate.seconds_per_output_token, load.max_seconds_per_output_token),
    )
    return all(limit is None or (seconds is not None and seconds.likely <= limit) for seconds, limit in limits)


def serve(replica: JobEstimate, load: Load, again: Appraise | None) -> Served | Unknown:
    """The fullest replica that is quick enough, and how many of it. `again` is None where the concurrency is fixed.

    Latency only grows with the requests in flight, so halving finds the most that meets the limits.
    """
    if not replica.estimate.fits:
        return Unknown("The model does not fit the machine, so no replica can serve it.")
    quick: JobEstimate | None = replica if _meets(replica, load) else None
    if quick is None and again is not None and replica.estimate.concurrency is not None:
        quick = _fullest(load, again, floor(replica.estimate.concurrency))
    if quick is None:
        return Unknown(_too_slow(replica if again is None else again(1.0), load))
    estimate = quick.estimate
    wanted, rate = load.requests_per_second, estimate.samples_per_second
    if load.tokens_per_second is not None:
        wanted, rate = load.tokens_per_second, estimate.tokens_per_second
    if wanted is None or rate is None:
        return Unknown("What a replica answers per second is not known in the unit of the load.")
    # Fast replicas are few: the high end of the rate gives the low number.
    few, likely, many = (replicas_for(wanted, each, load.utilisation) for each in (rate.high, rate.likely, rate.low))
    return Served(
        estimate.concurrency, rate, estimate.seconds_to_first_token, estimate.seconds_per_output_token,
        few, likely, many,
    )  # fmt: skip


def _fullest(load: Load, again: Appraise, most: int) -> JobEstimate | None:
    best, low, high = None, 1, max(1, most)
    while low <= high:
        middle = (low + high) // 2
        replica = again(float(middle))
        if replica.estimate.fits and _meets(replica, load):
            best, low = replica, middle + 1
        else:
            high = middle - 1
    return best


def _too_slow(replica: JobEstimate, load: Load) -> str:
    faults = []
    for name, seconds, limit in (
        ("to the first token", replica.estimate.seconds_to_first_token, load.max_seconds_to_first_token),
        ("per output token", replica.estimate.seconds_per_output_token, load.max_seconds_per_output_token),
    ):
        if limit is None:
            continue
        if seconds is None:
            faults.append(f"seconds {name} are not known of this model")
        elif seconds.likely > limit:
            faults.append(f"{seconds.likely:.3g} s {name} are likely, and {limit:g} are allowed")
    at = "" if replica.estimate.concurrency is None else f" With {replica.estimate.concurrency:g} in flight,"
    sentence = f"{at} {' and '.join(faults)}".strip()
    return f"No replica is quick enough: {sentence[0].lower()}{sentence[1:]}."
