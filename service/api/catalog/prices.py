"""Prices of offers, as they stand or as they were."""

from datetime import date
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from service.api.catalog.filters import resolved
from service.api.catalog.instance_type import PriceResponse
from service.api.http.current import Live, catalog_on
from service.api.http.fields import Day, Names, PageRequest
from service.api.http.listing import Page, page_answer
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.history import CatalogHistory, day_of, end_of_day, start_of_day
from service.domain.catalog.names import resolve
from service.domain.catalog.offer import MARKETS, Offer
from service.domain.errors import QuestionError

router = APIRouter(tags=["catalog"])


class PriceFilters(PageRequest):
    """Which offers to tell of."""

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
    """A price of an offer, and the span of days it holds for."""

    provider: str
    instance: str
    valid_from: date
    valid_to: date | None = Field(description="The day another price took over; null: still in force.")


@router.get(
    "/prices",
    summary="List prices",
    response_model=Page[OfferResponse],
)
async def get_prices(request: Request, asked: Annotated[PricesRequest, Query()], live: Live) -> Response:
    """Prices per offer – per zone for spot – on the catalog's day, or with `from` and `to` as they were over time."""
    catalog = catalog_on(live, asked.as_of)
    history = live.history
    rows = wanted_rows(asked, catalog, history)
    return page_answer(
        request,
        asked,
        catalog,
        len(rows),
        lambda place: row_key(history, int(rows[place])),
        lambda shown: [price_item(history, row).model_dump_json().encode() for row in rows[shown].tolist()],
    )


def wanted_rows(asked: PricesRequest, catalog: Catalog, history: CatalogHistory) -> NDArray[np.int64]:
    """The rows of the history asked for, by instance type, then offer, then time."""
    prices, offers = history.prices, history.offers
    if asked.from_ and asked.to and asked.from_ > asked.to:
        raise QuestionError(f"from ({asked.from_}) is after to ({asked.to}).", field="from")
    latest = end_of_day(min(asked.to or catalog.day, catalog.day))
    earliest = start_of_day(asked.from_) if asked.from_ else None
    if earliest is None and asked.to is None:
        kept = (prices.valid_from <= latest) & (latest < prices.valid_to)
    else:
        kept = prices.valid_from <= latest
        if earliest is not None:
            kept &= prices.valid_to > earliest
    rows = np.flatnonzero(kept & wanted_offers(asked, catalog, history)[prices.offer])
    return rows[np.lexsort((prices.valid_from[rows], prices.offer[rows], offers.instance_type[prices.offer[rows]]))]


def wanted_offers(asked: PriceFilters, catalog: Catalog, history: CatalogHistory) -> NDArray[np.bool_]:
    """Per offer, whether the filters leave it."""
    offers = history.offers
    kinds, kept = offers.instance_type, np.ones(len(offers.instance_type), np.bool_)
    if asked.provider:
        providers = set(resolved("provider", asked.provider, catalog))
        kept &= np.array([kind.provider in providers for kind in history.instance_types])[kinds]
    if asked.instance:
        instances = set(resolved("instance", asked.instance, catalog))
        kept &= np.array([kind.id in instances for kind in history.instance_types])[kinds]
    if asked.market:
        codes = [MARKETS.index(market) for market in MARKETS if market in resolved("market", asked.market, catalog)]
        kept &= np.isin(offers.market, codes)
    for column, names in (
        (offers.region, resolved("region", asked.region, catalog)),
        (offers.zone, resolve("zone", asked.zone, zones(history), "zone")),
    ):
        if names:
            codes = [code for code, place in enumerate(offers.places) if place in names]
            kept &= np.isin(column, codes)
    return kept


def zones(history: CatalogHistory) -> set[str]:
    return {history.offers.places[code] for code in np.unique(history.offers.zone) if code >= 0}


def row_key(history: CatalogHistory, row: int) -> str:
    """What stays the same of a recorded price when the catalog changes: its machine, place, market and first moment."""
    place = int(history.prices.offer[row])
    kind = history.instance_types[history.offers.instance_type[place]]
    where = (history.offers.region[place], history.offers.zone[place])
    names = [history.offers.places[code] if code >= 0 else "" for code in where]
    market = MARKETS[history.offers.market[place]] + (history.offers.term_of(place) or "")
    return "|".join((kind.id, *names, market, str(int(history.prices.valid_from[row]))))


def offer_of(history: CatalogHistory, row: int) -> tuple[InstanceType, Offer]:
    """What a recorded price is the price of, with that price."""
    place = int(history.prices.offer[row])
    kind = history.instance_types[history.offers.instance_type[place]]
    price = history.prices.price(row)
    words = history.offers.places
    region, zone = int(history.offers.region[place]), int(history.offers.zone[place])
    offer = Offer(
        instance_type=int(history.offers.instance_type[place]),
        region=None if region < 0 else words[region],
        zone=None if zone < 0 else words[zone],
        market=MARKETS[history.offers.market[place]],
        price=price,
        term=history.offers.term_of(place),
    )
    return kind, offer


def price_item(history: CatalogHistory, row: int) -> OfferResponse:
    kind, offer = offer_of(history, row)
    price = offer.price
    return OfferResponse(
        **PriceResponse.of(offer).model_dump(),
        provider=kind.provider,
        instance=kind.name,
        valid_from=day_of(price.valid_from),
        valid_to=None if price.valid_to is None else day_of(price.valid_to),
    )
