"""Successors of instance types: newer machines of the same provider that are faster and in nothing worse.

A successor has a newer GPU and a higher peak, costs no more, and has at least the memory, bandwidth, links and cores.
"""

from dataclasses import dataclass

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import number_column
from service.domain.catalog.hardware import SLOW_LINKS, InstanceType
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.groups import grouped
from service.domain.physics.input_pipeline import USUAL_CORES_PER_GPU


@dataclass(frozen=True, slots=True)
class Successor:
    """A newer machine, with the prices (US dollars per hour on demand) and peaks (TFLOP/s) of both machines."""

    instance_type: InstanceType
    usd_per_hour: float
    old_usd_per_hour: float
    peak_tflops: float
    old_peak_tflops: float


def successor(index: int, catalog: Catalog) -> Successor | None:
    """Returns the successor of an instance type with the most peak per dollar; None if it has none. Cached."""
    return catalog.derive(_successors).get(index)


def best_peak(instance_type: InstanceType) -> float:
    """Returns the peak of all GPUs at the fastest usual precision; NaN if none is known."""
    _, peak = instance_type.fastest(USUAL_PRECISIONS)
    return np.nan if peak is None else peak


def _successors(catalog: Catalog) -> dict[int, Successor]:
    """Compares the machines of each provider, service, GPU vendor and CPU architecture."""
    comparable = grouped(
        ((type_.provider, type_.service, type_.gpu.vendor, type_.cpu_architecture), index)
        for index, type_ in enumerate(catalog.instance_types)
        # Parts of a card have no release date.
        if type_.gpu is not None and type_.gpu.released_year is not None
    )
    successors = {}
    for indices in comparable.values():
        successors.update(_successors_among(list(indices), catalog))
    return successors


def _successors_among(indices: list[int], catalog: Catalog) -> dict[int, Successor]:
    types = [catalog.instance_types[index] for index in indices]
    numbers = {name: column[indices] for name, column in catalog.columns.numbers.items()}
    usd = catalog.on_demand_prices[indices]
    peak = number_column([best_peak(instance_type) for instance_type in types])
    available = np.array([instance_type.state_on(catalog.day) == "available" for instance_type in types])
    # An unknown figure is NaN, which is never at least as good.
    at_least_as_good = (
        numbers["total_gpu_memory_gb"],
        numbers["gpu_memory_gb"],
        number_column([instance_type.total_bandwidth_gb_per_second for instance_type in types]),
        np.array([instance_type.interconnect not in SLOW_LINKS for instance_type in types]),
    )
    year, cores = numbers["gpu_released_year"], numbers["vcpus"]
    enough_cores = USUAL_CORES_PER_GPU[-1] * numbers["gpu_count"]
    successors = {}
    for old, index in enumerate(indices):
        better = available & (year > year[old]) & (usd <= usd[old]) & (peak > peak[old])
        # Fewer cores than before are enough if they can feed the GPUs.
        better &= np.isnan(cores[old]) | (cores >= np.minimum(enough_cores, cores[old]))
        for column in at_least_as_good:
            better &= column >= column[old]
        if better.any():
            new = int(np.argmax(np.where(better, peak / usd, -np.inf)))
            figures = (usd[new], usd[old], peak[new], peak[old])
            successors[index] = Successor(types[new], *map(float, figures))
    return successors
