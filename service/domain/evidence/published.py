"""Published runs that are similar to a question: the evidence that an estimate cites."""

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
from service.domain.jobs.job import Task
from service.domain.jobs.stacks import UNKNOWN
from service.domain.models.model import Model

Nearness = Literal[
    "same_model_and_gpu", "same_model_similar_gpu", "same_gpu_similar_model", "same_model", "similar_gpu_similar_model"
]
NEAREST_FIRST: tuple[Nearness, ...] = get_args(Nearness)
"""How near a published run is to a question, as codes of the API, the nearest first.

Similar GPUs have the same vendor and architecture, and similar models the same family; in both cases the larger one is
at most `SIMILAR_WITHIN` times as large, by memory bandwidth or active parameters."""

SIMILAR_WITHIN = 2.0
"""Largest ratio of memory bandwidths, or of active parameters: an A10G has the architecture of an A100, but about a
third of its bandwidth."""

RELEVANT_KINDS: Mapping[Task, tuple[str, ...]] = {
    "training": ("train_throughput", "train_mfu", "train_time", "train_gpu_hours"),
    "inference": ("infer_throughput",),
}
"""Task → kinds of runs that are evidence for its speed, the most direct first."""

OTHER_KIND, OTHER_PRECISION, OTHER_FRAMEWORK = log(4.0), log(2.0), log(1.5)
OTHER_COUNT, OTHER_LENGTH, YEAR, QUALITY_B = 0.25, 0.25, log(1.05), log(1.1)
"""Distances of a run from a question, as logarithms of how much speeds may differ. They are judgement, and only order
the runs."""

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
}


@dataclass(frozen=True, slots=True)
class EvidenceQuery:
    """A question for which evidence is searched; None leaves a trait open. The model need not be in the catalog."""

    model: Model
    gpu: Gpu
    task: Task
    as_of: date
    precision: str | None = None
    framework: str | None = None
    gpus: int | None = None
    length: int | None = None
    """Tokens of a training sequence, or of a prompt and its answer together."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A published run, and how near it is to the question."""

    run: PublishedRun
    nearness: Nearness
    measured: str
    """The figure and the machine of the run, as a sentence without its full stop."""

    @property
    def id(self) -> str:
        """Id of the run in the catalog."""
        return self.run.id

    @property
    def source(self) -> str:
        """Id of the source of the run."""
        return self.run.source

    @property
    def date(self) -> str:
        """The year of the run; published runs rarely state the day."""
        return str(self.run.year)


@dataclass(frozen=True, slots=True, eq=False)
class EquallyNear:
    """Equally near published runs in order of their ids, with the columns that decide which of them are cited."""

    runs: tuple[PublishedRun, ...]
    distance: Floats
    """Distance of each run by age, quality, kind, model and GPU."""
    precision: NDArray[Any]
    framework: NDArray[Any]
    gpus: Floats
    """Number of GPUs of each run; NaN where unknown, as in the column of lengths."""
    length: Floats

    @staticmethod
    def of(runs: Sequence[PublishedRun], query: "EvidenceQuery", reference: Reference) -> "EquallyNear":
        """Builds the columns for all questions about the model, the GPU and the task of a query."""
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
        """Returns the rows of the `most` nearest runs, the nearest first; equally far ones are in order of ids."""
        distance = self.distance
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
"""Runs by nearness, the nearest first."""


def evidence_for(config: Config, gpu: Gpu, gpus: int, catalog: Catalog) -> tuple[Evidence, ...]:
    """Returns at most three published runs, the nearest first, for a configuration on a number of GPUs."""
    task: Task = "inference"
    if isinstance(config, TrainingConfig):
        task, length = "training", config.sequence_length
    else:
        length = round(config.input_length + config.output_length)
    framework = None if config.software.line == UNKNOWN.line else config.software.line
    query = EvidenceQuery(config.model, gpu, task, catalog.day, config.precision, framework, gpus, length or None)
    if gpu.id not in catalog.reference.gpus:  # CPUs, of which there are no published runs
        return ()
    # Comparing a model and a GPU with those of all published runs takes longer than the rest of an estimate.
    near = catalog.derive(_near, task, config.model, gpu.id)
    return nearest_runs(catalog.reference, query, near)


def _near(catalog: Catalog, task: Task, model: Model, gpu: str) -> Near:
    return runs_by_nearness(catalog.reference, EvidenceQuery(model, catalog.reference.gpus[gpu], task, catalog.day))


def nearest_runs(
    reference: Reference, query: EvidenceQuery, near: Near, most: int = MOST_CITED
) -> tuple[Evidence, ...]:
    """Returns the `most` published runs that are nearest to a question; `near` is from `runs_by_nearness`."""
    evidence: list[Evidence] = []
    for nearness, equally_near in near.items():
        for row in equally_near.nearest(query, most - len(evidence)).tolist():
            run = equally_near.runs[row]
            evidence.append(Evidence(run, nearness, _description(run, reference)))
        if len(evidence) == most:
            break
    return tuple(evidence)


def runs_by_nearness(reference: Reference, query: EvidenceQuery) -> Near:
    """Returns the relevant runs that were published by the day of a question, by nearness of their model and GPU."""
    near: dict[Nearness, list[PublishedRun]] = {nearness: [] for nearness in NEAREST_FIRST}
    known: dict[tuple[str, str], Nearness | None] = {}
    for run in reference.published_runs:
        if run.known_on <= query.as_of and run.kind in RELEVANT_KINDS[query.task]:
            key = (run.model, run.gpu)
            if key not in known:
                known[key] = _nearness(reference.models[run.model], reference.gpus[run.gpu], query)
            nearness = known[key]
            if nearness is not None:
                near[nearness].append(run)
    return {nearness: EquallyNear.of(runs, query, reference) for nearness, runs in near.items() if runs}


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
    distance = _log_ratio(one.memory_bandwidth_gb_per_second, other.memory_bandwidth_gb_per_second)
    return distance <= log(SIMILAR_WITHIN)


def _are_similar_models(one: Model, other: Model) -> bool:
    distance = _log_ratio(one.active_parameters, other.active_parameters)
    return one.family == other.family and distance <= log(SIMILAR_WITHIN)


def _log_ratio(one: float | None, other: float | None) -> float:
    """Returns the absolute logarithm of the ratio of two figures; that of `SIMILAR_WITHIN` if one is unknown."""
    return abs(log(one / other)) if one and other else log(SIMILAR_WITHIN)


def _log_ratios(one: float, others: Floats) -> Floats:
    """Returns `_log_ratio` of a figure and each item of a column, in which NaN is unknown."""
    ratios = np.abs(np.log(one / others))
    return np.where(np.isnan(ratios), log(SIMILAR_WITHIN), ratios)


def _distance_of_kind(run: PublishedRun, query: EvidenceQuery, reference: Reference) -> float:
    """Returns the part of the distance that depends on model, GPU, task and day of a question."""
    distance = YEAR * (query.as_of.year - run.year) + QUALITY_B * (run.quality != "A")
    distance += OTHER_KIND * RELEVANT_KINDS[query.task].index(run.kind)
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


def _description(run: PublishedRun, reference: Reference) -> str:
    figure, length = UNIT_TEXTS[run.unit].format(f"{run.value:,g}"), _length_of(run)
    gpu = reference.gpus[run.gpu].name
    where = f"{run.gpus} x {gpu}" if run.gpus else gpu
    settings = (f"{length:,} tokens long" if length else None, run.format, run.software or run.framework)
    return ", ".join([f"{reference.models[run.model].name} on {where}: {figure}", *filter(None, settings)])
