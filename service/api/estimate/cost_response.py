"""A bill as it is told: every amount in dollars and in the seller's currency, with how it is known."""

from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from service.api.estimate.response import BandResponse, maybe
from service.domain.band import Band
from service.domain.bill.bill import Part
from service.domain.catalog.tariffs import BillingRule
from service.domain.money import MICRO, USD, Exact, ExchangeRate, Micros, exact, half_up, number


@dataclass(frozen=True, slots=True)
class MoneyResponse:
    """Low, likely and high of an amount, to the millionth: each case adds up by itself."""

    low: float
    likely: float
    high: float

    @classmethod
    def of(cls, amount: Micros) -> "MoneyResponse":
        return cls(number(amount.low), number(amount.likely), number(amount.high))

    @classmethod
    def of_band(cls, dollars: Band) -> "MoneyResponse":
        return cls.of(Micros(*(half_up(exact(each) * MICRO) for each in (dollars.low, dollars.likely, dollars.high))))


def money(amount: Micros | None) -> MoneyResponse | None:
    return None if amount is None else MoneyResponse.of(amount)


def hours_told(hours: Exact | None) -> BandResponse | None:
    return maybe(None if hours is None else Band(float(hours.low), float(hours.likely), float(hours.high)))


@dataclass(frozen=True, slots=True)
class CostPartResponse:
    """One line of the bill; the parts add up to the total to the last millionth, in both currencies."""

    name: Literal[
        "compute", "interruption", "setup", "idle", "billing_rounding", "management_fee", "storage", "transfer",
        "rounding",
    ]  # fmt: skip
    usd: Annotated[MoneyResponse | None, Field(description="Null when it is not known; `reason` then says why.")]
    native: Annotated[MoneyResponse | None, Field(description="In the seller's currency.")]
    basis: Annotated[
        str,
        Field(
            description="How it is known: `given`, `measured`, `modelled`, `prior`, `published`, `rule`, `contained`, "
            "`exact`, `none` (there is nothing to pay) or `unknown`."
        ),
    ]
    text: Annotated[str, Field(description="How it was got.")]
    reason: str | None
    source: str | None

    @classmethod
    def of(cls, part: Part) -> "CostPartResponse":
        return cls(
            part.name, money(part.usd), money(part.native), part.basis, part.text, part.reason, part.source or None
        )


@dataclass(frozen=True, slots=True)
class BillingResponse:
    """How the seller rounds time."""

    increment_seconds: int
    minimum_seconds: int
    valid_from: date
    source: str
    note: str | None

    @classmethod
    def of(cls, rule: BillingRule) -> "BillingResponse":
        return cls(rule.increment_seconds, rule.minimum_seconds, rule.valid_from, rule.source, rule.note)


@dataclass(frozen=True, slots=True)
class HourlyRateResponse:
    """What a unit of the seller's currency was worth on a day."""

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
    """What a unit of the work costs; null of what the run does not count in."""

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


@dataclass(frozen=True, slots=True)
class MonthResponse:
    """The load of a month of 730 hours, day and night: machine time of all replicas, nothing stored or sent."""

    usd: MoneyResponse | None
    hours: int
    text: str


@dataclass(frozen=True, slots=True)
class CommitmentResponse:
    """What a term costs, whatever the run uses of it."""

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
    break_even_hours: Annotated[float | None, Field(description="The same in hours of one term.")]
    text: str


@dataclass(frozen=True, slots=True)
class BreakEvenResponse:
    """Where the market costs as much as renting on demand in the same region."""

    against: Literal["on_demand"]
    saves_percent: Annotated[
        float | None, Field(description="Of the likely bill; below 0 it costs more. Null where either is not known.")
    ]
    interruptions_per_hour: Annotated[
        float | None, Field(description="Of spot: so many, and it costs as much. Null: it is no cheaper undisturbed.")
    ]
    text: str


@dataclass(frozen=True, slots=True)
class PriceUsedResponse:
    """The hourly price of one machine."""

    usd_per_hour: float | None
    per_hour: Annotated[float | None, Field(description="In the seller's currency.")]
    currency: str
    kind: str
    observed_on: date | None
    source: str


@dataclass(frozen=True, slots=True)
class CostResponse:
    """What the run costs in one market."""

    market: str
    term: Annotated[str | None, Field(description="Of a reserved offer, such as `1y_reserved_all_upfront`.")]
    region: str | None
    zone: str | None
    managed_service: str | None
    usd_per_hour: Annotated[float | None, Field(description="Of all machines; null when it is not known.")]
    price: PriceUsedResponse
    hours: Annotated[
        BandResponse | None,
        Field(description="That each machine is in use: work, interruptions, set-up and idle time."),
    ]
    billed_hours: Annotated[BandResponse | None, Field(description="That each machine is paid for.")]
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
    missing: Annotated[list[str], Field(description="What is not known, in sentences.")]
    native: Annotated[MoneyResponse | None, Field(description="The total in the seller's currency.")]
    currency: str
    exchange_rate: Annotated[HourlyRateResponse | None, Field(description="Null where the seller asks dollars.")]
    per_unit: PerUnitResponse
    month: Annotated[MonthResponse | None, Field(description="Null where no load was asked.")]
    commitment: CommitmentResponse | None
    break_even: BreakEvenResponse | None
    unknown_because: Annotated[str | None, Field(description="Why `usd` is null.")]
    text: Annotated[str, Field(description="The cost in a sentence.")]


@dataclass(frozen=True, slots=True)
class LoadResponse:
    """What it takes to serve the load; a replica is `nodes` machines."""

    replicas: Annotated[int | None, Field(description="At the likely rate; null where no replica is quick enough.")]
    replicas_low: int | None
    replicas_high: int | None
    concurrency: Annotated[float | None, Field(description="Requests in flight per replica, for the latency asked.")]
    per_replica_per_second: Annotated[BandResponse | None, Field(description="In the unit of the load.")]
    seconds_to_first_token: BandResponse | None
    seconds_per_output_token: BandResponse | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class VerdictResponse:
    """Why the gate passed or failed: one entry of `cost` against the baseline and the budget."""

    sentence: str
    usd: MoneyResponse | None
    change_percent: Annotated[float | None, Field(description="Against the baseline; 10 is a tenth more.")]
    market: str | None
    term: str | None
    region: str | None


@dataclass(frozen=True, slots=True)
class GpuHourResponse:
    """An hour of one GPU of the same kind on another machine, on demand."""

    instance: str
    region: str | None
    gpus: float
    usd_per_gpu_hour: float
    observed_on: date | None
    saves_percent: Annotated[
        float | None, Field(description="Against this machine's own on-demand hour; below 0 it costs more.")
    ]


def plain_usd(micros: int, machines: int) -> float:
    """Dollars of so many machines, without the error of floats."""
    return number(micros * machines)


def rounded_usd(dollars: Fraction | float) -> float:
    return number(half_up((dollars if isinstance(dollars, Fraction) else exact(dollars)) * MICRO))
