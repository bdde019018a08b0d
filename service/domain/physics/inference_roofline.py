"""Roofline of inference: demands of decoding, prefill and plain forward passes on each part of a cluster."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Indices, Number
from service.domain.calibration.coefficients import StepKind
from service.domain.jobs.config import EXPANDED_BITS, InferenceConfig
from service.domain.models.counts import (
    cache_bytes_read,
    experts_touched,
    indexer_flops,
    logits_per_token,
    mean_attention_flops_per_token,
    multiplied_parameters,
    parameters_touched,
    read_share,
    reading_part,
    routed_parameters,
    table_parameters,
    written_share,
)
from service.domain.models.model import Transformer
from service.domain.models.networks import network_flops
from service.domain.physics.cluster import Cluster
from service.domain.physics.memory import DRAFTER_BYTES, adapter_bytes, cache_bytes_of_step
from service.domain.physics.parallelism import (
    AnyLayout,
    Layout,
    copies_to_other_groups,
    most_experts,
    spread_of_experts,
)
from service.domain.physics.resources import (
    Demands,
    StepTerms,
    ideal_seconds,
    ideal_terms,
    seconds_per_unit,
    summed_in_tensor_groups,
)
from service.domain.physics.serving import EngineTimes
from service.domain.physics.training_roofline import (
    KERNELS_PER_LAYER_FORWARD,
    LAUNCH_SECONDS,
    LAYER_BYTES_PER_VALUE,
    ROUTING_SECONDS,
    bytes_moved_forward,
    kernels_forward,
    kernels_per_pass,
    layer_bytes,
    layers_by_traffic,
)

REQUEST_SECONDS = 1e-5
"""Nominal CPU seconds of the scheduler per running request and step."""

ARRIVAL_SECONDS = 1e-2
"""Nominal seconds of a request on its way to the engine and back: HTTP, tokenisation, queues between processes."""

ADAPTER_KERNELS_PER_LAYER = 8
"""Kernels that LoRA adapters add to a layer: down to the rank and up from it, for each of four matrix products. In a 7B
model on an A100 they take about 2 ms per token (Punica, arXiv 2310.18547)."""

HOP_SECONDS = 10e-6
"""Nominal seconds of one all-reduce of a few bytes."""

TOKENS_PER_STEP = 8192.0
"""Most tokens of prompts that engines read in one step (defaults of vLLM and TensorRT-LLM)."""

USUAL_FORWARD_BATCH = 128.0
"""Samples in a forward pass by default (assumed: large enough to fill a GPU)."""


def kernels_of_step(t: Transformer) -> float:
    """Returns the kernels that a step starts, in which an encoder takes no part."""
    return kernels_per_pass(t) - kernels_per_pass(reading_part(t)) if t.encoder_layers else kernels_per_pass(t)


def sublayers_of_step(t: Transformer) -> int:
    """Returns the sublayers that a step passes through, in which an encoder takes no part."""
    return t.sublayers - reading_part(t).sublayers if t.encoder_layers else t.sublayers


def kernels_of_experts(config: InferenceConfig, tokens: Number) -> Number:
    """Returns the kernels of the experts that a pass over some tokens uses, where they are computed one after another.

    Each starts as many kernels as a layer: the thinker of Qwen3-Omni 30B-A3B, of 48 layers and 8 experts per token,
    writes about 5.7 tokens/s in Transformers 4 on an A100 (its issue 46).
    """
    t = config.model.transformer
    if t is None or not config.software.loops_over_experts:
        return 0.0
    return KERNELS_PER_LAYER_FORWARD * experts_touched(t, tokens) * t.moe_layers


def _kernels_of_prompt(config: InferenceConfig, t: Transformer) -> Number:
    return kernels_per_pass(reading_part(t)) + kernels_of_experts(config, _tokens_to_read(config))


CalibratedRates = Callable[[str, str], Number]
"""A function of a term and a resource; it returns the calibrated seconds per unit of the resource for this term."""


class EngineTerms(NamedTuple):
    """Ideal seconds of each term of a step, of a request that runs in it, of a prompt, and of an arrival."""

    step: Mapping[str, float]
    request: Mapping[str, float]
    prompt: Mapping[str, float]
    arrival: Mapping[str, float]


FUSED_KERNELS = 5.0
"""Kernels that a stack with fused kernels joins into one: a convolution with its normalisation, activation and sum, or
a matrix product of an encoder with the operations on its result."""

JOULES_PER_PLAIN_FLOP = 2e-11
"""Energy of a multiplication or an addition in fp32, which no matrix engine does, up to a fitted factor: 300 W over the
15.7 TFLOP/s of a V100. Power limits such work: an A10, with 31.2 TFLOP/s and 150 W, runs BERT in fp32 0.9 times as fast
as a V100 (FasterTransformer)."""

JOULES_PER_MATRIX_FLOP = 1e-13
"""Energy of an operation of matrix engines, up to a fitted factor. Networks that answer in one pass and diffusion
models are mostly such work, so that the power of a card limits them: an A100 with PCIe (300 W) has the peak of one with
SXM (400 W), and runs BERT-large in TensorRT 0.87 to 0.89 times as fast (MLPerf Inference 1.1)."""


def weights_read(config: InferenceConfig, layout: AnyLayout, tokens: Number, share: float) -> Number:
    """Returns the weights that a GPU reads in a pass over these tokens of one replica, which use this share of the
    parameters outside of experts.

    Where replicas spread the experts over all their GPUs, each GPU has a share of the experts and computes them for the
    tokens of all replicas.
    """
    spread, t = spread_of_experts(layout), config.model.transformer
    assert t is not None
    always, experts = parameters_touched(config.model, tokens * np.where(spread > 1, layout.data, 1.0))
    return (always * share + experts * most_experts(t.experts, layout)) / layout.tensor


def bits_moved(config: InferenceConfig, *, alone: bool = False) -> Number:
    """Returns the bits that move per weight.

    Formats that are expanded for several tokens are expanded unless a pass has one token `alone`.
    """
    return config.formats.bits_read + (0.0 if alone else config.formats.bits_expanded)


def wide_weights(config: InferenceConfig, layout: AnyLayout) -> Number:
    """Returns the weights that a GPU reads at 16 bits in a pass, while the others have fewer than 8: engines keep the
    output projection as it was (see `stored_weight_bytes`). A model with an encoder counts none.
    """
    t = config.model.transformer
    if t is None or t.encoder_layers or config.mean_bits:
        return 0.0
    return (np.asarray(config.formats.bits_read) < 8) * logits_per_token(t) * t.hidden / layout.tensor


def weight_bytes(config: InferenceConfig, layout: AnyLayout, read: Number, *, alone: bool = False) -> Number:
    """Bytes that move for the weights that a GPU reads in a pass."""
    wide = wide_weights(config, layout)
    return ((read - wide) * bits_moved(config, alone=alone) + wide * EXPANDED_BITS) / 8


def step_weights(config: InferenceConfig, layout: AnyLayout, running: Number) -> Number:
    """Returns the weights that a GPU reads for one token of each running request; each weight is read once.

    With speculative decoding, a step verifies several tokens of each request.
    """
    verified = running * config.any_load.tokens_verified
    return weights_read(config, layout, verified, written_share(config.model))


def step_depends_on_requests(config: InferenceConfig) -> bool:
    """Returns whether the weights of a step depend on the requests that run: they choose among experts or adapters."""
    return bool(routed_parameters(config.model) or config.any_load.adapters)


def step_weight_bytes(config: InferenceConfig, layout: AnyLayout, running: Number) -> Number:
    """Bytes of the weights that a GPU moves in a step, and of the adapter of each request.

    With speculative decoding, a step yields several tokens of each request, and a draft model moves its weights for
    each token that it drafts.
    """
    load = config.any_load
    read = weight_bytes(config, layout, step_weights(config, layout, running), alone=config.writes_tokens_alone)
    if load.adapters:
        read = read + np.minimum(running, load.adapters) * adapter_bytes(config) / layout.tensor
    return read * load.steps_per_token + _drafts(config).weight_bytes / layout.tensor


def step_unpacking_flops(config: InferenceConfig, layout: AnyLayout, running: Number) -> Number:
    """Returns the operations outside of matrix engines with which a step unpacks its weights."""
    unpacked = step_weights(config, layout, running) - wide_weights(config, layout)
    return config.formats.unpacking_flops * unpacked * config.any_load.steps_per_token


def step_expert_launches(config: InferenceConfig, running: Number) -> Number:
    """Returns the seconds in which a step starts the kernels of the experts that one replica's requests use."""
    load = config.any_load
    kernels = kernels_of_experts(config, running * load.tokens_verified)
    return kernels * load.steps_per_token * LAUNCH_SECONDS


class _Drafts(NamedTuple):
    """Work of a draft model for each generated token and, as `read_flops`, for each token of a prompt; 0 without one.

    A tensor group divides the bytes of weights and the FLOPs.
    """

    kernels: float = 0.0
    sublayers: float = 0.0
    weight_bytes: float = 0.0
    flops: float = 0.0
    cached_bytes: Number = 0.0
    """Bytes of the cache that a GPU of a tensor group reads."""
    read_flops: float = 0.0


def _drafts(config: InferenceConfig, tensor: Number = 1) -> _Drafts:
    """Returns the work of the draft model, with its cache on one GPU of a tensor group."""
    drafter, tokens = config.any_load.drafter, config.any_load.drafts_per_token
    if drafter is None:
        return _Drafts()
    t, multiplied = drafter.transformer, multiplied_parameters(drafter)
    assert t is not None
    return _Drafts(
        kernels=tokens * kernels_of_step(t),
        sublayers=tokens * sublayers_of_step(t),
        weight_bytes=tokens * multiplied * DRAFTER_BYTES,
        flops=tokens * 2.0 * multiplied,
        cached_bytes=tokens * cache_bytes_read(t, _mean_context(config), config.formats.cache_bytes, tensor),
        read_flops=2.0 * multiplied,
    )


def steps_with_drafts(config: InferenceConfig) -> float:
    """Returns the time of a token of one request, in steps without drafts, where reading weights takes all of it."""
    read = multiplied_parameters(config.model) * float(bits_moved(config, alone=True)) / 8
    return config.any_load.steps_per_token + _drafts(config).weight_bytes / read


def _mean_context(config: InferenceConfig) -> float:
    return config.input_length + config.output_length / 2


def step_demands(config: InferenceConfig, layout: AnyLayout) -> Demands:
    """Demands of a decoding step of a replica, without its weights and experts and the work that requests add to it.

    With speculative decoding, they are those of the mean token.
    """
    t, steps, drafts = config.model.transformer, config.any_load.steps_per_token, _drafts(config)
    assert t is not None
    sublayers = sublayers_of_step(t)
    adapters = ADAPTER_KERNELS_PER_LAYER * sublayers / 2 * (config.any_load.adapters > 0)
    kernels = kernels_of_step(t) + adapters
    return {
        ("launch", "seconds"): (steps * kernels + drafts.kernels) * LAUNCH_SECONDS,
        ("latency", "seconds"): (steps * sublayers + drafts.sublayers) * HOP_SECONDS * (layout.tensor > 1),
        # Each stage of a pipeline schedules requests of its own.
        ("step", "seconds"): steps * 1e-3 * layout.pipeline,
    }


def request_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Demands that each running request adds to a decoding step, which reads the KV cache of the request: all of it, or
    the part that indexers select. Scoring the tokens for this selection counts as a matrix product.

    The GPUs of a tensor group share the work, and the stages of a pipeline do their parts of it for different requests
    at the same time. With speculative decoding, the demands are those of the mean token.
    """
    t, steps, gpus = config.model.transformer, config.any_load.steps_per_token, layout.tensor * layout.pipeline
    assert t is not None
    tokens, mean_context = steps * config.any_load.tokens_verified, _mean_context(config)
    multiplied = multiplied_parameters(config.model) * written_share(config.model)
    drafts = _drafts(config, layout.tensor)
    products = tokens * (2.0 * multiplied + indexer_flops(t, mean_context)) + drafts.flops
    cached = steps * cache_bytes_of_step(config, mean_context, layout.tensor) + drafts.cached_bytes
    return {
        ("cache", "memory"): cached / layout.pipeline,
        ("matrix", "flops"): products / gpus,
        ("request", "seconds"): steps * REQUEST_SECONDS,
        ("vocabulary", "memory"): tokens * t.vocabulary * 4 * 3 / gpus,
        **_links(config, layout, linked_gpus, tokens, sublayers_of_step(t)),
    }


def _links(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, tokens: float, sublayers: int) -> Demands:
    """Bytes of the all-reduces of tensor groups after these sublayers, and of tokens on their way to spread experts and
    back: one copy to each other group of linked GPUs with some of its experts, from where it goes on over fast links
    (DeepEP).

    The stages of a pipeline share both.
    """
    t = config.model.transformer
    assert t is not None
    sums = 2.0 * sublayers * tokens * t.hidden / layout.pipeline
    of_tensor = summed_in_tensor_groups(sums, layout.tensor, linked_gpus)
    if not t.moe_layers:
        return of_tensor
    spread = spread_of_experts(layout)
    groups = np.ceil(spread / linked_gpus)
    inside = np.minimum(spread, linked_gpus)
    sent = 2 * t.moe_layers * 2.0 * tokens * t.routed_size / layout.pipeline
    return of_tensor | {
        ("expert", "link"): sent * np.minimum(t.experts_per_token, inside) * (1.0 - 1.0 / inside),
        ("expert", "slow_link"): sent * copies_to_other_groups(groups, t.experts_per_token),
    }


def prompt_demands(config: InferenceConfig, layout: AnyLayout, linked_gpus: Number) -> Demands:
    """Demands of reading one prompt, without its passes: 2 FLOPs per parameter and token, and causal attention; of a
    model with an encoder, those of the encoder. Routed experts are apart, because products of few tokens each use less
    of a GPU.

    The stages of a pipeline share them. The part that was read before is in the cache already, so that its only cost is
    the attention of the other tokens to it.
    """
    t, gpus, prompt = config.model.transformer, layout.tensor * layout.pipeline, max(1.0, config.input_length)
    assert t is not None
    tokens = _tokens_to_read(config)
    reading, multiplied = reading_part(t), multiplied_parameters(config.model) * read_share(config.model)
    attention = prompt * mean_attention_flops_per_token(reading, prompt)
    if config.known_prompt:
        attention -= config.known_prompt * mean_attention_flops_per_token(reading, config.known_prompt)
    images = min(config.image_tokens, tokens) * (config.model.other_flops_per_sample or 0.0)
    routed = 2.0 * tokens * routed_parameters(config.model)
    drafted = tokens * _drafts(config).read_flops
    return {
        ("prefill", "flops"): (2.0 * tokens * multiplied - routed + images + drafted) / gpus,
        ("prefill_experts", "flops"): routed / gpus,
        ("attention", "wide_flops"): attention / gpus,
        ("prefill_memory", "memory"): LAYER_BYTES_PER_VALUE * tokens * t.hidden * layers_by_traffic(reading) / gpus,
        **_links(config, layout, linked_gpus, tokens, reading.sublayers),
    }


def pass_demands(config: InferenceConfig, layout: AnyLayout) -> Demands:
    """Demands of a pass over the tokens of a prompt. The calibration decides how much of them adds to a
    decoding step.
    """
    t = config.model.transformer
    assert t is not None
    return {
        ("pass", "memory"): weight_bytes(
            config, layout, weights_read(config, layout, _tokens_to_read(config), read_share(config.model))
        ),
        ("pass", "seconds"): _kernels_of_prompt(config, t) * LAUNCH_SECONDS,
    }


def passes_of_prompt(config: InferenceConfig, running: Number) -> Number:
    """Passes that read one prompt while this number of requests runs.

    A long prompt takes several passes. Where many requests run, several prompts share a pass: with B running requests
    and answers of o tokens, B / o requests end in each step, and as many prompts take their places.
    """
    later = max(1.0, config.output_length - 1.0)
    return np.maximum(_tokens_to_read(config) / TOKENS_PER_STEP, np.minimum(1.0, later / running))


class PassesUnderLoad(NamedTuple):
    """Passes over prompts that count per prompt, per step, and once per request or static batch (`own`)."""

    prompt: Number
    step: Number
    own: Number


def passes_under_load(config: InferenceConfig, running: Number) -> PassesUnderLoad:
    """The passes of `passes_of_prompt`, divided by who waits for them.

    The part of a pass that a prompt fills counts for the prompt. The rest of the pass is shared: while a request takes
    o steps for its answer, the B - 1 other requests read their prompts in B - 1 of these steps, or in all of them if o
    is smaller. One more step reads the prompt of the request itself.
    """
    full = _tokens_to_read(config) / TOKENS_PER_STEP
    later, shared = max(1.0, config.output_length - 1.0), max(0.0, 1.0 - full)
    if config.software.stack.static_batches:
        return PassesUnderLoad(full, 0.0, shared * np.minimum(running, later))
    of_step = shared * np.minimum(1.0, (running - 1.0) / later)
    return PassesUnderLoad(full, of_step, shared - of_step)


def _tokens_to_read(config: InferenceConfig) -> float:
    """Tokens of a prompt that are not in a cache already."""
    return max(1.0, config.input_length) - config.known_prompt


def arrival_demands(config: InferenceConfig, layout: AnyLayout, of_prompt: Demands) -> Demands:
    """Demands of a request on its way to the engine and back, during which other requests go on. `of_prompt` is the
    `prompt_demands` of its prompt.

    A stage of a pipeline passes its prompt on and takes the next one, so that each other stage adds its share of the
    work to the time of the prompt, or of the last part of one that takes several passes. Engines record the kernels of
    decoding steps as graphs. A pass over a prompt has a shape of its own, so that its kernels start one by one, and a
    mixture of experts first sorts its tokens by expert.
    """
    t = config.model.transformer
    assert t is not None
    others = (layout.pipeline - 1.0) / max(1.0, _tokens_to_read(config) / TOKENS_PER_STEP)
    in_others = {key: others * amount for key, amount in of_prompt.items()}
    return in_others | {
        ("arrival", "seconds"): ARRIVAL_SECONDS,
        ("prompt_launch", "seconds"): _kernels_of_prompt(config, t) * LAUNCH_SECONDS,
        ("prompt_routing", "seconds"): ROUTING_SECONDS * t.moe_layers,
    }


def engine_terms(config: InferenceConfig, cluster: Cluster, layout: Layout, running: float) -> EngineTerms:
    """Ideal seconds of each part of an engine's work while this number of requests runs on a replica."""
    rates, linked_gpus = seconds_per_unit(config, cluster), cluster.linked_gpus
    passes = passes_of_prompt(config, running)
    of_weights = {
        "weights": float(step_weight_bytes(config, layout, running)) * rates["memory"],
        "unpacking": float(step_unpacking_flops(config, layout, running)) * rates["plain_flops"],
    }
    of_passes = {key: amount * passes for key, amount in pass_demands(config, layout).items()}
    of_prompt = prompt_demands(config, layout, linked_gpus)
    of_step = ideal_seconds(step_demands(config, layout), rates)
    of_step["launch"] += float(step_expert_launches(config, running))
    return EngineTerms(
        of_weights | of_step,
        ideal_seconds(request_demands(config, layout, linked_gpus), rates),
        ideal_seconds({**of_prompt, **of_passes}, rates),
        ideal_seconds(arrival_demands(config, layout, of_prompt), rates),
    )


def forward_batch(config: InferenceConfig) -> float:
    """Samples of one forward pass on a GPU."""
    usual = USUAL_FORWARD_BATCH if config.steps == 1.0 else 1.0  # a single image of many steps fills a GPU
    return config.concurrency or usual


class ForwardDemands(NamedTuple):
    """Demands of each sample, and those of a batch that do not depend on its size."""

    sample: Demands
    batch: Demands

    def of(self, samples: float) -> Demands:
        """Returns the demands of a batch of this number of samples."""
        return {key: amount * samples for key, amount in self.sample.items()} | dict(self.batch)


def forward_demands(config: InferenceConfig) -> ForwardDemands:
    """Demands of all forward passes over a batch of samples, for encoders and for networks known by their FLOPs.

    A diffusion model passes over its samples in every denoising step, and reads its weights once per step. Of the
    tables of a recommender, a sample reads a few rows, which do not count.
    """
    model, t, formats = config.model, config.model.transformer, config.formats
    if t is not None:
        length = config.mean_length or config.input_length or 1
        flops = length * (2.0 * multiplied_parameters(model) + mean_attention_flops_per_token(t, length))
        moved = layer_bytes(t, length, fused=not config.software.stack.before_flash) * length * t.layers
        kernels = float(KERNELS_PER_LAYER_FORWARD * t.layers)
    else:
        flops = config.passes * network_flops(model) + (model.other_flops_per_sample or 0.0)
        moved = config.passes * bytes_moved_forward(model)
        kernels = kernels_forward(model)
    if config.software.stack.fuses_kernels:
        kernels /= FUSED_KERNELS
    weights = model.parameters - table_parameters(model)
    sample: Demands = {
        ("matrix", "flops"): flops,
        ("memory", "memory"): moved * formats.moved_bytes / 2,
        ("power", "joules"): JOULES_PER_PLAIN_FLOP * flops * formats.plain,
        ("matrix_power", "joules"): JOULES_PER_MATRIX_FLOP * flops * np.logical_not(formats.plain),
    }
    return ForwardDemands(
        sample,
        {
            ("weights", "memory"): (
                (config.steps * weights + (model.other_parameters or 0.0))
                * (formats.bits_read + formats.bits_expanded)
                / 8
            ),
            ("launch", "seconds"): config.steps * kernels * LAUNCH_SECONDS,
            ("step", "seconds"): config.steps * 1e-3,
        },
    )


def forward_terms(config: InferenceConfig, cluster: Cluster, samples: float | None = None) -> StepTerms:
    """Ideal seconds of a forward pass over a batch, and its samples; by default a batch of the usual size."""
    batch = samples or forward_batch(config)
    return ideal_terms(forward_demands(config).of(batch), batch, config, cluster)


@dataclass(frozen=True, slots=True)
class ForwardEngines:
    """GPUs that pass over batches of samples, one per row, with calibrated seconds.

    A sample counts as a prompt whose answer is one token, so that no token is written after it.
    """

    kind: StepKind
    sample: Mapping[str, Number]
    """Seconds by term that each sample takes."""
    batch: Mapping[str, Number]
    """Seconds by term that each batch takes, whatever its size."""

    @staticmethod
    def of(kind: StepKind, demands: ForwardDemands, rate: CalibratedRates) -> "ForwardEngines":
        """Returns engines from demands and calibrated seconds per unit of each resource."""

        def by_term(part: Demands) -> dict[str, Number]:
            return {term: amount * rate(term, resource) for (term, resource), amount in part.items()}

        return ForwardEngines(kind, by_term(demands.sample), by_term(demands.batch))

    def rows(self, rows: Indices) -> "ForwardEngines":
        """Returns some of the engines."""
        sample, batch = (
            {term: seconds[rows] if isinstance(seconds, np.ndarray) else seconds for term, seconds in part.items()}
            for part in (self.sample, self.batch)
        )
        return ForwardEngines(self.kind, sample, batch)

    def at(self, running: Number) -> EngineTimes:
        """Returns the seconds of a batch of this number of samples, and of each sample in it."""
        terms = {term: seconds * running for term, seconds in self.sample.items()} | dict(self.batch)
        parts = self.kind.overlapped(terms)
        of_sample = sum(parts[term] for term in self.sample) / running
        return EngineTimes(sum(parts[term] for term in self.batch), 0.0, of_sample, 0.0)

    def under_load(self, running: Number) -> EngineTimes:
        """Returns the seconds of `at`: only prompts share passes that count differently under a load."""
        return self.at(running)
