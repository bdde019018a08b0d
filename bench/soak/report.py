"""Counts the results of the requests of a soak, and renders them as one table."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan

from bench.figures import percentile
from bench.verdict import Gate, Line, shown, table

READ, CREATED = 200, 201
QUIET, ALL_EVENTS, ALL, LATE = "quiet", "all events", "in all", "reads from a standby 10 s behind"

NONE = Gate(0, 0, "less")
NEW_CATALOG_SECONDS = Gate(5, 2, "less")
LATE_CATALOG_SECONDS = Gate(15, 12, "less")
P99_TO_QUIET = Gate(3, 1.5, "less")
WITHOUT_LEADER_SECONDS = Gate(15, 5, "less")
TWO_LEADERS_SECONDS = Gate(5, 0, "less")
"""A process that was cut off believes that it leads until its next call, three seconds later."""
HEAD = (
    "phase",
    "seconds",
    "reads",
    "failed",
    "p99 ms",
    "writes acknowledged",
    "lost",
    "refused",
    "new catalog after s",
)

Outage = tuple[float, float]
"""When the database could not be reached: from and until."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request and its answer. Times are seconds on one clock."""

    began: float
    seconds: float
    status: int
    """0 if no whole answer arrived."""
    path: str
    write: int | None = None
    """The number of the measurement that a write sent, None for a read."""

    @property
    def is_failed_read(self) -> bool:
        return self.write is None and self.status != READ

    @property
    def is_acknowledged(self) -> bool:
        return self.write is not None and self.status == CREATED


@dataclass(frozen=True, slots=True)
class Event:
    """A disturbance, from its first moment until everything runs again."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Observation:
    """The catalog version of a replica at a time, None while it did not answer."""

    at: float
    version: int | None


@dataclass(frozen=True, slots=True)
class Followed:
    """How many seconds after a new version was committed a replica answered with it; infinite if it never did."""

    written_at: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Leading:
    """The ports of the replicas that led the background work at a time."""

    at: float
    ports: Set[int]


@dataclass(frozen=True, slots=True)
class Late:
    """The answers of a replica that reads from a delayed standby."""

    sent: Sequence[Sent] = ()
    followed: Sequence[Followed] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that a soak has observed between two moments."""

    began: float
    ended: float
    events: Sequence[Event]
    sent: Sequence[Sent]
    followed: Sequence[Followed]
    stored: Set[int]
    """The numbers of the measurements that the database holds at the end."""
    outages: Sequence[Outage] = ()
    leading: Sequence[Leading] = ()
    late: Late = Late()

    @property
    def failed_reads(self) -> list[Sent]:
        return [sent for sent in (*self.sent, *self.late.sent) if sent.is_failed_read]

    @property
    def lost_writes(self) -> set[int]:
        return {sent.write for sent in self.sent if sent.is_acknowledged and sent.write is not None} - self.stored

    def p99_seconds(self, *, quiet: bool) -> float:
        """Returns the p99 of reads in quiet time or during events, NaN without any."""
        phases = ((phase_of(each.began, each.began + each.seconds, self.events), each) for each in self.sent)
        seconds = sorted(each.seconds for phase, each in phases if each.write is None and (phase == QUIET) == quiet)
        return percentile(seconds, 99) if seconds else nan


def reachable_seconds(began: float, ended: float, outages: Sequence[Outage]) -> float:
    """Returns how long the database could be reached between two moments. The outages do not overlap."""
    away = sum(max(0.0, min(ended, until) - max(began, since)) for since, until in outages)
    return ended - began - away


def followed_by(
    written: Sequence[tuple[float, int]], observations: Sequence[Observation], outages: Sequence[Outage] = ()
) -> Iterator[Followed]:
    """Yields how long a replica took to answer with each version, given the times of commits and both in order.

    Time in which the database could not be reached does not count. A version is left out if the replica did not
    answer before it had that version, since it was then not running.
    """
    for written_at, version in written:
        first = bisect_left(observations, written_at, key=lambda each: each.at)
        for observation in observations[first:]:
            if observation.version is None:
                break
            if observation.version >= version:
                yield Followed(written_at, reachable_seconds(written_at, observation.at, outages))
                break
        else:
            yield Followed(written_at, inf)


def longest_seconds(leading: Sequence[Leading], outages: Sequence[Outage], holds: Callable[[int], bool]) -> float:
    """Returns how long the number of leaders held a condition without a break, while the database could be reached.

    A stretch begins with the last look before it and ends with the first look after it.
    """
    longest, began = 0.0, None
    for before, look in pairwise(leading):
        if not holds(len(look.ports)):
            began = None
            continue
        began = before.at if began is None else began
        longest = max(longest, reachable_seconds(began, look.at, outages))
    return longest


def moves_of(leading: Sequence[Leading]) -> int:
    """Returns how often the lead went from one replica to another one."""
    leaders = [next(iter(look.ports)) for look in leading if len(look.ports) == 1]
    return sum(one != other for one, other in pairwise(leaders))


def gates(record: Record) -> list[Line]:
    """Returns the figures that have gates."""
    ratio = record.p99_seconds(quiet=False) / record.p99_seconds(quiet=True)
    return [
        Line("failed reads", len(record.failed_reads), NONE),
        Line("acknowledged writes that are lost", len(record.lost_writes), NONE),
        Line("seconds until the slowest replica had a new catalog", slowest(record.followed), NEW_CATALOG_SECONDS),
        Line(f"the same, {LATE}", slowest(record.late.followed), LATE_CATALOG_SECONDS),
        Line("p99 of reads during events relative to quiet time", ratio, P99_TO_QUIET),
        Line(
            "seconds without a leader of the background work",
            longest_seconds(record.leading, record.outages, lambda leaders: leaders == 0),
            WITHOUT_LEADER_SECONDS,
        ),
        Line(
            "seconds with two leaders",
            longest_seconds(record.leading, record.outages, lambda leaders: leaders > 1),
            TWO_LEADERS_SECONDS,
        ),
    ]


def slowest(followed: Sequence[Followed]) -> float:
    """Returns the longest time until a replica followed; infinite if none was observed."""
    return max((each.seconds for each in followed), default=inf)


def phase_of(began: float, ended: float, events: Sequence[Event]) -> str:
    """Returns the event that overlaps a stretch of time, or that it was quiet."""
    return next((event.name for event in events if began <= event.ended and ended >= event.began), QUIET)


def report(record: Record) -> str:
    """Returns the table: a row for the quiet time, for each event, for all events, and for everything."""
    sent = [(phase_of(each.began, each.began + each.seconds, record.events), each) for each in record.sent]
    followed = [
        (phase_of(each.written_at, each.written_at + each.seconds, record.events), each) for each in record.followed
    ]
    seconds: defaultdict[str, float] = defaultdict(float)
    for event in record.events:
        seconds[event.name] += event.ended - event.began
    eventful, whole = sum(seconds.values()), record.ended - record.began
    names = list(seconds)
    phases = [(QUIET, whole - eventful, {QUIET}), *((name, seconds[name], {name}) for name in names)]
    phases += [(ALL_EVENTS, eventful, set(names)), (ALL, whole, {QUIET, *names})]
    rows = [
        _row(
            label,
            length,
            [each for phase, each in sent if phase in members],
            [each for phase, each in followed if phase in members],
            record.stored,
        )
        for label, length, members in phases
    ]
    rows += [_row(LATE, whole, record.late.sent, record.late.followed, record.stored)] if record.late.sent else []
    return table(HEAD, rows)


def _row(
    label: str, seconds: float, sent: Sequence[Sent], followed: Sequence[Followed], stored: Set[int]
) -> tuple[str, ...]:
    reads = [each for each in sent if each.write is None]
    acknowledged = [each.write for each in sent if each.is_acknowledged]
    durations = sorted(each.seconds * 1000 for each in reads)
    return (
        label,
        shown(seconds),
        f"{len(reads):,}",
        f"{sum(each.is_failed_read for each in reads):,}",
        shown(percentile(durations, 99)) if durations else "–",
        f"{len(acknowledged):,}",
        f"{sum(number not in stored for number in acknowledged):,}",
        f"{len(sent) - len(reads) - len(acknowledged):,}",
        shown(max(each.seconds for each in followed)) if followed else "–",
    )


def failures(record: Record) -> list[str]:
    """Returns a line for each kind of request that failed in a phase, with its number."""
    kinds = Counter(
        (phase_of(each.began, each.began + each.seconds, record.events), each.path, each.status)
        for each in (*record.sent, *record.late.sent)
        if each.is_failed_read or (each.write is not None and not each.is_acknowledged)
    )
    return [
        f"{phase}: {path} was answered {number:,} times with {status or 'nothing'}."
        for (phase, path, status), number in sorted(kinds.items())
    ]
