"""Software stacks as profiles of the physics: a class that shares a way of running, and a stack's own habits."""

import re
from dataclasses import dataclass
from typing import Literal

StackClass = Literal["megatron", "tuned", "fsdp", "eager", "graph", "engine", "neuron"]
"""`megatron` cuts matrices, `tuned` is a benchmark's own code, `fsdp` shards states, `eager` runs layer by layer,
`graph` compiles the network, `engine` batches requests continuously, `neuron` is compiled for AWS' own chips."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A line of software: what it was never measured at, it borrows from its class."""

    id: str
    way: StackClass
    spelled: str = ""
    """A pattern of what people call it, beside its id."""
    before_flash: bool = False
    """Its published profiles predate FlashAttention."""
    half_weights: bool = False
    """Fine-tunes in 16 bits without an fp32 copy of the weights, unless told otherwise."""


STACKS = (
    Stack("megatron-bridge", "megatron"),
    Stack("nemo-automodel", "fsdp", r"nemo[ -]?automodel|automodel"),
    Stack("nemo-megatron", "megatron", r"nemo[ -]megatron"),
    Stack("nemo", "megatron", r"nemo|nvidia[ -]nemo"),
    Stack("megatron-core", "megatron"),
    Stack("megatron-lm", "megatron", r"megatron"),
    Stack("mlperf-training", "tuned"),
    Stack("llm-foundry", "fsdp"),
    Stack("torchtitan", "fsdp"),
    Stack("torchtune", "eager", half_weights=True),
    Stack("litgpt-generate", "eager"),
    Stack("litgpt", "eager", r"lit-gpt"),
    Stack("llama-factory", "eager"),
    Stack("tensorrt-llm", "engine", r"trt-?llm|tensorrt_llm"),
    Stack("mlperf-inference", "graph"),
    Stack("tensorrt", "graph", r"trt"),
    Stack("vllm", "engine"),
    Stack("sglang", "engine"),
    Stack("tgi", "engine", r"text-generation-inference"),
    Stack("llama.cpp", "graph", r"llama[ -]?cpp|ollama"),
    Stack("gpt-fast", "graph"),
    Stack("exllamav2", "graph", r"exllama"),
    Stack("mlc-llm", "graph", r"mlc"),
    Stack("neuronx-distributed", "neuron"),
    Stack("transformers-neuronx", "neuron"),
    Stack("torch-neuronx", "neuron", r"neuronx?", before_flash=True),
    Stack("gpt-neox", "megatron"),
    Stack("deepspeed-inference", "engine"),
    Stack("deepspeed", "fsdp"),
    Stack("transformers", "eager", r"accelerate|hugging ?face|hf|peft|trl|llama-recipes|unsloth", half_weights=True),
    Stack("pytorch-ngc", "eager", r"ngc[ -]pytorch", before_flash=True),
    Stack("mxnet", "graph", before_flash=True),
    Stack("tensorflow", "graph", r"tf|keras|horovod", before_flash=True),
    Stack("paddle", "graph", r"paddlepaddle", before_flash=True),
    Stack("pytorch", "eager", r"torch|pytorch-lightning|lightning", before_flash=True),
    Stack("hai-llm", "megatron"),
)  # fmt: skip
BY_ID = {stack.id: stack for stack in STACKS}

VERSION = re.compile(r"\d+(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class SoftwareStack:
    """The stack: its line (vllm), its release where that matters (vllm-0.6.0), or unknown."""

    line: str = "unknown"
    release: str = ""

    @property
    def profile(self) -> str:
        return self.release or self.line

    @property
    def stack(self) -> Stack | None:
        return BY_ID.get(self.line)

    @property
    def way(self) -> str:
        """Its class, or `unknown`."""
        stack = self.stack
        return "unknown" if stack is None else stack.way


UNKNOWN = SoftwareStack()


def software_called(text: str | None) -> SoftwareStack:
    """The profile of a name with or without a version, such as `vllm==0.6.0`; what has no profile is unknown."""
    if not text:
        return UNKNOWN
    name, version = _split(text)
    stack = BY_ID.get(name) or next((s for s in STACKS if s.spelled and re.fullmatch(s.spelled, name)), None)
    if stack is None:
        return UNKNOWN
    return SoftwareStack(stack.id, f"{stack.id}-{version}" if version else "")


REQUIREMENT = re.compile(r"\s*([^<>=!~@\[\s]+)\s*(?:\[[^\]]*\])?\s*([<>=!~@]*)(.*)", re.DOTALL)


def _split(text: str) -> tuple[str, str]:
    """The name and the first version of a requirement; a version after `<` or `!` tells of none that runs."""
    read = REQUIREMENT.fullmatch(text.lower())
    if read is None:
        return "", ""
    name, operator, rest = read.groups()
    found = VERSION.search(rest)
    return name, found[0] if found and "<" not in operator and "!" not in operator else ""
