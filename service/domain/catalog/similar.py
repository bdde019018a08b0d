"""Instance types that are similar to one, and the gains and losses of moving there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog

FIGURES = (
    "gpu_count", "gpu_memory_gb", "total_gpu_memory_gb", "memory_bandwidth_gb_per_second", "vcpus", "memory_gib",
    "network_gbps",
)  # fmt: skip
RATES = ("fp32", "fp16", "bf16")
"""Peaks that enter the distance; others would count one engine several times."""

UNKNOWN_APART = np.log(2.0)
"""Distance for a figure that is known of only one of two types: as if they differed by a factor of two."""


@dataclass(frozen=True, slots=True)
class SpecChange:
    """A figure here and there; `ratio` is there by here."""

    figure: str
    here: float
    there: float

    @property
    def ratio(self) -> float:
        """Returns the figure of the similar type over that of the type asked about."""
        return self.there / self.here


@dataclass(frozen=True, slots=True)
class Similar:
    """A type that is similar to another one."""

    index: int
    distance: float
    gains: tuple[SpecChange, ...]
    loses: tuple[SpecChange, ...]
    precisions_gained: tuple[str, ...]
    precisions_lost: tuple[str, ...]


def similar_types(catalog: Catalog, index: int, lifecycles: Sequence[str], limit: int) -> list[Similar]:
    """Returns the nearest types in these lifecycle states, nearest first; the type itself is left out.

    The distance is the root mean square of the logarithms of the ratios of all figures.
    """
    rates = {f"{name}_tflops": catalog.columns.tflops[name] for name in RATES if name in catalog.columns.tflops}
    columns = {name: catalog.columns.numbers[name] for name in FIGURES} | rates
    # Logarithms of ratios, so that twice and half of a figure are equally far, whatever its unit.
    squares = np.zeros(len(catalog.instance_types))
    for column in columns.values():
        # A figure may be 0, such as the memory of a machine without a GPU.
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.log(column / column[index])
        same = (column == column[index]) | (np.isnan(column) & np.isnan(column[index]))
        squares += np.where(same, 0.0, np.where(np.isfinite(apart), apart, UNKNOWN_APART)) ** 2
    distance = np.sqrt(squares / len(columns))
    eligible = catalog.columns.words["lifecycle"].among(lifecycles)
    eligible[index] = False
    nearest = sorted(np.flatnonzero(eligible).tolist(), key=lambda other: (float(distance[other]), other))[:limit]
    return [_compared(catalog, columns, index, other, float(distance[other])) for other in nearest]


def _compared(catalog: Catalog, columns: dict[str, Floats], here: int, there: int, distance: float) -> Similar:
    changes = [
        SpecChange(name, float(column[here]), float(column[there]))
        for name, column in columns.items()
        if column[here] > 0 and column[there] > 0 and column[here] != column[there]
    ]
    runs_here, runs_there = _precisions(catalog, here), _precisions(catalog, there)
    return Similar(
        index=there,
        distance=distance,
        gains=tuple(change for change in changes if change.there > change.here),
        loses=tuple(change for change in changes if change.there < change.here),
        precisions_gained=tuple(sorted(runs_there - runs_here)),
        precisions_lost=tuple(sorted(runs_here - runs_there)),
    )


def _precisions(catalog: Catalog, index: int) -> set[str]:
    gpu = catalog.instance_types[index].gpu
    return {name for name in gpu.rates if gpu.runs(name)} if gpu else set()
