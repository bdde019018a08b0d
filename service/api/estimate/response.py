"""An appraisal in the caller's words: the `estimate` object of `POST /estimate` and of every choice."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from service.api.http.fields import StatementResponse
from service.domain.band import Band
from service.domain.catalog.catalog import Catalog
from service.domain.evidence.published import Evidence, evidence_for
from service.domain.layouts.job_estimate import JobEstimate
from service.domain.layouts.would_fit import FitChange
from service.domain.physics.cluster import GIB, Cluster
from service.domain.physics.estimate import Estimate
from service.domain.recommend.codes import WarningCode
from service.domain.recommend.warnings import estimate_warnings

SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True, slots=True)
class BandResponse:
    """In eight of ten cases the truth lies between low and high."""

    low: float
    likely: float
    high: float

    @classmethod
    def of(cls, band: Band) -> "BandResponse":
        return cls(rounded(band.low), rounded(band.likely), rounded(band.high))


@dataclass(frozen=True, slots=True)
class MemoryResponse:
    """Memory of one GPU in GiB."""

    needed_gib_per_gpu: float
    band_gib_per_gpu: Annotated[BandResponse, Field(description="In eight of ten runs the need lies within.")]
    usable_gib_per_gpu: float
    parts: Annotated[
        dict[str, float],
        Field(description="weights, gradients, optimizer, activations, logits, kv_cache, buffers and overhead."),
    ]


@dataclass(frozen=True, slots=True)
class LayoutResponse:
    """How the job is cut over the GPUs."""

    tensor: int
    pipeline: int
    data: int
    context: int
    expert: int
    zero_stage: int
    micro_batch: int
    accumulation: int
    activation_checkpointing: str
    virtual_stages: int


@dataclass(frozen=True, slots=True)
class ModelledEstimateResponse:
    """What the physics says. Rates are of all nodes together, and null of what does not fit."""

    basis: Literal["measured", "scaled", "modelled"]
    precision: str
    software_profile: Annotated[str, Field(description="Whose efficiency is assumed; `unknown` is the cautious one.")]
    samples_per_second: BandResponse | None
    tokens_per_second: Annotated[BandResponse | None, Field(description="Of inference: tokens of the answers.")]
    prefill_tokens_per_second: BandResponse | None
    seconds_to_first_token: BandResponse | None
    seconds_per_output_token: BandResponse | None
    concurrency: Annotated[float | None, Field(description="Requests in flight on all replicas.")]
    kv_cache_tokens: Annotated[float | None, Field(description="Tokens whose keys and values fit on one replica.")]
    hours: Annotated[BandResponse | None, Field(description="Of the whole amount, without setup.")]
    overhead_beyond_steps: Annotated[
        float | None, Field(description="The share of evaluation, saving and starting in `hours`, as runs had it.")
    ]
    joules_per_sample: Annotated[float | None, Field(description="At the rated power of the GPUs.")]
    model_flops_utilisation: Annotated[float | None, Field(description="Of the dense 16-bit peak.")]
    model_tflops_per_gpu: float | None
    hardware_tflops_per_gpu: Annotated[float | None, Field(description="With recomputation.")]
    bottleneck: Annotated[str | None, Field(description="The part of the machine that most of a step waits for.")]
    step_seconds: Annotated[dict[str, float] | None, Field(description="A step in parts; they add up to it.")]
    memory: MemoryResponse
    layout: LayoutResponse
    extrapolates: Annotated[
        list[str], Field(description="What no published run had: `stack`, `gpu`, `model`; each widens the band.")
    ]


def rounded(value: float) -> float:
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def maybe(band: Band | None) -> BandResponse | None:
    return None if band is None else BandResponse.of(band)


def figure(value: float | None) -> float | None:
    return None if value is None else rounded(value)


MEMORY_PARTS: Mapping[str, str] = {
    "kept": "activations",
    "selected": "activations",
    "boundaries": "activations",
    "live": "buffers",
    "context": "overhead",
}
"""Names of the arithmetic → the names that people know; what is not here is called the same."""


def estimate_told(found: JobEstimate, watts: float | None) -> ModelledEstimateResponse:
    estimate, work = found.estimate, found.config
    layout = estimate.layout
    rate = estimate.samples_per_second
    return ModelledEstimateResponse(
        basis="modelled",
        precision=work.precision,
        software_profile=work.software.profile,
        samples_per_second=maybe(rate),
        tokens_per_second=maybe(estimate.tokens_per_second),
        prefill_tokens_per_second=maybe(estimate.prefill_tokens_per_second),
        seconds_to_first_token=maybe(estimate.seconds_to_first_token),
        seconds_per_output_token=maybe(estimate.seconds_per_output_token),
        concurrency=figure(estimate.concurrency),
        kv_cache_tokens=figure(estimate.kv_cache_tokens),
        hours=maybe(found.hours),
        overhead_beyond_steps=figure(found.beyond_steps),
        joules_per_sample=None if watts is None or rate is None else rounded(watts / rate.likely),
        model_flops_utilisation=figure(found.model_flops_utilisation),
        model_tflops_per_gpu=tera(found.model_flops_per_second_per_gpu),
        hardware_tflops_per_gpu=tera(found.hardware_flops_per_second_per_gpu),
        bottleneck=estimate.bottleneck,
        step_seconds=None if estimate.step is None else {k: rounded(v) for k, v in estimate.step.parts.items() if v},
        memory=memory_told(estimate),
        layout=LayoutResponse(**{name: getattr(layout, name) for name in LayoutResponse.__dataclass_fields__}),
        extrapolates=list(estimate.extrapolates),
    )


def tera(value: float | None) -> float | None:
    return None if value is None else rounded(value / 1e12)


def memory_told(estimate: Estimate) -> MemoryResponse:
    parts: dict[str, float] = {}
    for name, size in estimate.memory.parts.items():
        told = MEMORY_PARTS.get(name, name)
        parts[told] = parts.get(told, 0.0) + size
    return MemoryResponse(
        needed_gib_per_gpu=rounded(estimate.memory.needed_bytes / GIB),
        band_gib_per_gpu=BandResponse.of(estimate.memory.band.times(1 / GIB)),
        usable_gib_per_gpu=rounded(estimate.memory.usable_bytes / GIB),
        parts={name: rounded(size / GIB) for name, size in parts.items() if size},
    )


# Sentences


def does_not_fit_text(estimate: Estimate) -> str:
    """Returns how much memory a GPU needs, part by part, and how much it can use."""
    memory = memory_told(estimate)
    largest = sorted(memory.parts.items(), key=lambda part: -part[1])
    parts = ", ".join(f"{size:.1f} {name.replace('_', ' ')}" for name, size in largest if size >= 0.05)
    return f"{memory.usable_gib_per_gpu:.1f} GiB per GPU can be used; needs {memory.needed_gib_per_gpu:.1f}: {parts}."


def _tensor_over_slow_links(tensor: int, crosses_nodes: bool) -> str:
    return f"Tensor parallelism of {tensor} crosses {'nodes' if crosses_nodes else 'PCIe'}: every layer waits for it."


def _extrapolates(properties: Iterable[str]) -> str:
    return f"No published run had this {', '.join(properties)}, so the band is wider."


WARNINGS: Mapping[WarningCode, Callable[..., str]] = {
    WarningCode.GPU_MEMORY: does_not_fit_text,
    WarningCode.TENSOR_OVER_SLOW_LINKS: _tensor_over_slow_links,
    WarningCode.PRECISION_REDUCED: "{gpu} runs {precision} at a token rate or by conversion only.".format,
    WarningCode.EXTRAPOLATES: _extrapolates,
}
"""Texts of the warnings that a modelled estimate shows, from their figures."""


def warnings_on(found: JobEstimate, cluster: Cluster) -> list[StatementResponse]:
    return [
        StatementResponse(warning.code, WARNINGS[warning.code](**warning.figures))
        for warning in estimate_warnings(found, cluster)
    ]


# What an estimate rests on


def published_run(run: Evidence) -> dict[str, str]:
    """Returns a published run as an answer cites it."""
    return {
        "kind": "published_run",
        "id": run.id,
        "date": run.date,
        "source": run.source,
        "nearness": run.nearness,
        "measured": run.measured,
    }


def evidence_on(found: JobEstimate, cluster: Cluster, catalog: Catalog) -> list[dict[str, str]]:
    return [published_run(run) for run in evidence_for(found.config, cluster.gpu, cluster.gpus, catalog)]


# What would make it fit


@dataclass(frozen=True, slots=True)
class FitChangeResponse:
    """One change that would make the job fit, all else as asked."""

    code: Annotated[
        str,
        Field(description="A field of the workload or layout, `nodes`, `usable_memory_gib` or `host_memory_gib`."),
    ]
    to: int | float | str | bool
    needed_gib: Annotated[float, Field(description="Per GPU, after the change; of `host_memory_gib` per node.")]
    text: str


def changes_told(changes: Iterable[FitChange]) -> list[FitChangeResponse]:
    return [
        FitChangeResponse(
            code=each.code,
            to=rounded(each.to) if isinstance(each.to, float) else each.to,
            needed_gib=rounded(each.needed_bytes / GIB),
            text=change_text(each),
        )
        for each in changes
    ]


def change_text(change: FitChange) -> str:
    needed = f"{change.needed_bytes / GIB:.1f} GiB"
    match change.code:
        case "nodes":
            return f"On {change.to:g} nodes it needs {needed} per GPU."
        case "usable_memory_gib":
            return f"A GPU with {needed} of usable memory holds it."
        case "host_memory_gib":
            return f"A host with {needed} of memory holds it."
        case "layout":
            return f"In a layout that is free to choose it needs {needed} per GPU."
        case code:
            to = f"{change.to:g}" if isinstance(change.to, float) else str(change.to).lower()
            return f"With {code} {to} it needs {needed} per GPU."
