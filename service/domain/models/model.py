"""ML models as dimensions, and what follows from these alone: parameters, FLOPs per token, bytes of cache per token."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from math import isfinite
from typing import Any

from service.domain.errors import ImpossibleModel

FAMILIES = (
    "llm", "moe", "hybrid_moe", "encoder", "enc_dec", "cnn", "detection", "segmentation", "vit", "diffusion", "speech",
    "recommender", "recurrent", "other",
)  # fmt: skip

MOST = {"layers": 4096, "hidden": 1 << 20, "vocabulary": 1 << 27, "context_tokens": 1 << 40}
MOST_OF_ANYTHING_ELSE = 1 << 24
"""Far beyond any network built; larger is a slip, and would only overflow what is computed from it."""
MOST_PARAMETERS = 1e18


@dataclass(frozen=True, slots=True)
class Transformer:
    """Layers of attention and a feed-forward network, or of one of these and state spaces.

    A usual layer has attention and a feed-forward network (FFN): dense in `dense_layers`, experts in the others where
    there are `experts`. In a hybrid (`ssm_layers` above 0) a layer is one of three: attention, a Mamba-2 state space,
    or an FFN; `attention_layers` and `ssm_layers` count the first two, the rest are FFNs.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    """Of MLA: the part of a query or key that is not rotary."""
    ffn: int
    """Width of a dense FFN; 0 where every layer has experts."""
    gated: bool
    """The FFN has a third matrix (SwiGLU, GeGLU)."""
    vocabulary: int
    """0 of a network that reads no tokens."""
    tied: bool
    """The output projection is the embedding; also of an encoder whose head shares it, or that has none."""
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    """How many, each as wide as a routed one; one shared expert of twice the width counts as two."""
    expert_ffn: int = 0
    dense_layers: int = 0
    mla_kv_rank: int = 0
    """Above 0: multi-head latent attention, whose cache holds this many values and the rotary ones per token."""
    mla_rope_size: int = 0
    mla_query_rank: int = 0
    mla_value_size: int = 0
    sliding_window: int = 0
    """Tokens that a windowed layer looks back; 0: all."""
    global_layers: int = 0
    """Layers without the window."""
    context_tokens: int = 0
    decoder: bool = True
    """Later tokens are hidden from earlier ones, and keys and values can be cached."""
    encoder_layers: int = 0
    """Of `layers`, how many encode; the others then decode, with a second attention over the encoder's output."""
    learned_positions: int = 0
    attention_layers: int = 0
    ssm_layers: int = 0
    ssm_heads: int = 0
    ssm_head_size: int = 0
    ssm_state: int = 0
    ssm_groups: int = 0
    ssm_convolution: int = 4
    expert_latent: int = 0
    """Above 0: routed experts work on a projection of this width instead of the hidden one."""

    def __post_init__(self) -> None:
        for check in CHECKS:
            check(self)

    @property
    def hybrid(self) -> bool:
        return self.ssm_layers > 0

    @property
    def attending_layers(self) -> int:
        """Layers with attention over their own tokens."""
        return self.attention_layers if self.hybrid else self.layers

    @property
    def ffn_layers(self) -> int:
        return self.layers - self.attention_layers - self.ssm_layers if self.hybrid else self.layers

    @property
    def moe_layers(self) -> int:
        return self.ffn_layers - self.dense_layers if self.experts else 0

    @property
    def cross_layers(self) -> int:
        """Decoder layers that attend to an encoder."""
        return self.layers - self.encoder_layers if self.encoder_layers else 0

    @property
    def caching_layers(self) -> int:
        if not self.decoder:
            return 0
        return self.cross_layers or self.attending_layers

    @property
    def windowed_layers(self) -> int:
        return self.attending_layers - self.global_layers if self.sliding_window else 0

    @property
    def query_size(self) -> int:
        return self.head_size + self.mla_rope_size

    @property
    def value_size(self) -> int:
        return self.mla_value_size if self.mla_kv_rank else self.head_size

    @property
    def ssm_inner(self) -> int:
        return self.ssm_heads * self.ssm_head_size


@dataclass(frozen=True, slots=True)
class Model:
    """A network by name, with its parameters and either its dimensions or its forward FLOPs per sample, or both."""

    id: str
    name: str
    family: str
    parameters: float
    active_parameters: float
    """Those that take part in one token or sample; fewer than all only with experts or embedding tables."""
    transformer: Transformer | None
    forward_flops_per_sample: float | None
    """2 x multiply-accumulates."""
    sample: str
    """What a sample is: `token`, `sequence of 512 tokens`, `image 224x224`."""
    released_on: str | None
    source: str
    note: str | None
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ImpossibleModel(
                f"No family of models is called '{self.family}'. Known: {', '.join(FAMILIES)}.", field="family"
            )
        for name in ("parameters", "active_parameters", "forward_flops_per_sample"):
            amount = getattr(self, name)
            if amount is not None and not (isfinite(amount) and 0 < amount <= MOST_PARAMETERS):
                raise ImpossibleModel(f"{name} must be above 0 and at most {MOST_PARAMETERS:g}.", field=name)
        if self.active_parameters > self.parameters:
            raise ImpossibleModel(
                f"A model of {self.parameters:g} parameters cannot have {self.active_parameters:g} active ones.",
                field="active_parameters",
            )

    @property
    def generates(self) -> bool:
        """Whether the model produces tokens one after another, as decoders do."""
        return self.transformer is not None and self.transformer.decoder


# What cannot be


def sizes_are_possible(model: Transformer) -> None:
    needed = ("layers", "hidden", "heads", "kv_heads", "head_size")
    for field in fields(model):
        value = getattr(model, field.name)
        if isinstance(value, bool):
            continue
        least = 1 if field.name in needed else 0
        most = MOST.get(field.name, MOST_OF_ANYTHING_ELSE)
        if not least <= value <= most:
            raise ImpossibleModel(f"{field.name} is {value}, and must be between {least} and {most}.", field=field.name)


def heads_share_keys_evenly(model: Transformer) -> None:
    if model.heads % model.kv_heads:
        raise ImpossibleModel(
            f"{model.heads} heads cannot share {model.kv_heads} kv_heads evenly: "
            "the number of heads must be a multiple of kv_heads.",
            field="kv_heads",
        )


def experts_are_possible(model: Transformer) -> None:
    if model.experts_per_token > model.experts:
        raise ImpossibleModel(
            f"A token cannot use {model.experts_per_token} experts of {model.experts}.", field="experts_per_token"
        )
    for field in ("experts_per_token", "expert_ffn"):
        if (model.experts > 0) != (getattr(model, field) > 0):
            raise ImpossibleModel(
                f"experts is {model.experts} and {field} is {getattr(model, field)}: both or neither must be above 0.",
                field=field,
            )
    if not model.experts and (model.shared_experts or model.expert_latent):
        raise ImpossibleModel(
            "shared_experts and expert_latent belong to a model with experts.",
            field="shared_experts" if model.shared_experts else "expert_latent",
        )


def layers_add_up(model: Transformer) -> None:
    parts = (("encoder_layers", model.layers - 1), ("dense_layers", max(model.ffn_layers, 0)))
    for field, most in (*parts, ("global_layers", model.attending_layers)):
        if getattr(model, field) > most:
            raise ImpossibleModel(
                f"{field} is {getattr(model, field)}, and of {model.layers} layers it can be at most {most}.",
                field=field,
            )
    if model.ffn_layers < 0:
        raise ImpossibleModel(
            f"{model.attention_layers} attention_layers and {model.ssm_layers} ssm_layers are more than all "
            f"{model.layers} layers.",
            field="ssm_layers",
        )
    if model.attention_layers and not model.hybrid:
        raise ImpossibleModel(
            "attention_layers belongs to a hybrid with ssm_layers; in any other model every layer has attention.",
            field="attention_layers",
        )
    if model.ffn_layers > model.moe_layers and not model.ffn:
        raise ImpossibleModel("A dense layer has an ffn: its width must be above 0.", field="ffn")


def latent_attention_is_whole(model: Transformer) -> None:
    if model.mla_kv_rank and not model.mla_value_size:
        raise ImpossibleModel(
            "Latent attention (mla_kv_rank) needs the size of its values, mla_value_size.", field="mla_value_size"
        )
    if not model.mla_kv_rank and (model.mla_rope_size or model.mla_query_rank or model.mla_value_size):
        raise ImpossibleModel("The mla_ sizes go together with mla_kv_rank above 0.", field="mla_kv_rank")


def state_spaces_are_whole(model: Transformer) -> None:
    for field in ("ssm_heads", "ssm_head_size", "ssm_state", "ssm_groups"):
        if model.hybrid != (getattr(model, field) > 0):
            raise ImpossibleModel(
                f"ssm_layers is {model.ssm_layers} and {field} is {getattr(model, field)}: "
                "both or neither must be above 0.",
                field=field,
            )


CHECKS: tuple[Callable[[Transformer], None], ...] = (
    sizes_are_possible,
    heads_share_keys_evenly,
    experts_are_possible,
    layers_add_up,
    latent_attention_is_whole,
    state_spaces_are_whole,
)


def even_head_size(hidden: int, heads: int) -> int:
    """The size of a head where nobody tells it: an even share of the hidden size. Raises `ImpossibleModel`."""
    if heads < 1 or hidden % heads:
        raise ImpossibleModel(
            f"{heads} heads do not divide a hidden size of {hidden}; give head_size where it is no even share.",
            field="heads",
        )
    return hidden // heads


def transformer_of(dimensions: Mapping[str, int | bool]) -> Transformer:
    """From the dimensions that somebody tells; those left out are what is usual. Raises `ImpossibleModel`.

    Usual is: as many kv_heads as heads, heads that share the hidden size evenly, an FFN four times as wide, not gated.
    """
    known = {field.name: field for field in fields(Transformer)}
    for name in dimensions:
        if name not in known:
            raise ImpossibleModel(
                f"A transformer has no dimension '{name[:80]}'. Known: {', '.join(known)}.", field=name[:80]
            )
    for name in ("layers", "hidden", "heads"):
        if name not in dimensions:
            raise ImpossibleModel(f"A transformer needs its {name}.", field=name)
    told: dict[str, Any] = dict(dimensions)
    told.setdefault("kv_heads", told["heads"])
    if "head_size" not in told:
        told["head_size"] = even_head_size(told["hidden"], told["heads"])
    told.setdefault("ffn", 0 if told.get("experts") and not told.get("dense_layers") else 4 * told["hidden"])
    for name in ("gated", "tied"):
        told.setdefault(name, False)
    told.setdefault("vocabulary", 0)
    assert all(name in told for name, field in known.items() if field.default is MISSING)
    return Transformer(**told)


def family_of(transformer: Transformer) -> str:
    if transformer.encoder_layers:
        return "enc_dec"
    if transformer.experts:
        return "hybrid_moe" if transformer.hybrid else "moe"
    return "llm" if transformer.decoder else "encoder"


def model_of(transformer: Transformer, *, id: str = "custom", name: str = "custom", source: str = "caller") -> Model:  # noqa: A002
    """A model of which nothing but the dimensions is told."""
    return Model(
        id=id,
        name=name,
        family=family_of(transformer),
        parameters=parameter_count(transformer),
        active_parameters=active_parameter_count(transformer),
        transformer=transformer,
        forward_flops_per_sample=None,
        sample="token",
        released_on=None,
        source=source,
        note=None,
    )


# Parameters


@dataclass(frozen=True, slots=True)
class ParameterParts:
    """Where the parameters are. Biases are left out: about one in a thousand."""

    embedding: int
    attention: int
    ffn: int
    """Dense FFNs."""
    experts: int
    """Routed experts, and the projections to a narrower width around them."""
    shared_experts: int
    router: int
    state_space: int
    norms: int
    head: int
    """The output projection; 0 where it is the embedding."""

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))


def parameter_parts(model: Transformer) -> ParameterParts:
    embedding = model.vocabulary * model.hidden
    norms_per_layer = 1 if model.hybrid else 2
    return ParameterParts(
        embedding=embedding + model.learned_positions * model.hidden,
        attention=(model.attending_layers + model.cross_layers) * attention_parameters(model),
        ffn=(model.ffn_layers - model.moe_layers) * ffn_parameters(model, model.hidden, model.ffn),
        experts=model.moe_layers * (model.experts * expert_parameters(model) + latent_parameters(model)),
        shared_experts=model.moe_layers * model.shared_experts * shared_expert_parameters(model),
        router=model.moe_layers * model.hidden * model.experts,
        state_space=model.ssm_layers * ssm_parameters(model),
        norms=(norms_per_layer * model.layers + model.cross_layers + 1) * model.hidden,
        head=0 if model.tied else embedding,
    )


def attention_parameters(model: Transformer) -> int:
    """Of one attention. Usual: hidden x head_size x (2 heads + 2 kv_heads).

    MLA: queries from the hidden size or through mla_query_rank; keys and values down to mla_kv_rank and the rotary
    part, up again to head_size + mla_value_size per head; the output from heads x mla_value_size.
    """
    if not model.mla_kv_rank:
        return model.hidden * model.head_size * 2 * (model.heads + model.kv_heads)
    queries = model.heads * model.query_size
    query = model.mla_query_rank * (model.hidden + queries) if model.mla_query_rank else model.hidden * queries
    down = model.hidden * (model.mla_kv_rank + model.mla_rope_size)
    up = model.mla_kv_rank * model.heads * (model.head_size + model.mla_value_size)
    return query + down + up + model.heads * model.mla_value_size * model.hidden


def ffn_parameters(model: Transformer, outer: int, inner: int) -> int:
    """Two matrices, or three when gated."""
    return (3 if model.gated else 2) * outer * inner


def expert_parameters(model: Transformer) -> int:
    return ffn_parameters(model, model.expert_latent or model.hidden, model.expert_ffn)


def shared_expert_parameters(model: Transformer) -> int:
    return ffn_parameters(model, model.hidden, model.expert_ffn)


def latent_parameters(model: Transformer) -> int:
    """To the narrower width of the experts and back."""
    return 2 * model.hidden * model.expert_latent


def ssm_parameters(model: Transformer) -> int:
    """Of one Mamba-2 layer: one projection in (gate, values, B, C, a step per head), a short convolution, one out."""
    mixed = model.ssm_inner + 2 * model.ssm_groups * model.ssm_state
    into = model.hidden * (model.ssm_inner + mixed + model.ssm_heads)
    return into + (model.ssm_convolution + 1) * mixed + model.ssm_inner * (model.hidden + 1) + 3 * model.ssm_heads


def parameter_count(model: Transformer) -> int:
    return parameter_parts(model).total


def active_parameter_count(model: Transformer) -> int:
    """All but the experts that a token does not use."""
    idle = model.moe_layers * (model.experts - model.experts_per_token) * expert_parameters(model)
    return parameter_count(model) - idle


# FLOPs


@dataclass(frozen=True, slots=True)
class ForwardFlops:
    """Of one token on its way forward; 2 FLOPs are one multiply-accumulate.

    Of an encoder with a decoder: one token on each side.
    """

    matrix: float
    """Against weights: 2 for each weight used, whatever the context."""
    attention: float
    """Against the tokens attended to: queries by keys, and weights by values; and the scan of state spaces."""

    @property
    def total(self) -> float:
        return self.matrix + self.attention


def forward_flops_per_token(model: Transformer, attended_tokens: float) -> ForwardFlops:
    """Of a token that attends to so many tokens; a windowed layer caps them.

    matrix = 2 x (active parameters without embeddings and norms, with the output projection tied or not).
    attention = 2 x heads x (query_size + value_size) x attended tokens, in each layer with attention.
    """
    return ForwardFlops(matrix_flops_per_token(model), attention_flops_per_token(model, attended_tokens))


def matrix_flops_per_token(model: Transformer) -> float:
    parts = parameter_parts(model)
    active = active_parameter_count(model) - parts.embedding - parts.norms - parts.head
    return 2.0 * (active + head_multiplications(model))


def head_multiplications(model: Transformer) -> int:
    """Weights of the output projection, tied or not; an encoder has none, or asks it of few tokens."""
    return model.vocabulary * model.hidden if model.decoder else 0


def attention_flops_per_token(model: Transformer, attended_tokens: float) -> float:
    per_pair = 2.0 * model.heads * (model.query_size + model.value_size)
    return per_pair * attended_in_all_layers(model, attended_tokens) + ssm_flops_per_token(model)


def attended_in_all_layers(model: Transformer, attended_tokens: float) -> float:
    """Tokens attended to, added over the layers."""
    everywhere = model.attending_layers - model.windowed_layers + model.cross_layers
    windowed = min(attended_tokens, model.sliding_window)
    return everywhere * attended_tokens + model.windowed_layers * windowed


def mean_attended(sequence_tokens: float, window: float = 0, *, decoder: bool = True) -> float:
    """Tokens that one of a sequence attends to, on average: half of them in a decoder, a window at most.

    Of a decoder with a window w below the length s: w - w² / 2s.
    """
    reach = min(window, sequence_tokens) if window else sequence_tokens
    if not decoder:
        return reach
    return reach - reach * reach / (2 * sequence_tokens) if sequence_tokens else 0.0


def ssm_flops_per_token(model: Transformer) -> float:
    """The scan: decay the state, add the input, read it out; 1 + 2 + 2 for each value of the state."""
    return 5.0 * model.ssm_layers * model.ssm_inner * model.ssm_state


# What generation keeps


def kv_bytes_per_token(model: Transformer, bytes_per_value: float) -> float:
    """Cached keys and values of one token in all layers, before any window lets it go.

    2 x layers x kv_heads x head_size x bytes; MLA: layers x (mla_kv_rank + mla_rope_size) x bytes.
    """
    return model.caching_layers * kv_values_per_layer(model) * bytes_per_value


def kv_values_per_layer(model: Transformer) -> int:
    if model.mla_kv_rank:
        return model.mla_kv_rank + model.mla_rope_size
    return 2 * model.kv_heads * model.head_size


def kv_cache_bytes(model: Transformer, tokens: float, bytes_per_value: float, encoder_tokens: float = 0) -> float:
    """The cache of one sequence: windowed layers keep a window, decoders with an encoder keep its tokens as well."""
    kept = min(tokens, model.sliding_window) if model.sliding_window else tokens
    windowed = min(model.windowed_layers, model.caching_layers)
    in_layers = (model.caching_layers - windowed) * tokens + windowed * kept + model.cross_layers * encoder_tokens
    return in_layers * kv_values_per_layer(model) * bytes_per_value


def ssm_state_bytes(model: Transformer, bytes_per_value: float) -> float:
    """What state spaces keep of one sequence, however long it is: the state, and the last inputs of the convolution."""
    mixed = model.ssm_inner + 2 * model.ssm_groups * model.ssm_state
    return model.ssm_layers * (model.ssm_inner * model.ssm_state + model.ssm_convolution * mixed) * bytes_per_value
