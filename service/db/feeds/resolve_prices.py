"""Computes offers and their prices from observations, for the offers that an import touched, in its transaction."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, and_, bindparam, case, delete, func, insert, or_, select, update

from service.db.feeds.documents import of_part
from service.db.tables import DOCUMENT, FEED, INSTANCE_TYPE, OBSERVATION, OFFER, PRICE
from service.domain.catalog.offer import OFFER_FIELDS
from service.domain.catalog.resolution import Feed, Interval, Observed, Parts, Resolved, resolve

V = TypeVar("V")

KEYS_AT_ONCE = 2000
"""Most keys in one statement: SQLite allows some thousands of parameters."""

OFFERED = [OBSERVATION.c[name] for name in ("key", "provider", "name", *OFFER_FIELDS)]
OBSERVED = [
    (OBSERVATION if field.name in OBSERVATION.c else DOCUMENT).c[field.name]
    for field in fields(Observed)
    if field.name != "decision"
]
"""Columns of an observation in the order of the fields of `Observed`, apart from the last one."""


def read_feeds(connection: Connection) -> dict[str, Feed]:
    """Returns the feeds of the catalog by id."""
    rows = connection.execute(select(FEED).order_by(FEED.c.id)).mappings()
    return {row["id"]: Feed(**row) for row in rows}


def resolve_prices(
    connection: Connection, keys: Collection[str] | None, now: datetime, known_at: datetime | None = None
) -> None:
    """Replaces the prices of these offers, or of all offers, by those that follow from the observations of all feeds.

    With `known_at`, only observations count that were recorded by then, and no observation is marked as held.
    """
    feeds, captures = read_feeds(connection), captures_known_at(connection, known_at)
    type_rows = connection.execute(select(INSTANCE_TYPE.c.provider, INSTANCE_TYPE.c.name, INSTANCE_TYPE.c.id))
    types = {(provider, name): id_ for provider, name, id_ in type_rows}
    for chunk in [None] if keys is None else in_chunks(sorted(keys)):
        offers, prices, held = [], {}, set[int]()
        for row, resolved in resolved_offers(connection, chunk, feeds, captures, known_at):
            held |= resolved.held
            type_id = types.get((row.provider, row.name))
            if type_id is not None and resolved.intervals:
                columns = {name: getattr(row, name) for name in OFFER_FIELDS}
                offers.append({"key": row.key, "instance_type_id": type_id, **columns})
                prices[row.key] = [price_record(interval, now) for interval in resolved.intervals]
        _write_offers(connection, chunk, offers, prices)
        if known_at is None:
            _mark_held(connection, chunk, held)


def renew_prices(connection: Connection, feed: str, part: str, at: datetime, now: datetime) -> set[str]:
    """Sets the day of prices to that of the newest capture of a part, where only this part shows them.

    Such a capture repeats the prices that it does not change. Returns the keys of all other offers of the part, whose
    prices have to be resolved: another feed shows them too, or one of their rows does not count.
    """
    documents = select(DOCUMENT.c.id).where(*of_part(DOCUMENT, feed, part))
    is_of_part = OBSERVATION.c.document_id.in_(documents)
    in_part = func.max(case((is_of_part, 1), else_=0))
    only_kept_in_part = func.min(case((and_(is_of_part, OBSERVATION.c.state == "kept"), 1), else_=0))
    keys = select(OBSERVATION.c.key).where(OBSERVATION.c.superseded_at.is_(None)).group_by(OBSERVATION.c.key)
    offers = select(OFFER.c.id).where(OFFER.c.key.in_(keys.having(only_kept_in_part == 1)))
    in_force = and_(PRICE.c.valid_from <= at, or_(PRICE.c.valid_to.is_(None), PRICE.c.valid_to > at))
    dated = update(PRICE).where(PRICE.c.offer_id.in_(offers), in_force, PRICE.c.dated != "unknown")
    connection.execute(dated.values(observed_on=at.date(), recorded_at=now))
    return set(connection.execute(keys.having(in_part == 1, only_kept_in_part == 0)).scalars())


def captures_known_at(connection: Connection, known_at: datetime | None) -> Parts:
    """Returns the instants of the complete captures of each part of each feed that were recorded by `known_at`."""
    table = DOCUMENT.c
    query = select(table.feed, table.part, table.fetched_at).where(table.complete).order_by(table.fetched_at)
    captures: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for feed, part, fetched_at in connection.execute(_known(query, table.recorded_at, None, known_at)):
        captures[feed, part].append(fetched_at)
    return captures


def resolved_offers(
    connection: Connection,
    keys: Sequence[str] | None,
    feeds: Mapping[str, Feed],
    captures: Parts,
    known_at: datetime | None = None,
) -> Iterator[tuple[Row[Any], Resolved]]:
    """Yields a row for each offer with its price over time, as they were known at `known_at`, by default now."""
    table = OBSERVATION.c
    decision = table.decision if known_at is None else case((table.decided_at <= known_at, table.decision))
    query = select(*OFFERED, *OBSERVED, decision).join(DOCUMENT)
    if keys is not None:
        query = query.where(table.key.in_(keys))
    by_key: dict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_known(query, table.recorded_at, table.superseded_at, known_at)).all():
        by_key[row[0]].append(row)
    for _, rows in sorted(by_key.items()):
        observations = [Observed(*row[len(OFFERED) :]) for row in rows]
        yield rows[0], resolve(rows[0].market, observations, captures, feeds)


def _known(query: Any, recorded: Any, superseded: Any, known_at: datetime | None) -> Any:
    if known_at is None:
        return query if superseded is None else query.where(superseded.is_(None))
    query = query.where(recorded <= known_at)
    return query if superseded is None else query.where(or_(superseded.is_(None), superseded > known_at))


def price_record(interval: Interval, now: datetime) -> dict[str, Any]:
    """Returns an interval as a row of the table `price`, without the id of its offer."""
    observed = interval.observed
    last = min(interval.confirmed_at, interval.valid_to or interval.confirmed_at)
    return {
        "valid_from": interval.valid_from,
        "valid_to": interval.valid_to,
        "recorded_at": now,
        "observed_on": None if observed.dated == "unknown" else max(last, interval.valid_from).date(),
        **{name: getattr(observed, name) for name in ("per_hour_micros", "dated", "kind", "source", "note")},
    }


def _write_offers(
    connection: Connection,
    keys: Sequence[str] | None,
    offers: Sequence[dict[str, Any]],
    prices: Mapping[str, Sequence[dict[str, Any]]],
) -> None:
    """Replaces the prices of these offers, and keeps the ids of offers that stay."""
    among = OFFER.c.key.in_(keys) if keys is not None else OFFER.c.key.is_not(None)
    id_of = {row.key: row.id for row in connection.execute(select(OFFER.c.key, OFFER.c.id).where(among))}
    keys_now = {offer["key"] for offer in offers}
    if gone := [id_ for key, id_ in id_of.items() if key not in keys_now]:
        connection.execute(delete(OFFER).where(OFFER.c.id == bindparam("gone")), [{"gone": id_} for id_ in gone])
    if id_of:
        connection.execute(delete(PRICE).where(PRICE.c.offer_id.in_(select(OFFER.c.id).where(among))))
    if new := [offer for offer in offers if offer["key"] not in id_of]:
        connection.execute(insert(OFFER), new)
        id_of = {row.key: row.id for row in connection.execute(select(OFFER.c.key, OFFER.c.id).where(among))}
    rows = [{**price, "offer_id": id_of[key]} for key, chain in prices.items() for price in chain]
    if rows:
        connection.execute(insert(PRICE), rows)


def _mark_held(connection: Connection, keys: Sequence[str] | None, held: Collection[int]) -> None:
    """Updates the `state` of observations, because a later observation can confirm one that was held."""
    table = OBSERVATION.c
    query = select(table.id).where(table.state == "held")
    before = set(connection.execute(query if keys is None else query.where(table.key.in_(keys))).scalars())
    for state, ids in (("held", set(held) - before), ("kept", before - set(held))):
        for chunk in in_chunks(sorted(ids)):
            connection.execute(update(OBSERVATION).where(table.id.in_(chunk)).values(state=state))


def in_chunks(values: Sequence[V], most: int = KEYS_AT_ONCE) -> Iterator[Sequence[V]]:
    """Yields values in chunks of at most a number of them; by default, as many keys or ids as one statement takes."""
    return (values[first : first + most] for first in range(0, len(values), most))
