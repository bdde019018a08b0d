"""Roofline of inference: demands of decoding, prefill and plain forward passes on each part of a cluster."""

from service.domain.arrays import Number
from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.config import InferenceConfig
from service.domain.models.counts import mean_attention_flops_per_token, multiplied_parameters, parameters_touched
from service.domain.physics.cluster import Cluster
from service.domain.physics.memory import sequence_cache_bytes
from service.domain.physics.parallelism import AnyLayout, Layout, all_reduce_bytes
from service.domain.physics.resources import Demands, StepTerms, ideal_seconds, over_links, seconds_per_unit
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

SHARED_BY_STAGES = ("cache", "matrix", "prefill", "prefill_memory", "vocabulary", "tensor")
"""Terms of serving that grow with the number of conversations, which the stages of a pipeline share."""


def _weight_bytes(config: InferenceConfig) -> float:
    """Bytes per stored weight."""
    return config.weight_bits / 8 if config.weight_bits else bytes_per_value(config.precision)


def decode_demands(
    config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, concurrency: Number, context: float
) -> Demands:
    """One decoding step of a batch: reads every weight that its tokens use once, and the whole KV cache.

    Pipeline stages take turns, so they neither add bandwidth nor lose it; GPUs of a tensor group share the work.
    """
    model = config.model
    t = model.transformer
    assert t is not None
    wide = layout.tensor
    messages = 2 * t.layers
    return {
        ("weights", "memory"): parameters_touched(model, concurrency) * _weight_bytes(config) / wide,
        ("cache", "memory"): concurrency * sequence_cache_bytes(config, context, wide),
        ("matrix", "flops"): concurrency * 2.0 * multiplied_parameters(model) / wide,
        ("launch", "seconds"): KERNELS_PER_LAYER_FORWARD * t.layers * LAUNCH_SECONDS,
        **over_links("tensor", all_reduce_bytes(messages * 2.0 * concurrency * t.hidden, wide), wide <= linked_gpus),
        ("latency", "seconds"): messages * HOP_SECONDS * (wide > 1),
        ("step", "seconds"): 1e-3,
        ("request", "seconds"): REQUEST_SECONDS * concurrency,
        ("vocabulary", "memory"): concurrency * t.vocabulary * 4 * 3 / wide,
    }


def _prefill_demands(
    config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, prompts: Number, length: float
) -> Demands:
    """Prefill of so many prompts of a length: 2 N s FLOPs and causal attention; reads each weight once at least."""
    model = config.model
    t = model.transformer
    assert t is not None
    wide = layout.tensor
    tokens = prompts * length
    messages = 2 * t.layers
    return {
        ("prefill", "flops"): tokens * 2.0 * multiplied_parameters(model) / wide,
        ("attention", "wide_flops"): tokens * mean_attention_flops_per_token(t, length) / wide,
        ("weights", "memory"): parameters_touched(model, tokens) * _weight_bytes(config) / wide,
        ("memory", "memory"): LAYER_BYTES_PER_VALUE * tokens * t.hidden * t.layers / wide,
        ("launch", "seconds"): KERNELS_PER_LAYER_FORWARD * t.layers * LAUNCH_SECONDS,
        **over_links("tensor", all_reduce_bytes(messages * 2.0 * tokens * t.hidden, wide), wide <= linked_gpus),
        ("step", "seconds"): 1e-3,
    }


def serving_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, concurrency: Number) -> Demands:
    """One decoding step in the steady state of continuous batching, with its share of the prefill of new requests.

    Each of B conversations lasts `output_length` steps, so B / output_length prompts are read per step. Stages of a
    pipeline work on different conversations at once: they share the terms that grow with B, and each reads its own
    weights in every round.
    """
    context = config.input_length + config.output_length / 2
    step = decode_demands(config, layout, linked_gpus, concurrency, context)
    newcomers = concurrency / max(1.0, config.output_length)
    prompt = _prefill_demands(config, layout, linked_gpus, newcomers, max(1.0, config.input_length))
    step[("prefill", "flops")] = prompt[("prefill", "flops")]
    step[("prefill", "wide_flops")] = prompt[("attention", "wide_flops")]
    step[("prefill_memory", "memory")] = prompt[("memory", "memory")]
    for link in ("link", "slow_link"):
        step[("tensor", link)] += prompt[("tensor", link)]
    for key in step:
        if key[0] in SHARED_BY_STAGES:
            step[key] /= layout.pipeline
    return step


def forward_demands(config: InferenceConfig, batch: float) -> Demands:
    """A forward pass over a batch of samples: encoders and networks known by their FLOPs."""
    model, t = config.model, config.model.transformer
    value = _weight_bytes(config)
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


def prefill_terms(
    config: InferenceConfig, cluster: Cluster, layout: Layout, prompts: float, length: float
) -> StepTerms:
    """Ideal seconds of the prefill of so many prompts, and its tokens."""
    demands = _prefill_demands(config, layout, cluster.linked_gpus, prompts, length)
    return StepTerms(ideal_seconds(demands, seconds_per_unit(config, cluster)), prompts * length)


def forward_terms(config: InferenceConfig, cluster: Cluster, batch: float) -> StepTerms:
    """Ideal seconds of a forward pass over a batch, and its samples."""
    return StepTerms(ideal_seconds(forward_demands(config, batch), seconds_per_unit(config, cluster)), batch)
