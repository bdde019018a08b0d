"""Host memory that a node needs: processes, batches on their way to the GPUs, and offloaded states."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.arrays import Number
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.physics.cluster import Cluster
from service.domain.physics.memory import (
    figures,
    optimizer_state_bytes,
    resident_state_bytes,
    trainable_parameters,
)
from service.domain.physics.parallelism import Layout

PROCESS_BYTES = 2.5e9
"""Resident memory of one Python process that drives a GPU, CUDA libraries included: 2-3 GB in PyTorch (assumed)."""

LOADERS_PER_GPU = 4
PREFETCHED_BATCHES = 2
"""Batches that each loader reads ahead: PyTorch's default prefetch_factor."""
LOADER_BYTES = 0.3e9
"""Resident memory of one loader process (assumed)."""

TOKEN_BYTES = 8.0
SAMPLE_BYTES = 3 * 224 * 224 * 4.0
"""A decoded picture of 224 x 224 in fp32, which is the usual size."""

GRADIENT_BYTES = 4.0
OFFLOAD_BUFFERS = 1.5
"""Factor on offloaded states that adds their pinned buffers: DeepSpeed's estimators multiply by 1.5."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """Bytes that a node needs, in parts, and the bytes that it has; None when unknown."""

    parts: Mapping[str, float]
    available_bytes: float | None

    @property
    def needed_bytes(self) -> float:
        """Sum of the parts."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether the memory is enough, or unknown."""
        return self.available_bytes is None or self.needed_bytes <= self.available_bytes


def host_memory_need(config: Config, cluster: Cluster, layout: Layout) -> HostNeed:
    """Host memory of a node of the cluster."""
    parts = host_parts(config, cluster.gpus_per_node, cluster.nodes, layout.micro_batch)
    return HostNeed(figures(parts), cluster.host_memory_bytes)


def host_parts(config: Config, gpus_per_node: Number, nodes: Number, micro_batch: Number) -> dict[str, Number]:
    """Bytes that a node needs, by purpose."""
    parts: dict[str, Number] = {"processes": gpus_per_node * PROCESS_BYTES}
    if isinstance(config, TrainingConfig):
        batch = micro_batch * (config.sequence_length * TOKEN_BYTES or SAMPLE_BYTES)
        parts["data_loading"] = gpus_per_node * LOADERS_PER_GPU * (LOADER_BYTES + PREFETCHED_BATCHES * batch)
        # With the gradients, 16 bytes per parameter of mixed-precision Adam; paged states move alone.
        moved = optimizer_state_bytes(config) - resident_state_bytes(config)
        bytes_each = optimizer_state_bytes(config) + GRADIENT_BYTES if config.offload_optimizer else moved
        if bytes_each:
            parts["offload"] = trainable_parameters(config) * bytes_each * OFFLOAD_BUFFERS / nodes
    return parts
