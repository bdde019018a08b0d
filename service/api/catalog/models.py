"""ML models with their dimensions, and the parameters, FLOPs and cache that follow from these."""

from functools import partial
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.http.current import CatalogStamp, Pinned, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import Amount, Columns, DayRequest, Name, Names, PageRequest, ResponseModel, copy_of
from service.api.http.listing import (
    Page,
    attribute_reader,
    having,
    mentions,
    page_answer,
    require_range,
    sorted_by,
    within,
)
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_model
from service.domain.errors import NotFound, QuestionError, UnknownName
from service.domain.models.counts import (
    ParameterParts,
    active_parameter_count,
    forward_flops_per_token,
    kv_bytes_per_token,
    kv_cache_bytes,
    parameter_parts,
    ssm_state_bytes,
)
from service.domain.models.model import FAMILIES, Model, Transformer

router = APIRouter(tags=["catalog"])

USUAL_CONTEXT = 2048
"""Tokens per sequence unless the caller gives another number: for years the usual length in training."""
FP16_BYTES = 2


class TransformerResponse(copy_of(Transformer)):  # type: ignore[misc]
    """Dimensions; 0: the network has none. A layer of a hybrid is attention, a state space (ssm) or an FFN."""


class ModelResponse(copy_of(Model, "transformer"), ResponseModel):  # type: ignore[misc]
    """An ML model of the catalog."""

    parameters: int
    """All parameters, as published."""
    active_parameters: int
    """Parameters that take part in one token or sample."""
    dimensions: TransformerResponse | None = Field(validation_alias="transformer")
    """Null if the model is not a transformer."""


class ModelsRequest(PageRequest):
    """Which models to list, and in which order."""

    family: Annotated[Names, Field(description="Families, such as `llm`, `moe`, `cnn` or `diffusion`.")] = ()
    min_parameters: Annotated[Amount | None, Field(description="Parameters, at least; such as 7e9.")] = None
    max_parameters: Annotated[Amount | None, Field(description="Parameters, at most; such as 7e9.")] = None
    q: Annotated[str | None, Field(max_length=200, description="Words that id, name or an alias must contain.")] = None
    sort: Annotated[
        Columns, Field(description="`id`, `parameters`, `active_parameters` or `released_on`, `-` for descending.")
    ] = ()


SORTABLE = ("id", "parameters", "active_parameters", "released_on")


@router.get("/models", summary="List ML models", response_model=Page[ModelResponse])
def get_models(request: Request, query: Annotated[ModelsRequest, Query()], live: Pinned) -> Response:
    """Models that requests can name, with their dimensions and sources."""
    catalog = catalog_on(live, query)
    models = sorted(_filtered(query, catalog), key=attrgetter("id"))
    rows = sorted_by(query.sort, partial(attribute_reader, SORTABLE), models)
    return page_answer(request, query, catalog, rows, ModelResponse, ModelResponse.model_validate)


def _filtered(query: ModelsRequest, catalog: Catalog) -> list[Model]:
    low, high = query.min_parameters, query.max_parameters
    require_range("parameters", low, high)
    families = resolve("family", query.family, FAMILIES, "family")
    return [
        model
        for model in having({"family": families}, catalog.reference.models.values())
        if within(model.parameters, low, high) and mentions(query.q, (model.id, model.name, *model.aliases))
    ]


# One model, and what follows from its dimensions


class ModelRequest(DayRequest):
    """The sequence length for the computed figures."""

    context_tokens: Annotated[
        int | None,
        Field(
            ge=1, le=1_000_000_000, description="Tokens of the sequence. Default: 2048, or the model's limit if less."
        ),
    ] = None


class ParameterPartsResponse(copy_of(ParameterParts)):  # type: ignore[misc]
    """Parameters by part, without biases."""


class FlopsResponse(ResponseModel):
    """Forward FLOPs of one token."""

    matrix: float = Field(description="Products with weights; the same at every length.")
    attention: float = Field(description="Attention to the `context_tokens` tokens before this one.")
    total: float = Field(description="`matrix` + `attention`.")


class ComputedResponse(ResponseModel):
    """Figures computed from the dimensions."""

    context_tokens: int
    """Tokens of the sequence that the figures are for."""
    parameters: int
    """Counted from the dimensions; `parameters` of the model is the published count."""
    active_parameters: int = Field(
        description="Those of `parameters` that one token uses: of the routed experts only the chosen ones."
    )
    parameters_by_part: ParameterPartsResponse
    """Parts that add up to `parameters`."""
    forward_flops_per_token: FlopsResponse
    """For a model with an encoder and a decoder: FLOPs of one token on each side."""
    kv_bytes_per_token_fp16: float
    """KV cache of one token, without the effect of sliding windows."""
    kv_cache_bytes_fp16: float
    """KV cache of `context_tokens` tokens, with sliding windows."""
    state_bytes_fp16: float
    """State of the state-space layers, independent of the sequence length."""

    @classmethod
    def of(cls, transformer: Transformer, context_tokens: int) -> "ComputedResponse":
        """Returns the figures of a transformer for sequences of this length."""
        parts = parameter_parts(transformer)
        return cls(
            context_tokens=context_tokens,
            parameters=parts.total,
            active_parameters=active_parameter_count(transformer),
            parameters_by_part=parts,
            forward_flops_per_token=forward_flops_per_token(transformer, context_tokens),
            kv_bytes_per_token_fp16=kv_bytes_per_token(transformer, FP16_BYTES),
            kv_cache_bytes_fp16=kv_cache_bytes(transformer, context_tokens, FP16_BYTES),
            state_bytes_fp16=ssm_state_bytes(transformer, FP16_BYTES),
        )


class ModelDetailResponse(ModelResponse):
    """A model, with the figures that follow from its dimensions."""

    computed: ComputedResponse | None = Field(description="Null if the model is not a transformer.")
    catalog: CatalogStamp


@router.get("/models/{id:path}", summary="One ML model", response_model=ModelDetailResponse)
def get_model(id: Name, query: Annotated[ModelRequest, Query()], live: Pinned) -> Response:  # noqa: A002
    """A model by id, name or alias, such as `meta-llama/Llama-3.1-8B`, with its parameters by part, FLOPs and cache."""
    catalog = catalog_on(live, query)
    try:
        model = resolve_model(id, catalog, "id")
    except UnknownName as error:
        raise NotFound(error.sentence, field="id", near=error.near) from None
    answer = ModelDetailResponse.like(
        model, dimensions=model.transformer, computed=_computed(model, query.context_tokens), catalog=stamp(catalog)
    )
    return json_answer(answer, catalog)


def _computed(model: Model, asked_tokens: int | None) -> ComputedResponse | None:
    """Returns the computed figures of a transformer. Raises `QuestionError` for more tokens than it can read."""
    transformer = model.transformer
    if transformer is None:
        return None
    limit = transformer.context_tokens
    if asked_tokens is not None and limit and asked_tokens > limit:
        raise QuestionError(f"{model.name} reads at most {limit} tokens.", field="context_tokens")
    return ComputedResponse.of(transformer, asked_tokens or min(USUAL_CONTEXT, limit or USUAL_CONTEXT))
