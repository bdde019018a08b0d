"""An estimate: memory and speed of a configuration on a cluster in one layout, with the arithmetic shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

from service.domain.arrays import Number
from service.domain.band import Band
from service.domain.calibration.coefficients import Calibration, Features, StepKind
from service.domain.calibration.error_bands import Physics, unseen
from service.domain.calibration.step_kinds import DECODE, FORWARD, MEMORY, PREFILL, SERVING, TRAINING
from service.domain.jobs.config import Config, InferenceConfig, TrainingConfig
from service.domain.physics.cluster import Cluster
from service.domain.physics.features import inference_features, training_features
from service.domain.physics.host_memory import HostNeed, host_memory_need
from service.domain.physics.inference_roofline import decode_demands, forward_terms, prefill_terms, serving_demands
from service.domain.physics.kv_cache import cache_tokens_that_fit, in_flight, replicas_in_use
from service.domain.physics.memory import figures, inference_parts, training_parts
from service.domain.physics.parallelism import AnyLayout, Layout
from service.domain.physics.resources import Demands, StepTerms, ideal_seconds, seconds_per_unit
from service.domain.physics.training_roofline import training_terms

USUAL_FORWARD_BATCH = 128.0
"""Samples in a forward pass by default (assumed: large enough to fill a GPU)."""

MOST_OVER = 1.25
"""Need over available memory of nearly all published runs that were too large."""

BOTTLENECKS = {
    "matrix": "gpu_compute",
    "narrow": "gpu_compute",
    "attention": "gpu_compute",
    "prefill": "gpu_compute",
    "memory": "gpu_memory_bandwidth",
    "weights": "gpu_memory_bandwidth",
    "cache": "gpu_memory_bandwidth",
    "vocabulary": "gpu_memory_bandwidth",
    "prefill_memory": "gpu_memory_bandwidth",
    "optimizer": "gpu_memory_bandwidth",
    "launch": "host_overhead",
    "routing": "host_overhead",
    "step": "host_overhead",
    "offload": "host_overhead",
    "request": "host_overhead",
    "tensor": "communication",
    "latency": "communication",
    "context": "communication",
    "expert": "communication",
    "data": "communication",
    "bubble": "pipeline_bubble",
    "input": "input",
}
"""The part of a cluster that each term waits for."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step with calibrated seconds by part, and how many units (samples, tokens) it yields."""

    seconds: float
    parts: Mapping[str, float]
    units: float

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds

    @property
    def bottleneck(self) -> str:
        """The part of the cluster that takes most of the step."""
        shares: dict[str, float] = {}
        for term, seconds in self.parts.items():
            name = BOTTLENECKS[term]
            shares[name] = shares.get(name, 0.0) + seconds
        return max(shares, key=lambda name: (shares[name], name))


def step_of(calibration: Calibration, kind: StepKind, terms: StepTerms, features: Features) -> Step:
    """Calibrates the ideal seconds of a step."""
    parts = calibration.seconds(kind, terms.seconds, features)
    return Step(sum(parts.values()), parts, terms.units)


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that a GPU needs, in parts, and the bytes that it has."""

    needed_bytes: float
    usable_bytes: float
    parts: Mapping[str, float]
    band: Band

    @property
    def fits(self) -> bool:
        """Whether the GPU has the bytes that it needs."""
        return self.needed_bytes <= self.usable_bytes

    @property
    def may_fit(self) -> bool:
        """Whether it fits, or would at the low end of its band without exceeding `MOST_OVER`."""
        near = self.needed_bytes <= MOST_OVER * self.usable_bytes
        return self.fits or (near and self.band.low <= self.usable_bytes)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Figures of one layout. Rates are None when the job cannot fit, and given when it may."""

    basis: str
    memory: MemoryNeed
    layout: Layout
    samples_per_second: Band | None
    tokens_per_second: Band | None
    step: Step | None
    extrapolates: tuple[str, ...]
    concurrency: float | None = None
    prefill_tokens_per_second: Band | None = None
    seconds_to_first_token: Band | None = None
    seconds_per_output_token: Band | None = None
    kv_cache_tokens: float | None = None
    tensor_across_slow_links: bool = False
    """Tensor parallelism crosses slow links: nothing else fits, or the caller fixed it so."""

    host: HostNeed | None = None

    @property
    def fits(self) -> bool:
        """In the GPUs' memory and in the host's."""
        return self.memory.fits and (self.host is None or self.host.fits)

    @property
    def bottleneck(self) -> str | None:
        """The part of the cluster that takes most of the step."""
        return self.step.bottleneck if self.step else None


def _memory_need(physics: Physics, cluster: Cluster, parts: Mapping[str, Number], features: Features) -> MemoryNeed:
    real = physics.calibration.seconds(MEMORY, figures(parts), features)
    needed = sum(real.values())
    band = physics.bands.around(needed, MEMORY, features, unseen(physics.calibration, MEMORY, features), of_rate=False)
    return MemoryNeed(needed, cluster.usable_bytes, real, band)


def estimate_config(physics: Physics, config: Config, cluster: Cluster, layout: Layout) -> Estimate:
    """Memory and speed of a configuration in a layout."""
    if isinstance(config, TrainingConfig):
        return estimate_training(physics, config, cluster, layout)
    return estimate_inference(physics, config, cluster, layout)


def estimate_training(physics: Physics, config: TrainingConfig, cluster: Cluster, layout: Layout) -> Estimate:
    """Memory and rates of training in a layout."""
    features = training_features(config, cluster, layout)
    need = _memory_need(physics, cluster, training_parts(config, layout), features)
    new = unseen(physics.calibration, TRAINING, features)
    host = host_memory_need(config, cluster, layout)
    if not (need.may_fit and host.fits):
        return Estimate("modelled", need, layout, None, None, None, new, host=host)
    step = step_of(physics.calibration, TRAINING, training_terms(config, cluster, layout), features)
    samples = physics.bands.around(step.rate, TRAINING, features, new)
    length = config.mean_length or config.sequence_length
    tokens = samples.times(length) if length else None
    return Estimate("modelled", need, layout, samples, tokens, step, new, host=host)


def wall_seconds(
    physics: Physics, config: TrainingConfig, cluster: Cluster, estimate: Estimate, samples: float
) -> Band:
    """Seconds of a whole run, with evaluation and saving as in published runs of its stack."""
    assert estimate.samples_per_second is not None
    features = {**training_features(config, cluster, estimate.layout), "measured": "wall"}
    beyond = physics.calibration.log_factor(TRAINING, "*", features, of=("measured",))
    return estimate.samples_per_second.inverse_of(samples).times(exp(beyond))


def estimate_inference(physics: Physics, config: InferenceConfig, cluster: Cluster, layout: Layout) -> Estimate:
    """Memory and rates of inference in a layout: a language model decodes, any other model passes forward."""
    if not config.model.generates:
        return _estimate_forward(physics, config, cluster, layout)
    features = dict(inference_features(config, cluster, layout))
    at, replicas = float(in_flight(config, cluster.usable_bytes, layout)), float(replicas_in_use(config, layout))
    need = _inference_memory(physics, config, cluster, layout, at)
    if not need.fits and at > 1:  # stacks keep more than the arithmetic
        at = 1.0
        need = _inference_memory(physics, config, cluster, layout, at)
    kind, terms, what = language_terms(config, cluster, layout, at)
    new = unseen(physics.calibration, kind, features)
    cache = cache_tokens_that_fit(config, cluster.usable_bytes, layout)
    host = host_memory_need(config, cluster, layout)
    if not (need.may_fit and host.fits):
        return Estimate("modelled", need, layout, None, None, None, new, at, kv_cache_tokens=cache, host=host)
    step = step_of(physics.calibration, kind, terms, features | what)
    tokens = physics.bands.around(step.rate * replicas, kind, features, new)
    each = step_of(physics.calibration, kind, terms, features | ({"what": "token"} if what else {})).seconds
    length_out = max(1.0, config.output_length)
    prompt = prefill_terms(config, cluster, layout, 1.0, max(1.0, config.input_length))
    first = step_of(physics.calibration, PREFILL, prompt, features | {"what": "first"})
    read = step_of(physics.calibration, PREFILL, prompt, features | {"what": "prefill"})
    new_prefill = unseen(physics.calibration, PREFILL, features)
    return Estimate(
        "modelled",
        need,
        layout,
        tokens.times(1.0 / length_out),
        tokens,
        step,
        new,
        at * replicas,
        physics.bands.around(read.rate * layout.data, PREFILL, features, new_prefill),
        physics.bands.around(first.seconds, PREFILL, features, new_prefill, of_rate=False),
        physics.bands.around(each, kind, features, new, of_rate=False),
        cache,
        host=host,
    )


def _inference_memory(
    physics: Physics, config: InferenceConfig, cluster: Cluster, layout: Layout, at: float
) -> MemoryNeed:
    parts = inference_parts(config, layout, at, config.input_length + config.output_length)
    return _memory_need(physics, cluster, parts, inference_features(config, cluster, layout))


def language_kind(config: InferenceConfig) -> StepKind:
    """Kind of step: stacks that batch continuously serve; others, and one conversation alone, decode."""
    return SERVING if config.software.stack_class.batches_continuously and config.concurrency != 1 else DECODE


def language_demands(
    config: InferenceConfig, layout: AnyLayout, linked_gpus: Number, at: Number
) -> tuple[StepKind, Demands, dict[str, str | float]]:
    """Demands of decoding, or of serving with the prefill of new requests, and a feature that selects coefficients."""
    if language_kind(config) is SERVING:
        return SERVING, serving_demands(config, layout, linked_gpus, at), {"what": "serving"}
    context = config.input_length + config.output_length / 2
    return DECODE, decode_demands(config, layout, linked_gpus, at, context), {}


def language_terms(
    config: InferenceConfig, cluster: Cluster, layout: Layout, at: float
) -> tuple[StepKind, StepTerms, dict[str, str | float]]:
    """Kind, ideal seconds and feature of a step on a cluster."""
    kind, demands, what = language_demands(config, layout, cluster.linked_gpus, at)
    return kind, StepTerms(ideal_seconds(demands, seconds_per_unit(config, cluster)), at), what


def forward_batch(config: InferenceConfig) -> float:
    """Samples of one forward pass on a GPU."""
    return config.concurrency or USUAL_FORWARD_BATCH


def _estimate_forward(physics: Physics, config: InferenceConfig, cluster: Cluster, layout: Layout) -> Estimate:
    features = dict(inference_features(config, cluster, layout)) | {"offline": "no" if config.concurrency else "yes"}
    batch = forward_batch(config)
    need = _memory_need(physics, cluster, inference_parts(config, layout, 0.0, 0.0), features)
    new = unseen(physics.calibration, FORWARD, features)
    host = host_memory_need(config, cluster, layout)
    if not (need.may_fit and host.fits):
        return Estimate("modelled", need, layout, None, None, None, new, batch, host=host)
    step = step_of(physics.calibration, FORWARD, forward_terms(config, cluster, batch), features)
    samples = physics.bands.around(step.rate * cluster.gpus, FORWARD, features, new)
    return Estimate("modelled", need, layout, samples, None, step, new, batch, host=host)
