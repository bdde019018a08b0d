"""The layouts worth trying: every division of a job over clusters that its model, its stack and the caller allow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask, Number, still, taken
from service.domain.jobs.config import Config, InferenceConfig, Method, TrainingConfig
from service.domain.layouts.usual import FixedLayout, most_samples_per_micro_batch
from service.domain.models.model import Model
from service.domain.physics.parallelism import CHECKPOINTINGS, LayoutTable

Columns = dict[str, NDArray[Any]]
Size = tuple[int, int, int]
"""GPUs of a cluster, GPUs on one fast link, and most GPUs that may share a copy of a model."""

Way = tuple[int, int]
"""A ZeRO stage, and an index in CHECKPOINTINGS."""

LONG_SEQUENCE = 8192
"""Fewest tokens per GPU of a context-parallel group; shorter pieces are not worth the ring."""

MOST_PADDING = 0.05
"""Largest share of a stage's time that uneven pipeline stages may idle in training (126 layers on 4 stages: 1.6 %)."""

USUAL_TOKENS_PER_STEP = {"pretrain": 2**20, "train": 2**20}
"""By purpose. About a million tokens when all weights learn from the start (GPT-3 0.5-3.2 million, Llama 2 4)."""

USUAL_TOKENS_PER_TUNING_STEP = 2**17
"""32 long sequences: Alpaca tunes with 65,000 tokens in a step, Vicuna and the chat models of Llama 2 with 262,000."""

USUAL_SAMPLES_PER_STEP = {"full": 1024, "lora": 4, "qlora": 4, "adapter": 4}
"""About a thousand images when all weights learn (as for ImageNet), else 4 (diffusers' commands for LoRA)."""

USUAL_SAMPLES_PER_FULL_STEP = {
    "recommender": 65536,
    "speech": 256,
    "detection": 64,
    "segmentation": 32,
    "diffusion": 32,
}
"""By family, where all weights learn and it is not about a thousand. MLPerf's DLRM trains with 55,296 to 65,536 rows in
a step, Whisper with 256 utterances (its paper), YOLO with 64 images (Ultralytics' nominal batch), torchvision segments
with 4 images on each of 8 GPUs, and a published diffusion model is tuned with as many (diffusers' command for SDXL).
"""

CUTS_OF_A_REPLICA = ("tensor", "pipeline", "context")
"""Degrees that divide a copy of the model over GPUs."""


@dataclass(frozen=True, slots=True)
class LayoutCandidates:
    """Layouts for clusters of several shapes in one table: rows starts[i] to starts[i+1] belong to shape i."""

    layouts: LayoutTable
    linked_gpus: Floats
    crossing: Mask
    """Layouts with tensor parallelism across slow links that the caller did not ask for. They are for models that fit
    in no other way, or that no other layout divides over the cluster."""
    starts: Indices

    def by_shape(self) -> Iterator[tuple[int, slice]]:
        """Each shape that has layouts, with their rows."""
        starts = self.starts.tolist()
        for shape, (start, end) in enumerate(pairwise(starts)):
            if start < end:
                yield shape, slice(start, end)

    def among(self, rows: Indices, starts: Indices) -> "LayoutCandidates":
        """Returns some of the layouts, in the given order, with the first row of each shape in it."""
        return LayoutCandidates(taken(self.layouts, rows), self.linked_gpus[rows], self.crossing[rows], starts)


@dataclass(frozen=True, slots=True)
class CutLimits:
    """Limits that a model and its stack set to the degrees of parallelism."""

    heads: int = 1
    """Tensor degrees divide it."""
    layers: int = 1
    """Most pipeline stages."""
    padding: float = 1.0
    """Largest share of a stage's time that uneven stages may idle."""
    contexts: int = 1
    experts: int = 0
    """Expert degrees divide it."""


def crosses_slow_links(tensor: Number, linked_gpus: Number) -> Number:
    """Whether a tensor-parallel group leaves the GPUs on one fast link, or does not fit evenly inside them."""
    return (tensor > linked_gpus) | (linked_gpus % tensor != 0)


def usual_batch(model: Model, method: Method, purpose: str, sequence_length: int) -> int:
    """Returns the samples of a usual optimizer step: a power of two, with about the tokens of a usual step."""
    if model.transformer is not None and sequence_length:
        tokens = USUAL_TOKENS_PER_STEP.get(purpose, USUAL_TOKENS_PER_TUNING_STEP)
        return 1 << (max(1, tokens // sequence_length).bit_length() - 1)
    usual = USUAL_SAMPLES_PER_STEP[method]
    return USUAL_SAMPLES_PER_FULL_STEP.get(model.family, usual) if method == "full" else usual


def assumed_batch(config: TrainingConfig, gpus: int) -> int:
    """Returns the global batch: by default one pass of the batch that each GPU is given, else a usual one.

    A usual batch is rounded so that every GPU gets the same number of samples.
    """
    if config.global_batch:
        return config.global_batch
    usual = usual_batch(config.model, config.method, config.task, config.sequence_length)
    return gpus * (config.batch_per_gpu or max(1, round(usual / gpus)))


def ways_to_run(config: TrainingConfig, fixed: FixedLayout, highest: int) -> list[Way]:
    """Every ZeRO stage up to the highest, with every kind of activation checkpointing."""
    stages = config.software.stack_class.zero_stages if fixed.zero_stage is None else (fixed.zero_stage,)
    if fixed.activation_checkpointing is not None:
        kinds = [CHECKPOINTINGS.index(fixed.activation_checkpointing)]
    else:
        # Libraries recompute blocks of transformers and of diffusion models, and no others.
        recomputes = config.model.transformer is not None or config.model.family == "diffusion"
        kinds = list(range(len(CHECKPOINTINGS))) if recomputes else [0]
    return [(stage, kind) for stage in stages if stage <= highest for kind in kinds]


def training_candidates(
    config: TrainingConfig,
    shapes: Sequence[Size],
    fixed: FixedLayout,
    ways: Callable[[int], Sequence[Way]],
) -> LayoutCandidates:
    """Layouts of a training job for every shape.

    `ways` returns the pairs of ZeRO stage and checkpointing to try, up to a stage.
    """
    cuts = cuts_of(config, shapes, fixed)
    batch = np.array([float(assumed_batch(config, gpus)) for gpus, _, _ in shapes])[cuts["shape"]]
    cut, micro = _with_micro_batches(config, batch, cuts["data"], fixed)
    rounds = np.maximum(1, np.ceil(np.ceil(batch / cuts["data"])[cut] / micro))
    accumulation = np.full(len(micro), float(fixed.accumulation)) if fixed.accumulation else rounds
    piece, virtual = _with_virtual_stages(config, cuts["pipeline"][cut], accumulation, fixed)
    cut, micro, accumulation = cut[piece], micro[piece], accumulation[piece]
    piece, way, stages_and_kinds = _with_ways(cuts, cut, fixed, ways)
    cut, micro, accumulation, virtual = cut[piece], micro[piece], accumulation[piece], virtual[piece]
    batch, rows = batch[cut], {name: column[cut] for name, column in cuts.items()}
    # The assumed batch is as large as its slots.
    empty = rows["data"] * micro * accumulation - batch if config.global_batch else np.zeros(len(micro))
    starts = np.searchsorted(rows.pop("shape"), np.arange(len(shapes) + 1))
    linked_gpus, crossing = rows.pop("linked_gpus"), rows.pop("crossing")
    layouts = LayoutTable(
        **rows,
        zero_stage=stages_and_kinds[way, 0].astype(np.float64),
        micro_batch=micro,
        accumulation=accumulation,
        checkpointing=stages_and_kinds[way, 1],
        empty_samples=np.where((empty >= 0) & (empty < rows["data"] * micro), empty, 0.0),
        virtual_stages=virtual,
    )
    return LayoutCandidates(layouts, linked_gpus, crossing, starts)


def cuts_of(config: Config, shapes: Sequence[Size], fixed: FixedLayout) -> Columns:
    """Degrees of parallelism that multiply to the GPUs of each shape, shape by shape.

    The column `crossing` marks tensor parallelism across slow links that the caller did not ask for.
    """
    limits = _limits(config)
    # A fourth degree makes many more candidates, so context parallelism takes part only where a job can use it.
    factors = 4 if fixed.context is not None or limits.contexts > 1 else 3
    products = [_factorisations(gpus, factors) for gpus, _, _ in shapes]
    sizes = [len(product) for product in products]
    tensor, pipeline, data, *context = np.concatenate([np.zeros((0, factors)), *products]).T
    cuts: Columns = {
        "shape": np.repeat(np.arange(len(shapes)), sizes),
        "linked_gpus": np.repeat([float(linked) for _, linked, _ in shapes], sizes),
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "context": context[0] if context else np.ones(len(tensor)),
    }
    crossing = crosses_slow_links(cuts["tensor"], cuts["linked_gpus"]) if fixed.tensor is None else False
    cuts["crossing"] = np.broadcast_to(crossing, len(tensor))
    allowed = _allowed(limits, cuts, fixed)
    cuts = {name: column[allowed] for name, column in cuts.items()}
    cuts = _with_experts(config, limits, cuts, fixed)
    if any(getattr(fixed, name) is not None for name in CUTS_OF_A_REPLICA):
        return cuts
    within = np.array([float(replica) for _, _, replica in shapes])[cuts["shape"]]
    near = _gpus_that_a_replica_spans(config, cuts, fixed) <= within
    return {name: column[near] for name, column in cuts.items()}


def _gpus_that_a_replica_spans(config: Config, cuts: Columns, fixed: FixedLayout) -> Floats:
    """GPUs from the first to the last of a copy of the model, whose experts may be on those of other replicas. In
    training, other copies lie between two stages.
    """
    layer = cuts["tensor"] * cuts["context"]
    layer = np.maximum(layer, cuts["expert"]) if fixed.expert is None else layer
    if isinstance(config, InferenceConfig):
        return np.asarray(layer * cuts["pipeline"])
    all_stages = cuts["tensor"] * cuts["context"] * cuts["pipeline"] * cuts["data"]
    return np.where(cuts["pipeline"] > 1, all_stages, layer)


def _limits(config: Config) -> CutLimits:
    t = config.model.transformer
    if t is None:
        return CutLimits()
    if isinstance(config, InferenceConfig):
        if config.software.stack.splits_layers:
            return CutLimits(layers=t.layers)
        return CutLimits(t.heads, t.layers, experts=t.experts)
    contexts = max(1, config.sequence_length // LONG_SEQUENCE)
    if config.software.stack_class.cuts_models:
        return CutLimits(t.heads, t.layers, MOST_PADDING, contexts, t.experts)
    return CutLimits(contexts=contexts, experts=t.experts)


@lru_cache(256)  # fleets have few sizes, and finding the products takes a tenth of a question about a new job
def _factorisations(gpus: int, factors: int) -> Indices:
    """Every way to write a number as a product of so many factors, in order, one per row."""
    divisors = _divisors(gpus)
    products = divisors
    for _ in range(factors - 2):
        products = products[..., None] * divisors
    indices = np.nonzero(gpus % products == 0)
    return still(np.column_stack([*(divisors[index] for index in indices), gpus // products[indices]]))


def _divisors(number: int) -> Indices:
    tried = np.arange(1, isqrt(number) + 1)
    small = tried[number % tried == 0]
    large = number // small[::-1]
    return np.concatenate([small, large[large > small[-1]]])


def _allowed(limits: CutLimits, cuts: Columns, fixed: FixedLayout) -> Mask:
    allowed = np.ones(len(cuts["tensor"]), dtype=bool)
    for name in ("tensor", "pipeline", "data", "context"):
        if getattr(fixed, name) is not None:
            allowed &= cuts[name] == getattr(fixed, name)
    if fixed.tensor is None:
        allowed &= limits.heads % cuts["tensor"] == 0
    if fixed.pipeline is None:
        pieces = np.where(cuts["pipeline"] > 1, fixed.virtual_stages or 1, 1)
        allowed &= cuts["pipeline"] * pieces <= limits.layers
        allowed &= -limits.layers % cuts["pipeline"] <= limits.padding * limits.layers
    if fixed.context is None:
        allowed &= cuts["context"] <= limits.contexts
    return allowed


def _with_experts(config: Config, limits: CutLimits, cuts: Columns, fixed: FixedLayout) -> Columns:
    """Repeats each cut for every expert degree that it allows.

    An engine cuts experts as it cuts other weights, or spreads them over the GPUs of all replicas: with data-parallel
    attention, each replica has its own requests and cache, and a share of the experts.
    """
    if fixed.expert is not None or not limits.experts:
        return cuts | {"expert": np.full(len(cuts["shape"]), float(fixed.expert or 1))}
    ranks, experts = (cuts["tensor"] * cuts["data"] * cuts["context"])[:, None], _divisors(limits.experts)
    divides = ranks % experts == 0
    if isinstance(config, InferenceConfig):
        divides &= (experts == 1) | (experts == ranks) & (cuts["data"][:, None] > 1)
    cut, expert = np.nonzero(divides)
    return {name: column[cut] for name, column in cuts.items()} | {"expert": experts[expert].astype(np.float64)}


def _with_micro_batches(
    config: TrainingConfig, batch: Floats, data: Floats, fixed: FixedLayout
) -> tuple[Indices, Floats]:
    """Repeats each cut for every size of micro-batch; a cut must give each data-parallel rank a sample."""
    spread = np.flatnonzero(data <= batch)
    share = np.ceil(batch[spread] / data[spread])
    if fixed.micro_batch is not None:
        return spread, np.full(len(spread), float(fixed.micro_batch))
    if fixed.accumulation is not None:
        return spread, np.ceil(share / fixed.accumulation)
    divisors = [_divisors(int(samples)) for samples in set(share.tolist())]
    sizes = np.unique(np.concatenate([np.zeros(0, np.int64), *divisors]))
    sizes = sizes[sizes <= most_samples_per_micro_batch(config)]
    row, size = np.nonzero(share[:, None] % sizes == 0)
    return spread[row], sizes[size].astype(np.float64)


def _with_virtual_stages(
    config: TrainingConfig, pipeline: Floats, accumulation: Floats, fixed: FixedLayout
) -> tuple[slice | Indices, Floats]:
    """Repeats each row for the numbers of equal pieces into which its stack may cut a stage: one, two, and its layers.

    Interleaved stages take whole rounds of as many micro-batches as there are stages (Megatron-LM, torchtitan).
    """
    t = config.model.transformer
    if t is None or fixed.virtual_stages or not config.software.stack.interleaves_stages:
        return slice(None), np.full(len(pipeline), float(fixed.virtual_stages or 1))
    # Numbers between these made the fastest of 40 layouts 0.2 % faster on average, and the search twice as long.
    layers = t.layers / pipeline
    rounds = (pipeline > 1) & (accumulation % pipeline == 0)
    one, two = np.ones(len(layers)), np.full(len(layers), 2.0)
    tried = np.column_stack([one > 0, rounds & (layers % 2 == 0), rounds & (layers % 1 == 0) & (layers > 2)])
    row, piece = np.nonzero(tried)
    return row, np.column_stack([one, two, layers])[row, piece]


def _with_ways(
    cuts: Columns, cut: Indices, fixed: FixedLayout, ways: Callable[[int], Sequence[Way]]
) -> tuple[Indices, Indices, Indices]:
    """Pairs of a cut and a way that is worth trying with it, as indices into `cuts` and into the ways, which are
    returned last.
    """
    if fixed.zero_stage is not None:
        highest = np.full(len(cut), fixed.zero_stage)
    else:
        sharded = (cuts["data"] * cuts["context"] > 1)[cut]
        # A pipeline holds gradients over its micro-batches, so that stages 2 and 3 save nothing more.
        highest = np.where(sharded, np.where(cuts["pipeline"][cut] > 1, 1, 3), 0)
    ways_up_to = {stage: set(ways(stage)) for stage in sorted(set(highest.tolist()))}
    every = sorted(set().union(*ways_up_to.values()))
    allowed = np.zeros((max(ways_up_to, default=0) + 1, len(every)), dtype=bool)
    for stage, known in ways_up_to.items():
        allowed[stage] = [way in known for way in every]
    piece, way = np.nonzero(allowed[highest])
    return piece, way, np.array(every, dtype=np.int64).reshape(-1, 2)
