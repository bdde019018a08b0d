"""Fields of a Hugging Face config.json, found under the names that different architectures use, with checks."""

from collections.abc import Mapping, Sequence
from typing import Any

from service.domain.errors import ImpossibleModel

Config = Mapping[str, Any]

KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "vt_num_hidden_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "dim", "vt_hidden_size"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": (
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num",
        "attn_config.kv_n_heads",
    ),
    "head_size": ("head_dim", "d_kv", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "hidden_dim", "vt_intermediate_size"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "context_tokens": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "experts": (
        "num_local_experts", "num_experts", "n_routed_experts", "ffn_config.moe_num_experts", "moe_num_experts",
    ),
    "experts_per_token": (
        "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk", "moe_k",
        "ffn_config.moe_top_k",
    ),
    "expert_ffn": ("moe_intermediate_size", "ffn_config.ffn_hidden_size"),
    "shared_experts": ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert"),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
    "activation": ("hidden_act", "hidden_activation", "activation_function", "feed_forward_proj"),
}  # fmt: skip
"""Dimension → its keys in configs, the usual one first. `a.b` is the key b of the object a."""

MAX_LAYER_TYPES = 4096
LARGEST_NUMBER = 1 << 40
"""Bound of any number of a config; `Transformer` has narrower bounds for its dimensions."""


def number(config: Config, key: str) -> int | None:
    """Returns the whole number under a key; None if it is absent or null. Raises `ImpossibleModel` for other values."""
    outer, _, inner = key.rpartition(".")
    value = (section(config, outer) if outer else config).get(inner)
    # Hunyuan and ERNIE list one number per layer, which are all equal.
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        value = value[0]
    if value is None:
        return None
    # True is an int in Python; a float such as 4096.0 is a whole number in JSON.
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ImpossibleModel(f"{key} must be a whole number.", field=f"huggingface_config.{key}")
    if not 0 <= value <= LARGEST_NUMBER:
        raise ImpossibleModel(f"{key} is a number that no model has.", field=f"huggingface_config.{key}")
    return int(value)


def dimension(config: Config, name: str) -> int | None:
    """Returns the number under the first key of a dimension that the config has. A name not in `KEYS` is a key."""
    return next((value for key in KEYS.get(name, (name,)) if (value := number(config, key)) is not None), None)


def dimensions(config: Config, *names: str) -> list[int]:
    """Returns the numbers of several dimensions or keys. Raises `ImpossibleModel` if one is missing."""
    values = {name: dimension(config, name) for name in names}
    missing = [KEYS.get(name, (name,)) for name, value in values.items() if value is None]
    if missing:
        keys = ", ".join(usual for usual, *_ in missing)
        others = "; ".join(f"{usual} is also read as {', '.join(more)}" for usual, *more in missing if more)
        raise ImpossibleModel(
            f"The config does not have {keys}{f' ({others})' if others else ''}.",
            field=f"huggingface_config.{missing[0][0]}",
        )
    return [value for value in values.values() if value is not None]


def flag(config: Config, key: str, *, default: bool) -> bool:
    """Returns the flag under a key; the default if it is absent or null. Raises `ImpossibleModel` for other values."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ImpossibleModel(f"{key} must be true or false.", field=f"huggingface_config.{key}")
    return value


def layer_types(config: Config, key: str) -> Sequence[str]:
    """Returns the list of texts, or the string of letters, with one item per layer; empty if it is absent or null."""
    value = config.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | str) or len(value) > MAX_LAYER_TYPES or not all(isinstance(w, str) for w in value):
        raise ImpossibleModel(
            f"{key} must be a list of at most {MAX_LAYER_TYPES} texts, one per layer.",
            field=f"huggingface_config.{key}",
        )
    return value


def section(config: Config, key: str) -> Config:
    """Returns the object under a key; empty if it is absent or null. Raises `ImpossibleModel` for other values."""
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ImpossibleModel(f"{key} must be an object.", field=f"huggingface_config.{key}")
    return value


def activation(config: Config) -> str | None:
    """Returns the name of the activation in lower case; None if the config names none."""
    value = next((config[key] for key in KEYS["activation"] if config.get(key)), None)
    return value.lower() if isinstance(value, str) else None


def model_type(config: Config) -> str:
    """Returns the name of the architecture in lower case; empty if it is absent."""
    value = config.get("model_type", "")
    if not isinstance(value, str):
        raise ImpossibleModel("model_type must be a text.", field="huggingface_config.model_type")
    return value[:80].lower()
