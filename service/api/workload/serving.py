"""Translates the load of a request into a load of the domain, with defaults."""

from typing import Any

from service.api.workload.workload import LengthRequest, ServingRequest, WorkloadRequest
from service.domain.catalog.catalog import Catalog
from service.domain.catalog.names import resolve_model
from service.domain.errors import QuestionError
from service.domain.jobs.job import Job, input_length, output_length
from service.domain.jobs.serving import MOST_P95_OVER_MEAN, Length, Serving
from service.domain.models.model import Model

USUAL_HEADROOM = 0.2
"""Default share of the throughput that stays free: at a fully used replica, the queue would grow without limit."""

USUAL_SECONDS_PER_OUTPUT_TOKEN = 0.1
"""Default limit on the time per token if the caller names no limit on a time: that of MLPerf Inference v5.1 for
Llama 3.1 8B as a server (published on 2025-09-09, recalled; 0.08 for DeepSeek-R1). People read half as fast."""

USUAL_DRAFT_COST = 0.05
"""Default time of a drafted token over that of a step where no model drafts: n-grams took less than that in experiments
of Leviathan, Kalman and Matias (2023, arXiv 2211.17192)."""

MOST_PADDING = 512
"""Most rows by which the tables of models with one vocabulary differ (assumed). Trainers pad them: of one tokenizer,
Pythia's tables have 50,304 to 50,688 rows, and those of Qwen2.5 151,936 and 152,064."""

USUAL_DRAFT_LENGTH, USUAL_ADAPTER_RANK = 5, 16
"""Default tokens that are drafted per step, and default rank of adapters (assumed)."""

NEEDED_BY = {
    **dict.fromkeys(("draft_length", "draft_cost", "draft_model"), "speculative_acceptance"),
    "adapter_rank": "adapters",
}
"""Fields that say nothing without another one → the other one, which has to be above 0."""

RATES = ("requests_per_second", "output_tokens_per_second", "concurrency")
LIMITS = ("max_seconds_to_first_token", "max_seconds_per_output_token", "max_seconds_per_request")
PERCENTILES = ("percentile", "percentile_to_first_token", "percentile_per_output_token", "percentile_per_request")
AS_SENT = (
    "min_replicas", "availability_zones", "prefix_cache_hit_rate", "conversation_cache_hit_rate",
    "speculative_acceptance", "disaggregated", "adapters", "hours_per_day",
)  # fmt: skip
MOST_KNOWN = 0.99
"""Largest share of a prompt that was read before, for its conversation or for others."""
OF_TOKENS = (
    "output_tokens_per_second", "output_length", "max_seconds_to_first_token", "max_seconds_per_output_token",
    "percentile_to_first_token", "percentile_per_output_token", "prefix_cache_hit_rate", "conversation_cache_hit_rate",
    "speculative_acceptance", "draft_model", "draft_length", "draft_cost", "disaggregated", "adapters", "adapter_rank",
)  # fmt: skip
"""Fields that only the load of a model that writes tokens has."""
OF_A_FIXED_AMOUNT = ("amount", "concurrency", "batch_size", "longest_output_length")
"""Fields of a workload with a fixed number of requests, which contradict a load without an end."""


def _limits(sent: ServingRequest, model: Model, answer: Length) -> dict[str, Any]:
    """Returns the limits on times: those sent or, unless one was sent, even as null, the usual one of a token.

    Speech has no usual limit, because a transcript is not read while it is written. An answer of one token has no time
    between two of them.
    """
    limits = {name: getattr(sent, name) for name in LIMITS}
    if answer.mean <= 1.0:
        return limits | {"max_seconds_per_output_token": None}
    if not model.generates or model.family == "speech" or not sent.model_fields_set.isdisjoint(LIMITS):
        return limits
    return limits | {"max_seconds_per_output_token": USUAL_SECONDS_PER_OUTPUT_TOKEN}


def serving_of(work: WorkloadRequest, model: Model, catalog: Catalog) -> Serving | None:
    """Returns the load; None if none is sent. Raises `QuestionError`."""
    sent = work.serving
    if sent is None:
        return None
    _check(work, sent, model)
    plain = Job("inference", model, sequence_length=work.sequence_length)
    prompt = _length(work, sent, "input_length", input_length(plain), needed=model.generates)
    answer = _length(work, sent, "output_length", output_length(plain)) if model.generates else Length(1.0)
    rate = sent.requests_per_second or 0.0
    if sent.output_tokens_per_second is not None:
        rate = sent.output_tokens_per_second / answer.mean
    usual, drafter = 0.0 if sent.concurrency is not None else USUAL_HEADROOM, _drafter(sent, model, catalog)
    return Serving(
        requests_per_second=rate,
        concurrency=sent.concurrency,
        prompt=prompt,
        answer=answer,
        headroom=usual if sent.headroom is None else sent.headroom,
        drafter=drafter,
        draft_length=sent.draft_length or USUAL_DRAFT_LENGTH,
        adapter_rank=sent.adapter_rank or USUAL_ADAPTER_RANK,
        draft_cost=USUAL_DRAFT_COST if sent.draft_cost is None and drafter is None else sent.draft_cost,
        **_limits(sent, model, answer),
        **{name: getattr(sent, name) for name in AS_SENT},
        **{name: sent_share / 100 for name in PERCENTILES if (sent_share := getattr(sent, name)) is not None},
    )


def _check(work: WorkloadRequest, sent: ServingRequest, model: Model) -> None:
    """Raises `QuestionError` for a load whose fields contradict the workload or each other."""
    if work.task != "inference":
        raise QuestionError("A load needs a workload of the task 'inference'.", field="workload.serving")
    if not model.generates:
        _check_without_tokens(sent, model)
    for name in OF_A_FIXED_AMOUNT:
        if getattr(work, name) is not None:
            raise QuestionError(
                f"workload.serving is a load without an end: leave workload.{name} out.", field=f"workload.{name}"
            )
    if sent.prefix_cache_hit_rate + sent.conversation_cache_hit_rate > MOST_KNOWN:
        raise QuestionError(
            f"The two hit rates may be at most {MOST_KNOWN:g} together, because a part of every prompt is new.",
            field="workload.serving.conversation_cache_hit_rate",
        )
    for name, needed in NEEDED_BY.items():
        if getattr(sent, name) is not None and not getattr(sent, needed):
            raise QuestionError(
                f"{name} needs workload.serving.{needed} above 0, without which it changes nothing.",
                field=f"workload.serving.{name}",
            )
    if sent.disaggregated:
        _check_disaggregated(sent)
    given = [name for name in RATES if getattr(sent, name) is not None]
    if len(given) != 1:
        raise QuestionError(
            f"Give the load in {'only ' if given else ''}one of {', '.join(given or RATES)}.", field="workload.serving"
        )


def _drafter(sent: ServingRequest, model: Model, catalog: Catalog) -> Model | None:
    """Returns the draft model. Raises `QuestionError` if it writes no tokens, or those of another vocabulary."""
    if sent.draft_model is None:
        return None
    field = "workload.serving.draft_model"
    drafter = resolve_model(sent.draft_model, catalog, field)
    if not drafter.generates:
        raise QuestionError(f"{drafter.name} writes no tokens, so it cannot draft any.", field=field)
    sizes = [each.transformer.vocabulary if each.transformer else 0 for each in (drafter, model)]
    if all(sizes) and abs(sizes[0] - sizes[1]) > MOST_PADDING:
        raise QuestionError(
            f"{drafter.name} has a vocabulary of {sizes[0]:,} tokens and {model.name} one of {sizes[1]:,}: a draft "
            "model needs the vocabulary of the model that it drafts for.",
            field=field,
        )
    return drafter


def _check_without_tokens(sent: ServingRequest, model: Model) -> None:
    """Raises `QuestionError` for fields that only a model that writes tokens has."""
    for name in OF_TOKENS:
        if getattr(sent, name):
            raise QuestionError(
                f"{model.name} writes no tokens: leave {name} out. To limit the time of an answer, send "
                "max_seconds_per_request.",
                field=f"workload.serving.{name}",
            )


def _check_disaggregated(sent: ServingRequest) -> None:
    """Raises `QuestionError` for fields with which a disaggregated load is not estimated."""
    for name, instead in (
        ("concurrency", "requests_per_second"),
        ("max_seconds_per_request", "max_seconds_to_first_token and max_seconds_per_output_token"),
    ):
        if getattr(sent, name) is not None:
            raise QuestionError(
                f"A disaggregated load is not estimated with {name}: give {instead}.", field=f"workload.serving.{name}"
            )


def _length(work: WorkloadRequest, sent: ServingRequest, name: str, usual: float, *, needed: bool = True) -> Length:
    """Returns a length as the load or the workload states it, else the usual one of the model."""
    of_load, of_workload = getattr(sent, name), getattr(work, name)
    if of_load is not None and of_workload is not None:
        raise QuestionError(
            f"Give {name} in workload.serving or in workload, not in both.", field=f"workload.serving.{name}"
        )
    length = (usual if of_workload is None else of_workload) if of_load is None else of_load
    if needed and 0 in (of_load, of_workload):
        raise QuestionError(f"A load has at least one token of {name}.", field=f"workload.serving.{name}")
    if not length and needed:
        raise QuestionError(f"A load needs workload.serving.{name}.", field=f"workload.serving.{name}")
    if not isinstance(length, LengthRequest):
        return Length(float(length))
    if not length.mean <= length.p95 <= MOST_P95_OVER_MEAN * length.mean:
        raise QuestionError(
            f"p95 must be between the mean and {MOST_P95_OVER_MEAN:g} times the mean.",
            field=f"workload.serving.{name}.p95",
        )
    return Length(length.mean, length.p95)
