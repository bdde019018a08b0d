"""A model as a request describes it: by its dimensions, by a Hugging Face config, or by its parameters and FLOPs."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from service.api.http.fields import LARGEST, BodyModel, Count, Name, Positive, whole

MAX_DEPTH = 16


def plain(value: Any, depth: int = 0) -> Any:
    """Returns the value if an answer can repeat it as it was sent. Raises `ValueError`."""
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {plain(key): plain(held, depth + 1) for key, held in value.items()}
    if isinstance(value, list):
        return [plain(held, depth + 1) for held in value]
    # The config is sent back in the answer, and UTF-8 has no form for half of a surrogate pair.
    if isinstance(value, str) and not value.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise ValueError("half of a surrogate pair is no text")
    # `not <=` also refuses NaN, which compares as false with everything.
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValueError(f"a number beyond {LARGEST:g}")
    return value


HuggingfaceConfig = Annotated[dict[str, Any], Field(max_length=300), AfterValidator(plain)]


class ModelDimensionsRequest(BodyModel):
    """A model by its dimensions, by a Hugging Face config, or by its parameters and forward FLOPs.

    A transformer needs at least `layers`, `hidden` and `heads`.
    """

    name: Annotated[
        Name | None, Field(description="What to call it; if nothing else is sent, the name of a model of the catalog.")
    ] = None
    family: Annotated[Name | None, Field(description="Such as `llm`, `moe`, `encoder`, `cnn` or `vit`.")] = None
    parameters: Annotated[Positive | None, Field(description="All parameters, such as 8e9.")] = None
    active_parameters: Annotated[
        Positive | None,
        Field(
            description="Parameters that take part in one token or sample. Default: all, or what follows from "
            "the experts."
        ),
    ] = None
    forward_flops_per_sample: Annotated[
        Positive | None, Field(description="FLOPs of the forward pass of a sample: 2 x multiply-accumulates.")
    ] = None
    layers: Annotated[Count | None, Field(description="Layers of the network.")] = None
    hidden: Annotated[Count | None, Field(description="Width of the hidden state.")] = None
    heads: Annotated[Count | None, Field(description="Attention heads of the queries.")] = None
    kv_heads: Annotated[
        Count | None, Field(description="Attention heads of the keys and values. Default: as many as `heads`.")
    ] = None
    head_size: Annotated[Count | None, Field(description="Width of a head. Default: `hidden` over `heads`.")] = None
    ffn: Annotated[
        Count | None,
        Field(
            description="Width of a dense feed-forward network. Default: four times `hidden`; 0 if every layer "
            "has experts."
        ),
    ] = None
    gated: Annotated[
        bool | None,
        Field(description="Whether the feed-forward network has a third matrix (SwiGLU, GeGLU). Default: false."),
    ] = None
    vocabulary: Annotated[
        Count | None, Field(description="Size of the vocabulary. Default: 0, for a network that reads no tokens.")
    ] = None
    tied: Annotated[
        bool | None, Field(description="Whether the output projection shares the embedding. Default: false.")
    ] = None
    experts: Annotated[Count | None, Field(description="Routed experts of a layer. Default: 0.")] = None
    experts_per_token: Annotated[Count | None, Field(description="Routed experts that compute each token.")] = None
    shared_experts: Annotated[Count | None, Field(description="Experts that compute every token. Default: 0.")] = None
    expert_ffn: Annotated[Count | None, Field(description="Width of an expert.")] = None
    dense_layers: Annotated[Count | None, Field(description="Layers without experts. Default: 0.")] = None
    mla_kv_rank: Annotated[
        Count | None,
        Field(description="With multi-head latent attention: cached values per token, apart from the rotary ones."),
    ] = None
    mla_rope_size: Annotated[
        Count | None, Field(description="With multi-head latent attention: rotary values per token.")
    ] = None
    mla_query_rank: Annotated[
        Count | None, Field(description="With multi-head latent attention: rank of the queries.")
    ] = None
    mla_value_size: Annotated[
        Count | None, Field(description="With multi-head latent attention: width of a value head.")
    ] = None
    sliding_window: Annotated[
        Count | None, Field(description="Tokens that a layer with a window looks back. Default: 0, all tokens.")
    ] = None
    global_layers: Annotated[Count | None, Field(description="Layers without the window. Default: 0.")] = None
    context_tokens: Annotated[
        int | None,
        Field(ge=0, le=1_000_000_000, description="Maximum tokens of a sequence. Default: 0, unlimited."),
        BeforeValidator(whole),
    ] = None
    decoder: Annotated[
        bool | None,
        Field(description="Whether attention is causal, so that keys and values can be cached. Default: true."),
    ] = None
    huggingface_config: Annotated[
        HuggingfaceConfig | None, Field(description="The content of a `config.json`, in place of dimensions.")
    ] = None
