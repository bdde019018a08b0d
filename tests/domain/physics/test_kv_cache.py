"""Requests that fit in the memory that weights leave."""

from dataclasses import replace

import pytest

from service.domain.jobs.stacks import SoftwareStack
from service.domain.physics.kv_cache import CACHE_SHARE, cache_tokens_that_fit, in_flight, replicas_in_use
from service.domain.physics.memory import inference_parts, total
from service.domain.physics.parallelism import Layout
from tests.builders.jobs import inference

GB = 1e9


def test_the_cache_takes_the_room_that_weights_and_activations_leave() -> None:
    """A token of Llama 3 8B takes 131,072 bytes."""
    config, layout = inference(), Layout()
    room = CACHE_SHARE * 80 * GB - total(inference_parts(config, layout, 0.0, 0.0))
    assert cache_tokens_that_fit(config, 80 * GB, layout) == pytest.approx(room / 131_072)
    assert cache_tokens_that_fit(config, 10 * GB, layout) == 0


def test_as_many_requests_run_as_are_asked_for_and_fit() -> None:
    many = inference(concurrency=None)
    most = float(in_flight(many, 40 * GB, Layout()))
    assert most == pytest.approx(cache_tokens_that_fit(many, 40 * GB, Layout()) / 1500)
    assert in_flight(inference(concurrency=4.0), 40 * GB, Layout()) == 4
    assert in_flight(inference(concurrency=1e6), 40 * GB, Layout()) == pytest.approx(most)
    assert in_flight(many, 1 * GB, Layout()) == 1


def test_a_stack_limits_how_many_requests_run() -> None:
    config = inference(concurrency=None, input_length=10.0, output_length=10.0)
    assert in_flight(replace(config, software=SoftwareStack("vllm")), 80 * GB, Layout()) == 256


def test_replicas_without_a_request_stay_idle() -> None:
    layout = Layout(data=8)
    assert replicas_in_use(inference(concurrency=3.0), layout) == 3
    assert replicas_in_use(inference(concurrency=None), layout) == 8
    assert in_flight(inference(concurrency=16.0), 80 * GB, layout) == 2
