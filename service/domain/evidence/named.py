"""Rates that the caller measured under the name of a workload: on a machine itself, or scaled from a similar one."""

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
"""Drivers, libraries and the workload itself change within such a time (assumed)."""

Figure = Literal["memory_bandwidth", "peak"]
SCALED_BANDS: Mapping[Figure, tuple[float, float]] = {"memory_bandwidth": (0.64, 1.56), "peak": (0.47, 2.11)}
"""The 10th and 90th percentile of truth ÷ scaled rate over 1,050 pairs of published runs (seed/published_runs.csv) of
one workload and one number of GPUs on two cards; over 1,296 pairs with other numbers it was 0.74 and 1.35."""

ON_SAME_GPU_BAND = (0.84, 1.20)
"""The 10th and 90th percentile of truth ÷ an estimate that is scaled by a run on another number of the same GPUs, over
424 pairs of published runs of language models that answer (seed/published_runs.csv), with their groups left out of the
fit; 1,630 pairs of training and of other networks are closer. The median error of all falls from 9.4 to 4.1 %."""

REPEATED_WITHIN = 1.067
"""The ratio of two runs with equal settings is below this in eight of ten cases.

It is the 80th percentile over 247 pairs of published runs (seed/published_runs.csv) with the same model, GPUs,
layout, batch, lengths, precision and software.
"""


@dataclass(frozen=True, slots=True)
class NamedWork:
    """A workload of which only the name is known, with the measurements that were sent under this name."""

    name: str
    task: str
    precision: str | None
    amount: Amount | None
    """The work of one run."""
    runs: int = 1


@dataclass(frozen=True, slots=True)
class NamedRate:
    """Samples per second of a workload by its name: measured on the machine, or scaled from another."""

    basis: Literal["measured", "scaled"]
    samples_per_second: Band
    evidence: Measurement
    """The newest measurement that was used."""
    stale: bool
    text: str


def measured_rate(
    measurements: Iterable[Measurement], workload: str, instance_type: str, as_of: date
) -> NamedRate | None:
    """Returns the newest rate of the workload on the machine, with a band that spans the others; None if there is none.

    Stale measurements only count when there are no others.
    """
    ours = [each for each in _newest_first(measurements, workload, as_of) if each.machine == instance_type]
    if not ours:
        return None
    fresh = [measurement for measurement in ours if not _is_stale(measurement, as_of)]
    rates = [each.samples_per_second for each in fresh or ours[:1]]
    newest = rates[0]
    text = (
        f"Measured on {instance_type} on {ours[0].measured_on}{_age(ours[0], as_of)}: {newest:.4g} samples per second."
    )
    # A single measurement has a band too, because a run that is repeated gives another figure.
    band = Band(min(*rates, newest / REPEATED_WITHIN), newest, max(*rates, newest * REPEATED_WITHIN))
    return NamedRate("measured", band, ours[0], not fresh, text)


def rate_by_name(
    groups: Mapping[str, Sequence[Measurement]],
    work: NamedWork,
    instance_type: InstanceType,
    instance_types: Mapping[str, InstanceType],
    as_of: date,
) -> NamedRate | None:
    """Returns the rate that was measured on a machine, or the newest one of the most similar machine, scaled.

    `groups` has the measurements of the work by machine.
    """
    measured = measured_rate(groups.get(instance_type.id, ()), work.name, instance_type.id, as_of)
    newest = [runs[0] for runs in groups.values()]
    return measured or scaled_rate(newest, work.name, instance_type, instance_types, as_of, precision=work.precision)


class ModelledRate(NamedTuple):
    """Samples per second of a job on one machine."""

    band: Band
    at_peak: float = inf
    """The rate if the GPUs computed at their peak all the time. A run that is faster did other work."""


def rate_by_own_runs(
    groups: Mapping[str, Sequence[Measurement]],
    workload: str,
    instance_type: InstanceType,
    instance_types: Mapping[str, InstanceType],
    as_of: date,
    modelled_on: Callable[[str], ModelledRate | None],
) -> NamedRate | None:
    """Returns the rate of a job that was measured on a machine, or its estimate times measured ÷ estimated rate of the
    newest run on another machine with its GPU; None without such a run.

    `groups` has the measurements by machine, and `modelled_on` the estimated rate on one machine.
    """

    def is_possible(run: Measurement) -> bool:
        modelled = modelled_on(run.machine)
        return modelled is None or run.samples_per_second <= modelled.at_peak

    # A run above the peak of its machine is of other work under the same name.
    own = [run for run in groups.get(instance_type.id, ()) if is_possible(run)]
    measured = measured_rate(own, workload, instance_type.id, as_of)
    if measured is not None or instance_type.gpu is None:
        return measured
    others = [
        runs[0] for machine, runs in groups.items() if _has_gpu(instance_types.get(machine), instance_type.gpu.id)
    ]
    for run in sorted(others, key=lambda each: (-each.measured_on.toordinal(), each.id)):
        here, there = modelled_on(instance_type.id), modelled_on(run.machine)
        if here and there and is_possible(run):
            times = run.samples_per_second / there.band.likely
            text = (
                f"The estimate is scaled by {times:.3g}, the measured over the estimated rate "
                f"of {run.machine} with the same GPU, measured on {run.measured_on}{_age(run, as_of)}."
            )
            bands = here.band, Band(ON_SAME_GPU_BAND[0], 1.0, ON_SAME_GPU_BAND[1]).times(here.band.likely)
            band = min(bands, key=lambda each: each.high / each.low).times(times)
            return NamedRate("scaled", band, run, _is_stale(run, as_of), text)
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
    """Returns the rate on the most similar machine, times the ratio of a figure of both; None when no figure is known.

    A machine with the same GPU is the most similar, then one with a GPU of the same vendor. The figure is the memory
    bandwidth of all GPUs, which predicted published runs better, else their peak.
    """
    others = [each for each in _newest_first(measurements, workload, as_of) if each.machine != instance_type.id]
    known = [(each, instance_types[each.machine]) for each in others if each.machine in instance_types]
    for figure in SCALED_BANDS:
        here = _figure_of(instance_type, figure, precision)
        figures = [
            (each, _distance(instance_type, other), _figure_of(other, figure, precision)) for each, other in known
        ]
        ratios = [(distance, here / there, each) for each, distance, there in figures if here and there]
        if ratios:
            # The newest of equally near ones is taken.
            _, ratio, nearest = min(ratios, key=lambda known: (known[0], abs(log(known[1]))))
            return _scaled(nearest, ratio, figure, as_of)
    return None


def _distance(here: InstanceType, there: InstanceType) -> int:
    """0 for the same GPU, 1 for the same vendor, 2 for another one."""
    if here.gpu is None or there.gpu is None or here.gpu.vendor != there.gpu.vendor:
        return 2
    return int(here.gpu.id != there.gpu.id)


def newest_by_machine(measurements: Iterable[Measurement], workload: str, as_of: date) -> dict[str, list[Measurement]]:
    """Returns the measurements of the workload on one node by machine, the newest of each first."""
    groups: dict[str, list[Measurement]] = {}
    for each in _newest_first(measurements, workload, as_of):
        groups.setdefault(each.machine, []).append(each)
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
    # The loss of several nodes to their network does not transfer to other machines.
    on_one_node = [measurement for measurement in measurements if measurement.nodes == 1]
    ours = [each for each in on_one_node if each.workload == workload and each.measured_on <= as_of]
    return sorted(ours, key=lambda each: (-each.measured_on.toordinal(), each.id))


def _is_stale(measurement: Measurement, as_of: date) -> bool:
    return (as_of - measurement.measured_on).days > STALE_AFTER_DAYS


def _age(measurement: Measurement, as_of: date) -> str:
    return f", {(as_of - measurement.measured_on).days} days ago" if _is_stale(measurement, as_of) else ""


def _figure_of(instance_type: InstanceType, figure: Figure, precision: str | None) -> float | None:
    """Returns a figure of all GPUs of a machine together; None without GPUs, or if it is unknown."""
    if figure == "memory_bandwidth":
        return instance_type.total_bandwidth_gb_per_second
    return instance_type.tflops(precision) if instance_type.gpu and precision else None
