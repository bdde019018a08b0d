"""Measurements: named workloads on machines, and published runs of training and inference."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.http.current import Pinned, catalog_on
from service.api.http.fields import Columns, Names, PageRequest, ResponseModel, copy_of
from service.api.http.listing import Page, having, mentions, page_answer, require_column, sorted_by
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve, resolve_model
from service.domain.catalog.reference import RUN_KINDS, Measurement, PublishedRun

router = APIRouter(tags=["catalog"])

Row = Measurement | PublishedRun

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
        Columns,
        Field(
            description="`id`, `kind`, `model`, `gpu`, `gpu_count`, `value`, `year` or `measured_on`, `-` for "
            "descending. Values compare only within one `unit`."
        ),
    ] = ()


class MeasurementResponse(copy_of(PublishedRun, "global_batch", "known_on"), ResponseModel):  # type: ignore[misc]
    """A measured figure: of a named workload on a machine, or of a model in a published run."""

    kind: str
    """Kind of the figure, as the filter `kind` lists it."""
    workload: str | None
    """The name of the workload; null for a published run."""
    model: str | None
    """Null where only a workload is named."""
    task: str | None
    """Task of a published run, such as `pretrain`, `lora` or `infer`; null for a named workload."""
    gpu: str | None
    """Null if the catalog does not have the machine."""
    precision: str | None
    """Precision of the arithmetic, see `/precisions`; null: not stated."""
    format: str | None
    """The number format in the words of the source."""
    batch_size: int | None
    """Samples per step of all GPUs together."""
    samples_per_second: float | None
    """`value` if its unit is this one, else null."""
    seconds_per_batch: float | None
    """Seconds of one step, as a caller sent them; null otherwise."""
    usd_per_hour: float | None
    """Price paid for one machine."""
    measured_on: date | None
    """Null where only the year is known."""
    public: bool
    """Whether every caller sees it; otherwise only the owner of the key that sent it."""
    quality: str | None
    """`A`: from a log or table; `B`: from elsewhere, or with a setting missing. Null: sent by a caller."""
    detail: str | None
    """The place in the source, such as a table."""

    @classmethod
    def of(cls, row: Row, catalog: Catalog) -> "MeasurementResponse":
        """Returns the response for a measurement under the name of a workload, or for a published run."""
        return cls.like(row, **{name: read(row, catalog) for name, read in OTHER_FIELDS[type(row)].items()})


def _gpu_of(row: Measurement, catalog: Catalog) -> str | None:
    index = catalog.index_of.get(row.machine)
    gpu = None if index is None else catalog.instance_types[index].gpu
    return None if gpu is None else gpu.id


def _null(_row: Row, _catalog: Catalog) -> None:
    return None


OTHER_FIELDS: Mapping[type, Mapping[str, Callable[[Any, Catalog], Any]]] = {
    Measurement: {
        **dict.fromkeys(
            (
                "model", "task", "weight_bits", "sequence_length", "input_length", "output_length", "micro_batch",
                "concurrency", "tokens", "samples", "quality", "detail",
            ), _null,
        ),
        "kind": lambda _row, _catalog: BY_NAME,
        "gpu": _gpu_of,
        "format": lambda row, _: row.precision,
        "software": lambda row, _: row.software or row.framework,
        "value": lambda row, _: row.samples_per_second,
        "unit": lambda _row, _catalog: SAMPLES_PER_SECOND,
        "year": lambda row, _: row.measured_on.year,
        "public": lambda row, _: row.owner is None,
    },
    PublishedRun: {
        **dict.fromkeys(("workload", "seconds_per_batch", "usd_per_hour", "measured_on"), _null),
        "batch_size": lambda row, _: row.global_batch,
        "samples_per_second": lambda row, _: row.value if row.unit == SAMPLES_PER_SECOND else None,
        "public": lambda _row, _catalog: True,
    },
}  # fmt: skip
"""How a field is read from each kind of row, where the row has no attribute of the field's name and meaning."""


SORTABLE = ("id", "kind", "model", "gpu", "gpu_count", "value", "year", "measured_on")


@router.get("/measurements", summary="List measurements", response_model=Page[MeasurementResponse])
def get_measurements(request: Request, query: Annotated[MeasurementsRequest, Query()], live: Pinned) -> Response:
    """Measurements made by that day: named workloads on machines, and published runs of models on GPUs.

    Of named workloads, the list has the public measurements and the caller's own.
    """
    catalog = catalog_on(live, query)

    def sort_reader(name: str) -> Callable[[Row], Any]:
        require_column(name, SORTABLE)
        return _reader_of(catalog, name)

    rows = sorted_by(query.sort, sort_reader, sorted(_filtered(query, catalog), key=attrgetter("id")))
    shown = partial(MeasurementResponse.of, catalog=catalog)
    return page_answer(request, query, catalog, rows, MeasurementResponse, shown)


def _reader_of(catalog: Catalog, name: str) -> Callable[[Row], Any]:
    """Returns a function that reads a field of the response from a row, without the rest of the response."""
    attribute, others = attrgetter(name), {kind: fields.get(name) for kind, fields in OTHER_FIELDS.items()}

    def value_of(row: Row) -> Any:
        other = others[type(row)]
        return attribute(row) if other is None else other(row, catalog)

    return value_of


def _filtered(query: MeasurementsRequest, catalog: Catalog) -> list[Row]:
    reader_of = partial(_reader_of, catalog)
    frameworks = {row.framework for row in _all_rows(catalog) if row.framework} if query.framework else ()
    wanted = {
        "model": {resolve_model(name, catalog, "model").id for name in query.model},
        "gpu": resolved("gpu", query.gpu, catalog),
        "kind": resolve("kind", query.kind, KINDS, "kind"),
        "framework": resolve("framework", query.framework, frameworks, "framework"),
    }
    rows = having(wanted, _under_names(query.workload, catalog) if query.workload else _all_rows(catalog), reader_of)
    searched = tuple(map(reader_of, SEARCHED))
    return [row for row in rows if mentions(query.q, (value_of(row) for value_of in searched))]


def _all_rows(catalog: Catalog) -> Iterator[Row]:
    return chain(catalog.measurements, catalog.published_runs)


def _under_names(workloads: Sequence[str], catalog: Catalog) -> Iterator[Row]:
    """Returns the measurements under the names of workloads. Raises `UnknownName`."""
    measured = catalog.measurements
    # Most names are spelt right, and a catalog may have a million measurements.
    known = workloads if all(map(measured.under, workloads)) else {row.workload for row in measured}
    return chain.from_iterable(map(measured.under, resolve("workload", workloads, known, "workload")))
