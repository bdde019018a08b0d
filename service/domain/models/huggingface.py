"""A Hugging Face config.json → a model: field names differ by architecture, and defaults stand in code, not in files.

Read is what decides sizes. Where a file leaves out a field, the default of that architecture's class in the
`transformers` library stands in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from service.domain.errors import ImpossibleModel
from service.domain.models.counts import forward_flops_per_token, parameter_count
from service.domain.models.described import even_head_size, family_of, model_of
from service.domain.models.model import Model, Transformer

Config = Mapping[str, Any]

MOST_LAYER_TYPES = 4096

KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads", "multi_query_group_num"),
    "head_size": ("head_dim", "d_kv", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size", "hidden_dim"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "context_tokens": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_topk"),
    "expert_ffn": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts", "num_shared_experts"),
}
"""Where architectures keep the same thing, the usual name first."""

UNGATED = {
    "gpt2", "gpt_neo", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "mpt", "falcon", "phi", "starcoder2",
    "codegen", "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "deberta", "deberta-v2",
    "nemotron", "nemotron_h", "vit", "deit", "whisper", "albert", "mpnet", "xglm", "persimmon",
}  # fmt: skip
GATED = {"gemma", "gemma2", "gemma3", "gemma3_text", "modernbert", "phi3", "cohere", "cohere2"}
"""Architectures that gate with an activation that others use plainly."""
GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")
TIED = {
    "gpt2", "gpt_neo", "gpt_bigcode", "opt", "bloom", "mpt", "gemma", "gemma2", "gemma3", "gemma3_text", "cohere",
    "cohere2", "starcoder2", "t5", "whisper", "falcon",
}  # fmt: skip
"""Architectures whose class ties the output projection to the embedding unless the file says otherwise."""
LEARNED_POSITIONS = {
    "gpt2", "gpt_neo", "gpt_bigcode", "opt", "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra",
    "deberta", "mpnet", "mpt",
}  # fmt: skip
ENCODERS = {
    "bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "deberta", "deberta-v2", "mpnet",
    "modernbert", "vit", "deit",
}  # fmt: skip
DEFAULTS: dict[str, Config] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    },
    "llama4_text": {"head_dim": 128, "vocab_size": 202048},
    "mt5": {"tie_word_embeddings": False},
}
"""Of architectures whose published files leave out what decides sizes."""
NOT_READ = {
    "albert": "its layers share their weights",
    "jamba": "it mixes attention with state spaces in its own way",
    "mamba": "it has no attention",
    "mamba2": "it has no attention",
    "falcon_mamba": "it has no attention",
    "rwkv": "it has no attention",
    "qwen3_next": "it mixes attention with linear attention",
    "zamba2": "its attention layers share their weights",
    "swin": "it attends in windows of an image, with a width that changes by stage",
    "xlnet": "it attends twice",
}
"""Architectures that the usual reading would get wrong, and why."""


def read_config(config: Config, name: str = "custom") -> Model:
    """The model that a config.json describes. Raises `ImpossibleModel` with a sentence naming what is missing."""
    kind = kind_of(config)
    try:
        if kind == "clip":
            return clip(config, name)
        if kind in ("vit", "deit"):
            return image_encoder(config, name)
        if kind == "whisper":
            return replace(model_of(whisper(config), name=name), family="speech")
        text = text_part(config)
        return counted(model_of(read_transformer(config), name=name), text)
    except ImpossibleModel as error:
        field = error.field if error.field and error.field.startswith("config") else "config"
        raise ImpossibleModel(error.sentence, field=field, near=error.near) from None


def read_transformer(config: Config) -> Transformer:
    """Only the dimensions; of a model that reads more than text, its language model's."""
    text = text_part(config)
    kind = kind_of(text) or kind_of(config)
    if kind in NOT_READ:
        raise ImpossibleModel(
            f"The architecture '{kind}' cannot be read from its config: {NOT_READ[kind]}. "
            "Give parameters and forward FLOPs per sample instead.",
            field="config.model_type",
        )
    return READERS.get(kind, decoder)(text)


def kind_of(config: Config) -> str:
    kind = config.get("model_type", "")
    if not isinstance(kind, str):
        raise ImpossibleModel("model_type must be a text.", field="config.model_type")
    return kind[:80].lower()


def text_part(config: Config) -> Config:
    """The language model's config where it stands inside; what is said once for all is taken from outside."""
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return {**DEFAULTS.get(kind_of(config), {}), **config}
    outer = {name: config[name] for name in ("tie_word_embeddings",) if name in config}
    told = {**outer, "model_type": kind_of(config), **inner}
    return {**DEFAULTS.get(kind_of(told), {}), **told}


# One field at a time


def number(config: Config, key: str) -> int | None:
    """A whole number; absent and null are the same. Bounds are the dimensions' own."""
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ImpossibleModel(f"{key} must be a whole number.", field=f"config.{key}")
    if not 0 <= value <= 1 << 40:
        raise ImpossibleModel(f"{key} is a number that no model has.", field=f"config.{key}")
    return int(value)


def maybe(config: Config, field: str) -> int | None:
    """What the file says of a dimension, under whichever name."""
    for key in KEYS[field]:
        value = number(config, key)
        if value is not None:
            return value
    return None


def needed(config: Config, *wanted: str) -> list[int]:
    found = {field: maybe(config, field) for field in wanted}
    missing = [KEYS[field][0] for field, value in found.items() if value is None]
    if missing:
        others = "; ".join(f"{KEYS[field][0]} is also read as {', '.join(KEYS[field][1:])}" for field in wanted)
        raise ImpossibleModel(
            f"The config does not tell {', '.join(missing)} ({others}).", field=f"config.{missing[0]}"
        )
    return [value for value in found.values() if value is not None]


def flag(config: Config, key: str, default: bool) -> bool:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ImpossibleModel(f"{key} must be true or false.", field=f"config.{key}")
    return value


def words(config: Config, key: str) -> Sequence[str]:
    value = config.get(key)
    if value is None:
        return ()
    if not isinstance(value, list | str) or len(value) > MOST_LAYER_TYPES or not all(isinstance(w, str) for w in value):
        raise ImpossibleModel(
            f"{key} must be a list of at most {MOST_LAYER_TYPES} texts, one a layer.", field=f"config.{key}"
        )
    return value


def section(config: Config, key: str) -> Config:
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ImpossibleModel(f"{key} must be an object.", field=f"config.{key}")
    return value


# The usual reading


def decoder(config: Config) -> Transformer:
    """The usual names with the usual meaning; what an unknown architecture is taken for."""
    kind = kind_of(config)
    layers, hidden, heads, vocabulary = needed(config, "layers", "hidden", "heads", "vocabulary")
    context = maybe(config, "context_tokens") or 0
    experts = expert_sizes(config, layers)
    all_moe = bool(experts) and not experts["dense_layers"]
    return Transformer(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=maybe(config, "kv_heads") or heads,
        head_size=maybe(config, "head_size") or even_head_size(hidden, heads),
        ffn=0 if all_moe else maybe(config, "ffn") or 4 * hidden,
        gated=is_gated(config),
        vocabulary=vocabulary,
        tied=flag(config, "tie_word_embeddings", kind in TIED) or kind in ENCODERS,
        context_tokens=context,
        decoder=kind not in ENCODERS,
        learned_positions=context if kind in LEARNED_POSITIONS else 0,
        **experts,
        **window(config, layers, context),
    )


def is_gated(config: Config) -> bool:
    kind = kind_of(config)
    if kind in UNGATED or kind in GATED:
        return kind in GATED
    activation = config.get("hidden_act") or config.get("hidden_activation") or config.get("activation_function")
    return not isinstance(activation, str) or activation.lower().startswith(GATED_ACTIVATIONS)


def expert_sizes(config: Config, layers: int) -> dict[str, Any]:
    """Experts as most architectures tell them; empty of a dense model."""
    experts = maybe(config, "experts") or 0
    if experts < 2:
        return {}
    (per_token,) = needed(config, "experts_per_token")
    width = maybe(config, "expert_ffn") or needed(config, "ffn")[0]
    return {
        "experts": experts,
        "experts_per_token": per_token,
        "expert_ffn": width,
        "shared_experts": shared_experts(config, width),
        "dense_layers": dense_layers(config, layers),
    }


def shared_experts(config: Config, width: int) -> int:
    """By count, or by their width together: as many as routed ones would fill it."""
    for key in ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"):
        together = number(config, key)
        if together:
            if not width or together % width:
                raise ImpossibleModel(
                    f"{key} {together} is no multiple of the experts' {width}.", field=f"config.{key}"
                )
            return together // width
    return maybe(config, "shared_experts") or 0


def dense_layers(config: Config, layers: int) -> int:
    """Layers without experts: the first ones, those named, or all between every n-th."""
    first = number(config, "first_k_dense_replace")
    if first is not None:
        return first
    step = number(config, "decoder_sparse_step") or number(config, "moe_layer_freq") or 1
    named = config.get("mlp_only_layers")
    return layers - layers // step + (len(named) if isinstance(named, list) else 0)


def window(config: Config, layers: int, context: int) -> dict[str, Any]:
    """The sliding window and how many layers do without; empty where it never cuts anything off."""
    size = number(config, "sliding_window") or 0
    if not size or (context and size >= context) or config.get("use_sliding_window") is False:
        return {}
    return {"sliding_window": size, "global_layers": global_layers(config, layers)}


def global_layers(config: Config, layers: int) -> int:
    kinds = words(config, "layer_types")
    if kinds:
        return sum(kind == "full_attention" for kind in kinds)
    every = number(config, "sliding_window_pattern") or EVERY_NTH_IS_GLOBAL.get(kind_of(config), 0)
    return layers // every if every else 0


EVERY_NTH_IS_GLOBAL = {"gemma2": 2, "gpt_oss": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}


# Architectures with words of their own


def falcon(config: Config) -> Transformer:
    """One key for all heads, or groups of them in the newer architecture."""
    (heads,) = needed(config, "heads")
    if flag(config, "new_decoder_architecture", False):  # noqa: FBT003
        kv_heads = maybe(config, "kv_heads") or heads
    else:
        kv_heads = 1 if flag(config, "multi_query", True) else heads  # noqa: FBT003
    return replace(decoder({**config, "num_key_value_heads": heads}), kv_heads=kv_heads)


def one_key_for_all(config: Config) -> Transformer:
    return replace(decoder(config), kv_heads=1) if config.get("multi_query") is not False else decoder(config)


def mpt(config: Config) -> Transformer:
    """Attention stands in a section, and the FFN as a ratio; positions are learned unless ALiBi or rotary."""
    attention = section(config, "attn_config")
    (hidden,) = needed(config, "hidden")
    read = decoder({**config, "ffn_dim": hidden * (number(config, "expansion_ratio") or 4)})
    learned = flag(config, "learned_pos_emb", True) and not (attention.get("alibi") or attention.get("rope"))  # noqa: FBT003
    return replace(
        read,
        kv_heads=number(attention, "kv_n_heads") or read.kv_heads,
        learned_positions=read.context_tokens if learned else 0,
    )


def dbrx(config: Config) -> Transformer:
    attention, experts = section(config, "attn_config"), section(config, "ffn_config")
    told = {
        "num_key_value_heads": attention.get("kv_n_heads"),
        "num_local_experts": experts.get("moe_num_experts"),
        "num_experts_per_tok": experts.get("moe_top_k"),
        "moe_intermediate_size": experts.get("ffn_hidden_size"),
    }
    return decoder({**config, **told})


def distilbert(config: Config) -> Transformer:
    """`hidden_dim` is the width of its FFN, and `dim` its hidden size."""
    return decoder({**config, "hidden_size": config.get("dim"), "intermediate_size": config.get("hidden_dim")})


def deepseek(config: Config) -> Transformer:
    """Multi-head latent attention, where the file tells its ranks."""
    kv_rank = number(config, "kv_lora_rank") or 0
    if not kv_rank:
        return decoder(config)
    (heads,) = needed(config, "heads")
    sizes = {key: number(config, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
    missing = [key for key, size in sizes.items() if size is None]
    if missing:
        raise ImpossibleModel(f"The config does not tell {', '.join(missing)}.", field=f"config.{missing[0]}")
    usual = {**config, "head_dim": sizes["qk_nope_head_dim"], "num_key_value_heads": heads}
    return replace(
        decoder(usual),
        mla_kv_rank=kv_rank,
        mla_rope_size=sizes["qk_rope_head_dim"] or 0,
        mla_query_rank=number(config, "q_lora_rank") or 0,
        mla_value_size=sizes["v_head_dim"] or 0,
    )


def llama4(config: Config) -> Transformer:
    """`intermediate_size` is an expert's, and a shared one stands beside; three layers of four attend in chunks."""
    layers, width = needed(config, "layers", "ffn")
    step = number(config, "interleave_moe_layer_step") or 1
    dense = layers - layers // step
    told = {
        **config,
        "moe_intermediate_size": width,
        "intermediate_size": (number(config, "intermediate_size_mlp") or width) if dense else None,
        "n_shared_experts": 1,
        "decoder_sparse_step": step,
    }
    chunk = number(config, "attention_chunk_size") or 0
    return replace(decoder(told), sliding_window=chunk, global_layers=layers // 4 if chunk else 0)


def gpt_oss(config: Config) -> Transformer:
    return decoder({"sliding_window": 128, "num_experts_per_tok": 4, **config})


def nemotron_h(config: Config) -> Transformer:
    """A layer is one of Mamba-2 (M), attention (*), a dense FFN (-) or experts (E)."""
    pattern = words(config, "hybrid_override_pattern") or words(config, "layers_block_type")
    count = {letter: sum(kind in (letter, word) for kind in pattern) for letter, word in NEMOTRON_LAYERS.items()}
    if not count["M"] or sum(count.values()) != len(pattern):
        raise ImpossibleModel(
            "The config of a nemotron_h must tell its layers in hybrid_override_pattern or layers_block_type.",
            field="config.hybrid_override_pattern",
        )
    keys = ("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups")
    missing = [key for key in keys if number(config, key) is None]
    if missing:
        raise ImpossibleModel(f"The config does not tell {', '.join(missing)}.", field=f"config.{missing[0]}")
    dense = dict.fromkeys(KEYS["experts"])
    read = decoder({**config, **dense, "num_hidden_layers": len(pattern)})
    experts = expert_sizes({**config, "first_k_dense_replace": count["-"]}, len(pattern)) if count["E"] else {}
    return replace(
        read,
        ffn=read.ffn if count["-"] else 0,
        attention_layers=count["*"],
        ssm_layers=count["M"],
        ssm_heads=number(config, "mamba_num_heads") or 0,
        ssm_head_size=number(config, "mamba_head_dim") or 0,
        ssm_state=number(config, "ssm_state_size") or 0,
        ssm_groups=number(config, "n_groups") or 0,
        ssm_convolution=number(config, "conv_kernel") or 4,
        expert_latent=number(config, "moe_latent_size") or 0 if experts else 0,
        **experts,
    )


NEMOTRON_LAYERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def t5(config: Config) -> Transformer:
    """As many decoder layers as encoder layers unless told; the head size is told, not a share."""
    encoder, hidden, heads, ffn, vocabulary = needed(config, "layers", "hidden", "heads", "ffn", "vocabulary")
    count = number(config, "num_decoder_layers")
    activation = config.get("feed_forward_proj")
    return Transformer(
        layers=encoder + (encoder if count is None else count),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=maybe(config, "head_size") or even_head_size(hidden, heads),
        ffn=ffn,
        gated=isinstance(activation, str) and activation.startswith("gated"),
        vocabulary=vocabulary,
        tied=flag(config, "tie_word_embeddings", True),  # noqa: FBT003
        context_tokens=maybe(config, "context_tokens") or 0,
        encoder_layers=encoder,
    )


def whisper(config: Config) -> Transformer:
    """Layers, heads and widths are told twice, once a side; both sides are alike in all published ones."""
    keys = ("encoder_layers", "decoder_layers", "d_model", "decoder_attention_heads", "decoder_ffn_dim", "vocab_size")
    told = {key: number(config, key) for key in keys}
    missing = [key for key, value in told.items() if value is None]
    if missing:
        raise ImpossibleModel(f"The config does not tell {', '.join(missing)}.", field=f"config.{missing[0]}")
    encoder, decoding, hidden, heads, ffn, vocabulary = (value or 0 for value in told.values())
    context = number(config, "max_target_positions") or 448
    return Transformer(
        layers=encoder + decoding,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=even_head_size(hidden, heads),
        ffn=ffn,
        gated=False,
        vocabulary=vocabulary,
        tied=True,
        context_tokens=context,
        encoder_layers=encoder,
        learned_positions=context + (number(config, "max_source_positions") or 1500),
    )


READERS: dict[str, Callable[[Config], Transformer]] = {
    "falcon": falcon,
    "refinedweb": falcon,
    "refinedwebmodel": falcon,
    "gpt_bigcode": one_key_for_all,
    "mpt": mpt,
    "dbrx": dbrx,
    "distilbert": distilbert,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "deepseek_v32": deepseek,
    "kimi_k2": deepseek,
    "llama4": llama4,
    "llama4_text": llama4,
    "gpt_oss": gpt_oss,
    "nemotron_h": nemotron_h,
    "t5": t5,
    "mt5": t5,
    "umt5": t5,
    "whisper": whisper,
}


# Models that are more than their transformer


def counted(model: Model, config: Config) -> Model:
    """With the parameters that some architectures have beside the usual ones."""
    assert model.transformer is not None
    more = extra_parameters(config, model.transformer)
    return replace(
        model,
        family=family_of(model.transformer),
        parameters=model.parameters + more,
        active_parameters=model.active_parameters + more,
    )


def extra_parameters(config: Config, transformer: Transformer) -> int:
    """DeBERTa projects relative positions a second time; older OPT models embed in a narrower width."""
    kind, hidden = kind_of(config), transformer.hidden
    if kind == "deberta" and config.get("share_att_key") is not True:
        kinds = config.get("pos_att_type") or ("c2p", "p2c")
        return transformer.layers * len([word for word in ("c2p", "p2c") if word in kinds]) * hidden * hidden
    narrow = number(config, "word_embed_proj_dim")
    if kind == "opt" and narrow and narrow != hidden:
        return transformer.vocabulary * (narrow - hidden) + 2 * narrow * hidden
    return 0


def vision_transformer(config: Config) -> tuple[Transformer, int]:
    """The encoder of an image's patches, and the parameters that make patches into tokens."""
    layers, hidden, heads = needed(config, "layers", "hidden", "heads")
    image, patch = number(config, "image_size") or 224, number(config, "patch_size") or 16
    if not patch or image % patch:
        raise ImpossibleModel(f"Patches of {patch} do not divide an image of {image}.", field="config.patch_size")
    tokens = (image // patch) ** 2 + 1
    transformer = Transformer(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_size=even_head_size(hidden, heads),
        ffn=maybe(config, "ffn") or 4 * hidden,
        gated=False,
        vocabulary=0,
        tied=True,
        context_tokens=tokens,
        decoder=False,
        learned_positions=tokens,
    )
    return transformer, (number(config, "num_channels") or 3) * patch * patch * hidden


def image_encoder(config: Config, name: str) -> Model:
    transformer, patches = vision_transformer(config)
    image, tokens = number(config, "image_size") or 224, transformer.context_tokens
    parameters = parameter_count(transformer) + patches
    per_token = forward_flops_per_token(transformer, tokens).total
    return replace(
        model_of(transformer, name=name),
        family="vit",
        parameters=parameters,
        active_parameters=parameters,
        forward_flops_per_sample=tokens * per_token + 2.0 * patches * (tokens - 1),
        sample=f"image {image}x{image}",
    )


def clip(config: Config, name: str) -> Model:
    """An encoder of images beside one of texts, with a projection from each to a common width."""
    text, vision = section(config, "text_config"), section(config, "vision_config")
    image = image_encoder({**CLIP_VISION, **vision}, name)
    told = {**CLIP_TEXT, **text, "model_type": "bert"}
    reader = replace(decoder(told), decoder=True)
    width = number(config, "projection_dim") or 512
    assert image.transformer is not None
    assert image.forward_flops_per_sample is not None
    projections = width * (image.transformer.hidden + reader.hidden)
    # The text encoder's embedding is looked up, not multiplied, and it has no output projection.
    per_token = forward_flops_per_token(replace(reader, vocabulary=0), reader.context_tokens).total
    parameters = image.parameters + parameter_count(reader) + projections
    return replace(
        image,
        parameters=parameters,
        active_parameters=parameters,
        transformer=None,
        forward_flops_per_sample=image.forward_flops_per_sample + reader.context_tokens * per_token,
        sample=f"{image.sample} and text of {reader.context_tokens} tokens",
    )


CLIP_TEXT = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "max_position_embeddings": 77,
    "vocab_size": 49408,
}
CLIP_VISION = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
}
"""The defaults of the library; published files tell little more than where they differ."""
