"""Machines that a newer one of the same provider beats in everything that is asked of most: price, peak, memory."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from service.domain.arrays import Floats
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.columns import number_column
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.physics.input_pipeline import USUAL_CORES_PER_GPU


@dataclass(frozen=True, slots=True)
class Successor:
    """The newer machine, and both in dollars per hour on demand and 10^12 operations per second at peak."""

    instance_type: InstanceType
    usd_per_hour: float
    old_usd_per_hour: float
    peak_tflops: float
    old_peak_tflops: float


def successor(place: int, catalog: Catalog) -> Successor | None:
    """The one with the most peak per dollar among those that beat the machine; nothing where none does."""
    return catalog.memory.get_or_compute("superseded", lambda: successors(catalog)).get(place)


def successors(catalog: Catalog) -> dict[int, Successor]:
    """Newer by the year of the card, of the same makers, no dearer, faster, and with no less of what work may need."""
    alike: dict[tuple[str, str, str, str | None], list[int]] = {}
    for place, kind in enumerate(catalog.instance_types):
        if kind.gpu is not None and release_year(kind) is not None:
            key = (kind.provider, kind.service, kind.gpu.vendor, kind.cpu_architecture)
            alike.setdefault(key, []).append(place)
    found = {}
    for places in alike.values():
        found.update(successors_among(places, catalog))
    return found


def successors_among(places: list[int], catalog: Catalog) -> dict[int, Successor]:
    kinds = [catalog.instance_types[place] for place in places]
    usd = on_demand_prices(places, catalog)
    peak = number_column([best_peak(kind) for kind in kinds])
    year = number_column([release_year(kind) for kind in kinds])
    rentable = np.array([kind.state_on(catalog.day) == "available" for kind in kinds])
    cores = number_column([kind.vcpus for kind in kinds])
    plenty = USUAL_CORES_PER_GPU[-1] * number_column([kind.whole_gpus for kind in kinds])
    has_more = [number_column([read(kind) for kind in kinds]) for read in NO_LESS]
    found = {}
    for old, place in enumerate(places):
        better = rentable & (year > year[old]) & (usd <= usd[old]) & (peak > peak[old])
        better &= np.isnan(cores[old]) | (cores >= np.minimum(plenty, cores[old]))
        for column in has_more:
            better &= column >= column[old]
        if better.any():
            new = int(np.argmax(np.where(better, peak / usd, -np.inf)))
            found[place] = Successor(kinds[new], float(usd[new]), float(usd[old]), float(peak[new]), float(peak[old]))
    return found


NO_LESS: tuple[Callable[[InstanceType], float | None], ...] = (
    lambda kind: kind.total_gpu_memory_gb,
    lambda kind: kind.gpu.memory_gb if kind.gpu else None,
    lambda kind: total_bandwidth(kind),
    lambda kind: kind.interconnect not in ("none", "pcie", None),
)
"""Memory of all GPUs and of each, how fast it is, and fast links; what is not known is never shown to be no less."""


def total_bandwidth(kind: InstanceType) -> float | None:
    one = kind.gpu.memory_bandwidth_gb_per_second if kind.gpu else None
    return None if one is None else one * kind.gpu_count


def on_demand_prices(places: list[int], catalog: Catalog) -> Floats:
    """The lowest of each type anywhere; NaN where none is known."""
    offers, default = catalog.offers, catalog.default_offers[places]
    known = (default >= 0) & (offers.market[default] == 0) if len(offers) else np.zeros(len(places), np.bool_)
    return np.where(known, offers.usd_per_hour[default] if len(offers) else np.nan, np.nan)


def best_peak(kind: InstanceType) -> float:
    """Of all its GPUs; NaN where none is known."""
    peaks = [kind.tflops(name) for name in USUAL_PRECISIONS if kind.gpu and kind.gpu.runs(name)]
    return max((peak for peak in peaks if peak is not None), default=np.nan)


def release_year(kind: InstanceType) -> int | None:
    """Of a whole card; nobody dates the parts of one."""
    return int(kind.gpu.released_on[:4]) if kind.gpu and kind.gpu.released_on else None
