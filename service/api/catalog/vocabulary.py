"""The vocabulary of questions: precisions, providers, regions and frameworks."""

from collections import Counter
from datetime import date
from functools import partial
from hashlib import sha256
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.catalog.instance_type import RegionCpuResponse
from service.api.http.current import Live, catalog_on
from service.api.http.fields import Names, PageRequest, ResponseModel, copy_of
from service.api.http.listing import Page, having, page_answer
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.precision import Precision
from service.domain.catalog.reference import Fee, Provider, Region, Service, ServiceEvent, SoftwareRule

router = APIRouter(tags=["vocabulary"])


class PrecisionResponse(copy_of(Precision)):  # type: ignore[misc]
    """A number format, and how many GPUs run it."""

    gpus_accelerated: int
    gpus_native: int


@router.get("/precisions", summary="List precisions", response_model=Page[PrecisionResponse])
def get_precisions(request: Request, asked: Annotated[PageRequest, Query()], live: Live) -> Response:
    """Number formats, and how many GPUs of the catalog run each."""
    catalog = catalog_on(live, asked.as_of)
    gpus = catalog.reference.gpus.values()
    supports = Counter((name, rate.support) for gpu in gpus for name, rate in gpu.rates.items())
    return page_answer(
        request,
        asked,
        catalog,
        list(catalog.reference.precisions.values()),
        attrgetter("id"),
        lambda precision: PrecisionResponse.like(
            precision,
            gpus_accelerated=supports[precision.id, "accelerated"],
            gpus_native=supports[precision.id, "native"],
        ),
    )


class ServiceStateResponse(copy_of(ServiceEvent)):  # type: ignore[misc]
    """From this day on, in this state."""


class ServiceResponse(ResponseModel):
    """A service of the provider other than instance types."""

    id: str
    name: str
    kind: str
    description: str | None
    state: str | None = Field(description="On the catalog's day; null: not announced by then.")
    lifecycle_events: list[ServiceStateResponse]
    source: str

    @classmethod
    def of(cls, service: Service, day: date) -> "ServiceResponse":
        """The service as it was on that day."""
        events = [event for event in service.lifecycle if event.starts_on <= day]
        return cls.like(service, state=service.state_on(day), lifecycle_events=events)


class FeeResponse(copy_of(Fee, "provider", "note")):  # type: ignore[misc]
    """A managed service's premium on the plain machine's price."""

    family: str = Field(description="Empty: every family without a row of its own.")


class ProviderResponse(ResponseModel):
    """A provider, its terms, and its share of the catalog."""

    id: str
    name: str
    instance_type_term: str | None
    on_demand_term: str | None
    spot_term: str | None
    spot_notice_seconds: int | None
    seller_class: Annotated[
        str | None, Field(description="`hyperscaler`, `neocloud`, `marketplace` or `reseller`; null: unknown.")
    ]
    gpus_exclusive: Annotated[bool | None, Field(description="Whether a renter has the GPUs alone; null: unknown.")]
    instance_types: int
    offers: int
    services: list[ServiceResponse]
    fees: list[FeeResponse]
    source: str
    note: str | None

    @classmethod
    def of(cls, provider: Provider, catalog: Catalog) -> "ProviderResponse":
        """The provider, with its services and fees on the catalog's day."""
        types = [index for index, type_ in enumerate(catalog.instance_types) if type_.provider == provider.id]
        services = (service for service in catalog.reference.services if service.provider == provider.id)
        return cls.like(
            provider,
            instance_types=len(types),
            offers=sum(len(catalog.offers_of(index)) for index in types),
            services=[ServiceResponse.of(service, catalog.day) for service in services],
            fees=[
                fee for fee in catalog.reference.fees if fee.provider == provider.id and fee.valid_from <= catalog.day
            ],
        )


@router.get("/providers", summary="List providers", response_model=Page[ProviderResponse])
def get_providers(request: Request, asked: Annotated[PageRequest, Query()], live: Live) -> Response:
    """Providers with their own terms, the other services they rent out, and the fees of managed services."""
    catalog = catalog_on(live, asked.as_of)
    rows = list(catalog.reference.providers.values())
    return page_answer(request, asked, catalog, rows, attrgetter("id"), partial(ProviderResponse.of, catalog=catalog))


class RegionsRequest(PageRequest):
    """Which regions to list."""

    provider: Names = ()
    country: Annotated[Names, Field(description="ISO 3166 alpha-2, such as `DE`.")] = ()


class RegionResponse(ResponseModel):
    """A region in which a provider rents machines out."""

    provider: str
    id: str
    name: str | None
    country: str | None
    continent: str | None
    cpus: list[RegionCpuResponse]
    source: str

    @classmethod
    def of(cls, region: Region) -> "RegionResponse":
        """The region with its CPUs."""
        return cls.like(region, cpus=[RegionCpuResponse.like(cpu, region=region.id, cpu=cpu) for cpu in region.cpus])


@router.get("/regions", summary="List regions", response_model=Page[RegionResponse])
def get_regions(request: Request, asked: Annotated[RegionsRequest, Query()], live: Live) -> Response:
    """Regions with their country, and the CPU model combined with a GPU, if it is known."""
    catalog = catalog_on(live, asked.as_of)
    named = {
        "provider": resolved("provider", asked.provider, catalog),
        "country": resolved("country", asked.country, catalog),
    }
    rows = having(named, catalog.reference.regions)
    return page_answer(
        request, asked, catalog, rows, lambda region: f"{region.provider}/{region.id}", RegionResponse.of
    )


class FrameworksRequest(PageRequest):
    """Which software to list."""

    software: Annotated[Names, Field(description="Names, such as `pytorch`.")] = ()


class FrameworkResponse(copy_of(SoftwareRule)):  # type: ignore[misc]
    """A rule in force: how software runs on some hardware."""


@router.get("/frameworks", summary="List software support", response_model=Page[FrameworkResponse])
def get_frameworks(request: Request, asked: Annotated[FrameworksRequest, Query()], live: Live) -> Response:
    """Rules in force on that day: which hardware toolkits, frameworks, engines and libraries run on."""
    catalog = catalog_on(live, asked.as_of)
    software = resolved("framework", asked.software, catalog, field="software")
    rows = having({"software": software}, catalog.software)
    return page_answer(request, asked, catalog, rows, _key, FrameworkResponse.like)


# A rule has no id of its own, and a cursor needs a key that survives a change of the catalog.
def _key(rule: SoftwareRule) -> str:
    return sha256(FrameworkResponse.like(rule).model_dump_json().encode()).hexdigest()[:16]
