"""A workload as it is sent. Everything but its task is optional."""

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from service.api.catalog.filters import PrecisionName, Precisions, PrecisionSupport, Task
from service.api.http.fields import (
    LARGEST,
    Amount,
    AtLeastOne,
    AtLeastOneOfMany,
    BodyModel,
    Count,
    Gbps,
    Name,
    Named,
    Names,
    Positive,
    standing,
    whole,
)
from service.domain.jobs.config import PREFERENCE_LOSSES, USUAL_CONFIDENCE
from service.domain.physics.memory import OPTIMIZER_STATES

Words = Annotated[str, Field(max_length=200)]
LoadRate = Annotated[float, Field(ge=1e-9, le=LARGEST, allow_inf_nan=False)]
Length = Annotated[int, Field(ge=0, le=100_000_000), BeforeValidator(whole)]


class SoftwareNameRequest(BodyModel):
    """A piece of software by its name, and the versions that work."""

    name: Words
    versions: Annotated[Words | None, Field(description="Such as `2.3`, `>=2.3` or `>=2.3,<3`.")] = None


_IMAGE = re.compile(r"(?=[^/:]+[/:])(?:[\w.:-]+/)*([\w.-]+)(?::(?:v?(\d+(?:\.\d+)*))?[\w.+-]*)?", re.ASCII)
"""The image of a container: its registry and path, its name, and the version in its tag."""


def written_software(value: Any) -> Any:
    """Returns software that is sent as an object, or as the image of a container, as one text, such as `pytorch >=2.3`.
    Raises `ValueError`.
    """
    if isinstance(value, str) and (image := _IMAGE.fullmatch(value.strip())):
        return "==".join(filter(None, image.groups()))
    if not isinstance(value, dict):
        return value
    if not value.keys() <= SoftwareNameRequest.model_fields.keys() or not isinstance(value.get("name"), str):
        raise ValueError("software is a text, or an object with its `name` and optionally `versions`")
    return f"{value['name']} {value.get('versions') or ''}".strip()


SoftwareName = Annotated[Words, BeforeValidator(written_software, json_schema_input_type=Words | SoftwareNameRequest)]


class LibraryRequest(SoftwareNameRequest):
    """A library by its name."""

    required: Annotated[bool, Field(description="Whether the code runs only with it.")] = True


def library_by_name(value: Any) -> Any:
    """Returns a library that is sent as its name alone as an object."""
    return {"name": value} if isinstance(value, str) else value


Library = Annotated[LibraryRequest, BeforeValidator(library_by_name, json_schema_input_type=Words | LibraryRequest)]


class SoftwareRequest(BodyModel):
    """Software that the code is written for."""

    framework: Annotated[
        SoftwareName | None, Field(description="Such as `pytorch`, `pytorch>=2.3` or an object; see `/frameworks`.")
    ] = None
    engine: Annotated[
        SoftwareName | None,
        Field(description="Such as `vllm==0.6.0` or `vllm/vllm-openai:v0.8.5`; see `/frameworks`."),
    ] = None
    cuda: Annotated[Words | None, Field(description="CUDA toolkit versions that work: `12.1` or `>=11.8,<13`.")] = None
    platforms: Annotated[
        Names,
        Field(description="Platforms of the code, any of: `cuda`, `rocm`, `xla`, `neuron`, `synapse`, `cann`, `cpu`."),
    ] = ()
    libraries: Annotated[
        tuple[Library, ...],
        Field(max_length=50, description="Each is a text such as `dali>=1.2`, or an object."),
        BeforeValidator(standing),
    ] = ()
    custom_cuda_kernels: Annotated[bool, Field(description="CUDA kernels of its own must run unchanged.")] = False


class HostRequest(BodyModel):
    """Requirements of the input pipeline on the host."""

    vcpus_per_gpu: Annotated[Amount | None, Field(description="Fewer warn; `min_vcpus_per_gpu` rejects.")] = None
    memory_gib: Annotated[Amount | None, Field(description="Machines known to have less are rejected.")] = None
    cpu_samples_per_second_per_vcpu: Annotated[
        Amount | None, Field(description="Samples that one vCPU prepares. Too few vCPUs cause a warning.")
    ] = None
    samples_per_second: Annotated[
        Positive | None,
        Field(description="Samples that one machine has to load. CPUs or a network that carry fewer cause a warning."),
    ] = None
    gpu_decoding: bool = False
    single_threaded: Annotated[bool, Field(description="The code that prepares samples uses one thread.")] = False


class CheckpointRequest(BodyModel):
    """How the workload saves and resumes."""

    interval_minutes: Positive | None = None
    save_seconds: Amount | None = None
    restart_seconds: Amount | None = None


class HoursOnRequest(BodyModel):
    """Work as the hours it takes on one machine: at the rate that was measured there under the workload's name, else as
    estimated.
    """

    instance: Name
    hours: Positive


class AmountRequest(BodyModel):
    """How much work there is, in one unit. With `epochs`, tokens, samples, pairs and audio_hours are those of one."""

    tokens: Positive | None = None
    samples: Positive | None = None
    pairs: Annotated[
        Positive | None, Field(description="Pairs of a preferred and a rejected answer, two sequences each.")
    ] = None
    epochs: Positive | None = None
    audio_hours: Annotated[Positive | None, Field(description="Of a speech model.")] = None
    steps: Positive | None = None
    hours_on: HoursOnRequest | None = None


class NumericsRequest(BodyModel):
    """The number formats that the workload tolerates."""

    fp16_overflows: Annotated[bool, Field(description="Precisions with the narrow range of fp16 are not used.")] = False
    min_bits: Annotated[int, Field(ge=1, le=64), BeforeValidator(whole)] | None = None


DEEPEST = 16


def plain(value: Any, depth: int = 0) -> Any:
    """Returns the value if it can be sent back as it came. Raises `ValueError`."""
    if depth > DEEPEST:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(value, dict):
        return {plain(key): plain(held, depth + 1) for key, held in value.items()}
    if isinstance(value, list):
        return [plain(held, depth + 1) for held in value]
    # The config is sent back in the answer, and UTF-8 has no form for half of a surrogate pair.
    if isinstance(value, str) and not value.isprintable() and any("\ud800" <= each <= "\udfff" for each in value):
        raise ValueError("half of a surrogate pair is no text")
    # `not <=` also refuses NaN, which compares as false with everything.
    if isinstance(value, int | float) and not abs(value) <= LARGEST:
        raise ValueError(f"a number beyond {LARGEST:g}")
    return value


HuggingfaceConfig = Annotated[dict[str, Any], Field(max_length=300), AfterValidator(plain)]


class ModelDimensionsRequest(BodyModel):
    """A model by its dimensions, by a Hugging Face config, or by its parameters and forward FLOPs."""

    name: Name | None = None
    family: Annotated[Name | None, Field(description="Such as `llm`, `moe`, `encoder`, `cnn` or `vit`.")] = None
    parameters: Positive | None = None
    active_parameters: Positive | None = None
    forward_flops_per_sample: Annotated[Positive | None, Field(description="2 x multiply-accumulates.")] = None
    layers: Count | None = None
    hidden: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_size: Count | None = None
    ffn: Count | None = None
    gated: bool | None = None
    vocabulary: Count | None = None
    tied: bool | None = None
    experts: Count | None = None
    experts_per_token: Count | None = None
    shared_experts: Count | None = None
    expert_ffn: Count | None = None
    dense_layers: Count | None = None
    mla_kv_rank: Count | None = None
    mla_rope_size: Count | None = None
    mla_query_rank: Count | None = None
    mla_value_size: Count | None = None
    sliding_window: Count | None = None
    global_layers: Count | None = None
    context_tokens: Annotated[int | None, Field(ge=0, le=1_000_000_000), BeforeValidator(whole)] = None
    decoder: bool | None = None
    huggingface_config: HuggingfaceConfig | None = None


class LengthRequest(BodyModel):
    """Lengths in tokens that differ: a lognormal distribution."""

    mean: Annotated[float, Field(gt=0, le=100_000_000, allow_inf_nan=False)]
    p95: Annotated[float, Field(gt=0, le=400_000_000, allow_inf_nan=False, description="At most 3.8 times the mean.")]


class ServingRequest(BodyModel):
    """The load that a language model shall serve, in one unit, and limits on its times: instances and layout follow."""

    requests_per_second: Annotated[LoadRate | None, Field(description="Mean rate of requests at random times.")] = None
    output_tokens_per_second: Annotated[LoadRate | None, Field(description="The rate in tokens of the answers.")] = None
    concurrency: Annotated[
        AtLeastOneOfMany | None, Field(description="Clients that each send a request when the last one is answered.")
    ] = None
    input_length: Annotated[
        Named[Length, LengthRequest] | None, Field(description="Tokens of a prompt. Default: the workload's own.")
    ] = None
    output_length: Annotated[
        Named[Length, LengthRequest] | None, Field(description="Tokens of an answer. Default: the workload's own.")
    ] = None
    max_seconds_to_first_token: Positive | None = None
    max_seconds_per_output_token: Annotated[
        Positive | None,
        Field(description="Default: 0.1, twice as fast as people read, if no limit on a time is named."),
    ] = None
    max_seconds_per_request: Positive | None = None
    percentile: Annotated[
        Literal[50, 95, 99], Field(description="Share of requests that keep each limit on time, at the likely figures.")
    ] = 95
    prefix_cache_hit_rate: Annotated[
        float,
        Field(ge=0, le=0.99, description="Share of a prompt that all requests share: read and kept once."),
    ] = 0.0
    speculative_acceptance: Annotated[
        float, Field(ge=0, le=0.99, description="Probability that a drafted token is accepted; 0: no drafts.")
    ] = 0.0
    draft_length: Annotated[
        int, Field(ge=1, le=64, description="Tokens that are drafted for a step."), BeforeValidator(whole)
    ] = 5
    draft_cost: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="Time of a drafted token over that of a step. Default: parameters of draft_model over those of "
            "the model that take part in a token, else 0.05.",
        ),
    ] = 0.05
    draft_model: Annotated[
        Name | None,
        Field(
            description="The model that drafts: its weights at 16 bits and its cache take memory of the same GPUs. "
            "Default: none, as with n-grams or with heads of the model."
        ),
    ] = None
    disaggregated: Annotated[
        bool,
        Field(
            description="Whether some instances only read prompts and the others write the answers, as vLLM, SGLang "
            "and TensorRT-LLM can; of each kind there are the fewest that keep the limits. Needs a rate."
        ),
    ] = False
    headroom: Annotated[
        float | None,
        Field(ge=0, le=0.99, description="Share of what a replica can do that is kept free. Default: 0.2 for a rate."),
    ] = None
    min_replicas: AtLeastOne = 1
    availability_zones: Annotated[
        AtLeastOne, Field(description="Zones over which the instances are spread evenly.")
    ] = 1


ON_POLICY = frozenset({"grpo", "ppo", "rloo", "dapo", "gspo", "reinforce", "rlhf"})
"""Training on answers that the model generates between its steps."""


def not_on_policy(value: Any) -> Any:
    """Refuses training on answers that the model generates itself, which is not one job. Raises `ValueError`."""
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
    sample: Annotated[
        Words | None,
        Field(description="What one sample is, such as `image 1024x1024 in 30 steps`: an answer states it."),
    ] = None
    name: Name | None = None
    model: Named[Name, ModelDimensionsRequest] | None = None
    method: Annotated[Literal["full", "lora", "qlora", "adapters"] | None, BeforeValidator(no_purpose)] = None
    purpose: Annotated[
        Purpose | None,
        Field(
            description="Long packed sequences, short examples, or a loss on preferences, of which DPO, IPO and KTO "
            "hold a frozen reference model; a sample is one sequence."
        ),
        BeforeValidator(not_on_policy),
    ] = None
    precision: Annotated[
        Precisions,
        Field(
            description="In order of preference. Default: as published (inference), or the best usual one of each GPU."
        ),
    ] = ()
    precision_support: PrecisionSupport = "native"
    precision_flexible: Annotated[
        bool, Field(description="Lets a faster format replace the precision on a GPU that runs it: TF32, or 16 bits.")
    ] = False
    code_changes: Annotated[
        bool, Field(description="If false, only TF32 counts as a faster format, since it needs no change of the code.")
    ] = True
    weight_precision: Annotated[
        PrecisionName | None,
        Field(description="Format of stored weights if it differs, such as `int4`, `nf4` or `fp8`."),
    ] = None
    weight_bits: Annotated[
        float | None, Field(gt=0, le=64, description="Bits per stored weight, including its scales.")
    ] = None
    kv_cache_precision: PrecisionName | None = None
    optimizer: Annotated[Name | None, Field(description=f"One of {', '.join(OPTIMIZER_STATES)}.")] = None
    trainable_parameters: Positive | None = None
    mixed_precision: Annotated[
        bool | None, Field(description="Whether 16-bit training keeps an fp32 copy of the weights.")
    ] = None
    flash_attention: bool | None = None
    chunked_loss: Annotated[bool, Field(description="The loss is computed in chunks, so logits are never whole.")] = (
        False
    )
    fused_optimizer: Annotated[bool, Field(description="The optimizer steps inside the backward pass.")] = False
    offload_activations: bool = False
    offload_optimizer: Annotated[
        bool,
        Field(description="Gradients and optimizer states are in host memory, and the CPU steps them (ZeRO-Offload)."),
    ] = False
    sequence_length: Annotated[AtLeastOneOfMany | None, Field(description="Tokens of a training sample.")] = None
    mean_length: Annotated[
        Positive | None, Field(description="Mean number of real tokens per sample if samples are padded or packed.")
    ] = None
    global_batch_size: Annotated[
        AtLeastOneOfMany | None,
        Field(description="Samples per optimizer step. Default: `batch_size` of each GPU, else a usual number."),
    ] = None
    batch_size: Annotated[
        AtLeastOneOfMany | None, Field(description="Training: samples per GPU and pass. Inference: samples at once.")
    ] = None
    concurrency: Annotated[
        AtLeastOneOfMany | None, Field(description="Requests in flight. Default: as many as fit.")
    ] = None
    input_length: Annotated[Length | None, Field(description="Tokens of a prompt, or of a sample.")] = None
    output_length: Annotated[Length | None, Field(description="Tokens of an answer.")] = None
    image_tokens: Annotated[
        Amount,
        Field(description="Tokens of a prompt, among input_length, that are images which the model has to encode."),
    ] = 0.0
    longest_output_length: Annotated[
        Length | None,
        Field(description="Tokens of the longest answer of an amount of samples that is sent all at once."),
    ] = None
    denoising_steps: Annotated[
        int | None,
        Field(ge=1, le=10_000, description="Of an image. Default: as is usual for the model."),
        BeforeValidator(whole),
    ] = None
    guidance: Annotated[
        bool | None,
        Field(description="Classifier-free guidance, two passes per step. Default: unless the model distils it."),
    ] = None
    serving: Annotated[
        ServingRequest | None, Field(description="A load to serve without an end, instead of an amount of work.")
    ] = None
    amount: AmountRequest | None = None
    growth: Annotated[
        Literal["distributed"] | None,
        Field(description="The work will later run on several linked GPUs, to which code and precisions carry over."),
    ] = None
    dataset: Annotated[
        Name | None, Field(description="Such as `ms_coco`: rules of thumb say how many GPUs are usual.")
    ] = None
    goal: Annotated[Name | None, Field(description="Such as `reproduce_paper`, for rules of thumb.")] = None
    model_size: Annotated[
        Literal["small", "medium", "large", "very_large"] | None, Field(description="For rules of thumb.")
    ] = None
    software: SoftwareRequest = SoftwareRequest()
    host: HostRequest = HostRequest()
    numerics: NumericsRequest = NumericsRequest()
    concurrent_runs: Annotated[
        AtLeastOne,
        Field(
            description="Independent runs at the same time, each of the whole amount. With a model or a measured name "
            "each takes machines of its own, else a GPU."
        ),
    ] = 1
    sample_mb: Amount | None = None
    reads_from: Literal["network", "local"] | None = None
    assume_network_gbps: Annotated[
        Gbps | None,
        Field(
            description="Network of a node where the catalog states none. Without it, 10 Gbps are assumed "
            "there, and only data parallelism crosses them."
        ),
    ] = None
    memory_confidence: Annotated[
        float,
        Field(
            ge=0.5,
            le=0.99,
            description="Probability with which the memory of the GPUs has to suffice. Layouts have to fit with "
            "it, and a recommendation rejects machines on which none does.",
        ),
    ] = USUAL_CONFIDENCE
    fault_tolerant: Annotated[
        bool | None,
        Field(description="Whether an interrupted run can resume. Null: spot takes part where a market names it."),
    ] = None
    checkpoint: CheckpointRequest = CheckpointRequest()
