"""Stacks that are near to a name which is none of theirs: those that a program runs, or one that is spelt similarly."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

from service.domain.catalog.names import LONGEST_NAME, VERY_CLOSE
from service.domain.jobs.stacks import STACKS_BY_NAME

_STACKS_OF_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "nim": ("tensorrt-llm", "vllm", "sglang"),  # NVIDIA's page on the profiles of NIM for LLMs, 2026-03-03
    "dynamo": ("sglang", "tensorrt-llm", "vllm"),  # its README of 2026
    "triton": ("tensorrt", "onnxruntime", "pytorch", "tensorflow", "vllm"),  # README of its backends
    # Recalled on 2026-11-24.
    "torchserve": ("pytorch", "torchscript", "torch-compile"),
    "litserve": ("pytorch",),
    "kserve": ("vllm", "transformers"),  # the two backends of its Hugging Face runtime
    "djl": ("vllm", "tensorrt-llm"),  # the engines of its LMI containers
    "lmi": ("vllm", "tensorrt-llm"),
    "ray": ("vllm", "sglang"),  # Ray Serve LLM
    "aibrix": ("vllm",),
    "bentoml": ("vllm", "sglang"),
    "openllm": ("vllm",),
    "xinference": ("vllm", "sglang", "transformers", "llama.cpp"),
    "localai": ("llama.cpp", "vllm"),
    "tabbyapi": ("exllamav3", "exllamav2"),
    # Recalled on 2026-11-26.
    "aphrodite": ("vllm",),
    "gpustack": ("vllm", "sglang", "llama.cpp"),
    "jetstream": ("maxtext",),
    "fastembed": ("onnxruntime",),
    "xdit": ("pytorch",),
    # Trainers with several back ends; recalled on 2026-11-27.
    "verl": ("pytorch", "megatron-core"),
    "slime": ("megatron-core",),
    "areal": ("pytorch", "megatron-core"),
    "skyrl": ("pytorch", "megatron-core"),
    "xtuner": ("pytorch", "deepspeed"),
}
"""By a word of the name of a server or a trainer, the stacks that do its work: which of them is for the caller to say.
"""


def similar_stacks(name: str) -> tuple[str, ...]:
    """Returns the stacks that a program of this name runs, those that a word of it names, or else the one whose name
    differs by a letter or two.

    Names that are less similar may be those of software without a stack.
    """
    words = [word.removesuffix("server") for word in re.findall("[a-z]+", name.lower())]
    if program := next((word for word in words if word in _STACKS_OF_PROGRAMS), None):
        return _STACKS_OF_PROGRAMS[program]
    if stacks := tuple(word for word in words if word in STACKS_BY_NAME):
        return stacks
    return tuple(get_close_matches(name.lower()[:LONGEST_NAME], STACKS_BY_NAME, n=1, cutoff=VERY_CLOSE))
