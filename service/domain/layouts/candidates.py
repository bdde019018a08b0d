"""The layouts worth trying: every division of a job over clusters that its model, its stack and the caller allow."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices, Mask, Number, read_only, taken
from service.domain.jobs.config import Config, InferenceConfig, Method, TrainingConfig
from service.domain.jobs.fixed_layout import CHECKPOINTINGS, Checkpointing, FixedLayout
from service.domain.jobs.stacks import UNKNOWN_STACK
from service.domain.layouts.cluster_table import Size
from service.domain.layouts.usual import most_samples_per_micro_batch
from service.domain.models.model import Model
from service.domain.physics.parallelism import LayoutTable, crosses_slow_links

Columns = dict[str, NDArray[Any]]
MemorySaving = tuple[int, int]
"""A ZeRO stage and an index in `CHECKPOINTINGS`: the two choices of a layout that save memory."""

LONG_SEQUENCE = 8192
"""Fewest tokens per GPU of a context-parallel group; with fewer, the exchange between its GPUs costs too much."""

MOST_PADDING = 0.05
"""Largest share of its time that a stage may idle in training because stages have unequal numbers of layers (126 layers
on 4 stages: 1.6 %)."""

USUAL_TOKENS_PER_STEP = {"pretrain": 2**20, "train": 2**20}
"""By purpose: about a million tokens when all weights learn from the start (0.5 to 3.2 million for GPT-3, 4 million for
Llama 2)."""

USUAL_TOKENS_PER_TUNING_STEP = 2**17
"""Tokens of 32 sequences of 4,096: Alpaca tunes with 65,000 tokens in a step, Vicuna and the chat models of Llama 2
with 262,000."""

USUAL_SAMPLES_PER_STEP = {"full": 1024, "lora": 4, "qlora": 4, "adapter": 4}
"""By method: about a thousand images when all weights learn, as for ImageNet; else 4 (diffusers' commands for LoRA)."""

USUAL_SAMPLES_PER_FULL_STEP = {
    "recommender": 65536,
    "recurrent": 16384,
    "speech": 256,
    "detection": 64,
    "segmentation": 32,
    "diffusion": 32,
}
"""Family of models → samples of a usual step in which all weights learn, where these are not about 1,000. MLPerf's
DLRM trains with 55,296 to 65,536 rows in a step, recurrent networks with 5,600 (AWD-LSTM) to 26,000 tokens (1,024
sentences of GNMT; both recalled), Whisper with 256 utterances (its paper), YOLO with 64 images (Ultralytics' nominal
batch), torchvision segments with 4 images on each of 8 GPUs, and a published diffusion model is tuned with as many
(diffusers' command for SDXL).
"""

USUAL_SAMPLES_WITHOUT_ACCUMULATION = 2
"""Samples of a GPU in a step of a fused optimizer, which accumulates no gradients (torchtune's recipes for a GPU)."""

DEGREES_OF_A_REPLICA = ("tensor", "pipeline", "context")
"""Degrees that divide a copy of the model over GPUs."""


@dataclass(frozen=True, slots=True)
class LayoutCandidates:
    """Layouts for clusters of several sizes in one table: rows starts[i] to starts[i+1] are those of group i.

    Group 2 s has the layouts for size s. Group 2 s + 1 has those with tensor parallelism across slow links that the
    caller did not ask for: for models that fit in no other layout, or that no other layout divides over the cluster.
    """

    layouts: LayoutTable
    linked_gpus: Floats
    starts: Indices

    def by_group(self) -> Iterator[tuple[int, slice]]:
        """Yields each group that has layouts, with the rows of its layouts."""
        starts = self.starts.tolist()
        for group, (start, end) in enumerate(pairwise(starts)):
            if start < end:
                yield group, slice(start, end)

    @property
    def group(self) -> Indices:
        """Group of each row."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def among(self, rows: Indices) -> "LayoutCandidates":
        """Returns the layouts in these rows, in this order; those of a group must follow those of the groups before."""
        starts = np.searchsorted(self.group[rows], np.arange(len(self.starts)))
        return LayoutCandidates(taken(self.layouts, rows), self.linked_gpus[rows], starts)

    def least_of_groups(self, figure: Floats) -> tuple[Indices, Floats]:
        """Returns the first row of each group with the least figure of the group, and that figure; infinite without
        rows.
        """
        rows, least = np.zeros(len(self.starts) - 1, np.int64), np.full(len(self.starts) - 1, np.inf)
        has_rows = np.flatnonzero(np.diff(self.starts))
        if len(has_rows):
            least[has_rows] = np.minimum.reduceat(figure, self.starts[has_rows])
            are_least = np.flatnonzero(figure == least[self.group])
            rows[has_rows] = are_least[np.searchsorted(are_least, self.starts[has_rows])]
        return rows, least


@dataclass(frozen=True, slots=True)
class DegreeLimits:
    """Limits that a model and its stack set on the degrees of parallelism."""

    divides_heads_over: Callable[[Floats], Number] | None = None
    """Whether tensor degrees divide the heads; None where layers are not divided, unless the caller does so."""
    layers: int = 1
    """Layers that pipeline stages divide, and so the most stages; 1 where there can be no stages."""
    padding: float = 1.0
    """Largest share of its time that a stage may idle because stages are unequal."""
    contexts: int = 1
    """Most GPUs of a context-parallel group."""
    experts: int = 0
    """Experts of a layer: expert degrees divide them in training, and are at most as many in inference."""


def usual_batch(model: Model, method: Method, purpose: str, sequence_length: int) -> int:
    """Returns the samples of a usual optimizer step; for sequences a power of two with about the usual tokens."""
    if method == "full" and model.family in USUAL_SAMPLES_PER_FULL_STEP:
        return USUAL_SAMPLES_PER_FULL_STEP[model.family]
    if model.transformer is not None and sequence_length:
        tokens = USUAL_TOKENS_PER_STEP.get(purpose, USUAL_TOKENS_PER_TUNING_STEP)
        return 1 << (max(1, tokens // sequence_length).bit_length() - 1)
    return USUAL_SAMPLES_PER_STEP[method]


def assumed_batch(config: TrainingConfig, gpus: Number, sharing: Number) -> Number:
    """Returns the global batch of a layout on this number of GPUs, of which each group of `sharing` works on the same
    samples: the caller's, else one micro-batch of the caller's size for each group, else a usual one.

    A usual batch is rounded so that every GPU gets the same number of samples, and whole groups of those that are read
    together. With a fused optimizer it is one micro-batch too.
    """
    if config.global_batch:
        return float(config.global_batch)
    fused = config.fused_optimizer * min(USUAL_SAMPLES_WITHOUT_ACCUMULATION, _most_samples(config))
    if of_a_group := config.batch_per_gpu or fused:
        return gpus / sharing * of_a_group
    usual = usual_batch(config.model, config.method, config.task, config.sequence_length)
    together = config.samples_together
    of_each: Number = together * np.maximum(1.0, np.round(usual / gpus / together))
    return gpus * of_each


def memory_savings(config: TrainingConfig, fixed: FixedLayout, highest: int) -> list[MemorySaving]:
    """Returns every ZeRO stage up to the highest, with every kind of activation checkpointing."""
    stack_class = config.software.stack_class
    stages = stack_class.zero_stages if fixed.zero_stage is None else (fixed.zero_stage,)
    kinds: tuple[Checkpointing, ...] = ("none",)
    if fixed.activation_checkpointing is not None:
        kinds = (fixed.activation_checkpointing,)
    # Libraries recompute the layers of transformers and of diffusion models, and no others.
    elif config.model.transformer is not None or config.model.blocks is not None or config.model.family == "diffusion":
        # Adapters without a stack are trained as in PEFT (decision 15), which recomputes whole layers.
        as_in_peft = config.method != "full" and stack_class.id == "unknown"
        kinds = ("none", "full") if as_in_peft else stack_class.checkpointings
    return [(stage, CHECKPOINTINGS.index(kind)) for stage in stages if stage <= highest for kind in kinds]


def training_candidates(
    config: TrainingConfig,
    shapes: Sequence[Size],
    fixed: FixedLayout,
    savings: Callable[[int], Sequence[MemorySaving]],
) -> LayoutCandidates:
    """Returns the layouts of a training job for every shape; what the caller fixes stays.

    Else, micro-batches and pipeline stages are those that need the least memory: a micro-batch has the samples that are
    read together, and a stage has one group of layers.

    `savings` returns the pairs of ZeRO stage and checkpointing to try, up to a highest stage.
    """
    degrees = degrees_of(config, shapes, fixed)
    gpus = np.array([float(gpus) for gpus, _, _ in shapes])[degrees["shape"]]
    batch = np.broadcast_to(assumed_batch(config, gpus, degrees["tensor"] * degrees["context"]), len(gpus))
    degrees["group"] = 2 * degrees.pop("shape") + degrees.pop("crossing")
    by_group = np.argsort(degrees["group"], kind="stable")
    batch, degrees = batch[by_group], {name: column[by_group] for name, column in degrees.items()}
    together, rounds = config.samples_together, float(fixed.accumulation or 0)
    share = together * np.ceil(batch / degrees["data"] / together)
    of_round = together * np.ceil(share / rounds / together) if rounds else float(together)
    micro = np.broadcast_to(fixed.micro_batch or of_round, share.shape)
    accumulation = np.broadcast_to(rounds or np.ceil(share / micro), share.shape)
    divides = degrees["data"] * together <= batch
    if config.global_batch and fixed.micro_batch and fixed.accumulation:
        # The last round may be filled in part, and no round may be empty.
        slots = degrees["data"] * fixed.micro_batch
        divides &= (slots * (fixed.accumulation - 1.0) < batch) & (batch <= slots * fixed.accumulation)
    # An assumed batch fills all slots.
    empty = degrees["data"] * micro * accumulation - batch if config.global_batch else np.zeros(len(batch))
    kept = _exact_if_any(np.flatnonzero(divides), degrees["group"], empty == 0)
    row, saving = _with_savings(degrees, kept, fixed, savings)
    rows = {name: column[row] for name, column in degrees.items()}
    micro, accumulation, empty, ones = micro[row], accumulation[row], empty[row], np.ones(len(row))
    starts = np.searchsorted(rows.pop("group"), np.arange(2 * len(shapes) + 1))
    linked_gpus = rows.pop("linked_gpus")
    layouts = LayoutTable(
        **rows,
        zero_stage=saving[:, 0].astype(np.float64),
        micro_batch=micro,
        accumulation=accumulation,
        checkpointing=saving[:, 1],
        empty_samples=np.where((empty >= 0) & (empty < rows["data"] * micro), empty, 0.0),
        virtual_stages=ones * (fixed.virtual_stages or 1),
    )
    return LayoutCandidates(layouts, linked_gpus, starts)


def _exact_if_any(rows: Indices, group: Indices, exact: Mask) -> Indices:
    """Returns these rows without those that leave slots of a step empty, in groups that have rows without empty slots.

    Most trainers refuse a batch that their ranks do not divide, such as Megatron-LM and DeepSpeed.
    """
    groups_with_exact = np.unique(group[rows[exact[rows]]])
    return rows[exact[rows] | ~np.isin(group[rows], groups_with_exact)]


def without_accumulation(config: TrainingConfig, candidates: LayoutCandidates, fixed: FixedLayout) -> LayoutCandidates:
    """Returns each layout with all samples of a rank in one micro-batch, unless they are too many for one, or the
    caller fixes a part of it.
    """
    layouts = candidates.layouts
    samples = layouts.micro_batch * layouts.accumulation
    free = fixed.micro_batch is None and fixed.accumulation is None
    at_once = (samples <= _most_samples(config)) & free
    micro, rounds = np.where(at_once, samples, layouts.micro_batch), np.where(at_once, 1.0, layouts.accumulation)
    return replace(candidates, layouts=replace(layouts, micro_batch=micro, accumulation=rounds))


def _most_samples(config: TrainingConfig) -> int:
    """Returns the most samples of a micro-batch, which holds those that are read together at the least."""
    return max(config.samples_together, most_samples_per_micro_batch(config))


def with_all_steps(config: TrainingConfig, candidates: LayoutCandidates, fixed: FixedLayout) -> LayoutCandidates:
    """Repeats each layout of `training_candidates` for every size of micro-batch and every number of virtual stages."""
    layouts = candidates.layouts
    row, micro = _micro_batches(config, layouts, fixed)
    accumulation = layouts.accumulation[row] * layouts.micro_batch[row] / micro
    piece, virtual = _virtual_stages(config, layouts.pipeline[row], accumulation, fixed)
    repeated, micro, accumulation = candidates.among(row[piece]), micro[piece], accumulation[piece]
    layouts = replace(repeated.layouts, micro_batch=micro, accumulation=accumulation, virtual_stages=virtual)
    return replace(repeated, layouts=layouts)


def degrees_of(config: Config, shapes: Sequence[Size], fixed: FixedLayout) -> Columns:
    """Returns the degrees of parallelism whose product is the number of GPUs of a shape, shape by shape.

    The column `crossing` marks tensor parallelism across slow links that the caller did not ask for.
    """
    limits = _limits(config)
    # A fourth degree makes many more candidates, so context parallelism is tried only where a job can use it.
    factors = 4 if fixed.context is not None or limits.contexts > 1 else 3
    products = [_factorisations(gpus, factors) for gpus, _, _ in shapes]
    sizes = [len(product) for product in products]
    tensor, pipeline, data, *context = np.concatenate([np.zeros((0, factors)), *products]).T
    degrees: Columns = {
        "shape": np.repeat(np.arange(len(shapes)), sizes),
        "linked_gpus": np.repeat([float(linked) for _, linked, _ in shapes], sizes),
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "context": context[0] if context else np.ones(len(tensor)),
    }
    crossing = crosses_slow_links(degrees["tensor"], degrees["linked_gpus"]) if fixed.tensor is None else False
    degrees["crossing"] = np.broadcast_to(crossing, len(tensor))
    allowed = _allowed(limits, degrees, fixed)
    degrees = {name: column[allowed] for name, column in degrees.items()}
    degrees = _with_experts(config, limits, degrees, fixed)
    if any(getattr(fixed, name) is not None for name in DEGREES_OF_A_REPLICA):
        return degrees
    within = np.array([float(replica) for _, _, replica in shapes])[degrees["shape"]]
    near = _gpus_that_a_replica_spans(config, degrees, fixed) <= within
    return {name: column[near] for name, column in degrees.items()}


def _gpus_that_a_replica_spans(config: Config, degrees: Columns, fixed: FixedLayout) -> Floats:
    """Returns the GPUs from the first to the last one of a copy of the model, in the order of ranks.

    Its experts may be on the GPUs of other replicas. In training, other copies are between two of its stages.
    """
    layer = degrees["tensor"] * degrees["context"]
    layer = np.maximum(layer, degrees["expert"]) if fixed.expert is None else layer
    if isinstance(config, InferenceConfig):
        return np.asarray(layer * degrees["pipeline"])
    all_stages = degrees["tensor"] * degrees["context"] * degrees["pipeline"] * degrees["data"]
    return np.where(degrees["pipeline"] > 1, all_stages, layer)


def divides_layers(config: TrainingConfig) -> bool:
    """Returns whether the stack divides layers and experts over GPUs, if the caller does not ask for it.

    Where no stack is named, adapters are trained in PEFT, which shards weights (ZeRO-3).
    """
    is_peft = config.method != "full" and config.software.stack == UNKNOWN_STACK
    return config.model.transformer is not None and config.software.stack_class.has_model_parallelism and not is_peft


def _limits(config: Config) -> DegreeLimits:
    t, stack_class = config.model.transformer, config.software.stack_class
    if t is None:
        return DegreeLimits()
    divides = np.ones_like if stack_class.pads_heads else t.divides_heads_over
    if isinstance(config, InferenceConfig):
        if config.software.stack.splits_layers:
            return DegreeLimits(layers=t.layers)
        has_stages = config.any_load.has_stages_on(config.software.stack)
        return DegreeLimits(divides, t.layers if has_stages else 1, experts=t.experts)
    contexts = max(1, config.sequence_length // LONG_SEQUENCE)
    if divides_layers(config):
        # Stages that end within an encoder or a decoder have to pass on the result of the encoder, as Megatron-LM does.
        has_stages = stack_class.prefers_model_parallelism or not t.encoder_layers
        return DegreeLimits(divides, t.layers if has_stages else 1, MOST_PADDING, contexts, t.experts)
    return DegreeLimits(contexts=contexts)


@lru_cache(256)  # fleets have few sizes, and finding the products takes a tenth of a question about a new job
def _factorisations(gpus: int, factors: int) -> Indices:
    """Returns every ordered product of this number of factors that equals the number of GPUs, one per row."""
    divisors = _divisors(gpus)
    products = divisors
    for _ in range(factors - 2):
        products = products[..., None] * divisors
    indices = np.nonzero(gpus % products == 0)
    return read_only(np.column_stack([*(divisors[index] for index in indices), gpus // products[indices]]))


def _divisors(number: int) -> Indices:
    tried = np.arange(1, isqrt(number) + 1)
    small = tried[number % tried == 0]
    large = number // small[::-1]
    return np.concatenate([small, large[large > small[-1]]])


def _allowed(limits: DegreeLimits, degrees: Columns, fixed: FixedLayout) -> Mask:
    allowed = np.ones(len(degrees["tensor"]), dtype=bool)
    for name in ("tensor", "pipeline", "data", "context"):
        if getattr(fixed, name) is not None:
            allowed &= degrees[name] == getattr(fixed, name)
    if limits.divides_heads_over is not None:
        allowed &= np.asarray(limits.divides_heads_over(degrees["tensor"]), np.bool_)
    elif fixed.tensor is None:
        allowed &= degrees["tensor"] == 1
    if fixed.pipeline is None:
        pieces = np.where(degrees["pipeline"] > 1, fixed.virtual_stages or 1, 1)
        allowed &= pieces <= np.ceil(limits.layers / degrees["pipeline"])
        allowed &= degrees["pipeline"] <= limits.layers
        allowed &= -limits.layers % degrees["pipeline"] <= limits.padding * limits.layers
    if fixed.context is None:
        allowed &= degrees["context"] <= limits.contexts
    return allowed


def _with_experts(config: Config, limits: DegreeLimits, degrees: Columns, fixed: FixedLayout) -> Columns:
    """Repeats each row of degrees for every expert degree that it allows.

    An engine divides experts like other weights, or spreads them over the GPUs of all replicas: with data-parallel
    attention, each replica has its own requests and cache, and a share of the experts. It copies some experts where
    the GPUs do not divide them evenly. Training divides them over tensor-parallel groups.
    """
    ranks = (degrees["tensor"] * degrees["data"] * degrees["context"])[:, None]
    if fixed.expert is not None or not limits.experts:
        fixed_expert = float(fixed.expert or 1)
        divided = np.flatnonzero(ranks[:, 0] % fixed_expert == 0)
        degrees = {name: column[divided] for name, column in degrees.items()}
        return degrees | {"expert": np.full(len(divided), fixed_expert)}
    if isinstance(config, InferenceConfig):
        experts = np.unique(np.append(1, ranks[ranks <= limits.experts]))[None, :]
        divides = (experts == 1) | (experts == ranks) & (degrees["data"][:, None] > 1)
    else:
        groups = _divisors(limits.experts)
        experts = np.where(groups > 1, groups * degrees["tensor"][:, None], 1.0)
        divides = ranks % experts == 0
    row, expert = np.nonzero(divides)
    degrees = {name: column[row] for name, column in degrees.items()}
    return degrees | {"expert": np.broadcast_to(experts, divides.shape)[row, expert].astype(np.float64)}


def _micro_batches(config: TrainingConfig, layouts: LayoutTable, fixed: FixedLayout) -> tuple[Indices, Floats]:
    """Returns each row of the layouts with every size of micro-batch."""
    if fixed.micro_batch is not None or fixed.accumulation is not None:
        return np.arange(len(layouts.tensor)), layouts.micro_batch
    together = config.samples_together
    groups = layouts.accumulation * layouts.micro_batch / together
    shares, share = np.unique(groups, return_inverse=True)
    divisors = [_divisors(int(samples)) for samples in shares.tolist()]
    sizes = np.unique(np.concatenate([np.zeros(0, np.int64), *divisors]))
    sizes = sizes[sizes * together <= _most_samples(config)]
    row, size = np.nonzero((shares[:, None] % sizes == 0)[share])
    return row, sizes[size].astype(np.float64) * together


def _virtual_stages(
    config: TrainingConfig, pipeline: Floats, accumulation: Floats, fixed: FixedLayout
) -> tuple[slice | Indices, Floats]:
    """Returns each row with the numbers of equal pieces into which its stack may cut a stage: one, two, and its layers.

    Interleaved stages take whole rounds of as many micro-batches as there are stages (Megatron-LM, torchtitan). The
    first and last stage may have a layer less, as those of the 126 layers of Llama 3.1 405B have (arXiv 2407.21783).
    """
    t = config.model.transformer
    if t is None or fixed.virtual_stages or not config.software.stack.interleaves_stages:
        return slice(None), np.full(len(pipeline), float(fixed.virtual_stages or 1))
    # Numbers between these made the fastest of 40 layouts 0.2 % faster on average, and the search twice as long.
    layers = np.ceil(t.layers / pipeline)
    rounds = (pipeline > 1) & (accumulation % pipeline == 0) & (pipeline * layers - t.layers <= 2)
    one, two = np.ones(len(layers)), np.full(len(layers), 2.0)
    tried = np.column_stack([one > 0, rounds & (layers % 2 == 0), rounds & (layers > 2)])
    row, piece = np.nonzero(tried)
    return row, np.column_stack([one, two, layers])[row, piece]


def _with_savings(
    degrees: Columns, row: Indices, fixed: FixedLayout, savings: Callable[[int], Sequence[MemorySaving]]
) -> tuple[Indices, Indices]:
    """Repeats these rows of degrees for every memory saving that is worth trying. Returns the rows and the savings."""
    if fixed.zero_stage is not None:
        highest = np.full(len(row), fixed.zero_stage)
    else:
        sharded = (degrees["data"] * degrees["context"] > 1)[row]
        # A pipeline holds gradients over its micro-batches, so that stages 2 and 3 save nothing more.
        highest = np.where(sharded, np.where(degrees["pipeline"][row] > 1, 1, 3), 0)
    savings_up_to = {stage: set(savings(stage)) for stage in sorted(set(highest.tolist()))}
    every = sorted(set().union(*savings_up_to.values()))
    allowed = np.zeros((max(savings_up_to, default=0) + 1, len(every)), dtype=bool)
    for stage, known in savings_up_to.items():
        allowed[stage] = [saving in known for saving in every]
    piece, saving = np.nonzero(allowed[highest])
    return row[piece], np.array(every, dtype=np.int64).reshape(-1, 2)[saving]
