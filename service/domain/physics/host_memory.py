"""Host memory that a node needs: processes, batches on their way to the GPUs, and offloaded states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Number
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.models.sample_size import SampleSize
from service.domain.physics.cluster import Cluster
from service.domain.physics.input_pipeline import FAMILIES_OF_IMAGES
from service.domain.physics.memory import (
    figures,
    offloaded_activation_bytes,
    optimizer_state_bytes,
    paged_state_bytes,
    trainable_parameters,
    weight_bytes,
)
from service.domain.physics.parallelism import AnyLayout, Layout

PROCESS_BYTES = 2.5e9
"""Resident memory of one Python process that drives a GPU, with CUDA libraries: 2-3 GB in PyTorch (assumed)."""

LOADERS_PER_GPU = 4
"""Processes that load samples for one GPU (assumed)."""

PREFETCHED_BATCHES = 2
"""Batches that each loader reads ahead: PyTorch's default prefetch_factor."""

LOADER_BYTES = 0.3e9
"""Resident memory of one loader process (assumed)."""

TOKEN_BYTES = 8.0
"""Bytes of a token id: 64-bit integers in PyTorch."""

PIXEL_BYTES = 3 * 4.0
"""Bytes of a decoded pixel: three colours in fp32."""

SAMPLE_BYTES = 224 * 224 * PIXEL_BYTES
"""Bytes of an image or a recording of unknown size: those of an image of the usual size (assumed)."""

ROW_BYTES = (26 + 13) * TOKEN_BYTES
"""Bytes of a sample of other networks, a row of numbers: the categories and numbers of the data set of Criteo."""

GRADIENT_BYTES = 4.0
"""Bytes per parameter of gradients on the host: fp32."""

OFFLOAD_BUFFERS = 1.5
"""Factor of offloaded states for their pinned buffers, as in DeepSpeed's estimators of memory."""


@dataclass(frozen=True, slots=True)
class HostNeed:
    """Bytes that a node needs, in parts, and the bytes that it has."""

    parts: Mapping[str, float]
    available_bytes: float | None
    """None where the memory of the node is unknown."""

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
    parts = host_parts(config, cluster.gpus_per_node, cluster.nodes, *bytes_by_layout(config, layout))
    return HostNeed(figures(parts), cluster.host_memory_bytes)


class BytesByLayout(NamedTuple):
    """Bytes in host memory for each GPU that depend on the layout of a job."""

    batch: Number = 0.0
    """A batch of samples in the form in which they are loaded."""
    activations: Number = 0.0
    """Offloaded activations."""


def bytes_by_layout(config: Config, layout: AnyLayout) -> BytesByLayout:
    """Returns the bytes of training that depend on the layout; all are 0 for inference, where none do."""
    if not isinstance(config, TrainingConfig):
        return BytesByLayout()
    batch = layout.micro_batch * _sample_bytes(config)
    return BytesByLayout(batch, offloaded_activation_bytes(config, layout))


def host_parts(
    config: Config, gpus_per_node: Number, nodes: Number, batch: Number, activations: Number
) -> dict[str, Number]:
    """Bytes that a node needs, by purpose, from those of `bytes_by_layout`."""
    parts: dict[str, Number] = {"processes": gpus_per_node * PROCESS_BYTES}
    if isinstance(config, TrainingConfig):
        parts["data_loading"] = gpus_per_node * LOADERS_PER_GPU * (LOADER_BYTES + PREFETCHED_BATCHES * batch)
        if np.any(activations):
            parts["activations"] = gpus_per_node * activations
        # An offloaded optimizer takes its gradients along: 16 bytes per parameter of mixed-precision Adam in all.
        on_host = optimizer_state_bytes(config) + GRADIENT_BYTES
        bytes_each = on_host if config.offload_optimizer else paged_state_bytes(config)
        offloaded = trainable_parameters(config) * bytes_each + weight_bytes(config) * config.offload_parameters
        if offloaded:
            parts["offload"] = offloaded * OFFLOAD_BUFFERS / nodes
    return parts


def _sample_bytes(config: TrainingConfig) -> float:
    """Returns the bytes of a sample that a loader has prepared."""
    if (size := SampleSize.of(config.model.sample)) is not None:
        return size.pixels * PIXEL_BYTES
    of_unknown_size = SAMPLE_BYTES if config.model.family in {*FAMILIES_OF_IMAGES, "speech"} else ROW_BYTES
    return config.sequence_length * TOKEN_BYTES or of_unknown_size
