"""The bills of an answer: each amount in dollars and in the seller's currency, with its basis."""

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from pydantic import Field

from service.api.catalog.instance_type import ends_of_band
from service.api.estimate.bill_sentences import (
    break_even_text,
    commitment_text,
    cost_text,
    month_text,
    part_text,
    verdict_text,
)
from service.api.estimate.response import BandResponse, MoneyResponse, like, shown, shown_fields
from service.api.http.fields import Described
from service.api.http.figures import rounded
from service.domain.bill.bill import Part, PartName
from service.domain.bill.commitments import CommittedCost
from service.domain.bill.market_bills import MarketBill
from service.domain.bill.verdict import Verdict
from service.domain.catalog.hardware import InstanceType
from service.domain.catalog.tariffs import BillingRule
from service.domain.estimate.estimate import Elsewhere, EstimateAnswer
from service.domain.money import USD, ExchangeRate, number

OWN_PRICE_SOURCE = "the request"


@dataclass(slots=True)
class CostPartResponse(Described):
    """One part of the bill. The parts add up exactly to the total, to a millionth, in both currencies."""

    name: PartName
    """The kind of charge. `checkpoints` is the time to write checkpoints at the interval of the request. There is one
    part `storage` for each entry of the request's `storage`, and one `transfer` for each destination of data."""
    usd: MoneyResponse | None
    """Dollars; null: unknown, and `reason` says why. `low`, `likely` and `high` are parts of those of the total;
    rounding up can add more to the likely hours than to longer ones."""
    native: MoneyResponse | None
    """The amount in the seller's currency; null: unknown."""
    basis: str
    """How the amount is known: `given`, `measured`, `modelled`, `prior`, `published`, `rule`, `contained` (in the price
    of the machine), `exact`, `none` (nothing to pay) or `unknown`."""
    text: str
    """How the amount was computed."""
    reason: str | None
    """Why the amount is unknown; null if it is known."""
    source: str | None
    """Id of the source of the price; null without one."""

    @classmethod
    def of(cls, part: Part) -> "CostPartResponse":
        """Returns a part of a bill with the sentence that says how it was computed."""
        # Without `like`, because a bill has dozens of parts and looking up the fields takes twice as long.
        text, source, usd = part_text(part), part.source or None, shown(part.usd)
        # The two amounts are the same if the seller's currency is the dollar.
        native = usd if part.native is part.usd else shown(part.native)
        return cls(part.name, usd, native, part.basis, text, part.reason, source)


@dataclass(slots=True)
class BillingResponse:
    """How the seller rounds time."""

    increment_seconds: Annotated[int, Field(description="Time is billed in whole multiples of this.")]
    minimum_seconds: Annotated[int, Field(description="The shortest time that is billed for a machine that was used.")]
    valid_from: Annotated[date, Field(description="The first day on which the rule is in force.")]
    source: str
    note: str | None


@dataclass(slots=True)
class ExchangeRateResponse:
    """The value of a unit of the seller's currency on a day."""

    usd_per_unit: Annotated[float, Field(description="US dollars for one unit of `currency`.")]
    on: Annotated[date, Field(description="The day of the rate.")]
    source: str

    @classmethod
    def of(cls, rate: ExchangeRate | None) -> "ExchangeRateResponse | None":
        """Returns a rate; None for a price in dollars."""
        if rate is None or rate.currency == USD:
            return None
        return like(cls, rate, usd_per_unit=float(rate.usd_per_unit))


@dataclass(slots=True)
class PerUnitResponse(Described):
    """The cost of a unit of the work; null for a unit that the run does not count in."""

    usd_per_epoch: MoneyResponse | None
    """The whole bill over the epochs."""
    usd_per_million_tokens: MoneyResponse | None
    """The whole bill over the tokens trained on or written, or read by a model that writes none; for a load, machine
    time over these."""
    usd_per_thousand_samples: MoneyResponse | None
    """The whole bill over the samples; for a load, machine time over the requests."""
    samples_per_usd: BandResponse | None
    """The samples over the whole bill; for a load, the requests over machine time; without an amount of work, samples
    per second x 3600 / hourly price."""
    usd_per_million_input_tokens: MoneyResponse | None
    """Machine time for a million tokens of prompts, at the speed of reading prompts."""
    usd_per_million_output_tokens: MoneyResponse | None
    """Machine time for a million tokens of answers, at the speed of writing answers."""


@dataclass(slots=True)
class MonthResponse(Described):
    """The cost of a load for a month: machine time of all instances, without storage and transfer."""

    usd: MoneyResponse | None
    """Null: the price of the machine is unknown, or no number of instances keeps the limits."""
    hours: float
    """Paid hours of each machine: 730, or fewer for a load of some hours a day."""
    text: str

    @classmethod
    def of(cls, bill: MarketBill) -> "MonthResponse | None":
        """Returns the price of a load for a month; None for a job that ends."""
        if bill.priced.served is None:
            return None
        return cls(shown(bill.month), rounded(bill.hours_a_month), month_text(bill))


@dataclass(slots=True)
class CommitmentResponse(Described):
    """The cost of the whole term of a commitment. The bill includes it, unless the caller holds the commitment."""

    plan: str
    """The payment plan of the term, such as `reserved_no_upfront`."""
    held: bool
    """Whether the caller pays for the term anyway; the bill then has only the used hours."""
    committed_hours: BandResponse
    """Hours of the whole terms that the run needs, per machine; of one term if its hours are unknown."""
    usd_used: MoneyResponse | None
    """Dollars for the used hours of all machines."""
    usd_committed: MoneyResponse | None
    """Dollars for the committed hours of all machines."""
    usd_upfront: MoneyResponse | None
    """The part of `usd_committed` that is paid at the start; null where the plan does not say."""
    used_share: float | None
    """Share of the hours that the run uses; null: unknown."""
    break_even_utilisation: float | None
    """Used share of a term at which it costs no more than on demand."""
    break_even_hours: float | None
    """`break_even_utilisation` in hours of one term."""
    text: str

    @classmethod
    def of(cls, cost: CommittedCost) -> "CommitmentResponse":
        """Returns the cost of a commitment as figures and as a sentence."""
        return like(cls, cost, text=commitment_text(cost))


@dataclass(slots=True)
class BreakEvenResponse(Described):
    """How the market compares with renting on demand in the same region."""

    against: Literal["on_demand"]
    """The market of the comparison."""
    saves_percent: float | None
    """Saving in percent of the likely bill; negative if it costs more. It is the most that may be saved where
    `usd_complete` is false; null: the bill on demand is unknown in part, or the run would hardly ever finish."""
    interruptions_per_hour: float | None
    """Interruptions per hour of one instance at which spot costs as much; null in other markets, or if it never
    pays."""
    text: str

    @classmethod
    def of(cls, bill: MarketBill) -> "BreakEvenResponse | None":
        """Returns how a market compares with on demand; None if that is unknown."""
        even = bill.break_even
        if even is None or bill.option is None:
            return None
        text = break_even_text(even, spot=bill.option.offer.market == "spot")
        return cls("on_demand", rounded(even.saves_percent), shown(even.interruptions_per_hour), text)


@dataclass(slots=True)
class PriceUsedResponse(Described):
    """The hourly price of one machine."""

    usd_per_hour: float | None
    """The price that is believed today and that the bill uses; a managed service adds its premium."""
    usd_per_hour_low: float | None
    """Low end of the band of `usd_per_hour`; the same for a price that the caller gave."""
    usd_per_hour_high: float | None
    """High end of the band of `usd_per_hour`; the same for a price that the caller gave."""
    listed_usd_per_hour: float | None
    """The listed price on `observed_on`."""
    per_hour: float | None
    """The listed price in the seller's currency."""
    currency: str
    """The currency of `per_hour`, such as `USD`."""
    kind: str
    """How the price is known: `api`, `published`, `entered` by hand, `assumed`, or `given` by the caller."""
    observed_on: date | None
    """The day on which the source showed the price; null: unknown, or given by the caller."""
    source: str
    """Id of the source, or `the request`."""

    @classmethod
    def of(cls, bill: MarketBill) -> "PriceUsedResponse":
        """Returns the hourly price that the bill uses, with its source."""
        usd = None if bill.usd_micros_per_hour is None else number(bill.usd_micros_per_hour)
        if bill.option is None:
            return cls(usd, usd, usd, usd, usd, USD, "given", None, OWN_PRICE_SOURCE)
        price = bill.option.offer.price
        listed, native = (None if micros is None else number(micros) for micros in price.listed)
        return like(cls, price, **ends_of_band(price), usd_per_hour=usd, listed_usd_per_hour=listed, per_hour=native)


@dataclass(slots=True)
class CostResponse(Described):
    """The cost of the run in one market."""

    market: str
    """`on_demand`, `spot` or `reserved`."""
    term: str | None
    """The term of a reserved offer, such as `1y_reserved_all_upfront`."""
    region: str | None
    """Null: the source names no region."""
    zone: str | None
    """Zone of a spot price; null if the price holds in the whole region."""
    managed_service: str | None
    """Id of the service through which the machines are rented; null: without such a service."""
    usd_per_hour: float | None
    """Price of all machines, with the premium of a managed service where it is known; null: unknown."""
    price: PriceUsedResponse
    """The price of one machine that the bill uses."""
    hours: BandResponse | None
    """Hours that each machine is in use: work, checkpoints, interruptions, set-up and idle time."""
    billed_hours: BandResponse | None
    """Hours that are paid for each machine."""
    elapsed_hours: BandResponse | None
    """Calendar hours, including the wait for capacity; null if that wait is unknown."""
    billing: BillingResponse | None
    """How the seller rounds time; null: unknown, a commitment is paid for, or the caller gave the price."""
    parts: list[CostPartResponse]
    """The lines of the bill; empty if the hours are unknown."""
    usd: MoneyResponse | None
    """Null without a price of the machine or an amount of work."""
    usd_complete: bool
    """Whether every part is known; otherwise `usd` is a lower bound or null."""
    missing: list[str]
    """A sentence for each part that is not known."""
    native: MoneyResponse | None
    """The total in the seller's currency."""
    currency: str
    """The seller's currency, in which `native` amounts are."""
    exchange_rate: ExchangeRateResponse | None
    """The rate by which the seller's prices become dollars; null if they are in dollars."""
    per_unit: PerUnitResponse
    month: MonthResponse | None
    """Null without a load."""
    commitment: CommitmentResponse | None
    """Null for an offer without a term, or without a known price."""
    break_even: BreakEvenResponse | None
    """Null on demand, and where the hours or an on-demand offer of the region are unknown."""
    unknown_because: str | None
    """Why `usd` is null."""
    text: str
    """The cost in a sentence."""

    @classmethod
    def of(cls, entry: MarketBill, instance_type: InstanceType | None) -> "CostResponse":
        """Returns the bill of one market; `instance_type` is None where the caller gave the price."""
        offer, bill, terms = None if entry.option is None else entry.option.offer, entry.bill, entry.terms
        hourly, missing = entry.charged_micros_per_hour, entry.missing
        return cls(
            market="on_demand" if offer is None else offer.market,
            **shown_fields(offer, "term", "region", "zone"),
            managed_service=None if entry.option is None else entry.option.service,
            usd_per_hour=None if hourly is None else number(hourly),
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
class VerdictResponse(Described):
    """The entry of `cost` that was compared with the baseline and the budget, and the result in a sentence."""

    sentence: str
    usd: MoneyResponse | None
    """The dollars that were compared: of the bill, or of a month of a load; null: unknown."""
    change_percent: float | None
    """Change against the baseline in percent; null without a baseline."""
    market: str | None
    """`on_demand`, `spot` or `reserved`; null: nothing is offered."""
    term: str | None
    """The term of a reserved offer; null in other markets."""
    region: str | None
    """Null: the source names no region."""

    @classmethod
    def of(cls, verdict: Verdict, answer: EstimateAnswer) -> "VerdictResponse":
        """Returns the answer in one sentence, with the figures of the bill that it rests on."""
        entry = answer.verdict_on
        offer = None if entry is None or entry.option is None else entry.option.offer
        # An entry without an offer is a described machine, whose hours count as on demand.
        without_offer = None if entry is None else "on_demand"
        month = None
        if entry is not None and entry.usd is None and entry.month is not None and answer.served is not None:
            month = month_text(entry)
        return cls(
            sentence=verdict_text(verdict, month),
            usd=shown(verdict.usd),
            change_percent=rounded(verdict.change_percent),
            market=without_offer if offer is None else offer.market,
            **shown_fields(offer, "term", "region"),
        )


@dataclass(slots=True)
class GpuHourResponse(Described):
    """The on-demand price per GPU and hour on another machine with the same GPU."""

    instance: str
    """The other instance type, as `provider/name`."""
    region: str | None
    """Null: the source names no region."""
    gpus: float
    """GPUs of that machine."""
    usd_per_gpu_hour: float
    """The price of that machine over `gpus`."""
    observed_on: date | None
    """The day on which the source showed the price; null: unknown."""
    saves_percent: float | None
    """Saving over this machine on demand, in percent; negative if it costs more."""

    @classmethod
    def of(cls, elsewhere: Elsewhere) -> "GpuHourResponse":
        """Returns the cheapest hour of the same GPU on another machine, and what it saves."""
        hour = elsewhere.hour
        return like(
            cls,
            hour,
            region=hour.offer.region,
            usd_per_gpu_hour=round(hour.usd_per_gpu_hour, 6),
            observed_on=hour.offer.price.observed_on,
            saves_percent=rounded(elsewhere.saves_percent),
        )
