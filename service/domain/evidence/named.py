"""Rates from measurements under the name of a workload: measured on a machine, or scaled from a similar one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from math import inf, log
from typing import Literal, NamedTuple

from service.domain.band import Band
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.reference import Measurement
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
    stale: bool
    text: str
    """A sentence on where the rate is from."""


def measured_rate(
    measurements: Iterable[Measurement], workload: str, instance_type: str, as_of: date
) -> NamedRate | None:
    """Returns the newest measured rate of a workload on a machine, with a band that includes all others.

    Stale measurements count only if there are no others. None if there is no measurement.
    """
    runs = [run for run in _newest_first(measurements, workload, as_of) if run.machine == instance_type]
    if not runs:
        return None
    newest, fresh = runs[0], [run for run in runs if not _is_stale(run, as_of)]
    rates, rate = [run.samples_per_second for run in fresh or runs[:1]], newest.samples_per_second
    text = f"Measured on {instance_type} on {newest.measured_on}{_age(newest, as_of)}: {rate:.4g} samples per second."
    # A single measurement has a band too, because repeated runs differ.
    band = Band(min(*rates, rate / REPEATED_WITHIN), rate, max(*rates, rate * REPEATED_WITHIN))
    return NamedRate("measured", band, newest, not fresh, text)


def rate_by_name(
    groups: Mapping[str, Sequence[Measurement]],
    work: NamedWork,
    instance_type: InstanceType,
    instance_types: Mapping[str, InstanceType],
    as_of: date,
) -> NamedRate | None:
    """Returns the rate that was measured on a machine, else that of the most similar machine, scaled.

    `groups` has the measurements of the work by machine, the newest first. None if no measurement can be used.
    """
    measured = measured_rate(groups.get(instance_type.id, ()), work.name, instance_type.id, as_of)
    newest = [runs[0] for runs in groups.values()]
    return measured or scaled_rate(newest, work.name, instance_type, instance_types, as_of, precision=work.precision)


class ModelledRate(NamedTuple):
    """Samples per second of a job on one machine."""

    band: Band
    at_peak: float = inf
    """The rate at the peak of the GPUs. A faster run must have been other work."""


def rate_by_own_runs(
    groups: Mapping[str, Sequence[Measurement]],
    workload: str,
    instance_type: InstanceType,
    instance_types: Mapping[str, InstanceType],
    as_of: date,
    modelled_on: Callable[[str], ModelledRate | None],
) -> NamedRate | None:
    """Returns the measured rate of a job on a machine, else its estimate, corrected by a run on the same GPU.

    The correction is measured ÷ estimated rate of the newest run on another machine with this GPU. `groups` has the
    measurements by machine, the newest first, and `modelled_on` estimates the rate on a machine. None without a run.
    """

    def is_possible(run: Measurement) -> bool:
        modelled = modelled_on(run.machine)
        return modelled is None or run.samples_per_second <= modelled.at_peak

    # A run above the peak of its machine was other work under the same name.
    own = [run for run in groups.get(instance_type.id, ()) if is_possible(run)]
    measured = measured_rate(own, workload, instance_type.id, as_of)
    if measured is not None or instance_type.gpu is None:
        return measured
    others = [
        runs[0] for machine, runs in groups.items() if _has_gpu(instance_types.get(machine), instance_type.gpu.id)
    ]
    for run in sorted(others, key=_by_age):
        here, there = modelled_on(instance_type.id), modelled_on(run.machine)
        if here and there and is_possible(run):
            times = run.samples_per_second / there.band.likely
            text = (
                f"The estimate is scaled by {times:.3g}, the measured over the estimated rate "
                f"of {run.machine} with the same GPU, measured on {run.measured_on}{_age(run, as_of)}."
            )
            bands = here.band, Band(ON_SAME_GPU_BAND[0], 1.0, ON_SAME_GPU_BAND[1]).times(here.band.likely)
            narrower = min(bands, key=lambda band: band.high / band.low)
            return NamedRate("scaled", narrower.times(times), run, _is_stale(run, as_of), text)
    return None


def _has_gpu(instance_type: InstanceType | None, gpu: str) -> bool:
    return instance_type is not None and instance_type.gpu is not None and instance_type.gpu.id == gpu


def scaled_rate(
    measurements: Iterable[Measurement],
    workload: str,
    instance_type: InstanceType,
    instance_types: Mapping[str, InstanceType],
    as_of: date,
    *,
    precision: str | None = None,
) -> NamedRate | None:
    """Returns the rate on the most similar machine, times the ratio of a figure of the two machines.

    A machine with the same GPU is the most similar, then one with a GPU of the same vendor. The figure is the memory
    bandwidth of all GPUs, which predicts published runs better, else their peak. None if neither is known.
    """
    others = [run for run in _newest_first(measurements, workload, as_of) if run.machine != instance_type.id]
    known = [(run, instance_types[run.machine]) for run in others if run.machine in instance_types]
    for figure in SCALED_BANDS:
        here = _figure_of(instance_type, figure, precision)
        figures = [(run, _distance(instance_type, other), _figure_of(other, figure, precision)) for run, other in known]
        ratios = [(distance, here / there, run) for run, distance, there in figures if here and there]
        if ratios:
            # Of equally near runs, min() takes the first, which is the newest.
            _, ratio, nearest = min(ratios, key=lambda option: (option[0], abs(log(option[1]))))
            return _scaled(nearest, ratio, figure, as_of)
    return None


def _distance(here: InstanceType, there: InstanceType) -> int:
    """Returns 0 for machines with the same GPU, 1 for GPUs of one vendor, and 2 for any others."""
    if here.gpu is None or there.gpu is None or here.gpu.vendor != there.gpu.vendor:
        return 2
    return int(here.gpu.id != there.gpu.id)


def newest_by_machine(measurements: Iterable[Measurement], workload: str, as_of: date) -> dict[str, list[Measurement]]:
    """Returns the measurements of a workload on one node by machine, the newest first."""
    groups: dict[str, list[Measurement]] = {}
    for run in _newest_first(measurements, workload, as_of):
        groups.setdefault(run.machine, []).append(run)
    return groups


def _scaled(measurement: Measurement, ratio: float, figure: Figure, as_of: date) -> NamedRate:
    likely = measurement.samples_per_second * ratio
    low, high = SCALED_BANDS[figure]
    text = (
        f"Scaled by {figure.replace('_', ' ')} ({ratio:.3g} times) from {measurement.machine}, "
        f"measured on {measurement.measured_on}{_age(measurement, as_of)}."
    )
    band = Band(likely * low, likely, likely * high)
    return NamedRate("scaled", band, measurement, _is_stale(measurement, as_of), text)


def _newest_first(measurements: Iterable[Measurement], workload: str, as_of: date) -> Sequence[Measurement]:
    # Runs on several nodes are left out, because the loss to their network does not transfer to other machines.
    runs = [run for run in measurements if run.nodes == 1 and run.workload == workload and run.measured_on <= as_of]
    return sorted(runs, key=_by_age)


def _by_age(measurement: Measurement) -> tuple[int, str]:
    return -measurement.measured_on.toordinal(), measurement.id


def _is_stale(measurement: Measurement, as_of: date) -> bool:
    return (as_of - measurement.measured_on).days > STALE_AFTER_DAYS


def _age(measurement: Measurement, as_of: date) -> str:
    return f", {(as_of - measurement.measured_on).days} days ago" if _is_stale(measurement, as_of) else ""


def _figure_of(instance_type: InstanceType, figure: Figure, precision: str | None) -> float | None:
    """Returns a figure of all GPUs of a machine together; None without GPUs, or if it is unknown."""
    if figure == "memory_bandwidth":
        return instance_type.total_bandwidth_gb_per_second
    return instance_type.tflops(precision) if instance_type.gpu and precision else None
