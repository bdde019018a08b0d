"""Instance types: the list with filters, one in full, and the ones similar to it."""

from datetime import date
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import InstanceFilters, Precisions, PrecisionSupport, Task, constraints_of, resolved
from service.api.catalog.instance_type import (
    InstanceResponse,
    InstanceTypeResponse,
    PriceResponse,
    RegionCpuResponse,
    instance_response,
    region_cpus,
)
from service.api.http.computing import in_thread
from service.api.http.current import CatalogStamp, Pinned, catalog_on, stamp, visible_to_caller
from service.api.http.etag import json_answer, wants_csv
from service.api.http.fields import Columns, DayRequest, Name, Names, PageRequest, ResponseModel, copy_of
from service.api.http.figures import Rounded
from service.api.http.listing import Page, page_answer, require_column
from service.api.http.query import QueryRoute, query_parameters, query_reader
from service.db.live_catalog import PinnedCatalog
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import RENTED, LifecycleEvent
from service.domain.catalog.names import resolve_instance
from service.domain.catalog.precision import Rate
from service.domain.catalog.reference import SoftwareRule
from service.domain.catalog.similar import similar_types
from service.domain.catalog.software_support import places_of
from service.domain.errors import NotFound, QuestionError, UnknownName
from service.domain.selection.constraints import Constraints
from service.domain.selection.instance_list import count_values, list_instances, sort_columns
from service.domain.selection.successors import successor

router = APIRouter(tags=["catalog"])
list_router = APIRouter(tags=["catalog"], route_class=QueryRoute)


class InstancesRequest(InstanceFilters, PageRequest):
    """Which instance types to list, and in which order."""

    precision: Annotated[Precisions, Field(description="Number formats that the GPU must run: all of them.")] = ()
    precision_support: Annotated[
        PrecisionSupport,
        Field(description="`native` (default) includes accelerated; `any` also includes reduced rates."),
    ] = "native"
    task: Annotated[
        Task | None, Field(description="Leaves out the types on which no known software does the task.")
    ] = None
    q: Annotated[
        Name | None,
        Field(description="Words that must occur in names, families, CPUs, GPUs, aliases, links or networks (`EFA`)."),
    ] = None
    sort: Annotated[
        Columns,
        Field(description="Columns, `-` for descending: a numeric filter, `usd_per_hour`, `tflops_per_usd`, `name`."),
    ] = ()
    facets: Annotated[
        Names,
        Field(description="Columns to count by value over the whole list, each a word filter or a range filter."),
    ] = ()


class FacetResponse(ResponseModel):
    """A value, and how many items of the whole list have it."""

    value: Annotated[str | float | None, Field(description="Null: unknown or not applicable.")]
    count: int = Field(description="Items of the whole list with this value.")


class InstancesPageResponse(Page[InstanceResponse]):
    """A page of instance types."""

    facets: dict[str, list[FacetResponse]] | None
    """For each requested column, its values in the whole list with their counts; null without."""


_read_query = query_reader(InstancesRequest)


@list_router.get(
    "/instances",
    summary="List instance types",
    response_model=InstancesPageResponse,
    openapi_extra=query_parameters(InstancesRequest),
)
async def get_instances(request: Request) -> Response:
    """Instance types with their GPUs and best price, filtered and sorted; an unknown parameter is an error.

    The price is the lowest on-demand price that passes the filters, or else the lowest spot price. Prices of
    commitments are shown only with `market=reserved`.
    """
    # FastAPI would take two fifths of the time to read fifty fields as a parameter of this function.
    query = _read_query(request)
    # The first list of a catalog is slow, because it fills tables. A thread costs a fifth of what a plain list takes.
    live = visible_to_caller(request)
    first = live.on(None).encoded_items.is_empty
    if first or query.as_of is not None or query.known_at is not None or query.facets or wants_csv(request):
        return await in_thread(_list_answer, request, query, live)
    return _list_answer(request, query, live)


def _list_answer(request: Request, query: InstancesRequest, live: PinnedCatalog) -> Response:
    catalog = catalog_on(live, query)
    for column in query.sort:
        require_column(column.removeprefix("-"), sort_columns(catalog))
    rows = list_instances(_constraints(query, catalog), query.q, query.sort, catalog)
    counts = {name: count_values(name, rows[:, 0], catalog) for name in query.facets}
    facets = {name: [FacetResponse(value=value, count=count) for value, count in counts[name]] for name in counts}
    return page_answer(
        request,
        query,
        catalog,
        rows,
        InstanceResponse,
        lambda row: instance_response(catalog, *row),
        key=lambda row: catalog.instance_types[row[0]].id,
        page=partial(InstancesPageResponse, facets=facets or None),
        # Each item takes 40 µs to build and encode: without the cache a page would take six times as long.
        encoded_items=catalog.encoded_items,
    )


def _constraints(query: InstancesRequest, catalog: Catalog) -> Constraints:
    precisions = resolved("precision", query.precision, catalog)
    # A GPU has a peak for each precision, so a limit without one has no column to apply to.
    if not precisions and not query.given().keys().isdisjoint(("min_tflops", "max_tflops")):
        raise QuestionError("tflops needs a precision: add one, such as precision=bf16.", field="precision")
    if not precisions and query.precision_support != "native":
        raise QuestionError("precision_support needs a precision, such as precision=bf16.", field="precision")
    return constraints_of(
        query,
        catalog,
        market=query.market,
        usual_lifecycle=RENTED,
        precision_all=precisions,
        precision_support=query.precision_support,
        task=query.task,
    )


# One in full


class PrecisionDetailResponse(copy_of(Rate, "precision")):  # type: ignore[misc]
    """How one GPU runs one precision, with the source."""


class LifecycleResponse(copy_of(LifecycleEvent)):  # type: ignore[misc]
    """A state of the instance type, and the day on which it began."""


class SoftwareSupportResponse(copy_of(SoftwareRule, "scope", "scope_value", "valid_from", "valid_to")):  # type: ignore[misc]
    """A known rule of how software runs on this hardware."""


class MachineMeasurementResponse(ResponseModel):
    """A measurement on this machine."""

    id: str
    workload: str = Field(description="The name under which it was sent.")
    framework: str | None = Field(description="The framework or engine, as `/frameworks` names it; null: not stated.")
    nodes: int = Field(description="Machines that ran the workload together.")
    precision: str | None = Field(description="Null: not stated.")
    batch_size: int | None = Field(description="Samples per step of all GPUs together; null: not stated.")
    samples_per_second: float = Field(description="The rate of all nodes together.")
    measured_on: date
    source: str


class NamePartsResponse(ResponseModel):
    """Parts of the name, if the provider builds names by a rule."""

    letters: str = Field(description="The letters before the generation: `p` in `p4d.24xlarge`.")
    generation: int = Field(description="The number in the series: 4 in `p4d.24xlarge`.")
    attributes: list[str] = Field(description="The letters after the generation: `d` in `p4d.24xlarge`.")
    series: str = Field(description="Letters and generation: `p4` in `p4d.24xlarge`.")
    size: str = Field(description="The part after the dot: `24xlarge` in `p4d.24xlarge`.")


class InstanceDetailResponse(InstanceTypeResponse):
    """An instance type in full."""

    name_parts: NamePartsResponse | None
    """Null: the provider has no rule for names, or the name does not follow it."""
    gpus_exclusive: bool | None
    """Whether a renter has the GPUs to itself; null: unknown."""
    vcpus_per_gpu: float | None
    """`vcpus` over the number of GPUs; null: unknown, or no GPU."""
    interconnect: str | None
    """How the GPUs are linked, such as `nvlink`; `none` for a single GPU, null: unknown."""
    network_baseline_gbps: float | None
    """Network that is sustained without credits; null: unknown."""
    cpu_baseline_share: float | None
    """Share of a vCPU's time that a burstable type sustains without credits; null: not burstable."""
    twin_of: str | None
    """Another name of the same machine, as `provider/name`."""
    superseded_by: str | None
    """The newer type that is faster, costs no more and has as much memory."""
    precisions: dict[str, PrecisionDetailResponse]
    """Rates by the id of the precision, see `/precisions`; one that is missing is unknown. Empty without a GPU."""
    offers: list[PriceResponse]
    """Every offer of the type on the catalog's day, in all markets and regions."""
    lifecycle_events: list[LifecycleResponse]
    """States up to the catalog's day, the first one first."""
    software: list[SoftwareSupportResponse]
    """Rules in force on the catalog's day that apply to this machine."""
    region_cpus: list[RegionCpuResponse]
    """CPUs that regions are known to combine with the GPU."""
    evidence: list[MachineMeasurementResponse]
    """Measurements of named workloads on this machine that the caller may see."""
    source: str
    note: str | None
    catalog: CatalogStamp


@router.get("/instances/{provider}/{name}", summary="One instance type in full", response_model=InstanceDetailResponse)
def get_instance(provider: Name, name: Name, query: Annotated[DayRequest, Query()], live: Pinned) -> Response:
    """Specs, precisions, offers, lifecycle, software and measurements of one instance type, with their sources."""
    catalog = catalog_on(live, query)
    return json_answer(_detail(catalog, _index_of(provider, name, catalog)), catalog)


def _index_of(provider: str, name: str, catalog: Catalog) -> int:
    """Returns the index of the instance type. Raises `NotFound` with near names."""
    try:
        return catalog.index_of[resolve_instance(f"{provider}/{name}", catalog, "name")]
    except UnknownName as error:
        raise NotFound(error.sentence, field="name", near=error.near) from None


def _detail(catalog: Catalog, index: int) -> InstanceDetailResponse:
    instance_type = catalog.instance_types[index]
    gpu, newer = instance_type.gpu, successor(index, catalog)
    places = places_of(instance_type)
    specs = InstanceTypeResponse.of(instance_type, catalog.day)
    return InstanceDetailResponse.like(
        instance_type,
        **dict(specs),
        gpus_exclusive=catalog.reference.providers[instance_type.provider].gpus_exclusive,
        superseded_by=newer and newer.instance_type.id,
        precisions=gpu.rates if gpu else {},
        offers=[PriceResponse.of(catalog.offers.offer(offer)) for offer in catalog.offers_of(index)],
        lifecycle_events=[event for event in instance_type.lifecycle if event.starts_on <= catalog.day],
        software=[rule for rule in catalog.software if rule.place in places],
        region_cpus=region_cpus(catalog, index),
        evidence=list(catalog.measurements.on(instance_type.id)),
        catalog=stamp(catalog),
    )


# Similar instance types


class SimilarRequest(DayRequest):
    """How many similar instance types to list."""

    limit: Annotated[int, Field(ge=1, le=100, description="Most instance types in the answer.")] = 10


class SpecChangeResponse(ResponseModel):
    """A specification that differs."""

    figure: str = Field(description="Name of the figure with its unit, such as `memory_gib` or `fp16_tflops`.")
    here: Annotated[float, Field(description="The figure of the instance type in the path.")]
    there: Annotated[float, Field(description="The figure of the similar instance type.")]
    ratio: Annotated[Rounded, Field(description="`there` over `here`.")]


class SimilarInstanceResponse(ResponseModel):
    """A similar instance type, with the gains and losses of moving to it."""

    distance: Rounded
    """0 means equal; each figure counts by the logarithm of its ratio."""
    gains: list[SpecChangeResponse]
    """Figures that are higher on the similar type."""
    loses: list[SpecChangeResponse]
    """Figures that are lower on the similar type."""
    precisions_gained: list[str]
    """Precisions that only the GPU of the similar type runs natively."""
    precisions_lost: list[str]
    """Precisions that only the GPU of the instance type in the path runs natively."""
    instance: InstanceResponse


class SimilarResponse(ResponseModel):
    """The nearest types, nearest first."""

    instance: str = Field(description="The instance type in the path, as `provider/name`.")
    items: list[SimilarInstanceResponse]
    catalog: CatalogStamp


@router.get(
    "/instances/{provider}/{name}/similar",
    summary="Instance types like this one",
    response_model=SimilarResponse,
)
def get_similar(provider: Name, name: Name, query: Annotated[SimilarRequest, Query()], live: Pinned) -> Response:
    """The nearest types by GPU memory, peak rates, host and network, and what each gains or loses."""
    catalog = catalog_on(live, query)
    index = _index_of(provider, name, catalog)
    nearest = similar_types(catalog, index, query.limit)
    items = [
        SimilarInstanceResponse.like(similar, instance=instance_response(catalog, similar.index)) for similar in nearest
    ]
    answer = SimilarResponse(instance=catalog.instance_types[index].id, items=items, catalog=stamp(catalog))
    return json_answer(answer, catalog)
