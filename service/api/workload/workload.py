"""The workload of a request. All fields except `task` are optional."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from service.api.catalog.filters import PrecisionName, Precisions, PrecisionSupport, Task, format_of_file
from service.api.http.fields import (
    LARGEST,
    Amount,
    AtLeastOne,
    AtLeastOneOfMany,
    BodyModel,
    Gbps,
    Name,
    Named,
    Positive,
    whole,
)
from service.api.workload.described_model import ModelDimensionsRequest
from service.api.workload.software import SoftwareRequest, Words
from service.domain.jobs.config import LEAST_CONFIDENCE, PREFERENCE_LOSSES, USUAL_CONFIDENCE
from service.domain.physics.memory import OPTIMIZER_STATES

Percentile = Annotated[float, Field(ge=50, le=99.9)]
LoadRate = Annotated[float, Field(ge=1e-9, le=LARGEST, allow_inf_nan=False)]
Length = Annotated[int, Field(ge=0, le=100_000_000), BeforeValidator(whole)]


class HostRequest(BodyModel):
    """Requirements of the workload on the host: CPUs, memory, and the loading of samples."""

    vcpus_per_gpu: Amount | None = None
    """vCPUs that prepare the samples of one GPU, such as 8; fewer cause a warning. To reject machines, send
    `min_vcpus_per_gpu`. Default: a rule of thumb."""
    memory_gib: Amount | None = None
    """Host memory in GiB. Machines known to have less are rejected. Default: what the job needs by its estimate."""
    cpu_samples_per_second_per_vcpu: Amount | None = None
    """Samples per second that one vCPU prepares, such as 130 images. Too few vCPUs then slow the job, with a warning.
    Default: unknown."""
    samples_per_second: Positive | None = None
    """Samples per second that one machine has to load. Too few vCPUs or too slow a network cause a warning. Default:
    unknown."""
    gpu_decoding: bool = False
    """Whether samples are decoded on the GPU instead of the vCPUs."""
    single_threaded: bool = False
    """Whether the code that prepares samples uses one thread."""


class CheckpointRequest(BodyModel):
    """How the workload saves and resumes."""

    interval_minutes: Positive | None = None
    """Minutes of work between two checkpoints; writing them then takes time in every market. Default: at spot, the
    interval with the lowest expected cost; elsewhere, the time to write checkpoints is not counted."""
    save_seconds: Amount | None = None
    """Seconds to write a checkpoint, in which the work waits. Default: 30, an assumption without a source."""
    restart_seconds: Amount | None = None
    """Seconds from an interruption at spot until the run goes on. Default: 300, an assumption without a source."""


class HoursOnRequest(BodyModel):
    """An amount of work as the hours that it takes on one machine.

    The rate of that machine is the one measured under the workload's name, else the estimated one.
    """

    instance: Annotated[Name, Field(description="The instance type, as `name` or `provider/name`.")]
    hours: Annotated[Positive, Field(description="Hours that the work of one run takes there.")]


class AmountRequest(BodyModel):
    """The amount of work, in one unit. With `epochs`, tokens, samples, pairs and audio_hours are those of one epoch."""

    tokens: Positive | None = None
    """Tokens to train on or to write, such as 1e9; with `epochs`, those of one epoch."""
    samples: Positive | None = None
    """Samples to train on or to answer, such as 1e6; with `epochs`, those of one epoch."""
    pairs: Positive | None = None
    """Pairs of a preferred and a rejected answer, two sequences each."""
    epochs: Positive | None = None
    """How often the data is used. Default: 1."""
    audio_hours: Positive | None = None
    """Hours of audio, for a speech model."""
    steps: Positive | None = None
    """Optimizer steps of one run."""
    hours_on: HoursOnRequest | None = None
    """The work as the hours that it takes on one machine."""


class NumericsRequest(BodyModel):
    """The number formats that the workload tolerates."""

    fp16_overflows: bool = False
    """Whether to exclude precisions with the narrow range of fp16."""
    min_bits: Annotated[int, Field(ge=1, le=64), BeforeValidator(whole)] | None = None
    """Fewest bits of a number. Default: no limit."""


class LengthRequest(BodyModel):
    """Lengths in tokens that follow a lognormal distribution."""

    mean: Annotated[float, Field(gt=0, le=100_000_000, allow_inf_nan=False)]
    """Mean length in tokens."""
    p95: Annotated[float, Field(gt=0, le=400_000_000, allow_inf_nan=False)]
    """Length in tokens that 95 % of requests do not exceed: 1 to 3.8 times the mean."""


class ServingRequest(BodyModel):
    """The load that a model has to serve, in one unit, and limits on its times. Instances and layout follow."""

    requests_per_second: LoadRate | None = None
    """The load as a mean number of requests per second, which arrive at random times. Give one of the three units."""
    output_tokens_per_second: LoadRate | None = None
    """The load as tokens of answers per second, in place of `requests_per_second`."""
    concurrency: AtLeastOneOfMany | None = None
    """The load as a number of clients, in place of a rate: each sends a request once its last one is answered."""
    input_length: Named[Length, LengthRequest] | None = None
    """Tokens of a prompt. Default: `workload.input_length`."""
    output_length: Named[Length, LengthRequest] | None = None
    """Tokens of an answer. Default: `workload.output_length`."""
    max_seconds_to_first_token: Positive | None = None
    """Limit in seconds from a request to its first token. Null: no limit."""
    max_seconds_per_output_token: Positive | None = None
    """Limit in seconds between two tokens of an answer. Default: 0.1, twice as fast as people read, if no limit on a
    time is sent. Null: no limit. Answers of one token have no such time."""
    max_seconds_per_request: Positive | None = None
    """Limit in seconds from a request to the end of its answer. Null: no limit."""
    percentile: Percentile = 95
    """Percentage of requests that must keep each limit on a time, such as 99.9."""
    percentile_to_first_token: Percentile | None = None
    """Percentage of requests that must keep `max_seconds_to_first_token`. Default: `percentile`."""
    percentile_per_output_token: Percentile | None = None
    """Percentage of requests that must keep `max_seconds_per_output_token`. Default: `percentile`."""
    percentile_per_request: Percentile | None = None
    """Percentage of requests that must keep `max_seconds_per_request`. Default: `percentile`."""
    prefix_cache_hit_rate: Annotated[float, Field(ge=0, le=0.99)] = 0.0
    """Share of a prompt that is the same in all requests, such as a system prompt: read and cached once."""
    conversation_cache_hit_rate: Annotated[float, Field(ge=0, le=0.99)] = 0.0
    """Share of a prompt that its conversation has sent before, such as the earlier turns of an agent: it is not read
    again, and each request holds a cache of its own for it."""
    speculative_acceptance: Annotated[float, Field(ge=0, le=0.99)] = 0.0
    """Probability that a drafted token is accepted; 0: no drafts."""
    draft_length: Annotated[int | None, Field(ge=1, le=64), BeforeValidator(whole)] = None
    """Tokens that are drafted per step. Default: 5."""
    draft_cost: Annotated[float | None, Field(ge=0, le=1)] = None
    """Time of a drafted token over the time of a step. Default: that of the work of `draft_model`; 0.05 without a draft
    model."""
    draft_model: Name | None = None
    """The model that drafts tokens, with the vocabulary of the model: its weights at 16 bits and its cache take memory
    of the same GPUs. Default: none, as with n-grams or draft heads of the model itself."""
    adapters: Annotated[int, Field(ge=0, le=10_000), BeforeValidator(whole)] = 0
    """LoRA adapters in GPU memory at once (`max_loras` of vLLM), among which requests choose. They cover attention and
    dense layers at 16 bits."""
    adapter_rank: Annotated[int | None, Field(ge=1, le=1024), BeforeValidator(whole)] = None
    """Largest rank of the adapters. Default: 16."""
    disaggregated: bool = False
    """Whether some instances only read prompts (prefill) and the others only write answers (decode), as vLLM, SGLang
    and TensorRT-LLM can. The load must be a rate."""
    headroom: Annotated[float | None, Field(ge=0, le=0.99)] = None
    """Share of a replica's throughput that is kept free. Default: 0.2 for a rate, 0 for clients."""
    hours_per_day: Annotated[float, Field(gt=0, le=24)] = 24.0
    """Hours of each day in which the load is served, such as 10. Machines are rented for these alone, except under a
    commitment."""
    min_replicas: AtLeastOne = 1
    """Fewest copies of the model."""
    availability_zones: AtLeastOne = 1
    """Zones over which the instances are spread evenly."""


ON_POLICY = frozenset({"grpo", "ppo", "rloo", "dapo", "gspo", "reinforce", "rlhf", "rlvr", "rl"})
"""Training on answers that the model generates between its steps."""


DISTILLATION = frozenset({"distill", "distillation", "knowledge_distillation", "kd"})
"""Training on answers of another model."""


def not_on_policy(value: Any) -> Any:
    """Raises `ValueError` for training on answers that a model generates during it, which is not one job."""
    if isinstance(value, str) and value.lower() in DISTILLATION:
        raise ValueError(
            f"{value} trains a student on answers of a teacher: ask for the answers as task inference with the "
            "teacher as model, and for the student as task training with purpose finetune"
        )
    if isinstance(value, str) and value.lower() in ON_POLICY:
        raise ValueError(
            f"{value} trains on answers that the model generates between its steps, and no estimate covers both in one "
            "job: ask for the answers as task inference with an amount of samples, and for the updates as task "
            "training on as many samples, with purpose finetune, or kto if a reference model reads them"
        )
    return value


def no_purpose(value: Any) -> Any:
    """Refuses the name of a purpose as a task or a method. Raises `ValueError`."""
    if isinstance(value, str) and value.lower() in PREFERENCE_LOSSES:
        raise ValueError(
            f"{value} is a purpose: send task training, a method such as lora, and purpose {value.lower()}"
        )
    return not_on_policy(value)


if TYPE_CHECKING:
    Purpose = str  # mypy cannot know a list of names that is made from a table
else:
    Purpose = Literal["pretrain", "finetune", *PREFERENCE_LOSSES]


class WorkloadRequest(BodyModel):
    """The work to run."""

    task: Annotated[Task, BeforeValidator(no_purpose)]
    """The kind of work. `training` and `inference` of a `model` are estimated by formulas; other work is ranked by
    measurements under its `name`, or else by peaks and prices."""
    sample: Annotated[
        Words | None,
        Field(
            description="What one sample is, such as `image 1024x1024 in 30 steps`. Networks over images take other "
            "sizes too: `image 512x512`, `video 1280x720 of 49 frames`. Default: as the model has it."
        ),
    ] = None
    name: Name | None = None
    """Your name for the workload: measurements under that name replace or scale the estimate."""
    model: Named[Name, ModelDimensionsRequest] | None = None
    """The name of a model, such as `llama-3.1-8b` (see `/models`), or its description. Default: unknown."""
    method: Annotated[
        Literal["full", "lora", "qlora", "adapters"] | None,
        BeforeValidator(no_purpose),
        Field(
            description="What training changes: all weights (`full`), or small added ones by `lora`, `qlora` (on "
            "weights of 4 bits) or `adapters`. Default: `full`."
        ),
    ] = None
    purpose: Annotated[Purpose | None, BeforeValidator(not_on_policy)] = None
    """Kind of training: `pretrain` on long packed sequences, `finetune` on short examples, or a loss on preferences
    (DPO, IPO and KTO also hold a frozen reference model; `reward` has one score in place of logits). A sample is one
    sequence, and a pair of answers is two: batches count sequences, and hold whole pairs. Default: as the `method`
    says, and for `full` `pretrain`."""
    precision: Precisions = ()
    """Number formats in order of preference. Default: for inference as the model is published, otherwise the best usual
    one of each GPU."""
    precision_support: PrecisionSupport = "native"
    """How well the GPU must run the precision: `accelerated` by matrix units, at least `native`, or `any` rate."""
    precision_flexible: bool = False
    """Whether a faster format (TF32, or 16 bits) may replace the precision on a GPU that has it."""
    code_changes: bool = True
    """Whether `precision_flexible` may use formats that need changes of the code; without them, only TF32 counts."""
    weight_precision: PrecisionName | None = None
    """Format of the stored weights, such as `int4` or `fp8`, or of their GGUF file, such as `q4_k_m`.
    Default: the same as `precision`."""
    weight_bits: Annotated[float | None, Field(ge=0.5, le=64)] = None
    """Bits per stored weight, including its scales, such as 4.85. Default: those of `weight_precision`."""
    kv_cache_precision: PrecisionName | None = None
    """Format of cached keys and values. Default: as the stack does, else 16 bits, or those of a wider `precision`."""
    optimizer: Annotated[Name | None, Field(description=f"One of {', '.join(OPTIMIZER_STATES)}. Default: `adamw`.")] = (
        None
    )
    trainable_parameters: Positive | None = None
    """Parameters that training changes. Default: all, or a usual number for the method."""
    mixed_precision: bool | None = None
    """Whether 16-bit training keeps an fp32 copy of the weights. Default: as the stack does."""
    flash_attention: bool | None = None
    """Whether attention runs in a fused kernel that never stores its matrix. Default: as the stack does."""
    chunked_loss: bool = False
    """Whether the loss is computed in chunks, so that the logits are never stored whole: in 8 chunks in torchtune and
    Axolotl, elsewhere in as many as keep them as small as the hidden states. So it is in Unsloth, and with
    `liger-kernel` among the libraries; with `cut-cross-entropy` no logits are stored."""
    fused_optimizer: bool = False
    """Whether the optimizer updates weights during the backward pass, so that no more than the gradients of a layer are
    kept. Accumulation over several micro-batches keeps all of them."""
    offload_activations: bool = False
    """Whether the activations from which full checkpointing recomputes the others are kept in host memory. Layouts
    without full checkpointing keep theirs on the GPU."""
    offload_optimizer: bool = False
    """Whether gradients and optimizer states are in host memory, where the CPU updates them (ZeRO-Offload)."""
    offload_parameters: bool = False
    """Whether weights are in host memory, from which each layer is fetched for its passes (`offload_param` of ZeRO-3,
    `CPUOffload` of FSDP); often with `offload_optimizer`."""
    encoders_in_training: bool = False
    """Whether the text encoders and the encoder of images of a diffusion model are on each GPU and run in every step of
    training. Default: they run over all samples before it, as with cached latents and texts."""
    sequence_length: AtLeastOneOfMany | None = None
    """Tokens of a training sample, padding included, which take time and memory; of a model that reads sound, tokens of
    a transcript. Default: 2048, or the model's limit if less, or the usual transcript of its sound."""
    mean_length: Positive | None = None
    """Mean tokens of a sample if padding takes no time, because samples are packed or kernels skip it. Where batches
    are padded, as usual trainers do, leave it out. Default: `sequence_length`."""
    global_batch_size: AtLeastOneOfMany | None = None
    """Samples per optimizer step. Default: `batch_size` for each GPU, or group of GPUs that share
    samples (tensor and context parallelism), else a usual number."""
    batch_size: AtLeastOneOfMany | None = None
    """Training: samples per GPU and pass; default: chosen with the layout. Inference: the same as `concurrency`."""
    concurrency: AtLeastOneOfMany | None = None
    """Inference: requests in flight; of a model that writes no tokens, the samples that each GPU passes over at once.
    Default: as many as fit, or a usual number of such samples."""
    input_length: Length | None = None
    """Tokens of a prompt, or of an input sample. Default: what the model reads per sample, else `sequence_length`, else
    one token for a model that writes answers."""
    output_length: Length | None = None
    """Tokens of an answer. Default: as many as the model usually writes, else one."""
    image_tokens: Amount = 0.0
    """Tokens of `input_length` that come from images, which the model has to encode; in training, mean tokens of a
    sample, and the encoder is taken as frozen."""
    longest_output_length: Length | None = None
    """Tokens of the longest answer, if all samples of the amount are sent at once. Default: `output_length`."""
    denoising_steps: Annotated[int | None, Field(ge=1, le=10_000), BeforeValidator(whole)] = None
    """Denoising steps per sample. Default: as is usual for the model."""
    guidance: bool | None = None
    """Whether classifier-free guidance takes two passes per step. Default: true, unless the model is distilled for
    guidance."""
    serving: ServingRequest | None = None
    """A continuous load to serve, instead of an amount of work."""
    amount: AmountRequest | None = None
    """How much work one run is. Default: unknown; an answer then has rates and no total."""
    growth: Literal["distributed"] | None = None
    """`distributed`: the work will later run on several linked GPUs, so the provider must also have machines of the
    same architecture with fast links."""
    dataset: Name | None = None
    """The data set, such as `ms_coco`, for which rules of thumb state a usual number of GPUs."""
    goal: Name | None = None
    """The goal, such as `reproduce_paper`, for which rules of thumb exist."""
    model_size: Literal["small", "medium", "large", "very_large"] | None = None
    """The rough size of the model, for rules of thumb."""
    software: SoftwareRequest = SoftwareRequest()
    host: HostRequest = HostRequest()
    numerics: NumericsRequest = NumericsRequest()
    concurrent_runs: AtLeastOne = 1
    """Independent runs at the same time, each with the whole amount of work. With a model or a measured name, each run
    takes its own machines, otherwise one GPU."""
    sample_mb: Amount | None = None
    """Size of a stored sample in MB, for the time to read it. Default: unknown, and reading takes no time."""
    reads_from: Literal["network", "local"] | None = None
    """Where samples are stored: over the network, or on disks of the machine. Default: `network`."""
    assume_network_gbps: Gbps | None = None
    """Network of a node in Gbps, where the catalog states none. Default: 10 Gbps, and only data parallelism crosses
    nodes."""
    memory_confidence: Annotated[float, Field(ge=LEAST_CONFIDENCE, le=0.99)] = USUAL_CONFIDENCE
    """Probability with which a layout must fit in the memory of the GPUs. Recommendations reject machines on which no
    layout does."""
    fault_tolerant: bool | None = None
    """Whether an interrupted run can resume. True admits spot by default; null admits it only if `market` names it."""
    checkpoint: CheckpointRequest = CheckpointRequest()

    @model_validator(mode="before")
    @classmethod
    def _with_format_of_file(cls, sent: Any) -> Any:
        """Takes a format of GGUF files in `precision` as that of the weights: it is no precision of a GPU."""
        if not isinstance(sent, dict) or sent.get("task") != "inference" or sent.get("weight_precision") is not None:
            return sent
        name = format_of_file(sent.get("precision"))
        if name is None:
            return sent
        return {key: value for key, value in sent.items() if key != "precision"} | {"weight_precision": name}
