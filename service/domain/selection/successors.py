"""Machines that a newer one of the same provider beats or equals in price, peak, memory and links."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.domain.arrays import Floats, read_only
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import number_column
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.physics.input_pipeline import USUAL_CORES_PER_GPU

_AT_LEAST_AS_GOOD: tuple[Callable[[InstanceType], float | None], ...] = (
    lambda instance_type: instance_type.total_gpu_memory_gb,
    lambda instance_type: instance_type.gpu.memory_gb if instance_type.gpu else None,
    lambda instance_type: _total_bandwidth(instance_type),
    lambda instance_type: instance_type.interconnect not in ("none", "pcie", None),
)
"""Memory of all GPUs and of each, total bandwidth, and fast links. An unknown figure is never at least as good."""


@dataclass(frozen=True, slots=True)
class Successor:
    """The newer machine, with both prices (US dollars per hour on demand) and peaks (10^12 operations per second)."""

    instance_type: InstanceType
    usd_per_hour: float
    old_usd_per_hour: float
    peak_tflops: float
    old_peak_tflops: float


def successor(index: int, catalog: Catalog) -> Successor | None:
    """Returns the machine with the most peak per dollar among those that supersede an instance type; cached."""
    return catalog.derive(_successors).get(index)


def best_peak(instance_type: InstanceType) -> float:
    """Returns the peak of all GPUs at the fastest usual precision; NaN if none is known."""
    gpu = instance_type.gpu
    peaks = [instance_type.tflops(name) for name in USUAL_PRECISIONS if gpu and gpu.runs(name)]
    return max((peak for peak in peaks if peak is not None), default=np.nan)


def on_demand_prices(catalog: Catalog) -> Floats:
    """Returns the lowest on-demand price of each instance type in any region; NaN if unknown."""
    offers, default = catalog.offers, catalog.default_offers
    if not len(offers):
        return read_only(np.full(len(default), np.nan))
    # A default offer is on demand if the type has any such offer with a known price.
    on_demand = offers.market[default] == MARKETS.index("on_demand")
    return read_only(np.where(on_demand, offers.usd_per_hour_at(default), np.nan))


def _successors(catalog: Catalog) -> dict[int, Successor]:
    """Compares machines of one provider, service, GPU vendor and CPU architecture; a newer GPU must be faster."""
    comparable = defaultdict[tuple[str, str, str, str | None], list[int]](list)
    for index, instance_type in enumerate(catalog.instance_types):
        if instance_type.gpu is not None and _release_year(instance_type) is not None:
            vendor = instance_type.gpu.vendor
            key = (instance_type.provider, instance_type.service, vendor, instance_type.cpu_architecture)
            comparable[key].append(index)
    successors = {}
    for indices in comparable.values():
        successors.update(_successors_among(indices, catalog))
    return successors


def _successors_among(indices: list[int], catalog: Catalog) -> dict[int, Successor]:
    types = [catalog.instance_types[index] for index in indices]
    usd = catalog.derive(on_demand_prices)[indices]
    peak = number_column([best_peak(instance_type) for instance_type in types])
    year = number_column([_release_year(instance_type) for instance_type in types])
    available = np.array([instance_type.state_on(catalog.day) == "available" for instance_type in types])
    cores = number_column([instance_type.vcpus for instance_type in types])
    plenty = USUAL_CORES_PER_GPU[-1] * number_column([instance_type.whole_gpus for instance_type in types])
    columns = [number_column([figure(instance_type) for instance_type in types]) for figure in _AT_LEAST_AS_GOOD]
    successors = {}
    for old, index in enumerate(indices):
        better = available & (year > year[old]) & (usd <= usd[old]) & (peak > peak[old])
        # Fewer cores than before are enough if they can feed the GPUs.
        better &= np.isnan(cores[old]) | (cores >= np.minimum(plenty, cores[old]))
        for column in columns:
            better &= column >= column[old]
        if better.any():
            new = int(np.argmax(np.where(better, peak / usd, -np.inf)))
            figures = (usd[new], usd[old], peak[new], peak[old])
            successors[index] = Successor(types[new], *map(float, figures))
    return successors


def _total_bandwidth(instance_type: InstanceType) -> float | None:
    bandwidth = instance_type.gpu.memory_bandwidth_gb_per_second if instance_type.gpu else None
    return None if bandwidth is None else bandwidth * instance_type.gpu_count


def _release_year(instance_type: InstanceType) -> int | None:
    """Returns the year of the card; parts of a card have no date."""
    gpu = instance_type.gpu
    return int(gpu.released_on[:4]) if gpu and gpu.released_on else None
