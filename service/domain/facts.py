"""What coefficients are looked up by: names and counts of a question, never rates of its hardware."""

from math import log

from service.domain.efficiency import Facts
from service.domain.machine import Machine
from service.domain.parallelism import Layout
from service.domain.stacks import Software
from service.domain.workload import Inference, Training


def software_facts(software: Software) -> dict[str, str | float]:
    return {
        "class": software.way,
        "stack": software.line,
        "release": software.release or software.line,
    }


def hardware_facts(machine: Machine) -> dict[str, str | float]:
    gpu = machine.gpu
    return {
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "gpu": gpu.id,
        "link": "none" if machine.gpus == 1 else "pcie" if machine.interconnect in ("pcie", "none") else "fast",
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
