"""The price of a load: its parts add up to the hour of its machines."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.bill.interruption import Checkpoints
from service.domain.bill.market_bills import PricedRun, price_everywhere
from service.domain.bill.payment_options import PaymentOption
from service.domain.bill.run import Run, RunAmount
from service.domain.bill.unit_costs import CERTAIN, costs_of_load
from service.domain.jobs.serving import Length, Serving
from service.domain.money import Micros, Unknown
from service.domain.physics.generation import ServedLoad, TokenTimes
from tests.builders.bills import fee
from tests.builders.catalogs import catalog
from tests.builders.offers import priced


def served(requests_per_second: float, prompt_share: float, missed: dict[str, float] | None = None) -> ServedLoad:
    return ServedLoad(
        serving=Serving(requests_per_second, prompt=Length(800.0), answer=Length(200.0)),
        instances=Band(2.0, 3.0, 5.0),
        missed=missed or {},
        replicas=2.0,
        places=64.0,
        running=20.0,
        in_flight=130.0,
        utilisation=0.5,
        requests_per_second=requests_per_second,
        seconds_per_request=2.2,
        tokens=TokenTimes(0.2, 0.01, 0.1, 0.01),
        prompt_share=prompt_share,
    )


def test_a_month_is_that_of_all_machines() -> None:
    cost = costs_of_load(served(10.0, 0.5), 2_000_000, nodes=2)
    assert cost is not None
    assert cost.usd_per_month == Micros(*(round(usd_per_hour * 730e6) for usd_per_hour in (8, 12, 20)))


def test_a_load_of_some_hours_a_day_pays_for_these_and_under_a_commitment_for_all() -> None:
    whole, some = served(10.0, 0.5), served(10.0, 0.5)
    some = replace(some, serving=replace(some.serving, hours_per_day=6.0))
    every, part = (costs_of_load(each, 2_000_000, nodes=2) for each in (whole, some))
    committed = costs_of_load(some, 2_000_000, nodes=2, paid_hours=730)
    assert every is not None
    assert part is not None
    assert committed is not None
    assert part.usd_per_month is not None
    assert every.usd_per_month is not None
    assert part.usd_per_month.likely == every.usd_per_month.likely / 4
    assert part.usd_per_million_tokens == every.usd_per_million_tokens
    assert committed.usd_per_month == every.usd_per_month
    assert committed.usd_per_million_tokens is not None
    assert every.usd_per_million_tokens is not None
    assert committed.usd_per_million_tokens.likely == pytest.approx(4 * every.usd_per_million_tokens.likely, abs=4)
    # 36,000 requests an hour, for 20, 12 and 8 dollars; a quarter of them if all hours of the month are paid.
    assert part.samples_per_usd == every.samples_per_usd == Band(1800.0, 3000.0, 4500.0)
    assert committed.samples_per_usd == Band(450.0, 750.0, 1125.0)


@given(st.floats(0.01, 1e4), st.floats(0.01, 0.99))
def test_prompts_and_answers_add_up_to_the_hour_of_the_machines(rate: float, share: float) -> None:
    cost = costs_of_load(served(rate, share), 2_000_000, nodes=1)
    assert cost is not None
    assert cost.usd_per_million_input_tokens is not None
    assert cost.usd_per_million_output_tokens is not None
    assert cost.usd_per_thousand_samples is not None
    prompts, answers = cost.usd_per_million_input_tokens.likely / 1e6, cost.usd_per_million_output_tokens.likely / 1e6
    a_request = prompts * 800 / 1e6 + answers * 200 / 1e6
    assert a_request * rate * 3600 == pytest.approx(6.0, rel=1e-3, abs=2 * rate * 3600 * 1e-9)
    assert cost.usd_per_thousand_samples.likely / 1e9 * rate * 3600 == pytest.approx(6.0, rel=1e-3, abs=rate * 3600e-9)


@pytest.mark.parametrize("factors", [CERTAIN, (0.5, 1.0, 3.0)])
def test_the_requests_for_a_dollar_are_those_of_the_dollars_for_a_thousand(factors: tuple[float, float, float]) -> None:
    cost = costs_of_load(served(10.0, 0.5), 2_000_000, 1, factors)
    assert cost is not None
    assert cost.samples_per_usd is not None
    usd = cost.usd_per_thousand_samples
    assert usd is not None
    dollars = [each / 1e6 for each in (usd.high, usd.likely, usd.low)]
    found = (cost.samples_per_usd.low, cost.samples_per_usd.likely, cost.samples_per_usd.high)
    assert found == pytest.approx([1000 / each for each in dollars], rel=1e-3)


def test_a_machine_that_costs_nothing_has_no_requests_for_a_dollar() -> None:
    cost = costs_of_load(served(10.0, 0.5), 0, nodes=1)
    assert cost is not None
    assert cost.samples_per_usd is None


def test_a_load_that_is_not_served_within_its_limits_has_no_price() -> None:
    assert costs_of_load(served(10.0, 0.5, {"max_instances": 12.0}), 2_000_000, nodes=1) is None
    assert costs_of_load(served(10.0, 0.5), None, nodes=1) is None


def test_a_managed_service_takes_its_premium_of_a_month_and_of_every_price_of_a_unit() -> None:
    known = catalog(priced(usd_per_hour=10.0), fees=(fee(40.0),))
    amount = RunAmount(Unknown("A load has no end."), "modelled")
    run = PricedRun.of(Run(), amount, Checkpoints(), served(10.0, 0.5))
    options = [PaymentOption(known.offers.offer(0), service) for service in (None, "sagemaker-training")]
    plain, managed = price_everywhere(run, known.instance_types[0], options, known)
    assert (plain.charged_micros_per_hour, managed.charged_micros_per_hour) == (30_000_000, 42_000_000)
    assert managed.usd_micros_per_hour == plain.usd_micros_per_hour == 10_000_000
    prices = [(getattr(plain.per_unit, name), getattr(managed.per_unit, name)) for name in PRICES_OF_A_LOAD]
    assert [more.likely / less.likely for less, more in prices] == pytest.approx([1.4] * len(prices), rel=1e-3)
    assert plain.per_unit.samples_per_usd is not None
    assert managed.per_unit.samples_per_usd is not None
    assert plain.per_unit.samples_per_usd.likely / managed.per_unit.samples_per_usd.likely == pytest.approx(1.4)


PRICES_OF_A_LOAD = (
    "usd_per_month", "usd_per_million_tokens", "usd_per_million_input_tokens", "usd_per_million_output_tokens",
    "usd_per_thousand_samples",
)  # fmt: skip
