"""Works, machines and wishes for hypothesis, and the plain loop over every layout that searches must equal."""

from dataclasses import replace

from hypothesis import strategies as st

from service.domain.calibration.error_bands import Physics
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.candidates import every_training_layout
from service.domain.layouts.usual import FREE, FixedLayout
from service.domain.models.model import Model
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_training
from tests.builders.jobs import LLAMA_3_8B, gpu, inference, machine, model, training

STACKS = ["unknown", "megatron-bridge", "torchtune", "torchtitan", "deepspeed", "pytorch-ngc", "vllm", "tensorrt-llm"]
stacks = st.sampled_from(STACKS).map(SoftwareStack)


@st.composite
def models(draw: st.DrawFn) -> Model:
    heads = draw(st.sampled_from([12, 32, 64]))
    dense = replace(
        LLAMA_3_8B,
        layers=draw(st.sampled_from([2, 12, 32, 61, 80])),
        heads=heads,
        kv_heads=draw(st.sampled_from([4, heads])),
        vocabulary=draw(st.sampled_from([1000, 128256])),
    )
    size = draw(st.floats(0.1, 200)) * 1e9
    if draw(st.booleans()):
        return model(dense, size)
    experts = draw(st.sampled_from([8, 60]))
    routed = replace(dense, experts=experts, experts_per_token=2, expert_ffn=1024)
    return replace(model(routed, size, family="moe"), active_parameters=size / draw(st.floats(1.5, 6)))


@st.composite
def works(draw: st.DrawFn) -> TrainingConfig:
    return training(
        model=draw(models()),
        global_batch=draw(st.sampled_from([None, 1, 6, 64, 250, 1024])),
        sequence_length=draw(st.sampled_from([128, 4096, 32768])),
        method=draw(st.sampled_from(["full", "lora"])),
        recipe=draw(st.sampled_from(["mixed", "pure"])),
        software=draw(stacks),
        flash_attention=draw(st.booleans()),
    )


@st.composite
def machines(draw: st.DrawFn) -> Cluster:
    gpus = draw(st.sampled_from([1, 2, 3, 4, 6, 8]))
    card = gpu(
        memory_gb=draw(st.sampled_from([16.0, 24.0, 40.0, 80.0, 192.0])),
        tflops=draw(st.floats(20, 2000)),
        bandwidth=draw(st.floats(200, 8000)),
    )
    card = replace(card, id=f"gpu-{card.memory_gb}-{card.rates['bf16']}-{card.memory_bandwidth_gb_per_second}")
    nodes = draw(st.sampled_from([1, 2, 3, 4]))
    found = machine(card, gpus, nodes, draw(st.floats(20, 1800)), draw(st.floats(10, 3200)))
    return found if draw(st.booleans()) else replace(found, interconnect="pcie")


wishes = st.sampled_from(
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
def questions(draw: st.DrawFn) -> InferenceConfig:
    return inference(
        model=draw(models()),
        concurrency=draw(st.sampled_from([None, 1.0, 3.0, 64.0, 1000.0])),
        input_length=draw(st.sampled_from([1.0, 1000.0, 30000.0])),
        output_length=draw(st.sampled_from([1.0, 500.0])),
        weight_bits=draw(st.sampled_from([None, 4.25, 8.0])),
        software=draw(stacks),
    )


def best_of_all(physics: Physics, work: TrainingConfig, where: Cluster, fixed: FixedLayout) -> Estimate | None:
    """Every layout, one by one: the fastest that fits, else the one that needs the least with tensors on fast links."""
    inside, across = (
        [
            estimate_training(physics, work, where, each)
            for each in every_training_layout(work, where, fixed, across=slow_links)
        ]
        for slow_links in (False, True)
    )
    for found in (inside, across):
        if any(each.fits for each in found):
            return max((each for each in found if each.fits), key=likely)
    return min(inside or across, key=lambda each: each.memory.needed_bytes, default=None)


def likely(estimate: Estimate) -> float:
    """Samples per second; 0 of what does not fit."""
    return estimate.samples_per_second.likely if estimate.samples_per_second else 0.0
