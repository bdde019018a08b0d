"""The catalog of a request, which is taken once and stays the same until the answer is sent."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Protocol

from fastapi import Depends, Request

from service.api.http.fields import Described
from service.db.live_catalog import LiveCatalog, PinnedCatalog
from service.domain.catalog.catalog import Catalog
from service.domain.errors import QuestionError
from service.domain.keys import ApiKey

EARLIEST = date(2006, 1, 1)
"""The first day that has a catalog: Amazon EC2, the first provider, opened in 2006."""


@dataclass(slots=True)
class CatalogStamp(Described):
    """The catalog that an answer rests on. The same request with the same stamp gets the same answer."""

    version: int
    """Raised by every change of the catalog."""
    as_of: date
    """The day whose catalog answered."""
    known_at: date | None
    """The day after which imports do not count; null: every import counts."""
    prices_oldest: date | None
    """The earliest day on which a price in force was observed; null: no dated price."""
    prices_newest: date | None
    """The latest day on which a price in force was observed; null: no dated price."""


def stamp(catalog: Catalog) -> CatalogStamp:
    """Returns the stamp of this catalog."""
    oldest, newest = catalog.observed_span
    return CatalogStamp(
        version=catalog.version,
        as_of=catalog.day,
        known_at=catalog.known_at,
        prices_oldest=oldest,
        prices_newest=newest,
    )


def caller_of(request: Request) -> ApiKey | None:
    """Returns the valid key with which the request was sent; None without one."""
    caller: ApiKey | None = request.scope["state"]["caller"]
    return caller


def visible_to_caller(request: Request) -> PinnedCatalog:
    """Returns the catalogs that the caller sees. Frequent endpoints call it without the cost of a dependency."""
    live: LiveCatalog = request.app.state.live_catalog
    caller = caller_of(request)
    return live.visible_to(None if caller is None else caller.owner)


async def _live_catalog(request: Request) -> LiveCatalog:
    live: LiveCatalog = request.app.state.live_catalog
    return live


async def _pinned_catalog(request: Request) -> PinnedCatalog:
    return visible_to_caller(request)


Live = Annotated[LiveCatalog, Depends(_live_catalog)]
"""The catalog that follows the database, for the operation of the service and for writing."""

Pinned = Annotated[PinnedCatalog, Depends(_pinned_catalog)]
"""The catalogs of the current version as the caller sees them. They do not change until the answer is sent."""


class DayQuery(Protocol):
    """The days that a question names: whose catalog answers, and up to when imports count."""

    @property
    def as_of(self) -> date | None:
        """Returns the day whose catalog answers; None for the newest."""

    @property
    def known_at(self) -> date | None:
        """Returns the day up to whose end imports count; None for today."""


def known_on(live: PinnedCatalog, day: date | None) -> PinnedCatalog:
    """Returns the catalogs as they were known at the end of a day, by default today.

    Raises `QuestionError` for a day in the future, or before the first import.
    """
    if day is None or day == live.today:
        return live
    if day > live.today:
        raise QuestionError(f"{day} lies in the future; today is {live.today}.", field="known_at")
    return live.known_on(day)


def catalog_on(live: PinnedCatalog, query: DayQuery) -> Catalog:
    """Returns the catalog of `as_of`, by default of `known_at`, by default of today.

    Raises `QuestionError` if `as_of` is after `known_at` or before `EARLIEST`.
    """
    live, day = known_on(live, query.known_at), query.as_of
    newest = live.on(None)
    if day is not None and day > newest.day:
        reason = "lies after known_at" if query.known_at else "lies in the future"
        raise QuestionError(f"{day} {reason}; the newest catalog is that of {newest.day}.", field="as_of")
    if day is not None and day < EARLIEST:
        raise QuestionError(f"The catalog begins in {EARLIEST.year}.", field="as_of")
    return newest if day is None else live.on(day)
