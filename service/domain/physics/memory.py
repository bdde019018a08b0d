"""How many bytes a workload needs on each GPU, in parts, and whether a GPU has them."""

from collections.abc import Mapping

import numpy as np

from service.domain.arrays import Number
from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.models.counts import cache_bytes, routed_share
from service.domain.models.model import Model, Transformer
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import AnyLayout, Layout

RECIPES: dict[str, tuple[float, float, float]] = {
    "mixed": (2.0, 2.0, 4.0),
    "pure": (2.0, 2.0, 0.0),
    "single": (4.0, 4.0, 0.0),
}
"""Bytes per parameter of weights, gradients, and the fp32 copy of the weights beside them."""

OPTIMIZER_STATES: dict[str, tuple[float, float]] = {
    "adamw": (2.0, 1.0),
    "adam": (2.0, 1.0),
    "adamw_8bit": (2.0, 0.25),
    "paged_adamw": (2.0, 1.0),
    "lion": (1.0, 1.0),
    "momentum": (1.0, 1.0),
    "adafactor": (0.05, 1.0),
    "sgd": (0.0, 1.0),
}
"""How many values an optimizer keeps per parameter, and their size against the master precision (8-bit: a quarter)."""

CONTEXT_BYTES = 0.9e9
"""CUDA context, kernels and communicators; the calibration scales it per stack."""

ADAPTER_SHARE = 0.003
"""Trainable share of a model in LoRA where nobody says: rank 8 on the attention matrices of a 7B model is 0.1-0.6 %."""


def layer_activation_bytes(
    t: Transformer, tokens: Number, sequence: float, value_bytes: float, *, flash: bool
) -> Number:
    """What autograd keeps of a layer: norm inputs and outputs, Q K V, the attention's output, and the feed-forward.

    Bytes at 2 per value: 8 h (norms) + 2 d (a + 2k) + 2 d a + 2 f x 4 (gated) or 2 f x 2 (not); without FlashAttention
    5 a s more. For f = 4h and full heads this is Korthikanti's 34 + 5as/h to within its dropout masks.
    """
    width = t.expert_ffn * t.experts_per_token if t.experts and t.expert_ffn else t.ffn
    halves = 4 * t.hidden + t.head_size * (2 * t.heads + 2 * t.kv_heads) + width * (4 if t.gated else 2)
    scores = 0.0 if flash else 5.0 / 2 * t.heads * sequence
    return tokens * (halves + scores) * value_bytes


def korthikanti_activation_bytes(
    t: Transformer, sequence: int, micro_batch: int, layout: Layout, *, sequence_parallel: bool, selective: bool
) -> float:
    """Activations of the first pipeline stage, Korthikanti et al. 2022 (2205.05198), Table 2 and equations 1-6.

    s b h L (10 + 24/t + 5as/ht); with sequence parallelism s b h L (34 + 5as/h)/t; selective recomputation drops 5as/h;
    an interleaved schedule of v stages holds 1 + (p-1)/(pv) as much.
    """
    s, h, cut = sequence, t.hidden, layout.tensor
    scores = 0.0 if selective else 5 * t.heads * s / h / cut
    per_value = 34 / cut + scores if sequence_parallel else 10 + 24 / cut + scores
    p, v = layout.pipeline, layout.virtual_stages
    interleaved = 1 + (p - 1) / (p * v) if v > 1 else 1.0
    return s * micro_batch * h * t.layers * per_value * interleaved


def trainable_parameters(config: TrainingConfig) -> float:
    if config.trainable_parameters:
        return config.trainable_parameters
    return config.model.parameters * (1.0 if config.method == "full" else ADAPTER_SHARE)


def stored_weight_bytes(model: Model, bits: float) -> float:
    """Weights at so many bits; below 8, embedding and head stay at 16."""
    t = model.transformer
    if t is None or bits >= 8:
        return model.parameters * bits / 8
    wide = t.vocabulary * t.hidden * (1 if t.tied else 2)
    return max(0.0, model.parameters - wide) * bits / 8 + wide * 2.0


def training_parts(config: TrainingConfig, layout: AnyLayout) -> dict[str, Number]:
    """Bytes per GPU of each part of a training step, before calibration."""
    t = config.model.transformer
    layers = max(1, t.layers if t else USUAL_LAYERS)
    stage, ranks = layout.zero_stage, layout.data * layout.context
    _, grad, _ = RECIPES[config.recipe]
    trained = trainable_parameters(config)
    learned_routed = routed_share(config.model) if config.method == "full" else 0.0
    weights = frozen_weight_bytes(config) + learned_weight_bytes(config)
    gradients = trained * grad / (layers if config.fused_optimizer else 1.0)
    optimizer = 0.0 if config.offload_optimizer else trained * optimizer_state_bytes(config)
    # Between micro-batches of a pipeline, gathered weights are not given back.
    whole = (layout.pipeline > 1) | config.software.stack.keeps_gathered_weights
    gathered = np.where(whole, 1.0, min(1.0, 2 / layers)) * ((stage >= 3) & (ranks > 1))
    routed = routed_share(config.model)
    return {
        "weights": on_each_gpu(weights, layout, routed, stage >= 3),
        "gradients": on_each_gpu(gradients, layout, learned_routed, (stage >= 2) & (layout.pipeline == 1)),
        "optimizer": on_each_gpu(optimizer, layout, learned_routed, stage >= 1),
        "live": on_each_gpu(weights, layout, routed, 0) * gathered,
        "context": CONTEXT_BYTES,
        **_activation_parts(config, layout),
    }


def on_each_gpu(whole: float, layout: AnyLayout, routed: float, sharded: Number) -> Number:
    """Bytes of states that tensor and pipeline cut, experts cut further, and ZeRO shards over what are left as copies.

    An expert group counts the ranks of a tensor cut in: experts lie whole on its GPUs.
    """
    ranks = layout.data * layout.context
    dense = 1.0 + (ranks - 1.0) * sharded
    if not routed:
        return whole / (layout.tensor * layout.pipeline) / dense
    spread = np.where(layout.expert > 1, np.maximum(1.0, layout.expert / layout.tensor), 1.0)
    copies = np.maximum(1.0, ranks / spread)
    experts = 1.0 + (copies - 1.0) * sharded
    return whole / (layout.tensor * layout.pipeline) * ((1.0 - routed) / dense + routed / spread / experts)


USUAL_LAYERS = 10
"""Of a network whose layers nobody tells."""


def frozen_weight_bytes(config: TrainingConfig) -> float:
    """Weights that do not learn, quantised where the work says so."""
    if config.method == "full":
        return 0.0
    if config.weight_precision:
        return stored_weight_bytes(config.model, bytes_per_value(config.weight_precision) * 8)
    return config.model.parameters * RECIPES[config.recipe][0]


def learned_weight_bytes(config: TrainingConfig) -> float:
    held = RECIPES[config.recipe][0]
    return (config.model.parameters if config.method == "full" else trainable_parameters(config)) * held


def optimizer_state_bytes(config: TrainingConfig) -> float:
    """Bytes per trained parameter of what the optimizer remembers, and of the fp32 copy of the weights."""
    states, size = OPTIMIZER_STATES.get(config.optimizer, OPTIMIZER_STATES["adamw"])
    return RECIPES[config.recipe][2] + states * size * (2.0 if config.recipe == "pure" else 4.0)


def _activation_parts(config: TrainingConfig, layout: AnyLayout) -> dict[str, Number]:
    model, t = config.model, config.model.transformer
    value = 4.0 if config.precision in ("fp32", "tf32") else 2.0
    if t is None:
        flops = model.forward_flops_per_sample or 2 * model.parameters
        return {"activations": layout.micro_batch * SAVED_BYTES_PER_FLOP * flops * value / 2}
    sequence = config.sequence_length or 1
    tokens = layout.micro_batch * sequence / layout.context
    layer = layer_activation_bytes(t, tokens, sequence, value, flash=config.flash_attention) / layout.tensor
    boundary = tokens * t.hidden * value / layout.tensor
    if config.offload_activations:
        boundary = boundary * 2.0 / t.layers
    layers = t.layers * np.minimum(layout.pipeline, layout.accumulation) / layout.pipeline
    full = layout.checkpoints("full") * 1.0
    return {
        "logits": (2.5 if config.chunked_loss else 10.0) * tokens * t.vocabulary / layout.tensor,
        "boundaries": boundary * layers * full,
        "activations": layer * full,
        "selected": layer * layers * layout.checkpoints("selective"),
        "kept": layer * layers * layout.checkpoints("none"),
    }


SAVED_BYTES_PER_FLOP = 0.008
"""Bytes that a 16-bit convolutional network keeps per forward FLOP of a sample: ResNet-50 about 65 MB."""


def kv_value_bytes(config: InferenceConfig) -> float:
    return bytes_per_value(config.kv_precision) if config.kv_precision else 2.0


def sequence_cache_bytes(config: InferenceConfig, tokens: float, tensor: Number = 1) -> Number:
    """What a GPU of a tensor cut keeps of one sequence of so many tokens, over all layers."""
    assert config.model.transformer is not None
    return cache_bytes(config.model.transformer, tokens, kv_value_bytes(config), tensor)


TOKENS_PER_PASS = 512.0
"""What engines that batch continuously read at once, about; others are measured where they decode."""


def tokens_per_pass(config: InferenceConfig) -> float:
    return TOKENS_PER_PASS if config.software.stack_class.batches_continuously else 1.0


def inference_parts(
    config: InferenceConfig, layout: AnyLayout, sequences: Number, tokens_each: float
) -> dict[str, Number]:
    """Bytes per GPU of answering: weights, cache of keys and values, what one forward pass needs, and the context."""
    model, t = config.model, config.model.transformer
    bits = config.weight_bits or bytes_per_value(config.precision) * 8
    cut = layout.tensor * layout.pipeline
    whole_file = config.software.stack.bits_of_whole_file
    weights = model.parameters * bits / 8 if whole_file else stored_weight_bytes(model, bits)
    parts: dict[str, Number] = {"weights": weights / cut, "context": CONTEXT_BYTES}
    if t is not None:
        parts["kv_cache"] = sequences * sequence_cache_bytes(config, tokens_each, layout.tensor) / layout.pipeline
        parts["activations"] = tokens_per_pass(config) * (t.hidden * 8 + 3 * 2 * t.ffn / layout.tensor)
    return parts


def total(parts: Mapping[str, Number]) -> Number:
    return sum(parts.values())


def figures(parts: Mapping[str, Number]) -> dict[str, float]:
    """The parts of a single layout as plain numbers."""
    return {name: float(amount) for name, amount in parts.items()}


def fits(needed_bytes: float, cluster: Cluster) -> bool:
    return needed_bytes <= cluster.usable_bytes
