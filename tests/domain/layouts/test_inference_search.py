"""The layout that is chosen for inference, and properties of every layout that the search finds."""

from dataclasses import replace
from math import isfinite

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from service.domain.calibration.calibration import Calibration
from service.domain.calibration.error_bands import HARDER, NOVELTIES
from service.domain.calibration.step_kinds import FORWARD, GENERATION, INFERENCE_MEMORY
from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.serving import Length, Serving
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.best_layouts import BestLayouts
from service.domain.layouts.cluster_table import ClusterTable, cluster_table, distinct
from service.domain.layouts.inference_configs import InferenceConfigs
from service.domain.layouts.inference_search import (
    fastest_inference_layouts,
    inference_bands,
    where_inference_fits,
)
from service.domain.layouts.search import best_layout
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_config
from service.domain.physics.features import FORMAT_FEATURES, config_features
from service.domain.physics.parallelism import Layout
from tests.builders.calibrations import FITTED, UNFITTED
from tests.builders.clusters import cluster, faster
from tests.builders.jobs import LARGE_MODEL, LLAMA_3_8B, LLAMA_3_70B, inference, model
from tests.oracles.layouts import every_inference_layout, samples_per_second
from tests.strategies.layouts import clusters, found_for, inference_configs, network_rates

calibration = st.sampled_from([UNFITTED, FITTED])
more = st.floats(1.0, 8.0)
wishes = st.sampled_from([FixedLayout(), FixedLayout(tensor=2), FixedLayout(pipeline=2), FixedLayout(data=1)])
SLACK = 1 - 1e-9


def found_on(with_: Calibration, work: InferenceConfig, table: ClusterTable) -> BestLayouts:
    return fastest_inference_layouts(with_, InferenceConfigs.same(work, table), table)


def _holds(found: Estimate, work: InferenceConfig) -> bool:
    return not work.concurrency or (found.concurrency or 0.0) >= work.concurrency


def best_of_all(with_: Calibration, work: InferenceConfig, where: Cluster, fixed: FixedLayout) -> Estimate | None:
    inside, across = (
        [
            estimate_config(with_, work, where, each)
            for each in every_inference_layout(work, where, fixed, across=slow_links)
        ]
        for slow_links in (False, True)
    )
    for found in (inside, across):
        for confidence in ("fits_surely", "fits"):
            if fitting := [each for each in found if getattr(each, confidence)]:
                return max(fitting, key=lambda each: (_holds(each, work), samples_per_second(each)))
    return min(inside or across, key=lambda each: each.memory.least_bytes, default=None)


@given(calibration, inference_configs(), clusters(), wishes)
def test_the_search_equals_the_loop_over_every_layout(
    with_: Calibration, work: InferenceConfig, where: Cluster, fixed: FixedLayout
) -> None:
    found = found_for(with_, work, where, fixed)
    plain = best_of_all(with_, work, where, fixed)
    assert plain is not None
    assert (found.fits_surely, found.fits) == (plain.fits_surely, plain.fits)
    if found.fits:
        assert samples_per_second(found) == pytest.approx(samples_per_second(plain), rel=1e-6)
    else:
        assert found.memory.least_bytes == pytest.approx(plain.memory.least_bytes, rel=1e-6)


@given(calibration, inference_configs(), st.lists(clusters(), min_size=1, max_size=6))
def test_many_machines_at_once_are_each_as_alone(
    with_: Calibration, work: InferenceConfig, some: list[Cluster]
) -> None:
    known, _ = distinct(some)
    together = found_on(with_, work, cluster_table(known))
    turned = found_on(with_, work, cluster_table(known[::-1]))
    for place, where in enumerate(known):
        alone = found_for(with_, work, where)
        assert together.fits[place] == alone.fits_surely == turned.fits[-1 - place]
        for table, row in ((together, place), (turned, -1 - place)):
            assert table.needed_bytes[row] == pytest.approx(alone.memory.needed_bytes)
            assert table.units_per_second[row] == pytest.approx(_rate(with_, work, alone))
        if alone.fits_surely and alone.tokens_per_second is not None:
            one = cluster_table([where])
            bands = inference_bands(with_, InferenceConfigs.same(work, one), one)[0]
            rates = together.units_per_second[place] * bands
            band = alone.tokens_per_second
            assert list(rates) == pytest.approx([band.low, band.likely, band.high])


FORMATS: list[dict[str, object]] = [{}, {"precision": "fp16", "weight_bits": 4.25}, {"kv_precision": "fp8"}]


@given(calibration, inference_configs(), st.lists(clusters(), min_size=3, max_size=3))
def test_number_formats_of_several_gpus_at_once_are_each_as_alone(
    with_: Calibration, work: InferenceConfig, some: list[Cluster]
) -> None:
    some = [replace(each, gpu=replace(each.gpu, id=f"gpu-{number}")) for number, each in enumerate(some)]
    configs = tuple(replace(work, **formats) for formats in FORMATS)  # type: ignore[arg-type]
    table, of_gpu = cluster_table(some), np.arange(len(some))
    together = fastest_inference_layouts(with_, InferenceConfigs(configs, of_gpu), table)
    bands = inference_bands(with_, InferenceConfigs(configs, of_gpu), table)
    for row, (where, config) in enumerate(zip(some, configs, strict=True)):
        one = cluster_table([where])
        alone = found_on(with_, config, one)
        assert together.layouts.row(row) == alone.layouts.row(0)
        for name in ("fits", "needed_bytes", "sure_bytes", "units_per_second", "concurrency", "most_requests"):
            assert getattr(together, name)[row] == pytest.approx(getattr(alone, name)[0]), name
        assert bands[row] == pytest.approx(inference_bands(with_, InferenceConfigs.same(config, one), one)[0])


def test_no_band_depends_on_number_formats() -> None:
    """The search takes the bands of one configuration for GPUs that run a job in others."""
    names = {name for kind in (GENERATION, FORWARD, INFERENCE_MEMORY) for pattern in kind.banded_by for name in pattern}
    assert not names & {*FORMAT_FEATURES, *NOVELTIES}
    assert not {*FORMAT_FEATURES} & {*NOVELTIES, *HARDER}


@given(calibration, inference_configs(), clusters(), st.lists(network_rates, min_size=2, max_size=4))
def test_clusters_that_differ_in_their_network_are_each_as_alone(
    with_: Calibration, work: InferenceConfig, where: Cluster, rates: list[float]
) -> None:
    some, _ = distinct([replace(where, network_bytes_per_second=rate * 1e8) for rate in rates])
    together = found_on(with_, work, cluster_table(some))
    for row, each in enumerate(some):
        alone = found_on(with_, work, cluster_table([each]))
        assert together.layouts.row(row) == alone.layouts.row(0)
        assert together.units_per_second[row] == pytest.approx(alone.units_per_second[0])


def _rate(with_: Calibration, work: InferenceConfig, found: Estimate) -> float:
    """Tokens per second of the whole machine, without the caution about unknown stacks that bands add."""
    if found.tokens_per_second is None or not found.fits_surely:
        return 0.0
    return found.tokens_per_second.likely / with_.bands.caution(GENERATION, config_features(work), found.extrapolates)


@given(calibration, inference_configs(), clusters(), more, more, more, more)
def test_faster_hardware_never_answers_slower(
    with_: Calibration,
    work: InferenceConfig,
    where: Cluster,
    flops: float,
    bandwidth: float,
    link: float,
    network: float,
) -> None:
    slow = found_for(with_, work, where)
    fast = found_for(with_, work, faster(where, flops, bandwidth, link, network))
    assert fast.fits_surely == slow.fits_surely
    assert samples_per_second(fast) >= samples_per_second(slow) * SLACK


@given(calibration, inference_configs(), clusters(), more)
def test_more_memory_never_stops_answering(
    with_: Calibration, work: InferenceConfig, where: Cluster, times: float
) -> None:
    assert where.gpu.memory_gb is not None
    larger = replace(where, gpu=replace(where.gpu, memory_gb=where.gpu.memory_gb * times))
    assert found_for(with_, work, where).fits_surely <= found_for(with_, work, larger).fits_surely


@given(calibration, inference_configs(), clusters())
def test_experts_are_spread_over_no_unknown_network(with_: Calibration, work: InferenceConfig, where: Cluster) -> None:
    found = found_for(with_, work, replace(where, network_known=False)).layout
    assert max(found.tensor, found.expert) * found.pipeline <= where.gpus_per_node


@given(calibration, inference_configs(), clusters(), wishes)
def test_figures_are_finite_and_parts_add_up(
    with_: Calibration, work: InferenceConfig, where: Cluster, fixed: FixedLayout
) -> None:
    found = found_for(with_, work, where, fixed)
    assert isfinite(found.memory.needed_bytes)
    assert found.memory.needed_bytes == pytest.approx(sum(found.memory.parts.values()))
    assume(found.step is not None)
    assert found.step is not None
    assert found.step.seconds == pytest.approx(sum(found.step.parts.values()))
    assert (found.seconds_per_output_token is None) == (work.output_length <= 1)
    between = [] if found.seconds_per_output_token is None else [found.seconds_per_output_token]
    for band in (found.tokens_per_second, found.seconds_to_first_token, *between):
        assert band is not None
        assert 0 < band.low <= band.likely <= band.high
        assert isfinite(band.high)


# Choices


@given(calibration, st.sampled_from([1.0, 8.0, 256.0]), clusters())
def test_the_search_times_a_network_as_its_estimate_does(with_: Calibration, batch: float, where: Cluster) -> None:
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    work = inference(model=resnet, concurrency=batch, software=SoftwareStack("pytorch"))
    found = found_on(with_, work, cluster_table([where]))
    assume(bool(found.fits[0]))
    step = estimate_config(with_, work, where, Layout(data=where.gpus)).step
    assert step is not None
    assert found.units_per_second[0] == pytest.approx(step.rate * where.gpus)


def test_what_divides_nothing_is_said() -> None:
    with pytest.raises(QuestionError, match="No layout divides A model over 3 GPUs") as caught:
        best_layout(UNFITTED, inference(), cluster(gpus=3), FixedLayout(data=1, pipeline=1))
    assert caught.value.field == "layout"


def test_throughput_wants_replicas_and_one_answer_wants_all_gpus() -> None:
    many = best_layout(FITTED, inference(concurrency=None, software=SoftwareStack("vllm")), cluster())
    assert many.layout.data >= 4
    one = best_layout(FITTED, inference(concurrency=1.0, software=SoftwareStack("vllm")), cluster())
    assert one.layout.tensor == 8


@pytest.mark.parametrize("link", ["pcie", "nvlink"])
def test_clients_are_answered_by_the_layout_with_the_highest_rate(link: str) -> None:
    load = Serving(concurrency=32.0, prompt=Length(1000.0), answer=Length(500.0))
    work = inference(model=LARGE_MODEL, concurrency=None, serving=load, software=SoftwareStack("vllm"))
    where = replace(cluster(), interconnect=link)
    found, served = best_layout(FITTED, work, where), []
    for layout in every_inference_layout(work, where, FixedLayout(), across=False):
        one = estimate_config(FITTED, work, where, layout).served
        if one is not None:
            served.append((one.instances.likely, -one.requests_per_second))
    assert found.served is not None
    assert len(served) > 3
    assert (found.served.instances.likely, -found.served.requests_per_second) == min(served)


@given(
    calibration,
    st.lists(clusters(), min_size=1, max_size=4),
    st.sampled_from([(None, None, None), (2.0, 0.05, None), (0.3, None, 20.0), (None, 0.01, 5.0), (1e-4, None, None)]),
    st.booleans(),
)
def test_a_load_fits_where_some_number_of_instances_keeps_its_limits_on_times(
    with_: Calibration,
    some: list[Cluster],
    limits: tuple[float | None, float | None, float | None],
    disaggregated: bool,
) -> None:
    first, token, request = limits
    load = Serving(
        5.0,
        prompt=Length(1000.0),
        answer=Length(200.0, 500.0),
        max_seconds_to_first_token=first,
        max_seconds_per_output_token=token,
        max_seconds_per_request=None if disaggregated else request,
        disaggregated=disaggregated,
    )
    work = inference(model=LARGE_MODEL, concurrency=None, serving=load, software=SoftwareStack("vllm"))
    known, _ = distinct(some)
    table = cluster_table(known)
    found, configs = found_on(with_, work, table), InferenceConfigs.same(work, table)
    in_time = found.fits & np.isfinite(found.instances)
    assert where_inference_fits(with_, configs, table).tolist() == in_time.tolist()


def test_a_model_too_big_for_a_gpu_is_cut() -> None:
    found = best_layout(FITTED, inference(model=LARGE_MODEL, concurrency=None), cluster())
    assert found.fits_surely
    assert found.layout.model_ranks >= 2


@pytest.mark.parametrize("stack", ["llama.cpp", "exllamav2", "transformers"])
def test_a_stack_that_splits_layers_has_no_tensor_parallelism_unless_it_is_asked_for(stack: str) -> None:
    work = inference(model=LARGE_MODEL, concurrency=1.0, software=SoftwareStack(stack))
    free, asked = (best_layout(FITTED, work, cluster(), each) for each in (FixedLayout(), FixedLayout(tensor=4)))
    assert (free.layout.tensor, free.layout.pipeline > 1) == (1, True)
    assert asked.layout.tensor == 4


def test_a_stack_that_pads_heads_divides_them_over_any_number_of_chips() -> None:
    """12 Inferentia2 chips answer a model of 64 heads together, as AWS serves it."""
    twelve = replace(cluster(), gpus_per_node=12)
    found = {
        stack: best_layout(FITTED, inference(model=LARGE_MODEL, concurrency=1.0, software=SoftwareStack(stack)), twelve)
        for stack in ("transformers-neuronx", "vllm")
    }
    assert found["transformers-neuronx"].layout.tensor == 12
    assert found["vllm"].layout.tensor in (2, 4)


def test_no_gpu_has_a_part_of_a_key_value_head_that_others_share() -> None:
    """Three GPUs divide 24 heads, and neither divide eight key-value heads nor hold copies of all three."""
    of_3b = inference(model=model(replace(LLAMA_3_8B, heads=24, kv_heads=8)), concurrency=1.0)
    degrees = [
        best_layout(FITTED, replace(of_3b, model=each), cluster(gpus=3)).layout.tensor
        for each in (of_3b.model, model(replace(LLAMA_3_8B, heads=24, kv_heads=24)))
    ]
    assert degrees == [1, 3]


def test_where_no_layout_surely_fits_the_fastest_that_likely_does_is_chosen() -> None:
    """Stages divide the cache of a single head, which each GPU of a tensor group holds whole: they need less memory,
    and each token waits for all of them.
    """
    one_head = model(replace(LLAMA_3_70B, kv_heads=1), 70.6e9)
    work = inference(model=one_head, input_length=20_000.0, concurrency=1.0, software=SoftwareStack("sglang"))
    weights = best_layout(FITTED, work, cluster()).memory.parts["weights"]
    small = replace(cluster(), gpu=replace(cluster().gpu, memory_gb=weights / 1e9 * 1.2))
    found = best_layout(FITTED, work, small)
    assert (found.fits, found.fits_surely) == (True, False)
    assert (found.layout.tensor, found.layout.pipeline) == (8, 1)
