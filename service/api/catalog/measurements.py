"""Measurements: what was seen on machines by name, and what others published of training and answering."""

from collections.abc import Collection
from datetime import date
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.http.current import Live, catalog_on
from service.api.http.fields import Names, PageRequest, ResponseModel
from service.api.http.listing import Page, in_order, page_answer
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_model
from service.domain.catalog.reference import RUN_KINDS, Measurement, PublishedRun

router = APIRouter(tags=["catalog"])

BY_NAME = "workload_throughput"
SAMPLES_PER_SECOND = "samples_per_second"
KINDS = (*RUN_KINDS, BY_NAME)


class MeasurementsRequest(PageRequest):
    """Which measurements to list, and in which order."""

    model: Annotated[Names, Field(description="Models by id, name or alias, see `/models`.")] = ()
    gpu: Annotated[Names, Field(description="GPU ids, names or aliases; `a100` finds every A100 card.")] = ()
    kind: Annotated[
        Names,
        Field(
            description="`train_throughput`, `train_mfu`, `train_time`, `train_gpu_hours`, `train_memory_fit`, "
            "`infer_throughput`, `infer_memory_fit`, `oom` (a report of too little memory) or `workload_throughput` "
            "(a workload by its own name)."
        ),
    ] = ()
    framework: Annotated[Names, Field(description="Lines of software, such as `vllm` or `pytorch`.")] = ()
    workload: Annotated[Names, Field(description="Workloads by their own names.")] = ()
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


class MeasurementResponse(ResponseModel):
    """A figure that was seen: under a workload's own name on a machine, or in public of a model on a GPU."""

    id: str
    kind: str
    workload: str | None = Field(description="The workload's own name; null of a published run.")
    model: str | None = Field(description="Null where only a workload is named.")
    task: str | None
    gpu: str | None = Field(description="Null where the catalog does not know the machine.")
    gpu_count: int | None = Field(description="In one node.")
    nodes: int | None
    machine: str | None = Field(description="`provider/name`, where one is named.")
    precision: str | None
    format: str | None = Field(description="The number format in the words of the source.")
    weight_bits: float | None
    framework: str | None = Field(description="The line of software.")
    software: str | None = Field(description="The software in the words of the source.")
    sequence_length: int | None
    input_length: int | None
    output_length: int | None
    batch_size: int | None = Field(description="Of all GPUs together.")
    micro_batch: int | None
    concurrency: int | None = Field(description="Requests at once; null: not told, or as many as fit.")
    tokens: float | None = Field(description="Of a whole run that `value` is the time of.")
    samples: float | None = Field(description="Of a whole run that `value` is the time of.")
    samples_per_second: float | None = Field(description="`value`, where that is its unit.")
    seconds_per_batch: float | None
    usd_per_hour: float | None = Field(description="What was paid for one machine.")
    value: float
    unit: str = Field(description="Rates are of the whole job unless they end in `per_gpu`; `fits` is 1 or 0.")
    measured_on: date | None = Field(description="Null where only the year is known.")
    year: int
    quality: str | None = Field(
        description="`A`: from a log or table; `B`: from elsewhere, or with a setting missing. Null: as it was sent."
    )
    source: str
    detail: str | None = Field(description="Where in the source.")
    note: str | None


class ListedMeasurement(NamedTuple):
    """A measurement under the columns that lists are filtered and sorted by."""

    id: str
    kind: str
    model: str | None
    gpu: str | None
    gpu_count: int | None
    framework: str | None
    value: float
    year: int
    measured_on: date | None
    row: Measurement | PublishedRun


SORTABLE = ("id", "kind", "model", "gpu", "gpu_count", "value", "year", "measured_on")


@router.get("/measurements", summary="List measurements", response_model=Page[MeasurementResponse])
async def get_measurements(request: Request, asked: Annotated[MeasurementsRequest, Query()], live: Live) -> Response:
    """What was measured by that day: workloads by name on machines, and published runs of models on GPUs."""
    catalog = catalog_on(live, asked.as_of)
    found = in_order(asked.sort, SORTABLE, filtered(asked, catalog))
    return page_answer(
        request,
        asked,
        catalog,
        len(found),
        lambda place: found[place].id,
        lambda shown: [item_of(seen).model_dump_json().encode() for seen in found[shown]],
    )


def all_seen(catalog: Catalog) -> tuple[ListedMeasurement, ...]:
    """Every measurement of the catalog's day, by id."""

    def build() -> tuple[ListedMeasurement, ...]:
        named = [named_seen(each, catalog) for each in catalog.measurements]
        published = [published_seen(each) for each in catalog.published_runs]
        return tuple(sorted((*named, *published), key=lambda seen: seen.id))

    return catalog.memory.get_or_compute("measurements_seen", build)


def named_seen(row: Measurement, catalog: Catalog) -> ListedMeasurement:
    place = catalog.place_of.get(row.machine)
    gpu = catalog.instance_types[place].gpu if place is not None else None
    day = row.measured_on
    gpu_id = gpu.id if gpu else None
    return ListedMeasurement(
        row.id, BY_NAME, None, gpu_id, row.gpu_count, row.framework, row.samples_per_second, day.year, day, row
    )


def published_seen(row: PublishedRun) -> ListedMeasurement:
    return ListedMeasurement(
        row.id, row.kind, row.model, row.gpu, row.gpu_count, row.framework, row.value, row.year, None, row
    )


def filtered(asked: MeasurementsRequest, catalog: Catalog) -> list[ListedMeasurement]:
    seen = all_seen(catalog)
    models = {resolve_model(name, catalog, "model").id for name in asked.model}
    gpus = set(resolved("gpu", asked.gpu, catalog))
    kinds = set(resolve("kind", asked.kind, KINDS, "kind"))
    known = {each.framework for each in seen if each.framework}
    frameworks = set(resolve("framework", asked.framework, known, "framework"))
    workloads = set(resolve("workload", asked.workload, {each.workload for each in catalog.measurements}, "workload"))
    words = (asked.q or "").lower().split()
    return [
        each
        for each in seen
        if among(each.model, models)
        and among(each.gpu, gpus)
        and among(each.kind, kinds)
        and among(each.framework, frameworks)
        and (not workloads or (isinstance(each.row, Measurement) and each.row.workload in workloads))
        and (not words or all(word in searched(each) for word in words))
    ]


def among(value: str | None, wanted: Collection[str]) -> bool:
    return not wanted or value in wanted


def searched(seen: ListedMeasurement) -> str:
    row = seen.row
    texts = [row.id, seen.model, seen.gpu, row.machine, row.framework, row.software, row.source, row.note]
    texts += [row.workload] if isinstance(row, Measurement) else [row.format, row.detail]
    return "\n".join(text for text in texts if text).lower()


def item_of(seen: ListedMeasurement) -> MeasurementResponse:
    return named_item(seen, seen.row) if isinstance(seen.row, Measurement) else published_item(seen.row)


def named_item(seen: ListedMeasurement, row: Measurement) -> MeasurementResponse:
    return MeasurementResponse.like(
        row,
        kind=seen.kind,
        model=None,
        task=None,
        gpu=seen.gpu,
        format=row.precision,
        weight_bits=None,
        software=row.software or row.framework,
        sequence_length=None,
        input_length=None,
        output_length=None,
        micro_batch=None,
        concurrency=None,
        tokens=None,
        samples=None,
        value=row.samples_per_second,
        unit=SAMPLES_PER_SECOND,
        year=row.measured_on.year,
        quality=None,
        detail=None,
    )


def published_item(row: PublishedRun) -> MeasurementResponse:
    return MeasurementResponse.like(
        row,
        workload=None,
        batch_size=row.global_batch,
        samples_per_second=row.value if row.unit == SAMPLES_PER_SECOND else None,
        seconds_per_batch=None,
        usd_per_hour=None,
        measured_on=None,
    )
