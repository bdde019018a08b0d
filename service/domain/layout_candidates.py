"""The layouts worth trying: every way to cut a job over a machine's GPUs that the model and its stack allow."""

from collections.abc import Iterator
from math import gcd

from service.domain.layout_checks import check_fixed
from service.domain.layouts import FREE, FixedLayout
from service.domain.machine import Machine
from service.domain.parallelism import Checkpointing, Layout
from service.domain.workload import Inference, Training

CHECKPOINTINGS: tuple[Checkpointing, ...] = ("none", "selective", "full")

UNCUT_STACKS = ("eager", "graph")
"""Classes of stacks that train with replicas and shards of states, and cut neither matrices nor layers."""

ZERO_STAGES = {"megatron": (0, 1), "tuned": (0, 1), "graph": (0,)}
"""Megatron's distributed optimizer is ZeRO-1; graph stacks replicate. Others go to stage 3 (ZeRO, FSDP)."""

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


def divisors(number: int) -> list[int]:
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def crosses_slow_links(tensor: int, linked_gpus: int) -> bool:
    """Whether a tensor-parallel group leaves the GPUs on one fast link, or cannot be laid evenly inside them."""
    return tensor > linked_gpus or linked_gpus % tensor != 0


def assumed_batch(work: Training, gpus: int) -> int:
    """The global batch; where nobody says, a usual one that gives every GPU as many samples."""
    if work.global_batch:
        return work.global_batch
    usual = USUAL_SAMPLES_PER_STEP
    if work.model.transformer is not None and work.sequence_length:
        usual = max(1, USUAL_TOKENS_PER_STEP[work.method] // work.sequence_length)
    return gpus * max(1, round(usual / gpus))


def cuts_of(work: Training, gpus: int, linked_gpus: int, fixed: FixedLayout, *, across: bool) -> Iterator[Cut]:
    """Degrees that multiply out to the GPUs. `across` asks for those whose tensor cut crosses slow links instead."""
    whole = work.model.transformer is None or work.software.way in UNCUT_STACKS
    for tensor in _tensor_degrees(work, gpus, fixed, whole=whole):
        if fixed.tensor is None and crosses_slow_links(tensor, linked_gpus) != across:
            continue
        for pipeline in _pipeline_degrees(work, gpus // tensor, fixed, whole=whole):
            for context in _context_degrees(work, gpus // tensor // pipeline, fixed):
                data = gpus // (tensor * pipeline * context)
                if fixed.data is None or fixed.data == data:
                    for expert in _expert_degrees(work, data * context * tensor, fixed):
                        yield tensor, pipeline, context, data, expert


def _tensor_degrees(work: Training, gpus: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = work.model.transformer
    if fixed.tensor is not None:
        return [fixed.tensor]
    return [each for each in divisors(gpus) if t and t.heads % each == 0] if not whole else [1]


def _pipeline_degrees(work: Training, gpus: int, fixed: FixedLayout, *, whole: bool) -> list[int]:
    t = work.model.transformer
    if fixed.pipeline is not None:
        return [fixed.pipeline] if gpus % fixed.pipeline == 0 else []
    if whole or t is None:
        return [1]
    return [each for each in divisors(gpus) if each <= t.layers and -t.layers % each <= MOST_PADDING * t.layers]


def _context_degrees(work: Training, gpus: int, fixed: FixedLayout) -> list[int]:
    if fixed.context is not None:
        return [fixed.context] if gpus % fixed.context == 0 else []
    if work.model.transformer is None:
        return [1]
    return [each for each in divisors(gpus) if each == 1 or work.sequence_length >= each * LONG_SEQUENCE]


def _expert_degrees(work: Training, gpus: int, fixed: FixedLayout) -> list[int]:
    t = work.model.transformer
    if fixed.expert is not None:
        return [fixed.expert]
    return divisors(gcd(t.experts, gpus)) if t and t.experts else [1]


def micro_batches(work: Training, share: int, fixed: FixedLayout) -> list[int]:
    """Sizes that divide the samples of one data-parallel rank."""
    if fixed.micro_batch is not None:
        return [fixed.micro_batch]
    if fixed.accumulation is not None:
        return [-(-share // fixed.accumulation)]
    most = MOST_SAMPLES_IN_A_MICRO_BATCH
    if work.sequence_length:
        most = max(1, min(most, MOST_TOKENS_IN_A_MICRO_BATCH // work.sequence_length))
    return [each for each in divisors(share) if each <= most]


def zero_stages(work: Training, cut: Cut, fixed: FixedLayout) -> tuple[int, ...]:
    """Stages that shard something: from 2 on not with a pipeline, which holds gradients over its micro-batches."""
    if fixed.zero_stage is not None:
        return (fixed.zero_stage,)
    _, pipeline, context, data, _ = cut
    stages = ZERO_STAGES.get(work.software.way, (0, 1, 2, 3))
    most = 0 if data * context == 1 else 1 if pipeline > 1 else 3
    return tuple(stage for stage in stages if stage <= most)


def checkpointings(work: Training, fixed: FixedLayout) -> tuple[Checkpointing, ...]:
    if fixed.activation_checkpointing is not None:
        return (fixed.activation_checkpointing,)
    return CHECKPOINTINGS if work.model.transformer is not None else ("none",)


def every_training_layout(
    work: Training, machine: Machine, fixed: FixedLayout = FREE, *, across: bool = False
) -> Iterator[Layout]:
    """One by one, the simplest first. Raises `QuestionError` when what is fixed cannot be."""
    check_fixed(fixed, work, machine)
    batch = assumed_batch(work, machine.gpus)
    for cut in cuts_of(work, machine.gpus, machine.linked_gpus, fixed, across=across):
        tensor, pipeline, context, data, expert = cut
        if data > batch:
            continue
        share = -(-batch // data)
        for stage in zero_stages(work, cut, fixed):
            for checkpointing in checkpointings(work, fixed):
                for micro in micro_batches(work, share, fixed):
                    yield Layout(
                        tensor,
                        pipeline,
                        data,
                        context,
                        expert,
                        stage,
                        micro,
                        fixed.accumulation or max(1, -(-share // micro)),
                        checkpointing,
                        fixed.virtual_stages or 1,
                    )


def every_inference_layout(
    work: Inference, machine: Machine, fixed: FixedLayout = FREE, *, across: bool = False
) -> Iterator[Layout]:
    """Tensor and pipeline cuts of one replica, the fewest GPUs first. Raises `QuestionError` like its sister."""
    check_fixed(fixed, work, machine)
    t = work.model.transformer
    gpus = machine.gpus
    tensors = [fixed.tensor] if fixed.tensor else [each for each in divisors(gpus) if t and t.heads % each == 0] or [1]
    cuts = [
        (tensor, pipeline)
        for tensor in tensors
        if fixed.tensor or crosses_slow_links(tensor, machine.linked_gpus) == across
        for pipeline in ([fixed.pipeline] if fixed.pipeline else divisors(gpus // tensor))
        if gpus % (tensor * pipeline) == 0 and (fixed.pipeline or pipeline <= (t.layers if t else 1))
    ]
    found = [Layout(tensor, pipeline, gpus // (tensor * pipeline)) for tensor, pipeline in cuts]
    for layout in sorted(found, key=lambda each: (each.model_ranks, each.pipeline)):
        if fixed.data in (None, layout.data):
            yield layout
