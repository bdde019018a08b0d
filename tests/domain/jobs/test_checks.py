"""A job that contradicts itself is refused with the field to change."""

from dataclasses import replace

import pytest

from service.domain.errors import QuestionError
from service.domain.jobs.checks import check_job
from service.domain.jobs.job import Amount, Job
from service.domain.jobs.serving import Serving
from service.domain.jobs.stacks import software_called
from tests.builders.jobs import model

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
            Job("inference", model(), serving=Serving(disaggregated=True), software=software_called("tgi")),
            "workload.serving.disaggregated",
        ),
    ],
)
def test_a_contradiction_names_the_field_to_change(job: Job, field: str) -> None:
    with pytest.raises(QuestionError) as refusal:
        check_job(job)
    assert refusal.value.field == field


def test_images_in_training_are_refused_because_it_is_training() -> None:
    with pytest.raises(QuestionError, match="counted in inference only"):
        check_job(replace(TRAINING, model=replace(model(), other_flops_per_sample=1e9), image_tokens=10.0))


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
