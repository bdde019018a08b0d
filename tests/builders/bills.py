"""Runs and terms to make bills of: every default is sane, so that a test names only what matters to it."""

from dataclasses import replace
from datetime import date
from fractions import Fraction
from math import lcm
from typing import Any

from service.domain.band import Band
from service.domain.bill.bill import HourlyPrice, SellerTerms
from service.domain.bill.run import BilledRun
from service.domain.catalog.reference import Fee
from service.domain.catalog.tariffs import BillingRule, StoragePrice, TransferPrice
from service.domain.money import Exact, ExchangeRate, Micros, Unknown
from tests.builders.sources import DAY, SOURCE


def exact_figures(low: Fraction, likely: Fraction, high: Fraction) -> Exact:
    common = lcm(low.denominator, likely.denominator, high.denominator)
    return Exact((int(low * common), int(likely * common), int(high * common)), common)


def fractions_of(amount: Exact) -> list[Fraction]:
    return [Fraction(numerator, amount.denominator) for numerator in amount.numerators]


def hours(likely: float, low: float | None = None, high: float | None = None) -> Band:
    return Band(likely if low is None else low, likely, likely if high is None else high)


def run(likely_hours: float = 10.0, **given: Any) -> BilledRun:
    return replace(BilledRun(hours=hours(likely_hours)), **given)


def price(per_hour: float = 5.672, currency: str = "USD") -> HourlyPrice:
    return HourlyPrice(round(per_hour * 1_000_000), currency, "api", SOURCE)


def rule(increment_seconds: int = 1, minimum_seconds: int = 60, **given: Any) -> BillingRule:
    plain = BillingRule("aws", "", "", "", "", date(2017, 10, 2), increment_seconds, minimum_seconds, SOURCE, None)
    return replace(plain, **given)


def terms(per_hour: float = 5.672, **given: Any) -> SellerTerms:
    managed = isinstance(given.get("fee"), Fee | Unknown)
    return replace(SellerTerms(price(per_hour), None, rule(), managed=managed), **given)


def rate(currency: str = "EUR", usd_per_unit: float = 1.0812, on: date = DAY) -> ExchangeRate:
    return ExchangeRate(currency, on, round(usd_per_unit * 1_000_000_000), SOURCE)


def fee(percent: float = 15.0, family: str = "p4d", **given: Any) -> Fee:
    plain = Fee("aws", "sagemaker-training", family, date(2020, 11, 2), percent, SOURCE, None)
    return replace(plain, **given)


def stored_at(usd_per_gib_month: float | None = 0.08, **given: Any) -> StoragePrice:
    micros = None if usd_per_gib_month is None else round(usd_per_gib_month * 1_000_000)
    plain = StoragePrice("aws", "", "gp3", date(2020, 12, 1), "block", micros, micros is None, SOURCE, None)
    return replace(plain, **given)


def tier(start: int, end: int | None, usd_per_gb: float, **given: Any) -> TransferPrice:
    micros = round(usd_per_gb * 1_000_000)
    plain = TransferPrice("aws", "", "internet", start, date(2021, 12, 1), end, micros, SOURCE, None)
    return replace(plain, **given)


AWS_OUT = (
    tier(0, 100, 0.0),
    tier(100, 10_240, 0.09),
    tier(10_240, 51_200, 0.085),
    tier(51_200, 153_600, 0.07),
    tier(153_600, None, 0.05),
)


def usd(likely: float) -> Micros:
    """Dollars between half and twice the likely ones."""
    return Micros(round(likely * 5e5), round(likely * 1e6), round(likely * 2e6))
