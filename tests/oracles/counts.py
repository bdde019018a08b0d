"""Parameters, FLOPs and cache of a transformer, counted layer by layer, head by head and token by token."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.domain.models.model import Transformer


@dataclass(frozen=True)
class Layer:
    """The parts of one layer."""

    attends: bool = False
    windowed: bool = False
    causal: bool = False
    crosses: bool = False
    dense: bool = False
    routes: bool = False
    scans: bool = False
    indexes: bool = False


def layers_of(t: Transformer) -> list[Layer]:
    if t.ssm_layers:
        return list(hybrid_layers(t))
    layers = []
    for index in range(t.layers):
        encodes = index < t.encoder_layers
        layers.append(
            Layer(
                attends=True,
                windowed=bool(t.sliding_window) and index >= t.global_layers,
                causal=t.decoder and not encodes,
                crosses=bool(t.encoder_layers) and not encodes,
                dense=not t.experts or index < t.dense_layers,
                routes=bool(t.experts) and index >= t.dense_layers,
                indexes=index < t.indexer_layers,
            )
        )
    return layers


def hybrid_layers(t: Transformer) -> Iterator[Layer]:
    for index in range(t.attention_layers):
        yield Layer(
            attends=True,
            windowed=bool(t.sliding_window) and index >= t.global_layers,
            causal=t.decoder,
            indexes=index < t.indexer_layers,
        )
    for _ in range(t.ssm_layers):
        yield Layer(scans=True)
    for index in range(t.layers - t.attention_layers - t.ssm_layers):
        dense = not t.experts or index < t.dense_layers
        yield Layer(dense=dense, routes=not dense)


# Weights: shapes of the matrices that a checkpoint holds


def ffn_shapes(t: Transformer, outer: int, inner: int) -> list[tuple[int, int]]:
    return [(outer, inner), (inner, outer), *([(outer, inner)] if t.gated else [])]


def heads_of(t: Transformer, layer: Layer) -> tuple[int, int]:
    """Key-value heads and head size of a layer, which may differ in layers without a window."""
    if layer.windowed:
        return t.kv_heads, t.head_size
    return t.global_kv_heads or t.kv_heads, t.global_head_size or t.head_size


def attention_shapes(t: Transformer, layer: Layer) -> list[tuple[int, int]]:
    shapes = []
    kv_heads, head_size = heads_of(t, layer)
    if t.gated_attention:
        shapes += [(t.hidden, t.mla_value_size or head_size)] * t.heads
    if not t.mla_kv_rank:
        for _ in range(t.heads):
            shapes += [(t.hidden, head_size), (head_size, t.hidden)]  # queries, output
        for _ in range(kv_heads):
            shapes += [(t.hidden, head_size), (t.hidden, head_size)]  # keys, values
        return shapes
    source = t.mla_query_rank or t.hidden
    if t.mla_query_rank:
        shapes.append((t.hidden, t.mla_query_rank))
    shapes.append((t.hidden, t.mla_kv_rank + t.mla_rope_size))
    for _ in range(t.heads):
        shapes.append((source, t.head_size + t.mla_rope_size))
        shapes.append((t.mla_kv_rank, t.head_size))
        shapes.append((t.mla_kv_rank, t.mla_value_size))
        shapes.append((t.mla_value_size, t.hidden))
    return shapes


def indexer_shapes(t: Transformer) -> list[tuple[int, int]]:
    source = t.mla_query_rank or t.hidden
    shapes = [(t.hidden, t.indexer_head_size), (2, t.indexer_head_size)]  # the key and its norm
    for _ in range(t.indexer_heads):
        shapes += [(source, t.indexer_head_size), (t.hidden, 1)]
    return shapes


def state_shapes(t: Transformer) -> list[tuple[int, int]]:
    if t.ssm_parameters:
        return [(t.ssm_parameters, 1)]
    inner, state = t.ssm_heads * t.ssm_head_size, t.ssm_groups * t.ssm_state
    convolved = inner + 2 * state
    shapes = [(t.hidden, inner), (t.hidden, inner), (t.hidden, state), (t.hidden, state), (t.hidden, t.ssm_heads)]
    return [*shapes, (t.ssm_convolution, convolved), (1, convolved), (inner, t.hidden), (1, inner), (3, t.ssm_heads)]


def layer_weights(t: Transformer, layer: Layer, experts: int) -> int:
    """Weights of a layer without its norms, of which `experts` routed experts count."""
    shapes: list[tuple[int, int]] = []
    for _ in range(layer.attends + layer.crosses):
        shapes += attention_shapes(t, layer)
    if layer.indexes:
        shapes += indexer_shapes(t)
    if layer.dense:
        shapes += ffn_shapes(t, t.hidden, t.ffn)
    if layer.routes:
        shapes.append((t.hidden, t.experts))
        for _ in range(experts):
            shapes += ffn_shapes(t, t.expert_latent or t.hidden, t.expert_ffn)
        for _ in range(t.shared_experts):
            shapes += ffn_shapes(t, t.hidden, t.expert_ffn)
        if t.expert_latent:
            shapes += [(t.hidden, t.expert_latent), (t.expert_latent, t.hidden)]
    if layer.scans:
        shapes += state_shapes(t)
    return sum(rows * columns for rows, columns in shapes)


def norms(t: Transformer) -> int:
    """A norm before each part of a layer, and one at the end."""
    parts = sum((1 if t.ssm_layers else 2) + layer.crosses for layer in layers_of(t))
    return (parts + 1) * t.hidden


def parameters(t: Transformer, experts: int) -> int:
    """All weights, of which `experts` routed experts in each layer count."""
    tables = (t.vocabulary + t.learned_positions + (0 if t.tied else t.vocabulary)) * t.hidden
    return tables + norms(t) + sum(layer_weights(t, layer, experts) for layer in layers_of(t))


def multiplied(t: Transformer) -> int:
    """Weights that a token is multiplied by."""
    head = t.vocabulary * t.hidden if t.decoder else 0
    return head + sum(layer_weights(t, layer, t.experts_per_token) for layer in layers_of(t))


# Attention and cache: every pair of tokens


def attention_flops(t: Transformer, sequence: int) -> float:
    """FLOPs of attention, indexers and state spaces over a whole sequence; of the token itself a causal kernel computes
    half. Attention to selected tokens is computed for these alone, or for all of them with a mask.
    """
    if not t.indexed_tokens:
        return pair_flops(t, sequence)
    shared = t.mla_kv_rank > 0
    # Of each selected token, all heads read the latent and rotary values, and weigh the latent ones.
    absorbed = 2 * t.mla_kv_rank + t.mla_rope_size if shared else 2 * t.head_size
    selected = scores = 0.0
    for layer in layers_of(t):
        for position in range(sequence):
            before = position + 0.5 if layer.causal else sequence
            if layer.attends:
                selected += t.heads * 2 * absorbed * min(before, t.indexed_tokens)
            if layer.indexes:
                scores += t.indexer_heads * 2 * before * t.indexer_head_size
    scan = 5.0 * t.ssm_layers * t.ssm_heads * t.ssm_head_size * t.ssm_state * sequence
    return min(pair_flops(t, sequence), selected + scan) + scores


def pair_flops(t: Transformer, sequence: int) -> float:
    """FLOPs of attention to all tokens, and of state spaces."""
    total = 0.0
    for layer in layers_of(t):
        for position in range(sequence):
            attended = 0.0
            if layer.attends:
                attended += min(
                    position + 0.5 if layer.causal else sequence, t.sliding_window if layer.windowed else sequence
                )
            if layer.crosses:
                attended += sequence
            for _ in range(t.heads):
                _, head_size = heads_of(t, layer)
                total += 2 * attended * (head_size + t.mla_rope_size)  # queries by keys
                total += 2 * attended * (t.mla_value_size if t.mla_kv_rank else head_size)  # weights by values
            if layer.scans:
                total += 5.0 * t.ssm_heads * t.ssm_head_size * t.ssm_state
    return total


def cached_values(t: Transformer, tokens: int) -> int:
    """Values that generation keeps of the tokens of one sequence, without the states of state spaces."""
    total = 0
    for layer in layers_of(t):
        if not layer.attends or not layer.causal:
            continue
        for token in range(tokens):
            if layer.windowed and token < tokens - t.sliding_window:
                continue
            if t.mla_kv_rank:
                total += t.mla_kv_rank + t.mla_rope_size
                continue
            kv_heads, head_size = heads_of(t, layer)
            for _ in range(kv_heads):
                total += 2 * head_size
    return total
