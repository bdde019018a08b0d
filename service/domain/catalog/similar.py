"""Instance types that are similar to a given one, and which figures a move to them raises or lowers."""

from dataclasses import dataclass

import numpy as np

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import RENTED

FIGURES = (
    "gpu_count", "gpu_memory_gb", "total_gpu_memory_gb", "memory_bandwidth_gb_per_second", "vcpus", "memory_gib",
    "network_gbps",
)  # fmt: skip
RATES = ("fp32", "fp16", "bf16")
"""Precisions whose peaks enter the distance; more would count the same matrix engine several times."""

UNKNOWN_APART = np.log(2.0)
"""Logarithm of the ratio that is assumed for a figure that is unknown for one of two types: a factor of two."""


@dataclass(frozen=True, slots=True)
class SpecChange:
    """A figure of the given type (`here`) and of the similar type (`there`)."""

    figure: str
    here: float
    there: float

    @property
    def ratio(self) -> float:
        """The figure of the similar type / that of the given type."""
        return self.there / self.here


@dataclass(frozen=True, slots=True)
class Similar:
    """An instance type, by index, that is similar to the given one, with the figures that are higher or lower there."""

    index: int
    distance: float
    gains: tuple[SpecChange, ...]
    loses: tuple[SpecChange, ...]
    precisions_gained: tuple[str, ...]
    precisions_lost: tuple[str, ...]


def similar_types(catalog: Catalog, index: int, limit: int) -> list[Similar]:
    """Returns up to `limit` types that some customers can rent, the nearest first, without the type itself.

    The distance is the root mean square, over all figures, of the logarithm of the ratio of a figure.
    """
    rates = {f"{name}_tflops": catalog.columns.tflops[name] for name in RATES if name in catalog.columns.tflops}
    columns = {name: catalog.columns.numbers[name] for name in FIGURES} | rates
    # With logarithms of ratios, twice and half of a figure are equally far, and units do not matter.
    squares = np.zeros(len(catalog.instance_types))
    for column in columns.values():
        # A figure may be 0, such as the memory of a machine without a GPU.
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = np.log(column / column[index])
        same = (column == column[index]) | (np.isnan(column) & np.isnan(column[index]))
        squares += np.where(same, 0.0, np.where(np.isfinite(apart), apart, UNKNOWN_APART)) ** 2
    distance = np.sqrt(squares / len(columns))
    eligible = catalog.columns.words["lifecycle"].among(RENTED)
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
