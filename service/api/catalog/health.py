"""Operation of the service: whether it is alive and ready, and its metrics."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Literal

from anyio import move_on_after, to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from pydantic import Field

from service.api.http.current import CatalogStamp, Live, stamp
from service.api.http.fields import ResponseModel
from service.api.http.observe import metrics_registry
from service.db.errors import DatabaseUnusable
from service.db.feeds.read_feeds import FeedStatus

FEEDS_SECONDS = 1.0
"""How long reading the metrics of feeds may take. If the database is slower, the answer leaves them out."""


async def _forbid_caching(response: Response) -> None:
    response.headers["Cache-Control"] = "no-store"


router = APIRouter(tags=["operations"], dependencies=[Depends(_forbid_caching)])


class AliveResponse(ResponseModel):
    """The process is alive."""

    status: Literal["ok"]


class ReadyResponse(ResponseModel):
    """Whether the process takes requests, and which catalog it answers from.

    With `draining` and `database_file_lost`, the status code is 503, and a load balancer should send no more requests.
    `problem` says why the catalog can no longer be refreshed; null if it can. Until then the last good catalog answers.
    """

    status: Literal["ready", "draining", "database_file_lost"]
    catalog: CatalogStamp
    checked_at: datetime = Field(description="When the database was last read without an error.")
    problem: str | None


@router.get("/healthz", summary="Is the process alive")
async def get_healthz() -> AliveResponse:
    """Answers as long as the process runs; does not use the database."""
    return AliveResponse(status="ok")


@router.get("/readyz", summary="Is the catalog loaded")
async def get_readyz(live: Live, request: Request, response: Response) -> ReadyResponse:
    """The catalog in use, and the last check of the database. Without the database, the last good catalog answers."""
    health = live.health
    draining = getattr(request.state, "draining", False)
    response.status_code = 503 if draining or health.file_lost else 200
    return ReadyResponse(
        status="draining" if draining else "database_file_lost" if health.file_lost else "ready",
        catalog=stamp(live.on(None)),
        checked_at=health.checked_at,
        problem=health.problem,
    )


FEED_GAUGES: dict[str, tuple[str, Callable[[FeedStatus], int]]] = {
    "selector_feed_rows_kept": ("Rows of the last capture that became prices.", lambda status: status.kept),
    "selector_feed_rows_held": ("Rows that wait for a confirmation.", lambda status: status.held),
    "selector_feed_rows_set_aside": ("Rows that failed a check.", lambda status: sum(status.set_aside.values())),
    "selector_feed_rows_unmapped": ("Rows without an instance type.", lambda status: status.unmapped),
}


def _add_feeds(registry: CollectorRegistry, now: datetime, statuses: Iterable[FeedStatus]) -> None:
    """Adds gauges for the feeds that have been read."""
    read = [status for status in statuses if status.last_run_at is not None]
    healthy = Gauge("selector_feed_healthy", "1 while the last run was good.", ["feed"], registry=registry)
    age = Gauge("selector_feed_age_seconds", "Age of the last good content.", ["feed"], registry=registry)
    counts = {name: Gauge(name, meaning, ["feed"], registry=registry) for name, (meaning, _) in FEED_GAUGES.items()}
    for status in read:
        healthy.labels(status.feed.id).set(status.health(now) == "ok")
        if status.captured_at is not None:
            age.labels(status.feed.id).set((now - status.captured_at).total_seconds())
        for name, (_, count) in FEED_GAUGES.items():
            counts[name].labels(status.feed.id).set(count(status))


@router.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
async def get_metrics(live: Live) -> Response:
    """Catalog version and size, the age of its newest price, and whether the database answers."""
    registry = CollectorRegistry()
    catalog, health = live.on(None), live.health
    _, newest = catalog.observed_span
    gauges: dict[str, tuple[str, float]] = {
        "selector_catalog_version": ("Version of the catalog in use.", catalog.version),
        "selector_instance_types": ("Instance types in today's catalog.", len(catalog.instance_types)),
        "selector_offers": ("Offers in today's catalog.", len(catalog.offers)),
        "selector_database_reachable": ("1 while the last check of the database succeeded.", health.problem is None),
        "selector_catalog_checked_timestamp_seconds": (
            "When the database was last read.",
            health.checked_at.timestamp(),
        ),
    }
    if newest:
        age = (catalog.day - newest).days
        gauges["selector_newest_price_age_days"] = ("Days since the newest price was observed.", age)
    for name, (meaning, value) in gauges.items():
        Gauge(name, meaning, registry=registry).set(value)
    if health.problem is None:
        with suppress(DatabaseUnusable), move_on_after(FEEDS_SECONDS):
            _add_feeds(registry, *await to_thread.run_sync(live.feeds, abandon_on_cancel=True))
    metrics = generate_latest(metrics_registry()) + generate_latest(registry)
    return Response(metrics, media_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})
