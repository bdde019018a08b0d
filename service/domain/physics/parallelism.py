"""Layouts of a job over GPUs, and the traffic between the GPUs of a layout."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Mask, Number
from service.domain.jobs.fixed_layout import CHECKPOINTINGS, Checkpointing


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of each kind of parallelism, and the division of a step into micro-batches."""

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
    empty_samples: int = 0
    """Slots for samples that stay empty in the last round of micro-batches, where the ranks do not divide the batch."""

    @property
    def gpus(self) -> int:
        """GPUs that the layout takes."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def model_ranks(self) -> int:
        """GPUs over which one copy of the model is divided."""
        return self.tensor * self.pipeline

    @property
    def spreads_model(self) -> bool:
        """Whether no GPU holds a whole copy of the model; experts may be on the GPUs of other replicas."""
        return self.model_ranks > 1 or self.expert > 1

    @property
    def slots(self) -> int:
        """Samples for which a step has room."""
        return self.data * self.micro_batch * self.accumulation

    @property
    def global_batch(self) -> int:
        """Samples of one step."""
        return self.slots - self.empty_samples

    def checkpoints(self, how: Checkpointing) -> bool:
        """Whether activations are checkpointed in this way."""
        return self.activation_checkpointing == how


@dataclass(frozen=True, slots=True)
class LayoutTable:
    """Layouts as columns, one row each."""

    tensor: Floats
    pipeline: Floats
    data: Floats
    context: Floats
    expert: Floats
    zero_stage: Floats
    micro_batch: Floats
    accumulation: Floats
    checkpointing: NDArray[np.int64]
    """Indices in `CHECKPOINTINGS`."""
    empty_samples: Floats
    virtual_stages: Floats

    @property
    def global_batch(self) -> Floats:
        """Samples of one step, in each row."""
        return self.data * self.micro_batch * self.accumulation - self.empty_samples

    def checkpoints(self, how: Checkpointing) -> Mask:
        """Whether activations are checkpointed in this way, in each row."""
        return np.asarray(self.checkpointing == CHECKPOINTINGS.index(how))

    @staticmethod
    def plain(rows: int) -> "LayoutTable":
        """Returns layouts that divide nothing."""
        one, none = np.ones(rows), np.zeros(rows)
        return LayoutTable(one, one, one, one, one, none, one, one, none.astype(np.int64), none, one)

    def row(self, index: int) -> Layout:
        """Returns the layout in one row."""
        return layout_of([getattr(self, name)[index] for name in self.__dataclass_fields__])

    def rows(self) -> Floats:
        """Returns all columns as one array, from which rows are taken faster."""
        return np.column_stack([getattr(self, name) for name in self.__dataclass_fields__])


def layout_of(row: Sequence[float] | NDArray[Any]) -> Layout:
    """Returns the layout in a row of `LayoutTable.rows`."""
    values = dict(zip(LayoutTable.__dataclass_fields__, map(int, row), strict=True))
    return Layout(activation_checkpointing=CHECKPOINTINGS[values.pop("checkpointing")], **values)


AnyLayout: TypeAlias = Layout | LayoutTable


def spread_of_experts(layout: AnyLayout) -> Number:
    """Tensor-parallel groups over which the experts of a layer are spread; each expert is within one group."""
    return np.maximum(1.0, layout.expert / layout.tensor)


def most_experts(experts: int, layout: AnyLayout) -> Number:
    """Share of a layer's experts that the group with the most of them has; groups divide them evenly if they can.

    Engines copy some experts where their number is no multiple of the groups (EPLB of DeepSeek), so that none has more.
    """
    spread = spread_of_experts(layout)
    return np.ceil(experts / spread) / experts if experts else 1.0 / spread


def copies_to_other_groups(groups: Number, experts_per_token: float) -> Number:
    """Mean number of copies of a token that its group of linked GPUs sends to other groups: one to each group that has
    some of its experts, which are anywhere with equal probability.
    """
    return (groups - 1) * (1.0 - (1.0 - 1.0 / groups) ** experts_per_token)


def all_reduce_bytes(size: Number, ranks: Number) -> Number:
    """Bytes that each of n ranks of a ring sends to sum S bytes: 2 (n - 1) / n S."""
    return 2.0 * (ranks - 1) / ranks * size


def crosses_slow_links(tensor: Number, linked_gpus: Number) -> Number:
    """Returns whether some tensor-parallel group has GPUs that no fast link joins."""
    return (tensor > linked_gpus) | (linked_gpus % tensor != 0)


def linked_ranks(ranks: Number, linked_gpus: Number) -> Number:
    """Returns the size of the equal parts of neighbouring ranks that fast links join: all ranks, or a part of them."""
    return np.gcd(np.asarray(ranks, np.int64), np.asarray(linked_gpus, np.int64))


def bubble_share(layout: AnyLayout) -> Number:
    """Idle time of a pipelined step over its busy time: (p - 1) / (v m), with p stages, m micro-batches and v virtual
    stages per GPU (Narayanan et al., Megatron-LM, SC'21).
    """
    return (layout.pipeline - 1) / (layout.virtual_stages * layout.accumulation)
