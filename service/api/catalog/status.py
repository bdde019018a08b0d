"""The size of the catalog, the age of its prices, and the rows that imports kept or set aside."""

from collections import Counter
from datetime import date
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.http.current import CatalogStamp, Pinned, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import DayRequest, ResponseModel, copy_of
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import ImportSummary

router = APIRouter(tags=["catalog"])


class RowCountsResponse(ResponseModel):
    """Row counts of the catalog on its day."""

    gpus: int
    precisions: int
    providers: int
    regions: int
    instance_types: int
    offers: int
    software_rules: int = Field(description="Rules in force on where software runs.")
    measurements: int = Field(description="Measurements of named workloads that the caller may see.")
    published_runs: int
    sources: int = Field(description="Publications and price lists that rows cite.")


class ProviderFreshnessResponse(ResponseModel):
    """A provider's share of the catalog, and the age of its prices."""

    provider: str
    instance_types: int
    offers: int
    """Offers on the catalog's day, with known and unknown prices."""
    offers_priced: int
    """Offers whose price is known."""
    offers_undated: int
    """Offers whose price has no known day of observation."""
    prices_oldest: date | None
    """The earliest day on which one of its prices was observed; null: no dated price."""
    prices_newest: date | None
    """The latest day on which one of its prices was observed; null: no dated price."""


class ImportResponse(copy_of(ImportSummary)):  # type: ignore[misc]
    """The last import of a feed that changed the catalog: rows read, kept, and set aside by reason."""


class CatalogResponse(ResponseModel):
    """The catalog of a day: its size, its age and its sources."""

    catalog: CatalogStamp
    rows: RowCountsResponse
    providers: list[ProviderFreshnessResponse]
    imports: list[ImportResponse]

    @classmethod
    def of(cls, catalog: Catalog) -> "CatalogResponse":
        """Returns the size, the age and the imports of this catalog."""
        reference = catalog.reference
        return cls(
            catalog=stamp(catalog),
            rows=RowCountsResponse(
                gpus=len(reference.gpus),
                precisions=len(reference.precisions),
                providers=len(reference.providers),
                regions=len(reference.regions),
                instance_types=len(catalog.instance_types),
                offers=len(catalog.offers),
                software_rules=len(catalog.software),
                measurements=sum(1 for _ in catalog.measurements),
                published_runs=len(catalog.published_runs),
                sources=len(reference.sources),
            ),
            providers=_freshness(catalog),
            imports=list(reference.imports),
        )


def _freshness(catalog: Catalog) -> list[ProviderFreshnessResponse]:
    types = Counter(instance_type.provider for instance_type in catalog.instance_types)
    providers = catalog.columns.words["provider"]
    # Computed with numpy: a loop over hundreds of thousands of offers would delay every other request.
    provider_of_offer = providers.codes[catalog.offers.instance_type]
    freshness = []
    for code, provider in enumerate(providers.words):
        offers = provider_of_offer == code
        oldest, newest = catalog.span_of(catalog.offers.age_days[offers])
        freshness.append(
            ProviderFreshnessResponse(
                provider=provider,
                instance_types=types[provider],
                offers=int(offers.sum()),
                offers_priced=int(catalog.known_prices[offers].sum()),
                offers_undated=int(catalog.undated[offers].sum()),
                prices_oldest=oldest,
                prices_newest=newest,
            )
        )
    return freshness


@router.get("/catalog", summary="Size and age of the catalog", response_model=CatalogResponse)
def get_catalog(query: Annotated[DayRequest, Query()], live: Pinned) -> Response:
    """Version, row counts, freshness per provider, and what the last import of each feed kept and set aside."""
    catalog = catalog_on(live, query)
    return json_answer(CatalogResponse.of(catalog), catalog)
