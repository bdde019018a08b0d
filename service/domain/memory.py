"""How many bytes a workload needs on each GPU, in parts, and whether a GPU has them."""

from collections.abc import Mapping

from service.domain.counting import embedding_parameters, kv_bytes_per_token
from service.domain.formats import bytes_per_value
from service.domain.machine import Machine
from service.domain.model import Model, Transformer
from service.domain.parallelism import Layout
from service.domain.workload import Inference, Training

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

KEEP_GATHERED_WEIGHTS = ("litgpt",)
"""Stacks that hold the weights whole beside their shards: 13B with LoRA takes 35.6 GB on each of 4 GPUs (litgpt)."""

ADAPTER_SHARE = 0.003
"""Trainable share of a model in LoRA where nobody says: rank 8 on the attention matrices of a 7B model is 0.1-0.6 %."""


def layer_activation_bytes(t: Transformer, tokens: float, sequence: float, value_bytes: float, *, flash: bool) -> float:
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


def trainable_parameters(work: Training) -> float:
    if work.trainable_parameters:
        return work.trainable_parameters
    return work.model.parameters * (1.0 if work.method == "full" else ADAPTER_SHARE)


def stored_weight_bytes(model: Model, bits: float) -> float:
    """Weights at so many bits; below 8, embedding and head stay at 16."""
    t = model.transformer
    if t is None or bits >= 8:
        return model.parameters * bits / 8
    wide = embedding_parameters(t) * (1 if t.tied else 2)
    return max(0.0, model.parameters - wide) * bits / 8 + wide * 2.0


def training_parts(work: Training, layout: Layout) -> dict[str, float]:
    """Bytes per GPU of each part of a training step, before calibration."""
    model, t = work.model, work.model.transformer
    cut = layout.tensor * layout.pipeline
    expert_cut = cut * (layout.expert if t and t.experts else 1)
    held, grad, master = RECIPES[work.recipe]
    states, size = OPTIMIZER_STATES.get(work.optimizer, OPTIMIZER_STATES["adamw"])
    state_bytes = states * size * (2.0 if work.recipe == "pure" else 4.0)
    trained = trainable_parameters(work)
    full = work.method == "full"
    base = model.parameters / expert_cut
    stage, n = layout.zero_stage, max(1, layout.data * layout.context)
    if t and t.experts:
        n = max(1, n // layout.expert)
    if full:
        weights = base * held
    elif work.weight_precision:
        weights = stored_weight_bytes(model, bytes_per_value(work.weight_precision) * 8) / expert_cut
    else:
        weights = base * held
    weights += 0.0 if full else trained * held / cut
    gradients = trained * grad / (expert_cut if full else cut)
    optimizer = trained * (master + state_bytes) / (expert_cut if full else cut)
    if work.fused_optimizer:
        gradients /= max(1, t.layers if t else 10)
    live = 0.0
    if stage >= 3 and n > 1:
        kept_whole = layout.pipeline > 1  # between micro-batches of a pipeline, gathered weights are not given back
        kept_whole |= work.software.line in KEEP_GATHERED_WEIGHTS
        live = weights if kept_whole else min(weights, 2 * weights / max(1, (t.layers if t else 10)))
        weights /= n
    if stage >= 2 and layout.pipeline == 1:
        gradients /= n
    if stage >= 1:
        optimizer /= n
    parts = {"weights": weights, "gradients": gradients, "optimizer": optimizer, "live": live, "context": CONTEXT_BYTES}
    return parts | _activation_parts(work, layout)


def _activation_parts(work: Training, layout: Layout) -> dict[str, float]:
    model, t = work.model, work.model.transformer
    value = 4.0 if work.precision in ("fp32", "tf32") else 2.0
    if t is None:
        flops = model.forward_flops_per_sample or 2 * model.parameters
        return {"activations": layout.micro_batch * 0.008 * flops * value / 2 * SAVED_SHARE}
    sequence = work.sequence_length or 1
    tokens = layout.micro_batch * sequence / layout.context
    layer = layer_activation_bytes(t, tokens, sequence, value, flash=work.flash_attention) / layout.tensor
    boundary = tokens * t.hidden * value / layout.tensor
    in_flight = min(layout.pipeline, max(1, layout.accumulation)) / layout.pipeline
    layers = t.layers * in_flight
    if work.offload_activations:
        boundary *= 2.0 / t.layers
    each = 2.5 if work.chunked_loss else 10.0
    parts = {"logits": each * tokens * t.vocabulary / layout.tensor}
    if layout.activation_checkpointing == "full":
        return parts | {"boundaries": boundary * layers, "activations": layer}
    if layout.activation_checkpointing == "selective":
        return parts | {"selected": layer * layers}
    return parts | {"kept": layer * layers}


SAVED_SHARE = 1.0


TOKENS_PER_PASS = 512.0
"""What engines that batch continuously read at once, about; others are measured where they decode."""


def tokens_per_pass(work: Inference) -> float:
    return TOKENS_PER_PASS if work.software.way == "engine" else 1.0


def inference_parts(work: Inference, layout: Layout, tokens_cached: float) -> dict[str, float]:
    """Bytes per GPU of answering: weights, cache of keys and values, what one forward pass needs, and the context."""
    model, t = work.model, work.model.transformer
    bits = work.weight_bits or bytes_per_value(work.precision) * 8
    cut = layout.tensor * layout.pipeline
    whole_file = work.software.line == "llama.cpp"  # its bits per weight are of the whole file
    weights = model.parameters * bits / 8 if whole_file else stored_weight_bytes(model, bits)
    parts = {"weights": weights / cut, "context": CONTEXT_BYTES}
    if t is not None:
        value = bytes_per_value(work.kv_precision) if work.kv_precision else 2.0
        cache = kv_bytes_per_token(t, value, layout.tensor) * tokens_cached / layout.pipeline
        parts["kv_cache"] = cache
        parts["activations"] = tokens_per_pass(work) * (t.hidden * 8 + 3 * 2 * t.ffn / layout.tensor)
    return parts


def total(parts: Mapping[str, float]) -> float:
    return sum(parts.values())


def fits(needed_bytes: float, machine: Machine) -> bool:
    return needed_bytes <= machine.usable_bytes
