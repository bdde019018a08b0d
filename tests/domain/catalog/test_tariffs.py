"""Billing rules, storage and transfer prices: what holds where, and from which day on."""

from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.catalog.tariffs import rule_of, storage_classes, storage_price_of, transfer_cost, transfer_prices_of
from service.domain.money import Exact, Unknown
from tests.builders.bills import AWS_OUT, fractions_of, rule, stored_at, tier
from tests.builders.sources import DAY

EC2 = [
    rule(3600, 3600, service="ec2", valid_from=date(2006, 8, 25)),
    rule(1, 60, service="ec2", operating_system="linux", valid_from=date(2017, 10, 2)),
    rule(1, 1, service="sagemaker", valid_from=date(2017, 11, 29)),
]


@pytest.mark.parametrize(
    ("service", "system", "day", "increment"),
    [
        ("ec2", "linux", date(2017, 10, 1), 3600),
        ("ec2", "linux", date(2017, 10, 2), 1),
        ("ec2", "suse", date(2024, 1, 1), 3600),
        ("sagemaker", "linux", date(2024, 1, 1), 1),
    ],
)
def test_the_rule_that_speaks_most_precisely_holds(service: str, system: str, day: date, increment: int) -> None:
    found = rule_of(EC2, "aws", service, "virtual", "on_demand", system, day)
    assert not isinstance(found, Unknown)
    assert found.increment_seconds == increment


def test_bare_metal_may_have_a_rule_of_its_own() -> None:
    rules = [rule(1, 60), rule(1, 3600, machine="bare_metal")]
    assert rule_of(rules, "aws", "ec2", "bare_metal", "spot", "linux", DAY) == rules[1]
    assert rule_of(rules, "aws", "ec2", "virtual", "spot", "linux", DAY) == rules[0]


def test_a_seller_without_a_rule_is_reported() -> None:
    found = rule_of(EC2, "vast", "compute", "virtual", "spot", "linux", DAY)
    assert found == Unknown(
        "How vast rounds the time of its machines is not known; they are billed here by the second."
    )


@given(st.fractions(0, 10**6), st.sampled_from([1, 60, 3600]), st.sampled_from([1, 60, 3600]))
def test_billed_hours_are_whole_increments_and_hold_what_was_used(hours: Fraction, step: int, least: int) -> None:
    asked = rule(step, max(step, least))
    billed = fractions_of(asked.billed_hours(Exact.same(hours)))[1]
    assert (billed * 3600 / step).denominator == 1
    assert billed == 0 or billed * 3600 >= least
    within = Fraction(1, 3600 * 10**6)
    assert -within <= billed - hours <= Fraction(max(step, least), 3600) + within


def test_a_region_of_its_own_stands_before_all_regions_and_the_newest_day_before_older() -> None:
    prices = [
        stored_at(0.10, valid_from=date(2014, 6, 17)),
        stored_at(0.08),
        stored_at(0.096, region="eu-central-1"),
    ]
    assert storage_price_of(prices, "aws", "us-east-1", "gp3", DAY) == prices[1]
    assert storage_price_of(prices, "aws", "eu-central-1", "gp3", DAY) == prices[2]
    assert storage_price_of(prices, "aws", None, "gp3", date(2019, 1, 1)) == prices[0]
    none = storage_price_of(prices, "aws", "us-east-1", "io2", DAY)
    assert none == Unknown("The price of io2 at aws in us-east-1 is not known; those of gp3 are.")
    elsewhere = storage_price_of(prices[2:], "aws", "us-east-1", "gp3", DAY)
    assert elsewhere == Unknown("The price of gp3 at aws in us-east-1 is not known.")
    assert storage_price_of(prices, "gcp", None, "gp3", DAY) == Unknown("The price of gp3 at gcp is not known.")


def test_the_known_classes_are_listed() -> None:
    prices = [stored_at(), stored_at(storage_class="s3-standard"), stored_at(provider="gcp", storage_class="pd-ssd")]
    assert storage_classes(prices) == ("gp3", "pd-ssd", "s3-standard")
    assert storage_classes(price for price in prices if price.provider == "gcp") == ("pd-ssd",)


@pytest.mark.parametrize(
    ("gb", "usd"),
    [
        (0, "0"),
        (100, "0"),
        (101, "0.09"),
        (10_240, "912.6"),
        (51_200, "4394.2"),
        (153_600, "11562.2"),
        (153_700, "11567.2"),
    ],
)
def test_tiers_are_paid_one_after_the_other(gb: int, usd: str) -> None:
    assert transfer_cost(AWS_OUT, gb) == Exact.same(Fraction(usd))


def test_earlier_transfer_in_the_month_uses_up_the_free_tier() -> None:
    assert transfer_cost(AWS_OUT, 50, already_gb=100) == Exact.same(Fraction("4.5"))


def test_more_than_the_tiers_reach_is_unknown() -> None:
    assert transfer_cost(AWS_OUT[:2], 20_000) == Unknown("No price is known for more than 10,240 GB a month.")


def test_the_newest_whole_table_of_tiers_holds() -> None:
    older = (tier(0, 1, 0.0, valid_from=date(2014, 1, 1)), tier(1, None, 0.09, valid_from=date(2014, 1, 1)))
    found = transfer_prices_of([*older, *reversed(AWS_OUT)], "aws", "us-east-1", "internet", DAY)
    assert found == AWS_OUT
    assert transfer_prices_of([*older, *AWS_OUT], "aws", None, "internet", date(2020, 1, 1)) == older
    none = transfer_prices_of(AWS_OUT, "aws", "us-east-1", "region", DAY)
    assert none == Unknown("The price of a GB to another region at aws in us-east-1 is not known.")
