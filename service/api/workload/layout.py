"""Translates the layout of a request into the parts of a layout that are fixed."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from service.api.http.fields import AtLeastOneOfMany, BodyModel, whole
from service.domain.jobs.fixed_layout import FREE, FixedLayout

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
    """GPUs over which the experts are divided, with those of a tensor group that share each expert: tensor 2 and expert
    16 are eight groups of two GPUs."""
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
    """Groups of layers that each pipeline stage has in turn (interleaved schedule)."""


def fixed_layout(sent: FixedLayoutRequest | None) -> FixedLayout:
    """Returns the parts of a layout that are given."""
    if sent is None:
        return FREE
    return FixedLayout(**{name: getattr(sent, name) for name in FixedLayoutRequest.model_fields})
