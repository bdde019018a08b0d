"""The vocabulary of questions: precisions, providers, regions and frameworks."""

from collections.abc import Sequence
from datetime import date
from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from service.api.catalog.filters import resolved
from service.api.catalog.instances import RegionCpuResponse, region_cpu
from service.api.http.current import Live, catalog_on
from service.api.http.fields import Names, PageRequest, ResponseModel
from service.api.http.listing import Page, page_answer
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve
from service.domain.catalog.reference import Provider, Region, Service

router = APIRouter(tags=["vocabulary"])


def models_page(
    request: Request, asked: PageRequest, catalog: Catalog, keys: Sequence[str], models: Sequence[BaseModel]
) -> Response:
    return page_answer(
        request,
        asked,
        catalog,
        len(keys),
        keys.__getitem__,
        lambda shown: [model.model_dump_json().encode() for model in models[shown]],
    )


class PrecisionResponse(ResponseModel):
    """A number format, and how many GPUs run it."""

    id: str
    name: str
    kind: str
    bits: int
    exponent_bits: int | None
    mantissa_bits: int | None
    description: str
    gpus_accelerated: int
    gpus_native: int
    source: str


@router.get("/precisions", summary="List precisions", response_model=Page[PrecisionResponse])
async def get_precisions(request: Request, asked: Annotated[PageRequest, Query()], live: Live) -> Response:
    """Number formats that GPUs are asked for, and how many GPUs of the catalog run each."""
    catalog = catalog_on(live, asked.as_of)
    gpus = catalog.reference.gpus.values()
    supports = [(name, rate.support) for gpu in gpus for name, rate in gpu.rates.items()]
    items = [
        PrecisionResponse.like(
            each,
            gpus_accelerated=supports.count((each.id, "accelerated")),
            gpus_native=supports.count((each.id, "native")),
        )
        for each in catalog.reference.precisions.values()
    ]
    return models_page(request, asked, catalog, [item.id for item in items], items)


class ServiceStateResponse(ResponseModel):
    """From this day on, in this state."""

    state: str
    starts_on: date
    source: str
    note: str | None


class ServiceResponse(ResponseModel):
    """Something the provider rents beside instance types."""

    id: str
    name: str
    kind: str
    description: str | None
    state: str | None = Field(description="On the catalog's day; null: not announced by then.")
    lifecycle_events: list[ServiceStateResponse]
    source: str


class FeeResponse(ResponseModel):
    """A managed service's premium on the plain machine's price."""

    service: str
    family: str = Field(description="Empty: every family without a row of its own.")
    percent_of_compute: float
    valid_from: date
    source: str


class ProviderResponse(ResponseModel):
    """A seller, its own words, and how much of the catalog is its."""

    id: str
    name: str
    instance_type_term: str | None
    on_demand_term: str | None
    spot_term: str | None
    spot_notice_seconds: int | None
    gpus_exclusive: Annotated[bool | None, Field(description="Whether a renter has the GPUs alone; null: nobody says.")]
    instance_types: int
    offers: int
    services: list[ServiceResponse]
    fees: list[FeeResponse]
    source: str
    note: str | None


@router.get("/providers", summary="List providers", response_model=Page[ProviderResponse])
async def get_providers(request: Request, asked: Annotated[PageRequest, Query()], live: Live) -> Response:
    """Sellers with their own words for things, what they rent beside machines, and their managed services' premiums."""
    catalog = catalog_on(live, asked.as_of)
    items = [provider_item(each, catalog) for each in catalog.reference.providers.values()]
    return models_page(request, asked, catalog, [item.id for item in items], items)


def provider_item(provider: Provider, catalog: Catalog) -> ProviderResponse:
    places = [place for place, kind in enumerate(catalog.instance_types) if kind.provider == provider.id]
    return ProviderResponse.like(
        provider,
        instance_types=len(places),
        offers=sum(len(catalog.offer_places(place)) for place in places),
        services=[
            service_told(each, catalog.day) for each in catalog.reference.services if each.provider == provider.id
        ],
        fees=[
            FeeResponse.like(fee)
            for fee in catalog.reference.fees
            if fee.provider == provider.id and fee.valid_from <= catalog.day
        ],
    )


def service_told(service: Service, day: date) -> ServiceResponse:
    events = [ServiceStateResponse.like(event) for event in service.lifecycle if event.starts_on <= day]
    return ServiceResponse.like(service, state=service.state_on(day), lifecycle_events=events)


class RegionsRequest(PageRequest):
    """Which regions to list."""

    provider: Names = ()
    country: Annotated[Names, Field(description="ISO 3166 alpha-2, such as `DE`.")] = ()


class RegionResponse(ResponseModel):
    """A place where a provider rents machines out."""

    provider: str
    id: str
    name: str | None
    country: str | None
    cpus: list[RegionCpuResponse]
    source: str


@router.get("/regions", summary="List regions", response_model=Page[RegionResponse])
async def get_regions(request: Request, asked: Annotated[RegionsRequest, Query()], live: Live) -> Response:
    """Regions with their country, and the CPU model beside a GPU where it is known."""
    catalog = catalog_on(live, asked.as_of)
    providers = resolved("provider", asked.provider, catalog)
    known = {region.country for region in catalog.reference.regions if region.country}
    countries = resolve("country", asked.country, known, "country")
    items = [
        region_item(region)
        for region in catalog.reference.regions
        if (not providers or region.provider in providers) and (not countries or region.country in countries)
    ]
    return models_page(request, asked, catalog, [f"{item.provider}/{item.id}" for item in items], items)


def region_item(region: Region) -> RegionResponse:
    return RegionResponse.like(region, cpus=[region_cpu(region, cpu) for cpu in region.cpus])


class FrameworksRequest(PageRequest):
    """Which software to list."""

    software: Annotated[Names, Field(description="Names, such as `pytorch`.")] = ()


class FrameworkResponse(ResponseModel):
    """A rule in force: what software does on some hardware."""

    software: str
    kind: str
    versions: str | None
    scope: str
    scope_value: str
    task: str | None
    supported: str
    valid_from: date | None
    valid_to: date | None
    source: str
    note: str | None


@router.get("/frameworks", summary="List software support", response_model=Page[FrameworkResponse])
async def get_frameworks(request: Request, asked: Annotated[FrameworksRequest, Query()], live: Live) -> Response:
    """What toolkits, frameworks, engines and libraries do on which hardware, by the rules in force on that day."""
    catalog = catalog_on(live, asked.as_of)
    wanted = resolved("framework", asked.software, catalog, field="software")
    rules = [rule for rule in catalog.software if not wanted or rule.software in wanted]
    items = [FrameworkResponse.like(rule) for rule in rules]
    keys = [sha256(item.model_dump_json().encode()).hexdigest()[:16] for item in items]
    return models_page(request, asked, catalog, keys, items)
