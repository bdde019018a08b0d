"""The kinds of step that are calibrated together, with the scopes that each part of a step looks at."""

from collections.abc import Mapping, Sequence

from service.domain.calibration.coefficients import Pattern, StepKind

BROAD, WIDE, MIDDLE, NARROW = 1.0, 0.5, 0.25, 0.12
"""How far coefficients may reach from zero (standard deviations of their logarithm), from broad scopes to narrow."""

EVERYTHING = ""
"""The pattern of no feature, whose one coefficient applies to all steps of a kind."""

RUN_EFFECTS = ("source", "group")
"""Features of a published run that no question has: what the runs of one source, or of one group (a model on a GPU from
a source), have in common. They keep the habits of a source out of all other coefficients."""

Spreads = Mapping[float, Sequence[str]]
"""How far coefficients may reach → the patterns of that reach, each as features separated by spaces."""


def _kind(
    name: str,
    whole: Spreads,
    terms: Mapping[str, tuple[float, Spreads]],
    noise: float = 0.15,
    huber: float = 0.1,
    bounded: Sequence[str] = (),
    signs: Mapping[str, int] | None = None,
    banded_by: Sequence[Pattern] = (),
    on_host: Sequence[str] = (),
    overlap: float = 1.0,
) -> StepKind:
    """Builds a kind of step from the patterns of the whole step, and each term's factor before the fit and patterns."""
    spreads = {"*": whole} | {term: by_spread for term, (_, by_spread) in terms.items()}
    patterns = {
        term: tuple((tuple(text.split()), spread) for spread, texts in by_spread.items() for text in texts)
        for term, by_spread in spreads.items()
    }
    start = {term: factor for term, (factor, _) in terms.items()}
    return StepKind(
        name, patterns, start, noise, huber, frozenset(bounded), signs or {}, banded_by, frozenset(on_host), overlap
    )


TRAINING = _kind(
    "training",
    {
        WIDE: ("class", "stack", "family", "measured stack"),
        MIDDLE: (
            "release", "model", "method", "purpose", "architecture precision", "stack precision",
            "stack architecture", "stack family", "release family", "model stack", "method stack",
        ),
        NARROW: (
            # Cards with one chip differ by their power, which has a term, so that little is left for "gpu".
            "gpu", "recipe", "model precision", "model architecture", "stack gpu", "gpu precision", "purpose stack",
            "checkpointing stack", "zero stack", "#log_gpus several", "measured family",
        ),
        0.1: ("#log_gpus measured", "#log_length family", "#log_length stack"),
        0.05: ("#log_gpus stack", "#log_gpus model", "#log_micro stack", "#log_micro model"),
    },
    {
        "matrix": (0.3, {BROAD: (EVERYTHING,), WIDE: ("architecture precision", "family"), MIDDLE: ("class",)}),
        "narrow": (0.15, {BROAD: (EVERYTHING,), WIDE: ("family",), MIDDLE: ("architecture",)}),
        "attention": (0.5, {BROAD: (EVERYTHING,), MIDDLE: ("architecture",)}),
        "memory": (0.8, {
            BROAD: (EVERYTHING, "family", "class"),
            WIDE: ("class family", "model"),
            MIDDLE: ("architecture",),
        }),
        "power": (1.0, {BROAD: (EVERYTHING,), WIDE: ("family",)}),
        "weights": (0.5, {BROAD: (EVERYTHING,)}),
        "launch": (0.5, {BROAD: (EVERYTHING, "class", "family"), WIDE: ("stack",)}),
        "tensor": (0.7, {BROAD: (EVERYTHING,), WIDE: ("class",), MIDDLE: ("link",)}),
        "context": (0.5, {BROAD: (EVERYTHING,)}),
        "routing": (1.0, {BROAD: (EVERYTHING,), WIDE: ("stack", "release")}),
        "expert": (0.8, {BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("link", "architecture")}),
        "bubble": (0.8, {BROAD: (EVERYTHING,), MIDDLE: ("stack",)}),
        "pipeline": (0.5, {BROAD: (EVERYTHING,), MIDDLE: ("link",)}),
        "data": (0.3, {BROAD: (EVERYTHING,), WIDE: ("class", "stack"), MIDDLE: ("link",)}),
        "optimizer": (1.2, {BROAD: (EVERYTHING,), WIDE: ("class",)}),
        "offload": (1.0, {BROAD: (EVERYTHING,)}),
        "step": (1.0, {BROAD: (EVERYTHING, "class")}),
        "input": (0.02, {BROAD: (EVERYTHING, "class"), WIDE: ("stack",)}),
    },
    bounded=("matrix", "attention"),
    # A whole run also evaluates and saves, and a larger micro-batch fills a GPU better.
    signs={"measured": 1, "log_micro": -1},
    banded_by=(("class", "precision"), ("class",)),
)  # fmt: skip

GENERATION = _kind(
    "generation",
    {
        BROAD: ("apart",),
        WIDE: ("apart stack", "apart architecture"),
        MIDDLE: ("source", "#log_pipeline stack", "apart stack bits"),
        0.18: ("tier architecture",),
        NARROW: (
            "group", "class", "stack", "release", "model", "gpu", "architecture", "family",
            "stack architecture", "stack model", "stack bits", "apart gpu", "apart model",
        ),
    },
    {
        "weights": (1.3, {
            WIDE: ("apart", "apart stack", "apart stack bits"),
            MIDDLE: ("apart architecture",),
            NARROW: (EVERYTHING, "stack", "stack bits"),
            0.05: ("architecture", "tier"),
        }),
        "cache": (1.15, {WIDE: ("apart",), NARROW: (EVERYTHING, "stack", "architecture")}),
        "matrix": (1.5, {WIDE: ("apart",), NARROW: (EVERYTHING, "stack", "family", "architecture precision")}),
        "prefill": (1.8, {
            BROAD: ("apart",),
            WIDE: ("apart stack",),
            MIDDLE: ("family",),
            NARROW: (EVERYTHING, "stack", "architecture precision", "stack architecture", "release"),
        }),
        "attention": (2.0, {NARROW: (EVERYTHING, "stack", "architecture")}),
        "prefill_memory": (0.5, {NARROW: (EVERYTHING, "stack", "stack bits")}),
        "pass": (0.5, {NARROW: (EVERYTHING, "stack", "class")}),
        "launch": (0.3, {
            BROAD: ("apart", "apart stack"),
            WIDE: ("apart stack bits",),
            NARROW: (EVERYTHING, "class", "stack", "family", "stack bits"),
        }),
        "routing": (0.02, {NARROW: (EVERYTHING, "stack", "release")}),
        "tensor": (1.5, {MIDDLE: ("stack", "link"), NARROW: (EVERYTHING,)}),
        "expert": (1.5, {NARROW: (EVERYTHING, "stack", "link")}),
        "latency": (1.0, {WIDE: ("apart",), NARROW: (EVERYTHING, "stack", "link")}),
        "step": (2.0, {BROAD: ("apart", "apart stack"), NARROW: (EVERYTHING, "stack", "release")}),
        "request": (1.0, {NARROW: (EVERYTHING, "stack", "release")}),
        "vocabulary": (1.0, {NARROW: (EVERYTHING, "stack")}),
        "arrival": (1.0, {NARROW: (EVERYTHING, "stack", "release")}),
        "prompt_launch": (1.0, {WIDE: (EVERYTHING,), MIDDLE: ("stack", "release")}),
        "prompt_routing": (1.0, {1.6: ("stack",), BROAD: (EVERYTHING,), MIDDLE: ("release",)}),
    },
    # Published rates of serving differ by arrival patterns and schedulers, which no feature describes.
    noise=0.3,
    # Whole sweeps are off where an engine lacks a kernel, such as SGLang for MXFP4 on an A100 by a factor of eight.
    huber=0.05,
    banded_by=(("class",),),
)  # fmt: skip
"""Tokens of language models, from the first to the last.

The factors before the fit are those of engines that batch continuously, and their coefficients stay near them: a few
sources with many runs each would otherwise move what all engines share. Other stacks (`apart`) start far from them.
"""

FIRST_TOKEN = StepKind("first_token", {}, {}, banded_by=(("class",),))
"""Error bands of the time to the first token; its seconds are those of GENERATION."""

FORWARD = _kind(
    "forward",
    {
        MIDDLE: ("class", "stack", "family", "model"),
        NARROW: (
            "source", "release", "gpu", "architecture", "stack architecture", "stack family", "stack precision",
            "architecture precision", "family precision", "offline stack",
        ),
        0.06: ("group", "gpu precision", "model precision"),
        0.03: ("#log_gpus stack",),
    },
    {
        "matrix": (1.5, {WIDE: (EVERYTHING,), MIDDLE: ("family", "class"), NARROW: ("architecture precision",)}),
        "memory": (0.5, {WIDE: (EVERYTHING, "family"), MIDDLE: ("class", "model"), NARROW: ("architecture",)}),
        "weights": (1.0, {WIDE: (EVERYTHING,)}),
        # PyTorch starts the 250 kernels of ResNet-50 in 10 ms, on a T4 and on a V100: 40 us each.
        "launch": (8.0, {WIDE: (EVERYTHING, "stack", "release", "family")}),
        "step": (0.3, {WIDE: (EVERYTHING, "stack", "release")}),
    },
    # Small batches are timed in milliseconds, which differ more than rates of full GPUs do.
    noise=0.2,
    banded_by=(("class",),),
    # Kernels wait in a queue, so that the host is ahead of the GPU except where kernels are short.
    on_host=("launch", "step"),
    overlap=1.5,
)  # fmt: skip

DENOISING = _kind(
    "denoising",
    {
        # Schedulers, text encoders and decoders of images work between the passes.
        BROAD: (EVERYTHING,),
        MIDDLE: ("class", "stack", "model", "architecture", "stack architecture"),
        NARROW: ("source", "release", "gpu", "stack precision", "architecture precision"),
        0.06: ("group", "gpu precision", "model precision"),
    },
    {
        "matrix": (1.5, {WIDE: (EVERYTHING,), MIDDLE: ("class",), NARROW: ("architecture precision",)}),
        "memory": (0.5, {WIDE: (EVERYTHING,), MIDDLE: ("class", "model"), NARROW: ("architecture",)}),
        "weights": (1.0, {WIDE: (EVERYTHING,)}),
        "launch": (8.0, {WIDE: (EVERYTHING, "stack", "release")}),
        "step": (0.3, {WIDE: (EVERYTHING, "stack", "release")}),
    },
    noise=0.2,
    banded_by=(("class",),),
    on_host=("launch", "step"),
    overlap=1.5,
)  # fmt: skip
"""Samples of a diffusion model, by all of its forward passes."""

MEMORY = _kind(
    "memory",
    {
        0.05: ("stack", "model", "source", "group"),
    },
    {
        "weights": (1.0, {MIDDLE: ("sharded stack", "method sharded")}),
        "gradients": (1.0, {MIDDLE: ("class",)}),
        "optimizer": (1.0, {NARROW: ("class",)}),
        "live": (1.0, {WIDE: (EVERYTHING,), MIDDLE: ("stack",)}),
        "context": (1.0, {WIDE: (EVERYTHING, "class", "stack")}),
        "logits": (1.0, {WIDE: (EVERYTHING, "stack"), MIDDLE: ("class",)}),
        # Counted from the operations, so that few runs may not move them far.
        "kept": (1.0, {MIDDLE: (EVERYTHING,), NARROW: ("method", "stack", "method stack")}),
        "selected": (1.0, {NARROW: (EVERYTHING, "stack")}),
        "boundaries": (1.0, {WIDE: (EVERYTHING,), MIDDLE: ("stack",)}),
        "activations": (1.0, {WIDE: (EVERYTHING, "stack", "family", "model")}),
        "kv_cache": (1.0, {}),
        "prompts": (1.0, {}),
    },
    noise=0.1,
)  # fmt: skip
"""Bytes by part, calibrated like seconds: what stacks keep beyond the arithmetic."""

INFERENCE_MEMORY = StepKind("inference_memory", {}, {})
"""Error bands of the memory of inference, whose parts are better known than those of training; its bytes are those of
MEMORY."""

KINDS = (TRAINING, GENERATION, FORWARD, DENOISING, MEMORY)
