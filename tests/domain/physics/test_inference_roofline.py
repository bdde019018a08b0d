"""Ideal seconds of reading a prompt and of decoding."""

from dataclasses import replace

import pytest

from service.domain.jobs.stacks import SoftwareStack
from service.domain.physics.estimate import estimate_config
from service.domain.physics.inference_roofline import (
    forward_terms,
    generation_demands,
    prefill_terms,
)
from service.domain.physics.parallelism import Layout
from tests.builders.calibrations import UNFITTED
from tests.builders.clusters import cluster
from tests.builders.jobs import inference, model


def test_decoding_alone_waits_for_memory() -> None:
    found = estimate_config(UNFITTED, inference(concurrency=1.0), cluster(gpus=1), Layout())
    assert found.bottleneck == "gpu_memory_bandwidth"
    assert found.seconds_to_first_token is not None
    assert found.seconds_per_output_token is not None


def test_decoding_reads_every_weight_once_and_the_cache_of_every_conversation() -> None:
    """8.03e9 parameters without an embedding of 0.53e9, and 131,072 bytes of cache per token, at 16 bits."""
    config = inference(input_length=900.0, output_length=200.0)
    demands = generation_demands(config, Layout(), 1, 4.0)
    assert demands["weights", "memory"] == pytest.approx(2 * 7.5e9, rel=0.01)
    assert demands["cache", "memory"] == pytest.approx(4 * 1000 * 131_072)
    quantised = generation_demands(replace(config, weight_bits=4.0), Layout(), 1, 4.0)
    assert quantised["weights", "memory"] == pytest.approx(demands["weights", "memory"] / 4)


def test_a_prompt_takes_two_flops_per_parameter_and_token() -> None:
    step = prefill_terms(inference(input_length=2000.0), cluster(gpus=1), Layout())
    assert step.units == 2000
    assert step.seconds["prefill"] == pytest.approx(2 * 7.5e9 * 2000 / 312e12, rel=0.01)


def test_serving_reads_one_prompt_for_every_answer() -> None:
    """One of 500 conversations with answers of 500 tokens ends per step, and the prompt of its successor is read."""
    config = inference(concurrency=500.0, software=SoftwareStack("vllm"))
    serving = generation_demands(config, Layout(), 1, 500.0)
    seconds = prefill_terms(config, cluster(gpus=1), Layout()).seconds
    assert serving["prefill", "flops"] / 312e12 == pytest.approx(seconds["prefill"])


def test_a_larger_batch_takes_more_flops_and_the_same_weights() -> None:
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    one, many = (
        forward_terms(inference(model=resnet, concurrency=batch), cluster(gpus=1)).seconds for batch in (1.0, 64.0)
    )
    assert many["matrix"] == pytest.approx(64 * one["matrix"])
    assert many["weights"] == one["weights"]
