"""Checks of a layout against a configuration and a cluster: each error is a sentence about the layout."""

from math import prod

from service.domain.errors import QuestionError
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.layouts.usual import FixedLayout
from service.domain.models.counts import is_routed
from service.domain.models.model import Model
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import Layout

DEGREES = ("tensor", "pipeline", "context", "data")
CUTS_OF_A_TRANSFORMER = ("tensor", "pipeline", "context", "expert")


def check_fixed(fixed: FixedLayout, config: Config, cluster: Cluster) -> None:
    """Raises `QuestionError` when no layout of this configuration on this cluster can have the fixed parts."""
    check_degrees(fixed, cluster)
    _check_cuts(fixed, config)
    gpus_per_stage = cluster.gpus // (fixed.pipeline or 1)
    if fixed.expert and fixed.expert > gpus_per_stage:
        raise QuestionError(
            f"Experts cannot be spread over {fixed.expert} GPUs: each of {fixed.pipeline or 1} pipeline stages has "
            f"{gpus_per_stage}.",
            field="layout",
        )
    if isinstance(config, TrainingConfig) and fixed.data:
        _check_batch(config, fixed.data)


def check_degrees(layout: FixedLayout | Layout, cluster: Cluster) -> None:
    """Raises `QuestionError` unless the given degrees divide the cluster's GPUs, and all of them take all GPUs."""
    degrees = {name: getattr(layout, name) for name in DEGREES if getattr(layout, name) is not None}
    gpus, words = prod(degrees.values()), " x ".join(f"{name} {degree}" for name, degree in degrees.items())
    if len(degrees) == len(DEGREES) and gpus != cluster.gpus:
        raise QuestionError(
            f"The layout takes {gpus} GPUs ({words}), but the cluster has {cluster.gpus}.", field="layout"
        )
    if gpus and cluster.gpus % gpus:
        raise QuestionError(f"{cluster.gpus} GPUs cannot be divided into groups of {gpus} ({words}).", field="layout")


def _check_batch(config: TrainingConfig, data: int) -> None:
    if config.global_batch and config.global_batch < data:
        raise QuestionError(
            f"A global batch of {config.global_batch} cannot be spread over {data} data-parallel ranks: "
            "each needs a sample at least.",
            field="global_batch_size",
        )


def _check_cuts(fixed: FixedLayout, config: Config) -> None:
    model, t = config.model, config.model.transformer
    if t is None:
        _check_uncut(fixed, model)
        return
    if fixed.tensor and t.heads % fixed.tensor and not config.software.stack_class.pads_heads:
        raise QuestionError(
            f"{t.heads} attention heads cannot be divided over {fixed.tensor} tensor-parallel GPUs.", field="layout"
        )
    if fixed.pipeline and fixed.pipeline > t.layers:
        raise QuestionError(f"{t.layers} layers cannot be cut into {fixed.pipeline} pipeline stages.", field="layout")
    expert = fixed.expert or 1
    if expert > 1 and t.experts % expert:
        raise QuestionError(f"{t.experts} experts cannot be divided over {expert} GPUs.", field="layout")
    if expert > 1 and not t.experts and not is_routed(model):
        raise QuestionError(f"{model.name} has no experts to spread over {expert} GPUs.", field="layout")


def _check_uncut(fixed: FixedLayout, model: Model) -> None:
    # A language model whose dimensions are unknown may be divided; only the cost of that is unknown.
    if model.family in ("llm", "enc_dec") or is_routed(model):
        return
    for name in CUTS_OF_A_TRANSFORMER:
        if (getattr(fixed, name) or 1) > 1:
            raise QuestionError(
                f"{model.name} can only be spread by data: {name} {getattr(fixed, name)} needs a transformer.",
                field="layout",
            )
