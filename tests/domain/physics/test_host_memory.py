"""Contents of host memory, and the consequences where they do not fit."""

from dataclasses import replace

import pytest

from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.cluster_table import cluster_table
from service.domain.layouts.search import best_layout
from service.domain.layouts.training_search import fastest_training_layouts
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import estimate_config
from service.domain.physics.host_memory import host_memory_need
from service.domain.physics.memory import figures, training_parts
from service.domain.physics.parallelism import Layout
from service.domain.physics.training_roofline import training_demands
from service.domain.units import GIB
from tests.builders.calibrations import FITTED, UNFITTED
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import inference, model, training


def with_host(gib: float | None, where: Cluster) -> Cluster:
    return replace(where, host_memory_bytes=None if gib is None else gib * GIB)


def test_offloaded_adam_takes_24_bytes_per_parameter_of_the_node() -> None:
    """DeepSpeed's estimator of ZeRO-3 with the optimizer offloaded: 16 P / nodes x 1.5."""
    work = training(offload_optimizer=True)
    need = host_memory_need(work, cluster(nodes=2), Layout(data=16, zero_stage=3))
    assert need.parts["offload"] == pytest.approx(16 * 8.03e9 * 1.5 / 2)
    assert "offload" not in host_memory_need(training(), cluster(), Layout(data=8)).parts


def test_offloaded_weights_are_in_host_memory_and_each_gpu_fetches_its_shard() -> None:
    """8.03 billion weights of 2 bytes, shards of 8 ranks, fetched forward and backward in each of 4 micro-batches."""
    work, layout = training(offload_parameters=True), Layout(data=8, zero_stage=3, accumulation=4)
    need = host_memory_need(work, cluster(nodes=2), layout)
    assert need.parts["offload"] == pytest.approx(2 * 8.03e9 * 1.5 / 2)
    parts, resident = (figures(training_parts(each, layout)) for each in (work, training()))
    assert parts["weights"] == 0
    assert {**parts, "weights": resident["weights"]} == resident
    demands = training_demands(work, layout, 8)
    assert demands["fetch", "host_link"] == pytest.approx(2 * 8.03e9 / 8 * 2 * 4)
    reference = training_demands(replace(work, has_reference=True), layout, 8)
    # The weights of the reference model are offloaded too, and their part is fetched once more.
    assert reference["fetch", "host_link"] == pytest.approx(2 * 2 * 8.03e9 / 8 * 3 * 4)
    assert "fetch" not in {term for term, _ in training_demands(training(), layout, 8)}


def test_offloaded_activations_are_in_the_memory_of_the_host() -> None:
    """A GPU sends away what 32 layers keep of 4 x 2,048 tokens of width 4,096, and holds two layers of it."""
    layout, plain = Layout(data=8, micro_batch=4, activation_checkpointing="full"), training(sequence_length=2048)
    work = replace(plain, offload_activations=True)
    of_layer = 4 * 2048 * 4096 * 2
    assert host_memory_need(work, cluster(nodes=2), layout).parts["activations"] == 8 * 32 * of_layer
    assert "activations" not in host_memory_need(plain, cluster(), layout).parts
    kept = replace(layout, activation_checkpointing="none")
    assert "activations" not in host_memory_need(work, cluster(), kept).parts
    parts, resident = (training_parts(each, layout)["boundaries"] for each in (work, plain))
    assert (parts, resident) == (2 * of_layer, 32 * of_layer)


def test_a_job_whose_activations_fill_the_host_does_not_fit() -> None:
    """A sequence of 32,768 tokens takes 8 GiB of the host for each of eight GPUs."""
    work = training(sequence_length=32768, global_batch=8, offload_activations=True, chunked_loss=True)
    work, machines = (
        replace(work, software=SoftwareStack("torchtune")),
        [with_host(gib, cluster()) for gib in (1024, 64)],
    )
    roomy, tight = (best_layout(FITTED, work, each, FixedLayout(context=1)) for each in machines)
    assert roomy.layout.activation_checkpointing == "full"
    assert roomy.host.parts["activations"] / GIB == pytest.approx(64)
    assert (roomy.fits_surely, tight.fits) == (True, False)
    found = fastest_training_layouts(FITTED, work, cluster_table(machines), FixedLayout(context=1))
    assert list(found.fits) == [True, False]


def test_one_gpu_holds_a_layer_of_offloaded_weights_at_a_time() -> None:
    parts = figures(training_parts(training(offload_parameters=True), Layout(zero_stage=3)))
    assert parts["weights"] == 0
    assert parts["live"] == pytest.approx(2 * 8.03e9 * 2 / 32)


def test_offload_makes_room_on_the_gpu_and_takes_time() -> None:
    plain = estimate_config(
        UNFITTED, training(), cluster(gpu_with_peaks(memory_gb=400)), Layout(data=8, accumulation=8)
    )
    other = estimate_config(
        UNFITTED,
        training(offload_optimizer=True),
        cluster(gpu_with_peaks(memory_gb=400)),
        Layout(data=8, accumulation=8),
    )
    gradients = 2 - 2 / 32  # those of one of the 32 layers stay
    assert plain.memory.needed_bytes - other.memory.needed_bytes == pytest.approx((12 + gradients) * 8.03e9)
    assert plain.step is not None
    assert other.step is not None
    assert other.step.seconds > plain.step.seconds


def test_too_little_host_memory_does_not_fit_though_the_gpus_would_hold_it() -> None:
    work = training(offload_optimizer=True)
    small = best_layout(FITTED, work, with_host(128, cluster()))
    assert small.memory.fits
    assert small.host is not None
    assert not small.host.fits
    assert not small.fits
    assert small.samples_per_second is None
    assert best_layout(FITTED, work, with_host(1024, cluster())).fits
    assert best_layout(FITTED, work, with_host(None, cluster())).fits


def test_hosts_are_checked_for_each_machine_of_a_table() -> None:
    table = cluster_table([with_host(gib, cluster()) for gib in (128, 1024, None)])
    found = fastest_training_layouts(FITTED, training(offload_optimizer=True), table)
    assert list(found.fits) == [False, True, True]


def test_pictures_wait_in_host_memory() -> None:
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    work = training(model=resnet, sequence_length=0, global_batch=2048)
    need = host_memory_need(work, cluster(), Layout(data=8, micro_batch=256))
    assert 8 * 4 * 2 * 256 * 600e3 < need.parts["data_loading"] < 60e9


@pytest.mark.parametrize("family", ["other", "recurrent", "recommender"])
def test_rows_of_numbers_are_smaller_than_pictures(family: str) -> None:
    """A batch of 65,536 rows took 295 GiB, as if they were pictures, and fitted on no machine."""
    rows = model(None, 1e6, family=family, forward_flops_per_sample=2e6)
    work = training(model=rows, sequence_length=0, global_batch=65536)
    assert host_memory_need(work, cluster(), Layout(micro_batch=65536)).parts["data_loading"] < 16e9


def test_answering_needs_a_process_per_gpu() -> None:
    assert not best_layout(UNFITTED, inference(), with_host(4, cluster())).fits
    assert best_layout(UNFITTED, inference(), with_host(64, cluster())).fits
