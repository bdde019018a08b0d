"""Ranks a workload without a job by the peak rate of each type at the precision that the workload would run in."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import isnan

import numpy as np

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.precision import ENOUGH, SUPPORT_LEVELS, USUAL_PRECISIONS, SupportAsked
from service.domain.recommend.objective import Figures
from service.domain.recommend.plans import SPOT
from service.domain.selection.offers import CheapestOffers
from service.domain.typeset import TypeSet, types_where

PRECISION_BY_TASK: dict[str, tuple[str, ...]] = {
    "training": USUAL_PRECISIONS,
    "inference": USUAL_PRECISIONS,
    "hpc": ("fp64",),
    "graphics": ("fp32",),
}
"""Precisions that a task can use if the caller names none; the fastest of each GPU counts. Other tasks need no GPU."""

SERIAL_TASKS = frozenset({"sequential", "development"})
"""Tasks that more cores do not speed up: every host is as fast as one core, so the price decides."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """The precision that the ranking assumes on each instance type, and its peak."""

    peak: Floats
    assumed: tuple[tuple[str | None, float | None], ...]
    """Precision and peak of each type; null if there is none or if it is unknown."""
    unknown: TypeSet
    """Types that run such a precision, but whose peak is unknown."""
    key: Hashable


def assumed_peaks(
    task: str, precisions: tuple[str, ...], usual: tuple[str, ...], support: SupportAsked, catalog: Catalog
) -> Peaks:
    """Returns per type the precision that the workload would run in, and its peak; cached.

    It is the first of the caller's `precisions` that the type runs. If there are none, it is the fastest of `usual`, or
    of the task's own if that is empty too.
    """
    key = ("peaks", task, precisions, usual, support)
    return catalog.memory.get_or_compute(key, lambda: _find_peaks(task, precisions, usual, support, catalog))


def usual_precisions(task: str, catalog: Catalog) -> tuple[str, ...]:
    """Returns the precisions that a task can use if the caller names none; empty for work that needs no GPU."""
    return tuple(name for name in PRECISION_BY_TASK.get(task, ()) if name in catalog.reference.precisions)


def figures_of(cells: CheapestOffers, peaks: Peaks, catalog: Catalog) -> Figures:
    """Returns what the objective weighs for some offers."""
    price, speed = catalog.offers.usd_per_hour_at(cells.offer), peaks.peak[cells.instance_type]
    return Figures(
        usd=price,
        usd_per_hour=price,
        hours=1 / speed,
        speed=speed,
        paid_speed=speed,
        watts=catalog.columns.numbers["tdp_watts"][cells.instance_type],
        risk=(catalog.offers.market[cells.offer] == SPOT).astype(np.float64),
    )


def known(value: float) -> float | None:
    """Returns the value; None for NaN."""
    return None if isnan(value) else value


def _find_peaks(
    task: str, precisions: tuple[str, ...], usual: tuple[str, ...], support: SupportAsked, catalog: Catalog
) -> Peaks:
    names = precisions or usual or usual_precisions(task, catalog)
    key = (task, precisions, usual, support)
    if not names:
        vcpus = catalog.columns.numbers["vcpus"]
        if task in SERIAL_TASKS:
            vcpus = np.minimum(vcpus, 1.0)
        return Peaks(vcpus, tuple((None, known(peak)) for peak in vcpus.tolist()), types_where(np.isnan(vcpus)), key)
    enough = np.array([level in ENOUGH[support] for level in SUPPORT_LEVELS] + [False])
    types = len(catalog.instance_types)
    peak, chosen = np.full(types, np.nan), np.full(types, -1)
    for code, name in enumerate(names):
        tflops = catalog.columns.tflops[name]
        better = (chosen < 0) if precisions else (chosen < 0) | np.greater(tflops, np.nan_to_num(peak))
        taken = enough[catalog.columns.support[name]] & better
        peak[taken], chosen[taken] = tflops[taken], code
    assumed = [None if code < 0 else names[code] for code in chosen.tolist()]
    pairs = tuple(zip(assumed, map(known, peak.tolist()), strict=True))
    return Peaks(peak, pairs, types_where(np.isnan(peak) & (chosen >= 0)), key)
