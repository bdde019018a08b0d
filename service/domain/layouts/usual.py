"""The layout and the concurrency that people would choose where nobody says."""

from dataclasses import dataclass, replace

from service.domain.jobs.config import TrainingConfig
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import Checkpointing, Layout

USUAL_MICRO_BATCH = {"cnn": 192, "detection": 64, "encoder": 32}


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


def usual_training_layout(config: TrainingConfig, cluster: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """The layout as told, and what people choose for the rest; the calibration is fitted with it."""
    tensor, pipeline, zero_stage = fixed.tensor or 1, fixed.pipeline or 1, fixed.zero_stage or 0
    free = fixed.tensor is None and fixed.zero_stage is None
    if free and config.model.transformer is not None and config.model.parameters > CUT_ABOVE:
        if cuts_tensors(config):
            tensor, pipeline = usual_cut(config, cluster)
        elif cluster.gpus > 1:
            zero_stage = 3
    context = fixed.context or 1
    data = fixed.data or max(1, cluster.gpus // (tensor * pipeline * context))
    layout = Layout(
        tensor,
        pipeline,
        data,
        context,
        fixed.expert or 1,
        zero_stage,
        fixed.micro_batch or usual_micro_batch(config, data),
        fixed.accumulation or 1,
        fixed.activation_checkpointing or "none",
        fixed.virtual_stages or 1,
    )
    return layout if fixed.accumulation else with_steps(config, layout)


def usual_inference_layout(cluster: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """The cut as told, else none, and a replica on every GPU that is left."""
    tensor, pipeline = fixed.tensor or 1, fixed.pipeline or 1
    data = fixed.data or max(1, cluster.gpus // (tensor * pipeline))
    return Layout(tensor=tensor, pipeline=pipeline, data=data)


def usual_cut(config: TrainingConfig, cluster: Cluster) -> tuple[int, int]:
    """Tensor parallelism within a node, then pipeline, until the states fit in six tenths of the memory."""
    per_parameter = 18.0 if config.method == "full" else 2.5
    need = config.model.parameters * per_parameter / (0.6 * cluster.usable_bytes)
    tensor = 1
    while tensor < min(8, cluster.gpus_per_node, need):
        tensor *= 2
    pipeline = 1
    while tensor * pipeline < need and tensor * pipeline * 2 <= cluster.gpus:
        pipeline *= 2
    return min(tensor, cluster.gpus_per_node), pipeline


def cuts_tensors(config: TrainingConfig) -> bool:
    """Whether the stack cuts matrices by habit; others shard states over the data-parallel ranks (ZeRO-3, FSDP)."""
    return config.software.stack_class.cuts_by_habit


def usual_micro_batch(config: TrainingConfig, data: int) -> int:
    """One sequence for language models, what fills a GPU for others, and never more than the batch has."""
    t = config.model.transformer
    usual = 1 if t is not None and t.decoder else USUAL_MICRO_BATCH.get(config.model.family, 32)
    if config.global_batch and t is None:
        return min(512, max(1, config.global_batch // data))
    return min(usual, max(1, (config.global_batch or usual * data) // data))


def with_steps(config: TrainingConfig, layout: Layout) -> Layout:
    """The layout with the accumulation that the global batch asks for; unknown batches keep a pipeline busy."""
    per_round = layout.micro_batch * layout.data
    usual = per_round * (8 * layout.pipeline if layout.pipeline > 1 else 1)
    return replace(layout, accumulation=max(1, round((config.global_batch or usual) / per_round)))
