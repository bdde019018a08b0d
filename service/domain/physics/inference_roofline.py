"""Roofline of inference: demands of decoding, prefill and plain forward passes on each part of a cluster."""

from typing import Literal

from service.domain.arrays import Number
from service.domain.calibration.coefficients import StepKind
from service.domain.calibration.step_kinds import DECODE, SERVING
from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.config import InferenceConfig
from service.domain.models.counts import mean_attention_flops_per_token, multiplied_parameters, parameters_touched
from service.domain.physics.cluster import Cluster
from service.domain.physics.memory import sequence_cache_bytes
from service.domain.physics.parallelism import AnyLayout, Layout, all_reduce_bytes
from service.domain.physics.resources import Demands, StepTerms, ideal_terms, over_links
from service.domain.physics.training_roofline import (
    ACTIVATION_BYTES_PER_FLOP,
    KERNELS_OF_A_PLAIN_NETWORK,
    KERNELS_PER_LAYER_FORWARD,
    LAUNCH_SECONDS,
    LAYER_BYTES_PER_VALUE,
)

REQUEST_SECONDS = 1e-5
"""Nominal CPU time of the scheduler per conversation and step."""

HOP_SECONDS = 10e-6
"""Nominal latency of one all-reduce of few bytes."""

USUAL_FORWARD_BATCH = 128.0
"""Samples in a forward pass by default (assumed: large enough to fill a GPU)."""

SHARED_BY_STAGES = ("cache", "matrix", "prefill", "prefill_memory", "vocabulary", "tensor")
"""Terms of serving that grow with the number of conversations, which the stages of a pipeline share."""


def _weight_bytes(config: InferenceConfig) -> float:
    """Bytes per stored weight."""
    return config.weight_bits / 8 if config.weight_bits else bytes_per_value(config.precision)


def _pass_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, tokens: Number) -> Demands:
    """Demands of any pass over tokens: each weight that they use is read once, GPUs of a tensor group sum results."""
    t = config.model.transformer
    assert t is not None
    wide, messages = layout.tensor, 2 * t.layers
    return {
        ("weights", "memory"): parameters_touched(config.model, tokens) * _weight_bytes(config) / wide,
        ("launch", "seconds"): KERNELS_PER_LAYER_FORWARD * t.layers * LAUNCH_SECONDS,
        **over_links("tensor", all_reduce_bytes(messages * 2.0 * tokens * t.hidden, wide), wide <= linked_gpus),
        ("step", "seconds"): 1e-3,
    }


def _decode_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, concurrency: Number) -> Demands:
    """One decoding step of a batch: reads every weight that its tokens use once, and the whole KV cache.

    Pipeline stages take turns, so they neither add bandwidth nor lose it; GPUs of a tensor group share the work.
    """
    t, wide = config.model.transformer, layout.tensor
    assert t is not None
    mean_context = config.input_length + config.output_length / 2
    return _pass_demands(config, layout, linked_gpus, concurrency) | {
        ("cache", "memory"): concurrency * sequence_cache_bytes(config, mean_context, wide),
        ("matrix", "flops"): concurrency * 2.0 * multiplied_parameters(config.model) / wide,
        ("latency", "seconds"): 2 * t.layers * HOP_SECONDS * (wide > 1),
        ("request", "seconds"): REQUEST_SECONDS * concurrency,
        ("vocabulary", "memory"): concurrency * t.vocabulary * 4 * 3 / wide,
    }


def _prefill_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, prompts: Number) -> Demands:
    """Prefill of prompts: 2 N s FLOPs and causal attention."""
    t, wide, length = config.model.transformer, layout.tensor, max(1.0, config.input_length)
    assert t is not None
    tokens = prompts * length
    return _pass_demands(config, layout, linked_gpus, tokens) | {
        ("prefill", "flops"): tokens * 2.0 * multiplied_parameters(config.model) / wide,
        ("attention", "wide_flops"): tokens * mean_attention_flops_per_token(t, length) / wide,
        ("memory", "memory"): LAYER_BYTES_PER_VALUE * tokens * t.hidden * t.layers / wide,
    }


def _serving_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, concurrency: Number) -> Demands:
    """One decoding step in the steady state of continuous batching, with its share of the prefill of new requests.

    Each of B conversations lasts `output_length` steps, so B / output_length prompts are read per step. Stages of a
    pipeline work on different conversations at once: they share the terms that grow with B, and each reads its own
    weights in every round.
    """
    step = _decode_demands(config, layout, linked_gpus, concurrency)
    prompt = _prefill_demands(config, layout, linked_gpus, concurrency / max(1.0, config.output_length))
    step["prefill", "flops"] = prompt["prefill", "flops"]
    step["prefill", "wide_flops"] = prompt["attention", "wide_flops"]
    step["prefill_memory", "memory"] = prompt["memory", "memory"]
    for link in ("link", "slow_link"):
        step["tensor", link] += prompt["tensor", link]
    for key in step:
        if key[0] in SHARED_BY_STAGES:
            step[key] /= layout.pipeline
    return step


def generation_kind(config: InferenceConfig) -> StepKind:
    """Kind of step: stacks that batch continuously serve; others, and one conversation alone, decode."""
    return SERVING if config.software.stack_class.batches_continuously and config.concurrency != 1 else DECODE


def quantity_feature(config: InferenceConfig, quantity: Literal["serving", "token"]) -> dict[str, str | float]:
    """Feature that separates the coefficients of the whole rate and of the time per token; decoding shares them."""
    return {"what": quantity} if generation_kind(config) is SERVING else {}


def generation_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, concurrency: Number) -> Demands:
    """Demands of a step of its kind: decoding alone, or with the prefill of new requests."""
    demands = _serving_demands if generation_kind(config) is SERVING else _decode_demands
    return demands(config, layout, linked_gpus, concurrency)


def forward_batch(config: InferenceConfig) -> float:
    """Samples of one forward pass on a GPU."""
    return config.concurrency or USUAL_FORWARD_BATCH


def forward_demands(config: InferenceConfig) -> Demands:
    """A forward pass over a batch of samples: encoders and networks known by their FLOPs."""
    model, t = config.model, config.model.transformer
    value, batch = _weight_bytes(config), forward_batch(config)
    if t is not None:
        length = config.mean_length or config.input_length or 1
        flops = length * (2.0 * multiplied_parameters(model) + mean_attention_flops_per_token(t, length))
        moved = LAYER_BYTES_PER_VALUE * length * t.hidden * t.layers
        kernels = float(KERNELS_PER_LAYER_FORWARD * t.layers)
    else:
        flops = model.forward_flops_per_sample or 2.0 * model.parameters
        moved = ACTIVATION_BYTES_PER_FLOP * flops
        kernels = KERNELS_OF_A_PLAIN_NETWORK
    return {
        ("matrix", "flops"): batch * flops,
        ("memory", "memory"): batch * moved * value / 2,
        ("weights", "memory"): model.parameters * value,
        ("launch", "seconds"): kernels * LAUNCH_SECONDS,
        ("step", "seconds"): 1e-3,
    }


def generation_terms(config: InferenceConfig, cluster: Cluster, layout: Layout, concurrency: float) -> StepTerms:
    """Ideal seconds of a step that generates a token of each conversation."""
    demands = generation_demands(config, layout, cluster.linked_gpus, concurrency)
    return ideal_terms(demands, concurrency, config, cluster)


def prefill_terms(config: InferenceConfig, cluster: Cluster, layout: Layout) -> StepTerms:
    """Ideal seconds of the prefill of one prompt, and its tokens."""
    demands = _prefill_demands(config, layout, cluster.linked_gpus, 1.0)
    return ideal_terms(demands, max(1.0, config.input_length), config, cluster)


def forward_terms(config: InferenceConfig, cluster: Cluster) -> StepTerms:
    """Ideal seconds of a forward pass over a batch, and its samples."""
    return ideal_terms(forward_demands(config), forward_batch(config), config, cluster)
