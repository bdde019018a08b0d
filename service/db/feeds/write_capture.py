"""Stores a capture of a feed: the rows that differ from the capture before, and the prices that follow from them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, time, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    RowMapping,
    and_,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from service.db.feeds.decide_held import is_waiting
from service.db.feeds.documents import name_of_part, of_part
from service.db.feeds.resolve_prices import in_chunks, renew_prices, resolve_prices
from service.db.import_lock import finish_import, import_transaction
from service.db.schema import key_columns
from service.db.tables import DOCUMENT, IMPORT_RUN, INSTANCE_TYPE, METADATA, OBSERVATION, SPECIFICATION
from service.db.write_catalog import Record, Written

MIN_COMPARED = 20
MAX_SHARE_CHANGED = 0.3
"""If a larger share of on-demand prices changes in one capture, the feed may be wrong: the capture is `questioned`."""

ROWS_AT_ONCE = 5000

VALUE = ("state", "reason", "per_hour_micros", "ends_at", "dated", "note")
"""Columns in which two captures of the same price can differ."""

COMPARED: tuple[ColumnElement[Any], ...] = (
    *(OBSERVATION.c[name] for name in ("id", "key", "effective_from", "observed_at", *VALUE) if name != "state"),
    # For a comparison of captures, a held row is a row that the feed showed.
    case((OBSERVATION.c.state == "held", "kept"), else_=OBSERVATION.c.state).label("state"),
)

Chain = dict[datetime | None, Record]
"""The rows of one offer in a capture, by the instants from which they hold."""

OF_ONE_ROW = ("id", "decision", "decided_at")
"""Columns that are not copied when a new row is made from a stored one."""

StoredChain = dict[datetime | None, RowMapping]
"""The rows of one offer in a stored capture, with the columns of `COMPARED`."""


class CaptureRefused(Exception):
    """A capture contradicts one that is stored; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """A part of a feed as it was at one instant, checked. Each row is an observation, with its state and reason."""

    feed: str
    part: str
    url: str
    fetched_at: datetime
    sha256: str
    bytes: int
    parser: str
    rows: Sequence[Record]
    complete: bool = True
    etag: str | None = None
    last_modified: str | None = None
    upstream_version: str | None = None
    published_at: datetime | None = None
    new: Mapping[str, Sequence[Record]] = field(default_factory=dict)
    """Rows of other tables that the feed adds, such as instance types, regions and exchange rates."""
    specifications: Sequence[Record] = ()
    rows_seen: int = 0
    filtered: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)


DOCUMENT_COLUMNS = tuple(column.name for column in fields(Capture) if column.name in DOCUMENT.c)


def write_capture(engine: Engine, capture: Capture, now: datetime) -> Written:
    """Stores a capture and the prices that follow from it in one transaction; the same capture again changes nothing.

    Captures may come in any order. Raises `CaptureRefused` or `DatabaseUnusable`; the database is then unchanged.
    """
    with import_transaction(engine) as connection:
        changed = _is_new(connection, capture) and _store(connection, capture, now)
        state = "done" if changed else "unchanged"
        _record_run(connection, capture, state, now)
        version = finish_import(connection, changed=changed)
    return Written(state, version)


def confirm_capture(engine: Engine, feed: str, part: str, now: datetime) -> Written:
    """Records that a part has not changed since its last capture, so that its prices count as observed now.

    Raises `DatabaseUnusable`; the database is then unchanged.
    """
    with import_transaction(engine) as connection:
        query = select(DOCUMENT).where(*of_part(DOCUMENT, feed, part)).order_by(DOCUMENT.c.fetched_at.desc()).limit(1)
        last = connection.execute(query).mappings().one()
        columns = {name: value for name, value in last.items() if name != "id"}
        document = {**columns, "fetched_at": now, "recorded_at": now, "complete": True, "questioned": False}
        (document_id,) = connection.execute(insert(DOCUMENT).values(document).returning(DOCUMENT.c.id)).one()
        renewed = not _confirmed_that_day(connection, feed, part, now, document_id)
        if renewed:
            resolve_prices(connection, renew_prices(connection, feed, part, now, now), now)
        run = {"feed": feed, "part": part, "content_hash": last["sha256"], "started_at": now, "finished_at": now}
        run |= _counts_of_last_run(connection, feed, part) | {"state": "unchanged"}
        connection.execute(insert(IMPORT_RUN).values(run))
        version = finish_import(connection, changed=renewed)
    return Written("unchanged", version)


def _counts_of_last_run(connection: Connection, feed: str, part: str) -> Record:
    names = ("rows_seen", "rows_kept", "rows_unmapped", "quarantined", "filtered")
    query = select(*(IMPORT_RUN.c[name] for name in names)).where(
        *of_part(IMPORT_RUN, feed, part), IMPORT_RUN.c.state.in_(("done", "unchanged"))
    )
    row = connection.execute(query.order_by(IMPORT_RUN.c.id.desc()).limit(1)).mappings().one()
    return dict(row)


def _is_new(connection: Connection, capture: Capture) -> bool:
    of_capture = (*of_part(DOCUMENT, capture.feed, capture.part), DOCUMENT.c.fetched_at == capture.fetched_at)
    stored = select(DOCUMENT.c.sha256).where(*of_capture)
    sha256 = connection.execute(stored).scalar()
    if sha256 not in (None, capture.sha256):
        name, at = name_of_part(capture.feed, capture.part), capture.fetched_at.isoformat()
        raise CaptureRefused(f"{name} has another document of {at} already.")
    return sha256 is None


def _store(connection: Connection, capture: Capture, now: datetime) -> bool:
    """Adds the document and its changes. Returns whether any price may have changed."""
    added = _add_rows(connection, capture.new)
    _write_specifications(connection, capture)
    before, later = _state_around(connection, capture)
    after = _by_key(capture.rows)
    changes = _changes(before, after)
    # Only a complete document shows that an offer is gone.
    if capture.complete:
        changes += _absences(connection, [chain for key, chain in before.items() if key not in after])
    document = {name: getattr(capture, name) for name in DOCUMENT_COLUMNS}
    document |= {"recorded_at": now, "questioned": _many_changed(before, after)}
    (document_id,) = connection.execute(insert(DOCUMENT).values(document).returning(DOCUMENT.c.id)).one()
    _insert_rows(connection, changes, document_id, capture.fetched_at, now)
    # A capture that arrives late must not change prices from the next capture on.
    restored = [] if later is None else _restored(changes, before, later)
    if later is not None:
        _insert_rows(connection, restored, later.document_id, later.fetched_at, now)
    if (
        not (changes or restored)
        and not added
        and _confirmed_that_day(connection, capture.feed, capture.part, capture.fetched_at, document_id)
    ):
        return False
    touched = {row["key"] for row in (*changes, *restored)} | _keys_of(connection, capture.new)
    if later is None and capture.complete:
        touched |= renew_prices(connection, capture.feed, capture.part, capture.fetched_at, now)
    else:
        touched |= set(before) | set(after)
    resolve_prices(connection, touched, now)
    return True


def _insert_rows(connection: Connection, rows: Sequence[Record], document: int, at: datetime, now: datetime) -> None:
    # Each statement copies its rows, so one statement would double the memory of a large capture.
    common = {"document_id": document, "observed_at": at, "recorded_at": now, "superseded_at": None}
    for chunk in in_chunks(rows, ROWS_AT_ONCE):
        connection.execute(insert(OBSERVATION), [{**row, **common} for row in chunk])


def _by_key(rows: Iterable[Record]) -> dict[str, Chain]:
    """Returns the rows by key; of two rows for the same instant, a kept one replaces one that was set aside."""
    chains: dict[str, Chain] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row["state"] == "kept"):
        chains[row["key"]][row["effective_from"]] = row
    return dict(chains)


@dataclass(frozen=True, slots=True)
class _Later:
    """The next complete capture after one that arrives late, with the rows that are stored for it."""

    document_id: int
    fetched_at: datetime
    explicit: Mapping[str, StoredChain]


def _state_around(connection: Connection, capture: Capture) -> tuple[dict[str, StoredChain], _Later | None]:
    """Returns the prices of the part before the capture, and the next capture. An absent offer has an empty chain."""
    table = OBSERVATION.c
    documents = of_part(DOCUMENT, capture.feed, capture.part)
    rank = func.row_number().over(
        partition_by=(table.key, table.effective_from), order_by=(table.observed_at.desc(), table.id.desc())
    )
    ranked = select(*COMPARED, rank.label("rank")).join(DOCUMENT)
    last = ranked.where(*documents, table.observed_at < capture.fetched_at).subquery()
    rows = connection.execute(select(last).where(last.c.rank == 1)).mappings().all()
    absent_at = {row["key"]: row["observed_at"] for row in rows if row["state"] == "absent"}
    before: dict[str, StoredChain] = {key: {} for key in absent_at}
    for row in rows:
        if row["key"] not in absent_at or row["observed_at"] > absent_at[row["key"]]:
            before.setdefault(row["key"], {})[row["effective_from"]] = row
    following = select(DOCUMENT.c.id, DOCUMENT.c.fetched_at).where(
        *documents, DOCUMENT.c.complete, DOCUMENT.c.fetched_at > capture.fetched_at
    )
    next_document = connection.execute(following.order_by(DOCUMENT.c.fetched_at).limit(1)).first()
    if next_document is None:
        return before, None
    shown = select(*COMPARED).join(DOCUMENT).where(*documents, table.observed_at == next_document.fetched_at)
    explicit: dict[str, StoredChain] = defaultdict(dict)
    for shown_row in connection.execute(shown).mappings():
        explicit[shown_row["key"]][shown_row["effective_from"]] = shown_row
    return before, _Later(next_document.id, next_document.fetched_at, explicit)


def _changes(before: Mapping[str, StoredChain], after: Mapping[str, Chain]) -> list[Record]:
    changes = []
    for key, chain in after.items():
        former = before.get(key, {})
        for start, row in chain.items():
            if start not in former or any(former[start][name] != row[name] for name in VALUE):
                changes.append(row)
    return changes


def _absences(connection: Connection, chains: Iterable[StoredChain]) -> Iterator[Record]:
    """Yields a row for each offer that the capture lacks, made from the last row that showed the offer."""
    for ids in in_chunks([next(iter(chain.values()))["id"] for chain in chains if chain], ROWS_AT_ONCE):
        query = select(OBSERVATION).where(OBSERVATION.c.id.in_(ids))
        for row in connection.execute(query).mappings():
            yield _absence({name: value for name, value in row.items() if name not in OF_ONE_ROW})


def _absence(row: Record) -> Record:
    empty = dict.fromkeys(("per_hour_micros", "effective_from", "ends_at", "reason", "note"))
    return {**row, **empty, "state": "absent"}


def _restored(changes: Sequence[Record], before: Mapping[str, StoredChain], later: _Later) -> list[Record]:
    """Returns rows that the next capture left out as unchanged, and that it needs now that a capture precedes it."""
    restored: dict[tuple[str, datetime | None], Record] = {}
    for row in changes:
        key = row["key"]
        former, explicit = before.get(key, {}), later.explicit.get(key, {})
        if any(shown["state"] == "absent" for shown in explicit.values()):
            continue
        starts = former if row["state"] == "absent" else [row["effective_from"]]
        for start in starts:
            if start not in explicit and start in former:
                restored[key, start] = {**row, "effective_from": start, **{name: former[start][name] for name in VALUE}}
        if not former and not explicit:
            restored[key, None] = _absence(row)
    return list(restored.values())


def _many_changed(before: Mapping[str, StoredChain], after: Mapping[str, Chain]) -> bool:
    """Returns whether so many on-demand prices changed that each needs a second capture."""
    pairs = [
        (former["per_hour_micros"], row["per_hour_micros"])
        for key, chain in after.items()
        for start, row in chain.items()
        if row["market"] == "on_demand" and row["state"] == "kept"
        if (former := before.get(key, {}).get(start)) is not None and former["state"] == "kept"
    ]
    changed = sum(former != now for former, now in pairs)
    return len(pairs) >= MIN_COMPARED and changed > MAX_SHARE_CHANGED * len(pairs)


def _confirmed_that_day(connection: Connection, feed: str, part: str, at: datetime, document_id: int) -> bool:
    """Returns whether the part has another complete capture of that day, and no row that waits for a confirmation."""
    table = DOCUMENT.c
    documents = of_part(DOCUMENT, feed, part)
    midnight = datetime.combine(at.astimezone(UTC), time.min, UTC)
    that_day = (table.fetched_at >= midnight, table.fetched_at < midnight + timedelta(days=1))
    another = exists().where(*documents, *that_day, table.complete, table.id != document_id)
    waiting = select(OBSERVATION.c.id).join(DOCUMENT)
    waiting = waiting.where(*documents, or_(OBSERVATION.c.state == "absent", is_waiting()))
    confirmed: bool = connection.execute(select(and_(another, ~waiting.exists()))).scalar_one()
    return confirmed


def _add_rows(connection: Connection, new: Mapping[str, Sequence[Record]]) -> bool:
    """Inserts rows whose keys do not exist yet, and returns whether there were any."""
    added = False
    for table in METADATA.sorted_tables:
        keys = key_columns(table.name)
        wanted = {tuple(row[name] for name in keys): row for row in new.get(table.name, ())}
        if not wanted:
            continue
        existing = {tuple(row) for row in connection.execute(select(*(table.c[name] for name in keys)))}
        if rows := [row for key, row in wanted.items() if key not in existing]:
            connection.execute(insert(table), rows)
            added = True
    return added


def _keys_of(connection: Connection, new: Mapping[str, Sequence[Record]]) -> set[str]:
    """Returns the keys of the observations that waited for these new instance types."""
    keys: set[str] = set()
    for row in new.get(INSTANCE_TYPE.name, ()):
        of_type = (OBSERVATION.c.provider == row["provider"], OBSERVATION.c.name == row["name"])
        keys |= set(connection.execute(select(OBSERVATION.c.key).where(*of_type).distinct()).scalars())
    return keys


def _write_specifications(connection: Connection, capture: Capture) -> None:
    for row in capture.specifications:
        stated: dict[str, Any] = {**row, "feed": capture.feed, "observed_at": capture.fetched_at}
        keys = [SPECIFICATION.c[name] == stated[name] for name in key_columns(SPECIFICATION.name)]
        if not connection.execute(update(SPECIFICATION).where(*keys).values(stated)).rowcount:
            connection.execute(insert(SPECIFICATION).values(stated))


def _record_run(connection: Connection, capture: Capture, state: str, now: datetime) -> None:
    names = select(INSTANCE_TYPE.c.provider, INSTANCE_TYPE.c.name)
    types = {tuple(row) for row in connection.execute(names)}
    kept = [row for row in capture.rows if row["state"] == "kept"]
    run = {
        "feed": capture.feed,
        "part": capture.part,
        "content_hash": capture.sha256,
        "rows_seen": capture.rows_seen,
        "rows_kept": len(kept),
        "rows_unmapped": sum((row["provider"], row["name"]) not in types for row in kept),
        "quarantined": dict(capture.quarantined),
        "filtered": dict(capture.filtered),
        "started_at": now,
        "finished_at": now,
        "state": state,
    }
    connection.execute(insert(IMPORT_RUN).values(run))
