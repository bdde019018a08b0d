"""Rates from measurements under the name of a workload: measured on a machine, or scaled from a similar one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import inf, log
from typing import Literal, NamedTuple

from service.domain.band import Band
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.reference import Measurement
from service.domain.groups import grouped
from service.domain.jobs.job import Amount

STALE_AFTER_DAYS = 365
"""Age in days from which a measurement is stale: drivers, libraries and the workload change in this time (assumed)."""

Figure = Literal["memory_bandwidth", "peak"]
SCALED_BANDS: Mapping[Figure, tuple[float, float]] = {"memory_bandwidth": (0.64, 1.56), "peak": (0.47, 2.11)}
"""Figure by which a rate is scaled → 10th and 90th percentile of truth ÷ scaled rate. Over 1,050 pairs of published
runs (seed/published_runs.csv) of one workload on equally many GPUs of two kinds; over 1,296 pairs on different numbers
of GPUs they were 0.74 and 1.35."""

ON_SAME_GPU_BAND = (0.84, 1.20)
"""10th and 90th percentile of truth ÷ an estimate that is scaled by a run on another number of the same GPUs.

Over 424 pairs of published runs of language models in inference (seed/published_runs.csv), with their groups left out
of the fit; 1,630 pairs of training and of other networks are closer. Scaling lowers the median error from 9.4 to 4.1 %.
"""

REPEATED_WITHIN = 1.067
"""The 80th percentile of the ratio between two runs with equal settings.

Over 247 pairs of published runs (seed/published_runs.csv) with the same model, GPUs, layout, batch, lengths, precision
and software.
"""


@dataclass(frozen=True, slots=True)
class NamedWork:
    """A workload of which only the name is known. Its rates are measurements under this name."""

    name: str
    task: str
    precision: str | None
    amount: Amount | None
    """The work of one run."""
    runs: int = 1
    """Independent runs at the same time."""


@dataclass(frozen=True, slots=True)
class NamedRate:
    """Samples per second of a workload on a machine: measured there, or scaled from another machine."""

    basis: Literal["measured", "scaled"]
    samples_per_second: Band
    evidence: Measurement
    """The newest measurement that was used."""
    days_old: int
    """Days from that measurement to the day of the catalog."""
    factor: float = 1.0
    """Multiplies the measured rate, or the estimate of a job."""
    figure: Figure | None = None
    """The figure whose ratio between the machines is the factor; None for a measured over an estimated rate."""

    @property
    def is_stale(self) -> bool:
        """Whether no measurement is recent."""
        return self.days_old > STALE_AFTER_DAYS

    @property
    def place(self) -> "Place":
        """Where the measurement was made."""
        return Place(self.evidence.machine, self.evidence.nodes)


class Place(NamedTuple):
    """One machine, or several of one type that work together."""

    machine: str
    nodes: int = 1

    def __str__(self) -> str:
        return self.machine if self.nodes == 1 else f"{self.nodes} x {self.machine}"


class ModelledRate(NamedTuple):
    """Samples per second of a job in one place."""

    band: Band
    at_peak: float = inf
    """The rate at the peak of the GPUs. A faster run must have been other work."""


@dataclass(frozen=True, slots=True)
class NamedMeasurements:
    """The measurements under the name of one workload, on single machines or on several that worked together."""

    by_place: Mapping[Place, Sequence[Measurement]]
    """The runs of each place, the newest first, from the place with the newest run on."""
    machines: Mapping[Place, InstanceType]
    """The places with a run whose machine is in the catalog, in the same order."""
    day: date
    """The day of the catalog, by which a run is stale."""

    @staticmethod
    def of(measured: Iterable[Measurement], catalog: Catalog, *, several: bool = False) -> "NamedMeasurements":
        """Groups what the catalog has under the name of the workload by place: on single machines, or on several."""
        # What several machines lose to their network does not transfer to a single one, nor the reverse.
        runs = sorted((run for run in measured if (run.nodes > 1) is several), key=_by_age)
        by_place = grouped((Place(run.machine, run.nodes), run) for run in runs)
        types, index_of = catalog.instance_types, catalog.index_of
        known = {place: types[index_of[place.machine]] for place in by_place if place.machine in index_of}
        return NamedMeasurements(by_place, known, catalog.day)

    def measured_on(
        self, machine: str, nodes: int = 1, is_possible: Callable[[Measurement], bool] = lambda _: True
    ) -> NamedRate | None:
        """Returns the newest rate that was measured on machines of a type, the fastest of its day, with a band that
        includes all others.

        Stale runs count only if there are no others. None without a possible run.
        """
        place = Place(machine, nodes)
        runs = [run for run in self.by_place.get(place, ()) if is_possible(run)]
        if not runs:
            return None
        newest, fresh = runs[0], [run for run in runs if not self._is_stale(run)]
        rates, rate = [run.samples_per_second for run in fresh or runs[:1]], newest.samples_per_second
        # A single measurement has a band too, because repeated runs differ.
        band = Band(min(*rates, rate / REPEATED_WITHIN), rate, max(*rates, rate * REPEATED_WITHIN))
        return NamedRate("measured", band, newest, self._days_since(newest))

    def measured_or_scaled(self, instance_type: InstanceType, precision: str | None) -> NamedRate | None:
        """Returns the rate measured on a machine, else that of the most similar one, scaled; None without a run."""
        return self.measured_on(instance_type.id) or self.scaled_to(instance_type, precision)

    def scaled_to(self, instance_type: InstanceType, precision: str | None = None) -> NamedRate | None:
        """Returns the rate on the most similar machine, times the ratio of a figure of the two machines.

        A machine with the same GPU is the most similar, then one with a GPU of the same vendor. The figure is the
        memory bandwidth of all GPUs, which predicts published runs better, else their peak. None if neither is known.
        """
        others = [
            (self.by_place[place][0], type_)
            for place, type_ in self.machines.items()
            if place.machine != instance_type.id
        ]
        for figure in SCALED_BANDS:
            here = _figure_of(instance_type, figure, precision)
            figures = [
                (run, _distance(instance_type, other), _figure_of(other, figure, precision)) for run, other in others
            ]
            ratios = [(distance, here / there, run) for run, distance, there in figures if here and there]
            if ratios:
                # Of equally near runs, min() takes the first, which is the newest.
                _, ratio, nearest = min(ratios, key=lambda option: (option[0], abs(log(option[1]))))
                return self._scaled(nearest, ratio, figure)
        return None

    def measured_or_corrected(
        self, place: Place, gpu: str | None, modelled_in: Callable[[Place], ModelledRate | None]
    ) -> NamedRate | None:
        """Returns the measured rate of a job in a place, else its estimate, corrected by a run on the same GPU.

        The correction is measured ÷ estimated rate of the newest run elsewhere with this GPU, on the most similar
        number of machines. `modelled_in` estimates the rate in a place. None without a run, and where its corrected
        rate would exceed the peak.
        """

        def is_possible(run: Measurement) -> bool:
            # A run above the peak of its machines was other work under the same name.
            modelled = modelled_in(Place(run.machine, run.nodes))
            return modelled is None or run.samples_per_second <= modelled.at_peak

        measured = self.measured_on(place.machine, place.nodes, is_possible)
        if measured is not None or gpu is None:
            return measured
        for other, type_ in sorted(self.machines.items(), key=lambda entry: abs(log(entry[0].nodes / place.nodes))):
            if type_.gpu is None or type_.gpu.id != gpu:
                continue
            run, here, there = self.by_place[other][0], modelled_in(place), modelled_in(other)
            if here and there and is_possible(run):
                corrected = self._corrected(run, here.band, there.band)
                if corrected.samples_per_second.likely <= here.at_peak:
                    return corrected
        return None

    def _scaled(self, run: Measurement, ratio: float, figure: Figure) -> NamedRate:
        likely = run.samples_per_second * ratio
        low, high = SCALED_BANDS[figure]
        band = Band(likely * low, likely, likely * high)
        return NamedRate("scaled", band, run, self._days_since(run), ratio, figure)

    def _corrected(self, run: Measurement, here: Band, there: Band) -> NamedRate:
        times = run.samples_per_second / there.likely
        bands = here, Band(ON_SAME_GPU_BAND[0], 1.0, ON_SAME_GPU_BAND[1]).times(here.likely)
        narrower = min(bands, key=lambda band: band.high / band.low)
        return NamedRate("scaled", narrower.times(times), run, self._days_since(run), times)

    def _is_stale(self, run: Measurement) -> bool:
        return self._days_since(run) > STALE_AFTER_DAYS

    def _days_since(self, run: Measurement) -> int:
        return (self.day - run.measured_on).days


def _distance(here: InstanceType, there: InstanceType) -> int:
    """Returns 0 for machines with the same GPU, 1 for GPUs of one vendor, and 2 for any others."""
    if here.gpu is None or there.gpu is None or here.gpu.vendor != there.gpu.vendor:
        return 2
    return int(here.gpu.id != there.gpu.id)


def _by_age(measurement: Measurement) -> tuple[int, float, str]:
    # Of one day the fastest counts: it is the run with the best batch size.
    return -measurement.measured_on.toordinal(), -measurement.samples_per_second, measurement.id


def _figure_of(instance_type: InstanceType, figure: Figure, precision: str | None) -> float | None:
    """Returns a figure of all GPUs of a machine together; None without GPUs, or if it is unknown."""
    if figure == "memory_bandwidth":
        return instance_type.total_bandwidth_gb_per_second
    return instance_type.tflops(precision) if instance_type.gpu and precision else None
