"""Checks of a layout against a configuration and a cluster: each error is a sentence about the layout."""

from math import prod

from service.domain.errors import QuestionError
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import Layout

DEGREES = ("tensor", "pipeline", "context", "data")


def check_fixed(fixed: FixedLayout, config: Config, cluster: Cluster) -> None:
    """Raises `QuestionError` when no layout of this configuration on this cluster can have the fixed parts."""
    check_degrees(fixed, cluster)
    _check_heads(fixed, config)
    _check_experts(fixed, cluster)
    if isinstance(config, TrainingConfig):
        _check_batch(fixed, config, cluster)


def _check_batch(fixed: FixedLayout, config: TrainingConfig, cluster: Cluster) -> None:
    """Raises `QuestionError` if the fixed parts divide the global batch over no number of data-parallel ranks."""
    batch, micro, rounds = config.global_batch, fixed.micro_batch, fixed.accumulation
    if fixed.data and batch and batch < fixed.data:
        raise QuestionError(
            f"A global batch of {batch} cannot be spread over {fixed.data} data-parallel ranks: "
            "each needs at least one sample.",
            field="workload.global_batch_size",
        )
    if not (batch and micro and rounds):
        return
    others = prod(getattr(fixed, name) or 1 for name in DEGREES if name != "data")
    most = cluster.gpus // others
    ranks = [fixed.data] if fixed.data else [count for count in range(1, most + 1) if most % count == 0]
    # The last round may be filled in part, and no round may be empty.
    if not any(micro * count * (rounds - 1) < batch <= micro * count * rounds for count in ranks):
        over = " or ".join(str(count) for count in ranks)
        raise QuestionError(
            f"Micro-batches of {micro}, accumulated {rounds} times on {over} data-parallel ranks, do not make a "
            f"global batch of {batch}.",
            field="layout.accumulation",
        )


def check_degrees(layout: FixedLayout | Layout, cluster: Cluster) -> None:
    """Raises `QuestionError` unless the given degrees divide the cluster's GPUs, and all of them take all GPUs."""
    degrees = {name: getattr(layout, name) for name in DEGREES if getattr(layout, name) is not None}
    gpus, words = prod(degrees.values()), " x ".join(f"{name} {degree}" for name, degree in degrees.items())
    if len(degrees) == len(DEGREES) and gpus != cluster.gpus:
        raise QuestionError(
            f"The layout takes {gpus} GPUs ({words}), but the cluster has {cluster.gpus}.", field="layout"
        )
    if gpus and cluster.gpus % gpus:
        these = "1 GPU" if cluster.gpus == 1 else f"{cluster.gpus} GPUs"
        chips = (
            "" if cluster.gpu.kind == "gpu" else f" A layout counts each {cluster.gpu.name} once, and not its cores."
        )
        raise QuestionError(f"{these} cannot be divided into groups of {gpus} ({words}).{chips}", field="layout")


def _check_heads(fixed: FixedLayout, config: Config) -> None:
    t, tensor = config.model.transformer, fixed.tensor
    if t is None or tensor is None or config.software.stack_class.pads_heads:
        return
    for heads, kind in ((t.heads, "attention heads"), (t.ssm_heads, "heads of state spaces")):
        if heads % tensor:
            raise QuestionError(f"{heads} {kind} cannot be divided over {tensor} tensor-parallel GPUs.", field="layout")
    for heads in t.shared_heads:
        if heads % tensor and tensor % heads:
            raise QuestionError(
                f"{heads} key-value heads can neither be divided over {tensor} tensor-parallel GPUs nor be copied to "
                "equally many GPUs each.",
                field="layout",
            )


def _check_experts(fixed: FixedLayout, cluster: Cluster) -> None:
    expert, stages = fixed.expert or 1, fixed.pipeline or 1
    ranks = cluster.gpus // stages
    if ranks % expert:
        of_stage = f"each of {stages} pipeline stages has {ranks}" if stages > 1 else f"there are {ranks}"
        raise QuestionError(
            f"Experts cannot be spread over {expert} GPUs: {of_stage}, which groups of {expert} do not divide.",
            field="layout",
        )
