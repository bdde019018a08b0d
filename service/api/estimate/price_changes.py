"""GET /prices/changes: what changed of the prices between two days, and how far the cost of a run moved."""

from datetime import date
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.prices import PriceFilters, wanted_offers
from service.api.estimate.cost_request import Hours
from service.api.http.current import Live, catalog_on
from service.api.http.fields import AtLeastOne, Day, ResponseModel
from service.api.http.listing import Page, page_answer
from service.domain.band import Band
from service.domain.bill.bill import bill_of
from service.domain.bill.interruption import Checkpoints
from service.domain.bill.run import BilledRun
from service.domain.bill.seller_terms import terms_of
from service.domain.catalog.history import CatalogHistory
from service.domain.catalog.price_history import changes_between, offer_key, offer_of
from service.domain.errors import QuestionError
from service.domain.money import number

router = APIRouter(tags=["catalog"])


class PriceChangesRequest(PriceFilters):
    """Between which days, of which offers, and for which run."""

    from_: Annotated[Day, Field(alias="from", description="The earlier day.")]
    to: Annotated[Day | None, Field(description="The later day; left out: the catalog's day.")] = None
    hours: Annotated[
        Hours | None,
        Field(description="Of a run: each change also tells how far its cost moved, at spot in expectation."),
    ] = None
    nodes: Annotated[AtLeastOne, Field(description="Of that run.")] = 1


class RunCostChangeResponse(ResponseModel):
    """The likely cost of the run on both days; null where it was not known."""

    usd_before: float | None
    usd_after: float | None
    change_usd: float | None
    change_percent: float | None


class PriceChangeResponse(ResponseModel):
    """An offer whose price changed."""

    provider: str
    instance: str
    region: str | None
    zone: str | None
    market: str
    term: str | None
    change: Literal["dearer", "cheaper", "new", "gone", "known", "unknown"] = Field(
        description="`known` and `unknown`: the offer stayed, and its price in dollars became or ceased to be known."
    )
    usd_per_hour_before: float | None
    usd_per_hour_after: float | None
    change_usd_per_hour: float | None
    change_percent: float | None
    source_before: str | None
    source_after: str | None
    run: RunCostChangeResponse | None = Field(description="Null where no hours were asked.")


@router.get("/prices/changes", summary="List what changed of the prices", response_model=Page[PriceChangeResponse])
async def get_price_changes(request: Request, asked: Annotated[PriceChangesRequest, Query()], live: Live) -> Response:
    """Offers whose price differs between two days; with `hours`, how far the cost of such a run moved on each."""
    catalog = catalog_on(live, asked.as_of)
    last = asked.to or catalog.day
    if last > catalog.day:
        raise QuestionError(f"{last} lies in the future; the catalog is of {catalog.day}.", field="to")
    if asked.from_ > last:
        raise QuestionError(f"from ({asked.from_}) is after to ({last}).", field="from")
    history = live.history
    changes = changes_between(history, wanted_offers(asked, catalog, history), asked.from_, last)
    return page_answer(
        request,
        asked,
        catalog,
        np.column_stack((changes.before, changes.after)),
        lambda rows: offer_key(history, max(rows)),
        lambda rows: change_item(history, rows, (asked.from_, last), asked),
    )


def change_item(
    history: CatalogHistory, rows: tuple[int, int], days: tuple[date, date], asked: PriceChangesRequest
) -> PriceChangeResponse:
    kind, offer = offer_of(history, max(rows))
    prices = [None if row < 0 else history.prices.price(row) for row in rows]
    micros = [None if price is None else price.usd_micros_per_hour for price in prices]
    before, after = micros
    moved = None if before is None or after is None else after - before
    return PriceChangeResponse(
        provider=kind.provider,
        instance=kind.name,
        region=offer.region,
        zone=offer.zone,
        market=offer.market,
        term=offer.term,
        change=kind_of_change(rows, before, after),
        usd_per_hour_before=None if before is None else number(before),
        usd_per_hour_after=None if after is None else number(after),
        change_usd_per_hour=None if moved is None else number(moved),
        change_percent=None if moved is None or not before else round(100 * moved / before, 2),
        source_before=None if prices[0] is None else prices[0].source,
        source_after=None if prices[1] is None else prices[1].source,
        run=None if asked.hours is None else run_moved(history, rows, days, asked.hours, asked.nodes),
    )


def kind_of_change(
    rows: tuple[int, int], before: int | None, after: int | None
) -> Literal["dearer", "cheaper", "new", "gone", "known", "unknown"]:
    if rows[0] < 0:
        return "new"
    if rows[1] < 0:
        return "gone"
    if before is None or after is None:
        return "known" if before is None else "unknown"
    return "dearer" if after > before else "cheaper"


def run_moved(
    history: CatalogHistory, rows: tuple[int, int], days: tuple[date, date], hours: float, nodes: int
) -> RunCostChangeResponse:
    """Each bill under the terms of its own day: the price, the rate of its currency and the rounding of time."""
    before, after = (
        None if row < 0 else likely_micros(history, row, day, hours, nodes) for row, day in zip(rows, days, strict=True)
    )
    moved = None if before is None or after is None else after - before
    return RunCostChangeResponse(
        usd_before=None if before is None else number(before),
        usd_after=None if after is None else number(after),
        change_usd=None if moved is None else number(moved),
        change_percent=None if moved is None or not before else round(100 * moved / before, 2),
    )


def likely_micros(history: CatalogHistory, row: int, day: date, hours: float, nodes: int) -> int | None:
    kind, offer = offer_of(history, row)
    run = BilledRun(Band(hours, hours, hours), nodes)
    usd = bill_of(run, terms_of(history.reference, kind, offer, run, day, Checkpoints())).usd
    return None if usd is None else usd.likely
