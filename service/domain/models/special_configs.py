"""Dimensions of architectures whose config.json has fields of their own."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from service.domain.models.config_fields import Config, dimensions, flag, layer_types, number, section
from service.domain.models.model import Transformer
from service.domain.models.usual_config import usual


def _mpt(config: Config) -> Transformer:
    """Reads MPT: its FFN is a multiple of the hidden size, and positions are learned unless ALiBi or rotary."""
    attention = section(config, "attn_config")
    (hidden,) = dimensions(config, "hidden")
    read = usual({**config, "ffn_dim": hidden * (number(config, "expansion_ratio") or 4)})
    learned = flag(config, "learned_pos_emb", default=True) and not (attention.get("alibi") or attention.get("rope"))
    return replace(read, learned_positions=read.context_tokens if learned else 0)


def latent(config: Config) -> Transformer:
    """Reads multi-head latent attention (DeepSeek, Kimi K2, GLM-5), whose ranks the config states."""
    rank, heads = dimensions(config, "kv_lora_rank", "heads")
    plain, rotary, value = dimensions(config, "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    read = usual({**config, "head_dim": plain, "num_key_value_heads": heads})
    return replace(
        read,
        mla_kv_rank=rank,
        mla_rope_size=rotary,
        mla_query_rank=number(config, "q_lora_rank") or 0,
        mla_value_size=value,
        **_indexers(config, read.layers),
    )


def _indexers(config: Config, layers: int) -> dict[str, Any]:
    """Returns the dimensions of indexers (DeepSeek-V3.2, GLM-5); empty for a config without them.

    Some layers use the tokens that an earlier one selected (GLM-5.2): `indexer_types` lists them, or every n-th layer
    after the first ones has an indexer, with n under `index_topk_freq`.
    """
    most = number(config, "index_topk")
    if not most:
        return {}
    heads, size = dimensions(config, "index_n_heads", "index_head_dim")
    types, every = layer_types(config, "indexer_types"), number(config, "index_topk_freq") or 1
    first = number(config, "index_skip_topk_offset") or 1
    own = types.count("full") if types else sum(max(0, layer - first + 1) % every == 0 for layer in range(layers))
    return {"indexed_tokens": most, "indexer_layers": own, "indexer_heads": heads, "indexer_head_size": size}


def _gemma4(config: Config) -> Transformer:
    """Reads Gemma 4: layers without a window have another head size, and a dense FFN works next to the experts."""
    experts, width = number(config, "num_experts") or 0, number(config, "moe_intermediate_size") or 0
    both = {"num_experts_per_tok": number(config, "top_k_experts"), "shared_expert_intermediate_size": None}
    if experts and width:
        both["shared_expert_intermediate_size"] = number(config, "intermediate_size")
    return replace(
        usual({**config, **both}),
        global_kv_heads=number(config, "num_global_key_value_heads") or 0,
        global_head_size=number(config, "global_head_dim") or 0,
    )


def _llama4(config: Config) -> Transformer:
    """Reads Llama 4: `intermediate_size` is of an expert, one expert is shared, and 3 of 4 layers attend in chunks."""
    layers, width = dimensions(config, "layers", "ffn")
    step = number(config, "interleave_moe_layer_step") or 1
    usual_names = {
        "moe_intermediate_size": width,
        "intermediate_size": number(config, "intermediate_size_mlp") or width,
        "n_shared_experts": 1,
        "decoder_sparse_step": step,
    }
    chunk = number(config, "attention_chunk_size") or 0
    return replace(usual({**config, **usual_names}), sliding_window=chunk, global_layers=layers // 4 if chunk else 0)


def _t5(config: Config) -> Transformer:
    """Reads T5: an encoder, and a decoder with as many layers unless the config says otherwise."""
    dimensions(config, "layers", "hidden", "heads", "ffn", "vocabulary")
    encoder = usual(config)
    decoding = number(config, "num_decoder_layers")
    return replace(
        encoder,
        layers=encoder.layers + (encoder.layers if decoding is None else decoding),
        encoder_layers=encoder.layers,
    )


def _whisper(config: Config) -> Transformer:
    """Reads Whisper: encoder and decoder have equal heads and widths in all published configs."""
    encoding, decoding, heads, ffn = dimensions(
        config, "encoder_layers", "decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"
    )
    sound, text = dimensions(config, "max_source_positions", "max_target_positions")
    usual_names = {
        "num_hidden_layers": encoding,
        "num_decoder_layers": decoding,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "max_position_embeddings": text,
    }
    return replace(_t5({**config, **usual_names}), learned_positions=text + sound)


READERS: dict[str, Callable[[Config], Transformer]] = {
    "mpt": _mpt,
    **dict.fromkeys(("gemma4", "gemma4_text"), _gemma4),
    **dict.fromkeys(("llama4", "llama4_text"), _llama4),
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    "whisper": _whisper,
}
