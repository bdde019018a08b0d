"""A job in the numbers that one GPU would run it in: the input of the formulas."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, NamedTuple

import numpy as np

from service.domain.arrays import Indices, Number
from service.domain.catalog.precision import bytes_per_value
from service.domain.jobs.serving import Serving
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack
from service.domain.models.model import Model

Method = Literal["full", "lora", "qlora", "adapter"]

QLORA_FORMAT = "nf4-dq"
"""Format of the frozen weights of QLoRA by default: with its scales quantised again, as the method is defined
(Dettmers et al. 2023, arXiv 2305.14314)."""

PREFERENCE_LOSSES: Mapping[str, bool] = {
    "dpo": True,
    "ipo": True,
    "kto": True,
    "orpo": False,
    "simpo": False,
    "cpo": False,
    "reward": False,
}
"""Losses on preferred and rejected answers, and whether a frozen copy of the model reads each answer as well, the
reference (Rafailov et al. 2023, arXiv 2305.18290; Hong et al. 2024, arXiv 2403.07691; the trainers of TRL)."""

USUAL_CONFIDENCE = 0.9
"""The default probability with which memory suffices. The high end of a band is exceeded in one run out of ten."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Training or fine-tuning. Batches count samples (sequences, images), lengths count tokens."""

    model: Model
    precision: str = "bf16"
    recipe: str = "mixed"
    """A key of `memory.RECIPES`: what is kept for each parameter, and in which size."""
    method: Method = "full"
    weight_precision: str | None = None
    """Precision in which frozen weights are stored; None leaves it to the recipe."""
    optimizer: str = "adamw"
    trainable_parameters: float | None = None
    has_reference: bool = False
    """Whether a frozen copy of the model reads each sequence once. With adapters, the model itself is the copy."""
    sequence_length: int = 0
    mean_length: float | None = None
    global_batch: int | None = None
    batch_per_gpu: int | None = None
    """Samples that a GPU takes in one pass, where the caller says so. Without a global batch, a step is one pass of
    each GPU, as frameworks accumulate no gradients by default.
    """
    flash_attention: bool = True
    chunked_loss: bool = False
    fused_optimizer: bool = False
    offload_activations: bool = False
    offload_optimizer: bool = False
    """Optimizer states live in host memory, and the CPU steps them (ZeRO-Offload)."""
    task: str = "train"
    software: SoftwareStack = UNKNOWN
    memory_confidence: float = USUAL_CONFIDENCE
    """Probability with which the GPUs' memory has to suffice."""


class NumberFormats(NamedTuple):
    """Sizes of the numbers of an engine; columns where the rows of a table differ in them."""

    weight_bits: Number
    """Bits of a stored weight."""
    cache_bytes: Number
    """Bytes of a cached key or value."""


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    """Inference. `concurrency` is the number of requests at once, or None for as many as fit."""

    model: Model
    precision: str = "bf16"
    weight_bits: float | None = None
    kv_precision: str | None = None
    input_length: float = 0
    output_length: float = 0
    concurrency: float | None = 1
    mean_length: float | None = None
    burst: float | None = None
    """Requests that are sent all at once, with none after them; None for requests that keep coming."""
    steps: float = 1.0
    """Denoising steps that generate a sample."""
    passes: float = 1.0
    """Forward passes over a sample, in all of its steps."""
    image_tokens: float = 0.0
    """Tokens of a prompt that are images, which the encoder of images reads first."""
    longest_output: float | None = None
    """Tokens of the longest answer; None where all are of one length."""
    serving: Serving | None = None
    """The load to serve and its limits, with lengths of its own; None for as many requests as `concurrency` has."""
    software: SoftwareStack = UNKNOWN
    memory_confidence: float = USUAL_CONFIDENCE
    """Probability with which the GPUs' memory has to suffice."""
    by_row: NumberFormats | None = None
    """Number formats of the rows of a table, in place of `precision`, `weight_bits` and `kv_precision`."""

    def rows(self, rows: Indices) -> "InferenceConfig":
        """Returns the configuration of some rows of a table."""
        if self.by_row is None:
            return self
        return replace(self, by_row=NumberFormats(*(np.asarray(column)[rows] for column in self.by_row)))

    @property
    def formats(self) -> NumberFormats:
        """Sizes of weights and cache."""
        if self.by_row is not None:
            return self.by_row
        cached = bytes_per_value(self.kv_precision) if self.kv_precision else 2.0
        return NumberFormats(self.weight_bits or 8 * bytes_per_value(self.precision), cached)

    @property
    def required_requests(self) -> float:
        """Requests that have to run at once; 0 without a number, or for a network that takes any batch."""
        return self.concurrency or 0.0 if self.model.generates else 0.0

    @property
    def whole_length(self) -> float:
        """Tokens of a conversation at its end."""
        return self.input_length + self.output_length

    @property
    def shared_prompt(self) -> float:
        """Tokens that all prompts have in common."""
        return 0.0 if self.serving is None else self.serving.prefix_cache_hit_rate * self.input_length

    @property
    def written_share(self) -> tuple[float, float]:
        """Mean and standard deviation of the share of a conversation's cache that a running request holds.

        Long answers run longer, so a request that runs at a random moment is more often one of these. It has written an
        even share of its answer: E[a^2] / 2 E[a] tokens in the mean, and E[a^3] / 3 E[a] in the mean square. Stacks
        that reserve the cache of an answer hold all of it, and so do the requests of a burst, which write side by side.
        """
        own = self.whole_length - self.shared_prompt
        if not self.software.stack.grows_cache or self.burst or own <= 0:
            return 1.0, 0.0
        prompts, answers = (
            (0.0, 0.0) if self.serving is None else (self.serving.prompt.variation, self.serving.answer.variation)
        )
        prompt = self.input_length - self.shared_prompt
        written = self.output_length * (1.0 + answers) / 2.0
        squared = self.output_length**2 * (1.0 + answers) ** 3 / 3.0
        variance = prompt**2 * prompts + squared - written**2
        return (prompt + written) / own, sqrt(variance) / own

    @property
    def drafter(self) -> Model | None:
        """The model that drafts tokens on the same GPUs."""
        return None if self.serving is None else self.serving.drafter

    @property
    def tokens_verified(self) -> float:
        """Tokens of each request that a decoding step verifies; 1 without drafts."""
        return 1.0 if self.serving is None else self.serving.tokens_verified

    @property
    def steps_per_token(self) -> float:
        """Decoding steps for each token of an answer; 1 without drafts."""
        return 1.0 if self.serving is None else self.serving.steps_per_token

    def longest_answer(self, requests: Number) -> Number | None:
        """Mean tokens of the longest of so many answers, for which a static batch waits; None for other engines."""
        if not self.software.stack.static_batches:
            return None
        if self.serving is not None:
            return self.serving.answer.longest_of(requests)
        return max(1.0, self.longest_output or self.output_length)

    @property
    def longest_over_mean(self) -> float:
        """Returns how many times the tokens of an average conversation the longest one has that must fit in memory."""
        if self.serving is None or not self.whole_length:
            return 1.0
        share = self.serving.percentile
        return max(1.0, (self.serving.prompt.at(share) + self.serving.answer.at(share)) / self.whole_length)


Config = TrainingConfig | InferenceConfig
