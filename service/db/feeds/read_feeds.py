"""Reads the health of the feeds: last captures, their counts, and instance types that the catalog lacks."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Engine, Row, Select, case, func, or_, select

from service.db.errors import in_sentences
from service.db.feeds.documents import of_part
from service.db.feeds.resolve_prices import read_feeds
from service.db.tables import DOCUMENT, IMPORT_RUN, INSTANCE_TYPE, OBSERVATION, SPECIFICATION
from service.domain.catalog.resolution import Feed

FIRST_RETRY = timedelta(minutes=15)
"""How long a feed waits after a failed run, which is of one part. The wait doubles with each further one, up to the
interval of the feed."""

MAX_DOUBLINGS = 10
"""With them, a wait is longer than a week, which no interval is."""

TOGETHER = 0.1
"""Parts of a feed that are due within this share of its interval are read together."""


class PartRuns(NamedTuple):
    """When a part of a feed was last read, and when that last did not fail; None for a part that always failed."""

    tried_at: datetime
    read_at: datetime | None


NEVER = PartRuns(datetime.min.replace(tzinfo=UTC), None)


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """A feed with its last run, the age of its content, and the counts of the last run of each of its parts."""

    feed: Feed
    last_run_at: datetime | None
    last_state: str | None
    problem: str | None
    failures: int
    """Number of runs that failed since the last one that did not. A run reads one part."""
    parts: Mapping[str, PartRuns]
    """The runs of each part that was ever read."""
    captured_at: datetime | None
    changed_at: datetime | None
    """When a capture first had the present content."""
    kept: int
    held: int
    refused: int
    """Prices that an operator refused, even if the feed no longer shows them."""
    unmapped: int
    set_aside: dict[str, int]
    filtered: dict[str, int]

    def is_stale(self, now: datetime) -> bool:
        """Returns whether the content has been the same for longer than `stale_after_days`."""
        days = self.feed.stale_after_days
        return self.changed_at is not None and days is not None and now - self.changed_at > timedelta(days=days)

    def health(self, now: datetime) -> str:
        """Returns one word: never, refused, failed, stale or ok."""
        if self.last_state in (None, "refused", "failed"):
            return self.last_state or "never"
        return "stale" if self.is_stale(now) else "ok"

    @property
    def next_run_at(self) -> datetime | None:
        """Returns when the feed is due again; None for a feed that is not read in the background."""
        if self.feed.every_hours is None or self.last_run_at is None:
            return None
        known = (self._due_at(run, self.last_run_at) for run in self.parts.values())
        return min(known, default=self.last_run_at + timedelta(hours=self.feed.every_hours))

    def _due_at(self, run: PartRuns, last_run_at: datetime) -> datetime:
        """Returns when a part is due: an interval after it was read. While runs fail, a part that was due before the
        last of them waits for the next try.
        """
        interval = timedelta(hours=self.feed.every_hours or 0.0)
        at: datetime = run.tried_at if run.read_at is None else run.read_at + interval
        if not self.failures or at > last_run_at:
            return at
        wait: timedelta = FIRST_RETRY * 2 ** min(self.failures - 1, MAX_DOUBLINGS)
        return last_run_at + min(wait, interval)

    def due_parts(self, parts: Sequence[str], now: datetime) -> list[str]:
        """Returns which parts are to be read now: first those whose last run is the longest ago."""
        if self.feed.every_hours is None:
            return []
        interval = timedelta(hours=self.feed.every_hours)
        runs = {part: self.parts.get(part, NEVER) for part in parts}
        due = {part: self._due_at(run, self.last_run_at or now) for part, run in runs.items()}
        if all(at > now for at in due.values()):
            return []
        together = [part for part in parts if due[part] <= now + TOGETHER * interval]
        return sorted(together, key=lambda part: runs[part].tried_at)


@dataclass(frozen=True, slots=True)
class UnmappedType:
    """An instance type in feeds that the catalog lacks, with the hardware that the feeds state."""

    provider: str
    name: str
    feeds: tuple[str, ...]
    """Ids of the feeds that show it."""
    prices: int
    """Number of its prices, which are stored and do not count yet."""
    last_observed_at: datetime
    vcpus: float | None
    memory_gib: float | None
    gpu_name: str | None
    """The name of its GPU in the words of a feed; None without a GPU, or if no feed states it."""
    gpu_count: float | None
    """None if no feed states it."""


def rows_of_last_capture(engine: Engine, feed: str, part: str) -> int | None:
    """Returns how many rows the last good document of a part had; None without one."""
    query = select(IMPORT_RUN.c.rows_seen).where(
        *of_part(IMPORT_RUN, feed, part),
        IMPORT_RUN.c.state.in_(("done", "unchanged")),
        IMPORT_RUN.c.rows_kept > 0,
    )
    with in_sentences(engine), engine.connect() as connection:
        return connection.execute(query.order_by(IMPORT_RUN.c.id.desc()).limit(1)).scalar()


def feed_statuses(engine: Engine) -> list[FeedStatus]:
    """Returns the status of every feed that is read in the background or has been imported."""
    with in_sentences(engine), engine.connect() as connection:
        last = {row.feed: row for row in connection.execute(_newest_runs(RUN.feed))}
        good, parts = defaultdict[str, list[Row[Any]]](list), defaultdict[str, dict[str, PartRuns]](dict)
        for row in connection.execute(_newest_runs(RUN.feed, RUN.part, among=RUN.state.in_(("done", "unchanged")))):
            good[row.feed].append(row)
        for id_, part, *times in connection.execute(PARTS):
            parts[id_][part] = PartRuns(*times)
        failures = {row.feed: row.failures for row in connection.execute(FAILURES)}
        captured = {row.feed: row.captured_at for row in connection.execute(CAPTURED)}
        changed = {row.feed: row.changed_at for row in connection.execute(CHANGED)}
        held = {row.feed: (row.held, row.refused) for row in connection.execute(HELD)}
        return [
            FeedStatus(
                feed=feed,
                last_run_at=last[feed.id].finished_at if feed.id in last else None,
                last_state=last[feed.id].state if feed.id in last else None,
                problem=last[feed.id].problem if feed.id in last else None,
                failures=failures.get(feed.id, 0),
                parts=parts[feed.id],
                captured_at=captured.get(feed.id),
                changed_at=changed.get(feed.id),
                kept=sum(row.rows_kept for row in good[feed.id]),
                held=held.get(feed.id, (0, 0))[0],
                refused=held.get(feed.id, (0, 0))[1],
                unmapped=sum(row.rows_unmapped or 0 for row in good[feed.id]),
                set_aside=_sum([row.quarantined for row in good[feed.id]]),
                filtered=_sum([row.filtered or {} for row in good[feed.id]]),
            )
            for feed in read_feeds(connection).values()
            if feed.id != "seed"
        ]


RUN, SHOWN = IMPORT_RUN.c, DOCUMENT.c

DID_NOT_FAIL = RUN.state != "failed"

PARTS = (
    select(RUN.feed, RUN.part, func.max(RUN.finished_at), func.max(case((DID_NOT_FAIL, RUN.finished_at))))
    .where(RUN.part.is_not(None))
    .group_by(RUN.feed, RUN.part)
)
"""The `PartRuns` of each part."""

LAST_GOOD = select(RUN.feed, func.max(case((DID_NOT_FAIL, RUN.id), else_=0)).label("id")).group_by(RUN.feed).subquery()
FAILURES = (
    select(RUN.feed, func.count().label("failures"))
    .join(LAST_GOOD, LAST_GOOD.c.feed == RUN.feed)
    .where(RUN.id > LAST_GOOD.c.id)
    .group_by(RUN.feed)
)
"""For each feed whose last run failed: how many failed since the last one that did not."""

CAPTURED = select(SHOWN.feed, func.max(SHOWN.fetched_at).label("captured_at")).group_by(SHOWN.feed)

FORMER = func.lag(SHOWN.sha256).over(partition_by=(SHOWN.feed, SHOWN.part), order_by=SHOWN.fetched_at)
COMPARED = select(SHOWN.feed, SHOWN.fetched_at, SHOWN.sha256, FORMER.label("former")).subquery().c
CHANGED = (
    select(COMPARED.feed, func.max(COMPARED.fetched_at).label("changed_at"))
    .where(or_(COMPARED.former.is_(None), COMPARED.former != COMPARED.sha256))
    .group_by(COMPARED.feed)
)
"""When any part of each feed last changed."""

REFUSED = func.count(OBSERVATION.c.decision)
HELD = (
    select(SHOWN.feed, (func.count() - REFUSED).label("held"), REFUSED.label("refused"))
    .select_from(OBSERVATION)
    .join(DOCUMENT)
    .where(OBSERVATION.c.state == "held")
    .group_by(SHOWN.feed)
)


def _newest_runs(*each: ColumnElement[Any], among: ColumnElement[bool] | None = None) -> Select[Any]:
    """Returns a query for the newest run for each value of these columns."""
    newest = select(func.max(RUN.id)).group_by(*each)
    return select(IMPORT_RUN).where(RUN.id.in_(newest if among is None else newest.where(among)))


def _sum(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    return dict(sorted(sum(map(Counter, counts), Counter[str]()).items()))


HARDWARE = ("vcpus", "memory_gib", "gpu_name", "gpu_count")
"""Columns of a specification that `UnmappedType` shows."""


def unmapped_types(engine: Engine) -> list[UnmappedType]:
    """Returns the instance types that the catalog lacks, those with the most prices first."""
    observed = OBSERVATION.c
    provider, name = observed.provider, observed.name
    in_catalog = select(INSTANCE_TYPE.c.id).where(INSTANCE_TYPE.c.provider == provider, INSTANCE_TYPE.c.name == name)
    query = (
        select(provider, name, func.count().label("prices"), func.max(observed.observed_at).label("observed_at"))
        .where(observed.state == "kept", observed.superseded_at.is_(None), ~in_catalog.exists())
        .group_by(provider, name)
    )
    with in_sentences(engine), engine.connect() as connection:
        stated = {(row.provider, row.name): row for row in connection.execute(select(SPECIFICATION))}
        feeds: dict[tuple[str, str], set[str]] = defaultdict(set)
        selling = select(provider, name, DOCUMENT.c.feed).join(DOCUMENT).where(~in_catalog.exists()).distinct()
        for row in connection.execute(selling):
            feeds[row.provider, row.name].add(row.feed)
        types = [
            UnmappedType(
                provider=row.provider,
                name=row.name,
                feeds=tuple(sorted(feeds[row.provider, row.name])),
                prices=row.prices,
                last_observed_at=row.observed_at,
                **{column: getattr(stated.get((row.provider, row.name)), column, None) for column in HARDWARE},
            )
            for row in connection.execute(query)
        ]
    return sorted(types, key=lambda type_: (-type_.prices, type_.provider, type_.name))
