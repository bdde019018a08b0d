"""Number formats: how many bits a stored value takes, which peak of a chip runs it, and how well a chip runs it."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

Support = Literal["none", "reduced", "native", "accelerated"]
SUPPORT_LEVELS: tuple[Support, ...] = get_args(Support)
"""Levels of support in ascending order, from none to a matrix engine for the precision (`accelerated`)."""

SupportAsked = Literal["accelerated", "native", "any"]
ENOUGH: dict[SupportAsked, frozenset[Support]] = {
    "accelerated": frozenset({"accelerated"}),
    "native": frozenset({"accelerated", "native"}),
    "any": frozenset({"accelerated", "native", "reduced"}),
}
"""Level that a caller asks for → levels of support that satisfy it."""

USUAL_PRECISIONS = ("bf16", "fp16", "tf32", "fp32")
"""Precisions that most jobs run in, the most common first."""

SINGLE_PRECISIONS = frozenset({"fp32", "tf32"})
"""Precisions whose values take 32 bits in memory."""


FASTER_PRECISIONS = {"fp64": (*USUAL_PRECISIONS,), "fp32": USUAL_PRECISIONS[:3], "tf32": USUAL_PRECISIONS[:2]}
"""Precision → formats that are faster on GPUs that have them, the fastest first."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How values of a precision are stored and multiplied. One entry of `FORMATS` is all that a new precision needs."""

    stored_bits: float
    """Bits of a stored value, including its share of the scale of its block."""
    stand_ins: tuple[tuple[str, float], ...] = ()
    """Precisions to derive a missing peak from, the best first, each with the ratio of the missing peak to its peak."""
    runs_as: str = ""
    """The precision whose arithmetic multiplies values of this format, if not its own."""
    has_own_rates: bool = False
    """Whether a GPU runs the format only if the catalog has a rate of the GPU in it: matrix engines that multiply in
    `runs_as` may lack the scales of its blocks."""
    stored_only: bool = False
    """Whether weights are only stored in this format, and multiplied at 16 bits because no GPU multiplies in it."""
    expanded: bool = False
    """Whether products of more than one token first write the weights to memory at 16 bits, as bitsandbytes does in
    every engine that calls it. A single token has a kernel that reads the stored weights: Gemma 3 27B in vLLM on an RTX
    6000 Ada writes 20 tokens/s for one client and 9.4 for two (issue 3143 of Unsloth)."""
    unpacking_flops: float = 0.0
    """Operations outside of matrix engines with which kernels unpack a weight: look it up in a table and scale it. It
    is the order of what bitsandbytes takes on a T4, an RTX 6000 Ada and an H100 (its benchmarks; issue 3143 of
    Unsloth), and the fit multiplies it by `generation.unpacking`. 0 for formats that are unpacked while memory is
    read."""
    has_kernels: bool = False
    """Whether the libraries that write the format have kernels for it (GPTQ and AWQ), which stacks call that expand
    other narrow weights: Transformers runs Qwen3 32B in AWQ 1.6 times as fast as in bf16 on an H20."""


_OF_INT8 = (("int8", 1.0), ("fp16", 1.0), ("bf16", 1.0))
FORMATS = {
    "fp64": NumberFormat(64.0),
    "fp32": NumberFormat(32.0),
    "tf32": NumberFormat(32.0, (("bf16", 0.5), ("fp16", 0.5), ("fp4", 0.125))),
    "fp16": NumberFormat(16.0, (("bf16", 1.0), ("fp4", 0.25), ("fp8", 0.5), ("fp32", 1.0))),
    "bf16": NumberFormat(16.0, (("fp16", 1.0), ("fp4", 0.25), ("fp8", 0.5), ("fp32", 1.0))),
    "fp8": NumberFormat(8.0, (("fp4", 0.5), ("int8", 1.0), ("bf16", 1.0), ("fp16", 1.0))),
    "mxfp8": NumberFormat(8.25, runs_as="fp8", has_own_rates=True),  # scales of blocks of 32
    "int8": NumberFormat(8.0, (("fp8", 1.0), ("fp4", 0.5), ("fp16", 1.0), ("bf16", 1.0))),
    "int4": NumberFormat(4.25, _OF_INT8, stored_only=True, has_kernels=True),  # GPTQ and AWQ: scales of groups of 128
    "int1": NumberFormat(1.0, (("int4", 1.0), *_OF_INT8)),
    "nf4": NumberFormat(  # scales of blocks of 64
        4.5, runs_as="bf16", stored_only=True, expanded=True, unpacking_flops=50.0
    ),
    # Its scales are quantised again (2305.14314).
    "nf4-dq": NumberFormat(4.127, runs_as="bf16", stored_only=True, expanded=True, unpacking_flops=50.0),
    "fp4": NumberFormat(4.5, (("fp8", 1.0), ("bf16", 1.0), ("fp16", 1.0))),
    "mxfp4": NumberFormat(4.25, runs_as="fp4"),  # scales of blocks of 32
    "nvfp4": NumberFormat(4.5, runs_as="fp4"),  # scales of blocks of 16
}
_UNKNOWN_FORMAT = NumberFormat(16.0)

GGUF_BITS = {
    "iq1_s": 2.0042,
    "iq1_m": 2.146,
    "iq2_xxs": 2.3824,
    "iq2_xs": 2.5882,
    "iq2_s": 2.7403,
    "iq2_m": 2.9294,
    "iq3_xxs": 3.2548,
    "iq3_xs": 3.4977,
    "iq3_s": 3.6606,
    "iq3_m": 3.7628,
    "iq4_xs": 4.4597,
    "iq4_nl": 4.6818,
    "q2_k_s": 2.9697,
    "q2_k": 3.1593,
    "q3_k_s": 3.6429,
    "q3_k_m": 3.91,
    "q3_k_l": 4.2979,
    "q4_0": 4.5,
    "q4_1": 5.0,
    "q4_k_s": 4.6672,
    "q4_k_m": 4.8944,
    "q5_0": 5.5,
    "q5_1": 6.0,
    "q5_k_s": 5.5704,
    "q5_k_m": 5.7036,
    "q6_k": 6.5633,
    "q8_0": 8.5008,
}
"""Format of a GGUF file → bits over all of its weights, for Llama 3.1 8B (llama.cpp, `tools/quantize/README.md` of
2026). Files of other models differ by a few percent, since tables of tokens have another share of them. Of `q3_k_m` the
figure is that of Llama 2 7B, and of formats like `q4_0` those of their blocks of 32."""


def gguf_bits(name: str) -> float | None:
    """Returns the bits per weight of a format of GGUF files; None for other names."""
    return _GGUF_NAMES.get(_folded(name).removeprefix("gguf").removesuffix("gguf").strip(":."))


SPELLINGS = {
    "half": "fp16",
    "float16": "fp16",
    "single": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "double": "fp64",
    "float64": "fp64",
    "bfloat16": "bf16",
    "tensorfloat32": "tf32",
    **dict.fromkeys(
        ("float8", "fp8_e4m3", "fp8_e4m3fn", "fp8_e5m2", "fp8_dynamic", "fp8_block", "e4m3", "e5m2"), "fp8"
    ),
    **dict.fromkeys(("awq", "awq_int4", "int4_awq", "awq_marlin", "gptq_int4", "int4_gptq", "w4a16"), "int4"),
    **dict.fromkeys(("smoothquant", "int8_sq", "w8a8_int8", "int8_w8a8"), "int8"),
    **dict.fromkeys(("w8a8_fp8", "fp8_w8a8"), "fp8"),
}
"""Other names of precisions, without the word `precision`."""

_NO_PART_OF_A_NAME = re.compile(r"precision|tensor[ -]?cores?|^torch\.|(?<=\d)-mixed$")
SEVERAL_MEANINGS = {
    "full": ("fp32", "fp64"),
    **dict.fromkeys(("mixed", "amp", "16", "16_mixed"), ("fp16", "bf16")),
    **dict.fromkeys(("gptq", "gptq_marlin"), ("int4", "int8")),
    **dict.fromkeys(("bitsandbytes", "bnb"), ("nf4", "int8")),
    "4bit": ("int4", "nf4"),
    **dict.fromkeys(("8bit", "w8a8", "w8a16"), ("int8", "fp8")),
}
"""Names that mean different precisions to different people, or in different files → these precisions."""


def _folded(name: str) -> str:
    """Returns a name in lower case without separators."""
    return _SEPARATORS.sub("", name.lower())


_SEPARATORS = re.compile(r"[-_ ]")
_NAMES = {_folded(name): meant for name, meant in (*SPELLINGS.items(), *((each, each) for each in FORMATS))}
_GGUF_NAMES = {_folded(name): bits for name, bits in GGUF_BITS.items()}
_AMBIGUOUS = {_folded(name): meant for name, meant in SEVERAL_MEANINGS.items()}


def precision_called(name: str) -> str:
    """Returns the id of the precision that a name means; an unknown name is returned as it is.

    The words "precision" and "tensor cores", the prefix of PyTorch and the `-mixed` of Lightning are ignored. Raises
    `ValueError` for a name with several meanings: full precision is fp32 in training and fp64 in simulations.
    """
    plain = _folded(_NO_PART_OF_A_NAME.sub("", name.lower()))
    if plain in _AMBIGUOUS:
        raise ValueError(f"'{name}' is ambiguous: write {' or '.join(_AMBIGUOUS[plain])}")
    return _NAMES.get(plain, name)


@dataclass(frozen=True, slots=True)
class Precision:
    """A number format of the catalog, such as bf16."""

    id: str
    name: str
    kind: str
    """`float` or `int`."""
    bits: int
    """Bits of a value without the scale of its block, which the `stored_bits` of its format include."""
    exponent_bits: int | None
    """None for a format without an exponent."""
    mantissa_bits: int | None
    """None for a format without a mantissa."""
    description: str
    source: str


@dataclass(frozen=True, slots=True)
class Rate:
    """Performance of one GPU in one precision; peaks are 10^12 operations per second, None when unknown."""

    precision: str
    support: Support | None
    """`accelerated` by a matrix engine, `native`, `reduced` (a token rate, or by conversion) or `none`; None if
    unknown.
    """
    dense_tflops: float | None
    """Peak of one GPU in 10^12 operations per second; None if unknown."""
    sparse_tflops: float | None
    """Peak of one GPU where half of the weights are zero in a fixed pattern; None if unknown or without such a mode."""
    source: str
    note: str | None


def format_of(precision: str) -> NumberFormat:
    """Returns the format of a precision; a format of 16 bits for a name that is not listed."""
    return FORMATS.get(precision, _UNKNOWN_FORMAT)


def bytes_per_value(precision: str) -> float:
    """Returns the bytes of a stored value, block scales included."""
    return format_of(precision).stored_bits / 8


def activation_bytes(precision: str) -> float:
    """Bytes of a value between matrix products: formats below 16 bits apply to the products alone."""
    return max(2.0, bytes_per_value(precision))


def runs_as(precision: str) -> str:
    """Returns the precision whose arithmetic multiplies values of a precision: for most, the precision itself."""
    return format_of(precision).runs_as or precision
