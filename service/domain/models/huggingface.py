"""Conversion of a Hugging Face config.json to a model.

Only fields that decide sizes are read. Their names differ by architecture. A field that a file leaves out has the
default of the class of its architecture in the `transformers` library.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import (
    Config,
    activation,
    dimension,
    dimensions,
    flag,
    layer_types,
    model_type,
    number,
    section,
)
from service.domain.models.counts import forward_flops_per_token, parameter_count
from service.domain.models.described import even_head_size, model_of
from service.domain.models.model import Model, Transformer


@dataclass(frozen=True, slots=True)
class Architecture:
    """Facts about an architecture that are in the code of its class and not in its configs."""

    gated: bool | None = None
    """Whether FFNs are gated; None: the activation of the config decides."""
    tied: bool = False
    """Whether the output projection is the embedding, unless the config says otherwise."""
    encoder: bool = False
    learned_positions: bool = False
    multi_query: bool = False
    """Whether all heads share one key-value head, unless the config says otherwise."""
    global_every: int = 0
    """n, if every n-th layer has no sliding window; 0: all layers have it."""
    family: str | None = None
    defaults: Config = field(default_factory=dict)
    """Defaults of the class for fields that published configs leave out."""


_BERT = Architecture(gated=False, encoder=True, learned_positions=True)
_GPT_2 = Architecture(gated=False, tied=True, learned_positions=True)
_FALCON = Architecture(gated=False, tied=True, multi_query=True)
_T5 = Architecture(tied=True, defaults={"feed_forward_proj": "relu"})
_GEMMA_3 = Architecture(gated=True, tied=True, global_every=6)
_UNGATED = Architecture(gated=False)

ARCHITECTURES: dict[str, Architecture] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "deberta"), _BERT),
    **dict.fromkeys(("mpnet", "vit", "deit"), _BERT),
    **dict.fromkeys(("gpt2", "gpt_neo", "opt", "mpt"), _GPT_2),
    **dict.fromkeys(("gpt_neox", "gptj", "phi", "codegen", "nemotron", "nemotron_h", "xglm", "persimmon"), _UNGATED),
    **dict.fromkeys(("falcon", "refinedweb", "refinedwebmodel"), _FALCON),
    **dict.fromkeys(("t5", "umt5"), _T5),
    **dict.fromkeys(("gemma", "cohere"), Architecture(gated=True, tied=True)),
    **dict.fromkeys(("bloom", "starcoder2"), Architecture(gated=False, tied=True)),
    "gpt_bigcode": replace(_GPT_2, multi_query=True),
    "deberta-v2": Architecture(gated=False, encoder=True),
    "modernbert": Architecture(gated=True, encoder=True),
    "mt5": replace(_T5, tied=False),
    "whisper": Architecture(
        gated=False,
        tied=True,
        family="speech",
        defaults={"max_target_positions": 448, "max_source_positions": 1500},
    ),
    "phi3": Architecture(gated=True),
    "gemma2": Architecture(gated=True, tied=True, global_every=2),
    "gemma3": _GEMMA_3,
    "gemma3_text": replace(
        _GEMMA_3,
        defaults={
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
        },
    ),
    "cohere2": Architecture(gated=True, tied=True, global_every=4),
    "gpt_oss": Architecture(global_every=2, defaults={"sliding_window": 128, "num_experts_per_tok": 4}),
    "llama4_text": Architecture(defaults={"head_dim": 128, "vocab_size": 202048}),
}
"""By `model_type`, architectures that differ from the usual: decoders with gated FFNs and untied embeddings."""

GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")

NOT_READ = {
    "albert": "its layers share their weights",
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv"), "it has no attention"),
    **dict.fromkeys(
        ("bamba", "falcon_h1", "jamba", "kimi_linear", "recurrent_gemma"),
        "it mixes attention with states in its own way",
    ),
    "zamba2": "its attention layers share their weights",
    "swin": "it attends in windows of an image, with a width that changes by stage",
    "xlnet": "it attends twice",
}
"""By `model_type`, architectures that cannot be read, with the reason for an error."""


def read_config(config: Config, name: str = "custom") -> Model:
    """Returns the model that a config.json describes. Raises `ImpossibleModel` about a field of the config."""
    try:
        return _MODELS.get(model_type(config), _language_model)(config, name)
    except ImpossibleModel as error:
        named = error.field is not None and error.field.startswith("huggingface_config")
        raise error.at(error.field if named else "huggingface_config") from None


def read_transformer(config: Config) -> Transformer:
    """Returns the dimensions of a model, or of the language model of a multimodal one. Raises `ImpossibleModel`."""
    text = _text_part(config)
    kind = model_type(text) or model_type(config)
    if kind in NOT_READ:
        raise ImpossibleModel(
            f"The architecture '{kind}' cannot be read from its config: {NOT_READ[kind]}. "
            "Give parameters and forward FLOPs per sample instead.",
            field="huggingface_config.model_type",
        )
    usual = _latent if number(text, "kv_lora_rank") else _usual
    return _READERS.get(kind, usual)(text)


def _architecture(config: Config) -> Architecture:
    return ARCHITECTURES.get(model_type(config), Architecture())


def _text_part(config: Config) -> Config:
    """Returns the part of a config for the language model, with the defaults of its class and shared fields."""
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        outer = {name: config[name] for name in ("tie_word_embeddings", "model_type") if name in config}
        config = {**outer, **inner}
    return {**_architecture(config).defaults, **config}


# Architectures with the usual fields


def _usual(config: Config) -> Transformer:
    """Returns the dimensions of an architecture whose fields have usual names and meanings."""
    architecture = _architecture(config)
    _check_layers(config)
    layers, hidden, heads, vocabulary = dimensions(config, "layers", "hidden", "heads", "vocabulary")
    context = dimension(config, "context_tokens") or 0
    experts = _expert_sizes(config, layers)
    # If every layer has experts, `intermediate_size` is the width of an expert or of no layer.
    only_experts = bool(experts) and not experts["dense_layers"]
    return Transformer(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_size=dimension(config, "head_size") or even_head_size(hidden, heads),
        ffn=0 if only_experts else dimension(config, "ffn") or 4 * hidden,
        gated=_is_gated(config),
        vocabulary=vocabulary,
        tied=flag(config, "tie_word_embeddings", default=architecture.tied) or architecture.encoder,
        context_tokens=context,
        decoder=not architecture.encoder,
        learned_positions=context if architecture.learned_positions else 0,
        **experts,
        **_window(config, layers, context),
    )


ATTENDING = ("full_attention", "sliding_attention", "chunked_attention", "attention")


def _check_layers(config: Config) -> None:
    """Raises `ImpossibleModel` if some layers do not attend, because their states would be counted as cache."""
    other = next((kind for kind in layer_types(config, "layer_types") if kind not in ATTENDING), None)
    if other is not None:
        raise ImpossibleModel(
            f"Layers of the type '{other}' cannot be read. Give parameters and forward FLOPs per sample instead.",
            field="huggingface_config.layer_types",
        )


def _kv_heads(config: Config, heads: int) -> int:
    """Returns the number of key-value heads; only the older architecture of Falcon shares one among all heads."""
    if _architecture(config).multi_query and not flag(config, "new_decoder_architecture", default=False):
        return 1 if flag(config, "multi_query", default=True) else heads
    return dimension(config, "kv_heads") or heads


def _is_gated(config: Config) -> bool:
    gated, name = _architecture(config).gated, activation(config)
    if gated is not None:
        return gated
    return name is None or name.startswith(GATED_ACTIVATIONS)


def _expert_sizes(config: Config, layers: int) -> dict[str, Any]:
    """Returns the dimensions of experts, from fields with usual names; empty for a dense model."""
    experts = dimension(config, "experts") or 0
    # Some dense models state 0 or 1 experts, because they share a class with sparse models.
    if experts < 2:
        return {}
    (per_token,) = dimensions(config, "experts_per_token")
    width = dimension(config, "expert_ffn") or dimensions(config, "ffn")[0]
    return {
        "experts": experts,
        "experts_per_token": per_token,
        "expert_ffn": width,
        "shared_experts": _shared_experts(config, width),
        "dense_layers": _dense_layers(config, layers),
    }


def _shared_experts(config: Config, width: int) -> int:
    """Returns the number of shared experts, as stated, or as their total width / the width of a routed expert."""
    for key in ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"):
        together = number(config, key)
        if together:
            if not width or together % width:
                raise ImpossibleModel(
                    f"{key} {together} is not a multiple of the experts' {width}.", field=f"huggingface_config.{key}"
                )
            return together // width
    return dimension(config, "shared_experts") or 0


def _dense_layers(config: Config, layers: int) -> int:
    """Returns the number of layers without experts: the first ones, the named ones, or all but every n-th."""
    first = number(config, "first_k_dense_replace")
    if first is not None:
        return first
    step = number(config, "decoder_sparse_step") or number(config, "moe_layer_freq") or 1
    named = config.get("mlp_only_layers")
    return layers - layers // step + (len(named) if isinstance(named, list) else 0)


def _window(config: Config, layers: int, context: int) -> dict[str, Any]:
    """Returns the sliding window and the number of layers without it; empty if the window spans the context."""
    size = number(config, "sliding_window") or 0
    # Some configs state a window that spans the whole context, which has no effect.
    if not size or (context and size >= context) or config.get("use_sliding_window") is False:
        return {}
    types = layer_types(config, "layer_types")
    every = number(config, "sliding_window_pattern") or _architecture(config).global_every
    without = types.count("full_attention") if types else layers // every if every else 0
    return {"sliding_window": size, "global_layers": without}


# Architectures with fields of their own


def _mpt(config: Config) -> Transformer:
    """Reads MPT: its FFN is a multiple of the hidden size, and positions are learned unless ALiBi or rotary."""
    attention = section(config, "attn_config")
    (hidden,) = dimensions(config, "hidden")
    read = _usual({**config, "ffn_dim": hidden * (number(config, "expansion_ratio") or 4)})
    learned = flag(config, "learned_pos_emb", default=True) and not (attention.get("alibi") or attention.get("rope"))
    return replace(read, learned_positions=read.context_tokens if learned else 0)


def _latent(config: Config) -> Transformer:
    """Reads multi-head latent attention (DeepSeek, Kimi K2, GLM-5), whose ranks the config states."""
    rank, heads = dimensions(config, "kv_lora_rank", "heads")
    plain, rotary, value = dimensions(config, "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return replace(
        _usual({**config, "head_dim": plain, "num_key_value_heads": heads}),
        mla_kv_rank=rank,
        mla_rope_size=rotary,
        mla_query_rank=number(config, "q_lora_rank") or 0,
        mla_value_size=value,
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
    return replace(_usual({**config, **usual_names}), sliding_window=chunk, global_layers=layers // 4 if chunk else 0)


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
    heads, head_size, state, groups = dimensions(
        config, "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups"
    )
    # `_usual` assumes experts to be a part of every layer, but here they are layers of their own.
    without_experts = dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"))
    read = _usual({**config, **without_experts, "num_hidden_layers": len(pattern)})
    experts = _expert_sizes({**config, "first_k_dense_replace": count["-"]}, len(pattern)) if count["E"] else {}
    return replace(
        read,
        ffn=read.ffn if count["-"] else 0,
        attention_layers=count["*"],
        ssm_layers=count["M"],
        ssm_heads=heads,
        ssm_head_size=head_size,
        ssm_state=state,
        ssm_groups=groups,
        ssm_convolution=number(config, "conv_kernel") or 4,
        expert_latent=number(config, "moe_latent_size") or 0 if experts else 0,
        **experts,
    )


def _blocks(config: Config, attending: int, state: tuple[str, ...]) -> Transformer:
    """Reads blocks of a mixer and an FFN each, which count as two layers.

    Mixers that do not attend keep a state, whose heads, head size, size and groups are under the keys of `state`.
    """
    (blocks,) = dimensions(config, "layers")
    heads, head_size, size, groups = dimensions(config, *state)
    read = _usual({**config, "layer_types": None})
    return replace(
        read,
        layers=2 * blocks,
        attention_layers=attending,
        ssm_layers=blocks - attending,
        ssm_heads=heads,
        ssm_head_size=head_size,
        ssm_state=size,
        ssm_groups=groups,
        ssm_convolution=number(config, "linear_conv_kernel_dim") or number(config, "mamba_d_conv") or 4,
    )


QWEN_HYBRIDS = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def _qwen_hybrid(config: Config) -> Transformer:
    """Reads Qwen3-Next and Qwen3.5: one block in four attends, the others follow the gated delta rule."""
    (blocks,) = dimensions(config, "layers")
    types, every = layer_types(config, "layer_types"), number(config, "full_attention_interval") or 4
    attending = types.count("full_attention") if types else blocks // every
    sizes = ("linear_num_value_heads", "linear_value_head_dim", "linear_key_head_dim", "linear_num_key_heads")
    return _blocks(config, attending, sizes)


def _granite_hybrid(config: Config) -> Transformer:
    """Reads Granite 4: most blocks have Mamba-2, and `shared_intermediate_size` is of the FFN of every token."""
    types, shared = layer_types(config, "layer_types"), number(config, "shared_intermediate_size") or 0
    sizes = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups")
    experts = number(config, "num_local_experts") or 0
    ffn = {"shared_expert_intermediate_size": shared} if experts > 1 else {"intermediate_size": shared}
    return _blocks({**config, **ffn}, types.count("attention"), sizes)


def _t5(config: Config) -> Transformer:
    """Reads T5: an encoder, and a decoder with as many layers unless the config says otherwise."""
    dimensions(config, "layers", "hidden", "heads", "ffn", "vocabulary")
    encoder = _usual(config)
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


_READERS: dict[str, Callable[[Config], Transformer]] = {
    "mpt": _mpt,
    **dict.fromkeys(("llama4", "llama4_text"), _llama4),
    "nemotron_h": _nemotron_h,
    **dict.fromkeys(QWEN_HYBRIDS, _qwen_hybrid),
    "granitemoehybrid": _granite_hybrid,
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    "whisper": _whisper,
}


# Models with more parts than a transformer


def _language_model(config: Config, name: str) -> Model:
    transformer = read_transformer(config)
    model = model_of(transformer, name=name)
    more = _extra_parameters(_text_part(config), transformer)
    parameters, flops = _tower(config, transformer.hidden)
    return replace(
        model,
        family=_architecture(config).family or model.family,
        parameters=model.parameters + more,
        active_parameters=model.active_parameters + more,
        other_parameters=parameters,
        other_flops_per_sample=flops,
    )


PATCHES_OF_AN_IMAGE = 4096
"""Patches of an image for encoders that take images of any size: about a megapixel (assumed)."""


def _tower(config: Config, hidden: int) -> tuple[float | None, float | None]:
    """Returns the parameters of a language model's encoder of images, and its FLOPs per token of an image.

    Both are None if the model has no such encoder. A patch attends to all patches of the image or of its window.
    Several patches become one token: they are concatenated (`spatial_merge_size`) or pooled (`mm_tokens_per_image`,
    `downsample_ratio`, `pixel_shuffle_ratio`).
    """
    vision = section(config, "vision_config")
    if not vision:
        return None, None
    # Qwen2-VL calls the width of the encoder embed_dim, and that of the language model hidden_size.
    named = {"num_hidden_layers": vision.get("depth"), "hidden_size": vision.get("embed_dim")}
    vision = {**vision, **{name: value for name, value in named.items() if value is not None}}
    try:
        layers, width, patch = dimensions(vision, "layers", "hidden", "patch_size")
    except ImpossibleModel as error:
        raise ImpossibleModel(f"In vision_config: {error.sentence}", field="huggingface_config.vision_config") from None
    if not patch:
        raise ImpossibleModel("The patches of vision_config have no size.", field="huggingface_config.vision_config")
    ffn = dimension(vision, "ffn") or (number(vision, "mlp_ratio") or 4) * width
    gated = (activation(vision) or "gelu").startswith(GATED_ACTIVATIONS)
    in_layers = layers * (4 * width * width + (3 if gated else 2) * width * ffn)
    patches = 3 * patch * patch * (number(vision, "temporal_patch_size") or 1) * width
    kernel = vision.get("merge_kernel_size")  # Kimi K2.5 states both sides of the patches that become a token
    merged_side = number({"merge_kernel_size": kernel[0]}, "merge_kernel_size") if isinstance(kernel, list) else None
    side = number(vision, "spatial_merge_size") or number(config, "spatial_merge_size") or merged_side or 1
    joined = side * side * width
    projector = joined * (joined if side > 1 else hidden) + joined * hidden
    image, window = number(vision, "image_size"), number(vision, "window_size")
    attended = ((window or image or 0) // patch) ** 2 or PATCHES_OF_AN_IMAGE
    per_patch = 2.0 * (in_layers + patches) + 4.0 * layers * width * attended
    merged = side * side if side > 1 else _pooled_patches(config, vision, attended)
    return float(in_layers + patches + projector), merged * per_patch + 2.0 * projector


def _pooled_patches(config: Config, vision: Config, patches: int) -> float:
    """Returns the number of patches that are pooled into one token of an image."""
    tokens = number(config, "mm_tokens_per_image")
    ratio = vision.get("pixel_shuffle_ratio") or config.get("downsample_ratio") or 1.0
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ImpossibleModel(
            "The ratio of pooled patches is between 0 and 1.", field="huggingface_config.downsample_ratio"
        )
    return patches / tokens if tokens else 1.0 / ratio**2


def _extra_parameters(config: Config, transformer: Transformer) -> int:
    """Returns parameters of DeBERTa for relative positions, and of OPT for embeddings narrower than the layers."""
    kind, hidden = model_type(config), transformer.hidden
    if kind == "deberta" and config.get("share_att_key") is not True:
        terms = config.get("pos_att_type") or ("c2p", "p2c")
        return transformer.layers * (("c2p" in terms) + ("p2c" in terms)) * hidden * hidden
    narrow = number(config, "word_embed_proj_dim")
    if kind == "opt" and narrow and narrow != hidden:
        return transformer.vocabulary * (narrow - hidden) + 2 * narrow * hidden
    return 0


def _image_encoder(config: Config, name: str) -> Model:
    """Reads a vision transformer (ViT) over the patches of an image."""
    image, patch = number(config, "image_size") or 224, number(config, "patch_size") or 16
    if not patch or image % patch:
        raise ImpossibleModel(
            f"Patches of {patch} do not divide an image of {image}.", field="huggingface_config.patch_size"
        )
    tokens = (image // patch) ** 2 + 1
    # The type is set, because the vision part of a CLIP config has another type or none.
    encoder = _usual({**config, "model_type": "vit", "vocab_size": 0, "max_position_embeddings": tokens})
    patches = (number(config, "num_channels") or 3) * patch * patch * encoder.hidden
    parameters = parameter_count(encoder) + patches
    per_token = forward_flops_per_token(encoder, tokens).total
    return replace(
        model_of(encoder, name=name),
        family="vit",
        parameters=parameters,
        active_parameters=parameters,
        forward_flops_per_sample=tokens * per_token + 2.0 * patches * (tokens - 1),
        sample=f"image {image}x{image}",
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
"""Defaults of the library `transformers` for CLIP; published files state little more than the differences."""


def _clip(config: Config, name: str) -> Model:
    """Reads CLIP: an encoder of images and one of texts, each with a projection to a common width."""
    image = _image_encoder({**CLIP_VISION, **section(config, "vision_config")}, name)
    # The encoder of texts has causal attention, although it generates nothing.
    text = replace(_usual({**CLIP_TEXT, **section(config, "text_config"), "model_type": "bert"}), decoder=True)
    assert image.transformer is not None
    assert image.forward_flops_per_sample is not None
    projections = (number(config, "projection_dim") or 512) * (image.transformer.hidden + text.hidden)
    # The embedding of the text encoder is not multiplied, and there is no output projection.
    per_token = forward_flops_per_token(replace(text, vocabulary=0), text.context_tokens).total
    parameters = image.parameters + parameter_count(text) + projections
    return replace(
        image,
        parameters=parameters,
        active_parameters=parameters,
        transformer=None,
        forward_flops_per_sample=image.forward_flops_per_sample + text.context_tokens * per_token,
        sample=f"{image.sample} and text of {text.context_tokens} tokens",
    )


_MODELS: dict[str, Callable[[Config, str], Model]] = {"clip": _clip, "vit": _image_encoder, "deit": _image_encoder}
