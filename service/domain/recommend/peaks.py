"""The precision in which work without a job would run on each instance type, and its peak there."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Floats, known
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.precision import ENOUGH, SUPPORT_LEVELS, USUAL_PRECISIONS, SupportAsked
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


class PeaksAsked(NamedTuple):
    """The parts of a question that determine the precision which a ranking by peaks assumes on each instance type."""

    task: str
    precisions: tuple[str, ...]
    """Precisions that the caller names."""
    usual: tuple[str, ...]
    """Precisions of which the fastest counts if the caller names none; empty: the usual ones of the task."""
    support: SupportAsked


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """The precision that the ranking assumes on each instance type, and the peak in it."""

    asked: PeaksAsked
    peak: Floats
    assumed: tuple[tuple[str | None, float | None], ...]
    """Precision and peak of each type; None where a type has none or it is unknown."""
    unknown: TypeSet
    """Types that run such a precision at an unknown peak."""


def assumed_peaks(asked: PeaksAsked, catalog: Catalog) -> Peaks:
    """Returns the precision in which the workload would run on each type, and its peak; cached.

    It is the first of the caller's `precisions` that the type runs at a known peak, else the first that it runs.
    Without `precisions`, it is the fastest of `usual`, or of the usual ones of the task if `usual` is empty too.
    """
    return catalog.derive(_find_peaks, asked)


def usual_precisions(task: str, catalog: Catalog) -> tuple[str, ...]:
    """Returns the precisions that a task can use if the caller names none; empty for work that needs no GPU."""
    return tuple(name for name in PRECISION_BY_TASK.get(task, ()) if name in catalog.reference.precisions)


def _find_peaks(catalog: Catalog, asked: PeaksAsked) -> Peaks:
    task, precisions, usual, support = asked
    names = precisions or usual or usual_precisions(task, catalog)
    if not names:
        vcpus = catalog.columns.numbers["vcpus"]
        if task in SERIAL_TASKS:
            # One core, or less on a machine with less.
            vcpus = np.minimum(vcpus, 1.0)
        pairs = tuple((None, known(peak)) for peak in vcpus.tolist())
        return Peaks(asked, vcpus, pairs, types_where(np.isnan(vcpus)))
    enough = np.array([level in ENOUGH[support] for level in SUPPORT_LEVELS] + [False])
    types = len(catalog.instance_types)
    peak, chosen = np.full(types, np.nan), np.full(types, -1)
    for code, name in enumerate(names):
        tflops = catalog.columns.tflops[name]
        # Of the caller's precisions the first with a known peak counts, so that a longer list never rejects more types.
        better = (chosen < 0) | (np.isnan(peak) & ~np.isnan(tflops) if precisions else tflops > np.nan_to_num(peak))
        taken = enough[catalog.columns.support[name]] & better
        peak[taken], chosen[taken] = tflops[taken], code
    assumed = [None if code < 0 else names[code] for code in chosen.tolist()]
    of_types = tuple(zip(assumed, map(known, peak.tolist()), strict=True))
    return Peaks(asked, peak, of_types, types_where(np.isnan(peak) & (chosen >= 0)))
