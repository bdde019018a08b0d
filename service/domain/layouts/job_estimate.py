"""A job on a cluster: its configuration and layout, and the figures of the whole of it."""

from dataclasses import dataclass, fields, replace
from math import floor
from typing import Literal, NamedTuple

from service.domain.band import Band
from service.domain.calibration.calibration import Calibration
from service.domain.jobs.config import LEAST_CONFIDENCE, Config, InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.job import Job, Samples, samples_of, time_of_share
from service.domain.jobs.job_on_gpu import required_config_on
from service.domain.layouts.checks import check_degrees, check_fixed
from service.domain.layouts.search import best_layout
from service.domain.layouts.usual import usual_layout
from service.domain.models.counts import published_training_flops_per_sample, training_flops_per_sample
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import (
    Estimate,
    MemoryNeed,
    estimate_config,
    fed,
    footprint_of,
    overhead_beyond_steps,
)
from service.domain.physics.input_pipeline import feed_of
from service.domain.physics.load import ALMOST
from service.domain.physics.parallelism import Layout
from service.domain.physics.resources import peak_in
from service.domain.physics.training_roofline import (
    encoder_flops_per_sample,
    passes,
    passes_of_recomputation,
    traversals,
)
from service.domain.units import SECONDS_AN_HOUR

Choose = Literal["fastest", "usual", "usual_if_it_fits"]
"""How the free parts of a layout are chosen. `usual_if_it_fits` is the usual layout if that fits, else the fastest."""


NOTABLY_FASTER = 1.02
"""Least ratio of two rates at which the faster layout is named."""

FLOPS = ("model_flops_per_second_per_gpu", "hardware_flops_per_second_per_gpu", "model_flops_utilisation")
"""Figures of an estimate that are in proportion to its rate."""


class FasterLayout(NamedTuple):
    """The fastest layout that likely fits, where none fits with the confidence that is asked for."""

    confidence: float
    """Highest confidence in whole percents with which it fits."""
    times: float
    """Its rate divided by that of the layout that needs the least memory."""


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """Estimate of a job on a cluster. Hours are those of the whole amount without set-up, and None without an
    amount.
    """

    config: Config
    estimate: Estimate
    samples: float | None
    """Samples of all runs together."""
    hours: Band | None
    beyond_steps: float | None
    """Time of evaluation, saving and starting, as a share of the time of the steps, as in published runs of
    the stack."""
    model_flops_per_second_per_gpu: float | None
    """FLOP/s of the work that is done, counted as in papers: with attention to the whole sequence, and without
    recomputation."""
    hardware_flops_per_second_per_gpu: float | None
    """Model FLOP/s plus the FLOP/s of recomputation."""
    model_flops_utilisation: float | None
    """FLOP/s of the necessary work, divided by the dense peak at the job's precision. Frozen weights need no gradient,
    and causal attention needs half of the scores."""
    tokens_per_sample: float
    peak_flops_per_gpu: float
    """Dense FLOP/s at the job's precision."""
    job: Job
    measured: bool = False
    """Whether the rate was measured with the same work on this cluster, which proves that the job fits."""
    faster: FasterLayout | None = None
    """A layout that is faster than the one of the estimate and fits with less confidence."""

    @property
    def fits(self) -> bool:
        """Whether the job likely fits in the memory of the GPUs and of the host."""
        return self.measured or self.estimate.fits

    @property
    def fits_surely(self) -> bool:
        """Whether the job fits with the confidence that is asked for."""
        return self.measured or self.estimate.fits_surely

    @property
    def holds_requests(self) -> bool:
        """Whether as many requests run at once as the job asks for."""
        required = self.config.required_requests if isinstance(self.config, InferenceConfig) else 0.0
        return (self.estimate.concurrency or 0.0) >= ALMOST * required

    def hours_on(self, instances: int) -> Band | None:
        """Returns the hours in which independent instances do the amount of all runs; None without an amount."""
        share = float(time_of_share(self.job.task, self.job.runs, instances))
        return None if self.hours is None else self.hours.times(share)

    @property
    def precision(self) -> str:
        """The precision that the job runs in on this GPU."""
        return self.config.precision


def estimate_job(calibration: Calibration, job: Job, cluster: Cluster, choose: Choose = "fastest") -> JobEstimate:
    """Chooses the free parts of the layout and estimates the job. Raises `QuestionError` for an impossible precision or
    layout.
    """
    config = required_config_on(job, cluster.gpu)
    check_fixed(job.fixed, config, cluster)
    chosen = _chosen(calibration, config, cluster, job.fixed, choose)
    estimated = _of_whole(calibration, job, config, cluster, chosen)
    if choose != "fastest" or not isinstance(config, TrainingConfig):
        return estimated
    return replace(estimated, faster=_faster(calibration, config, cluster, job.fixed, chosen))


def estimate_job_in(calibration: Calibration, job: Job, cluster: Cluster, layout: Layout) -> JobEstimate:
    """Estimates the job in a layout that is known to be possible."""
    config = required_config_on(job, cluster.gpu)
    return _of_whole(calibration, job, config, cluster, estimate_config(calibration, config, cluster, layout))


def memory_of_job_in(calibration: Calibration, job: Job, cluster: Cluster, layout: Layout) -> MemoryNeed:
    """Returns the memory of the job in a layout that is known to be possible."""
    return footprint_of(calibration, required_config_on(job, cluster.gpu), cluster, layout).memory


def at_rate(estimated: JobEstimate, rate: Band, *, measured: bool) -> JobEstimate:
    """Returns the estimate at another rate of samples per second, with all figures of speed in proportion to the rate.

    The estimate must have a rate. `measured` says whether the new rate was measured on this cluster.
    """
    estimate = estimated.estimate
    assert estimate.samples_per_second is not None
    modelled, hours = estimate.samples_per_second.likely, estimated.hours
    factor, tokens, between = rate.likely / modelled, estimate.tokens_per_second, estimate.seconds_per_output_token
    prefill, first = estimate.prefill_tokens_per_second, estimate.seconds_to_first_token
    scaled = replace(
        estimate,
        samples_per_second=rate,
        tokens_per_second=None if tokens is None else rate.times(tokens.likely / modelled),
        prefill_tokens_per_second=None if prefill is None else prefill.times(factor),
        seconds_to_first_token=None if first is None else first.times(1.0 / factor),
        seconds_per_output_token=None if between is None else rate.inverse_of(between.likely * modelled),
        step=None if estimate.step is None else estimate.step.at(estimate.step.rate * factor),
    )
    flops = {name: figure * factor for name in FLOPS if (figure := getattr(estimated, name)) is not None}
    hours = None if hours is None else rate.inverse_of(hours.likely * modelled)
    return replace(estimated, estimate=scaled, hours=hours, measured=measured, **flops)


def _chosen(calibration: Calibration, config: Config, cluster: Cluster, fixed: FixedLayout, choose: Choose) -> Estimate:
    is_free = any(getattr(fixed, field.name) is None for field in fields(fixed))
    if choose != "fastest" or not is_free:
        usual = usual_layout(config, cluster, fixed)
        check_degrees(usual, cluster)
        estimate = estimate_config(calibration, config, cluster, usual)
        if estimate.fits or choose == "usual" or not is_free:
            return estimate
    return best_layout(calibration, config, cluster, fixed)


def _faster(
    calibration: Calibration, config: TrainingConfig, cluster: Cluster, fixed: FixedLayout, lightest: Estimate
) -> FasterLayout | None:
    """Returns a layout that fits with less confidence than asked for and is faster than the one that is the lightest,
    because none fits with the confidence; None if there is none.
    """
    if not lightest.fits or lightest.fits_surely or lightest.samples_per_second is None:
        return None
    likely = best_layout(calibration, replace(config, memory_confidence=LEAST_CONFIDENCE), cluster, fixed)
    if likely.samples_per_second is None:
        return None
    times = likely.samples_per_second.likely / lightest.samples_per_second.likely
    confidence = floor(100 * likely.memory.fit_probability) / 100
    return FasterLayout(confidence, times) if times >= NOTABLY_FASTER and confidence >= LEAST_CONFIDENCE else None


def _of_whole(calibration: Calibration, job: Job, config: Config, cluster: Cluster, estimate: Estimate) -> JobEstimate:
    feed = feed_of(cluster, job.loading)
    estimate = fed(estimate, {part: calibration.bands.of_feed(part, rate) for part, rate in feed.items()})
    if isinstance(config, TrainingConfig):
        return _of_training(calibration, job, config, cluster, estimate)
    return _of_inference(job, config, cluster, estimate)


def _of_training(
    calibration: Calibration, job: Job, config: TrainingConfig, cluster: Cluster, estimate: Estimate
) -> JobEstimate:
    layout = estimate.layout
    length = config.mean_length or config.sequence_length or 0
    tokens = config.tokens_per_sample
    samples = samples_of_runs(job, tokens, layout.global_batch)
    peak = peak_in(config, cluster.gpu, config.precision)
    hours = beyond = model = hardware = utilisation = None
    if estimate.samples_per_second is not None:
        rate = estimate.samples_per_second.likely
        if samples is not None:
            beyond = overhead_beyond_steps(calibration, config, cluster, layout)
            hours = estimate.samples_per_second.inverse_of(samples / SECONDS_AN_HOUR).times(1 + beyond)
        share, encoding = rate / cluster.gpus, encoder_flops_per_sample(config)
        work = {"passes": passes(config), "traversals": traversals(config)}
        done = training_flops_per_sample(config.model, length or 1, **work)
        utilisation = None if done is None else share * (done + encoding) / peak
        if config.model.transformer is not None:
            model, hardware = (
                share
                * (published_training_flops_per_sample(config.model, length, **work, recomputed=recomputed) + encoding)
                for recomputed in (0.0, float(passes_of_recomputation(layout)))
            )
    return JobEstimate(config, estimate, samples, hours, beyond, model, hardware, utilisation, tokens, peak, job)


def _of_inference(job: Job, config: InferenceConfig, cluster: Cluster, estimate: Estimate) -> JobEstimate:
    length = config.output_length or config.mean_length or config.input_length
    samples = samples_of_runs(job, length, estimate.concurrency or 1.0)
    hours = None
    if samples is not None and estimate.samples_per_second is not None:
        hours = estimate.samples_per_second.inverse_of(samples / SECONDS_AN_HOUR)
    beyond, peak = None if hours is None else 0.0, peak_in(config, cluster.gpu, config.precision)
    return JobEstimate(config, estimate, samples, hours, beyond, None, None, None, length, peak, job)


def samples_of_runs(job: Job, length: float, samples_per_step: Samples) -> float | Samples | None:
    """Returns the samples of all runs of a job; None without an amount. The parameters are those of `samples_of`."""
    samples = None if job.amount is None else samples_of(job.amount, length, samples_per_step)
    return None if samples is None else samples * job.runs
