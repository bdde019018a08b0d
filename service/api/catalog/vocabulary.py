"""The vocabulary of questions and answers: precisions, providers, regions, frameworks and sources."""

from datetime import date
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.catalog.instance_type import RegionCpuResponse
from service.api.http.current import Pinned, catalog_on
from service.api.http.fields import Names, PageRequest, ResponseModel, copy_of
from service.api.http.listing import Page, having, page_answer
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.precision import Precision, Support, format_of, runs_as
from service.domain.catalog.reference import Fee, Provider, Region, Service, ServiceEvent, SoftwareRule, Source
from service.domain.catalog.software_support import platforms_of, software_names, support_by
from service.domain.jobs.software_names import aliases_of

router = APIRouter(tags=["vocabulary"])


class PrecisionResponse(copy_of(Precision), ResponseModel):  # type: ignore[misc]
    """A number format, and how many GPUs run it."""

    stored_bits: float
    """Bits per stored value; in block formats including its share of the block's scales."""
    runs_as: str
    """The precision whose rate a GPU reaches when it multiplies this format."""
    gpus_accelerated: int
    """GPUs of the catalog that have a matrix engine for it."""
    gpus_native: int
    """GPUs of the catalog that run it natively without a matrix engine for it."""

    @classmethod
    def of(cls, precision: Precision, catalog: Catalog) -> "PrecisionResponse":
        """Returns the precision with the number of GPUs that run it."""
        return cls.like(
            precision,
            stored_bits=format_of(precision.id).stored_bits,
            runs_as=runs_as(precision.id),
            gpus_accelerated=_gpus_with("accelerated", precision.id, catalog),
            gpus_native=_gpus_with("native", precision.id, catalog),
        )


@router.get("/precisions", summary="List precisions", response_model=Page[PrecisionResponse])
def get_precisions(request: Request, query: Annotated[PageRequest, Query()], live: Pinned) -> Response:
    """Number formats, with how many GPUs of the catalog run them."""
    catalog = catalog_on(live, query)
    rows = list(catalog.reference.precisions.values())
    return page_answer(request, query, catalog, rows, PrecisionResponse, partial(PrecisionResponse.of, catalog=catalog))


def _gpus_with(support: Support, precision: str, catalog: Catalog) -> int:
    rates = (gpu.rate_at(precision) for gpu in catalog.reference.gpus.values())
    return sum(rate is not None and rate.support == support for rate in rates)


class ServiceStateResponse(copy_of(ServiceEvent)):  # type: ignore[misc]
    """A state of a service, and the day on which it began."""


class ServiceResponse(copy_of(Service, "provider", "lifecycle", "machines"), ResponseModel):  # type: ignore[misc]
    """A service of the provider other than instance types."""

    machines: list[str]
    """Families, and names of single instance types, on which it runs; empty: all of its provider, or unknown."""
    state: str | None
    """Its state on the catalog's day; null: not announced by then."""
    lifecycle_events: list[ServiceStateResponse]
    """States up to the catalog's day, the first one first."""

    @classmethod
    def of(cls, service: Service, day: date) -> "ServiceResponse":
        """Returns the service as it was on that day."""
        events = [event for event in service.lifecycle if event.starts_on <= day]
        machines, state = service.machines_listed, service.state_on(day)
        return cls.like(service, machines=machines, state=state, lifecycle_events=events)


class FeeResponse(copy_of(Fee, "provider", "note")):  # type: ignore[misc]
    """The surcharge of a managed service on the price of the machine."""


class ProviderResponse(copy_of(Provider, "priced_by_region"), ResponseModel):  # type: ignore[misc]
    """A provider, its terms, and its share of the catalog."""

    instance_types: int
    """Number of its instance types on the catalog's day."""
    offers: int
    """Number of its offers on the catalog's day: one per instance type, region or zone, market and term."""
    services: list[ServiceResponse]
    """Its services other than instance types."""
    fees: list[FeeResponse]
    """Fees of its managed services with a `valid_from` up to the catalog's day; of one service and family, the newest
    is in force."""

    @classmethod
    def of(cls, provider: Provider, catalog: Catalog) -> "ProviderResponse":
        """Returns the provider with its services and fees on the catalog's day."""
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


class ProvidersRequest(PageRequest):
    """Which providers to list."""

    provider: Annotated[Names, Field(description="Provider ids or names. Default: all.")] = ()


@router.get("/providers", summary="List providers", response_model=Page[ProviderResponse])
def get_providers(request: Request, query: Annotated[ProvidersRequest, Query()], live: Pinned) -> Response:
    """Providers with the terms that they use, their other services, and the fees of managed services."""
    catalog = catalog_on(live, query)
    named = {"id": resolved("provider", query.provider, catalog)}
    rows = having(named, catalog.reference.providers.values())
    return page_answer(request, query, catalog, rows, ProviderResponse, partial(ProviderResponse.of, catalog=catalog))


class RegionsRequest(PageRequest):
    """Which regions to list."""

    region: Annotated[Names, Field(description="Region ids, or countries and continents. Default: all.")] = ()
    provider: Annotated[Names, Field(description="Provider ids or names, see `/providers`.")] = ()
    country: Annotated[Names, Field(description="Names, or ISO 3166 alpha-2 codes such as `DE`.")] = ()
    continent: Annotated[Names, Field(description="Continents, such as `europe`.")] = ()


class RegionResponse(copy_of(Region), ResponseModel):  # type: ignore[misc]
    """A region in which a provider rents machines out."""

    cpus: list[RegionCpuResponse]
    """The CPUs that the region is known to combine with a GPU; empty: none is known."""

    @classmethod
    def of(cls, region: Region) -> "RegionResponse":
        """Returns the region with its CPUs."""
        return cls.like(region, cpus=[RegionCpuResponse.like(cpu, region=region.id, cpu=cpu) for cpu in region.cpus])


@router.get("/regions", summary="List regions", response_model=Page[RegionResponse])
def get_regions(request: Request, query: Annotated[RegionsRequest, Query()], live: Pinned) -> Response:
    """Regions with their country, and the CPU model combined with a GPU, if it is known."""
    catalog = catalog_on(live, query)
    named = {
        "id": resolved("region", query.region, catalog),
        "provider": resolved("provider", query.provider, catalog),
        "country": resolved("country", query.country, catalog),
        "continent": resolved("continent", query.continent, catalog),
    }
    rows = having(named, catalog.reference.regions)

    def key(region: Region) -> str:
        return f"{region.provider}/{region.id}"

    return page_answer(request, query, catalog, rows, RegionResponse, RegionResponse.of, key=key)


class FrameworksRequest(PageRequest):
    """Which software to list."""

    software: Annotated[Names, Field(description="Names, such as `pytorch`.")] = ()


class SoftwareRuleResponse(copy_of(SoftwareRule, "software", "kind")):  # type: ignore[misc]
    """A rule in force on how the software runs on some hardware. Where several apply, the narrowest scope decides.

    Rules about families or formats restrict the others, and decide among themselves by the same order.
    """


class PlatformSupportResponse(ResponseModel):
    """How software runs on a platform."""

    platform: str
    """The platform, such as `cuda`, `rocm` or `cpu`."""
    supported: str
    """`yes`, `partly` or `no`, on the GPU of the platform that it suits best."""
    sources: list[str]
    """Ids of the sources of the rules that decide."""


class FrameworkResponse(ResponseModel):
    """A framework, engine, toolkit, library or feature, and where it runs."""

    id: str
    """The name that requests use; `aliases` mean the same."""
    kind: str
    """`framework`, `engine`, `toolkit`, `library` or `feature`."""
    aliases: list[str]
    platforms: list[PlatformSupportResponse]
    """Every platform on which it is known to run or not to run."""
    rules: list[SoftwareRuleResponse]
    """The rules in force on the catalog's day."""

    @classmethod
    def of(cls, name: str, catalog: Catalog) -> "FrameworkResponse":
        """Returns the software with the rules that are in force."""
        rules = [rule for rule in catalog.software if rule.software == name]
        platforms = platforms_of((rule for rule in rules if rule.is_about_all_work), catalog)
        return cls(
            id=name,
            kind=next(rule.kind for rule in catalog.reference.software if rule.software == name),
            aliases=aliases_of(name, catalog.derive(software_names)),
            platforms=[_platform_support(platform, deciding) for platform, deciding in platforms.items()],
            rules=[SoftwareRuleResponse.like(rule) for rule in rules],
        )


def _platform_support(platform: str, rules: list[SoftwareRule]) -> PlatformSupportResponse:
    level = support_by(rules) or "no"
    sources = {rule.source for rule in rules if rule.supported == level}
    return PlatformSupportResponse(platform=platform, supported=level, sources=sorted(sources))


@router.get("/frameworks", summary="List software and where it runs", response_model=Page[FrameworkResponse])
def get_frameworks(request: Request, query: Annotated[FrameworksRequest, Query()], live: Pinned) -> Response:
    """Toolkits, frameworks, engines and libraries with their other names, platforms, and rules in force on that day."""
    catalog = catalog_on(live, query)
    names = resolved("framework", query.software, catalog, field="software") or software_names(catalog)
    shown = partial(FrameworkResponse.of, catalog=catalog)
    return page_answer(request, query, catalog, sorted(names), FrameworkResponse, shown, key=str)


class SourcesRequest(PageRequest):
    """Which sources to list."""

    source: Annotated[Names, Field(description="Ids, as `source` of a price, a GPU or a run states them.")] = ()


class SourceResponse(copy_of(Source)):  # type: ignore[misc]
    """A publication, price list or other source of facts."""


@router.get("/sources", summary="List the sources of facts", response_model=Page[SourceResponse])
def get_sources(request: Request, query: Annotated[SourcesRequest, Query()], live: Pinned) -> Response:
    """Publications, price lists and other sources that facts of the catalog refer to by their ids."""
    catalog = catalog_on(live, query)
    rows = having({"id": resolved("source", query.source, catalog)}, catalog.reference.sources.values())
    return page_answer(request, query, catalog, rows, SourceResponse, SourceResponse.like)
