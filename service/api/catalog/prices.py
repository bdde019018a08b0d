"""Prices of offers: those in force on a day, or their history."""

from datetime import date
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.catalog.instance_type import PriceResponse
from service.api.http.current import Live, catalog_on, known_on
from service.api.http.fields import Day, Names, PageRequest
from service.api.http.listing import Page, page_answer
from service.domain.arrays import Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.history import CatalogHistory, day_of
from service.domain.catalog.names import resolve
from service.domain.catalog.price_history import (
    offer_key,
    offer_of,
    offers_among,
    prices_in_force,
    prices_on,
    zones,
)
from service.domain.errors import QuestionError

router = APIRouter(tags=["catalog"])

NAMES = ("provider", "instance", "region", "market")
"""Filters whose values the catalog resolves."""


class PriceFilters(PageRequest):
    """Which offers to include."""

    provider: Names = ()
    instance: Annotated[Names, Field(description="Instance types, as `name` or `provider/name`.")] = ()
    region: Names = ()
    zone: Names = ()
    market: Names = ()


class PricesRequest(PriceFilters):
    """Which prices to list. `from` and `to` ask for the history instead of the state on one day."""

    from_: Annotated[Day | None, Field(alias="from", description="History: prices in force on this day or later.")] = (
        None
    )
    to: Annotated[Day | None, Field(description="History: prices in force on this day or earlier.")] = None


class OfferResponse(PriceResponse):
    """A price of an offer, and the days on which it holds."""

    provider: str
    instance: str
    valid_from: date
    valid_to: date | None = Field(description="The day on which another price replaced it; null: still in force.")

    @classmethod
    def of_row(cls, row: int, history: CatalogHistory) -> "OfferResponse":
        """A recorded price of the history."""
        instance_type, offer = offer_of(history, row)
        end = offer.price.valid_to
        return cls(
            **PriceResponse.of(offer).__dict__,
            provider=instance_type.provider,
            instance=instance_type.name,
            valid_from=day_of(offer.price.valid_from),
            valid_to=None if end is None else day_of(end),
        )


@router.get("/prices", summary="List prices", response_model=Page[OfferResponse])
def get_prices(request: Request, query: Annotated[PricesRequest, Query()], live: Live) -> Response:
    """Prices per offer – per zone for spot – on the catalog's day, or with `from` and `to` as they were over time."""
    catalog = catalog_on(live, query)
    history = known_on(live, query.known_at).history
    if query.from_ and query.to and query.from_ > query.to:
        raise QuestionError(f"from ({query.from_}) is after to ({query.to}).", field="from")
    offers = offers_admitted_by(query, catalog, history)
    # Either bound asks for the history; neither asks for the state on the day of the catalog.
    if query.from_ or query.to:
        rows = prices_in_force(history, offers, query.from_, min(query.to or catalog.day, catalog.day))
    else:
        rows = prices_on(history, offers, catalog.day)

    def key(row: int) -> str:
        return f"{offer_key(history, row)}|{history.prices.valid_from[row]}"

    return page_answer(request, query, catalog, rows, key, partial(OfferResponse.of_row, history=history))


def offers_admitted_by(query: PriceFilters, catalog: Catalog, history: CatalogHistory) -> Mask:
    """Returns per offer of the history whether the filters admit it. Raises `UnknownName` with near names."""
    names = {name: resolved(name, getattr(query, name), catalog) for name in NAMES}
    return offers_among(history, {**names, "zone": resolve("zone", query.zone, zones(history), "zone")})
