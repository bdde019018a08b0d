"""A question body as values of the domain, without HTTP: what calibration needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from accuracy.rows import Question
from service.domain.answering import forward_terms, is_generative, prefill_terms
from service.domain.bands import Miss, unseen
from service.domain.calibrate import Run, fit
from service.domain.counting import forward_flops_per_token
from service.domain.demands import Terms
from service.domain.efficiency import Calibration, Coefficient, Facts, Kind
from service.domain.estimate import language_terms, step_of
from service.domain.facts import inference_facts, training_facts
from service.domain.hardware import Gpu
from service.domain.kinds import FORWARD, KINDS, MEMORY, PREFILL, TRAINING
from service.domain.layouts import (
    FixedLayout,
    in_flight,
    replicas_in_use,
    usual_inference_layout,
    usual_training_layout,
)
from service.domain.machine import Machine, machine_of
from service.domain.memory import figures, inference_parts, training_parts
from service.domain.model import Model, Transformer
from service.domain.parallelism import Layout
from service.domain.throughput import training_terms
from service.domain.workload import Inference, Software, Training

KNOWN_FLOPS = {
    "ssd300-rn50": (22e6, 17e9),
    "mlperf-ssd": (37e6, 300e9),
    "mlperf-ssd300": (20e6, 30e9),
    "mlperf-unet3d": (31e6, 1500e9),
    "mlperf-rnnt": (49e6, 60e9),
    "mlperf-stable-diffusion": (866e6, 800e9),
    "resnet-101": (44.5e6, 15.6e9),
}
"""Parameters and forward FLOPs of models that rows name without counts."""


def model_of(body: Mapping[str, Any]) -> Model:
    name = body["name"]
    parameters, flops = body.get("parameters", 0.0), body.get("forward_flops_per_sample")
    if name in KNOWN_FLOPS and not flops:
        parameters, flops = KNOWN_FLOPS[name]
    transformer = None
    if body.get("layers"):
        names = (
            "layers",
            "hidden",
            "heads",
            "kv_heads",
            "head_size",
            "ffn",
            "gated",
            "vocabulary",
            "tied",
            "experts",
            "experts_per_token",
            "expert_ffn",
            "mla_kv_rank",
            "mla_rope_size",
            "mla_value_size",
            "decoder",
        )
        transformer = Transformer(**{key: body[key] for key in names if key in body})
    return Model(
        id=name,
        name=name,
        family=body["family"],
        parameters=parameters,
        active_parameters=body.get("active_parameters") or parameters,
        transformer=transformer,
        forward_flops_per_sample=flops,
        sample="sample",
        released_on=None,
        source="caller",
        note=None,
    )


def machine(body: Mapping[str, Any], gpus: Mapping[str, Gpu]) -> Machine:
    m = body["machine"]
    return machine_of(gpus[m["gpu"]], m["gpu_count"], body["nodes"], m.get("interconnect"), None, m.get("network_gbps"))


def training(body: Mapping[str, Any]) -> Training:
    w = body["workload"]
    bits = w.get("weight_bits")
    weight = {4.127: "nf4-dq", 4.5: "nf4", 8.0: "int8"}.get(bits) if bits else None
    return Training(
        model=model_of(w["model"]),
        precision=w["precision"],
        recipe=w["recipe"],
        method=w["method"],
        weight_precision=weight,
        trainable_parameters=w.get("trainable_parameters"),
        sequence_length=w.get("sequence_length", 0),
        mean_length=w.get("mean_length"),
        global_batch=w.get("global_batch_size"),
        task=w["purpose"],
        optimizer="paged_adamw"
        if "paged" in w.get("optimizer", "")
        else w["optimizer"]
        if w.get("optimizer") == "adamw_8bit"
        else "adamw",
        chunked_loss=w.get("chunked_loss", False),
        fused_optimizer=w.get("fused_optimizer", False),
        offload_activations=w.get("offload_activations", False),
        flash_attention=w.get("flash_attention", True),
        software=Software(**w["software"]),
    )


def inference(body: Mapping[str, Any]) -> Inference:
    w = body["workload"]
    return Inference(
        model=model_of(w["model"]),
        precision=w["precision"],
        weight_bits=w.get("weight_bits"),
        input_length=w["input_length"],
        output_length=w["output_length"],
        concurrency=w["concurrency"],
        mean_length=w.get("mean_length"),
        kv_precision="fp8" if w["software"]["line"] == "tensorrt-llm" and w["precision"] in ("fp8", "fp4") else None,
        software=Software(**w["software"]),
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A question with everything that its estimate is made of."""

    question: Question
    kind: Kind
    terms: Terms
    facts: Facts
    seconds: float
    """What the step took, by the published figure."""
    scale: float
    """published value = scale / seconds for rates, scale * seconds for times."""
    is_rate: bool
    bound: int = 0
    usable_bytes: float = 0.0

    @property
    def run(self) -> Run:
        return Run(
            self.terms.seconds, self.facts, self.seconds, 0.5 if self.bound else 1.0, self.question.group, self.bound
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


def case_of(question: Question, gpus: Mapping[str, Gpu]) -> Case:
    body, quantity, value = question.body, question.quantity, question.value
    where = machine(body, gpus)
    if quantity in ("memory_bytes_per_gpu", "fits", "max_context_tokens"):
        return memory_case(question, where)
    if body["workload"]["task"] == "training":
        return training_case(question, training(body), where)
    work = inference(body)
    layout = usual_inference_layout(where, FixedLayout(**body["layout"]))
    facts = dict(inference_facts(work, where, layout))
    if not is_generative(work.model):
        return forward_case(question, work, where, facts)
    if quantity == "seconds_to_first_token":
        terms = prefill_terms(work, where, layout, work.concurrency or 1, work.input_length)
        return Case(question, PREFILL, terms, facts | {"what": "first"}, value, 1.0, is_rate=False)
    if quantity == "prefill_tokens_per_second":
        terms = prefill_terms(work, where, layout, 1, work.input_length)
        return Case(
            question, PREFILL, terms, facts | {"what": "prefill"}, terms.units / value, terms.units, is_rate=True
        )
    at = float(in_flight(work, where.usable_bytes, layout))
    kind, terms, what = language_terms(work, where, layout, at)
    if quantity == "seconds_per_output_token":
        return Case(question, kind, terms, facts | {"what": "token"}, value, 1.0, is_rate=False)
    total_at = at * float(replicas_in_use(work, layout))
    return Case(question, kind, terms, facts | what, total_at / value, total_at, is_rate=True)


def forward_case(question: Question, work: Inference, where: Machine, facts: dict[str, str | float]) -> Case:
    offline = work.concurrency is None
    batch = work.concurrency or 128.0
    terms = forward_terms(work, where, batch)
    total_batch = batch * where.gpus
    facts["offline"] = "yes" if offline else "no"
    return Case(question, FORWARD, terms, facts, total_batch / question.value, total_batch, is_rate=True)


def memory_case(question: Question, where: Machine) -> Case:
    """Bytes stand where seconds do."""
    body, value = question.body, question.value
    if body["workload"]["task"] == "training":
        work = training(body)
        layout = usual_training_layout(work, where, FixedLayout(**body["layout"]))
        parts, facts = figures(training_parts(work, layout)), training_facts(work, where, layout)
    else:
        answering = inference(body)
        layout = usual_inference_layout(where, FixedLayout(**body["layout"]))
        each = answering.input_length + answering.output_length
        batched = BATCHED_TOKENS if answering.software.line in ("vllm", "tensorrt-llm") else 1.0
        parts = figures(inference_parts(answering, layout, answering.concurrency or 1.0, each, batched))
        facts = inference_facts(answering, where, layout)
    if question.quantity == "memory_bytes_per_gpu":
        return Case(question, MEMORY, Terms(parts, 1.0), facts, value, 1.0, is_rate=False)
    fits = question.quantity != "fits" or bool(value)
    edge = where.usable_bytes * (0.97 if fits else 1.03)
    return Case(
        question,
        MEMORY,
        Terms(parts, 1.0),
        facts,
        edge,
        1.0,
        is_rate=False,
        bound=-1 if fits else 1,
        usable_bytes=where.usable_bytes,
    )


BATCHED_TOKENS = 512.0


def training_case(question: Question, work: Training, where: Machine) -> Case:
    layout = usual_training_layout(work, where, FixedLayout(**question.body["layout"]))
    terms = training_terms(work, where, layout)
    facts = dict(training_facts(work, where, layout))
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
        flops = published_flops(work, layout, hardware=bool(question.extras.get("hardware"))) * samples / where.gpus
        if quantity == "model_flops_utilisation":
            flops /= 1e12 * (where.gpu.tflops("bf16") or 1.0)
        return Case(question, TRAINING, terms, facts, flops / value, flops, is_rate=True)
    raise ValueError(quantity)


def published_flops(work: Training, layout: Layout, *, hardware: bool) -> float:
    """FLOPs per sample as papers count them: attention without the causal half."""
    t = work.model.transformer
    assert t is not None
    whole = replace(t, decoder=False)
    model = replace(work.model, transformer=whole)
    factor = 4.0 if hardware and layout.activation_checkpointing == "full" else 3.0
    return factor * forward_flops_per_token(model, work.sequence_length) * work.sequence_length
