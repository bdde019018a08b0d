"""The feeds of prices with their health, and the instance types that they sell and the catalog does not have."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.http.current import Followed
from service.api.http.fields import RequestModel, ResponseModel, copy_of
from service.db.feeds.read_feeds import FeedStatus, UnmappedType

router = APIRouter(tags=["catalog"])

Health = Literal["never", "ok", "stale", "refused", "failed"]


class FeedResponse(ResponseModel):
    """A feed: how far it is trusted, when it was read, and what became of its rows."""

    id: str
    title: str
    rank: int = Field(description="Of feeds that confirmed a price recently, the one with the lowest rank counts.")
    state: Health = Field(description="`stale`: the feed answers, but its content has not changed for too long.")
    problem: str | None
    url: str | None
    setting: str | None = Field(description="The environment variable with the key without which the feed is not read.")
    every_hours: float | None
    last_run_at: datetime | None
    next_run_at: datetime | None
    captured_at: datetime | None = Field(description="The instant at which the last good content was current.")
    changed_at: datetime | None = Field(description="Since when the content is the same.")
    rows_kept: int
    rows_held: int = Field(
        description="Rows that wait for a second capture, another feed, or `instance-selector feeds release`."
    )
    rows_refused: int = Field(description="Rows that an operator refused: `instance-selector feeds refuse`.")
    rows_unmapped: int = Field(description="Kept rows whose instance type the catalog lacks, see `/catalog/unmapped`.")
    set_aside: dict[str, int] = Field(description="Rows that failed a check, by reason.")
    filtered: dict[str, int] = Field(description="Rows about other products, by reason.")

    @classmethod
    def of(cls, status: FeedStatus, now: datetime) -> "FeedResponse":
        """The status of a feed at an instant."""
        return cls.like(
            status,
            **{name: getattr(status.feed, name) for name in ("id", "title", "rank", "url", "setting", "every_hours")},
            state=status.health(now),
            rows_kept=status.kept,
            rows_held=status.held,
            rows_refused=status.refused,
            rows_unmapped=status.unmapped,
        )


class FeedsResponse(ResponseModel):
    """Every feed."""

    items: list[FeedResponse]


class UnmappedResponse(copy_of(UnmappedType)):  # type: ignore[misc]
    """An instance type that feeds sell, with the hardware that they state; it waits for a row in the catalog."""


class UnmappedTypesResponse(ResponseModel):
    """Instance types that wait, those with the most prices first."""

    items: list[UnmappedResponse]
    total: int


class UnmappedRequest(RequestModel):
    """How many instance types to list."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 100


@router.get("/feeds", summary="How the feeds of prices are doing")
def get_feeds(live: Followed, response: Response) -> FeedsResponse:
    """The last run of each feed, the age of its content, the next run, and what became of its rows."""
    response.headers["Cache-Control"] = "no-store"
    now, statuses = live.feeds()
    return FeedsResponse(items=[FeedResponse.of(status, now) for status in statuses])


@router.get("/catalog/unmapped", summary="List instance types that the catalog lacks")
def get_unmapped(
    query: Annotated[UnmappedRequest, Query()], live: Followed, response: Response
) -> UnmappedTypesResponse:
    """Instance types without a row in the catalog. Their prices are kept, and count as soon as there is one."""
    response.headers["Cache-Control"] = "no-store"
    types = live.unmapped()
    return UnmappedTypesResponse(items=list(types[: query.limit]), total=len(types))
