"""The parts of the names of instance types, and the rates of GPUs and burstable types."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.catalog.hardware import name_parts, peak_flops
from service.domain.physics.cluster import cluster_of_instance
from tests.builders.gpus import rate, unknown_gpu
from tests.builders.instance_types import event, unknown_instance_type


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("p3dn.24xlarge", ("p", 3, ("d", "n"), "24xlarge")),
        ("p3.2xlarge", ("p", 3, (), "2xlarge")),
        ("g4dn.metal", ("g", 4, ("d", "n"), "metal")),
        ("ml.g5.xlarge", ("g", 5, (), "xlarge")),
        ("trn1.32xlarge", ("trn", 1, (), "32xlarge")),
        ("m5.metal-24xl", ("m", 5, (), "metal-24xl")),
        ("p6-b200.48xlarge", ("p", 6, (), "48xlarge")),
        ("ml.p6e-gb200.36xlarge", ("p", 6, ("e",), "36xlarge")),
    ],
)
def test_a_name_of_aws_is_letters_generation_attributes_and_size(name: str, answer: tuple[object, ...]) -> None:
    assert name_parts("aws", name) == answer


def test_a_series_holds_its_variants() -> None:
    assert {parts.series for name in ("g5.xlarge", "g5g.metal") if (parts := name_parts("aws", name))} == {"g5"}


@pytest.mark.parametrize(("provider", "name"), [("azure", "Standard_NC6"), ("gcp", "a2-highgpu-1g"), ("aws", "odd")])
def test_a_name_without_a_rule_has_no_meaning(provider: str, name: str) -> None:
    assert name_parts(provider, name) is None


def test_the_oldest_listing_is_no_launch() -> None:
    listed, published = replace(event(), basis="first_seen"), replace(event(), basis="published")
    assert unknown_instance_type("listed", lifecycle=(listed,)).launched_on is None
    assert unknown_instance_type("launched", lifecycle=(published,)).launched_on == published.starts_on


def test_a_reduced_rate_is_the_peak_unless_another_format_stands_in() -> None:
    card = unknown_gpu(rates=[rate("fp32", "native", 20.0), rate("fp64", "reduced", 1.0), rate("fp16", "reduced", 0.3)])
    assert peak_flops(card, "fp64") == 1e12
    assert peak_flops(card, "fp16") == 20e12


@pytest.mark.parametrize(
    ("base", "boost", "share"),
    [
        (585.0, 1590.0, 0.6435),
        (735.0, 2490.0, 0.6399),
        (1275.0, 1410.0, 1.0),
        (1500.0, 1980.0, 1.0),
        (None, 2100.0, 1.0),
        (None, None, 1.0),
    ],
)
def test_a_card_with_a_base_clock_far_below_its_boost_clock_sustains_less_of_its_peak(
    base: float | None, boost: float | None, share: float
) -> None:
    """A T4 sustains two thirds of its peak, and an L40 no less than the card farthest below its boost clock with runs.

    An A100 and an H200 sustain theirs, and so does a card without clocks.
    """
    card = unknown_gpu(base_clock_mhz=base, boost_clock_mhz=boost)
    assert card.sustained_share("fp16") == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize(("fp16", "share"), [(181.0, 1.0), (362.0, 0.6399)])
def test_a_card_whose_matrix_engines_work_at_half_speed_holds_its_boost_clock(fp16: float, share: float) -> None:
    """Three published runs of FLUX.1 on an L20 take as long as its peak says, not 1.17 times as long."""
    rates = (rate("fp16", dense_tflops=fp16), rate("fp32", dense_tflops=90.5))
    card = unknown_gpu(base_clock_mhz=735.0, boost_clock_mhz=2490.0, tensor_core_generation=4, rates=rates)
    assert card.sustained_share("fp16") == pytest.approx(share, abs=1e-3)
    # Plain fp32 does not run on them, so an L40 with half the matrix rate is no faster in it than an RTX 6000 Ada.
    assert card.sustained_share("fp32") == pytest.approx(0.6399, abs=1e-3)


@given(st.floats(1, 4), st.floats(1, 20), st.floats(1, 2))
def test_a_faster_matrix_engine_never_slows_a_card(ratio: float, over_fp32: float, faster: float) -> None:
    shares = []
    for fp16 in (over_fp32, faster * over_fp32):
        rates = (rate("fp16", dense_tflops=10.0 * fp16), rate("fp32", dense_tflops=10.0))
        card = unknown_gpu(base_clock_mhz=1e3, boost_clock_mhz=1e3 * ratio, tensor_core_generation=4, rates=rates)
        shares.append(card.sustained_share("fp16") * fp16)
    assert shares[1] >= shares[0] * (1 - 1e-9)


@given(st.floats(500, 3000), st.floats(1, 4), st.floats(1, 2))
def test_a_higher_boost_clock_never_slows_a_card(base: float, ratio: float, faster: float) -> None:
    """The peak is in proportion to the boost clock."""
    slow, fast = (unknown_gpu(base_clock_mhz=base, boost_clock_mhz=base * ratio * times) for times in (1.0, faster))
    assert faster * fast.sustained_share("fp16") >= slow.sustained_share("fp16") * (1 - 1e-9)


def test_a_burstable_type_counts_what_it_sustains() -> None:
    """A t3.medium earns 24 credits an hour, which are 24 of the 120 minutes of its two vCPUs."""
    figures = {"vcpus": 2.0, "cpu_fp32_tflops": 0.16, "cpu_memory_bandwidth_gb_per_second": 5.0}
    whole = unknown_instance_type("m5.large", **figures)
    burstable = unknown_instance_type("t3.medium", **figures, cpu_baseline_share=0.2)
    assert whole.tflops("fp32") == 0.16
    assert burstable.tflops("fp32") == pytest.approx(0.032)
    cluster = cluster_of_instance(burstable)
    assert cluster.gpu.tflops("fp32") == pytest.approx(0.032)
    assert cluster.memory_bandwidth == pytest.approx(1e9)
    assert cluster.vcpus_per_gpu == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("figures", "gbps"),
    [
        ({"network_gbps": 25.0, "network_baseline_gbps": 5.0, "rdma": False}, 5.0),
        ({"network_gbps": 25.0, "network_baseline_gbps": 5.0, "rdma": None}, 5.0),
        ({"network_gbps": 3200.0, "network_baseline_gbps": 1600.0, "rdma": True}, 3200.0),
        ({"network_gbps": 50.0, "network_baseline_gbps": None, "rdma": False}, 50.0),
        ({"network_gbps": None, "network_baseline_gbps": None, "rdma": None}, None),
    ],
)
def test_a_network_with_credits_counts_at_its_baseline(figures: dict[str, Any], gbps: float | None) -> None:
    machine = unknown_instance_type("g4dn.xlarge", gpu=unknown_gpu(memory_gb=16.0), gpu_count=1, **figures)
    assert machine.sustained_network_gbps == gbps
    found = cluster_of_instance(machine, 2)
    assert found.network_known == (gbps is not None)
    if gbps is not None:
        assert found.network_gbps == pytest.approx(gbps)


def test_the_fastest_precision_is_one_that_the_gpus_run_at_a_known_peak() -> None:
    card = unknown_gpu(rates=[rate("fp16", "native", 50.0), rate("bf16", "none", 90.0), rate("fp8", "native", None)])
    machine = unknown_instance_type("two-cards", gpu=card, gpu_count=2)
    assert machine.fastest(("fp32", "bf16", "fp16", "fp8")) == ("fp16", 100.0)
    assert machine.fastest(("bf16", "fp8")) == (None, None)
    assert unknown_instance_type("no-gpu", gpu=None, gpu_count=0, cpu_fp32_tflops=3.0).fastest(("fp32",)) == (
        None,
        None,
    )
