"""The search for a layout again, as a plain loop over every layout: slow, and obviously right."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd

from service.domain.calibration.calibration import Calibration
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import CHECKPOINTINGS, FREE, FixedLayout
from service.domain.layouts.candidates import (
    LONG_SEQUENCE,
    MOST_PADDING,
    assumed_batch,
    memory_savings,
)
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.usual import most_samples_per_micro_batch
from service.domain.models.model import Transformer
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_config
from service.domain.physics.parallelism import Layout

Cut = tuple[int, int, int, int, int]
"""Tensor, pipeline, context, data and expert degree."""


def fastest_layout(
    calibration: Calibration, config: TrainingConfig, cluster: Cluster, fixed: FixedLayout
) -> Estimate | None:
    """The fastest layout that fits; if none fits, the one that needs the least memory.

    Layouts whose tensor parallelism crosses slow links count only where no other layout likely fits.
    """
    on_fast_links, on_slow_links = (
        [
            estimate_config(calibration, config, cluster, layout)
            for layout in every_training_layout(config, cluster, fixed, across=across)
        ]
        for across in (False, True)
    )
    for estimates in (on_fast_links, on_slow_links):
        if any(estimate.fits_surely for estimate in estimates):
            return max((estimate for estimate in estimates if estimate.fits_surely), key=samples_per_second)
        if any(estimate.fits for estimate in estimates):
            break
    return min(on_fast_links or on_slow_links, key=lambda estimate: estimate.memory.needed_bytes, default=None)


def samples_per_second(estimate: Estimate) -> float:
    """The likely rate; 0 if the layout does not fit."""
    return estimate.samples_per_second.likely if estimate.samples_per_second else 0.0


def every_training_layout(
    config: TrainingConfig, cluster: Cluster, fixed: FixedLayout = FREE, *, across: bool = False
) -> list[Layout]:
    """Returns the layouts that make the global batch exactly, or all where none does.

    Raises `QuestionError` as the search does.
    """
    every = list(_every_training_layout(config, cluster, fixed, across=across))
    return [each for each in every if config.global_batch in (None, each.slots)] or every


def _every_training_layout(
    config: TrainingConfig, cluster: Cluster, fixed: FixedLayout, *, across: bool
) -> Iterator[Layout]:
    check_fixed(fixed, config, cluster)
    for cut in _training_cuts(config, cluster.gpus, cluster.linked_gpus, fixed, across=across):
        tensor, pipeline, context, data, expert = cut
        batch = int(assumed_batch(config, cluster.gpus, tensor * context))
        share = -(-batch // data)
        for micro in _micro_batches(config, share, fixed) if data <= batch else ():
            accumulation = fixed.accumulation or max(1, -(-share // micro))
            # A batch that is only assumed is as large as its slots.
            empty = data * micro * accumulation - batch if config.global_batch else 0
            for virtual, (stage, how) in product(
                _virtual_stages(config, pipeline, accumulation, fixed),
                memory_savings(config, fixed, _highest_stage(cut, fixed)),
            ):
                yield Layout(
                    tensor,
                    pipeline,
                    data,
                    context,
                    expert,
                    stage,
                    micro,
                    accumulation,
                    CHECKPOINTINGS[how],
                    virtual,
                    empty if 0 <= empty < data * micro else 0,
                )


def every_inference_layout(
    config: InferenceConfig, cluster: Cluster, fixed: FixedLayout = FREE, *, across: bool = False
) -> Iterator[Layout]:
    """Tensor and pipeline degrees of one replica, the fewest GPUs first. Raises `QuestionError` as above."""
    check_fixed(fixed, config, cluster)
    t = config.model.transformer
    gpus, whole_layers = cluster.gpus, config.software.stack.splits_layers
    cut_by_heads = [each for each in _divisors(gpus) if t and _divides_heads(t, each) and not whole_layers]
    tensors = [fixed.tensor] if fixed.tensor else cut_by_heads or [1]
    cuts = [
        (tensor, pipeline)
        for tensor in tensors
        if fixed.tensor or _crosses_slow_links(tensor, cluster.linked_gpus) == across
        for pipeline in _stages_of_a_replica(config, gpus // tensor, fixed)
        if gpus % (tensor * pipeline) == 0 and (fixed.pipeline or pipeline <= (t.layers if t else 1))
    ]
    found = [Layout(tensor, pipeline, gpus // (tensor * pipeline)) for tensor, pipeline in cuts]
    for layout in sorted(found, key=lambda each: (each.model_ranks, each.pipeline)):
        if fixed.data in (None, layout.data):
            ranks = layout.tensor * layout.data
            if ranks % (fixed.expert or 1) == 0:
                yield replace(layout, expert=fixed.expert or 1)
            spreads_experts = fixed.expert is None and layout.data > 1 and not whole_layers
            if spreads_experts and t and ranks <= t.experts:
                yield replace(layout, expert=ranks)


def _stages_of_a_replica(config: InferenceConfig, gpus: int, fixed: FixedLayout) -> list[int]:
    if fixed.pipeline:
        return [fixed.pipeline]
    drafts = config.serving is not None and config.serving.speculative_acceptance > 0
    return [1] if drafts and config.software.stack.drafts_exclude_stages else _divisors(gpus)


def _divides_heads(t: Transformer, tensor: int) -> bool:
    """Each GPU has equally many heads, and the key-value heads that these need."""
    return t.heads % tensor == 0 and (t.kv_heads % tensor == 0 or tensor % t.kv_heads == 0)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]


def _crosses_slow_links(tensor: int, linked_gpus: int) -> bool:
    return tensor > linked_gpus or linked_gpus % tensor != 0


def _training_cuts(
    config: TrainingConfig, gpus: int, linked_gpus: int, fixed: FixedLayout, *, across: bool
) -> Iterator[Cut]:
    t = config.model.transformer
    without_stack_of_adapters = config.method != "full" and config.software.line == "unknown"
    whole = t is None or without_stack_of_adapters or not config.software.stack_class.has_model_parallelism
    for tensor in _tensor_degrees(config, gpus, fixed, whole=whole):
        if fixed.tensor is None and _crosses_slow_links(tensor, linked_gpus) != across:
            continue
        for pipeline in _pipeline_degrees(config, gpus // tensor, fixed, whole=whole):
            for context in _context_degrees(config, gpus // tensor // pipeline, fixed):
                data = gpus // (tensor * pipeline * context)
                if fixed.data is None or fixed.data == data:
                    for expert in _expert_degrees(config, tensor, data * context, fixed, whole=whole):
                        yield tensor, pipeline, context, data, expert


def _tensor_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = config.model.transformer
    if fixed.tensor is not None:
        return [fixed.tensor] if gpus % fixed.tensor == 0 else []
    return [each for each in _divisors(gpus) if t and _divides_heads(t, each)] if not whole else [1]


def _pipeline_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = config.model.transformer
    if fixed.pipeline is not None:
        return [fixed.pipeline] if gpus % fixed.pipeline == 0 else []
    if whole or t is None or (t.encoder_layers and not config.software.stack_class.prefers_model_parallelism):
        return [1]
    pieces = fixed.virtual_stages or 1
    return [
        each
        for each in _divisors(gpus)
        if each <= t.layers
        and (each == 1 or pieces <= -(-t.layers // each))
        and -t.layers % each <= MOST_PADDING * t.layers
    ]


def _context_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout) -> list[int]:
    if fixed.context is not None:
        return [fixed.context] if gpus % fixed.context == 0 else []
    if config.model.transformer is None:
        return [1]
    return [each for each in _divisors(gpus) if each == 1 or config.sequence_length >= each * LONG_SEQUENCE]


def _expert_degrees(config: TrainingConfig, tensor: int, groups: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = config.model.transformer
    if fixed.expert is not None:
        return [fixed.expert] if tensor * groups % fixed.expert == 0 else []
    if not t or not t.experts or whole:
        return [1]
    return [1, *(tensor * each for each in _divisors(gcd(t.experts, groups)) if each > 1)]


def _micro_batches(config: TrainingConfig, share: int, fixed: FixedLayout) -> list[int]:
    """Sizes that divide the samples of one data-parallel rank."""
    if fixed.micro_batch is not None:
        return [fixed.micro_batch]
    if fixed.accumulation is not None:
        return [-(-share // fixed.accumulation)]
    return [each for each in _divisors(share) if each <= most_samples_per_micro_batch(config)]


def _virtual_stages(config: TrainingConfig, pipeline: int, accumulation: int, fixed: FixedLayout) -> list[int]:
    """Pieces of a stage that take turns with those of other stages, where the stack can do that."""
    if fixed.virtual_stages is not None:
        return [fixed.virtual_stages]
    t = config.model.transformer
    if not (t and config.software.stack.interleaves_stages and pipeline > 1 and accumulation % pipeline == 0):
        return [1]
    most = -(-t.layers // pipeline)
    if pipeline * most - t.layers > 2:  # only the first and the last stage may lack a layer
        return [1]
    return [each for each in {1, 2, most} if most % each == 0]


def _highest_stage(cut: Cut, fixed: FixedLayout) -> int:
    """The last ZeRO stage that shards more: a pipeline holds gradients over micro-batches, so stage 2 saves nothing."""
    _, pipeline, context, data, _ = cut
    if fixed.zero_stage is not None:
        return fixed.zero_stage
    return 0 if data * context == 1 else 1 if pipeline > 1 else 3
