"""The feeds of prices with their health, and the instance types in feeds that the catalog lacks."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from service.api.http.current import Live
from service.api.http.fields import RequestModel, ResponseModel, copy_of
from service.db.feeds.read_feeds import FeedStatus, UnmappedType

router = APIRouter(tags=["catalog"])

Health = Literal["never", "ok", "stale", "refused", "failed"]


class FeedResponse(ResponseModel):
    """A feed: how far it is trusted, when it was read, and what became of its rows."""

    id: str
    title: str
    """Name for people."""
    rank: int
    """Where several feeds confirmed a price recently, the one of the lowest rank counts."""
    state: Health
    """`stale`: the feed answers, but its content has not changed for too long."""
    problem: str | None
    """Why the last run failed; null if it succeeded."""
    url: str | None
    """Address at which the feed is read; null: none."""
    setting: str | None
    """The environment variable for the key that the feed needs; null: none."""
    every_hours: float | None
    """Hours between two runs; null: the feed is not read in the background."""
    last_run_at: datetime | None
    """When the feed was last read; null: never."""
    next_run_at: datetime | None
    """When the feed is due again; null: never read, or not read in the background."""
    captured_at: datetime | None
    """When the last good content was current."""
    changed_at: datetime | None
    """When the content last changed."""
    rows_kept: int
    """Rows of the last capture that became prices."""
    rows_held: int
    """Rows that do not count until a second capture, another feed or `instance-selector feeds release` confirms
    them."""
    rows_refused: int
    """Rows that an operator refused: `instance-selector feeds refuse`."""
    rows_unmapped: int
    """Rows whose instance type the catalog lacks, see `/catalog/unmapped`."""
    set_aside: dict[str, int]
    """Rows that failed a check, by reason."""
    filtered: dict[str, int]
    """Rows about other products, by reason."""

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
    """An instance type in feeds that the catalog lacks, with the hardware that the feeds state."""


class UnmappedTypesResponse(ResponseModel):
    """Instance types that the catalog lacks, those with the most prices first."""

    items: list[UnmappedResponse]
    total: int = Field(description="Instance types that the catalog lacks, also those beyond `limit`.")


class UnmappedRequest(RequestModel):
    """How many instance types to list."""

    limit: Annotated[int, Field(ge=1, le=1000, description="Most instance types in the answer.")] = 100


@router.get("/feeds", summary="List feeds with their health")
def get_feeds(_query: Annotated[RequestModel, Query()], live: Live, response: Response) -> FeedsResponse:
    """The last run of each feed, the age of its content, the next run, and what became of its rows."""
    response.headers["Cache-Control"] = "no-store"
    now, statuses = live.feeds()
    return FeedsResponse(items=[FeedResponse.of(status, now) for status in statuses])


@router.get("/catalog/unmapped", summary="List instance types that the catalog lacks")
def get_unmapped(query: Annotated[UnmappedRequest, Query()], live: Live, response: Response) -> UnmappedTypesResponse:
    """Instance types in feeds that the catalog lacks. Their prices are stored, and count once the catalog has them."""
    response.headers["Cache-Control"] = "no-store"
    types = live.unmapped()
    return UnmappedTypesResponse(items=list(types[: query.limit]), total=len(types))
