"""Imports one part of a feed: parses its documents, checks the rows, and stores the capture."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, time
from functools import cached_property
from typing import Any

from service.db.engine import Engine
from service.db.feeds.documents import (
    Origin,
    free_instant,
    instant_of,
    last_document,
    last_published_by,
    name_of_part,
)
from service.db.feeds.read_facts import CatalogFacts, read_facts
from service.db.feeds.read_feeds import rows_of_last_capture
from service.db.feeds.write_capture import Capture, CaptureRefused, write_capture
from service.db.write_catalog import record_failure
from service.domain.catalog.offer import OFFER_FIELDS, offer_key
from service.domain.catalog.resolution import Feed
from service.domain.money import MICRO, NANO, USD
from service.feeds.checks import checked, require_plausible
from service.feeds.listing import REASONS, Content, DocumentRefused, EuroRate, Listing
from service.feeds.new_types import new_rows, stated_hardware
from service.feeds.registry import FeedSource


@dataclass(frozen=True, kw_only=True)
class Documents:
    """The documents of one part of a feed as they were fetched, or found in a folder."""

    part: str
    origin: Origin
    """The origin of the last of the documents, which counts for all of them."""
    bodies: Sequence[bytes]
    complete: bool = True
    shown_when_fetched: bool = False
    """Whether the feed showed them at the time in `origin`, which is not known of files without a manifest."""

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of all documents."""
        return hashlib.sha256(b"\0".join(self.bodies)).hexdigest()


@dataclass(frozen=True, slots=True)
class Imported:
    """The state in which an import ended, and the outcome of each row of the documents."""

    feed: str
    part: str
    state: str
    problem: str | None
    outcomes: tuple[tuple[Listing, str], ...] = ()

    @property
    def counts(self) -> Counter[str]:
        """Returns the number of rows for each outcome."""
        return Counter(outcome for _, outcome in self.outcomes)


def import_documents(engine: Engine, source: FeedSource, documents: Documents, now: datetime) -> Imported:
    """Imports the documents of a part; records a refused one and changes nothing else. Raises `DatabaseUnusable`."""
    facts = read_facts(engine)
    try:
        content = source.content(documents.bodies, documents.part)
        listings = checked(source.id, content.listings, facts)
        rows_before = rows_of_last_capture(engine, source.id, documents.part) if documents.complete else None
        require_plausible(listings, rows_before)
        at = _captured_at(engine, source, documents, content.published_at, now)
        capture = _capture(source, facts.feeds[source.id], documents, content, listings, facts, at)
        written = write_capture(engine, capture, now)
    except (DocumentRefused, CaptureRefused) as error:
        part, problem = documents.part, f"{name_of_part(source.id, documents.part)}: {error}"
        record_failure(engine, source.id, now, "refused", problem, part)
        return Imported(source.id, part, "refused", str(error))
    types = facts.instance_types.keys() | {(row["provider"], row["name"]) for row in capture.new["instance_type"]}
    outcomes = tuple((listing, _outcome(listing, types)) for listing in listings)
    return Imported(source.id, documents.part, written.state, None, outcomes)


def _captured_at(
    engine: Engine, source: FeedSource, documents: Documents, published: datetime | None, now: datetime
) -> datetime:
    """Returns when the content was published, else fetched, and after all that the part published before.

    Content that the feed still shows is captured again, and a file that is imported again is not. Raises
    `DocumentRefused` for content from the future.
    """
    fetched = documents.origin.fetched_at.replace(microsecond=0)
    if published is None:
        return fetched
    last = last_document(engine, source.id, documents.part)
    if last is not None and last.sha256 == documents.sha256 and documents.shown_when_fetched:
        return fetched
    known = instant_of(engine, source.id, documents.part, documents.sha256, published)
    if known is not None and not documents.shown_when_fetched:
        return known
    if published > now:
        raise DocumentRefused(f"The document is of {published:%Y-%m-%d %H:%M}, which is in the future.")
    is_day = published.time() == time.min
    # The last minute of a day has room for several documents, which follow each other by a second.
    at = min(fetched, published.replace(hour=23, minute=59) if is_day else published.replace(microsecond=0))
    # A server may have shown the former document until after this one was published.
    former = last_published_by(engine, source.id, documents.part, published, fetched, other_than=documents.sha256)
    return free_instant(former, at)


def _outcome(listing: Listing, types: Any) -> str:
    if listing.reason:
        return listing.reason
    return "kept" if (listing.provider, listing.name) in types else "unmapped"


def _capture(
    source: FeedSource,
    feed: Feed,
    documents: Documents,
    content: Content,
    listings: Sequence[Listing],
    facts: CatalogFacts,
    at: datetime,
) -> Capture:
    """Returns the checked listings as rows of a capture. Rows about other products are counted but not stored."""
    reasons = Counter(listing.reason for listing in listings if listing.reason)
    hardware = stated_hardware(listings, facts)
    new = new_rows(source.id, hardware, facts, feed.source, at.date())
    entered = {(row["provider"], row["name"]) for row in new["instance_type"]}
    return Capture(
        feed=source.id,
        part=documents.part,
        **asdict(replace(documents.origin, fetched_at=at)),
        sha256=documents.sha256,
        bytes=sum(map(len, documents.bodies)),
        parser=source.version,
        rows=[
            _row(listing, feed) for listing in listings if listing.reason is None or REASONS[listing.reason].is_error
        ],
        complete=documents.complete,
        upstream_version=content.version,
        published_at=content.published_at,
        new={
            **new,
            "region": _new_regions(listings, facts, entered, feed),
            "exchange_rate": _dollar_rates(content.rates, feed.source),
        },
        specifications=[
            {"provider": provider, "name": name, **asdict(stated)}
            for (provider, name), stated in hardware.items()
            if (provider, name) not in entered
        ],
        rows_seen=len(listings),
        filtered={reason: count for reason, count in reasons.items() if not REASONS[reason].is_error},
        quarantined={reason: count for reason, count in reasons.items() if REASONS[reason].is_error},
    )


def _row(listing: Listing, feed: Feed) -> dict[str, Any]:
    per_hour = listing.per_hour
    return {
        "key": offer_key(listing),
        **{name: getattr(listing, name) for name in ("provider", "name", *OFFER_FIELDS)},
        **{name: getattr(listing, name) for name in ("effective_from", "ends_at", "dated", "note", "reason")},
        "per_hour_micros": None if per_hour is None else int((per_hour * MICRO).to_integral_value()),
        "kind": "entered" if feed.id == "own" else "api",
        "source": feed.source,
        "state": "set_aside" if listing.reason else "kept",
    }


def _new_regions(
    listings: Sequence[Listing], facts: CatalogFacts, entered: set[tuple[str, str]], feed: Feed
) -> list[dict[str, Any]]:
    """Returns rows for regions of offers that the catalog lacks; their country stays unknown until it is entered."""
    types = facts.instance_types.keys() | entered
    names = {
        (listing.provider, listing.region)
        for listing in listings
        if listing.reason is None and listing.region and (listing.provider, listing.name) in types
    }
    empty: Mapping[str, None] = dict.fromkeys(("name", "country", "continent"))
    return [
        {"provider": provider, "id": region, **empty, "source": feed.source}
        for provider, region in sorted(names)
        if region not in facts.region_ids.get(provider, {})
    ]


def _dollar_rates(rates: Sequence[EuroRate], source: str) -> list[dict[str, Any]]:
    """Returns the value of each currency in dollars, converted through the euro."""
    dollars = {rate.on: rate.per_euro for rate in rates if rate.currency == USD}
    per_unit = [("EUR", on, dollar) for on, dollar in dollars.items()]
    per_unit += [
        (rate.currency, rate.on, dollars[rate.on] / rate.per_euro)
        for rate in rates
        if rate.currency != USD and rate.on in dollars
    ]
    return [
        {"currency": currency, "on": on, "usd_per_unit_nanos": int(usd * NANO), "source": source}
        for currency, on, usd in per_unit
    ]
