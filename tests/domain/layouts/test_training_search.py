"""The layout that is chosen: the fastest that fits, within what the model, its stack and the caller allow."""

from dataclasses import replace

import pytest

from service.domain.errors import QuestionError
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.inference_search import best_inference_layout
from service.domain.layouts.training_search import best_training_layout
from service.domain.layouts.usual import FixedLayout
from tests.builders.calibrations import FITTED, UNFITTED
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import LARGE_MODEL, LLAMA_3_8B, inference, model, training


def test_a_small_model_is_copied_to_every_gpu() -> None:
    small = model(replace(LLAMA_3_8B, layers=12, hidden=768, heads=12, kv_heads=12, head_size=64, ffn=3072), 0.2e9)
    found = best_training_layout(UNFITTED, training(model=small), cluster()).layout
    assert (found.data, found.tensor, found.pipeline) == (8, 1, 1)
    assert found.activation_checkpointing == "none"


def test_what_is_fixed_stays() -> None:
    fixed = FixedLayout(tensor=2, zero_stage=1, micro_batch=2, activation_checkpointing="full")
    found = best_training_layout(FITTED, training(), cluster(), fixed).layout
    assert (found.tensor, found.zero_stage, found.micro_batch, found.activation_checkpointing) == (2, 1, 2, "full")
    assert found.gpus == 8
    assert found.global_batch == 64


def test_what_fits_nowhere_is_given_in_its_smallest_form() -> None:
    found = best_training_layout(FITTED, training(model=LARGE_MODEL), cluster())
    assert not found.fits
    assert found.samples_per_second is None
    assert found.layout.activation_checkpointing == "full"
    assert found.layout.micro_batch == 1


def test_tensors_cross_slow_links_only_where_nothing_else_fits() -> None:
    two_nodes = cluster(gpu_with_peaks(memory_gb=80), gpus=2, nodes=8)
    layers = replace(LLAMA_3_8B, layers=2, hidden=65536, heads=512, ffn=4 * 65536)
    wide = model(layers, 90e9)
    work = training(model=wide, global_batch=1, sequence_length=512, optimizer="sgd", recipe="pure")
    found = best_training_layout(UNFITTED, work, two_nodes)
    assert found.fits
    assert found.layout.tensor > 2
    assert found.tensor_across_slow_links
    assert not best_training_layout(UNFITTED, training(), two_nodes).tensor_across_slow_links


def test_a_caller_may_cross_slow_links() -> None:
    found = best_training_layout(UNFITTED, training(), cluster(gpus=2, nodes=4), FixedLayout(tensor=8))
    assert found.layout.tensor == 8
    assert found.tensor_across_slow_links


def test_stacks_that_cut_no_matrices_shard() -> None:
    work = training(model=LARGE_MODEL, software=SoftwareStack("torchtune"))
    found = best_training_layout(FITTED, work, cluster(nodes=4)).layout
    assert (found.tensor, found.pipeline, found.zero_stage) == (1, 1, 3)


def test_fewer_samples_than_gpus_lower_the_data_degree() -> None:
    found = best_training_layout(UNFITTED, training(global_batch=4), cluster()).layout
    assert found.data <= 4
    assert found.gpus == 8
    resnet = model(None, 25.6e6, family="cnn", forward_flops_per_sample=8.2e9)
    with pytest.raises(QuestionError, match="each data-parallel rank needs a sample"):
        best_training_layout(UNFITTED, training(model=resnet, global_batch=4), cluster())


def test_what_divides_nothing_is_said() -> None:
    with pytest.raises(QuestionError, match="No layout divides A model over 3 GPUs") as caught:
        best_inference_layout(UNFITTED, inference(), cluster(gpus=3), FixedLayout(data=1, pipeline=1))
    assert caught.value.field == "layout"


def test_throughput_wants_replicas_and_one_answer_wants_all_gpus() -> None:
    many = best_inference_layout(FITTED, inference(concurrency=None, software=SoftwareStack("vllm")), cluster())
    assert many.layout.data >= 4
    one = best_inference_layout(FITTED, inference(concurrency=1.0, software=SoftwareStack("vllm")), cluster())
    assert one.layout.tensor == 8


def test_a_model_too_big_for_a_gpu_is_cut() -> None:
    found = best_inference_layout(FITTED, inference(model=LARGE_MODEL, concurrency=None), cluster())
    assert found.fits
    assert found.layout.model_ranks >= 2
