"""Evidence: published runs near to a question, and rates that were measured under a workload's own name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from heapq import nsmallest
from math import log
from typing import Literal

from service.domain.band import Band
from service.domain.catalog.hardware import Gpu, InstanceType
from service.domain.catalog.reference import Measurement, PublishedRun, Reference
from service.domain.models.model import Model

# Published runs near to a question

Nearness = Literal["same_model_and_gpu", "same_model_kin_gpu", "same_gpu_kin_model", "same_model", "kin_gpu_kin_model"]
NEAREST_FIRST: tuple[Nearness, ...] = (
    "same_model_and_gpu", "same_model_kin_gpu", "same_gpu_kin_model", "same_model", "kin_gpu_kin_model",
)  # fmt: skip
"""Kin GPUs share vendor and architecture, kin models the family; neither is `KIN_WITHIN` times the other."""

KIN_WITHIN = 2.0
"""Of memory bandwidth and of active parameters: an A10G is of an A100's architecture, and tells nothing of it."""

SPEAKS_OF: Mapping[str, tuple[str, ...]] = {
    "train_throughput": ("train_throughput", "train_mfu", "train_time", "train_gpu_hours"),
    "infer_throughput": ("infer_throughput",),
    "train_memory_fit": ("train_memory_fit", "oom"),
    "infer_memory_fit": ("infer_memory_fit", "oom"),
}
"""Which kinds of runs say something to a question of a kind, the most direct first."""

OTHER_KIND, OTHER_PRECISION, OTHER_FRAMEWORK = log(4.0), log(2.0), log(1.5)
OTHER_COUNT, OTHER_LENGTH, YEAR, QUALITY_B = 0.25, 0.25, log(1.05), log(1.1)
"""How far apart two runs are, as the logarithm of how much their speeds may differ: judgement, for the order only."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A published run, how near it is to the question, and in what it differs from what the question says."""

    run: PublishedRun
    nearness: Nearness
    differs: tuple[str, ...]
    measured: str
    """A sentence without its full stop."""

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def source(self) -> str:
        return self.run.source

    @property
    def date(self) -> str:
        """As precise as it is known."""
        return str(self.run.year)


Speaking = Mapping[tuple[str, str], Sequence[PublishedRun]]
"""Runs by model and GPU."""

Near = Mapping[Nearness, Sequence[PublishedRun]]
"""Runs by how near they are, the nearest first."""


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """What evidence is wanted for; what is null is open."""

    model: Model
    gpu: Gpu
    kind: str
    """A key of `SPEAKS_OF`."""
    precision: str | None = None
    framework: str | None = None
    gpus: int | None = None
    length: int | None = None
    """Tokens of a training sequence, or of a prompt and its answer together."""


def nearest_runs(
    reference: Reference,
    model: Model,
    gpu: Gpu,
    kind: str,
    as_of: date,
    *,
    precision: str | None = None,
    framework: str | None = None,
    gpus: int | None = None,
    length: int | None = None,
    most: int = 3,
    near: Near | None = None,
) -> tuple[Evidence, ...]:
    """The published runs nearest to a question, nearest first.

    The model and the GPU need not be of the catalog: a model without a preset has kin of its family and size.
    `near` is what `runs_by_nearness` found for them, where it was asked before.
    """
    asked = EvidenceRequest(model, gpu, kind, precision, framework, gpus, length)
    found: list[Evidence] = []
    if near is None:
        near = runs_by_nearness(reference, model, gpu, runs_that_speak(reference, kind, as_of))
    for nearness, runs in near.items():
        ranked = nsmallest(most - len(found), runs, key=lambda run: (distance(run, asked, reference, as_of), run.id))
        found += [Evidence(run, nearness, differences(run, asked), described(run, reference)) for run in ranked]
        if len(found) == most:
            break
    return tuple(found)


def runs_that_speak(reference: Reference, kind: str, as_of: date) -> Speaking:
    """The runs known by a day that say something to questions of a kind."""
    found: dict[tuple[str, str], list[PublishedRun]] = {}
    for run in reference.published_runs:
        if run.kind in SPEAKS_OF[kind] and run.known_on <= as_of and is_of_the_task(run, kind):
            found.setdefault((run.model, run.gpu), []).append(run)
    return found


def runs_by_nearness(reference: Reference, model: Model, gpu: Gpu, speaking: Speaking) -> Near:
    """The runs that say something to the question, by how near they are."""
    found: dict[Nearness, list[PublishedRun]] = {nearness: [] for nearness in NEAREST_FIRST}
    for (seen_model, seen_gpu), runs in speaking.items():
        nearness = nearness_of(reference.models[seen_model], reference.gpus[seen_gpu], model, gpu)
        if nearness is not None:
            found[nearness] += runs
    return found


def is_of_the_task(run: PublishedRun, kind: str) -> bool:
    """Reports of too little memory are of training and of answering alike."""
    return run.kind != "oom" or run.task.startswith("infer") == kind.startswith("infer")


def nearness_of(seen_model: Model, seen_gpu: Gpu, model: Model, gpu: Gpu) -> Nearness | None:
    if seen_model.id == model.id:
        if seen_gpu.id == gpu.id:
            return "same_model_and_gpu"
        return "same_model_kin_gpu" if are_kin_gpus(seen_gpu, gpu) else "same_model"
    if not are_kin_models(seen_model, model):
        return None
    if seen_gpu.id == gpu.id:
        return "same_gpu_kin_model"
    return "kin_gpu_kin_model" if are_kin_gpus(seen_gpu, gpu) else None


def are_kin_gpus(one: Gpu, other: Gpu) -> bool:
    alike = (one.vendor, one.architecture) == (other.vendor, other.architecture)
    return alike and apart(one.memory_bandwidth_gb_per_second, other.memory_bandwidth_gb_per_second) <= log(KIN_WITHIN)


def are_kin_models(one: Model, other: Model) -> bool:
    return one.family == other.family and apart(one.active_parameters, other.active_parameters) <= log(KIN_WITHIN)


def apart(one: float | None, other: float | None) -> float:
    """How many times one figure is the other, as a logarithm; what is unknown is as far as kin can be."""
    return abs(log(one / other)) if one and other else log(KIN_WITHIN)


def distance(run: PublishedRun, asked: EvidenceRequest, reference: Reference, as_of: date) -> float:
    far = YEAR * (as_of.year - run.year) + QUALITY_B * (run.quality != "A")
    far += OTHER_KIND * SPEAKS_OF[asked.kind].index(run.kind)
    far += OTHER_PRECISION * (asked.precision not in (None, run.precision))
    far += OTHER_FRAMEWORK * (asked.framework not in (None, run.framework))
    far += OTHER_COUNT * apart(asked.gpus, run.gpus) if asked.gpus else 0.0
    far += OTHER_LENGTH * apart(asked.length, length_of(run)) if asked.length else 0.0
    if run.gpu != asked.gpu.id:
        there = reference.gpus[run.gpu].memory_bandwidth_gb_per_second
        far += apart(there, asked.gpu.memory_bandwidth_gb_per_second)
    if run.model != asked.model.id:
        far += apart(reference.models[run.model].active_parameters, asked.model.active_parameters)
    return far


def length_of(run: PublishedRun) -> int | None:
    if run.input_length is not None and run.output_length is not None:
        return run.input_length + run.output_length
    return run.sequence_length or run.input_length


def differences(run: PublishedRun, asked: EvidenceRequest) -> tuple[str, ...]:
    """In what a run is not what the question says; what either leaves open does not differ."""
    pairs = {
        "model": (run.model, asked.model.id),
        "gpu": (run.gpu, asked.gpu.id),
        "precision": (run.precision, asked.precision),
        "framework": (run.framework, asked.framework),
        "gpus": (run.gpus, asked.gpus),
        "length": (length_of(run), asked.length),
    }
    return tuple(name for name, (seen, wanted) in pairs.items() if None not in (seen, wanted) and seen != wanted)


SPOKEN = {
    "tokens_per_second": "{} tokens/s",
    "tokens_per_second_per_gpu": "{} tokens/s per GPU",
    "samples_per_second": "{} samples/s",
    "output_tokens_per_second": "{} output tokens/s",
    "decode_tokens_per_second": "{} tokens/s while decoding",
    "prefill_tokens_per_second": "{} tokens/s while reading the prompt",
    "milliseconds_per_output_token": "{} ms per output token",
    "milliseconds_to_first_token": "{} ms to the first token",
    "minutes": "{} minutes",
    "hours": "{} hours",
    "days": "{} days",
    "gpu_hours": "{} GPU-hours",
    "mfu_percent": "{} % of the peak",
    "tflops_per_gpu": "{} TFLOP/s per GPU",
    "model_tflops_per_gpu": "{} TFLOP/s of the model per GPU",
    "hardware_tflops_per_gpu": "{} TFLOP/s of the hardware per GPU",
    "scaling_efficiency_percent": "{} % of linear scaling",
    "gb_per_gpu": "{} GB per GPU at the peak",
    "gib_per_gpu": "{} GiB per GPU at the peak",
    "max_context_tokens": "at most {} tokens of context",
    "fits": "it fits",
}


def described(run: PublishedRun, reference: Reference) -> str:
    """What was measured, in words."""
    figure = "it does not fit" if (run.unit, run.value) == ("fits", 0) else SPOKEN[run.unit].format(f"{run.value:,g}")
    gpu = reference.gpus[run.gpu].name
    where = f"{run.gpus} x {gpu}" if run.gpus else gpu
    length = length_of(run)
    settings = (f"{length:,} tokens long" if length else None, run.format, run.software or run.framework)
    return f"{reference.models[run.model].name} on {where}: {figure}" + "".join(
        f", {each}" for each in settings if each
    )


# Rates measured under a workload's own name

STALE_AFTER_DAYS = 365
"""Drivers, libraries and the workload itself have moved on by then."""

Figure = Literal["memory_bandwidth", "peak"]
SCALED_BANDS: Mapping[Figure, tuple[float, float]] = {"memory_bandwidth": (0.64, 1.56), "peak": (0.47, 2.11)}
"""The 10th and 90th percentile of truth ÷ scaled rate over 1,050 pairs of published runs (seed/published_runs.csv) of
one workload and one number of GPUs on two cards; over 1,296 pairs with other numbers it was 0.74 and 1.35."""


SEEN_AGAIN = 1.067
"""Two runs told to be alike differ by less in eight of ten cases: the 80th percentile over 247 pairs of published runs
(seed/published_runs.csv) that are the same in model, GPUs, layout, batch, lengths, precision and software."""


@dataclass(frozen=True, slots=True)
class NamedRate:
    """Samples per second of a workload by its name: measured on the machine, or scaled from another."""

    basis: Literal["measured", "scaled"]
    samples_per_second: Band
    evidence: Measurement
    """The newest that was used."""
    stale: bool
    text: str


def measured_rate(
    measurements: Iterable[Measurement],
    workload: str,
    machine_id: str,
    as_of: date,
    stale_after_days: int = STALE_AFTER_DAYS,
) -> NamedRate | None:
    """What was seen of the workload on the machine: the newest, and between which others it lies.

    Measurements that are stale count only where there are no others.
    """
    seen = [each for each in newest_first(measurements, workload, as_of) if each.machine == machine_id]
    if not seen:
        return None
    fresh = [each for each in seen if not is_stale(each, as_of, stale_after_days)]
    rates = [each.samples_per_second for each in fresh or seen[:1]]
    newest = rates[0]
    text = (
        f"Measured on {machine_id} on {seen[0].measured_on}{stale_words(seen[0], as_of, stale_after_days)}: "
        f"{newest:.4g} samples per second."
    )
    low, high = min(*rates, newest / SEEN_AGAIN), max(*rates, newest * SEEN_AGAIN)
    return NamedRate("measured", Band(low, newest, high), seen[0], not fresh, text)


def scaled_rate(
    measurements: Iterable[Measurement],
    workload: str,
    machine: InstanceType,
    machines: Mapping[str, InstanceType],
    as_of: date,
    *,
    precision: str | None = None,
    figure: Figure | None = None,
    stale_after_days: int = STALE_AFTER_DAYS,
) -> NamedRate | None:
    """The workload's rate on the machine most like this one, times the ratio of a figure of both.

    The figure is the memory bandwidth of all GPUs unless told otherwise (it was the better guide on published runs),
    and their peak at the precision where that is not known; null where neither is.
    """
    figures: tuple[Figure, ...] = (figure,) if figure else ("memory_bandwidth", "peak")
    seen = [each for each in newest_first(measurements, workload, as_of) if each.machine != machine.id]
    for each in figures:
        here = figure_of(machine, each, precision)
        known = [(one, figure_of(machines[one.machine], each, precision)) for one in seen if one.machine in machines]
        scalable = [(one, here / there) for one, there in known if here and there]
        if scalable:
            one, ratio = min(scalable, key=lambda pair: abs(log(pair[1])))  # of equals the newest
            return scaled(one, ratio, each, as_of, stale_after_days)
    return None


def scaled(seen: Measurement, ratio: float, figure: Figure, as_of: date, stale_after_days: int) -> NamedRate:
    likely = seen.samples_per_second * ratio
    low, high = SCALED_BANDS[figure]
    by = figure.replace("_", " ")
    old = stale_words(seen, as_of, stale_after_days)
    text = f"Scaled by {by} ({ratio:.3g} times) from {seen.machine}, measured on {seen.measured_on}{old}."
    return NamedRate(
        "scaled", Band(likely * low, likely, likely * high), seen, is_stale(seen, as_of, stale_after_days), text
    )


def newest_first(measurements: Iterable[Measurement], workload: str, as_of: date) -> Sequence[Measurement]:
    """On one node: how much several lose to their network is not known of other machines."""
    alone = [each for each in measurements if each.nodes == 1]
    seen = [each for each in alone if each.workload == workload and each.measured_on <= as_of]
    return sorted(seen, key=lambda each: (-each.measured_on.toordinal(), each.id))


def is_stale(seen: Measurement, as_of: date, after_days: int) -> bool:
    return (as_of - seen.measured_on).days > after_days


def stale_words(seen: Measurement, as_of: date, after_days: int) -> str:
    return f", {(as_of - seen.measured_on).days} days ago" if is_stale(seen, as_of, after_days) else ""


def figure_of(machine: InstanceType, figure: Figure, precision: str | None) -> float | None:
    """Of all GPUs of the machine together."""
    if machine.gpu is None:
        return None
    if figure == "peak":
        return machine.tflops(precision) if precision else None
    bandwidth = machine.gpu.memory_bandwidth_gb_per_second
    return bandwidth * machine.gpu_count if bandwidth else None
