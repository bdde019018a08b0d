"""Features that select coefficients: names and counts of a configuration and its cluster, never rates of hardware."""

from math import log

import numpy as np

from service.domain.calibration.coefficients import Column, Features, Levels, StepKind
from service.domain.calibration.scope_order import LIKE
from service.domain.calibration.step_kinds import DENOISING, FORWARD, GENERATION
from service.domain.catalog.precision import format_of
from service.domain.jobs.config import Config, InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import CHECKPOINTINGS
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import Layout, LayoutTable

USUAL_TRAINER = "eager"
"""The class of stacks in which most people train: plain PyTorch, or a trainer that is written in it (decision 15)."""

UNNAMED: dict[str, str | float] = {"class": "", "usual_class": USUAL_TRAINER, "stack": "", "release": "", "apart": ""}
"""Features of software without a name. Such runs need not share a stack, so they select no coefficient of a stack."""


def _software_features(software: SoftwareStack) -> dict[str, str | float]:
    if software == UNKNOWN:
        return UNNAMED
    stack_class = software.stack_class
    return {
        "class": stack_class.id,
        "usual_class": USUAL_TRAINER if stack_class.id == "unknown" else stack_class.id,
        "stack": software.line,
        "release": software.profile,
        "apart": "" if stack_class.id == "engine" else stack_class.id,
    }


def hardware_features(cluster: Cluster) -> dict[str, str | float]:
    """Features of a cluster."""
    gpu = cluster.gpu
    return {
        "vendor": gpu.vendor,
        "architecture": gpu.architecture,
        "gpu": gpu.id,
        LIKE: gpu.id,
        "link": "none" if cluster.gpus == 1 else "pcie" if cluster.interconnect in ("pcie", "none") else "fast",
        "tier": "consumer" if gpu.consumer else "server",
        "several": "yes" if cluster.gpus > 1 else "no",
        "log_gpus": log(cluster.gpus),
    }


def training_config_features(config: TrainingConfig) -> dict[str, str | float]:
    """Features of a training configuration on any cluster."""
    return _software_features(config.software) | {
        "family": config.model.family,
        "model": config.model.id,
        "method": config.method,
        "purpose": config.task,
        "precision": config.precision,
        "recipe": config.recipe,
        "log_length": log(max(1, (config.mean_length or config.sequence_length or 1) / 2048)),
    }


def layout_columns(layouts: LayoutTable) -> dict[str, Column]:
    """Features of a table of training layouts, one row per layout."""
    sharded = (layouts.zero_stage >= 3) & (layouts.data > 1)
    return {
        "checkpointing": Levels(CHECKPOINTINGS, layouts.checkpointing),
        "zero": Levels(("0", "1", "2", "3"), layouts.zero_stage.astype(np.int64)),
        "sharded": Levels(("", "yes"), sharded.astype(np.int64)),
        "log_micro": np.log(layouts.micro_batch),
    }


def training_features(config: TrainingConfig, cluster: Cluster, layout: Layout) -> Features:
    """All features of a training step in a layout."""
    return (
        training_config_features(config)
        | hardware_features(cluster)
        | {
            "checkpointing": layout.activation_checkpointing,
            "zero": str(layout.zero_stage),
            "sharded": "yes" if layout.zero_stage >= 3 and layout.data > 1 else "",
            "log_micro": log(max(1, layout.micro_batch)),
        }
    )


SMALL_BATCH = 128
"""Samples below which a forward pass is mostly launches of kernels."""


FORMAT_FEATURES = ("precision", "bits")
"""Features of inference that depend on its number formats."""


def inference_kind(config: InferenceConfig) -> StepKind:
    """Returns the kind of step that inference is calibrated as."""
    if config.model.generates:
        return GENERATION
    return DENOISING if config.steps > 1 else FORWARD


def inference_config_features(config: InferenceConfig) -> dict[str, str | float]:
    """Features of an inference configuration on any cluster."""
    bits = config.weight_bits or format_of(config.precision).stored_bits
    return _software_features(config.software) | {
        "method": "infer",
        "burst": "yes" if config.burst else "",
        "small": "yes" if not config.model.generates and 0 < (config.concurrency or 0) < SMALL_BATCH else "",
        "family": config.model.family,
        "model": config.model.id,
        "precision": config.precision,
        "bits": str(round(bits)),
    }


def forward_features(config: InferenceConfig) -> Features:
    """Features of forward passes: `offline` says whether all samples are available from the start."""
    return {"offline": "no" if config.concurrency or config.serving else "yes"}


def config_features(config: Config) -> Features:
    """Features of a configuration on any cluster."""
    return training_config_features(config) if isinstance(config, TrainingConfig) else inference_config_features(config)


def degree_columns(layouts: LayoutTable) -> dict[str, Column]:
    """Features of a table of inference layouts, one row per layout."""
    return {"log_tensor": np.log(layouts.tensor), "log_pipeline": np.log(layouts.pipeline)}


def inference_features(config: InferenceConfig, cluster: Cluster, layout: Layout) -> Features:
    """All features of inference in a layout."""
    degrees = {"log_tensor": log(layout.tensor), "log_pipeline": log(layout.pipeline)}
    return inference_config_features(config) | hardware_features(cluster) | degrees
