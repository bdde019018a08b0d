"""Dimensions of architectures whose config.json has fields of usual names and meanings.

A field that a file leaves out has the default of the class of its architecture in the `transformers` library.
"""

from collections.abc import Mapping
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
)
from service.domain.models.described import even_head_size
from service.domain.models.model import Transformer


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
    **dict.fromkeys(("gemma4", "gemma4_text"), Architecture(gated=True, tied=True)),
    "cohere2": Architecture(gated=True, tied=True, global_every=4),
    "gpt_oss": Architecture(global_every=2, defaults={"sliding_window": 128, "num_experts_per_tok": 4}),
    "llama4_text": Architecture(defaults={"head_dim": 128, "vocab_size": 202048}),
}
"""By `model_type`, architectures that differ from the usual: decoders with gated FFNs and untied embeddings."""

GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")


def architecture(config: Config) -> Architecture:
    """Returns the facts about the architecture of a config; usual ones if it is not in `ARCHITECTURES`."""
    return ARCHITECTURES.get(model_type(config), Architecture())


TEXT_PARTS = ("text_config", "llm_config", "language_config")
"""Names of the part of a multimodal config for its language model; the last two are of InternVL and DeepSeek-VL."""


def text_part(config: Config) -> Config:
    """Returns the part of a config for the language model, with the defaults of its class and shared fields."""
    inner = next((config[name] for name in TEXT_PARTS if isinstance(config.get(name), Mapping)), None)
    if inner is not None:
        outer = {name: config[name] for name in ("tie_word_embeddings", "model_type") if name in config}
        config = {**outer, **inner}
    return {**architecture(config).defaults, **config}


def usual(config: Config) -> Transformer:
    """Returns the dimensions of an architecture whose fields have usual names and meanings."""
    known = architecture(config)
    _check_layers(config)
    layers, hidden, heads, vocabulary = dimensions(config, "layers", "hidden", "heads", "vocabulary")
    context = dimension(config, "context_tokens") or 0
    experts = expert_sizes(config, layers)
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
        tied=flag(config, "tie_word_embeddings", default=known.tied) or known.encoder,
        context_tokens=context,
        decoder=not known.encoder,
        learned_positions=context if known.learned_positions else 0,
        **experts,
        **_window(config, layers, context),
    )


ATTENDING = ("full_attention", "sliding_attention", "chunked_attention", "attention", "deepseek_sparse_attention")


def _check_layers(config: Config) -> None:
    """Raises `ImpossibleModel` if some layers do not attend, because their states would be counted as cache."""
    numbered = config.get("attn_type_list")
    if isinstance(numbered, list) and any(kind != 1 for kind in numbered):
        raise ImpossibleModel(
            "By its attn_type_list, some layers have linear attention, which cannot be counted. "
            "Give parameters and forward FLOPs per sample instead.",
            field="huggingface_config.attn_type_list",
        )
    other = next((kind for kind in layer_types(config, "layer_types") if kind not in ATTENDING), None)
    if other is not None:
        raise ImpossibleModel(
            f"Layers of the type '{other}' cannot be read. Give parameters and forward FLOPs per sample instead.",
            field="huggingface_config.layer_types",
        )


def _kv_heads(config: Config, heads: int) -> int:
    """Returns the number of key-value heads; GPT-BigCode and the older Falcon usually share one among all heads."""
    if architecture(config).multi_query and not flag(config, "new_decoder_architecture", default=False):
        return 1 if flag(config, "multi_query", default=True) else heads
    return dimension(config, "kv_heads") or heads


def _is_gated(config: Config) -> bool:
    gated, name = architecture(config).gated, activation(config)
    if gated is not None:
        return gated
    return name is None or name.startswith(GATED_ACTIVATIONS)


def expert_sizes(config: Config, layers: int) -> dict[str, Any]:
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
    for key in (
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
    ):  # fmt: skip
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
    first = dimension(config, "dense_layers")
    if first is not None:
        return first
    if isinstance(config.get("moe_layer_freq"), list):
        return sum(routed == 0 for routed in config["moe_layer_freq"])
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
    if types:
        return {"sliding_window": size, "global_layers": types.count("full_attention")}
    pattern = config.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern:
        # EXAONE 4 writes LLLG for three layers with a window before each one without.
        return {"sliding_window": size, "global_layers": layers * pattern.count("G") // len(pattern)}
    every = number(config, "sliding_window_pattern") or architecture(config).global_every
    return {"sliding_window": size, "global_layers": layers // every if every else 0}
