"""Translates the layout of a request into the parts of a layout that are fixed."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from service.api.http.fields import AtLeastOneOfMany, BodyModel, whole
from service.api.workload.workload import WorkloadRequest
from service.domain.jobs.fixed_layout import STAGE_OF_OFFLOADED_WEIGHTS, FixedLayout

Degree = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(whole)]


class FixedLayoutRequest(BodyModel):
    """How the job is divided over the GPUs."""

    tensor: Degree | None = None
    """GPUs over which each layer is divided."""
    pipeline: Degree | None = None
    """Groups of GPUs that hold consecutive layers."""
    data: Degree | None = None
    """Replicas of the model, which share the samples."""
    context: Degree | None = None
    """GPUs over which each sequence is divided."""
    expert: Degree | None = None
    """GPUs over which the experts are divided."""
    zero_stage: Annotated[
        int | None,
        Field(ge=0, le=3, description="What ZeRO shards: 1 optimizer states, 2 gradients too, 3 weights too."),
        BeforeValidator(whole),
    ] = None
    micro_batch: Degree | None = None
    """Samples per GPU and pass."""
    accumulation: AtLeastOneOfMany | None = None
    """Micro-batches per optimizer step."""
    activation_checkpointing: Literal["none", "selective", "full"] | None = None
    """Which activations the backward pass recomputes."""
    virtual_stages: Degree | None = None
    """Stages of an interleaved pipeline on each group of GPUs."""


def fixed_layout(sent: FixedLayoutRequest | None, work: WorkloadRequest) -> FixedLayout:
    """Returns the fields of the layout that are given; a training batch per GPU is the micro-batch, and weights are
    sharded if they are offloaded.
    """
    given = {} if sent is None else {name: getattr(sent, name) for name in FixedLayoutRequest.model_fields}
    if work.task == "training" and given.get("micro_batch") is None:
        given["micro_batch"] = work.batch_size
    if work.offload_parameters and given.get("zero_stage") is None:
        given["zero_stage"] = STAGE_OF_OFFLOADED_WEIGHTS
    return FixedLayout(**given)
