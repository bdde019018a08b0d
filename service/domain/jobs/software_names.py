"""Names of software in the rules on where it runs, and their other names."""

from collections.abc import Collection

from service.domain.jobs.stacks import STACKS, STACKS_BY_NAME, software_called

OTHER_NAMES = {
    "apache-mxnet": "mxnet",
    "aws-neuron": "neuron",
    "bnb": "bitsandbytes",
    "cce": "cut-cross-entropy",
    "fast-socket": "nccl-fast-socket",
    "fastsocket": "nccl-fast-socket",
    "flash-attn": "flash-attention",
    "flash-attention-2": "flash-attention",
    "flash-attn-3": "flash-attention-3",
    "habana-synapseai": "synapse",
    "kohya": "kohya-ss",
    "liger": "liger-kernel",
    "lightning": "pytorch-lightning",
    "mig": "multi-instance-gpu",
    "ml-cross-entropy": "cut-cross-entropy",
    "mmdet": "mmdetection",
    "mind-spore": "mindspore",
    "neuron-sdk": "neuron",
    "open-clip-torch": "open-clip",
    "openclip": "open-clip",
    "paddle": "paddlepaddle",
    "random-forest": "scikit-learn",  # the usual library of the method
    "rapids": "cuml",
    "sd-scripts": "kohya-ss",
    "sdpa": "scaled-dot-product-attention",
    "sklearn": "scikit-learn",
    "synapseai": "synapse",
    "te": "transformer-engine",
    "torchscript": "pytorch",
}
"""Other name → name in the rules of software, for names that are no aliases of a stack or mean other software there."""


def software_name(name: str, known: Collection[str]) -> str | None:
    """Returns which of the known names a name of software means; None if it means none of them."""
    joined = _joined(name)
    names = (name.lower(), joined, OTHER_NAMES.get(joined), software_called(name).line)
    return next((spelling for spelling in names if spelling in known), None)


def aliases_of(name: str, known: Collection[str]) -> list[str]:
    """Returns the other names of a piece of software, sorted, with the programs that run in it and are not `known`."""
    stack = next((stack for stack in STACKS if stack.id == name), None)
    others = {alias for alias, meant in OTHER_NAMES.items() if meant == name}
    if stack is not None:
        others.update(stack.aliases, (each for each in stack.runs if software_name(each, known) == name))
    return sorted(others)


def has_other_releases(name: str, known: str) -> bool:
    """Returns whether a name is of a library or program that runs in the `known` software, and has its own releases."""
    joined = _joined(name)
    stack = STACKS_BY_NAME.get(joined)
    return known not in (joined, OTHER_NAMES.get(joined)) and stack is not None and joined in stack.runs


def _joined(name: str) -> str:
    return name.lower().replace(" ", "-").replace("_", "-")
