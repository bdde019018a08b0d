"""A published run as the terms that its figure is made of: what calibration fits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log

from service.accuracy.rows import RunQuestion
from service.accuracy.scoring import source_of
from service.api.estimate.request import EstimateRequest, cluster_in
from service.api.workload.job import job_of
from service.domain.calibration.coefficients import Coefficient, Coefficients, Features, StepKind, values_by_name
from service.domain.calibration.error_bands import Miss, unseen
from service.domain.calibration.fit import CalibrationRun, fit
from service.domain.calibration.scope_order import CHECKPOINTING, LESS_RECOMPUTATION, Better, in_order
from service.domain.calibration.step_kinds import (
    FIRST_TOKEN,
    GENERATION,
    INFERENCE_MEMORY,
    KINDS,
    MEMORY,
    RUN_EFFECTS,
    TRAINING,
)
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import peak_flops
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.fixed_layout import FixedLayout
from service.domain.jobs.job_on_gpu import required_config_on
from service.domain.layouts.usual import usual_inference_layout, usual_training_layout
from service.domain.models.counts import published_training_flops_per_sample
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import step_of
from service.domain.physics.features import UNNAMED, inference_features, inference_kind, training_features
from service.domain.physics.generation import EngineMemory, engine_factors, engine_on
from service.domain.physics.inference_roofline import (
    forward_batch,
    forward_terms,
)
from service.domain.physics.memory import figures, inference_parts, plannable_bytes, replicas_in_use, training_parts
from service.domain.physics.parallelism import Layout
from service.domain.physics.resources import StepTerms
from service.domain.physics.serving import PARTS, EngineTimes
from service.domain.physics.training_roofline import training_terms

ROUNDS_OF_TERMS = 2
"""Number of fits after the first one. Beyond these the terms move by less than 1 %."""

FEWEST_RUNS = 5
"""Runs that a kind of step needs to be fitted."""

RUN_SCOPES = tuple(f"{effect}=" for effect in RUN_EFFECTS)

MEMORY_QUANTITIES = ("memory_bytes_per_gpu", "fits", "max_context_tokens")


@dataclass(frozen=True, slots=True)
class Case:
    """A question with everything that its estimate is made of; for memory, bytes take the place of seconds."""

    question: RunQuestion
    kind: StepKind
    terms: StepTerms
    features: Features
    seconds: float
    """Time of the step by the published figure."""
    scale: float
    """The published value is scale / seconds for rates, and scale * seconds for times."""
    is_rate: bool
    bound: int = 0
    usable_bytes: float = 0.0
    banded_as: StepKind | None = None
    """The kind of step whose error bands apply, where that is not `kind`."""
    again: Callable[[Coefficients], "Case"] | None = None
    """Makes the case again for coefficients that its terms depend on: a faster engine runs more requests at once."""
    scored: bool = True
    """False for a conclusion from the row in addition to its figure: it helps to fit, and no report counts it."""

    @property
    def row_weight(self) -> float:
        """Weight of the row among others, in the fit and in the bands."""
        return float(self.question.row["fit_weight"] or 1.0)

    @property
    def weight(self) -> float:
        """Weight in the fit: that of its row for a figure, less for a reported fit in memory, least for an inferred
        one.
        """
        # Nearly every published run fitted, so a report of it says less than one of too little memory.
        return self.row_weight * (1.0 if self.bound >= 0 else 0.5 if self.scored else 0.15)

    @property
    def run(self) -> CalibrationRun:
        """The case as input of the fit."""
        group, of_class = self.question.row["group"], self.features["class"]
        # A run whose stack was not published need not be of the usual one: laboratories train with code of their own.
        of_source = {"usual_class": of_class, "source": source_of(self.question.row), "group": group}
        features = {**self.features, **of_source}
        return CalibrationRun(self.terms.seconds, features, self.seconds, self.weight, self.bound)

    @property
    def bands(self) -> StepKind:
        """The kind of step whose error bands apply."""
        return self.banded_as or self.kind

    @property
    def without_stack(self) -> tuple["Case", "Case"]:
        """The case as a question that names no framework or engine, and as one that names a stack without runs."""
        of_class = {**self.features, "stack": "", "release": ""}
        return replace(self, features={**self.features, **UNNAMED}), replace(self, features=of_class)

    def under(self, coefficients: Coefficients) -> "Case":
        """The case with its terms under these coefficients."""
        return self.again(coefficients) if self.again else self

    def estimated_seconds(self, coefficients: Coefficients) -> float:
        """Seconds of the step with these coefficients."""
        return step_of(self.terms, coefficients.seconds(self.kind, self.terms.seconds, self.features)).seconds

    def predicted(self, coefficients: Coefficients) -> float:
        """The figure that the coefficients predict; for a decision, 1 if the run fits."""
        seconds = self.estimated_seconds(coefficients)
        if self.bound:
            return float(seconds <= self.usable_bytes)
        return self.scale / seconds if self.is_rate else self.scale * seconds

    def miss(self, coefficients: Coefficients) -> Miss:
        """The error of the coefficients on this case."""
        new = unseen(coefficients, self.kind, self.features)
        error = log(self.estimated_seconds(coefficients) / self.seconds)
        return Miss(self.bands, self.features, new, error, self.row_weight)


def fit_all(cases: Sequence[Case], better: Better) -> list[Coefficient]:
    """Fits the coefficients of every kind of step with enough cases, in the order of GPUs and of checkpointings."""
    coefficients: list[Coefficient] = []
    for kind in KINDS:
        of_kind = [case for case in cases if case.kind is kind]
        # With fewer runs the priors decide everything, and the start values are as good.
        if len(of_kind) >= FEWEST_RUNS:
            coefficients += (entry for entry in _fit(kind, of_kind) if not entry.scope.startswith(RUN_SCOPES))
    return in_order(in_order(coefficients, better), LESS_RECOMPUTATION, CHECKPOINTING, CHECKPOINTING)


def _fit(kind: StepKind, cases: Sequence[Case]) -> list[Coefficient]:
    """The coefficients of a kind of step, fitted again where the terms of its cases depend on them."""
    fitted = fit(kind, [case.run for case in cases])
    for _ in range(ROUNDS_OF_TERMS if any(case.again for case in cases) else 0):
        coefficients = Coefficients(values_by_name(fitted))
        fitted = fit(kind, [case.under(coefficients).run for case in cases], fitted)
    return fitted


def case_of(question: RunQuestion, catalog: Catalog) -> Case:
    """The case of a question. Raises `QuestionError` where the service would refuse the question."""
    request = EstimateRequest.model_validate(question.body)
    assert request.workload is not None
    # The readers of the API are used, so that a fit rests on the same defaults as an answer.
    job, cluster = job_of(request.workload, catalog, request.layout), cluster_in(request, None, catalog)
    assert job is not None
    assert cluster is not None
    config, fixed = required_config_on(job, cluster.gpu), job.fixed
    if isinstance(config, TrainingConfig):
        return _training_case(question, config, cluster, fixed)
    return _inference_case(question, config, cluster, fixed)


def also_fitted(question: RunQuestion, catalog: Catalog) -> Case | None:
    """The case that a published training run with a known batch per GPU fitted; None if that is not certain."""
    if question.body["workload"]["task"] != "training" or "micro_batch" not in question.body["layout"]:
        return None
    # What a run keeps of its activations decides its memory, so that a run that does not say it shows nothing.
    if question.quantity in MEMORY_QUANTITIES or not question.row["activation_checkpointing"]:
        return None
    return replace(case_of(replace(question, quantity="fits", value=1.0), catalog), scored=False)


def _training_case(question: RunQuestion, config: TrainingConfig, cluster: Cluster, fixed: FixedLayout) -> Case:
    layout = usual_training_layout(config, cluster, fixed)
    features = training_features(config, cluster, layout)
    if question.quantity in MEMORY_QUANTITIES:
        parts = training_parts(config, layout)
        return _memory_case(question, cluster.usable_bytes, figures(parts), features, MEMORY)
    terms = training_terms(config, cluster, layout)
    if question.quantity == "seconds":
        length = config.tokens_per_sample or 1
        amount = question.extras["amount"]
        samples = {"samples": 1.0, "pairs": 2.0, "tokens": 1.0 / length}
        steps = sum(samples[name] * number for name, number in amount.items()) / terms.units
        # The duration of a whole run contains evaluation and saving, which a rate of steps does not.
        features = {**features, "measured": "wall"}
        return Case(question, TRAINING, terms, features, question.value / steps, steps, is_rate=False)
    per_step = terms.units * _units_per_sample(question, config, cluster, layout)
    return Case(question, TRAINING, terms, features, per_step / question.value, per_step, is_rate=True)


def _units_per_sample(question: RunQuestion, config: TrainingConfig, cluster: Cluster, layout: Layout) -> float:
    """Units of the published rate in one sample: 1, its tokens, or its FLOPs per GPU."""
    match question.quantity:
        case "samples_per_second":
            return 1.0
        case "tokens_per_second":
            return config.tokens_per_sample or 1
        case "flops_per_second_per_gpu" | "model_flops_utilisation":
            # Full recomputation repeats the forward pass, and hardware FLOPs count it.
            recomputed = question.extras["hardware"] and layout.activation_checkpointing == "full"
            flops = published_training_flops_per_sample(
                config.model, config.sequence_length, recomputed=1.0 if recomputed else 0.0
            )
            peak = peak_flops(cluster.gpu, "bf16") if question.quantity == "model_flops_utilisation" else 1.0
            return flops / cluster.gpus / peak
    raise ValueError(question.quantity)


def _inference_case(question: RunQuestion, config: InferenceConfig, cluster: Cluster, fixed: FixedLayout) -> Case:
    quantity = question.quantity
    layout = usual_inference_layout(config, cluster, fixed)
    features = dict(inference_features(config, cluster, layout))
    if quantity in MEMORY_QUANTITIES:
        parts = inference_parts(config, layout, config.concurrency or 1.0)
        plannable = float(plannable_bytes(config, cluster.usable_bytes))
        return _memory_case(question, plannable, figures(parts), features, INFERENCE_MEMORY)
    if not config.model.generates:
        return _forward_case(question, config, cluster, features)
    return _generation_case(question, config, cluster, layout, Coefficients({}))


def _generation_case(
    question: RunQuestion, config: InferenceConfig, cluster: Cluster, layout: Layout, coefficients: Coefficients
) -> Case:
    """A figure of an engine, with the requests that run at once by the coefficients."""
    features = inference_features(config, cluster, layout)
    plannable = float(plannable_bytes(config, cluster.usable_bytes))
    room = EngineMemory.of(coefficients, config, layout, features).room(config, plannable)
    engine = engine_on(engine_factors(coefficients, features), config, cluster, layout, room)
    state, replicas = engine.state, float(replicas_in_use(config, layout))

    def case(share: EngineTimes, scale: float, *, is_rate: bool, bands: StepKind = GENERATION) -> Case:
        seconds = scale / question.value if is_rate else question.value / scale
        terms = StepTerms(engine.ideal(share), scale)
        again = partial(_generation_case, question, config, cluster, layout)
        return Case(question, GENERATION, terms, features, seconds, scale, is_rate, banded_as=bands, again=again)

    if question.quantity == "seconds_to_first_token":
        wave = EngineTimes(0.0, 0.0, question.extras.get("first_wave", 0.0) * float(state.in_flight) / 2.0, 0.0)
        first = EngineTimes(*(getattr(state.to_first_token, part) + getattr(wave, part) for part in PARTS))
        return case(first, 1.0, is_rate=False, bands=FIRST_TOKEN)
    if question.quantity == "prefill_tokens_per_second":
        return case(
            EngineTimes(0.0, 0.0, 1.0, 0.0),
            max(1.0, config.input_length) * layout.data,
            is_rate=True,
            bands=FIRST_TOKEN,
        )
    if question.quantity == "seconds_per_output_token":
        return case(engine.per_token, 1.0, is_rate=False)
    if question.quantity == "decoded_tokens_per_second":
        held = float(min(state.in_flight, max(1.0, engine.room)))
        return case(EngineTimes(1.0, held, 0.0, 0.0), held * replicas, is_rate=True)
    of_request = 1.0 if question.quantity == "samples_per_second" else max(1.0, config.output_length)
    return case(engine.per_request, of_request * replicas, is_rate=True)


def _forward_case(
    question: RunQuestion, config: InferenceConfig, cluster: Cluster, features: dict[str, str | float]
) -> Case:
    features["offline"] = "yes" if config.concurrency is None else "no"
    samples = forward_batch(config) * cluster.gpus
    terms = forward_terms(config, cluster)
    return Case(question, inference_kind(config), terms, features, samples / question.value, samples, is_rate=True)


def _memory_case(
    question: RunQuestion, usable: float, parts: Mapping[str, float], features: Features, bands: StepKind
) -> Case:
    terms = StepTerms(dict(parts), 1.0)
    if question.quantity == "memory_bytes_per_gpu":
        return Case(question, MEMORY, terms, features, question.value, 1.0, is_rate=False, banded_as=bands)
    fits = question.quantity != "fits" or bool(question.value)
    # Where a run fitted or failed is only a limit: 3 % on either side keep clear of the edge itself.
    edge, bound = (0.97 * usable, -1) if fits else (1.03 * usable, 1)
    return Case(
        question, MEMORY, terms, features, edge, 1.0, is_rate=False, bound=bound, usable_bytes=usable, banded_as=bands
    )
