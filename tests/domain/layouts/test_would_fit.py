"""Changes that make a job fit: each one named must do so, and its figure must be the limit."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from service.domain.errors import QuestionError
from service.domain.jobs.config import TrainingConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.stacks import software_called
from service.domain.layouts.search import best_layout
from service.domain.layouts.would_fit import FitChange, nearest_changes
from service.domain.physics.cluster import Cluster
from service.domain.physics.parallelism import crosses_slow_links
from service.domain.units import GIB
from tests.builders.calibrations import FITTED
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks, rate
from tests.builders.jobs import LARGE_MODEL, inference, training
from tests.strategies.layouts import clusters, training_configs


def of(changes: tuple[FitChange, ...]) -> dict[str, FitChange]:
    return {change.code: change for change in changes}


def test_nothing_changes_what_fits() -> None:
    assert nearest_changes(FITTED, training(), cluster()) == ()


def test_a_wish_given_up_comes_first() -> None:
    fixed = FixedLayout(zero_stage=0, data=8)
    changes = nearest_changes(FITTED, training(), cluster(), fixed)
    assert [change.code for change in changes[:2]] == ["data", "zero_stage"]
    assert changes[1].to in (1, 2, 3)


@settings(max_examples=30)
@given(training_configs(), clusters())
def test_with_the_confidence_named_it_fits(work: TrainingConfig, where: Cluster) -> None:
    change = of(nearest_changes(FITTED, work, where)).get("memory_confidence")
    if change is not None:
        assert isinstance(change.to, float)
        assert best_layout(FITTED, replace(work, memory_confidence=change.to), where).fits_surely
        assert 0.5 <= change.to < work.memory_confidence


@settings(max_examples=30)
@given(training_configs(), clusters())
def test_a_change_of_a_job_that_likely_fits_makes_it_fit(work: TrainingConfig, where: Cluster) -> None:
    try:
        now = best_layout(FITTED, work, where)
    except QuestionError:
        return
    if not now.fits or now.fits_surely:
        return
    changes = of(nearest_changes(FITTED, work, where, now=now))
    if "offload_optimizer" in changes:
        assert best_layout(FITTED, replace(work, offload_optimizer=True), where).fits_surely
    if "nodes" in changes:
        assert best_layout(FITTED, work, replace(where, nodes=int(changes["nodes"].to))).fits_surely


def test_a_job_that_likely_fits_is_sure_to_with_a_smaller_optimizer_or_twice_the_nodes() -> None:
    work, where = training(model=LARGE_MODEL, global_batch=64), replace(cluster(), nodes=2)
    need = best_layout(FITTED, work, where).memory
    gib = (need.needed_bytes + need.sure_bytes) / 2 / GIB
    likely = replace(where, gpu=replace(where.gpu, usable_memory_gib=gib))
    changes = of(nearest_changes(FITTED, work, likely))
    assert {"memory_confidence", "optimizer", "nodes", "usable_memory_gib"} <= changes.keys()
    assert changes["nodes"].to == 4


def test_70b_on_one_node_needs_more_nodes_or_lora() -> None:
    work = training(model=LARGE_MODEL)
    changes = of(nearest_changes(FITTED, work, cluster()))
    assert {"method", "nodes", "usable_memory_gib"} <= set(changes)
    nodes = int(changes["nodes"].to)
    assert best_layout(FITTED, work, replace(cluster(), nodes=nodes)).fits_surely
    assert not best_layout(FITTED, work, replace(cluster(), nodes=nodes - 1)).fits_surely


def test_8b_on_one_gpu_of_100_gb_needs_no_fp32_copy() -> None:
    """Full training takes 16 bytes per parameter, and 8 with everything in bf16, as in torchtune on one GPU."""
    work, where = training(), cluster(gpu_with_peaks(memory_gb=100), gpus=1)
    change = of(nearest_changes(FITTED, work, where))["mixed_precision"]
    assert change.to is False
    pure = best_layout(FITTED, replace(work, recipe="pure"), where)
    assert pure.fits_surely
    assert change.needed_bytes == pure.memory.least_bytes
    for other in (replace(work, recipe="pure"), replace(work, precision="fp16"), replace(work, method="lora")):
        assert "mixed_precision" not in of(nearest_changes(FITTED, other, where))


@settings(max_examples=30)
@given(training_configs(), clusters())
def test_the_memory_named_is_the_least_that_does(work: TrainingConfig, where: Cluster) -> None:
    change = of(nearest_changes(FITTED, work, where)).get("usable_memory_gib")
    if change is None:
        return
    assert isinstance(change.to, float)
    enough, short = (replace(where, gpu=replace(where.gpu, usable_memory_gib=change.to * by)) for by in (1.0001, 0.98))
    assert best_layout(FITTED, work, enough).fits_surely
    assert change.needed_bytes / GIB <= change.to
    found = best_layout(FITTED, work, short)
    assert not found.fits_surely or crosses_slow_links(found.layout.tensor, where.linked_gpus)


def test_answering_may_keep_fewer_bits() -> None:
    work = inference(model=LARGE_MODEL)
    changes = nearest_changes(FITTED, work, cluster(gpu_with_peaks(memory_gb=80), gpus=1))
    assert ("weight_precision", "int4") in [(change.code, change.to) for change in changes]
    assert "weight_precision" in of(changes)
    smaller = replace(work, weight_bits=4.25)
    assert best_layout(FITTED, smaller, cluster(gpu_with_peaks(memory_gb=80), gpus=1)).fits_surely


@pytest.mark.parametrize(("engine", "memory_gb", "narrows"), [("faster-whisper", 43, False), ("vllm", 36, True)])
def test_a_narrow_cache_is_offered_where_the_engine_has_one(engine: str, memory_gb: float, narrows: bool) -> None:
    """CTranslate2 has no cache of 8 bits, and one was offered for Whisper on an M60."""
    work = inference(input_length=100_000, concurrency=1.0, software=software_called(engine))
    changes = nearest_changes(FITTED, work, cluster(gpu_with_peaks(memory_gb=memory_gb), gpus=1))
    assert ("kv_cache_precision" in of(changes)) == narrows


def test_fewer_bits_need_less_although_an_engine_fills_the_rest_with_its_cache() -> None:
    work = inference(model=LARGE_MODEL, concurrency=None)
    changes = nearest_changes(FITTED, work, cluster(gpu_with_peaks(memory_gb=100), gpus=1))
    needed = {change.to: change.needed_bytes for change in changes if change.code == "weight_precision"}
    assert needed["int4"] < 0.7 * needed["int8"]


def test_a_small_host_is_reported_with_what_it_lacks() -> None:
    work = training(offload_optimizer=True)
    small = replace(cluster(), host_memory_bytes=64 * GIB)
    change = of(nearest_changes(FITTED, work, small))["host_memory_gib"]
    assert isinstance(change.to, float)
    assert best_layout(FITTED, work, replace(small, host_memory_bytes=change.to * GIB * 1.001)).fits_surely


def test_weights_in_8_bits_are_floats_only_where_the_gpu_has_them() -> None:
    plain = gpu_with_peaks(memory_gb=100)
    for gpu, name in ((plain, "int8"), (replace(plain, rates={**plain.rates, "fp8": rate("fp8")}), "fp8")):
        changes = nearest_changes(FITTED, inference(model=LARGE_MODEL), cluster(gpu, gpus=1))
        assert [each.to for each in changes if each.code == "weight_precision"] == [name, "int4"]
