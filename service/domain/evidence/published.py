"""Published runs that resemble a question: the evidence that an estimate cites."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import log
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from service.domain.arrays import Floats, Indices
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import Gpu
from service.domain.catalog.reference import PublishedRun, Reference
from service.domain.jobs.config import Config, TrainingConfig
from service.domain.models.model import Model

Nearness = Literal[
    "same_model_and_gpu", "same_model_similar_gpu", "same_gpu_similar_model", "same_model", "similar_gpu_similar_model"
]
NEAREST_FIRST: tuple[Nearness, ...] = get_args(Nearness)
"""How near a published run is to the question, as codes of the API.

Similar GPUs share vendor and architecture, similar models share their family, and the larger of the two is less than
`SIMILAR_WITHIN` times the smaller."""

SIMILAR_WITHIN = 2.0
"""Ratio of memory bandwidths and of active parameters: an A10G has the architecture of an A100, and another speed."""

RELEVANT_KINDS: Mapping[str, tuple[str, ...]] = {
    "train_throughput": ("train_throughput", "train_mfu", "train_time", "train_gpu_hours"),
    "infer_throughput": ("infer_throughput",),
    "train_memory_fit": ("train_memory_fit", "oom"),
    "infer_memory_fit": ("infer_memory_fit", "oom"),
}
"""Kinds of runs that are evidence for a question of a kind, the most direct first."""

OTHER_KIND, OTHER_PRECISION, OTHER_FRAMEWORK = log(4.0), log(2.0), log(1.5)
OTHER_COUNT, OTHER_LENGTH, YEAR, QUALITY_B = 0.25, 0.25, log(1.05), log(1.1)
"""Distances between two runs, as the logarithm of how much their speeds may differ: judgement, for the order only."""

MOST_CITED = 3

UNIT_TEXTS = {
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


@dataclass(frozen=True, slots=True)
class EvidenceQuery:
    """A question that evidence is wanted for; None leaves a trait open. The model need not be of the catalog."""

    model: Model
    gpu: Gpu
    kind: str
    """A key of `RELEVANT_KINDS`."""
    as_of: date
    precision: str | None = None
    framework: str | None = None
    gpus: int | None = None
    length: int | None = None
    """Tokens of a training sequence, or of a prompt and its answer together."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A published run, how near it is to the question, and the traits in which it differs from the question."""

    run: PublishedRun
    nearness: Nearness
    differs: tuple[str, ...]
    measured: str
    """A sentence without its full stop."""

    @property
    def id(self) -> str:
        """Name of the run in the catalog."""
        return self.run.id

    @property
    def source(self) -> str:
        """Name of the run's source."""
        return self.run.source

    @property
    def date(self) -> str:
        """The year of the run; published runs rarely state the day."""
        return str(self.run.year)


@dataclass(frozen=True, slots=True, eq=False)
class EquallyNear:
    """Published runs in the order of their ids, with columns that decide how far each is from a question."""

    runs: tuple[PublishedRun, ...]
    apart: Floats
    """Distance by their age, quality, kind, model and GPU."""
    precision: NDArray[Any]
    framework: NDArray[Any]
    gpus: Floats
    """Number of GPUs of each run; NaN where unknown, as in the column of lengths."""
    length: Floats

    @staticmethod
    def of(runs: Sequence[PublishedRun], query: "EvidenceQuery", reference: Reference) -> "EquallyNear":
        """Returns runs as columns for questions about the model, the GPU and the kind of a query."""
        runs = sorted(runs, key=lambda run: run.id)
        return EquallyNear(
            tuple(runs),
            np.array([_distance_of_kind(run, query, reference) for run in runs]),
            np.array([run.precision for run in runs], object),
            np.array([run.framework for run in runs], object),
            np.array([run.gpus or np.nan for run in runs]),
            np.array([_length_of(run) or np.nan for run in runs]),
        )

    def nearest(self, query: "EvidenceQuery", most: int) -> Indices:
        """Returns the rows of the runs that are nearest to a question; of those equally far, the first by id."""
        distance = self.apart
        if query.precision is not None:
            distance = distance + OTHER_PRECISION * (self.precision != query.precision)
        if query.framework is not None:
            distance = distance + OTHER_FRAMEWORK * (self.framework != query.framework)
        if query.gpus:
            distance = distance + OTHER_COUNT * _log_ratios(query.gpus, self.gpus)
        if query.length:
            distance = distance + OTHER_LENGTH * _log_ratios(query.length, self.length)
        return np.argsort(distance, kind="stable")[:most]


Near = Mapping[Nearness, EquallyNear]
"""Runs by how near they are, the nearest first."""


def evidence_for(config: Config, gpu: Gpu, gpus: int, catalog: Catalog) -> tuple[Evidence, ...]:
    """Returns at most three published runs, the nearest first, for a configuration on so many GPUs."""
    if isinstance(config, TrainingConfig):
        kind, length = "train_throughput", config.sequence_length
    else:
        kind, length = "infer_throughput", round(config.input_length + config.output_length)
    framework = None if config.software.line == "unknown" else config.software.line
    query = EvidenceQuery(config.model, gpu, kind, catalog.day, config.precision, framework, gpus, length or None)
    # Comparing a model and a GPU with those of every published run takes longer than the rest of an estimate.
    if gpu.id not in catalog.reference.gpus:  # CPUs, on which no run of the catalog was made
        return ()
    near = catalog.derive(_near, kind, config.model, gpu.id)
    return nearest_runs(catalog.reference, query, near)


def _near(catalog: Catalog, kind: str, model: Model, gpu: str) -> Near:
    return runs_by_nearness(catalog.reference, EvidenceQuery(model, catalog.reference.gpus[gpu], kind, catalog.day))


def nearest_runs(
    reference: Reference, query: EvidenceQuery, near: Near, most: int = MOST_CITED
) -> tuple[Evidence, ...]:
    """Returns the published runs nearest to a question, nearest first. `near` is the result of `runs_by_nearness`."""
    evidence: list[Evidence] = []
    for nearness, equally_near in near.items():
        for row in equally_near.nearest(query, most - len(evidence)).tolist():
            run = equally_near.runs[row]
            evidence.append(Evidence(run, nearness, _differences(run, query), _description(run, reference)))
        if len(evidence) == most:
            break
    return tuple(evidence)


def runs_by_nearness(reference: Reference, query: EvidenceQuery) -> Near:
    """Returns the relevant runs known on the day of the question, by how near their model and GPU are."""
    near: dict[Nearness, list[PublishedRun]] = {nearness: [] for nearness in NEAREST_FIRST}
    known: dict[tuple[str, str], Nearness | None] = {}
    for run in reference.published_runs:
        if run.known_on <= query.as_of and _is_relevant(run, query.kind):
            key = (run.model, run.gpu)
            if key not in known:
                known[key] = _nearness(reference.models[run.model], reference.gpus[run.gpu], query)
            nearness = known[key]
            if nearness is not None:
                near[nearness].append(run)
    return {nearness: EquallyNear.of(runs, query, reference) for nearness, runs in near.items() if runs}


def _is_relevant(run: PublishedRun, kind: str) -> bool:
    # Reports of too little memory are of training and of inference under the same kind.
    of_task = run.kind != "oom" or run.task.startswith("infer") == kind.startswith("infer")
    return of_task and run.kind in RELEVANT_KINDS[kind]


def _nearness(model: Model, gpu: Gpu, query: EvidenceQuery) -> Nearness | None:
    if model.id == query.model.id:
        if gpu.id == query.gpu.id:
            return "same_model_and_gpu"
        return "same_model_similar_gpu" if _are_similar_gpus(gpu, query.gpu) else "same_model"
    if not _are_similar_models(model, query.model):
        return None
    if gpu.id == query.gpu.id:
        return "same_gpu_similar_model"
    return "similar_gpu_similar_model" if _are_similar_gpus(gpu, query.gpu) else None


def _are_similar_gpus(one: Gpu, other: Gpu) -> bool:
    if (one.vendor, one.architecture) != (other.vendor, other.architecture):
        return False
    apart = _log_ratio(one.memory_bandwidth_gb_per_second, other.memory_bandwidth_gb_per_second)
    return apart <= log(SIMILAR_WITHIN)


def _are_similar_models(one: Model, other: Model) -> bool:
    apart = _log_ratio(one.active_parameters, other.active_parameters)
    return one.family == other.family and apart <= log(SIMILAR_WITHIN)


def _log_ratio(one: float | None, other: float | None) -> float:
    """Logarithm of how many times one figure is the other; an unknown figure is as far as similar ones can be."""
    return abs(log(one / other)) if one and other else log(SIMILAR_WITHIN)


def _log_ratios(one: float, others: Floats) -> Floats:
    """`_log_ratio` of a figure to each of a column, NaN where unknown."""
    ratios = np.abs(np.log(one / others))
    return np.where(np.isnan(ratios), log(SIMILAR_WITHIN), ratios)


def _distance_of_kind(run: PublishedRun, query: EvidenceQuery, reference: Reference) -> float:
    """The part of the distance that the model, the GPU, the kind and the day of a question decide."""
    distance = YEAR * (query.as_of.year - run.year) + QUALITY_B * (run.quality != "A")
    distance += OTHER_KIND * RELEVANT_KINDS[query.kind].index(run.kind)
    if run.gpu != query.gpu.id:
        bandwidth = reference.gpus[run.gpu].memory_bandwidth_gb_per_second
        distance += _log_ratio(bandwidth, query.gpu.memory_bandwidth_gb_per_second)
    if run.model != query.model.id:
        distance += _log_ratio(reference.models[run.model].active_parameters, query.model.active_parameters)
    return distance


def _length_of(run: PublishedRun) -> int | None:
    if run.input_length is not None and run.output_length is not None:
        return run.input_length + run.output_length
    return run.sequence_length or run.input_length


def _differences(run: PublishedRun, query: EvidenceQuery) -> tuple[str, ...]:
    """Traits in which the run differs from the question. A trait that is open in either does not differ."""
    pairs = {
        "model": (run.model, query.model.id),
        "gpu": (run.gpu, query.gpu.id),
        "precision": (run.precision, query.precision),
        "framework": (run.framework, query.framework),
        "gpus": (run.gpus, query.gpus),
        "length": (_length_of(run), query.length),
    }
    return tuple(name for name, (run_has, asked) in pairs.items() if None not in (run_has, asked) and run_has != asked)


def _description(run: PublishedRun, reference: Reference) -> str:
    does_not_fit = (run.unit, run.value) == ("fits", 0)
    figure = "it does not fit" if does_not_fit else UNIT_TEXTS[run.unit].format(f"{run.value:,g}")
    gpu, length = reference.gpus[run.gpu].name, _length_of(run)
    where = f"{run.gpus} x {gpu}" if run.gpus else gpu
    settings = (f"{length:,} tokens long" if length else None, run.format, run.software or run.framework)
    return ", ".join([f"{reference.models[run.model].name} on {where}: {figure}", *filter(None, settings)])
