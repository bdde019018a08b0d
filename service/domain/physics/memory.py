"""Bytes that a configuration needs on each GPU, in parts, before calibration; and how much KV cache fits."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from service.domain.arrays import Number
from service.domain.catalog.precision import activation_bytes, bytes_per_value
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.models.counts import (
    adapter_parameters,
    cache_bytes,
    cache_bytes_read,
    logits_per_token,
    routed_share,
    table_parameters,
)
from service.domain.models.model import Model, Transformer
from service.domain.models.networks import held_values, recomputed_values, saved_values
from service.domain.physics.parallelism import AnyLayout, Layout, most_experts, spread_of_experts

RECIPES: dict[str, tuple[float, float, float]] = {
    "mixed": (2.0, 2.0, 4.0),
    "pure": (2.0, 2.0, 0.0),
    "single": (4.0, 4.0, 0.0),
    "double": (8.0, 8.0, 0.0),
}
"""By recipe of precision, bytes per parameter of the weights, the gradients, and an fp32 copy of the weights."""

OPTIMIZER_STATES: dict[str, tuple[float, float | None]] = {
    "adamw": (2.0, None),
    "adam": (2.0, None),
    "adamw_8bit": (2.0, 1.0),
    "adam_8bit": (2.0, 1.0),
    "adamw_4bit": (2.0, 0.5),
    "paged_adamw": (2.0, 4.0),
    "paged_adamw_8bit": (2.0, 1.0),
    "ademamix": (3.0, None),  # one momentum more (Pagliardini et al. 2024, 2409.03137)
    "ademamix_8bit": (3.0, 1.0),
    "lamb": (2.0, None),
    "lars": (1.0, None),
    "rmsprop": (1.0, None),
    "adagrad": (1.0, None),
    "lion": (1.0, None),
    "lion_8bit": (1.0, 1.0),
    "paged_lion": (1.0, 4.0),
    "paged_lion_8bit": (1.0, 1.0),
    "momentum": (1.0, None),
    "adafactor": (0.05, None),
    "muon": (1.0, None),  # one momentum (Liu et al., "Muon is Scalable for LLM Training", 2502.16982)
    "sgd": (0.0, None),
}
"""Values that an optimizer keeps per parameter, and the bytes of each; None: those of a value in the precision of its
states. States of 4 and 8 bits have no other size where weights are in 16 bits, and paged ones of bitsandbytes are in
fp32 there (its documentation: `optim_bits`)."""

PAGED = frozenset(name for name in OPTIMIZER_STATES if name.startswith("paged_"))
"""Optimizers whose states move to host memory when the GPU is full (bitsandbytes). They count as no GPU memory, and as
fetched from the host in each step."""

CONTEXT_BYTES = 0.9e9
"""Bytes of the CUDA context, kernels and communicators; the calibration scales them for each stack."""

ADAPTER_SHARE = 0.003
"""Share of the parameters that LoRA trains by default: rank 8 on the attention matrices of a 7B model is 0.1-0.6 %."""

SELECTED_SHARE = 0.5
"""Share of a layer's activations, without attention scores, that selective checkpointing keeps: the outputs of every
other matrix product (torchtitan's default). Users report that activations shrink 1.5 to 2.5 times."""

LOGIT_BYTES = 10.0
"""Bytes per logit: at 16 bits, in fp32, and the gradient."""

TABLE_BYTES = 4.0
"""Bytes per parameter of an embedding table: fp32. SGD and row-wise Adagrad keep next to nothing per value, and only
the rows that a step reads have gradients (Naumov et al. 2019, 1906.00091; TorchRec)."""

USUAL_LAYERS = 10
"""Layers of a network whose layers are unknown (assumed)."""

SAMPLER = "sampler"
"""The part of the memory that holds the logits of the most sequences that an engine runs at once."""

CACHE, PROMPTS = "kv_cache", "prompts"
"""The parts of the memory that grow with the requests: KV caches, and activations of the prompts of a static batch."""

PLANNED_SHARE = 0.9
"""Share of a GPU's memory into which an engine fits its weights, activations and cache: the default of vLLM
(`gpu_memory_utilization`)."""

DRAFTER_BYTES = 2.0
"""Bytes per weight of a draft model, which is kept at 16 bits."""

ADAPTER_BYTES = 2.0
"""Bytes per weight of a LoRA adapter in an engine, which is kept at 16 bits."""

SAFE_DEVIATIONS = 2.0
"""Standard deviations above its mean up to which the cache of all running requests has room (assumed), in an engine
that gives requests cache as their answers grow. Where room runs out, it stops a request and computes it again."""

TOKENS_PER_PASS = 512.0
"""Tokens that an engine with continuous batching reads in one pass (assumed); other stacks decode one token
at a time."""

VALUES_PER_TOKEN_OF_BATCH = 16.0
"""Values per prompt token, in multiples of the width of the model, that a stack with static batches keeps while it
reads prompts together. They are the workspace of DeepSpeed-Inference, which tensor parallelism does not divide. With
this figure, FasterTransformer has room for Megatron-Turing NLG on 16 A100 in exactly those cases in which published
runs did.
"""


def layer_activation_bytes(
    t: Transformer, tokens: Number, sequence: float, value_bytes: float, *, flash: bool
) -> Number:
    """Bytes that autograd keeps of a layer: norm inputs and outputs, Q K V, attention output and feed-forward.

    With h the width, a heads, k key-value heads, d the size of a head, f the width of the feed-forward and s the
    sequence, a token takes at 2 bytes per value: 8 h (norms) + 2 d (a + 2 k) + 2 d a + 2 f x 4 (gated) or 2 f x 2
    (not); without FlashAttention 5 a s more: scores before and after the softmax, and a dropout mask of a byte each.
    For f = 4 h and k = a this is the (34 + 5 a s / h) h of Korthikanti et al. (2022) without its other dropout masks.
    With MLA, queries and keys have another size than values, and each head has keys of its own. The result is the mean
    of all layers, of which some may have experts: the routed ones of a token, and shared ones. In a hybrid each layer
    has one norm, and a state-space layer keeps its gate, values, result and gated result, and its projections into the
    state and out of it.
    """
    attention, ffn, state = (count / t.layers for count in (t.attending_layers, t.ffn_layers, t.ssm_layers))
    width = (t.ffn_layers - t.moe_layers) * t.ffn
    width += t.moe_layers * (t.experts_per_token + t.shared_experts) * t.expert_ffn
    halves = 2 * (attention + ffn + state) * t.hidden
    halves += attention * (t.heads + t.kv_heads) * (t.query_size + t.value_size)
    halves += width / t.layers * (4 if t.gated else 2) + state * (4 * t.ssm_inner + 2 * t.ssm_groups * t.ssm_state)
    scores = 0.0 if flash else attention * t.heads * sequence * (2.0 * value_bytes + 1.0)
    return tokens * (halves * value_bytes + scores)


def trainable_parameters(config: TrainingConfig) -> float:
    """Parameters that learn, without embedding tables; adapters of unknown size have a usual share of the model."""
    if config.trainable_parameters:
        return min(config.trainable_parameters, config.model.parameters)
    dense = config.model.parameters - table_parameters(config.model)
    return dense * (1.0 if config.method == "full" else ADAPTER_SHARE)


def learned_share(config: TrainingConfig) -> float:
    """Returns the share of the model's parameters, without embedding tables, that learn: at most all of them."""
    return min(1.0, trainable_parameters(config) / (config.model.parameters - table_parameters(config.model)))


def stored_weight_bytes(model: Model, bits: Number) -> Number:
    """Bytes of the weights at these bits per weight; below 8 bits, the embedding and the output head stay at 16."""
    t = model.transformer
    if t is None:
        return model.parameters * bits / 8
    wide = t.vocabulary * t.hidden * (1 if t.tied or not t.has_logits else 2)
    narrow = max(0.0, model.parameters - wide) * bits / 8 + wide * 2.0
    return np.where(bits >= 8, model.parameters * bits / 8, narrow)


def learned_routed_share(config: TrainingConfig) -> float:
    """Returns the share of routed experts in the parameters that learn; 0 for adapters, which are not in experts."""
    return routed_share(config.model) if config.method == "full" else 0.0


def training_parts(config: TrainingConfig, layout: AnyLayout) -> dict[str, Number]:
    """Bytes per GPU of each part of a training step, before calibration."""
    t = config.model.transformer
    layers = max(1, t.layers if t else USUAL_LAYERS)
    stage, ranks = layout.zero_stage, layout.data * layout.context
    _, grad, _ = RECIPES[config.recipe]
    trained = trainable_parameters(config)
    learned_routed = learned_routed_share(config)
    weights = weight_bytes(config)
    on_gpus = 0.0 if config.offload_parameters else weights
    # ZeRO-Offload moves the gradients of a layer to the host as they arise (Ren et al. 2021, arXiv 2101.06840). An
    # optimizer that steps in the backward pass needs the sum of all micro-batches, so that it drops them only where a
    # step has one.
    one_layer = config.offload_optimizer | config.fused_optimizer & (layout.accumulation == 1)
    gradients = trained * grad / np.where(one_layer, layers, 1.0)
    optimizer = 0.0 if config.offload_optimizer else trained * resident_state_bytes(config)
    # A pipeline keeps gathered weights between its micro-batches.
    whole = (layout.pipeline > 1) | config.software.stack.keeps_gathered_weights
    gathered = np.where(whole, 1.0, min(1.0, 2 / layers)) * ((stage >= 3) & (ranks > 1) | config.offload_parameters)
    routed = routed_share(config.model)
    return {
        "weights": on_each_gpu(on_gpus, layout, routed, stage >= 3) + _table_bytes(config) / ranks + _encoders(config),
        "gradients": on_each_gpu(gradients, layout, learned_routed, (stage >= 2) & (layout.pipeline == 1)),
        "optimizer": on_each_gpu(optimizer, layout, learned_routed, stage >= 1),
        "live": on_each_gpu(weights, layout, routed, 0) * gathered,
        "context": CONTEXT_BYTES,
        **_activation_parts(config, layout),
    }


def on_each_gpu(whole: Number, layout: AnyLayout, routed: float, sharded: Number, experts: int = 0) -> Number:
    """Returns the part of an amount that is on each GPU, after tensor, pipeline and expert parallelism divide it.

    `routed` is the share of routed experts in the amount. Where `sharded`, ZeRO also divides it over its copies. An
    expert group includes the ranks of a tensor group, which divide each of its experts. Where the number of `experts`
    is given, groups need not divide it.
    """
    ranks = layout.data * layout.context
    dense_shards = 1.0 + (ranks - 1.0) * sharded
    if not routed:
        return whole / (layout.tensor * layout.pipeline) / dense_shards
    copies = np.maximum(1.0, ranks / spread_of_experts(layout))
    expert_shards = 1.0 + (copies - 1.0) * sharded
    share = (1.0 - routed) / dense_shards + routed * most_experts(experts, layout) / expert_shards
    return whole / (layout.tensor * layout.pipeline) * share


def weight_bytes(config: TrainingConfig) -> float:
    """Returns the bytes of all weights: those that learn, and the frozen ones in the precision that stores them.

    The image encoder of a language model counts, and is frozen; the other networks of a diffusion model do not, see
    `_encoders`.
    """
    model, bytes_each = config.model, RECIPES[config.recipe][0]
    others = (model.other_parameters or 0.0) * bytes_each if model.transformer else 0.0
    dense = model.parameters - table_parameters(model)
    learned = dense if config.method == "full" else trainable_parameters(config)
    return frozen_weight_bytes(config) + learned * bytes_each + others


def _encoders(config: TrainingConfig) -> float:
    """Bytes of a diffusion model's encoders, frozen and whole on each GPU; 0 where they run before the training, as
    they can in kohya's sd-scripts, SimpleTuner and ai-toolkit.
    """
    return (config.model.other_parameters or 0.0) * RECIPES[config.recipe][0] * config.encoders_in_training


def frozen_weight_bytes(config: TrainingConfig) -> float:
    """Bytes of the frozen weights in the precision that stores them: the model below adapters, or a reference model."""
    if config.method == "full" and not config.has_reference:
        return 0.0
    bits = 8 * (bytes_per_value(config.weight_precision) if config.weight_precision else RECIPES[config.recipe][0])
    return float(stored_weight_bytes(config.model, bits))


def _table_bytes(config: TrainingConfig) -> float:
    """Bytes of all embedding tables that learn, which are spread over the GPUs in every layout."""
    return TABLE_BYTES * table_parameters(config.model) if config.method == "full" else 0.0


def optimizer_state_bytes(config: TrainingConfig) -> float:
    """Bytes per trained parameter of optimizer states and of the fp32 copy of the weights."""
    states, size = OPTIMIZER_STATES.get(config.optimizer, OPTIMIZER_STATES["adamw"])
    weights, _, copy = RECIPES[config.recipe]
    return copy + states * (copy or weights if size is None else size)


def paged_state_bytes(config: TrainingConfig) -> float:
    """Bytes per trained parameter that may leave the GPU for the host: states of a paged optimizer, which the GPU
    updates, without the fp32 copy of the weights.
    """
    pages = config.optimizer in PAGED and not config.offload_optimizer
    return optimizer_state_bytes(config) - RECIPES[config.recipe][2] if pages else 0.0


def resident_state_bytes(config: TrainingConfig) -> float:
    """Bytes per trained parameter that stay on the GPU; those of an offloaded optimizer count elsewhere."""
    return optimizer_state_bytes(config) - paged_state_bytes(config)


def _activation_parts(config: TrainingConfig, layout: AnyLayout) -> dict[str, Number]:
    model, t = config.model, config.model.transformer
    value = activation_bytes(config.precision)
    if t is None:
        saved = saved_values(model) * layout.micro_batch * value
        return {
            "activations": recomputed_values(model) * layout.micro_batch * value * layout.checkpoints("full"),
            "selected": SELECTED_SHARE * saved * layout.checkpoints("selective"),
            "kept": saved * layout.checkpoints("none"),
        }
    sequence = config.sequence_length or 1
    tokens = layout.micro_batch * sequence / layout.context
    layer = layer_activation_bytes(t, tokens, sequence, value, flash=config.flash_attention) / layout.tensor
    # Selective checkpointing recomputes the attention scores, and the other activations that are cheap.
    selected = layer_activation_bytes(t, tokens, sequence, value, flash=True) / layout.tensor
    on_gpus = 2.0 / t.layers if config.offload_activations else 1.0
    layers, full = _layers_in_flight(t, layout), layout.checkpoints("full") * 1.0
    return {
        "logits": LOGIT_BYTES * tokens * config.written_share * _logits_at_once(config, t) / layout.tensor,
        "boundaries": on_gpus * _boundary_bytes(config, t, layout),
        "activations": layer * full,
        "selected": SELECTED_SHARE * selected * layers * layout.checkpoints("selective"),
        "kept": layer * layers * layout.checkpoints("none"),
    }


def _layers_in_flight(t: Transformer, layout: AnyLayout) -> Number:
    """Layers of a GPU times the micro-batches whose activations it keeps until their backward pass."""
    layers = t.layers * np.minimum(layout.pipeline, layout.accumulation) / layout.pipeline
    return layers * (1.0 + more_in_flight(layout))


def _boundary_bytes(config: TrainingConfig, t: Transformer, layout: AnyLayout) -> Number:
    """Bytes of the activations between layers, from which full checkpointing recomputes the others, of one GPU."""
    tokens = layout.micro_batch * (config.sequence_length or 1) / layout.context
    boundary = tokens * t.hidden * activation_bytes(config.precision) / layout.tensor
    return boundary * _layers_in_flight(t, layout) * layout.checkpoints("full")


def offloaded_activation_bytes(config: TrainingConfig, layout: AnyLayout) -> Number:
    """Bytes of the activations of one GPU that are in host memory. Copying them takes no time of its own, because a GPU
    computes meanwhile: Unsloth measured less than 2 % (its blog on long contexts, 2024-04-09).
    """
    t = config.model.transformer
    return 0.0 if t is None or not config.offload_activations else _boundary_bytes(config, t, layout)


def _logits_at_once(config: TrainingConfig, t: Transformer) -> float:
    """Logits that the loss holds, per token of all chunks.

    Stacks without a number of chunks choose it so that the logits of one take what the hidden states of all tokens take
    (Liger Kernel, `fused_linear_cross_entropy`).
    """
    whole, stack = logits_per_token(t), config.software.stack
    if config.loss_logits is not None:
        return min(whole, config.loss_logits * t.hidden)
    if not (config.chunked_loss or stack.chunks_loss):
        return whole
    return whole / stack.loss_chunks if stack.loss_chunks else min(whole, t.hidden)


def more_in_flight(layout: AnyLayout) -> Number:
    """Share by which interleaved stages raise the activations that the first stage holds: (p - 1) / (p v) (Korthikanti
    et al. 2022, arXiv 2205.05198).
    """
    share = (layout.pipeline - 1.0) / (layout.pipeline * layout.virtual_stages)
    return share * (layout.virtual_stages > 1)


def sequence_cache_bytes(config: InferenceConfig, tokens: float, tensor: Number = 1) -> Number:
    """Bytes of the KV cache of one sequence, for all layers, on one GPU of a tensor-parallel group."""
    return _with_copied_heads(cache_bytes, config, tokens, tensor)


def cache_bytes_of_step(config: InferenceConfig, tokens: float, tensor: Number = 1) -> Number:
    """Bytes of the KV cache of one sequence that a decoding step reads on one GPU of a tensor-parallel group."""
    return _with_copied_heads(cache_bytes_read, config, tokens, tensor)


def _with_copied_heads(
    count: Callable[[Transformer, float, Number, Number], Number],
    config: InferenceConfig,
    tokens: float,
    tensor: Number,
) -> Number:
    """Returns a count of the cache with as many key-value heads as the stack keeps."""
    t = config.model.transformer
    assert t is not None
    usual = count(t, tokens, config.formats.cache_bytes, tensor)
    if not config.software.stack_class.copies_kv_heads:
        return usual
    of_all_heads = count(
        replace(t, kv_heads=t.heads, global_kv_heads=t.heads), tokens, config.formats.cache_bytes, tensor
    )
    return np.where(tensor > t.kv_heads, of_all_heads, usual)


def sent_cache_bytes(config: InferenceConfig, layout: AnyLayout) -> Number:
    """Bytes of the cache of a prompt that each GPU sends to the GPU that writes the answer, without the shared part."""
    tokens = config.input_length - config.shared_prompt
    return sequence_cache_bytes(config, tokens, layout.tensor) / layout.pipeline


def _drafter_bytes(config: InferenceConfig) -> float:
    """Bytes of the weights of the draft model at 16 bits; the last stage of a pipeline holds all of them."""
    return 0.0 if config.any_load.drafter is None else config.any_load.drafter.parameters * DRAFTER_BYTES


def adapter_bytes(config: InferenceConfig) -> float:
    """Bytes of one LoRA adapter at 16 bits; 0 without any."""
    t, serving = config.model.transformer, config.serving
    return 0.0 if t is None or serving is None else adapter_parameters(t, serving.adapter_rank) * ADAPTER_BYTES


def _held_cache_bytes(config: InferenceConfig, layout: AnyLayout, tokens: float) -> Number:
    """Bytes of the cache of one sequence on one GPU of a replica, with the cache of its draft model."""
    of_model = sequence_cache_bytes(config, tokens, layout.tensor) / layout.pipeline
    drafter = config.any_load.drafter
    if drafter is None or drafter.transformer is None:
        return of_model
    return of_model + cache_bytes(drafter.transformer, tokens, config.formats.cache_bytes, layout.tensor)


class InferenceMemory(NamedTuple):
    """Bytes of inference on a GPU before calibration, in one layout or in each row of a table of layouts."""

    empty: dict[str, Number]
    """Bytes by part without requests: weights, the context, the shared cache, and activations of one forward pass."""
    request: dict[str, Number]
    """Bytes by part that each request adds; empty for networks without sequences."""

    def holding(self, requests: Number) -> dict[str, Number]:
        """Bytes by part while this number of requests runs."""
        return {name: amount + requests * self.request.get(name, 0.0) for name, amount in self.empty.items()}


def inference_memory(config: InferenceConfig, layout: AnyLayout) -> InferenceMemory:
    """Returns the bytes that a GPU holds in a layout."""
    model, t = config.model, config.model.transformer
    bits, stack = config.formats.weight_bits, config.software.stack
    weights = model.parameters * bits / 8 if config.mean_bits else stored_weight_bytes(model, bits)
    weights = weights + (model.other_parameters or 0.0) * bits / 8
    weights = (
        on_each_gpu(weights, layout, routed_share(model), 0, 0 if t is None else t.experts)
        + _drafter_bytes(config) / layout.tensor
    )
    weights = weights + config.any_load.adapters * adapter_bytes(config) / (layout.tensor * layout.pipeline)
    empty = {"weights": weights, "context": CONTEXT_BYTES}
    if t is None:
        empty["activations"] = _samples_of_a_pass(config) * held_values(model) * config.formats.activation_bytes
        return InferenceMemory(empty, {})

    def cached(tokens: float) -> Number:
        return _held_cache_bytes(config, layout, tokens)

    empty[CACHE] = cached(config.shared_prompt) if config.shared_prompt else 0.0
    values = 4 * t.hidden + 3 * t.ffn / layout.tensor
    empty["activations"] = _tokens_of_a_pass(config) * values * config.formats.activation_bytes
    if model.generates and stack.sampler_bytes:
        empty[SAMPLER] = stack.sampler_bytes * config.most_in_flight * t.vocabulary
    # A request keeps the cache of its own tokens and its own recurrent state, also where an attention window has moved
    # past the shared part of the prompt.
    request = {CACHE: cached(max(1.0, config.whole_length - config.shared_prompt))}
    if model.generates and stack.static_batches:
        values = VALUES_PER_TOKEN_OF_BATCH * t.hidden * config.input_length
        request[PROMPTS] = values * config.formats.activation_bytes
        empty[PROMPTS] = 0.0
    return InferenceMemory(empty, request)


def plannable_bytes(config: InferenceConfig, usable_bytes: Number) -> Number:
    """Returns the part of a GPU's usable bytes into which the stack of a job fits weights, activations and cache."""
    return (
        PLANNED_SHARE * usable_bytes if config.model.generates and config.software.stack.plans_memory else usable_bytes
    )


def _tokens_of_a_pass(config: InferenceConfig) -> float:
    """Tokens whose activations a GPU holds at once. Models that do not generate read whole samples."""
    usual = TOKENS_PER_PASS if config.software.stack_class.batches_continuously else 1.0
    if config.model.generates:
        return usual
    return max(usual, _samples_of_a_pass(config) * (config.mean_length or config.input_length or 1.0))


def _samples_of_a_pass(config: InferenceConfig) -> float:
    """Samples that a model which does not generate reads at once: one, or the batch that is asked for on stacks that
    pass over all of it.
    """
    return 1.0 if config.software.stack.chooses_passes else config.concurrency or 1.0


def inference_parts(config: InferenceConfig, layout: AnyLayout, requests: Number) -> dict[str, Number]:
    """Bytes per GPU by part while this number of requests runs."""
    return inference_memory(config, layout).holding(requests)


def _room_for_requests(plannable: Number, memory: InferenceMemory) -> Number:
    """Bytes of a GPU that weights and activations leave for requests."""
    return np.maximum(0.0, plannable - sum(memory.empty.values()))


def replicas_in_use(config: InferenceConfig, layout: AnyLayout) -> Number:
    """Copies of the model that have a request to process."""
    most = config.concurrency or config.burst
    return np.minimum(layout.data, max(1.0, most)) if most else layout.data


def requests_at_once(config: InferenceConfig, layout: AnyLayout, room: Number) -> Number:
    """Requests in flight on each replica: as many as are asked for, else as fit, and no more than a burst has."""
    replicas = replicas_in_use(config, layout)
    if config.concurrency:
        return config.concurrency / replicas
    return np.minimum(room, max(1.0, config.burst) / replicas) if config.burst else room


def conversations_held(config: InferenceConfig, requests: Number) -> Number:
    """Returns the whole conversations whose cache is enough for this number of running requests.

    At a random moment, the requests hold more than that with a probability of one in 44 (`SAFE_DEVIATIONS`).
    """
    mean, deviation = config.written_share
    safe = mean * requests + SAFE_DEVIATIONS * deviation * np.sqrt(requests)
    return np.minimum(max(1.0, mean) * requests, safe)


def requests_in(config: InferenceConfig, conversations: Number) -> Number:
    """Returns the most running requests for which the cache of this number of whole conversations is enough."""
    mean, deviation = config.written_share
    half = SAFE_DEVIATIONS * deviation / 2.0
    root = (np.sqrt(half**2 + mean * np.maximum(0.0, conversations)) - half) / mean
    return np.maximum(conversations / max(1.0, mean), root**2)


def requests_with_room(config: InferenceConfig, plannable: Number, memory: InferenceMemory) -> Number:
    """Returns the requests that run at once: with room in the cache of a replica, and as many as its stack takes.

    It is 0 where no whole conversation fits.
    """
    of_request = sum(memory.request.values())
    if config.software.stack.static_batches:  # the cache is not paged: it is reserved for the longest conversation
        of_request = of_request * config.longest_over_mean
    whole = _room_for_requests(plannable, memory) / of_request
    running = np.where(whole >= 1.0, np.maximum(1.0, np.floor(requests_in(config, whole))), 0.0)
    return np.minimum(config.most_in_flight, running)


def cache_tokens_that_fit(config: InferenceConfig, plannable: float, layout: Layout, memory: InferenceMemory) -> float:
    """Tokens whose keys and values fit on the GPUs of one replica, by the bytes per token of a whole conversation."""
    tokens = max(1.0, config.whole_length)
    bytes_each = _held_cache_bytes(config, layout, tokens) / tokens
    return float(_room_for_requests(plannable, memory) / bytes_each) if bytes_each else 0.0


def figures(parts: Mapping[str, Number]) -> dict[str, float]:
    """Returns the parts of a single layout as plain numbers."""
    return {name: float(amount) for name, amount in parts.items()}
