"""The bills of an answer: every amount in dollars and in the seller's currency, with how it is known."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from service.api.estimate.response import BandResponse, figure, maybe, rounded
from service.api.estimate.sentences import (
    break_even_text,
    commitment_text,
    cost_text,
    month_text,
    part_text,
    verdict_text,
)
from service.domain.bill.bill import Part, PartName
from service.domain.bill.estimate import Elsewhere, EstimateAnswer
from service.domain.bill.market_bills import MarketBill
from service.domain.bill.serving import Served
from service.domain.bill.unit_costs import UnitCosts
from service.domain.bill.verdict import Verdict
from service.domain.catalog.tariffs import HOURS_A_MONTH, BillingRule
from service.domain.money import USD, Exact, ExchangeRate, Micros, Unknown, number

OWN_PRICE_SOURCE = "the request"


@dataclass(frozen=True, slots=True)
class MoneyResponse:
    """Low, likely and high of an amount, to the millionth: each case adds up by itself."""

    low: float
    likely: float
    high: float


def money(amount: Micros | None) -> MoneyResponse | None:
    """Returns the amount in whole units of its currency; None for None."""
    return None if amount is None else MoneyResponse(number(amount.low), number(amount.likely), number(amount.high))


def _amount(micros: int | None) -> float | None:
    return None if micros is None else number(micros)


def hours_band(hours: Exact | None) -> BandResponse | None:
    """Returns the rounded hours; None for None."""
    return maybe(None if hours is None else hours.band)


@dataclass(frozen=True, slots=True)
class CostPartResponse:
    """One line of the bill; the parts add up to the total to the last millionth, in both currencies."""

    name: PartName
    usd: Annotated[MoneyResponse | None, Field(description="Null when it is not known; `reason` then says why.")]
    native: Annotated[MoneyResponse | None, Field(description="In the seller's currency.")]
    basis: Annotated[
        str,
        Field(
            description="How it is known: `given`, `measured`, `modelled`, `prior`, `published`, `rule`, `contained`, "
            "`exact`, `none` (there is nothing to pay) or `unknown`."
        ),
    ]
    text: Annotated[str, Field(description="How it was computed.")]
    reason: str | None
    source: str | None

    @classmethod
    def of(cls, part: Part) -> "CostPartResponse":
        usd, native = money(part.usd), money(part.native)
        return cls(part.name, usd, native, part.basis, part_text(part), part.reason, part.source or None)


@dataclass(frozen=True, slots=True)
class BillingResponse:
    """How the seller rounds time."""

    increment_seconds: int
    minimum_seconds: int
    valid_from: date
    source: str
    note: str | None

    @classmethod
    def of(cls, rule: BillingRule | Unknown | None) -> "BillingResponse | None":
        if rule is None or isinstance(rule, Unknown):
            return None
        return cls(rule.increment_seconds, rule.minimum_seconds, rule.valid_from, rule.source, rule.note)


@dataclass(frozen=True, slots=True)
class HourlyRateResponse:
    """The value of a unit of the seller's currency on a day."""

    usd_per_unit: float
    on: date
    source: str

    @classmethod
    def of(cls, rate: ExchangeRate | None) -> "HourlyRateResponse | None":
        if rate is None or rate.currency == USD:
            return None
        return cls(float(rate.usd_per_unit), rate.on, rate.source)


@dataclass(frozen=True, slots=True)
class PerUnitResponse:
    """The cost of a unit of the work; null for a unit that the run does not count in."""

    usd_per_epoch: MoneyResponse | None
    usd_per_million_tokens: Annotated[
        MoneyResponse | None, Field(description="The whole bill over the tokens trained on, or answered.")
    ]
    usd_per_thousand_samples: Annotated[MoneyResponse | None, Field(description="The whole bill over the samples.")]
    samples_per_usd: Annotated[
        BandResponse | None, Field(description="Of machine time alone: samples per second x 3600 / hourly price.")
    ]
    usd_per_million_input_tokens: Annotated[
        MoneyResponse | None, Field(description="Of machine time, at the rate at which prompts are read.")
    ]
    usd_per_million_output_tokens: Annotated[
        MoneyResponse | None, Field(description="Of machine time, at the rate at which answers are written.")
    ]

    @classmethod
    def of(cls, costs: UnitCosts) -> "PerUnitResponse":
        return cls(
            usd_per_epoch=money(costs.usd_per_epoch),
            usd_per_million_tokens=money(costs.usd_per_million_tokens),
            usd_per_thousand_samples=money(costs.usd_per_thousand_samples),
            samples_per_usd=maybe(costs.samples_per_usd),
            usd_per_million_input_tokens=money(costs.usd_per_million_input_tokens),
            usd_per_million_output_tokens=money(costs.usd_per_million_output_tokens),
        )


@dataclass(frozen=True, slots=True)
class MonthResponse:
    """The load of a month of 730 hours, day and night: machine time of all replicas, without storage and transfer."""

    usd: MoneyResponse | None
    hours: int
    text: str

    @classmethod
    def of(cls, bill: MarketBill, served: Served | Unknown | None, nodes: int) -> "MonthResponse | None":
        if served is None:
            return None
        text = served.reason if isinstance(served, Unknown) else month_text(served, bill.month, nodes)
        return cls(money(bill.month), HOURS_A_MONTH, text)


@dataclass(frozen=True, slots=True)
class CommitmentResponse:
    """The cost of a term, whatever share of it the run uses."""

    plan: str
    committed_hours: BandResponse
    usd_used: Annotated[
        MoneyResponse | None, Field(description="The billed hours of the run, at the price of the term.")
    ]
    usd_committed: Annotated[MoneyResponse | None, Field(description="All hours of as many terms as the run needs.")]
    used_share: float
    break_even_utilisation: Annotated[
        float | None, Field(description="The share of a term that must be used to cost no more than on demand.")
    ]
    break_even_hours: Annotated[float | None, Field(description="That share in hours of one term.")]
    text: str

    @classmethod
    def of(cls, bill: MarketBill) -> "CommitmentResponse | None":
        cost = bill.commitment
        if cost is None:
            return None
        return cls(
            plan=cost.plan,
            committed_hours=hours_band(cost.committed_hours) or BandResponse(0, 0, 0),
            usd_used=money(cost.used_usd),
            usd_committed=money(cost.committed_usd),
            used_share=rounded(cost.used_share),
            break_even_utilisation=figure(cost.break_even_utilisation),
            break_even_hours=figure(cost.break_even_hours),
            text=commitment_text(cost.used_share, cost.break_even_utilisation),
        )


@dataclass(frozen=True, slots=True)
class BreakEvenResponse:
    """Where the market costs as much as renting on demand in the same region."""

    against: Literal["on_demand"]
    saves_percent: Annotated[
        float | None, Field(description="Of the likely bill; below 0 it costs more. Null where either is not known.")
    ]
    interruptions_per_hour: Annotated[
        float | None,
        Field(description="Of spot, at which it costs as much. Null for other markets, and if spot never pays."),
    ]
    text: str

    @classmethod
    def of(cls, bill: MarketBill) -> "BreakEvenResponse | None":
        even = bill.break_even
        if even is None or bill.option is None:
            return None
        text = break_even_text(even, spot=bill.option.offer.market == "spot")
        return cls("on_demand", round(even.saves_percent, 2), figure(even.interruptions_per_hour), text)


@dataclass(frozen=True, slots=True)
class PriceUsedResponse:
    """The hourly price of one machine."""

    usd_per_hour: float | None
    per_hour: Annotated[float | None, Field(description="In the seller's currency.")]
    currency: str
    kind: str
    observed_on: date | None
    source: str

    @classmethod
    def of(cls, bill: MarketBill) -> "PriceUsedResponse":
        usd, native = _amount(bill.usd_micros_per_hour), bill.terms.price
        if bill.option is None:
            return cls(usd, usd, USD, "given", None, OWN_PRICE_SOURCE)
        price = bill.option.offer.price
        per_hour = None if isinstance(native, Unknown) else number(native.micros_per_hour)
        return cls(usd, per_hour, price.currency, price.kind, price.observed_on, price.source)


@dataclass(frozen=True, slots=True)
class CostResponse:
    """The cost of the run in one market."""

    market: str
    term: Annotated[str | None, Field(description="Of a reserved offer, such as `1y_reserved_all_upfront`.")]
    region: str | None
    zone: str | None
    managed_service: str | None
    usd_per_hour: Annotated[float | None, Field(description="Of all machines; null when it is not known.")]
    price: PriceUsedResponse
    hours: Annotated[
        BandResponse | None,
        Field(description="For which each machine is in use: work, interruptions, set-up and idle time."),
    ]
    billed_hours: Annotated[BandResponse | None, Field(description="For which each machine is paid.")]
    elapsed_hours: Annotated[
        BandResponse | None,
        Field(description="Of the calendar, with waiting for capacity; null when that is not known."),
    ]
    billing: BillingResponse | None
    parts: list[CostPartResponse]
    usd: Annotated[MoneyResponse | None, Field(description="Null without a price of the machine or an amount of work.")]
    usd_complete: Annotated[
        bool, Field(description="False: something is not known, and `usd` is a lower bound or null.")
    ]
    missing: Annotated[list[str], Field(description="Sentences about everything that is not known.")]
    native: Annotated[MoneyResponse | None, Field(description="The total in the seller's currency.")]
    currency: str
    exchange_rate: Annotated[HourlyRateResponse | None, Field(description="Null where the seller asks dollars.")]
    per_unit: PerUnitResponse
    month: Annotated[MonthResponse | None, Field(description="Null where no load was asked.")]
    commitment: CommitmentResponse | None
    break_even: BreakEvenResponse | None
    unknown_because: Annotated[str | None, Field(description="Why `usd` is null.")]
    text: Annotated[str, Field(description="The cost in a sentence.")]

    @classmethod
    def of(cls, entry: MarketBill, answer: EstimateAnswer) -> "CostResponse":
        offer, bill, terms = None if entry.option is None else entry.option.offer, entry.bill, entry.terms
        instance_type, hourly = answer.question.instance_type, entry.usd_micros_per_hour
        missing = entry.missing
        return cls(
            market="on_demand" if offer is None else offer.market,
            term=None if offer is None else offer.term,
            region=None if offer is None else offer.region,
            zone=None if offer is None else offer.zone,
            managed_service=None if entry.option is None else entry.option.service,
            usd_per_hour=None if hourly is None else number(hourly * entry.machines),
            price=PriceUsedResponse.of(entry),
            hours=None if bill is None else hours_band(bill.hours),
            billed_hours=None if bill is None else hours_band(bill.billed_hours),
            elapsed_hours=None if bill is None else hours_band(bill.elapsed_hours),
            billing=BillingResponse.of(terms.rule),
            parts=[] if bill is None else [CostPartResponse.of(part) for part in bill.parts],
            usd=money(entry.usd),
            usd_complete=not missing,
            missing=list(missing),
            native=None if bill is None else money(bill.native),
            currency=terms.currency,
            exchange_rate=HourlyRateResponse.of(terms.rate),
            per_unit=PerUnitResponse.of(entry.per_unit),
            month=MonthResponse.of(entry, answer.served, answer.question.run.nodes),
            commitment=CommitmentResponse.of(entry),
            break_even=BreakEvenResponse.of(entry),
            unknown_because=missing[0] if entry.usd is None and missing else None,
            text=cost_text(entry, None if instance_type is None else instance_type.id),
        )


@dataclass(frozen=True, slots=True)
class LoadResponse:
    """The replicas that serve the load; a replica is `nodes` machines."""

    replicas: Annotated[int | None, Field(description="At the likely rate; null where no replica is quick enough.")]
    replicas_low: int | None
    replicas_high: int | None
    concurrency: Annotated[
        float | None, Field(description="Requests in flight per replica, for the requested latency.")
    ]
    per_replica_per_second: Annotated[BandResponse | None, Field(description="In the unit of the load.")]
    seconds_to_first_token: BandResponse | None
    seconds_per_output_token: BandResponse | None
    reason: str | None

    @classmethod
    def of(cls, served: Served | Unknown | None) -> "LoadResponse | None":
        if served is None:
            return None
        if isinstance(served, Unknown):
            return cls(None, None, None, None, None, None, None, served.reason)
        return cls(
            replicas=served.likely,
            replicas_low=served.few,
            replicas_high=served.many,
            concurrency=figure(served.concurrency),
            per_replica_per_second=BandResponse.of(served.per_second),
            seconds_to_first_token=maybe(served.seconds_to_first_token),
            seconds_per_output_token=maybe(served.seconds_per_output_token),
            reason=None,
        )


@dataclass(frozen=True, slots=True)
class VerdictResponse:
    """Why the gate passed or failed: one entry of `cost` against the baseline and the budget."""

    sentence: str
    usd: MoneyResponse | None
    change_percent: Annotated[float | None, Field(description="Against the baseline; 10 is a tenth more.")]
    market: str | None
    term: str | None
    region: str | None

    @classmethod
    def of(cls, verdict: Verdict, answer: EstimateAnswer) -> "VerdictResponse":
        entry = answer.verdict_on
        offer = None if entry is None or entry.option is None else entry.option.offer
        month = None
        if entry is not None and entry.usd is None and entry.month is not None and isinstance(answer.served, Served):
            month = month_text(answer.served, entry.month, answer.question.run.nodes)
        change = verdict.change_percent
        return cls(
            sentence=verdict_text(verdict, month),
            usd=money(verdict.usd),
            change_percent=None if change is None else round(change, 2),
            market=offer.market if offer is not None else None if entry is None else "on_demand",
            term=None if offer is None else offer.term,
            region=None if offer is None else offer.region,
        )


@dataclass(frozen=True, slots=True)
class GpuHourResponse:
    """The price of one GPU of the same model for an hour on another machine, on demand."""

    instance: str
    region: str | None
    gpus: float
    usd_per_gpu_hour: float
    observed_on: date | None
    saves_percent: Annotated[
        float | None, Field(description="Against this machine's own on-demand hour; below 0 it costs more.")
    ]

    @classmethod
    def of(cls, elsewhere: Elsewhere) -> "GpuHourResponse":
        hour, saves = elsewhere.hour, elsewhere.saves_percent
        return cls(
            instance=hour.instance,
            region=hour.offer.region,
            gpus=hour.gpus,
            usd_per_gpu_hour=round(hour.usd_per_gpu_hour, 6),
            observed_on=hour.offer.price.observed_on,
            saves_percent=None if saves is None else round(saves, 2),
        )
