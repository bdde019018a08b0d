"""The figures of a loop are divided, and a measurement has the same id each time it is sent."""

from dataclasses import replace
from datetime import date

import pytest

from service.domain.catalog.reference import Measurement
from service.domain.evidence.measurement_id import identified, samples_per_second

TOLD = Measurement(
    id="",
    workload="a-net",
    framework="pytorch",
    machine="aws/g5.xlarge",
    gpu_count=1,
    precision=None,
    batch_size=64,
    seconds_per_batch=None,
    samples_per_second=360.0,
    usd_per_hour=None,
    measured_on=date(2023, 6, 1),
    source="sent",
    note=None,
    nodes=1,
    software="pytorch==2.0",
)


def test_a_loop_of_eight_workers() -> None:
    assert samples_per_second(steps=100, seconds=40.0, batch_size=128, world_size=8) == 2560


def test_the_id_never_changes() -> None:
    assert identified(TOLD).id == "sent-45d8272b6a3ee462ddd1cbdb"
    assert identified(replace(TOLD, id="another", gpu_count=None)).id == identified(TOLD).id


@pytest.mark.parametrize(
    "other",
    [
        {"workload": "b-net"},
        {"machine": "aws/g5.2xlarge"},
        {"nodes": 2},
        {"precision": "bf16"},
        {"batch_size": 65},
        {"seconds_per_batch": 1.0},
        {"samples_per_second": 360.5},
        {"usd_per_hour": 1.0},
        {"measured_on": date(2023, 6, 2)},
        {"software": "pytorch==2.1"},
        {"source": "another"},
        {"note": "a note"},
    ],
    ids=str,
)
def test_another_measurement_has_another_id(other: dict[str, object]) -> None:
    assert identified(replace(TOLD, **other)).id != identified(TOLD).id  # type: ignore[arg-type]
