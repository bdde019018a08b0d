"""Instance types side by side: speed and price, each relative to a baseline."""

from dataclasses import dataclass, replace

import numpy as np

from service.domain.bill.unit_costs import samples_per_usd
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import BY_THE_HOUR, Offer
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import offers_of_types
from service.domain.selection.selection import select


@dataclass(frozen=True, slots=True)
class Comparison:
    """One instance type; ratios refer to the baseline and are null where a figure is not known.

    `speed` is samples per second when measured, else the dense peak of the machine in 10^12 operations per second.
    """

    instance: str
    measured: bool
    speed: float | None
    precision: str | None
    batch_size: int | None
    offer: Offer | None
    evidence: tuple[str, ...]
    relative_speed: float | None = None
    relative_cost: float | None = None

    @property
    def usd_per_hour(self) -> float | None:
        return self.offer.price.usd_per_hour if self.offer else None

    @property
    def speed_per_cost(self) -> float | None:
        """relative speed / relative cost."""
        return _ratio(self.relative_speed, self.relative_cost)

    @property
    def samples_per_usd(self) -> float | None:
        """None unless the speed was measured and the price is known."""
        if not self.measured or self.speed is None or not self.usd_per_hour:
            return None
        return samples_per_usd(self.speed, self.usd_per_hour)


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def compare(
    catalog: Catalog,
    instances: tuple[str, ...],
    baseline: str,
    workload: str | None,
    precision: str | None,
    regions: tuple[str, ...],
) -> list[Comparison]:
    """Each type against the baseline, which must be among them: measured when a workload is named, else by peak."""
    rows = {name: _figures(catalog, name, workload, precision, regions) for name in instances}
    base = rows[baseline]
    return [
        replace(
            row,
            relative_speed=_ratio(row.speed, base.speed),
            relative_cost=_ratio(row.usd_per_hour, base.usd_per_hour),
        )
        for row in rows.values()
    ]


def _figures(
    catalog: Catalog, instance: str, workload: str | None, precision: str | None, regions: tuple[str, ...]
) -> Comparison:
    offer = best_offer(catalog, instance, regions)
    if workload:
        seen = [
            each
            for each in catalog.measurements
            if each.machine == instance and each.workload == workload and each.nodes == 1
        ]
        if not seen:
            return Comparison(
                instance, measured=True, speed=None, precision=None, batch_size=None, offer=offer, evidence=()
            )
        newest = max(seen, key=lambda each: (each.measured_on, each.samples_per_second))
        return Comparison(
            instance=instance,
            measured=True,
            speed=newest.samples_per_second,
            precision=newest.precision,
            batch_size=newest.batch_size,
            offer=offer,
            evidence=(newest.id,),
        )
    peaks = peak_rates(catalog, instance, (precision,) if precision else USUAL_PRECISIONS)
    fastest = max(peaks, key=lambda name: peaks[name], default=None)
    return Comparison(
        instance=instance,
        measured=False,
        speed=peaks[fastest] if fastest else None,
        precision=fastest,
        batch_size=None,
        offer=offer,
        evidence=(),
    )


def peak_rates(catalog: Catalog, instance: str, precisions: tuple[str, ...]) -> dict[str, float]:
    """The machine's known peaks among the precisions that its GPU runs."""
    kind = catalog.instance_types[catalog.index_of[instance]]
    if kind.gpu is None:
        return {}
    peaks = {name: kind.tflops(name) for name in precisions if kind.gpu.runs(name)}
    return {name: peak for name, peak in peaks.items() if peak is not None}


def best_offer(catalog: Catalog, instance: str, regions: tuple[str, ...]) -> Offer | None:
    """The offer a list would show for the type: on-demand and cheap first."""
    asked = Constraints(words={"instance": (instance,)}, region=regions, market=BY_THE_HOUR)
    _, offers = offers_of_types(select(asked, catalog).admitted)
    return catalog.offers.offer(int(offers[0])) if np.size(offers) else None
