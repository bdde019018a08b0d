"""What the catalog holds, how fresh it is, and what was seen and dropped."""

from collections import Counter
from datetime import date, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.http.current import CatalogStamp, Live, catalog_on, stamp
from service.api.http.etag import json_answer
from service.api.http.fields import DayRequest, ResponseModel
from service.domain.catalog.catalog import Catalog

router = APIRouter(tags=["catalog"])


class RowCountsResponse(ResponseModel):
    """How much the catalog holds on its day."""

    gpus: int
    precisions: int
    providers: int
    regions: int
    instance_types: int
    offers: int
    software_rules: int
    measurements: int
    published_runs: int
    sources: int


class ProviderFreshnessResponse(ResponseModel):
    """What one provider has in the catalog, and how old its prices are."""

    provider: str
    instance_types: int
    offers: int
    offers_priced: int
    offers_undated: int = Field(description="Nobody knows on which day their price was seen.")
    prices_oldest: date | None
    prices_newest: date | None


class ImportResponse(ResponseModel):
    """The last import of a feed that took effect: rows seen, kept, and set aside by reason."""

    feed: str
    finished_at: datetime
    rows_seen: int
    rows_kept: int
    quarantined: dict[str, int]


class CatalogResponse(ResponseModel):
    """The catalog of a day: how much, how fresh, and from where."""

    catalog: CatalogStamp
    rows: RowCountsResponse
    providers: list[ProviderFreshnessResponse]
    imports: list[ImportResponse]


@router.get(
    "/catalog",
    summary="What the catalog holds",
    response_model=CatalogResponse,
)
async def get_catalog(asked: Annotated[DayRequest, Query()], live: Live) -> Response:
    """Version, row counts, freshness per provider, and what the last import of each feed kept and set aside."""
    catalog = catalog_on(live, asked.as_of)
    return json_answer(catalog_told(catalog).model_dump_json().encode(), catalog)


def catalog_told(catalog: Catalog) -> CatalogResponse:
    reference = catalog.reference
    return CatalogResponse(
        catalog=stamp(catalog),
        rows=RowCountsResponse(
            gpus=len(reference.gpus),
            precisions=len(reference.precisions),
            providers=len(reference.providers),
            regions=len(reference.regions),
            instance_types=len(catalog.instance_types),
            offers=len(catalog.offers),
            software_rules=len(catalog.software),
            measurements=len(catalog.measurements),
            published_runs=len(catalog.published_runs),
            sources=len(reference.sources),
        ),
        providers=freshness(catalog),
        imports=[
            ImportResponse(
                feed=each.feed,
                finished_at=datetime.fromisoformat(each.finished_at),
                rows_seen=each.rows_seen,
                rows_kept=each.rows_kept,
                quarantined=dict(each.quarantined),
            )
            for each in reference.imports
        ],
    )


def freshness(catalog: Catalog) -> list[ProviderFreshnessResponse]:
    types = Counter(kind.provider for kind in catalog.instance_types)
    providers = catalog.columns.words["provider"]
    owner = providers.codes[catalog.offers.instance_type]
    told = []
    for code, provider in enumerate(providers.words):
        mine = owner == code
        oldest, newest = catalog.span_of(catalog.offers.age_days[mine])
        told.append(
            ProviderFreshnessResponse(
                provider=provider,
                instance_types=types[provider],
                offers=int(mine.sum()),
                offers_priced=int(catalog.known_prices[mine].sum()),
                offers_undated=int(catalog.undated[mine].sum()),
                prices_oldest=oldest,
                prices_newest=newest,
            )
        )
    return told
