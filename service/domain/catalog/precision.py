"""Number formats, and how well a chip runs each."""

from dataclasses import dataclass
from typing import Literal, get_args

Support = Literal["none", "reduced", "native", "accelerated"]
SUPPORT_LEVELS: tuple[Support, ...] = get_args(Support)
"""From not at all to a matrix engine of its own; the order matters."""

SupportAsked = Literal["accelerated", "native", "any"]
ENOUGH: dict[SupportAsked, frozenset[Support]] = {
    "accelerated": frozenset({"accelerated"}),
    "native": frozenset({"accelerated", "native"}),
    "any": frozenset({"accelerated", "native", "reduced"}),
}
"""What satisfies a caller who asks for a precision at a level."""


@dataclass(frozen=True, slots=True)
class Precision:
    """A number format, such as bf16."""

    id: str
    name: str
    kind: str
    bits: int
    exponent_bits: int | None
    mantissa_bits: int | None
    description: str
    source: str


@dataclass(frozen=True, slots=True)
class Rate:
    """What one GPU does in one precision; peaks are 10^12 operations per second, null where nobody tells."""

    precision: str
    support: Support | None
    dense_tflops: float | None
    sparse_tflops: float | None
    source: str
    note: str | None

    def is_enough(self, asked: SupportAsked) -> bool:
        return self.support in ENOUGH[asked]
