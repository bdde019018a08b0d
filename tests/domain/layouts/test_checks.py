"""An impossible layout is refused with a sentence."""

from dataclasses import replace

import pytest

from service.domain.errors import QuestionError
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.stacks import SoftwareStack
from service.domain.layouts.checks import check_degrees, check_fixed
from service.domain.models.model import Transformer
from service.domain.physics.parallelism import Layout
from tests.builders.clusters import cluster
from tests.builders.jobs import LLAMA_3_8B, inference, model, training

MIXTRAL = replace(LLAMA_3_8B, experts=8, experts_per_token=2, expert_ffn=14336)
MAMBA = Transformer(
    layers=64, hidden=2560, heads=0, kv_heads=0, head_size=0, ffn=0, gated=False, vocabulary=50280, tied=True,
    ssm_layers=64, ssm_heads=80, ssm_head_size=64, ssm_state=128, ssm_groups=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("fixed", "sentence"),
    [
        (FixedLayout(tensor=2, pipeline=1, context=1, data=8), "takes 16 GPUs .* but the cluster has 8"),
        (FixedLayout(tensor=3), "8 GPUs cannot be divided into groups of 3"),
        (FixedLayout(pipeline=64), "8 GPUs cannot be divided into groups of 64"),
    ],
)
def test_what_cannot_be_fixed_is_about_the_layout(fixed: FixedLayout, sentence: str) -> None:
    with pytest.raises(QuestionError, match=sentence) as caught:
        check_fixed(fixed, training(), cluster())
    assert caught.value.field == "layout"


def test_heads_are_divided_evenly_but_on_neuron_cores() -> None:
    odd = model(replace(LLAMA_3_8B, heads=40, kv_heads=8))
    with pytest.raises(QuestionError, match="40 attention heads cannot be divided over 16"):
        check_fixed(FixedLayout(tensor=16), inference(model=odd), cluster(gpus=16))
    check_fixed(
        FixedLayout(tensor=16), inference(model=odd, software=SoftwareStack("transformers-neuronx")), cluster(gpus=16)
    )


def test_key_value_heads_are_divided_or_copied_evenly() -> None:
    of_3b = inference(model=model(replace(LLAMA_3_8B, heads=24, kv_heads=8)))
    for tensor in (3, 6):
        with pytest.raises(QuestionError, match=f"8 key-value heads can neither be divided over {tensor} "):
            check_fixed(FixedLayout(tensor=tensor), of_3b, cluster(gpus=tensor))
    for tensor in (2, 8, 24):
        check_fixed(FixedLayout(tensor=tensor), of_3b, cluster(gpus=tensor))


def test_heads_of_state_spaces_are_divided_evenly() -> None:
    with pytest.raises(QuestionError, match="80 heads of state spaces cannot be divided over 7"):
        check_fixed(FixedLayout(tensor=7), inference(model=model(MAMBA)), cluster(gpus=7))
    check_fixed(FixedLayout(tensor=5), inference(model=model(MAMBA)), cluster(gpus=5))


def test_experts_are_on_the_gpus_of_a_stage() -> None:
    with pytest.raises(QuestionError, match="over 8 GPUs: each of 2 pipeline stages has 4"):
        check_fixed(FixedLayout(expert=8, pipeline=2), training(model=model(MIXTRAL)), cluster())
    check_fixed(FixedLayout(expert=4, pipeline=2), training(model=model(MIXTRAL)), cluster())


def test_all_gpus_are_in_groups_of_experts_of_one_size() -> None:
    with pytest.raises(QuestionError, match="over 4 GPUs: there are 6, which groups of 4 do not divide"):
        check_fixed(FixedLayout(expert=4), training(model=model(MIXTRAL)), cluster(gpus=6))


def test_micro_batches_and_accumulation_make_the_global_batch() -> None:
    for fixed, batch in [
        (FixedLayout(data=8, micro_batch=4, accumulation=4), 8),
        (FixedLayout(data=8, micro_batch=4, accumulation=4), 96),  # the fourth round would be empty
        (FixedLayout(data=8, micro_batch=4, accumulation=4), 129),
        (FixedLayout(micro_batch=4, accumulation=4), 8),
    ]:
        with pytest.raises(QuestionError, match=r"Micro-batches of 4, accumulated 4 times on .*8 data-parallel ranks"):
            check_fixed(fixed, training(global_batch=batch), cluster())
    for fixed, batch in [
        (FixedLayout(data=8, micro_batch=4, accumulation=4), 128),
        (FixedLayout(data=8, micro_batch=4, accumulation=4), 97),
        (FixedLayout(micro_batch=4, accumulation=4), 16),
        (FixedLayout(data=8, micro_batch=4), 8),
    ]:
        check_fixed(fixed, training(global_batch=batch), cluster())


def test_each_rank_needs_a_sample() -> None:
    with pytest.raises(QuestionError, match="global batch of 4 cannot be spread over 8") as caught:
        check_fixed(FixedLayout(data=8), training(global_batch=4), cluster())
    assert caught.value.field == "workload.global_batch_size"


def test_a_whole_layout_takes_all_gpus() -> None:
    check_degrees(Layout(tensor=8), cluster())
    with pytest.raises(QuestionError, match="takes 16 GPUs"):
        check_degrees(Layout(tensor=8, pipeline=2), cluster())
