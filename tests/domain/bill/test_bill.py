"""The bill: its sums, its parts, what is unknown of it, and how it moves with hours and prices."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.bill.bill import Bill, SellerTerms, bill_of
from service.domain.bill.interruption import Checkpoints, Expectation, expect
from service.domain.bill.run import BilledRun, StoredData, TransferredData
from service.domain.money import Micros, Unknown
from tests.builders.bills import AWS_OUT, fee, hours, price, rate, rule, run, stored_at, terms

NOT_KNOWN = Unknown("The price is unknown.")


def likely(bill: Bill, name: str) -> int:
    usd = bill.part(name).usd
    assert usd is not None
    return usd.likely


def total(bill: Bill) -> int:
    assert bill.usd is not None
    return bill.usd.likely


def interrupted(work: Band, per_hour: float = 0.2) -> Expectation:
    found = expect(work, Band(per_hour / 2, per_hour, per_hour * 2), Checkpoints(30, 420), 0.79)
    assert isinstance(found, Expectation)
    return found


# Sums that are known


def test_four_instances_meet_the_deadline_for_375_dollars() -> None:
    """A thousand million samples at 4,200 a second on each of four g5.12xlarge at $5.672: 16.53 h, $375.13."""
    each = 1_000_000_000 / (4200 * 4) / 3600
    bill = bill_of(run(each, instances=4), terms(5.672))
    assert f"{bill.hours.band.likely:.2f}" == "16.53"
    assert f"{total(bill) / 1_000_000:.2f}" == "375.13"


def test_one_p4d_costs_more_in_the_same_case() -> None:
    each = 1_000_000_000 / 20_000 / 3600
    assert f"{total(bill_of(run(each), terms(32.7726))) / 1_000_000:.2f}" == "455.18"  # 455.175, rounded up


BUSY_RUN = run(
    10.0,
    nodes=2,
    setup_minutes=30,
    idle_fraction=0.2,
    stored=(StoredData("volume", 730, "gp3"),),
    sent=(TransferredData(1100),),
)


def test_every_part_of_a_bill_by_hand() -> None:
    """10 h and 30 min of setup on 2 machines at $6, a fifth of the time idle, 730 GiB of gp3, 1 TB out."""
    bill = bill_of(BUSY_RUN, terms(6.0, storage=(stored_at(0.08),), transfer=(AWS_OUT,)))
    used = 10.5 / 0.8
    assert likely(bill, "compute") == 120_000_000
    assert likely(bill, "setup") == 6_000_000
    assert likely(bill, "idle") == round((used - 10.5) * 2 * 6 * 1e6)
    assert likely(bill, "management_fee") == 0
    assert likely(bill, "storage") == round(730 * 0.08 / 730 * used * 2 * 1e6)
    assert likely(bill, "transfer") == 90_000_000
    assert total(bill) == sum(part.usd.likely for part in bill.parts if part.usd)
    assert bill.complete


def test_a_managed_service_has_a_fee_and_no_idle_time() -> None:
    bill = bill_of(BUSY_RUN, terms(6.0, fee=fee(15.0), storage=(stored_at(0.08),), transfer=(AWS_OUT,)))
    assert likely(bill, "idle") == 0
    assert likely(bill, "management_fee") == round(10.5 * 2 * 6 * 0.15 * 1e6)
    assert likely(bill, "storage") == round(730 * 0.08 / 730 * 10.5 * 2 * 1e6)
    assert total(bill) == sum(part.usd.likely for part in bill.parts if part.usd)


def test_time_is_rounded_as_the_seller_does() -> None:
    hourly = bill_of(run(1.1), terms(3.6, rule=rule(3600, 3600)))
    assert likely(hourly, "compute") == 3_960_000
    assert likely(hourly, "billing_rounding") == 3_240_000
    assert hourly.billed_hours.band.likely == 2
    short = bill_of(run(0.001), terms(3600.0, rule=rule(1, 60)))
    assert likely(short, "billing_rounding") == 60_000_000 - 3_600_000
    exactly = bill_of(run(1.1), terms(3.6, rule=rule(1, 60)))
    assert likely(exactly, "billing_rounding") == 0


def test_hours_that_miss_a_second_by_the_error_of_a_float_are_not_rounded() -> None:
    """100/3 hours are 120,000 seconds; the float is above them, so that a negative time was added."""
    bill = bill_of(run(100 / 3), terms(3.6, rule=rule(1, 60)))
    (rounding,) = (part for part in bill.parts if part.name == "billing_rounding")
    assert (rounding.basis, rounding.calculation) == ("none", None)


def test_nothing_that_runs_costs_nothing() -> None:
    bill = bill_of(run(0.0), terms(rule=rule(3600, 3600)))
    assert bill.usd == Micros(0, 0, 0)


def test_a_file_system_is_paid_once_and_a_volume_for_each_machine() -> None:
    stored = (StoredData("dataset", 100, "any", hours=730),)
    once = bill_of(run(nodes=3, stored=stored), terms(storage=(stored_at(0.3, kind="file"),)))
    each = bill_of(run(nodes=3, stored=stored), terms(storage=(stored_at(0.3, kind="block"),)))
    assert likely(once, "storage") == 30_000_000
    assert likely(each, "storage") == 90_000_000


def test_storage_that_comes_with_the_machine_costs_nothing() -> None:
    bill = bill_of(run(stored=(StoredData("scratch", 500, "local"),)), terms(storage=(stored_at(None),)))
    assert likely(bill, "storage") == 0
    assert bill.complete


def test_interruptions_are_a_part_and_storage_is_held_while_waiting() -> None:
    work = hours(24)
    expectation = interrupted(work)
    given_ = run(24.0, stored=(StoredData("dataset", 730, "s3"),))
    bill = bill_of(given_, terms(1.0, interruptions=expectation, storage=(stored_at(1.0, kind="object"),)))
    assert likely(bill, "interruption") == pytest.approx((expectation.hours.likely - 24) * 1e6, abs=1)
    assert expectation.elapsed is not None
    assert likely(bill, "storage") == pytest.approx(expectation.elapsed.likely * 1e6, abs=1)
    assert bill.part("interruption").basis == "given"


def test_a_twins_price_already_contains_the_fee() -> None:
    bill = bill_of(run(), terms(fee="contained"))
    assert likely(bill, "management_fee") == 0
    assert bill.part("management_fee").basis == "contained"


# Currencies


def test_a_bill_in_euros_is_exact_in_both_currencies() -> None:
    at = rate("EUR", 1.0812)
    bill = bill_of(run(10.0), terms(price=price(2.5, "EUR"), rate=at))
    assert bill.currency == "EUR"
    assert bill.native == Micros(25_000_000, 25_000_000, 25_000_000)
    assert total(bill) == 27_030_000


def test_without_a_rate_the_dollars_are_unknown_and_the_euros_known() -> None:
    bill = bill_of(run(10.0), terms(price=price(2.5, "EUR")))
    assert bill.usd is None
    assert bill.native == Micros(25_000_000, 25_000_000, 25_000_000)
    assert bill.missing == ("No exchange rate of EUR is known for the day.",)


# What is not known


def test_an_unknown_price_is_null_with_its_reason_and_never_nothing() -> None:
    known_parts = run(10.0, setup_minutes=5, stored=(StoredData("volume", 10, "gp3"),))
    bill = bill_of(known_parts, terms(price=NOT_KNOWN, storage=(stored_at(),)))
    assert bill.usd is None
    assert bill.native is None
    assert bill.part("compute").usd is None
    assert bill.part("setup").reason == "The price is unknown."
    assert likely(bill, "storage") > 0
    assert bill.missing == ("The price is unknown.",)


UNKNOWNS: dict[str, tuple[dict[str, Any], str]] = {
    "storage": ({"storage": (NOT_KNOWN,)}, "storage"),
    "transfer": ({"transfer": (NOT_KNOWN,)}, "transfer"),
    "fee": ({"fee": NOT_KNOWN}, "management_fee"),
    "interruptions": ({"interruptions": NOT_KNOWN}, "interruption"),
    "rule": ({"rule": NOT_KNOWN}, "billing_rounding"),
    "tiers that end": ({"transfer": (AWS_OUT[:1],)}, "transfer"),
}


@pytest.mark.parametrize("what", UNKNOWNS)
def test_with_an_unknown_part_the_total_is_a_lower_bound_and_says_so(what: str) -> None:
    changed, name = UNKNOWNS[what]
    asked = run(10.0, stored=(StoredData("volume", 10, "gp3"),), sent=(TransferredData(500),))
    whole = terms(storage=(stored_at(),), transfer=(AWS_OUT,), fee=fee(), interruptions=interrupted(asked.hours))
    full, partial = bill_of(asked, whole), bill_of(asked, replace(whole, **changed))
    assert full.complete
    assert not partial.complete
    assert partial.part(name).usd is None
    assert partial.part(name).reason in partial.missing
    assert 0 < total(partial) < total(full) or what == "rule"


def test_what_was_not_asked_for_is_nothing_even_where_its_price_is_unknown() -> None:
    bill = bill_of(run(sent=(TransferredData(0.0),)), terms(transfer=(NOT_KNOWN,)))
    assert likely(bill, "transfer") == 0
    assert bill.complete


# Properties

seconds = st.integers(60, 10**7)
prices = st.integers(1, 10**9)


@st.composite
def jobs(draw: st.DrawFn) -> BilledRun:
    low, between, above = sorted(draw(st.lists(seconds, min_size=3, max_size=3)))
    return BilledRun(
        hours=Band(low / 3600, between / 3600, above / 3600),
        nodes=draw(st.integers(1, 64)),
        instances=draw(st.integers(1, 8)),
        setup_minutes=draw(st.integers(0, 600)),
        idle_fraction=draw(st.integers(0, 99)) / 100,
        stored=(StoredData("volume", draw(st.integers(0, 10**5)), "gp3"),),
        sent=(TransferredData(draw(st.integers(0, 10**6)), already_gb=draw(st.integers(0, 10**5))),),
    )


@st.composite
def offers(draw: st.DrawFn, work: Band) -> SellerTerms:
    euros = draw(st.booleans())
    micros = draw(prices)
    return SellerTerms(
        price=replace(price(), micros_per_hour=micros, currency="EUR" if euros else "USD"),
        rate=rate(usd_per_unit=draw(st.integers(1, 10**10)) / 10**9) if euros else None,
        rule=draw(st.sampled_from([rule(), rule(60, 60), rule(3600, 3600)])),
        storage=(stored_at(draw(st.integers(1, 500)) / 1000),),
        transfer=(AWS_OUT,),
        fee=draw(st.sampled_from([None, fee(15.0), fee(32.5)])),
        interruptions=interrupted(work) if draw(st.booleans()) else None,
    )


@given(st.data())
def test_parts_add_up_to_the_total_in_every_currency_and_case(data: st.DataObject) -> None:
    job = data.draw(jobs())
    bill = bill_of(job, data.draw(offers(job.hours)))
    assert bill.usd is not None
    assert bill.native is not None
    for case in ("low", "likely", "high"):
        assert sum(getattr(part.usd, case) for part in bill.parts) == getattr(bill.usd, case)
        assert sum(getattr(part.native, case) for part in bill.parts) == getattr(bill.native, case)
    assert bill.usd.low <= bill.usd.likely <= bill.usd.high
    if bill.currency == "USD":
        assert bill.usd == bill.native


@given(seconds, st.integers(2, 50), prices)
def test_cost_is_linear_in_the_amount_above_the_billing_minimum(one: int, times: int, micros: int) -> None:
    """In whole seconds and prices of whole micro-dollars a second nothing is left to round."""
    asked = terms(price=replace(price(), micros_per_hour=micros * 3600))
    once = bill_of(BilledRun(hours=exactly(one)), asked)
    more = bill_of(BilledRun(hours=exactly(one * times)), asked)
    assert total(once) == one * micros
    assert total(more) == times * total(once)


def exactly(count: int) -> Band:
    """So many seconds in hours, which a float of hours can only come near to."""
    return hours(count / 3600)


@given(st.data())
def test_a_run_of_two_halves_costs_the_two(data: st.DataObject) -> None:
    """Additive over machines: n nodes cost what n single nodes cost, but for what is shared."""
    job = replace(data.draw(jobs()), sent=(), stored=())
    on = replace(data.draw(offers(job.hours)), storage=(), transfer=(), interruptions=None)
    single = bill_of(replace(job, nodes=1, instances=1), on)
    every = bill_of(job, on)
    assert abs(total(every) - job.machines * total(single)) <= job.machines


@given(st.data(), st.integers(1, 10**6))
def test_cost_grows_with_price(data: st.DataObject, more: int) -> None:
    job = data.draw(jobs())
    on = data.draw(offers(job.hours))
    assert not isinstance(on.price, Unknown)
    pricier = replace(on, price=replace(on.price, micros_per_hour=on.price.micros_per_hour + more))
    assert_grows(bill_of(job, on), bill_of(job, pricier))


@given(st.data(), st.integers(1, 10**6))
def test_cost_grows_with_hours(data: st.DataObject, more: int) -> None:
    job = data.draw(jobs())
    on = replace(data.draw(offers(job.hours)), interruptions=None)
    longer = replace(
        job, hours=Band(*(each + more / 3600 for each in (job.hours.low, job.hours.likely, job.hours.high)))
    )
    assert_grows(bill_of(job, on), bill_of(longer, on))


def assert_grows(before: Bill, after: Bill) -> None:
    for case in ("low", "likely", "high"):
        assert getattr(before.usd, case) <= getattr(after.usd, case)
        assert getattr(before.native, case) <= getattr(after.native, case)


@given(st.integers(0, 4_000_000), st.integers(0, 10**6))
def test_sending_in_two_goes_costs_as_much_as_in_one(gb: int, then: int) -> None:
    def sent(*each: TransferredData) -> Fraction:
        bill = bill_of(run(sent=each), terms(transfer=(AWS_OUT,) * len(each)))
        return Fraction(sum(part.usd.likely for part in bill.parts if part.name == "transfer" and part.usd))

    assert sent(TransferredData(gb), TransferredData(then, already_gb=gb)) == sent(TransferredData(gb + then))
