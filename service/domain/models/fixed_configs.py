"""Networks that are known by their parameters and FLOPs for a sample of one size: images in stages, and sound."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import Config, dimension, dimensions, number, section
from service.domain.models.counts import PRODUCTS_OF_A_LAYER, values_of_a_layer
from service.domain.models.model import Model

SECONDS = 10
"""Seconds of sound of a sample: networks over sound take any length, and usual utterances have 5 to 15 s (assumed)."""

AUDIO_VALUES_PER_SECOND = 16_000
"""Sampling rate of the sound that speech networks read, in values per second."""

CLASSES = 1000
"""Classes of ImageNet, into which networks of images sort unless their config lists others."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of a network for one sample."""

    parameters: float
    multiplied: float
    """Multiplications."""
    products: int
    """Convolutions and matrix products."""
    written: float | None = None
    """Values that all layers write."""
    blocks: int | None = None
    """Layers that training can recompute one by one."""
    block_inputs: float | None = None
    """Values of the inputs of all blocks."""


def _network(name: str, family: str, counts: _Counts, sample: str) -> Model:
    return Model(
        name,
        name,
        family,
        counts.parameters,
        counts.parameters,
        forward_flops_per_sample=2.0 * counts.multiplied,
        sample=sample,
        activation_values_per_sample=counts.written,
        blocks=counts.blocks,
        block_inputs_per_sample=counts.block_inputs,
        weight_layers=counts.products,
    )


def numbers(config: Config, key: str) -> list[int]:
    """Returns the whole numbers under a key, at least one. Raises `ImpossibleModel`."""
    value = config.get(key)
    if not isinstance(value, list) or not 0 < len(value) <= 64:
        raise ImpossibleModel(f"{key} must be a list of numbers.", field=f"huggingface_config.{key}")
    return [number({key: each}, key) or 1 for each in value]


# Images whose size halves from stage to stage


def _stages(config: Config, widths: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns the layers, the width and the tokens of each stage, of which each has a quarter of the tokens."""
    layers = numbers(config, "depths")
    side = (number(config, "image_size") or 224) // (number(config, "patch_size") or 4)
    if len(layers) != len(widths):
        raise ImpossibleModel("depths and the widths of the stages differ in length.", field="huggingface_config")
    return [
        (count, width, (side >> stage) ** 2) for stage, (count, width) in enumerate(zip(layers, widths, strict=True))
    ]


def _swin(config: Config, name: str) -> Model:
    """Reads Swin (Liu et al. 2021, 2103.14030): attention in windows of an image; four patches merge between stages."""
    (first,) = dimensions(config, "embed_dim")
    window, ratio = number(config, "window_size") or 7, number(config, "mlp_ratio") or 4
    stages = _stages(config, [first << stage for stage in range(len(numbers(config, "depths")))])
    layer = 4 + 2 * ratio
    weights = [count * layer * width * width for count, width, _ in stages]
    merging = [2 * width * width for _, width, _ in stages[1:]]
    pairs = sum(2 * count * window * window * width * tokens for count, width, tokens in stages)
    counts = _of_stages(config, stages, (weights, merging, pairs), 5 + ratio, PRODUCTS_OF_A_LAYER)
    blocks, inputs = sum(count for count, _, _ in stages), sum(map(prod, stages))
    return _network(name, "vit", replace(counts, blocks=blocks, block_inputs=inputs), _image_of(config))


def _convnext(config: Config, name: str) -> Model:
    """Reads ConvNeXt (Liu et al. 2022, 2201.03545): convolutions of 7 x 7 by channel, and FFNs four times as wide."""
    widths = numbers(config, "hidden_sizes")
    stages = _stages(config, widths)
    weights = [count * (49 * width + 8 * width * width) for count, width, _ in stages]
    merging = [4 * before * width for before, width in pairwise(widths)]
    return _network(name, "cnn", _of_stages(config, stages, (weights, merging, 0), 6, 3), _image_of(config))


def _image_of(config: Config) -> str:
    image = number(config, "image_size") or 224
    return f"image {image}x{image}"


def _of_stages(
    config: Config,
    stages: Sequence[tuple[int, int, int]],
    work: tuple[list[int], list[int], int],
    written: int,
    products: int,
) -> _Counts:
    """Returns the counts of a network of stages with these weights in layers and between stages, and products of pairs
    of tokens. A layer has this number of products, which write values of this number of widths.
    """
    weights, merging, pairs = work
    patch = number(config, "patch_size") or 4
    stem, head = 3 * patch * patch * stages[0][1], stages[-1][1] * CLASSES
    tokens = [count for _, _, count in stages]
    multiplied = sum(map(prod, zip(weights, tokens, strict=True))) + sum(
        map(prod, zip(merging, tokens[1:], strict=True))
    )
    between = sum(width * count for _, width, count in stages)
    return _Counts(
        sum(weights) + sum(merging) + stem + head,
        multiplied + stem * tokens[0] + head + pairs,
        products * sum(count for count, _, _ in stages) + len(stages) + 1,
        written * sum(map(prod, stages)) + between + CLASSES,
    )


def _sam(config: Config, name: str) -> Model:
    """Reads SAM (Kirillov et al. 2023, 2304.02643): its encoder of images and, by their parameters alone, 4.06 million
    of the decoder of masks, which takes less than 1 % of the time.

    Most layers attend in windows, to whose size the image is padded.
    """
    vision = {
        "hidden_size": 768, "num_hidden_layers": 12, "image_size": 1024, "patch_size": 16, "window_size": 14,
        "output_channels": 256, "global_attn_indexes": [2, 5, 8, 11], **section(config, "vision_config"),
    }  # fmt: skip
    layers, width, image, patch, window, out = dimensions(
        vision, "layers", "hidden", "image_size", "patch_size", "window_size", "output_channels"
    )
    if not patch or not window or image < patch:
        raise ImpossibleModel(
            "vision_config needs a patch_size and a window_size above 0, and an image_size of at least a patch.",
            field="huggingface_config.vision_config",
        )
    ffn = dimension(vision, "ffn") or number(vision, "mlp_dim") or 4 * width
    side, everywhere = image // patch, len(numbers(vision, "global_attn_indexes"))
    tokens, padded = side * side, (-(-side // window) * window) ** 2
    stem, neck = 3 * patch * patch * width, width * out + 9 * out * out
    attention = 4 * width * width * (everywhere * tokens + (layers - everywhere) * padded)
    pairs = 2 * width * (everywhere * tokens * tokens + (layers - everywhere) * padded * window * window)
    multiplied = attention + pairs + (layers * 2 * width * ffn + stem + neck) * tokens
    parameters = layers * (4 * width * width + 2 * width * ffn) + stem + neck + tokens * width + MASK_DECODER
    # The values of its attention, whose scores it stores, are not counted.
    products = PRODUCTS_OF_A_LAYER * layers + 3
    counts = _Counts(parameters, multiplied, products, blocks=layers, block_inputs=layers * tokens * width)
    return _network(name, "segmentation", counts, f"image {image}x{image}")


MASK_DECODER = 4_058_340
"""Parameters of SAM's decoder of masks, the same in all sizes (its repository: facebookresearch/segment-anything)."""


# Sound


def _sound(config: Config, name: str) -> Model:
    """Reads wav2vec 2.0 (Baevski et al. 2020, 2006.11477), HuBERT and WavLM: convolutions over the samples, one over
    positions, and layers that attend to the whole recording. Defaults are those of their classes.
    """
    usual = {
        "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "conv_dim": [512] * 7, "conv_kernel": [10, 3, 3, 3, 3, 2, 2], "conv_stride": [5, 2, 2, 2, 2, 2, 2],
        "num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16,
    }  # fmt: skip
    config = {**usual, **config}
    layers, width, ffn, reach, groups = dimensions(
        config, "layers", "hidden", "ffn", "num_conv_pos_embeddings", "num_conv_pos_embedding_groups"
    )
    channels, kernels, strides = (numbers(config, key) for key in ("conv_dim", "conv_kernel", "conv_stride"))
    if not len(channels) == len(kernels) == len(strides):
        raise ImpossibleModel("The lists of convolutions differ in length.", field="huggingface_config.conv_dim")
    inner = layers * (4 * width * width + 2 * width * ffn)
    positions, projection = width * (width // max(1, groups)) * reach, channels[-1] * width
    weights, multiplied, written, values = 0, 0.0, 0.0, float(SECONDS * AUDIO_VALUES_PER_SECOND)
    for before, after, kernel, stride in zip([1, *channels], channels, kernels, strides, strict=False):
        values /= stride
        weights += before * after * kernel
        multiplied += before * after * kernel * values
        written += after * values
    counts = _Counts(
        weights + inner + positions + projection,
        multiplied + values * (inner + positions + projection + 2.0 * layers * width * values),
        PRODUCTS_OF_A_LAYER * layers + len(channels) + 2,
        written + values * (layers * values_of_a_layer(width, ffn) + 2 * width),
        blocks=layers,
        block_inputs=values * layers * width,
    )
    model = _network(name, "speech", counts, f"{SECONDS} s of sound")
    return replace(model, audio_seconds_per_sample=float(SECONDS))


def _albert(config: Config, name: str) -> Model:
    """Reads ALBERT (Lan et al. 2019, 1909.11942): a group of layers that is run many times, and a narrow embedding."""
    layers, width, ffn, vocabulary, length = dimensions(
        config, "layers", "hidden", "ffn", "vocabulary", "context_tokens"
    )
    narrow, groups = number(config, "embedding_size") or 128, number(config, "num_hidden_groups") or 1
    layer = 4 * width * width + 2 * width * ffn
    parameters = narrow * (vocabulary + length + width) + groups * layer + width * width
    multiplied = length * (layers * (layer + 2 * width * length) + narrow * width)
    written = length * (layers * values_of_a_layer(width, ffn) + width)
    counts = _Counts(parameters, multiplied, PRODUCTS_OF_A_LAYER * layers + 2, written)
    return _network(name, "encoder", counts, f"sequence of {length} tokens")


FIXED_MODELS: dict[str, Callable[[Config, str], Model]] = {
    "albert": _albert,
    "convnext": _convnext,
    "swin": _swin,
    "sam": _sam,
    **dict.fromkeys(("wav2vec2", "hubert", "wavlm"), _sound),
}
