"""Configs, clusters and fixed layouts drawn at random, for properties of the physics and of the layouts."""

from dataclasses import replace

from hypothesis import reject
from hypothesis import strategies as st

from service.domain.calibration.calibration import Calibration
from service.domain.errors import QuestionError
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import FREE, FixedLayout
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.search import best_layout
from service.domain.models.model import Model
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import LLAMA_3_8B, inference, model, training
from tests.strategies.made_once import between, one_of

STACKS = [
    "unknown",
    "megatron-bridge",
    "torchtune",
    "torchtitan",
    "deepspeed",
    "early-pytorch-ngc",
    "vllm",
    "tensorrt-llm",
]
stacks = st.sampled_from(STACKS).map(SoftwareStack)
serving_stacks = st.sampled_from([*STACKS, "llama.cpp"]).map(SoftwareStack)


@st.composite
def models(draw: st.DrawFn) -> Model:
    heads = draw(one_of(12, 32, 64))
    dense = replace(
        LLAMA_3_8B,
        layers=draw(one_of(2, 12, 32, 61, 80)),
        heads=heads,
        kv_heads=draw(one_of(4, heads)),
        vocabulary=draw(one_of(1000, 128256)),
    )
    size = draw(between(0.1, 200)) * 1e9
    if draw(st.booleans()):
        return model(dense, size)
    experts = draw(one_of(8, 60))
    routed = replace(dense, experts=experts, experts_per_token=2, expert_ffn=1024)
    return replace(model(routed, size, family="moe"), active_parameters=size / draw(between(1.5, 6)))


@st.composite
def training_configs(draw: st.DrawFn) -> TrainingConfig:
    return training(
        model=draw(models()),
        global_batch=draw(one_of(None, 1, 6, 64, 250, 1024)),
        sequence_length=draw(one_of(128, 4096, 32768)),
        method=draw(one_of("full", "lora")),
        recipe=draw(one_of("mixed", "pure")),
        software=draw(stacks),
        flash_attention=draw(st.booleans()),
        fused_optimizer=draw(st.booleans()),
    )


network_rates = st.one_of(st.floats(10, 3200), st.floats(0.1, 10))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    gpus = draw(one_of(1, 2, 3, 4, 6, 8))
    gpu = gpu_with_peaks(
        memory_gb=draw(one_of(16.0, 24.0, 40.0, 80.0, 192.0)),
        tflops=draw(between(20, 2000)),
        bandwidth=draw(between(200, 8000)),
    )
    gpu = replace(gpu, id=f"gpu-{gpu.memory_gb}-{gpu.rates['bf16']}-{gpu.memory_bandwidth_gb_per_second}")
    nodes = draw(one_of(1, 2, 3, 4))
    network_gbps = draw(network_rates)
    connected = cluster(gpu, gpus, nodes, draw(between(20, 1800)), network_gbps)
    return connected if draw(st.booleans()) else replace(connected, interconnect="pcie")


fixed_layouts = st.sampled_from(
    [
        FREE,
        FREE,
        FixedLayout(tensor=2),
        FixedLayout(zero_stage=3, activation_checkpointing="full"),
        FixedLayout(micro_batch=2),
        FixedLayout(accumulation=2, pipeline=1),
        FixedLayout(data=2, virtual_stages=2),
    ]
)


@st.composite
def inference_configs(draw: st.DrawFn) -> InferenceConfig:
    return inference(
        model=draw(models()),
        concurrency=draw(one_of(None, 1.0, 3.0, 64.0, 1000.0)),
        input_length=draw(one_of(1.0, 1000.0, 30000.0)),
        output_length=draw(one_of(1.0, 500.0)),
        weight_bits=draw(one_of(None, 4.25, 8.0)),
        software=draw(serving_stacks),
    )


def found_for(
    with_: Calibration, work: TrainingConfig | InferenceConfig, where: Cluster, fixed: FixedLayout | None = None
) -> Estimate:
    """The estimate of the best layout; examples without a layout are skipped."""
    try:
        return best_layout(with_, work, where, fixed or FixedLayout())
    except QuestionError:
        reject()
