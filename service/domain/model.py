"""ML models: what physics needs to know of one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transformer:
    """The dimensions of a transformer, dense or with experts."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    gated: bool
    vocabulary: int
    tied: bool
    experts: int = 0
    experts_per_token: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    mla_kv_rank: int = 0
    mla_rope_size: int = 0
    sliding_window: int = 0
    context_tokens: int = 0
    decoder: bool = True


@dataclass(frozen=True, slots=True)
class Model:
    """A network by its counts; `transformer` is empty for other networks."""

    id: str
    name: str
    family: str
    parameters: float
    active_parameters: float
    transformer: Transformer | None
    forward_flops_per_sample: float | None = None
    bytes_per_sample: float | None = None
