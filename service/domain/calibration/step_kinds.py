"""The kinds of step that are calibrated together, with the scopes that each part of a step looks at."""

from collections.abc import Mapping, Sequence

from service.domain.calibration.coefficients import Pattern, StepKind

BROAD, WIDE, MIDDLE, NARROW = 1.0, 0.5, 0.25, 0.12
"""How far coefficients may reach from zero (standard deviations of their logarithm), from broad scopes to narrow."""

EVERYTHING = ""
"""The pattern of no feature, whose one coefficient applies to all steps of a kind."""


def _patterns(by_spread: Mapping[float, Sequence[str]]) -> tuple[tuple[Pattern, float], ...]:
    """Patterns as features separated by spaces, grouped by how far their coefficients may reach."""
    return tuple((tuple(text.split()), spread) for spread, texts in by_spread.items() for text in texts)


TRAINING = StepKind(
    "training",
    {
        "*": _patterns(
            {
                WIDE: ("class", "stack", "family", "measured stack", "measured family"),
                MIDDLE: (
                    "release", "model", "gpu", "method", "purpose", "architecture precision", "stack precision",
                    "stack architecture", "stack family", "model stack", "method stack",
                ),
                NARROW: (
                    "recipe", "model precision", "model architecture", "stack gpu", "gpu precision", "purpose stack",
                    "checkpointing stack", "zero stack", "#log_gpus several",
                ),
                0.1: ("#log_gpus measured", "#log_length family", "#log_length stack"),
                0.05: ("#log_gpus stack", "#log_gpus model", "#log_micro stack", "#log_micro model"),
            }
        ),
        "matrix": _patterns({BROAD: (EVERYTHING,), WIDE: ("architecture precision", "family"), MIDDLE: ("class",)}),
        "narrow": _patterns({BROAD: (EVERYTHING,), WIDE: ("family",), MIDDLE: ("architecture",)}),
        "attention": _patterns({BROAD: (EVERYTHING,), MIDDLE: ("architecture",)}),
        "memory": _patterns({BROAD: (EVERYTHING, "family"), WIDE: ("class", "model"), MIDDLE: ("architecture",)}),
        "weights": _patterns({BROAD: (EVERYTHING,)}),
        "launch": _patterns({BROAD: (EVERYTHING, "class", "family"), WIDE: ("stack",)}),
        "tensor": _patterns({BROAD: (EVERYTHING,), WIDE: ("class",), MIDDLE: ("link",)}),
        "context": _patterns({BROAD: (EVERYTHING,)}),
        "routing": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack", "release")}),
        "expert": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("link", "architecture")}),
        "bubble": _patterns({BROAD: (EVERYTHING,), MIDDLE: ("stack",)}),
        "data": _patterns({BROAD: (EVERYTHING,), WIDE: ("class", "stack"), MIDDLE: ("link",)}),
        "optimizer": _patterns({BROAD: (EVERYTHING,), WIDE: ("class",)}),
        "offload": _patterns({BROAD: (EVERYTHING,)}),
        "step": _patterns({BROAD: (EVERYTHING, "class")}),
        "input": _patterns({BROAD: (EVERYTHING, "class"), WIDE: ("stack",)}),
    },
    {
        "matrix": 1.3,
        "narrow": 0.15,
        "attention": 1.5,
        "memory": 0.8,
        "weights": 0.5,
        "launch": 0.5,
        "tensor": 0.7,
        "context": 0.5,
        "routing": 1.0,
        "expert": 0.8,
        "bubble": 0.8,
        "data": 0.3,
        "optimizer": 1.2,
        "offload": 1.0,
        "step": 1.0,
        "input": 0.02,
    },
)  # fmt: skip

_LANGUAGE = {
    "*": _patterns(
        {
            WIDE: ("class", "stack", "what", "#log_pipeline stack", "tier architecture"),
            MIDDLE: (
                "release", "model", "gpu", "architecture", "family", "stack architecture", "stack model", "stack bits",
                "what stack",
            ),
            NARROW: ("stack gpu", "gpu bits", "model bits", "what release"),
            0.1: ("#log_tensor stack",),
        }
    ),
    "weights": _patterns(
        {BROAD: (EVERYTHING,), WIDE: ("stack", "stack bits"), MIDDLE: ("architecture", "tier")}
    ),
    "cache": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("architecture",)}),
    "matrix": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("architecture precision",)}),
    "prefill": _patterns(
        {
            BROAD: (EVERYTHING,),
            WIDE: ("stack",),
            MIDDLE: ("architecture precision", "family", "stack architecture"),
        }
    ),
    "attention": _patterns({WIDE: (EVERYTHING,)}),
    "memory": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("stack bits",)}),
    "prefill_memory": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",)}),
    "launch": _patterns({BROAD: (EVERYTHING, "class", "stack"), MIDDLE: ("stack bits",)}),
    "tensor": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("link",)}),
    "latency": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("link",)}),
    "step": _patterns({BROAD: (EVERYTHING, "stack"), WIDE: ("release",)}),
    "request": _patterns({BROAD: (EVERYTHING, "stack"), WIDE: ("release",)}),
    "vocabulary": _patterns({BROAD: (EVERYTHING,), WIDE: ("stack",)}),
}  # fmt: skip
_LANGUAGE_START = {
    "weights": 1.3,
    "cache": 1.3,
    "matrix": 1.5,
    "prefill": 1.8,
    "attention": 1.5,
    "memory": 0.5,
    "prefill_memory": 0.5,
    "launch": 0.3,
    "tensor": 1.5,
    "latency": 1.0,
    "step": 0.3,
    "request": 1.0,
    "vocabulary": 1.0,
}

DECODE = StepKind("decode", _LANGUAGE, _LANGUAGE_START)
SERVING = StepKind("serving", _LANGUAGE, _LANGUAGE_START, noise=0.3)
PREFILL = StepKind("prefill", _LANGUAGE, _LANGUAGE_START)

FORWARD = StepKind(
    "forward",
    {
        "*": _patterns(
            {
                WIDE: ("class", "stack", "family", "model"),
                MIDDLE: (
                    "release", "gpu", "architecture", "stack architecture", "stack family", "stack precision",
                    "architecture precision", "family precision", "offline stack",
                ),
                NARROW: ("gpu precision", "model precision"),
                0.05: ("#log_gpus stack",),
            }
        ),
        "matrix": _patterns({BROAD: (EVERYTHING,), WIDE: ("family", "class"), MIDDLE: ("architecture precision",)}),
        "memory": _patterns({BROAD: (EVERYTHING, "family"), WIDE: ("class", "model"), MIDDLE: ("architecture",)}),
        "weights": _patterns({BROAD: (EVERYTHING,)}),
        "launch": _patterns({BROAD: (EVERYTHING, "stack"), WIDE: ("family",), MIDDLE: ("release",)}),
        "step": _patterns({BROAD: (EVERYTHING, "stack"), WIDE: ("release",)}),
    },
    {"matrix": 1.5, "memory": 0.5, "weights": 1.0, "launch": 0.5, "step": 0.3},
)  # fmt: skip

_MEMORY = {
    "weights": _patterns({MIDDLE: ("sharded stack", "method sharded")}),
    "gradients": _patterns({MIDDLE: ("class",)}),
    "optimizer": _patterns({NARROW: ("class",)}),
    "live": _patterns({WIDE: (EVERYTHING,), MIDDLE: ("stack",)}),
    "context": _patterns({WIDE: (EVERYTHING, "class", "stack")}),
    "logits": _patterns({WIDE: (EVERYTHING, "stack"), MIDDLE: ("class",)}),
    "kept": _patterns({WIDE: (EVERYTHING, "method"), MIDDLE: ("stack", "method stack")}),
    "selected": _patterns({WIDE: (EVERYTHING,), MIDDLE: ("stack",)}),
    "boundaries": _patterns({WIDE: (EVERYTHING,), MIDDLE: ("stack",)}),
    "activations": _patterns({WIDE: (EVERYTHING, "stack", "family", "model")}),
    "kv_cache": (),
}
MEMORY = StepKind(
    "memory", {"*": _patterns({0.05: ("stack", "model")}), **_MEMORY}, dict.fromkeys(_MEMORY, 1.0), noise=0.1
)
"""Bytes by part, calibrated like seconds: what stacks keep beyond the arithmetic."""

KINDS = (TRAINING, DECODE, SERVING, PREFILL, FORWARD, MEMORY)
