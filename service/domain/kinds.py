"""The kinds of work that are calibrated together, and which scopes each part of a step looks at."""

from service.domain.efficiency import EVERYTHING, Kind, Pattern

BROAD, WIDE, MIDDLE, NARROW = 1.0, 0.5, 0.25, 0.12
"""How far coefficients may reach from zero (standard deviations of their logarithm), from broad scopes to narrow."""

TRAINING = Kind(
    "training",
    {
        "*": (
            (("class",), WIDE), (("stack",), WIDE), (("release",), MIDDLE), (("family",), WIDE), (("model",), MIDDLE),
            (("architecture", "precision"), MIDDLE), (("gpu",), MIDDLE), (("method",), MIDDLE),
            (("stack", "precision"), MIDDLE), (("stack", "architecture"), MIDDLE), (("stack", "family"), MIDDLE),
            (("model", "precision"), MIDDLE), (("model", "architecture"), NARROW), (("model", "stack"), MIDDLE),
            (("stack", "gpu"), NARROW), (("method", "stack"), MIDDLE), (("measured", "stack"), WIDE), (("measured", "family"), WIDE),
            (("#log_gpus", "several"), NARROW), (("#log_gpus", "stack"), 0.05), (("#log_gpus", "model"), 0.05),
            (("purpose",), MIDDLE), (("purpose", "stack"), NARROW), (("#log_gpus", "measured"), 0.1), (("recipe",), NARROW), (("#log_length", "family"), 0.1), (("#log_length", "stack"), 0.1),
            (("checkpointing", "stack"), NARROW), (("zero", "stack"), NARROW), (("gpu", "precision"), NARROW),
            (("#log_micro", "stack"), 0.05), (("#log_micro", "model"), 0.05),
        ),
        "matrix": ((EVERYTHING, BROAD), (("architecture", "precision"), WIDE), (("family",), WIDE), (("class",), MIDDLE)),
        "narrow": ((EVERYTHING, BROAD), (("family",), WIDE), (("architecture",), MIDDLE)),
        "attention": ((EVERYTHING, BROAD), (("architecture",), MIDDLE)),
        "memory": ((EVERYTHING, BROAD), (("family",), BROAD), (("class",), WIDE), (("model",), WIDE), (("architecture",), MIDDLE)),
        "weights": ((EVERYTHING, BROAD),),
        "launch": ((EVERYTHING, BROAD), (("class",), BROAD), (("stack",), WIDE), (("family",), BROAD)),
        "tensor": ((EVERYTHING, BROAD), (("class",), WIDE), (("link",), MIDDLE)),
        "context": ((EVERYTHING, BROAD),),
        "routing": ((EVERYTHING, BROAD), (("stack",), WIDE), (("release",), WIDE)),
        "expert": ((EVERYTHING, BROAD), (("stack",), WIDE), (("link",), MIDDLE), (("architecture",), MIDDLE)),
        "bubble": ((EVERYTHING, BROAD), (("stack",), MIDDLE)),
        "data": ((EVERYTHING, BROAD), (("class",), WIDE), (("link",), MIDDLE), (("stack",), WIDE)),
        "optimizer": ((EVERYTHING, BROAD), (("class",), WIDE)),
        "step": ((EVERYTHING, BROAD), (("class",), BROAD)),
        "input": ((EVERYTHING, BROAD), (("class",), BROAD), (("stack",), WIDE)),
    },
    {"matrix": 1.3, "narrow": 0.15, "attention": 1.5, "memory": 0.8, "weights": 0.5, "launch": 0.5, "tensor": 0.7, "context": 0.5, "routing": 1.0, "expert": 0.8,
     "bubble": 0.8, "data": 0.3, "optimizer": 1.2, "step": 1.0, "input": 0.02},
)  # fmt: skip

_LANGUAGE: dict[str, tuple[tuple[Pattern, float], ...]] = {
    "*": (
        (("class",), WIDE), (("stack",), WIDE), (("release",), MIDDLE), (("model",), MIDDLE), (("gpu",), MIDDLE),
        (("architecture",), MIDDLE), (("family",), MIDDLE), (("stack", "architecture"), MIDDLE), (("stack", "gpu"), NARROW),
        (("stack", "model"), MIDDLE), (("stack", "bits"), MIDDLE), (("gpu", "bits"), NARROW), (("model", "bits"), NARROW),
        (("what",), WIDE), (("what", "stack"), MIDDLE), (("what", "release"), NARROW), (("#log_pipeline", "stack"), 0.1),
        (("#log_tensor", "stack"), 0.1),
    ),
    "weights": ((EVERYTHING, BROAD), (("stack",), WIDE), (("stack", "bits"), WIDE), (("architecture",), MIDDLE), (("tier",), MIDDLE)),
    "cache": ((EVERYTHING, BROAD), (("stack",), WIDE), (("architecture",), MIDDLE)),
    "matrix": ((EVERYTHING, BROAD), (("stack",), WIDE), (("architecture", "precision"), MIDDLE)),
    "prefill": ((EVERYTHING, BROAD), (("stack",), WIDE), (("architecture", "precision"), MIDDLE), (("family",), MIDDLE),
                (("stack", "architecture"), MIDDLE)),
    "attention": ((EVERYTHING, WIDE),),
    "memory": ((EVERYTHING, BROAD), (("stack",), WIDE), (("stack", "bits"), MIDDLE)),
    "prefill_memory": ((EVERYTHING, BROAD), (("stack",), WIDE)),
    "launch": ((EVERYTHING, BROAD), (("class",), BROAD), (("stack",), BROAD), (("stack", "bits"), MIDDLE)),
    "tensor": ((EVERYTHING, BROAD), (("stack",), WIDE), (("link",), MIDDLE)),
    "latency": ((EVERYTHING, BROAD), (("stack",), WIDE), (("link",), MIDDLE)),
    "step": ((EVERYTHING, BROAD), (("stack",), BROAD), (("release",), WIDE)),
    "request": ((EVERYTHING, BROAD), (("stack",), BROAD), (("release",), WIDE)),
    "vocabulary": ((EVERYTHING, BROAD), (("stack",), WIDE)),
}  # fmt: skip
_LANGUAGE_START = {"weights": 1.3, "cache": 1.3, "matrix": 1.5, "prefill": 1.8, "attention": 1.5, "memory": 0.5, "prefill_memory": 0.5,
                   "launch": 0.3, "tensor": 1.5, "latency": 1.0, "step": 0.3, "request": 1.0, "vocabulary": 1.0}  # fmt: skip

DECODE = Kind("decode", _LANGUAGE, _LANGUAGE_START)
SERVING = Kind("serving", _LANGUAGE, _LANGUAGE_START, noise=0.3)
PREFILL = Kind("prefill", _LANGUAGE, _LANGUAGE_START)
FORWARD = Kind("forward", {
    "*": (
        (("class",), WIDE), (("stack",), WIDE), (("release",), MIDDLE), (("family",), WIDE), (("model",), WIDE), (("gpu",), MIDDLE),
        (("architecture",), MIDDLE), (("stack", "architecture"), MIDDLE), (("stack", "family"), MIDDLE),
        (("architecture", "precision"), MIDDLE), (("gpu", "precision"), NARROW), (("model", "precision"), NARROW), (("family", "precision"), MIDDLE),
        (("offline", "stack"), MIDDLE), (("#log_gpus", "stack"), 0.05), (("stack", "precision"), MIDDLE),
    ),
    "matrix": ((EVERYTHING, BROAD), (("family",), WIDE), (("architecture", "precision"), MIDDLE), (("class",), WIDE)),
    "memory": ((EVERYTHING, BROAD), (("family",), BROAD), (("class",), WIDE), (("model",), WIDE), (("architecture",), MIDDLE)),
    "weights": ((EVERYTHING, BROAD),),
    "launch": ((EVERYTHING, BROAD), (("stack",), BROAD), (("family",), WIDE), (("release",), MIDDLE)),
    "step": ((EVERYTHING, BROAD), (("stack",), BROAD), (("release",), WIDE)),
}, {"matrix": 1.5, "memory": 0.5, "weights": 1.0, "launch": 0.5, "step": 0.3})  # fmt: skip

MEMORY = Kind(
    "memory",
    {
        "*": ((("stack",), 0.05), (("model",), 0.05)),
        "weights": ((("sharded", "stack"), MIDDLE), (("method", "sharded"), MIDDLE)),
        "gradients": ((("class",), MIDDLE),),
        "optimizer": ((("class",), NARROW),),
        "live": ((EVERYTHING, WIDE),),
        "context": ((EVERYTHING, WIDE), (("class",), WIDE), (("stack",), WIDE)),
        "logits": ((EVERYTHING, WIDE), (("class",), MIDDLE), (("stack",), WIDE)),
        "kept": ((EVERYTHING, WIDE), (("method",), WIDE), (("stack",), MIDDLE), (("method", "stack"), MIDDLE)),
        "selected": ((EVERYTHING, WIDE), (("stack",), MIDDLE)),
        "boundaries": ((EVERYTHING, WIDE), (("stack",), MIDDLE)),
        "activations": ((EVERYTHING, WIDE), (("stack",), WIDE)),
        "kv_cache": (),
    },
    dict.fromkeys(("weights", "gradients", "optimizer", "live", "context", "logits", "kept", "selected", "boundaries", "activations",
                   "kv_cache"), 1.0),
    noise=0.1,
)  # fmt: skip
"""Bytes by part, calibrated like seconds: what stacks keep beyond the arithmetic."""

KINDS = (TRAINING, DECODE, SERVING, PREFILL, FORWARD, MEMORY)
