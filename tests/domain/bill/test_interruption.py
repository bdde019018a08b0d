"""Checkpoints, restarts and gangs; worked examples of Young's and Daly's formulas to the printed digit."""

from datetime import date
from math import inf, isfinite
from random import Random
from statistics import mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.band import Band
from service.domain.bill.interruption import (
    NEVER_ENDS,
    Checkpoints,
    Expectation,
    Rates,
    break_even_rate,
    daly_interval,
    deviation_seconds,
    expect,
    expect_by_prior,
    expected,
    expected_seconds,
    gang_factor,
    interval_of,
    saving_hours,
    young_interval,
)
from service.domain.catalog.tariffs import InterruptionPrior, prior_of
from service.domain.money import Unknown
from tests.builders.bills import hours
from tests.builders.sources import DAY

HOUR = 3600.0
SPOT = Checkpoints(save_seconds=30, restart_seconds=420)


def test_example_a_a_large_cluster() -> None:
    mean_seconds, save = 3.1 * HOUR, 60.0
    assert f"{young_interval(save, mean_seconds):.0f}" == "1157"
    interval = daly_interval(save, mean_seconds)
    assert f"{interval:.0f}" == "1118"
    assert f"{expected_seconds(1e6, interval, Checkpoints(save, 300), 1 / 3.1) / 1e6:.2f}" == "1.14"


def test_example_b_a_spot_machine() -> None:
    interval = young_interval(30, 8 * HOUR)
    assert f"{interval:.0f}" == "1315"
    seconds = expected_seconds(24 * HOUR, interval, SPOT, 1 / 8)
    assert f"{seconds / HOUR:.1f}" == "25.5"
    assert f"{100 * (seconds / HOUR / 24 - 1):.1f}" == "6.2"
    assert f"{100 * (1 - 0.4 * seconds / HOUR / 24):.1f}" == "57.5"


def test_example_b_as_a_gang_of_eight() -> None:
    per_hour = 1 / 8 * gang_factor(8)
    assert per_hour == 1.0
    interval = young_interval(30, HOUR)
    assert f"{interval:.0f}" == "465"
    assert f"{expected_seconds(1.0, interval, SPOT, per_hour):.2f}" == "1.28"


def test_example_c_billed_and_elapsed() -> None:
    interval = young_interval(30, 3 * HOUR)
    assert f"{interval:.0f}" == "805"
    found = expect(hours(24), Band(1 / 3, 1 / 3, 1 / 3), Checkpoints(30, 420, interval), available_share=0.79)
    assert isinstance(found, Expectation)
    assert f"{found.hours.likely:.1f}" == "26.9"
    assert found.elapsed is not None
    assert f"{found.elapsed.likely:.1f}" == "34.1"
    assert f"{100 * 0.35 * found.hours.likely / 24:.0f}" == "39"


def test_the_formula_and_its_spread_agree_with_a_simulation() -> None:
    random, per_hour, interval, work = Random(7), 0.5, 1200.0, 12 * HOUR
    times = [simulated(random, work, interval, SPOT, per_hour) for _ in range(1500)]
    expected = expected_seconds(work, interval, SPOT, per_hour)
    assert mean(times) == pytest.approx(expected, rel=0.01)
    assert stdev(times) == pytest.approx(deviation_seconds(expected, interval, SPOT, per_hour), rel=0.15)


def simulated(random: Random, work: float, interval: float, checkpoints: Checkpoints, per_hour: float) -> float:
    """One run, interruption by interruption: a segment that is broken off begins again with a restart."""
    rate, clock = per_hour / HOUR, 0.0
    for _ in range(round(work / interval)):
        needed = interval + checkpoints.save_seconds
        while (lived := random.expovariate(rate)) < needed:
            clock += lived
            needed = checkpoints.restart_seconds + interval + checkpoints.save_seconds
        clock += needed
    return clock


@given(st.floats(1, 600), st.floats(0.001, 5))
def test_daly_is_as_good_as_any_other_interval(save: float, per_hour: float) -> None:
    checkpoints = Checkpoints(save, 300)
    best = expected_seconds(1e7, daly_interval(save, HOUR / per_hour), checkpoints, per_hour)
    for factor in (0.5, 0.8, 1.25, 2.0):
        other = daly_interval(save, HOUR / per_hour) * factor
        assert best <= expected_seconds(1e7, other, checkpoints, per_hour) * 1.005


@given(st.floats(0.5, 500), st.floats(0.001, 0.5), st.floats(1.01, 3))
def test_more_interruptions_cost_more(work: float, per_hour: float, factor: float) -> None:
    one, more = (expect(hours(work), Band(r, r, r), SPOT) for r in (per_hour, per_hour * factor))
    assert isinstance(one, Expectation)
    assert isinstance(more, Expectation)
    assert one.hours.likely < more.hours.likely
    assert work < one.hours.low <= one.hours.likely <= one.hours.high


def test_the_callers_interval_is_used() -> None:
    found = expect(hours(24), Band(0.1, 0.1, 0.1), Checkpoints(30, 420, 600))
    assert isinstance(found, Expectation)
    assert found.interval_seconds == 600


def test_no_interval_is_longer_than_the_work() -> None:
    assert interval_of(SPOT, 100.0, 1e-9) == 100.0
    assert interval_of(Checkpoints(0, 0), 100.0, 0.1) == 1.0
    assert interval_of(Checkpoints(30, 420, inf), 7200.0, 0.1) == 7200.0


def test_work_that_is_never_saved_and_often_interrupted_does_not_end() -> None:
    assert expect(hours(100), Band(1, 1, 1), Checkpoints(30, 420, inf)) == Unknown(NEVER_ENDS)
    assert expect(hours(1e5), Band(1, 1, 1), Checkpoints(30, 420, inf)) == Unknown(NEVER_ENDS)


def test_saving_is_paid_for_even_without_interruptions() -> None:
    found = expect(hours(10), Band(0, 0, 0), Checkpoints(60, 300, 1200))
    assert isinstance(found, Expectation)
    assert found.hours.likely == pytest.approx(10 * (1 + 60 / 1200))
    assert found.interruptions == Band(0, 0, 0)


@given(st.floats(0.01, 500), st.floats(1.0, 1e5), st.floats(0.0, 1e4))
def test_a_run_saves_at_the_interval_of_the_caller_without_interruptions_too(
    work: float, interval: float, save: float
) -> None:
    """Every interval, and at least once; without an interval, it saves for interruptions alone."""
    saves = Checkpoints(save, 300.0, interval)
    rounds = max(1.0, work * HOUR / interval)
    assert saving_hours(work, saves) == pytest.approx(rounds * save / HOUR)
    alone = expect(hours(work), Band(0, 0, 0), saves)
    assert isinstance(alone, Expectation)
    assert alone.hours.likely == pytest.approx(work + saving_hours(work, saves))
    assert alone.stretch == pytest.approx(1)
    for unstated in (None, inf):
        assert saving_hours(work, saves._replace(interval_seconds=unstated)) == 0
    assert saving_hours(np.array([0.0, inf]), saves).tolist() == [0, inf if save else 0]


def test_nothing_to_do_takes_no_time() -> None:
    found = expect(hours(0), Band(0.1, 0.2, 0.5), SPOT)
    assert isinstance(found, Expectation)
    assert found.hours == Band(0, 0, 0)


def test_nodes_that_are_lost_together_count_once() -> None:
    assert 0.2 * gang_factor(8, lost_together=1.0) == pytest.approx(0.2)
    assert 0.2 * gang_factor(1, lost_together=0.3) == pytest.approx(0.2)
    assert 0.2 * gang_factor(8, lost_together=0.5) == pytest.approx(0.9)


@given(st.floats(1, 200), st.floats(0.2, 0.95), st.sampled_from([0.0, 0.5, 20.0]))
def test_at_the_break_even_rate_spot_costs_as_much(work: float, price_ratio: float, setup: float) -> None:
    rate = break_even_rate(work, price_ratio, SPOT, setup)
    if rate is None:
        assert price_ratio * (work + setup + 30 / HOUR) >= work + setup
        return
    interval = interval_of(SPOT, work * HOUR, rate)
    at_spot = expected_seconds(work * HOUR, interval, SPOT, rate) + setup * HOUR
    assert price_ratio * at_spot == pytest.approx((work + setup) * HOUR, rel=1e-6)


def test_spot_that_is_no_cheaper_never_breaks_even() -> None:
    assert break_even_rate(24, 1.0, SPOT) is None
    assert break_even_rate(0, 0.4, SPOT) is None


def prior(provider: str = "", gpu: str = "", likely: float = 0.2, since: date = DAY) -> InterruptionPrior:
    return InterruptionPrior("spot", provider, gpu, since, 0.1, likely, 0.5, 0.9, 0.7, "a-test", None)


def test_the_narrowest_and_newest_prior_speaks() -> None:
    older, newer = prior(likely=0.3, since=date(2023, 1, 1)), prior(likely=0.25)
    of_aws, of_card = prior("aws", likely=0.4), prior("aws", "v100-sxm2-16gb", likely=0.5)
    every = [older, newer, of_aws, of_card]
    assert prior_of(every, "gcp", "spot", "a100-sxm4-40gb", DAY) == newer
    assert prior_of(every, "gcp", "spot", None, date(2023, 6, 1)) == older
    assert prior_of(every, "aws", "spot", "a100-sxm4-40gb", DAY) == of_aws
    assert prior_of(every, "aws", "spot", "v100-sxm2-16gb", DAY) == of_card
    assert isinstance(prior_of(every, "aws", "spot", None, date(2020, 1, 1)), Unknown)
    assert prior_of([], "aws", "spot", None, DAY) == Unknown("How often aws interrupts spot machines is not known.")


def test_a_prior_gives_hours_and_its_source() -> None:
    found = expect_by_prior(hours(24), prior(), SPOT, nodes=4)
    assert isinstance(found, Expectation)
    assert (found.basis, found.source) == ("prior", "a-test")
    assert found.per_hour.likely == pytest.approx(0.2 * 1.3)
    assert found.elapsed is not None
    assert found.elapsed.likely == pytest.approx(found.hours.likely / 0.7)
    assert expect_by_prior(hours(24), Unknown("why"), SPOT, nodes=1) == Unknown("why")


# Columns of runs

checkpoints = st.builds(
    Checkpoints,
    save_seconds=st.sampled_from([0.0, 30.0, 600.0]),
    restart_seconds=st.sampled_from([0.0, 300.0]),
    interval_seconds=st.sampled_from([None, 600.0, 1e5, inf]),
)


@given(
    st.lists(st.tuples(st.floats(0.01, 500), st.floats(1, 3), st.integers(1, 8)), min_size=1, max_size=5),
    st.floats(0.001, 2.0),
    st.floats(1.0, 5.0),
    st.floats(0, 1),
    st.floats(0.1, 1),
    checkpoints,
)
def test_it_equals_the_formulas_of_one_run(
    runs: list[tuple[float, float, int]],
    rate: float,
    times: float,
    together: float,
    available: float,
    saves: Checkpoints,
) -> None:
    hours, spread, nodes = (np.array(column, np.float64) for column in zip(*runs, strict=True))
    same = np.ones(len(runs))
    rates = Rates(same * rate, same * rate * times, same * together, same * available)
    found = expected(hours, hours * spread, nodes, rates, saves)
    for place, (work, wider, count) in enumerate(runs):
        per_hour = Band(rate / times, rate, rate * times).times(gang_factor(count, together))
        alone = expect(Band(work, work, work * wider), per_hour, saves, available)
        paid = found.paid[place], found.paid_high[place]
        if isinstance(alone, Unknown):
            assert not all(map(isfinite, paid))
            continue
        assert paid == pytest.approx((alone.hours.likely, alone.hours.high), rel=1e-9)
        assert alone.elapsed is not None
        elapsed = found.elapsed[place], found.elapsed_high[place]
        assert elapsed == pytest.approx((alone.elapsed.likely, alone.elapsed.high), rel=1e-9)


def test_where_nothing_is_believed_the_hours_stay() -> None:
    unknown = np.array([np.nan])
    rates = Rates(unknown, unknown, unknown, np.ones(1))
    found = expected(np.array([5.0]), np.array([7.0]), np.ones(1), rates, Checkpoints(30, 300))
    assert (found.paid[0], found.paid_high[0], found.elapsed[0]) == (5.0, 7.0, 5.0)
