"""Reads the health of the feeds: last captures, their counts, and instance types that the catalog lacks."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Connection, Engine, case, func, select

from service.db.errors import in_sentences
from service.db.feeds.documents import of_part
from service.db.feeds.resolve_prices import read_feeds
from service.db.tables import DOCUMENT, IMPORT_RUN, INSTANCE_TYPE, OBSERVATION, SPECIFICATION
from service.domain.catalog.resolution import Feed

FIRST_RETRY = timedelta(minutes=15)
"""How long a feed waits after a failed run. The wait doubles with each further one, up to the interval of the feed."""

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
        interval = timedelta(hours=self.feed.every_hours)
        wait = FIRST_RETRY * 2 ** min(self.failures - 1, MAX_DOUBLINGS) if self.failures else interval
        return self.last_run_at + min(wait, interval)

    def due_parts(self, parts: Sequence[str], now: datetime) -> list[str]:
        """Returns which parts are to be read now: first those whose last run is the longest ago.

        A part is due one interval after its last run that did not fail. While runs fail, all parts wait for the next
        try.
        """
        if self.feed.every_hours is None or (self.failures and self.next_run_at and now < self.next_run_at):
            return []
        interval = timedelta(hours=self.feed.every_hours)
        runs = {part: self.parts.get(part, NEVER) for part in parts}
        due = {part: now if run.read_at is None else run.read_at + interval for part, run in runs.items()}
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
        return [_status(connection, feed) for feed in read_feeds(connection).values() if feed.id != "seed"]


def _status(connection: Connection, feed: Feed) -> FeedStatus:
    run = IMPORT_RUN.c
    of_feed = select(IMPORT_RUN).where(run.feed == feed.id)
    last = connection.execute(of_feed.order_by(run.id.desc()).limit(1)).first()
    did_not_fail = run.state != "failed"
    last_good = select(func.coalesce(func.max(run.id), 0)).where(run.feed == feed.id, did_not_fail)
    failures = select(func.count()).where(run.feed == feed.id, run.id > last_good.scalar_subquery())
    read_at = func.max(case((did_not_fail, run.finished_at)))
    runs = select(run.part, func.max(run.finished_at), read_at).where(run.feed == feed.id, run.part.is_not(None))
    newest = (
        select(func.max(run.id)).where(run.feed == feed.id, run.state.in_(("done", "unchanged"))).group_by(run.part)
    )
    parts = connection.execute(select(IMPORT_RUN).where(run.id.in_(newest))).all()
    document = DOCUMENT.c
    captured = connection.execute(select(func.max(document.fetched_at)).where(document.feed == feed.id)).scalar()
    held = select(func.count(), func.count(OBSERVATION.c.decision)).select_from(OBSERVATION).join(DOCUMENT)
    held = held.where(document.feed == feed.id, OBSERVATION.c.state == "held")
    held_rows, refused = connection.execute(held).one()
    return FeedStatus(
        feed=feed,
        last_run_at=last.finished_at if last else None,
        last_state=last.state if last else None,
        problem=last.problem if last else None,
        failures=connection.execute(failures).scalar_one(),
        parts={part: PartRuns(*times) for part, *times in connection.execute(runs.group_by(run.part))},
        captured_at=captured,
        changed_at=_changed_at(connection, feed),
        kept=sum(row.rows_kept for row in parts),
        held=held_rows - refused,
        refused=refused,
        unmapped=sum(row.rows_unmapped or 0 for row in parts),
        set_aside=_sum([row.quarantined for row in parts]),
        filtered=_sum([row.filtered or {} for row in parts]),
    )


def _changed_at(connection: Connection, feed: Feed) -> datetime | None:
    """Returns when any part of the feed last changed."""
    document = DOCUMENT.c
    rows = connection.execute(
        select(document.part, document.sha256, document.fetched_at)
        .where(document.feed == feed.id)
        .order_by(document.part, document.fetched_at)
    )
    since: dict[str, tuple[str, datetime]] = {}
    for part, sha256, fetched_at in rows:
        if part not in since or since[part][0] != sha256:
            since[part] = sha256, fetched_at
    return max((moment for _, moment in since.values()), default=None)


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
