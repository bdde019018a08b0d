"""GET /prices/changes: what changed of the prices between two days, and how far the cost of a run moved."""

from datetime import date
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.prices import PriceFilters, wanted_offers
from service.api.estimate.cost_request import Hours
from service.api.http.current import Live, catalog_on
from service.api.http.fields import AtLeastOne, Day, ResponseModel
from service.api.http.listing import Page, page_answer
from service.domain.bill.seller_terms import likely_usd_micros
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
        Field(description="Of a run: each change then has the change of its cost, at spot in expectation."),
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
        lambda rows: _change_item(history, rows, (asked.from_, last), asked),
    )


def _change_item(
    history: CatalogHistory, rows: tuple[int, int], days: tuple[date, date], asked: PriceChangesRequest
) -> PriceChangeResponse:
    instance_type, offer = offer_of(history, max(rows))
    prices = [None if row < 0 else history.prices.price(row) for row in rows]
    before, after = (None if price is None else price.usd_micros_per_hour for price in prices)
    return PriceChangeResponse.like(
        offer,
        provider=instance_type.provider,
        instance=instance_type.name,
        change=_kind_of_change(rows, before, after),
        source_before=None if prices[0] is None else prices[0].source,
        source_after=None if prices[1] is None else prices[1].source,
        run=None if asked.hours is None else _run_change(history, rows, days, asked.hours, asked.nodes),
        **_change(before, after, "usd_per_hour"),
    )


def _kind_of_change(
    rows: tuple[int, int], before: int | None, after: int | None
) -> Literal["dearer", "cheaper", "new", "gone", "known", "unknown"]:
    if rows[0] < 0:
        return "new"
    if rows[1] < 0:
        return "gone"
    if before is None or after is None:
        return "known" if before is None else "unknown"
    return "dearer" if after > before else "cheaper"


def _run_change(
    history: CatalogHistory, rows: tuple[int, int], days: tuple[date, date], hours: float, nodes: int
) -> RunCostChangeResponse:
    before, after = (
        None if row < 0 else likely_usd_micros(history.reference, *offer_of(history, row), day, hours, nodes)
        for row, day in zip(rows, days, strict=True)
    )
    return RunCostChangeResponse(**_change(before, after, "usd"))


def _change(before: int | None, after: int | None, name: str) -> dict[str, Any]:
    """The fields of an amount on both days, and of its change in dollars and in percent."""
    change = None if before is None or after is None else after - before
    return {
        f"{name}_before": None if before is None else number(before),
        f"{name}_after": None if after is None else number(after),
        f"change_{name}": None if change is None else number(change),
        "change_percent": None if change is None or not before else round(100 * change / before, 2),
    }
