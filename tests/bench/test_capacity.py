"""The simulation of queues agrees with formulas, and the prices are those of the seed."""

from statistics import mean

import pytest

from bench.capacity import BUSIEST, QUEUE_P99_SECONDS, fewest_processes, price_of_machine, price_of_traffic, waits
from bench.figures import percentile

SECONDS = 0.01


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
def test_one_process_waits_as_pollaczek_and_khinchine_say(busy: float) -> None:
    """The mean time of a queue with random arrivals and equal services is s + s * busy / (2 * (1 - busy))."""
    expected = SECONDS + SECONDS * busy / (2 * (1 - busy))
    assert mean(waits([SECONDS] * 100_000, busy / SECONDS, 1)) == pytest.approx(expected, rel=0.05)


def test_no_question_waits_for_another_one_while_a_process_is_free() -> None:
    assert list(waits([SECONDS] * 1000, 1, 50)) == pytest.approx([SECONDS] * 1000)


def test_an_overloaded_process_falls_behind_without_end() -> None:
    times = list(waits([SECONDS] * 10_000, 2 / SECONDS, 1))
    assert times[-1] == pytest.approx(10_000 * SECONDS / 2, rel=0.1)


def test_the_fewest_processes_keep_both_limits() -> None:
    services = [0.001] * 9_900 + [0.05] * 100
    needed = fewest_processes(services, 2000)
    assert 2000 * mean(services) / needed <= BUSIEST
    assert percentile(sorted(waits(services, 2000, needed)), 99) <= QUEUE_P99_SECONDS
    assert 2000 * mean(services) / (needed - 1) > BUSIEST


def test_prices_are_of_the_seed() -> None:
    assert price_of_machine().usd > 0
    assert price_of_machine().observed_on >= "2026"
    assert 0 < price_of_traffic().usd < 1
