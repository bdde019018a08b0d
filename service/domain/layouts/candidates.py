"""The layouts worth trying: every way to cut a job over a machine's GPUs that the model and its stack allow."""

from collections.abc import Iterator
from functools import cache
from math import gcd

from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import CHECKPOINTINGS, Checkpointing, Layout

LONG_SEQUENCE = 8192
"""Tokens that each GPU of a context-parallel group has at least; shorter pieces are not worth the ring."""

MOST_TOKENS_IN_A_MICRO_BATCH = 65536
MOST_SAMPLES_IN_A_MICRO_BATCH = 512
"""Beyond these a GPU is full, and larger micro-batches gain nothing."""

MOST_PADDING = 0.05
"""Share of a stage's time that uneven stages of a pipeline may idle (126 layers on 4 stages: 1.6 %)."""

USUAL_TOKENS_PER_STEP = {"full": 2**20, "lora": 2**17, "qlora": 2**17, "adapter": 2**17}
"""About a million tokens where all weights learn (GPT-3 0.5-3.2 million, Llama 2 4 million), 32 long sequences else."""

USUAL_SAMPLES_PER_STEP = 1024

Cut = tuple[int, int, int, int, int]
"""Tensor, pipeline, context, data and expert degree."""


@cache
def divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def crosses_slow_links(tensor: int, linked_gpus: int) -> bool:
    """Whether a tensor-parallel group leaves the GPUs on one fast link, or cannot be laid evenly inside them."""
    return tensor > linked_gpus or linked_gpus % tensor != 0


def assumed_batch(config: TrainingConfig, gpus: int) -> int:
    """The global batch; where nobody says, a usual one that gives every GPU as many samples."""
    if config.global_batch:
        return config.global_batch
    usual = USUAL_SAMPLES_PER_STEP
    if config.model.transformer is not None and config.sequence_length:
        usual = max(1, USUAL_TOKENS_PER_STEP[config.method] // config.sequence_length)
    return gpus * max(1, round(usual / gpus))


def is_never_cut(config: TrainingConfig) -> bool:
    return config.model.transformer is None or not config.software.stack_class.cuts_models


def most_samples_per_micro_batch(config: TrainingConfig) -> int:
    if not config.sequence_length:
        return MOST_SAMPLES_IN_A_MICRO_BATCH
    return max(1, min(MOST_SAMPLES_IN_A_MICRO_BATCH, MOST_TOKENS_IN_A_MICRO_BATCH // config.sequence_length))


def cuts_of(config: TrainingConfig, gpus: int, linked_gpus: int, fixed: FixedLayout, *, across: bool) -> Iterator[Cut]:
    """Degrees that multiply out to the GPUs. `across` asks for those whose tensor cut crosses slow links instead."""
    whole = is_never_cut(config)
    for tensor in _tensor_degrees(config, gpus, fixed, whole=whole):
        if fixed.tensor is None and crosses_slow_links(tensor, linked_gpus) != across:
            continue
        for pipeline in _pipeline_degrees(config, gpus // tensor, fixed, whole=whole):
            for context in _context_degrees(config, gpus // tensor // pipeline, fixed):
                data = gpus // (tensor * pipeline * context)
                if fixed.data is None or fixed.data == data:
                    for expert in _expert_degrees(config, data * context * tensor, fixed):
                        yield tensor, pipeline, context, data, expert


def _tensor_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = config.model.transformer
    if fixed.tensor is not None:
        return [fixed.tensor] if gpus % fixed.tensor == 0 else []
    return [each for each in divisors(gpus) if t and t.heads % each == 0] if not whole else [1]


def _pipeline_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = config.model.transformer
    if fixed.pipeline is not None:
        return [fixed.pipeline] if gpus % fixed.pipeline == 0 else []
    if whole or t is None:
        return [1]
    return [each for each in divisors(gpus) if each <= t.layers and -t.layers % each <= MOST_PADDING * t.layers]


def _context_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout) -> list[int]:
    if fixed.context is not None:
        return [fixed.context] if gpus % fixed.context == 0 else []
    if config.model.transformer is None:
        return [1]
    return [each for each in divisors(gpus) if each == 1 or config.sequence_length >= each * LONG_SEQUENCE]


def _expert_degrees(config: TrainingConfig, gpus: int, fixed: FixedLayout) -> list[int]:
    t = config.model.transformer
    if fixed.expert is not None:
        return [fixed.expert]
    return divisors(gcd(t.experts, gpus)) if t and t.experts else [1]


def micro_batches(config: TrainingConfig, share: int, fixed: FixedLayout) -> list[int]:
    """Sizes that divide the samples of one data-parallel rank."""
    if fixed.micro_batch is not None:
        return [fixed.micro_batch]
    if fixed.accumulation is not None:
        return [-(-share // fixed.accumulation)]
    most = most_samples_per_micro_batch(config)
    return [each for each in divisors(share) if each <= most]


def zero_stages(config: TrainingConfig, fixed: FixedLayout) -> tuple[int, ...]:
    if fixed.zero_stage is not None:
        return (fixed.zero_stage,)
    return config.software.stack_class.zero_stages


def highest_stage(cut: Cut, fixed: FixedLayout) -> int:
    """The last ZeRO stage that shards more: from 2 on not with a pipeline, which holds gradients over micro-batches."""
    _, pipeline, context, data, _ = cut
    if fixed.zero_stage is not None:
        return fixed.zero_stage
    return 0 if data * context == 1 else 1 if pipeline > 1 else 3


def checkpointings(config: TrainingConfig, fixed: FixedLayout) -> tuple[Checkpointing, ...]:
    if fixed.activation_checkpointing is not None:
        return (fixed.activation_checkpointing,)
    return CHECKPOINTINGS if config.model.transformer is not None else ("none",)


Way = tuple[int, int]
"""A ZeRO stage, and a place in CHECKPOINTINGS."""


def every_way(config: TrainingConfig, fixed: FixedLayout, highest: int) -> list[Way]:
    """Pairs up to a stage."""
    hows = [CHECKPOINTINGS.index(how) for how in checkpointings(config, fixed)]
    return [(stage, how) for stage in zero_stages(config, fixed) if stage <= highest for how in hows]


Piece = tuple[Cut, int, int, int]
"""A cut, the samples of a micro-batch, how many of them one after another, and places of the last that stay empty."""


def pieces_of(
    config: TrainingConfig, gpus: int, linked_gpus: int, fixed: FixedLayout, *, across: bool
) -> Iterator[Piece]:
    """Cuts with micro-batches that give each data-parallel rank a sample, the simplest first."""
    batch = assumed_batch(config, gpus)
    for cut in cuts_of(config, gpus, linked_gpus, fixed, across=across):
        data = cut[3]
        share = -(-batch // data)
        for micro in micro_batches(config, share, fixed) if data <= batch else ():
            accumulation = fixed.accumulation or max(1, -(-share // micro))
            empty = data * micro * accumulation - batch
            yield cut, micro, accumulation, empty if 0 <= empty < data * micro else 0


def every_training_layout(
    config: TrainingConfig, cluster: Cluster, fixed: FixedLayout = FREE, *, across: bool = False
) -> Iterator[Layout]:
    """One by one, the simplest first. Raises `QuestionError` when what is fixed cannot be."""
    check_fixed(fixed, config, cluster)
    for cut, micro, accumulation, empty in pieces_of(config, cluster.gpus, cluster.linked_gpus, fixed, across=across):
        tensor, pipeline, context, data, expert = cut
        virtual = fixed.virtual_stages or 1
        for stage, how in every_way(config, fixed, highest_stage(cut, fixed)):
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
                empty,
            )


def every_inference_layout(
    config: InferenceConfig, cluster: Cluster, fixed: FixedLayout = FREE, *, across: bool = False
) -> Iterator[Layout]:
    """Tensor and pipeline cuts of one replica, the fewest GPUs first. Raises `QuestionError` like its sister."""
    check_fixed(fixed, config, cluster)
    t = config.model.transformer
    gpus = cluster.gpus
    tensors = [fixed.tensor] if fixed.tensor else [each for each in divisors(gpus) if t and t.heads % each == 0] or [1]
    cuts = [
        (tensor, pipeline)
        for tensor in tensors
        if fixed.tensor or crosses_slow_links(tensor, cluster.linked_gpus) == across
        for pipeline in ([fixed.pipeline] if fixed.pipeline else divisors(gpus // tensor))
        if gpus % (tensor * pipeline) == 0 and (fixed.pipeline or pipeline <= (t.layers if t else 1))
    ]
    found = [Layout(tensor, pipeline, gpus // (tensor * pipeline)) for tensor, pipeline in cuts]
    for layout in sorted(found, key=lambda each: (each.model_ranks, each.pipeline)):
        if fixed.data in (None, layout.data):
            yield layout
