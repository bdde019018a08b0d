"""GET /prices/changes: how prices, and the cost of a run, changed between two days."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from service.api.catalog.prices import PriceFilters, offers_admitted_by
from service.api.estimate.cost_request import Hours
from service.api.http.current import EARLIEST, Pinned, catalog_on, known_on
from service.api.http.fields import AtLeastOne, Day, ResponseModel
from service.api.http.figures import rounded
from service.api.http.listing import Page, page_answer
from service.domain.bill.price_changes import ChangeKind, Difference, PriceChange, price_changes
from service.domain.errors import QuestionError
from service.domain.money import number

router = APIRouter(tags=["catalog"])


class PriceChangesRequest(PriceFilters):
    """The two days, the offers, and the run whose cost is compared."""

    from_: Annotated[Day, Field(alias="from", description="The earlier day.")]
    to: Annotated[Day | None, Field(description="The later day. Default: the catalog's day.")] = None
    hours: Annotated[
        Hours | None,
        Field(description="Hours of a run, whose cost on both days is then shown; at spot, the expected cost."),
    ] = None
    nodes: Annotated[AtLeastOne, Field(description="Machines of the run that takes `hours`.")] = 1


class RunCostChangeResponse(ResponseModel):
    """The likely cost of the run on both days; null if unknown."""

    usd_before: float | None = Field(description="Dollars on the day `from`.")
    usd_after: float | None = Field(description="Dollars on the day `to`.")
    change_usd: float | None = Field(description="`usd_after` - `usd_before`.")
    change_percent: float | None = Field(description="`change_usd` in percent of `usd_before`.")


class PriceChangeResponse(ResponseModel):
    """An offer whose price changed."""

    provider: str
    instance: str
    """Name of the instance type at the provider."""
    region: str | None
    """Null: the source names no region."""
    zone: str | None
    """Zone of a spot price; null if the price holds in the whole region."""
    market: str
    """`on_demand`, `spot` or `reserved`."""
    term: str | None
    """The commitment of a reserved offer, such as `1y_reserved_all_upfront`; null in other markets."""
    change: ChangeKind
    """`more_expensive`, `cheaper`, `new` or `gone`; `known` and `unknown` say that the offer stayed and its price in
    dollars became known or unknown."""
    usd_per_hour_before: float | None
    """Listed price on the day `from`; null: unknown or none."""
    usd_per_hour_after: float | None
    """Listed price on the day `to`; null: unknown or none."""
    change_usd_per_hour: float | None
    """`usd_per_hour_after` - `usd_per_hour_before`; null if either price is null."""
    change_percent: Annotated[
        float | None, Field(description="Of the price on the day `from`; null if either price is null.")
    ]
    source_before: str | None
    """Id of the source of the price on the day `from`; null without a price."""
    source_after: str | None
    """Id of the source of the price on the day `to`; null without a price."""
    run: RunCostChangeResponse | None
    """The change of the cost of a run of `hours`; null without `hours`."""


@router.get("/prices/changes", summary="List changes of prices", response_model=Page[PriceChangeResponse])
def get_price_changes(request: Request, query: Annotated[PriceChangesRequest, Query()], live: Pinned) -> Response:
    """Offers whose listed price differs between two days; with `hours`, also the change of the cost of such a run."""
    catalog = catalog_on(live, query)
    last = query.to or catalog.day
    if last > catalog.day:
        raise QuestionError(f"{last} lies in the future; the catalog is that of {catalog.day}.", field="to")
    if query.from_ > last:
        raise QuestionError(f"'from' ({query.from_}) is after 'to' ({last}).", field="from")
    if query.from_ < EARLIEST:
        raise QuestionError(f"The catalog begins in {EARLIEST.year}.", field="from")
    if query.hours is None and query.nodes > 1:
        raise QuestionError("nodes needs a number of hours: both describe the run whose cost is shown.", field="hours")
    history = known_on(live, query.known_at).history
    offers = offers_admitted_by(query, catalog, history)
    changes = price_changes(history, offers, (query.from_, last), query.hours, query.nodes)

    def response_of(rows: tuple[int, int]) -> PriceChangeResponse:
        return _response_of(changes.at(rows))

    return page_answer(request, query, catalog, changes.rows, PriceChangeResponse, response_of, key=changes.key)


def _response_of(change: PriceChange) -> PriceChangeResponse:
    return PriceChangeResponse.like(
        change.offer,
        provider=change.instance_type.provider,
        instance=change.instance_type.name,
        change=change.kind,
        source_before=change.before and change.before.source,
        source_after=change.after and change.after.source,
        run=None if change.run is None else RunCostChangeResponse(**_amounts(change.run, "usd")),
        **_amounts(change.usd_per_hour, "usd_per_hour"),
    )


def _amounts(change: Difference, name: str) -> dict[str, float | None]:
    """Returns the fields of an amount on both days, and of its change in dollars and in percent."""
    amounts = {f"{name}_before": change.before, f"{name}_after": change.after, f"change_{name}": change.micros}
    dollars = {field: None if micros is None else number(micros) for field, micros in amounts.items()}
    return {**dollars, "change_percent": rounded(change.percent)}
