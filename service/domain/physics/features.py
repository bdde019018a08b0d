"""What coefficients are looked up by: names and counts of a question, never rates of its hardware."""

from math import log

import numpy as np

from service.domain.calibration.coefficients import Column, Features, Levels
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.stacks import SoftwareStack
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import CHECKPOINTINGS, Layout, LayoutTable


def software_facts(software: SoftwareStack) -> dict[str, str | float]:
    return {
        "class": software.way,
        "stack": software.line,
        "release": software.release or software.line,
    }


def hardware_facts(machine: Cluster) -> dict[str, str | float]:
    gpu = machine.gpu
    return {
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "gpu": gpu.id,
        "link": "none" if machine.gpus == 1 else "pcie" if machine.interconnect in ("pcie", "none") else "fast",
        "tier": "consumer" if gpu.id.startswith(("rtx-", "gtx-", "titan-")) else "server",
        "several": "yes" if machine.gpus > 1 else "no",
        "log_gpus": log(machine.gpus),
    }


def training_work_facts(work: TrainingConfig) -> dict[str, str | float]:
    return software_facts(work.software) | {
        "family": work.model.family,
        "model": work.model.id,
        "method": work.method,
        "purpose": work.task,
        "precision": work.precision,
        "recipe": work.recipe,
        "log_length": log(max(1, (work.mean_length or work.sequence_length or 1) / 2048)),
    }


def layout_facts(layout: Layout) -> dict[str, str | float]:
    return {
        "checkpointing": layout.activation_checkpointing,
        "zero": str(layout.zero_stage),
        "sharded": "yes" if layout.zero_stage >= 3 and layout.data > 1 else "",
        "log_micro": log(max(1, layout.micro_batch)),
    }


def layout_columns(layouts: LayoutTable) -> dict[str, Column]:
    """The same of many layouts."""
    sharded = (layouts.zero_stage >= 3) & (layouts.data > 1)
    return {
        "checkpointing": Levels(CHECKPOINTINGS, layouts.checkpointing),
        "zero": Levels(("0", "1", "2", "3"), layouts.zero_stage.astype(np.int64)),
        "sharded": Levels(("", "yes"), sharded.astype(np.int64)),
        "log_micro": np.log(layouts.micro_batch),
    }


def training_facts(work: TrainingConfig, machine: Cluster, layout: Layout) -> Features:
    return training_work_facts(work) | hardware_facts(machine) | layout_facts(layout)


def answering_work_facts(work: InferenceConfig) -> dict[str, str | float]:
    bits = work.weight_bits or {"fp32": 32, "fp8": 8, "int8": 8, "int4": 4, "fp4": 4}.get(work.precision, 16)
    return software_facts(work.software) | {
        "method": "infer",
        "family": work.model.family,
        "model": work.model.id,
        "precision": work.precision,
        "bits": str(round(bits)),
    }


def cut_columns(layouts: LayoutTable) -> dict[str, Column]:
    return {"log_tensor": np.log(layouts.tensor), "log_pipeline": np.log(layouts.pipeline)}


def inference_facts(work: InferenceConfig, machine: Cluster, layout: Layout) -> Features:
    cut = {"log_tensor": log(layout.tensor), "log_pipeline": log(layout.pipeline)}
    return answering_work_facts(work) | hardware_facts(machine) | cut
