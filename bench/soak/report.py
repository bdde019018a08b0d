"""Counts what became of the requests of a soak, and prints it as one table."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf

from bench.figures import percentile
from bench.verdict import shown, table

READ, CREATED = 200, 201
QUIET, ALL_EVENTS, ALL = "quiet", "all events", "in all"
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
class Record:
    """Everything that a soak has observed between two moments."""

    began: float
    ended: float
    events: Sequence[Event]
    sent: Sequence[Sent]
    followed: Sequence[Followed]
    stored: Set[int]
    """The numbers of the measurements that the database holds at the end."""

    @property
    def failed_reads(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.is_failed_read]

    @property
    def lost_writes(self) -> set[int]:
        return {sent.write for sent in self.sent if sent.is_acknowledged and sent.write is not None} - self.stored

    @property
    def never_followed(self) -> bool:
        return any(each.seconds == inf for each in self.followed)


def followed_by(written: Sequence[tuple[float, int]], observations: Sequence[Observation]) -> Iterator[Followed]:
    """Yields how long a replica took to answer with each version, given the times of commits and both in order.

    A version is left out if the replica did not answer before it had that version, since it was then not running.
    """
    for written_at, version in written:
        first = bisect_left(observations, written_at, key=lambda each: each.at)
        for observation in observations[first:]:
            if observation.version is None:
                break
            if observation.version >= version:
                yield Followed(written_at, observation.at - written_at)
                break
        else:
            yield Followed(written_at, inf)


def phase_of(began: float, ended: float, events: Sequence[Event]) -> str:
    """Returns the event that overlaps a stretch of time, or that it was quiet."""
    return next((event.name for event in events if began <= event.ended and ended >= event.began), QUIET)


def report(record: Record) -> str:
    """Returns the table: a row for the quiet time, for each event, for all events, and for everything."""
    sent = [(phase_of(each.began, each.began + each.seconds, record.events), each) for each in record.sent]
    followed = [
        (phase_of(each.written_at, each.written_at + each.seconds, record.events), each) for each in record.followed
    ]
    seconds = {event.name: event.ended - event.began for event in record.events}
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
        for each in record.sent
        if each.is_failed_read or (each.write is not None and not each.is_acknowledged)
    )
    return [
        f"{phase}: {path} was answered {number:,} times with {status or 'nothing'}."
        for (phase, path, status), number in sorted(kinds.items())
    ]
