"""Training and inference configs: a job with the precision of one GPU, as input of the formulas."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, NamedTuple

import numpy as np

from service.domain.arrays import Indices, Number
from service.domain.catalog.precision import activation_bytes, bytes_per_value
from service.domain.jobs.loading import STATED_NOTHING, SampleLoading
from service.domain.jobs.serving import Serving
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack
from service.domain.models.counts import cache_bytes, kv_cache_bytes
from service.domain.models.model import Model

Method = Literal["full", "lora", "qlora", "adapter"]

QLORA_FORMAT = "nf4-dq"
"""Default format of the frozen weights of QLoRA: nf4 with quantised scales (double quantisation), as its paper defines
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
"""Loss on preferred and rejected answers → whether it needs a reference: a frozen copy of the model that also reads
each answer (Rafailov et al. 2023, arXiv 2305.18290; Hong et al. 2024, arXiv 2403.07691; the trainers of TRL)."""

LOSSES_ON_PAIRS = frozenset(PREFERENCE_LOSSES) - {"kto"}
"""Losses that compare the two answers of a pair, which trainers read in one pass (`concatenated_forward` of TRL)."""

LOSSES_ON_SCORES = frozenset({"reward"})
"""Losses on one score of a sequence, with which the model has no output projection (`RewardTrainer` of TRL)."""

USUAL_CONFIDENCE = 0.9
"""Default probability with which memory has to suffice: one run in ten exceeds the high end of a band."""

LEAST_CONFIDENCE = 0.5
"""Least probability that may be asked for: that of the likely bytes."""

PLAIN_LOAD = Serving()
"""The default load, used where a config has none."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Training or fine-tuning. Batches count samples (sequences, images), lengths count tokens."""

    model: Model
    precision: str = "bf16"
    recipe: str = "mixed"
    """A key of `memory.RECIPES`: the values that are kept per parameter, and their sizes."""
    method: Method = "full"
    weight_precision: str | None = None
    """Precision in which frozen weights are stored; None: that of the recipe."""
    optimizer: str = "adamw"
    trainable_parameters: float | None = None
    has_reference: bool = False
    """Whether a frozen copy of the model reads each sequence once; with adapters, it is the base model itself."""
    samples_together: int = 1
    """Samples that a GPU reads in one pass at the least, such as the two sequences of a pair."""
    sequence_length: int = 0
    mean_length: float | None = None
    written_length: float | None = None
    """Tokens of a sample that the decoder learns to write, if its encoder reads a number that the network fixes; the
    other lengths are then means over all layers. None if all layers have the same tokens."""
    global_batch: int | None = None
    batch_per_gpu: int | None = None
    """Samples of a GPU in one pass, as the caller sets them; None: the layout decides. Without a global batch, a step
    has one micro-batch for each GPU, or group of GPUs that share samples, because frameworks accumulate no gradients by
    default.
    """
    image_tokens: float = 0.0
    """Mean tokens of a sample that are images; a frozen encoder of images processes them first."""
    flash_attention: bool = True
    chunked_loss: bool = False
    loss_logits: float | None = None
    """Logits that the loss of a library holds at once, per value of the hidden states; None without such a library."""
    fused_optimizer: bool = False
    offload_activations: bool = False
    offload_optimizer: bool = False
    """Whether optimizer states are in host memory and the CPU updates them (ZeRO-Offload)."""
    offload_parameters: bool = False
    """Whether weights are in host memory, sharded as by ZeRO-3, and a layer is on the GPU for its passes alone."""
    encoders_in_training: bool = False
    """Whether the frozen encoders of a diffusion model, for texts and images, run in every step."""
    task: str = "train"
    loading: SampleLoading = STATED_NOTHING
    software: SoftwareStack = UNKNOWN
    memory_confidence: float = USUAL_CONFIDENCE
    """Probability with which the GPUs' memory has to suffice."""

    @property
    def tokens_per_sample(self) -> float:
        """Tokens by which the rate and the amount of training are counted; 0 for a network without sequences."""
        return self.written_length or self.mean_length or self.sequence_length

    @property
    def written_share(self) -> float:
        """Tokens of a sample with an output of their own, as a share of the tokens that a layer has."""
        length = self.mean_length or self.sequence_length
        return self.written_length / length if self.written_length and length else 1.0


EXPANDED_BITS = 16.0
"""Bits of a weight that is expanded because there are no kernels for its format."""

FLOPS_PER_UNPACKED_WEIGHT = 2.0
"""Operations outside of matrix engines for each weight that a stack with kernels of its own reads: a multiplication and
an addition, up to a fitted factor for the loads and conversions around them. llama.cpp takes 18 ms for a token of an 8B
in fp16 both on an A100 and on an RTX 4090, which has half of the bandwidth and 4.2 times the fp32 rate."""

Expansion = Literal["never", "for_several_tokens", "always"]
"""When products expand narrow weights to 16 bits."""


class NumberFormats(NamedTuple):
    """Formats of the numbers that an engine stores and computes; columns if they differ between the rows of a table."""

    weight_bits: Number
    """Bits of a stored weight."""
    bits_read: Number
    """Bits that a product reads per weight: as it is stored, or 16 where it is always expanded first."""
    bits_expanded: Number
    """Bits per weight that a product of several tokens moves in addition: it writes the weight at 16 bits and reads it
    again; 0 for most formats."""
    unpacking_flops: Number
    """Operations outside of matrix engines for each weight that a step unpacks."""
    cache_bytes: Number
    """Bytes of a cached key or value."""
    activation_bytes: Number
    """Bytes of a value between matrix products."""
    plain: Number
    """Whether the products are in fp32, without matrix units."""
    moved_bytes: Number
    """Bytes of a value that a layer of a network without a cache reads or writes: those of the products, or of a weight
    if that is wider."""


@dataclass(frozen=True, slots=True)
class InferenceConfig:
    """Inference. Lengths are in tokens; `concurrency` is the number of requests at once, or None for as many as fit."""

    model: Model
    precision: str = "bf16"
    weight_bits: float | None = None
    mean_bits: bool = False
    """Whether the bits per weight are a mean over all weights, with the embedding and the output projection."""
    expansion: Expansion = "never"
    unpacking_flops: float = 0.0
    """Operations outside of matrix engines with which the kernels of the weights' format unpack each of them."""
    kv_precision: str | None = None
    input_length: float = 0
    output_length: float = 0
    concurrency: float | None = 1
    mean_length: float | None = None
    burst: float | None = None
    """Number of requests that are sent all at once, with none after them; None for a steady stream of requests."""
    steps: float = 1.0
    """Denoising steps per sample."""
    passes: float = 1.0
    """Forward passes per sample, in all of its steps."""
    image_tokens: float = 0.0
    """Tokens of a prompt that are images; the encoder of images processes them first."""
    longest_output: float | None = None
    """Tokens of the longest answer; None if all answers have one length."""
    serving: Serving | None = None
    """The load to serve, with its limits and distributions of lengths; None if `concurrency` is the load."""
    loading: SampleLoading = STATED_NOTHING
    software: SoftwareStack = UNKNOWN
    memory_confidence: float = USUAL_CONFIDENCE
    """Probability with which the GPUs' memory has to suffice."""
    most_on_gpu: Number | None = None
    """Most requests that the engine runs at once on the GPU, or a column of them; None for those of its stack."""
    by_row: NumberFormats | None = None
    """Number formats of the rows of a table, in place of those of one configuration."""

    def rows(self, rows: Indices) -> "InferenceConfig":
        """Returns the configuration of some rows of a table."""
        if self.by_row is None:
            return self
        by_row = NumberFormats(*(np.asarray(column)[rows] for column in self.by_row))
        return replace(self, by_row=by_row, most_on_gpu=np.asarray(self.most_in_flight)[rows])

    @property
    def most_in_flight(self) -> Number:
        """Most requests that the engine runs at once."""
        return self.software.stack.most_in_flight if self.most_on_gpu is None else self.most_on_gpu

    @property
    def formats(self) -> NumberFormats:
        """Formats of weights, of cached keys and values, and of the numbers in the products."""
        if self.by_row is not None:
            return self.by_row
        between = activation_bytes(self.precision)
        usual = 2.0 if self.software.stack.caches_16_bits else between
        cached = bytes_per_value(self.kv_precision) if self.kv_precision else usual
        stored = self.weight_bits or 8 * bytes_per_value(self.precision)
        read = max(stored, EXPANDED_BITS) if self.expansion == "always" else stored
        expanded = 2.0 * EXPANDED_BITS if self.expansion == "for_several_tokens" else 0.0
        of_stack = FLOPS_PER_UNPACKED_WEIGHT if self.software.stack_class.unpacks_weights else 0.0
        multiplied = max(stored, EXPANDED_BITS) if self.expansion != "never" else stored
        return NumberFormats(
            weight_bits=stored,
            bits_read=read,
            bits_expanded=expanded,
            unpacking_flops=max(of_stack, self.unpacking_flops),
            cache_bytes=cached,
            activation_bytes=between,
            plain=self.precision == "fp32",
            moved_bytes=max(multiplied / 8, bytes_per_value(self.precision)),
        )

    @property
    def writes_tokens_alone(self) -> bool:
        """Whether each step writes one token: those of a single client, without drafts."""
        return self.concurrency == 1 and self.serving is None

    @property
    def required_requests(self) -> float:
        """Requests that must fit in memory at once; 0 if none is stated, or if the model does not generate."""
        return self.concurrency or 0.0 if self.model.generates else 0.0

    @property
    def whole_length(self) -> float:
        """Tokens of a conversation at its end."""
        return self.input_length + self.output_length

    @property
    def shared_prompt(self) -> float:
        """Tokens of a prompt that all prompts have in common."""
        return self.any_load.prefix_cache_hit_rate * self.input_length

    @property
    def known_prompt(self) -> float:
        """Tokens of a prompt that the engine has read before: those of all prompts, and those of earlier turns."""
        return self.shared_prompt + self.any_load.conversation_cache_hit_rate * self.input_length

    @property
    def written_share(self) -> tuple[float, float]:
        """Mean and standard deviation of the share of a conversation's cache that a running request occupies.

        Requests with long answers run longer, so they are more frequent among the running ones. A running request has
        written a uniformly distributed part of its answer of a tokens: E[a^2] / 2 E[a] tokens in the mean, and
        E[a^3] / 3 E[a] in the mean square. The share is 1 for stacks that reserve the cache of whole answers, for the
        requests of a burst, which all reach their ends together, and for the state of state spaces, which has its full
        size from the start.
        """
        unshared = self.whole_length - self.shared_prompt
        if not self.software.stack.grows_cache or self.burst or unshared <= 0:
            return 1.0, 0.0
        prompts, answers = self.any_load.prompt.variation, self.any_load.answer.variation
        prompt = self.input_length - self.shared_prompt
        written = self.output_length * (1.0 + answers) / 2.0
        squared = self.output_length**2 * (1.0 + answers) ** 3 / 3.0
        variance = prompt**2 * prompts + squared - written**2
        growing = self._growing_share(unshared)
        return 1.0 - growing + growing * (prompt + written) / unshared, growing * sqrt(variance) / unshared

    def _growing_share(self, tokens: float) -> float:
        """Returns the share of keys and values in the cache of a conversation, of which states are the rest."""
        t = self.model.transformer
        whole = 0.0 if t is None else float(cache_bytes(t, tokens, 1.0))
        return float(kv_cache_bytes(t, tokens, 1.0)) / whole if t is not None and whole else 1.0

    @property
    def any_load(self) -> Serving:
        """The load to serve, else one without drafts, adapters and shared prompts."""
        return PLAIN_LOAD if self.serving is None else self.serving

    def longest_answer(self, requests: Number) -> Number | None:
        """Returns the mean length of the longest of some answers, which ends a static batch; None for other engines."""
        if not self.software.stack.static_batches:
            return None
        if self.serving is not None:
            return self.serving.answer.longest_of(requests)
        return max(1.0, self.longest_output or self.output_length)

    @property
    def longest_over_mean(self) -> float:
        """Length of the longest conversation that must fit in memory / the mean length; at least 1."""
        if self.serving is None or not self.whole_length:
            return 1.0
        share = self.serving.percentile
        return max(1.0, (self.serving.prompt.at(share) + self.serving.answer.at(share)) / self.whole_length)


Config = TrainingConfig | InferenceConfig
