"""Prices of offers: those in force on a day, or their history."""

from collections.abc import Sequence
from datetime import date
from functools import partial
from typing import Annotated, Self

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from service.api.catalog.filters import MARKET, resolved
from service.api.catalog.instance_type import ListedPriceResponse
from service.api.http.current import Pinned, catalog_on, known_on
from service.api.http.fields import Columns, Day, Names, PageRequest
from service.api.http.listing import Page, page_answer, require_column
from service.domain.arrays import Mask
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.history import CatalogHistory, day_of
from service.domain.catalog.offer import UNKNOWN, PriceColumns
from service.domain.catalog.price_history import (
    offer_key,
    offer_of,
    offers_among,
    prices_in_force,
    prices_on,
)
from service.domain.catalog.regions import resolve_zones, zones_with_prices
from service.domain.errors import QuestionError

router = APIRouter(tags=["catalog"])

NAMES = ("provider", "instance", "gpu", "region", "market")
"""Filters whose values the catalog resolves."""

SORTABLE = {"usd_per_hour": "usd_micros", "observed_on": "observed_day", "valid_from": "valid_from"}
"""Columns to sort by, with their names in the history."""


class PriceFilters(PageRequest):
    """Which offers to include."""

    provider: Annotated[Names, Field(description="Provider ids or names, see `/providers`.")] = ()
    instance: Annotated[Names, Field(description="Instance types, as `name` or `provider/name`.")] = ()
    gpu: Annotated[Names, Field(description="GPU ids, names or aliases; `a100` finds every A100 card.")] = ()
    region: Annotated[Names, Field(description="Region ids, see `/regions`, or countries and continents.")] = ()
    zone: Annotated[Names, Field(description="Zone ids, such as `use1-az4`.")] = ()
    market: Annotated[Names, Field(description=MARKET)] = ()


class PricesRequest(PriceFilters):
    """Which prices to list. `from` and `to` ask for the history instead of the state on one day."""

    from_: Annotated[Day | None, Field(alias="from", description="History: prices in force on this day or later.")] = (
        None
    )
    to: Annotated[Day | None, Field(description="History: prices in force on this day or earlier.")] = None
    sort: Annotated[
        Columns,
        Field(
            description="`usd_per_hour`, `observed_on` or `valid_from`, `-` for descending; unknown values come last. "
            "Default: by instance type."
        ),
    ] = ()


class OfferResponse(ListedPriceResponse):
    """A listed price of an offer, and the days on which it is in force. `/instances` shows believed prices."""

    provider: str
    instance: str = Field(description="Name of the instance type at the provider.")
    valid_from: date = Field(description="The first day on which the price is in force.")
    valid_to: date | None = Field(description="The day on which another price replaced it; null: still in force.")

    @classmethod
    def of_row(cls, row: int, history: CatalogHistory) -> Self:
        """Returns a recorded price of the history."""
        instance_type, offer = offer_of(history, row)
        end = offer.price.valid_to
        return cls.of(
            offer,
            provider=instance_type.provider,
            instance=instance_type.name,
            valid_from=day_of(offer.price.valid_from),
            valid_to=None if end is None else day_of(end),
        )


@router.get("/prices", summary="List prices", response_model=Page[OfferResponse])
def get_prices(request: Request, query: Annotated[PricesRequest, Query()], live: Pinned) -> Response:
    """Listed prices per offer – per zone for spot – on the catalog's day, or over time with `from` and `to`."""
    catalog = catalog_on(live, query)
    history = known_on(live, query.known_at).history
    if query.from_ and query.to and query.from_ > query.to:
        raise QuestionError(f"'from' ({query.from_}) is after 'to' ({query.to}).", field="from")
    for field, day in (("from", query.from_), ("to", query.to)):
        if day and day > catalog.day:
            raise QuestionError(f"{day} lies in the future; the catalog is that of {catalog.day}.", field=field)
    offers = offers_admitted_by(query, catalog, history)
    # With either bound the answer is the history; without, the prices on the catalog's day.
    if query.from_ or query.to:
        rows = prices_in_force(history, offers, query.from_, query.to or catalog.day)
    else:
        rows = prices_on(history, offers, catalog.day)
    rows = _sorted(rows, query.sort, history.prices)

    def key(row: int) -> str:
        return f"{offer_key(history, row)}|{history.prices.valid_from[row]}"

    return page_answer(
        request, query, catalog, rows, OfferResponse, partial(OfferResponse.of_row, history=history), key=key
    )


def _sorted(rows: NDArray[np.int64], sort: Sequence[str], prices: PriceColumns) -> NDArray[np.int64]:
    """Returns rows of the history sorted by columns, unknown values last; ties keep their order."""
    for column in reversed(sort):
        name = column.removeprefix("-")
        require_column(name, SORTABLE)
        values = getattr(prices, SORTABLE[name])[rows]
        # lexsort sorts by the last key first.
        rows = rows[np.lexsort((-values if column.startswith("-") else values, values == UNKNOWN))]
    return rows


def offers_admitted_by(query: PriceFilters, catalog: Catalog, history: CatalogHistory) -> Mask:
    """Returns per offer of the history whether the filters admit it. Raises `UnknownName` with near names.

    Offers of instance types that the catalog of the day does not have yet are left out.
    """
    names = {name: resolved(name, getattr(query, name), catalog) for name in NAMES}
    if query.zone:
        names["zone"] = resolve_zones(query.zone, zones_with_prices(history.offers), catalog.reference.regions)
    among = offers_among(history, names)
    # Some price lists have a machine days before it is announced.
    announced = np.array([type_.id in catalog.index_of for type_ in history.instance_types], np.bool_)
    return among & announced[history.offers.instance_type]
