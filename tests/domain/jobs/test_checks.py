"""A job that contradicts itself is refused with the field to change."""

from dataclasses import replace
from typing import Any

import pytest

from service.domain.errors import QuestionError
from service.domain.jobs.checks import check_job
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.job import Amount, Job
from service.domain.jobs.serving import Serving
from service.domain.jobs.stacks import software_called
from service.domain.models.model import Model
from tests.builders.jobs import LLAMA_3_8B, model

TRAINING = Job("training", model(), ("bf16",))
NETWORK = replace(model(), transformer=None, forward_flops_per_sample=1e9)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (replace(TRAINING, model=replace(NETWORK, forward_flops_per_sample=None)), "workload.model"),
        (replace(TRAINING, model=NETWORK, amount=Amount(tokens=1e9)), "workload.amount.tokens"),
        (replace(TRAINING, model=NETWORK, sequence_length=2048), "workload.sequence_length"),
        (replace(TRAINING, model=NETWORK, mean_length=512.0), "workload.mean_length"),
        (replace(TRAINING, sequence_length=1024, mean_length=1025.0), "workload.mean_length"),
        (replace(TRAINING, mean_length=1e6), "workload.mean_length"),
        (replace(TRAINING, micro_batch=64, global_batch=32), "workload.batch_size"),
        (replace(TRAINING, trainable_parameters=1e12), "workload.trainable_parameters"),
        (replace(TRAINING, image_tokens=10.0), "workload.image_tokens"),
        (
            Job("inference", model(), kv_precision="fp8", software=software_called("faster-whisper")),
            "workload.kv_cache_precision",
        ),
        (
            Job("inference", model(), serving=Serving(disaggregated=True), software=software_called("tgi")),
            "workload.serving.disaggregated",
        ),
    ],
)
def test_a_contradiction_names_the_field_to_change(job: Job, field: str) -> None:
    with pytest.raises(QuestionError) as refusal:
        check_job(job)
    assert refusal.value.field == field


def test_images_are_a_part_of_a_sample() -> None:
    reads = replace(TRAINING, model=replace(model(), other_flops_per_sample=1e9), sequence_length=2048)
    check_job(replace(reads, image_tokens=2048.0))
    with pytest.raises(QuestionError, match="some of the 2048 tokens of a sample"):
        check_job(replace(reads, image_tokens=2049.0))
    with pytest.raises(QuestionError, match="some of the 500 tokens of a sample"):
        check_job(replace(reads, image_tokens=501.0, mean_length=500.0))


def test_a_job_without_contradictions_passes() -> None:
    check_job(TRAINING)
    check_job(replace(TRAINING, micro_batch=32, global_batch=32, amount=Amount(tokens=1e9), sequence_length=2048))
    check_job(replace(TRAINING, sequence_length=1024, mean_length=1024.0))
    for rounded in (1.0, 1.04):
        check_job(replace(TRAINING, trainable_parameters=rounded * TRAINING.model.parameters))


def test_samples_that_are_longer_without_their_padding_are_refused_with_both_fields() -> None:
    with pytest.raises(QuestionError, match=r"^mean_length .* cannot exceed the 1,024 of sequence_length\.$"):
        check_job(replace(TRAINING, sequence_length=1024, mean_length=3000.0))
    with pytest.raises(QuestionError, match="of sequence_length, its default here"):
        check_job(replace(TRAINING, mean_length=1e6))


MIXTRAL = replace(LLAMA_3_8B, experts=8, experts_per_token=2, expert_ffn=14336)


@pytest.mark.parametrize(("engine", "refused"), [("vllm", True), ("sglang", True), ("tensorrt-llm", False)])
def test_stages_with_drafts_are_refused_for_engines_that_do_not_start_with_both(engine: str, *, refused: bool) -> None:
    """Issue 57755 of vLLM."""
    drafts = Serving(1.0, speculative_acceptance=0.8, draft_length=4)
    asked = Job("inference", model(), ("bf16",), serving=drafts, input_length=100.0, output_length=100.0,
                software=software_called(engine), layout=FixedLayout(pipeline=2))  # fmt: skip
    check_job(replace(asked, layout=FixedLayout(pipeline=1)))
    check_job(replace(asked, serving=replace(drafts, speculative_acceptance=0.0)))
    if not refused:
        check_job(asked)
        return
    with pytest.raises(QuestionError, match="does not run speculative decoding with pipeline stages") as refusal:
        check_job(asked)
    assert refusal.value.field == "layout"


@pytest.mark.parametrize(
    ("of_model", "fixed", "sentence"),
    [
        (model(), FixedLayout(expert=2), "has no experts, which therefore cannot be spread over 2 GPUs"),
        (model(), FixedLayout(pipeline=64), "32 layers cannot be cut into 64 pipeline stages"),
        (model(), FixedLayout(pipeline=4, virtual_stages=16), "32 layers cannot be cut into 16 pieces"),
        # A stage has up to 11 of 32 layers, and the last one 10.
        (model(), FixedLayout(pipeline=3, virtual_stages=12), "32 layers cannot be cut into 12 pieces"),
        (model(MIXTRAL), FixedLayout(expert=3), "8 experts cannot be divided over 3 GPUs"),
        (replace(NETWORK, family="cnn"), FixedLayout(tensor=2), "can only be spread by data: tensor 2"),
    ],
)
def test_a_layout_that_no_cluster_can_have_is_refused(of_model: Model, fixed: FixedLayout, sentence: str) -> None:
    with pytest.raises(QuestionError, match=sentence) as refusal:
        check_job(replace(TRAINING, model=of_model, layout=fixed))
    assert refusal.value.field == "layout"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"layout": FixedLayout(zero_stage=2)}, "layout"),
        ({"software": software_called("megatron-lm")}, "workload.offload_parameters"),
    ],
)
def test_offloaded_weights_are_sharded(change: dict[str, Any], field: str) -> None:
    offloaded = replace(TRAINING, offload_parameters=True)
    check_job(offloaded)
    check_job(replace(offloaded, layout=FixedLayout(zero_stage=3), software=software_called("deepspeed")))
    with pytest.raises(QuestionError, match="shard") as refusal:
        check_job(replace(offloaded, **change))
    assert refusal.value.field == field


def test_layouts_that_some_cluster_can_have_pass() -> None:
    for fixed in (FixedLayout(pipeline=4, virtual_stages=8), FixedLayout(pipeline=3, virtual_stages=11)):
        check_job(replace(TRAINING, layout=fixed))
    check_job(replace(TRAINING, model=model(MIXTRAL), layout=FixedLayout(expert=4)))
    check_job(replace(TRAINING, model=model(MIXTRAL), layout=FixedLayout(tensor=2, expert=16)))


def test_engines_spread_experts_over_gpus_that_do_not_divide_their_number() -> None:
    served = Job(task="inference", model=model(MIXTRAL), input_length=1024, output_length=128)
    check_job(replace(served, layout=FixedLayout(data=6, expert=6)))
    with pytest.raises(QuestionError, match="8 experts cannot be divided over 16 GPUs"):
        check_job(replace(served, layout=FixedLayout(data=16, expert=16)))
