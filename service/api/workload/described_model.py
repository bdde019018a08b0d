"""A model as a request describes it: by its dimensions, by a Hugging Face config, or by its parameters and FLOPs."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from service.api.http.fields import LARGEST, BodyModel, Count, Name, whole

MAX_CONFIG_DEPTH = 16

InOnes = Annotated[float, Field(ge=1000, le=LARGEST, allow_inf_nan=False)]
"""A number of parameters, FLOPs or values. The least one refuses numbers in billions, such as 7 in place of 7e9."""


def plain(value: Any, depth: int = 0) -> Any:
    """Returns the value if an answer can repeat it as it was sent. Raises `ValueError`."""
    if depth > MAX_CONFIG_DEPTH:
        raise ValueError(f"nested more than {MAX_CONFIG_DEPTH} deep")
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
    family: Name | None = None
    """The family, such as `llm`, `moe`, `encoder`, `cnn` or `vit`."""
    parameters: InOnes | None = None
    """All parameters, such as 8e9."""
    active_parameters: InOnes | None = None
    """Parameters that take part in one token or sample. Default: all, or what follows from the experts."""
    forward_flops_per_sample: InOnes | None = None
    """FLOPs of the forward pass of a sample: 2 x multiply-accumulates."""
    activation_values_per_sample: InOnes | None = None
    """Values that the convolutions and matrix products of a network without `layers` write for a sample, the macts of
    timm's results: 11.1e6 for ResNet-50. Default: a usual number for its FLOPs, with a warning."""
    layers: Count | None = None
    """Layers of the network."""
    hidden: Count | None = None
    """Width of the hidden state."""
    heads: Count | None = None
    """Attention heads of the queries."""
    kv_heads: Count | None = None
    """Attention heads of the keys and values. Default: as many as `heads`."""
    head_size: Count | None = None
    """Width of a head. Default: `hidden` over `heads`."""
    ffn: Count | None = None
    """Width of a dense feed-forward network. Default: four times `hidden`; 0 if every layer has experts."""
    gated: bool | None = None
    """Whether the feed-forward network has a third matrix (SwiGLU, GeGLU). Default: false."""
    vocabulary: Count | None = None
    """Size of the vocabulary. Default: 0, for a network that reads no tokens."""
    tied: bool | None = None
    """Whether the output projection shares the embedding. Default: false."""
    experts: Count | None = None
    """Routed experts of a layer. Default: 0."""
    experts_per_token: Count | None = None
    """Routed experts that compute each token."""
    shared_experts: Count | None = None
    """Experts that compute every token. Default: 0."""
    expert_ffn: Count | None = None
    """Width of an expert."""
    dense_layers: Count | None = None
    """Layers without experts. Default: 0."""
    mla_kv_rank: Count | None = None
    """With multi-head latent attention: cached values per token, apart from the rotary ones."""
    mla_rope_size: Count | None = None
    """With multi-head latent attention: rotary values per token."""
    mla_query_rank: Count | None = None
    """With multi-head latent attention: rank of the queries."""
    mla_value_size: Count | None = None
    """With multi-head latent attention: width of a value head."""
    sliding_window: Count | None = None
    """Tokens that a layer with a window looks back. Default: 0, all tokens."""
    global_layers: Count | None = None
    """Layers without the window. Default: 0."""
    context_tokens: Annotated[int | None, Field(ge=0, le=1_000_000_000), BeforeValidator(whole)] = None
    """Maximum tokens of a sequence. Default: 0, unlimited."""
    decoder: bool | None = None
    """Whether attention is causal, so that keys and values can be cached. Default: true."""
    huggingface_config: HuggingfaceConfig | None = None
    """The content of a `config.json`, in place of dimensions."""
