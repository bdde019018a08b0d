"""Ways to cut a model over GPUs, and the traffic that each cut costs."""

from dataclasses import dataclass
from typing import Literal

from service.domain.errors import QuestionError

Checkpointing = Literal["none", "selective", "full"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a job is spread: degrees of each kind of parallelism, and how a step is cut into micro-batches."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    zero_stage: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    activation_checkpointing: Checkpointing = "none"
    virtual_stages: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def model_ranks(self) -> int:
        """GPUs that hold one copy of the model."""
        return self.tensor * self.pipeline

    @property
    def global_batch(self) -> int:
        return self.data * self.micro_batch * self.accumulation


def checked(layout: Layout, gpus: int) -> Layout:
    """The layout, or a sentence that says why it cannot be."""
    if layout.gpus != gpus:
        raise QuestionError(
            f"The layout takes {layout.gpus} GPUs (tensor {layout.tensor} x pipeline {layout.pipeline} x context "
            f"{layout.context} x data {layout.data}), but the machine has {gpus}.",
            field="layout",
        )
    return layout


def tensor_bytes_per_layer(tokens: float, hidden: int, *, recompute: bool) -> float:
    """Bytes all-reduced per layer and micro-batch: 4 (6 when recomputing) messages of 2 s b h (Megatron, SC'21)."""
    return (6 if recompute else 4) * 2.0 * tokens * hidden


def data_bytes(parameters_here: float, zero_stage: int, gradient_bytes: float = 2.0) -> float:
    """All-reduce of gradients in bytes; ZeRO-3 gathers weights twice besides: 1.5 times the volume (1910.02054)."""
    return gradient_bytes * parameters_here * (1.5 if zero_stage >= 3 else 1.0)


def expert_bytes_per_layer(tokens: float, hidden: int, experts_per_token: int, expert: int) -> float:
    """4 all-to-alls per layer (there and back, forward and backward) of topk s b h values of 2 bytes."""
    return 4 * 2.0 * tokens * hidden * experts_per_token * (expert - 1) / expert


def bubble_share(layout: Layout) -> float:
    """Idle share of a pipelined step over its work: (p - 1) / (v m) (SC'21)."""
    return (layout.pipeline - 1) / (layout.virtual_stages * max(1, layout.accumulation))
