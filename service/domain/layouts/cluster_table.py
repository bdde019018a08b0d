"""Clusters as columns, so that the formulas are evaluated for all of them at once."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import log
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from service.domain.arrays import Floats, Indices, Mask, Number
from service.domain.calibration.calibration import Calibration
from service.domain.calibration.coefficients import Coefficients, Column, Features, Levels, StepKind
from service.domain.calibration.error_bands import bands_by_gpu
from service.domain.catalog.hardware import Gpu
from service.domain.groups import one_of_each
from service.domain.jobs.config import Config
from service.domain.physics.cluster import Cluster, gpus_of_a_slice
from service.domain.physics.features import hardware_features
from service.domain.physics.host_memory import BytesByLayout, host_parts
from service.domain.physics.resources import seconds_per_flop, seconds_per_unit_of_hardware

COLUMNS = ("gpus", "gpus_per_node", "nodes", "linked_gpus", "usable_bytes", "host_memory_bytes")
"""Columns of numbers; NaN where a figure of a cluster is None."""

SEVERAL = 2
"""A number of nodes for the features that are the same on any number above one."""


@dataclass(frozen=True, slots=True)
class ConfigFactors:
    """Calibration factors of one configuration, in rows that differ by columns of features."""

    coefficients: Coefficients
    features: Features

    def log_of(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        """Logarithm of the factor of a term, in each row: the sum of its coefficients."""
        return self.coefficients.log_factor(kind, term, self.features) + self.of_columns(kind, term, columns)

    def of_columns(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        """The part of `log_of` whose coefficients the columns select, in each row."""
        return self.coefficients.log_factors(kind, term, self.features, columns)

    def of(self, kind: StepKind, term: str, columns: Mapping[str, Column]) -> Number:
        """Factor between the ideal and the expected amount of a term, in each row."""
        return kind.start.get(term, 1.0) * np.exp(self.log_of(kind, term, columns))

    def total(self, kind: StepKind, amounts: Mapping[str, Number], columns: Mapping[str, Column]) -> Number:
        """Sum of the calibrated amounts of all terms, in each row."""
        parts = sum(amount * self.of(kind, term, columns) for term, amount in amounts.items())
        return parts * self.of(kind, "*", columns)


Size: TypeAlias = tuple[int, int, int]
"""GPUs of a cluster, GPUs on one fast link, and most GPUs that may share a copy of a model."""


class ClusterShape(NamedTuple):
    """Clusters of one size: the same layouts are possible on each."""

    size: Size
    indices: Indices


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """Clusters as columns, one row each. A table depends on no workload, so all requests to a catalog share it."""

    machines: "Machines"
    machine: Indices
    """Index in `machines` of the hardware of each cluster, which has its own number of nodes."""
    gpu_types: tuple[Gpu, ...]
    """The different GPUs of the clusters."""
    gpu_type: Indices
    """Index of each cluster's GPU in `gpu_types`."""
    linked_type: Indices
    """A number for each GPU with a fast link: clusters with equal numbers differ only in their size and network."""
    gpus: Floats
    gpus_per_node: Floats
    nodes: Floats
    linked_gpus: Floats
    usable_bytes: Floats
    host_memory_bytes: Floats
    """NaN where unknown."""
    more_features: dict[str, Column]
    """Features that do not follow from the machine of a cluster."""
    sizes: tuple[Size, ...]
    """The different sizes of the clusters."""
    size: Indices
    """Index of each cluster's size in `sizes`."""
    by_gpus: "ClusterTable | None"
    """A table with one cluster of each group that differs in hosts alone; None if there are no such groups. Hosts
    matter only to networks that wait for their input."""
    row_by_gpus: Indices
    """Row of each cluster in `by_gpus`."""

    def __len__(self) -> int:
        return len(self.gpus)

    @property
    def clusters(self) -> list[Cluster]:
        """The cluster of each row."""
        return [
            replace(self.machines.clusters[machine], nodes=int(nodes))
            for machine, nodes in zip(self.machine.tolist(), self.nodes.tolist(), strict=True)
        ]

    @property
    def unit_seconds(self) -> dict[str, Floats]:
        """Seconds per unit of each resource that does not depend on the precision."""
        return {name: seconds[self.machine] for name, seconds in self.machines.unit_seconds.items()}

    @property
    def features(self) -> dict[str, Column]:
        """Features of each cluster."""
        rows = 2 * self.machine + (self.nodes > 1)
        return {**_rows_of(self.machines.features, rows), **self.more_features}

    @property
    def without_hosts(self) -> "ClusterTable":
        """The table of clusters that differ in GPUs or links."""
        return self if self.by_gpus is None else self.by_gpus

    def shapes(self) -> tuple[ClusterShape, ...]:
        """Returns the clusters by their size."""
        order = np.argsort(self.size, kind="stable")
        starts = np.searchsorted(self.size[order], np.arange(len(self.sizes) + 1)).tolist()
        ranges = zip(self.sizes, pairwise(starts), strict=True)
        return tuple(ClusterShape(size, order[start:end]) for size, (start, end) in ranges if start < end)

    def own_sizes(self) -> tuple[list[Size], Indices]:
        """Returns the sizes that these clusters have, and the index of each cluster's size among them."""
        present, size = _renumbered(self.size)
        return [self.sizes[index] for index in present.tolist()], size

    def rows(self, indices: Indices) -> "ClusterTable":
        """Returns the clusters at these indices, in a small part of the time that a new table takes."""
        gpu_types, gpu_type = _renumbered(self.gpu_type[indices])
        by_gpus, row_by_gpus = _renumbered(self.row_by_gpus[indices])
        return ClusterTable(
            machines=self.machines,
            machine=self.machine[indices],
            gpu_types=tuple([self.gpu_types[index] for index in gpu_types.tolist()]),
            gpu_type=gpu_type,
            **{name: getattr(self, name)[indices] for name in ("linked_type", *COLUMNS)},
            more_features=_rows_of(self.more_features, indices),
            sizes=self.sizes,
            size=self.size[indices],
            by_gpus=None if self.by_gpus is None else self.by_gpus.rows(by_gpus),
            row_by_gpus=row_by_gpus,
        )

    def hosts_fit(self, config: Config, held: BytesByLayout) -> Mask:
        """Whether the host memory of each cluster is enough, or unknown."""
        needed = sum(host_parts(config, self.gpus_per_node, self.nodes, *held).values())
        return ~(np.broadcast_to(needed, len(self)) > self.host_memory_bytes)

    def hosts_fit_by_layout(self, config: Config, rows: slice, held: Floats) -> Mask:
        """Whether host memory is enough, or unknown: a row for each of these clusters, a column per layout.

        A row of `held` has the bytes of a layout.
        """
        distinct, column_of = np.unique(held, axis=0, return_inverse=True)
        fits = np.column_stack([self.hosts_fit(config, BytesByLayout(*each))[rows] for each in distinct.tolist()])
        return fits[:, column_of]

    def factors(self, factors: ConfigFactors, kind: StepKind, terms: Iterable[str]) -> dict[str, Floats]:
        """The part of each term's factor that depends on the cluster, for each cluster."""
        log_factors = partial(factors.coefficients.log_factors, kind, features=factors.features, columns=self.features)
        whole = np.exp(np.zeros(len(self)) + log_factors("*"))
        return {term: whole * np.exp(log_factors(term)) for term in terms}

    def rates(self, configs: Iterable[Config]) -> dict[str, Floats]:
        """Seconds per unit of each resource on each cluster at its rated speed, with a configuration for each of
        `gpu_types`.
        """
        per_flop = [seconds_per_flop(config, gpu) for gpu, config in zip(self.gpu_types, configs, strict=False)]
        flops = {name: np.array([gpu[name] for gpu in per_flop])[self.gpu_type] for name in ("flops", "wide_flops")}
        return flops | self.unit_seconds

    def surely(self, margin: float) -> "ClusterTable":
        """Returns the clusters with so little memory that what likely fits there fits with a `memory_margin`."""
        return replace(self, usable_bytes=self.usable_bytes / margin)

    def bands(self, calibration: Calibration, kind: StepKind, factors: ConfigFactors) -> Floats:
        """Low, likely and high rates of each cluster, as factors of the calibrated rate."""
        gpus = [{"gpu": gpu.id, "architecture": gpu.architecture} for gpu in self.gpu_types]
        return bands_by_gpu(calibration.coefficients, calibration.bands, kind, factors.features, gpus)[self.gpu_type]


def distinct(clusters: Sequence[Cluster]) -> tuple[tuple[Cluster, ...], Indices]:
    """Returns the clusters whose nodes differ in hardware, and the index among them of each given cluster.

    Many instance types have the same hardware.
    """
    return one_of_each(clusters, [(*_gpu_key(each), each.vcpus_per_gpu, each.host_memory_bytes) for each in clusters])


def cluster_table(clusters: Sequence[Cluster]) -> ClusterTable:
    """Returns the clusters as a table."""
    nodes = np.array([cluster.nodes for cluster in clusters], np.int64)
    return Machines.of(clusters).in_clusters(np.arange(len(clusters)), nodes)


@dataclass(frozen=True, slots=True)
class Machines:
    """Nodes as columns, which become tables of clusters with any numbers of them without a loop over clusters."""

    clusters: tuple[Cluster, ...]
    """Each node in some cluster."""
    gpu_types: tuple[Gpu, ...]
    gpu_type: Indices
    linked_type: Indices
    without_host: Indices
    """A number for each group that differs in hosts alone."""
    gpus: Floats
    most_linked: Floats
    slices: dict[int, tuple[int, ...]]
    """Sizes of slices by the index of a node that forms slices."""
    network_known: Mask
    usable_bytes: Floats
    host_memory_bytes: Floats
    unit_seconds: dict[str, Floats]
    features: dict[str, Levels]
    """Names that are features, in two rows for each node: one for a single node, and one for several nodes."""

    @staticmethod
    def of(clusters: Sequence[Cluster]) -> "Machines":
        """Returns the nodes of the clusters."""
        gpu_types, gpu_type = one_of_each([each.gpu for each in clusters], [each.gpu.id for each in clusters])
        linked = [(each.gpu.id, each.interconnect, each.link_bytes_per_second) for each in clusters]
        seconds = [seconds_per_unit_of_hardware(each) for each in clusters]
        return Machines(
            clusters=tuple(clusters),
            gpu_types=gpu_types,
            gpu_type=gpu_type,
            linked_type=one_of_each(linked, linked)[1],
            without_host=one_of_each(clusters, map(_gpu_key, clusters))[1],
            gpus=np.array([each.gpus_per_node for each in clusters], np.float64),
            most_linked=np.array([each.most_linked_gpus for each in clusters], np.float64),
            slices={index: each.slice_sizes for index, each in enumerate(clusters) if each.slice_sizes},
            network_known=np.array([each.network_known for each in clusters], np.bool_),
            usable_bytes=np.array([each.usable_bytes for each in clusters], np.float64),
            host_memory_bytes=np.array([each.host_memory_bytes for each in clusters], np.float64),
            unit_seconds={name: np.array([each[name] for each in seconds]) for name in (seconds[0] if seconds else ())},
            features=_names_of_features(clusters),
        )

    def in_clusters(self, machine: Indices, nodes: Indices) -> ClusterTable:
        """Returns a table of clusters. Row i has `nodes[i]` nodes, each of them the machine with index `machine[i]`."""
        gpus = self.gpus[machine] * nodes
        linked_gpus = np.minimum(self.most_linked[machine], gpus)
        for index, of_slices in self.slices.items():
            sliced = machine == index
            linked_gpus[sliced] = gpus_of_a_slice(gpus[sliced], of_slices)
        sizes, size = _distinct_rows(gpus, linked_gpus, np.where(self.network_known[machine], gpus, linked_gpus))
        table = ClusterTable(
            machines=self,
            machine=machine,
            gpu_types=self.gpu_types,
            gpu_type=self.gpu_type[machine],
            linked_type=self.linked_type[machine],
            gpus=gpus,
            gpus_per_node=self.gpus[machine],
            nodes=nodes.astype(np.float64),
            linked_gpus=linked_gpus,
            usable_bytes=self.usable_bytes[machine],
            host_memory_bytes=self.host_memory_bytes[machine],
            more_features={"log_gpus": np.array([log(number) for number in gpus.tolist()])},
            sizes=sizes,
            size=size,
            by_gpus=None,
            row_by_gpus=np.arange(len(machine)),
        )
        _, row_by_gpus = _distinct_rows(self.without_host[machine], nodes)
        first = np.unique(row_by_gpus, return_index=True)[1]
        return table if len(first) == len(table) else replace(table, by_gpus=table.rows(first), row_by_gpus=row_by_gpus)


def _gpu_key(cluster: Cluster) -> tuple[Hashable, ...]:
    links = cluster.link_bytes_per_second, cluster.network_bytes_per_second, cluster.network_known
    return (cluster.gpu.id, cluster.gpus_per_node, cluster.interconnect, *links)


def _names_of_features(clusters: Sequence[Cluster]) -> dict[str, Levels]:
    rows = [hardware_features(replace(cluster, nodes=nodes)) for cluster in clusters for nodes in (1, SEVERAL)]
    columns = {}
    for name, value in rows[0].items() if rows else ():
        if isinstance(value, str):
            values = [str(row[name]) for row in rows]
            columns[name] = Levels(*one_of_each(values, values))
    return columns


def _rows_of(features: Mapping[str, Column], rows: Indices) -> dict[str, Column]:
    return {
        name: Levels(column.names, column.codes[rows]) if isinstance(column, Levels) else column[rows]
        for name, column in features.items()
    }


def _distinct_rows(*columns: Floats | Indices) -> tuple[tuple[Any, ...], Indices]:
    """Returns the different rows of whole numbers in the columns, and the index of each row among them."""
    rows = [*zip(*(column.astype(np.int64).tolist() for column in columns), strict=True)]
    return one_of_each(rows, rows)


def _renumbered(codes: Indices) -> tuple[Indices, Indices]:
    """Returns the different codes in ascending order, and the index of each code among them."""
    occurs = np.bincount(codes) > 0
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[codes]
