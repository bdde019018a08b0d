"""A load on the instances that serve it, as `POST /estimate` and every choice show it."""

from dataclasses import dataclass
from typing import Any

from service.api.estimate.bill_sentences import missed_text
from service.api.estimate.response import LayoutResponse, MoneyResponse, like, shown, shown_fields
from service.api.http.fields import Described
from service.api.http.figures import rounded
from service.domain.bill.market_bills import MarketBill
from service.domain.layouts.job_estimate import JobEstimate


@dataclass(slots=True)
class ServedResponse(Described):
    """A load on its instances. Each time is the likely one that a percentage of the requests do not exceed."""

    keeps_limits: bool
    """Whether the load is served within its limits."""
    reason: str | None
    """Why the limits are not kept."""
    engine: str
    """The stack whose efficiency is assumed; `unknown` is cautious."""
    layout: LayoutResponse
    """The layout of one instance."""
    instances: int
    """Fewest instances that keep the limits; if none do, the fewest that carry the load."""
    instances_low: int
    """Instances if engines are as fast as the high end of the band."""
    instances_high: int
    """Instances if engines are as slow as the low end of the band."""
    prefill_instances: int | None
    """Instances that only read prompts; null if the load is not disaggregated."""
    seconds_of_transfer: float | None
    """Seconds to send the cache of a prompt between instances; null if not disaggregated."""
    replicas: int
    """Copies of the model on all instances."""
    kv_cache_tokens: float | None
    """Tokens whose keys and values fit on one replica."""
    max_batch: float
    """Most requests that run at once on a replica."""
    batch: float
    """Mean requests that run on a replica at any time, also while it is idle."""
    concurrency: float
    """Mean requests in flight on all replicas."""
    utilisation: float
    """The load over the highest load that the replicas can carry."""
    requests_per_second: float
    """The load of all instances together; for a number of users, the rate that they cause."""
    output_tokens_per_second: float | None
    """Tokens of answers per second; null for a model that writes no tokens."""
    percentile: float
    """The share of requests, in percent, that must keep limits without a percentile of their own."""
    percentile_to_first_token: float | None
    """The share of requests, in percent, to which `seconds_to_first_token` applies; null without tokens."""
    percentile_per_output_token: float | None
    """The share of requests, in percent, to which `seconds_per_output_token` applies; null without tokens."""
    percentile_per_request: float
    """The share of requests, in percent, to which `seconds_per_request` applies."""
    seconds_to_first_token: float | None
    """Seconds from a request to its first token, waiting included; null for a model that writes no tokens."""
    seconds_per_output_token: float | None
    """Mean time between two tokens of an answer; null for a model that writes no tokens, and for answers of one."""
    seconds_per_request: float
    """Seconds from a request to the end of its answer, waiting included."""


@dataclass(slots=True)
class PricedLoadResponse(ServedResponse):
    """A load on its instances, with the price of their machine time."""

    usd_per_month: MoneyResponse | None
    """Dollars for the hours of a month in which the load is served, 730 by default; null without a price."""
    usd_per_million_tokens: MoneyResponse | None
    """All dollars over the tokens of answers, which pay for prompts too; over those read, if none are written."""
    usd_per_million_input_tokens: MoneyResponse | None
    """The price of prompts, which share the price of the machines with answers by the engine's time for each."""
    usd_per_million_output_tokens: MoneyResponse | None
    """The price of answers; null without a price, or for a model that writes no tokens."""
    usd_per_thousand_samples: MoneyResponse | None
    """Dollars for a thousand requests; null without a price."""


def served_response(job: JobEstimate | None) -> ServedResponse | None:
    """Returns the load of a job; None if it has none, or if the model does not fit."""
    return None if job is None or job.estimate.served is None else ServedResponse(**_figures(job))


def priced_load(job: JobEstimate | None, bill: MarketBill) -> PricedLoadResponse | None:
    """Returns the load of a choice with its price, which is null where the load is not served within its limits."""
    if job is None or job.estimate.served is None:
        return None
    names = (
        "usd_per_month",
        "usd_per_million_tokens",
        "usd_per_million_input_tokens",
        "usd_per_million_output_tokens",
        "usd_per_thousand_samples",
    )
    per_unit = shown_fields(None if bill.month is None else bill.per_unit, *names)
    return PricedLoadResponse(**_figures(job), **per_unit)


def _percentage(share: float) -> float:
    return rounded(100 * share)


def _figures(job: JobEstimate) -> dict[str, Any]:
    served, estimate = job.estimate.served, job.estimate
    assert served is not None
    tokens, rate = served.tokens, served.requests_per_second
    instances, shares = served.instances, served.serving.percentiles
    low, likely, high = round(instances.low), round(instances.likely), round(instances.high)
    return {
        "keeps_limits": not served.missed,
        "reason": missed_text(served) if served.missed else None,
        "engine": job.config.software.profile,
        "layout": like(LayoutResponse, estimate.layout),
        "instances": likely,
        "instances_low": low,
        "instances_high": high,
        "prefill_instances": served.prefill_instances or None,
        "seconds_of_transfer": rounded(served.seconds_of_transfer) if served.prefill_instances else None,
        "replicas": likely * round(served.replicas),
        "kv_cache_tokens": shown(estimate.kv_cache_tokens),
        "max_batch": served.places,
        "batch": rounded(served.batch),
        "concurrency": rounded(served.in_flight),
        "output_tokens_per_second": None if tokens is None else rounded(rate * served.serving.answer.mean),
        "percentile": _percentage(served.serving.percentile),
        "percentile_to_first_token": None if tokens is None else _percentage(shares["max_seconds_to_first_token"]),
        "percentile_per_output_token": None if tokens is None else _percentage(shares["max_seconds_per_output_token"]),
        "percentile_per_request": _percentage(shares["max_seconds_per_request"]),
        **shown_fields(served, "utilisation", "requests_per_second", "seconds_per_request"),
        **shown_fields(tokens, "seconds_to_first_token", "seconds_per_output_token"),
    }
