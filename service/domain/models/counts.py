"""Counts of a model: parameters, FLOPs and bytes, exact from its dimensions."""

import numpy as np

from service.domain.arrays import Number
from service.domain.models.model import Model, Transformer, kv_cache_bytes, ssm_state_bytes


def feed_forward_parameters(hidden: int, width: int, *, gated: bool) -> int:
    """2 matrices (GELU) or 3 (SwiGLU) of hidden x width."""
    return (3 if gated else 2) * hidden * width


def attention_parameters(t: Transformer) -> int:
    """Q and O with all heads, K and V with the key-value heads: hidden x head_size x (2a + 2k)."""
    return t.hidden * t.head_size * (2 * t.heads + 2 * t.kv_heads)


def embedding_parameters(t: Transformer) -> int:
    """The table of input embeddings, which is looked up and never multiplied."""
    return t.vocabulary * t.hidden


def multiplied_parameters(model: Model) -> float:
    """Active parameters that are matrices in a forward pass: all but an untied input embedding."""
    t = model.transformer
    if t is None or t.tied:
        return model.active_parameters
    return max(model.active_parameters - embedding_parameters(t), 0.3 * model.active_parameters)


def attention_flops_per_token(t: Transformer, sequence: float, *, causal: bool = True) -> float:
    """4 x s x a x d per layer (scores and values), halved where a causal kernel skips the upper triangle.

    A sliding window caps s. Korthikanti et al. 2022 (2205.05198) counts without the half.
    """
    reach = min(sequence, t.sliding_window) if t.sliding_window else sequence
    half = 0.5 if causal and t.decoder else 1.0
    return 4.0 * reach * t.heads * t.head_size * half * t.layers


def is_routed(model: Model) -> bool:
    """Whether tokens go to experts; hybrids may not say how many."""
    return model.family in ("moe", "hybrid_moe")


HYBRID_ATTENTION_SHARE = 0.12
"""Share of layers with attention in hybrids of attention and state-space layers (Nemotron-H: 4 of 52, 6 of 52)."""


def attention_share(model: Model) -> float:
    """Which share of the layers attends: as the dimensions tell, else what is usual in the family."""
    t = model.transformer
    if t is not None and t.hybrid:
        return t.attending_layers / t.layers
    return HYBRID_ATTENTION_SHARE if model.family.startswith("hybrid") else 1.0


HYBRID_EXPERT_SHARE = 0.44
"""Share of layers with experts in such hybrids (Nemotron 3 Nano: 23 of 52)."""


def expert_share(model: Model) -> float:
    """Which share of the layers routes to experts: as the dimensions tell, else what is usual in the family."""
    t = model.transformer
    if t is not None and t.hybrid:
        return t.moe_layers / t.layers
    return HYBRID_EXPERT_SHARE if model.family.startswith("hybrid") else 1.0


def forward_flops_per_token(model: Model, sequence: float, *, causal: bool = True) -> float:
    """2 FLOPs per multiplied parameter, and attention over the sequence."""
    t = model.transformer
    assert t is not None
    attention = attention_flops_per_token(t, sequence, causal=causal)
    return 2.0 * multiplied_parameters(model) + attention_share(model) * attention


def korthikanti_flops_per_iteration(t: Transformer, batch: int, sequence: int) -> float:
    """Model FLOPs of one training iteration: 72 B L s h^2 (1 + s/6h + V/12hL).

    Korthikanti et al. 2022 (2205.05198), for blocks with feed-forward width 4h and full attention heads.
    """
    h, layers, s = t.hidden, t.layers, sequence
    bracket = 1 + s / (6 * h) + t.vocabulary / (12 * h * layers)
    return 72.0 * batch * layers * s * h * h * bracket


def published_training_flops_per_sample(model: Model, sequence: float, *, passes: float = 3.0) -> float:
    """FLOPs of one training sequence as papers count them: attention over the whole square, not its causal half."""
    return passes * forward_flops_per_token(model, sequence, causal=False) * sequence


def cache_bytes(t: Transformer, tokens: float, bytes_per_value: float, tensor: Number = 1) -> Number:
    """What one GPU of a tensor cut keeps of one sequence: keys and values of its heads, and states of its channels.

    Heads of keys are copied where there are fewer than GPUs. Latent attention (DeepSeek) cannot be cut by heads.
    """
    keys = kv_cache_bytes(t, tokens, bytes_per_value)
    cut = 1.0 if t.mla_kv_rank else np.minimum(tensor, t.kv_heads)
    return keys / cut + ssm_state_bytes(t, bytes_per_value) / tensor


def experts_touched(t: Transformer, tokens: Number) -> Number:
    """Experts of a layer that a batch of tokens wakes: E (1 - (1 - k/E)^tokens), drawn evenly."""
    if not t.experts:
        return 0.0
    asleep = (1.0 - t.experts_per_token / t.experts) ** tokens
    return t.experts * (1.0 - asleep)


def parameters_per_expert(model: Model) -> float:
    """Of one expert in all layers: what is not active, shared among the experts that a token does not use."""
    t = model.transformer
    if t is None or t.experts <= t.experts_per_token:
        return 0.0
    return (model.parameters - model.active_parameters) / (t.experts - t.experts_per_token)


def parameters_touched(model: Model, tokens: Number) -> Number:
    """Parameters read from memory in one forward pass over so many tokens."""
    t = model.transformer
    per_expert = parameters_per_expert(model)
    if t is None or not per_expert:
        return multiplied_parameters(model)
    always = multiplied_parameters(model) - per_expert * t.experts_per_token
    return max(0.0, always) + per_expert * experts_touched(t, tokens)


def routed_share(model: Model) -> float:
    """Share of the parameters that are in routed experts, and can be spread over GPUs by expert.

    Where nobody says how many experts there are, the share that a token leaves idle: all but a few of them.
    """
    t, per_expert = model.transformer, parameters_per_expert(model)
    if t is not None and per_expert:
        return min(1.0, per_expert * t.experts / model.parameters)
    return 1.0 - model.active_parameters / model.parameters if is_routed(model) else 0.0
