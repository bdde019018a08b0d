"""Lists the prices that wait for a confirmation, and releases or refuses those of a feed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Engine, and_, select, update

from service.db.errors import in_sentences
from service.db.feeds.resolve_prices import in_chunks, resolve_prices
from service.db.import_lock import finish_import, import_transaction
from service.db.tables import DOCUMENT, OBSERVATION, OFFER, PRICE
from service.domain.catalog.resolution import Decision


@dataclass(frozen=True, slots=True)
class HeldPrice:
    """A price that does not count yet, and the price in force instead; both in micro-units per hour."""

    id: int
    key: str
    feed: str
    provider: str
    name: str
    region: str | None
    market: str
    term: str | None
    currency: str
    observed_at: datetime
    per_hour_micros: int
    in_force_micros: int | None


def is_waiting() -> ColumnElement[bool]:
    """Returns the condition for observations that are held and about which no operator has decided."""
    return and_(OBSERVATION.c.state == "held", OBSERVATION.c.decision.is_(None))


def held_prices(engine: Engine) -> list[HeldPrice]:
    """Returns all prices that wait for a confirmation, by feed and offer. Raises `DatabaseUnusable`."""
    with in_sentences(engine), engine.connect() as connection:
        return _waiting(connection)


def decide_held(engine: Engine, feed: str, decision: Decision, now: datetime) -> Sequence[HeldPrice]:
    """Releases or refuses every waiting price of a feed, and returns these prices. Raises `DatabaseUnusable`.

    A released price counts from the capture that showed it. A refused price does not count, however often the feed
    repeats it, until the feed shows another price.
    """
    with import_transaction(engine) as connection:
        decided = [price for price in _waiting(connection) if price.feed == feed]
        for ids in in_chunks([price.id for price in decided]):
            values = {"decision": decision, "decided_at": now}
            connection.execute(update(OBSERVATION).where(OBSERVATION.c.id.in_(ids)).values(values))
        resolve_prices(connection, {price.key for price in decided}, now)
        finish_import(connection, changed=bool(decided))
    return decided


def _waiting(connection: Connection) -> list[HeldPrice]:
    row = OBSERVATION.c
    names = [row[name] for name in ("id", "key", "provider", "name", "region", "market", "term", "currency")]
    shown = select(*names, row.observed_at, row.per_hour_micros, DOCUMENT.c.feed)
    shown = shown.add_columns(PRICE.c.per_hour_micros.label("in_force_micros")).join(DOCUMENT)
    in_force = and_(PRICE.c.offer_id == OFFER.c.id, PRICE.c.valid_to.is_(None))
    query = shown.outerjoin(OFFER, OFFER.c.key == row.key).outerjoin(PRICE, in_force)
    rows = connection.execute(query.where(is_waiting()).order_by(DOCUMENT.c.feed, row.key, row.observed_at))
    return [HeldPrice(**held) for held in rows.mappings()]
