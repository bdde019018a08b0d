"""A job on a machine: its layout, what it needs and yields, and what the whole of it takes."""

from dataclasses import dataclass
from typing import Literal

from service.domain.band import Band
from service.domain.calibration.error_bands import Physics
from service.domain.catalog.formats import peak_flops
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

    work: TrainingConfig | InferenceConfig
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
        return self.work.precision


def appraise(
    physics: Physics, job: Job, machine: Cluster, fixed: FixedLayout = FREE, choose: Choose = "fastest"
) -> JobEstimate:
    """Raises `QuestionError` where the job cannot be asked of the machine: a precision or a layout that cannot be."""
    if job.task == "training":
        work = training_on(job, machine.gpu)
        return of_training(physics, job, work, machine, chosen_training(physics, work, machine, fixed, choose))
    answering = inference_on(job, machine.gpu)
    return of_inference(job, answering, chosen_inference(physics, answering, machine, fixed, choose))


def appraise_in(physics: Physics, job: Job, machine: Cluster, layout: Layout) -> JobEstimate:
    """The same in a layout that is known to be possible."""
    if job.task == "training":
        work = training_on(job, machine.gpu)
        return of_training(physics, job, work, machine, estimate_training(physics, work, machine, layout))
    answering = inference_on(job, machine.gpu)
    return of_inference(job, answering, estimate_inference(physics, answering, machine, layout))


def of_training(physics: Physics, job: Job, work: TrainingConfig, machine: Cluster, estimate: Estimate) -> JobEstimate:
    layout = estimate.layout
    length = work.mean_length or work.sequence_length or 0
    samples = None if job.amount is None else samples_of(job.amount, length, layout.global_batch)
    hours = beyond = model = hardware = utilisation = None
    if estimate.samples_per_second is not None:
        rate = estimate.samples_per_second.likely
        if samples is not None:
            of_one = wall_seconds(physics, work, machine, estimate, 1.0)
            hours = of_one.times(samples / SECONDS_PER_HOUR)
            beyond = of_one.likely * rate - 1
        if work.model.transformer is not None:
            share = rate / machine.gpus
            model = share * published_training_flops_per_sample(work.model, work.sequence_length, passes=3)
            hardware = model * 4 / 3 if layout.activation_checkpointing == "full" else model
            utilisation = model / peak_flops(machine.gpu, "bf16")
    return JobEstimate(work, estimate, samples, hours, beyond, model, hardware, utilisation, length)


def of_inference(job: Job, work: InferenceConfig, estimate: Estimate) -> JobEstimate:
    length = work.output_length or work.mean_length or work.input_length
    samples = None if job.amount is None else samples_of(job.amount, length, estimate.concurrency or 1.0)
    hours = None
    if samples is not None and estimate.samples_per_second is not None:
        hours = estimate.samples_per_second.inverse_of(samples / SECONDS_PER_HOUR)
    return JobEstimate(work, estimate, samples, hours, None if hours is None else 0.0, None, None, None, length)


def chosen_training(
    physics: Physics, work: TrainingConfig, machine: Cluster, fixed: FixedLayout, choose: Choose
) -> Estimate:
    """What people choose, and the fastest that fits where that does not."""
    check_fixed(fixed, work, machine)
    usual = usual_training_layout(work, machine, fixed)
    if choose != "fastest" or not free(fixed):
        estimate = estimate_training(physics, work, machine, checked(usual, machine.gpus))
        if estimate.fits or choose == "usual" or not free(fixed):
            return estimate
    return best_training_layout(physics, work, machine, fixed)


def chosen_inference(
    physics: Physics, work: InferenceConfig, machine: Cluster, fixed: FixedLayout, choose: Choose
) -> Estimate:
    check_fixed(fixed, work, machine)
    usual = usual_inference_layout(machine, fixed)
    if choose != "fastest" or not free(fixed):
        estimate = estimate_inference(physics, work, machine, checked(usual, machine.gpus))
        if estimate.fits or choose == "usual" or not free(fixed):
            return estimate
    return best_inference_layout(physics, work, machine, fixed)


def free(fixed: FixedLayout) -> bool:
    """Whether anything of the layout is left to choose."""
    return any(getattr(fixed, name) is None for name in FixedLayout.__dataclass_fields__)
