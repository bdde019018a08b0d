"""An estimate: memory and speed of a configuration on a cluster in one layout, with the arithmetic shown."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import expm1, floor

from service.domain.band import Band
from service.domain.calibration.calibration import Calibration
from service.domain.calibration.error_bands import HARDER, unseen
from service.domain.calibration.step_kinds import FIRST_TOKEN, GENERATION, INFERENCE_MEMORY, MEMORY, TRAINING
from service.domain.jobs.config import Config, InferenceConfig, TrainingConfig
from service.domain.physics.cluster import Cluster
from service.domain.physics.features import (
    config_features,
    forward_features,
    inference_features,
    inference_kind,
    training_features,
)
from service.domain.physics.generation import (
    EngineMemory,
    ServedLoad,
    calibrated_rates,
    engine_factors,
    engine_on,
    engine_with,
    requests_in_flight,
    served_load,
)
from service.domain.physics.host_memory import HostNeed, host_memory_need
from service.domain.physics.inference_roofline import (
    ForwardEngines,
    forward_batch,
    forward_demands,
    forward_terms,
)
from service.domain.physics.memory import (
    cache_tokens_that_fit,
    conversations_held,
    figures,
    inference_parts,
    plannable_bytes,
    replicas_in_use,
    training_parts,
)
from service.domain.physics.parallelism import Layout
from service.domain.physics.resources import StepTerms
from service.domain.physics.training_roofline import training_terms, with_bubble_apart

MOST_OVER = 1.25
"""Ratio of needed to available memory: nearly all published runs that ran out of memory are estimated above it."""

TERMS_BY_BOTTLENECK = {
    "gpu_compute": ("matrix", "narrow", "attention", "prefill", "prefill_experts"),
    "gpu_memory_bandwidth": (
        "memory", "power", "weights", "cache", "vocabulary", "prefill_memory", "pass", "optimizer",
    ),
    "host_overhead": (
        "launch", "routing", "step", "offload", "fetch", "gather", "request", "prompt_launch", "prompt_routing",
    ),
    "communication": ("tensor", "latency", "context", "expert", "pipeline", "data"),
    "pipeline_bubble": ("bubble",),
    "input": ("input",),
}  # fmt: skip
"""By part of a cluster, the terms whose time it takes."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step with the calibrated seconds of each term, and the units (samples or tokens) that it yields."""

    seconds: float
    parts: Mapping[str, float]
    units: float
    waits_for: str | None = None
    """The part of the host that the GPUs wait for, if one is slower than they are."""
    parts_of_request: Mapping[str, float] | None = None
    """Seconds of each term in a whole request with its prompt, where the step writes tokens."""

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds

    def at(self, rate: float) -> "Step":
        """Returns the step at another rate, with every part in proportion."""
        factor = self.rate / rate
        parts = {term: factor * seconds for term, seconds in self.parts.items()}
        return replace(self, seconds=self.seconds * factor, parts=parts)

    def waiting(self, seconds: float, part: str) -> "Step":
        """Returns the step with more seconds, in which the GPUs wait for a part of the host."""
        waited = self.parts.get("input", 0.0) + seconds - self.seconds
        return Step(seconds, {**self.parts, "input": waited}, self.units, part)

    @property
    def bottleneck(self) -> str:
        """The part of the cluster that takes most of the step, or of a request, or the host if the GPUs wait for it."""
        if self.waits_for is not None:
            return self.waits_for
        parts = self.parts_of_request or self.parts
        shares = {name: sum(parts.get(term, 0.0) for term in terms) for name, terms in TERMS_BY_BOTTLENECK.items()}
        return max(shares, key=lambda name: (shares[name], name))


def step_of(terms: StepTerms, parts: dict[str, float]) -> Step:
    """Returns a step from the calibrated seconds of its terms.

    A step takes at least the time in which its bytes are carried; what exceeds the terms adds to that with most bytes.
    """
    if (exposed := terms.least_seconds - sum(parts.values())) > 0:
        parts[terms.least_term] += exposed
    return Step(sum(parts.values()), parts, terms.units)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a GPU needs, in parts, and the bytes that it has."""

    needed_bytes: float
    usable_bytes: float
    parts: Mapping[str, float]
    band: Band
    least_bytes: float
    """Bytes without which the job does not run. An engine needs fewer than `needed_bytes`: it may run one request."""
    confidence: float
    """Probability with which the least bytes have to suffice."""
    weight_bytes: float = 0.0
    """Bytes of the weights that every pass reads. Networks that a sample passes once, such as the text encoders of a
    diffusion model, do not count: they can leave the GPU before the others are loaded."""

    @property
    def least_band(self) -> Band:
        """The band of the least bytes."""
        return self.band.times(self.least_bytes / self.needed_bytes)

    def above_weights(self, band: Band) -> Band:
        """Returns a band of bytes whose low end is at least the weights, which are counted and not estimated."""
        return replace(band, low=max(band.low, min(self.weight_bytes, band.likely)))

    @property
    def fit_probability(self) -> float:
        """Probability that the least bytes are at most those that the GPU has; 0 if it cannot hold the weights."""
        return self.least_band.probability_up_to(self.usable_bytes) if self.holds_weights else 0.0

    @property
    def holds_weights(self) -> bool:
        """Whether the GPU has the bytes of the weights, which are counted and not estimated."""
        return self.weight_bytes <= self.usable_bytes

    @property
    def highest_confidence(self) -> float | None:
        """Highest confidence in whole percents with which the job fits surely, for a job that likely fits.

        None if that is below one half, or if the job fits surely with the confidence that is asked for.
        """
        percents = floor(100 * self.fit_probability)
        return percents / 100 if self.fits and not self.fits_surely and percents >= 50 else None

    @property
    def fits(self) -> bool:
        """Whether the GPU has the bytes that it likely needs."""
        return self.needed_bytes <= self.usable_bytes

    @property
    def sure_bytes(self) -> float:
        """Bytes with which the job fits with the confidence that is asked for."""
        return max(self.needed_bytes, self.least_band.quantile(self.confidence))

    @property
    def fits_surely(self) -> bool:
        """Whether the job fits with the confidence that is asked for."""
        return self.sure_bytes <= self.usable_bytes

    @property
    def may_fit(self) -> bool:
        """Whether the job fits, or would fit at the low end of its band, needs no more than `MOST_OVER` allows, and
        has room for its weights.
        """
        near = self.holds_weights and self.needed_bytes <= MOST_OVER * self.usable_bytes
        return self.fits or (near and self.band.low <= self.usable_bytes)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory that one layout needs on each GPU and on each host."""

    memory: MemoryNeed
    host: HostNeed

    @property
    def fits(self) -> bool:
        """Whether the job likely fits in the memory of the GPUs and of the host."""
        return self.memory.fits and self.host.fits

    @property
    def fits_surely(self) -> bool:
        """Whether the job fits with the confidence that is asked for."""
        return self.memory.fits_surely and self.host.fits


@dataclass(frozen=True, slots=True)
class Estimate(Footprint):
    """Figures of one layout. Rates are None where the job cannot fit, and known where it may."""

    layout: Layout
    extrapolates: tuple[str, ...]
    """Properties of the job that no published run has, such as its GPU."""
    step: Step | None = None
    samples_per_second: Band | None = None
    tokens_per_second: Band | None = None
    concurrency: float | None = None
    prefill_tokens_per_second: Band | None = None
    seconds_to_first_token: Band | None = None
    seconds_per_output_token: Band | None = None
    kv_cache_tokens: float | None = None
    served: ServedLoad | None = None
    gpu_samples_per_second: float | None = None
    """Likely rate of the GPUs alone, if the hosts feed them more slowly."""

    @property
    def bottleneck(self) -> str | None:
        """The part of the cluster that takes most of the step."""
        return self.step.bottleneck if self.step else None


def estimate_config(calibration: Calibration, config: Config, cluster: Cluster, layout: Layout) -> Estimate:
    """Returns memory and speed of a configuration in a layout."""
    return _estimate(calibration, config, cluster, layout, timed=True)


def footprint_of(calibration: Calibration, config: Config, cluster: Cluster, layout: Layout) -> Footprint:
    """Returns the memory of a configuration in a layout, in a fraction of the time of an estimate."""
    return _estimate(calibration, config, cluster, layout, timed=False)


def _estimate(calibration: Calibration, config: Config, cluster: Cluster, layout: Layout, *, timed: bool) -> Estimate:
    """Returns memory and speed; memory alone without `timed`."""
    if isinstance(config, TrainingConfig):
        return _estimate_training(calibration, config, cluster, layout, timed=timed)
    if config.model.generates:
        return _estimate_generation(calibration, config, cluster, layout, timed=timed)
    return _estimate_forward(calibration, config, cluster, layout, timed=timed)


def fed(estimate: Estimate, feed: Mapping[str, Band]) -> Estimate:
    """Returns the estimate at the lower of two rates: of the GPUs, and of the parts of the host that feed them.

    `feed` has the samples per second that each of these parts brings.
    """
    samples, step = estimate.samples_per_second, estimate.step
    if samples is None or step is None or not feed:
        return estimate
    part = min(feed, key=lambda name: feed[name].likely)
    rates = (samples, *feed.values())
    band = Band(*(min(getattr(each, end) for each in rates) for end in ("low", "likely", "high")))
    if band == samples:
        return estimate
    share, tokens, first = band.likely / samples.likely, estimate.tokens_per_second, estimate.seconds_to_first_token
    # Requests wait for the host as long as Little's law says.
    wait = (estimate.concurrency or 0.0) * (1.0 / band.likely - 1.0 / samples.likely)
    return replace(
        estimate,
        samples_per_second=band,
        tokens_per_second=None if tokens is None else band.times(tokens.likely / samples.likely),
        seconds_to_first_token=None if first is None else first.times(1.0 + wait / first.likely),
        step=step if share == 1.0 else step.waiting(step.seconds / share, part),
        gpu_samples_per_second=estimate.gpu_samples_per_second or samples.likely,
    )


def overhead_beyond_steps(calibration: Calibration, config: TrainingConfig, cluster: Cluster, layout: Layout) -> float:
    """Returns what evaluation and saving add to the steps of a run, as a share of them, by published runs of
    its stack.
    """
    features = {**training_features(config, cluster, layout), "measured": "wall"}
    return expm1(calibration.coefficients.log_factor(TRAINING, "*", features, of=("measured",)))


def memory_band(calibration: Calibration, config: Config) -> Band:
    """Returns the band of the bytes that a configuration needs on a GPU, as factors of the likely bytes."""
    kind = MEMORY if isinstance(config, TrainingConfig) else INFERENCE_MEMORY
    # A burst takes the memory of a steady load, and memory is as well known for small batches as for large ones.
    features = {**config_features(config), **dict.fromkeys(HARDER, "")}
    return calibration.bands.around(
        1.0, kind, features, unseen(calibration.coefficients, MEMORY, features), of_rate=False
    )


def memory_margin(calibration: Calibration, config: Config) -> float:
    """Returns the bytes that suffice with the confidence of a configuration, divided by the likely bytes."""
    return memory_band(calibration, config).quantile(config.memory_confidence)


def _memory_need(
    calibration: Calibration,
    config: Config,
    usable_bytes: float,
    parts: Mapping[str, float],
    least: Mapping[str, float],
) -> MemoryNeed:
    """Returns the memory that a GPU needs, from calibrated bytes: `parts` of the job, `least` of the least
    that runs.
    """
    needed, model = sum(parts.values()), config.model
    band = memory_band(calibration, config).times(needed)
    passed_once = 0.0 if model.transformer else model.other_parameters or 0.0
    weight_bytes = parts.get("weights", 0.0) * model.parameters / (model.parameters + passed_once)
    return MemoryNeed(needed, usable_bytes, parts, band, sum(least.values()), config.memory_confidence, weight_bytes)


def _estimate_training(
    calibration: Calibration, config: TrainingConfig, cluster: Cluster, layout: Layout, *, timed: bool
) -> Estimate:
    features = training_features(config, cluster, layout)
    parts = calibration.coefficients.seconds(MEMORY, figures(training_parts(config, layout)), features)
    need = _memory_need(calibration, config, cluster.usable_bytes, parts, parts)
    new, host = unseen(calibration.coefficients, TRAINING, features), host_memory_need(config, cluster, layout)
    estimate = Estimate(need, host, layout, new)
    if not (timed and need.may_fit and host.fits):
        return estimate
    terms = training_terms(config, cluster, layout)
    seconds = calibration.coefficients.seconds(TRAINING, terms.seconds, features)
    step = step_of(terms, with_bubble_apart(seconds, layout))
    samples = calibration.bands.around(step.rate, TRAINING, features, new)
    tokens = samples.times(config.tokens_per_sample) if config.tokens_per_sample else None
    return replace(estimate, step=step.at(samples.likely), samples_per_second=samples, tokens_per_second=tokens)


def _estimate_forward(
    calibration: Calibration, config: InferenceConfig, cluster: Cluster, layout: Layout, *, timed: bool
) -> Estimate:
    features = {**inference_features(config, cluster, layout), **forward_features(config)}
    parts = calibration.coefficients.seconds(MEMORY, figures(inference_parts(config, layout, 0.0)), features)
    need = _memory_need(calibration, config, cluster.usable_bytes, parts, parts)
    kind = inference_kind(config)
    new, host = unseen(calibration.coefficients, kind, features), host_memory_need(config, cluster, layout)
    errors, factors = (
        calibration.bands.error_factors(kind, features, new),
        calibration.coefficients.factors(kind, kind.start, features),
    )
    engine = ForwardEngines.of(kind, forward_demands(config), calibrated_rates(factors, config, cluster))
    most = forward_batch(config)
    served = served_load(engine, config, cluster, layout, most if need.fits and host.fits else 0.0, errors.around(1.0))
    in_flight = most * layout.data if served is None else served.in_flight / served.instances.likely
    of_gpus = None if served is None else served.most_of_gpus
    estimate = Estimate(need, host, layout, new, concurrency=in_flight, served=served, gpu_samples_per_second=of_gpus)
    if not (timed and need.may_fit and host.fits):
        return estimate
    terms = forward_terms(config, cluster, most if served is None else served.running)
    step = step_of(terms, factors.seconds(terms.seconds))
    if served is None:
        return replace(estimate, step=step, samples_per_second=errors.around(step.rate * cluster.gpus))
    rate = errors.around(served.requests_per_second / served.instances.likely / errors.caution)
    return replace(estimate, step=step.at(step.rate * errors.caution), samples_per_second=rate)


def _estimate_generation(
    calibration: Calibration, config: InferenceConfig, cluster: Cluster, layout: Layout, *, timed: bool
) -> Estimate:
    features = inference_features(config, cluster, layout)
    factors, new = (
        engine_factors(calibration.coefficients, features),
        unseen(calibration.coefficients, GENERATION, features),
    )
    memory = EngineMemory.of(calibration.coefficients, config, layout, features)
    plannable = float(plannable_bytes(config, cluster.usable_bytes))
    room, host = memory.room(config, plannable), host_memory_need(config, cluster, layout)
    errors, of_first = (calibration.bands.error_factors(kind, features, new) for kind in (GENERATION, FIRST_TOKEN))
    served = None
    if config.serving is not None and timed and host.fits:
        engine = engine_with(factors, config, cluster, layout)
        served = served_load(engine, config, cluster, layout, room, errors.around(1.0))
    if served is not None:
        config = replace(config, concurrency=served.in_flight / served.instances.likely)
    asked, replicas = requests_in_flight(config, layout, room), float(replicas_in_use(config, layout))
    in_flight = min(asked, max(config.longest_over_mean, room))
    # An engine takes all the cache that it may use, whatever its load.
    running = in_flight if served is None else room
    held = float(conversations_held(config, running)) if room else running
    in_cache = float(conversations_held(config, room)) * (config.whole_length - config.shared_prompt)
    need = _memory_need(calibration, config, plannable, memory.holding(held), memory.holding(min(1.0, held)))
    estimate = Estimate(
        need,
        host,
        layout,
        new,
        concurrency=in_flight * replicas if served is None else served.in_flight / served.instances.likely,
        served=served,
        gpu_samples_per_second=None if served is None else served.most_of_gpus,
        # More tokens fit than by arithmetic where published runs took less memory.
        kv_cache_tokens=max(
            cache_tokens_that_fit(config, plannable, layout, memory.ideal), config.shared_prompt + in_cache
        ),
    )
    if not (timed and need.may_fit and host.fits):
        return estimate
    at_work = engine_on(factors, config, cluster, layout, room)
    output, caution = max(1.0, config.output_length), errors.caution
    rate, first, token = (float(figure) for figure in at_work.figures)
    rate *= output * replicas
    if served is not None and served.tokens is not None:  # the figures of a load include the caution of the bands
        rate = output * served.requests_per_second / served.instances.likely / caution
        first, token = (served.tokens.mean_to_first_token * caution, served.tokens.mean_per_token * caution)
    tokens, per_token = errors.around(rate), errors.around(token, of_rate=False)
    ideal = at_work.ideal(at_work.per_token)
    of_request = factors.seconds(at_work.ideal(at_work.per_request))
    step = replace(step_of(StepTerms(ideal, in_flight), factors.seconds(ideal)), parts_of_request=of_request)
    prefill = max(1.0, config.input_length) * layout.data / float(at_work.seconds.prompt)
    return replace(
        estimate,
        step=step.at(in_flight / per_token.likely),
        samples_per_second=tokens.times(1.0 / output),
        tokens_per_second=tokens,
        # Prompts get the caution of answers, so that rate x time of a request equals the requests in flight.
        prefill_tokens_per_second=of_first.around(prefill).with_likely(prefill * caution),
        seconds_to_first_token=of_first.around(first, of_rate=False).with_likely(first / caution),
        seconds_per_output_token=per_token if config.output_length > 1.0 else None,
    )
