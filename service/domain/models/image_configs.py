"""Encoders of images: alone, with an encoder of texts, and as the tower of a language model."""

from collections.abc import Callable
from dataclasses import replace

from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import (
    Config,
    activation,
    dimension,
    dimensions,
    flag,
    model_type,
    number,
    section,
)
from service.domain.models.counts import (
    PRODUCTS_OF_A_LAYER,
    forward_flops_per_token,
    parameter_count,
    values_of_a_layer,
)
from service.domain.models.described import model_of
from service.domain.models.model import Model
from service.domain.models.usual_config import GATED_ACTIVATIONS, usual

PATCHES_OF_AN_IMAGE = 4096
"""Patches of an image for encoders that take images of any size: about a megapixel (assumed)."""


def image_tower(config: Config, hidden: int) -> tuple[float | None, float | None]:
    """Returns the parameters of a language model's encoder of images, and its FLOPs per token of an image.

    Both are None if the model has no such encoder. A patch attends to all patches of the image or of its window.
    Several patches become one token: they are concatenated (`spatial_merge_size`) or pooled (`mm_tokens_per_image`,
    `downsample_ratio`, `pixel_shuffle_ratio`).
    """
    vision = section(config, "vision_config")
    if not vision:
        return None, None
    vision = {**vision, **{name: vision[other] for other, name in OTHER_NAMES.items() if vision.get(other) is not None}}
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
    side = number(vision, "spatial_merge_size") or number(config, "spatial_merge_size") or _merged_side(vision)
    joined = side * side * width
    # Qwen3-VL also projects the results of some layers of the encoder into layers of the language model.
    deep = vision.get("deepstack_visual_indexes")
    projectors = 1 + (len(deep) if isinstance(deep, list) else 0)
    projector = projectors * (joined * (joined if side > 1 else hidden) + joined * hidden)
    image, window = number(vision, "image_size"), number(vision, "window_size")
    attended = ((window or image or 0) // patch) ** 2 or PATCHES_OF_AN_IMAGE
    per_patch = 2.0 * (in_layers + patches) + 4.0 * layers * width * attended
    merged = side * side if side > 1 else _pooled_patches(config, vision, attended)
    return float(in_layers + patches + projector), merged * per_patch + 2.0 * projector


OTHER_NAMES = {
    "depth": "num_hidden_layers",
    "embed_dim": "hidden_size",
    **{f"vt_{name}": name for name in ("num_hidden_layers", "hidden_size", "intermediate_size")},
}
"""Name in a vision_config → usual name, which may be there too for the language model (Qwen2-VL, Kimi K2.5)."""


def _merged_side(vision: Config) -> int:
    """Returns the patches on a side of the square that is joined into one token (Kimi K2.5); 1 for no such square."""
    kernel = vision.get("merge_kernel_size")
    return number({"side": kernel[0]}, "side") or 1 if isinstance(kernel, list) and kernel else 1


def _pooled_patches(config: Config, vision: Config, patches: int) -> float:
    """Returns the number of patches that are pooled into one token of an image."""
    tokens, pooled = number(config, "mm_tokens_per_image"), number(vision, "pooling_kernel_size")
    if pooled:
        return float(pooled * pooled)
    ratio = vision.get("pixel_shuffle_ratio") or config.get("downsample_ratio") or 1.0
    if not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ImpossibleModel(
            "The ratio of pooled patches is between 0 and 1.", field="huggingface_config.downsample_ratio"
        )
    return patches / tokens if tokens else 1.0 / ratio**2


def _image_encoder(config: Config, name: str) -> Model:
    """Reads a vision transformer (ViT) over the patches of an image, a token of its class, and registers.

    SigLIP has no token of the class, and pools the patches by attention instead: a layer more, for one token. Positions
    are learned, except those of DINOv3, which rotate. A masked autoencoder (ViT-MAE) is read as its encoder, which sees
    all patches once it is trained.
    """
    image, patch = number(config, "image_size") or 224, number(config, "patch_size") or 16
    kind = model_type(config)
    pools = kind.startswith("siglip")
    # The patches of SigLIP leave out a part of the image.
    if not patch or (image % patch and not pools):
        raise ImpossibleModel(
            f"Patches of {patch} do not divide an image of {image}.", field="huggingface_config.patch_size"
        )
    besides = (not pools) + (number(config, "num_register_tokens") or 0)
    tokens = (image // patch) ** 2 + besides
    # The type is set, because the vision part of a CLIP config has another type or none.
    encoder = usual({**config, "model_type": "vit", "vocab_size": 0, "max_position_embeddings": tokens})
    if kind == "dinov3_vit":
        encoder = replace(encoder, gated=flag(config, "use_gated_mlp", default=False), learned_positions=besides)
    patches = (number(config, "num_channels") or 3) * patch * patch * encoder.hidden
    pooling = pools * (4 * encoder.hidden + 2 * encoder.ffn) * encoder.hidden
    parameters = parameter_count(encoder) + patches + pooling
    per_token = forward_flops_per_token(encoder, tokens).total
    return replace(
        model_of(encoder, name=name),
        family="vit",
        parameters=parameters,
        active_parameters=parameters,
        forward_flops_per_sample=tokens * per_token + 2.0 * patches * (image // patch) ** 2,
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
SIGLIP_TEXT = {
    **CLIP_TEXT, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "vocab_size": 32000,
    "max_position_embeddings": 64,
}  # fmt: skip
SIGLIP_VISION = {**CLIP_VISION, "patch_size": 16}
"""Defaults of the library `transformers` for SigLIP."""


def _defaults(config: Config, part: str) -> Config:
    """Returns the defaults of the class for the encoder of images (`vision`) or of texts (`text`)."""
    siglip = model_type(config).startswith("siglip")
    defaults = {"vision": (CLIP_VISION, SIGLIP_VISION), "text": (CLIP_TEXT, SIGLIP_TEXT)}
    return {**defaults[part][siglip], "model_type": f"{'siglip' if siglip else 'clip'}_{part}_model"}


def _image_tower_alone(config: Config, name: str) -> Model:
    return _image_encoder({**_defaults(config, "vision"), **config}, name)


def _text_tower_alone(config: Config, name: str) -> Model:
    """Reads the encoder of texts of CLIP or SigLIP, which generates nothing."""
    text = usual({**_defaults(config, "text"), **config, "model_type": "bert"})
    return replace(model_of(text, name=name), family="encoder")


def _pair(config: Config, name: str) -> Model:
    """Reads CLIP or SigLIP: an encoder of images and one of texts, in CLIP with a projection to a common width."""
    image = _image_encoder({**_defaults(config, "vision"), **section(config, "vision_config")}, name)
    defaults = {**_defaults(config, "text"), **section(config, "text_config"), "model_type": "bert"}
    # The encoder of texts of CLIP has causal attention, although it generates nothing.
    text = replace(usual(defaults), decoder=model_type(config) == "clip")
    assert image.transformer is not None
    assert image.forward_flops_per_sample is not None
    wide = text.hidden if model_type(config) != "clip" else image.transformer.hidden + text.hidden
    projections = (number(config, "projection_dim") or 512 if model_type(config) == "clip" else text.hidden) * wide
    # The embedding of the text encoder is not multiplied, and there is no output projection.
    per_token = forward_flops_per_token(replace(text, vocabulary=0), text.context_tokens).total
    parameters = image.parameters + parameter_count(text) + projections
    towers = (image.transformer, text)
    written = sum(t.layers * t.context_tokens * values_of_a_layer(t.hidden, t.ffn) for t in towers)
    return replace(
        image,
        activation_values_per_sample=written + image.transformer.context_tokens * image.transformer.hidden,
        blocks=sum(t.layers for t in towers),
        block_inputs_per_sample=sum(t.layers * t.context_tokens * t.hidden for t in towers),
        weight_layers=PRODUCTS_OF_A_LAYER * sum(t.layers for t in towers) + 3,
        parameters=parameters,
        active_parameters=parameters,
        transformer=None,
        forward_flops_per_sample=image.forward_flops_per_sample + text.context_tokens * per_token,
        sample=f"{image.sample} and text of {text.context_tokens} tokens",
    )


IMAGE_MODELS: dict[str, Callable[[Config, str], Model]] = {
    **dict.fromkeys(("clip", "siglip"), _pair),
    **dict.fromkeys(("vit", "deit", "dinov2", "dinov2_with_registers", "dinov3_vit", "vit_mae"), _image_encoder),
    **dict.fromkeys(("clip_vision_model", "siglip_vision_model"), _image_tower_alone),
    **dict.fromkeys(("clip_text_model", "siglip_text_model"), _text_tower_alone),
}
