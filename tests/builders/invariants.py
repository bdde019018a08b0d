"""Contradictions in an estimate: each function yields a sentence for every one that it finds."""

from collections.abc import Iterator
from math import isclose
from typing import Any

from tests.builders.request_bodies import Body

ROUNDED = 1e-5
"""Answers have six significant digits."""


def at_most(figure: float, limit: float) -> bool:
    return figure <= limit * (1 + ROUNDED)


def crossed_bands(value: Any, where: str) -> Iterator[str]:
    """Yields the bands anywhere in an answer whose low, likely and high are not in this order."""
    if isinstance(value, dict):
        if value.keys() >= {"low", "likely", "high"} and not value["low"] <= value["likely"] <= value["high"]:
            yield f"{where}: {value}"
        for name, each in value.items():
            yield from crossed_bands(each, f"{where}.{name}")
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from crossed_bands(each, f"{where}[{place}]")


def contradictions_in_estimate(workload: Body, estimate: Body) -> Iterator[str]:
    """Yields what a modelled estimate of one instance says against itself."""
    yield from crossed_bands(estimate, "estimate")
    if (overhead := estimate["overhead_beyond_steps"]) is not None and overhead < 0:
        yield f"overhead_beyond_steps {overhead}"
    if (share := estimate["model_flops_utilisation"]) is not None and share > 1:
        yield f"model_flops_utilisation {share}"
    memory = estimate["memory"]
    if not isclose(sum(memory["parts"].values()), memory["needed_gib_per_gpu"], rel_tol=1e-4):
        yield f"parts of memory {sum(memory['parts'].values())}, not {memory['needed_gib_per_gpu']}"
    yield from _rate_against_hours(workload, estimate)
    if workload["task"] == "training" and estimate["step_seconds"]:
        yield from _rate_against_steps(estimate)


def _rate_against_hours(workload: Body, estimate: Body) -> Iterator[str]:
    """Work that is finished sooner than its own rate allows."""
    hours, amount = estimate["hours"], workload.get("amount") or {}
    if hours is None:
        return
    for name in ("samples", "tokens"):
        rate, asked = estimate[f"{name}_per_second"], amount.get(name)
        if rate is None or asked is None or (name == "tokens" and workload["task"] == "inference"):
            continue
        asked *= amount.get("epochs", 1)
        for end, other in (("low", "high"), ("likely", "likely"), ("high", "low")):
            if not at_most(asked, rate[end] * hours[other] * 3600):
                yield f"{asked} {name} in {hours[other]} h at {rate[end]} per second"


def _rate_against_steps(estimate: Body) -> Iterator[str]:
    """The parts of a step add up to the time in which the likely rate takes its samples."""
    layout, seconds = estimate["layout"], sum(estimate["step_seconds"].values())
    round_of_samples = layout["data"] * layout["micro_batch"]
    samples = estimate["samples_per_second"]["likely"] * seconds
    most = round_of_samples * layout["accumulation"]
    if not (at_most(samples, most) and at_most(most - round_of_samples, samples)):
        yield f"{samples} samples in a step of {seconds} s, which has {most}"
