"""Instance types: the list with filters, one in full, and the ones like it."""

from dataclasses import replace
from datetime import date
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from service.api.catalog.facets import FacetResponse, facets_json
from service.api.catalog.filters import InstanceFilters, PrecisionSupport, Task, constraints_of, resolved
from service.api.catalog.instance_type import (
    CpuResponse,
    InstanceResponse,
    InstanceTypeResponse,
    PriceResponse,
    instance_item,
    instance_items,
    machine_fields,
)
from service.api.http.current import CatalogStamp, Live, catalog_for, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import DayRequest, Name, Names, PageRequest, ResponseModel
from service.api.http.listing import Page, page_answer
from service.api.http.query import query_parameters, query_reader
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.names import near_names
from service.domain.catalog.offer import BY_THE_HOUR
from service.domain.catalog.reference import Region, RegionCpu
from service.domain.catalog.similar import SpecChange, similar_types
from service.domain.catalog.software_support import speaks_of
from service.domain.catalog.text_search import matching
from service.domain.errors import NotFound, QuestionError
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.offers import offers_of_types
from service.domain.selection.selection import select

router = APIRouter(tags=["catalog"])

IN_USE = ("available", "closed_to_new", "preview")
"""What a list shows unless the caller asks for other lifecycle states."""


class InstancesRequest(InstanceFilters, PageRequest):
    """Which instance types to list, and in which order."""

    precision: Annotated[Names, Field(description="Number formats that the GPU must run: all of them.")] = ()
    precision_support: Annotated[
        PrecisionSupport,
        Field(description="`native` (default) takes accelerated too; `any` takes reduced rates as well."),
    ] = "native"
    task: Annotated[
        Task | None, Field(description="Leaves out what no software can use for the task; nothing else.")
    ] = None
    q: Annotated[Name | None, Field(description="Words to be found in names, families, GPUs and aliases.")] = None
    sort: Annotated[
        Names,
        Field(description="Columns, `-` for descending: a numeric filter, `usd_per_hour`, `tflops_per_usd`, `name`."),
    ] = ()
    facets: Annotated[
        Names,
        Field(
            description="Columns whose values in the whole list are to be told and counted: any word or range filter."
        ),
    ] = ()


class InstancesPageResponse(Page[InstanceResponse]):
    """A page of instance types."""

    facets: Annotated[
        dict[str, list[FacetResponse]] | None,
        Field(description="By column: each value that the whole list holds, and how often. Null where none is asked."),
    ]


Places = NDArray[np.int64]
read_query = query_reader(InstancesRequest)


@router.get(
    "/instances",
    summary="List instance types",
    response_model=InstancesPageResponse,
    openapi_extra=query_parameters(InstancesRequest),
)
async def get_instances(request: Request) -> Response:
    """Instance types with their GPUs and best price, filtered and sorted; every unknown parameter is refused.

    The price is the lowest on-demand one that the filters leave, or the lowest at spot where there is none;
    prices of commitments are told where `market=reserved` is asked.
    """
    asked = read_query(request)
    catalog = catalog_for(request, asked.as_of)
    constraints = instance_constraints(asked, catalog)
    places, offers = admitted(constraints, catalog)
    if asked.q:
        found = matching(asked.q, catalog)[places]
        places, offers = places[found], offers[found]
    order = sort_order(asked, constraints, catalog, places, offers)
    kinds, offered = places[order], offers[order]
    return page_answer(
        request,
        asked,
        catalog,
        len(kinds),
        lambda place: catalog.instance_types[kinds[place]].id,
        lambda shown: instance_items(catalog, kinds[shown].tolist(), offered[shown].tolist()),
        beside=b'"facets":%b,' % facets_json(asked.facets, catalog, kinds),
    )


def instance_constraints(asked: InstancesRequest, catalog: Catalog) -> Constraints:
    precisions = resolved("precision", asked.precision, catalog)
    if not precisions and not asked.given().keys().isdisjoint(("min_tflops", "max_tflops")):
        raise QuestionError("tflops needs a precision: add for example precision=bf16.", field="precision")
    return constraints_of(
        asked,
        catalog,
        usual={"lifecycle": IN_USE},
        precision_all=precisions,
        precision_support=asked.precision_support,
        task=asked.task,
    )


def admitted(asked: Constraints, catalog: Catalog) -> tuple[Places, Places]:
    """The types that pass, and each one's best offer (-1: none)."""
    if asked.region or asked.market or asked.max_usd_per_hour is not None or asked.max_price_age_days is not None:
        return offers_of_types(select(replace(asked, market=asked.market or BY_THE_HOUR), catalog).admitted)
    passing = catalog.everyone
    for check in type_checks(asked, catalog):
        passing &= ~check.fails
    places = np.flatnonzero(catalog.mask(passing))
    return places, catalog.default_offers[places]


# Sorting


def sort_order(
    asked: InstancesRequest, constraints: Constraints, catalog: Catalog, places: Places, offers: Places
) -> Places:
    """Where each of the places goes; unknown values come last, and the name decides what is still even."""
    if not asked.sort:
        return np.arange(len(places))
    keys: list[NDArray[Any]] = [places]
    for column in reversed(asked.sort):
        name = column.removeprefix("-")
        values = sort_column(name, constraints, catalog, places, offers)
        keys.append(-values if column.startswith("-") else values)
    return np.lexsort(keys)


def sort_column(name: str, constraints: Constraints, catalog: Catalog, places: Places, offers: Places) -> NDArray[Any]:
    numbers = catalog.columns.numbers
    if name in numbers:
        return numbers[name][places]
    if name == "name":
        return places
    if name in ("tflops", "tflops_per_usd") and not constraints.precision_all:
        raise QuestionError(f"Sorting by {name} needs a precision: add for example precision=bf16.", field="sort")
    price = (
        np.where(offers < 0, np.nan, catalog.offers.usd_per_hour[offers]) if len(catalog.offers) else offers * np.nan
    )
    match name:
        case "usd_per_hour":
            return price
        case "tflops":
            return catalog.columns.tflops[constraints.precision_all[0]][places]
        case "tflops_per_usd":
            return catalog.columns.tflops[constraints.precision_all[0]][places] / price
    known = [*numbers, "usd_per_hour", "tflops", "tflops_per_usd", "name"]
    near = near_names(name, known)
    tail = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(known)}."
    raise QuestionError(f"There is no column '{name}' to sort by. {tail}", field="sort", near=near)


# One in full


class PrecisionDetailResponse(ResponseModel):
    """How one GPU runs one precision, and who says so."""

    support: str | None
    dense_tflops: float | None
    sparse_tflops: float | None
    source: str
    note: str | None


class LifecycleResponse(ResponseModel):
    """From this day on, in this state."""

    state: str
    starts_on: date
    basis: str
    source: str
    note: str | None


class SoftwareSupportResponse(ResponseModel):
    """What software is known to do on this hardware."""

    software: str
    kind: str
    versions: str | None
    task: str | None
    supported: str
    source: str
    note: str | None


class EvidenceResponse(ResponseModel):
    """A measurement on this machine."""

    id: str
    workload: str
    framework: str | None
    nodes: int
    precision: str | None
    batch_size: int | None
    samples_per_second: float
    measured_on: date
    source: str


class RegionCpuResponse(ResponseModel):
    """The CPU that a region is known to put beside the GPU."""

    region: str
    cpu: CpuResponse
    source: str


class NamePartsResponse(ResponseModel):
    """What the name tells, where the seller builds names by a rule."""

    letters: str
    generation: int
    attributes: list[str]
    series: str
    size: str


class InstanceDetailResponse(InstanceTypeResponse):
    """An instance type in full."""

    name_parts: NamePartsResponse | None
    gpus_exclusive: Annotated[bool | None, Field(description="Whether a renter has the GPUs alone; null: nobody says.")]

    vcpus_per_gpu: float | None
    interconnect: str | None
    network_baseline_gbps: float | None
    twin_of: str | None
    precisions: dict[str, PrecisionDetailResponse]
    offers: list[PriceResponse]
    lifecycle_events: list[LifecycleResponse]
    software: list[SoftwareSupportResponse]
    region_cpus: list[RegionCpuResponse]
    evidence: list[EvidenceResponse]
    source: str
    note: str | None
    catalog: CatalogStamp


@router.get(
    "/instances/{provider}/{name}",
    summary="One instance type in full",
    response_model=InstanceDetailResponse,
)
async def get_instance(provider: Name, name: Name, asked: Annotated[DayRequest, Query()], live: Live) -> Response:
    """Specs, precisions, offers, lifecycle, software and measurements of one instance type, with their sources."""
    catalog = catalog_on(live, asked.as_of)
    place = instance_place(provider, name, catalog)
    body = catalog.details.get_or_compute(place, lambda: detail(catalog, place).model_dump_json().encode())
    return json_answer(body, catalog)


def instance_place(provider: str, name: str, catalog: Catalog) -> int:
    """Where the type stands. Raises `NotFound` with near names."""
    place = catalog.place_of.get(f"{provider}/{name}")
    if place is not None:
        return place
    near = near_names(f"{provider}/{name}", catalog.place_of)
    tail = f" Did you mean {' or '.join(near)}?" if near else ""
    raise NotFound(f"On {catalog.day} there is no instance type {provider}/{name}.{tail}", field="name", near=near)


def detail(catalog: Catalog, place: int) -> InstanceDetailResponse:
    kind = catalog.instance_types[place]
    offers, parts = catalog.offers, kind.name_parts
    return InstanceDetailResponse(
        **machine_fields(kind, catalog.day),
        name_parts=None if parts is None else NamePartsResponse(**parts._asdict(), series=parts.series),
        gpus_exclusive=catalog.reference.providers[kind.provider].gpus_exclusive,
        vcpus_per_gpu=kind.vcpus_per_gpu,
        interconnect=kind.interconnect,
        network_baseline_gbps=kind.network_baseline_gbps,
        twin_of=kind.twin_of,
        precisions=precision_details(kind),
        offers=[PriceResponse.of(offers.offer(offer)) for offer in catalog.offer_places(place)],
        lifecycle_events=[LifecycleResponse.like(event) for event in kind.lifecycle if event.starts_on <= catalog.day],
        software=[SoftwareSupportResponse.like(rule) for rule in catalog.software if speaks_of(rule, kind)],
        region_cpus=[
            region_cpu(region, cpu)
            for region in catalog.reference.regions
            if region.provider == kind.provider
            for cpu in region.cpus
            if kind.gpu and cpu.gpu == kind.gpu.id
        ],
        evidence=[EvidenceResponse.like(seen) for seen in catalog.measurements if seen.machine == kind.id],
        source=kind.source,
        note=kind.note,
        catalog=stamp(catalog),
    )


def region_cpu(region: Region, cpu: RegionCpu) -> RegionCpuResponse:
    known = CpuResponse(architecture=cpu.cpu_architecture, vendor=cpu.cpu_vendor, model=cpu.cpu_model)
    return RegionCpuResponse(region=region.id, cpu=known, source=cpu.source)


def precision_details(kind: InstanceType) -> dict[str, PrecisionDetailResponse]:
    rates = kind.gpu.rates if kind.gpu else {}
    return {name: PrecisionDetailResponse.like(rate) for name, rate in rates.items()}


# The ones like it


class SimilarRequest(DayRequest):
    """How many similar types to show."""

    limit: Annotated[int, Field(ge=1, le=100)] = 10


class SpecChangeResponse(ResponseModel):
    """One figure that differs."""

    figure: str
    here: float
    there: float
    ratio: float

    @classmethod
    def of(cls, change: SpecChange) -> "SpecChangeResponse":
        return cls(figure=change.figure, here=change.here, there=change.there, ratio=round(change.ratio, 4))


class SimilarInstanceResponse(ResponseModel):
    """A type like the one asked about, and what moving there gains and loses."""

    distance: float = Field(description="0 is the same machine; figures count by the logarithm of their ratio.")
    gains: list[SpecChangeResponse]
    loses: list[SpecChangeResponse]
    precisions_gained: list[str]
    precisions_lost: list[str]
    instance: InstanceResponse


class SimilarResponse(ResponseModel):
    """The nearest types, nearest first."""

    instance: str
    items: list[SimilarInstanceResponse]
    catalog: CatalogStamp


@router.get(
    "/instances/{provider}/{name}/similar",
    summary="Instance types like this one",
    response_model=SimilarResponse,
)
async def get_similar(provider: Name, name: Name, asked: Annotated[SimilarRequest, Query()], live: Live) -> Response:
    """The nearest types by GPU memory, peak rates, host and network, and what each gains or loses."""
    catalog = catalog_on(live, asked.as_of)
    place = instance_place(provider, name, catalog)
    items = [
        SimilarInstanceResponse(
            distance=round(found.distance, 4),
            gains=[SpecChangeResponse.of(change) for change in found.gains],
            loses=[SpecChangeResponse.of(change) for change in found.loses],
            precisions_gained=list(found.precisions_gained),
            precisions_lost=list(found.precisions_lost),
            instance=InstanceResponse.model_validate_json(
                instance_item(catalog, found.place, default_offer(catalog, found.place))
            ),
        )
        for found in similar_types(catalog, place, IN_USE, asked.limit)
    ]
    told = SimilarResponse(instance=f"{provider}/{name}", items=items, catalog=stamp(catalog))
    return json_answer(told.model_dump_json().encode(), catalog)


def default_offer(catalog: Catalog, place: int) -> int:
    """The first offer of a type whose hour can be had by itself; -1: none."""
    first: int = int(catalog.default_offers[place])
    return first
