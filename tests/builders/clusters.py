"""Clusters for tests of the physics: eight GPUs of one machine by default."""

from dataclasses import replace

from service.domain.catalog.hardware import Gpu
from service.domain.physics.cluster import Cluster, cluster_of
from tests.builders.gpus import gpu_with_peaks


def cluster(
    gpu: Gpu | None = None, gpus: int = 8, nodes: int = 1, link: float = 600, network_gbps: float = 800
) -> Cluster:
    return cluster_of(gpu or gpu_with_peaks(), gpus, nodes, "nvlink", link, network_gbps)


def faster(where: Cluster, flops: float = 1, bandwidth: float = 1, link: float = 1, network: float = 1) -> Cluster:
    """The cluster with each of its rates multiplied."""
    gpu = where.gpu
    rates = {name: replace(rate, dense_tflops=(rate.dense_tflops or 0.0) * flops) for name, rate in gpu.rates.items()}
    assert gpu.memory_bandwidth_gb_per_second is not None
    return replace(
        where,
        gpu=replace(gpu, rates=rates, memory_bandwidth_gb_per_second=gpu.memory_bandwidth_gb_per_second * bandwidth),
        link_bytes_per_second=where.link_bytes_per_second * link,
        network_bytes_per_second=where.network_bytes_per_second * network,
    )
