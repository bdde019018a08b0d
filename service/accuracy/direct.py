"""A published run as the terms that its figure is made of: what calibration fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

from service.accuracy.rows import RunQuestion
from service.api.estimate.estimate import EstimateRequest, fixed_layout, machine_asked
from service.api.workload.job import job_of
from service.domain.calibration.coefficients import Calibration, Coefficient, Features, StepKind
from service.domain.calibration.error_bands import Miss, unseen
from service.domain.calibration.fit import CalibrationRun, fit
from service.domain.calibration.step_kinds import FORWARD, KINDS, MEMORY, PREFILL, TRAINING
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.hardware import peak_flops
from service.domain.jobs.config import InferenceConfig, TrainingConfig
from service.domain.jobs.job import inference_on, training_on
from service.domain.layouts.usual import usual_inference_layout, usual_training_layout
from service.domain.models.counts import published_training_flops_per_sample
from service.domain.physics.cluster import Cluster
from service.domain.physics.estimate import language_terms, step_of
from service.domain.physics.features import inference_features, training_features
from service.domain.physics.inference_roofline import forward_terms, prefill_terms
from service.domain.physics.kv_cache import in_flight, replicas_in_use
from service.domain.physics.memory import figures, inference_parts, training_parts
from service.domain.physics.parallelism import Layout
from service.domain.physics.resources import StepTerms
from service.domain.physics.training_roofline import training_terms


@dataclass(frozen=True, slots=True)
class Case:
    """A question with everything that its estimate is made of."""

    question: RunQuestion
    kind: StepKind
    terms: StepTerms
    facts: Features
    seconds: float
    """What the step took, by the published figure."""
    scale: float
    """published value = scale / seconds for rates, scale * seconds for times."""
    is_rate: bool
    bound: int = 0
    usable_bytes: float = 0.0
    scored: bool = True
    """False of what a row says beside its figure: it helps to fit, and no report counts it."""

    @property
    def weight(self) -> float:
        """That it fitted says less than a figure, and that a run was published less than a report on memory."""
        return 1.0 if self.bound >= 0 else 0.5 if self.scored else 0.15

    @property
    def run(self) -> CalibrationRun:
        return CalibrationRun(
            self.terms.seconds, self.facts, self.seconds, self.weight, self.question.group, self.bound
        )

    def predicted(self, calibration: Calibration) -> float:
        """The published figure as the calibration would have it; of a decision, 1 when it fits."""
        seconds = step_of(calibration, self.kind, self.terms, self.facts).seconds
        if self.bound:
            return float(seconds <= self.usable_bytes)
        return self.scale / seconds if self.is_rate else self.scale * seconds

    def miss(self, calibration: Calibration) -> Miss:
        new = unseen(calibration, self.kind, self.facts)
        seconds = step_of(calibration, self.kind, self.terms, self.facts).seconds
        error = log(seconds / self.seconds)
        return Miss(self.kind.name, str(self.facts.get("family", "")), new, error)


def fit_all(cases: Sequence[Case]) -> tuple[Calibration, list[Coefficient]]:
    """Every kind of work fitted on its cases."""
    values: dict[str, Mapping[str, float]] = {}
    coefficients: list[Coefficient] = []
    for kind in KINDS:
        runs = [case.run for case in cases if case.kind is kind]
        if len(runs) >= FEWEST_RUNS:
            calibration, found = fit(kind, runs)
            values.update(calibration.values)
            coefficients.extend(found)
    return Calibration(values), coefficients


FEWEST_RUNS = 5


def case_of(question: RunQuestion, catalog: Catalog) -> Case:
    """Raises `QuestionError` where the service would refuse the question."""
    asked = EstimateRequest.model_validate(question.body)
    assert asked.workload is not None
    job, fixed = job_of(asked.workload, catalog), fixed_layout(asked)
    where = machine_asked(asked, None, catalog)
    assert job is not None
    assert where is not None
    quantity, value = question.quantity, question.value
    if job.task == "training":
        work = training_on(job, where.gpu)
        layout = usual_training_layout(work, where, fixed)
        if quantity in MEMORY_QUANTITIES:
            return memory_case(
                question, where, figures(training_parts(work, layout)), training_features(work, where, layout)
            )
        return training_case(question, work, where, layout)
    answering = inference_on(job, where.gpu)
    layout = usual_inference_layout(where, fixed)
    facts = dict(inference_features(answering, where, layout))
    if quantity in MEMORY_QUANTITIES:
        length = answering.input_length + answering.output_length
        parts = inference_parts(answering, layout, answering.concurrency or 1.0, length)
        return memory_case(question, where, figures(parts), facts)
    if not answering.model.generates:
        return forward_case(question, answering, where, facts)
    if quantity == "seconds_to_first_token":
        terms = prefill_terms(answering, where, layout, 1.0, max(1.0, answering.input_length))
        return Case(question, PREFILL, terms, facts | {"what": "first"}, value, 1.0, is_rate=False)
    if quantity == "prefill_tokens_per_second":
        terms = prefill_terms(answering, where, layout, 1.0, max(1.0, answering.input_length))
        return Case(
            question, PREFILL, terms, facts | {"what": "prefill"}, terms.units / value, terms.units, is_rate=True
        )
    at = float(in_flight(answering, where.usable_bytes, layout))
    kind, terms, what = language_terms(answering, where, layout, at)
    if quantity == "seconds_per_output_token":
        told = facts | ({"what": "token"} if what else {})
        return Case(question, kind, terms, told, value, 1.0, is_rate=False)
    total_at = at * float(replicas_in_use(answering, layout))
    return Case(question, kind, terms, facts | what, total_at / value, total_at, is_rate=True)


def also_fitted(question: RunQuestion, catalog: Catalog) -> Case | None:
    """That a training run with a known batch per GPU was published says that it fitted."""
    if question.body["workload"]["task"] != "training" or "micro_batch" not in question.body["layout"]:
        return None
    if question.quantity in MEMORY_QUANTITIES:
        return None
    return replace(case_of(replace(question, quantity="fits", value=1.0), catalog), scored=False)


MEMORY_QUANTITIES = ("memory_bytes_per_gpu", "fits", "max_context_tokens")


def forward_case(question: RunQuestion, work: InferenceConfig, where: Cluster, facts: dict[str, str | float]) -> Case:
    offline = work.concurrency is None
    batch = work.concurrency or 128.0
    terms = forward_terms(work, where, batch)
    total_batch = batch * where.gpus
    facts["offline"] = "yes" if offline else "no"
    return Case(question, FORWARD, terms, facts, total_batch / question.value, total_batch, is_rate=True)


def memory_case(question: RunQuestion, where: Cluster, parts: Mapping[str, float], facts: Features) -> Case:
    """Bytes stand where seconds do."""
    parts, value = dict(parts), question.value
    if question.quantity == "memory_bytes_per_gpu":
        return Case(question, MEMORY, StepTerms(parts, 1.0), facts, value, 1.0, is_rate=False)
    fits = question.quantity != "fits" or bool(value)
    edge = where.usable_bytes * (0.97 if fits else 1.03)
    return Case(
        question,
        MEMORY,
        StepTerms(parts, 1.0),
        facts,
        edge,
        1.0,
        is_rate=False,
        bound=-1 if fits else 1,
        usable_bytes=where.usable_bytes,
    )


def training_case(question: RunQuestion, work: TrainingConfig, where: Cluster, layout: Layout) -> Case:
    terms = training_terms(work, where, layout)
    facts = dict(training_features(work, where, layout))
    samples = terms.units
    length = work.mean_length or work.sequence_length or 1
    quantity, value = question.quantity, question.value
    if quantity == "samples_per_second":
        return Case(question, TRAINING, terms, facts, samples / value, samples, is_rate=True)
    if quantity == "tokens_per_second":
        tokens = samples * length
        return Case(question, TRAINING, terms, facts, tokens / value, tokens, is_rate=True)
    if quantity == "seconds":
        amount = question.extras["amount"]
        steps = (amount["samples"] if "samples" in amount else amount["tokens"] / length) / samples
        return Case(question, TRAINING, terms, facts | {"measured": "wall"}, value / steps, steps, is_rate=False)
    if quantity in ("model_flops_utilisation", "flops_per_second_per_gpu"):
        recomputed = question.extras.get("hardware") and layout.activation_checkpointing == "full"
        each = published_training_flops_per_sample(work.model, work.sequence_length, passes=4 if recomputed else 3)
        flops = each * samples / where.gpus
        if quantity == "model_flops_utilisation":
            flops /= peak_flops(where.gpu, "bf16")
        return Case(question, TRAINING, terms, facts, flops / value, flops, is_rate=True)
    raise ValueError(quantity)
