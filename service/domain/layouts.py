"""The layout and the concurrency that people would choose where nobody says."""

from dataclasses import dataclass, replace

import numpy as np

from service.domain.machine import Cluster
from service.domain.memory import inference_parts, sequence_cache_bytes, total
from service.domain.parallelism import AnyLayout, Checkpointing, Layout, Number
from service.domain.workload import InferenceConfig, TrainingConfig

USUAL_MICRO_BATCH = {"cnn": 192, "detection": 64, "encoder": 32}
MOST_IN_FLIGHT = 2048.0
"""Sequences that TensorRT-LLM decodes together at most, by default."""

MOST_IN_FLIGHT_BY_ENGINE = {"vllm": 256.0}
"""vLLM's `max_num_seqs`."""

CACHE_SHARE = 0.92
"""Share of a GPU's usable memory that weights, activations and cache may take together."""

CUT_ABOVE = 4e9
"""Parameters above which a model without a told layout is cut."""


@dataclass(frozen=True, slots=True)
class FixedLayout:
    """What somebody says of a layout; None is free to choose."""

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


def usual_training_layout(work: TrainingConfig, machine: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """The layout as told, and what people choose for the rest; the calibration is fitted with it."""
    tensor, pipeline, zero_stage = fixed.tensor or 1, fixed.pipeline or 1, fixed.zero_stage or 0
    free = fixed.tensor is None and fixed.zero_stage is None
    if free and work.model.transformer is not None and work.model.parameters > CUT_ABOVE:
        if cuts_tensors(work):
            tensor, pipeline = usual_cut(work, machine)
        elif machine.gpus > 1:
            zero_stage = 3
    context = fixed.context or 1
    data = fixed.data or max(1, machine.gpus // (tensor * pipeline * context))
    layout = Layout(
        tensor,
        pipeline,
        data,
        context,
        fixed.expert or 1,
        zero_stage,
        fixed.micro_batch or usual_micro_batch(work, data),
        fixed.accumulation or 1,
        fixed.activation_checkpointing or "none",
        fixed.virtual_stages or 1,
    )
    return layout if fixed.accumulation else with_steps(work, layout)


def usual_inference_layout(machine: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """The cut as told, else none, and a replica on every GPU that is left."""
    tensor, pipeline = fixed.tensor or 1, fixed.pipeline or 1
    data = fixed.data or max(1, machine.gpus // (tensor * pipeline))
    return Layout(tensor=tensor, pipeline=pipeline, data=data)


def usual_cut(work: TrainingConfig, machine: Cluster) -> tuple[int, int]:
    """Tensor parallelism within a node, then pipeline, until the states fit in six tenths of the memory."""
    per_parameter = 18.0 if work.method == "full" else 2.5
    need = work.model.parameters * per_parameter / (0.6 * machine.usable_bytes)
    tensor = 1
    while tensor < min(8, machine.gpus_per_node, need):
        tensor *= 2
    pipeline = 1
    while tensor * pipeline < need and tensor * pipeline * 2 <= machine.gpus:
        pipeline *= 2
    return min(tensor, machine.gpus_per_node), pipeline


def cuts_tensors(work: TrainingConfig) -> bool:
    """Whether the stack cuts matrices by habit; others shard states over the data-parallel ranks (ZeRO-3, FSDP)."""
    return work.software.way in ("megatron", "tuned")


def usual_micro_batch(work: TrainingConfig, data: int) -> int:
    """One sequence for language models, what fills a GPU for others, and never more than the batch has."""
    t = work.model.transformer
    usual = 1 if t is not None and t.decoder else USUAL_MICRO_BATCH.get(work.model.family, 32)
    if work.global_batch and t is None:
        return min(512, max(1, work.global_batch // data))
    return min(usual, max(1, (work.global_batch or usual * data) // data))


def with_steps(work: TrainingConfig, layout: Layout) -> Layout:
    """The layout with the accumulation that the global batch asks for; unknown batches keep a pipeline busy."""
    per_round = layout.micro_batch * layout.data
    usual = per_round * (8 * layout.pipeline if layout.pipeline > 1 else 1)
    return replace(layout, accumulation=max(1, round((work.global_batch or usual) / per_round)))


def room_for_cache(work: InferenceConfig, usable_bytes: Number, layout: AnyLayout) -> Number:
    """Bytes of a GPU that weights and activations leave."""
    return np.maximum(0.0, CACHE_SHARE * usable_bytes - total(inference_parts(work, layout, 0.0, 0.0)))


def cache_tokens_that_fit(work: InferenceConfig, usable_bytes: float, layout: Layout) -> float:
    """Tokens of one conversation whose keys and values fit on the GPUs of one replica."""
    tokens = max(1.0, work.input_length + work.output_length)
    each = sequence_cache_bytes(work, tokens, layout.tensor) / layout.pipeline / tokens
    return float(room_for_cache(work, usable_bytes, layout) / each) if each else 0.0


def concurrency_that_fits(work: InferenceConfig, usable_bytes: Number, layout: AnyLayout) -> Number:
    """Conversations whose caches fit in what weights and activations leave."""
    left = room_for_cache(work, usable_bytes, layout)
    tokens = max(1.0, work.input_length + work.output_length)
    each = sequence_cache_bytes(work, tokens, layout.tensor) / layout.pipeline
    most = MOST_IN_FLIGHT_BY_ENGINE.get(work.software.line, MOST_IN_FLIGHT)
    return np.maximum(1.0, np.minimum(most, left / each))


def replicas_in_use(work: InferenceConfig, layout: AnyLayout) -> Number:
    """Copies of the model that have something to answer."""
    return np.minimum(layout.data, max(1.0, work.concurrency)) if work.concurrency else layout.data


def in_flight(work: InferenceConfig, usable_bytes: Number, layout: AnyLayout) -> Number:
    """Conversations at once on one replica: as many as asked for, and no more than fit; one is always tried."""
    most = concurrency_that_fits(work, usable_bytes, layout)
    if not work.concurrency:
        return most
    asked = work.concurrency / replicas_in_use(work, layout)
    return np.where(asked <= 1, asked, np.minimum(asked, most))
