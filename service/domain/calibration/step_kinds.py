"""The kinds of step that are calibrated together, with the patterns of the coefficients of each term.

The terms of a step are defined by the rooflines of `domain/physics`, and the features by `features.py` there.
"""

from collections.abc import Mapping, Sequence

from service.domain.calibration.coefficients import Pattern, StepKind

BROAD, WIDE, MIDDLE, NARROW = 1.0, 0.5, 0.25, 0.12
"""Prior standard deviations of coefficients, which are logarithms, from broad scopes to narrow ones."""

EVERYTHING = ""
"""The pattern without features. Its only coefficient applies to all steps of a kind."""

RUN_EFFECTS = ("source", "group")
"""Features that only published runs have: the source of a run, and its group (a model on a GPU from a source). Their
coefficients absorb what the runs of one source have in common, so that the others do not."""

Spreads = Mapping[float, Sequence[str]]
"""Prior standard deviation → the patterns that have it, each as features separated by spaces."""


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
    """Builds a kind of step.

    `whole` has the patterns of the whole step, and `terms` the factor before the fit and the patterns of each term.
    """
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
        WIDE: ("usual_class", "stack", "family", "measured"),
        MIDDLE: (
            "release", "model", "method", "purpose", "architecture precision", "stack precision",
            "stack architecture", "stack family", "release family", "model stack", "method stack", "method usual_class",
        ),
        NARROW: (
            # Cards with the same chip differ by their power, which has a term, so little is left for "gpu".
            "gpu", "recipe", "model precision", "model architecture", "stack gpu", "gpu precision", "purpose stack",
            "checkpointing stack", "zero stack", "#log_gpus several", "measured family", "measured stack",
        ),
        0.1: ("#log_gpus measured", "#log_length family", "#log_length stack"),
        0.05: ("#log_gpus stack", "#log_gpus model", "#log_micro stack", "#log_micro model"),
    },
    {
        "matrix": (0.3, {BROAD: (EVERYTHING,), WIDE: ("architecture precision", "family"), MIDDLE: ("usual_class",)}),
        "narrow": (0.15, {BROAD: (EVERYTHING,), WIDE: ("family",), MIDDLE: ("architecture",)}),
        "attention": (0.5, {BROAD: (EVERYTHING,), MIDDLE: ("architecture",)}),
        "memory": (0.8, {
            BROAD: (EVERYTHING, "family", "usual_class"),
            WIDE: ("usual_class family", "model"),
            MIDDLE: ("architecture",),
        }),
        "power": (1.0, {BROAD: (EVERYTHING,), WIDE: ("family",)}),
        "weights": (0.5, {BROAD: (EVERYTHING,)}),
        "launch": (0.5, {BROAD: (EVERYTHING, "usual_class", "family"), WIDE: ("stack",)}),
        "tensor": (0.7, {BROAD: (EVERYTHING,), WIDE: ("usual_class",), MIDDLE: ("link",)}),
        "context": (0.5, {BROAD: (EVERYTHING,)}),
        "routing": (1.0, {BROAD: (EVERYTHING,), WIDE: ("stack", "release")}),
        "expert": (0.8, {BROAD: (EVERYTHING,), WIDE: ("stack",), MIDDLE: ("link", "architecture")}),
        "pipeline": (0.5, {BROAD: (EVERYTHING,), MIDDLE: ("link",)}),
        "data": (0.3, {BROAD: (EVERYTHING,), WIDE: ("usual_class", "stack"), MIDDLE: ("link",)}),
        "optimizer": (1.2, {BROAD: (EVERYTHING,), WIDE: ("usual_class",)}),
        "offload": (1.0, {BROAD: (EVERYTHING,)}),
        "fetch": (1.0, {BROAD: (EVERYTHING,)}),
        "gather": (1.0, {BROAD: (EVERYTHING,), WIDE: ("stack",)}),
        "step": (1.0, {BROAD: (EVERYTHING, "usual_class")}),
        "input": (0.02, {BROAD: (EVERYTHING, "usual_class"), WIDE: ("stack",)}),
    },
    bounded=("matrix", "attention"),
    # A run that is timed as a whole also evaluates and saves, and a larger micro-batch uses a GPU better.
    signs={"measured": 1, "log_micro": -1},
    banded_by=(("stack",), ("class", "precision"), ("class",)),
)  # fmt: skip
"""Steps of training."""

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
        "weights": (0.2, {
            WIDE: (EVERYTHING, "stack", "apart", "apart stack", "apart stack bits"),
            # One token at a time uses less of the bandwidth of an A100 than of a card with slower memory.
            MIDDLE: ("apart architecture", "apart tier architecture"),
            NARROW: ("stack bits",),
            0.05: ("architecture", "tier"),
        }),
        "unpacking": (3.0, {BROAD: (EVERYTHING, "apart"), WIDE: ("stack",)}),
        "cache": (1.15, {WIDE: ("apart",), NARROW: (EVERYTHING, "stack", "architecture")}),
        "matrix": (1.5, {WIDE: ("apart",), NARROW: (EVERYTHING, "stack", "family", "architecture precision")}),
        "prefill": (1.8, {
            BROAD: ("apart",),
            WIDE: ("apart stack",),
            MIDDLE: ("family",),
            NARROW: (EVERYTHING, "stack", "architecture precision", "stack architecture", "release"),
        }),
        "attention": (2.0, {NARROW: (EVERYTHING, "stack", "architecture")}),
        # Each expert multiplies few tokens, and some more than others.
        "prefill_experts": (3.0, {
            WIDE: (EVERYTHING,), MIDDLE: ("stack", "release"), NARROW: ("architecture precision",),
        }),
        "prefill_memory": (0.5, {NARROW: (EVERYTHING, "stack", "stack bits")}),
        "pass": (0.5, {NARROW: (EVERYTHING, "stack", "class")}),
        "launch": (0.3, {
            BROAD: ("apart", "apart stack"),
            WIDE: ("apart stack bits",),
            NARROW: (EVERYTHING, "class", "stack", "family", "stack bits"),
        }),
        "tensor": (1.5, {MIDDLE: ("stack", "link"), NARROW: (EVERYTHING,)}),
        "expert": (1.5, {NARROW: (EVERYTHING, "stack", "link")}),
        "latency": (1.0, {WIDE: ("apart",), NARROW: (EVERYTHING, "stack", "link")}),
        "step": (2.0, {BROAD: ("apart", "apart stack"), NARROW: (EVERYTHING, "stack", "release")}),
        "request": (1.0, {NARROW: (EVERYTHING, "stack", "release")}),
        "vocabulary": (1.0, {NARROW: (EVERYTHING, "stack")}),
        "arrival": (1.0, {WIDE: ("source",), NARROW: (EVERYTHING, "stack", "release")}),
        "prompt_launch": (1.0, {WIDE: (EVERYTHING,), MIDDLE: ("stack", "release")}),
        "prompt_routing": (0.3, {1.6: ("stack",), BROAD: (EVERYTHING,), MIDDLE: ("release",)}),
    },
    # Published rates of serving differ by arrival patterns and schedulers, which no feature describes.
    noise=0.3,
    # Where an engine lacks a kernel, all runs of a sweep are off: SGLang with MXFP4 on an A100 by a factor of eight.
    huber=0.05,
    # No engine reads its weights faster than the memory delivers them.
    bounded=("weights",),
    banded_by=(("class",),),
)  # fmt: skip
"""Tokens of language models, from the first to the last.

The factors before the fit are those of engines with continuous batching. Coefficients of these engines have narrow
priors, because a few sources have most of the runs. Other stacks have the feature `apart`, with wide priors.
"""

FIRST_TOKEN = StepKind("first_token", {}, {}, banded_by=(("stack",), ("class",)))
"""Error bands of the time to the first token. Its seconds have the coefficients of GENERATION."""

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
        "memory": (1.0, {
            WIDE: (EVERYTHING, "family", "class family"), MIDDLE: ("class", "model"), NARROW: ("architecture",),
        }),
        "power": (1.0, {BROAD: (EVERYTHING,)}),
        "matrix_power": (1.0, {BROAD: (EVERYTHING,)}),
        "weights": (1.0, {WIDE: (EVERYTHING,)}),
        # PyTorch starts the 250 kernels of ResNet-50 in 10 ms, on a T4 and on a V100: 40 us each.
        "launch": (8.0, {WIDE: (EVERYTHING, "stack", "release", "family"), NARROW: ("architecture",)}),
        "step": (0.3, {WIDE: (EVERYTHING, "stack", "release")}),
    },
    # Small batches are timed in milliseconds, which differ more than rates of full GPUs do.
    noise=0.2,
    banded_by=(("class",),),
    # The host queues kernels ahead of the GPU, except where kernels are short.
    on_host=("launch", "step"),
    overlap=1.5,
)  # fmt: skip
"""Forward passes of networks that answer in one pass, such as encoders and CNNs."""

DENOISING = _kind(
    "denoising",
    {
        # Schedulers, text encoders and decoders of images work between the passes.
        BROAD: (EVERYTHING,),
        # Most cards of consumers are in desktops, whose cores start kernels faster than those of servers.
        MIDDLE: ("class", "stack", "model", "architecture", "stack architecture", "tier"),
        NARROW: ("source", "release", "gpu", "stack precision", "architecture precision"),
        0.06: ("group", "gpu precision", "model precision"),
    },
    {
        "matrix": (1.5, {WIDE: (EVERYTHING,), MIDDLE: ("class",), NARROW: ("architecture precision",)}),
        "memory": (0.5, {WIDE: (EVERYTHING,), MIDDLE: ("class", "model"), NARROW: ("architecture",)}),
        "power": (1.0, {BROAD: (EVERYTHING,)}),
        "matrix_power": (1.0, {BROAD: (EVERYTHING,)}),
        "weights": (1.0, {WIDE: (EVERYTHING,)}),
        "launch": (4.0, {WIDE: (EVERYTHING, "stack", "release")}),
        "step": (0.3, {WIDE: (EVERYTHING, "stack", "release")}),
    },
    noise=0.2,
    banded_by=(("class",),),
    on_host=("launch", "step"),
    overlap=2.0,
)  # fmt: skip
"""Samples of diffusion models: all forward passes of a sample are one step."""

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
        # These bytes are counted from the operations, so a few runs must not move them far.
        "kept": (1.0, {NARROW: (EVERYTHING, "method", "stack", "method stack")}),
        "selected": (1.0, {NARROW: (EVERYTHING, "stack")}),
        "boundaries": (1.0, {WIDE: (EVERYTHING,), MIDDLE: ("stack",)}),
        "activations": (1.0, {WIDE: (EVERYTHING, "stack", "family", "model")}),
        "kv_cache": (1.0, {}),
        "sampler": (1.0, {}),
        "prompts": (1.0, {}),
    },
    noise=0.1,
)  # fmt: skip
"""Bytes of the parts of memory, which are calibrated as seconds are: stacks keep more than the formulas count."""

INFERENCE_MEMORY = StepKind("inference_memory", {}, {})
"""Error bands of the memory of inference. Its bytes have the coefficients of MEMORY, but smaller errors."""

KINDS = (TRAINING, GENERATION, FORWARD, DENOISING, MEMORY)
