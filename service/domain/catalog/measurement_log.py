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
        self._all: dict[Owner, list[Measurement]] = defaultdict(list)
        self._by_workload: dict[tuple[Owner, str], list[Measurement]] = defaultdict(list)
        self._by_machine: dict[tuple[Owner, str], list[Measurement]] = defaultdict(list)
        self.add(measurements, version)

    def add(self, measurements: Iterable[Measurement], version: int) -> None:
        """Appends measurements newer than the version of the log, and sets its version; only one thread may call it."""
        for measurement in measurements:
            self._all[measurement.owner].append(measurement)
            self._by_workload[measurement.owner, measurement.workload].append(measurement)
            self._by_machine[measurement.owner, measurement.machine].append(measurement)
        self.version = version

    def of(self, owner: Owner) -> list[Measurement]:
        """Returns all measurements of an owner."""
        return self._all.get(owner, [])

    def under(self, owner: Owner, workload: str) -> list[Measurement]:
        """Returns the measurements of an owner under a workload's name."""
        return self._by_workload.get((owner, workload), [])

    def on(self, owner: Owner, machine: str) -> list[Measurement]:
        """Returns the measurements of an owner on a machine, as `provider/name`."""
        return self._by_machine.get((owner, machine), [])


@dataclass(frozen=True, slots=True)
class VisibleMeasurements:
    """The public measurements and the caller's own, added by a version of the catalog and measured by its day."""

    log: MeasurementLog
    version: int
    day: date
    owner: Owner = None
    """The caller; None sees public measurements only."""

    def __iter__(self) -> Iterator[Measurement]:
        return self._visible(*map(self.log.of, self._owners))

    def under(self, workload: str) -> tuple[Measurement, ...]:
        """Returns the measurements under a workload's name."""
        return tuple(self._visible(*(self.log.under(owner, workload) for owner in self._owners)))

    def workloads(self, most: int) -> set[str]:
        """Returns the workloads of the last `most` public measurements and of the caller's last `most`."""
        return {row.workload for rows in map(self.log.of, self._owners) for row in self._visible(rows[-most:])}

    def on(self, machine: str) -> tuple[Measurement, ...]:
        """Returns the measurements on a machine, as `provider/name`."""
        return tuple(self._visible(*(self.log.on(owner, machine) for owner in self._owners)))

    @property
    def _owners(self) -> tuple[Owner, ...]:
        return (None,) if self.owner is None else (None, self.owner)

    def _visible(self, *parts: list[Measurement]) -> Iterator[Measurement]:
        """Leaves out measurements that a later version added, or that were made after the day."""
        return (row for part in parts for row in part if row.since <= self.version and row.measured_on <= self.day)
