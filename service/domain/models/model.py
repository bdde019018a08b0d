"""ML models: a name, the number of parameters, and dimensions that are known to be possible."""

from dataclasses import dataclass, fields
from math import isfinite

from service.domain.errors import ImpossibleModel

FAMILIES = (
    "llm", "moe", "hybrid_moe", "encoder", "enc_dec", "cnn", "detection", "segmentation", "vit", "diffusion", "speech",
    "recommender", "recurrent", "other",
)  # fmt: skip
FAMILIES_OF_TEXT = frozenset({"llm", "moe", "hybrid_moe", "encoder", "enc_dec"})
"""Families that read text, whether or not their dimensions are known."""

# Far beyond any network built: a larger number is a slip of the caller, and would overflow what is computed from it.
MOST = {"layers": 4096, "hidden": 1 << 20, "vocabulary": 1 << 27, "context_tokens": 1 << 40}
MOST_OF_ANY_OTHER_DIMENSION = 1 << 24
MOST_PARAMETERS = 1e18


@dataclass(frozen=True, slots=True)
class Transformer:
    """Dimensions of a network whose layers hold attention, a feed-forward network (FFN) or a state space.

    A layer has attention and an FFN, which is dense in `dense_layers` layers and routed to experts in the others if
    there are `experts`. A layer of a hybrid (`ssm_layers` above 0) has one of three instead: attention, a Mamba-2 state
    space, or an FFN; `attention_layers` and `ssm_layers` count the first two, and the rest are FFNs.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    """With MLA: the part of a query or key that is not rotary."""
    ffn: int
    """Width of a dense FFN; 0 where every layer has experts."""
    gated: bool
    """The FFN has a third matrix (SwiGLU, GeGLU)."""
    vocabulary: int
    """0 for a network that reads no tokens."""
    tied: bool
    """The output projection is the embedding; also true of an encoder whose head shares it, or that has none."""
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    """Number of shared experts, each as wide as a routed one; one of twice the width counts as two."""
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
    """How many of `layers` encode; the others then decode, with a second attention over the encoder's output."""
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
        # The sizes come first: the other checks divide by them. The order decides which fault is reported.
        for check in (_check_sizes, _check_heads, _check_experts, _check_layers, _check_latent_attention):
            check(self)
        _check_all_or_none(self, "ssm_layers", ("ssm_heads", "ssm_head_size", "ssm_state", "ssm_groups"))

    @property
    def routed_size(self) -> int:
        """Values of a token that travel to its routed experts and back."""
        return self.expert_latent or self.hidden

    @property
    def hybrid(self) -> bool:
        """Whether some layers are state-space layers."""
        return self.ssm_layers > 0

    @property
    def attending_layers(self) -> int:
        """Layers with attention over their own tokens."""
        return self.attention_layers if self.hybrid else self.layers

    @property
    def ffn_layers(self) -> int:
        """Layers with a feed-forward network. In a hybrid, these are layers of their own."""
        return self.layers - self.attention_layers - self.ssm_layers if self.hybrid else self.layers

    @property
    def sublayers(self) -> int:
        """Mixers and FFNs, each of which ends in a sum over a tensor-parallel group."""
        return self.layers if self.hybrid else 2 * self.layers

    @property
    def moe_layers(self) -> int:
        """Layers whose feed-forward network consists of experts."""
        return self.ffn_layers - self.dense_layers if self.experts else 0

    @property
    def cross_layers(self) -> int:
        """Decoder layers that attend to an encoder."""
        return self.layers - self.encoder_layers if self.encoder_layers else 0

    @property
    def caching_layers(self) -> int:
        """Layers that cache keys and values."""
        if not self.decoder:
            return 0
        return self.cross_layers or self.attending_layers

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention is limited to the sliding window."""
        return self.attending_layers - self.global_layers if self.sliding_window else 0

    @property
    def query_size(self) -> int:
        """Values of a query or a key in one head, where MLA is not absorbed."""
        return self.head_size + self.mla_rope_size

    @property
    def value_size(self) -> int:
        """Numbers of a value in one head."""
        return self.mla_value_size if self.mla_kv_rank else self.head_size

    @property
    def ssm_inner(self) -> int:
        """Width of a state-space layer: the values of all its heads."""
        return self.ssm_heads * self.ssm_head_size


POSITIVE = (
    "parameters",
    "active_parameters",
    "forward_flops_per_sample",
    "activation_values_per_sample",
    "saved_values_per_sample",
    "blocks",
    "block_inputs_per_sample",
    "weight_layers",
)
"""Fields of a model that are above 0 where they are known."""


@dataclass(frozen=True, slots=True)
class Model:
    """A network by name, with its parameters and either its dimensions or its forward FLOPs per sample, or both."""

    id: str
    name: str
    family: str
    parameters: float
    active_parameters: float
    """Parameters that take part in one token or sample; fewer than all only with experts or embedding tables."""
    transformer: Transformer | None = None
    forward_flops_per_sample: float | None = None
    """2 x multiply-accumulates."""
    sample: str = "token"
    """The unit of work, such as `token`, `sequence of 512 tokens` or `image 224x224`."""
    input_tokens_per_sample: float | None = None
    """Tokens that the encoder reads of each sample, where the network fixes them: 1500 for 30 s of audio."""
    output_tokens_per_sample: float | None = None
    """Tokens that it usually writes for a sample."""
    activation_values_per_sample: float | None = None
    """Values that the convolutions write in a forward pass of one sample; None if they are not published."""
    saved_values_per_sample: float | None = None
    """Values that a training step keeps of one sample for its backward pass, without checkpointing; None if not
    counted."""
    blocks: int | None = None
    """Equal blocks of a network without known dimensions, which checkpointing recomputes one by one."""
    block_inputs_per_sample: float | None = None
    """Values that all of these blocks read of one sample."""
    weight_layers: int | None = None
    """Convolutions and matrix products in a forward pass, whose kernels must be launched; None if not counted."""
    steps_per_sample: float | None = None
    """Denoising steps that usually generate a sample; None for a network without them."""
    passes_per_step: float | None = None
    """Forward passes of a step: 2 with classifier-free guidance, 1 where guidance is distilled."""
    other_parameters: float | None = None
    """Parameters of the other networks that generate a sample: text encoders, and the decoder of its latent image; of a
    language model, the encoder of images."""
    other_flops_per_sample: float | None = None
    """Work of these networks for a sample; in a language model, for each token of an image in a prompt."""
    audio_seconds_per_sample: float | None = None
    published_precision: str | None = None
    """The number format in which most of its weights are published; None where a caller may expect any."""
    released_on: str | None = None
    source: str = "caller"
    note: str | None = None
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ImpossibleModel(
                f"No family of models is called '{self.family}'. Known: {', '.join(FAMILIES)}.", field="family"
            )
        for name in POSITIVE:
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

    @property
    def has_tokens(self) -> bool:
        """Whether the model reads or writes tokens: a transformer, or a model of text of unknown dimensions."""
        return self.transformer is not None or self.family in FAMILIES_OF_TEXT


def _check_sizes(t: Transformer) -> None:
    needed = ("layers", "hidden", "heads", "kv_heads", "head_size")
    for field in fields(t):
        value = getattr(t, field.name)
        # bool is an int in Python, and a flag has no bounds.
        if isinstance(value, bool):
            continue
        least = 1 if field.name in needed else 0
        most = MOST.get(field.name, MOST_OF_ANY_OTHER_DIMENSION)
        if not least <= value <= most:
            raise ImpossibleModel(f"{field.name} is {value}, and must be between {least} and {most}.", field=field.name)


def _refuse_if(impossible: bool, field: str, sentence: str) -> None:
    if impossible:
        raise ImpossibleModel(sentence, field=field)


def _check_heads(t: Transformer) -> None:
    _refuse_if(
        t.heads % t.kv_heads > 0,
        "kv_heads",
        f"{t.heads} heads cannot share {t.kv_heads} kv_heads evenly: "
        "the number of heads must be a multiple of kv_heads.",
    )


def _check_experts(t: Transformer) -> None:
    _refuse_if(
        t.experts_per_token > t.experts,
        "experts_per_token",
        f"A token cannot use {t.experts_per_token} experts of {t.experts}.",
    )
    _check_all_or_none(t, "experts", ("experts_per_token", "expert_ffn"))
    _refuse_if(
        not t.experts and (t.shared_experts or t.expert_latent) > 0,
        "shared_experts" if t.shared_experts else "expert_latent",
        "shared_experts and expert_latent belong to a model with experts.",
    )


def _check_all_or_none(t: Transformer, leading: str, others: tuple[str, ...]) -> None:
    """Dimensions that describe one part are all above 0, or none is."""
    count = getattr(t, leading)
    for field in others:
        value = getattr(t, field)
        sentence = f"{leading} is {count} and {field} is {value}: both or neither must be above 0."
        _refuse_if((count > 0) != (value > 0), field, sentence)


def _check_layers(t: Transformer) -> None:
    most_layers = {
        "encoder_layers": t.layers - 1,
        "dense_layers": max(t.ffn_layers, 0),
        "global_layers": t.attending_layers,
    }
    for field, most in most_layers.items():
        value = getattr(t, field)
        _refuse_if(value > most, field, f"{field} is {value}, and of {t.layers} layers it can be at most {most}.")
    _refuse_if(
        t.ffn_layers < 0,
        "ssm_layers",
        f"{t.attention_layers} attention_layers and {t.ssm_layers} ssm_layers are more than all {t.layers} layers.",
    )
    _refuse_if(
        t.attention_layers > 0 and not t.hybrid,
        "attention_layers",
        "attention_layers belongs to a hybrid with ssm_layers; in any other model every layer has attention.",
    )
    without_width = t.ffn_layers > t.moe_layers and not t.ffn
    _refuse_if(without_width, "ffn", "A dense layer has an ffn: its width must be above 0.")


def _check_latent_attention(t: Transformer) -> None:
    _refuse_if(
        t.mla_kv_rank > 0 and not t.mla_value_size,
        "mla_value_size",
        "Latent attention (mla_kv_rank) needs the size of its values, mla_value_size.",
    )
    alone = not t.mla_kv_rank and (t.mla_rope_size or t.mla_query_rank or t.mla_value_size) > 0
    _refuse_if(alone, "mla_kv_rank", "The mla_ sizes go together with mla_kv_rank above 0.")
