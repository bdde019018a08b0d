"""Figures of a whole job on a cluster."""

import pytest

from service.domain.jobs.job import Job
from service.domain.layouts.job_estimate import at_rate, estimate_job
from tests.builders.calibrations import FITTED
from tests.builders.clusters import cluster
from tests.builders.gpus import gpu_with_peaks
from tests.builders.jobs import model


def test_a_reference_model_adds_a_forward_pass_to_products_and_attention() -> None:
    """Four passes in place of three, however much of the work is attention."""
    work = []
    for has_reference in (False, True):
        job = Job("training", model(), sequence_length=32_768, global_batch=8, has_reference=has_reference)
        found = estimate_job(FITTED, job, cluster(gpu_with_peaks(memory_gb=1e4)))
        assert found.estimate.samples_per_second is not None
        for figure in (found.model_flops_per_second_per_gpu, found.model_flops_utilisation):
            assert figure is not None
            work.append(figure / found.estimate.samples_per_second.likely)
    assert work[2:] == pytest.approx([each * 4 / 3 for each in work[:2]])


def test_at_another_rate_as_many_requests_are_in_flight() -> None:
    """By Little's law, they are the rate times the time of a request, of which the first token is a part."""
    job = Job("inference", model(), input_length=4000.0, output_length=50.0, concurrency=64.0)
    found = estimate_job(FITTED, job, cluster())
    assert found.estimate.samples_per_second is not None
    half = at_rate(found, found.estimate.samples_per_second.times(0.5), measured=True).estimate
    assert half.samples_per_second is not None
    assert half.seconds_to_first_token is not None
    assert half.seconds_per_output_token is not None
    seconds = half.seconds_to_first_token.likely + 49 * half.seconds_per_output_token.likely
    assert half.samples_per_second.likely * seconds == pytest.approx(64)
