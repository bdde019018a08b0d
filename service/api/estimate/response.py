"""The `estimate` object of `POST /estimate` and of every choice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import floor
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from service.api.http.fields import Described
from service.api.http.figures import rounded
from service.domain.band import Band
from service.domain.evidence.named import NamedRate
from service.domain.evidence.published import Evidence, Nearness
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.money import Exact, Micros, number
from service.domain.physics.estimate import MemoryNeed
from service.domain.units import GIB

Response = TypeVar("Response")


@dataclass(slots=True)
class BandResponse:
    """Low, likely and high of a figure; in eight of ten cases the true value lies between low and high."""

    low: float
    likely: float
    high: float

    @classmethod
    def of(cls, band: Band) -> "BandResponse":
        """Returns a band with rounded ends."""
        return cls(rounded(band.low), rounded(band.likely), rounded(band.high))


@dataclass(slots=True)
class MoneyResponse:
    """Low, likely and high of an amount of money, to the millionth. In a bill, each of them adds up over the parts."""

    low: float
    likely: float
    high: float


@dataclass(slots=True)
class MemoryResponse(Described):
    """Memory of one GPU in GiB."""

    needed_gib_per_gpu: float
    """Likely memory that the job needs on each GPU."""
    band_gib_per_gpu: BandResponse
    """The band of the needed memory."""
    usable_gib_per_gpu: float
    """Memory that the job may use: all that a program can allocate on the GPU, or the share that an engine reserves for
    weights, activations and cache."""
    fit_probability: float
    """Probability that the job fits; for an engine, that a single request fits. Below 0.9, or below the requested
    confidence, there is a warning `gpu_memory`, unless a measurement on the machine shows that the job fits."""
    parts: dict[str, float]
    """GiB of `weights`, `gradients`, `optimizer`, `activations`, `logits`, `kv_cache`, `buffers` and `overhead`; parts
    of 0 are left out."""


@dataclass(slots=True)
class LayoutResponse(Described):
    """How the job is divided over the GPUs."""

    tensor: int
    """GPUs over which each layer is divided (tensor parallelism)."""
    pipeline: int
    """Stages into which the layers are divided (pipeline parallelism)."""
    data: int
    """Replicas of the model, each with a share of the batch or of the requests (data parallelism)."""
    context: int
    """GPUs over which each sequence is divided (context parallelism)."""
    expert: int
    """GPUs over which the routed experts of a layer are divided (expert parallelism)."""
    zero_stage: Annotated[
        int,
        Field(
            description="What ZeRO shards over the replicas: 1 optimizer states, 2 gradients too, 3 weights "
            "too; 0: nothing."
        ),
    ]
    micro_batch: int
    """Samples per GPU and pass."""
    accumulation: int
    """Micro-batches per optimizer step."""
    activation_checkpointing: str
    """`none`; `selective`: attention is computed again in the backward pass; `full`: all layers are."""
    virtual_stages: int
    """Groups of layers that each pipeline stage has in turn (interleaved schedule); 1 without such a schedule."""


@dataclass(slots=True)
class ModelledEstimateResponse(Described):
    """A modelled job. Rates are of all nodes together, and null if the job cannot fit."""

    basis: Literal["measured", "scaled", "modelled"]
    """`modelled` by formulas; `measured`: at the rate measured under the workload's name on this machine; `scaled`: at
    such a rate of another machine."""
    precision: str
    """The precision of the arithmetic, see `/precisions`."""
    software_profile: str
    """The stack whose efficiency the estimate assumes; `unknown`: none is known, so the estimate is cautious."""
    sample: Annotated[str, Field(description="What one sample is, such as a request or an image.")]
    samples_per_second: BandResponse | None
    """Samples of training, or requests of inference, of all instances together; `POST /estimate` has the rates of one
    instance of a load."""
    tokens_per_second: BandResponse | None
    """Tokens of training, or output tokens of inference, of the same instances. Training of a model that reads sound
    counts the tokens of transcripts; null for networks without tokens."""
    prefill_tokens_per_second: BandResponse | None
    """Tokens of prompts while engines read prompts only; null for training."""
    seconds_to_first_token: BandResponse | None
    """Seconds until the first token of an answer, with `concurrency` requests in flight; null for training."""
    seconds_per_output_token: BandResponse | None
    """Seconds between two tokens of one answer, with `concurrency` requests in flight; null for training."""
    concurrency: float | None
    """Requests in flight on all replicas."""
    kv_cache_tokens: float | None
    """Tokens whose keys and values fit on one replica."""
    hours: BandResponse | None
    """Hours in which all instances do the amount of all runs; null without an amount. A bill adds the time to
    write checkpoints, and other hours such as those of set-up."""
    overhead_beyond_steps: float | None
    """Time for evaluation, saving and start-up, as a share of the time of the steps, as in published runs."""
    joules_per_sample: float | None
    """Energy of a sample at the rated power of the GPUs, or at the measured power that the measurement of `basis`
    states."""
    model_flops_utilisation: float | None
    """FLOPs of the necessary work over the dense peak at the job's precision (MFU): without recomputation and gradients
    of frozen weights, and with half of the scores of causal attention. `model_tflops_per_gpu` counts all scores."""
    peak_tflops_per_gpu: float
    """Dense peak at the job's precision."""
    model_tflops_per_gpu: float | None
    """Rate as papers count it: with attention to the whole sequence. Frozen weights need no gradient."""
    hardware_tflops_per_gpu: float | None
    """`model_tflops_per_gpu` with the FLOPs of recomputation."""
    bottleneck: str | None
    """The resource that takes most of a step; on a machine without a GPU, CPUs count as the GPU."""
    step_seconds: dict[str, float] | None
    """Seconds of a step, in parts that add up to it."""
    memory: MemoryResponse
    layout: LayoutResponse
    extrapolates: list[str]
    """Which of `stack`, `architecture`, `gpu` and `model` no published run has; the band is that of such questions."""


@dataclass(slots=True)
class EvidenceResponse(Described):
    """A measurement or a published run on which an estimate rests, or which is near to the question."""

    kind: Literal["measurement", "published_run"]
    """`measurement`: a rate under the workload's name; `published_run`: a run of a model on GPUs."""
    id: str
    """Id of the measurement or of the published run, see `/measurements`."""
    date: str
    """The day of the measurement, or the year of the published run."""
    source: str
    """Id of the source of a published run, see `/sources`; for a measurement, who or what measured."""
    nearness: Literal["same machine", "another machine"] | Nearness
    """How near it is to the question: the machine of a measurement, the model and the GPU of a published run."""
    measured: str
    """The figure and the machine, in words."""


def shown(value: Any) -> Any:
    """Returns a figure as a response has it: numbers and bands rounded, money in dollars; other values unchanged."""
    match value:
        case None | str():  # most figures of a bill
            return value
        case Micros(low, likely, high):
            return MoneyResponse(number(low), number(likely), number(high))
        case Band():
            return BandResponse.of(value)
        case Exact():
            return BandResponse.of(value.band)
        case float():
            return rounded(value)
    return value


def shown_fields(value: object, *names: str) -> dict[str, Any]:
    """Returns some attributes of a value as a response has them; all are None if the value is None."""
    return {name: None if value is None else shown(getattr(value, name)) for name in names}


def like(response: type[Response], value: object, **more: object) -> Response:
    """Returns a response with the attributes of the value that have the same names, and with `more`."""
    names = response.__dataclass_fields__  # type: ignore[attr-defined]
    return response(**shown_fields(value, *(name for name in names if name not in more)), **more)


MEMORY_PARTS: Mapping[str, str] = {
    "kept": "activations",
    "selected": "activations",
    "boundaries": "activations",
    "prompts": "activations",
    "sampler": "activations",
    "live": "buffers",
    "context": "overhead",
}
"""Parts of memory in the domain → their names in a response; other parts keep their names."""


def modelled_estimate(response: type[Response], job: JobEstimate, instances: int, **more: object) -> Response:
    """Returns the estimate of a job with its figures rounded, and with `more`, which replaces figures of the job.

    The physics is that of one instance; rates, requests and hours are those of all instances together.
    """
    estimate, config, hours = job.estimate, job.config, job.hours_on(instances)
    figures: dict[str, object] = {
        "basis": "modelled",
        "precision": config.precision,
        "software_profile": config.software.profile,
        "sample": job.job.sample_name,
        "samples_per_second": _times(estimate.samples_per_second, instances),
        "tokens_per_second": _times(estimate.tokens_per_second, instances),
        "prefill_tokens_per_second": _times(estimate.prefill_tokens_per_second, instances),
        "concurrency": estimate.concurrency and rounded(estimate.concurrency * instances),
        "hours": shown(hours),
        "overhead_beyond_steps": shown(job.beyond_steps),
        "model_flops_utilisation": shown(job.model_flops_utilisation),
        "peak_tflops_per_gpu": rounded(job.peak_flops_per_gpu / 1e12),
        "model_tflops_per_gpu": _tera(job.model_flops_per_second_per_gpu),
        "hardware_tflops_per_gpu": _tera(job.hardware_flops_per_second_per_gpu),
        "step_seconds": None if estimate.step is None else _rounded_parts(estimate.step.parts),
        "memory": memory_response(estimate.memory),
        "layout": like(LayoutResponse, estimate.layout),
        "extrapolates": list(estimate.extrapolates),
    }
    return like(response, estimate, **(figures | more))


def _times(band: Band | None, factor: float) -> BandResponse | None:
    return None if band is None else BandResponse.of(band.times(factor))


def memory_response(memory: MemoryNeed) -> MemoryResponse:
    """Returns the memory of one GPU in GiB, in the parts that a response has."""
    # Several parts of the domain have the same name in a response, so their bytes are added.
    parts: dict[str, float] = {}
    for name, size in memory.parts.items():
        answered = MEMORY_PARTS.get(name, name)
        parts[answered] = parts.get(answered, 0.0) + size / GIB
    return MemoryResponse(
        needed_gib_per_gpu=rounded(memory.needed_bytes / GIB),
        band_gib_per_gpu=BandResponse.of(memory.above_weights(memory.band).times(1 / GIB)),
        usable_gib_per_gpu=rounded(memory.usable_bytes / GIB),
        # Rounded down, so that a probability below the one that is asked for is never shown as that one.
        fit_probability=floor(1000 * memory.fit_probability) / 1000,
        parts=_rounded_parts(parts),
    )


def _tera(value: float | None) -> float | None:
    return None if value is None else rounded(value / 1e12)


def _rounded_parts(parts: Mapping[str, float]) -> dict[str, float]:
    # A part of 0 bytes or seconds says nothing and is left out.
    return {name: rounded(value) for name, value in parts.items() if value}


def evidence_of(rate: NamedRate | None, runs: Iterable[Evidence]) -> list[EvidenceResponse]:
    """Returns the measurement from which a rate follows, if there is one, and then the published runs."""
    own = [] if rate is None else [_own_run(rate)]
    names = ("id", "date", "source", "nearness", "measured")
    return [*own, *(EvidenceResponse(kind="published_run", **shown_fields(run, *names)) for run in runs)]


def _own_run(rate: NamedRate) -> EvidenceResponse:
    measurement = rate.evidence
    per_second = measurement.samples_per_second
    return EvidenceResponse(
        kind="measurement",
        id=measurement.id,
        date=measurement.measured_on.isoformat(),
        source=measurement.source,
        nearness="same machine" if rate.basis == "measured" else "another machine",
        measured=f"{measurement.workload} on {rate.place}: {per_second:,g} samples/s",
    )
