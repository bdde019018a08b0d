"""Properties of every estimate, with and without fitted coefficients."""

from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.calibration.calibration import Calibration
from service.domain.calibration.step_kinds import TRAINING
from service.domain.jobs.config import InferenceConfig, Method, TrainingConfig
from service.domain.jobs.stacks import SoftwareStack
from service.domain.models.counts import training_flops_per_sample
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_config, overhead_beyond_steps
from service.domain.physics.features import training_features
from service.domain.physics.parallelism import Layout
from service.domain.physics.training_roofline import training_terms
from tests.builders.calibrations import FITTED, UNFITTED
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import MIXTRAL, inference, model, training

STACKS = ["unknown", "megatron-bridge", "torchtune", "early-pytorch-ngc", "tensorrt-llm", "vllm", "llama.cpp"]
calibration = st.sampled_from([UNFITTED, FITTED])
more = st.floats(1.0, 8.0)
stack = st.sampled_from(STACKS).map(SoftwareStack)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2]))
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        data=16 // (tensor * pipeline),
        zero_stage=draw(st.sampled_from([0, 1, 2, 3])),
        micro_batch=draw(st.sampled_from([1, 2, 4])),
        accumulation=draw(st.sampled_from([1, 4, 16])),
        activation_checkpointing=draw(st.sampled_from(["none", "selective", "full"])),
    )


def works(precision: str = "bf16", software: SoftwareStack | None = None) -> TrainingConfig:
    return training(precision=precision, software=software or SoftwareStack())


def train(with_: Calibration, where: Cluster, layout: Layout, work: TrainingConfig | None = None) -> Estimate:
    return estimate_config(with_, work or works(), where, layout)


@given(calibration, layouts(), stack, st.floats(8, 160), more)
def test_more_memory_never_stops_fitting(
    with_: Calibration, layout: Layout, software: SoftwareStack, gb: float, times: float
) -> None:
    small, large = (cluster(gpu_with_peaks(memory_gb=size), nodes=2) for size in (gb, gb * times))
    work = works(software=software)
    assert train(with_, small, layout, work).fits <= train(with_, large, layout, work).fits


HUGE = 100_000.0


@given(calibration, layouts(), stack, more, more, more, more)
def test_faster_hardware_never_trains_slower(
    with_: Calibration,
    layout: Layout,
    software: SoftwareStack,
    flops: float,
    bandwidth: float,
    link: float,
    network: float,
) -> None:
    work = works(software=software)
    slow = train(with_, cluster(gpu_with_peaks(memory_gb=HUGE), nodes=2), layout, work)
    card = gpu_with_peaks(memory_gb=HUGE, tflops=312 * flops, bandwidth=2039 * bandwidth)
    fast = train(with_, cluster(card, nodes=2, link=600 * link, network_gbps=800 * network), layout, work)
    assert slow.samples_per_second is not None
    assert fast.samples_per_second is not None
    assert fast.samples_per_second.likely >= slow.samples_per_second.likely * (1 - 1e-9)
    assert fast.samples_per_second.low >= slow.samples_per_second.low * (1 - 1e-9)


@given(calibration, stack, st.sampled_from([1, 2, 8]), st.sampled_from([None, 1.0, 32.0]), more, more, more, more)
def test_faster_hardware_never_answers_slower(
    with_: Calibration,
    software: SoftwareStack,
    tensor: int,
    concurrency: float | None,
    flops: float,
    bandwidth: float,
    link: float,
    memory: float,
) -> None:
    work, layout = inference(software=software, concurrency=concurrency), Layout(tensor=tensor, data=8 // tensor)
    slow = estimate_config(with_, work, cluster(), layout)
    card = gpu_with_peaks(memory_gb=80 * memory, tflops=312 * flops, bandwidth=2039 * bandwidth)
    fast = estimate_config(with_, work, cluster(card, link=600 * link), layout)
    assert slow.tokens_per_second is not None
    assert fast.tokens_per_second is not None
    assert fast.tokens_per_second.likely >= slow.tokens_per_second.likely * (1 - 1e-9)


@given(calibration, layouts(), stack)
def test_a_smaller_precision_never_needs_more_memory_to_train(
    with_: Calibration, layout: Layout, software: SoftwareStack
) -> None:
    needs = [
        estimate_config(with_, works(precision, software), cluster(nodes=2), layout).memory.needed_bytes
        for precision in ("fp8", "bf16", "tf32", "fp32")
    ]
    assert needs == sorted(needs)


@given(calibration, stack, st.sampled_from([1, 2, 4]))
def test_smaller_weights_never_need_more_memory_to_answer(
    with_: Calibration, software: SoftwareStack, tensor: int
) -> None:
    layout = Layout(tensor=tensor, data=8 // tensor)
    needs = [
        estimate_config(
            with_, inference(weight_bits=bits, concurrency=1.0, software=software), cluster(), layout
        ).memory.needed_bytes
        for bits in (4.25, 8.0, 16.0, 32.0)
    ]
    assert needs == sorted(needs)


@pytest.mark.parametrize("tokens", [1.0, 4.0, 200.0])
def test_clients_of_static_batches_lose_nothing_to_more_memory(tokens: float) -> None:
    """With room for all clients but a few, the engine must not seem to find whole batches of the same few waiting."""
    work = inference(input_length=500.0, output_length=tokens, concurrency=40.0, software=SoftwareStack("transformers"))
    rates, requests = [], []
    for gib in np.linspace(16.0, 24.0, 200).tolist():
        where = cluster(replace(gpu_with_peaks(), usable_memory_gib=gib), gpus=1)
        estimate = estimate_config(FITTED, work, where, Layout())
        if estimate.fits:
            assert estimate.tokens_per_second is not None
            rates.append(estimate.tokens_per_second.likely)
            requests.append(estimate.concurrency)
    assert set(range(10, 41)) <= set(requests)
    assert (np.diff(rates) >= -1e-9 * np.array(rates[1:])).all()


@pytest.mark.parametrize("data", [1, 4])
def test_clients_that_wait_use_no_experts_of_the_batch_that_runs(data: int) -> None:
    """Experts that are computed one after another start kernels for the requests that run on their own replica."""
    where = cluster(gpu_with_peaks(memory_gb=100), gpus=data)

    def at(clients: float | None) -> Estimate:
        work = inference(model=MIXTRAL, input_length=4000.0, output_length=200.0, concurrency=clients)
        return estimate_config(
            UNFITTED, replace(work, software=SoftwareStack("transformers")), where, Layout(data=data)
        )

    most = at(None).concurrency
    assert most is not None
    full, waiting = at(most), at(4.0 * most)
    assert waiting.concurrency == full.concurrency == most
    assert full.seconds_per_output_token == waiting.seconds_per_output_token == at(None).seconds_per_output_token


def test_what_does_not_fit_has_no_rate_but_says_what_it_needs() -> None:
    found = train(UNFITTED, cluster(gpu_with_peaks(memory_gb=16), gpus=1), Layout())
    assert not found.fits
    assert found.samples_per_second is None
    assert found.memory.needed_bytes == pytest.approx(sum(found.memory.parts.values()))
    assert found.memory.needed_bytes > 16 * 8.03e9


@given(calibration, layouts(), stack)
def test_memory_is_the_likely_figure_of_its_band_and_the_sum_of_its_parts(
    with_: Calibration, layout: Layout, software: SoftwareStack
) -> None:
    found = train(with_, cluster(nodes=2), layout, works(software=software)).memory
    assert found.needed_bytes == pytest.approx(found.band.likely)
    assert found.needed_bytes == pytest.approx(sum(found.parts.values()))
    assert found.fits == (found.fit_probability >= 0.5)


def test_parts_of_a_step_add_up_and_name_the_bottleneck() -> None:
    found = train(UNFITTED, cluster(), Layout(data=8, zero_stage=3, accumulation=8, activation_checkpointing="full"))
    assert found.step is not None
    assert found.step.seconds == pytest.approx(sum(found.step.parts.values()))
    assert found.bottleneck == "gpu_compute"
    assert found.extrapolates == ("stack", "gpu", "model")


def test_a_convolutional_network_is_estimated_from_its_flops() -> None:
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    work = TrainingConfig(resnet, precision="fp16", global_batch=2048, software=SoftwareStack("early-pytorch-ngc"))
    found = estimate_config(FITTED, work, cluster(), Layout(data=8, micro_batch=256))
    assert found.samples_per_second is not None
    assert 5_000 < found.samples_per_second.likely < 40_000
    answered = estimate_config(FITTED, InferenceConfig(resnet, "fp16", concurrency=128.0), cluster(gpus=1), Layout())
    assert answered.samples_per_second is not None


@given(layouts(), stack)
def test_hours_count_what_runs_of_the_stack_had_beyond_their_steps(layout: Layout, software: SoftwareStack) -> None:
    work = replace(works(), software=software)
    facts = training_features(work, cluster(), layout)
    wall, steps = (
        FITTED.coefficients.log_factor(TRAINING, "*", each) for each in ({**facts, "measured": "wall"}, facts)
    )
    beyond = overhead_beyond_steps(FITTED, work, cluster(), layout)
    assert beyond == pytest.approx(exp(wall - steps) - 1)
    assert beyond >= 0


@given(calibration, layouts(), stack, st.sampled_from(["full", "lora"]), st.floats(0.1, 1e4))
def test_no_rate_is_above_the_peak(
    with_: Calibration, layout: Layout, software: SoftwareStack, method: Method, tflops: float
) -> None:
    where = cluster(gpu_with_peaks(memory_gb=HUGE, tflops=tflops, bandwidth=1e6), nodes=2, link=1e6, network_gbps=1e7)
    work = replace(works(software=software), method=method)
    found = train(with_, where, layout, work)
    assert found.samples_per_second is not None
    passes = 3.0 if method == "full" else 2.0
    flops = training_flops_per_sample(work.model, work.sequence_length, passes)
    assert flops is not None
    assert found.samples_per_second.likely * flops / where.gpus <= tflops * 1e12 * (1 + 1e-9)


@given(calibration, layouts(), stack, st.floats(1e6, 1e9))
def test_no_step_is_shorter_than_its_gradients_take_on_the_network(
    with_: Calibration, layout: Layout, software: SoftwareStack, rate: float
) -> None:
    where = replace(cluster(gpu_with_peaks(memory_gb=HUGE), nodes=2), network_bytes_per_second=rate)
    found = train(with_, where, layout, works(software=software))
    assert found.step is not None
    least = training_terms(works(software=software), where, layout).least_seconds
    assert found.step.seconds >= least * (1 - 1e-9)
    assert sum(found.step.parts.values()) == pytest.approx(found.step.seconds)


@given(calibration, layouts(), stack, st.sampled_from([2, 4]))
def test_a_larger_micro_batch_is_never_slower(
    with_: Calibration, layout: Layout, software: SoftwareStack, times: int
) -> None:
    where, work = cluster(gpu_with_peaks(memory_gb=HUGE), nodes=2), works(software=software)
    small = train(with_, where, replace(layout, pipeline=1, data=layout.data * layout.pipeline), work)
    large = train(with_, where, replace(small.layout, micro_batch=times * layout.micro_batch), work)
    assert small.step is not None
    assert large.step is not None
    matrix = [step.parts["matrix"] + step.parts["narrow"] for step in (small.step, large.step)]
    assert matrix[1] / times <= matrix[0] * (1 + 1e-9)


@given(calibration, layouts(), stack, st.sampled_from([2, 4, 32]))
def test_more_nodes_at_the_same_batch_per_gpu_never_lower_the_rate(
    with_: Calibration, layout: Layout, software: SoftwareStack, times: int
) -> None:
    """Holds from two nodes on: a first network slower than the links inside a node may cost more than it brings."""
    card, work = gpu_with_peaks(memory_gb=HUGE), works(software=software)
    few = train(with_, cluster(card, nodes=2), layout, work)
    many = train(with_, cluster(card, nodes=2 * times), replace(layout, data=times * layout.data), work)
    assert few.samples_per_second is not None
    assert many.samples_per_second is not None
    assert many.samples_per_second.likely >= few.samples_per_second.likely * (1 - 1e-9)


def test_a_network_without_work_that_counts_has_a_rate() -> None:
    tiny = model(None, 1.0, family="cnn", forward_flops_per_sample=5e-324)
    found = estimate_config(UNFITTED, TrainingConfig(tiny, global_batch=1), cluster(), Layout(data=8))
    assert found.samples_per_second is not None
    assert found.samples_per_second.low <= found.samples_per_second.high
