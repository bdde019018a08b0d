"""Instance types side by side: speed and price, each relative to a baseline."""

from dataclasses import dataclass, replace

from service.domain.bill.unit_costs import samples_per_usd
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.offer import BY_THE_HOUR, Offer
from service.domain.catalog.precision import USUAL_PRECISIONS
from service.domain.evidence.named import NamedMeasurements
from service.domain.selection.constraints import Constraints
from service.domain.selection.offers import offers_of_types
from service.domain.selection.selection import select


@dataclass(frozen=True, slots=True)
class Comparison:
    """One instance type; ratios refer to the baseline and are None where a figure is unknown."""

    instance: str
    offer: Offer | None
    measured: bool
    speed: float | None = None
    """Measured samples per second; without a workload, the dense peak of the machine in 10^12 operations per second."""
    precision: str | None = None
    batch_size: int | None = None
    evidence: tuple[str, ...] = ()
    """Ids of the measurements used."""
    relative_speed: float | None = None
    relative_cost: float | None = None
    peak_tflops: float | None = None
    """Dense peak of the machine at the fastest of the precisions, in 10^12 operations per second."""
    relative_peak: float | None = None

    @property
    def speed_per_peak(self) -> float | None:
        """Relative speed / relative peak; below 1, the type gains less over the baseline than data sheets promise."""
        return _ratio(self.relative_speed, self.relative_peak)

    @property
    def usd_per_hour(self) -> float | None:
        """Price of an hour; None without an offer or a known price."""
        return self.offer.price.usd_per_hour if self.offer else None

    @property
    def speed_per_cost(self) -> float | None:
        """Relative speed divided by relative cost."""
        return _ratio(self.relative_speed, self.relative_cost)

    @property
    def samples_per_usd(self) -> float | None:
        """Samples per dollar; None unless the speed was measured and the price is known."""
        if not self.measured or self.speed is None or not self.usd_per_hour:
            return None
        return samples_per_usd(self.speed, self.usd_per_hour)


def compare(
    catalog: Catalog,
    instances: tuple[str, ...],
    baseline: str,
    workload: str | None,
    precision: str | None,
    regions: tuple[str, ...],
) -> list[Comparison]:
    """Returns each type relative to the baseline, which must be one of them.

    Speeds are those measured under the name of a workload; without a name, they are peaks.
    """
    precisions = (precision,) if precision else USUAL_PRECISIONS
    rows = {}
    for name in instances:
        fastest, peak = catalog.instance_types[catalog.index_of[name]].fastest(precisions)
        row = Comparison(name, _default_offer(catalog, name, regions), workload is not None, peak_tflops=peak)
        by_peak = replace(row, speed=peak, precision=fastest)
        rows[name] = by_peak if workload is None else _as_measured(row, workload, catalog)
    base = rows[baseline]
    return [
        replace(
            row,
            relative_speed=_ratio(row.speed, base.speed),
            relative_cost=_ratio(row.usd_per_hour, base.usd_per_hour),
            relative_peak=_ratio(row.peak_tflops, base.peak_tflops),
        )
        for row in rows.values()
    ]


def _ratio(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


def _default_offer(catalog: Catalog, instance: str, regions: tuple[str, ...]) -> Offer | None:
    """Returns the offer of a type in these regions that a list shows: on demand if possible, then the cheapest."""
    constraints = Constraints(words={"instance": (instance,)}, region=regions, market=BY_THE_HOUR)
    _, offers = offers_of_types(select(constraints, catalog).admitted)
    return catalog.offers.offer(int(offers[0])) if len(offers) else None


def _as_measured(row: Comparison, workload: str, catalog: Catalog) -> Comparison:
    """Returns the row with the newest measurement on one node."""
    measured = NamedMeasurements.of(catalog.measurements.under(workload), catalog).measured_on(row.instance)
    if measured is None:
        return row
    newest = measured.evidence
    return replace(
        row,
        speed=newest.samples_per_second,
        precision=newest.precision,
        batch_size=newest.batch_size,
        evidence=(newest.id,),
    )
