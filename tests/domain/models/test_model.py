"""Parameters, FLOPs and cache from dimensions alone, against figures that others published."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.errors import ImpossibleModel
from service.domain.models.counts import (
    active_parameter_count,
    attention_flops_per_token,
    forward_flops_per_token,
    kv_bytes_per_token,
    kv_cache_bytes,
    mean_attended,
    parameter_count,
    parameter_parts,
    ssm_state_bytes,
)
from service.domain.models.described import described, model_of, transformer_of
from service.domain.models.model import Model, Transformer

LLAMA_3_8B = transformer_of(
    {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "gated": True, "vocabulary": 128256}
)
GPT_2 = transformer_of(
    {"layers": 12, "hidden": 768, "heads": 12, "vocabulary": 50257, "tied": True, "learned_positions": 1024}
)
DEEPSEEK_V3 = Transformer(
    layers=61,
    hidden=7168,
    heads=128,
    kv_heads=128,
    head_size=128,
    ffn=18432,
    gated=True,
    vocabulary=129280,
    tied=False,
    experts=256,
    experts_per_token=8,
    shared_experts=1,
    expert_ffn=2048,
    dense_layers=3,
    mla_kv_rank=512,
    mla_rope_size=64,
    mla_query_rank=1536,
    mla_value_size=128,
)
NEMOTRON_3_NANO = Transformer(
    layers=52,
    hidden=2688,
    heads=32,
    kv_heads=2,
    head_size=128,
    ffn=0,
    gated=False,
    vocabulary=131072,
    tied=False,
    experts=128,
    experts_per_token=6,
    shared_experts=2,
    expert_ffn=1856,
    attention_layers=6,
    ssm_layers=23,
    ssm_heads=64,
    ssm_head_size=64,
    ssm_state=128,
    ssm_groups=8,
)
T5_3B = Transformer(
    layers=48,
    hidden=1024,
    heads=32,
    kv_heads=32,
    head_size=128,
    ffn=16384,
    gated=False,
    vocabulary=32128,
    tied=True,
    encoder_layers=24,
)
ALL = (LLAMA_3_8B, GPT_2, DEEPSEEK_V3, NEMOTRON_3_NANO, T5_3B)


@pytest.mark.parametrize(
    ("transformer", "published"),
    [
        (LLAMA_3_8B, 8_030_261_248),
        (GPT_2, 124_439_808),
        (DEEPSEEK_V3, 671_026_419_200),
        (NEMOTRON_3_NANO, 31.6e9),
        (T5_3B, 2_851_598_336),
    ],
    ids=["gqa", "learned positions", "mla and experts", "hybrid", "encoder and decoder"],
)
def test_dimensions_count_to_the_published_parameters(transformer: Transformer, published: float) -> None:
    assert parameter_count(transformer) == pytest.approx(published, rel=0.002)


@pytest.mark.parametrize(("transformer", "published"), [(DEEPSEEK_V3, 37.5e9), (NEMOTRON_3_NANO, 3.6e9)])
def test_active_parameters_leave_out_idle_experts(transformer: Transformer, published: float) -> None:
    assert active_parameter_count(transformer) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("transformer", ALL)
def test_parts_add_up(transformer: Transformer) -> None:
    parts = parameter_parts(transformer)
    assert parts.total == sum(getattr(parts, field.name) for field in fields(parts)) == parameter_count(transformer)


def test_a_tied_model_has_no_head_and_computes_one() -> None:
    untied = replace(GPT_2, tied=False)
    assert parameter_parts(GPT_2).head == 0
    assert parameter_count(untied) - parameter_count(GPT_2) == 50257 * 768
    assert forward_flops_per_token(untied, 100) == forward_flops_per_token(GPT_2, 100)


def test_an_encoder_computes_no_head() -> None:
    encoder = replace(GPT_2, decoder=False)
    saved = forward_flops_per_token(GPT_2, 0).matrix - forward_flops_per_token(encoder, 0).matrix
    assert saved == 2 * 50257 * 768


def test_flops_of_gpt3_are_those_of_the_megatron_paper() -> None:
    """Korthikanti 2022: 72 B L s h² (1 + s/6h + V/12hL) for forward and backward, every token attending to all s."""
    layers, hidden, sequence, vocabulary = 96, 12288, 2048, 51200
    gpt3 = transformer_of({"layers": layers, "hidden": hidden, "heads": 96, "vocabulary": vocabulary})
    bracket = 1 + sequence / (6 * hidden) + vocabulary / (12 * hidden * layers)
    paper = 72 * layers * sequence * hidden**2 * bracket
    assert 3 * sequence * forward_flops_per_token(gpt3, sequence).total == pytest.approx(paper, rel=1e-9)


def test_llama_3_8b_keeps_128_kib_per_token_at_fp16() -> None:
    assert kv_bytes_per_token(LLAMA_3_8B, 2) == 131_072


def test_latent_attention_keeps_576_values_per_layer() -> None:
    assert kv_bytes_per_token(DEEPSEEK_V3, 1) == 61 * 576


def test_a_hybrid_keeps_keys_only_in_its_attention_layers() -> None:
    assert kv_bytes_per_token(NEMOTRON_3_NANO, 2) == 6 * 2 * 2 * 128 * 2
    assert ssm_state_bytes(NEMOTRON_3_NANO, 2) > 0
    assert ssm_state_bytes(LLAMA_3_8B, 2) == 0


def test_an_encoder_keeps_nothing() -> None:
    assert kv_bytes_per_token(replace(LLAMA_3_8B, decoder=False), 2) == 0


def test_a_window_caps_cache_and_attention() -> None:
    windowed = replace(LLAMA_3_8B, sliding_window=1024, global_layers=16)
    per_token = kv_bytes_per_token(LLAMA_3_8B, 2)
    assert kv_cache_bytes(windowed, 1024, 2) == 1024 * per_token
    assert kv_cache_bytes(windowed, 4096, 2) == (4096 + 1024) / 2 * per_token
    full = attention_flops_per_token(LLAMA_3_8B, 4096)
    assert attention_flops_per_token(windowed, 4096) == pytest.approx(full * (1 + 0.25) / 2)


def test_on_average_a_decoder_attends_to_half() -> None:
    assert mean_attended(2048) == 1024
    assert mean_attended(2048, causal=0) == 2048
    assert mean_attended(2048, window=4096) == 1024
    assert mean_attended(2048, window=1024) == 768
    assert mean_attended(0) == 0


@given(st.integers(1, 100_000), st.integers(0, 100_000))
def test_a_window_never_attends_to_more(sequence: int, window: int) -> None:
    attended = mean_attended(sequence, window)
    assert 0 < attended <= mean_attended(sequence) * (1 + 1e-9)
    assert not window or attended <= window


@given(st.sampled_from(ALL), st.floats(1, 1e6), st.floats(1, 10))
def test_more_context_never_costs_less(transformer: Transformer, tokens: float, more: float) -> None:
    few, many = (forward_flops_per_token(transformer, each) for each in (tokens, tokens * more))
    assert few.matrix == many.matrix
    assert few.attention <= many.attention
    assert kv_cache_bytes(transformer, tokens, 2) <= kv_cache_bytes(transformer, tokens * more, 2)


IMPOSSIBLE = {
    "no layers": ({"layers": 0}, "layers"),
    "negative": ({"ffn": -1}, "ffn"),
    "absurd": ({"hidden": 10**30}, "hidden"),
    "heads that share unevenly": ({"kv_heads": 7}, "kv_heads"),
    "more experts a token than there are": (
        {"experts": 8, "experts_per_token": 9, "expert_ffn": 1},
        "experts_per_token",
    ),
    "experts that no token uses": ({"experts": 8, "expert_ffn": 1}, "experts_per_token"),
    "experts without width": ({"experts": 8, "experts_per_token": 2}, "expert_ffn"),
    "shared experts of a dense model": ({"shared_experts": 1}, "shared_experts"),
    "more dense layers than layers": ({"dense_layers": 33}, "dense_layers"),
    "more global layers than layers": ({"global_layers": 33}, "global_layers"),
    "nothing left to decode": ({"encoder_layers": 32}, "encoder_layers"),
    "dense layers without width": ({"ffn": 0}, "ffn"),
    "latent attention without values": ({"mla_kv_rank": 512}, "mla_value_size"),
    "rotary part without latent attention": ({"mla_rope_size": 64}, "mla_kv_rank"),
    "attention layers of no hybrid": ({"attention_layers": 2}, "attention_layers"),
    "state spaces without a size": ({"ssm_layers": 4}, "ssm_heads"),
    "more kinds of layers than layers": (
        {"ssm_layers": 30, "attention_layers": 3, "ssm_heads": 1, "ssm_head_size": 1, "ssm_state": 1, "ssm_groups": 1},
        "ssm_layers",
    ),
}


@pytest.mark.parametrize(("change", "field"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_what_cannot_be_is_a_sentence_with_its_field(change: dict[str, int], field: str) -> None:
    answer = {name: getattr(LLAMA_3_8B, name) for name in ("layers", "hidden", "heads", "kv_heads", "head_size", "ffn")}
    with pytest.raises(ImpossibleModel) as caught:
        transformer_of({**answer, **change})
    assert caught.value.field == field
    assert caught.value.sentence.endswith(".")


def test_heads_that_do_not_divide_the_hidden_size_need_a_head_size() -> None:
    with pytest.raises(ImpossibleModel, match="7 heads do not divide a hidden size of 100") as caught:
        transformer_of({"layers": 2, "hidden": 100, "heads": 7})
    assert caught.value.field == "heads"
    assert transformer_of({"layers": 2, "hidden": 100, "heads": 7, "head_size": 16}).head_size == 16


@pytest.mark.parametrize("missing", ["layers", "hidden", "heads"])
def test_three_dimensions_must_be_stated(missing: str) -> None:
    answer = {"layers": 2, "hidden": 64, "heads": 4}
    del answer[missing]
    with pytest.raises(ImpossibleModel) as caught:
        transformer_of(answer)
    assert caught.value.field == missing


@pytest.mark.parametrize(
    ("parameters", "active", "possible"),
    [
        (6.7e9, None, True),  # Llama 2 7B, whose FFN and vocabulary are not stated
        (8.5e9, None, True),  # the embeddings of 256,000 tokens
        (7e10, None, False),
        (1e9, None, False),
        (4.67e10, None, False),
        (4.67e10, 1.29e10, True),  # Mixtral 8x7B, whose experts are not described
    ],
)
def test_parameters_must_be_possible_with_the_dimensions(
    parameters: float, active: float | None, possible: bool
) -> None:
    dimensions = {"layers": 32, "hidden": 4096, "heads": 32}
    if possible:
        found = described((), parameters=parameters, active_parameters=active, dimensions=dimensions)
        assert found.parameters == parameters
        return
    with pytest.raises(ImpossibleModel, match="32 layers with a hidden size of 4096 have about") as caught:
        described((), parameters=parameters, active_parameters=active, dimensions=dimensions)
    assert caught.value.field == "parameters"


def test_a_dimension_that_none_has_is_refused() -> None:
    with pytest.raises(ImpossibleModel, match="no dimension 'depth'"):
        transformer_of({"layers": 2, "hidden": 64, "heads": 4, "depth": 3})


@pytest.mark.parametrize(
    ("transformer", "family"),
    [(LLAMA_3_8B, "llm"), (DEEPSEEK_V3, "moe"), (NEMOTRON_3_NANO, "hybrid_moe"), (T5_3B, "enc_dec")],
)
def test_the_family_follows_from_the_dimensions(transformer: Transformer, family: str) -> None:
    model = model_of(transformer)
    assert model.family == family
    assert model.parameters == parameter_count(transformer)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"family": "robot"}, "family"),
        ({"parameters": 0}, "parameters"),
        ({"parameters": float("nan")}, "parameters"),
        ({"active_parameters": 2e9}, "active_parameters"),
        ({"forward_flops_per_sample": -1.0}, "forward_flops_per_sample"),
    ],
)
def test_a_model_that_cannot_be(change: dict[str, object], field: str) -> None:
    answer: dict[str, object] = {
        "id": "m",
        "name": "M",
        "family": "cnn",
        "parameters": 1e9,
        "active_parameters": 1e9,
        "transformer": None,
        "forward_flops_per_sample": 1e9,
        "sample": "image",
        "released_on": None,
        "source": "s",
        "note": None,
    }
    with pytest.raises(ImpossibleModel) as caught:
        Model(**{**answer, **change})  # type: ignore[arg-type]
    assert caught.value.field == field
