"""Samples of another size than a model states: images, frames, volumes and videos of more or fewer pixels."""

import re
from dataclasses import dataclass, replace
from math import isqrt, prod

from service.domain.errors import QuestionError
from service.domain.models.counts import attention_flops_per_token
from service.domain.models.model import Model, Transformer

_SIZED = re.compile(r"(image|frame|volume|video) (\d{1,5}(?:x\d{1,5}){1,2})(?: of (\d{1,5}) frames)?")


@dataclass(frozen=True, slots=True)
class SampleSize:
    """A sample such as `image 512x512`, `volume 128x128x128` or `video 832x480 of 81 frames`."""

    kind: str
    sides: tuple[int, ...]
    frames: int | None

    @classmethod
    def of(cls, sample: str) -> "SampleSize | None":
        """Reads a sample in words; None for one without a size in pixels."""
        match = _SIZED.fullmatch(sample)
        if match is None:
            return None
        kind, sides, frames = match.groups()
        return cls(kind, tuple(map(int, sides.split("x"))), None if frames is None else int(frames))

    @property
    def pixels(self) -> int:
        """Pixels of a sample: those of all frames of a video."""
        return prod(self.sides) * (1 if self.frames is None else self.frames)

    def is_like(self, other: "SampleSize") -> bool:
        """Whether two sizes have the same form, so that a model of one can take the other."""
        mine, others = ((each.kind, len(each.sides), each.frames is None) for each in (self, other))
        return mine == others


def takes_sizes(model: Model) -> bool:
    """Returns whether the cost of a model is known for samples of any size."""
    return SampleSize.of(model.sample) is not None and _attention_flops(model) is not None


def of_size(model: Model, sample: str) -> Model:
    """Returns the model for samples of another size; the same model if `sample` is not another size of its samples.

    Values and most FLOPs grow with the number of pixels, or of tokens if the texts of a sample are tokens too.
    Attention grows with the square of the tokens. Raises `QuestionError` if the model is known for one size alone.
    """
    size, own = SampleSize.of(sample), SampleSize.of(model.sample)
    if size is None or own is None or size == own or not size.is_like(own):
        return model
    attention, flops = _attention_flops(model), model.forward_flops_per_sample
    if attention is None or flops is None:
        raise QuestionError(f"The cost of {model.name} is known for samples of one size: {model.sample}.")
    if not size.pixels:
        raise QuestionError("A sample has at least one pixel.")
    pixels, fixed, of_text = size.pixels / own.pixels, _fixed_share(model), model.text_flops_per_sample or 0.0
    tokens = fixed + (1.0 - fixed) * pixels
    of_others = model.other_flops_per_sample
    return replace(
        model,
        sample=sample,
        transformer=model.transformer and _with_tokens(model.transformer, tokens),
        forward_flops_per_sample=(flops - attention) * tokens + attention * tokens**2,
        attention_flops_per_sample=attention * tokens**2,
        text_token_share=_times(model.text_token_share, 1.0 / tokens),
        activation_values_per_sample=_times(model.activation_values_per_sample, tokens),
        saved_values_per_sample=_times(model.saved_values_per_sample, tokens),
        block_inputs_per_sample=_times(model.block_inputs_per_sample, tokens),
        other_flops_per_sample=None if of_others is None else of_text + (of_others - of_text) * pixels,
    )


def _times(amount: float | None, factor: float) -> float | None:
    return None if amount is None else amount * factor


def _attention_flops(model: Model) -> float | None:
    """Returns the FLOPs of attention over a sample; None if they are unknown."""
    t = model.transformer
    if t is None:
        return model.attention_flops_per_sample
    return t.context_tokens * attention_flops_per_token(t, t.context_tokens) if _reads_patches(t) else None


def _reads_patches(t: Transformer) -> bool:
    """Returns whether the tokens are patches of a sample, and maybe one more for its class."""
    return not t.decoder and not t.vocabulary and t.context_tokens > 1


def _fixed_share(model: Model) -> float:
    """Returns the share of the tokens whose number no size changes: texts, or the token of the class."""
    t = model.transformer
    if t is None:
        return model.text_token_share or 0.0
    # Patches form a square, to which a token of the class may be added.
    return 0.0 if isqrt(t.context_tokens) ** 2 == t.context_tokens else 1.0 / t.context_tokens


def _with_tokens(t: Transformer, factor: float) -> Transformer:
    tokens = round(t.context_tokens * factor)
    return replace(t, context_tokens=tokens, learned_positions=tokens if t.learned_positions else 0)
