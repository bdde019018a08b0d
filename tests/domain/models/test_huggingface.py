"""Published config.json files, typed by hand as far as they decide sizes, read into models of the published size."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.errors import ImpossibleModel
from service.domain.models.config_fields import KEYS
from service.domain.models.counts import cache_bytes, kv_bytes_per_token, parameter_count
from service.domain.models.huggingface import NOT_READ, NOT_UNDERSTOOD, read_config, read_transformer
from service.domain.models.model import Transformer


def config(kind: str, hidden: int, layers: int, heads: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    """The names that most architectures use."""
    usual = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary}
    return {"model_type": kind, **usual, **more}


LLAMA_3_8B = config(
    "llama",
    4096,
    32,
    32,
    128256,
    intermediate_size=14336,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    tie_word_embeddings=False,
    hidden_act="silu",
)
DEEPSEEK_V3 = config(
    "deepseek_v3",
    7168,
    61,
    128,
    129280,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    num_key_value_heads=128,
    n_shared_experts=1,
    n_routed_experts=256,
    num_experts_per_tok=8,
    moe_layer_freq=1,
    first_k_dense_replace=3,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_rope_head_dim=64,
    qk_nope_head_dim=128,
    v_head_dim=128,
    max_position_embeddings=163840,
)
LLAMA_4_MAVERICK = {
    "model_type": "llama4",
    "text_config": config(
        "llama4_text",
        5120,
        48,
        40,
        202048,
        intermediate_size=8192,
        intermediate_size_mlp=16384,
        num_key_value_heads=8,
        num_local_experts=128,
        num_experts_per_tok=1,
        interleave_moe_layer_step=2,
        attention_chunk_size=8192,
        max_position_embeddings=1048576,
    ),
}
GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}
GPT_OSS_120B = config(
    "gpt_oss",
    2880,
    36,
    64,
    201088,
    intermediate_size=2880,
    num_key_value_heads=8,
    head_dim=64,
    num_local_experts=128,
    num_experts_per_tok=4,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
    max_position_embeddings=131072,
)
NEMOTRON_3_NANO = config(
    "nemotron_h",
    2688,
    52,
    32,
    131072,
    hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    num_key_value_heads=2,
    head_dim=128,
    mamba_num_heads=64,
    mamba_head_dim=64,
    ssm_state_size=128,
    n_groups=8,
    intermediate_size=1856,
    n_routed_experts=128,
    n_shared_experts=1,
    num_experts_per_tok=6,
    moe_intermediate_size=1856,
    moe_shared_expert_intermediate_size=3712,
)
GLM_5 = config(
    "glm_moe_dsa", 6144, 78, 64, 154880, intermediate_size=12288, moe_intermediate_size=2048, num_key_value_heads=64,
    n_shared_experts=1, n_routed_experts=256, num_experts_per_tok=8, first_k_dense_replace=3, kv_lora_rank=512,
    q_lora_rank=2048, qk_rope_head_dim=64, qk_nope_head_dim=192, v_head_dim=256,
)  # fmt: skip
GLM_5_2 = {**GLM_5, "index_topk": 2048, "index_n_heads": 32, "index_head_dim": 128, "index_topk_freq": 4,
           "index_skip_topk_offset": 3}  # fmt: skip
DELTA_RULE = {
    "full_attention_interval": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "linear_value_head_dim": 128,
}  # fmt: skip
QWEN_3_NEXT = config(
    "qwen3_next", 2048, 48, 16, 151936, num_key_value_heads=2, head_dim=256, intermediate_size=5120, num_experts=512,
    num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512, **DELTA_RULE,
)  # fmt: skip
GEMMA_4_31B = {
    "model_type": "gemma4",
    "text_config": config(
        "gemma4_text", 5376, 60, 32, 262144, intermediate_size=21504, num_key_value_heads=16, head_dim=256,
        num_global_key_value_heads=4, global_head_dim=512, sliding_window=1024, enable_moe_block=False,
        layer_types=[*["sliding_attention"] * 5, "full_attention"] * 10,
    ),
}  # fmt: skip
GEMMA_4_26B = {
    "model_type": "gemma4",
    "text_config": config(
        "gemma4_text", 2816, 30, 16, 262144, intermediate_size=2112, moe_intermediate_size=704, num_experts=128,
        top_k_experts=8, num_key_value_heads=8, head_dim=256, num_global_key_value_heads=2, global_head_dim=512,
        sliding_window=1024, layer_types=[*["sliding_attention"] * 5, "full_attention"] * 5,
    ),
}  # fmt: skip
QWEN_3_5_35B = {
    "model_type": "qwen3_5_moe",
    "text_config": config(
        "qwen3_5_moe_text", 2048, 40, 16, 248320, num_key_value_heads=2, head_dim=256, num_experts=256,
        num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512, **DELTA_RULE,
        layer_types=[*["linear_attention"] * 3, "full_attention"] * 10,
    ),
}  # fmt: skip
GRANITE_4_SMALL = config(
    "granitemoehybrid", 4096, 40, 32, 100352, num_key_value_heads=8, intermediate_size=768,
    shared_intermediate_size=1536, num_local_experts=72, num_experts_per_tok=10, mamba_n_heads=128, mamba_d_head=64,
    mamba_d_state=128, mamba_n_groups=1, layer_types=[*["mamba"] * 9, "attention"] * 4,
)  # fmt: skip
KIMI_LINEAR = config(
    "kimi_linear", 2304, 27, 32, 163840, num_key_value_heads=32, intermediate_size=9216, moe_intermediate_size=1024,
    num_experts=256, num_experts_per_token=8, num_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=512,
    qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, linear_attn_config={
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [layer for layer in range(1, 27) if layer % 4],
    },
)  # fmt: skip
JAMBA = config(
    "jamba", 4096, 32, 32, 65536, num_key_value_heads=8, intermediate_size=14336, num_experts=16, num_experts_per_tok=2,
    attn_layer_period=8, expert_layer_period=2, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_dt_rank=256,
)  # fmt: skip
MAMBA_2_OF_BLOCKS = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1}
BAMBA = config(
    "bamba", 4096, 32, 32, 128256, num_key_value_heads=8, intermediate_size=14336, attn_layer_indices=[9, 18, 27],
    **MAMBA_2_OF_BLOCKS,
)  # fmt: skip


def recurrent(kind: str, hidden: int, layers: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    """The names of architectures without attention."""
    return {
        "model_type": kind, "hidden_size": hidden, "num_hidden_layers": layers, "vocab_size": vocabulary, **more
    }  # fmt: skip


MAMBA_2_8B = recurrent("mamba", 2560, 64, 50280)
FALCON_MAMBA = recurrent(
    "falcon_mamba", 4096, 64, 65024, intermediate_size=8192, time_step_rank=256, tie_word_embeddings=False
)
MAMBA_2_2_7B = recurrent(
    "mamba2", 2560, 64, 50288, num_heads=80, head_dim=64, state_size=128, n_groups=1, tie_word_embeddings=True
)
CODESTRAL_MAMBA = recurrent("mamba2", 4096, 64, 32768, num_heads=128, head_dim=64, state_size=128, n_groups=8)
RWKV_4_7B = recurrent("rwkv", 4096, 32, 50277)
RWKV_7_2_9B = recurrent(
    "rwkv7", 2560, 32, 65536, head_dim=64, decay_low_rank_dim=96, a_low_rank_dim=96, v_low_rank_dim=64,
    gate_low_rank_dim=320,
)  # fmt: skip
GPT_2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
FALCON_7B = config("falcon", 4544, 32, 71, 65024, multi_query=True, new_decoder_architecture=False)
FALCON_40B = config(
    "falcon", 8192, 60, 128, 65024, num_kv_heads=8, new_decoder_architecture=True, tie_word_embeddings=False
)
MPT_7B = {
    "model_type": "mpt",
    "d_model": 4096,
    "n_heads": 32,
    "n_layers": 32,
    "max_seq_len": 2048,
    "vocab_size": 50432,
    "expansion_ratio": 4,
    "attn_config": {"alibi": True},
}
BLOOM = {"model_type": "bloom", "n_embed": 14336, "num_attention_heads": 112, "n_layer": 70, "vocab_size": 250880}
DBRX = {
    "model_type": "dbrx",
    "d_model": 6144,
    "n_heads": 48,
    "n_layers": 40,
    "max_seq_len": 32768,
    "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}
T5_3B = {
    "model_type": "t5",
    "d_model": 1024,
    "d_ff": 16384,
    "d_kv": 128,
    "num_heads": 32,
    "num_layers": 24,
    "vocab_size": 32128,
}
MT5_XXL = {
    "model_type": "mt5",
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_heads": 64,
    "num_layers": 24,
    "num_decoder_layers": 24,
    "feed_forward_proj": "gated-gelu",
    "vocab_size": 250112,
}
WHISPER_LARGE = {
    "model_type": "whisper",
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "decoder_ffn_dim": 5120,
    "vocab_size": 51865,
    "max_source_positions": 1500,
    "max_target_positions": 448,
}
VIT_L = {
    "model_type": "vit",
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "image_size": 224,
    "patch_size": 16,
}
CLIP_B_32 = {"model_type": "clip", "projection_dim": 512, "text_config": {}, "vision_config": {"patch_size": 32}}
DISTILBERT = {
    "model_type": "distilbert",
    "dim": 768,
    "hidden_dim": 3072,
    "n_heads": 12,
    "n_layers": 6,
    "vocab_size": 30522,
    "max_position_embeddings": 512,
}
OPT_350M = config("opt", 1024, 24, 16, 50272, ffn_dim=4096, word_embed_proj_dim=512, max_position_embeddings=2048)
DEBERTA_BASE = config("deberta", 768, 12, 12, 50265, intermediate_size=3072, max_position_embeddings=512)
QWEN2_57B = config(
    "qwen2_moe",
    3584,
    28,
    28,
    151936,
    intermediate_size=18944,
    moe_intermediate_size=2560,
    shared_expert_intermediate_size=20480,
    num_experts=64,
    num_experts_per_tok=8,
    num_key_value_heads=4,
    decoder_sparse_step=1,
    use_sliding_window=False,
    sliding_window=65536,
    max_position_embeddings=131072,
)

PUBLISHED: dict[str, tuple[dict[str, Any], float]] = {
    "llama 3 8b": (LLAMA_3_8B, 8_030_261_248),
    "mistral 7b": (
        config("mistral", 4096, 32, 32, 32000, intermediate_size=14336, num_key_value_heads=8, sliding_window=4096),
        7_241_732_096,
    ),
    "mixtral 8x7b": (
        config(
            "mixtral",
            4096,
            32,
            32,
            32000,
            intermediate_size=14336,
            num_key_value_heads=8,
            num_local_experts=8,
            num_experts_per_tok=2,
            sliding_window=None,
        ),
        46_702_792_704,
    ),
    "qwen2.5 7b": (
        config("qwen2", 3584, 28, 28, 152064, intermediate_size=18944, num_key_value_heads=4, hidden_act="silu"),
        7_615_616_512,
    ),
    "qwen2 57b-a14b": (QWEN2_57B, 57_409_011_712),
    "qwen3 8b": (
        config("qwen3", 4096, 36, 32, 151936, intermediate_size=12288, num_key_value_heads=8, head_dim=128),
        8_190_735_360,
    ),
    "qwen3 30b-a3b": (
        config(
            "qwen3_moe",
            2048,
            48,
            32,
            151936,
            intermediate_size=6144,
            moe_intermediate_size=768,
            num_key_value_heads=4,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            decoder_sparse_step=1,
            mlp_only_layers=[],
        ),
        30_532_122_624,
    ),
    "gemma 7b": (
        config("gemma", 3072, 28, 16, 256000, intermediate_size=24576, num_key_value_heads=16, head_dim=256),
        8_537_680_896,
    ),
    "gemma 2 9b": (
        config(
            "gemma2",
            3584,
            42,
            16,
            256000,
            intermediate_size=14336,
            num_key_value_heads=8,
            head_dim=256,
            sliding_window=4096,
            max_position_embeddings=8192,
        ),
        9_241_705_984,
    ),
    "gemma 3 4b": (GEMMA_3_4B, 3.88e9),
    "phi-2": (
        config("phi", 2560, 32, 32, 51200, intermediate_size=10240, hidden_act="gelu_new", tie_word_embeddings=False),
        2_779_683_840,
    ),
    "phi-3 mini": (
        config("phi3", 3072, 32, 32, 32064, intermediate_size=8192, num_key_value_heads=32, hidden_act="silu"),
        3_821_079_552,
    ),
    "falcon 7b": (FALCON_7B, 6_921_720_704),
    "falcon 40b": (FALCON_40B, 41_836_347_392),
    "gpt2": (GPT_2, 124_439_808),
    "gpt-neox 20b": (
        config("gpt_neox", 6144, 44, 64, 50432, intermediate_size=24576, tie_word_embeddings=False),
        20_554_567_680,
    ),
    "gpt-j 6b": (
        {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "n_positions": 2048, "vocab_size": 50400},
        6_050_882_784,
    ),
    "opt 6.7b": (
        config("opt", 4096, 32, 32, 50272, ffn_dim=16384, word_embed_proj_dim=4096, max_position_embeddings=2048),
        6_658_473_984,
    ),
    "opt 350m": (OPT_350M, 331_196_416),
    "bloom": (BLOOM, 176_247_271_424),
    "mpt 7b": (MPT_7B, 6_649_286_656),
    "deepseek v3": (DEEPSEEK_V3, 671_026_419_200),
    "gpt-oss 120b": (GPT_OSS_120B, 116_829_156_672),
    "llama 4 maverick": (LLAMA_4_MAVERICK, 400.7e9),
    "command r": (
        config("cohere", 8192, 40, 64, 256000, intermediate_size=22528, num_key_value_heads=64),
        34_980_831_232,
    ),
    "starcoder2 3b": (
        config("starcoder2", 3072, 30, 24, 49152, intermediate_size=12288, num_key_value_heads=2, sliding_window=4096),
        3_030_371_328,
    ),
    "olmo 7b": (config("olmo", 4096, 32, 32, 50304, intermediate_size=11008, hidden_act="silu"), 6_888_095_744),
    "dbrx": (DBRX, 131_596_523_520),
    "nemotron 3 nano": (NEMOTRON_3_NANO, 31.6e9),
    "glm 5": (GLM_5, 744e9),
    "qwen3 next": (QWEN_3_NEXT, 80e9),
    "qwen3.5 35b": (QWEN_3_5_35B, 34.7e9),
    "gemma 4 31b": (GEMMA_4_31B, 30.7e9),
    "gemma 4 26b-a4b": (GEMMA_4_26B, 25.2e9),
    "granite 4 small": (GRANITE_4_SMALL, 32.4e9),
    "kimi linear 48b": (KIMI_LINEAR, 49.1e9),
    "jamba": (JAMBA, 51.57e9),
    "bamba 9b": (BAMBA, 9.78e9),
    "mamba 2.8b": (MAMBA_2_8B, 2_768_345_600),
    "falcon mamba 7b": (FALCON_MAMBA, 7_272_665_088),
    "mamba-2 2.7b": (MAMBA_2_2_7B, 2_702_599_680),
    "codestral mamba 7b": (CODESTRAL_MAMBA, 7_285_403_648),
    "rwkv-4 7b": (RWKV_4_7B, 7_392_649_216),
    "rwkv-7 2.9b": (RWKV_7_2_9B, 2_947_735_040),
    "bert base": (config("bert", 768, 12, 12, 30522, intermediate_size=3072, max_position_embeddings=512), 109_482_240),
    "roberta large": (
        config("roberta", 1024, 24, 16, 50265, intermediate_size=4096, max_position_embeddings=514),
        355_359_744,
    ),
    "distilbert": (DISTILBERT, 66_362_880),
    "deberta base": (DEBERTA_BASE, 138_601_728),
    "deberta v3 base": (config("deberta-v2", 768, 12, 12, 128100, intermediate_size=3072), 183_831_552),
    "t5 3b": (T5_3B, 2_851_598_336),
    "mt5 xxl": (MT5_XXL, 12_921_057_280),
    "whisper large": (WHISPER_LARGE, 1_543_304_960),
    "vit l/16": (VIT_L, 303_301_632),
    "clip vit-b/32": (CLIP_B_32, 151_277_313),
}


@pytest.mark.parametrize(("answer", "published"), PUBLISHED.values(), ids=PUBLISHED)
def test_a_published_config_counts_to_its_published_parameters(answer: dict[str, Any], published: float) -> None:
    assert read_config(answer).parameters == pytest.approx(published, rel=0.01)


def transformer(answer: dict[str, Any]) -> Transformer:
    return read_transformer(answer)


def test_latent_attention_is_read() -> None:
    assert kv_bytes_per_token(transformer(DEEPSEEK_V3), 2) == 61 * 576 * 2
    assert transformer(DEEPSEEK_V3).dense_layers == 3


def test_every_second_layer_of_maverick_has_experts() -> None:
    read = transformer(LLAMA_4_MAVERICK)
    assert (read.moe_layers, read.dense_layers, read.ffn, read.expert_ffn) == (24, 24, 16384, 8192)


def test_a_language_model_inside_another_is_read_with_the_defaults_of_its_class() -> None:
    read = transformer(GEMMA_3_4B)
    assert (read.heads, read.kv_heads, read.sliding_window, read.global_layers, read.tied) == (8, 4, 1024, 5, True)


def test_layer_types_determine_the_window() -> None:
    read = transformer(GPT_OSS_120B)
    assert (read.sliding_window, read.global_layers) == (128, 18)


@pytest.mark.parametrize("answer", [{"use_sliding_window": False}, {"max_position_embeddings": 4096}])
def test_a_window_that_cuts_nothing_off_is_none(answer: dict[str, Any]) -> None:
    assert transformer({**LLAMA_3_8B, "sliding_window": 4096, **answer}).sliding_window == 0


def test_one_key_for_all_heads() -> None:
    assert transformer(FALCON_7B).kv_heads == 1
    assert transformer(FALCON_40B).kv_heads == 8
    assert transformer({**FALCON_7B, "multi_query": False}).kv_heads == 71


def test_a_shared_expert_of_eightfold_width_counts_eight_times() -> None:
    assert transformer(QWEN2_57B).shared_experts == 8


def test_layers_of_a_hybrid_are_counted() -> None:
    read = transformer(NEMOTRON_3_NANO)
    assert (read.attention_layers, read.ssm_layers, read.moe_layers) == (6, 23, 23)


@pytest.mark.parametrize(
    ("answer", "attending", "bytes_per_layer"),
    [
        (GLM_5, 78, 576 * 2),
        (QWEN_3_NEXT, 12, 2 * 2 * 256 * 2),
        (QWEN_3_5_35B, 10, 2 * 2 * 256 * 2),
        (GRANITE_4_SMALL, 4, 2 * 8 * 128 * 2),
    ],
    ids=["GLM-5", "Qwen3-Next", "Qwen3.5 35B", "Granite 4 Small"],
)
def test_only_layers_that_attend_have_a_cache(answer: dict[str, Any], attending: int, bytes_per_layer: int) -> None:
    """Layers with states (the delta rule, Mamba) have none, and latent attention caches its ranks by any name."""
    assert kv_bytes_per_token(transformer(answer), 2) == attending * bytes_per_layer


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        (MAMBA_2_8B, 64 * 5120 * (16 + 4)),
        (MAMBA_2_2_7B, 64 * (5120 * 128 + 4 * (5120 + 2 * 128))),
        (RWKV_4_7B, 32 * (3 + 2) * 4096),
        (RWKV_7_2_9B, 32 * (40 * 64 * 64 + 3 * 2560)),
    ],
    ids=["Mamba 2.8B", "Mamba-2 2.7B", "RWKV-4 7B", "RWKV-7 2.9B"],
)
def test_a_model_without_attention_keeps_a_state_of_one_size(answer: dict[str, Any], values: int) -> None:
    """Mamba keeps 16 values per channel, Mamba-2 128, RWKV-4 three, and RWKV-7 a matrix of 64 x 64 per head."""
    read = transformer(answer)
    assert read.attending_layers == read.heads == 0
    assert cache_bytes(read, 1, 2.0) == cache_bytes(read, 100_000, 2.0) == pytest.approx(2 * values, rel=0.002)


def test_the_selection_of_tokens_is_read_with_the_layers_that_share_it() -> None:
    """GLM-5.2 selects in layers 0, 1, 2, 6, 10, ..., 74; all layers of DeepSeek-V3.2 and GLM-5 select."""
    sizes = {"index_topk": 2048, "index_n_heads": 64, "index_head_dim": 128}
    every = transformer({**DEEPSEEK_V3, "model_type": "deepseek_v32", **sizes})
    assert (every.indexed_tokens, every.indexer_layers, every.indexer_heads, every.indexer_head_size) == (
        2048, 61, 64, 128,
    )  # fmt: skip
    assert transformer(GLM_5_2).indexer_layers == 21
    listed = {**GLM_5_2, "indexer_types": ["full", "shared"] * 39}
    assert transformer(listed).indexer_layers == 39
    assert transformer(DEEPSEEK_V3).indexed_tokens == transformer(GLM_5).indexed_tokens == 0


def test_attention_of_qwen3_next_has_a_gate_of_the_size_of_its_queries() -> None:
    """Qwen3-Next and Qwen3.5 activate 3 % more than without it: 17.3 of 16.8 billion in Qwen3.5 397B-A17B."""
    ungated = transformer({**QWEN_3_NEXT, "attn_output_gate": False})
    assert parameter_count(transformer(QWEN_3_NEXT)) - parameter_count(ungated) == 12 * 2048 * 16 * 256


def test_layers_of_gemma_4_without_a_window_have_heads_of_their_own() -> None:
    """10 layers keep 2 x 4 heads of 512 for all tokens, and 50 layers 2 x 16 heads of 256 for the last 1024."""
    read = transformer(GEMMA_4_31B)
    assert cache_bytes(read, 100_000, 2.0) == 2 * (10 * 100_000 * 2 * 4 * 512 + 50 * 1024 * 2 * 16 * 256)
    per_gpu = 2 * (10 * 100_000 * 2 * 4 * 512 / 4 + 50 * 1024 * 2 * 16 * 256 / 8)
    assert cache_bytes(read, 100_000, 2.0, tensor=8) == per_gpu
    assert read_config(GEMMA_4_26B).active_parameters == pytest.approx(3.8e9, rel=0.01)


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_fields_that_change_the_cost_in_unknown_ways_are_refused(name: str) -> None:
    """DeepSeek-V4 was read as a model of 88 active billions of windowed layers, and Nemotron Super 49B as one of 88."""
    with pytest.raises(ImpossibleModel, match=NOT_UNDERSTOOD[name]) as caught:
        read_config({**LLAMA_3_8B, name: [4, 128]})
    assert caught.value.field == f"huggingface_config.{name}"
    assert read_config({**LLAMA_3_8B, name: 0}) == read_config(LLAMA_3_8B)


def test_granite_without_experts_has_the_ffn_of_every_token() -> None:
    read = transformer({**GRANITE_4_SMALL, "num_local_experts": 0, "shared_intermediate_size": 8192})
    assert (read.ffn, read.experts, read.layers) == (8192, 0, 80)


@pytest.mark.parametrize("kind", ["linear_attention", "conv"])
def test_layers_of_an_unknown_type_are_refused(kind: str) -> None:
    """They were read as layers that attend, with a cache several times as large."""
    with pytest.raises(ImpossibleModel, match=f"'{kind}' cannot be read") as caught:
        read_config({**LLAMA_3_8B, "model_type": "new", "layer_types": [kind, "full_attention"] * 16})
    assert caught.value.field == "huggingface_config.layer_types"


def test_a_list_of_numbers_may_say_that_all_layers_attend() -> None:
    """MiniMax M1 has lightning attention where its list has 0, and MiniMax M2 lists 1 for all layers."""
    assert read_config({**LLAMA_3_8B, "attn_type_list": [1] * 32}) == read_config(LLAMA_3_8B)
    with pytest.raises(ImpossibleModel, match="linear attention") as caught:
        read_config({**LLAMA_3_8B, "attn_type_list": [0, 1] * 16})
    assert caught.value.field == "huggingface_config.attn_type_list"


def test_audio_next_to_a_language_model_is_refused() -> None:
    """The encoder of Voxtral was left out of memory and time."""
    with pytest.raises(ImpossibleModel, match="encoder of audio"):
        read_config({"model_type": "voxtral", "text_config": LLAMA_3_8B, "audio_config": {"num_hidden_layers": 32}})


@pytest.mark.parametrize("name", ["text_config", "llm_config", "language_config"])
def test_the_language_model_of_a_multimodal_one_has_several_names(name: str) -> None:
    assert transformer({"model_type": "internvl_chat", name: LLAMA_3_8B}) == transformer(LLAMA_3_8B)


@pytest.mark.parametrize("pattern", [{"sliding_window_pattern": "LLLG"}, {"sliding_window_pattern": 4}])
def test_a_pattern_of_windows_is_a_number_or_letters(pattern: dict[str, Any]) -> None:
    assert transformer({**LLAMA_3_8B, "sliding_window": 4096, **pattern}).global_layers == 8


def test_layers_without_experts_are_first_by_any_name() -> None:
    """Trinity Mini has 26.1 billion parameters (its model card, recalled)."""
    trinity = config(
        "afmoe", 2048, 32, 32, 200192, num_key_value_heads=4, head_dim=128, intermediate_size=6144,
        moe_intermediate_size=1024, num_experts=128, num_experts_per_tok=8, num_shared_experts=1, num_dense_layers=2,
    )  # fmt: skip
    assert transformer(trinity).dense_layers == 2
    assert read_config(trinity).parameters == pytest.approx(26.1e9, rel=0.01)


def test_an_ffn_next_to_the_experts_is_a_shared_expert() -> None:
    granite = config(
        "granitemoeshared", 1536, 40, 24, 49160, num_key_value_heads=8, intermediate_size=512,
        shared_intermediate_size=1024, num_local_experts=62, num_experts_per_tok=6,
    )  # fmt: skip
    assert transformer(granite).shared_experts == 2


@pytest.mark.parametrize("name", ["Qwen2Model", "Qwen3ForSequenceClassification", "MistralForTokenClassification"])
def test_a_class_without_an_output_projection_writes_nothing(name: str) -> None:
    model = read_config({**LLAMA_3_8B, "architectures": [name]})
    assert (model.generates, model.family) == (False, "encoder")
    assert model.parameters == read_config(LLAMA_3_8B).parameters - 128256 * 4096


@pytest.mark.parametrize("classes", [["LlamaForCausalLM"], ["GPT2LMHeadModel"], ["ChatGLMModel"], [], [7], None])
def test_other_classes_write(classes: object) -> None:
    assert read_config({**LLAMA_3_8B, "architectures": classes}) == read_config(LLAMA_3_8B)


def test_a_sample_of_whisper_is_the_audio_that_its_encoder_reads() -> None:
    model = read_config(WHISPER_LARGE)
    assert (model.input_tokens_per_sample, model.audio_seconds_per_sample) == (1500, 30)
    assert model.sample == "30 s of audio (1500 encoder tokens)"


def test_a_config_of_diffusers_is_refused_as_one() -> None:
    with pytest.raises(ImpossibleModel, match="diffusers") as caught:
        read_config({"_class_name": "FluxTransformer2DModel", "num_layers": 19})
    assert caught.value.field == "huggingface_config._class_name"


def test_an_encoder_has_no_cache() -> None:
    assert kv_bytes_per_token(transformer(PUBLISHED["bert base"][0]), 2) == 0


def albert(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return config(
        "albert", hidden, layers, heads, 30000, intermediate_size=4 * hidden, max_position_embeddings=512,
        embedding_size=128,
    )  # fmt: skip


def sam(hidden: int, layers: int, attends_everywhere: list[int]) -> dict[str, Any]:
    return {
        "model_type": "sam",
        "vision_config": {
            "hidden_size": hidden, "num_hidden_layers": layers, "global_attn_indexes": attends_everywhere,
        },
    }  # fmt: skip


SO400M = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 384,
}  # fmt: skip
CLIP_L_TOWER = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
    "num_attention_heads": 16, "patch_size": 14,
}  # fmt: skip
WAV2VEC_2_LARGE = {
    "model_type": "wav2vec2", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096,
}  # fmt: skip
HUBERT_XL = {**WAV2VEC_2_LARGE, "model_type": "hubert", "hidden_size": 1280, "num_hidden_layers": 48,
             "intermediate_size": 5120}  # fmt: skip
DINOV2_B = {
    "model_type": "dinov2", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 518,
    "patch_size": 14,
}  # fmt: skip
REGISTERS = {"num_register_tokens": 4}
DINOV3_L = {
    "model_type": "dinov3_vit", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
    "intermediate_size": 4096, "image_size": 224, "patch_size": 16, "use_gated_mlp": False,
} | REGISTERS  # fmt: skip
VIT_MAE_B = {
    "model_type": "vit_mae", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "image_size": 224, "patch_size": 16, "num_channels": 3, "decoder_hidden_size": 512,
    "decoder_num_hidden_layers": 8, "mask_ratio": 0.75,
}  # fmt: skip
ENCODERS: dict[str, tuple[dict[str, Any], float, float | None]] = {
    "albert base": (albert(768, 12, 12), 11_683_584, None),
    "albert xxlarge": (albert(4096, 12, 64), 222_595_584, None),
    "convnext small": (
        {"model_type": "convnext", "depths": [3, 3, 27, 3], "hidden_sizes": [96, 192, 384, 768]},
        50_223_688,
        8.684e9,
    ),
    "swin base": (
        {"model_type": "swin", "embed_dim": 128, "depths": [2, 2, 18, 2], "window_size": 7}, 87_768_224, 15.431e9,
    ),
    "sam base": (sam(768, 12, [2, 5, 8, 11]), 93_735_472, 486.4e9),
    "sam huge": (sam(1280, 32, [7, 15, 23, 31]), 641_090_608, 2973e9),
    "wav2vec 2.0 base": ({"model_type": "wav2vec2"}, 94_371_712, None),
    "wav2vec 2.0 large": (WAV2VEC_2_LARGE, 315_438_720, None),
    "hubert xlarge": (HUBERT_XL, 962e6, None),
    "clip vit-l/14, images alone": (CLIP_L_TOWER, 303.2e6, 81.0e9),
    "clip vit-l/14, texts alone": (
        {"model_type": "clip_text_model", "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
        123_060_480,
        None,
    ),
    "siglip base": ({"model_type": "siglip", "text_config": {}, "vision_config": {}}, 203_155_970, None),
    "siglip so400m": (
        {
            "model_type": "siglip",
            "vision_config": SO400M,
            "text_config": {name: SO400M[name] for name in list(SO400M)[:4]},
        },
        877_960_274,
        None,
    ),
    "siglip so400m, images alone": ({"model_type": "siglip_vision_model", **SO400M}, 428_225_600, None),
    "dinov2 base": (DINOV2_B, 86_580_480, None),
    "dinov2 base with registers": (DINOV2_B | {"model_type": "dinov2_with_registers"} | REGISTERS, 86_583_552, None),
    "dinov3 vit-l/16": (DINOV3_L, 303.1e6, None),
    "dinov3 vit-7b/16": (
        DINOV3_L | {"hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
                    "intermediate_size": 8192, "use_gated_mlp": True},
        6716e6,
        None,
    ),
    "vit-mae base, its encoder": (VIT_MAE_B, 85_798_656, 17.58e9),
}  # fmt: skip
"""Config, published parameters, and published multiply-accumulates for a sample: of torchvision, and for SAM of
EfficientViT-SAM (2402.05008); for DINOv3 of its README, for ViT-MAE of timm (`vit_base_patch16_224.mae`)."""


@pytest.mark.parametrize(("answer", "published", "multiplied"), ENCODERS.values(), ids=ENCODERS)
def test_encoders_count_to_what_is_published(
    answer: dict[str, Any], published: float, multiplied: float | None
) -> None:
    model = read_config(answer)
    assert model.parameters == pytest.approx(published, rel=0.005)
    if multiplied is not None:
        assert model.forward_flops_per_sample == pytest.approx(2 * multiplied, rel=0.01)


SWIN_B = {"model_type": "swin", "embed_dim": 128, "depths": [2, 2, 18, 2], "window_size": 7}
CONVNEXT_B = {"model_type": "convnext", "depths": [3, 3, 27, 3], "hidden_sizes": [128, 256, 512, 1024]}


@pytest.mark.parametrize(
    ("answer", "values", "products"),
    [
        (CLIP_B_32, 8.44e6, 99), (SWIN_B, 28.4e6, 101), (CONVNEXT_B, 28.75e6, 113), (WAV2VEC_2_LARGE, 142.9e6, 105),
        (albert(768, 12, 12), 42.5e6, 50),
    ],
)  # fmt: skip
def test_networks_write_the_values_that_are_counted_for_their_names(
    answer: dict[str, Any], values: float, products: int
) -> None:
    """Counted on the networks of torchvision (of Swin half of the saved values), and by dimensions."""
    model = read_config(answer)
    assert model.activation_values_per_sample == pytest.approx(values, rel=0.015)
    assert model.weight_layers == products


def test_the_inputs_of_blocks_are_those_of_all_layers() -> None:
    """By hand: 50 tokens of an image and 77 of a text in 12 layers each; 500 of sound in 24; four stages of Swin."""
    assert read_config(CLIP_B_32).blocks == 24
    assert read_config(CLIP_B_32).block_inputs_per_sample == 12 * (50 * 768 + 77 * 512)
    assert read_config(WAV2VEC_2_LARGE).block_inputs_per_sample == 24 * 500 * 1024
    assert read_config(SWIN_B).block_inputs_per_sample == 49 * (2 * 64 * 128 + 2 * 16 * 256 + 18 * 4 * 512 + 2 * 1024)


def test_whisper_reads_30_seconds_of_audio_and_writes_the_words_in_it() -> None:
    model = read_config(WHISPER_LARGE)
    assert (model.audio_seconds_per_sample, model.input_tokens_per_sample) == (30, 1500)
    assert model.output_tokens_per_sample == pytest.approx(100)
    assert model.sample == "30 s of audio (1500 encoder tokens)"
    shorter = read_config({**WHISPER_LARGE, "max_source_positions": 500, "max_target_positions": 20})
    assert (shorter.audio_seconds_per_sample, shorter.output_tokens_per_sample) == (10, 20)
    with pytest.raises(ImpossibleModel, match="has positions"):
        read_config({**WHISPER_LARGE, "max_source_positions": 0})


def test_sound_is_read_50_times_a_second() -> None:
    """Ten seconds are 500 tokens of wav2vec 2.0 base, with 85.05 million weights in layers; its convolutions take 2.45
    billion multiply-accumulates a second.
    """
    by_hand = 500 * (85.05e6 + 4.72e6 + 0.39e6 + 2 * 12 * 768 * 500) + 10 * 2.454e9
    model = read_config({"model_type": "wav2vec2"})
    assert model.forward_flops_per_sample == pytest.approx(2 * by_hand, rel=0.002)
    assert (model.sample, model.audio_seconds_per_sample) == ("10 s of sound", 10)


def test_images_cost_what_is_published() -> None:
    """61.55 GMACs by torchvision, 14.78 GFLOPs by OpenCLIP."""
    assert read_config(VIT_L).forward_flops_per_sample == pytest.approx(2 * 61.555e9, rel=0.01)
    assert read_config(CLIP_B_32).forward_flops_per_sample == pytest.approx(14.78e9, rel=0.01)


QWEN_2_5_VL: dict[str, Any] = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28,
    "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "vision_config": {
        "depth": 32, "hidden_act": "silu", "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16,
        "out_hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "window_size": 112,
    },
}  # fmt: skip
QWEN_2_VL = QWEN_2_5_VL | {
    "model_type": "qwen2_vl",
    "vision_config": {
        "depth": 32, "embed_dim": 1280, "hidden_act": "quick_gelu", "hidden_size": 3584, "mlp_ratio": 4,
        "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
}  # fmt: skip
KIMI_K2_5 = {
    "model_type": "kimi_k25",
    "text_config": DEEPSEEK_V3,
    "vision_config": {
        "merge_kernel_size": [2, 2], "patch_size": 14, "vt_hidden_size": 1152, "vt_intermediate_size": 4304,
        "vt_num_hidden_layers": 27,
    },
}  # fmt: skip
QWEN_3_VL_8B = config(
    "qwen3_vl", 4096, 36, 32, 151936, intermediate_size=12288, num_key_value_heads=8, head_dim=128, vision_config={
        "deepstack_visual_indexes": [8, 16, 24], "depth": 27, "hidden_act": "gelu_pytorch_tanh", "hidden_size": 1152,
        "intermediate_size": 4304, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
)  # fmt: skip
LLAVA = {
    "model_type": "llava",
    "text_config": {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
        "num_hidden_layers": 32, "vocab_size": 32064,
    },
    "vision_config": {
        "model_type": "clip_vision_model", "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "num_hidden_layers": 24, "patch_size": 14,
    },
}  # fmt: skip
GEMMA_3 = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 256,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "num_hidden_layers": 27, "patch_size": 14,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "published", "patches"),
    [
        (QWEN_2_5_VL, 676e6, 4),
        (QWEN_2_VL, 675e6, 4),
        (LLAVA, 304e6, 1),
        (GEMMA_3, 417e6, 16),
        (KIMI_K2_5, 466e6, 4),
        (QWEN_3_VL_8B, 576e6, 4),
    ],
    ids=["Qwen2.5-VL 7B", "Qwen2-VL 7B", "LLaVA 1.5 7B", "Gemma 3 4B", "Kimi K2.5", "Qwen3-VL 8B"],
)
def test_the_encoder_of_images_counts_to_its_published_parameters(
    answer: dict[str, Any], published: float, patches: int
) -> None:
    model = read_config(answer)
    assert model.other_parameters == pytest.approx(published, rel=0.03)
    assert model.other_flops_per_sample is not None
    # The layers work on each patch of a token, and patches attend to each other.
    assert 0.9 < model.other_flops_per_sample / (2 * published * patches) < 1.8
    text = read_config({name: value for name, value in answer.items() if name != "vision_config"})
    assert text.other_parameters is text.other_flops_per_sample is None
    assert text.parameters == model.parameters


@pytest.mark.parametrize("name", ["depth", "hidden_size", "patch_size"])
def test_an_encoder_of_images_without_dimensions_is_refused(name: str) -> None:
    vision = {key: value for key, value in QWEN_2_5_VL["vision_config"].items() if key != name}
    with pytest.raises(ImpossibleModel, match="vision_config") as caught:
        read_config(QWEN_2_5_VL | {"vision_config": vision})
    assert caught.value.field == "huggingface_config.vision_config"


def test_an_unknown_architecture_is_read_by_the_usual_names() -> None:
    assert transformer({**LLAMA_3_8B, "model_type": "llama-of-tomorrow"}) == transformer(LLAMA_3_8B)
    nameless = {name: value for name, value in LLAMA_3_8B.items() if name != "model_type"}
    assert transformer(nameless) == transformer(LLAMA_3_8B)


def test_an_unknown_architecture_gates_as_its_activation_says() -> None:
    assert not transformer({**LLAMA_3_8B, "model_type": "new", "hidden_act": "gelu"}).gated


def test_what_is_missing_is_named_with_its_other_names() -> None:
    with pytest.raises(ImpossibleModel) as caught:
        read_config({"model_type": "new", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 10})
    assert caught.value.field == "huggingface_config.num_hidden_layers"
    assert caught.value.sentence.startswith("The config does not have num_hidden_layers (")
    assert "n_layer" in caught.value.sentence


@pytest.mark.parametrize("kind", NOT_READ)
def test_what_would_be_read_wrong_is_refused_with_the_reason(kind: str) -> None:
    with pytest.raises(ImpossibleModel, match=NOT_READ[kind]) as caught:
        read_config({**LLAMA_3_8B, "model_type": kind})
    assert caught.value.field == "huggingface_config.model_type"


BART_LARGE = {
    "model_type": "bart", "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 16,
    "num_hidden_layers": 12, "num_attention_heads": 16, "vocab_size": 50265,
}  # fmt: skip
DINO_OF_TOMORROW = DINOV3_L | {"model_type": "dinov4_vit"}
GROUNDING_DINO = {
    "model_type": "grounding-dino", "backbone_config": {"model_type": "swin"}, "d_model": 256, "encoder_layers": 6,
    "text_config": config("bert", 768, 12, 12, 30522),
}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "field", "sentence"),
    [
        (GROUNDING_DINO, "model_type", "'grounding-dino' cannot be read"),
        (GROUNDING_DINO | {"model_type": "dino-of-tomorrow"}, "backbone_config", "layers behind another network"),
        ({**LLAMA_3_8B, "model_type": "blip-2", "qformer_config": {"num_hidden_layers": 12}}, "qformer_config", "own"),
        ({**LLAMA_3_8B, "model_type": "idefics2", "perceiver_config": {"num_key_value_heads": 4}}, "perceiver_config",
         "a network of its own"),
        (BART_LARGE, "decoder_layers", "an encoder and a decoder have sizes of their own"),
        (DINO_OF_TOMORROW, "patch_size", "it reads images"),
    ],
)  # fmt: skip
def test_a_network_around_or_besides_a_language_model_is_refused(
    answer: dict[str, Any], field: str, sentence: str
) -> None:
    """These were read as the one transformer whose fields their config has."""
    with pytest.raises(ImpossibleModel, match=sentence) as caught:
        read_config(answer)
    assert caught.value.field == f"huggingface_config.{field}"


BROKEN: dict[str, dict[str, Any]] = {
    "text": {"hidden_size": "4096"},
    "flag": {"hidden_size": True},
    "part": {"hidden_size": 4096.5},
    "nan": {"hidden_size": float("nan")},
    "endless": {"hidden_size": float("inf")},
    "absurd": {"hidden_size": 10**4000},
    "negative": {"hidden_size": -4096},
    "zero layers": {"num_hidden_layers": 0},
    "uneven heads": {"num_attention_heads": 7},
    "uneven keys": {"num_key_value_heads": 5},
    "type": {"model_type": 7},
    "types": {"sliding_window": 64, "layer_types": 7},
    "tie": {"tie_word_embeddings": "yes"},
    "experts": {"num_local_experts": 8},
    "more experts than there are": {"num_local_experts": 8, "num_experts_per_tok": 9},
    "shared width": {"num_local_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 7},
    "mpt": {"model_type": "mpt", "attn_config": 3},
    "deepseek": {"model_type": "deepseek_v3", "kv_lora_rank": 512},
    "nemotron": {"model_type": "nemotron_h"},
    "whisper": {"model_type": "whisper"},
    "patches": {"model_type": "vit", "patch_size": 15},
    "clip": {"model_type": "clip", "text_config": []},
    "stages": {"model_type": "swin", "embed_dim": 96, "depths": 4},
    "stages of different number": {"model_type": "convnext", "depths": [3, 3], "hidden_sizes": [96]},
    "windows": {"model_type": "sam", "vision_config": {"window_size": 0}},
    "convolutions": {"model_type": "hubert", "conv_dim": [512]},
    "kimi linear": {"model_type": "kimi_linear", "kv_lora_rank": 512},
    "bamba": {"model_type": "bamba"},
    "lists of unequal numbers": {"num_local_experts": [8, 16]},
    "images": {"vision_config": {"depth": 3}},
    "images without patches": {"vision_config": {"depth": 3, "hidden_size": 64, "patch_size": 0}},
    "pooled images": {"vision_config": {"depth": 3, "hidden_size": 64, "patch_size": 14}, "downsample_ratio": 2},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_broken_config_is_a_sentence(change: dict[str, Any]) -> None:
    with pytest.raises(ImpossibleModel) as caught:
        read_config({**LLAMA_3_8B, **change})
    assert caught.value.sentence.endswith(".")
    assert (caught.value.field or "").startswith("huggingface_config")


TEXTS = st.sampled_from(["", "llama", "7", "full_attention"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXTS, st.lists(st.integers(), max_size=3),
    st.dictionaries(TEXTS, st.integers(), max_size=2),
)  # fmt: skip
NAMES = st.sampled_from(
    sorted(
        {key for keys in KEYS.values() for key in keys}
        | {
            "text_config",
            "vision_config",
            "layer_types",
            "depths",
            "hidden_sizes",
            "embed_dim",
            "conv_dim",
            "conv_kernel",
            "window_size",
            "index_topk",
            "linear_attn_config",
            "attn_layer_period",
            "mamba_d_state",
            "moe_layer_freq",
        }
    )
)


@given(
    st.sampled_from([answer for answer, *_ in (*PUBLISHED.values(), *ENCODERS.values())]),
    st.dictionaries(NAMES, VALUES, max_size=4),
)
def test_whatever_is_sent_is_read_or_refused(answer: dict[str, Any], change: dict[str, Any]) -> None:
    with suppress(ImpossibleModel):
        assert read_config({**answer, **change}).parameters > 0
