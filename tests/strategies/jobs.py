"""Jobs, and catalogs to run them, drawn at random, for comparing the ranking by physics with slow and plain code."""

from dataclasses import replace
from typing import Literal

from hypothesis import strategies as st

from service.domain.catalog.hardware import Gpu
from service.domain.jobs.job import Amount, Job
from service.domain.jobs.serving import MOST_INSTANCES, Length, Serving
from service.domain.jobs.stacks import SoftwareStack
from service.domain.recommend.fleet import node_counts
from tests.builders.calibrations import FITTED
from tests.builders.gpus import rate
from tests.builders.jobs import LARGE_MODEL, LLAMA_3_8B
from tests.builders.jobs import model as model_of
from tests.strategies.catalogs import World, catalog_of, worlds
from tests.strategies.made_once import one_of

SMALL = model_of(replace(LLAMA_3_8B, layers=12, hidden=768, heads=12, kv_heads=12, head_size=64, ffn=3072), 0.2e9)
MIDDLING = model_of()
PICTURES = model_of(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)

Task = Literal["training", "inference"]
mostly = st.sampled_from([True, True, True, False])
amounts = one_of(None, Amount(samples=10_000.0), Amount(steps=50.0))
amounts_with_tokens = one_of(None, Amount(samples=10_000.0), Amount(steps=50.0), Amount(tokens=1e8))
node_choices = st.tuples(st.integers(1, 3), st.integers(0, 5)).map(lambda pair: node_counts(pair[0], sum(pair)))


# Limits that hold everywhere, at some engines, and nowhere.
loads = st.builds(
    Serving,
    requests_per_second=st.sampled_from([0.1, 3.0, 200.0]),
    concurrency=st.sampled_from([None, None, 1.0, 40.0]),
    prompt=st.just(Length(512.0)),
    answer=st.sampled_from([Length(300.0), Length(300.0, 600.0)]),
    max_seconds_to_first_token=st.sampled_from([None, None, 1e-3, 0.1, 2.0]),
    max_seconds_per_output_token=st.sampled_from([None, None, 1e-4, 0.01, 0.2]),
    max_seconds_per_request=st.sampled_from([None, None, 0.5, 20.0]),
    headroom=st.sampled_from([0.0, 0.2]),
    min_replicas=st.sampled_from([1, 3]),
    availability_zones=st.sampled_from([1, 1, 2]),
    max_instances=st.sampled_from([1, 8, MOST_INSTANCES]),
)


loads_without_tokens = loads.map(
    lambda load: replace(
        load,
        prompt=Length(0.0),
        answer=Length(1.0),
        max_seconds_to_first_token=None,
        max_seconds_per_output_token=None,
        max_seconds_per_request=load.max_seconds_per_request and load.max_seconds_per_request / 50.0,
    )
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    task: Task = draw(one_of("training", "training", "inference"))
    model = draw(one_of(SMALL, SMALL, MIDDLING, LARGE_MODEL, PICTURES))
    if task == "inference" and draw(st.booleans()):
        serving = draw(loads_without_tokens if model is PICTURES else loads)
        return Job(
            task=task,
            model=model,
            software=SoftwareStack(draw(one_of("unknown", "vllm"))),
            input_length=serving.prompt.mean,
            output_length=serving.answer.mean,
            serving=serving,
        )
    return Job(
        task=task,
        model=model,
        precisions=draw(one_of((), (), ("bf16",), ("fp8", "fp16"), ("fp32",))),
        software=SoftwareStack(draw(one_of("unknown", "torchtitan", "vllm"))),
        amount=draw(amounts if model is PICTURES else amounts_with_tokens),
        method=draw(one_of("full", "lora")) if task == "training" else "full",
        sequence_length=draw(one_of(512, 8192)),
        global_batch=draw(one_of(None, 3, 64)),
        output_length=draw(one_of(1.0, 300.0)),
        concurrency=draw(one_of(None, 1.0, 16.0)),
    )


@st.composite
def physical_worlds(draw: st.DrawFn) -> World:
    """Small worlds in which the figures of most GPUs are known, with the coefficients of the seed."""
    world = draw(worlds())
    completed: dict[str, Gpu] = {}
    types = []
    for each in world.catalog.instance_types:
        gpu = each.gpu
        if gpu is not None and gpu.id not in completed:
            completed[gpu.id] = with_figures(gpu) if draw(mostly) else gpu
        types.append(each if gpu is None else replace(each, gpu=completed[gpu.id]))
    return World(catalog_of(types, world.offers, calibration=FITTED), world.offers)


def with_figures(gpu: Gpu) -> Gpu:
    """The GPU with the figures of an A100 where its own are unknown."""
    return replace(
        gpu,
        memory_gb=gpu.memory_gb or 80.0,
        memory_bandwidth_gb_per_second=gpu.memory_bandwidth_gb_per_second or 2039.0,
        rates={"fp32": rate("fp32", "native", 19.5), **gpu.rates},
    )
