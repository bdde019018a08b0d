"""Offers that an operator enters by hand: a CSV of prices, each with its day."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

from service.db.feeds.documents import Origin
from service.domain.catalog.offer import MARKETS
from service.domain.catalog.tariffs import commitment_in
from service.feeds.fetching import Get
from service.feeds.folder import FolderUnusable
from service.feeds.importing import Documents
from service.feeds.listing import Content, DocumentRefused, Listing, Specification, number_in, price_in, unreadable
from service.feeds.reading import Cells, table_of
from service.feeds.registry import FeedSource

NEEDED = ("provider", "name", "market", "per_hour", "observed_on")


def parse(bodies: Sequence[bytes], _part: str) -> Content:
    """Returns the offers of a file; `region`, `zone`, `term`, `currency`, `note` and hardware are optional columns."""
    return Content(listings=[_listing(cells) for body in bodies for cells in table_of(body, *NEEDED)])


def _listing(cells: Cells | None) -> Listing:
    if cells is None or cells["market"] not in MARKETS:
        return unreadable("")
    market = next(market for market in MARKETS if market == cells["market"])
    per_hour, reason = price_in(cells["per_hour"])
    term = cells.get("term") or None
    listing = Listing(
        provider=cells["provider"],
        name=cells["name"],
        market=market,
        per_hour=per_hour,
        region=cells.get("region") or None,
        zone=cells.get("zone") or None,
        term=term,
        currency=cells.get("currency") or "USD",
        note=cells.get("note") or None,
        reason=reason,
    )
    if (market == "reserved") != (commitment_in(term) is not None):
        listing = listing.because("row_unreadable")
    if not cells.get("vcpus"):
        return listing
    hardware = Specification(
        vcpus=number_in(cells["vcpus"]),
        memory_gib=number_in(cells.get("memory_gib")),
        gpu_name=cells.get("gpu") or None,
        gpu_count=number_in(cells.get("gpu_count") or "0"),
    )
    return replace(listing, hardware=hardware)


def _never(_get: Get, _part: str) -> Iterator[bytes]:
    raise DocumentRefused("Own offers are not fetched.")


OWN = FeedSource("own", ("",), _never, parse, (), in_pages=True)


def documents_by_day(path: Path, now: datetime) -> list[Documents]:
    """Returns the lines of a file as one document for each day, because all rows of a capture have the same instant.

    Raises `FolderUnusable` if the file cannot be read, or if a line has no day or one after that of `now`.
    """
    by_day: dict[date, list[list[str]]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            header, *lines = list(csv.reader(file)) or [[]]
        column = header.index("observed_on")
        for line in filter(None, lines):
            by_day.setdefault(_day_in(line[column]), []).append(line)
    except (OSError, UnicodeDecodeError, csv.Error, IndexError, ValueError) as error:
        raise FolderUnusable(f"{path} is not a CSV in which every line has a day in observed_on: {error}.") from None
    if by_day and max(by_day) > now.date():
        raise FolderUnusable(f"{path} has prices of {max(by_day)}, which is after today ({now.date()} in UTC).")
    documents = []
    for day in sorted(by_day):
        text = io.StringIO()
        csv.writer(text).writerows([header, *by_day[day]])
        # With the time of day, a second file for the same day counts as later than the first.
        origin = Origin(url=path.name, fetched_at=datetime.combine(day, now.timetz()))
        documents.append(Documents(part="", origin=origin, bodies=[text.getvalue().encode()], complete=False))
    return documents


def _day_in(text: str) -> date:
    """Returns the day in a cell. Raises `ValueError` unless it is written as YYYY-MM-DD."""
    day = date.fromisoformat(text)  # reads other forms of ISO 8601 too, such as 20261101
    if day.isoformat() != text:
        raise ValueError(f"{text!r} is not written as YYYY-MM-DD")
    return day
