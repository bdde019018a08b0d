"""Cores and reads that keep GPUs busy."""

import pytest

from service.domain.physics.input_pipeline import (
    SampleLoading,
    cores_needed,
    samples_fed_per_second,
    samples_read_per_second,
)
from tests.builders.gpus import gpu
from tests.builders.instance_types import instance_type

EIGHT = instance_type("eight", gpu_count=8, vcpus=96.0, network_gbps=100.0)
EIGHTH = instance_type("eighth", gpu=gpu("l4-24gb-1of8", fraction=0.125), gpu_count=1, vcpus=2.0)


@pytest.mark.parametrize(
    ("loading", "rate", "needed", "ideal"),
    [
        (SampleLoading(), None, 32, 64),
        (SampleLoading(gpu_decoding=True), None, 8, 32),
        (SampleLoading(vcpus_per_gpu=10), None, 80, 80),
        (SampleLoading(samples_per_second_per_vcpu=100, vcpus_per_gpu=10), 20_000, 200, 200),
        (SampleLoading(samples_per_second_per_vcpu=100), None, 32, 64),
    ],
)
def test_cores_by_the_works_own_rate_or_as_told_or_by_the_rule(
    loading: SampleLoading, rate: float | None, needed: float, ideal: float
) -> None:
    cores = cores_needed(EIGHT, loading, rate)
    assert cores is not None
    assert (cores.needed, cores.ideal) == (needed, ideal)


def test_a_part_of_a_card_needs_its_part_of_the_cores() -> None:
    cores = cores_needed(EIGHTH, SampleLoading(), None)
    assert cores is not None
    assert (cores.needed, cores.ideal) == (0.5, 1.0)
    assert cores_needed(instance_type("cpu", gpu=None), SampleLoading(), None) is None


def test_samples_come_as_fast_as_cores_and_network_bring_them() -> None:
    assert samples_fed_per_second(EIGHT, SampleLoading(samples_per_second_per_vcpu=50)) == 4800
    assert samples_fed_per_second(EIGHT, SampleLoading()) is None
    assert samples_read_per_second(EIGHT, SampleLoading(sample_mb=0.1)) == pytest.approx(125_000)
    assert samples_read_per_second(EIGHT, SampleLoading(sample_mb=0.1, from_local_disks=True)) is None
    assert samples_read_per_second(EIGHT, SampleLoading()) is None
