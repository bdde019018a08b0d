"""Dollars per unit of work, and what a load costs per month."""

import pytest

from service.domain.band import Band
from service.domain.bill.run import RunAmount
from service.domain.bill.unit_costs import (
    samples_per_usd,
    unit_costs,
    usd_per,
    usd_per_million_tokens,
)
from service.domain.money import Micros


def test_samples_for_a_dollar_as_the_article_has_them() -> None:
    assert round(samples_per_usd(2560, 24.48)) == 376_471


def test_a_run_per_epoch_token_and_sample() -> None:
    usd = Micros(90_000_000, 100_000_000, 120_000_000)
    rate = Band(1.0, 10.0, 100.0)
    amount = RunAmount(Band(1, 1, 1), "given", samples=1e6, tokens=2e9, epochs=3, samples_per_second=rate)
    found = unit_costs(usd, amount, 3_600_000)
    assert found.usd_per_epoch == Micros(30_000_000, 33_333_333, 40_000_000)
    assert found.usd_per_million_tokens == Micros(45_000, 50_000, 60_000)
    assert found.usd_per_thousand_samples == Micros(90_000, 100_000, 120_000)
    assert found.samples_per_usd is not None
    assert found.samples_per_usd.likely == pytest.approx(10_000)
    assert found.samples_per_usd.low < found.samples_per_usd.high
    assert found.usd_per_million_input_tokens is None


def test_a_dollar_buys_the_samples_of_the_whole_bill() -> None:
    """Set-up, storage and interruptions are part of the bill, so a dollar buys fewer samples than machine time does."""
    amount = RunAmount(Band(1, 1, 1), "given", samples=1e6, samples_per_second=Band(5e5, 5e5, 5e5))
    found = unit_costs(Micros(80_000_000, 100_000_000, 125_000_000), amount, 3_600_000)
    assert found.samples_per_usd == Band(8_000, 10_000, 12_500)
    without_amount = unit_costs(None, RunAmount(Band(1, 1, 1), "given", samples_per_second=Band(5, 10, 20)), 3_600_000)
    assert without_amount.samples_per_usd == Band(5_000, 10_000, 20_000)


def test_what_is_not_counted_or_not_known_has_no_price() -> None:
    hour, rate = Band(1, 1, 1), Band(1, 2, 3)
    assert unit_costs(Micros(1, 1, 1), RunAmount(hour, "given"), 1).usd_per_epoch is None
    assert unit_costs(None, RunAmount(hour, "given", samples=10), None).usd_per_thousand_samples is None
    assert unit_costs(Micros(0, 0, 0), RunAmount(hour, "given", samples_per_second=rate), 0).samples_per_usd is None


def test_a_vanishing_amount_has_no_price_per_unit() -> None:
    assert usd_per(Micros(1, 2, 3), 1000, 1e-310) is None


def test_a_vanishing_rate_has_no_price_per_token() -> None:
    amount = RunAmount(Band(1, 1, 1), "given", output_tokens_per_second=Band(5e-324, 5e-324, 5e-324))
    assert unit_costs(None, amount, 3_600_000).usd_per_million_output_tokens is None


def test_tokens_of_a_machine_that_serves() -> None:
    found = usd_per_million_tokens(3.6, Band(500, 1000, 2000))
    assert (found.low, found.likely, found.high) == pytest.approx((0.5, 1.0, 2.0))
