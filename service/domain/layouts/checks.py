"""What cannot be of a layout, as a sentence about it."""

from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.layouts.usual import FixedLayout
from service.domain.models.counts import is_routed
from service.domain.models.model import Model
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import Layout

DEGREES = ("tensor", "pipeline", "context", "data")
CUTS_OF_A_TRANSFORMER = ("tensor", "pipeline", "context", "expert")


def check_fixed(fixed: FixedLayout, config: TrainingConfig | InferenceConfig, cluster: Cluster) -> None:
    """Raises `QuestionError` when what is fixed cannot be part of any layout of this work on this machine."""
    _check_degrees(fixed, cluster)
    _check_cuts(fixed, config)
    if fixed.expert and fixed.expert > cluster.gpus // (fixed.pipeline or 1):
        raise QuestionError(
            f"Experts cannot be spread over {fixed.expert} GPUs: each of {fixed.pipeline or 1} pipeline stages has "
            f"{cluster.gpus // (fixed.pipeline or 1)}.",
            field="layout",
        )
    if isinstance(config, TrainingConfig) and fixed.data:
        check_batch(config, fixed.data)


def check_layout(layout: Layout, config: TrainingConfig | InferenceConfig, cluster: Cluster) -> None:
    """The same of a whole layout, which must take all GPUs of the machine."""
    names = (*DEGREES, "expert")
    check_fixed(FixedLayout(**{name: getattr(layout, name) for name in names}), config, cluster)


def check_batch(config: TrainingConfig, data: int) -> None:
    """Raises `QuestionError` when some data-parallel ranks would have no sample."""
    if config.global_batch and config.global_batch < data:
        raise QuestionError(
            f"A global batch of {config.global_batch} cannot be spread over {data} data-parallel ranks: "
            "each needs a sample at least.",
            field="global_batch_size",
        )


def check_context(config: TrainingConfig | InferenceConfig) -> None:
    """Raises `QuestionError` when sequences are longer than the model was built for; 0 is unknown and passes."""
    t = config.model.transformer
    if t is None or not t.context_tokens:
        return
    training = isinstance(config, TrainingConfig)
    asked = config.sequence_length if isinstance(config, TrainingConfig) else config.input_length + config.output_length
    if asked > t.context_tokens:
        raise QuestionError(
            f"{config.model.name} reads at most {t.context_tokens} tokens, and {asked:g} are asked for.",
            field="sequence_length" if training else "input_length",
        )


def _check_degrees(fixed: FixedLayout, cluster: Cluster) -> None:
    told = {name: getattr(fixed, name) for name in DEGREES if getattr(fixed, name) is not None}
    taken = 1
    for degree in told.values():
        taken *= degree
    words = " x ".join(f"{name} {degree}" for name, degree in told.items())
    if len(told) == len(DEGREES) and taken != cluster.gpus:
        raise QuestionError(
            f"The layout takes {taken} GPUs ({words}), but the machine has {cluster.gpus}.", field="layout"
        )
    if taken and cluster.gpus % taken:
        raise QuestionError(f"{cluster.gpus} GPUs cannot be divided into groups of {taken} ({words}).", field="layout")


def _check_cuts(fixed: FixedLayout, config: TrainingConfig | InferenceConfig) -> None:
    model, t = config.model, config.model.transformer
    if t is None:
        _check_uncut(fixed, model)
        return
    pads_heads = config.software.stack_class.pads_heads
    if fixed.tensor and t.heads % fixed.tensor and not pads_heads:
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
    """Language models that are known by their parameters alone may still be cut; we only cannot say what it costs."""
    if model.family in ("llm", "enc_dec") or is_routed(model):
        return
    for name in CUTS_OF_A_TRANSFORMER:
        if (getattr(fixed, name) or 1) > 1:
            raise QuestionError(
                f"{model.name} can only be spread by data: {name} {getattr(fixed, name)} needs a transformer.",
                field="layout",
            )
