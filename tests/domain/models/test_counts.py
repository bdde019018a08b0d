"""Worked examples of the formulas: published figures that must come out."""

from dataclasses import replace

import pytest

from service.domain.catalog.precision import bytes_per_value
from service.domain.models.counts import (
    attention_share,
    cache_bytes,
    experts_touched,
    forward_flops_per_token,
    korthikanti_flops_per_iteration,
    multiplied_parameters,
    parameters_touched,
)
from service.domain.physics.collectives import all_reduce_seconds
from service.domain.physics.memory import korthikanti_activation_bytes, layer_activation_bytes, stored_weight_bytes
from service.domain.physics.parallelism import Layout, bubble_share
from tests.builders.jobs import GPT_175B, LLAMA_2_7B, LLAMA_3_8B, model

GIB = 1024**3


def test_175b_runs_at_514_per_mille_of_peak() -> None:
    """Korthikanti et al. 2022: 64 sequences of 2048 in 13.75 s on 64 A100."""
    flops = korthikanti_flops_per_iteration(GPT_175B, batch=64, sequence=2048)
    assert flops == pytest.approx(1.411e17, rel=1e-3)
    assert flops / (64 * 312e12 * 13.75) == pytest.approx(0.514, abs=0.001)


def test_our_count_is_korthikantis_for_the_same_block() -> None:
    """Three forward passes, attention not causal, and no norms or biases in the parameters."""
    body = 96 * 12 * 12288**2
    gpt = model(GPT_175B, parameters=body + 51200 * 12288)
    flat = replace(gpt, transformer=replace(GPT_175B, decoder=False))
    ours = 3 * forward_flops_per_token(flat, 2048) * 64 * 2048
    assert ours == pytest.approx(korthikanti_flops_per_iteration(GPT_175B, 64, 2048), rel=1e-6)


@pytest.mark.parametrize(("parallel", "gib"), [(False, 66.84), (True, 12.35)])
def test_activations_of_175b(parallel: bool, gib: float) -> None:
    """Figure 1 of Korthikanti et al. 2022, per GPU of t = p = 8, three interleaved stages."""
    layout = Layout(tensor=8, pipeline=8, virtual_stages=3)
    found = korthikanti_activation_bytes(GPT_175B, 2048, 1, layout, sequence_parallel=parallel, selective=parallel)
    assert found / GIB == pytest.approx(gib, abs=0.01)


def test_a_recounted_layer_is_near_34_bytes_per_value() -> None:
    per_value = layer_activation_bytes(GPT_175B, 2048, 2048, 2.0, flash=True) / (2048 * 12288)
    assert 30 <= per_value <= 34


def test_llama_3_8b_caches_131072_bytes_per_token() -> None:
    assert cache_bytes(LLAMA_3_8B, 1, 2.0) == 131_072
    assert cache_bytes(LLAMA_3_8B, 100, 2.0, tensor=16) == 100 * 131_072 / 8


def test_latent_attention_caches_576_values_per_layer() -> None:
    latent = replace(LLAMA_2_7B, layers=61, mla_kv_rank=512, mla_rope_size=64, mla_value_size=128)
    assert cache_bytes(latent, 1, 2.0, tensor=8) == 61 * 576 * 2


@pytest.mark.parametrize(("alpha", "rate", "milliseconds"), [(53e-6, 163e9, 145.0), (31e-6, 349e9, 67.6)])
def test_all_reduce_of_7b_gradients(alpha: float, rate: float, milliseconds: float) -> None:
    """13.48 GB over 8 GPUs of a DGX A100 and a DGX H100."""
    assert all_reduce_seconds(13.48e9, 8, rate, alpha) * 1e3 == pytest.approx(milliseconds, abs=0.3)


def test_65b_in_nf4_takes_34_gb() -> None:
    llama = replace(LLAMA_2_7B, hidden=8192)
    stored = stored_weight_bytes(model(llama, 65.29e9), bytes_per_value("nf4-dq") * 8)
    assert stored / 1e9 == pytest.approx(34.5, abs=0.1)


def test_half_of_the_experts_wake_for_a_few_tokens() -> None:
    mixtral = replace(LLAMA_2_7B, kv_heads=8, experts=8, experts_per_token=2, expert_ffn=14336)
    assert experts_touched(mixtral, 1) == pytest.approx(2)
    assert experts_touched(mixtral, 1e6) == pytest.approx(8)
    moe = replace(model(mixtral, 46.7e9), family="moe", active_parameters=12.9e9)
    assert parameters_touched(moe, 1) == pytest.approx(multiplied_parameters(moe))
    assert parameters_touched(moe, 1e6) == pytest.approx(46.7e9 - 32000 * 4096, rel=1e-6)


def test_the_input_embedding_is_not_multiplied() -> None:
    assert multiplied_parameters(model(LLAMA_2_7B, 6.74e9)) == 6.74e9 - 32000 * 4096


def test_bubble_of_eight_stages() -> None:
    assert bubble_share(Layout(pipeline=8, accumulation=64, virtual_stages=3)) == pytest.approx(7 / 192)


def test_a_windowed_layer_caches_no_more_than_its_window() -> None:
    windowed = replace(LLAMA_3_8B, sliding_window=1024, global_layers=8)
    per_layer = 2 * 8 * 128 * 2.0
    assert cache_bytes(windowed, 8192, 2.0) == per_layer * (8 * 8192 + 24 * 1024)
    assert cache_bytes(windowed, 512, 2.0) == cache_bytes(LLAMA_3_8B, 512, 2.0)


def test_a_hybrid_caches_where_it_attends_and_keeps_its_states() -> None:
    hybrid = replace(
        LLAMA_3_8B, attention_layers=4, ssm_layers=14, ssm_heads=128, ssm_head_size=64, ssm_state=128, ssm_groups=8
    )
    grown = cache_bytes(hybrid, 2000, 2.0) - cache_bytes(hybrid, 1000, 2.0)
    assert grown == pytest.approx(1000 * 4 * 2 * 8 * 128 * 2.0)
    assert cache_bytes(hybrid, 0, 2.0) > 14 * 128 * 64 * 128 * 2.0
    assert attention_share(model(hybrid, family="hybrid_moe")) == 4 / 32
