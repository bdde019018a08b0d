"""The layout that people choose by default. The calibration is fitted with it where a published run omits its own."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from service.domain.arrays import Number
from service.domain.jobs.config import Config, InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import FREE, FixedLayout
from service.domain.models.networks import network_flops
from service.domain.physics.cluster import Cluster
from service.domain.physics.memory import inference_parts
from service.domain.physics.parallelism import Layout

USUAL_MICRO_BATCH = {"cnn": 192, "detection": 64, "encoder": 32}
"""Samples of a micro-batch by family of models."""

CUT_ABOVE = 4e9
"""Parameters above which a model is divided by default."""

USABLE_SHARE_FOR_STATES = 0.6
"""Share of a GPU's memory that weights, gradients and optimizer states may take; activations need the rest."""

USABLE_SHARE_FOR_WEIGHTS = 0.8
"""Share of a GPU's memory that weights may take when serving; the cache needs the rest."""

STATE_BYTES, FROZEN_BYTES = 18.0, 2.5
"""Bytes of weights, gradients and optimizer states per parameter: when all parameters learn (mixed-precision Adam), and
when few do."""

MOST_TOKENS_IN_A_MICRO_BATCH = 65536
"""Tokens beyond which a larger micro-batch gains no speed, because the GPU is full."""

MOST_SAMPLES_IN_A_MICRO_BATCH = 512
"""Samples beyond which a larger micro-batch gains no speed, because the GPU is full."""

FLOPS_OF_A_MICRO_BATCH = 1e11
"""Forward FLOPs up to which a micro-batch of a small network may have more samples: a millisecond of a GPU."""


def usual_layout(config: Config, cluster: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """Returns a layout with the fixed parts, and the usual choice of the others."""
    if isinstance(config, TrainingConfig):
        return usual_training_layout(config, cluster, fixed)
    return usual_inference_layout(config, cluster, fixed)


def usual_training_layout(config: TrainingConfig, cluster: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """Returns the layout that users of a stack usually choose: large models are divided as is usual for the stack, and
    micro-batches are accumulated up to the global batch.
    """
    tensor, pipeline, zero_stage = fixed.tensor or 1, fixed.pipeline or 1, fixed.zero_stage or 0
    free = fixed.tensor is None and fixed.zero_stage is None
    if free and config.model.transformer is not None and config.model.parameters > CUT_ABOVE:
        if config.software.stack_class.prefers_model_parallelism:
            tensor, pipeline = _usual_cut(config, cluster)
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
        fixed.micro_batch or _usual_micro_batch(config, data),
        fixed.accumulation or 1,
        fixed.activation_checkpointing or "none",
        fixed.virtual_stages or 1,
    )
    return _filled_to(config.global_batch, layout) if fixed.accumulation else _with_accumulation(config, layout)


def usual_inference_layout(config: InferenceConfig, cluster: Cluster, fixed: FixedLayout = FREE) -> Layout:
    """Spreads a replica over the fewest GPUs of a node that hold its weights, unless a degree is fixed.

    The other GPUs of the node run further replicas. Where heads cannot be divided over as many GPUs as hold the
    weights, stages divide the layers too.
    """
    tensor, pipeline = fixed.tensor or 1, fixed.pipeline or 1
    weights = inference_parts(config, Layout(), 0.0)["weights"] / (tensor * pipeline)
    if not config.software.stack.splits_layers and fixed.tensor is None:
        of_node = _divisors(gcd(cluster.gpus_per_node, max(1, cluster.gpus // pipeline)))
        tensor = _gpus_that_hold(weights, cluster, [each for each in of_node if _divides_heads(config, each)])
        weights = weights / tensor
    has_stages = config.any_load.has_stages_on(config.software.stack)
    if config.software.stack.splits_layers or (fixed.tensor is None and has_stages):
        pipeline = fixed.pipeline or _gpus_that_hold(weights, cluster, _divisors(cluster.gpus_per_node // tensor))
    data = fixed.data or max(1, cluster.gpus // (tensor * pipeline))
    return Layout(tensor=tensor, pipeline=pipeline, data=data, expert=fixed.expert or 1)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, max(1, number) + 1) if max(1, number) % each == 0]


def _divides_heads(config: Config, tensor: int) -> bool:
    t = config.model.transformer
    return t is None or config.software.stack_class.pads_heads or bool(t.divides_heads_over(tensor))


def _gpus_that_hold(weights: Number, cluster: Cluster, counts: Sequence[int]) -> int:
    """Returns the smallest number of GPUs whose share for weights holds them, or the largest if none does."""
    share = USABLE_SHARE_FOR_WEIGHTS * cluster.usable_bytes
    return next((gpus for gpus in counts if weights / gpus <= share), counts[-1])


def _usual_cut(config: TrainingConfig, cluster: Cluster) -> tuple[int, int]:
    """Returns tensor degree and pipeline stages: tensor parallelism within a node, then stages, until states fit.

    Both are powers of two that divide the GPUs, and tensor parallelism divides the heads.
    """
    per_parameter = STATE_BYTES if config.method == "full" else FROZEN_BYTES
    need = config.model.parameters * per_parameter / (USABLE_SHARE_FOR_STATES * cluster.usable_bytes)
    tensor = 1
    while tensor < min(8, need) and cluster.gpus_per_node % (2 * tensor) == 0 and _divides_heads(config, 2 * tensor):
        tensor *= 2
    pipeline = 1
    while tensor * pipeline < need and cluster.gpus % (tensor * pipeline * 2) == 0:
        pipeline *= 2
    return tensor, pipeline


def most_samples_per_micro_batch(config: TrainingConfig) -> int:
    """Returns the most samples that a micro-batch has in any layout: more would not make a GPU faster."""
    if not config.sequence_length and config.model.sample == "token":  # of a recurrent network
        return MOST_TOKENS_IN_A_MICRO_BATCH
    if not config.sequence_length:
        return max(MOST_SAMPLES_IN_A_MICRO_BATCH, int(FLOPS_OF_A_MICRO_BATCH / network_flops(config.model)))
    return max(1, min(MOST_SAMPLES_IN_A_MICRO_BATCH, MOST_TOKENS_IN_A_MICRO_BATCH // config.sequence_length))


def _usual_micro_batch(config: TrainingConfig, data: int) -> int:
    """Returns one sequence for language models, the usual samples for others, and no more than the global batch."""
    t = config.model.transformer
    usual = 1 if t is not None and t.decoder else USUAL_MICRO_BATCH.get(config.model.family, 32)
    if config.global_batch and t is None:
        return min(most_samples_per_micro_batch(config), max(1, config.global_batch // data))
    usual = max(usual, config.samples_together)
    return min(usual, max(1, (config.global_batch or usual * data) // data))


def _filled_to(global_batch: int | None, layout: Layout) -> Layout:
    """Leaves slots of the last round empty where the global batch needs all rounds and does not fill them."""
    empty = 0 if global_batch is None else layout.global_batch - global_batch
    return replace(layout, empty_samples=empty) if 0 < empty < layout.data * layout.micro_batch else layout


def _with_accumulation(config: TrainingConfig, layout: Layout) -> Layout:
    per_round = layout.micro_batch * layout.data
    # Eight micro-batches per stage keep a pipeline busy where the global batch is unknown.
    usual = per_round * (8 * layout.pipeline if layout.pipeline > 1 else 1)
    return replace(layout, accumulation=max(1, round((config.global_batch or usual) / per_round)))
