"""Captures of a made-up feed of AWS prices, for tests of what is stored and resolved."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, insert

from service.db.engine import connect
from service.db.feeds.read_feeds import FeedStatus, feed_statuses
from service.db.feeds.write_capture import Capture
from service.db.tables import FEED
from service.db.write_catalog import Record, write
from tests.builders.rows import batch
from tests.builders.sources import SOURCE


def day(number: int, hour: int = 0) -> datetime:
    """A day of October 2026."""
    return datetime(2026, 10, number, hour, tzinfo=UTC)


def feed_row(id: str, rank: int = 3, **given: Any) -> Record:  # noqa: A002 - the column is called id
    plain: Record = {
        "id": id,
        "title": id,
        "rank": rank,
        "every_hours": 24.0,
        "stale_after_days": None,
        "stock_only": False,
        "url": None,
        "setting": None,
        "source": SOURCE,
        "note": None,
    }
    return {**plain, **given}


def add_feeds(connection: Connection, *rows: Record) -> None:
    connection.execute(insert(FEED), list(rows))


def with_feeds(url: str, *rows: Record, written_at: datetime | None = None) -> Engine:
    """An engine of a database without offers, written on 1 October 2026 by default, and with these feeds."""
    engine = connect(url)
    write(engine, batch(offers=()), written_at or day(1))
    with engine.begin() as connection:
        add_feeds(connection, *rows)
    return engine


def only_status(engine: Engine) -> FeedStatus:
    """The status of the one feed of a database."""
    (only,) = feed_statuses(engine)
    return only


def observed_row(name: str, micros: int | None, **given: Any) -> Record:
    """A checked row of a capture: an on-demand price of an AWS type in us-east-1."""
    market = given.get("market", "on_demand")
    plain: Record = {
        "key": f"{name} us-east-1 {market}",
        "provider": "aws",
        "name": name,
        "region": "us-east-1",
        "zone": None,
        "market": market,
        "term": None,
        "operating_system": "linux",
        "currency": "USD",
        "per_hour_micros": micros,
        "effective_from": None,
        "ends_at": None,
        "dated": "day",
        "kind": "api",
        "source": SOURCE,
        "state": "kept",
        "reason": None,
        "note": None,
    }
    return {**plain, **given}


def capture(at: datetime, prices: Mapping[str, int], feed: str = "one", **given: Any) -> Capture:
    """Prices of the feed at an instant: microdollars by name of instance type."""
    rows = given.pop("rows", None) or [observed_row(name, micros) for name, micros in prices.items()]
    plain: dict[str, Any] = {
        "feed": feed,
        "part": "",
        "url": "https://feed.example",
        "fetched_at": at,
        "sha256": f"{sorted(prices.items())}",
        "bytes": 100,
        "parser": "1",
        "rows": rows,
        "rows_seen": len(rows),
    }
    return Capture(**{**plain, **given})
