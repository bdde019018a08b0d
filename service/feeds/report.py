"""Renders imports and the state of feeds as text for a terminal."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from tabulate import tabulate

from service.db.feeds.decide_held import HeldPrice
from service.db.feeds.documents import name_of_part
from service.db.feeds.read_feeds import FeedStatus, UnmappedType
from service.domain.catalog.resolution import Feed
from service.domain.money import MICRO
from service.feeds.importing import Imported
from service.feeds.listing import REASONS

ROWS_SHOWN = 200


def import_lines(imported: Imported, *, rows: bool) -> Iterator[str]:
    """Yields a line about an import, and a line about each row if `rows` or if there are few."""
    name = name_of_part(imported.feed, imported.part)
    if imported.problem:
        yield f"{name}: {imported.state}. {imported.problem}"
        return
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in imported.counts.most_common())
    yield f"{name}: {imported.state}. {counts or 'no prices'}"
    if rows or len(imported.outcomes) <= ROWS_SHOWN:
        for listing, outcome in imported.outcomes:
            place = "/".join(part for part in (listing.region, listing.zone) if part)
            what = " ".join(part for part in (listing.market, listing.term) if part)
            price = "-" if listing.per_hour is None else f"{listing.per_hour.normalize():f} {listing.currency}"
            yield f"  {listing.provider}/{listing.name or '?'} {place or '-'} {what} {price}: {_sentence(outcome)}"


def _sentence(outcome: str) -> str:
    if outcome == "unmapped":
        return "kept until the instance type is known"
    return f"set aside, {outcome}: {REASONS[outcome].sentence}" if outcome in REASONS else outcome


def feeds_table(statuses: Sequence[FeedStatus], now: datetime, why_off: Callable[[Feed], str | None]) -> str:
    """Returns a table of the feeds with their health."""
    rows = [
        (
            status.feed.id,
            why_off(status.feed) or status.health(now),
            _day(status.last_run_at),
            _day(status.captured_at),
            status.kept,
            status.held,
            sum(status.set_aside.values()),
            status.unmapped,
        )
        for status in statuses
    ]
    header = ("feed", "state", "last run", "content of", "kept", "held", "set aside", "unmapped")
    return str(tabulate(rows, header, tablefmt="plain"))


def held_table(prices: Sequence[HeldPrice]) -> str:
    """Returns a table of the prices that wait for a confirmation."""
    rows = [
        (
            price.feed,
            f"{price.provider}/{price.name}",
            price.region or "-",
            price.term or price.market,
            _dollars(price.in_force_micros),
            _dollars(price.per_hour_micros),
            price.currency,
            _day(price.observed_at),
        )
        for price in prices
    ]
    header = ("feed", "instance type", "region", "market", "in force", "held", "currency", "shown on")
    return str(tabulate(rows, header, tablefmt="plain", disable_numparse=True))


def _dollars(micros: int | None) -> str:
    return "-" if micros is None else f"{micros / MICRO:g}"


def _day(moment: datetime | None) -> str:
    return "-" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def unmapped_table(types: Sequence[UnmappedType]) -> str:
    """Returns a table of the instance types that the catalog lacks."""
    rows = [(f"{type_.provider}/{type_.name}", type_.prices, ", ".join(type_.feeds), type_.gpu_name) for type_ in types]
    return str(tabulate(rows, ("instance type", "prices", "feeds", "GPU"), tablefmt="plain"))
