"""Roofline of a training step: its demands on each resource of a cluster, term by term.

A term is the time of one part of the step at the rated speed of its hardware. The calibration multiplies each term by a
fitted factor, and the step is the sum of the terms.
"""

from collections.abc import Mapping

import numpy as np

from service.domain.arrays import Number
from service.domain.catalog.precision import activation_bytes, bytes_per_value
from service.domain.jobs.config import TrainingConfig
from service.domain.models.counts import (
    experts_touched,
    logits_per_token,
    mean_attention_flops_per_token,
    multiplied_parameters,
    orthogonalisation_flops,
    routed_layers,
    routed_share,
    weight_matrices,
)
from service.domain.models.model import Model, Transformer
from service.domain.models.networks import network_flops, written_values
from service.domain.physics.cluster import Cluster
from service.domain.physics.input_pipeline import preparation_seconds
from service.domain.physics.memory import (
    OPTIMIZER_STATES,
    RECIPES,
    SELECTED_SHARE,
    frozen_weight_bytes,
    learned_routed_share,
    learned_share,
    on_each_gpu,
    paged_state_bytes,
    trainable_parameters,
    weight_bytes,
)
from service.domain.physics.parallelism import (
    AnyLayout,
    Layout,
    bubble_share,
    copies_to_other_groups,
    spread_of_experts,
)
from service.domain.physics.resources import (
    GRADIENTS,
    Demands,
    StepTerms,
    ideal_terms,
    over_links,
    summed_in_tensor_groups,
    summed_over,
)

LAUNCH_SECONDS = 5e-6
"""Nominal CPU seconds to start one kernel; the coefficient of the term scales them to the real time of each stack."""

ATTENTION_KERNELS = 7
"""Kernels of an attention: normalisation, product for queries, keys and values, rotation, write to the cache,
attention, output product and sum. All counts of kernels are of the operations of a layer in vLLM (approximate)."""

LATENT_ATTENTION_KERNELS = 12
"""Kernels of MLA, which projects queries and the cache in two products each, with a normalisation between them, and
multiplies by the projections of keys and values before and after the attention."""

STATE_SPACE_KERNELS = 9
"""Kernels of a state space, with its convolution, its gates and the update of its state."""

FFN_KERNELS = 5
"""Kernels of a dense FFN: normalisation, two products, activation and sum."""

EXPERT_KERNELS = 18
"""Kernels of an FFN with routed experts: choosing them, sorting the tokens by expert, formats of the values, two
grouped products, activation, and adding up the results."""

SHARED_EXPERT_KERNELS = 4
"""Kernels of the shared experts, next to routed ones."""

KERNELS_PER_LAYER_FORWARD = ATTENTION_KERNELS + FFN_KERNELS
"""Kernels in a forward pass through a layer of attention and a dense FFN (nominal, as the seconds of each are)."""

ROUTING_SECONDS = 1e-3
"""Nominal CPU seconds to route one expert layer of one micro-batch: sorting, counting, waiting for sizes."""

GATHER_SECONDS = 5e-4
"""Nominal CPU seconds to gather one matrix of a layer: LoRA of Qwen-72B (400 matrices, three times each) with sequences
of 512 tokens takes about 0.8 s longer on four A100 than its work and its bytes do (Qwen's README)."""

KERNELS_PER_WEIGHT_LAYER = 4.6
"""Kernels in a forward pass per convolution, with its normalisation, activation and sum: about 250 in ResNet-50."""

KERNELS_PER_ADAPTER = 5.0
"""Kernels that LoRA adds to a forward pass of a layer with weights: two products, a scale, a cast and a sum. A
step of LoRA for SDXL (794 such layers) takes 0.93 s with one image, and 3 s with eight, on an RTX 4090 (threads of
kohya's scripts)."""

USUAL_WEIGHT_LAYERS = 54
"""Layers with weights of a network whose layers are unknown: those of ResNet-50."""

BYTES_MOVED_PER_VALUE = 15.5
"""Bytes that a 16-bit convolutional network moves in a forward pass, per value that its convolutions write. ResNet-50
writes 11.1 million values per image and moves about 0.52 GB in a training step, a third of it in the forward pass
(2,375 images/s were measured on an A100 at 80 % of its bandwidth)."""

JOULES_PER_BYTE_MOVED = 2e-10
"""Energy to move a byte and to compute with it outside of matrix products, up to a fitted factor: 400 W over 2.0 TB/s
of an A100. Power limits such work: in MLPerf Training, ResNet-50 takes as long on an A100 with PCIe (300 W) as on an
A100 with SXM and 40 GB (400 W), which has 0.8 times the bandwidth."""

LAYER_BYTES_PER_VALUE = 34.0
"""Bytes that a transformer layer writes per token and hidden value (Korthikanti et al. 2022, Table 2)."""

SCORE_BYTES = 5.0
"""Bytes that a layer writes per head and pair of tokens where attention is not fused (the same table)."""

NARROW = 1024.0
"""Width of a matrix below which its product takes longer per FLOP, in inverse proportion to the width."""

PASSES_THROUGH_FROZEN_WEIGHTS = 2.0
"""Matrix work of a step in forward passes if no weight of the model learns: frozen weights need no gradient of their
own, which leaves 4 FLOPs per parameter and token of 6. Adapters are so small that their work does not count."""


def passes(config: TrainingConfig) -> float:
    """Matrix work of a step in forward passes: one more for weights that learn, in proportion to their number, and one
    more through a reference model.
    """
    learned = learned_share(config) if config.method == "full" else 0.0
    return PASSES_THROUGH_FROZEN_WEIGHTS + learned + config.has_reference


def traversals(config: TrainingConfig) -> float:
    """Times that a step goes through all layers, whichever weights learn: once forward, twice for the gradients of the
    backward pass, and once through a reference model.
    """
    return 3.0 + config.has_reference


def encoder_flops_per_sample(config: TrainingConfig) -> float:
    """Returns the FLOPs of frozen encoders for a sample, which only run forward.

    Trainers of language models keep the encoder of images frozen by default (LLaMA-Factory, `freeze_vision_tower`).
    The encoders of a diffusion model count, if they run in each step, with the work of its other networks in inference:
    their decoder of images takes up to twice as much as the encoder.
    """
    return (config.image_tokens + config.encoders_in_training) * (config.model.other_flops_per_sample or 0.0)


OUTSIDE_OF_STAGES = frozenset({GRADIENTS, "optimizer", "offload", "fetch", "gather", "step", "input"})
"""Terms of a step for which stages of a pipeline are not estimated to wait. The others, of the work of its
micro-batches, include the idle time of the stages.
"""

STEPPED_BYTES = 6.0
"""Bytes per parameter that the step of an optimizer moves besides its states: it reads a gradient, and reads and writes
a weight, of 2 bytes each."""

USUAL_STATE_BYTES = 4.0
"""Bytes of a state that has no size of its own: fp32. With those of Adam, a step moves 22 bytes per parameter in any
recipe, to which the coefficients are fitted."""

OFFLOADED_SECONDS = 1e-9
"""CPU seconds per parameter of a GPU's share in an offloaded optimizer step: about 1.5 of the 2.4 s of a step of
Qwen2.5-3B on two A100 (DeepSpeed's tutorial of ZeRO-Offload)."""


def _transformer_demands(config: TrainingConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Demands of one optimizer step of a transformer on one GPU. Samples count with their mean length if it
    is given.
    """
    step = _demands_of_micro_batches(config, layout, linked_gpus)
    if np.any(layout.pipeline > 1):
        # Stages wait for each other for a share of the time of their work, whatever takes that time.
        with_bubble = 1.0 + bubble_share(layout)
        step = {key: with_bubble * amount for key, amount in step.items()}
    exchanges = 1.0 + (layout.accumulation - 1.0) * (layout.zero_stage >= 3)
    step |= {key: exchanges * amount for key, amount in _gradient_demands(config, layout, linked_gpus).items()}
    step |= _optimizer_demands(config, layout) | _fetched(config, layout) | _gathered_one_by_one(config, layout)
    return step | {("step", "seconds"): 1e-3}


def _gathered_one_by_one(config: TrainingConfig, layout: AnyLayout) -> Demands:
    """Seconds in which stacks that gather the matrices of ZeRO-3 one after another do so: forward, backward, and in
    each other forward pass of a micro-batch.
    """
    t, software = config.model.transformer, config.software
    if t is None or not software.stack.gathers_matrices:
        return {}
    sharded = (layout.zero_stage >= 3) & (layout.data * layout.context > 1)
    matrices = weight_matrices(t, apart=software.loops_over_experts) / layout.pipeline * sharded
    gathers = matrices * (2.0 + layout.checkpoints("full") + config.has_reference) * layout.accumulation
    return {("gather", "seconds"): gathers * GATHER_SECONDS}


def _fetched(config: TrainingConfig, layout: AnyLayout) -> Demands:
    """Bytes that each GPU fetches from the host in a step.

    It fetches its shard of offloaded weights for every gather of a micro-batch: once forward, once backward, and once
    for a reference model. All states of a paged optimizer come once, while earlier ones go back over the same link.
    This is an upper estimate, because states that find room on the GPU stay there, which its memory decides.
    """
    fetched: Number = paged_state_bytes(config) * _stepped_parameters(config, layout)
    if config.offload_parameters:
        shard = on_each_gpu(weight_bytes(config), layout, routed_share(config.model), 1.0)
        fetched = fetched + shard * layout.accumulation * (2.0 + config.has_reference)
    return {("fetch", "host_link"): fetched} if np.any(fetched) else {}


def with_bubble_apart(seconds: Mapping[str, float], layout: Layout) -> dict[str, float]:
    """Returns the seconds of the terms of a step with the idle time of pipeline stages as a term of its own, `bubble`.

    In the demands of a step, every term but those of `OUTSIDE_OF_STAGES` includes its share of that time.
    """
    share = float(bubble_share(layout))
    if not share:
        return dict(seconds)
    busy = {term: time if term in OUTSIDE_OF_STAGES else time / (1.0 + share) for term, time in seconds.items()}
    return busy | {"bubble": sum(seconds.values()) - sum(busy.values())}


def passes_of_recomputation(layout: AnyLayout) -> Number:
    """Forward passes that checkpointing adds: a whole one, or the part of which `selective` keeps no result."""
    return layout.checkpoints("full") * 1.0 + layout.checkpoints("selective") * (1.0 - SELECTED_SHARE)


def _stepped_parameters(config: TrainingConfig, layout: AnyLayout) -> Number:
    """Returns the parameters that the optimizer updates on each GPU."""
    return on_each_gpu(trainable_parameters(config), layout, learned_routed_share(config), layout.zero_stage >= 1)


def optimizer_bytes(optimizer: str) -> float:
    """Returns the bytes per parameter that the step of an optimizer moves: it reads and writes each of its states."""
    states, size = OPTIMIZER_STATES[optimizer]
    return STEPPED_BYTES + 2.0 * states * (size or USUAL_STATE_BYTES)


def _optimizer_demands(config: TrainingConfig, layout: AnyLayout) -> Demands:
    parameters = _stepped_parameters(config, layout)
    if config.offload_optimizer:
        return {("offload", "seconds"): OFFLOADED_SECONDS * parameters}
    moved: Demands = {("optimizer", "memory"): optimizer_bytes(config.optimizer) * parameters}
    t = config.model.transformer
    if config.optimizer != "muon" or config.method != "full" or t is None:
        return moved
    # Ranks divide the matrices among themselves, as in the distributed Muon of Liu et al. (2502.16982).
    routed, dense = orthogonalisation_flops(t)
    flops = learned_share(config) * (routed + dense)
    return moved | {
        ("optimizer", "wide_flops"): on_each_gpu(flops, layout, routed / (routed + dense), layout.zero_stage >= 1)
    }


def _demands_of_micro_batches(config: TrainingConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Demands of all micro-batches of a step on one GPU, forward and backward."""
    model = config.model
    t = model.transformer
    assert t is not None
    length = config.mean_length or config.sequence_length or 1
    tokens = layout.micro_batch * layout.accumulation * length / layout.context
    share = tokens / (layout.tensor * layout.pipeline)
    recompute, again = layout.checkpoints("full") * 1.0, passes_of_recomputation(layout)
    moved = _bytes_moved(config, t, length) * share
    attention = mean_attention_flops_per_token(t, length) * share
    of_encoders = encoder_flops_per_sample(config) / length
    matrix = (2.0 * multiplied_parameters(model) * (passes(config) + again) + of_encoders) * share
    width = t.expert_ffn or t.hidden
    routed = routed_layers(model) / layout.pipeline
    # Per attention, state space or FFN, 2 messages (3 when recomputing) of a token's values (Megatron-LM, SC'21).
    forward_again = recompute + config.has_reference
    messages = (2.0 + forward_again) * (activation_bytes(config.precision) * t.hidden) * tokens
    messages = messages * t.sublayers / layout.pipeline
    rounds = layout.accumulation
    kernels = kernels_per_pass(t) / layout.pipeline
    kernels = kernels + KERNELS_PER_LAYER_FORWARD * _experts_apart(config, layout, tokens / rounds)
    stored = model.parameters * bytes_per_value(config.weight_precision or "bf16")
    return {
        ("matrix", "flops"): matrix,
        ("narrow", "flops"): matrix * (layout.tensor * (NARROW / width)),
        ("attention", "wide_flops"): attention * (3.5 + forward_again),
        ("memory", "memory"): moved,
        ("power", "joules"): JOULES_PER_BYTE_MOVED * moved,
        ("weights", "memory"): on_each_gpu(traversals(config) * stored, layout, routed_share(model), 0) * rounds,
        ("launch", "seconds"): kernels * (traversals(config) + again) * LAUNCH_SECONDS * rounds,
        **({("routing", "seconds"): routed * ROUTING_SECONDS * rounds} if routed_layers(model) else {}),
        **summed_in_tensor_groups(messages, layout.tensor, linked_gpus),
        **_expert_demands(layout, linked_gpus, tokens * routed * (4.0 + 2.0 * forward_again), t),
        **_context_demands(
            layout, linked_gpus, tokens * t.attending_layers / layout.pipeline * (3.0 + forward_again), t
        ),
        **_stage_demands(layout, linked_gpus, tokens * t.hidden * (2.0 + config.has_reference)),
    }


def kernels_per_pass(t: Transformer) -> float:
    """Returns the kernels that a forward pass of a language model starts, counted by kind of layer (nominal)."""
    mixer = LATENT_ATTENTION_KERNELS if t.mla_kv_rank else ATTENTION_KERNELS
    experts = EXPERT_KERNELS + SHARED_EXPERT_KERNELS * (t.shared_experts > 0)
    return (
        mixer * (t.attending_layers + t.cross_layers)
        + STATE_SPACE_KERNELS * t.ssm_layers
        + FFN_KERNELS * (t.ffn_layers - t.moe_layers)
        + experts * t.moe_layers
    )


def layers_by_traffic(t: Transformer) -> float:
    """Returns the layers of attention and FFN that move as many bytes as all layers do.

    Attention or an FFN alone, of which each layer of a hybrid has one, counts as half of one. A state space counts as a
    whole one: with twice the width of the model, as in Mamba-2, it writes about as many values as both together.
    """
    return (t.sublayers + t.ssm_layers) / 2


def _experts_apart(config: TrainingConfig, layout: AnyLayout, tokens: Number) -> Number:
    """Experts that a GPU computes one after another for the tokens of a micro-batch, in all its layers.

    Each of them starts as many kernels as a layer: LoRA of Qwen1.5-MoE (24 layers of 60 experts) takes about 0.7 ms per
    expert and pass on an A100 (a thread of Qwen2), and gpt-oss 20B in Transformers 4 0.6 ms on a B200 (Unsloth).
    """
    t = config.model.transformer
    if t is None or not config.software.loops_over_experts:
        return 0.0
    return experts_touched(t, tokens) * t.moe_layers / (layout.pipeline * spread_of_experts(layout))


def _context_demands(layout: AnyLayout, linked_gpus: Number, tokens_in_rounds: Number, t: Transformer) -> Demands:
    """Bytes of keys and values, which travel around the ring of a context-parallel group in each attention layer: once
    forward, twice backward, and once more in each other forward pass. `tokens_in_rounds` has the tokens in all of them.
    """
    if np.all(layout.context == 1):
        return {}
    ring = 2 * 2.0 * t.kv_heads * t.head_size * tokens_in_rounds * (layout.context - 1) / layout.tensor
    return over_links("context", ring, layout.tensor * layout.context <= linked_gpus)


def _stage_demands(layout: AnyLayout, linked_gpus: Number, values: Number) -> Demands:
    """Bytes between pipeline stages: a stage sends 2-byte values to the next one, also those of a reference model, and
    gets their gradients back. `values` are those of both.

    Ranks are numbered as in Megatron-LM (SC'21), tensor first and pipeline last, so that all GPUs of a stage lie
    between a GPU and its next stage. Where linked GPUs hold several stages, as in a rack, only the last of these
    sends over the network. Each GPU of a tensor group sends a part. Interleaved stages send once per piece, but
    each of these sends takes place during the work on another piece, so that no more bytes count than without
    pieces; `bytes_carried` has all of them.
    """
    if np.all(layout.pipeline == 1):
        return {}
    size = 2.0 * values / layout.tensor * (layout.pipeline > 1)
    gpus_per_stage = layout.tensor * layout.context * layout.data
    crossing = np.minimum(1.0, gpus_per_stage / linked_gpus) * (gpus_per_stage * layout.pipeline > linked_gpus)
    return over_links("pipeline", size, 1.0 - crossing)


def _bytes_moved(config: TrainingConfig, t: Transformer, length: float) -> float:
    """Bytes per token: activations of all passes, logits, and without FlashAttention the attention scores."""
    value = activation_bytes(config.precision)
    layers = layer_bytes(t, length, fused=config.flash_attention)
    layers *= layers_by_traffic(t) * traversals(config) * value / 2
    return layers + 12.0 * 2 * logits_per_token(t) * config.written_share


def layer_bytes(t: Transformer, length: float, *, fused: bool) -> float:
    """Returns bytes that a layer moves per token in 16 bits, with the scores where attention is not fused."""
    return LAYER_BYTES_PER_VALUE * t.hidden + (0.0 if fused else SCORE_BYTES * length * t.heads)


def _expert_demands(layout: AnyLayout, linked_gpus: Number, tokens_sent: Number, t: Transformer) -> Demands:
    """Bytes of the all-to-alls of expert layers: among linked GPUs, and one copy of a token to each other such group.
    `tokens_sent` has the tokens in all of them: there and back, forward and backward, and in other forward passes.

    The ranks of a tensor group hold different tokens in these layers (sequence parallelism), and an expert group
    includes these ranks.
    """
    if np.all(layout.expert == 1):
        return {}
    size = 2.0 * tokens_sent / layout.tensor * t.routed_size
    experts_per_token = t.experts_per_token or 6
    groups = -(-layout.expert // linked_gpus)
    inside = np.minimum(layout.expert, linked_gpus)
    return {
        ("expert", "link"): size * experts_per_token * (inside - 1) / inside,
        ("expert", "slow_link"): size * copies_to_other_groups(groups, experts_per_token),
    }


def _gradient_demands(config: TrainingConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Bytes of gradients, which are summed over the GPUs that hold copies of the same parameters.

    GPUs with the same experts are a whole expert group apart, so that a node holds only one or a few of them. Each of
    these sends a larger part of its gradients over the network than a GPU does for the other parameters.
    """
    # ZeRO-3 also gathers weights, which are as wide as gradients: 1.5 times the volume (arXiv 1910.02054). It gathers
    # frozen weights as they are stored: twice, which is the volume of an all-reduce, or once for a reference model.
    gathers = layout.zero_stage >= 3
    _, gradient_bytes, _ = RECIPES[config.recipe]
    learned = gradient_bytes * trainable_parameters(config) * (1.0 + 0.5 * gathers)
    frozen = frozen_weight_bytes(config) * gathers * ((config.method != "full") + 0.5 * config.has_reference)
    model_ranks = layout.tensor * layout.pipeline
    ranks, linked = layout.data * layout.context, linked_gpus // layout.tensor
    routed = learned_routed_share(config) * learned + routed_share(config.model) * frozen
    demands = _reduced((learned + frozen - routed) / model_ranks, ranks, linked)
    if np.any(routed):
        spread = spread_of_experts(layout)
        experts = _reduced(routed / model_ranks / spread, np.maximum(1.0, ranks / spread), linked // spread)
        demands = {key: amount + experts[key] for key, amount in demands.items()}
    return demands


def _reduced(size: Number, ranks: Number, linked: Number) -> Demands:
    """Bytes of a sum of gradients over ranks, of which fast links join so many."""
    inside = np.maximum(1, np.minimum(ranks, linked))
    outside = -(-ranks // inside)
    return summed_over(GRADIENTS, size, inside, outside, "network")


def kernels_forward(model: Model) -> float:
    """Returns the kernels in a forward pass of a network that is known by its forward FLOPs."""
    return KERNELS_PER_WEIGHT_LAYER * (model.weight_layers or USUAL_WEIGHT_LAYERS)


def bytes_moved_forward(model: Model) -> float:
    """Returns the bytes that a network with 16-bit values, known by its forward FLOPs, moves for one sample."""
    return BYTES_MOVED_PER_VALUE * written_values(model)


def _network_demands(config: TrainingConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Demands of one step of a network that is known by its forward FLOPs per sample (convolutions and others)."""
    model, again = config.model, passes_of_recomputation(layout)
    samples = layout.micro_batch * layout.accumulation
    moved = bytes_moved_forward(model) * (traversals(config) + again) * activation_bytes(config.precision) / 2
    adapted = 1.0 + (config.method != "full") * KERNELS_PER_ADAPTER / KERNELS_PER_WEIGHT_LAYER
    kernels = (traversals(config) + again) * kernels_forward(model) * adapted
    flops = (passes(config) + again) * network_flops(model) + encoder_flops_per_sample(config)
    return {
        ("matrix", "flops"): flops * samples,
        ("memory", "memory"): moved * samples,
        ("power", "joules"): JOULES_PER_BYTE_MOVED * moved * samples,
        ("launch", "seconds"): kernels * LAUNCH_SECONDS * layout.accumulation,
        ("input", "vcpu"): samples * preparation_seconds(model, config.loading),
        **_gradient_demands(config, layout, linked_gpus),
        **_optimizer_demands(config, layout),
        **_fetched(config, layout),
        ("step", "seconds"): 1e-3,
    }


def training_demands(config: TrainingConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Demands of one optimizer step on one GPU. Those of its micro-batches include the idle time of pipeline stages."""
    if config.model.transformer is not None:
        return _transformer_demands(config, layout, linked_gpus)
    return _network_demands(config, layout, linked_gpus)


def bytes_carried(demands: Demands, layout: AnyLayout) -> tuple[Demands, Demands]:
    """Returns the bytes of a step that the fast links carry and those that the network carries, given its demands.

    They take their time whatever they overlap with, so that no step is shorter. The work of micro-batches counts
    without the idle time of the stages. Interleaved stages send once per piece. On fast links only gradients count,
    because other bytes there overlap with little else.
    """
    pieces = {"pipeline": layout.virtual_stages}
    busy = 1.0 + bubble_share(layout)
    between = {
        (term, resource): amount if term == GRADIENTS else amount * pieces.get(term, 1.0) / busy
        for (term, resource), amount in demands.items()
        if resource in ("network", "slow_link")
    }
    return {(GRADIENTS, "link"): demands[GRADIENTS, "link"]}, between


def training_terms(config: TrainingConfig, cluster: Cluster, layout: Layout) -> StepTerms:
    """Ideal seconds of one optimizer step, and its samples."""
    demands = training_demands(config, layout, cluster.linked_gpus)
    return ideal_terms(demands, layout.global_batch, config, cluster, bytes_carried(demands, layout))
