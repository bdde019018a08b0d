"""Models that callers describe: by dimensions, or by parameters and forward FLOPs.

A description that matches a model of the catalog gets the id of that model, so that its measurements apply.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import product
from typing import Any

from service.domain.errors import ImpossibleModel
from service.domain.models.counts import active_parameter_count, parameter_count
from service.domain.models.model import Model, Transformer

DIMENSIONS = tuple(field.name for field in fields(Transformer))

SAME_PARAMETERS = 0.02
"""Largest relative difference of parameter counts of one network: some leave out biases, positions or buffers."""

SAME_TRANSFORMER = 0.08
"""Largest such difference if all sizes are equal: published numbers may also differ in embeddings."""

SAME_FLOPS = 0.06
"""Largest relative difference of published forward FLOPs, or written values, of one network."""

CONTRADICTORY = 3.0
"""Ratio of the given parameters to those of the dimensions from which on they contradict each other. Dimensions that
are left out change the number by less: T5-11B, with wide heads and FFNs, has 2.95 times the usual number."""

LARGEST_VOCABULARY = 262_144
"""Vocabulary up to which embeddings may explain more parameters where none is given: that of Gemma 3 (its config)."""

UNNAMED_SAMPLE = "sample"
"""The sample of a network that is described by its parameters and FLOPs, which may be anything."""

CNN_ABOVE = 20.0
"""Forward FLOPs per parameter above which a network counts as a CNN: convolutions use a weight many times."""


def described(
    catalog_models: Iterable[Model],
    *,
    name: str | None = None,
    family: str | None = None,
    parameters: float | None = None,
    active_parameters: float | None = None,
    forward_flops_per_sample: float | None = None,
    activation_values_per_sample: float | None = None,
    dimensions: Mapping[str, int | bool],
) -> Model:
    """Returns the model that these figures describe. Raises `ImpossibleModel` if they are too few or contradictory.

    A language model of which only the parameters are known takes 2 FLOPs per parameter and token (Kaplan et al. 2020,
    section 2.1).
    """
    if "layers" in dimensions or "hidden" in dimensions:
        _check_no_counts(forward_flops_per_sample, activation_values_per_sample)
        model = _from_dimensions(dimensions, parameters, active_parameters)
    elif forward_flops_per_sample is not None and parameters is None:
        raise ImpossibleModel("forward_flops_per_sample needs the model's parameters as well.", field="parameters")
    elif parameters is not None and family == "llm" and forward_flops_per_sample is None:
        active = active_parameters or parameters
        model = Model("custom", "custom", "llm", parameters, active, None, 2 * active)
    elif parameters is not None and forward_flops_per_sample is not None:
        family_by_flops = "cnn" if forward_flops_per_sample > CNN_ABOVE * parameters else "other"
        active = active_parameters or parameters
        model = Model(
            "custom", "custom", family_by_flops, parameters, active, None, forward_flops_per_sample,
            sample=UNNAMED_SAMPLE, activation_values_per_sample=activation_values_per_sample,
        )  # fmt: skip
    else:
        raise ImpossibleModel(
            "The model's description is incomplete: name one of GET /models, or give layers, hidden and heads of a "
            "transformer, parameters and the family 'llm', or parameters and forward_flops_per_sample of any other "
            "network.",
            field="parameters" if parameters is None else "layers",
        )
    model = replace(model, family=family or model.family, name=name or model.name)
    return recognised(model, catalog_models)


def _check_no_counts(flops: float | None, values: float | None) -> None:
    """Raises `ImpossibleModel` for counts of a pass that follow from the dimensions of a transformer."""
    for field, count in (("forward_flops_per_sample", flops), ("activation_values_per_sample", values)):
        if count is not None:
            raise ImpossibleModel(f"{field} follows from the dimensions of a transformer: leave it out.", field=field)


# A model of which only the dimensions are known


def model_of(transformer: Transformer, *, name: str = "custom") -> Model:
    """Returns the model of these dimensions, with the parameters that follow from them."""
    parameters, active = parameter_count(transformer), active_parameter_count(transformer)
    return Model(name, name, family_of(transformer), parameters, active, transformer)


def family_of(transformer: Transformer) -> str:
    """Returns the family that follows from the dimensions."""
    if transformer.encoder_layers:
        return "enc_dec"
    if transformer.experts:
        return "hybrid_moe" if transformer.hybrid else "moe"
    return "llm" if transformer.decoder else "encoder"


def transformer_of(dimensions: Mapping[str, int | bool]) -> Transformer:
    """Returns the transformer of these dimensions. Raises `ImpossibleModel`.

    Missing dimensions take usual values: as many kv_heads as heads, heads that divide the hidden size evenly, and an
    FFN four times as wide as the hidden size and not gated.
    """
    for name in dimensions:
        if name not in DIMENSIONS:
            raise ImpossibleModel(
                f"A transformer has no dimension '{name[:80]}'. Known: {', '.join(DIMENSIONS)}.", field=name[:80]
            )
    for name in ("layers", "hidden", "heads"):
        if name not in dimensions:
            raise ImpossibleModel(f"A transformer needs its {name}.", field=name)
    complete: dict[str, Any] = {"kv_heads": dimensions["heads"], "gated": False, "tied": False, "vocabulary": 0}
    complete |= dimensions
    if "head_size" not in complete:
        complete["head_size"] = even_head_size(complete["hidden"], complete["heads"])
    only_experts = complete.get("experts") and not complete.get("dense_layers")
    complete.setdefault("ffn", 0 if only_experts else 4 * complete["hidden"])
    return Transformer(**complete)


def even_head_size(hidden: int, heads: int) -> int:
    """Returns the hidden size divided by the number of heads. Raises `ImpossibleModel` if it is no whole number."""
    if heads < 1 or hidden % heads:
        raise ImpossibleModel(
            f"{heads} heads do not divide a hidden size of {hidden}; give head_size if it is not an even share.",
            field="heads",
        )
    return hidden // heads


def _from_dimensions(
    dimensions: Mapping[str, int | bool], parameters: float | None, active_parameters: float | None
) -> Model:
    """Returns the model of these dimensions. If `gated` or `tied` is missing, the number of parameters decides."""
    complete = dict(dimensions)
    if complete.get("experts"):
        # Descriptions often leave out experts_per_token, which is at least 1.
        complete.setdefault("experts_per_token", 1)
        if "ffn" in complete:
            complete.setdefault("expert_ffn", complete["ffn"])
    candidates = [
        transformer_of({**complete, "gated": gated, "tied": tied})
        for gated, tied in product(_options(complete, "gated"), _options(complete, "tied"))
    ]
    if parameters is None:
        return model_of(candidates[0])
    # Gated FFNs and tied embeddings change the number of parameters, so the given number selects among them.
    best = min(candidates, key=lambda t: abs(parameter_count(t) - parameters))
    _check_parameters(best, complete, parameters if best.experts else active_parameters or parameters)
    share = active_parameter_count(best) / parameter_count(best) if best.experts else 1.0
    active = min(parameters, active_parameters or parameters * share)
    return replace(model_of(best), parameters=parameters, active_parameters=active)


def _check_parameters(t: Transformer, given: Mapping[str, int | bool], parameters: float) -> None:
    """Checks that a number of parameters can belong to the dimensions. Raises `ImpossibleModel`.

    A model with experts that are not described has to state its active parameters, which are then compared.
    """
    count = parameter_count(t)
    embeddings = 0 if "vocabulary" in given else 2 * t.hidden * LARGEST_VOCABULARY
    if not count / CONTRADICTORY <= parameters <= CONTRADICTORY * count + embeddings:
        raise ImpossibleModel(
            f"{t.layers} layers with a hidden size of {t.hidden} have about {count:.3g} parameters, and not "
            f"{parameters:.3g}: leave the parameters out, correct one of the sizes, or describe the experts.",
            field="parameters",
        )


def _options(dimensions: Mapping[str, int | bool], name: str) -> tuple[bool, ...]:
    """Returns the values of `gated` or `tied` to try, the usual one first.

    Decoders are usually gated and untied, encoders are tied and not gated.
    """
    if name in dimensions:
        return (bool(dimensions[name]),)
    decoder = bool(dimensions.get("decoder", True))
    usual = decoder if name == "gated" else not decoder
    return (usual,) if dimensions.get("experts") else (usual, not usual)


# A language model of which only the parameters are known

FARTHEST = 2.0
"""Largest ratio of the parameters of two models at which one may take the dimensions of the other."""


def model_like(model: Model, catalog_models: Iterable[Model]) -> Model:
    """Returns the model of the same family and known dimensions with the nearest number of parameters.

    Raises `ImpossibleModel` if it has more than twice or less than half as many.
    """

    def distance(other: Model) -> float:
        return max(other.parameters / model.parameters, model.parameters / other.parameters)

    of_family = [
        candidate
        for candidate in catalog_models
        if candidate.family == model.family and candidate.transformer is not None
    ]
    # The id breaks ties, so that the order of the catalog does not decide.
    nearest = min(of_family, key=lambda other: (distance(other), other.id), default=None)
    if nearest is None or distance(nearest) > FARTHEST:
        raise ImpossibleModel(
            "No model of the catalog has about as many parameters: give layers, hidden and heads as well.",
            field="workload.model.layers",
        )
    return nearest


def with_dimensions_of(like: Model, model: Model) -> Model:
    """Returns the model with the dimensions of another one (`like`), and its own number of parameters."""
    return replace(model, transformer=like.transformer, forward_flops_per_sample=None)


# Recognising a model of the catalog

SIZES = ("layers", "hidden", "heads", "kv_heads", "experts", "experts_per_token", "decoder")
"""Dimensions by which published models differ from each other."""

COUNTS = (
    "attention_flops_per_sample", "activation_values_per_sample", "saved_values_per_sample", "weight_layers", "blocks",
    "block_inputs_per_sample",
)  # fmt: skip
"""Counts of a pass over a sample, which are the same for every description of a network."""


def recognised(model: Model, catalog_models: Iterable[Model]) -> Model:
    """Returns the model under the id and family of a catalog model of the same sizes, with its counts where a network
    is described without them; unchanged if there is none.
    """
    same = [candidate for candidate in catalog_models if _is_same(model, candidate)]
    if not same:
        return model
    # The id breaks ties, so that the order of the catalog does not decide.
    nearest = min(same, key=lambda candidate: (abs(candidate.parameters - model.parameters), candidate.id))
    model = replace(model, id=nearest.id, family=nearest.family)
    if model.sample != UNNAMED_SAMPLE:
        return model
    counted = {name: getattr(model, name) or getattr(nearest, name) for name in COUNTS}
    return replace(model, sample=nearest.sample, **counted)


def _is_same(model: Model, other: Model) -> bool:
    a, b = model.transformer, other.transformer
    if a is not None and b is not None:
        same_sizes = all(getattr(a, name) == getattr(b, name) for name in SIZES)
        return same_sizes and _is_close(model.parameters, other.parameters, SAME_TRANSFORMER)
    if a is not None or b is not None or not model.forward_flops_per_sample or not other.forward_flops_per_sample:
        return False
    values, others = model.activation_values_per_sample, other.activation_values_per_sample
    return (
        _is_close(model.parameters, other.parameters, SAME_PARAMETERS)
        and _is_close(model.forward_flops_per_sample, other.forward_flops_per_sample, SAME_FLOPS)
        and (values is None or others is None or _is_close(values, others, SAME_FLOPS))
    )


def _is_close(value: float, other: float, tolerance: float) -> bool:
    return abs(value - other) <= tolerance * other
