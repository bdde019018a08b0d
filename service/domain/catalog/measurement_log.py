"""Measurements of all callers, indexed by owner, workload and machine, and the part that one caller sees."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date

from service.domain.catalog.reference import Measurement

Owner = str | None
"""The owner of an API key. None means a public measurement, or a caller without a key."""


class MeasurementLog:
    """All measurements up to a version. They are only appended, so all versions of the catalog share one log."""

    def __init__(self, measurements: Iterable[Measurement] = (), version: int = 0) -> None:
        self.version = version
        self._rows: dict[tuple[Owner, str, str], list[Measurement]] = defaultdict(list)
        self.add(measurements, version)

    def add(self, measurements: Iterable[Measurement], version: int) -> None:
        """Appends measurements newer than the version of the log, and sets its version; only one thread may call it."""
        for measurement in measurements:
            for field, name in ("", ""), ("workload", measurement.workload), ("machine", measurement.machine):
                self._rows[measurement.owner, field, name].append(measurement)
        self.version = version

    def of(self, owner: Owner, field: str = "", name: str = "") -> list[Measurement]:
        """Returns all measurements of an owner, or those whose `workload` or `machine` has a name."""
        return self._rows.get((owner, field, name), [])


@dataclass(frozen=True, slots=True)
class VisibleMeasurements:
    """The public measurements and the caller's own, added by a version of the catalog and measured by its day."""

    log: MeasurementLog
    version: int
    day: date
    owner: Owner = None
    """The caller; None sees public measurements only."""

    def __iter__(self) -> Iterator[Measurement]:
        return self._visible(*self._rows())

    def under(self, workload: str) -> tuple[Measurement, ...]:
        """Returns the measurements under a workload's name."""
        return tuple(self._visible(*self._rows("workload", workload)))

    def workloads(self, most: int) -> set[str]:
        """Returns the workloads of the last `most` public measurements and of the caller's last `most`."""
        return {row.workload for rows in self._rows() for row in self._visible(rows[-most:])}

    def on(self, machine: str) -> tuple[Measurement, ...]:
        """Returns the measurements on a machine, as `provider/name`."""
        return tuple(self._visible(*self._rows("machine", machine)))

    def _rows(self, field: str = "", name: str = "") -> list[list[Measurement]]:
        """Returns the public measurements, and then the caller's own; see `MeasurementLog.of`."""
        return [self.log.of(owner, field, name) for owner in dict.fromkeys((None, self.owner))]

    def _visible(self, *parts: list[Measurement]) -> Iterator[Measurement]:
        """Leaves out measurements that a later version added, or that were made after the day."""
        return (row for part in parts for row in part if row.since <= self.version and row.measured_on <= self.day)
