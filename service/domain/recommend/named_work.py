"""A workload by its own name: what was seen of it on machines, and what that says of the other machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from service.domain.catalog.catalog import Catalog
from service.domain.catalog.reference import Measurement
from service.domain.evidence.named import NamedRate, measured_rate, scaled_rate
from service.domain.jobs.job import Amount
from service.domain.recommend.fleet import SECONDS_PER_HOUR, Blockers, EstimateColumns, FleetEstimate, nothing
from service.domain.selection.relax import Check
from service.domain.typeset import types_where


@dataclass(frozen=True, slots=True)
class NamedWork:
    """Work of which nothing but the name is known, and what was seen under it."""

    name: str
    task: str
    precision: str | None
    amount: Amount | None


LACKS_NOTHING = Blockers(0, 0, 0, 0, 0, 0)


def seen_under(name: str, catalog: Catalog) -> Sequence[Measurement]:
    """What was measured under a workload's name until the catalog's day."""

    def by_name() -> Mapping[str, Sequence[Measurement]]:
        found: dict[str, list[Measurement]] = {}
        for each in catalog.reference.measurements:
            if each.measured_on <= catalog.day:
                found.setdefault(each.workload, []).append(each)
        return found

    return catalog.memory.get_or_compute("measured_workloads", by_name).get(name, ())


def outlook_by_name(work: NamedWork, counts: tuple[int, ...], catalog: Catalog) -> FleetEstimate[NamedWork]:
    """One machine of each type: measured there, or scaled from the machine most like it. Remembered."""
    return catalog.outlooks.get_or_compute((work, counts), lambda: find_outlook_by_name(work, counts, catalog))


def find_outlook_by_name(work: NamedWork, counts: tuple[int, ...], catalog: Catalog) -> FleetEstimate[NamedWork]:
    measurements, types = seen_under(work.name, catalog), len(catalog.instance_types)
    machines = {kind.id: kind for kind in catalog.instance_types}
    seen: dict[int, NamedRate] = {}
    for place, kind in enumerate(catalog.instance_types):
        rate = measured_rate(measurements, work.name, kind.id, catalog.day) or scaled_rate(
            measurements, work.name, kind, machines, catalog.day, precision=work.precision
        )
        if rate is not None:
            seen[place] = rate
    options = tuple(replace(nothing(types), nodes=np.full(types, float(count))) for count in counts)
    if counts[0] == 1:
        fill(options[0], seen, work.amount)
    return FleetEstimate(work, counts, options, (), LACKS_NOTHING, seen)


def fill(alone: EstimateColumns, seen: Mapping[int, NamedRate], amount: Amount | None) -> None:
    samples = 1.0 if amount is None or amount.samples is None else amount.samples
    for place, rate in seen.items():
        band = rate.samples_per_second
        alone.runs[place] = alone.exists[place] = alone.fits[place] = True
        alone.low[place], alone.likely[place], alone.high[place] = band.low, band.likely, band.high
        alone.hours[place] = samples / band.likely / SECONDS_PER_HOUR


def not_seen(found: FleetEstimate[NamedWork], catalog: Catalog) -> list[Check]:
    return [Check("not_measured", "data", catalog.everyone & ~types_where(found.options[0].works))]
