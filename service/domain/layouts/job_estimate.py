"""A job on a machine: its layout, what it needs and yields, and what the whole of it takes."""

from dataclasses import dataclass
from typing import Literal

from service.domain.band import Band
from service.domain.calibration.error_bands import Physics
from service.domain.catalog.hardware import peak_flops
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.job import Job, inference_on, samples_of, training_on
from service.domain.layouts.checks import check_fixed
from service.domain.layouts.inference_search import best_inference_layout
from service.domain.layouts.training_search import best_training_layout
from service.domain.layouts.usual import FREE, FixedLayout, usual_inference_layout, usual_training_layout
from service.domain.models.counts import published_training_flops_per_sample
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import Estimate, estimate_inference, estimate_training, wall_seconds
from service.domain.physics.parallelism import Layout, checked

SECONDS_PER_HOUR = 3600.0

Choose = Literal["fastest", "usual", "usual_if_it_fits"]
"""What is left open of a layout: the fastest that fits, what people choose, or that and else the fastest."""


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """What a job comes to on a machine. Hours are those of the whole amount, without setup; None where none is told."""

    config: TrainingConfig | InferenceConfig
    estimate: Estimate
    samples: float | None
    hours: Band | None
    beyond_steps: float | None
    """The share that evaluation, saving and starting take on top of the steps, as runs of the stack had it."""
    model_flops_per_second_per_gpu: float | None
    """As papers count: attention without the causal half, recomputation left out."""
    hardware_flops_per_second_per_gpu: float | None
    """The same with recomputation."""
    model_flops_utilisation: float | None
    """Of the dense 16-bit peak, whatever the job runs in, as papers do."""
    tokens_per_sample: float

    @property
    def precision(self) -> str:
        return self.config.precision


def estimate_job(
    physics: Physics, job: Job, cluster: Cluster, fixed: FixedLayout = FREE, choose: Choose = "fastest"
) -> JobEstimate:
    """Raises `QuestionError` where the job cannot be asked of the machine: a precision or a layout that cannot be."""
    if job.task == "training":
        config = training_on(job, cluster.gpu)
        return _training_estimate(
            physics, job, config, cluster, _chosen_training(physics, config, cluster, fixed, choose)
        )
    answering = inference_on(job, cluster.gpu)
    return _inference_estimate(job, answering, _chosen_inference(physics, answering, cluster, fixed, choose))


def estimate_job_in(physics: Physics, job: Job, cluster: Cluster, layout: Layout) -> JobEstimate:
    """The same in a layout that is known to be possible."""
    if job.task == "training":
        config = training_on(job, cluster.gpu)
        return _training_estimate(physics, job, config, cluster, estimate_training(physics, config, cluster, layout))
    answering = inference_on(job, cluster.gpu)
    return _inference_estimate(job, answering, estimate_inference(physics, answering, cluster, layout))


def _training_estimate(
    physics: Physics, job: Job, config: TrainingConfig, cluster: Cluster, estimate: Estimate
) -> JobEstimate:
    layout = estimate.layout
    length = config.mean_length or config.sequence_length or 0
    samples = None if job.amount is None else samples_of(job.amount, length, layout.global_batch)
    hours = beyond = model = hardware = utilisation = None
    if estimate.samples_per_second is not None:
        rate = estimate.samples_per_second.likely
        if samples is not None:
            of_one = wall_seconds(physics, config, cluster, estimate, 1.0)
            hours = of_one.times(samples / SECONDS_PER_HOUR)
            beyond = of_one.likely * rate - 1
        if config.model.transformer is not None:
            share = rate / cluster.gpus
            model = share * published_training_flops_per_sample(config.model, config.sequence_length, passes=3)
            hardware = model * 4 / 3 if layout.activation_checkpointing == "full" else model
            utilisation = model / peak_flops(cluster.gpu, "bf16")
    return JobEstimate(config, estimate, samples, hours, beyond, model, hardware, utilisation, length)


def _inference_estimate(job: Job, config: InferenceConfig, estimate: Estimate) -> JobEstimate:
    length = config.output_length or config.mean_length or config.input_length
    samples = None if job.amount is None else samples_of(job.amount, length, estimate.concurrency or 1.0)
    hours = None
    if samples is not None and estimate.samples_per_second is not None:
        hours = estimate.samples_per_second.inverse_of(samples / SECONDS_PER_HOUR)
    return JobEstimate(config, estimate, samples, hours, None if hours is None else 0.0, None, None, None, length)


def _chosen_training(
    physics: Physics, config: TrainingConfig, cluster: Cluster, fixed: FixedLayout, choose: Choose
) -> Estimate:
    """What people choose, and the fastest that fits where that does not."""
    check_fixed(fixed, config, cluster)
    usual = usual_training_layout(config, cluster, fixed)
    if choose != "fastest" or not free(fixed):
        estimate = estimate_training(physics, config, cluster, checked(usual, cluster.gpus))
        if estimate.fits or choose == "usual" or not free(fixed):
            return estimate
    return best_training_layout(physics, config, cluster, fixed)


def _chosen_inference(
    physics: Physics, config: InferenceConfig, cluster: Cluster, fixed: FixedLayout, choose: Choose
) -> Estimate:
    check_fixed(fixed, config, cluster)
    usual = usual_inference_layout(cluster, fixed)
    if choose != "fastest" or not free(fixed):
        estimate = estimate_inference(physics, config, cluster, checked(usual, cluster.gpus))
        if estimate.fits or choose == "usual" or not free(fixed):
            return estimate
    return best_inference_layout(physics, config, cluster, fixed)


def free(fixed: FixedLayout) -> bool:
    """Whether anything of the layout is left to choose."""
    return any(getattr(fixed, name) is None for name in FixedLayout.__dataclass_fields__)
