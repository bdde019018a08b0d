"""Instances for prompts and others for answers: against a simulation, and against a loop over both numbers."""

import os
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from service.domain.arrays import Floats, Indices
from service.domain.jobs.serving import Length, Serving
from service.domain.physics.disaggregated import serve_load, times_of_load
from service.domain.physics.load import LoadTimes, Replicas, Served
from service.domain.physics.serving import EngineTimes
from tests.oracles.serving import simulate_disaggregated

P95_OF_EVEN_ANSWERS = 1.57
"""Ratio to the mean of the 95th percentile of a lognormal length that varies as one between half and 1.5 times it."""


@dataclass(frozen=True)
class PlainEngines:
    """Engines whose steps take the same seconds however many requests run."""

    times: EngineTimes

    def at(self, running: Floats) -> EngineTimes:
        return self.times.times(np.ones(len(running)))

    def under_load(self, running: Floats) -> EngineTimes:
        return self.at(running)

    def rows(self, rows: Indices) -> "PlainEngines":
        return self


@dataclass(frozen=True)
class Case:
    """An engine at random, the seconds in which it sends a cache, and a load that takes some instances of each kind."""

    random: Random
    times: EngineTimes
    transfer: float
    places: int
    serving: Serving

    def served(self, **changed: object) -> tuple[Served, LoadTimes]:
        one, serving = np.ones(1), replace(self.serving, **changed)  # type: ignore[arg-type]
        replicas = Replicas.of(PlainEngines(self.times), self.places * one, one, one)
        served = serve_load(replicas, self.transfer * one, serving)
        return served, times_of_load(replicas, self.transfer * one, served, serving)


def case(number: int) -> Case:
    random = Random(number)
    times = EngineTimes(
        10 ** random.uniform(-2.5, -1.5),
        10 ** random.uniform(-5, -3.5),
        10 ** random.uniform(-2, -0.3),
        10 ** random.uniform(-3, -1.3),
    )
    places, tokens = random.choice((4, 16, 64, 256)), random.choice((50, 100, 200, 400))
    read = float(times.step + times.request + times.prompt)
    serving = Serving(
        requests_per_second=random.uniform(0.3, 4.0) / read,
        answer=Length(tokens, P95_OF_EVEN_ANSWERS * tokens),
        headroom=random.uniform(0.2, 0.5),
        disaggregated=True,
    )
    return Case(random, times, read * 10 ** random.uniform(-2, 0.3), places, serving)


def compared(number: int) -> tuple[float, float, float]:
    """Ratio of the model to the simulation: 95th percentile of the first token, mean time per token, and requests in
    flight (by Little's law, the mean time of a request).
    """
    each = case(number)
    served, found = each.served()
    replicas = round(float(served.prefill[0])), round(float((served.fewest - served.prefill)[0]))
    tokens = each.serving.answer.mean
    lengths = [max(2, round(tokens * each.random.uniform(0.5, 1.5))) for _ in range(3000 * max(replicas))]
    requests = simulate_disaggregated(
        each.times, each.transfer, each.serving.requests_per_second, each.places, lengths, replicas, each.random
    )
    first = np.quantile([request.first - request.sent for request in requests], 0.95)
    token = sum(request.last - request.first for request in requests) / sum(request.tokens - 1 for request in requests)
    whole = np.mean([request.last - request.sent for request in requests])
    return (
        float(found.first_token(0.95)[0]) / float(first),
        float(found.mean_per_token[0]) / token,
        float(found.mean_request[0]) / float(whole),
    )


def check(cases: range) -> None:
    first, token, whole = np.abs(np.array([compared(number) for number in cases]).T - 1.0)
    assert np.mean(first <= 0.10) >= 0.9, first
    assert np.mean(token <= 0.05) >= 0.9, token
    assert np.mean(whole <= 0.05) >= 0.9, whole


def test_times_are_those_of_a_simulation() -> None:
    check(range(20))


@pytest.mark.skipif("SLOW_TESTS" not in os.environ, reason="takes minutes: set SLOW_TESTS=1")
def test_times_are_those_of_200_simulations() -> None:
    check(range(200))


def test_a_request_alone_waits_for_its_prompt_and_its_cache() -> None:
    for number in range(20):
        each = case(number)
        _, found = each.served(requests_per_second=1e-9)
        read = float(each.times.arrival + each.times.step + each.times.request + each.times.prompt)
        assert found.first_token(0.5)[0] == pytest.approx(read + each.transfer)
        # The second token waits for no step of others.
        assert found.per_output_token(0.5)[0] == pytest.approx(float(each.times.step + each.times.request), rel=1e-3)


LIMITS = ("max_seconds_to_first_token", "max_seconds_per_output_token")


def test_each_kind_has_the_fewest_instances_that_keep_its_limit() -> None:
    late = 0
    for number in range(60):
        each = case(number)
        _, quick = each.served(requests_per_second=1e-3 * each.serving.requests_per_second)
        least = float(quick.first_token(0.95)[0]), float(quick.per_output_token(0.95)[0])
        limits = {name: each.random.uniform(1.01, 1.5) * time for name, time in zip(LIMITS, least, strict=True)}
        served, times = each.served(**limits)
        assert times.first_token(0.95)[0] <= limits[LIMITS[0]]
        assert times.per_output_token(0.95)[0] <= limits[LIMITS[1]]
        fewer = {**limits, "max_instances": int(served.instances[0]) - 1}
        without_one, _ = each.served(**fewer)
        assert without_one.missed(replace(each.serving, **fewer))  # type: ignore[arg-type]
        for name, figure in zip(LIMITS, without_one.least_together[0], strict=False):
            if np.isfinite(figure):
                late += 1
                for slack, kept in ((1 + 1e-9, True), (0.999, False)):
                    asked = {**fewer, name: figure * slack}
                    again, _ = each.served(**asked)
                    assert (not again.missed(replace(each.serving, **asked))) is kept
    assert late > 30


def test_instances_that_are_asked_for_write_answers() -> None:
    served, _ = case(0).served()
    more = int(served.instances[0]) + 3
    with_more, _ = case(0).served(min_instances=more, max_instances=more)
    assert with_more.instances[0] == more
    assert with_more.prefill[0] == served.prefill[0]
    assert with_more.utilisation[0] <= served.utilisation[0]
