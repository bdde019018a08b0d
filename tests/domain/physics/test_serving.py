"""The steady state of an engine against a simulation of it, and laws that hold everywhere."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.jobs.serving import Length
from service.domain.physics.serving import EngineTimes, batches_of_arrivals, steady_state
from tests.oracles.serving import simulate


def _seconds(exponent: tuple[float, float]) -> st.SearchStrategy[float]:
    return st.floats(*exponent).map(lambda power: float(10**power))


ENGINES = st.builds(
    EngineTimes,
    step=_seconds((-3.0, -1.5)),
    request=_seconds((-6.0, -4.0)),
    prompt=_seconds((-4.0, 0.0)),
    arrival=_seconds((-3.0, -1.0)),
)
REQUESTS = st.integers(1, 4096)
TOKENS = st.integers(2, 8192)


def _figures(engine: EngineTimes, in_flight: float, most: float, tokens: float) -> tuple[float, float, float]:
    """Requests per second, seconds to the first token, and seconds per output token."""
    state = steady_state(engine, in_flight, most, tokens)
    shares = (state.per_request, state.to_first_token, state.per_token)
    between, first, token = (float(share.total(engine)) for share in shares)
    return 1.0 / between, first, token


@pytest.mark.parametrize("case", range(30))
def test_the_steady_state_is_that_of_a_simulation(case: int) -> None:
    """Prompts that arrive together make the first token of some wait longer than the mean, and their others shorter."""
    random = Random(case)
    engine = EngineTimes(
        10 ** random.uniform(-2.5, -1.5),
        10 ** random.uniform(-6, -4),
        10 ** random.uniform(-3.5, -0.7),
        10 ** random.uniform(-3, -1.3),
    )
    in_flight, tokens = random.choice((1, 2, 4, 8, 16, 32, 64)), random.choice((20, 50, 100, 200))
    most = random.choice((in_flight, in_flight, max(1, in_flight // 2)))
    seen = simulate(engine, in_flight, most, tokens, requests=max(600, 30 * in_flight), seed=case)
    rate, _, token = _figures(engine, in_flight, most, tokens)
    assert rate == pytest.approx(seen.requests_per_second, rel=0.05)
    assert token == pytest.approx(seen.seconds_per_output_token, rel=0.07)


@given(ENGINES, REQUESTS, REQUESTS, TOKENS)
def test_requests_in_flight_are_rate_times_seconds(engine: EngineTimes, asked: int, most: int, tokens: int) -> None:
    """Little's law."""
    rate, first, token = _figures(engine, asked, most, tokens)
    assert rate * (first + max(1, tokens - 1) * token) == pytest.approx(asked, rel=0.05)


@given(ENGINES, REQUESTS, REQUESTS, REQUESTS, TOKENS)
def test_more_requests_are_never_answered_more_slowly_in_all_nor_faster_each(
    engine: EngineTimes, asked: int, more: int, most: int, tokens: int
) -> None:
    rate, first, token = _figures(engine, asked, most, tokens)
    rate_of_more, first_of_more, token_of_more = _figures(engine, asked + more, most, tokens)
    assert rate_of_more >= rate * (1 - 1e-9)
    assert token_of_more >= token * (1 - 1e-9)
    assert first_of_more >= first * (1 - 1e-9)


@given(ENGINES, REQUESTS, REQUESTS, TOKENS)
def test_at_saturation_requests_wait_and_the_rate_stays(
    engine: EngineTimes, asked: int, most: int, tokens: int
) -> None:
    enough = most * 200  # even where a request spends most of its time on its way
    full = _figures(engine, enough, most, tokens)
    rate, first, token = _figures(engine, enough + asked, most, tokens)
    assert (rate, token) == pytest.approx((full[0], full[2]))
    assert first > full[1]


@given(ENGINES, REQUESTS, REQUESTS, REQUESTS, TOKENS)
def test_more_room_never_hurts(engine: EngineTimes, asked: int, most: int, more: int, tokens: int) -> None:
    assert _figures(engine, asked, most + more, tokens)[0] >= _figures(engine, asked, most, tokens)[0] * (1 - 1e-9)


def test_rows_of_a_table_are_solved_as_they_are_one_by_one() -> None:
    engine = EngineTimes(np.array([0.01, 0.02]), np.array([1e-5, 1e-4]), np.array([0.1, 0.01]), np.array([0.01, 0.0]))
    together = steady_state(engine, np.array([8.0, 64.0]), np.array([16.0, 32.0]), 100.0).running
    alone = [
        float(steady_state(EngineTimes(*row), asked, most, 100.0).running)
        for row, asked, most in (((0.01, 1e-5, 0.1, 0.01), 8.0, 16.0), ((0.02, 1e-4, 0.01, 0.0), 64.0, 32.0))
    ]
    assert together == pytest.approx(alone)


@pytest.mark.parametrize(("clients", "idle"), [(8, True), (15, True), (16, False), (40, False)])
def test_static_batches_wait_for_requests_on_their_way_unless_a_whole_batch_is_there(clients: int, idle: bool) -> None:
    engine = EngineTimes(step=0.02, request=0.001, prompt=0.01, arrival=0.05)
    state = steady_state(engine, float(clients), 8.0, 10.0, longest=10.0)
    batch = 10 * (0.02 + 8 * 0.001) + 8 * 0.01
    assert 8 * state.per_request.total(engine) == pytest.approx(batch + (0.05 if idle else 0.0))


def test_no_batch_of_arrivals_has_less_than_a_request_even_by_rounding() -> None:
    """A mean below one gave the seconds that others add a negative variance, whose root is no number."""
    rate, places = (each.ravel() for each in np.meshgrid(np.geomspace(1e-9, 1e-2, 100), np.arange(2.0, 200.0)))
    batches = batches_of_arrivals(EngineTimes(0.02, 0.001, 0.01, 0.001), rate, places, Length(92.0))
    assert (batches.size >= 1.0).all()
