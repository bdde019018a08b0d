"""A model that somebody describes: from dimensions, or from parameters and forward FLOPs.

Where it turns out to be a model of the catalog under no name, it is that one, so that what was measured of it counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import product

from service.domain.errors import ImpossibleModel
from service.domain.models.model import (
    Model,
    Transformer,
    active_parameter_count,
    model_of,
    parameter_count,
    transformer_of,
)

SAME_PARAMETERS = 0.02
"""Figures of one network differ by what is counted: biases, positions, buffers."""
SAME_TRANSFORMER = 0.08
"""With all sizes the same, figures may differ by embeddings too."""
SAME_FLOPS = 0.06
CNN_ABOVE = 20.0
"""Forward FLOPs per parameter beyond which weights are used many times per sample: convolutions."""


def described(
    known: Iterable[Model],
    *,
    name: str | None = None,
    family: str | None = None,
    parameters: float | None = None,
    active_parameters: float | None = None,
    forward_flops_per_sample: float | None = None,
    dimensions: Mapping[str, int | bool],
) -> Model:
    """The model that these figures describe. Raises `ImpossibleModel` where they are too few or cannot be."""
    if "layers" in dimensions or "hidden" in dimensions:
        model = from_dimensions(dimensions, parameters, active_parameters)
    elif forward_flops_per_sample is not None:
        if parameters is None:
            raise ImpossibleModel("Its parameters are needed beside the forward FLOPs.", field="parameters")
        model = plain_network(parameters, active_parameters, forward_flops_per_sample)
    else:
        raise ImpossibleModel(
            "Too little is told of the model: name one of GET /models, or tell layers, hidden and heads of a "
            "transformer, or parameters and forward_flops_per_sample of any other network.",
            field="parameters" if parameters is None else "layers",
        )
    model = replace(model, family=family or model.family, name=name or model.name)
    return recognised(model, known)


def from_dimensions(
    dimensions: Mapping[str, int | bool], parameters: float | None, active_parameters: float | None
) -> Model:
    """What is left out is usual; gates and ties are as the number of parameters has them."""
    usual = {"experts_per_token": 1} if dimensions.get("experts") and "experts_per_token" not in dimensions else {}
    told = {**usual, **dimensions}
    if told.get("experts") and "expert_ffn" not in told and "ffn" in told:
        told["expert_ffn"] = told["ffn"]
    candidates = [
        transformer_of({**told, **dict(zip(("gated", "tied"), choice, strict=True))})
        for choice in product(options(told, "gated"), options(told, "tied"))
    ]
    best = min(candidates, key=lambda t: abs(parameter_count(t) - parameters)) if parameters else candidates[0]
    model = model_of(best)
    if parameters is None:
        return model
    active = active_parameters or (
        parameters * active_parameter_count(best) / parameter_count(best) if best.experts else parameters
    )
    return replace(model, parameters=parameters, active_parameters=min(parameters, active))


def options(told: Mapping[str, int | bool], name: str) -> tuple[bool, ...]:
    """As told; else what is usual first: decoders of today are gated and untied, encoders the reverse."""
    if name in told:
        return (bool(told[name]),)
    decoder = bool(told.get("decoder", True))
    usual = decoder if name == "gated" else not decoder
    return (usual,) if told.get("experts") else (usual, not usual)


def plain_network(parameters: float, active_parameters: float | None, forward_flops_per_sample: float) -> Model:
    return Model(
        id="custom",
        name="custom",
        family="cnn" if forward_flops_per_sample > CNN_ABOVE * parameters else "other",
        parameters=parameters,
        active_parameters=active_parameters or parameters,
        transformer=None,
        forward_flops_per_sample=forward_flops_per_sample,
        sample="sample",
        released_on=None,
        source="caller",
        note=None,
    )


SIZES = ("layers", "hidden", "heads", "kv_heads", "experts", "experts_per_token", "decoder")
"""Dimensions that tell one published model from another."""


def recognised(model: Model, known: Iterable[Model]) -> Model:
    """The described model under the id of the one in the catalog that it is, if it is one."""
    same = [each for each in known if alike(model, each)]
    if not same:
        return model
    nearest = min(same, key=lambda each: (abs(each.parameters - model.parameters), each.id))
    return replace(model, id=nearest.id, family=nearest.family)


def alike(model: Model, other: Model) -> bool:
    a, b = model.transformer, other.transformer
    if a is not None and b is not None:
        sizes = all(getattr(a, name) == getattr(b, name) for name in SIZES)
        return sizes and close(model.parameters, other.parameters, SAME_TRANSFORMER)
    if a is not None or b is not None or not model.forward_flops_per_sample or not other.forward_flops_per_sample:
        return False
    return close(model.parameters, other.parameters, SAME_PARAMETERS) and close(
        model.forward_flops_per_sample, other.forward_flops_per_sample, SAME_FLOPS
    )


def close(one: float, other: float, within: float) -> bool:
    return abs(one - other) <= within * other


DIMENSIONS = tuple(field.name for field in fields(Transformer))
