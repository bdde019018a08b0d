"""Dimensions of networks with state spaces or other recurrences, alone or between layers with attention."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import Config, dimensions, flag, layer_types, number, section
from service.domain.models.model import Transformer
from service.domain.models.special_configs import latent
from service.domain.models.usual_config import expert_sizes, usual


class State(NamedTuple):
    """The state of a layer, by the names of the dimensions of `Transformer` without `ssm_`."""

    heads: int
    head_size: int
    state: int
    groups: int
    convolution: int = 4
    parameters: int = 0

    def of(self, layers: int) -> dict[str, Any]:
        """Returns the dimensions of this number of layers with such a state."""
        return {"ssm_layers": layers} | {f"ssm_{name}": size for name, size in self._asdict().items()}

    @staticmethod
    def read(config: Config, keys: tuple[str, str, str, str], convolution: str) -> "State":
        """Returns the state whose heads, head size, size, groups and convolution are under these keys."""
        heads, head_size, size, groups = dimensions(config, *keys)
        return State(heads, head_size, size, groups, number(config, convolution) or 4)


# Networks without attention


def _without_attention(config: Config, state: State, ffn: int = 0) -> Transformer:
    """Returns blocks of a state space, and of an FFN that is not gated if it has a width."""
    blocks, hidden, vocabulary = dimensions(config, "layers", "hidden", "vocabulary")
    return Transformer(
        layers=blocks * (2 if ffn else 1),
        hidden=hidden,
        heads=0,
        kv_heads=0,
        head_size=0,
        ffn=ffn,
        gated=False,
        vocabulary=vocabulary,
        tied=flag(config, "tie_word_embeddings", default=False),
        **state.of(blocks),
    )


def _mamba_state(hidden: int, inner: int, size: int, rank: int, convolution: int) -> State:
    """Returns the state of a Mamba layer (Gu and Dao 2023, 2312.00752), whose channels are heads of one value.

    Its projections lead into values and gate, from values to B, C and the step by its rank, and out again.
    """
    projections = 3 * hidden * inner + inner * (2 * rank + 2 * size)
    return State(inner, 1, size, 1, convolution, projections + inner * (convolution + size + 3))


def _mamba(config: Config) -> Transformer:
    """Reads Mamba, with the defaults of its class."""
    (hidden,) = dimensions(config, "hidden")
    config = {"tie_word_embeddings": True, **config}
    # The class computes the inner width; few files state it.
    inner = number(config, "intermediate_size") or hidden * (number(config, "expand") or 2)
    rank = -(-hidden // 16) if config.get("time_step_rank", "auto") == "auto" else number(config, "time_step_rank")
    size, convolution = number(config, "state_size") or 16, number(config, "conv_kernel") or 4
    return _without_attention(config, _mamba_state(hidden, inner, size, rank or 0, convolution))


def _mamba_2(config: Config) -> Transformer:
    """Reads Mamba-2."""
    return _without_attention(
        config, State.read(config, ("num_heads", "head_dim", "state_size", "n_groups"), "conv_kernel")
    )


def _rwkv(config: Config) -> Transformer:
    """Reads RWKV-4 (Peng et al. 2023, 2305.13048): a state of three values per channel, and a gate on the FFN.

    The token before counts as a convolution of two tokens.
    """
    (hidden,) = dimensions(config, "hidden")
    inner, ffn = number(config, "attention_hidden_size") or hidden, number(config, "intermediate_size") or 4 * hidden
    parameters = 4 * hidden * inner + 2 * inner + hidden * (hidden + 5)
    return _without_attention(config, State(inner, 1, 3, 1, 2, parameters), ffn)


RWKV_7_RANKS = ("decay_low_rank_dim", "a_low_rank_dim", "v_low_rank_dim", "gate_low_rank_dim")


def _rwkv_7(config: Config) -> Transformer:
    """Reads RWKV-7 (Peng et al. 2025, 2503.14456): a matrix of state per head, and four pairs of narrow projections."""
    hidden, size = dimensions(config, "hidden", "head_size")
    ranks = sum(dimensions(config, *RWKV_7_RANKS))
    ffn = number(config, "intermediate_size") or hidden * (number(config, "hidden_ratio") or 4)
    parameters = 2 * hidden * (2 * hidden + ranks) + 15 * hidden
    heads = hidden // max(1, size)
    return _without_attention(config, State(heads, size, size, heads, 1, parameters), ffn)


# Networks with attention in some layers


NEMOTRON_LAYERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def _nemotron_h(config: Config) -> Transformer:
    """Reads Nemotron-H, a hybrid with layers of Mamba-2 (M), attention (*), dense FFNs (-) and experts (E)."""
    pattern = layer_types(config, "hybrid_override_pattern") or layer_types(config, "layers_block_type")
    count = {letter: sum(layer in (letter, word) for layer in pattern) for letter, word in NEMOTRON_LAYERS.items()}
    if not count["M"] or sum(count.values()) != len(pattern):
        raise ImpossibleModel(
            "The config of a nemotron_h must list its layers in hybrid_override_pattern or layers_block_type.",
            field="huggingface_config.hybrid_override_pattern",
        )
    state = State.read(config, ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups"), "conv_kernel")
    # `usual` assumes experts to be a part of every layer, but here they are layers of their own.
    without_experts = dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"))
    read = usual({**config, **without_experts, "num_hidden_layers": len(pattern)})
    experts = expert_sizes({**config, "first_k_dense_replace": count["-"]}, len(pattern)) if count["E"] else {}
    return replace(
        read,
        ffn=read.ffn if count["-"] else 0,
        attention_layers=count["*"],
        expert_latent=number(config, "moe_latent_size") or 0 if experts else 0,
        **state.of(count["M"]),
        **experts,
    )


def _blocks(read: Transformer, attending: int, state: State, **other: Any) -> Transformer:
    """Returns the dimensions of blocks of a mixer and an FFN each, which count as two layers.

    Mixers that do not attend keep a state.
    """
    states = state.of(read.layers - attending)
    return replace(read, layers=2 * read.layers, attention_layers=attending, **(states | other))


QWEN_HYBRIDS = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def _qwen_hybrid(config: Config) -> Transformer:
    """Reads Qwen3-Next and Qwen3.5: one block in four attends, the others follow the gated delta rule."""
    types, every = layer_types(config, "layer_types"), number(config, "full_attention_interval") or 4
    read = usual({**config, "layer_types": None})
    keys = ("linear_num_value_heads", "linear_value_head_dim", "linear_key_head_dim", "linear_num_key_heads")
    attending = types.count("full_attention") if types else read.layers // every
    gated = flag(config, "attn_output_gate", default=True)
    return _blocks(read, attending, State.read(config, keys, "linear_conv_kernel_dim"), gated_attention=gated)


MAMBA_2_KEYS = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups")


def _granite_hybrid(config: Config) -> Transformer:
    """Reads Granite 4: most blocks have Mamba-2, and `shared_intermediate_size` is of the FFN of every token."""
    types, shared = layer_types(config, "layer_types"), number(config, "shared_intermediate_size") or 0
    experts = number(config, "num_local_experts") or 0
    ffn = {"shared_expert_intermediate_size": shared} if experts > 1 else {"intermediate_size": shared}
    read = usual({**config, **ffn, "layer_types": None})
    return _blocks(read, types.count("attention"), State.read(config, MAMBA_2_KEYS, "mamba_d_conv"))


def _bamba(config: Config) -> Transformer:
    """Reads Bamba: Mamba-2, and attention in the blocks that the config lists."""
    attending = config.get("attn_layer_indices")
    if not isinstance(attending, list):
        raise ImpossibleModel(
            "The config of a bamba must list attn_layer_indices.", field="huggingface_config.attn_layer_indices"
        )
    return _blocks(usual(config), len(attending), State.read(config, MAMBA_2_KEYS, "mamba_d_conv"))


def _falcon_h1(config: Config) -> Transformer:
    """Reads Falcon-H1: each block has attention and Mamba-2 side by side, and an FFN."""
    read = usual(config)
    state = State.read(config, MAMBA_2_KEYS, "mamba_d_conv")
    return replace(read, layers=3 * read.layers, attention_layers=read.layers, **state.of(read.layers))


def _jamba(config: Config) -> Transformer:
    """Reads Jamba: Mamba, attention in one block of a period, and experts in one block of another period."""
    hidden, attends, routes = dimensions(config, "hidden", "attn_layer_period", "expert_layer_period")
    read = usual({**config, "decoder_sparse_step": routes})
    size, convolution = number(config, "mamba_d_state") or 16, number(config, "mamba_d_conv") or 4
    rank, inner = number(config, "mamba_dt_rank") or -(-hidden // 16), hidden * (number(config, "mamba_expand") or 2)
    return _blocks(
        read, read.layers // max(1, attends), _mamba_state(hidden, inner, size, rank, convolution), ffn=read.ffn
    )


def _kimi_linear(config: Config) -> Transformer:
    """Reads Kimi Linear (2510.26692): most blocks follow a delta rule with a decay per channel, the others have MLA."""
    linear, read = section(config, "linear_attn_config"), latent(config)
    layers: Mapping[str, Any] = {name: linear.get(name) for name in ("kda_layers", "full_attn_layers")}
    if not all(isinstance(listed, list) for listed in layers.values()):
        raise ImpossibleModel(
            "linear_attn_config must list kda_layers and full_attn_layers.",
            field="huggingface_config.linear_attn_config",
        )
    heads, size = dimensions(linear, "heads", "head_size")
    convolution, inner = number(linear, "short_conv_kernel_size") or 4, heads * size
    low_rank = 2 * size * (read.hidden + inner)
    parameters = 4 * read.hidden * inner + low_rank + read.hidden * heads + inner * (3 * convolution + 2)
    state = State(heads, size, size, heads, convolution, parameters)
    return _blocks(read, len(layers["full_attn_layers"]), state)


RECURRENT_READERS: dict[str, Callable[[Config], Transformer]] = {
    **dict.fromkeys(("mamba", "falcon_mamba"), _mamba),
    "mamba2": _mamba_2,
    "rwkv": _rwkv,
    "rwkv7": _rwkv_7,
    "nemotron_h": _nemotron_h,
    **dict.fromkeys(QWEN_HYBRIDS, _qwen_hybrid),
    "granitemoehybrid": _granite_hybrid,
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "jamba": _jamba,
    "kimi_linear": _kimi_linear,
}
