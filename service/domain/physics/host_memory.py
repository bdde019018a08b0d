"""What the host of a node must hold beside its GPUs: processes, batches on their way, and states that GPUs offload."""

from collections.abc import Mapping
from dataclasses import dataclass

from service.domain.arrays import Number
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.physics.cluster import Cluster
from service.domain.physics.memory import figures, optimizer_state_bytes, trainable_parameters
from service.domain.physics.parallelism import Layout

PROCESS_BYTES = 2.5e9
"""Resident memory of one Python process that drives a GPU, CUDA libraries included: 2-3 GB in PyTorch (assumed)."""

LOADERS_PER_GPU = 4
PREFETCHED_BATCHES = 2
"""Of each loader: PyTorch's default prefetch_factor."""
LOADER_BYTES = 0.3e9
"""Resident memory of one loader process (assumed)."""

TOKEN_BYTES = 8.0
SAMPLE_BYTES = 3 * 224 * 224 * 4.0
"""A decoded picture of 224 x 224 in fp32; others are larger and smaller."""

GRADIENT_BYTES = 4.0
OFFLOAD_BUFFERS = 1.5
"""Pinned buffers beside what is offloaded: DeepSpeed's estimators multiply by 1.5."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """Bytes per node: what is needed, in parts, and what is there; None where nobody tells."""

    parts: Mapping[str, float]
    available_bytes: float | None

    @property
    def needed_bytes(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether it is known to be too little; unknown memory passes."""
        return self.available_bytes is None or self.needed_bytes <= self.available_bytes


def host_memory_need(config: TrainingConfig | InferenceConfig, cluster: Cluster, layout: Layout) -> HostNeed:
    """Bytes of host memory that each node needs."""
    parts = host_parts(config, cluster.gpus_per_node, cluster.nodes, layout.micro_batch)
    return HostNeed(figures(parts), cluster.host_memory_bytes)


def host_parts(
    config: TrainingConfig | InferenceConfig, gpus_per_node: Number, nodes: Number, micro_batch: Number
) -> dict[str, Number]:
    """Bytes per node, by what they are for."""
    parts: dict[str, Number] = {"processes": gpus_per_node * PROCESS_BYTES}
    if isinstance(config, TrainingConfig):
        batch = micro_batch * (config.sequence_length * TOKEN_BYTES or SAMPLE_BYTES)
        parts["data_loading"] = gpus_per_node * LOADERS_PER_GPU * (LOADER_BYTES + PREFETCHED_BATCHES * batch)
        if config.offload_optimizer:
            parts["offload"] = offloaded_bytes(config) * OFFLOAD_BUFFERS / nodes
    return parts


def offloaded_bytes(config: TrainingConfig) -> float:
    """Optimizer states, the copy of the weights and fp32 gradients: 16 bytes per parameter of mixed-precision Adam."""
    return trainable_parameters(config) * (optimizer_state_bytes(config) + GRADIENT_BYTES)
