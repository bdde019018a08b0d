"""Counts of a model against published figures, and against an oracle that counts every layer, head and token."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.models.counts import (
    active_parameter_count,
    adapter_parameters,
    attention_flops_per_token,
    cache_bytes,
    cache_bytes_read,
    experts_touched,
    forward_flops_per_token,
    kv_cache_bytes,
    mean_attention_flops_per_token,
    multiplied_parameters,
    parameter_count,
    parameters_touched,
    published_training_flops_per_sample,
    routed_layers,
    table_parameters,
)
from service.domain.models.described import model_of, transformer_of
from service.domain.models.model import Transformer
from service.domain.models.networks import written_values
from tests.builders.jobs import GPT_175B, LLAMA_2_7B, LLAMA_3_8B, model
from tests.oracles import counts as oracle

GEMMA_3_27B = transformer_of(
    {
        "layers": 62,
        "hidden": 5376,
        "heads": 32,
        "kv_heads": 16,
        "head_size": 128,
        "ffn": 21504,
        "gated": True,
        "vocabulary": 262208,
        "tied": True,
        "sliding_window": 1024,
        "global_layers": 10,
    }
)
DEEPSEEK_V2 = transformer_of(
    {
        "layers": 60,
        "hidden": 5120,
        "heads": 128,
        "head_size": 128,
        "ffn": 12288,
        "gated": True,
        "vocabulary": 102400,
        "experts": 160,
        "experts_per_token": 6,
        "shared_experts": 2,
        "expert_ffn": 1536,
        "dense_layers": 1,
        "mla_kv_rank": 512,
        "mla_rope_size": 64,
        "mla_query_rank": 1536,
        "mla_value_size": 128,
    }
)
DEEPSEEK_V3 = replace(
    DEEPSEEK_V2,
    layers=61,
    hidden=7168,
    ffn=18432,
    vocabulary=129280,
    experts=256,
    experts_per_token=8,
    shared_experts=1,
    expert_ffn=2048,
    dense_layers=3,
)


def training_flops_per_token(t: Transformer, sequence: int) -> float:
    """Three forward passes, with the attention that a causal kernel computes."""
    return 3 * (2 * multiplied_parameters(model_of(t)) + mean_attention_flops_per_token(t, sequence))


# Published figures


def korthikanti_flops_per_iteration(t: Transformer, batch: int, sequence: int) -> float:
    """72 B L s h² (1 + s/6h + V/12hL): Korthikanti et al. 2022 (2205.05198), for an FFN of 4h and full heads."""
    h, layers, s = t.hidden, t.layers, sequence
    return 72.0 * batch * layers * s * h * h * (1 + s / (6 * h) + t.vocabulary / (12 * h * layers))


@pytest.mark.parametrize(
    ("parameters", "flops", "values"),
    [(865.9e6, 680e9, 258e6), (2.03e9, 8.9e12, 1.633e9), (11.9e9, 74.4e12, 7.53e9)],
    ids=["Stable Diffusion 2.1", "Stable Diffusion 3", "FLUX.1"],
)
def test_wider_diffusion_models_write_fewer_values_per_flop(parameters: float, flops: float, values: float) -> None:
    network = model(None, parameters, family="diffusion", forward_flops_per_sample=flops)
    assert written_values(network) == pytest.approx(values, rel=0.3)


def test_tables_are_the_parameters_that_no_product_multiplies() -> None:
    dlrm = replace(model(None, 24.1e9, family="recommender"), active_parameters=2.4e6)
    assert table_parameters(dlrm) == 24.1e9 - 2.4e6
    assert table_parameters(model()) == table_parameters(model(None, 25.6e6, family="cnn")) == 0


def test_175b_runs_at_514_per_mille_of_peak() -> None:
    """Korthikanti et al. 2022: 64 sequences of 2048 in 13.75 s on 64 A100."""
    body = 96 * 12 * 12288**2 + 2 * 97 * 12288 - 12288  # matrices, norms
    gpt = model(GPT_175B, parameters=body + 51200 * 12288)
    flops = 64 * published_training_flops_per_sample(gpt, 2048)
    assert flops == pytest.approx(korthikanti_flops_per_iteration(GPT_175B, 64, 2048), rel=1e-6)
    assert flops / (64 * 312e12 * 13.75) == pytest.approx(0.514, abs=0.001)


@pytest.mark.parametrize(("transformer", "gflops"), [(DEEPSEEK_V2, 155), (DEEPSEEK_V3, 250)])
def test_training_cost_of_deepseek_per_token(transformer: Transformer, gflops: float) -> None:
    """Table 2 of the DeepSeek-V3 hardware paper (2505.09343): GFLOPS per token at sequences of 4096."""
    assert training_flops_per_token(transformer, 4096) / 1e9 == pytest.approx(gflops, rel=0.005)


def test_deepseek_v3_activates_37_billion_of_671() -> None:
    """The technical report (2412.19437); the 37 billion include the output projection and no embedding."""
    assert parameter_count(DEEPSEEK_V3) / 1e9 == pytest.approx(671, abs=0.5)
    assert multiplied_parameters(model_of(DEEPSEEK_V3)) / 1e9 == pytest.approx(37, abs=0.5)
    assert routed_layers(model_of(DEEPSEEK_V3)) == 58


DEEPSEEK_V3_2 = replace(DEEPSEEK_V3, indexed_tokens=2048, indexer_layers=61, indexer_heads=64, indexer_head_size=128)


def test_indexers_of_deepseek_v3_2_add_0_85_billion_parameters() -> None:
    """By layer: 1536 x 64 heads of 128, 7168 x 128 of a key, 7168 x 64 of weights, and a layer norm (model.py)."""
    by_hand = 61 * (1536 * 64 * 128 + 7168 * 128 + 7168 * 64 + 2 * 128)
    assert parameter_count(DEEPSEEK_V3_2) - parameter_count(DEEPSEEK_V3) == by_hand
    assert by_hand == pytest.approx(0.85e9, rel=0.01)


def test_a_step_of_deepseek_v3_2_reads_2048_tokens_and_the_keys_of_the_indexers() -> None:
    """vLLM keeps 132 bytes per token and layer for an indexer: 128 values in fp8 and a scale."""
    assert cache_bytes(DEEPSEEK_V3_2, 65_536, 2.0) == 61 * 65_536 * (576 * 2 + 132)
    assert cache_bytes_read(DEEPSEEK_V3_2, 65_536, 2.0, tensor=8) == 61 * (2048 * 576 * 2 + 65_536 * 132)
    assert cache_bytes_read(DEEPSEEK_V3_2, 1000, 2.0) == cache_bytes(DEEPSEEK_V3_2, 1000, 2.0)


def test_indexers_save_flops_of_long_prompts_and_mask_short_ones() -> None:
    """At 131,072 tokens, a token attends to 2048 of 65,536, whose latent values 128 heads share."""
    long, short = 131_072, 4096
    selected = 61 * 2 * 128 * (2 * 512 + 64) * (2048 - 2048**2 / (2 * long))
    index = 61 * 2 * 64 * 128 * long / 2
    assert mean_attention_flops_per_token(DEEPSEEK_V3_2, long) == pytest.approx(selected + index)
    dense = mean_attention_flops_per_token(DEEPSEEK_V3, long)
    assert dense / mean_attention_flops_per_token(DEEPSEEK_V3_2, long) == pytest.approx(3.3, rel=0.02)
    masked = mean_attention_flops_per_token(DEEPSEEK_V3, short) + 61 * 2 * 64 * 128 * short / 2
    assert mean_attention_flops_per_token(DEEPSEEK_V3_2, short) == pytest.approx(masked)


def test_llama_3_8b_takes_16_gflops_per_token_forward() -> None:
    """2 FLOPs per parameter but the embedding's 0.53 billion, and 2.1 billion of attention at 8192 tokens."""
    matrix, attention = 2 * (8.03e9 - 128256 * 4096), 32 * 4 * 4096 * 4096
    per_token = 2 * multiplied_parameters(model(LLAMA_3_8B)) + mean_attention_flops_per_token(LLAMA_3_8B, 8192)
    assert per_token == pytest.approx(matrix + attention, rel=1e-3)


def test_five_of_six_layers_of_gemma_3_look_back_1024_tokens() -> None:
    """10 of 62 layers attend to all of 32,768 tokens: 16,384 of them on average, the others to a little under 1024."""
    per_pair = 4 * 32 * 128
    by_hand = per_pair * (10 * 16_384 + 52 * (1024 - 1024**2 / (2 * 32_768)))
    assert mean_attention_flops_per_token(GEMMA_3_27B, 32_768) == pytest.approx(by_hand)
    assert attention_flops_per_token(GEMMA_3_27B, 32_768) == per_pair * (10 * 32_768 + 52 * 1024)


def test_llama_3_8b_caches_131072_bytes_per_token() -> None:
    assert cache_bytes(LLAMA_3_8B, 1, 2.0) == 131_072
    assert cache_bytes(LLAMA_3_8B, 100, 2.0, tensor=16) == 100 * 131_072 / 8


def test_a_gpu_keeps_whole_heads() -> None:
    of_one_head = cache_bytes(LLAMA_3_8B, 100, 2.0) / 8
    assert cache_bytes(LLAMA_3_8B, 100, 2.0, tensor=6) == 2 * of_one_head
    assert np.array_equal(
        cache_bytes(LLAMA_3_8B, 100, 2.0, np.array([1, 3, 4, 12])), of_one_head * np.array([8, 3, 2, 1])
    )


def test_latent_attention_caches_576_values_per_layer() -> None:
    assert cache_bytes(DEEPSEEK_V3, 1, 2.0, tensor=8) == 61 * 576 * 2


# Rules


def test_few_tokens_touch_few_experts() -> None:
    mixtral = replace(LLAMA_2_7B, kv_heads=8, experts=8, experts_per_token=2, expert_ffn=14336)
    assert experts_touched(mixtral, 1) == pytest.approx(2)
    assert experts_touched(mixtral, 1e6) == pytest.approx(8)
    moe = replace(model(mixtral, 46.7e9), family="moe", active_parameters=12.9e9)
    assert sum(parameters_touched(moe, 1)) == pytest.approx(multiplied_parameters(moe))
    looked_up = 32000 * 4096 + 65 * 4096
    assert sum(parameters_touched(moe, 1e6)) == pytest.approx(46.7e9 - looked_up, rel=1e-9)


def test_embedding_and_norms_are_not_multiplied() -> None:
    assert multiplied_parameters(model(LLAMA_2_7B, 6.74e9)) == 6.74e9 - 32000 * 4096 - 65 * 4096


def test_an_encoder_has_no_output_projection_to_multiply() -> None:
    tied = replace(LLAMA_2_7B, tied=True)
    decoder, encoder = (model_of(replace(tied, decoder=decoder)) for decoder in (True, False))
    assert multiplied_parameters(decoder) - multiplied_parameters(encoder) == 32000 * 4096


def test_all_layers_route_where_the_number_of_experts_is_not_known() -> None:
    assert routed_layers(replace(model(LLAMA_2_7B), family="moe")) == 32
    assert routed_layers(model(LLAMA_2_7B)) == 0


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


# Every layer, head and token counted

few = st.integers(1, 4)


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    """Small networks of every sort that the dimensions can describe."""
    layers, kv_heads = draw(st.integers(2, 6)), draw(few)
    sizes: dict[str, Any] = {
        "layers": layers,
        "hidden": draw(st.integers(1, 16)),
        "heads": kv_heads * draw(few),
        "kv_heads": kv_heads,
        "head_size": draw(few),
        "ffn": draw(st.integers(1, 16)),
        "gated": draw(st.booleans()),
        "vocabulary": draw(st.integers(0, 20)),
        "tied": draw(st.booleans()),
        "decoder": draw(st.booleans()),
        "learned_positions": draw(st.integers(0, 8)),
    }
    sort = draw(st.sampled_from(["dense", "encoder and decoder", "hybrid"]))
    ffn_layers = attending = layers
    if sort == "encoder and decoder":
        sizes |= {"decoder": True, "encoder_layers": draw(st.integers(1, layers - 1))}
    if sort == "hybrid":
        ssm = draw(st.integers(1, layers - 1))
        attending = draw(st.integers(0, layers - ssm))
        ffn_layers = layers - ssm - attending
        sizes |= {"ssm_layers": ssm, "attention_layers": attending}
        sizes |= {name: draw(few) for name in ("ssm_heads", "ssm_head_size", "ssm_state", "ssm_groups")}
        sizes["ssm_parameters"] = draw(st.integers(0, 50))
    if draw(st.booleans()):
        experts = draw(st.integers(1, 5))
        sizes |= {"experts": experts, "experts_per_token": draw(st.integers(1, experts)), "expert_ffn": draw(few)}
        sizes |= {"shared_experts": draw(st.integers(0, 2)), "expert_latent": draw(st.integers(0, 2))}
        sizes["dense_layers"] = draw(st.integers(0, ffn_layers))
    if draw(st.booleans()):
        sizes |= {"mla_kv_rank": draw(few), "mla_value_size": draw(few)}
        sizes |= {"mla_rope_size": draw(st.integers(0, 2)), "mla_query_rank": draw(st.integers(0, 3))}
    if sort != "encoder and decoder" and attending and draw(st.booleans()):
        sizes |= {"indexed_tokens": draw(st.integers(1, 12)), "indexer_layers": draw(st.integers(1, attending))}
        sizes |= {"indexer_heads": draw(few), "indexer_head_size": draw(few)}
    elif sort != "encoder and decoder" and draw(st.booleans()):
        sizes |= {"sliding_window": draw(st.integers(1, 12)), "global_layers": draw(st.integers(0, attending))}
        if "mla_kv_rank" not in sizes:
            sizes |= {
                "global_kv_heads": draw(st.integers(0, 2)) * kv_heads,
                "global_head_size": draw(st.integers(0, 3)),
            }
    sizes["gated_attention"] = draw(st.booleans())
    return transformer_of(sizes)


@given(transformers())
def test_parameters_are_those_of_every_matrix(t: Transformer) -> None:
    assert parameter_count(t) == oracle.parameters(t, t.experts)
    assert active_parameter_count(t) == oracle.parameters(t, t.experts_per_token)
    assert forward_flops_per_token(t, 0).matrix == 2 * oracle.multiplied(t)
    described = model_of(t)
    assert multiplied_parameters(described) == max(oracle.multiplied(t), 0.3 * described.active_parameters)


@given(transformers(), st.integers(1, 20))
def test_attention_is_that_of_every_pair_of_tokens(t: Transformer, sequence: int) -> None:
    mean = mean_attention_flops_per_token(t, sequence)
    assert mean == pytest.approx(oracle.attention_flops(t, sequence) / sequence)
    if not t.decoder:
        assert mean == pytest.approx(attention_flops_per_token(t, sequence))
    assert mean <= attention_flops_per_token(t, sequence) * (1 + 1e-9)


@given(transformers(), st.integers(0, 20))
def test_the_cache_keeps_every_token_that_is_looked_at_again(t: Transformer, tokens: int) -> None:
    of_indexers = t.indexer_layers * t.indexer_head_size * tokens * (1 + 4 / 128)
    assert kv_cache_bytes(t, tokens, 2.0) == pytest.approx(2 * oracle.cached_values(t, tokens) + of_indexers)
    unread = max(0, tokens - t.indexed_tokens) if t.indexed_tokens else 0
    read = cache_bytes_read(t, tokens, 2.0)
    assert read == pytest.approx(cache_bytes(t, tokens, 2.0) - 2 * oracle.cached_values(t, unread))


@pytest.mark.parametrize(("of_model", "parameters"), [(LLAMA_2_7B, 39_976_960), (LLAMA_3_8B, 41_943_040)])
def test_an_adapter_of_all_matrices_has_as_many_parameters_as_peft_prints(
    of_model: Transformer, parameters: int
) -> None:
    assert adapter_parameters(of_model, 16) == parameters
    assert adapter_parameters(of_model, 64) == 4 * parameters


def test_routed_experts_have_no_adapters_and_narrow_projections_narrow_ones() -> None:
    """60 layers: queries of 5120 x 24,576, keys and values of 5120 x 576 and 512 x 32,768, outputs of 16,384 x 5120."""
    sides = (5120 + 24_576) + (5120 + 576) + (512 + 32_768) + (16_384 + 5120)
    dense = DEEPSEEK_V2.dense_layers * 3 * (5120 + 12_288)
    assert adapter_parameters(DEEPSEEK_V2, 8) == 8 * (60 * sides + dense)
