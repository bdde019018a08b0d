"""ML models: their parameters, and dimensions that are checked to be possible."""

from dataclasses import dataclass, fields, replace
from math import gcd, isfinite
from typing import Any

from service.domain.arrays import Number
from service.domain.errors import ImpossibleModel

FAMILIES = (
    "llm", "moe", "hybrid_moe", "encoder", "enc_dec", "cnn", "detection", "segmentation", "vit", "diffusion", "speech",
    "recommender", "recurrent", "other",
)  # fmt: skip
FAMILIES_OF_TEXT = frozenset({"llm", "moe", "hybrid_moe", "encoder", "enc_dec"})
"""Families that read text, with known dimensions or not."""

# Bounds far beyond any existing network: larger numbers are mistakes, and would overflow in computations.
MAX_DIMENSION = {
    "layers": 4096, "hidden": 1 << 20, "vocabulary": 1 << 27, "context_tokens": 1 << 40,
    "ssm_parameters": (1 << 31) - 1,
}  # fmt: skip
MAX_OTHER_DIMENSION = 1 << 24
_OF_INDEXERS = ("indexed_tokens", "indexer_layers", "indexer_heads", "indexer_head_size")
MAX_PARAMETERS = 1e18


@dataclass(frozen=True, slots=True)
class Transformer:
    """Dimensions of a network of attention, feed-forward networks (FFNs) and state spaces.

    A layer usually has attention and an FFN. If there are `experts`, the FFN is dense in `dense_layers` layers and
    routed to experts in the others. In a hybrid (`ssm_layers` above 0) a layer has only one of three: attention
    (`attention_layers`), a state space (`ssm_layers`), or an FFN (all other layers). Without any layer of attention, as
    in Mamba or RWKV, it has no heads either.
    """

    layers: int
    """All layers, of the encoder and the decoder together."""
    hidden: int
    """Values of a token between two layers: the width of the model."""
    heads: int
    """Attention heads of a layer."""
    kv_heads: int
    """Heads that have keys and values of their own; below `heads` with grouped queries."""
    head_size: int
    """With MLA, the size of the part of a query or key that is not rotary."""
    ffn: int
    """Width of a dense FFN; 0 if every layer has experts."""
    gated: bool
    """Whether the FFN has a third matrix (SwiGLU, GeGLU)."""
    vocabulary: int
    """Different tokens; 0 for a network that reads none."""
    tied: bool
    """Whether the output projection is the embedding; also true for an encoder without an output projection."""
    experts: int = 0
    """Routed experts of a layer; 0 for a model without experts."""
    experts_per_token: int = 0
    """Routed experts that a token uses in each layer."""
    shared_experts: int = 0
    """Number of shared experts of the width of a routed one; a shared expert of twice this width counts as two."""
    expert_ffn: int = 0
    """Width of an expert."""
    dense_layers: int = 0
    """In a model with experts: layers that have a dense FFN instead of experts."""
    mla_kv_rank: int = 0
    """Above 0 with multi-head latent attention: it caches this many values and the rotary ones per token."""
    mla_rope_size: int = 0
    """With MLA, the size of the rotary part of a query or key."""
    mla_query_rank: int = 0
    """With MLA, the width to which queries are projected first; 0 for a direct projection."""
    mla_value_size: int = 0
    """With MLA, the size of a value in one head."""
    sliding_window: int = 0
    """Tokens that a windowed layer attends to; 0: no layer has a window."""
    global_layers: int = 0
    """Layers without the window."""
    context_tokens: int = 0
    """Maximum tokens of a sequence; 0 if unknown or unlimited."""
    decoder: bool = True
    """Whether attention is causal, so that keys and values can be cached."""
    encoder_layers: int = 0
    """Number of `layers` that encode. If above 0, the others decode and also attend to the output of the encoder."""
    learned_positions: int = 0
    """Number of positions with a learned embedding; 0 for other position encodings."""
    attention_layers: int = 0
    """Attention layers of a hybrid; 0 in other models, where every layer has attention."""
    ssm_layers: int = 0
    """State-space layers of a hybrid; 0 in other models."""
    ssm_heads: int = 0
    ssm_head_size: int = 0
    ssm_state: int = 0
    """Values of state for each of the `ssm_heads` x `ssm_head_size` channels."""
    ssm_groups: int = 0
    """Groups of heads that share the projections into and out of the state."""
    ssm_convolution: int = 4
    """Tokens that the convolution before the state space covers."""
    ssm_parameters: int = 0
    """Parameters of a state-space layer that is not Mamba-2 (Mamba, RWKV); 0 for Mamba-2 and the gated delta rule,
    whose parameters follow from the dimensions."""
    expert_latent: int = 0
    """Above 0 if routed experts work on a projection of this width and not on the hidden size."""
    gated_attention: bool = False
    """Whether the result of attention is multiplied by a gate, which is projected like the queries."""
    global_kv_heads: int = 0
    """Key-value heads of layers without the window, if they differ from those of the windowed layers; else 0."""
    global_head_size: int = 0
    """Head size of layers without the window, if it differs from that of the windowed layers; else 0."""
    indexed_tokens: int = 0
    """Tokens that a token attends to in each layer, selected by an indexer; 0: all tokens, without an indexer."""
    indexer_layers: int = 0
    """Layers with an indexer; the other layers attend to the tokens that the last of these selected."""
    indexer_heads: int = 0
    indexer_head_size: int = 0

    def __post_init__(self) -> None:
        # The first fault is reported. Sizes come first, because the other checks divide by them.
        for check in (_check_sizes, _check_heads, _check_experts, _check_layers, _check_latent_attention):
            check(self)
        _check_all_or_none(self, "ssm_layers", "ssm_heads", "ssm_head_size", "ssm_state", "ssm_groups")
        _check_all_or_none(self, *_OF_INDEXERS)

    @property
    def has_logits(self) -> bool:
        """Whether an output projection makes logits of the tokens."""
        return True

    @property
    def routed_size(self) -> int:
        """Values of a token that are sent to a routed expert and back."""
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
        """Number of attentions, state spaces and FFNs, each of which ends in an all-reduce with tensor parallelism."""
        return self.layers if self.hybrid else 2 * self.layers + self.cross_layers

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
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
    def shared_heads(self) -> tuple[int, ...]:
        """Numbers of key-value heads of a layer. Engines divide them over tensor-parallel GPUs, or copy each of them to
        equally many GPUs.
        """
        return tuple(heads for heads in (self.kv_heads, self.global_kv_heads) if heads)

    def divides_heads_over(self, gpus: Number) -> Number:
        """Returns whether each of some tensor-parallel GPUs gets as many heads as the others."""
        even = gcd(self.heads, self.ssm_heads) % gpus == 0
        for heads in self.shared_heads:
            even = even & ((heads % gpus == 0) | (gpus % heads == 0))
        return even

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention is limited to the sliding window."""
        return self.attending_layers - self.global_layers if self.sliding_window else 0

    @property
    def query_size(self) -> int:
        """Size of a query or a key in one head; with MLA, before the projections are absorbed."""
        return self.head_size + self.mla_rope_size

    @property
    def value_size(self) -> int:
        """Size of a value in one head."""
        return self.mla_value_size if self.mla_kv_rank else self.head_size

    @property
    def ssm_inner(self) -> int:
        """Width of a state-space layer: heads x head size."""
        return self.ssm_heads * self.ssm_head_size


@dataclass(frozen=True, slots=True)
class ScoringTransformer(Transformer):
    """A transformer whose output is one score of a sequence, as that of a reward model."""

    @property
    def has_logits(self) -> bool:
        """Whether tokens have logits: they have none here."""
        return False

    @staticmethod
    def of(t: Transformer) -> "ScoringTransformer":
        """Returns the same layers with a score as their output."""
        return ScoringTransformer(**{field.name: getattr(t, field.name) for field in fields(Transformer)})


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
"""Fields of a model that must be above 0 if they are known."""


@dataclass(frozen=True, slots=True)
class Model:
    """A network by name, with its parameters and either its dimensions or its forward FLOPs per sample, or both."""

    id: str
    """The name that requests use; `aliases` mean the same."""
    name: str
    family: str
    """The family, such as `llm`, `moe`, `cnn` or `diffusion`."""
    parameters: float
    active_parameters: float
    """Parameters that a token or sample uses: fewer than all only with routed experts or embedding tables."""
    transformer: Transformer | None = None
    forward_flops_per_sample: float | None = None
    """FLOPs of a forward pass over a sample: 2 x multiply-accumulates; generating one may take several; None if they
    follow from the dimensions."""
    attention_flops_per_sample: float | None = None
    """FLOPs of a forward pass in products of tokens with each other, which grow with the square of a sample's tokens; 0
    without attention, None: unknown, or they follow from the dimensions. With them, `workload.sample` can have another
    size."""
    text_token_share: float | None = None
    """Share of the tokens of a forward pass that are text, whose number does not grow with the size of an image; None
    for a model without them."""
    sample: str = "token"
    """The unit of work, such as `token`, `sequence of 512 tokens` or `image 224x224`."""
    input_tokens_per_sample: float | None = None
    """Tokens per sample that the encoder reads: 1500 for 30 s of audio in Whisper; None if they are not fixed."""
    output_tokens_per_sample: float | None = None
    """Tokens that the model usually generates per sample."""
    activation_values_per_sample: float | None = None
    """Values that all layers write in a forward pass of one sample; None if not counted."""
    saved_values_per_sample: float | None = None
    """Values that training keeps per sample for the backward pass, without checkpointing; None if not counted."""
    blocks: int | None = None
    """Number of equal blocks of a network without known dimensions, which checkpointing recomputes one by one."""
    block_inputs_per_sample: float | None = None
    """Values per sample that the inputs of all blocks have."""
    weight_layers: int | None = None
    """Number of convolutions and matrix products in a forward pass, each a kernel to launch; None if not counted."""
    steps_per_sample: float | None = None
    """Usual number of denoising steps per sample, see `note`; None for a network without them."""
    passes_per_step: float | None = None
    """Forward passes per denoising step: 2 with classifier-free guidance, 1 if guidance is distilled."""
    other_parameters: float | None = None
    """Parameters outside of the main network: text encoders and the image decoder of a diffusion model, the image
    encoder of a language model."""
    other_flops_per_sample: float | None = None
    """FLOPs of `other_parameters` per sample; in a language model, per token of an image in the prompt."""
    text_flops_per_sample: float | None = None
    """Part of `other_flops_per_sample` that reads texts, and does not grow with the size of an image."""
    audio_seconds_per_sample: float | None = None
    """Length of the audio of a sample; None for a model that reads no audio."""
    published_precision: str | None = None
    """Number format of most of the published weights; None if callers may choose the precision freely."""
    released_on: str | None = None
    """Year, month or day; None if unknown."""
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
            if amount is not None and not (isfinite(amount) and 0 < amount <= MAX_PARAMETERS):
                raise ImpossibleModel(f"{name} must be above 0 and at most {MAX_PARAMETERS:g}.", field=name)
        if self.active_parameters > self.parameters:
            raise ImpossibleModel(
                f"A model of {self.parameters:g} parameters cannot have {self.active_parameters:g} active ones.",
                field="active_parameters",
            )

    @property
    def generates(self) -> bool:
        """Whether the model generates tokens one after another, as decoders do."""
        return self.transformer is not None and self.transformer.decoder

    @property
    def reads_images(self) -> bool:
        """Whether the model generates tokens and has an encoder of images, whose FLOPs per token of one are known."""
        return self.generates and self.other_flops_per_sample is not None

    @property
    def selects_tokens(self) -> bool:
        """Whether the model attends to the tokens that an indexer selects."""
        return self.transformer is not None and self.transformer.indexed_tokens > 0

    @property
    def attending_to_all(self) -> "Model":
        """Model without its indexers, as stacks without kernels for them run it."""
        if self.transformer is None:
            return self
        none: dict[str, Any] = dict.fromkeys(_OF_INDEXERS, 0)
        return replace(self, transformer=replace(self.transformer, **none))

    @property
    def has_tokens(self) -> bool:
        """Whether the model reads or generates tokens: a transformer, or a text model of unknown dimensions."""
        return self.transformer is not None or self.family in FAMILIES_OF_TEXT


def _check_sizes(t: Transformer) -> None:
    needed = ("layers", "hidden", *(("heads", "kv_heads", "head_size") if t.attending_layers else ()))
    for field in fields(t):
        value = getattr(t, field.name)
        # bool is an int in Python, and a flag has no bounds.
        if isinstance(value, bool):
            continue
        least = 1 if field.name in needed else 0
        most = MAX_DIMENSION.get(field.name, MAX_OTHER_DIMENSION)
        if not least <= value <= most:
            raise ImpossibleModel(f"{field.name} is {value}, and must be between {least} and {most}.", field=field.name)


def _refuse_if(impossible: bool, field: str, sentence: str) -> None:
    if impossible:
        raise ImpossibleModel(sentence, field=field)


def _check_heads(t: Transformer) -> None:
    _refuse_if(
        t.kv_heads > 0 and t.heads % t.kv_heads > 0,
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
    _check_all_or_none(t, "experts", "experts_per_token", "expert_ffn")
    _refuse_if(
        not t.experts and (t.shared_experts or t.expert_latent) > 0,
        "shared_experts" if t.shared_experts else "expert_latent",
        "shared_experts and expert_latent belong to a model with experts.",
    )


def _check_all_or_none(t: Transformer, leading: str, *others: str) -> None:
    """Checks that the dimensions of one part are all above 0, or all 0."""
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
        "indexer_layers": t.attending_layers,
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
    _refuse_if(
        t.ssm_parameters > 0 and not t.hybrid, "ssm_parameters", "ssm_parameters belong to a model with ssm_layers."
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
