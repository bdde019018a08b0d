"""Parameters, FLOPs and cache of a model, counted from its dimensions."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from service.domain.arrays import Number
from service.domain.models.model import Model, ScoringTransformer, Transformer

PRODUCTS_OF_A_LAYER = 4
"""Matrix products of a transformer layer: into attention (three at once), out of it, and into and out of the FFN."""


def values_of_a_layer(width: float, ffn: float) -> float:
    """Returns the values that a transformer layer writes per token: queries, keys, values, the results of attention and
    of the FFN, and those inside the FFN.
    """
    return 5 * width + ffn


def table_parameters(model: Model) -> float:
    """Returns the parameters of embedding tables, of which a sample reads a few rows; 0 with known dimensions."""
    return 0.0 if model.transformer or is_routed(model) else model.parameters - model.active_parameters


# Parameters


@dataclass(frozen=True, slots=True)
class ParameterParts:
    """Parameters of a transformer by part, without biases, which are about 0.1 % of them."""

    embedding: int
    """Embeddings of tokens, and of positions where these are learned."""
    attention: int
    ffn: int
    """FFNs of the layers without routed experts."""
    experts: int
    """Routed experts, and the projections to a narrower width around them."""
    shared_experts: int
    router: int
    """Projections that choose the experts of a token."""
    state_space: int
    norms: int
    """Scales of the normalisations."""
    head: int
    """The output projection; 0 if it is the embedding."""

    @property
    def total(self) -> int:
        """Returns the parameters of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))


def parameter_parts(t: Transformer, routed_experts: int | None = None) -> ParameterParts:
    """Returns the parameters of each part of a transformer, with all routed experts or with this many per layer."""
    table = t.vocabulary * t.hidden
    norms_per_layer = 1 if t.hybrid else 2
    experts = t.experts if routed_experts is None else routed_experts
    expert = _ffn_parameters(t, t.expert_latent or t.hidden, t.expert_ffn)
    return ParameterParts(
        embedding=table + t.learned_positions * t.hidden,
        attention=_attention_parameters(t) + _indexer_parameters(t),
        ffn=(t.ffn_layers - t.moe_layers) * _ffn_parameters(t, t.hidden, t.ffn),
        experts=t.moe_layers * (experts * expert + 2 * t.hidden * t.expert_latent),
        shared_experts=t.moe_layers * t.shared_experts * _ffn_parameters(t, t.hidden, t.expert_ffn),
        router=t.moe_layers * t.hidden * t.experts,
        state_space=t.ssm_layers * _ssm_parameters(t),
        norms=(norms_per_layer * t.layers + t.cross_layers + 1) * t.hidden,
        head=0 if t.tied or not t.has_logits else table,
    )


def scoring(model: Model) -> Model:
    """Returns a model with a score for each sequence in place of the output projection, as reward models have it."""
    if model.transformer is None:
        return model
    head = parameter_parts(model.transformer).head
    return replace(
        model,
        transformer=ScoringTransformer.of(model.transformer),
        parameters=model.parameters - head,
        active_parameters=model.active_parameters - head,
    )


def parameter_count(t: Transformer) -> int:
    """Returns the number of parameters of a transformer."""
    return parameter_parts(t).total


def active_parameter_count(t: Transformer) -> int:
    """Returns the parameters that a token uses: all but those of the experts that it is not routed to."""
    return parameter_parts(t, t.experts_per_token).total


def _attention_parameters(t: Transformer) -> int:
    """Returns the parameters of all attention layers, of which those without a window may have other heads."""
    kv_heads, head_size = _global_heads(t)
    everywhere = t.attending_layers - t.windowed_layers + t.cross_layers
    return t.windowed_layers * _parameters_of_layer(t, t.kv_heads, t.head_size) + everywhere * _parameters_of_layer(
        t, kv_heads, head_size
    )


def _global_heads(t: Transformer) -> tuple[int, int]:
    """Returns the key-value heads and the head size of layers without a window."""
    return t.global_kv_heads or t.kv_heads, t.global_head_size or t.head_size


def _parameters_of_layer(t: Transformer, kv_heads: int, head_size: int) -> int:
    """Returns the parameters of one attention layer: hidden x head_size x (2 heads + 2 kv_heads), or those of MLA; and
    of the gate on its result, if it has one.

    MLA (DeepSeek-V2, 2405.04434) projects queries from the hidden size, directly or through mla_query_rank. It projects
    keys and values down to mla_kv_rank and the rotary part, and up again to head_size + mla_value_size per head.
    """
    gate = t.gated_attention * t.hidden * t.heads * (t.mla_value_size or head_size)
    if not t.mla_kv_rank:
        return gate + t.hidden * head_size * 2 * (t.heads + kv_heads)
    queries = t.heads * t.query_size
    query = t.mla_query_rank * (t.hidden + queries) if t.mla_query_rank else t.hidden * queries
    down = t.hidden * (t.mla_kv_rank + t.mla_rope_size)
    up = t.mla_kv_rank * t.heads * (t.head_size + t.mla_value_size)
    return gate + query + down + up + t.heads * t.mla_value_size * t.hidden


def _indexer_parameters(t: Transformer) -> int:
    """Returns the parameters of all indexers, which select the tokens to attend to (DeepSeek-V3.2, 2512.02556).

    An indexer projects queries like the attention, keys of one head with a layer norm, and a weight per head.
    """
    queries = (t.mla_query_rank or t.hidden) * t.indexer_heads * t.indexer_head_size
    return t.indexer_layers * (queries + t.hidden * (t.indexer_head_size + t.indexer_heads) + 2 * t.indexer_head_size)


def _ffn_parameters(t: Transformer, outer: int, inner: int) -> int:
    """Returns the parameters of the two matrices of an FFN, or of three if it is gated."""
    return (3 if t.gated else 2) * outer * inner


def adapter_parameters(t: Transformer, rank: int) -> float:
    """Returns the parameters of a LoRA adapter of all matrices of attentions and FFNs, without those of routed experts.

    For a matrix of inputs x outputs, it has two: inputs x rank and rank x outputs (Hu et al. 2021, 2106.09685).
    """
    heads, values = t.heads * (t.query_size or t.head_size), t.heads * (t.mla_value_size or t.head_size)
    projections = [(t.hidden, heads), (t.hidden, t.kv_heads * t.head_size), (t.hidden, t.kv_heads * t.head_size)]
    if t.mla_kv_rank:
        up = t.heads * (t.head_size + t.mla_value_size)
        projections = [(t.hidden, heads), (t.hidden, t.mla_kv_rank + t.mla_rope_size), (t.mla_kv_rank, up)]
    sides = sum(map(sum, projections)) + values + t.hidden
    dense = (t.ffn_layers - t.moe_layers) * (3 if t.gated else 2) * (t.hidden + t.ffn)
    return float(rank * ((t.attending_layers + t.cross_layers) * sides + dense))


def _ssm_parameters(t: Transformer) -> int:
    """Returns the parameters of a state-space layer: as stated, or those of Mamba-2.

    The latter are the input projection (to gate, values, B, C, and a step per head), a convolution, the output
    projection, and three numbers per head.
    """
    if t.ssm_parameters:
        return t.ssm_parameters
    mixed = t.ssm_inner + 2 * t.ssm_groups * t.ssm_state
    into = t.hidden * (t.ssm_inner + mixed + t.ssm_heads)
    return into + (t.ssm_convolution + 1) * mixed + t.ssm_inner * (t.hidden + 1) + 3 * t.ssm_heads


# Parameters of a model: published numbers have precedence over those that follow from dimensions


LEAST_MULTIPLIED = 0.3
"""Least share of the active parameters that are multiplied, for dimensions that do not match the published number."""


@lru_cache(256)  # a search for layouts asks for one model thousands of times
def multiplied_parameters(model: Model) -> float:
    """Returns the active parameters in matrix products: without embeddings and norms, with the output projection.

    It is the published number of active parameters minus those that the dimensions put outside of matrix products, and
    at least `LEAST_MULTIPLIED` of it.
    """
    t = model.transformer
    if t is None:
        return model.active_parameters
    not_multiplied = active_parameter_count(t) - _matrix_parameters(t)
    return max(model.active_parameters - not_multiplied, LEAST_MULTIPLIED * model.active_parameters)


def read_share(model: Model) -> float:
    """Returns the share of `multiplied_parameters` that multiplies a token of a prompt: all of them without an encoder.

    With an encoder, they are its layers, and the keys and values that the decoder computes once from its result.
    """
    t = model.transformer
    if t is None or not t.encoder_layers:
        return 1.0
    layer = _parameters_of_layer(t, t.kv_heads, t.head_size) + _ffn_parameters(t, t.hidden, t.ffn)
    crossed = 2 * t.hidden * t.kv_heads * t.head_size
    return (t.encoder_layers * layer + t.cross_layers * crossed) / _matrix_parameters(t)


def written_share(model: Model) -> float:
    """Returns the share of `multiplied_parameters` that multiplies a token of an answer: with an encoder those of the
    decoder, else all of them.
    """
    t = model.transformer
    return 1.0 if t is None or not t.encoder_layers else 1.0 - read_share(model)


def reading_part(t: Transformer) -> Transformer:
    """Returns the layers that read a prompt: the encoder, or all layers of a transformer without one."""
    return replace(t, layers=t.encoder_layers, encoder_layers=0, decoder=False) if t.encoder_layers else t


def is_routed(model: Model) -> bool:
    """Returns whether tokens are routed to experts, even if the number of experts is unknown."""
    return model.family in ("moe", "hybrid_moe")


def routed_layers(model: Model) -> int:
    """Returns how many layers route tokens to experts; all layers if a routed model states no experts."""
    t = model.transformer
    if t is None:
        return 0
    return t.moe_layers if t.experts else t.layers * is_routed(model)


def parameters_touched(model: Model, tokens: Number) -> tuple[float, Number]:
    """Returns the parameters that a forward pass over some tokens reads: first those that every token uses, then those
    of the routed experts that at least one of the tokens is expected to use.
    """
    t, per_expert = model.transformer, _parameters_per_expert(model)
    if t is None or not per_expert:
        return multiplied_parameters(model), 0.0
    return multiplied_parameters(model) - routed_parameters(model), per_expert * experts_touched(t, tokens)


def routed_parameters(model: Model) -> float:
    """Returns the parameters of the routed experts that a token uses; 0 where experts are unknown."""
    t = model.transformer
    of_experts = _parameters_per_expert(model) * t.experts_per_token if t is not None else 0.0
    return min(of_experts, multiplied_parameters(model))


def experts_touched(t: Transformer, tokens: Number) -> Number:
    """Returns the expected number of experts of a layer that a batch of tokens uses: E (1 - (1 - k/E)^tokens).

    Each token uses k of E experts, which are drawn uniformly.
    """
    if not t.experts:
        return 0.0
    untouched = (1.0 - t.experts_per_token / t.experts) ** tokens
    return t.experts * (1.0 - untouched)


def routed_share(model: Model) -> float:
    """Returns the share of the parameters that is in routed experts and can be spread over GPUs by expert.

    If the number of experts is unknown, it is the share that a token does not use, which is slightly less.
    """
    t, per_expert = model.transformer, _parameters_per_expert(model)
    if t is not None and per_expert:
        return min(1.0, per_expert * t.experts / model.parameters)
    return 1.0 - model.active_parameters / model.parameters if is_routed(model) else 0.0


def _parameters_per_expert(model: Model) -> float:
    """Returns the parameters of one expert in all layers: parameters / experts, of those that a token does not use."""
    t = model.transformer
    if t is None or t.experts <= t.experts_per_token:
        return 0.0
    return (model.parameters - model.active_parameters) / (t.experts - t.experts_per_token)


def weight_matrices(t: Transformer, *, apart: bool) -> int:
    """Returns the weight matrices of all layers, as their software stores them: those of the experts `apart`, or those
    of all experts of a layer in one.
    """
    attention = 5 if t.mla_kv_rank else 4
    ffn = 3 if t.gated else 2
    experts = (t.experts if apart else 1) + t.shared_experts
    return (
        attention * (t.attending_layers + t.cross_layers)
        + 2 * t.ssm_layers
        + ffn * (t.ffn_layers - t.moe_layers + experts * t.moe_layers)
    )


# FLOPs: 2 for a multiply-accumulate


NEWTON_SCHULZ_STEPS = 5
"""Iterations with which Muon makes an update orthogonal (Jordan et al. 2024, Muon; Liu et al., 2502.16982)."""


def orthogonalisation_flops(t: Transformer) -> tuple[float, float]:
    """Returns the FLOPs in which Muon makes the updates of all matrices orthogonal: of routed experts, and of the rest.

    For a matrix of m x n values, m at most n, an iteration multiplies it with its transpose, squares the m x m result,
    and multiplies both: 4 m^2 n + 2 m^3 FLOPs. Matrices of attention and state spaces count as square, which is more
    than narrow ones of keys and values take. Embeddings and the output projection have another optimizer.
    """

    def flops(parameters: float, *sides: int) -> float:
        short, long = sorted(sides)
        return NEWTON_SCHULZ_STEPS * parameters * (4.0 * short + 2.0 * short**2 / long)

    parts = parameter_parts(t)
    square = flops(parts.attention + parts.state_space, t.hidden, t.hidden)
    ffn = flops(parts.ffn, t.hidden, t.ffn) + flops(parts.shared_experts, t.hidden, t.expert_ffn)
    return flops(parts.experts, t.expert_latent or t.hidden, t.expert_ffn), square + ffn


@dataclass(frozen=True, slots=True)
class ForwardFlops:
    """FLOPs of one token in a forward pass; in an encoder-decoder, of one token on each side."""

    matrix: float
    """Products with weights: 2 for each weight that is used, for any context."""
    attention: float
    """Products of queries with keys, and of attention weights with values; scores of indexers; the scan of state
    spaces."""

    @property
    def total(self) -> float:
        """Returns the FLOPs of matrix products and attention."""
        return self.matrix + self.attention


def forward_flops_per_token(t: Transformer, attended_tokens: float) -> ForwardFlops:
    """Returns the FLOPs of a token that attends to `attended_tokens`, or to the window in windowed layers."""
    return ForwardFlops(2.0 * _matrix_parameters(t), attention_flops_per_token(t, attended_tokens))


def attention_flops_per_token(t: Transformer, attended_tokens: float) -> float:
    """Returns the FLOPs of attention for a token that attends to `attended_tokens`, at most to the window of a layer.

    Papers use this count with the whole sequence attended to (Korthikanti et al. 2022, 2205.05198).
    """
    return _attention_flops(t, lambda most: min(attended_tokens, most or attended_tokens), attended_tokens)


def mean_attention_flops_per_token(t: Transformer, sequence_tokens: float) -> float:
    """Returns the mean FLOPs of attention per token of a sequence, with kernels that skip masked tokens."""
    causal = 1.0 - t.encoder_layers / t.layers if t.decoder else 0.0
    return _attention_flops(t, lambda most: mean_attended(sequence_tokens, most, causal=causal), sequence_tokens)


def mean_attended(sequence_tokens: float, window: float = 0, *, causal: float = 1.0) -> float:
    """Returns the number of tokens that a token attends to, averaged over the sequence and the layers.

    In a sequence of s tokens, it is s / 2 in a causal layer, and w - w² / 2s with a window of w < s tokens. In other
    layers it is s, or w. `causal` is the share of causal layers.
    """
    reach = min(window, sequence_tokens) if window else sequence_tokens
    hidden = reach * reach / (2 * sequence_tokens) if sequence_tokens else 0.0
    return reach - causal * hidden


def published_training_flops_per_sample(
    model: Model, sequence: float, *, passes: float = 3.0, recomputed: float = 0.0, traversals: float = 3.0
) -> float:
    """Returns the FLOPs of training on one sequence as papers count them, with attention to the whole sequence.

    `passes` is the work of products with weights as a multiple of the forward pass, `traversals` that of attention, and
    `recomputed` the forward passes that recomputation adds. Published rates of LoRA count 4 FLOPs per parameter and
    token (NeMo, Megatron Bridge).
    """
    assert model.transformer is not None
    attention = attention_flops_per_token(model.transformer, sequence)
    return sequence * (
        (passes + recomputed) * 2.0 * multiplied_parameters(model) + (traversals + recomputed) * attention
    )


def training_flops_per_sample(model: Model, tokens: float, passes: float, traversals: float = 3.0) -> float | None:
    """Returns the FLOPs of training on one sample without recomputation; None if the FLOPs of the network are unknown.

    `passes` is the work of products with weights as a multiple of the forward pass: 3 if all weights are trained.
    `traversals` is the same factor for attention, which has no weights and so costs the same whichever weights are
    trained. Causal kernels skip masked tokens.
    """
    if model.transformer is None:
        return None if model.forward_flops_per_sample is None else passes * model.forward_flops_per_sample
    attention = mean_attention_flops_per_token(model.transformer, tokens)
    return tokens * (passes * 2.0 * multiplied_parameters(model) + traversals * attention)


def logits_per_token(t: Transformer) -> int:
    """Returns the number of logits per token: the vocabulary of a decoder.

    It is 0 for an encoder, which has no output projection, or applies it to few tokens, and for a model of scores.
    """
    return t.vocabulary if t.decoder and t.has_logits else 0


def _matrix_parameters(t: Transformer) -> int:
    """Returns the active weights in matrix products: without embeddings and norms, with the output projection.

    A tied output projection counts too, because the embedding is then also multiplied.
    """
    parts = parameter_parts(t, t.experts_per_token)
    return parts.total - parts.embedding - parts.norms - parts.head + logits_per_token(t) * t.hidden


def _attention_flops(t: Transformer, attended: Callable[[float], float], crossed: float) -> float:
    """Returns the FLOPs of attention, indexers and state spaces for a token.

    `attended` is the number of tokens that a layer attends to, by its limit (0: without a limit), and `crossed` that
    of the tokens of the encoder. Attention takes 2 x heads x (query_size + value_size) for each of them. The scan takes
    5 per value of a state: 1 to decay it, 2 to add the input, and 2 to read it out.

    Kernels with an indexer either attend to the selected tokens, whose latent keys and values all heads share (MLA),
    or compute attention to all tokens and mask the others. Of the two, the one with fewer FLOPs counts (DeepSeek-V3.2,
    2512.02556, masks for short prompts).
    """
    windowed = t.windowed_layers * attended(t.sliding_window)
    everywhere = (t.attending_layers - t.windowed_layers) * attended(0.0) + t.cross_layers * crossed
    scan = 5.0 * t.ssm_layers * t.ssm_inner * t.ssm_state
    of_pair = 2 * t.global_head_size or t.query_size + t.value_size
    flops = 2.0 * t.heads * ((t.query_size + t.value_size) * windowed + of_pair * everywhere)
    if not t.indexed_tokens:
        return flops + scan
    size = 2 * t.mla_kv_rank + t.mla_rope_size if t.mla_kv_rank else 2 * t.head_size
    selected = 2.0 * t.heads * size * t.attending_layers * attended(t.indexed_tokens)
    return min(flops, selected) + indexer_flops(t, attended(0.0)) + scan


def indexer_flops(t: Transformer, tokens: float) -> float:
    """Returns the FLOPs with which all indexers score this number of tokens for one token: 2 x heads x head size."""
    return 2.0 * t.indexer_layers * t.indexer_heads * t.indexer_head_size * tokens


# The cache of a sequence


INDEXED_KEY_BYTES = 1.0 + 4 / 128
"""Bytes per value of an indexer's keys: fp8, and a scale of 4 bytes for 128 values, whatever the format of the cache
(inference code of DeepSeek-V3.2-Exp; vLLM)."""


def kv_bytes_per_token(t: Transformer, bytes_per_value: float) -> float:
    """Returns the bytes of the cached keys and values of one token in all layers, without sliding windows.

    They are 2 x layers x kv_heads x head_size x bytes_per_value, or with MLA
    layers x (mla_kv_rank + mla_rope_size) x bytes_per_value; and the keys of indexers.
    """
    windowed = min(t.windowed_layers, t.caching_layers)
    values = windowed * _kv_values_per_layer(t) + (t.caching_layers - windowed) * _global_values_per_layer(t)
    return values * bytes_per_value + _indexed_key_bytes(t)


def kv_cache_bytes(t: Transformer, tokens: float, bytes_per_value: Number, tensor: Number = 1) -> Number:
    """Returns the bytes of the cached keys and values of one sequence on one GPU of a tensor-parallel group.

    Windowed layers keep at most the window. Key-value heads are divided over the GPUs as whole heads, and copied if
    there are fewer heads than GPUs. The cache of MLA and the keys of indexers have no heads, and are copied.
    """
    windowed = min(t.windowed_layers, t.caching_layers)
    near = windowed * min(tokens, t.sliding_window) * _kv_values_per_layer(t)
    far = (t.caching_layers - windowed) * tokens * _global_values_per_layer(t)
    near_heads, (far_heads, _) = t.kv_heads, _global_heads(t)
    values = near / _cache_shares(t, near_heads, tensor) + far / _cache_shares(t, far_heads, tensor)
    return values * bytes_per_value + tokens * _indexed_key_bytes(t)


def _indexed_key_bytes(t: Transformer) -> float:
    return t.indexer_layers * t.indexer_head_size * INDEXED_KEY_BYTES


def ssm_state_bytes(t: Transformer, bytes_per_value: Number) -> Number:
    """Returns the bytes that state spaces keep for any sequence: their states, and the last inputs of convolutions."""
    mixed = t.ssm_inner + 2 * t.ssm_groups * t.ssm_state
    return t.ssm_layers * (t.ssm_inner * t.ssm_state + t.ssm_convolution * mixed) * bytes_per_value


def cache_bytes(t: Transformer, tokens: float, bytes_per_value: Number, tensor: Number = 1) -> Number:
    """Returns the bytes of cache and states of one sequence on one GPU of a tensor-parallel group, which divides states
    by channel.
    """
    return kv_cache_bytes(t, tokens, bytes_per_value, tensor) + ssm_state_bytes(t, bytes_per_value) / tensor


def cache_bytes_read(t: Transformer, tokens: float, bytes_per_value: Number, tensor: Number = 1) -> Number:
    """Returns the bytes of `cache_bytes` that a decoding step reads: all of them, or those of the selected tokens and
    the keys by which indexers select them.
    """
    whole = cache_bytes(t, tokens, bytes_per_value, tensor)
    if not t.indexed_tokens or tokens <= t.indexed_tokens:
        return whole
    unread = kv_cache_bytes(t, tokens, bytes_per_value, tensor)
    unread = unread - kv_cache_bytes(t, float(t.indexed_tokens), bytes_per_value, tensor)
    return whole - unread + (tokens - t.indexed_tokens) * _indexed_key_bytes(t)


def _cache_shares(t: Transformer, kv_heads: int, tensor: Number) -> Number:
    """Returns in how many equal parts the heads are divided; if they do not divide evenly, the largest part counts."""
    heads = max(1, kv_heads)
    return 1.0 if t.mla_kv_rank else heads / np.ceil(heads / tensor)


def _global_values_per_layer(t: Transformer) -> int:
    if t.mla_kv_rank:
        return _kv_values_per_layer(t)
    kv_heads, head_size = _global_heads(t)
    return 2 * kv_heads * head_size


def _kv_values_per_layer(t: Transformer) -> int:
    if t.mla_kv_rank:
        return t.mla_kv_rank + t.mla_rope_size
    return 2 * t.kv_heads * t.head_size
