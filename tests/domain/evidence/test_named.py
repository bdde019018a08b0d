"""Rates under a workload's own name: order, days, and how far a scaled rate reaches."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, timedelta
from math import isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.reference import Measurement
from service.domain.evidence.named import REPEATED_WITHIN, SCALED_BANDS, ModelledRate, NamedMeasurements, Place
from tests.builders.catalogs import catalog, measurement
from tests.builders.gpus import gpu, rate
from tests.builders.instance_types import instance_type

DAY = date(2025, 6, 1)


def machine(name: str, bandwidth: float | None = 1000.0, tflops: float | None = 100.0, count: int = 1) -> InstanceType:
    card = gpu(name, rates=[rate("bf16", dense_tflops=tflops)], memory_bandwidth_gb_per_second=bandwidth)
    return instance_type(name, gpu=card, gpu_count=count)


def runs(*measurements: Measurement, machines: Iterable[InstanceType] = ()) -> NamedMeasurements:
    """The runs under the name of the workload in a catalog that has these measurements and machines."""
    world = catalog(instance_types=tuple(machines), measurements=measurements, day=DAY)
    return NamedMeasurements.of(world.measurements.under("nightly"), world)


def test_several_nodes_say_nothing_of_one() -> None:
    together, alone = measurement(samples=700.0, nodes=8), measurement(on=date(2025, 1, 1))
    answer = runs(together, alone).measured_on("aws/a")
    assert answer is not None
    assert answer.evidence == alone
    assert runs(together).measured_on("aws/a") is None


def test_the_newest_measurement_is_likely_and_the_others_make_the_band() -> None:
    answer = runs(
        measurement(samples=90.0, on=date(2025, 2, 1)),
        measurement(samples=100.0),
        measurement(samples=110.0, on=date(2025, 3, 1)),
    ).measured_on("aws/a")
    assert answer is not None
    band = answer.samples_per_second
    assert (band.low, band.likely, band.high) == (90.0, 100.0, 110.0)
    assert (answer.basis, answer.is_stale, answer.days_old) == ("measured", False, 31)


def test_stale_measurements_count_only_alone_and_say_so() -> None:
    old = measurement(samples=10.0, on=date(2020, 1, 1))
    answer = runs(old, measurement()).measured_on("aws/a")
    assert answer is not None
    assert answer.samples_per_second.low == pytest.approx(100.0 / REPEATED_WITHIN)
    alone = runs(old).measured_on("aws/a")
    assert alone is not None
    assert (alone.is_stale, alone.days_old) == (True, 1978)


@pytest.mark.parametrize("other", [{"workload": "weekly"}, {"machine": "aws/b"}, {"on": date(2025, 6, 2)}])
def test_other_names_other_machines_and_the_future_say_nothing(other: dict[str, Any]) -> None:
    assert runs(measurement(**other)).measured_on("aws/a") is None


@given(st.floats(1, 1e6), st.floats(10, 1e4), st.floats(10, 1e4), st.integers(1, 16), st.integers(1, 16))
def test_a_scaled_rate_follows_the_memory_bandwidth(
    samples: float, here: float, there: float, count_here: int, count_there: int
) -> None:
    b, a = machine("b", here, count=count_here), machine("a", there, count=count_there)
    answer = runs(measurement(samples=samples), machines=(a, b)).scaled_to(b)
    assert answer is not None
    band = answer.samples_per_second
    assert isclose(band.likely, samples * here * count_here / (there * count_there))
    low, high = SCALED_BANDS["memory_bandwidth"]
    assert isclose(band.low, band.likely * low)
    assert isclose(band.high, band.likely * high)
    assert answer.basis == "scaled"


@pytest.mark.parametrize(
    ("bandwidth", "precision", "likely"),
    [(2000.0, "bf16", 200.0), (None, "bf16", 300.0), (None, None, None), (None, "fp8", None)],
)
def test_the_peak_stands_in_where_the_bandwidth_is_not_known(
    bandwidth: float | None, precision: str | None, likely: float | None
) -> None:
    kinds = {"aws/a": machine("a"), "aws/b": machine("b", bandwidth, 300.0)}
    answer = runs(measurement(), machines=kinds.values()).scaled_to(kinds["aws/b"], precision)
    assert (answer and answer.samples_per_second.likely) == likely


def test_the_most_similar_machine_is_scaled_and_its_age_is_stated() -> None:
    kinds = {f"aws/{name}": machine(name, bandwidth) for name, bandwidth in (("a", 500.0), ("b", 900.0), ("c", 1000.0))}
    old = DAY - timedelta(days=400)
    measured = [measurement("aws/a"), measurement("aws/b", on=old), measurement("aws/c"), measurement("on-premises/d")]
    answer = runs(*measured, machines=kinds.values()).scaled_to(kinds["aws/c"])
    assert answer is not None
    assert answer.evidence.machine == "aws/b"
    assert (answer.is_stale, answer.days_old, answer.figure) == (True, 400, "memory_bandwidth")
    assert answer.factor == pytest.approx(1000 / 900)


def test_the_same_gpu_is_scaled_before_another_and_its_vendor_before_others() -> None:
    card, other = gpu("m60"), gpu("k80")
    kinds = {
        "aws/one": instance_type("one", gpu=replace(card, memory_bandwidth_gb_per_second=160.0), gpu_count=1),
        "aws/two": instance_type("two", gpu=replace(card, memory_bandwidth_gb_per_second=160.0), gpu_count=2),
        "aws/near": instance_type("near", gpu=replace(other, memory_bandwidth_gb_per_second=320.0), gpu_count=1),
        "aws/chip": instance_type(
            "chip", gpu=replace(other, id="chip", vendor="aws", memory_bandwidth_gb_per_second=321.0), gpu_count=1
        ),
    }

    def source_of(name: str, *measured: str) -> str:
        rows = [measurement(f"aws/{machine}") for machine in measured]
        answer = runs(*rows, machines=kinds.values()).scaled_to(kinds[f"aws/{name}"])
        assert answer is not None
        return answer.evidence.machine

    assert source_of("two", "near", "one", "chip") == "aws/one"
    assert source_of("two", "chip", "near") == "aws/near"
    assert source_of("chip", "near", "one") == "aws/near"


def test_a_machine_without_a_gpu_is_not_scaled_to() -> None:
    bare = instance_type("bare", gpu=None)
    assert runs(measurement(), machines=(machine("a"), bare)).scaled_to(bare) is None


@pytest.mark.parametrize(("at_peak", "is_used"), [(399.0, False), (401.0, True)])
def test_a_run_that_would_put_another_machine_above_its_peak_was_of_other_work(at_peak: float, is_used: bool) -> None:
    """The run is twice as fast as its estimate, so the other machine would reach 400 samples per second."""
    card = gpu("card")
    small, large = instance_type("small", gpu=card, gpu_count=1), instance_type("large", gpu=card, gpu_count=2)
    measured = runs(measurement(small.id, samples=100.0), machines=[small, large])
    modelled = {
        Place(small.id): ModelledRate(Band(50.0, 50.0, 50.0)),
        Place(large.id): ModelledRate(Band(200.0, 200.0, 200.0), at_peak),
    }
    rate = measured.measured_or_corrected(Place(large.id), card.id, modelled.__getitem__)
    assert (rate is not None and rate.samples_per_second.likely == 400.0) is is_used
