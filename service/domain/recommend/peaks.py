"""What ranks machines for work of which no job is known: the peak rate of a type at the precision it would run in."""

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
"""Precisions a task can use when the caller names none; the fastest that a GPU has counts. Other tasks need no GPU."""

ONE_AFTER_ANOTHER = frozenset({"sequential", "development"})
"""Work that more cores do not speed up, so that of machines that are even in it the price decides."""


@dataclass(frozen=True, slots=True)
class Peaks:
    """Per instance type: the precision that the ranking assumes, and the peak at it."""

    peak: Floats
    told: tuple[tuple[str | None, float | None], ...]
    """The precision and the peak, null where there is none or it is not known."""
    unknown: TypeSet
    """The types whose peak is not known although they are rated by one."""
    key: Hashable
    """What they were assumed for."""


def assumed_peaks(
    task: str, precisions: tuple[str, ...], usual: tuple[str, ...], support: SupportAsked, catalog: Catalog
) -> Peaks:
    """Per type, the precision the work would run in, and its peak.

    That is the first of the caller's `precisions` that runs there, or the fastest `usual` one when the caller names
    none; where nothing is usual either, the task decides.
    """
    key = ("peaks", task, precisions, usual, support)
    return catalog.memory.get_or_compute(key, lambda: find_peaks(task, precisions, usual, support, catalog))


def usual_precisions(task: str, catalog: Catalog) -> tuple[str, ...]:
    """The precisions that a task can use when the caller names none; empty for work that needs no GPU."""
    return tuple(name for name in PRECISION_BY_TASK.get(task, ()) if name in catalog.reference.precisions)


def find_peaks(
    task: str, precisions: tuple[str, ...], usual: tuple[str, ...], support: SupportAsked, catalog: Catalog
) -> Peaks:
    key = (task, precisions, usual, support)
    types = len(catalog.instance_types)
    names = precisions or usual or usual_precisions(task, catalog)
    if not names:
        vcpus = catalog.columns.numbers["vcpus"]
        if task in ONE_AFTER_ANOTHER:
            vcpus = np.minimum(vcpus, 1.0)
        return Peaks(vcpus, tuple((None, known(peak)) for peak in vcpus.tolist()), types_where(np.isnan(vcpus)), key)
    enough = np.array([level in ENOUGH[support] for level in SUPPORT_LEVELS] + [False])
    peak, chosen = np.full(types, np.nan), np.full(types, -1)
    for code, name in enumerate(names):
        runs = enough[catalog.columns.support[name]]
        offered = catalog.columns.tflops[name]
        better = (chosen < 0) if precisions else (chosen < 0) | np.greater(offered, np.nan_to_num(peak))
        taken = runs & better
        peak[taken], chosen[taken] = offered[taken], code
    assumed = [None if code < 0 else names[code] for code in chosen.tolist()]
    told = tuple(zip(assumed, map(known, peak.tolist()), strict=True))
    return Peaks(peak, told, types_where(np.isnan(peak) & (chosen >= 0)), key)


def figures_of(some: CheapestOffers, peaks: Peaks, catalog: Catalog) -> Figures:
    price, speed = catalog.offers.usd_per_hour_at(some.offer), peaks.peak[some.instance_type]
    return Figures(
        usd=price,
        usd_per_hour=price,
        hours=1 / speed,
        speed=speed,
        paid_speed=speed,
        watts=catalog.columns.numbers["tdp_watts"][some.instance_type],
        risk=(catalog.offers.market[some.offer] == SPOT).astype(np.float64),
    )


def known(value: float) -> float | None:
    return None if isnan(value) else value
