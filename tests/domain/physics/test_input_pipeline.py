"""Cores and reads that keep GPUs busy."""

from dataclasses import replace

import pytest

from service.domain.jobs.loading import SampleLoading
from service.domain.physics.cluster import cluster_of_instance
from service.domain.physics.input_pipeline import cores_needed, feed_of, preparation_seconds
from tests.builders.gpus import gpu
from tests.builders.instance_types import instance_type
from tests.builders.jobs import model

EIGHT = instance_type("eight", gpu_count=8, vcpus=96.0, network_gbps=100.0)
PICTURES = model(None, 11.7e6, family="cnn", forward_flops_per_sample=3.6e9)
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
def test_cores_by_the_rate_of_the_work_or_as_stated_or_by_the_rule(
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


def test_samples_come_as_fast_as_the_cores_and_the_network_of_all_nodes_bring_them() -> None:
    two = cluster_of_instance(EIGHT, 2)
    assert feed_of(two, SampleLoading(samples_per_second_per_vcpu=50)) == {"host_cpu": 9600}
    assert feed_of(two, SampleLoading(sample_mb=0.1)) == {"network_reads": pytest.approx(250_000)}
    assert feed_of(two, SampleLoading(sample_mb=0.1, from_local_disks=True)) == {}
    assert feed_of(two, SampleLoading()) == {}


def test_one_thread_uses_one_core_of_each_node() -> None:
    one_thread = SampleLoading(samples_per_second_per_vcpu=50, single_threaded=True)
    assert feed_of(cluster_of_instance(EIGHT, 2), one_thread) == {"host_cpu": 100}
    part = instance_type("part", gpu_count=1, vcpus=0.5)
    assert feed_of(cluster_of_instance(part, 1), one_thread) == {"host_cpu": 25}


def test_what_is_unknown_of_a_host_binds_nothing() -> None:
    unknown = cluster_of_instance(instance_type("unknown", vcpus=None, network_gbps=None))
    assert feed_of(unknown, SampleLoading(samples_per_second_per_vcpu=50, sample_mb=0.1)) == {}


def test_a_small_image_takes_less_of_a_core_and_none_longer_than_stated() -> None:
    """Images of CIFAR have a 49th of the pixels of 224 x 224; a core was said to prepare 130 per second of either."""
    usual, small = (replace(PICTURES, sample=f"image {side}x{side}") for side in (224, 32))
    assert preparation_seconds(usual, SampleLoading()) == pytest.approx(1 / 130)
    assert preparation_seconds(small, SampleLoading()) == pytest.approx(1 / 130 / 49)
    assert preparation_seconds(replace(usual, sample="image 1024x1024"), SampleLoading()) == pytest.approx(1 / 130)
    assert preparation_seconds(usual, SampleLoading(samples_per_second_per_vcpu=1000)) == pytest.approx(1 / 1000)
    assert preparation_seconds(replace(usual, family="encoder"), SampleLoading()) == 0
