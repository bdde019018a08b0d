"""The hardware that one job runs on: equal nodes, their GPUs, and the links between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.units import BITS_PER_BYTE, GIB

DEFAULT_ONE_WAY_GB_PER_SECOND = {
    "pcie": 24.0,
    "pcie_5": 50.0,
    "nvlink": 150.0,
    "nvswitch": 300.0,
    "infinity_fabric": 200.0,
    "ici": 100.0,
    "neuronlink": 96.0,
    "roce": 50.0,
}
"""Usual rate of each kind of link in one direction, per GPU, where the catalog states none. PCIe 4.0 x16 moves about 24
of its 32 GB/s."""

OWN_LINKS = frozenset({"nvlink", "nvswitch"})
"""Two names of links at one rate: a switch joins the NVLinks of the cards at the rate of the cards."""

UNSTATED_NETWORK_GBPS = 10.0
"""Assumed for a host whose network is not stated: ordinary Ethernet, since a faster fabric is advertised."""

USUAL_GPUS_OF_A_HOST = 8
"""GPUs of a host, where the GPU has no trays of its own; a machine with more of them, such as a rack, has several."""

DEFAULT_VCPUS_PER_GPU = 16.0
"""Logical cores per GPU of a node whose cores are not stated."""

USUAL_JOULES_PER_BYTE = 2e-10
"""Rated power divided by memory bandwidth, for a GPU without a stated power: 400 W and 2.0 TB/s of an A100, 700 W and
3.35 TB/s of an H100, 72 W and 0.3 TB/s of an L4 (makers' data sheets)."""

USABLE_SHARE_OF_LABEL = 0.975
"""Usable share of the nominal memory, which is in GiB although vendors write GB: 79.1 of 80, 39.4 of 40 and 23.6 of 24
GiB (device memory logs)."""


def gpus_of_a_slice(gpus: NDArray[Any], sizes: Sequence[int]) -> NDArray[Any]:
    """Returns the size of the equal slices that clusters with so many GPUs consist of: the largest that is possible."""
    slices = np.array(sizes)
    return np.asarray(np.where(gpus[..., None] % slices == 0, slices, 0).max(axis=-1))


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes of equal GPUs. Link rates are bytes per second in one direction, per GPU."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    interconnect: str
    link_bytes_per_second: float
    network_bytes_per_second: float
    vcpus_per_gpu: float | None = None
    host_memory_bytes: float | None = None
    network_known: bool = True
    """Whether the network is stated, by the catalog or the caller."""

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.gpus_per_node * self.nodes

    @property
    def most_linked_gpus(self) -> int:
        """Most GPUs that may reach each other over the fast link: those of a node, or of a rack whose trays are the
        nodes.
        """
        rack = self.gpu.gpus_per_rack if self.gpus_per_node == self.gpu.gpus_per_tray else None
        return max(self.gpus_per_node, rack or 1)

    @property
    def slice_sizes(self) -> tuple[int, ...]:
        """Numbers of GPUs that may be joined to a slice of a pod; empty where the nodes form no slices."""
        return self.gpu.slice_sizes if self.gpus_per_node == self.gpu.gpus_per_tray else ()

    @property
    def linked_gpus(self) -> int:
        """GPUs that reach each other over the fast link."""
        if self.slice_sizes:
            return int(gpus_of_a_slice(np.array(self.gpus), self.slice_sizes))
        return min(self.most_linked_gpus, self.gpus)

    @property
    def crosses_network(self) -> bool:
        """Whether some of the GPUs reach each other over the network alone."""
        return self.gpus > self.linked_gpus

    @property
    def network_gbps(self) -> float:
        """Gigabits per second of the network of one node."""
        return self.network_bytes_per_second * self.gpus_per_node * BITS_PER_BYTE / 1e9

    @property
    def host_link_bytes_per_second(self) -> float:
        """Bytes per second from the memory of the host to one GPU, at the usual rate of its PCIe."""
        return DEFAULT_ONE_WAY_GB_PER_SECOND[_pcie(self.gpu)] * 1e9

    @property
    def memory_bandwidth(self) -> float:
        """Bytes per second of one GPU's memory."""
        return (self.gpu.memory_bandwidth_gb_per_second or 100.0) * 1e9

    @property
    def watts(self) -> float:
        """Rated power of one GPU; where none is stated, as for a part of a card, the usual power for its bandwidth."""
        return self.gpu.tdp_watts or USUAL_JOULES_PER_BYTE * self.memory_bandwidth

    @property
    def usable_bytes(self) -> float:
        """Bytes that a program can allocate on one GPU: as measured, else the nominal memory without the share of
        drivers.
        """
        if self.gpu.usable_memory_gib:
            return self.gpu.usable_memory_gib * GIB
        return (self.gpu.memory_gb or 0.0) * USABLE_SHARE_OF_LABEL * GIB


def cluster_of(
    gpu: Gpu,
    gpus_per_node: int,
    nodes: int = 1,
    interconnect: str | None = None,
    interconnect_gb_per_second: float | None = None,
    network_gbps: float | None = None,
    vcpus: float | None = None,
    memory_gib: float | None = None,
) -> Cluster:
    """Returns the cluster of nodes with these figures; a figure that is None is the usual one of the GPU.

    `interconnect_gb_per_second` counts both directions, as data sheets do; the network has `network_gbps` per node.
    """
    link = interconnect or _usual_link(gpu)
    both_ways = interconnect_gb_per_second
    if both_ways is None and (link == gpu.interconnect or {link, gpu.interconnect} == OWN_LINKS):
        both_ways = gpu.interconnect_gb_per_second
    usual = _pcie(gpu) if link == "pcie" else link
    one_way = DEFAULT_ONE_WAY_GB_PER_SECOND.get(usual, DEFAULT_ONE_WAY_GB_PER_SECOND["pcie"])
    gbps = network_gbps or _assumed_gbps(gpu, gpus_per_node)
    return Cluster(
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        nodes=nodes,
        interconnect=link,
        link_bytes_per_second=(both_ways / 2 if both_ways else one_way) * 1e9,
        network_bytes_per_second=gbps * 1e9 / BITS_PER_BYTE / gpus_per_node,
        vcpus_per_gpu=vcpus / gpus_per_node if vcpus else None,
        host_memory_bytes=memory_gib * GIB if memory_gib else None,
        network_known=network_gbps is not None,
    )


def _assumed_gbps(gpu: Gpu, gpus_per_node: int) -> float:
    """Returns the assumed network of a node, which is that of all hosts in it."""
    return UNSTATED_NETWORK_GBPS * ceil(gpus_per_node / (gpu.gpus_per_tray or USUAL_GPUS_OF_A_HOST))


def _pcie(gpu: Gpu) -> str:
    """Returns the name of the usual rate of a GPU's PCIe."""
    return "pcie_5" if gpu.pcie_generation == 5 else "pcie"


def _usual_link(gpu: Gpu) -> str:
    """Returns the link between cards where the request states none: PCIe cards have no bridge unless it is added."""
    return "pcie" if gpu.form_factor == "pcie" else gpu.interconnect or "pcie"


def cluster_of_instance(instance: InstanceType, nodes: int = 1, assumed_network_gbps: float | None = None) -> Cluster:
    """Returns a cluster of nodes of an instance type that has a GPU, or CPUs with known figures.

    `assumed_network_gbps` applies to an instance type whose network is not stated.
    """
    assert instance.processor is not None
    return cluster_of(
        instance.processor,
        max(1, instance.gpu_count),
        nodes,
        instance.interconnect,
        instance.interconnect_gb_per_second,
        assumed_network_gbps if instance.network_gbps is None else instance.sustained_network_gbps,
        instance.sustained_by_cpus(instance.vcpus),
        instance.memory_gib,
    )
