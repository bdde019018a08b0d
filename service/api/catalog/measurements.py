"""Measurements: named workloads on machines, and published runs of training and inference."""

from datetime import date
from functools import partial
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.http.current import Pinned, catalog_on
from service.api.http.fields import Names, PageRequest, ResponseModel
from service.api.http.listing import Page, attribute_reader, having, mentions, page_answer, sorted_by
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_model
from service.domain.catalog.reference import RUN_KINDS, Measurement, PublishedRun

router = APIRouter(tags=["catalog"])

BY_NAME = "workload_throughput"
SAMPLES_PER_SECOND = "samples_per_second"
KINDS = (*RUN_KINDS, BY_NAME)
SEARCHED = (
    "id", "workload", "model", "gpu", "machine", "framework", "software", "format", "source", "detail", "note",
)  # fmt: skip


class MeasurementsRequest(PageRequest):
    """Which measurements to list, and in which order."""

    model: Annotated[Names, Field(description="Models by id, name or alias, see `/models`.")] = ()
    gpu: Annotated[Names, Field(description="GPU ids, names or aliases; `a100` finds every A100 card.")] = ()
    kind: Annotated[
        Names,
        Field(
            description="`train_throughput`, `train_mfu`, `train_time`, `train_gpu_hours`, `train_memory_fit`, "
            "`infer_throughput`, `infer_memory_fit`, `oom` (a run that ran out of memory) or `workload_throughput` "
            "(sent by a caller under the name of a workload)."
        ),
    ] = ()
    framework: Annotated[Names, Field(description="Frameworks or engines, such as `vllm` or `pytorch`.")] = ()
    workload: Annotated[Names, Field(description="Names of workloads under which measurements were sent.")] = ()
    q: Annotated[
        str | None,
        Field(max_length=200, description="Words that id, names, software, source or note must contain."),
    ] = None
    sort: Annotated[
        Names,
        Field(
            description="`id`, `kind`, `model`, `gpu`, `gpu_count`, `value`, `year` or `measured_on`, `-` for "
            "descending. Values compare only within one `unit`."
        ),
    ] = ()


OF_PUBLISHED_RUNS = (
    "model", "task", "weight_bits", "sequence_length", "input_length", "output_length", "micro_batch", "concurrency",
    "tokens", "samples", "quality", "detail",
)  # fmt: skip
"""Fields that only published runs have."""


class MeasurementResponse(ResponseModel):
    """A measured figure: of a named workload on a machine, or of a model in a published run."""

    id: str
    kind: str = Field(description="What was measured, as the filter `kind` lists it.")
    workload: str | None
    """The name of the workload; null for a published run."""
    model: str | None
    """Null where only a workload is named."""
    task: str | None = Field(
        description="What a published run did, such as `pretrain`, `lora` or `infer`; null for a named workload."
    )
    gpu: str | None
    """Null if the catalog does not have the machine."""
    gpu_count: int | None
    """GPUs of one node."""
    nodes: int | None
    """Machines that ran it together; null: unknown."""
    machine: str | None
    """`provider/name`, where one is named."""
    precision: str | None
    """Precision of the arithmetic, see `/precisions`; null: not stated."""
    format: str | None
    """The number format in the words of the source."""
    weight_bits: float | None
    """Bits of a stored weight where the source states them; null: those of the precision."""
    framework: str | None
    """The framework or engine, as `/frameworks` names it."""
    software: str | None
    """The software in the words of the source."""
    sequence_length: int | None
    """Tokens of a training sequence; null: unknown or not applicable."""
    input_length: int | None
    """Tokens of a prompt; null: unknown or not applicable."""
    output_length: int | None
    """Tokens of an answer; null: unknown or not applicable."""
    batch_size: int | None
    """Samples per step of all GPUs together."""
    micro_batch: int | None
    """Samples per GPU and pass."""
    concurrency: int | None
    """Requests in flight; null: unknown, or as many as fit."""
    tokens: float | None
    """Amount of work of the run, if `value` is its time."""
    samples: float | None
    """Amount of work of the run, if `value` is its time."""
    samples_per_second: float | None = Field(description="The same as `value` if its unit is this one, else null.")
    seconds_per_batch: float | None
    """Seconds of one step, as a caller sent them; null otherwise."""
    usd_per_hour: float | None
    """Price paid for one machine."""
    value: float
    """The measured figure, in `unit`."""
    unit: str
    """Rates are of the whole job unless they end in `per_gpu`; `fits` is 1 or 0."""
    measured_on: date | None
    """Null where only the year is known."""
    year: int
    """The year of the measurement or of the publication."""
    public: bool
    """Whether every caller sees it; otherwise only the owner of the key that sent it."""
    quality: str | None
    """`A`: from a log or table; `B`: from elsewhere, or with a setting missing. Null: sent by a caller."""
    source: str
    detail: str | None
    """The place in the source, such as a table."""
    note: str | None

    @classmethod
    def of_named(cls, row: Measurement, catalog: Catalog) -> "MeasurementResponse":
        """Returns the response for a measurement that was sent under the name of a workload."""
        index = catalog.index_of.get(row.machine)
        gpu = None if index is None else catalog.instance_types[index].gpu
        return cls.like(
            row,
            **dict.fromkeys(OF_PUBLISHED_RUNS),
            kind=BY_NAME,
            public=row.owner is None,
            gpu=gpu and gpu.id,
            format=row.precision,
            software=row.software or row.framework,
            value=row.samples_per_second,
            unit=SAMPLES_PER_SECOND,
            year=row.measured_on.year,
        )

    @classmethod
    def of_published(cls, row: PublishedRun) -> "MeasurementResponse":
        """Returns the response for a published run."""
        return cls.like(
            row,
            workload=None,
            public=True,
            batch_size=row.global_batch,
            samples_per_second=row.value if row.unit == SAMPLES_PER_SECOND else None,
            seconds_per_batch=None,
            usd_per_hour=None,
            measured_on=None,
        )


SORTABLE = ("id", "kind", "model", "gpu", "gpu_count", "value", "year", "measured_on")


@router.get("/measurements", summary="List measurements", response_model=Page[MeasurementResponse])
def get_measurements(request: Request, query: Annotated[MeasurementsRequest, Query()], live: Pinned) -> Response:
    """Measurements made by that day: named workloads on machines, and published runs of models on GPUs.

    Of named workloads, the list has the public measurements and the caller's own.
    """
    catalog = catalog_on(live, query)
    rows = sorted_by(query.sort, partial(attribute_reader, SORTABLE), _filtered(query, catalog))
    return page_answer(request, query, catalog, rows, attrgetter("id"), MeasurementResponse, lambda row: row)


def _filtered(query: MeasurementsRequest, catalog: Catalog) -> list[MeasurementResponse]:
    named = (MeasurementResponse.of_named(row, catalog) for row in catalog.measurements)
    published = map(MeasurementResponse.of_published, catalog.published_runs)
    measurements = sorted((*named, *published), key=attrgetter("id"))
    frameworks = {row.framework for row in measurements if row.framework}
    workloads = {row.workload for row in catalog.measurements}
    wanted = {
        "model": {resolve_model(name, catalog, "model").id for name in query.model},
        "gpu": resolved("gpu", query.gpu, catalog),
        "kind": resolve("kind", query.kind, KINDS, "kind"),
        "framework": resolve("framework", query.framework, frameworks, "framework"),
        "workload": resolve("workload", query.workload, workloads, "workload"),
    }
    rows = having(wanted, measurements)
    return [row for row in rows if mentions(query.q, (getattr(row, name) for name in SEARCHED))]
