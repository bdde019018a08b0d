"""The layout that people choose by default."""

from dataclasses import replace

from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.usual import usual_layout
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import LARGE_MODEL, LLAMA_3_8B, inference, model, training

SMALL = model(parameters=1e9)


def test_a_small_model_is_copied_and_a_large_one_sharded() -> None:
    small, large = (usual_layout(training(model=each), cluster()) for each in (SMALL, LARGE_MODEL))
    assert (small.data, small.zero_stage) == (8, 0)
    assert (large.data, large.zero_stage) == (8, 3)


def test_megatron_cuts_a_large_model_within_a_node_and_then_into_stages() -> None:
    """70e9 parameters take 18 bytes each, and 16 GPUs of 80 GB hold 60 % of theirs: 26 GPUs, hence 8 by 2 of 16."""
    config = training(model=LARGE_MODEL, software=SoftwareStack("megatron-core"))
    layout = usual_layout(config, cluster(nodes=2))
    assert (layout.tensor, layout.pipeline, layout.data, layout.zero_stage) == (8, 2, 1, 0)


def test_rounds_of_micro_batches_add_up_to_the_global_batch() -> None:
    layout = usual_layout(training(model=SMALL, global_batch=64), cluster())
    assert layout.global_batch == 64
    assert layout.micro_batch == 1


def test_fixed_parts_stay() -> None:
    fixed = FixedLayout(tensor=2, micro_batch=4, activation_checkpointing="full")
    layout = usual_layout(training(model=LARGE_MODEL), cluster(), fixed)
    assert (layout.tensor, layout.micro_batch, layout.activation_checkpointing) == (2, 4, "full")
    assert layout.data == 4


def test_inference_has_a_replica_on_each_gpu() -> None:
    assert usual_layout(inference(), cluster()).data == 8
    assert usual_layout(inference(), cluster(), FixedLayout(tensor=4)).data == 2


def test_a_stack_that_splits_layers_makes_stages_of_a_large_model() -> None:
    config = inference(model=LARGE_MODEL, software=SoftwareStack("llama.cpp"))
    layout = usual_layout(config, cluster())
    assert (layout.tensor, layout.pipeline, layout.data) == (1, 4, 2)
    both = usual_layout(config, cluster(), FixedLayout(tensor=4))
    assert (both.tensor, both.pipeline, both.data) == (4, 1, 2)


def test_six_gpus_are_divided_as_heads_allow_and_all_of_them_work() -> None:
    """64 heads over two GPUs of six, and layers over three stages; weights of 141 GB need four GPUs of 48 GB."""
    where = cluster(gpu_with_peaks(memory_gb=48), gpus=6)
    layout = usual_layout(inference(model=LARGE_MODEL), where)
    assert (layout.tensor, layout.pipeline, layout.data) == (2, 3, 1)
    work = training(model=LARGE_MODEL, software=SoftwareStack("megatron-core"))
    layout = usual_layout(work, replace(where, nodes=8))
    assert (layout.tensor, layout.pipeline, layout.data) == (2, 8, 3)


def test_no_gpu_has_a_part_of_a_head_by_default() -> None:
    """The 71 heads of Falcon 7B are divided over no eight GPUs."""
    seventy_one = model(replace(LLAMA_3_8B, heads=71, kv_heads=1, head_size=64), 70e9)
    layout = usual_layout(inference(model=seventy_one), cluster())
    assert (layout.tensor, layout.pipeline) == (1, 4)
