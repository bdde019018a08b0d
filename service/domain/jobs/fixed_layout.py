"""The parts of a layout that a caller fixes."""

from dataclasses import dataclass
from typing import Literal

Checkpointing = Literal["none", "selective", "full"]

CHECKPOINTINGS: tuple[Checkpointing, ...] = ("none", "selective", "full")


@dataclass(frozen=True, slots=True)
class FixedLayout:
    """The parts of a layout that the caller fixes; a part that is None is free to choose."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    context: int | None = None
    expert: int | None = None
    zero_stage: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    activation_checkpointing: Checkpointing | None = None
    virtual_stages: int | None = None


FREE = FixedLayout()

STAGE_OF_OFFLOADED_WEIGHTS = 3
"""ZeRO stage that shards weights, each shard of which may then be in the memory of a host."""
