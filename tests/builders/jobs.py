"""Models, GPUs, machines and workloads for tests of the physics; every default is sane."""

from dataclasses import replace
from typing import Any

from service.domain.catalog.hardware import Gpu
from service.domain.catalog.precision import Rate
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.models.model import Model, Transformer
from service.domain.physics.cluster import Cluster, cluster_of

LLAMA_2_7B = Transformer(
    layers=32, hidden=4096, heads=32, kv_heads=32, head_size=128, ffn=11008, gated=True, vocabulary=32000, tied=False
)
LLAMA_3_8B = replace(LLAMA_2_7B, kv_heads=8, ffn=14336, vocabulary=128256)
GPT_175B = Transformer(
    layers=96, hidden=12288, heads=96, kv_heads=96, head_size=128, ffn=49152, gated=False, vocabulary=51200, tied=True
)


def model(transformer: Transformer | None = LLAMA_3_8B, parameters: float = 8.03e9, **known: Any) -> Model:
    plain = {"forward_flops_per_sample": None, "sample": "token", "released_on": None, "source": "a test", "note": None}
    family = known.pop("family", "llm")
    return Model("a-model", "A model", family, parameters, parameters, transformer, **{**plain, **known})


def gpu(memory_gb: float = 80, tflops: float = 312, bandwidth: float = 2039) -> Gpu:
    rates = {
        "fp32": Rate("fp32", "native", tflops / 16, None, "a test", None),
        "tf32": Rate("tf32", "accelerated", tflops / 2, None, "a test", None),
        "fp16": Rate("fp16", "accelerated", tflops, None, "a test", None),
        "bf16": Rate("bf16", "accelerated", tflops, None, "a test", None),
    }
    return Gpu(
        id="a-gpu",
        name="A GPU",
        kind="gpu",
        vendor="nvidia",
        architecture="ampere",
        released_on=None,
        memory_gb=memory_gb,
        usable_memory_gib=None,
        memory_type=None,
        memory_bandwidth_gb_per_second=bandwidth,
        tdp_watts=None,
        cores=None,
        base_clock_mhz=None,
        boost_clock_mhz=None,
        gpus_per_board=None,
        compute_capability=None,
        tensor_core_generation=None,
        interconnect="nvlink",
        interconnect_gb_per_second=600,
        form_factor=None,
        positioned_for=None,
        fraction=1.0,
        partition_of=None,
        source="a test",
        note=None,
        aliases=(),
        rates=rates,
    )


def machine(
    card: Gpu | None = None, gpus: int = 8, nodes: int = 1, link: float = 600, network_gbps: float = 800
) -> Cluster:
    return cluster_of(card or gpu(), gpus, nodes, "nvlink", link, network_gbps)


def training(**known: Any) -> TrainingConfig:
    return replace(TrainingConfig(model(), sequence_length=4096, global_batch=64), **known)


def inference(**known: Any) -> InferenceConfig:
    return replace(InferenceConfig(model(), input_length=1000.0, output_length=500.0), **known)
