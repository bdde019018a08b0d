"""The bills of an answer: every amount in dollars and in the seller's currency, with how it is known."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from service.api.catalog.instance_type import believed
from service.api.estimate.response import BandResponse, MoneyResponse, like, shown, shown_fields
from service.api.estimate.sentences import (
    break_even_text,
    commitment_text,
    cost_text,
    month_text,
    part_text,
    verdict_text,
)
from service.domain.bill.bill import Part, PartName
from service.domain.bill.commitments import CommittedCost
from service.domain.bill.estimate import Elsewhere, EstimateAnswer
from service.domain.bill.market_bills import MarketBill
from service.domain.bill.verdict import Verdict
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.tariffs import BillingRule
from service.domain.money import USD, ExchangeRate, number
from service.domain.units import HOURS_A_MONTH

OWN_PRICE_SOURCE = "the request"


@dataclass(slots=True)
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
        """Returns a part of a bill with the sentence that says how it was computed."""
        # Written out, because a bill has dozens of parts and looking for the fields takes twice as long.
        text, source, usd = part_text(part), part.source or None, shown(part.usd)
        # A seller who asks dollars has one amount.
        native = usd if part.native is part.usd else shown(part.native)
        return cls(part.name, usd, native, part.basis, text, part.reason, source)


@dataclass(slots=True)
class BillingResponse:
    """How the seller rounds time."""

    increment_seconds: int
    minimum_seconds: int
    valid_from: date
    source: str
    note: str | None


@dataclass(slots=True)
class ExchangeRateResponse:
    """The value of a unit of the seller's currency on a day."""

    usd_per_unit: float
    on: date
    source: str

    @classmethod
    def of(cls, rate: ExchangeRate | None) -> "ExchangeRateResponse | None":
        """Returns a rate; None for a price in dollars."""
        if rate is None or rate.currency == USD:
            return None
        return like(cls, rate, usd_per_unit=float(rate.usd_per_unit))


@dataclass(slots=True)
class PerUnitResponse:
    """The cost of a unit of the work; null for a unit that the run does not count in."""

    usd_per_epoch: MoneyResponse | None
    usd_per_million_tokens: Annotated[
        MoneyResponse | None, Field(description="The whole bill over the tokens trained on, or answered.")
    ]
    usd_per_thousand_samples: Annotated[
        MoneyResponse | None,
        Field(description="The whole bill over the samples; of a load, machine time over its requests."),
    ]
    samples_per_usd: Annotated[
        BandResponse | None, Field(description="Of machine time alone: samples per second x 3600 / hourly price.")
    ]
    usd_per_million_input_tokens: Annotated[
        MoneyResponse | None, Field(description="Of machine time, at the rate at which prompts are read.")
    ]
    usd_per_million_output_tokens: Annotated[
        MoneyResponse | None, Field(description="Of machine time, at the rate at which answers are written.")
    ]


@dataclass(slots=True)
class MonthResponse:
    """The load of a month of 730 hours, day and night: machine time of all instances, without storage and transfer."""

    usd: MoneyResponse | None
    hours: int
    text: str

    @classmethod
    def of(cls, bill: MarketBill) -> "MonthResponse | None":
        """Returns the price of a load for a month; None for a job that ends."""
        served = bill.priced.served
        if served is None:
            return None
        return cls(shown(bill.month), HOURS_A_MONTH, month_text(served, bill.month, bill.priced.run.nodes))


@dataclass(slots=True)
class CommitmentResponse:
    """The cost of a term, whatever share of it the run uses. The bill pays it, unless the caller holds the term."""

    plan: str
    held: Annotated[
        bool,
        Field(description="Whether the caller pays for the term anyway, so that the bill has the used hours alone."),
    ]
    committed_hours: Annotated[
        BandResponse,
        Field(
            description="Hours of whole terms, for each machine; of one term where the hours of the run are not known."
        ),
    ]
    usd_used: Annotated[MoneyResponse | None, Field(description="The hours of the run, at the price of the term.")]
    usd_committed: Annotated[MoneyResponse | None, Field(description="All committed hours of all machines.")]
    usd_upfront: Annotated[
        MoneyResponse | None,
        Field(description="The part of `usd_committed` that is paid at the start; null where the plan does not say."),
    ]
    used_share: Annotated[float | None, Field(description="Null where the hours of the run are not known.")]
    break_even_utilisation: Annotated[
        float | None, Field(description="The share of a term that must be used to cost no more than on demand.")
    ]
    break_even_hours: Annotated[float | None, Field(description="That share in hours of one term.")]
    text: str

    @classmethod
    def of(cls, cost: CommittedCost) -> "CommitmentResponse":
        """Returns what a commitment costs, as figures and as a sentence."""
        return like(cls, cost, text=commitment_text(cost))


@dataclass(slots=True)
class BreakEvenResponse:
    """Where the market costs as much as renting on demand in the same region."""

    against: Literal["on_demand"]
    saves_percent: Annotated[
        float | None,
        Field(description="Share of the likely bill; negative if it costs more. Null where either is unknown."),
    ]
    interruptions_per_hour: Annotated[
        float | None,
        Field(description="Interruptions at which spot costs as much. Null in other markets, and if spot never pays."),
    ]
    text: str

    @classmethod
    def of(cls, bill: MarketBill) -> "BreakEvenResponse | None":
        """Returns where a market stops saving money against on-demand; None where it is not known."""
        even = bill.break_even
        if even is None or bill.option is None:
            return None
        text = break_even_text(even, spot=bill.option.offer.market == "spot")
        return cls("on_demand", round(even.saves_percent, 2), shown(even.interruptions_per_hour), text)


@dataclass(slots=True)
class PriceUsedResponse:
    """The hourly price of one machine."""

    usd_per_hour: Annotated[float | None, Field(description="As it is believed today; the bill uses it.")]
    usd_per_hour_low: float | None
    usd_per_hour_high: float | None
    listed_usd_per_hour: Annotated[float | None, Field(description="As the source lists it on `observed_on`.")]
    per_hour: Annotated[float | None, Field(description="As listed, in the seller's currency.")]
    currency: str
    kind: str
    observed_on: date | None
    source: str

    @classmethod
    def of(cls, bill: MarketBill) -> "PriceUsedResponse":
        """Returns the hourly price that the bill uses, with its source."""
        usd = None if bill.usd_micros_per_hour is None else number(bill.usd_micros_per_hour)
        if bill.option is None:
            return cls(usd, usd, usd, usd, usd, USD, "given", None, OWN_PRICE_SOURCE)
        price = bill.option.offer.price
        listed, native = (None if micros is None else number(micros) for micros in price.listed)
        return like(cls, price, **believed(price), usd_per_hour=usd, listed_usd_per_hour=listed, per_hour=native)


@dataclass(slots=True)
class CostResponse:
    """The cost of the run in one market."""

    market: str
    term: Annotated[str | None, Field(description="The term of a reserved offer, such as `1y_reserved_all_upfront`.")]
    region: str | None
    zone: str | None
    managed_service: str | None
    usd_per_hour: Annotated[float | None, Field(description="Price of all machines; null when it is unknown.")]
    price: PriceUsedResponse
    hours: Annotated[
        BandResponse | None,
        Field(description="Hours in which each machine is in use: work, interruptions, set-up and idle time."),
    ]
    billed_hours: Annotated[BandResponse | None, Field(description="Hours for which each machine is paid.")]
    elapsed_hours: Annotated[
        BandResponse | None,
        Field(description="Calendar hours, including the wait for capacity; null when that is unknown."),
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
    exchange_rate: Annotated[
        ExchangeRateResponse | None, Field(description="Null where the seller's prices are in dollars.")
    ]
    per_unit: PerUnitResponse
    month: Annotated[MonthResponse | None, Field(description="Null without a load.")]
    commitment: CommitmentResponse | None
    break_even: BreakEvenResponse | None
    unknown_because: Annotated[str | None, Field(description="Why `usd` is null.")]
    text: Annotated[str, Field(description="The cost in a sentence.")]

    @classmethod
    def of(cls, entry: MarketBill, instance_type: InstanceType | None) -> "CostResponse":
        """Returns the bill of one market; `instance_type` is None where the caller gave the price."""
        offer, bill, terms = None if entry.option is None else entry.option.offer, entry.bill, entry.terms
        hourly, missing = entry.usd_micros_per_hour, entry.missing
        return cls(
            market="on_demand" if offer is None else offer.market,
            **shown_fields(offer, "term", "region", "zone"),
            managed_service=None if entry.option is None else entry.option.service,
            usd_per_hour=None if hourly is None else number(hourly * entry.machines),
            price=PriceUsedResponse.of(entry),
            **shown_fields(bill, "hours", "billed_hours", "elapsed_hours", "native"),
            billing=like(BillingResponse, terms.rule) if isinstance(terms.rule, BillingRule) else None,
            parts=[] if bill is None else [CostPartResponse.of(part) for part in bill.parts],
            usd=shown(entry.usd),
            usd_complete=not missing,
            missing=list(missing),
            currency=terms.currency,
            exchange_rate=ExchangeRateResponse.of(terms.rate),
            per_unit=like(PerUnitResponse, entry.per_unit),
            month=MonthResponse.of(entry),
            commitment=None if entry.commitment is None else CommitmentResponse.of(entry.commitment),
            break_even=BreakEvenResponse.of(entry),
            # The price of the machine comes first in a bill, so the first sentence is the reason for a null total.
            unknown_because=missing[0] if entry.usd is None and missing else None,
            text=cost_text(entry, None if instance_type is None else instance_type.id),
        )


@dataclass(slots=True)
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
        """Returns the answer in one sentence, with the figures of the bill that it rests on."""
        entry = answer.verdict_on
        offer = None if entry is None or entry.option is None else entry.option.offer
        month = None
        if entry is not None and entry.usd is None and entry.month is not None and answer.served is not None:
            month = month_text(answer.served, entry.month, answer.question.run.nodes)
        change = verdict.change_percent
        return cls(
            sentence=verdict_text(verdict, month),
            usd=shown(verdict.usd),
            change_percent=None if change is None else round(change, 2),
            market=offer.market if offer is not None else None if entry is None else "on_demand",
            **shown_fields(offer, "term", "region"),
        )


@dataclass(slots=True)
class GpuHourResponse:
    """The price of one GPU of the same model for an hour on another machine, on demand."""

    instance: str
    region: str | None
    gpus: float
    usd_per_gpu_hour: float
    observed_on: date | None
    saves_percent: Annotated[
        float | None, Field(description="Saving over this machine's own on-demand hour; negative if it costs more.")
    ]

    @classmethod
    def of(cls, elsewhere: Elsewhere) -> "GpuHourResponse":
        """Returns the cheapest hour of the same GPU on another machine, and what it saves."""
        hour, saves = elsewhere.hour, elsewhere.saves_percent
        return like(
            cls,
            hour,
            region=hour.offer.region,
            usd_per_gpu_hour=round(hour.usd_per_gpu_hour, 6),
            observed_on=hour.offer.price.observed_on,
            saves_percent=None if saves is None else round(saves, 2),
        )
