"""Jobs: workloads with resolved names and defaults."""

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal, TypeVar

import numpy as np

from service.domain.arrays import Floats, Number
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.errors import QuestionError
from service.domain.jobs.config import (
    USUAL_CONFIDENCE,
    Method,
)
from service.domain.jobs.fixed_layout import FREE, STAGE_OF_OFFLOADED_WEIGHTS, FixedLayout
from service.domain.jobs.loading import SampleLoading
from service.domain.jobs.serving import Serving
from service.domain.jobs.stacks import UNKNOWN, SoftwareStack
from service.domain.models.model import Model, Transformer

Samples = TypeVar("Samples", float, Floats)
Task = Literal["training", "inference"]
JOB_PRECISIONS: dict[str, tuple[str, ...]] = {
    "training": USUAL_PRECISIONS,
    "inference": tuple(name for name in USUAL_PRECISIONS if name != "tf32"),
}
"""Task → the precisions of which the fastest on a GPU is taken if the caller names none."""

_KEPT_UNDER_ADAPTERS = frozenset({"int4", "int8", "nf4", "nf4-dq"})
"""Formats of published weights that adapters are trained on as they are: GPTQ, AWQ and bitsandbytes (documentation of
PEFT on quantization). Weights in 8-bit and 4-bit floats are first expanded to 16 bits (OpenAI's guide to fine-tuning
gpt-oss, conversion of DeepSeek-V3)."""

IN_STEPS = " in "
"""Between the sample of a diffusion model and its denoising steps: `image 512x512 in 30 steps`."""

_USUAL_SEQUENCE = 2048
"""Default tokens of a training sequence, unless the model reads fewer: the usual length from GPT-3 to Llama 1."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much work there is, in one of samples, tokens or steps. `samples` are those of all `epochs`."""

    samples: float | None = None
    tokens: float | None = None
    steps: float | None = None
    epochs: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A workload with its names and defaults resolved. Lengths are in tokens, batches in samples.

    The stack and the GPU decide about fields that are None.
    """

    task: Task
    model: Model
    precisions: tuple[str, ...] = ()
    """Precisions that may be used, in order of preference; empty: the usual ones of the task."""
    software: SoftwareStack = UNKNOWN
    amount: Amount | None = None
    """The work of one run."""
    runs: int = 1
    """Independent runs at the same time, each on nodes of its own."""
    weight_precision: str | None = None
    weight_bits: float | None = None
    mean_bits: bool = False
    """Whether `weight_bits` are a mean over all weights, as those of a GGUF file are; so are those of some stacks."""
    method: Method = "full"
    optimizer: str = "adamw"
    purpose: Literal["pretrain", "finetune"] | None = None
    has_reference: bool = False
    samples_together: int = 1
    """Training samples that a pass reads together, such as the two sequences of a pair."""
    trainable_parameters: float | None = None
    sequence_length: int | None = None
    mean_length: float | None = None
    global_batch: int | None = None
    micro_batch: int | None = None
    """Training samples per GPU in one pass."""
    layout: FixedLayout = FREE
    """The parts of the layout that the caller fixes; `fixed` has those that other fields imply as well."""
    flash_attention: bool | None = None
    mixed_precision: bool | None = None
    chunked_loss: bool = False
    loss_logits: float | None = None
    """Logits that the loss of a library holds at once, per value of the hidden states; None without such a library."""
    fused_optimizer: bool = False
    offload_activations: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False
    encoders_in_training: bool = False
    kv_precision: str | None = None
    input_length: float | None = None
    output_length: float | None = None
    longest_output: float | None = None
    image_tokens: float = 0.0
    """Tokens of a prompt, or on average of a training sample, that are images."""
    denoising_steps: int | None = None
    guidance: bool | None = None
    concurrency: float | None = None
    serving: Serving | None = None
    memory_confidence: float = USUAL_CONFIDENCE
    """Probability with which the GPUs' memory has to suffice."""
    prompt_field: str = "workload.input_length"
    """The field of the question that states the length of a prompt."""
    loading: SampleLoading = field(default_factory=SampleLoading)
    assumed_network_gbps: float | None = None
    """Network bandwidth to assume for nodes that state none."""
    marketplace_clusters: bool = True
    """Whether machines of a marketplace may form a cluster."""
    unrecognised_software: tuple[str, ...] = ()
    """Names of the framework and the engine that no stack has; `listed_software` has those that rules list."""
    listed_software: tuple[str, ...] = ()
    similar_stacks: tuple[str, ...] = ()
    """Names of stacks that the unrecognised names may mean: those that a server runs, or a name nearly the same."""
    dimensions_of: str | None = None
    """The model whose dimensions are assumed, for a language model of which only the parameters are known."""

    @property
    def fixed(self) -> FixedLayout:
        """The fixed parts of the layout: as the caller says, else as the batch of a GPU and offloaded weights imply."""
        micro_batch, stage = self.layout.micro_batch or self.micro_batch, self.layout.zero_stage
        if stage is None and self.offload_parameters:
            stage = STAGE_OF_OFFLOADED_WEIGHTS
        return replace(self.layout, micro_batch=micro_batch, zero_stage=stage)

    @property
    def in_any_layout(self) -> "Job":
        """The job without the parts of a layout that the caller fixes."""
        return replace(self, layout=FREE)

    @property
    def layout_is_fixed(self) -> bool:
        """Whether the caller fixes a part of the layout that no other field implies."""
        return self.fixed != self.in_any_layout.fixed

    @property
    def as_published(self) -> str | None:
        """The format in which the weights are used because they are published in it; None if another one decides."""
        published = self.model.published_precision
        if self.task == "inference":
            return published if self.precisions == (published,) else None
        return self.weights_of_checkpoint if self.method != "full" and self.weight_precision is None else None

    @property
    def weights_of_checkpoint(self) -> str | None:
        """The published format of the weights, if trainers add adapters to weights in it; None for other formats."""
        published = self.model.published_precision
        return published if published in _KEPT_UNDER_ADAPTERS else None

    @property
    def weight_formats(self) -> tuple[str, ...]:
        """The formats in which the weights of inference may be stored, as far as the question says it."""
        return self.precisions if self.weight_precision is None else (self.weight_precision,)

    @property
    def limits(self) -> int:
        """Number of limits of the load; 0 without a load."""
        return 0 if self.serving is None else len(self.serving.limits)

    @property
    def has_fixed_sample(self) -> bool:
        """Whether a sample has the one size that the model states, such as an image of 224 x 224 pixels."""
        return not self.model.sample.startswith(("token", "sequence"))

    @property
    def sample_name(self) -> str:
        """A sample of this job in words, such as `sequence of 2048 tokens`."""
        model, steps = self.model, denoising_steps(self)
        if model.sample not in ("token", "sequence"):
            is_denoised = self.task == "inference" and steps > 1
            return f"{model.sample}{IN_STEPS}{steps:g} steps" if is_denoised else model.sample
        if model.transformer is None:
            return model.sample
        if self.task == "inference":
            return "request" if model.generates else f"sequence of {input_length(self):g} tokens"
        return f"sequence of {sequence_length(self)} tokens"

    @property
    def serves(self) -> bool:
        """Whether the job is inference of a model that generates tokens."""
        return self.task == "inference" and self.model.generates


def sequence_length(job: Job) -> int:
    """Returns the tokens (or patches) of a training sample; 0 for a network without sequences.

    If an encoder reads a fixed number of tokens and a decoder another, it is the mean over all layers. Raises
    `QuestionError` if an encoder has too few positions; decoders are often trained beyond theirs.
    """
    t = job.model.transformer
    if t is None:
        return 0
    if job.sequence_length:
        _check_length(job, job.sequence_length, "workload.sequence_length")
    if reads_fixed_tokens(job.model):
        return round(_mean_over_layers(job.model, job.sequence_length or job.model.output_tokens_per_sample or 0.0))
    return job.sequence_length or min(_USUAL_SEQUENCE, _most_tokens(t) or _USUAL_SEQUENCE)


def mean_length_over_layers(job: Job) -> float | None:
    """Returns the mean tokens of a training sample without padding, averaged over all layers; None if not stated."""
    if job.mean_length is None or not reads_fixed_tokens(job.model):
        return job.mean_length
    return _mean_over_layers(job.model, job.mean_length)


def written_length(job: Job) -> float | None:
    """Returns the tokens of a training sample that a decoder learns to write, where the network fixes those that its
    encoder reads; None for other models, all of whose layers have the same tokens.
    """
    if not reads_fixed_tokens(job.model):
        return None
    return job.mean_length or job.sequence_length or job.model.output_tokens_per_sample


def reads_fixed_tokens(model: Model) -> bool:
    """Returns whether an encoder reads a number of tokens that the network fixes, and a decoder another one."""
    encodes = model.transformer is not None and model.transformer.encoder_layers > 0
    return bool(encodes and model.input_tokens_per_sample and model.output_tokens_per_sample)


def _mean_over_layers(model: Model, decoded: float) -> float:
    """Returns the tokens of a layer, averaged over those of the encoder and those of the decoder."""
    assert model.transformer is not None
    assert model.input_tokens_per_sample is not None
    share = model.transformer.encoder_layers / model.transformer.layers
    return decoded + (model.input_tokens_per_sample - decoded) * share


def _most_tokens(t: Transformer) -> int:
    """Returns the largest number of tokens of a sample; 0 if unknown."""
    return t.context_tokens or (t.learned_positions if not t.vocabulary else 0)


def _check_length(job: Job, tokens: float, field: str) -> None:
    """Raises `QuestionError` if the model is an encoder and a sample has no tokens, or more than its positions."""
    t = job.model.transformer
    # Decoders are often used beyond their positions, and networks without sequences have no tokens.
    if t is None or t.decoder:
        return
    most = _most_tokens(t)
    if tokens < 1:
        raise QuestionError(f"{job.model.name} reads at least 1 token, not {tokens:g}.", field=field)
    if most and tokens > most:
        raise QuestionError(f"{job.model.name} reads at most {most} tokens, not {tokens:g}.", field=field)


def input_length(job: Job) -> float:
    """Returns the tokens of a prompt, or of a sample of a network that generates nothing; 0 if unknown.

    If the caller states none, it is the number that the network fixes, and for an encoder the length of a training
    sample. Raises `QuestionError` if an encoder has too few positions.
    """
    if job.input_length is not None:
        _check_length(job, job.input_length, job.prompt_field)
        return job.input_length
    if job.sequence_length is None and job.model.input_tokens_per_sample is not None:
        return job.model.input_tokens_per_sample
    return float(job.sequence_length or 0) if job.model.generates else float(sequence_length(job))


def with_prompt(job: Job, tokens: float) -> Job:
    """Returns the job with another mean length of prompts, in tokens; a 95th percentile changes in proportion."""
    if job.serving is None:
        return replace(job, input_length=tokens)
    prompt = job.serving.prompt
    scaled = replace(prompt, mean=tokens, p95=prompt.p95 and prompt.p95 * tokens / prompt.mean)
    return replace(job, input_length=tokens, serving=replace(job.serving, prompt=scaled))


def prompt_change(job: Job, tokens: float) -> dict[str, object]:
    """Returns the request fields that ask for the prompts of `with_prompt`, with their values."""
    shorter = with_prompt(job, tokens).serving
    if shorter is None or shorter.prompt.p95 is None:
        return {job.prompt_field: tokens}
    return {job.prompt_field: {"mean": tokens, "p95": shorter.prompt.p95}}


def output_length(job: Job) -> float:
    """Returns the tokens of an answer: as requested, else as the model usually generates per sample; 0 if unknown, and
    for a transformer without a decoder, which writes none.
    """
    if job.model.transformer is not None and not job.model.generates:
        return 0.0
    return job.output_length or job.model.output_tokens_per_sample or 0.0


def assumed_lengths(job: Job) -> dict[str, float]:
    """Returns the tokens of `input` and `output` of a sample of inference that the estimate assumes, without those that
    the caller states or the network fixes.
    """
    model = job.model
    if job.task != "inference" or model.transformer is None:
        return {}
    stated = job.input_length or job.sequence_length or job.mean_length
    lengths = {} if stated or job.has_fixed_sample else {"input": max(1.0, input_length(job))}
    writes = model.generates and not job.output_length
    return lengths | ({"output": max(1.0, output_length(job))} if writes else {})


def denoising_steps(job: Job) -> float:
    """Returns the denoising steps of a sample; 1 for a network without them."""
    return job.denoising_steps or job.model.steps_per_sample or 1.0


def passes_per_step(job: Job) -> float:
    """Returns the passes of a denoising step: two with guidance, which denoises with the prompt and without it.

    A model that is described has steps only where the question states them, and then guidance too.
    """
    usual = job.model.passes_per_step or (2.0 if job.denoising_steps else 1.0)
    return usual if job.guidance is None else 1.0 + job.guidance


def tokens_per_sample(job: Job) -> float:
    """Returns the tokens of a sample, by which an amount in tokens is converted to samples; 0 if unknown."""
    if job.task == "training":
        return job.mean_length or written_length(job) or sequence_length(job)
    return output_length(job) or job.mean_length or input_length(job)


def samples_of(amount: Amount, length: float, samples_per_step: Samples) -> float | Samples | None:
    """Returns the samples of an amount; None if unknown. `length` is the tokens of a sample, 0 if unknown."""
    if amount.samples is not None:
        return amount.samples
    if amount.tokens is not None:
        return amount.tokens / length if length else None
    return None if amount.steps is None else amount.steps * samples_per_step


def time_of_share(task: str, runs: int, instances: Number) -> Number:
    """Returns the time of some independent instances that share all runs, relative to one that does all of them.

    Several runs of training are not divided: of 8 runs on 3 instances, two of these do three, one after another. Any
    other work is divided evenly, and a single run of training by the caller.
    """
    return np.ceil(runs / instances) / runs if _is_whole_runs(task, runs) else 1.0 / instances


def _is_whole_runs(task: str, runs: int) -> bool:
    return task == "training" and runs > 1


def instances_in_use(task: str, runs: int, most: int) -> int:
    """Returns the fewest instances on which all runs take as long as on `most`."""
    return ceil(runs / ceil(runs / most)) if _is_whole_runs(task, runs) else most


def purpose_of(job: Job) -> str:
    """Returns the purpose of training, in the terms of published runs: it decides about packed or short sequences."""
    if job.method != "full":
        return {"lora": "lora", "qlora": "qlora"}.get(job.method, "peft_other")
    if job.purpose == "finetune":
        return "finetune_full"
    t = job.model.transformer
    return "pretrain" if t is not None and t.decoder and not t.encoder_layers else "train"
