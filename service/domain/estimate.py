"""An estimate: what a workload needs on a machine and what it yields, with the arithmetic shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

from service.domain.efficiency import Calibration, Facts, Kind, Pattern
from service.domain.machine import Machine
from service.domain.parallelism import Layout
from service.domain.throughput import Terms
from service.domain.workload import Inference, Software, Training

STACK_CLASSES = {
    "megatron-bridge": "megatron", "nemo": "megatron", "nemo-megatron": "megatron", "megatron-lm": "megatron",
    "megatron-core": "megatron", "mlperf-training": "tuned", "nemo-automodel": "fsdp", "llm-foundry": "fsdp",
    "torchtitan": "fsdp", "hai-llm": "megatron", "gpt-neox": "megatron", "deepspeed": "fsdp",
    "litgpt": "eager", "torchtune": "eager", "transformers": "eager", "llama-factory": "eager",
    "pytorch-ngc": "eager", "pytorch": "eager", "tensorflow": "graph", "mxnet": "graph", "paddle": "graph",
    "tensorrt-llm": "engine", "vllm": "engine", "tensorrt": "graph", "gpt-fast": "graph", "llama.cpp": "graph",
    "exllamav2": "graph", "mlc-llm": "graph", "litgpt-generate": "eager", "transformers-neuronx": "neuron",
    "torch-neuronx": "neuron", "neuronx-distributed": "neuron",
}  # fmt: skip
"""Stacks that share a way of running: what one of them was never measured at, it borrows from its class."""


def software_facts(software: Software) -> dict[str, str | float]:
    return {
        "class": STACK_CLASSES.get(software.line, "unknown"),
        "stack": software.line,
        "release": software.release or software.line,
    }


def hardware_facts(machine: Machine) -> dict[str, str | float]:
    gpu = machine.gpu
    return {
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "gpu": gpu.id,
        "link": machine.interconnect if machine.gpus_per_node > 1 else "none",
        "tier": "consumer" if gpu.id.startswith(("rtx-", "gtx-", "titan-")) else "server",
    }


def training_facts(work: Training, machine: Machine, layout: Layout) -> Facts:
    facts = software_facts(work.software) | hardware_facts(machine)
    facts |= {
        "family": work.model.family,
        "model": work.model.id,
        "method": work.method,
        "purpose": work.task,
        "precision": work.precision,
        "recipe": work.recipe,
        "log_nodes": log(max(1, machine.nodes)),
        "log_gpus": log(machine.gpus),
        "several": "yes" if machine.gpus > 1 else "no",
        "checkpointing": layout.activation_checkpointing,
        "zero": str(layout.zero_stage),
        "sharded": "yes" if layout.zero_stage >= 3 and layout.data > 1 else "",
        "log_micro": log(max(1, layout.micro_batch)),
        "log_length": log(max(1, (work.mean_length or work.sequence_length or 1) / 2048)),
    }
    return facts


def inference_facts(work: Inference, machine: Machine, layout: Layout) -> Facts:
    facts = software_facts(work.software) | hardware_facts(machine)
    bits = work.weight_bits or {"fp32": 32, "fp8": 8, "int8": 8, "int4": 4, "fp4": 4}.get(work.precision, 16)
    facts |= {
        "method": "infer",
        "family": work.model.family,
        "model": work.model.id,
        "precision": work.precision,
        "bits": str(round(bits)),
        "log_tensor": log(layout.tensor),
        "log_pipeline": log(layout.pipeline),
        "log_gpus": log(machine.gpus),
        "several": "yes" if machine.gpus > 1 else "no",
    }
    return facts


BROAD, WIDE, MIDDLE, NARROW = 1.0, 0.5, 0.25, 0.12
"""How far coefficients may reach from zero (standard deviations of their logarithm), from broad scopes to narrow."""

EVERYTHING: Pattern = ()

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
            (("checkpointing", "stack"), NARROW), (("zero", "stack"), NARROW), (("link", "family"), MIDDLE), (("gpu", "link"), NARROW), (("gpu", "precision"), NARROW),
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
        "data": ((EVERYTHING, BROAD), (("class",), WIDE), (("link",), WIDE), (("stack",), WIDE)),
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
    "tensor": ((EVERYTHING, BROAD), (("stack",), WIDE), (("link",), WIDE)),
    "latency": ((EVERYTHING, BROAD), (("stack",), WIDE), (("link",), WIDE)),
    "step": ((EVERYTHING, BROAD), (("stack",), BROAD), (("release",), WIDE)),
    "request": ((EVERYTHING, BROAD), (("stack",), BROAD), (("release",), WIDE)),
    "vocabulary": ((EVERYTHING, BROAD), (("stack",), WIDE)),
}  # fmt: skip
_LANGUAGE_START = {"weights": 1.3, "cache": 1.3, "matrix": 1.5, "prefill": 1.8, "attention": 1.5, "memory": 0.5, "prefill_memory": 0.5,
                   "launch": 0.3, "tensor": 1.5, "latency": 1.0, "step": 0.3, "request": 1.0, "vocabulary": 1.0}  # fmt: skip

DECODE = Kind("decode", _LANGUAGE, _LANGUAGE_START)
SERVING = Kind("serving", _LANGUAGE, _LANGUAGE_START)
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
)  # fmt: skip
"""Bytes by part, calibrated like seconds: what stacks keep beyond the arithmetic."""

KINDS = (TRAINING, DECODE, SERVING, PREFILL, FORWARD, MEMORY)


@dataclass(frozen=True, slots=True)
class Band:
    """Low, likely and high of a figure."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it really takes: seconds by part, and what it yields."""

    seconds: float
    parts: Mapping[str, float]
    units: float

    @property
    def rate(self) -> float:
        return self.units / self.seconds


def step_of(calibration: Calibration, kind: Kind, terms: Terms, facts: Facts) -> Step:
    parts = calibration.seconds(kind, terms.seconds, facts)
    return Step(sum(parts.values()), parts, terms.units)
