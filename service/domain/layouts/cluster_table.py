"""Machines as columns, so that the physics meets all of them at once."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Mask, Number
from service.domain.cache import Cache
from service.domain.calibration.coefficients import Calibration, Column, Features, Levels, StepKind
from service.domain.catalog.hardware import Gpu
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.physics.cluster import DEFAULT_VCPUS_PER_GPU, Cluster
from service.domain.physics.features import hardware_features
from service.domain.physics.host_memory import host_parts
from service.domain.physics.memory import total
from service.domain.physics.parallelism import Floats
from service.domain.physics.resources import peaks, wide_precision


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Machines with as many GPUs, as many of them on one link: the same layouts can be laid on each."""

    gpus: int
    linked_gpus: int
    places: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """One row per machine. It depends on no workload: make it once for a catalog."""

    clusters: tuple[Cluster, ...]
    kinds: tuple[Gpu, ...]
    """The different GPUs."""
    kind: NDArray[np.int64]
    gpus: Floats
    gpus_per_node: Floats
    nodes: Floats
    linked_gpus: Floats
    memory_bandwidth: Floats
    link: Floats
    network: Floats
    vcpus_per_gpu: Floats
    usable_bytes: Floats
    host_memory_bytes: Floats
    """NaN where nobody tells."""
    features: dict[str, Column]
    shapes: tuple[ClusterShape, ...]
    same_but_host: NDArray[np.int64]
    """The first machine with the same GPUs and links; hosts matter to networks that wait for their input alone."""
    shapes_but_host: tuple[ClusterShape, ...]
    """With these first machines alone."""
    memory: Cache = field(default_factory=lambda: Cache(size=64), repr=False, compare=False)
    """What was worked out for works that are alike."""

    def hosts_fit(self, config: TrainingConfig | InferenceConfig, micro_batch: Number) -> Mask:
        """Whether host memory is enough, or unknown."""
        parts = host_parts(config, self.gpus_per_node, self.nodes, micro_batch)
        needed = np.broadcast_to(total(parts), len(self))
        return ~(needed > self.host_memory_bytes)

    def __len__(self) -> int:
        return len(self.clusters)

    def seconds_per_unit(self, config: TrainingConfig | InferenceConfig) -> dict[str, Floats]:
        """Of each resource, as `demands.seconds_per_unit` has it of one machine."""
        flops = np.array([peaks(config, gpu) for gpu in self.kinds]).reshape(-1, 2)[self.kind]
        return {
            "flops": 1 / flops[:, 0],
            "wide_flops": 1 / flops[:, 1],
            "memory": 1 / self.memory_bandwidth,
            "link": 1 / self.link,
            "slow_link": 1 / np.minimum(self.link, self.network),
            "network": 1 / self.network,
            "vcpu": 1 / self.vcpus_per_gpu,
            "seconds": np.ones(len(self)),
        }

    def costs(
        self,
        calibration: Calibration,
        kind: StepKind,
        config: TrainingConfig | InferenceConfig,
        features: Features,
        keys: Sequence[tuple[str, str]],
    ) -> Floats:
        """Seconds that a unit of each term's resource takes on each machine, as far as machines decide it."""
        read = self.memory.get_or_compute(
            ("read", calibration, kind), lambda: calibration.read_beside(kind, self.features)
        )
        key = (calibration, kind, config.precision, wide_precision(config), *map(features.get, read), *keys)
        return self.memory.get_or_compute(key, lambda: self._costs(calibration, kind, config, features, keys))

    def _costs(
        self,
        calibration: Calibration,
        kind: StepKind,
        config: TrainingConfig | InferenceConfig,
        features: Features,
        keys: Sequence[tuple[str, str]],
    ) -> Floats:
        rates, whole = self.seconds_per_unit(config), calibration.log_factors(kind, "*", features, self.features)
        factors = {
            term: np.exp(calibration.log_factors(kind, term, features, self.features) + whole) for term in dict(keys)
        }
        return np.column_stack([rates[resource] * factors[term] for term, resource in keys])


def key_of(cluster: Cluster) -> Hashable:
    """What makes two machines the same to the physics; instance types of many names share it."""
    return (*gpu_key(cluster), cluster.vcpus_per_gpu, cluster.host_memory_bytes)


def gpu_key(cluster: Cluster) -> tuple[Hashable, ...]:
    """The same without what the host is."""
    return (
        cluster.gpu.id,
        cluster.gpus_per_node,
        cluster.nodes,
        cluster.interconnect,
        cluster.link_bytes_per_second,
        cluster.network_bytes_per_second,
        cluster.linked_gpus,
    )


def distinct(clusters: Iterable[Cluster]) -> tuple[tuple[Cluster, ...], NDArray[np.int64]]:
    """The machines that differ, and which of them each of the given ones is."""
    place_of: dict[Hashable, int] = {}
    found: list[Cluster] = []
    places = []
    for cluster in clusters:
        key = key_of(cluster)
        if key not in place_of:
            place_of[key] = len(found)
            found.append(cluster)
        places.append(place_of[key])
    return tuple(found), np.array(places, dtype=np.int64)


def cluster_table(clusters: Sequence[Cluster]) -> ClusterTable:
    def column(name: str) -> Floats:
        return np.array([getattr(cluster, name) for cluster in clusters], dtype=np.float64)

    kinds = {cluster.gpu.id: cluster.gpu for cluster in clusters}
    places = {name: place for place, name in enumerate(kinds)}
    vcpus = [cluster.vcpus_per_gpu or DEFAULT_VCPUS_PER_GPU for cluster in clusters]
    shapes, same = _shapes(clusters), _first_places([gpu_key(cluster) for cluster in clusters])
    return ClusterTable(
        clusters=tuple(clusters),
        kinds=tuple(kinds.values()),
        kind=np.array([places[cluster.gpu.id] for cluster in clusters], dtype=np.int64),
        gpus=column("gpus"),
        gpus_per_node=column("gpus_per_node"),
        nodes=column("nodes"),
        linked_gpus=column("linked_gpus"),
        memory_bandwidth=column("memory_bandwidth"),
        link=column("link_bytes_per_second"),
        network=column("network_bytes_per_second"),
        vcpus_per_gpu=np.array(vcpus, dtype=np.float64),
        usable_bytes=column("usable_bytes"),
        host_memory_bytes=column("host_memory_bytes"),
        features=_fact_columns(clusters),
        shapes=shapes,
        same_but_host=same,
        shapes_but_host=shapes_among(shapes, same == np.arange(len(clusters))),
    )


def shapes_among(shapes: Sequence[ClusterShape], wanted: Mask) -> tuple[ClusterShape, ...]:
    """The shapes of the wanted machines."""
    found = (ClusterShape(s.gpus, s.linked_gpus, s.places[wanted[s.places]]) for s in shapes)
    return tuple(shape for shape in found if len(shape.places))


def _first_places(keys: Sequence[Hashable]) -> NDArray[np.int64]:
    first: dict[Hashable, int] = {}
    return np.array([first.setdefault(key, place) for place, key in enumerate(keys)], dtype=np.int64)


def _fact_columns(clusters: Sequence[Cluster]) -> dict[str, Column]:
    rows = [hardware_features(cluster) for cluster in clusters]
    columns: dict[str, Column] = {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        if isinstance(values[0], str):
            levels = {level: place for place, level in enumerate(dict.fromkeys(values))}
            codes = np.array([levels[value] for value in values], dtype=np.int64)
            columns[name] = Levels(tuple(str(level) for level in levels), codes)
        else:
            columns[name] = np.array(values, dtype=np.float64)
    return columns


def _shapes(clusters: Sequence[Cluster]) -> tuple[ClusterShape, ...]:
    found: dict[tuple[int, int], list[int]] = {}
    for place, cluster in enumerate(clusters):
        found.setdefault((cluster.gpus, cluster.linked_gpus), []).append(place)
    return tuple(ClusterShape(*key, np.array(places, dtype=np.int64)) for key, places in found.items())
