"""A load on the instances that serve it, as `POST /estimate` and every choice show it."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from service.api.estimate.response import LayoutResponse, MoneyResponse, like, rounded, shown, shown_fields
from service.api.estimate.sentences import missed_text
from service.domain.bill.market_bills import MarketBill
from service.domain.layouts.job_estimate import JobEstimate


@dataclass(slots=True)
class ServedResponse:
    """A load on its instances. Times are likely ones, which the given percentile of the requests does not exceed."""

    keeps_limits: bool
    reason: Annotated[str | None, Field(description="Why the limits are not kept.")]
    engine: Annotated[str, Field(description="The stack whose efficiency is assumed; `unknown` is cautious.")]
    layout: LayoutResponse
    instances: Annotated[
        int, Field(description="Fewest that keep the limits; if no number does, the fewest that carry the load.")
    ]
    instances_low: Annotated[int, Field(description="If engines are as fast as the high end of their band.")]
    instances_high: int
    prefill_instances: Annotated[
        int | None, Field(description="Instances that only read prompts; null if the load is not disaggregated.")
    ]
    seconds_of_transfer: Annotated[
        float | None,
        Field(description="Time in which such an instance sends the cache of a prompt; null if there are none."),
    ]
    replicas: Annotated[int, Field(description="Copies of the model on all instances.")]
    kv_cache_tokens: Annotated[float | None, Field(description="Tokens whose keys and values fit on one replica.")]
    max_batch: Annotated[float, Field(description="Most requests that run at once on a replica.")]
    batch: Annotated[float, Field(description="Mean requests that run at once on a replica at the load.")]
    concurrency: Annotated[float, Field(description="Mean requests in flight on all replicas.")]
    utilisation: Annotated[float, Field(description="The load over the most that the replicas can do.")]
    requests_per_second: float
    output_tokens_per_second: Annotated[
        float | None, Field(description="Null for a model that writes no tokens, as the next two times.")
    ]
    percentile: int
    seconds_to_first_token: float | None
    seconds_per_output_token: float | None
    seconds_per_request: float


@dataclass(slots=True)
class PricedLoadResponse(ServedResponse):
    """A load on its instances, with the price of their machine time."""

    usd_per_month: Annotated[MoneyResponse | None, Field(description="Of 730 hours; null without a price.")]
    usd_per_million_input_tokens: Annotated[
        MoneyResponse | None, Field(description="Prompts and answers share the price as they share the engine's time.")
    ]
    usd_per_million_output_tokens: MoneyResponse | None
    usd_per_thousand_samples: Annotated[
        MoneyResponse | None, Field(description="Of a thousand requests; null without a price.")
    ]


def served_response(job: JobEstimate | None) -> ServedResponse | None:
    """Returns the load of a job; None if it has none, or if the model does not fit."""
    return None if job is None or job.estimate.served is None else ServedResponse(**_figures(job))


def priced_load(job: JobEstimate | None, bill: MarketBill) -> PricedLoadResponse | None:
    """Returns the load of a choice with its price, which is null where the load is not served within its limits."""
    if job is None or job.estimate.served is None:
        return None
    names = ("usd_per_million_input_tokens", "usd_per_million_output_tokens", "usd_per_thousand_samples")
    per_unit = shown_fields(None if bill.month is None else bill.per_unit, *names)
    return PricedLoadResponse(**_figures(job), usd_per_month=shown(bill.month), **per_unit)


def _figures(job: JobEstimate) -> dict[str, Any]:
    served, estimate = job.estimate.served, job.estimate
    assert served is not None
    tokens, rate = served.tokens, served.requests_per_second
    low, likely, high = (round(each) for each in (served.instances.low, served.instances.likely, served.instances.high))
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
        "batch": rounded(served.running),
        "concurrency": rounded(served.in_flight),
        "output_tokens_per_second": None if tokens is None else rounded(rate * served.serving.answer.mean),
        "percentile": round(served.serving.percentile * 100),
        **shown_fields(served, "utilisation", "requests_per_second", "seconds_per_request"),
        **shown_fields(tokens, "seconds_to_first_token", "seconds_per_output_token"),
    }
