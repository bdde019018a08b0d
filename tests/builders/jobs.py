"""Models and the configs of jobs that run them: every default is sane, so that a test names only what matters to it."""

from dataclasses import replace
from typing import Any

from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.models.model import Model, Transformer
from tests.builders.sources import SOURCE

LLAMA_2_7B = Transformer(
    layers=32, hidden=4096, heads=32, kv_heads=32, head_size=128, ffn=11008, gated=True, vocabulary=32000, tied=False
)
LLAMA_3_8B = replace(LLAMA_2_7B, kv_heads=8, ffn=14336, vocabulary=128256)
LLAMA_3_70B = replace(LLAMA_3_8B, layers=80, hidden=8192, heads=64, ffn=28672)
GPT_175B = Transformer(
    layers=96, hidden=12288, heads=96, kv_heads=96, head_size=128, ffn=49152, gated=False, vocabulary=51200, tied=True
)


def model(transformer: Transformer | None = LLAMA_3_8B, parameters: float = 8.03e9, **given: Any) -> Model:
    """Llama 3 8B by default."""
    plain = {"forward_flops_per_sample": None, "sample": "token", "released_on": None, "source": SOURCE, "note": None}
    family = given.pop("family", "llm")
    return Model("a-model", "A model", family, parameters, parameters, transformer, **{**plain, **given})


LARGE_MODEL = model(LLAMA_3_70B, 70.6e9)


MIXTRAL = replace(
    model(
        replace(LLAMA_2_7B, kv_heads=8, ffn=0, experts=8, experts_per_token=2, expert_ffn=14336), 46.7e9, family="moe"
    ),
    active_parameters=12.88e9,
)


def training(**given: Any) -> TrainingConfig:
    return replace(TrainingConfig(model(), sequence_length=4096, global_batch=64), **given)


def inference(**given: Any) -> InferenceConfig:
    config = replace(InferenceConfig(model(), input_length=1000.0, output_length=500.0), **given)
    return replace(config, mean_bits=config.mean_bits or config.software.stack.mean_bits)
