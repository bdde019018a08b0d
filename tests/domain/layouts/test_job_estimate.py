"""Figures of a whole job on a cluster."""

from dataclasses import replace

import numpy as np
import pytest

from service.domain.jobs.job import Amount, Job
from service.domain.layouts.job_estimate import at_rate, estimate_job, samples_of_runs
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


@pytest.mark.parametrize(
    ("amount", "samples"), [(Amount(samples=7.0), 21.0), (Amount(tokens=40.0), 12.0), (Amount(steps=5.0), 30.0)]
)
def test_the_samples_of_a_fleet_are_those_of_each_of_its_machines(amount: Amount, samples: float) -> None:
    job = Job("training", model(), amount=amount, runs=3)
    assert samples_of_runs(job, 10.0, 2.0) == samples
    of_fleet = samples_of_runs(job, 10.0, np.array([2.0, 2.0]))
    assert np.broadcast_to(np.array(of_fleet), 2).tolist() == [samples, samples]
    assert samples_of_runs(replace(job, amount=None), 10.0, 2.0) is None
