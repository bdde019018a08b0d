"""Resolution of the observations of one offer by several feeds into one price in force at any instant.

The result does not depend on the order in which observations arrive, so imports may run in any order.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal, get_args

from service.domain.catalog.offer import Dated, Market, PriceKind
from service.domain.groups import grouped

LAST_RANK = 9
"""Rank of a feed that is not in the catalog."""

CONFIRMED_FOR: Mapping[Market, timedelta] = {"on_demand": timedelta(days=45), "reserved": timedelta(days=90)}
"""How long a price counts as fresh after a feed last showed it; for spot, see `Feed.spot_confirmed_for`."""

STEP_WITHOUT_QUESTION: Mapping[Market, tuple[float, float]] = {
    "on_demand": (0.4, 2.0),
    "spot": (0.1, 10.0),
    "reserved": (0.4, 2.0),
}
"""Lowest and highest ratio of a new price to the former one of the same feed that counts at once. A price outside is
held until a second capture or another feed confirms it.

Prices of AWS in the seed change by 0.56 to 1.0 times; two changes of small sellers are outside and were confirmed.
"""

AGREEMENT = 0.05
"""Two feeds confirm each other if their prices differ by at most this share."""

ObservationState = Literal["kept", "held", "set_aside", "absent"]
OBSERVATION_STATES: tuple[ObservationState, ...] = get_args(ObservationState)
"""`kept`: counts; `held`: waits for confirmation; `set_aside`: failed a check; `absent`: a capture lacks the offer."""

Decision = Literal["released", "refused"]
"""Decision of an operator about a held observation: a released one counts at once, a refused one never."""

Parts = Mapping[tuple[str, str], Sequence[datetime]]
"""By feed and part of it, the instants of its complete captures, ascending."""


@dataclass(frozen=True, slots=True)
class Feed:
    """A source of prices that is read again and again. Where fresh prices of feeds differ, the lowest `rank` wins."""

    id: str
    title: str
    rank: int
    every_hours: float | None
    stale_after_days: int | None
    stock_only: bool
    """Whether the feed lists only machines in stock, so that an offer keeps its price while the feed lacks it."""
    url: str | None
    setting: str | None
    """The name of the credentials without which the feed is off."""
    source: str
    note: str | None

    @property
    def spot_confirmed_for(self) -> timedelta:
        """How long a spot price of this feed is fresh: three intervals between readings, but at least a day."""
        return max(timedelta(days=1), 3 * timedelta(hours=self.every_hours or 0))


@dataclass(frozen=True, slots=True)
class Observed:
    """A price of an offer in one feed, from the first capture that showed it until a capture that showed another.

    `effective_from` is the instant from which the price is valid according to the seller; if it is None, the price is
    valid from `observed_at`. `per_hour_micros` is None where the seller states no price. `questioned` is true if so
    many prices changed in the capture that each of them waits for a second capture.
    """

    id: int
    feed: str
    part: str
    state: ObservationState
    effective_from: datetime | None
    ends_at: datetime | None
    observed_at: datetime
    per_hour_micros: int | None
    dated: Dated
    kind: PriceKind
    source: str
    note: str | None
    questioned: bool = False
    decision: Decision | None = None

    @property
    def starts_at(self) -> datetime:
        """The first instant at which the price can be in force."""
        return self.effective_from or self.observed_at

    @property
    def has_price(self) -> bool:
        """Whether the observation has a price that can be in force, unlike one that is set aside or absent."""
        return self.state in ("kept", "held")


@dataclass(frozen=True, slots=True)
class Interval:
    """The observation in force over `[valid_from, valid_to)`, and when it was last confirmed."""

    observed: Observed
    valid_from: datetime
    valid_to: datetime | None
    confirmed_at: datetime


@dataclass(frozen=True, slots=True)
class Resolved:
    """The intervals of an offer in order of time, and the ids of the observations that are held."""

    intervals: tuple[Interval, ...]
    held: frozenset[int]


FOREVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Segment:
    observed: Observed
    starts_at: datetime
    ends_at: datetime
    confirmed_at: datetime
    fresh_until: datetime
    rank: int

    def preference(self, moment: datetime) -> tuple[object, ...]:
        """Returns a sorting key; the smallest is best.

        Known prices come first, then fresh ones. Fresh prices are ordered by rank, stale ones by last confirmation.
        """
        fresh = moment < self.fresh_until
        trust = (self.rank,) if fresh else (FOREVER - self.confirmed_at, self.rank)
        age = (FOREVER - self.starts_at, FOREVER - self.observed.observed_at, self.observed.feed)
        return (self.observed.per_hour_micros is None, not fresh, *trust, *age)


@dataclass(slots=True)
class _Chain:
    """The prices of an offer in one feed.

    `changes` are the observations in order of capture; by their ids, `confirmed` holds the last capture that showed an
    observation, and `ended_at` the capture from which an absent offer has no price.
    """

    feed: Feed | None
    changes: list[Observed] = field(default_factory=list)
    confirmed: dict[int, datetime] = field(default_factory=dict)
    ended_at: dict[int, datetime] = field(default_factory=dict)

    def fresh_for(self, market: Market) -> timedelta:
        """Returns how long a price is fresh after the last capture that shows it."""
        return CONFIRMED_FOR.get(market) or (self.feed.spot_confirmed_for if self.feed else timedelta(days=1))


def resolve(market: Market, observations: Iterable[Observed], captures: Parts, feeds: Mapping[str, Feed]) -> Resolved:
    """Returns the price of an offer over time, from all observations of it by all feeds.

    The price at an instant is that of the feed of the lowest rank with a fresh price, else the one that was confirmed
    last. Observations without a known day count only if the offer has no dated one.
    """
    chains = _chains(observations, captures, feeds)
    held: set[int] = set()
    segments = [_segments(market, chain, _accepted(market, chain, chains, held)) for chain in chains]
    dated = any(segment.observed.dated != "unknown" for feed in segments for segment in feed)
    if dated:
        segments = [[segment for segment in feed if segment.observed.dated != "unknown"] for feed in segments]
    return Resolved(tuple(_in_force(segments)), frozenset(held))


def _chains(observations: Iterable[Observed], captures: Parts, feeds: Mapping[str, Feed]) -> list[_Chain]:
    parts = grouped(((each.feed, each.part), each) for each in observations)
    chains: dict[str, _Chain] = {}
    for feed, part in sorted(parts):
        chain = chains.setdefault(feed, _Chain(feeds.get(feed)))
        changes = sorted(parts[feed, part], key=lambda change: (change.observed_at, change.starts_at, change.id))
        _confirm(chain, _without_repetitions(changes), captures.get((feed, part), ()))
    return list(chains.values())


def _without_repetitions(changes: Sequence[Observed]) -> list[Observed]:
    """Leaves out changes that equal the one before: they occur when captures are imported out of order."""
    last: dict[datetime | None, tuple[object, ...]] = {}
    different = []
    for change in changes:
        value = (change.state == "set_aside", change.state == "absent", change.per_hour_micros, change.ends_at)
        if last.get(change.effective_from) != value:
            different.append(change)
        if change.state == "absent":
            last.clear()
        last[change.effective_from] = value
    return different


def _confirm(chain: _Chain, changes: Sequence[Observed], captures: Sequence[datetime]) -> None:
    """Adds the changes of a part to a chain, with the last capture before the next change of the same price."""
    next_change: dict[datetime | None, datetime] = {}
    absent_from = later = FOREVER
    for change in reversed(changes):
        before = bisect_left(captures, min(next_change.get(change.effective_from, FOREVER), absent_from))
        chain.confirmed[change.id] = max(change.observed_at, captures[before - 1] if before else change.observed_at)
        next_change[change.effective_from] = change.observed_at
        if change.state == "absent":
            absent_from = change.observed_at
            # One capture may lack an offer by accident, so its price ends with the second one in a row.
            following = bisect_right(captures, change.observed_at)
            if captures[following:] and captures[following] < later:
                chain.ended_at[change.id] = captures[following]
        later = change.observed_at
    chain.changes += changes


def _accepted(market: Market, chain: _Chain, chains: Sequence[_Chain], held: set[int]) -> list[Observed]:
    """Returns the changes that count, and adds the ids of the others to `held`.

    A change is held if its step is large, and neither a second capture nor another feed confirms it.
    """
    low, high = STEP_WITHOUT_QUESTION[market]
    # The seed is edited by people and checked as a whole; only feeds that are read at intervals are questioned.
    is_questioned = chain.feed is not None and chain.feed.every_hours is not None
    accepted: list[Observed] = []
    former: Observed | None = None
    for change in sorted(chain.changes, key=lambda change: (change.observed_at, change.starts_at, change.id)):
        if change.has_price and change.per_hour_micros is not None:
            step = _step(former, change)
            unsure = is_questioned and (change.questioned or not low <= step <= high)
            waits = unsure and change.decision is None and chain.confirmed[change.id] <= change.observed_at
            if change.decision == "refused" or (waits and not _agreed(market, change, chain, chains)):
                held.add(change.id)
                continue
            former = change
        if change.state != "set_aside":
            accepted.append(change)
    return accepted


def _step(former: Observed | None, later: Observed) -> float:
    """Returns the ratio of a price to the former one; 1 without a former one, or if both are from one capture."""
    if former is None or former.observed_at == later.observed_at:
        return 1.0
    assert former.per_hour_micros is not None
    assert later.per_hour_micros is not None
    return later.per_hour_micros / former.per_hour_micros


def _agreed(market: Market, observed: Observed, own: _Chain, chains: Sequence[_Chain]) -> bool:
    """Returns whether another feed shows the same price within `AGREEMENT`, still fresh at its start or later."""
    assert observed.per_hour_micros is not None
    return any(
        chain.confirmed[other.id] + chain.fresh_for(market) >= observed.starts_at
        and abs((other.per_hour_micros or 0) / observed.per_hour_micros - 1) <= AGREEMENT
        for chain in chains
        if chain is not own
        for other in chain.changes
        if other.has_price and other.decision != "refused"
    )


def _segments(market: Market, chain: _Chain, accepted: Sequence[Observed]) -> list[_Segment]:
    """Returns the price over time in one feed: each price is valid from its start until the next one starts."""
    window = chain.fresh_for(market)
    rank = chain.feed.rank if chain.feed else LAST_RANK
    stock_only = chain.feed is not None and chain.feed.stock_only
    starting: dict[datetime, Observed] = {}
    for change in accepted:  # in order of capture, so that the later of two with the same start counts
        if change.has_price:
            starting[change.starts_at] = change
        elif change.id in chain.ended_at and not stock_only:
            starting[chain.ended_at[change.id]] = change
    starts = sorted(starting)
    segments = []
    for start, following in pairwise([*starts, FOREVER]):
        change = starting[start]
        end = min(change.ends_at or FOREVER, following)
        if change.has_price and start < end:
            confirmed = chain.confirmed[change.id]
            segments.append(_Segment(change, start, end, confirmed, confirmed + window, rank))
    return segments


def _in_force(feeds: Sequence[Sequence[_Segment]]) -> Iterable[Interval]:
    """Yields the best segment of each span; spans begin where a segment starts, ends or ceases to be fresh."""
    moments = {moment for feed in feeds for segment in feed for moment in (segment.starts_at, segment.ends_at)}
    if sum(1 for feed in feeds if feed) > 1:
        moments |= {segment.fresh_until for feed in feeds for segment in feed if segment.fresh_until < segment.ends_at}
    starts = [[segment.starts_at for segment in feed] for feed in feeds]
    current: _Segment | None = None
    since = FOREVER
    for moment in sorted(moments):
        best = _best_at(feeds, starts, moment) if moment != FOREVER else None
        if current is not None and best is not current:
            yield Interval(current.observed, since, None if moment == FOREVER else moment, current.confirmed_at)
        if best is not current:
            current, since = best, moment


def _best_at(
    feeds: Sequence[Sequence[_Segment]], starts: Sequence[Sequence[datetime]], moment: datetime
) -> _Segment | None:
    segments = []
    for feed, begins in zip(feeds, starts, strict=True):
        index = bisect_right(begins, moment) - 1
        if index >= 0 and moment < feed[index].ends_at:
            segments.append(feed[index])
    return min(segments, key=lambda segment: segment.preference(moment), default=None)
